-- The guard: an illegal move is impossible, whoever writes. Every message names the rule that was broken.
-- Events are written first; a unit may then say what its events say. Statement-level, so that a batch pays once.

CREATE FUNCTION guard_refuses(rule text, why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'interlock guard [%]: %', rule, why USING ERRCODE = 'integrity_constraint_violation';
END $$;

-- Every look-up of a guard goes by an index, row by row: a plan that was made for an empty table must not be kept for a
-- large one.
CREATE FUNCTION guard_event() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    gap boolean;
    broken boolean;
    foreign_event boolean;
BEGIN
    IF EXISTS (
        SELECT 1 FROM fresh LEFT JOIN edge
          ON edge.lifecycle = fresh.lifecycle AND edge.source = coalesce(fresh.source, '')
         AND edge.trigger = fresh.trigger AND edge.target = fresh.target
        WHERE edge.lifecycle IS NULL
          AND NOT (fresh.source IS NOT DISTINCT FROM fresh.target AND fresh.lease_to IS NOT NULL)
          AND NOT (fresh.trigger = 'force' AND fresh.reason <> ''))
    THEN PERFORM guard_refuses('listed-hop', 'this hop is not listed in its lifecycle'); END IF;

    IF EXISTS (
        SELECT 1 FROM fresh
        WHERE lease_to IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM edge
            WHERE lifecycle = 'lease' AND source = coalesce(fresh.lease_from, '') AND target = fresh.lease_to))
    THEN PERFORM guard_refuses('listed-lease-hop', 'this hop of the lease is not listed'); END IF;

    SELECT bool_or(fresh.version < 1 OR (fresh.version > 1 AND before.unit IS NULL)),
           bool_or(fresh.source IS DISTINCT FROM before.target),
           bool_or(before.tenant <> fresh.tenant OR before.lifecycle <> fresh.lifecycle)
      INTO gap, broken, foreign_event
      FROM fresh LEFT JOIN event AS before ON before.unit = fresh.unit AND before.version = fresh.version - 1;
    IF gap THEN PERFORM guard_refuses('no-gap', 'the version before this event is missing'); END IF;
    IF broken THEN
        PERFORM guard_refuses('chain', 'the source of this event is not the target of the one before it');
    END IF;
    IF foreign_event THEN
        PERFORM guard_refuses('tenant', 'this event is not of its unit''s tenant or lifecycle');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_event AFTER INSERT ON event REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_event();

CREATE FUNCTION guard_event_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'DELETE' THEN
        PERFORM guard_refuses('append-only', 'an event is never changed');
    ELSIF EXISTS (
        SELECT 1 FROM gone
        WHERE NOT EXISTS (SELECT 1 FROM archived WHERE archived.unit = gone.unit AND archived.version >= gone.version))
    THEN PERFORM guard_refuses('append-only', 'an event is deleted only if its unit is archived'); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_event_update BEFORE UPDATE OR TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION guard_event_change();
CREATE TRIGGER guard_event_delete AFTER DELETE ON event REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_event_change();

CREATE FUNCTION guard_unit_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM fresh LEFT JOIN event
          ON event.unit = fresh.id AND event.version = fresh.version
         AND event.target = fresh.state AND event.hash = fresh.head
        WHERE event.unit IS NULL)
       OR EXISTS (SELECT 1 FROM fresh JOIN event ON event.unit = fresh.id AND event.version > fresh.version)
    THEN PERFORM guard_refuses('event-first', 'the events of this unit do not lead to its state and version'); END IF;

    IF EXISTS (
        SELECT 1 FROM fresh JOIN event ON event.unit = fresh.id
        WHERE event.tenant <> fresh.tenant OR event.lifecycle <> fresh.lifecycle)
    THEN PERFORM guard_refuses('tenant', 'a unit has the tenant and the lifecycle of its events'); END IF;

    IF EXISTS (
        SELECT 1 FROM fresh LEFT JOIN unit AS above ON above.id = fresh.parent AND above.tenant = fresh.tenant
        WHERE fresh.parent IS NOT NULL AND above.id IS NULL)
    THEN PERFORM guard_refuses('tenant', 'a child has the tenant of its parent'); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_unit_insert AFTER INSERT ON unit REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_unit_insert();

-- What a row says of itself before and after is compared without a query, and nothing is called unless it is wrong.
CREATE FUNCTION guard_says_no() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM guard_refuses(TG_ARGV[0], TG_ARGV[1]);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_unit_identity BEFORE UPDATE ON unit FOR EACH ROW
    WHEN (NEW.id <> OLD.id OR NEW.tenant <> OLD.tenant OR NEW.lifecycle <> OLD.lifecycle
          OR NEW.parent IS DISTINCT FROM OLD.parent)
    EXECUTE FUNCTION guard_says_no('identity', 'the id, tenant, lifecycle and parent of a unit never change');
CREATE TRIGGER guard_unit_quiet BEFORE UPDATE ON unit FOR EACH ROW
    WHEN (NEW.version = OLD.version
          AND (NEW.state <> OLD.state OR NEW.outcome IS DISTINCT FROM OLD.outcome OR NEW.head <> OLD.head))
    EXECUTE FUNCTION guard_says_no('event-first', 'a state, an outcome or a version changes only with its events');
