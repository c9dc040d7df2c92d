"""A plugin of which the core knows nothing: whoever wants it has the result of a job reviewed by somebody."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import typer

from interlock.core.advance import Stamp, advance, asked_by, make_unit
from interlock.core.effective_policy import option_of
from interlock.core.notes import note
from interlock.core.plugin import Plugin
from interlock.kernel.commands import Command
from interlock.kernel.errors import InterlockError
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
cli = typer.Typer(name="review", help="Reviews of what jobs came to.", no_args_is_help=True)


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The option: who is to review what a job came to."""

    by: str


class GiveReview(Command[str], frozen=True, kw_only=True):
    """The command: a reviewer has looked."""

    public, scope = True, "approve"

    unit: int
    verdict: str


def give_review(tx: UnitOfWork, command: GiveReview) -> str:
    unit = tx.unit(command.unit)
    if unit.lifecycle != "review":
        raise InterlockError(f"unit {unit.id} is no review; it is a {unit.lifecycle}")
    note(tx, unit.id, "verdict", msgspec.json.encode(command.verdict).decode())
    advance(tx, unit, "approve", asked_by(command))
    tx.connection.rows(NOT_DUE, {"unit": unit.id})
    return unit.state


def open_reviews(tx: UnitOfWork, moved: list[Moved]) -> None:
    """The reaction: a job that has succeeded, and wants a review, has one."""
    for job, _ in moved:
        wanted = option_of(tx.body(job), "review", Wanted)
        if wanted is not None:
            unit = Unit(id=tx.ids.take(), tenant=job.tenant, lane=job.lane, lifecycle="review")
            body = Body(unit=unit.id, tenant=job.tenant, task="review", created_at=tx.now, correlation=str(job.id))
            make_unit(tx, unit, body, Stamp("engine", "review wanted"))
            row = {"unit": unit.id, "job": job.id, "reviewer": wanted.by, "due_at": tx.now + HOUR_US}
            tx.connection.rows(INSERT, {**row, "tenant": job.tenant})


def remind_reviewers(tx: UnitOfWork, limit: int) -> int:
    """The timer: a reviewer who has not looked within an hour is reminded, once."""
    rows = tx.connection.rows(DUE, {"tenant": tx.tenant, "now": tx.now, "limit": limit})
    for unit, reviewer in rows:
        note(tx, unit, "reminded", msgspec.json.encode(reviewer).decode())
        tx.connection.rows(NOT_DUE, {"unit": unit})
    return len(rows)


def reviews_by(connection: Connection, tenant: int, reviewer: str) -> list[int]:
    """The query: the reviews that somebody is to give, or gave."""
    return [unit for (unit,) in connection.rows(BY_REVIEWER, {"tenant": tenant, "reviewer": reviewer})]


def reviews_have_jobs(connection: Connection) -> Iterator[tuple[int, str]]:
    """The law."""
    for (unit,) in connection.rows(OF_NO_JOB):
        yield unit, "it is a review of no job"


class Given(msgspec.Struct):
    """The body of a request: what the reviewer says."""

    verdict: str


async def give(request: Request) -> dict[str, str]:
    """The route."""
    unit = await request.unit("review")
    return {"state": await request.send(GiveReview(unit=unit, verdict=request.body.verdict))}


ROUTES = (
    Operation(
        method="POST", path="/v1/reviews/{id}", scope="approve", summary="Give a review", call=give, body=Given,
        answer=dict[str, str],
    ),
)  # fmt: skip


@cli.command("who")
def who() -> None:
    """The group of commands: say who reviews."""
    typer.echo("ann")


PLUGIN = Plugin(
    name="reviews",
    lifecycles=(Path(__file__).parent / "review.toml",),
    tables=TABLE,
    commands={GiveReview: give_review},
    queries=(reviews_by,),
    hooks=Hooks(
        options=(("review", Wanted),),
        reactions=(
            Reaction(
                "open reviews", lambda move: move.has_ended and move.unit.outcome == Category.SUCCESS, open_reviews
            ),
        ),
        tick_timers=(remind_reviewers,),
    ),
    routes=f"{__name__}:ROUTES",
    cli=f"{__name__}:cli",
    laws={"every review is of a job": reviews_have_jobs},
)
