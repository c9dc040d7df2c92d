-- The guard: an illegal move is impossible, whoever writes. Every message names the rule that was broken.
-- Inserting an act is the only way to make a unit or to move one: the act's own trigger does it, and while it runs, and
-- only then, `moving` holds the act. What REPLACE would delete unseen is not written again (recursive triggers may be
-- off, which a connection chooses for itself).

-- The units of each act, written with it: the history of a unit is found by its key.
CREATE TABLE member (
    unit     INTEGER NOT NULL,
    version  INTEGER NOT NULL,              -- before the act
    act      INTEGER NOT NULL,
    PRIMARY KEY (unit, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE moving (
    act  INTEGER PRIMARY KEY
) STRICT;

CREATE TRIGGER guard_edge BEFORE UPDATE OF lifecycle, source, trigger, target, name, severity, opens_attempt, category ON edge
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an edge is never changed, only retired');
END;
CREATE TRIGGER guard_edge_delete BEFORE DELETE ON edge
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an edge is never deleted, only retired');
END;

CREATE TRIGGER guard_edge_replace BEFORE INSERT ON edge
WHEN EXISTS (SELECT 1 FROM edge WHERE rowid = NEW.rowid) OR EXISTS (
    SELECT 1 FROM edge
    WHERE (lifecycle, source, trigger, target, name, severity, opens_attempt, category)
        = (NEW.lifecycle, NEW.source, NEW.trigger, NEW.target, NEW.name, NEW.severity, NEW.opens_attempt, NEW.category))
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an edge is unique, and is never written again');
END;
CREATE TRIGGER guard_edge_rowid AFTER UPDATE ON edge WHEN NEW.rowid <> OLD.rowid
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the rowid of an edge never changes');
END;

-- A path is listed hops, each beginning where the last one ended; what it makes of a unit is derived from them.
CREATE TRIGGER guard_path_hops AFTER INSERT ON transition_path
BEGIN
    INSERT INTO path_hop
    SELECT NEW.id, key + 1, json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]'),
           sum(json_extract(value, '$[5]')) OVER (ORDER BY key), sum(json_extract(value, '$[6]')) OVER (ORDER BY key), json_extract(value, '$[7]'), json_extract(value, '$[8]')
      FROM json_each(NEW.told, '$[5]');
    SELECT CASE
        WHEN hop.place > 1 AND hop.source <> before.target
        THEN RAISE(ABORT, 'interlock guard [path]: a hop begins where the last one ended')
        WHEN hop.trigger = 'self' AND (
            hop.source <> hop.target OR hop.lease_to IS NULL OR hop.attempt <> coalesce(before.attempt, 0))
        THEN RAISE(ABORT, 'interlock guard [path]: a hop in place is one of the lease alone')
        WHEN hop.trigger <> 'self' AND json_extract(NEW.told, '$[4]') = 1 AND (hop.trigger <> 'force' OR NOT EXISTS (
            SELECT 1 FROM edge WHERE lifecycle = json_extract(NEW.told, '$[0]') AND target = hop.target))
        THEN RAISE(ABORT, 'interlock guard [path]: a forced path leads to a state of the lifecycle')
        WHEN hop.trigger <> 'self' AND json_extract(NEW.told, '$[4]') = 0 AND NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = json_extract(NEW.told, '$[0]') AND source = hop.source AND trigger = hop.trigger
              AND target = hop.target AND name = hop.name AND severity = hop.severity
              AND opens_attempt = hop.attempt - coalesce(before.attempt, 0) AND retired = 0)
        THEN RAISE(ABORT, 'interlock guard [listed-hop]: this hop is not listed in its lifecycle')
        WHEN hop.lease_to IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = 'lease' AND source = coalesce(hop.lease_from, '') AND target = hop.lease_to AND retired = 0)
        THEN RAISE(ABORT, 'interlock guard [listed-lease-hop]: this hop of the lease is not listed')
        WHEN hop.lease_to IS NOT NULL AND hop.lease_from IS NOT coalesce((
            SELECT earlier.lease_to FROM path_hop AS earlier
            WHERE earlier.path = hop.path AND earlier.place < hop.place AND earlier.lease_to IS NOT NULL
            ORDER BY earlier.place DESC LIMIT 1), hop.lease_from)
        THEN RAISE(ABORT, 'interlock guard [path]: a hop of the lease begins where the last one ended')
        WHEN hop.fence - coalesce(before.fence, 0) <> (hop.lease_from IS NULL AND hop.lease_to IS NOT NULL)
        THEN RAISE(ABORT, 'interlock guard [path]: a fence counts grants')
    END
    FROM path_hop AS hop LEFT JOIN path_hop AS before ON before.path = hop.path AND before.place = hop.place - 1
    WHERE hop.path = NEW.id;
    UPDATE transition_path SET
        lifecycle = json_extract(NEW.told, '$[0]'),
        category = json_extract(NEW.told, '$[1]'),
        outcome = json_extract(NEW.told, '$[2]'),
        started = json_extract(NEW.told, '$[3]'),
        forced = json_extract(NEW.told, '$[4]'),
        hops = whole.hops, payload_hop = coalesce(whole.payload_hop, whole.hops), source = first.source, target = last.target, opens = last.attempt, grants = last.fence,
        lease_from = (SELECT lease_from FROM path_hop WHERE path = NEW.id AND place = whole.lease_first),
        lease_to = lease.target, lease_ends = CASE WHEN coalesce(lease.category, 'held') IN ('held', 'active') THEN 0
                                                    WHEN lease.category = 'success' THEN 2 ELSE 1 END
      FROM (SELECT count(*) AS hops, max(CASE WHEN trigger <> 'self' THEN place END) AS payload_hop, min(CASE WHEN lease_to IS NOT NULL THEN place END) AS lease_first,
                   max(CASE WHEN lease_to IS NOT NULL THEN place END) AS lease_last
              FROM path_hop WHERE path = NEW.id) AS whole
      JOIN path_hop AS first ON first.path = NEW.id AND first.place = 1
      JOIN path_hop AS last ON last.path = NEW.id AND last.place = whole.hops
      LEFT JOIN path_hop AS with_lease ON with_lease.path = NEW.id AND with_lease.place = whole.lease_last
      LEFT JOIN edge AS lease ON lease.lifecycle = 'lease' AND lease.source = coalesce(with_lease.lease_from, '')
            AND lease.target = with_lease.lease_to
     WHERE transition_path.id = NEW.id;
    SELECT RAISE(ABORT, 'interlock guard [path]: a path says what becomes of its unit')
    WHERE NOT EXISTS (
        SELECT 1 FROM transition_path AS path LEFT JOIN path_hop AS hop ON hop.path = path.id AND hop.place = (
            SELECT max(place) FROM path_hop WHERE path = NEW.id AND trigger <> 'self')
        LEFT JOIN edge ON edge.lifecycle = path.lifecycle AND edge.target = hop.target AND (
            path.forced = 1 OR (edge.source = hop.source AND edge.trigger = hop.trigger AND edge.retired = 0))
        WHERE path.id = NEW.id AND path.hops = (SELECT count(*) FROM path_hop WHERE path = NEW.id) AND path.hops > 0
          AND path.grants <= 1 AND path.started BETWEEN 0 AND 3 AND path.forced IN (0, 1)
          AND (path.forced = 0 OR (path.hops = 1 AND path.opens = 0)) AND path.category IS edge.category
          AND path.outcome = CASE WHEN edge.category IS NULL OR edge.category = 'closed' THEN 2
                                  WHEN edge.category IN ('success', 'failure', 'cancelled', 'dead') THEN 1 ELSE 0 END);