CREATE TRIGGER guard_unit_back BEFORE UPDATE ON unit FOR EACH ROW WHEN (NEW.version < OLD.version)
    EXECUTE FUNCTION guard_says_no('event-first', 'the events of this unit do not lead to its state and version');
CREATE TRIGGER guard_unit_fence BEFORE UPDATE ON unit FOR EACH ROW
    WHEN (NEW.fence < OLD.fence OR NEW.attempt < OLD.attempt)
    EXECUTE FUNCTION guard_says_no('fence', 'fences and attempts only grow');

CREATE FUNCTION guard_unit_update() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM new_rows AS n LEFT JOIN event
          ON event.unit = n.id AND event.version = n.version AND event.target = n.state AND event.hash = n.head
        WHERE event.unit IS NULL)
       OR EXISTS (SELECT 1 FROM new_rows AS n JOIN event ON event.unit = n.id AND event.version = n.version + 1)
    THEN PERFORM guard_refuses('event-first', 'the events of this unit do not lead to its state and version'); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_unit_update AFTER UPDATE ON unit REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION guard_unit_update();

CREATE FUNCTION guard_unit_outcome() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM event LEFT JOIN edge
          ON edge.lifecycle = event.lifecycle AND edge.source = event.source
         AND edge.trigger = event.trigger AND edge.target = event.target
        WHERE event.unit = NEW.id AND event.version > OLD.version
          AND (edge.opens_attempt = 1 OR event.trigger = 'force'))
    THEN
        PERFORM guard_refuses('outcome', 'the outcome of a settled unit changes only by opening an attempt');
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER guard_unit_settled BEFORE UPDATE ON unit FOR EACH ROW
    WHEN (OLD.outcome IS NOT NULL AND NEW.outcome IS DISTINCT FROM OLD.outcome)
    EXECUTE FUNCTION guard_unit_outcome();

CREATE FUNCTION guard_unit_delete() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' OR EXISTS (
        SELECT 1 FROM gone
        WHERE NOT EXISTS (SELECT 1 FROM archived WHERE archived.unit = gone.id AND archived.version = gone.version))
    THEN PERFORM guard_refuses('append-only', 'a unit is deleted only if it is archived'); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_unit_delete AFTER DELETE ON unit REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_unit_delete();
CREATE TRIGGER guard_unit_truncate BEFORE TRUNCATE ON unit
    FOR EACH STATEMENT EXECUTE FUNCTION guard_unit_delete();

CREATE FUNCTION guard_tenant() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM fresh LEFT JOIN unit ON unit.id = fresh.unit AND unit.tenant = fresh.tenant
        WHERE unit.id IS NULL)
    THEN PERFORM guard_refuses('tenant', TG_TABLE_NAME || ' has the tenant of its unit'); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_body AFTER INSERT ON body REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_tenant();
CREATE TRIGGER guard_artifact AFTER INSERT ON artifact REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_tenant();

CREATE FUNCTION guard_need() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM fresh
        WHERE (SELECT count(*) FROM unit WHERE id IN (fresh.unit, fresh.needs) AND tenant = fresh.tenant) <> 2)
    THEN PERFORM guard_refuses('tenant', 'a unit and what it needs are of one tenant'); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_need AFTER INSERT ON need REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_need();

CREATE TRIGGER guard_body_update BEFORE UPDATE ON body FOR EACH ROW
    WHEN (NEW.unit <> OLD.unit OR NEW.tenant <> OLD.tenant OR NEW.task <> OLD.task
          OR (NEW.key IS DISTINCT FROM OLD.key AND NOT (NEW.key IS NULL AND NEW.replaced_by IS NOT NULL)))
    EXECUTE FUNCTION guard_says_no('identity', 'the unit, tenant, task and key of a body never change');

CREATE FUNCTION guard_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM guard_refuses(CASE TG_TABLE_NAME WHEN 'need' THEN 'identity' ELSE 'append-only' END,
                          'a row of ' || TG_TABLE_NAME || ' is never changed');
    RETURN NULL;
END $$;
CREATE TRIGGER guard_need_update BEFORE UPDATE ON need FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();
CREATE TRIGGER guard_artifact_update BEFORE UPDATE ON artifact FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();

-- Tenants. A transaction declares the tenants of its commands; it sees and writes no others' rows. The sub-select in the
-- policies is there so that the declaration is read once a statement, not once a row.
CREATE FUNCTION declared_tenants() RETURNS integer[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('app.tenants', true), ''), '{}')::integer[]
$$;

-- Roles, and what each may do, are no migration's business: interlock/store/rights.py puts them right after every upgrade.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['lane', 'unit', 'body', 'event', 'note', 'need', 'worker', 'slot', 'answer',
                                'artifact', 'log', 'archived']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY declared ON %I USING (tenant = ANY ((SELECT declared_tenants())::integer[])) '
                       'WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]))', name);
    END LOOP;
END $$;

-- Readers of events go by position; SQLite's is the key of the table.
CREATE INDEX event_position ON event (xid, pos);

-- Hot rows are updated often: room on the page keeps the update on it, and out of the indexes.
ALTER TABLE unit SET (fillfactor = 70);
