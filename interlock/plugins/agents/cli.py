"""`interlock agent`: the recorded steps of an agent run, its resume, and its forks."""

from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, find_unit, get_actor, open_app
from interlock.cli.output import Json, print_json, print_line, print_table
from interlock.client.agents import AgentRun
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.kernel.errors import InterlockError, Unknown
from interlock.plugins.agents.options import RUN
from interlock.plugins.agents.queries import read_agent_steps
from interlock.store.queries.views import read_summary

app = typer.Typer(name="agent", help="Agent runs: what one has recorded, resume, fork.", no_args_is_help=True)
RunId = Annotated[str, typer.Argument(metavar="RUN", help="An agent run, as in agent_run_4r1.")]
WHY = "Why; kept with the event."
Reason = Annotated[str, typer.Option("--reason", help=WHY)]
At = Annotated[str, typer.Option("--at", metavar="STEP", help="The step that is done again.")]
Replace = Annotated[
    list[str] | None,
    typer.Option("--replace", metavar="NAME=JSON", help="Another result of a step up to that one; may be repeated."),
]
SHOWN = 200  # characters of a result in a table


@app.command("steps")
def list_steps(run: RunId, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """List the steps that a run has recorded, with their results; a resumed run has those of its earlier jobs too."""
    with open_app(db, tenant) as client:
        agent = find_agent_run(client, run)
        recorded, results = client.read(read_agent_steps, agent.unit), agent.steps
    rows: list[dict[str, Any]] = [
        {"name": step.name, "recorded_at": format_time(step.at), "result": results[step.name]} for step in recorded
    ]
    if json:
        print_json({"id": agent.id, "steps": rows})
        return
    print_table(("STEP", "RECORDED", "RESULT"), [make_step_row(row) for row in rows])


def make_step_row(row: dict[str, Any]) -> list[str]:
    return [row["name"], row["recorded_at"], msgspec.json.encode(row["result"]).decode()[:SHOWN]]


@app.command("resume")
def resume(
    run: RunId, reason: Reason, actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False
) -> None:
    """Let a run that failed or was cancelled go on; no step that it has recorded is done again."""
    with open_app(db, tenant) as client:
        agent = find_agent_run(client, run)
        standing = agent.resume(by=get_actor(actor), reason=reason)
    if json:
        print_json({"id": agent.id, "state": standing.state, "applied": standing.applied})
    else:
        print_line(f"{agent.id} was resumed; it is {standing.state}")


@app.command("fork")
def fork(
    run: RunId, at: At, replace: Replace = None, reason: Annotated[str, typer.Option("--reason", help=WHY)] = "",
    actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False,
) -> None:  # fmt: skip
    """Make a new run that goes on from a recorded step, with all that was recorded before it."""
    results = dict(parse_result(text) for text in replace or ())
    with open_app(db, tenant) as client:
        forked = find_agent_run(client, run).fork(at=at, replace=results, by=get_actor(actor), reason=reason)
    if json:
        print_json({"id": forked.id, "run": run, "at": at})
    else:
        print_line(f"{forked.id} goes on from step '{at}' of {run}")


def parse_result(text: str) -> tuple[str, Any]:
    """The name of a step and its result, as in `plan={"a": 1}`. Raises InterlockError."""
    name, is_given, result = text.partition("=")
    try:
        if name and is_given:
            return name, msgspec.json.decode(result)
    except msgspec.MsgspecError:
        pass
    raise InterlockError(f"--replace {text[:80]!r} is not allowed; allowed is NAME=JSON, as in plan='{{\"a\": 1}}'")


def find_agent_run(client: App, text: str) -> AgentRun:
    """Return the run that an id names. Raises Unknown."""
    unit = find_unit(client, text)
    lifecycle = client.read(read_summary, unit).lifecycle
    if lifecycle != RUN:
        raise Unknown(f"'{text}' is no agent run; it is a {lifecycle}")
    return AgentRun(client, unit, lifecycle=lifecycle)