END;
CREATE TRIGGER guard_path_replace BEFORE INSERT ON transition_path
WHEN EXISTS (SELECT 1 FROM transition_path WHERE id = NEW.id)
  OR EXISTS (SELECT 1 FROM transition_path WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a path is never changed, only retired');
END;
CREATE TRIGGER guard_path_update BEFORE UPDATE ON transition_path
WHEN OLD.hops > 0 AND (NEW.id, NEW.told, NEW.digest, NEW.lifecycle, NEW.source, NEW.target, NEW.category, NEW.outcome,
    NEW.started, NEW.hops, NEW.payload_hop, NEW.opens, NEW.grants, NEW.lease_from, NEW.lease_to, NEW.lease_ends, NEW.forced) IS NOT (
    OLD.id, OLD.told, OLD.digest, OLD.lifecycle, OLD.source, OLD.target, OLD.category, OLD.outcome, OLD.started,
    OLD.hops, OLD.payload_hop, OLD.opens, OLD.grants, OLD.lease_from, OLD.lease_to, OLD.lease_ends, OLD.forced)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a path is never changed, only retired');
END;
CREATE TRIGGER guard_path_rowid AFTER UPDATE ON transition_path WHEN NEW.rowid <> OLD.rowid
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the rowid of a path never changes');
END;
CREATE TRIGGER guard_path_delete BEFORE DELETE ON transition_path
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a path is never deleted, only retired');
END;
CREATE TRIGGER guard_path_hop BEFORE INSERT ON path_hop
WHEN NOT EXISTS (SELECT 1 FROM transition_path WHERE id = NEW.path AND hops = 0)
  OR EXISTS (SELECT 1 FROM path_hop WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: the hops of a path are written with it');
END;
CREATE TRIGGER guard_path_hop_update BEFORE UPDATE ON path_hop
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: the hops of a path are never changed');
END;
CREATE TRIGGER guard_path_hop_delete BEFORE DELETE ON path_hop
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: the hops of a path are never deleted');
END;

-- With an edge the paths that take it are retired, and none comes back without its edges.
CREATE TRIGGER guard_edge_retired AFTER UPDATE OF retired ON edge WHEN NEW.retired <> 0
BEGIN
    UPDATE transition_path SET retired = 1
    WHERE retired = 0 AND NEW.lifecycle IN (lifecycle, 'lease') AND EXISTS (
    SELECT 1 FROM path_hop AS hop
    WHERE hop.path = transition_path.id AND (
        (transition_path.forced = 0 AND hop.trigger <> 'self' AND NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = transition_path.lifecycle AND source = hop.source AND trigger = hop.trigger AND target = hop.target
              AND name = hop.name AND severity = hop.severity AND retired = 0))
        OR (hop.lease_to IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = 'lease' AND source = coalesce(hop.lease_from, '') AND target = hop.lease_to
              AND retired = 0))));
