"""`interlock agent`: the recorded steps of an agent run, what it has used, its resume, and its forks."""

from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, find_unit, get_actor, open_app
from interlock.cli.output import Json, print_json, print_line, print_table
from interlock.client.agents import AgentRun
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.kernel.budgets import format_amount, present_amount
from interlock.kernel.commands import MeterStatus
from interlock.kernel.errors import InterlockError, Unknown
from interlock.plugins.agents.options import RUN
from interlock.plugins.agents.queries import read_agent_steps
from interlock.store.queries.views import read_summary

app = typer.Typer(name="agent", help="Agent runs: what one has recorded and used, resume, fork.", no_args_is_help=True)
RunId = Annotated[str, typer.Argument(metavar="RUN", help="An agent run, as in agent_run_4r1.")]
WHY = "Why; kept with the event."
Reason = Annotated[str, typer.Option("--reason", help=WHY)]
Caps = Annotated[
    list[str] | None,
    typer.Option("--budget", metavar="NAME=AMOUNT", help="What it may use now, as in usd=10; may be repeated."),
]
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


@app.command("budget")
def show_budget(run: RunId, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Show what a run and all below it have used, and what they may use."""
    with open_app(db, tenant) as client:
        meters = find_agent_run(client, run).read_meters()
    if json:
        print_json({"id": run, "meters": [describe_meter(meter) for meter in meters]})
        return
    print_table(("WHAT", "USED", "ASK AT", "AT MOST"), [make_meter_row(meter) for meter in meters])


def describe_meter(meter: MeterStatus) -> dict[str, Any]:
    amounts = {"used": meter.used, "soft": meter.soft, "hard": meter.hard}
    return {
        "name": meter.name,
        **{word: None if each is None else present_amount(meter.name, each) for word, each in amounts.items()},
    }


def make_meter_row(meter: MeterStatus) -> list[str]:
    amounts = (meter.used, meter.soft, meter.hard)
    return [meter.name, *("" if each is None else format_amount(meter.name, each) for each in amounts)]


@app.command("resume")
def resume(
    run: RunId, reason: Reason, budget: Caps = None, actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT,
    json: Json = False,
) -> None:  # fmt: skip
    """Let a run that failed or was cancelled go on; no step that it has recorded is done again."""
    caps = dict(parse_cap(text) for text in budget or ()) or None
    with open_app(db, tenant) as client:
        agent = find_agent_run(client, run)
        standing = agent.resume(by=get_actor(actor), reason=reason, budget=caps)
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


def parse_cap(text: str) -> tuple[str, float | str]:
    """The name of a unit and how much of it may be used, as in usd=10 or active=30m. Raises InterlockError."""
    name, is_given, amount = text.partition("=")
    if not name or not is_given or not amount:
        raise InterlockError(
            f"--budget {text[:80]!r} is not allowed; allowed is NAME=AMOUNT, as in usd=10 or active=30m"
        )
    try:
        return name, float(amount)
    except ValueError:
        return name, amount


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
