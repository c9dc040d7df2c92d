"""The fast path of submits: make plain units that differ only in their input, as lists.

The first unit of its kind is made by the verb (`submit.py`), with all checks and hooks. If it was born plain, its birth
is kept: all other work of that kind, in this command and in later ones, makes rows that are equal to it but for the id,
the input and the time. A kind is what `check_work_once` numbers: everything that work says, but for what is each one's
own. Nothing is kept of work that names something of its own (a key, a parent, a need …) or of what is due later, and
where a tenant may have so many jobs waiting and no more, the verb makes all of them.

What the submits of a group bring is written together: 200 of one job each are three statements then.

A birth is as good as the lane that it names: if that was made in a transaction that was rolled back, it is not used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from interlock.core.fast_path import is_served
from interlock.core.stamps import Stamp
from interlock.kernel.blobs import parse_reference
from interlock.kernel.commands import Work
from interlock.kernel.paths import BORN, Path
from interlock.kernel.rows import Act, Body, Unit, copied
from interlock.store.acts import NOTHING, UNITS_MAX
from interlock.store.cache import Lane
from interlock.store.commit_proof import choose_proof
from interlock.store.queries.for_verbs import LaneState, OrderedReads, get_limits, load_lanes
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
    if birth is None or load_lanes(tx, tx.tenant).ids.get(birth.lane[1:]) != birth.lane.id:
        return None
    return birth if parse_reference(work.input) is None and get_limits(tx, tx.tenant)[1] is None else None


def keep_birth(tx: UnitOfWork, kind: int, unit: Unit) -> None:
    """Keeps the birth of a unit that was just made, if nothing else has happened to it."""
    lane, move = load_lanes(tx, tx.tenant).find(unit.lane), tx.changes.last_moves.get(unit.id)
    clocks = (unit.due_at, unit.wake_at, unit.deadline_at, unit.parked_on)
    if not unit.plain or move is None or move.path.source != BORN or move.payload != NOTHING or any(clocks):
        return
    if lane is None or unit.available_at != tx.now or is_served(tx, move.path):
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


@dataclass
class UnwrittenBirths:
    """What the submits of a transaction have brought, and it has not written yet: by who sent it, and its kind."""

    by_stamp: dict[Stamp, dict[int, Alike]] = field(default_factory=dict)


def add_alike_units(tx: UnitOfWork, stamp: Stamp, born: Mapping[int, Alike]) -> None:
    """Has these units written, by kind, with those that other commands of the group bring."""
    by_kind = tx.state(UnwrittenBirths).by_stamp.setdefault(stamp, {})
    for kind, alike in born.items():
        same = by_kind.setdefault(kind, Alike(alike.birth, [], []))
        same.numbers.extend(alike.numbers)
        same.inputs.extend(alike.inputs)
        tx.changes.lanes_with_work.add(alike.birth.unit.lane)
    tx.changes.count += 1


def write_alike_units(tx: UnitOfWork) -> None:
    """Writes the units that submits have brought: before anybody reads them, and before the end."""
    unwritten = tx.state(UnwrittenBirths)
    by_stamp, unwritten.by_stamp = unwritten.by_stamp, {}
    if not by_stamp:
        return
    acts: list[Act] = []
    bodies: list[Body] = []
    with tx.connection.pipeline():
        for stamp, by_kind in by_stamp.items():
            births: dict[Path, dict[int, KnownBirth]] = {}
            for alike in by_kind.values():
                births.setdefault(alike.birth.path, {}).update(dict.fromkeys(alike.numbers, alike.birth))
                for number, text in zip(alike.numbers, alike.inputs, strict=True):
                    body: Body = copied(alike.birth.body)
                    body.unit, body.created_at, body.input, body.correlation = number, tx.now, text, str(number)
                    bodies.append(body)
            for path, by_number in births.items():
                acts += write_births(tx, path, stamp, by_number)
        tx.connection.insert(bodies)
    tx.prefetched.clear()
    tx.state(LaneState).heads.clear()
    tx.state(OrderedReads).units.clear()  # of which it is known that there are no more
    tx.changes.written.update(body.unit for body in bodies)
    tx.changes.proof = choose_proof(tx.changes.proof, acts, ())


def write_births(tx: UnitOfWork, path: Path, stamp: Stamp, births: Mapping[int, KnownBirth]) -> list[Act]:
    """Writes the acts that bear these units, and the units."""
    numbers, acts = sorted(births), list[Act]()
    for start in range(0, len(numbers), UNITS_MAX):
        some = numbers[start : start + UNITS_MAX]
        tx.changes.acts += 1
        act = Act(
            id=tx.connection.act_id(tx.changes.acts), tenant=tx.tenant, path=path.id, path_digest=path.digest,
            version=0, attempt=1, fence=0, at=tx.now, actor=stamp.actor, reason=stamp.reason, cause=stamp.cause,
            payload=NOTHING, available=1, worker=None, ttl=None, beat=None, until=None, units=some,
            before=[0] * len(some),
        )  # fmt: skip
        facts = {"act": act.id, "born": act.id, "changed_at": tx.now, "available_at": tx.now}
        tx.connection.write_acts([act], [replace(births[number].unit, id=number, **facts) for number in act.units])
        acts.append(act)
    return acts