END;
CREATE TRIGGER guard_path_back BEFORE UPDATE OF retired ON transition_path
WHEN NEW.retired = 0 AND OLD.retired <> 0 AND EXISTS (
    SELECT 1 FROM path_hop AS hop
    WHERE hop.path = NEW.id AND (
        (NEW.forced = 0 AND hop.trigger <> 'self' AND NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = NEW.lifecycle AND source = hop.source AND trigger = hop.trigger AND target = hop.target
              AND name = hop.name AND severity = hop.severity AND retired = 0))
        OR (hop.lease_to IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = 'lease' AND source = coalesce(hop.lease_from, '') AND target = hop.lease_to
              AND retired = 0))))
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [listed-hop]: an edge of this path is retired');
END;

-- The one way in which units are made and move: each listed path is applied to exactly the units of its act, or it is
-- refused.
CREATE TRIGGER act_moves AFTER INSERT ON act
BEGIN
    SELECT CASE
        WHEN path.id IS NULL OR path.retired <> 0 OR path.digest <> NEW.path_digest
        THEN RAISE(ABORT, 'interlock guard [listed-hop]: this path is not listed in its lifecycle')
        -- Lists are plain: of integers, and of texts.
        WHEN json_array_length(NEW.units) NOT BETWEEN 1 AND 1000
          OR NEW.units || NEW.before || coalesce(replace(NEW.leases, 'null', ''), '') GLOB '*[^][0-9, ]*'
          OR json_array_length(NEW.before) <> json_array_length(NEW.units)
          OR json_array_length(NEW.leases) <> json_array_length(NEW.units)
          OR json_array_length(NEW.details) <> json_array_length(NEW.units)
          OR EXISTS (SELECT 1 FROM json_each(NEW.details) WHERE type NOT IN ('text', 'null'))
          OR EXISTS (SELECT 1 FROM json_each(NEW.secrets) WHERE type <> 'text')
          OR NOT json_valid(NEW.payload) OR json_type(NEW.payload) <> 'object' OR NEW.available NOT IN (0, 1)
          OR (path.grants > 0 AND path.lease_ends = 0 AND (
              NEW.secrets IS NULL OR json_array_length(NEW.secrets) <> json_array_length(NEW.units)
              OR NEW.worker IS NULL OR NEW.ttl IS NULL OR NEW.beat IS NULL OR NEW.until IS NULL
              OR NEW.until > NEW.at + NEW.ttl))
          OR (path.source = '' AND (NEW.version, NEW.attempt, NEW.fence) <> (0, 1, 0))
          OR (path.forced = 1 AND NEW.reason = '')
        THEN RAISE(ABORT, 'interlock guard [act]: an act names 1 to 1,000 units, and where each of them comes from')
        WHEN path.forced = 1 AND EXISTS (
            SELECT 1 FROM json_each(NEW.units) AS listed WHERE NOT EXISTS (
                SELECT 1 FROM forced_move AS allowed
                WHERE allowed.unit = listed.value AND allowed.version = NEW.version + path.hops
                  AND allowed.tenant = NEW.tenant AND allowed.target = path.target AND allowed.actor = NEW.actor
                  AND allowed.reason = NEW.reason))
        THEN RAISE(ABORT, 'interlock guard [forced]: no row of forced_move, which operators write, allows this')
        WHEN NEW.at > unixepoch() * 1000000 + 60000000
        THEN RAISE(ABORT, 'interlock guard [time]: an act is not later than the clock of the store')
        WHEN NEW.id <> 1 + max(coalesce((SELECT max(id) FROM act WHERE id < NEW.id), 0),
                               coalesce((SELECT max(id) FROM act_gone), 0))
          OR EXISTS (SELECT 1 FROM act WHERE id > NEW.id)
        THEN RAISE(ABORT, 'interlock guard [position]: an act has the number after that of the last one')
    END
    FROM (SELECT 1) LEFT JOIN transition_path AS path ON path.id = NEW.path;
    INSERT INTO moving VALUES (NEW.id);
    -- A lease that is taken from its holder has a row of its own, with the hash of its secret.
    UPDATE lease SET ended_at = NEW.at, until = max(until, coalesce(NEW.until, 0))
      FROM (SELECT value AS unit, json_extract(NEW.leases, '$[' || key || ']') AS lease FROM json_each(NEW.units)) AS listed, transition_path AS path
     WHERE path.id = NEW.path AND path.lease_ends = 1 AND lease.id = listed.lease AND lease.unit = listed.unit;
    INSERT INTO lease (id, unit, tenant, worker, secret, until, ttl, beat, ended_at)
    SELECT shared.id, unit.id, shared.tenant, shared.worker, unit.lease_hash, max(shared.until, coalesce(NEW.until, 0)),
           shared.ttl, shared.beat, NEW.at
      FROM transition_path AS path CROSS JOIN json_each(NEW.units) AS listed CROSS JOIN unit ON unit.id = listed.value
     CROSS JOIN lease AS shared ON shared.unit = 0 AND shared.id = unit.lease_id
     WHERE path.id = NEW.path AND path.lease_ends = 1
       AND NOT EXISTS (SELECT 1 FROM lease AS own WHERE own.unit = unit.id AND own.id = unit.lease_id);
    UPDATE unit SET
           state = path.target,
           category = coalesce(path.category, unit.category),
           outcome = CASE path.outcome WHEN 0 THEN NULL WHEN 1 THEN path.category ELSE unit.outcome END,
           version = unit.version + path.hops,
           act = NEW.id,
           born = CASE WHEN path.source = '' THEN NEW.id ELSE unit.born END,
           changed_at = NEW.at,
           started_at = CASE path.started WHEN 0 THEN unit.started_at WHEN 1 THEN coalesce(unit.started_at, NEW.at)
                                          WHEN 3 THEN NEW.at END,
           attempt = unit.attempt + path.opens,
           fence = unit.fence + path.grants,
           lease = coalesce(path.lease_to, unit.lease),
           lease_id = CASE WHEN path.lease_ends > 0 THEN NULL WHEN path.grants > 0 THEN NEW.id ELSE unit.lease_id END,
           holder = CASE WHEN path.lease_ends > 0 THEN NULL WHEN path.grants > 0 THEN NEW.worker ELSE unit.holder END,
           lease_until = CASE WHEN path.lease_ends > 0 THEN NEW.until ELSE unit.lease_until END,
           lease_hash = CASE WHEN path.lease_ends > 0 THEN NULL WHEN path.grants > 0 THEN listed.secret ELSE unit.lease_hash END,
           rests_in = CASE WHEN path.category IN ('gate', 'waiting', 'closing', 'failure', 'cancelled', 'dead') THEN path.target
                           WHEN path.category IS NULL THEN unit.rests_in END,
           dead_at = CASE WHEN path.category = 'dead' THEN NEW.at WHEN path.category IS NULL THEN unit.dead_at END,
           available_at = CASE WHEN NEW.available > 0 THEN NEW.at END,
           wake_at = CASE WHEN path.outcome <> 1 THEN unit.wake_at END,
           due_at = CASE WHEN path.outcome <> 1 THEN unit.due_at END,
           deadline_at = CASE WHEN path.outcome <> 1 THEN unit.deadline_at END,
           parked_on = CASE WHEN path.outcome <> 1 THEN nullif(unit.parked_on, 'withheld') END,
           asked_at = CASE WHEN path.outcome <> 1 THEN unit.asked_at END,
           asked_by = CASE WHEN path.outcome <> 1 THEN unit.asked_by END
      FROM (SELECT value AS unit, json_extract(NEW.before, '$[' || key || ']') AS before, json_extract(NEW.leases, '$[' || key || ']') AS lease,
                   json_extract(NEW.secrets, '$[' || key || ']') AS secret
              FROM json_each(NEW.units)) AS listed, transition_path AS path
     WHERE path.id = NEW.path AND unit.id = listed.unit AND unit.tenant = NEW.tenant
       AND unit.lifecycle = path.lifecycle AND unit.state = path.source AND unit.version = NEW.version
       AND unit.act = listed.before AND unit.attempt = NEW.attempt AND unit.fence = NEW.fence
       AND unit.lease_id IS listed.lease AND (path.lease_from IS NULL OR unit.lease = path.lease_from)
       AND (path.grants = 0 OR unit.lease_id IS NULL) AND unit.changed_at <= NEW.at
       -- What is neither held nor at work is under no lease.
       AND (unit.lease_id IS NULL OR path.lease_ends > 0
            OR coalesce(path.category, unit.category) IN ('held', 'active', 'closing'));
    SELECT RAISE(ABORT, 'interlock guard [chain]: not all units of this act are where it begins')
    WHERE changes() <> json_array_length(NEW.units);
    INSERT INTO member (unit, version, act) SELECT value, NEW.version, NEW.id FROM json_each(NEW.units);
    INSERT INTO lease (id, unit, tenant, worker, secret, until, ttl, beat, units)
    SELECT NEW.id, 0, NEW.tenant, NEW.worker, '', NEW.until, NEW.ttl, NEW.beat, json_array_length(NEW.units)
      FROM transition_path WHERE id = NEW.path AND grants > 0 AND lease_ends = 0;
    -- Of one that its holder has finished, acts tell all that there was to it.
    DELETE FROM lease WHERE (unit, id) IN (
        SELECT value, json_extract(NEW.leases, '$[' || key || ']') FROM json_each(NEW.units)
         WHERE (SELECT lease_ends FROM transition_path WHERE id = NEW.path) = 2);
    UPDATE lease SET units = lease.units - ended.number
      FROM (SELECT listed.value AS id, count(*) AS number FROM transition_path AS path CROSS JOIN json_each(NEW.leases) AS listed
             WHERE path.id = NEW.path AND path.lease_ends > 0 GROUP BY listed.value) AS ended
     WHERE lease.unit = 0 AND lease.id = ended.id;
    -- Those that are left may all have rows of their own.
    DELETE FROM lease WHERE unit = 0 AND id IN (
        SELECT listed.value FROM transition_path AS path CROSS JOIN json_each(NEW.leases) AS listed
         WHERE path.id = NEW.path AND path.lease_ends > 0)
       AND units <= (SELECT count(*) FROM lease AS own WHERE own.id = lease.id AND own.unit > 0 AND own.ended_at IS NULL);
    DELETE FROM moving;
