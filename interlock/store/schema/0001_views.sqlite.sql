-- One event for each transition of each unit, read from acts: the outward word. By unit.
CREATE VIEW event AS
SELECT member.unit, act.version + hop.place AS version, act.tenant, path.lifecycle, hop.trigger,
       nullif(hop.source, '') AS source, hop.target, hop.lease_from, hop.lease_to, act.attempt + hop.attempt AS attempt,
       act.fence + hop.fence AS fence, hop.name, hop.severity, act.at, act.actor,
       coalesce(nullif(act.reason, ''), hop.trigger) AS reason, act.cause,
       coalesce(body.correlation, CAST(member.unit AS TEXT)) AS correlation, coalesce(body.trace, '') AS trace,
       CASE WHEN hop.place = path.payload_hop THEN coalesce(detail.payload, act.payload) ELSE '{}' END AS payload,
       act.digest AS hash, act.id AS act
  FROM member CROSS JOIN act ON act.id = member.act
  JOIN transition_path AS path ON path.id = act.path
  JOIN path_hop AS hop ON hop.path = path.id
  JOIN unit ON unit.id = member.unit
  LEFT JOIN body ON body.unit = member.unit  -- a history is told also where the body is lost
  LEFT JOIN act_detail AS detail ON detail.act = act.id AND detail.unit = member.unit;

-- The same by position, in the order of commits: act by act, and within an act unit by unit.
CREATE VIEW journal AS
SELECT act.id AS act, listed.key * path.hops + hop.place AS place,
       listed.value AS unit, act.version + hop.place AS version, act.tenant, act.path, path.lifecycle, hop.trigger,
       nullif(hop.source, '') AS source, hop.target, hop.lease_from, hop.lease_to, act.attempt + hop.attempt AS attempt,
       act.fence + hop.fence AS fence, hop.name, hop.severity, act.at, act.actor,
       coalesce(nullif(act.reason, ''), hop.trigger) AS reason, act.cause, body.correlation, body.trace,
       CASE WHEN hop.place = path.payload_hop THEN coalesce(detail.payload, act.payload) ELSE '{}' END AS payload,
       act.digest AS hash
  FROM act CROSS JOIN transition_path AS path ON path.id = act.path
 CROSS JOIN json_each(act.units) AS listed
 CROSS JOIN path_hop AS hop ON hop.path = path.id
  JOIN body ON body.unit = listed.value
  LEFT JOIN act_detail AS detail ON detail.act = act.id AND detail.unit = listed.value;

-- Which acts tell of which units.
CREATE VIEW journal_unit AS
SELECT act.id AS act, act.tenant, act.path, act.version, listed.value AS unit FROM act, json_each(act.units) AS listed;

-- Who holds which unit until when: the one place that knows that units share a row.
CREATE VIEW live_lease AS
SELECT id, unit, tenant, worker, secret, until, ttl, beat FROM lease WHERE ended_at IS NULL AND unit > 0
UNION ALL
SELECT shared.id, unit.id, shared.tenant, shared.worker, unit.lease_hash, shared.until, shared.ttl, shared.beat
  FROM lease AS shared CROSS JOIN act ON act.id = shared.id CROSS JOIN json_each(act.units) AS listed
 CROSS JOIN unit ON unit.id = listed.value AND unit.lease_id = shared.id
 WHERE shared.ended_at IS NULL AND shared.unit = 0
   AND NOT EXISTS (SELECT 1 FROM lease AS own WHERE own.unit = listed.value AND own.id = shared.id);
