"""The claim query: the most urgent units that a worker can do, with a fair share per queue.

How it finds them
-----------------
1. **Lanes.** A lane is a queue together with the task and the capabilities that its units require. The lanes that this
   worker serves are known from a cache (`store/cache.py`); their ids stand in a few stretches of numbers.
2. **Heads.** One statement goes from the first waiting unit of one lane straight to that of the next lane which has any
   (`HEADS`), by the index of what is available: empty lanes cost nothing, however many there are.
3. **Shares.** The room of the claim is dealt to the queues that have something, evenly; what one queue leaves over goes
   to the others. Which queue gets the odd unit changes from claim to claim (`rotate_queues`).
4. **Units.** The most urgent ones of each lane are read and locked, by priority, then by how long they have waited.
   Units that another transaction has locked are skipped, so claimers do not wait for each other.

What is ugly: the database does not know what this transaction has made or freed and not written yet, so those units
are merged into every list in memory (`group_known_free`).
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from interlock.kernel.rows import Body, Unit, WorkerRow
from interlock.store.cache import Served
from interlock.store.queries.for_verbs import LaneState, Urgency, load_lanes, read_in_turn
from interlock.store.query import select
from interlock.store.unit_of_work import UnitOfWork

MOST_URGENT = "WHERE lane = :lane AND available_at IS NOT NULL ORDER BY priority DESC, available_at, id LIMIT :limit"
FREE = select(Unit, f"{MOST_URGENT} {{skip}}")
# Of the units that a claim has just locked, or of some that others have; a claim reads those that it misses.
BODIES_OF_FREE = select(Body, f"WHERE unit IN (SELECT id FROM unit {MOST_URGENT})")
RUNS_MAX = 400  # stretches of lanes that one statement looks at
# From the first unit of one lane straight to the first one of the next lane that has any, and so on. Its urgency is
# one text, because a subquery that stands for several columns is spelled differently on each database.
HEADS = """
WITH RECURSIVE run (low, high) AS (VALUES {runs}), head (lane, high) AS (
    SELECT (SELECT lane FROM unit WHERE available_at IS NOT NULL AND lane >= run.low AND lane <= run.high
            ORDER BY lane LIMIT 1), run.high FROM run
    UNION ALL
    SELECT (SELECT lane FROM unit WHERE available_at IS NOT NULL AND lane > head.lane AND lane <= head.high
            ORDER BY lane LIMIT 1), head.high FROM head WHERE head.lane IS NOT NULL)
SELECT lane, (SELECT priority || ' ' || available_at || ' ' || id FROM unit
              WHERE available_at IS NOT NULL AND lane = head.lane
              ORDER BY priority DESC, available_at, id LIMIT 1) FROM head WHERE lane IS NOT NULL
