"""What pauses read and write: their rows, the lock that they share with claims, and units that are parked on them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from interlock.core.effective_policy import policy_of
from interlock.kernel.commands import Claim
from interlock.kernel.ids import format_id
from interlock.kernel.rows import PauseRow, Unit
from interlock.kernel.timing import STANDS_US
from interlock.store.cache import EngineCache
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_rows
from interlock.store.queries.views import View
from interlock.store.query import BoundQuery, Query, select
from interlock.store.unit_of_work import UnitOfWork

QUEUE, TASK, UNIT, OUTAGE = "queue", "task", "unit", "outage"
PAUSED_MAX = 1_000  # pauses of a tenant at a time: every claim reads them
LIVE = select(PauseRow, "WHERE tenant = :tenant AND live = 1 ORDER BY id")
# A claim that has read the pauses grants by them, so who pauses waits for the claims that are on their way, and those
# that come after wait for the pause. The first number tells these locks from others. A SQLite file has one writer.
LOCK_SPACE = 1_886_745_189
SHARED = Query(f"SELECT pg_advisory_xact_lock_shared({LOCK_SPACE}, CAST(:tenant AS integer))", tuple)
EXCLUSIVE = Query(f"SELECT pg_advisory_xact_lock({LOCK_SPACE}, CAST(:tenant AS integer))", tuple)
TRY_EXCLUSIVE = Query(f"SELECT pg_try_advisory_xact_lock({LOCK_SPACE}, CAST(:tenant AS integer))", bool)
END = "UPDATE pause SET ended_at = :at, ended_by = :actor WHERE id = :id"
FORGET = "UPDATE pause SET live = 0 WHERE id = :id"
OUTAGES = select(PauseRow, "WHERE tenant = :tenant AND kind = 'outage' AND name = :name AND ended_at IS NULL {lock}")
KEEP = "UPDATE pause SET detail = :detail, until = :until WHERE id = :id"
WAVE = select(Unit, "WHERE id {ids}")
PARKED = "SELECT id FROM unit WHERE tenant = :tenant AND parked_on = :key ORDER BY priority DESC, id LIMIT :limit"
PARENTS = "SELECT id, parent FROM unit WHERE id {ids}"
ENDED = "SELECT id FROM unit WHERE id {ids} AND outcome IS NOT NULL"
# What is below a unit, and itself, and has a clock that no worker's lease goes with.
CLOCKED_BELOW = """
WITH RECURSIVE below (unit) AS (
    SELECT CAST(:unit AS BIGINT) UNION ALL SELECT unit.id FROM unit JOIN below ON unit.parent = below.unit)
SELECT id FROM unit JOIN below ON below.unit = unit.id
WHERE deadline_at IS NOT NULL AND outcome IS NULL AND holder IS NULL
"""
ENDED_SINCE = select(PauseRow, "WHERE tenant = :tenant AND kind = 'unit' AND ended_at > :since ORDER BY id")
PARKED_ON_NONE = """
SELECT unit.id, parked_on FROM unit WHERE parked_on LIKE 'pause:%' AND NOT EXISTS (
    SELECT 1 FROM pause WHERE pause.tenant = unit.tenant AND live = 1 AND 'pause:' || kind || ':' || name = parked_on)
"""
GRANTED_SINCE = """
WITH RECURSIVE below (pause, unit) AS (
    SELECT id, unit FROM pause WHERE kind = 'unit' AND ended_at IS NULL
    UNION ALL SELECT below.pause, unit.id FROM unit JOIN below ON unit.parent = below.unit)
SELECT unit.id, pause.kind, pause.name FROM pause
JOIN act ON act.tenant = pause.tenant
JOIN transition_path AS path ON path.id = act.path AND path.grants > 0
JOIN journal_unit ON journal_unit.act = act.id
JOIN unit ON unit.id = journal_unit.unit
JOIN lane ON lane.id = unit.lane
JOIN body ON body.unit = unit.id
WHERE pause.ended_at IS NULL AND act.id > pause.act
AND act.at > pause.since AND (pause.until IS NULL OR act.at < pause.until) AND (
    (pause.kind = 'queue' AND pause.name = lane.queue) OR (pause.kind = 'task' AND pause.name = body.task)
    OR EXISTS (SELECT 1 FROM below WHERE below.pause = pause.id AND below.unit = unit.id))
