-- What may not be changed or deleted may not be replaced either. REPLACE deletes the row that is in its way, by its key
-- or by its rowid, and where recursive triggers are off, which a connection chooses for itself, no guard of a delete sees it.

CREATE TRIGGER guard_unit_replace BEFORE INSERT ON unit
WHEN EXISTS (SELECT 1 FROM unit WHERE id = NEW.id) OR EXISTS (SELECT 1 FROM unit WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [append-only]: a unit is unique, and is never written again');
END;

CREATE TRIGGER guard_unit_rowid AFTER UPDATE ON unit WHEN NEW.rowid <> OLD.rowid
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: the rowid of a unit never changes');
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

CREATE TRIGGER guard_need_replace BEFORE INSERT ON need
WHEN EXISTS (SELECT 1 FROM need WHERE unit = NEW.unit AND needs = NEW.needs)
  OR EXISTS (SELECT 1 FROM need WHERE rowid = NEW.rowid)
BEGIN
    SELECT RAISE(ABORT, 'interlock guard [identity]: a need is unique, and is never written again');
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

-- A forced event needs its row in forced_move.
DROP TRIGGER guard_event;
CREATE TRIGGER guard_event AFTER INSERT ON event
BEGIN
    SELECT CASE
        WHEN EXISTS (SELECT 1 FROM unit WHERE id = NEW.unit AND version >= NEW.version)
        THEN RAISE(ABORT, 'interlock guard [append-only]: an event is never changed')
        WHEN NEW.trigger = 'force' AND NOT EXISTS (
            SELECT 1 FROM forced_move
            WHERE unit = NEW.unit AND version = NEW.version AND tenant = NEW.tenant AND target = NEW.target
              AND actor = NEW.actor AND reason = NEW.reason)
        THEN RAISE(ABORT, 'interlock guard [forced]: no row of forced_move, which operators write, allows this')
        WHEN NEW.trigger <> 'force'
          AND NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = NEW.lifecycle AND source = coalesce(NEW.source, '')
              AND trigger = NEW.trigger AND target = NEW.target)
          AND NOT (NEW.source = NEW.target AND NEW.lease_to IS NOT NULL)
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
    SELECT 1 FROM unit JOIN edge ON edge.lifecycle = unit.lifecycle AND edge.target = unit.state
    WHERE unit.id = NEW.unit AND unit.tenant = NEW.tenant AND unit.version = NEW.version AND unit.head = NEW.head
      AND edge.settles = 1)
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
