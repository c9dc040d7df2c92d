"""`interlock pause` and `unpause`: let nothing of a queue, a task, a job or a run start for a while."""

from typing import Annotated, Any

import typer

from interlock.cli.options import DEFAULT, Actor, Limit, Tenant, Url, find_name, find_unit, get_actor, open_app
from interlock.cli.output import Json, format_heads, print_json, print_line, print_table
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.client.pauses import parse_until
from interlock.kernel.commands import Command, PauseStatus, PauseWork, UnpauseWork
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import PauseRow

app = typer.Typer()  # without a name: its commands stand beside those of the core
Which = Annotated[
    str | None, typer.Argument(metavar="[ID]", help="A job, run or step with all below it, as in job_4r1.")
]
Queue = Annotated[str | None, typer.Option("--queue", help="A queue.")]
TaskName = Annotated[str | None, typer.Option("--task", help="A task.")]
OutageName = Annotated[str | None, typer.Option("--outage", help="Name of the outage that is over.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; shown by `interlock why`.")]
UntilOption = Annotated[
    str | None, typer.Option("--until", help="Unpause by itself at this time: 18:00, 2h or 2026-11-16T18:00.")
]
HEADS = ("kind", "name", "by", "since", "until", "reason")
ENDED_HEADS = ("ended_at", "ended_by")


@app.command("pause")
def pause(
    unit: Which = None,
    queue: Queue = None,
    task: TaskName = None,
    until: UntilOption = None,
    reason: Reason = "",
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Pause a queue, a task, a job or a run: no new work starts, and running jobs go on."""
    with open_app(db, tenant) as client:
        target = find_target(client, unit, queue, task)
        fields: dict[str, Any] = {**target, **parse_until(until)}
        send(client, PauseWork(tenant=tenant, actor=get_actor(actor), reason=reason.strip(), **fields), json)


@app.command("unpause")
def unpause(
    unit: Which = None,
    queue: Queue = None,
    task: TaskName = None,
    outage: OutageName = None,
    reason: Reason = "",
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Unpause a queue, a task, a job or a run, or end an outage that jobs wait for."""
    with open_app(db, tenant) as client:
        target: dict[str, Any] = find_target(client, unit, queue, task, outage)
        send(client, UnpauseWork(tenant=tenant, actor=get_actor(actor), reason=reason.strip(), **target), json)


@app.command("pauses")
def list_pauses(
    ended: Annotated[bool, typer.Option("--all", help="Also pauses that are over.")] = False,
    limit: Limit = 100,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List what is paused, by whom, since when, until when and why."""
    with open_app(db, tenant) as client:
        rows = [describe_row(client, pause) for pause in client.pauses(ended=ended, limit=limit)]
    if json:
        print_json({"pauses": rows})
    elif not rows:
        print_line("nothing is paused")
    else:
        heads = (*HEADS, *ENDED_HEADS) if ended else HEADS
        print_table(format_heads(heads), [[row[head] or "-" for head in heads] for row in rows])


def find_target(
    client: App, unit: str | None, queue: str | None, task: str | None, outage: str | None = None
) -> dict[str, str | int]:
    """Return the field of a command that names what is meant.

    Raises:
        InterlockError: it names nothing, or more than one thing.
    """
    given = {"unit": unit, "queue": queue, "task": task, "outage": outage}
    target: dict[str, str | int] = {name: value for name, value in given.items() if value is not None}
    if len(target) != 1:
        raise InterlockError("which one? Give the ID of a job or run, or --queue NAME, or --task NAME: one of them")
    return {"unit": find_unit(client, unit)} if unit is not None else target


def send(client: App, command: Command[PauseStatus], json: bool) -> None:
    """Send a command, and print what is paused now."""
    status = client.send(command)
    name = name_target(client, status.kind, status.name)
    if json:
        answer = {"kind": status.kind, "name": name, "paused": status.paused, "changed": status.changed,
                "by": status.by, "reason": status.reason, "since": format_time(status.since),
                "until": format_time(status.until)}  # fmt: skip
        print_json(answer)
        return
    until = f" until {format_time(status.until)}" if status.until is not None else ""
    state = f"paused{until}" if status.paused else "not paused"
    print_line(f"{name} is {state}" + ("" if status.changed else "; it was so before"))


def name_target(client: App, kind: str, name: str) -> str:
    """Return what a pause is of, as people name it."""
    return (find_name(client, int(name)) or name) if kind == "unit" else f"{kind} {name}"


def describe_row(client: App, pause: PauseRow) -> dict[str, Any]:
    """Return a pause as `--json` prints it."""
    is_unit = pause.unit is not None
    return {
        "kind": "id" if is_unit else pause.kind,
        "name": name_target(client, "unit", pause.name) if is_unit else pause.name, "by": pause.actor,
        "since": format_time(pause.since), "until": format_time(pause.until), "reason": pause.reason,
        "ended_at": format_time(pause.ended_at), "ended_by": pause.ended_by,
    }  # fmt: skip
