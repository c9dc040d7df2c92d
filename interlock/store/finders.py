"""The questions that verbs ask of the database, each with a plan that a test looks at."""

from collections.abc import Iterable

from interlock.kernel.rows import Artifact, Body, Note, Unit, Worker
from interlock.store.tx import Tx


def overdue(tx: Tx, limit: int) -> list[Unit]:
    """Units of a tenant that time must look at, the longest overdue first."""
    order = "ORDER BY wake_at, id LIMIT :limit {skip}"
    rest = f"WHERE wake_at IS NOT NULL AND wake_at <= :now AND tenant = :tenant {order}"
    return tx.known(tx.select(Unit, rest, now=tx.now, tenant=tx.tenant, limit=limit))


def claimable(tx: Tx, lanes: list[int], limit: int) -> list[Unit]:
    """The most urgent units of these lanes: by priority, then by age.

    The database has not seen what this transaction did, so those that it made available are asked as well.
    """
    rest = (
        "WHERE lane = :lane AND available_at IS NOT NULL ORDER BY priority DESC, available_at, id LIMIT :limit {skip}"
    )
    found = {unit.id: unit for lane in lanes for unit in tx.known(tx.select(Unit, rest, lane=lane, limit=limit))}
    found |= {unit.id: unit for unit in tx.units.values() if unit.lane in lanes}
    free = [unit for unit in found.values() if unit.available_at is not None]
    return sorted(free, key=lambda unit: (-unit.priority, unit.available_at, unit.id))[:limit]


def lanes_for(tx: Tx, tenant: int, queues: Iterable[str], capabilities: set[str]) -> list[int]:
    """The lanes of these queues whose demands a worker can meet."""
    wanted = set(queues)
    rows = tx.session.rows("SELECT id, queue, capabilities FROM lane WHERE tenant = :tenant", {"tenant": tenant})
    return [one for one, queue, asked in rows if queue in wanted and set(asked.split(",")) - {""} <= capabilities]


def held_by(tx: Tx, worker: int) -> list[Unit]:
    """What a worker holds, locked, as this transaction knows it."""
    tx.known(tx.select(Unit, "WHERE holder = :holder ORDER BY id {lock}", holder=worker))
    return sorted((unit for unit in tx.units.values() if unit.holder == worker), key=lambda unit: unit.id)


def open_children(tx: Tx, parent: int) -> list[Unit]:
    """The children of a unit that have not ended, locked in the order of their ids."""
    rest = "WHERE parent = :parent AND outcome IS NULL ORDER BY id {lock}"
    tx.known(tx.select(Unit, rest, parent=parent))
    mine = [unit for unit in tx.units.values() if unit.parent == parent and unit.outcome is None]
    return sorted(mine, key=lambda unit: unit.id)


def last_child(tx: Tx, parent: int) -> Unit | None:
    """The youngest child of a unit, locked."""
    found = tx.known(tx.select(Unit, "WHERE parent = :parent ORDER BY id DESC LIMIT 1 {lock}", parent=parent))
    return found[0] if found else None


def has_note(tx: Tx, unit: int, kind: str, name: str) -> bool:
    """Whether a unit has such a note, also one that this transaction has just made."""
    here = [row for row in tx.fresh if isinstance(row, Note)]
    if any((note.unit, note.kind, note.name) == (unit, kind, name) for note in here):
        return True
    rest = "WHERE unit = :unit AND kind = :kind AND name = :name"
    return bool(tx.select(Note, rest, unit=unit, kind=kind, name=name))


def votes(tx: Tx, unit: int) -> int:
    """How many have voted for a unit, this transaction's votes included."""
    here = [row for row in tx.fresh if isinstance(row, Note) and (row.unit, row.kind) == (unit, "vote")]
    found = tx.select(Note, "WHERE unit = :unit AND kind = :kind", unit=unit, kind="vote")
    return sum(note.payload == "true" for note in [*here, *found])


def has_artifact(tx: Tx, unit: int, attempt: int, name: str) -> bool:
    """Whether an attempt has an artifact of that name, also one that this transaction has just made."""
    here = [row for row in tx.fresh if isinstance(row, Artifact)]
    if any((one.unit, one.attempt, one.name) == (unit, attempt, name) for one in here):
        return True
    rest = "WHERE unit = :unit AND attempt = :attempt AND name = :name"
    return bool(tx.select(Artifact, rest, unit=unit, attempt=attempt, name=name))


def incarnations(tx: Tx, tenant: int, name: str) -> list[Worker]:
    """Every worker that ever had a name, locked."""
    rest = "WHERE tenant = :tenant AND name = :name ORDER BY unit {lock}"
    found = tx.select(Worker, rest, tenant=tenant, name=name)
    return [tx.workers.setdefault(worker.unit, worker) for worker in found]


def lane_for(tx: Tx, tenant: int, queue: str, capabilities: Iterable[str]) -> int:
    """The lane of a queue and a set of demands, made if there is none yet."""
    asked = {"tenant": tenant, "queue": queue, "capabilities": ",".join(sorted(capabilities))}
    where = "tenant = :tenant AND queue = :queue AND capabilities = :capabilities"
    found = tx.session.rows(f"SELECT id FROM lane WHERE {where}", asked)
    if found:
        return int(found[0][0])
    lane = tx.new_id()
    values = "(:id, :tenant, :queue, :capabilities)"
    tx.session.rows(f"INSERT INTO lane (id, tenant, queue, capabilities) VALUES {values}", {"id": lane, **asked})
    return lane


def with_key(tx: Tx, tenant: int, task: str, key: str) -> Body | None:
    """The body of the unit that a task has under a key, also one that this transaction has just made."""
    for body in tx.bodies.values():
        if (body.tenant, body.task, body.key) == (tenant, task, key):
            return body
    rest = "WHERE tenant = :tenant AND task = :task AND key = :key"
    found = tx.select(Body, rest, tenant=tenant, task=task, key=key)
    return tx.bodies.setdefault(found[0].unit, found[0]) if found else None
