"""Flush a transaction: acts round by round, then one statement per table, counters last."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, TypeVar

import msgspec

from interlock.kernel.paths import BORN
from interlock.kernel.rows import NamedPlace, Row, Unit, WorkerRow, columns, copied
from interlock.store.acts import RecordedMove, apply_moves, group_by_round, make_acts
from interlock.store.commit_proof import choose_proof
from interlock.store.hooks import Moved
from interlock.store.renewals import renew_leases
from interlock.store.unit_of_work import UnitOfWork

R = TypeVar("R", bound=Row)
# What other transactions may count at the same time is written only by adding to it.
COUNTED = ("total", "succeeded", "lost", "decided", "deciders", "won", "gates", "blocked", "begun")
FIXED = ("id", "tenant", "lifecycle", "parent", "decides", "born", "cost", *COUNTED)
# What an act writes, and nobody else.
BY_ACTS = (
    "state", "category", "outcome", "version", "act", "changed_at", "started_at", "attempt", "fence", "lease",
    "lease_id", "holder", "lease_until", "lease_hash", "rests_in", "dead_at",
)  # fmt: skip
WRITTEN = tuple(name for name in columns(Unit) if name not in (*FIXED, *BY_ACTS))
WRITTEN_OF = attrgetter(*WRITTEN)
BODY_WRITTEN = ("key", "result", "error", "replaced_by")
WORKER_WRITTEN = tuple(name for name in WorkerRow.__struct_fields__ if name not in ("unit", "tenant"))


def flush(tx: UnitOfWork) -> list[Moved]:
    """Writes everything that has changed: acts first, and one statement per table for the rest.

    Returns the units that were born or have changed, each as it is now and as it was before (None: born); a unit of
    which nothing has changed but how many needs it still waits for is none of them.
    """
    changes, rows = tx.changes, tx.rows
    changes.flushed = True
    units = {**changes.born, **changes.moved}
    counted = {unit: changed for unit, changed in changes.counted.items() if unit not in units}
    before = {unit: None if unit in changes.born else rows.loaded[unit] for unit in sorted(units)}
    tx.prefetched.clear()
    with tx.connection.pipeline():
        acts = write_changes(tx)
    workers = ((row, ("unit", *WORKER_WRITTEN)) for row in changes.workers.values())
    moved = ((row, ("id", *WRITTEN)) for row in changes.moved.values())
    changes.proof = choose_proof(changes.proof, chain(acts, changes.inserts), chain(workers, moved))
    changes.clear()
    changes.written |= units.keys() | counted.keys()
    changes.made_available |= {unit for unit, was in before.items() if has_become_available(units[unit], was)}
    changes.freed_tenants |= {
        was.tenant for unit, was in before.items() if was and was.holder and not units[unit].holder
    }
    rows.loaded |= {number: copied(unit) for number, unit in chain(units.items(), counted.items())}
    return [Moved(rows.loaded[unit], was) for unit, was in before.items()]


def has_become_available(unit: Unit, was: Unit | None) -> bool:
    """Whether a unit can be claimed now, and could not before."""
    return unit.available_at is not None and (was is None or was.available_at is None)


def write_changes(tx: UnitOfWork) -> list[Row]:
    """Acts, what they make and move, and everything else, a statement a table. Answers the acts."""
    if tx.changes.bodies:  # first: one that gives its key up makes room for another
        tx.connection.update(sort_by_key(tx.changes.bodies), BODY_WRITTEN, "unit")
    acts = write_acts(tx)
    for rows in group_by_table(tx):
        tx.connection.insert(rows)
    write_units(tx)
    if tx.changes.workers:
        tx.connection.update(sort_by_key(tx.changes.workers), WORKER_WRITTEN, "unit")
    for table, changed in tx.changes.updates.items():
        tx.connection.many(table.sql, [msgspec.structs.asdict(changed[key]) for key in sorted(changed)])
    return acts


def write_acts(tx: UnitOfWork) -> list[Row]:
    """The acts of each round, one statement a round; who is born by them comes right behind."""
    written: list[Row] = []
    for moves in group_by_round(tx.changes.moves):
        births = [move for move in moves if move.path.source == ""]
        acts, details = make_acts(tx, moves)
        tx.connection.write_acts(acts, [make_born_row(move) for move in births])
        if details:
            tx.connection.insert(details)
        written += acts
    return written


def write_units(tx: UnitOfWork) -> None:
    """What of units no act writes: clocks, budgets, needs that are unmet, and until when a lease lasts."""
    moves: dict[int, list[RecordedMove]] = {}
    births: dict[int, Unit] = {}
    for move in tx.changes.moves:
        if move.path.source == BORN:
            births[move.unit.id] = move.born_as or move.unit
        else:
            moves.setdefault(move.unit.id, []).append(move)
    changed: list[Unit] = []
    images: list[Unit] = []
    renewed: list[Unit] = []
    for unit_id in sorted({*tx.changes.moved, *tx.changes.counted, *moves}):
        unit, was = tx.rows.units[unit_id], births.get(unit_id) or tx.rows.loaded[unit_id]
        image = apply_moves(unit, was, moves.get(unit_id, []))
        if WRITTEN_OF(unit) != WRITTEN_OF(image):
            changed.append(unit)
            images.append(image)
        if unit.lease_id is not None and unit.lease_until != get_lease_end(was, unit, moves.get(unit_id, [])):
            renewed.append(unit)
    if changed:
        tx.connection.update(changed, list_differing_columns(changed, images), "id")
    if renewed:
        renew_leases(tx.connection, renewed)


def make_born_row(move: RecordedMove) -> Unit:
    """A new unit's row as the act that bears it leaves it."""
    unit = move.born_as or move.unit
    unit.act = unit.born = move.unit.act
    return unit


