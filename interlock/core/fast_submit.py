"""The fast path of submits: plain units that differ in nothing but their input are born by lists.

The first unit of its kind is made by the verb (`submit.py`), with all checks and hooks. If it was born plain, its birth
is kept: all other work of that kind, in this command and in later ones, makes rows that are equal to it but for the id,
the input and the time. A kind is what `check_work_once` numbers: everything that work says, but for what is each one's
own. Nothing is kept of work that names something of its own (a key, a parent, a need …) or of what is due later, and
where a tenant may have so many jobs waiting and no more, the verb makes all of them.

A birth is as good as the lane that it names: if that was made in a transaction that was rolled back, it is not used.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from interlock.core.fast_path import is_served
from interlock.core.stamps import Stamp
from interlock.kernel.blobs import parse_reference
from interlock.kernel.commands import Work
from interlock.kernel.paths import BORN, Path
from interlock.kernel.rows import Act, Body, Unit, copied
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


def make_alike_units(tx: UnitOfWork, stamp: Stamp, born: Sequence[Alike]) -> None:
    """Makes these units and writes them at once; those of several kinds share acts where their paths are the same."""
    births: dict[Path, dict[int, KnownBirth]] = {}
    bodies: list[Body] = []
    for alike in born:
        births.setdefault(alike.birth.path, {}).update(dict.fromkeys(alike.numbers, alike.birth))
        bodies += map(partial(copy_body, tx, alike.birth), alike.numbers, alike.inputs)
    acts: list[Act] = []
    with tx.connection.pipeline():
        for path, by_number in births.items():
            numbers = sorted(by_number)
            for start in range(0, len(numbers), UNITS_MAX):
                act = make_birth(tx, path, stamp, numbers[start : start + UNITS_MAX])
                facts = {"act": act.id, "born": act.id, "changed_at": tx.now, "available_at": tx.now}
                units = [replace(by_number[number].unit, id=number, **facts) for number in act.units]
                tx.connection.write_acts([act], units)
                acts.append(act)
        tx.connection.insert(bodies)
    tx.prefetched.clear()
    tx.state(LaneState).heads.clear()
    tx.state(OrderedReads).units.clear()  # of which it is known that there are no more
    tx.changes.count += 1
    tx.changes.written.update(body.unit for body in bodies)
    tx.changes.lanes_with_work.update(alike.birth.unit.lane for alike in born)
    tx.changes.proof = choose_proof(tx.changes.proof, acts, ())


def make_birth(tx: UnitOfWork, path: Path, stamp: Stamp, numbers: list[int]) -> Act:
    """The act that bears these units."""
    tx.changes.acts += 1
    return Act(
        id=tx.connection.act_id(tx.changes.acts), tenant=tx.tenant, path=path.id, path_digest=path.digest,
        version=0, attempt=1, fence=0, at=tx.now, actor=stamp.actor, reason=stamp.reason, cause=stamp.cause,
        payload=NOTHING, available=1, worker=None, ttl=None, beat=None, until=None, units=numbers,
        before=[0] * len(numbers),
    )  # fmt: skip


def copy_body(tx: UnitOfWork, birth: KnownBirth, number: int, text: str) -> Body:
    """The body of a unit that is born like a known one, with an input of its own."""
    body: Body = copied(birth.body)
    body.unit, body.created_at, body.input, body.correlation = number, tx.now, text, str(number)
    return body
