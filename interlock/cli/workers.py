"""`interlock worker list` and `drain`: who works, and how to let somebody stop."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from interlock.cli.options import DEFAULT, Actor, DryRun, Every, Tenant, Url, Why, app_on, named
from interlock.cli.output import Json, counted, dump, say, state_cell, table
from interlock.client import json_views
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.client.responses import WorkerResponse
from interlock.client.why.workers import list_queues
from interlock.kernel.commands import Drain
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit, Worker
from interlock.store.queries.views import workers_seen

RUN = "run"


class RunByDefault(TyperGroup):
    """`interlock worker MODULE:APP …` is `interlock worker run MODULE:APP …`, if there is such a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and RUN in self.commands and args[0] not in (*self.commands, "-h", "--help"):
            args = [RUN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="Run the tasks of an app (interlock worker module:app), or see who runs them.",
    no_args_is_help=True,
    cls=RunByDefault,
)


@app.command("list")
def list_workers(
    gone: Annotated[bool, typer.Option("--gone", help="Also those that have shut down.")] = False,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List workers: what they hold, which queues they claim from, when they were last heard."""
    with app_on(db, tenant) as app:
        found = app.read(workers_seen, gone)
    if json:
        dump({"workers": [json_views.make_worker(worker, unit) for worker, unit in found]})
        return
    heads = ("ID", "NAME", "STATE", "HOLDS", "QUEUES", "CAPABILITIES", "LAST HEARD")
    rows = [
        (
            format_id(json_views.WORKER, worker.unit), worker.name, state_cell(state_of(worker, unit), unit.category),
            f"{worker.holding}/{worker.concurrency or worker.capacity}", ",".join(list_queues(worker)),
            worker.capabilities, format_time(worker.seen_at),
        )
        for worker, unit in found
    ]  # fmt: skip
    table(heads, rows)


def state_of(worker: Worker, unit: Unit) -> str:
    if unit.category == Category.CLOSING:
        return f"{unit.state}, silent since {format_time(worker.seen_at)}"
    return f"{unit.state}, draining" if worker.draining and unit.category != Category.CLOSED else unit.state


@app.command()
def drain(
    worker: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|ID]…", help="Workers, by name or as in worker_4r1.")
    ] = None,
    every: Every = False,
    dry_run: DryRun = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Let workers take no new work; each shuts down with the last unit that it holds."""
    if bool(worker) == every:
        raise InterlockError("which workers? Give names or ids, or --all")
    with app_on(db, tenant) as app:
        found = app.read(workers_seen)
        units = [one.unit for one, _ in found] if every else [worker_of(found, name) for name in worker or ()]
        order = {"tenant": tenant, "actor": named(actor), "reason": reason}
        told = [drained(app, unit, order, dry_run=dry_run) for unit in dict.fromkeys(units)]
    if json:
        dump({"workers": told, "dry_run": dry_run})
        return
    for one in told:
        say(f"{one.name} ({one.id}): {one.state}, holds {one.holding}")
    say(f"{counted(len(told), 'worker')} {'would be ' if dry_run else ''}drained")


def worker_of(found: list[tuple[Worker, Unit]], text: str) -> int:
    """The worker that somebody means, by name or by id. Raises Unknown, which says who is there."""
    by_name = [worker.unit for worker, _ in found if worker.name == text]
    if len(by_name) > 1:
        ids = ", ".join(format_id(json_views.WORKER, unit) for unit in by_name)
        raise Unknown(f"'{text}' may mean {ids}; give the id")
    if by_name:
        return by_name[0]
    there = {worker.unit: worker.name for worker, _ in found}
    try:
        unit = parse_id(text)
    except Unknown:
        unit = 0
    if unit not in there:
        raise Unknown(f"there is no worker '{text}'; there are {', '.join(there.values()) or 'none'}")
    return unit


def drained(app: App, unit: int, order: dict[str, Any], *, dry_run: bool) -> WorkerResponse:
    """A worker as it is after it was told to take no new work."""
    if not dry_run:
        app.send(Drain(worker=unit, **order))
    return next(json_views.make_worker(one, its) for one, its in app.read(workers_seen, True) if one.unit == unit)
