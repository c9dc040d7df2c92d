"""`interlock agent`: what an agent run has recorded and used, its resume, its forks, and what is decided about it."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, Why, find_unit, get_actor, open_app, parse_length
from interlock.cli.output import FINDING, Json, print_json, print_line, print_table, write_file
from interlock.cli.submit import (
    Arg,
    Attempts,
    Correlation,
    Input,
    Label,
    Priority,
    Queue,
    encode,
    parse_input,
    parse_pairs,
    print_submitted,
)
from interlock.client.agent_records import (
    describe_entry,
    describe_meter,
    read_all_entries,
    render_transcript,
    render_usage,
)
from interlock.client.agent_watch import AgentProgress, read_agent_progress
from interlock.client.agents import AgentRun
from interlock.client.app import App
from interlock.client.budgets import describe_caps
from interlock.client.durations import format_time
from interlock.kernel.budgets import format_amount, parse_caps, present_amount
from interlock.kernel.commands import MeterStatus, Submit
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.plugins.agents.cassettes import encode_cassette, read_cassette
from interlock.plugins.agents.governance import PASS, read_decision
from interlock.plugins.agents.options import RUN, AgentOptions, ContractTerms
from interlock.plugins.agents.queries import read_agent_steps, read_contract_of_run
from interlock.plugins.agents.transcripts import TranscriptEntry
from interlock.plugins.agents.works import make_works
from interlock.store.connection import Connection
from interlock.store.queries.views import read_summary, view

app = typer.Typer(
    name="agent", help="Agent runs: submit, list recorded steps, show budgets, resume, fork, decide.",
    no_args_is_help=True,
)  # fmt: skip
COMMANDS = typer.Typer()  # the group, and what stands beside the commands of the core
COMMANDS.add_typer(app)
RunId = Annotated[str, typer.Argument(metavar="RUN", help="An agent run, as in agent_run_4r1.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Write it to a file, one line of JSON per entry.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Also fail what is in doubt, and a run without a commit.")]
AppPlace = Annotated[str, typer.Option("--app", metavar="MODULE:NAME", help="Where the agent is, as in agents:app.")]
Folder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the two files (default: here).")]
TEST = """from pathlib import Path

from interlock.testing import staged

from {module} import {attribute}


def test_{run}_goes_as_it_was_recorded() -> None:
    with staged({attribute}) as stage:
        stage.replay(Path(__file__).with_name("{run}.jsonl"))
