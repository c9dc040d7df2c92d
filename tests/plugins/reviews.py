"""A plugin of which the core knows nothing: whoever wants it has the result of a job reviewed by somebody."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from interlock.core.advance import Stamp, advance, asked_by, make_unit
from interlock.core.effective_policy import option_of
from interlock.core.notes import note
from interlock.core.plugin import Plugin
from interlock.kernel.commands import Command
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Body, Row, Unit
from interlock.store.connection import Connection
from interlock.store.hooks import Hooks, Moved, Reaction
from interlock.store.query import select
from interlock.store.unit_of_work import UnitOfWork

HOUR_US = 3_600_000_000
TABLE = """
CREATE TABLE review (
    unit    BIGINT PRIMARY KEY,
    tenant  INTEGER NOT NULL,
    job     BIGINT NOT NULL,
    wanted  TEXT NOT NULL,
    due_at  BIGINT
);
"""


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The option: who is to review what a job came to."""

    by: str


class Review(Row):
    """The table: which job a review is of, who gives it, and when its reviewer is reminded."""

    table = "review"

    unit: int
    tenant: int
    job: int
    wanted: str
    due_at: int | None


class GiveReview(Command[str], frozen=True, kw_only=True):
    """The command: a reviewer has looked."""

    unit: int
    verdict: str


def give(tx: UnitOfWork, command: GiveReview) -> str:
    unit = tx.unit(command.unit)
    if unit.lifecycle != "review":
        raise InterlockError(f"unit {unit.id} is no review; it is a {unit.lifecycle}")
    note(tx, unit.id, "verdict", msgspec.json.encode(command.verdict).decode())
    advance(tx, unit, "approve", asked_by(command))
    tx.connection.rows("UPDATE review SET due_at = NULL WHERE unit = :unit", {"unit": unit.id})
    return unit.state


def open_reviews(tx: UnitOfWork, moved: list[Moved]) -> None:
    """The reaction: a job that has succeeded, and wants a review, has one."""
    for job, _ in moved:
        body = tx.body(job)
        wanted = option_of(body, "review", Wanted)
        if wanted is None:
            continue
        unit = Unit(id=tx.new_id(), tenant=job.tenant, lane=job.lane, lifecycle="review")
        fresh = Body(unit=unit.id, tenant=job.tenant, task="review", created_at=tx.now, correlation=body.correlation)
        make_unit(tx, unit, fresh, Stamp("engine", "review wanted"))
        tx.add(Review(unit=unit.id, tenant=job.tenant, job=job.id, wanted=wanted.by, due_at=tx.now + HOUR_US))


DUE = select(Review, "WHERE tenant = :tenant AND due_at <= :now LIMIT :limit")


def remind(tx: UnitOfWork, limit: int) -> int:
    """The timer: a reviewer who has not looked within an hour is reminded, once."""
    rows = tx.run(DUE.bind(tenant=tx.tenant, limit=limit))
    for row in rows:
        note(tx, row.unit, "reminded", msgspec.json.encode(row.wanted).decode())
        tx.connection.rows("UPDATE review SET due_at = NULL WHERE unit = :unit", {"unit": row.unit})
    return len(rows)


def reviews_have_rows(connection: Connection) -> Iterator[tuple[int, str]]:
    """The law."""
    sql = "SELECT id FROM unit WHERE lifecycle = 'review' AND NOT EXISTS (SELECT 1 FROM review WHERE unit = unit.id)"
    for (unit,) in connection.rows(sql.replace("unit = unit.id", "review.unit = unit.id")):
        yield unit, "it is a review of no job"


PLUGIN = Plugin(
    name="reviews",
    lifecycles=(Path(__file__).parent / "review.toml",),
    tables=TABLE,
    commands={GiveReview: give},
    hooks=Hooks(
        options=(("review", Wanted),),
        reactions=(
            Reaction("open reviews", lambda one: one.has_ended and one.unit.outcome == Category.SUCCESS, open_reviews),
        ),
        tick_timers=(remind,),
    ),
    routes="tests.plugins.review_parts:ROUTES",
    cli="tests.plugins.review_parts:group",
    laws={"every review is of a job": reviews_have_rows},
)