END;
CREATE TRIGGER guard_act_replace BEFORE INSERT ON act WHEN EXISTS (SELECT 1 FROM act WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an act is never changed');
END;
CREATE TRIGGER guard_act BEFORE UPDATE ON act
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an act is never changed');
END;

-- Only the trigger of an act that has not moved its units yet can write `moving`: SQLite counts an act when its
-- statement is over.
CREATE TRIGGER guard_moving BEFORE INSERT ON moving
WHEN EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'act' AND seq >= NEW.act) OR NOT EXISTS (
    SELECT 1 FROM act WHERE id = NEW.act AND NOT EXISTS (SELECT 1 FROM act AS later WHERE later.id > NEW.act)
      AND NOT EXISTS (SELECT 1 FROM unit WHERE unit.id = json_extract(act.units, '$[0]') AND unit.act >= NEW.act)
      AND NOT EXISTS (SELECT 1 FROM member WHERE unit = json_extract(act.units, '$[0]') AND version = act.version))
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [event-first]: only an act moves');
END;
CREATE TRIGGER guard_moving_update BEFORE UPDATE ON moving
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [event-first]: only an act moves');
END;
CREATE TRIGGER guard_member BEFORE INSERT ON member
WHEN NOT EXISTS (SELECT 1 FROM moving WHERE act = NEW.act)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [event-first]: the units of an act are written with it');
END;
CREATE TRIGGER guard_member_update BEFORE UPDATE ON member
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: the units of an act are never changed');
END;

