"""What a transaction writes: its acts round by round, and of everything else one statement a table."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import msgspec

from interlock.kernel.paths import BORN
from interlock.kernel.rows import Row, Schedule, Unit, Worker, columns
from interlock.store.acts import Move, left_by_acts, make_acts, rounds_of
from interlock.store.connection import Connection

if TYPE_CHECKING:
    from interlock.store.unit_of_work import UnitOfWork

R = TypeVar("R", bound=Row)
# What other transactions may count at the same time is written only by adding to it.
COUNTED = ("unmet", "total", "succeeded", "lost", "decided", "deciders", "won", "gates", "blocked", "begun")
FIXED = ("id", "tenant", "lifecycle", "parent", "decides", "born", "cost", *COUNTED)
# What an act writes, and nobody else.
BY_ACTS = (
    "state", "category", "outcome", "version", "act", "changed_at", "started_at", "attempt", "fence", "lease",
    "lease_id", "holder", "lease_until", "rests_in", "dead_at",
)  # fmt: skip
WRITTEN = tuple(name for name in columns(Unit) if name not in (*FIXED, *BY_ACTS))
WRITTEN_OF = attrgetter(*WRITTEN)
BODY_WRITTEN = ("key", "result", "error", "replaced_by")
WRITE_SLOT = "UPDATE slot SET capacity = :capacity, taken = :taken WHERE tenant = :tenant AND key = :key"
SCHEDULE_SETS = ", ".join(f"{name} = :{name}" for name in Schedule.__struct_fields__ if name not in ("tenant", "name"))
WRITE_SCHEDULE = f"UPDATE schedule SET {SCHEDULE_SETS} WHERE tenant = :tenant AND name = :name"
RENEW = "UPDATE lease SET until = :until WHERE id = :id AND unit = :unit AND until < :until"
RENEW_TOGETHER = "SELECT renew_leases(:leases, :units, :ends)"  # of PostgreSQL: an ordinary role has no other way
WORKER_WRITTEN = tuple(name for name in Worker.__struct_fields__ if name not in ("unit", "tenant"))


def write(tx: "UnitOfWork") -> list[Row]:
    """Acts, what they make and move, and everything else, a statement a table. Answers the acts."""
    if tx.changed_bodies:  # first: one that gives its key up makes room for another
        tx.connection.update(in_order(tx.changed_bodies), BODY_WRITTEN, "unit")
    acts = write_acts(tx)
    for rows in by_table(tx):
        tx.connection.insert(rows)
    write_units(tx)
    if tx.changed_workers:
        tx.connection.update(in_order(tx.changed_workers), WORKER_WRITTEN, "unit")
    if tx.changed_slots:
        slots = [msgspec.structs.asdict(tx.changed_slots[key]) for key in sorted(tx.changed_slots)]
        tx.connection.many(WRITE_SLOT, slots)
    if tx.changed_schedules:
        schedules = [msgspec.structs.asdict(tx.changed_schedules[key]) for key in sorted(tx.changed_schedules)]
        tx.connection.many(WRITE_SCHEDULE, schedules)
    return acts


def write_acts(tx: "UnitOfWork") -> list[Row]:
    """The acts of each round, one statement a round; who is born by them comes right behind."""
    written: list[Row] = []
    for moves in rounds_of(tx.moves):
        births = [move for move in moves if move.path.source == ""]
        acts, details = make_acts(tx, moves)
        tx.connection.write_acts(acts, [as_born(move) for move in births])
        if details:
            tx.connection.insert(details)
        written += acts
    return written


def write_units(tx: "UnitOfWork") -> None:
    """What of units no act writes: clocks, budgets, and until when a lease lasts."""
    moves: dict[int, list[Move]] = {}
    births: dict[int, Unit] = {}
    for move in tx.moves:
        if move.path.source == BORN:
            births[move.unit.id] = move.born_as or move.unit
        else:
            moves.setdefault(move.unit.id, []).append(move)
    changed: list[Unit] = []
    images: list[Unit] = []
    renewed: list[Unit] = []
    for one in sorted({*tx.moved, *moves}):
        unit, was = tx.units[one], births.get(one) or tx.was[one]
        image = left_by_acts(unit, was, moves.get(one, []))
        if WRITTEN_OF(unit) != WRITTEN_OF(image):
            changed.append(unit)
            images.append(image)
        if unit.lease_id is not None and unit.lease_until != until_of(was, unit, moves.get(one, [])):
            renewed.append(unit)
    if changed:
        tx.connection.update(changed, differing(changed, images), "id")
    if renewed:
        renew_leases(tx.connection, renewed)


def renew_leases(connection: Connection, held: Sequence[Unit]) -> None:
    """The leases of these units last as long as their rows say, and no shorter than before."""
    if connection.many_writers:
        units = {"leases": [unit.lease_id for unit in held], "units": [unit.id for unit in held]}
        connection.many(RENEW_TOGETHER, [{**units, "ends": [unit.lease_until for unit in held]}])
    else:
        connection.many(RENEW, [{"id": unit.lease_id, "unit": unit.id, "until": unit.lease_until} for unit in held])


def as_born(move: Move) -> Unit:
    """A new unit's row as the act that bears it leaves it."""
    unit = move.born_as or move.unit
    unit.act = unit.born = move.unit.act
    return unit


def by_table(tx: "UnitOfWork") -> list[list[Row]]:
    """What is new, a table at a time: the guard wants units before their rows."""
    tables: dict[type[Row], list[Row]] = {}
    for row in tx.fresh:
        tables.setdefault(type(row), []).append(row)
    return list(tables.values())


def until_of(was: Unit, unit: Unit, moves: list[Move]) -> int | None:
    """Until when a live lease lasts, as far as the database knows once the acts are written."""
    grants = [move.terms for move in moves if move.terms]
    return grants[-1].until if grants else was.lease_until


def differing(units: Sequence[Unit], images: Sequence[Unit]) -> list[str]:
    """The columns in which any of these units differs from what acts have left."""
    pairs = zip(zip(*map(WRITTEN_OF, units), strict=True), zip(*map(WRITTEN_OF, images), strict=True), strict=True)
    return [name for name, (now, was) in zip(WRITTEN, pairs, strict=True) if now != was]


def in_order(rows: Mapping[int, R]) -> list[R]:
    return [rows[one] for one in sorted(rows)]
