-- The guard: an illegal move is impossible, whoever writes. Every message names the rule that was broken.
-- Events are written first; a unit may then say what its events say.

CREATE TRIGGER guard_event BEFORE INSERT ON event
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [listed-hop]: this hop is not listed in its lifecycle')
    WHERE NOT EXISTS (
        SELECT 1 FROM edge
        WHERE lifecycle = NEW.lifecycle AND source = coalesce(NEW.source, '')
          AND trigger = NEW.trigger AND target = NEW.target)
      AND NOT (NEW.source = NEW.target AND NEW.lease_to IS NOT NULL)
      AND NOT (NEW.trigger = 'force' AND NEW.reason <> '');
    SELECT RAISE(ABORT, 'interlock guard [listed-lease-hop]: this hop of the lease is not listed')
    WHERE NEW.lease_to IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM edge
        WHERE lifecycle = 'lease' AND source = coalesce(NEW.lease_from, '') AND target = NEW.lease_to);
    SELECT RAISE(ABORT, 'interlock guard [no-gap]: the version before this event is missing')
    WHERE NEW.version < 1 OR (NEW.version > 1 AND NOT EXISTS (
        SELECT 1 FROM event WHERE unit = NEW.unit AND version = NEW.version - 1));
    SELECT RAISE(ABORT, 'interlock guard [chain]: the source of this event is not the target of the one before it')
    WHERE coalesce(NEW.source, '') <> coalesce(
        (SELECT target FROM event WHERE unit = NEW.unit AND version = NEW.version - 1), '');
    SELECT RAISE(ABORT, 'interlock guard [tenant]: this event is not of its unit''s tenant or lifecycle')
    WHERE EXISTS (
        SELECT 1 FROM event
        WHERE unit = NEW.unit AND version = NEW.version - 1
          AND (tenant <> NEW.tenant OR lifecycle <> NEW.lifecycle));
END;

CREATE TRIGGER guard_event_update BEFORE UPDATE ON event
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an event is never changed');
END;

CREATE TRIGGER guard_event_delete BEFORE DELETE ON event
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an event is deleted only if its unit is archived')
    WHERE NOT EXISTS (SELECT 1 FROM archived WHERE unit = OLD.unit AND version >= OLD.version);
END;

CREATE TRIGGER guard_unit_insert BEFORE INSERT ON unit
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [event-first]: the events of this unit do not lead to its state and version')
    WHERE NOT EXISTS (
        SELECT 1 FROM event
        WHERE unit = NEW.id AND version = NEW.version AND target = NEW.state AND hash = NEW.head)
       OR EXISTS (SELECT 1 FROM event WHERE unit = NEW.id AND version > NEW.version);
    SELECT RAISE(ABORT, 'interlock guard [tenant]: a unit has the tenant and the lifecycle of its events')
    WHERE EXISTS (
        SELECT 1 FROM event WHERE unit = NEW.id AND (tenant <> NEW.tenant OR lifecycle <> NEW.lifecycle));
    SELECT RAISE(ABORT, 'interlock guard [tenant]: a child has the tenant of its parent')
    WHERE NEW.parent IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM unit WHERE id = NEW.parent AND tenant = NEW.tenant);
END;

CREATE TRIGGER guard_unit_update BEFORE UPDATE ON unit
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the id, tenant, lifecycle and parent of a unit never change')
    WHERE NEW.id <> OLD.id OR NEW.tenant <> OLD.tenant OR NEW.lifecycle <> OLD.lifecycle
       OR NEW.parent IS NOT OLD.parent;
    SELECT RAISE(ABORT, 'interlock guard [event-first]: a state, an outcome or a version changes only with its events')
    WHERE NEW.version = OLD.version
      AND (NEW.state <> OLD.state OR NEW.outcome IS NOT OLD.outcome OR NEW.head <> OLD.head);
    SELECT RAISE(ABORT, 'interlock guard [event-first]: the events of this unit do not lead to its state and version')
    WHERE NEW.version <> OLD.version AND (
        NEW.version < OLD.version
        OR NOT EXISTS (
            SELECT 1 FROM event
            WHERE unit = NEW.id AND version = NEW.version AND target = NEW.state AND hash = NEW.head)
        OR EXISTS (SELECT 1 FROM event WHERE unit = NEW.id AND version > NEW.version));
    SELECT RAISE(ABORT, 'interlock guard [outcome]: the outcome of a settled unit changes only by opening an attempt')
    WHERE OLD.outcome IS NOT NULL AND NEW.outcome IS NOT OLD.outcome AND NOT EXISTS (
        SELECT 1 FROM event JOIN edge
          ON edge.lifecycle = event.lifecycle AND edge.source = event.source
         AND edge.trigger = event.trigger AND edge.target = event.target
        WHERE event.unit = NEW.id AND event.version > OLD.version AND edge.opens_attempt = 1)
      AND NOT EXISTS (
        SELECT 1 FROM event WHERE unit = NEW.id AND version > OLD.version AND trigger = 'force');
    SELECT RAISE(ABORT, 'interlock guard [fence]: fences and attempts only grow')
    WHERE NEW.fence < OLD.fence OR NEW.attempt < OLD.attempt;
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

CREATE TRIGGER guard_body_update BEFORE UPDATE ON body
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the unit, tenant, task and key of a body never change')
    WHERE NEW.unit <> OLD.unit OR NEW.tenant <> OLD.tenant OR NEW.task <> OLD.task
       OR (NEW.key IS NOT OLD.key AND NOT (NEW.key IS NULL AND NEW.replaced_by IS NOT NULL));
END;

CREATE TRIGGER guard_need BEFORE INSERT ON need
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [tenant]: a unit and what it needs are of one tenant')
    WHERE (SELECT count(*) FROM unit WHERE id IN (NEW.unit, NEW.needs) AND tenant = NEW.tenant) <> 2;
END;

CREATE TRIGGER guard_need_update BEFORE UPDATE ON need
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: a need never changes');
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
