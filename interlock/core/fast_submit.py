"""The fast path of submits: plain units that differ in nothing but their input are born by lists.

The first unit of its kind is made by the verb (`submit.py`), with all checks and hooks. If it was born plain, its birth
is kept: all other work of that kind, in this command and in later ones, makes rows that are equal to it but for the id,
the input and the time. A kind is what `check_work_once` numbers: everything that work says, but for what is each one's
own. Nothing is kept of work that names something of its own (a key, a parent, a need …) or of what is due later, and
where a tenant may have so many jobs waiting and no more, the verb makes all of them.

A birth is as good as the lane that it names: if that was made in a transaction that was rolled back, it is not used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import msgspec

from interlock.core.stamps import Stamp
from interlock.kernel.blobs import parse_reference
from interlock.kernel.commands import Work
from interlock.kernel.paths import BORN, Path
from interlock.kernel.rows import Act, Body, Unit, columns, copied
from interlock.store.acts import NOTHING, UNITS_MAX
from interlock.store.commit_proof import choose_proof
from interlock.store.lanes import Lane
from interlock.store.queries.for_verbs import LaneState, OrderedReads, load_lanes
from interlock.store.queries.tenants import get_max_waiting
from interlock.store.unit_of_work import UnitOfWork

BIRTHS_MAX = 200


@dataclass
class KnownBirth:
    """A unit as it was born, its body, the path of its birth, and the lane in which it waits."""

    unit: Unit
    body: Body
    path: Path
    lane: Lane


@dataclass
class KnownBirths:
    """Those that an engine has, by tenant and kind of work."""

    by_kind: dict[tuple[int, int], KnownBirth] = field(default_factory=dict)


def find_birth(tx: UnitOfWork, kind: int, work: Work) -> KnownBirth | None:
    """The birth that is known of this kind of work, if this work, which is independent, may be born like it."""
    birth = tx.cache.state(KnownBirths).by_kind.get((tx.tenant, kind)) if tx.fast_path else None
    if birth is None or load_lanes(tx, tx.tenant).find(birth.lane.id) != birth.lane:
        return None
    return birth if parse_reference(work.input) is None and get_max_waiting(tx, tx.tenant) is None else None


def keep_birth(tx: UnitOfWork, kind: int, unit: Unit) -> None:
    """Keeps the birth of a unit that was just made, if nothing else has happened to it."""
    lane, move = load_lanes(tx, tx.tenant).find(unit.lane), tx.changes.last_moves.get(unit.id)
    clocks = (unit.due_at, unit.wake_at, unit.deadline_at, unit.parked_on)
    if not unit.plain or move is None or move.path.source != BORN or move.payload != NOTHING or any(clocks):
        return
    if lane is None or unit.available_at != tx.now:
        return
    births = tx.cache.state(KnownBirths).by_kind
    if len(births) >= BIRTHS_MAX:
        births.clear()
    births[tx.tenant, kind] = KnownBirth(copied(unit), copied(tx.rows.bodies[unit.id]), move.path, lane)


class Alike(NamedTuple):
    """Units that are born like one that is known."""

    birth: KnownBirth
    numbers: list[int]
    inputs: list[str]


def make_alike_units(tx: UnitOfWork, stamp: Stamp, born: Sequence[Alike]) -> None:
    """Makes these units and writes them at once; those of several kinds share acts where their paths are the same."""
    kinds = {number: alike.birth for alike in born for number in alike.numbers}
    by_path: dict[int, list[int]] = {}
    for number in sorted(kinds):
        by_path.setdefault(kinds[number].path.id, []).append(number)
    acts: list[Act] = []
    with tx.connection.pipeline():
        for numbers in by_path.values():
            acts += [
                write_births(tx, stamp, numbers[start : start + UNITS_MAX], kinds)
                for start in range(0, len(numbers), UNITS_MAX)
            ]
        bodies = (list_bodies(tx, alike.birth.body, alike.numbers, alike.inputs) for alike in born)
        tx.connection.insert_values(Body, chain.from_iterable(bodies))
    tx.prefetched.clear()
    tx.state(LaneState).heads.clear()
    tx.state(OrderedReads).units.clear()  # of which it is known that there are no more
    tx.changes.count += 1
    tx.changes.written.update(kinds)
    tx.changes.lanes_with_work.update(alike.birth.unit.lane for alike in born)
    tx.changes.proof = choose_proof(tx.changes.proof, acts, ())


def write_births(tx: UnitOfWork, stamp: Stamp, numbers: list[int], kinds: Mapping[int, KnownBirth]) -> Act:
    """Writes the act that bears these units, with their rows."""
    act = make_birth(tx, kinds[numbers[0]].path, stamp, numbers)
    by_kind: dict[int, tuple[KnownBirth, list[int]]] = {}
    for number in numbers:
        by_kind.setdefault(id(kinds[number]), (kinds[number], []))[1].append(number)
    facts = {"act": act.id, "born": act.id, "changed_at": tx.now, "available_at": tx.now}
    tx.connection.write_births(
        act, [(msgspec.structs.replace(birth.unit, **facts), some) for birth, some in by_kind.values()]
    )
    return act


def make_birth(tx: UnitOfWork, path: Path, stamp: Stamp, numbers: list[int]) -> Act:
    """The act that bears these units."""
    tx.changes.acts += 1
    return Act(
        id=tx.connection.act_id(tx.changes.acts), tenant=tx.tenant, path=path.id, path_digest=path.digest,
        version=0, attempt=1, fence=0, at=tx.now, actor=stamp.actor, reason=stamp.reason, cause=stamp.cause,
        payload=NOTHING, available=1, worker=None, ttl=None, beat=None, until=None, units=numbers,
        before=[0] * len(numbers),
    )  # fmt: skip


def list_bodies(
    tx: UnitOfWork, first: Body, numbers: Sequence[int], inputs: Sequence[str]
) -> list[tuple[int | str | None, ...]]:  # fmt: skip
    """The values of the bodies of these units, in the order of the columns."""
    names = columns(Body)
    values = msgspec.structs.astuple(msgspec.structs.replace(first, created_at=tx.now))[: len(names)]
    inner, last = names.index("input"), names.index("correlation")
    between, after = values[inner + 1 : last], values[last + 1 :]
    return [
        (number, *values[1:inner], text, *between, str(number), *after)
        for number, text in zip(numbers, inputs, strict=True)
    ]
