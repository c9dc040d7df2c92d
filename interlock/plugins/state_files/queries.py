"""What the writer of state files asks of the database."""

from interlock.kernel.rows import Event, columns

# Of some transitions.
ENTITY_FACTS = """
SELECT unit.id, unit.lifecycle, unit.parent, unit.decides, body.task, body.policy, body.retry_of, above.lifecycle
FROM unit JOIN body ON body.unit = unit.id LEFT JOIN unit AS above ON above.id = unit.parent
WHERE unit.tenant = :tenant AND unit.id {ids}
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
# Of everything, or of one workstream.
COUNTS = """
SELECT lifecycle, state, count(*) FROM unit
WHERE tenant = :tenant AND lifecycle IN ('task', 'workstream', 'worker') GROUP BY lifecycle, state ORDER BY 1, 2
"""
OPEN_TASKS = """
SELECT unit.id, unit.parent, unit.state, unit.attempt, unit.changed_at, unit.holder, unit.unmet, body.task, place.name
FROM unit JOIN body ON body.unit = unit.id LEFT JOIN place ON place.unit = unit.id
WHERE unit.tenant = :tenant AND unit.lifecycle = 'task' AND unit.outcome IS NULL ORDER BY unit.id LIMIT :limit
"""
WORKER_LOADS = """
SELECT unit.id, worker.name, unit.state, worker.holding, worker.capacity FROM worker JOIN unit ON unit.id = worker.unit
WHERE unit.tenant = :tenant AND unit.outcome IS NULL AND unit.category <> 'closed' ORDER BY unit.id
"""
OPEN_WORKSTREAMS = """
SELECT unit.id, body.task, unit.state, unit.started_at, unit.total, unit.succeeded, unit.lost
FROM unit JOIN body ON body.unit = unit.id
WHERE unit.tenant = :tenant AND unit.lifecycle = 'workstream' AND unit.outcome IS NULL ORDER BY unit.id
"""
WORKSTREAMS_BEHIND = """
SELECT id, outcome FROM unit
WHERE tenant = :tenant AND lifecycle = 'workstream' AND id > :last ORDER BY id LIMIT :page
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
NEEDS_BELOW = """
SELECT need.unit, need.needs FROM need JOIN unit ON unit.id = need.unit
WHERE unit.tenant = :tenant AND unit.parent = :unit ORDER BY need.unit, need.needs
"""