def group_by_table(tx: UnitOfWork) -> list[list[Row]]:
    """What is new, a table at a time: the guard wants units before their rows, and places before the needs of them."""
    tables: dict[type[Row], list[Row]] = {NamedPlace: []}
    for row in tx.changes.inserts:
        tables.setdefault(type(row), []).append(row)
    return [rows for rows in tables.values() if rows]


def get_lease_end(was: Unit, unit: Unit, moves: list[RecordedMove]) -> int | None:
    """Until when a live lease lasts, as far as the database knows once the acts are written."""
    grants = [move.terms for move in moves if move.terms]
    return grants[-1].until if grants else was.lease_until


def list_differing_columns(units: Sequence[Unit], images: Sequence[Unit]) -> list[str]:
    """The columns in which any of these units differs from what acts have left."""
    pairs = zip(zip(*map(WRITTEN_OF, units), strict=True), zip(*map(WRITTEN_OF, images), strict=True), strict=True)
    return [name for name, (now, was) in zip(WRITTEN, pairs, strict=True) if now != was]


def sort_by_key(rows: Mapping[int, R]) -> list[R]:
    """Returns rows in the order of their keys."""
    return [rows[key] for key in sorted(rows)]


# Counters.


class NeedChange(NamedTuple):
    """How the outcome of a unit has changed: 1 if it has succeeded or ended, -1 if it no longer has, else 0."""

    won: int
    ended: int


def count_needs(tx: UnitOfWork, changes: Mapping[int, NeedChange]) -> tuple[list[Unit], set[int]]:
    """Counts the needs that are met by what has changed, by unit.

    Returns the units whose last need was just met, or that need something again, locked; and those of the changed
    units whose success somebody waits for, and that have ended without it.
    """
    # Counted here: a database that groups and sorts may prefer to read all needs in that order.
    sql = "SELECT unit, needs, by_end FROM need WHERE needs {ids}"
    sums: Counter[int] = Counter()
    lost: set[int] = set()
    for unit, needs, by_end in tx.connection.rows(sql, {"ids": sorted(changes)}):
        change = changes[needs]
        sums[unit] -= change.ended if by_end else change.won
        if not by_end and change.won <= 0:
            lost.add(needs)
    changed = add_needs(tx, {unit: number for unit, number in sums.items() if number})
    return [unit for unit in changed if unit.outcome is None and (unit.unmet == 0 or sums[unit.id] > 0)], lost


def add_needs(tx: UnitOfWork, sums: Mapping[int, int]) -> list[Unit]:
    """Adds to the unmet needs of these units; returns them, locked in the order of their ids.

    The next flush writes it, together with what follows: a unit whose last need is met is written once.
    """
    ids = sorted(sums)
    tx.load_units(ids)
    units = [tx.rows.units[unit] for unit in ids]
    for unit in units:
        unit.unmet += sums[unit.id]
        tx.changes.counted[unit.id] = unit
    tx.changes.count += len(units)
    return units


def add_counts(tx: UnitOfWork, sums: Mapping[int, Mapping[str, int]]) -> list[Unit]:
    """Adds to the counters of these units, by unit and column; returns them, locked in the order of their ids.

    It is the last thing that a round does, so that children of one parent wait for each other no longer than that.
    """
    ids = sorted(sums)
    tx.load_units(ids)
    units = [tx.rows.units[unit] for unit in ids]
    for unit in units:
        for name, number in sums[unit.id].items():
            setattr(unit, name, getattr(unit, name) + number)
    changed = [unit for unit in units if any(sums[unit.id].values())]
    if changed:
        tx.connection.update(changed, COUNTED, "id")
        tx.changes.written.update(unit.id for unit in changed)
    return units


def add_costs(tx: UnitOfWork) -> None:
    """Adds what units have cost to their own cost, and to that of all units above them."""
    sums: Counter[int] = Counter()
    units = tx.rows.units
    for unit, cost in tx.counters.costs.items():
        above: int | None = unit
        while above is not None:
            sums[above] += cost
            tx.load_units([above])
            above = units[above].parent
    tx.counters.costs.clear()
    for unit, cost in sums.items():
        units[unit].cost += cost
    if sums:
        tx.connection.update([units[unit] for unit in sorted(sums)], ("cost",), "id")
        tx.changes.written |= sums.keys()
