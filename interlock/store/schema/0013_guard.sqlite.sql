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
