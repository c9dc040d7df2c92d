-- The same guard with fewer looks. A trigger that comes after the row need not copy it before, what is undone is undone
-- either way, and one look at the event before tells of a gap, of the chain and of the tenant.
-- What deletes, or what REPLACE may delete, is guarded as it was; but where recursive triggers are off, which a
-- connection chooses for itself, REPLACE deletes an event unseen. So what is there already is not written again.

DROP TRIGGER guard_event;
CREATE TRIGGER guard_event AFTER INSERT ON event
BEGIN
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM unit WHERE id = NEW.unit AND version >= NEW.version)
        THEN RAISE(ABORT, 'interlock guard [append-only]: an event is never changed')
        WHEN NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = NEW.lifecycle AND source = coalesce(NEW.source, '')
              AND trigger = NEW.trigger AND target = NEW.target)
          AND NOT (NEW.source = NEW.target AND NEW.lease_to IS NOT NULL)
          AND NOT (NEW.trigger = 'force' AND NEW.reason <> '')
        THEN RAISE(ABORT, 'interlock guard [listed-hop]: this hop is not listed in its lifecycle')
        WHEN NEW.lease_to IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = 'lease' AND source = coalesce(NEW.lease_from, '') AND target = NEW.lease_to)
        THEN RAISE(ABORT, 'interlock guard [listed-lease-hop]: this hop of the lease is not listed')
        WHEN NEW.version <> 1 AND before.unit IS NULL
        THEN RAISE(ABORT, 'interlock guard [no-gap]: the version before this event is missing')
        WHEN coalesce(NEW.source, '') <> coalesce(before.target, '')
        THEN RAISE(ABORT, 'interlock guard [chain]: the source of this event is not the target of the one before it')
        WHEN before.tenant <> NEW.tenant OR before.lifecycle <> NEW.lifecycle
        THEN RAISE(ABORT, 'interlock guard [tenant]: this event is not of its unit''s tenant or lifecycle')
    END
    FROM (SELECT 1) LEFT JOIN event AS before ON before.unit = NEW.unit AND before.version = NEW.version - 1;
END;

CREATE TRIGGER guard_event_replace BEFORE INSERT ON event
WHEN EXISTS (SELECT 1 FROM event WHERE pos = NEW.pos)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: an event is never changed');
END;

DROP TRIGGER guard_unit_insert;
CREATE TRIGGER guard_unit_insert AFTER INSERT ON unit
BEGIN
    SELECT CASE
        WHEN last.version IS NOT NEW.version OR last.target <> NEW.state OR last.hash <> NEW.head
        THEN RAISE(ABORT, 'interlock guard [event-first]: the events of this unit do not lead to its state and version')
        -- Of the others the same is known: each was compared with the one before it.
        WHEN last.tenant <> NEW.tenant OR last.lifecycle <> NEW.lifecycle
        THEN RAISE(ABORT, 'interlock guard [tenant]: a unit has the tenant and the lifecycle of its events')
        WHEN NEW.parent IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM unit WHERE id = NEW.parent AND tenant = NEW.tenant)
        THEN RAISE(ABORT, 'interlock guard [tenant]: a child has the tenant of its parent')
    END
    FROM (SELECT max(version) AS version FROM event WHERE unit = NEW.id) AS newest
    LEFT JOIN event AS last ON last.unit = NEW.id AND last.version = newest.version;
END;

DROP TRIGGER guard_unit_update;
CREATE TRIGGER guard_unit_update
AFTER UPDATE OF id, tenant, lifecycle, parent, state, outcome, version, head, fence, attempt ON unit
BEGIN
    SELECT CASE
        WHEN NEW.id <> OLD.id OR NEW.tenant <> OLD.tenant OR NEW.lifecycle <> OLD.lifecycle
          OR NEW.parent IS NOT OLD.parent
        THEN RAISE(ABORT, 'interlock guard [identity]: the id, tenant, lifecycle and parent of a unit never change')
        WHEN NEW.version = OLD.version
          AND (NEW.state <> OLD.state OR NEW.outcome IS NOT OLD.outcome OR NEW.head <> OLD.head)
        THEN RAISE(ABORT, 'interlock guard [event-first]: a state, an outcome or a version changes only with its events')
        WHEN NEW.version < OLD.version OR (NEW.version > OLD.version AND (NEW.version, NEW.state, NEW.head) IS NOT (
            SELECT version, target, hash FROM event WHERE unit = NEW.id ORDER BY version DESC LIMIT 1))
        THEN RAISE(ABORT, 'interlock guard [event-first]: the events of this unit do not lead to its state and version')
        WHEN OLD.outcome IS NOT NULL AND NEW.outcome IS NOT OLD.outcome
          AND NOT EXISTS (
            SELECT 1 FROM event JOIN edge
              ON edge.lifecycle = event.lifecycle AND edge.source = event.source
             AND edge.trigger = event.trigger AND edge.target = event.target
            WHERE event.unit = NEW.id AND event.version > OLD.version AND edge.opens_attempt = 1)
          AND NOT EXISTS (SELECT 1 FROM event WHERE unit = NEW.id AND version > OLD.version AND trigger = 'force')
        THEN RAISE(ABORT, 'interlock guard [outcome]: the outcome of a settled unit changes only by opening an attempt')
        WHEN NEW.fence < OLD.fence OR NEW.attempt < OLD.attempt
        THEN RAISE(ABORT, 'interlock guard [fence]: fences and attempts only grow')
    END;
END;

DROP TRIGGER guard_body_update;
CREATE TRIGGER guard_body_update AFTER UPDATE OF unit, tenant, task, key ON body
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the unit, tenant, task and key of a body never change')
    WHERE NEW.unit <> OLD.unit OR NEW.tenant <> OLD.tenant OR NEW.task <> OLD.task
       OR (NEW.key IS NOT OLD.key AND NOT (NEW.key IS NULL AND NEW.replaced_by IS NOT NULL));
END;