-- A unit is nothing until an act bears it.
CREATE TRIGGER guard_birth BEFORE INSERT ON unit
BEGIN
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM unit WHERE id = NEW.id) OR EXISTS (SELECT 1 FROM unit WHERE rowid = NEW.rowid)
        THEN RAISE(ABORT, 'interlock guard [append-only]: a unit is unique, and is never written again')
        WHEN NEW.state <> '' OR NEW.category <> '' OR NEW.outcome IS NOT NULL
          OR (NEW.version, NEW.act, NEW.born, NEW.changed_at, NEW.attempt, NEW.fence) <> (0, 0, 0, 0, 1, 0)
          OR NEW.started_at IS NOT NULL OR NEW.available_at IS NOT NULL OR NEW.lease IS NOT NULL
          OR NEW.lease_id IS NOT NULL OR NEW.holder IS NOT NULL OR NEW.lease_until IS NOT NULL OR NEW.lease_hash IS NOT NULL
          OR NEW.rests_in IS NOT NULL OR NEW.dead_at IS NOT NULL
        THEN RAISE(ABORT, 'interlock guard [event-first]: a unit is born by the act that says so')
        WHEN NEW.parent IS NOT NULL AND NOT EXISTS (SELECT 1 FROM unit WHERE id = NEW.parent AND tenant = NEW.tenant)
        THEN RAISE(ABORT, 'interlock guard [tenant]: a child has the tenant of its parent')
        WHEN NEW.lane <> 0 AND NEW.lane / 4294967296 <> NEW.tenant
        THEN RAISE(ABORT, 'interlock guard [tenant]: a unit waits in a lane of its tenant')
    END;
END;
CREATE TRIGGER guard_unit BEFORE UPDATE OF id, tenant, lifecycle, parent, born, state, category, outcome, version, act,
    changed_at, started_at, attempt, fence, lease, lease_id, holder, lease_until, lease_hash, rests_in, dead_at ON unit
WHEN NOT EXISTS (SELECT 1 FROM moving WHERE act = NEW.act) OR NEW.act <= OLD.act OR NEW.version <= OLD.version
  OR (NEW.id, NEW.tenant, NEW.lifecycle, NEW.parent) IS NOT (OLD.id, OLD.tenant, OLD.lifecycle, OLD.parent)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [event-first]: what an act writes changes only by an act');
