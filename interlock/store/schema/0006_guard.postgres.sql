-- The guard again, with less to do: the hops of a batch are few, however many its events are.

CREATE OR REPLACE FUNCTION guard_event() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    unlisted boolean;
    unlisted_lease boolean;
    gap boolean;
    broken boolean;
    foreign_event boolean;
BEGIN
    SELECT bool_or(NOT listed AND NOT (in_place AND lease_to IS NOT NULL) AND NOT forced),
           bool_or(lease_to IS NOT NULL AND NOT EXISTS (
               SELECT 1 FROM edge
               WHERE lifecycle = 'lease' AND source = coalesce(hop.lease_from, '') AND target = hop.lease_to))
      INTO unlisted, unlisted_lease
      FROM (
          SELECT lease_from, lease_to, source IS NOT DISTINCT FROM target AS in_place, forced,
                 EXISTS (
                     SELECT 1 FROM edge
                     WHERE edge.lifecycle = given.lifecycle AND edge.source = coalesce(given.source, '')
                       AND edge.trigger = given.trigger AND edge.target = given.target) AS listed
            FROM (SELECT DISTINCT lifecycle, trigger, source, target, lease_from, lease_to,
                                  trigger = 'force' AND reason <> '' AS forced
                    FROM fresh) AS given) AS hop;
    IF unlisted THEN PERFORM guard_refuses('listed-hop', 'this hop is not listed in its lifecycle'); END IF;
    IF unlisted_lease THEN
        PERFORM guard_refuses('listed-lease-hop', 'this hop of the lease is not listed');
    END IF;

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

-- The events of a unit are of one tenant and one lifecycle, so the last one speaks for all of them.
CREATE OR REPLACE FUNCTION guard_unit_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path FROM CURRENT SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    eventless boolean;
    foreign_event boolean;
BEGIN
    SELECT bool_or(event.unit IS NULL), bool_or(event.tenant <> fresh.tenant OR event.lifecycle <> fresh.lifecycle)
      INTO eventless, foreign_event
      FROM fresh LEFT JOIN event
        ON event.unit = fresh.id AND event.version = fresh.version
       AND event.target = fresh.state AND event.hash = fresh.head;
    IF eventless
       OR EXISTS (SELECT 1 FROM fresh JOIN event ON event.unit = fresh.id AND event.version = fresh.version + 1)
    THEN PERFORM guard_refuses('event-first', 'the events of this unit do not lead to its state and version'); END IF;
    IF foreign_event THEN
        PERFORM guard_refuses('tenant', 'a unit has the tenant and the lifecycle of its events');
    END IF;

    IF EXISTS (
        SELECT 1 FROM (SELECT DISTINCT parent, tenant FROM fresh WHERE parent IS NOT NULL) AS child
        WHERE NOT EXISTS (SELECT 1 FROM unit WHERE id = child.parent AND tenant = child.tenant))
    THEN PERFORM guard_refuses('tenant', 'a child has the tenant of its parent'); END IF;
    RETURN NULL;
END $$;

-- Positions are taken in stretches. Within a transaction they grow, and between transactions xid decides.
ALTER SEQUENCE event_pos_seq CACHE 256;
