-- Document 002's nine types of events, in its own words: moves are events, the rest are notes.
CREATE VIEW job_event WITH (security_invoker = true) AS
SELECT unit || '.' || version AS id, unit AS job_id, tenant, name AS type, at AS ts, actor, correlation AS correlation_id,
       cause, payload, version
FROM event
WHERE lifecycle = 'job'
UNION ALL
SELECT 'n' || note.id || '.' || unit.id || '.' || said.type, unit.id, unit.tenant, said.type, note.at, worker.name,
       body.correlation, NULL, '{}', 0
FROM note
CROSS JOIN LATERAL json_array_elements(note.payload::json) AS beat (value)
JOIN (VALUES ('job_heartbeat'), ('job_lease_renewed')) AS said (type)
  ON said.type = 'job_heartbeat' OR (beat.value ->> 2)::boolean
JOIN unit ON unit.id = (beat.value ->> 0)::bigint AND unit.lifecycle = 'job'
JOIN body ON body.unit = unit.id
JOIN worker ON worker.unit = note.unit
WHERE note.kind = 'beat'
UNION ALL
SELECT 'n' || note.id, unit.id, unit.tenant, 'job_compensated', note.at, 'engine', body.correlation, NULL, note.payload, 0
FROM note
JOIN unit ON unit.id = note.unit AND unit.lifecycle = 'job'
JOIN body ON body.unit = unit.id
WHERE note.kind = 'compensated';