"""
VALUE_SHOWN = 120  # characters of a value in a table
WHY = "Why; kept with the event."
Reason = Annotated[str, typer.Option("--reason", help=WHY)]
Caps = Annotated[
    list[str] | None,
    typer.Option("--budget", metavar="NAME=AMOUNT", help="What it may use now, as in usd=10; may be repeated."),
]
Raised = Annotated[
    list[str] | None,
    typer.Option("--raise", metavar="NAME=AMOUNT", help="Resume it with this cap, as in usd=10; may be repeated."),
]
BudgetReason = Annotated[str, typer.Option("--reason", help="Why it is raised; kept with the event.")]
At = Annotated[str, typer.Option("--at", metavar="STEP", help="The step to repeat.")]
Replace = Annotated[
    list[str] | None,
    typer.Option("--replace", metavar="NAME=JSON", help="Another result of a step up to that one; may be repeated."),
]
Digest = Annotated[
    str | None,
    typer.Option("--contract", metavar="DIGEST", help="The contract that it goes on under (default: its own)."),
]
NewDigest = Annotated[
    str | None,
    typer.Option(
        "--contract", metavar="DIGEST", help="The contract of the new run (default: the newest of its agent)."
    ),
]
Override = Annotated[
    bool, typer.Option("--override", help="Let it be another contract; without --contract, the newest of its agent.")
]
SubmitCaps = Annotated[
    list[str] | None,
    typer.Option("--budget", metavar="NAME=AMOUNT", help="What it may use, as in usd=5; may be repeated."),
]
SubmitDigest = Annotated[
    str | None, typer.Option("--contract", metavar="DIGEST", help="Its contract (default: the newest of its agent).")
]
RunKey = Annotated[str | None, typer.Option("--key", help="Idempotency key: the same agent and key returns the run.")]
RunTimeout = Annotated[
    str | None, typer.Option("--timeout", metavar="DURATION", help="Its time, waits not counted (default: 1h).")
]
SHOWN = 200  # characters of a result in a table


@app.command("submit")
def submit_agent_run(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent, as its worker knows it.")],
    arg: Arg = None, given: Input = None, key: RunKey = None, budget: SubmitCaps = None, contract: SubmitDigest = None,
    queue: Queue = None, priority: Priority = 0, label: Label = None, correlation: Correlation = "",
    attempts: Attempts = None, timeout: RunTimeout = None, actor: Actor = None, reason: Why = "",
    tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False,
) -> None:  # fmt: skip
    """Submit a run of an agent, without the program that defines it. When piped, only its id is printed."""
    caps = parse_caps(describe_caps(dict(map(parse_cap, budget or ()))))
    own = AgentOptions(budget=caps or None, contract=None if contract is None else ContractTerms(digest=contract))
    works = make_works(
        agent, parse_input(arg, given), own, key=key, queue=queue, attempts=attempts, priority=priority,
        timeout_us=None if timeout is None else parse_length("timeout", timeout), correlation=correlation,
        labels=encode(parse_pairs("label", label)),
    )  # fmt: skip
    with open_app(db, tenant, make=True) as client:
        made = client.send(Submit(tenant=tenant, actor=get_actor(actor), reason=reason, work=tuple(works)))
        print_submitted(client, made[0], "key", json)


@app.command("steps")
def list_steps(run: RunId, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """List the recorded steps of a run with their results, those of its earlier jobs included."""
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
    """Make a row of the table of steps."""
    return [row["name"], row["recorded_at"], msgspec.json.encode(row["result"]).decode()[:SHOWN]]


@app.command("budget")
def show_budget(
    run: RunId, caps: Raised = None, reason: BudgetReason = "", actor: Actor = None, tenant: Tenant = 1,
    db: Url = DEFAULT, json: Json = False,
) -> None:  # fmt: skip
    """Show what a run and all below it have used and have left of their budgets; --raise sets a higher cap."""
    given = dict(parse_cap(text) for text in caps or ())
    with open_app(db, tenant) as client:
        agent = find_agent_run(client, run)
        if given:
            raise_budget(client, agent, given, get_actor(actor), reason)
        elif reason:
            raise InterlockError("--reason is that of --raise NAME=AMOUNT, as in --raise usd=10")
        meters = agent.read_meters()
    left = {meter.name: present_amount(meter.name, count_left(meter)) for meter in meters if meter.hard is not None}
    if json:
        print_json({"id": run, "meters": [describe_meter(meter) for meter in meters], "left": left})
        return
    print_table(("WHAT", "USED", "ASK AT", "AT MOST"), [make_meter_row(meter) for meter in meters])
    if left:
        amounts = [(meter.name, count_left(meter)) for meter in meters if meter.hard is not None]
        print_line(f"left: {', '.join(f'{name} {format_amount(name, amount)}' for name, amount in amounts)}")


def raise_budget(client: App, agent: AgentRun, caps: dict[str, float | str], actor: str, reason: str) -> None:
    """Let a run that has ended go on with other caps.

    Raises:
        InterlockError: one that a person is asked about.
    """
    progress = client.read(read_progress_of, agent.unit)
    for question in progress.questions:
        if question.name.startswith("budget "):
            raise InterlockError(
                f"{agent.id} waits for an answer to '{question.name}': raise it by `interlock approve "
                f"{question.id} --with '{{\"hard\": …}}'`"
            )
    agent.resume(by=actor, reason=reason, budget=caps)


def read_progress_of(connection: Connection, tenant: int, unit: int) -> AgentProgress:
    """Read what an agent run is at, by its number."""
    return read_agent_progress(connection, tenant, view(connection, tenant, unit))


def count_left(meter: MeterStatus) -> int:
    """How much may be used still, of something that has a cap."""
    return max(0, (meter.hard or 0) - meter.used)


def make_meter_row(meter: MeterStatus) -> list[str]:
    """Make a row of the table of budgets."""
    amounts = (meter.used, meter.soft, meter.hard)
    return [meter.name, *("" if each is None else format_amount(meter.name, each) for each in amounts)]


@app.command("resume")
def resume(
    run: RunId, reason: Reason, budget: Caps = None, contract: Digest = None, override: Override = False,
    actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False,
) -> None:  # fmt: skip
    """Resume a run that failed or was cancelled; steps that it has recorded are not repeated."""
    caps = dict(parse_cap(text) for text in budget or ()) or None
    with open_app(db, tenant) as client:
        agent = find_agent_run(client, run)
        standing = agent.resume(by=get_actor(actor), reason=reason, budget=caps, contract=contract, override=override)
    if json:
        print_json({"id": agent.id, "state": standing.state, "applied": standing.applied})
    else:
        print_line(f"{agent.id} was resumed; it is {standing.state}")


@app.command("fork")
def fork(
    run: RunId, at: At, replace: Replace = None, contract: NewDigest = None,
    reason: Annotated[str, typer.Option("--reason", help=WHY)] = "",
    actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False,
) -> None:  # fmt: skip
    """Make a new run that goes on from a recorded step, with all that was recorded before it."""
    results = dict(parse_result(text) for text in replace or ())
    with open_app(db, tenant) as client:
        forked = find_agent_run(client, run).fork(
            at=at, replace=results, by=get_actor(actor), reason=reason, contract=contract
        )
    if json:
        print_json({"id": forked.id, "run": run, "at": at})
    else:
        print_line(f"{forked.id} goes on from step '{at}' of {run}")


def parse_cap(text: str) -> tuple[str, float | str]:
    """The name of a unit and how much of it may be used, as in usd=10 or active=30m.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
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
    """The name of a step and its result, as in `plan={"a": 1}`.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    name, is_given, result = text.partition("=")
    try:
        if name and is_given:
            return name, msgspec.json.decode(result)
    except msgspec.MsgspecError:
        pass
    raise InterlockError(f"--replace {text[:80]!r} is not allowed; allowed is NAME=JSON, as in plan='{{\"a\": 1}}'")


@app.command("contract")
def show_contract(run: RunId, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Show the contract of a run: what its agent was when it began, and the digest of that."""
    with open_app(db, tenant) as client:
        contract: Any = client.read(read_contract_of_run, find_run(client, run))
    if json:
        print_json(contract)
        return
    print_line(f"{contract.run} has {f'the contract {contract.digest}' if contract.digest else 'no contract'}")
    fields = contract.contract if isinstance(contract.contract, dict) else {}
    for name, value in sorted(fields.items()):
        origin = " (from the environment)" if name in contract.environment else ""
        print_line(f"  {name}: {msgspec.json.encode(value).decode()[:SHOWN]}{origin}")
    if contract.overridden_by:
        print_line(f"  overridden by {contract.overridden_by}")


