"""What the writer of state files and who brings archives back ask of the database, and tables of their own."""

from collections.abc import Iterator, Sequence
from typing import Any

from interlock.kernel.rows import Event, columns
from interlock.store.connection import Connection
from interlock.store.retention import split_ids
from interlock.store.unit_of_work import UnitOfWork

TABLES = """
-- What came back from an archive: its transitions are told in the log of the database in which they happened.
CREATE TABLE restored (
    unit    BIGINT PRIMARY KEY,
    tenant  INTEGER NOT NULL,
    top     BIGINT NOT NULL,                -- of its tree
    at      BIGINT NOT NULL,
    actor   TEXT NOT NULL,
    file    TEXT NOT NULL
);
-- Ids that no program was given, because archived trees with such ids came back.
CREATE TABLE skipped_ids (
    first_id  BIGINT PRIMARY KEY,
    last_id   BIGINT NOT NULL,
    tenant    INTEGER NOT NULL
);
"""
# Of some transitions.
ENTITY_FACTS = """
SELECT unit.id, unit.lifecycle, unit.parent, unit.decides, body.task, body.policy, replaced.unit, above.lifecycle
FROM unit JOIN body ON body.unit = unit.id LEFT JOIN unit AS above ON above.id = unit.parent
LEFT JOIN body AS replaced ON replaced.unit = body.retry_of AND replaced.replaced_by = body.unit
WHERE unit.tenant = :tenant AND unit.id {ids}
AND NOT EXISTS (SELECT 1 FROM restored WHERE restored.unit = unit.id)
"""
TASK_NAMES = "SELECT unit, name FROM place WHERE tenant = :tenant AND unit {ids}"
WORKER_NAMES = "SELECT unit, name, capacity FROM worker WHERE tenant = :tenant AND unit {ids}"
NEEDS_OF_TASKS = """
SELECT need.unit, need.needs FROM need JOIN unit ON unit.id = need.needs
WHERE need.tenant = :tenant AND need.by_end = 0 AND unit.lifecycle = 'task' AND need.unit {ids}
ORDER BY need.unit, need.needs
"""
HISTORIES = "SELECT unit, version, source, target, name, at FROM event WHERE unit {ids} ORDER BY unit, version"
EDGES = "SELECT lifecycle, trigger, source, target, name, category FROM edge"
GRANTED_TO = "SELECT id, worker FROM act WHERE id {ids}"
FROM_THERE_ON = f"""
SELECT act, place, {", ".join(columns(Event))} FROM journal
WHERE tenant = :tenant AND (act, place) > (:act, :place) AND act >= :act ORDER BY act, place LIMIT :limit
"""
# Of what is open, or of one workstream; and of what happened since somebody counted.
MOVES = """
SELECT lifecycle, source, target, count(*) FROM journal
WHERE tenant = :tenant AND act > :act AND act <= :last AND (source IS NULL OR source <> target)
AND lifecycle IN ('task', 'workstream', 'worker')
AND NOT EXISTS (SELECT 1 FROM restored WHERE restored.unit = journal.unit) GROUP BY lifecycle, source, target
"""
LOGGED_EVENTS = """
SELECT count(*) FROM event WHERE tenant = :tenant AND source IS NOT NULL AND source <> target
AND lifecycle IN ('task', 'workstream', 'worker')
AND NOT EXISTS (SELECT 1 FROM restored WHERE restored.unit = event.unit)
"""
LAST_ACTS = """
SELECT id FROM act WHERE tenant = :tenant AND id > :act AND id < :horizon ORDER BY id LIMIT 1 OFFSET :most
"""
# Whatever is open waits in a state that is listed, may be claimed, is parked, has a clock, or is held: each by its
# index.
OPEN_TASKS = """
SELECT unit.id, unit.parent, unit.state, unit.attempt, unit.changed_at, unit.holder, unit.unmet, body.task, place.name
FROM (
    SELECT id FROM unit
    WHERE tenant = :tenant AND rests_in IS NOT NULL AND lifecycle = 'task' AND rests_in IN ({states})
    UNION SELECT id FROM unit
    WHERE lane > :first AND lane < :end AND available_at IS NOT NULL AND lifecycle = 'task'
    UNION SELECT id FROM unit WHERE tenant = :tenant AND parked_on IS NOT NULL AND lifecycle = 'task'
    UNION SELECT id FROM unit WHERE tenant = :tenant AND wake_at IS NOT NULL AND lifecycle = 'task'
    UNION SELECT unit FROM live_lease WHERE tenant = :tenant AND worker {{ids}}
) AS found JOIN unit ON unit.id = found.id JOIN body ON body.unit = unit.id LEFT JOIN place ON place.unit = unit.id
WHERE unit.tenant = :tenant AND unit.lifecycle = 'task' AND unit.outcome IS NULL ORDER BY unit.id LIMIT :limit
"""
WORKER_LOADS = """
SELECT unit.id, worker.name, unit.state, worker.holding, worker.capacity FROM worker JOIN unit ON unit.id = worker.unit
WHERE worker.tenant = :tenant AND unit.category <> 'closed' ORDER BY worker.unit
"""
OPEN_WORKSTREAMS = """
SELECT unit.id, body.task, unit.state, unit.started_at, unit.total, unit.succeeded, unit.lost
FROM unit JOIN body ON body.unit = unit.id
WHERE unit.tenant = :tenant AND unit.id {ids} AND unit.outcome IS NULL ORDER BY unit.id
"""
WORKSTREAM_FACTS = """
SELECT body.task, unit.state, unit.outcome, body.created_at FROM unit JOIN body ON body.unit = unit.id
WHERE unit.tenant = :tenant AND unit.id = :unit AND unit.lifecycle = 'workstream'
"""
TASKS_BELOW = """
SELECT unit.id, unit.state, unit.decides, body.task, place.name FROM unit JOIN body ON body.unit = unit.id
LEFT JOIN place ON place.unit = unit.id
WHERE unit.tenant = :tenant AND unit.parent = :unit AND unit.lifecycle = 'task' ORDER BY unit.id
"""
OPEN_BELOW = """
WITH RECURSIVE below (id, outcome) AS (
    SELECT id, outcome FROM unit WHERE tenant = :tenant AND id = :unit
    UNION ALL SELECT unit.id, unit.outcome FROM unit JOIN below ON unit.parent = below.id)
SELECT count(*), sum(CASE WHEN outcome IS NULL THEN 1 ELSE 0 END), (SELECT parent FROM unit WHERE id = :unit) FROM below
"""
BELOW = """
WITH RECURSIVE below (id) AS (
    SELECT id FROM unit WHERE tenant = :tenant AND id = :unit
    UNION ALL SELECT unit.id FROM unit JOIN below ON unit.parent = below.id) SELECT id FROM below ORDER BY id
"""
NEEDS_BELOW = """
SELECT need.unit, need.needs FROM need JOIN unit ON unit.id = need.unit
WHERE unit.tenant = :tenant AND unit.parent = :unit ORDER BY need.unit, need.needs
"""
# Of archives.
LANES = """
SELECT DISTINCT lane.id, lane.queue, lane.capabilities, lane.task FROM unit JOIN lane ON lane.id = unit.lane
WHERE unit.id {ids} ORDER BY lane.id
"""
UNITS_AMONG = "SELECT id, lifecycle FROM unit WHERE id {ids} ORDER BY id"
NOTES_AMONG = "SELECT id FROM note WHERE id {ids} UNION ALL SELECT id FROM unit WHERE id {ids}"
ARCHIVED_AMONG = "SELECT unit FROM archived WHERE unit {ids} ORDER BY unit"
TAKEN_KEY = "SELECT unit FROM body WHERE tenant = :tenant AND task = :task AND key = :key"
LOCK_IDS = "UPDATE id_block SET next_id = next_id WHERE name = 'unit' RETURNING next_id"
RAISE_IDS = "UPDATE id_block SET next_id = :beyond WHERE name = 'unit'"
SKIPPED_IDS = "SELECT first_id, last_id FROM skipped_ids"
ADD_SKIPPED_IDS = "INSERT INTO skipped_ids (first_id, last_id, tenant) VALUES (:first, :last, :tenant)"
PATHS = """
SELECT digest, id, source, target, category, outcome, started, hops, opens, forced, retired FROM transition_path
"""
ADD_RESTORED = """
INSERT INTO restored (unit, tenant, top, at, actor, file) VALUES (:unit, :tenant, :top, :at, :actor, :file)
"""
FORGET_RESTORED = "DELETE FROM restored WHERE unit {ids}"
RESTORED_AND_GONE = """
SELECT unit FROM restored WHERE NOT EXISTS (SELECT 1 FROM unit WHERE unit.id = restored.unit) ORDER BY unit LIMIT 100
"""


def count_logged(connection: Connection, tenant: int) -> int:
    """Counts the transitions that the log tells: of tasks, workstreams and workers, but for what came back."""
    ((count,),) = connection.rows(LOGGED_EVENTS, {"tenant": tenant})
    return int(count)


def read_lanes_to_archive(tx: UnitOfWork, units: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields what units asked of a worker: the number of a lane says nothing outside its database."""
    lanes = {row for part in split_ids(units) for row in tx.connection.rows(LANES, {"ids": part})}
    for number, queue, capabilities, task in sorted(lanes):
        yield "lane", {"id": number, "queue": queue, "capabilities": capabilities, "task": task}


def forget_restored(tx: UnitOfWork, units: Sequence[int]) -> None:
    """Units that came back and are archived once more are gone."""
    for part in split_ids(units):
        tx.connection.rows(FORGET_RESTORED, {"ids": part})


def find_restored_and_gone(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds units that came back from an archive and are not there."""
    for (unit,) in connection.rows(RESTORED_AND_GONE):
        yield unit, "it came back from an archive, and is not there"