END;
CREATE TRIGGER guard_unit_lane BEFORE UPDATE OF lane ON unit WHEN NEW.lane <> 0 AND NEW.lane / 4294967296 <> NEW.tenant
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [tenant]: a unit waits in a lane of its tenant');
END;
CREATE TRIGGER guard_unit_withheld BEFORE UPDATE OF parked_on, available_at ON unit
WHEN NEW.parked_on = 'withheld' AND NEW.available_at IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [withheld]: a unit that is withheld may not be claimed');
END;
CREATE TRIGGER guard_unit_rowid AFTER UPDATE ON unit WHEN NEW.rowid <> OLD.rowid
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the rowid of a unit never changes');
END;

-- Leases: only an act writes one, and whoever renews it makes it longer. A unit that shares a row may get one of its own,
-- no shorter, as long as another one stays under the row that they shared.
CREATE TRIGGER guard_lease BEFORE INSERT ON lease
WHEN CASE
    WHEN EXISTS (SELECT 1 FROM lease WHERE unit = NEW.unit AND id = NEW.id) OR EXISTS (SELECT 1 FROM lease WHERE rowid = NEW.rowid)
    THEN 1
    WHEN EXISTS (SELECT 1 FROM moving) THEN NEW.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM moving WHERE act = NEW.id)
    ELSE NOT EXISTS (
        SELECT 1 FROM unit JOIN lease AS shared ON shared.unit = 0 AND shared.id = unit.lease_id
         WHERE unit.id = NEW.unit AND unit.lease_id = NEW.id AND NEW.ended_at IS NULL AND NEW.units = 1
           AND (NEW.tenant, NEW.worker, NEW.secret, NEW.ttl, NEW.beat)
             = (shared.tenant, shared.worker, unit.lease_hash, shared.ttl, shared.beat)
           AND NEW.until >= shared.until
           AND (NEW.until = shared.until OR NEW.until <= unixepoch() * 1000000 + 60000000 + shared.ttl)
           AND shared.units > 1 + (
               SELECT count(*) FROM lease AS own WHERE own.id = NEW.id AND own.unit > 0 AND own.ended_at IS NULL))
    END
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [lease]: a lease is written by the act that grants it');
END;
CREATE TRIGGER guard_lease_update BEFORE UPDATE ON lease
WHEN NOT EXISTS (SELECT 1 FROM moving) AND (
    NEW.until < OLD.until OR OLD.ended_at IS NOT NULL OR NEW.until > unixepoch() * 1000000 + 60000000 + OLD.ttl
    OR (NEW.id, NEW.unit, NEW.tenant, NEW.worker, NEW.secret, NEW.ttl, NEW.beat, NEW.ended_at, NEW.units)
       IS NOT (OLD.id, OLD.unit, OLD.tenant, OLD.worker, OLD.secret, OLD.ttl, OLD.beat, OLD.ended_at, OLD.units))
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [lease]: a live lease is only made longer, for its own time at most');
END;
CREATE TRIGGER guard_lease_rowid AFTER UPDATE ON lease WHEN NEW.rowid <> OLD.rowid
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the rowid of a lease never changes');
END;
CREATE TRIGGER guard_lease_delete BEFORE DELETE ON lease WHEN OLD.ended_at IS NULL AND NOT EXISTS (SELECT 1 FROM moving)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [lease]: a live lease is not deleted');
END;

CREATE TRIGGER guard_unit_delete BEFORE DELETE ON unit
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a unit is deleted only if it is archived')
    WHERE NOT EXISTS (SELECT 1 FROM archived WHERE unit = OLD.id AND version = OLD.version);
END;

CREATE TRIGGER guard_body_insert BEFORE INSERT ON body
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [one-unit-a-key]: this task has a unit under that key')
    WHERE EXISTS (SELECT 1 FROM body WHERE tenant = NEW.tenant AND task = NEW.task AND key = NEW.key);
    SELECT RAISE(ABORT, 'interlock guard [tenant]: a body has the tenant of its unit')
    WHERE NOT EXISTS (SELECT 1 FROM unit WHERE id = NEW.unit AND tenant = NEW.tenant);
END;