"""
Here = Mapping[int, list[Unit]]  # lane by lane, what this transaction knows to be free


def find_claimable(tx: UnitOfWork, queues: Sequence[str], worker: WorkerRow, room: int, key: str) -> list[Unit]:
    """What a claim takes, the most urgent first. The shares go round the queues that have something for its worker."""
    wanted = (tuple(queues), worker.capabilities, worker.tasks)
    served = load_lanes(tx, tx.tenant).served(*wanted)
    here = group_known_free(tx, served)
    lanes = group_waiting(served, read_lane_heads(tx, served, (tx.tenant, *wanted)), here)
    hungry = rotate_queues([queue for queue in dict.fromkeys(queues) if queue in lanes], key)
    taken: dict[str, list[Unit]] = {queue: [] for queue in hungry}
    while hungry and (left := room - sum(map(len, taken.values()))):
        dealt = zip(hungry, split_room(left, len(hungry)), strict=True)
        shares = {queue: len(taken[queue]) + share for queue, share in dealt}
        taken |= {queue: read_most_urgent(tx, lanes[queue], share, here) for queue, share in shares.items() if share}
        hungry = [queue for queue in hungry if len(taken[queue]) == shares[queue]]  # it may have more
    return sorted((unit for units in taken.values() for unit in units), key=urgency)


def urgency(unit: Unit) -> Urgency:
    """Units are claimed in this order, which is the order of the claim index."""
    return -unit.priority, unit.available_at or 0, unit.id


def group_known_free(tx: UnitOfWork, served: Served) -> dict[int, list[Unit]]:
    """What may be claimed of these lanes, whether or not the database has seen it."""
    free: dict[int, list[Unit]] = {}
    for unit in tx.rows.units.values():
        if (
            unit.available_at is not None
            and unit.lane in served.queues
            and not tx.cache.is_passed_over(unit.id, tx.now)
        ):
            free.setdefault(unit.lane, []).append(unit)
    return free


def group_waiting(served: Served, first: Mapping[int, Urgency], here: Here) -> dict[str, dict[int, Urgency]]:
    """The lanes with something for a worker, queue by queue, each with the urgency of its first unit."""
    urgencies = dict(first)
    for lane, units in here.items():
        best = min(map(urgency, units))
        urgencies[lane] = min(best, urgencies.get(lane, best))
    by_queue: dict[str, dict[int, Urgency]] = {}
    for lane, best in urgencies.items():
        by_queue.setdefault(served.queues[lane], {})[lane] = best
    return by_queue


def read_lane_heads(
    tx: UnitOfWork, served: Served, name: tuple[int, tuple[str, ...], str, str | None]
) -> dict[int, Urgency]:
    """The first unit of each lane that has one, as the database has them."""
    if name not in tx.state(LaneState).heads:
        if len(served.queues) == 1:  # its units will be asked for anyway
            tx.state(LaneState).heads[name] = dict.fromkeys(served.queues, (0, 0, 0))
        else:
            runs = [served.runs[start : start + RUNS_MAX] for start in range(0, len(served.runs), RUNS_MAX)]
            tx.state(LaneState).heads[name] = {
                lane: first for some in runs for lane, first in search_lanes(tx, some) if lane in served.queues
            }
    return tx.state(LaneState).heads[name]


def search_lanes(tx: UnitOfWork, runs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Urgency]]:
    """The lanes of these stretches that have something. An empty lane, or one that lies outside, is not visited."""
    values = ", ".join(f"(CAST(:low{n} AS BIGINT), CAST(:high{n} AS BIGINT))" for n in range(len(runs)))
    ends = {f"low{n}": low for n, (low, _) in enumerate(runs)} | {f"high{n}": high for n, (_, high) in enumerate(runs)}
    for lane, first in tx.connection.rows(HEADS.replace("{runs}", values), ends):
        priority, available_at, unit = map(int, first.split())
        yield lane, (-priority, available_at, unit)


def read_most_urgent(tx: UnitOfWork, lanes: Mapping[int, Urgency], wanted: int, here: Here) -> list[Unit]:
    """The most urgent units of these lanes; few are read that are not taken."""
    gone = {
        lane
        for lane, (_, _, unit) in lanes.items()
        if unit in tx.cache.passed_over or (unit in tx.rows.units and tx.rows.units[unit].available_at is None)
    }
    first = sorted(lanes.keys() - gone, key=lambda lane: lanes[lane])[:wanted]  # a lane after them has none of the best
    limits = dict.fromkeys([*first, *gone], wanted // (len(first) + len(gone)) + 1)
    while True:
        read = {lane: read_first(tx, lane, min(count, wanted)) for lane, count in limits.items()}
        candidates = {unit.id: unit for lane in limits for unit in (*read[lane], *here.get(lane, ()))}
        best = sorted(candidates.values(), key=urgency)[:wanted]
        # A lane of which all that was read is taken may have more that is as urgent.
        dry = [
            lane
            for lane, units in read.items()
            if wanted > limits[lane] <= len(units) and urgency(units[-1]) <= urgency(best[-1])
        ]
        if not dry:
            return best
        limits |= {lane: 2 * limits[lane] if dry[1:] else wanted for lane in dry}


def read_first(tx: UnitOfWork, lane: int, wanted: int) -> list[Unit]:
    """Reads the most urgent units of a lane."""

    def free(unit: Unit) -> bool:
        return unit.available_at is not None and not tx.cache.is_passed_over(unit.id, tx.now)

    units = read_in_turn(tx, FREE, wanted, free, lane=lane)
    for body in tx.take_prefetched(BODIES_OF_FREE.bind(lane=lane, limit=wanted)):
        if body.unit in tx.rows.units:
            tx.rows.bodies.setdefault(body.unit, body)
    return units


def split_room(room: int, queues: int) -> list[int]:
    """How many units a claim takes of each queue if all have enough; what is left over goes to the first ones."""
    return [room // queues + (place < room % queues) for place in range(queues)]


def rotate_queues(queues: Sequence[str], key: str) -> list[str]:
    """The queues in their order, from the one whose turn it is in the claim with this key."""
    turn = int.from_bytes(sha256(key.encode()).digest()[:8], "big") % len(queues) if queues else 0
    return [*queues[turn:], *queues[:turn]]
