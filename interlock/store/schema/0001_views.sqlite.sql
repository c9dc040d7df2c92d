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
