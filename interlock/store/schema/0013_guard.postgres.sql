-- The guard of what goes past the table: forced moves, and what leaves the database.

-- A forced event needs its row in forced_move, which programs may not write.
CREATE OR REPLACE FUNCTION guard_event() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    unlisted boolean;
    unlisted_lease boolean;
    any_forced boolean;
    gap boolean;
    broken boolean;
    foreign_event boolean;
BEGIN
    SELECT bool_or(NOT listed AND NOT (in_place AND lease_to IS NOT NULL) AND NOT forced),
           bool_or(lease_to IS NOT NULL AND NOT EXISTS (
               SELECT 1 FROM edge
               WHERE lifecycle = 'lease' AND source = coalesce(hop.lease_from, '') AND target = hop.lease_to)),
           bool_or(forced)
      INTO unlisted, unlisted_lease, any_forced
      FROM (
          SELECT lease_from, lease_to, source IS NOT DISTINCT FROM target AS in_place, trigger = 'force' AS forced,
                 EXISTS (
                     SELECT 1 FROM edge
                     WHERE edge.lifecycle = given.lifecycle AND edge.source = coalesce(given.source, '')
                       AND edge.trigger = given.trigger AND edge.target = given.target) AS listed
            FROM (SELECT DISTINCT lifecycle, trigger, source, target, lease_from, lease_to FROM fresh) AS given) AS hop;
    IF unlisted THEN PERFORM guard_refuses('listed-hop', 'this hop is not listed in its lifecycle'); END IF;
    IF unlisted_lease THEN
        PERFORM guard_refuses('listed-lease-hop', 'this hop of the lease is not listed');
    END IF;
    IF any_forced AND EXISTS (
        SELECT 1 FROM fresh
        WHERE trigger = 'force' AND NOT EXISTS (
            SELECT 1 FROM forced_move AS allowed
            WHERE allowed.unit = fresh.unit AND allowed.version = fresh.version AND allowed.tenant = fresh.tenant
              AND allowed.target = fresh.target AND allowed.actor = fresh.actor AND allowed.reason = fresh.reason))
    THEN PERFORM guard_refuses('forced', 'no row of forced_move, which operators write, allows this'); END IF;

    -- A unit's first event has none before it, so none is looked for.
    SELECT bool_or(version < 1), bool_or(source IS NOT NULL) INTO gap, broken FROM fresh WHERE version <= 1;
    IF gap THEN PERFORM guard_refuses('no-gap', 'the version before this event is missing'); END IF;
    IF broken THEN
        PERFORM guard_refuses('chain', 'the source of this event is not the target of the one before it');
    END IF;

    SELECT bool_or(before.unit IS NULL),
           bool_or(fresh.source IS DISTINCT FROM before.target),
           bool_or(before.tenant <> fresh.tenant OR before.lifecycle <> fresh.lifecycle)
      INTO gap, broken, foreign_event
      FROM fresh LEFT JOIN event AS before ON before.unit = fresh.unit AND before.version = fresh.version - 1
     WHERE fresh.version > 1;
    IF gap THEN PERFORM guard_refuses('no-gap', 'the version before this event is missing'); END IF;
    IF broken THEN
        PERFORM guard_refuses('chain', 'the source of this event is not the target of the one before it');
    END IF;
    IF foreign_event THEN
        PERFORM guard_refuses('tenant', 'this event is not of its unit''s tenant or lifecycle');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION guard_forced_move() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM fresh
        WHERE reason = '' OR NOT EXISTS (
            SELECT 1 FROM unit JOIN edge ON edge.lifecycle = unit.lifecycle AND edge.target = fresh.target
            WHERE unit.id = fresh.unit AND unit.tenant = fresh.tenant AND unit.version < fresh.version))
    THEN
        PERFORM guard_refuses('forced', 'a forced move has a reason, a unit, a version to come and a state of its lifecycle');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_forced_move AFTER INSERT ON forced_move REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_forced_move();
CREATE TRIGGER guard_forced_move_update BEFORE UPDATE OR TRUNCATE ON forced_move
    FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();

-- What is archived has ended, and the row says how far its own history went.
CREATE FUNCTION guard_archived() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM fresh
        WHERE NOT EXISTS (
            SELECT 1 FROM unit JOIN edge ON edge.lifecycle = unit.lifecycle AND edge.target = unit.state
            WHERE unit.id = fresh.unit AND unit.tenant = fresh.tenant AND unit.version = fresh.version
              AND unit.head = fresh.head AND edge.settles = 1))
    THEN PERFORM guard_refuses('archived', 'only a unit that has ended is archived, with its own version and head'); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_archived AFTER INSERT ON archived REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_archived();
CREATE TRIGGER guard_archived_change BEFORE UPDATE OR DELETE OR TRUNCATE ON archived
    FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();

-- What a unit was given and what it made leave with it.
CREATE FUNCTION guard_kept() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' OR EXISTS (
        SELECT 1 FROM gone WHERE NOT EXISTS (SELECT 1 FROM archived WHERE archived.unit = gone.unit))
    THEN
        PERFORM guard_refuses('append-only', 'a row of ' || TG_TABLE_NAME || ' is deleted only if its unit is archived');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_body_delete AFTER DELETE ON body REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_kept();
CREATE TRIGGER guard_body_truncate BEFORE TRUNCATE ON body FOR EACH STATEMENT EXECUTE FUNCTION guard_kept();
CREATE TRIGGER guard_artifact_delete AFTER DELETE ON artifact REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_kept();
CREATE TRIGGER guard_artifact_truncate BEFORE TRUNCATE ON artifact FOR EACH STATEMENT EXECUTE FUNCTION guard_kept();
CREATE TRIGGER guard_forced_move_delete AFTER DELETE ON forced_move REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_kept();

-- Tenants see only what was forced of their own, like everything else.
ALTER TABLE forced_move ENABLE ROW LEVEL SECURITY;
ALTER TABLE forced_move FORCE ROW LEVEL SECURITY;
CREATE POLICY declared ON forced_move USING (tenant = ANY ((SELECT declared_tenants())::integer[]))
    WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]));