@app.command("transcript")
def show_transcript(run: RunId, out: Out = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Print what happened in a run, in order: phases, steps and their usage, effects, questions, votes."""
    with open_app(db, tenant) as client:
        unit = find_run(client, run)
        entries = read_all_entries(client, unit)
    if out is not None:
        write_file(out, render_transcript(entries))
        print_line(f"{len(entries)} entries of {format_id(RUN, unit)} are in {out}")
    elif json:
        print_json({"id": format_id(RUN, unit), "entries": [describe_entry(entry) for entry in entries]})
    else:
        print_table(("AT", "WHAT", "NAME", "BY", "VALUE", "USED"), [make_entry_row(entry) for entry in entries])


def make_entry_row(entry: TranscriptEntry) -> list[str]:
    """Make a row of the table of a transcript."""
    value = "" if entry.value is None else msgspec.json.encode(entry.value).decode()[:VALUE_SHOWN]
    shown = f"{entry.reason} {value}" if entry.reason and value else entry.reason or value
    return [format_time(entry.at) or "", entry.what, entry.name, entry.by, shown, render_usage(entry.usage)]


@app.command("decision")
def show_decision(
    run: RunId, strict: Strict = False, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False
) -> None:  # fmt: skip
    """Decide about a run, by what is recorded alone: PASS, or FAIL with the reasons. Exits with 1 on FAIL."""
    with open_app(db, tenant) as client:
        decision: Any = client.read(read_decision, find_run(client, run), strict)
    if json:
        print_json(decision)
    else:
        print_line(f"{decision.decision} {decision.run}")
        for reason in decision.reasons:
            print_line(f"  {reason}")
        for doubt in decision.doubts:
            print_line(f"  in doubt: {doubt}")
        print_line(f"sha256 {decision.hash}")
    if decision.decision != PASS:
        raise typer.Exit(FINDING)


@app.command("capture")
@COMMANDS.command("capture")
def capture_run(
    run: RunId, place: AppPlace, out: Folder = Path(), tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False
) -> None:  # fmt: skip
    """Write a run as a test that replays its handler on what is recorded: a pytest file, and its cassette beside it."""
    module, _, attribute = place.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise InterlockError(f"--app {place!r} is not allowed; allowed is MODULE:NAME, as in agents:app")
    with open_app(db, tenant) as client:
        cassette: Any = client.read(read_cassette, find_run(client, run))
    if cassette is None:
        raise Unknown(f"'{run}' has no job yet, so nothing is recorded")
    name = cassette.head.run
    record, test = out / f"{name}.jsonl", out / f"test_{name}.py"
    if not out.is_dir():
        raise InterlockError(f"'{out}' is no folder; make it, or name another one with --out")
    write_file(record, encode_cassette(cassette))
    write_file(test, TEST.format(module=module, attribute=attribute, run=name))
    if json:
        print_json({"id": name, "test": str(test), "cassette": str(record), "lines": len(cassette.lines)})
    else:
        print_line(f"{test} replays {name} from {record}")


def find_agent_run(client: App, text: str) -> AgentRun:
    """Return the run that an id names.

    Raises:
        Unknown: there is none.
    """
    return AgentRun(client, find_run(client, text), lifecycle=RUN)


def find_run(client: App, text: str) -> int:
    """Return the agent run that an id names.

    Raises:
        Unknown: there is none.
    """
    unit = find_unit(client, text)
    lifecycle = client.read(read_summary, unit).lifecycle
    if lifecycle != RUN:
        raise Unknown(f"'{text}' is no agent run; it is a {lifecycle}")
    return unit