"""
LAST_ACT = "SELECT max(id) FROM act"
# Clocks that stand although nothing is paused: nobody would move them any more.
STANDING = """
WITH RECURSIVE below (unit) AS (
    SELECT unit FROM pause WHERE kind = 'unit' AND live = 1 AND ended_at IS NULL
    UNION SELECT unit.id FROM unit JOIN below ON unit.parent = below.unit)
SELECT id FROM unit WHERE deadline_at >= :stands AND wake_at IS NOT NULL AND id NOT IN (SELECT unit FROM below)
"""
# What ended because its time was over, after it was paused and while nobody held it.
RUN_OUT = """
WITH RECURSIVE below (since, until, act, unit) AS (
    SELECT since, until, act, unit FROM pause WHERE kind = 'unit' AND live = 1 AND ended_at IS NULL
    UNION SELECT below.since, below.until, below.act, unit.id FROM unit JOIN below ON unit.parent = below.unit)
SELECT event.unit FROM below JOIN unit ON unit.id = below.unit JOIN event ON event.unit = unit.id
WHERE unit.changed_at > below.since AND event.act > below.act
AND event.at > below.since AND (below.until IS NULL OR event.at < below.until)
AND event.trigger = 'time_out' AND event.lease_to IS NULL
"""


@dataclass
class PauseState:
    """What a transaction knows of pauses."""

    live: dict[int, list[PauseRow]] = field(default_factory=dict)  # by tenant
    parents: dict[int, int | None] = field(default_factory=dict)  # by unit, of those that were looked up
    locked: set[int] = field(default_factory=set)  # tenants whose pauses this transaction may change
    outages: dict[tuple[int, str], PauseRow] = field(default_factory=dict)  # by tenant and name: its new ones


def declare_pauses(cache: EngineCache, claims: Sequence[Claim]) -> Iterator[BoundQuery[object]]:
    """What claims read before everything else."""
    for tenant in sorted({claim.tenant for claim in claims}):
        yield SHARED.bind(tenant=tenant)
        yield LIVE.bind(tenant=tenant)


def read_for_claim(tx: UnitOfWork) -> list[PauseRow]:
    """Returns the pauses of the tenant, none of which begins before this transaction ends."""
    live = tx.state(PauseState).live
    if tx.tenant not in live:
        if tx.connection.many_writers:
            tx.run(SHARED.bind(tenant=tx.tenant))
        live[tx.tenant] = tx.run(LIVE.bind(tenant=tx.tenant))
    return live[tx.tenant]


def read_to_change(tx: UnitOfWork) -> list[PauseRow]:
    """Returns the pauses of the tenant. No claim is on its way that has read them, and none reads them meanwhile."""
    state = tx.state(PauseState)
    if tx.tenant not in state.locked:
        if tx.connection.many_writers:
            tx.run(EXCLUSIVE.bind(tenant=tx.tenant))
            state.live.pop(tx.tenant, None)
        state.locked.add(tx.tenant)
    if tx.tenant not in state.live:
        state.live[tx.tenant] = tx.run(LIVE.bind(tenant=tx.tenant))
    return state.live[tx.tenant]


def try_to_change(tx: UnitOfWork) -> list[PauseRow]:
    """Returns the same, or nothing if somebody else reads or changes pauses: a timer comes again."""
    state = tx.state(PauseState)
    if tx.connection.many_writers and tx.tenant not in state.locked:
        if not any(tx.run(TRY_EXCLUSIVE.bind(tenant=tx.tenant))):
            return []
        state.live.pop(tx.tenant, None)
        state.locked.add(tx.tenant)
    return read_to_change(tx)


def peek_pauses(tx: UnitOfWork) -> list[PauseRow]:
    """Returns the pauses of the tenant, without a lock: what is due is asked for again under it."""
    known = tx.state(PauseState).live.get(tx.tenant)
    return list(tx.run(LIVE.bind(tenant=tx.tenant)) if known is None else known)


def read_time(tx: UnitOfWork) -> int:
    """Returns the store's time now that the lock is held: what was granted before that is not later than it."""
    return tx.connection.now() if tx.connection.many_writers else tx.now