CREATE TRIGGER guard_body_update AFTER UPDATE OF key ON body
WHEN NEW.key IS NOT OLD.key AND NOT (NEW.key IS NULL AND NEW.replaced_by IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the unit, tenant, task and key of a body never change');
END;

CREATE TRIGGER guard_body_fixed AFTER UPDATE OF unit, tenant, task, created_at, input, labels, policy, correlation, trace,
    mutex, limit_key, retry_of, rate_key ON body
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: what a unit was given at its birth never changes');
END;

CREATE TRIGGER guard_body_replace BEFORE INSERT ON body
WHEN EXISTS (SELECT 1 FROM body WHERE unit = NEW.unit) OR EXISTS (SELECT 1 FROM body WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a body is unique, and is never written again');
END;

CREATE TRIGGER guard_body_rowid AFTER UPDATE ON body WHEN NEW.rowid <> OLD.rowid
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the rowid of a body never changes');
END;

CREATE TRIGGER guard_need BEFORE INSERT ON need
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [tenant]: a unit and what it needs are of one tenant')
    WHERE NOT EXISTS (SELECT 1 FROM unit WHERE id = NEW.unit AND tenant = NEW.tenant)
       OR NOT EXISTS (SELECT 1 FROM unit WHERE id = NEW.needs AND tenant = NEW.tenant)
          AND NOT EXISTS (SELECT 1 FROM place WHERE place.unit = NEW.needs AND tenant = NEW.tenant);
END;

CREATE TRIGGER guard_need_update BEFORE UPDATE ON need
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: a need never changes');
END;

CREATE TRIGGER guard_need_replace BEFORE INSERT ON need
WHEN EXISTS (SELECT 1 FROM need WHERE unit = NEW.unit AND needs = NEW.needs)
  OR EXISTS (SELECT 1 FROM need WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: a need is unique, and is never written again');
END;

CREATE TRIGGER guard_place BEFORE INSERT ON place
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [tenant]: a place is in a unit of its tenant, and is that of a child of it')
    WHERE NOT EXISTS (SELECT 1 FROM unit WHERE id = NEW.parent AND tenant = NEW.tenant)
       OR EXISTS (SELECT 1 FROM unit WHERE id = NEW.unit AND (tenant <> NEW.tenant OR parent IS NOT NEW.parent));
END;

CREATE TRIGGER guard_place_update BEFORE UPDATE ON place
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: a place never changes');
END;

CREATE TRIGGER guard_place_replace BEFORE INSERT ON place
WHEN EXISTS (SELECT 1 FROM place WHERE (parent = NEW.parent AND name = NEW.name) OR unit = NEW.unit)
  OR EXISTS (SELECT 1 FROM place WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: a place is unique, and is never written again');
END;

CREATE TRIGGER guard_artifact BEFORE INSERT ON artifact
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [tenant]: an artifact has the tenant of its unit')
    WHERE NOT EXISTS (SELECT 1 FROM unit WHERE id = NEW.unit AND tenant = NEW.tenant);
END;

CREATE TRIGGER guard_artifact_update BEFORE UPDATE ON artifact
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an artifact is never changed');
END;

CREATE TRIGGER guard_artifact_replace BEFORE INSERT ON artifact
WHEN EXISTS (SELECT 1 FROM artifact WHERE unit = NEW.unit AND attempt = NEW.attempt AND name = NEW.name)
  OR EXISTS (SELECT 1 FROM artifact WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an artifact is unique, and is never written again');
END;

CREATE TRIGGER guard_archived_replace BEFORE INSERT ON archived
WHEN EXISTS (SELECT 1 FROM archived WHERE unit = NEW.unit) OR EXISTS (SELECT 1 FROM archived WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a unit is archived once');
END;

CREATE TRIGGER guard_archived_update BEFORE UPDATE ON archived
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a row of archived is never changed');
END;

CREATE TRIGGER guard_archived_delete BEFORE DELETE ON archived
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a row of archived is never deleted');
END;

-- An act and its details leave with the last of its units, and its members behind it; its digest stays.
CREATE TRIGGER guard_act_delete BEFORE DELETE ON act
WHEN NOT EXISTS (SELECT 1 FROM act_gone WHERE id = OLD.id AND tenant = OLD.tenant AND digest = OLD.digest)
  OR EXISTS (SELECT 1 FROM json_each(OLD.units) AS listed JOIN unit ON unit.id = listed.value)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an act is deleted only with the last of its units');
END;
CREATE TRIGGER guard_member_delete BEFORE DELETE ON member
WHEN EXISTS (SELECT 1 FROM act WHERE id = OLD.act)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: the units of an act are never changed');
END;
CREATE TRIGGER guard_detail BEFORE INSERT ON act_detail
WHEN EXISTS (SELECT 1 FROM act_detail WHERE act = NEW.act AND unit = NEW.unit)
  OR EXISTS (SELECT 1 FROM act_detail WHERE rowid = NEW.rowid)
  OR NOT json_valid(NEW.payload) OR json_type(NEW.payload) <> 'object'
  OR NOT EXISTS (
      SELECT 1 FROM act JOIN json_each(act.units) AS listed ON listed.value = NEW.unit
      WHERE act.id = NEW.act AND act.tenant = NEW.tenant AND act.details IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: what an act tells of a unit is written once');
END;
CREATE TRIGGER guard_detail_update BEFORE UPDATE ON act_detail
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: what an act tells of a unit is never changed');
END;
CREATE TRIGGER guard_detail_delete BEFORE DELETE ON act_detail
WHEN NOT EXISTS (SELECT 1 FROM archived WHERE unit = OLD.unit)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a row of act_detail is deleted only if its unit is archived');
END;
CREATE TRIGGER guard_gone BEFORE INSERT ON act_gone
WHEN NOT EXISTS (SELECT 1 FROM act WHERE id = NEW.id AND tenant = NEW.tenant AND digest = NEW.digest)
  OR EXISTS (SELECT 1 FROM act_gone WHERE id = NEW.id OR rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an act that is gone leaves its own digest');
END;
CREATE TRIGGER guard_gone_update BEFORE UPDATE ON act_gone
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: what an act left behind is never changed');
END;
CREATE TRIGGER guard_gone_delete BEFORE DELETE ON act_gone
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: what an act left behind is never deleted');
END;

-- Seals follow each other, skip no act, and are never changed.
CREATE TRIGGER guard_seal BEFORE INSERT ON seal
WHEN NEW.number <> 1 + coalesce((SELECT max(number) FROM seal WHERE tenant = NEW.tenant), 0)
  OR NEW.first_act <= coalesce((SELECT max(last_act) FROM seal WHERE tenant = NEW.tenant), 0)
  OR NEW.last_act < NEW.first_act OR NEW.acts < 1 OR (NEW.acts = 1) <> (NEW.first_act = NEW.last_act)
  OR EXISTS (SELECT 1 FROM seal WHERE rowid = NEW.rowid)
  OR EXISTS (
      SELECT 1 FROM act WHERE tenant = NEW.tenant AND id < NEW.first_act
         AND id > coalesce((SELECT max(last_act) FROM seal WHERE tenant = NEW.tenant), 0))
  OR (SELECT count(*) FROM (SELECT 1 FROM act WHERE tenant = NEW.tenant AND id = NEW.first_act
                            UNION ALL SELECT 1 FROM act_gone WHERE tenant = NEW.tenant AND id = NEW.first_act)) = 0
  OR (SELECT count(*) FROM (SELECT 1 FROM act WHERE tenant = NEW.tenant AND id = NEW.last_act
                            UNION ALL SELECT 1 FROM act_gone WHERE tenant = NEW.tenant AND id = NEW.last_act)) = 0
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [seal]: a seal goes on where the last one ended');
END;
CREATE TRIGGER guard_seal_update BEFORE UPDATE ON seal
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [seal]: a seal is never changed');
END;
CREATE TRIGGER guard_seal_delete BEFORE DELETE ON seal
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [seal]: a seal is never deleted');
END;

-- What goes past the table, and what leaves the database.
CREATE TRIGGER guard_forced_move BEFORE INSERT ON forced_move
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a row of forced_move is unique, and is never written again')
    WHERE EXISTS (SELECT 1 FROM forced_move WHERE unit = NEW.unit AND version = NEW.version)
       OR EXISTS (SELECT 1 FROM forced_move WHERE rowid = NEW.rowid);
    SELECT RAISE(ABORT, 'interlock guard [forced]: a forced move has a reason, a unit, a version to come and a state of its lifecycle')
    WHERE NEW.reason = '' OR NOT EXISTS (
        SELECT 1 FROM unit JOIN edge ON edge.lifecycle = unit.lifecycle AND edge.target = NEW.target
        WHERE unit.id = NEW.unit AND unit.tenant = NEW.tenant AND unit.version < NEW.version);
END;

CREATE TRIGGER guard_forced_move_update BEFORE UPDATE ON forced_move
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a row of forced_move is never changed');
END;

CREATE TRIGGER guard_forced_move_delete BEFORE DELETE ON forced_move
WHEN NOT EXISTS (SELECT 1 FROM archived WHERE unit = OLD.unit)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a row of forced_move is deleted only if its unit is archived');
END;

-- What is archived has ended, and the row says how far its own history went.
CREATE TRIGGER guard_archived BEFORE INSERT ON archived
WHEN NOT EXISTS (
    SELECT 1 FROM unit JOIN act ON act.id = unit.act
    WHERE unit.id = NEW.unit AND unit.tenant = NEW.tenant AND unit.version = NEW.version AND unit.born = NEW.born
      AND act.digest = NEW.head AND unit.outcome IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [archived]: only a unit that has ended is archived, with its own version and head');
END;

-- What a unit was given and what it made leave with it.
CREATE TRIGGER guard_body_delete BEFORE DELETE ON body
WHEN NOT EXISTS (SELECT 1 FROM archived WHERE unit = OLD.unit)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a row of body is deleted only if its unit is archived');
END;

CREATE TRIGGER guard_artifact_delete BEFORE DELETE ON artifact
WHEN NOT EXISTS (SELECT 1 FROM archived WHERE unit = OLD.unit)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a row of artifact is deleted only if its unit is archived');
END;

-- An audit and a tick find the tenants by these rows: one that is gone would hide all its work.
CREATE TRIGGER guard_tenant_identity BEFORE UPDATE ON tenant
WHEN NEW.id <> OLD.id OR EXISTS (SELECT 1 FROM tenant WHERE name = NEW.name AND id <> OLD.id)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the id of a tenant never changes');
END;
CREATE TRIGGER guard_tenant_delete BEFORE DELETE ON tenant
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a tenant is never deleted: audits and ticks find its work by this row');
END;
-- Whoever makes sure that a tenant is there finds it so; REPLACE would delete the one that has the id or the name.
CREATE TRIGGER guard_tenant_replace BEFORE INSERT ON tenant
WHEN EXISTS (SELECT 1 FROM tenant WHERE id = NEW.id OR name = NEW.name)
BEGIN
    SELECT RAISE(IGNORE);
END;
