"""A plugin of which the core knows nothing: whoever wants it has the result of a job reviewed by somebody."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import typer

from interlock.core.advance import Stamp, advance, make_stamp, make_unit
from interlock.core.effective_policy import option_of
from interlock.core.notes import note
from interlock.core.plugin import Gauge, Plugin, Storyteller
from interlock.dashboard.pages import PageRequest, WebPage
from interlock.kernel.commands import Command, Outcome, Submit, Work
from interlock.kernel.errors import InterlockError, NotWanted
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Body, Unit
from interlock.server.operations import Operation, Request
from interlock.store.connection import Connection
from interlock.store.hooks import Hooks, Moved, Reaction
from interlock.store.unit_of_work import UnitOfWork

HOUR_US = 3_600_000_000
TABLE = """
CREATE TABLE review (
    unit BIGINT PRIMARY KEY, job BIGINT NOT NULL, reviewer TEXT NOT NULL, due_at BIGINT,
    tenant INTEGER NOT NULL
);
"""
INSERT = "INSERT INTO review (unit, job, reviewer, due_at, tenant) VALUES (:unit, :job, :reviewer, :due_at, :tenant)"
DUE = "SELECT unit, reviewer FROM review WHERE tenant = :tenant AND due_at <= :now LIMIT :limit"
NOT_DUE = "UPDATE review SET due_at = NULL WHERE unit = :unit"
BY_REVIEWER = "SELECT unit FROM review WHERE tenant = :tenant AND reviewer = :reviewer ORDER BY unit"
OF_NO_JOB = "SELECT id FROM unit WHERE lifecycle = 'review' AND id NOT IN (SELECT unit FROM review)"
COUNT = "SELECT count(*) FROM review WHERE tenant = :tenant"
Given = msgspec.defstruct("Given", [("verdict", str)])  # the body of a request


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    by: str  # who is to review what a job came to


class GiveReview(Command[str], frozen=True, kw_only=True):
    """A reviewer has looked."""

    public, scope = True, "approve"
    unit: int
    verdict: str


def give_review(tx: UnitOfWork, command: GiveReview) -> str:
    unit = tx.unit(command.unit)
    if unit.lifecycle != "review":
        raise InterlockError(f"unit {unit.id} is no review; it is a {unit.lifecycle}")
    note(tx, unit.id, "verdict", msgspec.json.encode(command.verdict).decode())
    advance(tx, unit, "approve", make_stamp(command))
    tx.connection.rows(NOT_DUE, {"unit": unit.id})
    return unit.state


def open_reviews(tx: UnitOfWork, moved: list[Moved]) -> None:
    for job, _ in moved:
        if (wanted := option_of(tx.body(job), "reviews", Wanted)) is not None:
            unit = Unit(id=tx.ids.take(), tenant=job.tenant, lane=job.lane, lifecycle="review")
            body = Body(unit=unit.id, tenant=job.tenant, task="review", created_at=tx.now, correlation=str(job.id))
            make_unit(tx, unit, body, Stamp("engine", "review wanted"))
            row = {"unit": unit.id, "job": job.id, "reviewer": wanted.by, "due_at": tx.now + HOUR_US}
            tx.connection.rows(INSERT, {**row, "tenant": job.tenant})


def refuse_nobody(tx: UnitOfWork, unit: Unit) -> None:
    wanted = option_of(tx.body(unit), "reviews", Wanted)
    if wanted is not None and wanted.by == "nobody":
        raise InterlockError("nobody would review it")


def refuse_secrets(tx: UnitOfWork, unit: Unit, outcome: Outcome) -> None:
    if "secret" in outcome.result and option_of(tx.body(unit), "reviews", Wanted):
        raise NotWanted("reviewers may not see it")


def remind_reviewers(tx: UnitOfWork, limit: int) -> int:
    rows = tx.connection.rows(DUE, {"tenant": tx.tenant, "now": tx.now, "limit": limit})
    for unit, reviewer in rows:
        note(tx, unit, "reminded", msgspec.json.encode(reviewer).decode())
        tx.connection.rows(NOT_DUE, {"unit": unit})
    return len(rows)


def reviews_by(connection: Connection, tenant: int, reviewer: str) -> list[int]:
    """The reviews that somebody is to give, or gave."""
    return [unit for (unit,) in connection.rows(BY_REVIEWER, {"tenant": tenant, "reviewer": reviewer})]


def find_reviews_of_no_job(connection: Connection) -> Iterator[tuple[int, str]]:
    yield from ((unit, "it is a review of no job") for (unit,) in connection.rows(OF_NO_JOB))


def count_reviews(connection: Connection, tenant: int) -> Iterator[Gauge]:
    yield Gauge("reviews", "Reviews that were wanted", connection.rows(COUNT, {"tenant": tenant})[0][0])


async def review_a_job(teller: Storyteller) -> None:
    work = Work(task="play", input='{"acts": []}', options='{"reviews": {"by": "teller"}}')
    await teller.ask(Submit(work=(work,), actor="plugin player"))
    await teller.pause(3)
    for unit in teller.read(reviews_by, "teller") or ():
        await teller.ask(GiveReview(unit=unit, verdict="fine"))


async def give(request: Request) -> dict[str, str]:
    unit = await request.find_unit("review")
    return {"state": await request.send(GiveReview(unit=unit, verdict=request.body.verdict))}


async def show(request: PageRequest) -> dict[str, str]:
    return {"text": f"{len(await request.read(reviews_by, 'ann'))} for ann"}


ROUTES = [
    Operation(
        method="POST", path="/v1/reviews/{id}", scope="approve", summary="Give a review", call=give, body=Given,
        response=dict[str, str],
    )
]  # fmt: skip
PAGES = [WebPage(path="/reviews", call=show, menu="Reviews")]
cli = typer.Typer(name="review", help="Reviews of what jobs came to.", no_args_is_help=True)
cli.command("who")(lambda: typer.echo("ann"))
cli.command("nobody")(lambda: typer.echo("nobody"))
ended_well = Reaction("open reviews", lambda kind: kind.has_ended and kind.outcome == Category.SUCCESS, open_reviews)
PLUGIN = Plugin(
    name="reviews", lifecycles=(Path(__file__).parent / "review.toml",), options=Wanted, tables=TABLE,
    commands={GiveReview: give_review}, queries=(reviews_by,), laws={"every review is of a job": find_reviews_of_no_job},
    metrics=count_reviews, stories=(review_a_job,), routes=f"{__name__}:ROUTES", pages=f"{__name__}:PAGES",
    cli=f"{__name__}:cli", docs="reviews.md",
    hooks=Hooks(
        grant_guards=(refuse_nobody,), end_guards=(refuse_secrets,),
        reactions=(ended_well,), tick_timers=(remind_reviewers,),
    ),
)  # fmt: skip
