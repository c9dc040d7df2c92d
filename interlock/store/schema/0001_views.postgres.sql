-- One event for each transition of each unit, read from acts: the outward word. By unit: a unit names its last act, and
-- that act the one before it, so that a history costs what is read of it.
CREATE VIEW event WITH (security_invoker = true) AS
SELECT unit.id AS unit, act.version + hop.place AS version, act.tenant, path.lifecycle, hop.trigger,
       nullif(hop.source, '') AS source, hop.target, hop.lease_from, hop.lease_to, act.attempt + hop.attempt AS attempt,
       act.fence + hop.fence AS fence, hop.name, hop.severity, act.at, act.actor,
       coalesce(nullif(act.reason, ''), hop.trigger) AS reason, act.cause,
       coalesce(body.correlation, unit.id::text) AS correlation, coalesce(body.trace, '') AS trace,
       CASE WHEN hop.place = path.payload_hop THEN coalesce(detail.payload, act.payload) ELSE '{}' END AS payload,
       act.digest AS hash, act.id AS act
  FROM unit LEFT JOIN body ON body.unit = unit.id  -- a history is told also where the body is lost
 CROSS JOIN LATERAL (
     WITH RECURSIVE walk AS (
         SELECT act.*, act.before[array_position(act.units, unit.id)] AS came_from FROM act WHERE act.id = unit.act
         UNION ALL
         SELECT act.*, act.before[array_position(act.units, unit.id)] FROM walk JOIN act ON act.id = walk.came_from)
     SELECT * FROM walk) AS act
  JOIN transition_path AS path ON path.id = act.path
  JOIN path_hop AS hop ON hop.path = path.id
  LEFT JOIN act_detail AS detail ON detail.act = act.id AND detail.unit = unit.id;

-- The same by position, in the order of commits: act by act, and within an act unit by unit.
CREATE VIEW journal WITH (security_invoker = true) AS
SELECT act.id AS act, ((member.place - 1) * path.hops + hop.place)::integer AS place,
       member.unit, act.version + hop.place AS version, act.tenant, act.path, path.lifecycle, hop.trigger,
       nullif(hop.source, '') AS source, hop.target, hop.lease_from, hop.lease_to, act.attempt + hop.attempt AS attempt,
       act.fence + hop.fence AS fence, hop.name, hop.severity, act.at, act.actor,
       coalesce(nullif(act.reason, ''), hop.trigger) AS reason, act.cause, body.correlation, body.trace,
       CASE WHEN hop.place = path.payload_hop THEN coalesce(detail.payload, act.payload) ELSE '{}' END AS payload,
       act.digest AS hash
  FROM act JOIN transition_path AS path ON path.id = act.path
 CROSS JOIN LATERAL unnest(act.units) WITH ORDINALITY AS member (unit, place)
  JOIN path_hop AS hop ON hop.path = path.id
  JOIN body ON body.unit = member.unit
  LEFT JOIN act_detail AS detail ON detail.act = act.id AND detail.unit = member.unit;

-- Which acts tell of which units.
CREATE VIEW journal_unit WITH (security_invoker = true) AS
SELECT act.id AS act, act.tenant, act.path, act.version, listed.unit FROM act CROSS JOIN LATERAL unnest(act.units) AS listed (unit);

-- Who holds which unit until when: the one place that knows that units share a row.
CREATE VIEW live_lease WITH (security_invoker = true) AS
SELECT id, unit, tenant, worker, secret, until, ttl, beat FROM lease WHERE ended_at IS NULL AND unit > 0
UNION ALL
SELECT shared.id, unit.id, shared.tenant, shared.worker, unit.lease_hash, shared.until, shared.ttl, shared.beat
  FROM lease AS shared JOIN act ON act.id = shared.id CROSS JOIN LATERAL unnest(act.units) AS listed (unit)
  JOIN unit ON unit.id = listed.unit AND unit.lease_id = shared.id
 WHERE shared.ended_at IS NULL AND shared.unit = 0
   AND NOT EXISTS (SELECT 1 FROM lease AS own WHERE own.unit = listed.unit AND own.id = shared.id);