def read_last_act(tx: UnitOfWork) -> int:
    """Returns the last act; the time of a pause alone does not say what came before it: clocks are put back."""
    return int(tx.connection.rows(LAST_ACT)[0][0] or 0)


def add_pause(tx: UnitOfWork, pause: PauseRow) -> None:
    """Adds a new pause."""
    tx.add(pause)
    read_to_change(tx).append(pause)


def end_pause(tx: UnitOfWork, pause: PauseRow, at: int, actor: str) -> None:
    """A pause has ended. It is written at once: another one of the same name may follow in this transaction."""
    tx.changes.count += 1
    pause.ended_at, pause.ended_by = at, actor
    if id(pause) not in tx.changes.new:
        tx.connection.rows(END, {"id": pause.id, "at": at, "actor": actor})


def forget_pause(tx: UnitOfWork, pause: PauseRow) -> None:
    """Nothing is parked on a pause that has ended."""
    tx.changes.count += 1
    pause.live = 0
    for known in tx.state(PauseState).live.values():
        known[:] = [other for other in known if other.id != pause.id]
    if id(pause) not in tx.changes.new:
        tx.connection.rows(FORGET, {"id": pause.id})


def lock_outage(tx: UnitOfWork, name: str) -> PauseRow | None:
    """Returns the outage of something that is away now, locked."""
    made = tx.state(PauseState).outages.get((tx.tenant, name))
    if made is not None and id(made) in tx.changes.new:
        return made
    rows = tx.run(OUTAGES.bind(tenant=tx.tenant, name=name))
    return rows[0] if rows else None


def add_outage(tx: UnitOfWork, outage: PauseRow) -> None:
    """Adds a new outage."""
    tx.add(outage)
    tx.state(PauseState).outages[tx.tenant, outage.name] = outage
    if tx.tenant in tx.state(PauseState).live:
        tx.state(PauseState).live[tx.tenant].append(outage)


def write_detail(tx: UnitOfWork, outage: PauseRow) -> None:
    """How it stands with an outage is written, and known to whoever has read it in this transaction."""
    tx.changes.count += 1
    for known in tx.state(PauseState).live.get(tx.tenant, ()):
        if known.id == outage.id:
            known.detail, known.until = outage.detail, outage.until
    if id(outage) not in tx.changes.new:
        tx.connection.rows(KEEP, {"id": outage.id, "detail": outage.detail, "until": outage.until})


def read_wave(tx: UnitOfWork, units: list[int]) -> list[Unit]:
    """Returns units as this transaction knows them, or as the database has them; nobody waits for a lock."""
    known = [tx.rows.units[unit] for unit in units if unit in tx.rows.units]
    others = [unit for unit in units if unit not in tx.rows.units]
    return known + (tx.run(WAVE.bind(ids=others)) if others else [])


def find_parked_on(tx: UnitOfWork, key: str, limit: int) -> tuple[list[Unit], bool]:
    """Returns units of the tenant that are parked on a key, locked, and whether there are no others.

    At most `limit` are read, the most urgent; those of them that somebody else has just released are left out.
    """
    rows = tx.connection.rows(PARKED, {"tenant": tx.tenant, "key": key, "limit": limit})
    tx.lock_units([unit for (unit,) in rows])
    parked = [unit for unit in tx.rows.units.values() if (unit.tenant, unit.parked_on) == (tx.tenant, key)]
    return sorted(parked, key=lambda unit: (-unit.priority, unit.id)), len(rows) < limit


def load_parents(tx: UnitOfWork, units: Iterable[Unit]) -> dict[int, int | None]:
    """Returns the parent of each unit above these, by unit; a unit never gets another one."""
    parents = tx.state(PauseState).parents
    missing = {unit.parent for unit in units if unit.parent is not None} - parents.keys()
    while missing:
        rows: dict[int, int | None] = dict(tx.connection.rows(PARENTS, {"ids": sorted(missing)}))
        parents |= {unit: rows.get(unit) for unit in missing}
        missing = {parent for parent in rows.values() if parent is not None} - parents.keys()
    return parents


def find_clocked_below(tx: UnitOfWork, top: int) -> list[Unit]:
    """Returns a unit and all below it, locked, as far as they have a clock and nobody holds them."""
    ids = [unit for (unit,) in tx.connection.rows(CLOCKED_BELOW, {"unit": top})]
    return [unit for unit in tx.lock_units(ids) if unit.deadline_at is not None and unit.holder is None]


def read_ended_pauses(tx: UnitOfWork, since: int) -> list[PauseRow]:
    """Returns the pauses of units of the tenant that have ended since then, those of this transaction among them."""
    return tx.run(ENDED_SINCE.bind(tenant=tx.tenant, since=since))


def find_ended(tx: UnitOfWork, units: Iterable[int]) -> set[int]:
    """Returns those of the units that have ended."""
    ids = sorted(units)
    return {unit for (unit,) in tx.connection.rows(ENDED, {"ids": ids})} if ids else set()


# What can be asked of the database.


def pauses_of(connection: Connection, tenant: int, *, ended: bool = False, limit: int = 100) -> list[PauseRow]:
    """What is paused now, or with `ended` also what was, the latest first."""
    condition = "tenant = :tenant" if ended else "tenant = :tenant AND live = 1 AND ended_at IS NULL"
    return read_rows(
        connection, PauseRow, f"WHERE {condition} ORDER BY id DESC LIMIT :limit", tenant=tenant, limit=limit
    )


def find_pauses_over(connection: Connection, view: View, now: int) -> list[tuple[PauseRow, str]]:
    """Returns the pauses that keep a unit, or all below it, from starting at that time, and what each has paused."""
    unit = view.unit
    holding = [pause for pause in pauses_of(connection, unit.tenant, limit=PAUSED_MAX) if pause.holds(now)]
    if not holding:
        return []
    names = {(QUEUE, view.queue): f"queue '{view.queue}'", (TASK, view.body.task): f"task '{view.body.task}'"}
    names |= {(OUTAGE, name): name for name in policy_of(view.body).depends}
    above: int | None = unit.id
    while above is not None and any(pause.unit is not None for pause in holding):
        (row,) = connection.rows("SELECT lifecycle, parent FROM unit WHERE id = :id", {"id": above})
        names[UNIT, str(above)] = format_id(row[0], above)
        above = row[1]
    return [(pause, names[pause.kind, pause.name]) for pause in holding if (pause.kind, pause.name) in names]


# Laws.


def find_parked_on_none(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds units that are parked on a pause that there is not."""
    for unit, key in connection.rows(PARKED_ON_NONE):
        yield unit, f"it is parked on '{key}', and there is no such pause: nobody would release it"


def find_granted_since(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds units that were granted to a worker while they were paused."""
    for unit, kind, name in connection.rows(GRANTED_SINCE):
        yield unit, f"it was granted while the {kind} {name} was paused"


def find_stopped_for_ever(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds units whose clock stands although neither they nor anything above them is paused."""
    for (unit,) in connection.rows(STANDING, {"stands": STANDS_US}):
        yield unit, "its clock stands, and it is not paused"


def find_run_out(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds units whose time was over while they were paused."""
    for (unit,) in connection.rows(RUN_OUT):
        yield unit, "its time was over while it was paused"
