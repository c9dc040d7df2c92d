-- The guard: an illegal move is impossible, whoever writes. Every message names the rule that was broken.
-- Inserting an act is the only way to make a unit or to move one. Functions of the guard run as their owner, with a
-- search path that ends in pg_temp (set by the migration), and declare the tenants of the rows that they judge. What was
-- declared before is put back by hand: only a superuser may attach a setting that is ours to a function.

CREATE FUNCTION guard_refuses(rule text, why text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'interlock guard [%]: %', rule, why USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE FUNCTION guard_says_no() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM guard_refuses(TG_ARGV[0], TG_ARGV[1]);
    RETURN NULL;
END $$;

-- Whether the statement that fired a trigger is one of this function's, which a client's own statement has run.
-- A client's own function, be it a trigger of a temporary table, would be the last line: who was called first.
CREATE FUNCTION is_called_by(stack text, caller text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    -- Its end, without the number of the line: a pattern of words is cheaper than a regular expression.
    RETURN rtrim(rtrim(right(stack, 120), ' atSQLsemn'), '0123456789')
        LIKE E'%\nPL/pgSQL function ' || caller || ' line ';
END $$;
CREATE FUNCTION guard_caller() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stack text;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    IF NOT is_called_by(stack, TG_ARGV[2]) AND (TG_NARGS = 3 OR NOT is_called_by(stack, TG_ARGV[3])) THEN PERFORM guard_refuses(TG_ARGV[0], TG_ARGV[1]); END IF;
    RETURN NULL;
END $$;

-- Tenants. A transaction declares the tenants of its commands; it sees and writes no others' rows.
CREATE FUNCTION declared_tenants() RETURNS integer[] LANGUAGE sql STABLE AS $$
    SELECT coalesce(nullif(current_setting('app.tenants', true), ''), '{}')::integer[]
$$;

-- Edges and paths.

CREATE TRIGGER guard_edge BEFORE UPDATE OF lifecycle, source, trigger, target, name, severity, opens_attempt, category ON edge
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('append-only', 'an edge is never changed, only retired');
CREATE TRIGGER guard_edge_delete BEFORE DELETE OR TRUNCATE ON edge
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('append-only', 'an edge is never deleted, only retired');

CREATE FUNCTION guard_path() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    told jsonb := NEW.told::jsonb;
    hop record;
    before text;
    lease text;
    listed text;
    last_category text;
BEGIN
    IF NEW.digest <> encode(sha256(convert_to(NEW.told, 'UTF8')), 'hex')
       OR NEW.id <> (('x' || left(NEW.digest, 16))::bit(64) >> 1)::bigint
    THEN PERFORM guard_refuses('path', 'the id and the digest of a path are those of what it tells'); END IF;
    NEW.lifecycle := told ->> 0;
    NEW.category := told ->> 1;
    NEW.outcome := (told ->> 2)::integer;
    NEW.started := (told ->> 3)::integer;
    NEW.forced := (told ->> 4)::integer;
    NEW.hops := jsonb_array_length(told -> 5);
    NEW.payload_hop := NEW.hops;
    NEW.opens := 0;
    NEW.grants := 0;
    NEW.lease_from := NULL;
    NEW.lease_to := NULL;
    FOR hop IN
        SELECT place, value ->> 0 AS trigger, value ->> 1 AS source, value ->> 2 AS target, value ->> 3 AS name,
               value ->> 4 AS severity, (value ->> 5)::integer AS attempt, (value ->> 6)::integer AS fence,
               value ->> 7 AS lease_from, value ->> 8 AS lease_to
        FROM jsonb_array_elements(told -> 5) WITH ORDINALITY AS hops (value, place) ORDER BY place
    LOOP
        IF hop.place = 1 THEN NEW.source := hop.source;
        ELSIF hop.source <> before THEN PERFORM guard_refuses('path', 'a hop begins where the last one ended');
        END IF;
        before := hop.target;
        listed := NULL;
        IF hop.trigger <> 'self' THEN NEW.payload_hop := hop.place; END IF;
        IF hop.trigger = 'self' THEN
            IF hop.source <> hop.target OR hop.attempt <> 0 OR hop.lease_to IS NULL
            THEN PERFORM guard_refuses('path', 'a hop in place is one of the lease alone'); END IF;
        ELSIF NEW.forced = 1 THEN
            SELECT category INTO listed FROM edge WHERE lifecycle = NEW.lifecycle AND target = hop.target LIMIT 1;
            IF NEW.hops <> 1 OR hop.trigger <> 'force' OR hop.attempt <> 0 OR listed IS NULL
            THEN PERFORM guard_refuses('path', 'a forced path leads to a state of the lifecycle'); END IF;
        ELSE
            SELECT category INTO listed FROM edge
            WHERE lifecycle = NEW.lifecycle AND source = hop.source AND trigger = hop.trigger AND target = hop.target
              AND name = hop.name AND severity = hop.severity AND opens_attempt = hop.attempt AND retired = 0;
            IF listed IS NULL
            THEN PERFORM guard_refuses('listed-hop', 'this hop is not listed in its lifecycle'); END IF;
        END IF;
        last_category := coalesce(listed, last_category);
        IF hop.fence <> (hop.lease_from IS NULL AND hop.lease_to IS NOT NULL)::integer
        THEN PERFORM guard_refuses('path', 'a fence counts grants'); END IF;
        IF hop.lease_to IS NOT NULL THEN
            IF NOT EXISTS (
                SELECT 1 FROM edge
                WHERE lifecycle = 'lease' AND source = coalesce(hop.lease_from, '') AND target = hop.lease_to
                  AND retired = 0)
            THEN PERFORM guard_refuses('listed-lease-hop', 'this hop of the lease is not listed'); END IF;
            IF lease IS NULL THEN NEW.lease_from := hop.lease_from;
            ELSIF hop.lease_from IS DISTINCT FROM lease
            THEN PERFORM guard_refuses('path', 'a hop of the lease begins where the last one ended'); END IF;
            lease := hop.lease_to;
        END IF;
        NEW.opens := NEW.opens + hop.attempt;
        NEW.grants := NEW.grants + hop.fence;
    END LOOP;
    NEW.target := before;
    NEW.lease_to := lease;
    NEW.lease_ends := coalesce((
        SELECT min(CASE WHEN category IN ('held', 'active') THEN 0 WHEN category = 'success' THEN 2 ELSE 1 END) FROM edge
        WHERE lifecycle = 'lease' AND target = lease), 0);
    IF NEW.hops = 0 OR NEW.grants > 1 OR NEW.started NOT BETWEEN 0 AND 3 OR NEW.category IS DISTINCT FROM last_category
       OR NEW.outcome <> (CASE WHEN last_category IS NULL OR last_category = 'closed' THEN 2
                               WHEN last_category IN ('success', 'failure', 'cancelled', 'dead') THEN 1 ELSE 0 END)
    THEN PERFORM guard_refuses('path', 'a path says what becomes of its unit'); END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER guard_path BEFORE INSERT ON transition_path FOR EACH ROW EXECUTE FUNCTION guard_path();

-- The hops that a path tells, as rows.
CREATE FUNCTION hops_told(path bigint, told text) RETURNS SETOF path_hop LANGUAGE sql IMMUTABLE AS $$
    SELECT path, place::integer, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4,
           (sum((value ->> 5)::integer) OVER (ORDER BY place))::integer,
           (sum((value ->> 6)::integer) OVER (ORDER BY place))::integer, value ->> 7, value ->> 8
    FROM jsonb_array_elements(told::jsonb -> 5) WITH ORDINALITY AS hops (value, place)
$$;
CREATE FUNCTION guard_path_hops() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO path_hop SELECT * FROM hops_told(NEW.id, NEW.told);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_path_hops AFTER INSERT ON transition_path FOR EACH ROW EXECUTE FUNCTION guard_path_hops();
CREATE FUNCTION guard_path_hop() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF EXISTS (
        SELECT * FROM fresh
        EXCEPT
        SELECT hop.* FROM transition_path AS p CROSS JOIN LATERAL hops_told(p.id, p.told) AS hop
         WHERE p.id IN (SELECT path FROM fresh))
    THEN PERFORM guard_refuses('append-only', 'the hops of a path are those that it tells'); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_path_hop AFTER INSERT ON path_hop REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_path_hop();
-- A forced path is listed when somebody takes it: there are too many that nobody ever takes.
CREATE FUNCTION list_forced_path(id bigint, told text, digest text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF told::jsonb ->> 4 <> '1' THEN PERFORM guard_refuses('path', 'only a forced path is listed so'); END IF;
    INSERT INTO transition_path (id, told, digest) VALUES (id, told, digest) ON CONFLICT DO NOTHING;
END $$;
CREATE TRIGGER guard_path_update BEFORE UPDATE OF id, told, digest, lifecycle, source, target, category, outcome, started,
    hops, payload_hop, opens, grants, lease_from, lease_to, lease_ends, forced ON transition_path
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('append-only', 'a path is never changed, only retired');
CREATE TRIGGER guard_path_delete BEFORE DELETE OR TRUNCATE ON transition_path
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('append-only', 'a path is never deleted, only retired');
CREATE TRIGGER guard_path_hop_change BEFORE UPDATE OR DELETE OR TRUNCATE ON path_hop
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('append-only', 'the hops of a path are written with it');

-- With an edge the paths that take it are retired, and none comes back without its edges.
CREATE FUNCTION lacks_edge(one bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM transition_path AS p JOIN path_hop AS hop ON hop.path = p.id
         WHERE p.id = one AND (
            (p.forced = 0 AND hop.trigger <> 'self' AND NOT EXISTS (
                SELECT 1 FROM edge
                 WHERE lifecycle = p.lifecycle AND source = hop.source AND trigger = hop.trigger AND target = hop.target
                   AND name = hop.name AND severity = hop.severity AND retired = 0))
            OR (hop.lease_to IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM edge
                 WHERE lifecycle = 'lease' AND source = coalesce(hop.lease_from, '') AND target = hop.lease_to
                   AND retired = 0))))
$$;
CREATE FUNCTION guard_edge_retired() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    UPDATE transition_path SET retired = 1 WHERE retired = 0 AND lacks_edge(id);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_edge_retired AFTER UPDATE OF retired ON edge
    FOR EACH STATEMENT EXECUTE FUNCTION guard_edge_retired();
CREATE FUNCTION guard_path_back() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF lacks_edge(NEW.id) THEN PERFORM guard_refuses('listed-hop', 'an edge of this path is retired'); END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER guard_path_back BEFORE UPDATE OF retired ON transition_path FOR EACH ROW
    WHEN (NEW.retired = 0 AND OLD.retired <> 0) EXECUTE FUNCTION guard_path_back();

-- The one function that makes and moves units: each listed path is applied to exactly the units of its act, or the whole
-- statement is refused.
CREATE FUNCTION act_moves() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
    here bigint;
    clock bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 60000000;
    tenants integer[];
    unlisted boolean;
    foreign_id boolean;
    misshapen boolean;
    future boolean;
    listed bigint;
    granting boolean;
    taking boolean;
    finishing boolean;
    forced boolean;
    moved bigint;
    taken bigint[];
    hashes text[];
    ended bigint[];
    counts integer[];
BEGIN
    IF TG_RELID <> 'act'::regclass THEN PERFORM guard_refuses('event-first', 'only an act moves'); END IF;
    here := (SELECT value::bigint FROM about WHERE name = 'generation') << 36 | pg_current_xact_id()::text::bigint;
    SELECT array_agg(DISTINCT a.tenant),
           bool_or(p.id IS NULL OR p.retired <> 0 OR p.digest <> a.path_digest),
           bool_or(a.id >> 18 <> here),
           -- Lists are plain: of one dimension, from 1 on.
           bool_or(cardinality(a.units) NOT BETWEEN 1 AND 1000
                   OR array_dims(a.units) <> '[1:' || cardinality(a.units) || ']'
                   OR array_dims(a.before) IS DISTINCT FROM array_dims(a.units)
                   OR (a.leases IS NOT NULL AND array_dims(a.leases) IS DISTINCT FROM array_dims(a.units))
                   OR (a.secrets IS NOT NULL AND array_dims(a.secrets) IS DISTINCT FROM array_dims(a.units))
                   OR (a.details IS NOT NULL AND array_dims(a.details) IS DISTINCT FROM array_dims(a.units))
                   OR json_typeof(a.payload::json) <> 'object' OR a.available NOT IN (0, 1)
                   OR (p.grants > 0 AND p.lease_ends = 0 AND (
                       a.secrets IS NULL OR array_position(a.secrets, NULL) IS NOT NULL OR a.worker IS NULL OR a.ttl IS NULL OR a.beat IS NULL OR a.until IS NULL
                       OR a.until > a.at + a.ttl))
                   OR (p.source = '' AND ((a.version, a.attempt, a.fence) <> (0, 1, 0) OR a.leases IS NOT NULL
                                          OR (0 = ALL (a.before)) IS DISTINCT FROM true))
                   OR (p.forced = 1 AND a.reason = '')),
           bool_or(a.at > clock),
           sum(cardinality(a.units)) FILTER (WHERE p.source <> ''),
           bool_or(p.grants > 0), bool_or(p.lease_ends = 1), bool_or(p.lease_ends = 2), bool_or(p.forced > 0)
      INTO tenants, unlisted, foreign_id, misshapen, future, listed, granting, taking, finishing, forced
      FROM fresh AS a LEFT JOIN transition_path AS p ON p.id = a.path;
    IF unlisted THEN PERFORM guard_refuses('listed-hop', 'this path is not listed in its lifecycle'); END IF;
    IF foreign_id THEN PERFORM guard_refuses('position', 'the id of an act begins with its transaction'); END IF;
    IF misshapen THEN PERFORM guard_refuses('act', 'an act names 1 to 1,000 units, and where each of them comes from'); END IF;
    IF future THEN PERFORM guard_refuses('time', 'an act is not later than the clock of the store'); END IF;
    IF listed IS NULL THEN RETURN NULL; END IF;  -- births: their units come next, and are judged then

    PERFORM set_config('app.tenants', tenants::text, true);  -- whoever wrote the acts may write for these
    IF forced AND EXISTS (
        SELECT 1 FROM fresh AS a JOIN transition_path AS p ON p.id = a.path CROSS JOIN LATERAL unnest(a.units) AS x (unit)
         WHERE p.forced > 0 AND NOT EXISTS (
             SELECT 1 FROM forced_move AS allowed
              WHERE allowed.unit = x.unit AND allowed.version = a.version + p.hops AND allowed.tenant = a.tenant
                AND allowed.target = p.target AND allowed.actor = a.actor AND allowed.reason = a.reason))
    THEN PERFORM guard_refuses('forced', 'no row of forced_move, which operators write, allows this'); END IF;
    IF taking THEN  -- the row of a lease that is taken keeps the hash of its secret
        SELECT array_agg(unit.id), array_agg(unit.lease_hash) INTO taken, hashes
          FROM fresh AS a JOIN transition_path AS p ON p.id = a.path CROSS JOIN LATERAL unnest(a.units) AS x (unit)
          JOIN unit ON unit.id = x.unit
         WHERE p.lease_ends = 1 AND unit.lease_id IS NOT NULL;
    END IF;
    UPDATE unit AS u
       SET state = m.target,
           category = coalesce(m.category, u.category),
           outcome = CASE m.outcome WHEN 0 THEN NULL WHEN 1 THEN m.category ELSE u.outcome END,
           version = u.version + m.hops,
           act = m.act,
           changed_at = m.at,
           started_at = CASE m.started WHEN 0 THEN u.started_at WHEN 1 THEN coalesce(u.started_at, m.at)
                                       WHEN 3 THEN m.at END,
           attempt = u.attempt + m.opens,
           fence = u.fence + m.grants,
           lease = coalesce(m.lease_to, u.lease),
           lease_id = CASE WHEN m.lease_ends > 0 THEN NULL WHEN m.grants > 0 THEN m.act ELSE u.lease_id END,
           holder = CASE WHEN m.lease_ends > 0 THEN NULL WHEN m.grants > 0 THEN m.worker ELSE u.holder END,
           lease_until = CASE WHEN m.lease_ends > 0 THEN m.until ELSE u.lease_until END,
           lease_hash = CASE WHEN m.lease_ends > 0 THEN NULL WHEN m.grants > 0 THEN m.secret ELSE u.lease_hash END,
           rests_in = CASE WHEN m.category IN ('gate', 'waiting', 'closing', 'failure', 'cancelled', 'dead') THEN m.target
                           WHEN m.category IS NULL THEN u.rests_in END,
           dead_at = CASE WHEN m.category = 'dead' THEN m.at WHEN m.category IS NULL THEN u.dead_at END,
           available_at = CASE WHEN m.available > 0 THEN m.at END,
           wake_at = CASE WHEN m.outcome <> 1 THEN u.wake_at END,
           due_at = CASE WHEN m.outcome <> 1 THEN u.due_at END,
           deadline_at = CASE WHEN m.outcome <> 1 THEN u.deadline_at END,
           parked_on = CASE WHEN m.outcome <> 1 THEN nullif(u.parked_on, 'withheld') END,
           asked_at = CASE WHEN m.outcome <> 1 THEN u.asked_at END,
           asked_by = CASE WHEN m.outcome <> 1 THEN u.asked_by END
      FROM (SELECT a.id AS act, a.tenant, a.version, a.attempt, a.fence, a.at, a.available, a.worker, a.until,
                   p.lifecycle, p.source, p.target, p.category, p.outcome, p.started, p.hops, p.opens, p.grants,
                   p.lease_from, p.lease_to, p.lease_ends, x.unit, x.before, x.lease, x.secret
              FROM fresh AS a JOIN transition_path AS p ON p.id = a.path
             CROSS JOIN LATERAL unnest(a.units, a.before, a.leases, a.secrets) AS x (unit, before, lease, secret)
             WHERE p.source <> '') AS m
     WHERE u.id = m.unit AND u.tenant = m.tenant AND u.lifecycle = m.lifecycle AND u.state = m.source
       AND u.version = m.version AND u.act = m.before AND u.attempt = m.attempt AND u.fence = m.fence
       AND u.lease_id IS NOT DISTINCT FROM m.lease AND (m.lease_from IS NULL OR u.lease = m.lease_from)
       AND (m.grants = 0 OR u.lease_id IS NULL) AND u.changed_at <= m.at
       AND (m.before >> 18 <> here OR m.before < m.act)  -- at a cursor no effect stands before its cause
       -- What is neither held nor at work is under no lease.
       AND (u.lease_id IS NULL OR m.lease_ends > 0
            OR coalesce(m.category, u.category) IN ('held', 'active', 'closing'));
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> listed THEN PERFORM guard_refuses('chain', 'not all units of this act are where it begins'); END IF;

    IF granting THEN
        INSERT INTO lease (id, unit, tenant, worker, secret, until, ttl, beat, units)
        SELECT a.id, 0, a.tenant, a.worker, '', a.until, a.ttl, a.beat, cardinality(a.units)
          FROM fresh AS a JOIN transition_path AS p ON p.id = a.path WHERE p.grants > 0 AND p.lease_ends = 0;
    END IF;
    IF taking OR finishing THEN
        SELECT array_agg(g.lease ORDER BY g.lease), array_agg(g.number ORDER BY g.lease) INTO ended, counts
          FROM (SELECT x.lease, count(*)::integer AS number FROM fresh AS a JOIN transition_path AS p ON p.id = a.path
                 CROSS JOIN LATERAL unnest(a.leases) AS x (lease)
                 WHERE p.lease_ends > 0 AND x.lease IS NOT NULL GROUP BY x.lease) AS g;
        -- Behind the units, in the order of ids: others end units under the same leases, or give them rows of their own.
        PERFORM 1 FROM lease WHERE unit = 0 AND id = ANY (ended) ORDER BY id FOR UPDATE;
        IF taking THEN
            UPDATE lease SET ended_at = m.at, until = greatest(lease.until, m.until)
              FROM (SELECT a.at, a.until, x.unit, x.lease FROM fresh AS a JOIN transition_path AS p ON p.id = a.path
                     CROSS JOIN LATERAL unnest(a.units, a.leases) AS x (unit, lease)
                     WHERE p.lease_ends = 1 AND x.lease IS NOT NULL) AS m
             WHERE lease.id = m.lease AND lease.unit = m.unit;
            INSERT INTO lease (id, unit, tenant, worker, secret, until, ttl, beat, ended_at)
            SELECT shared.id, x.unit, shared.tenant, shared.worker, known.hash, greatest(shared.until, a.until), shared.ttl,
                   shared.beat, a.at
              FROM fresh AS a JOIN transition_path AS p ON p.id = a.path
             CROSS JOIN LATERAL unnest(a.units, a.leases) AS x (unit, lease)
              JOIN lease AS shared ON shared.unit = 0 AND shared.id = x.lease
              JOIN unnest(taken, hashes) AS known (unit, hash) ON known.unit = x.unit
             WHERE p.lease_ends = 1
               AND NOT EXISTS (SELECT 1 FROM lease AS own WHERE own.unit = x.unit AND own.id = x.lease);
        END IF;
        IF finishing AND EXISTS (SELECT 1 FROM lease WHERE id = ANY (ended) AND unit > 0 AND ended_at IS NULL) THEN
            DELETE FROM lease  -- acts tell all that there was to it
             USING (SELECT x.unit, x.lease FROM fresh AS a JOIN transition_path AS p ON p.id = a.path
                     CROSS JOIN LATERAL unnest(a.units, a.leases) AS x (unit, lease)
                     WHERE p.lease_ends = 2 AND x.lease IS NOT NULL) AS m
             WHERE lease.id = m.lease AND lease.unit = m.unit;
        END IF;
        DELETE FROM lease USING unnest(ended, counts) AS g (id, number)
         WHERE lease.unit = 0 AND lease.id = g.id AND lease.units <= g.number;
        GET DIAGNOSTICS moved = ROW_COUNT;
        IF moved < cardinality(ended) THEN
            UPDATE lease SET units = lease.units - g.number FROM unnest(ended, counts) AS g (id, number)
             WHERE lease.unit = 0 AND lease.id = g.id;
            -- Those that are left may all have rows of their own.
            DELETE FROM lease USING (
                SELECT own.id, count(*) AS number FROM lease AS own
                 WHERE own.id = ANY (ended) AND own.unit > 0 AND own.ended_at IS NULL GROUP BY own.id) AS apart
             WHERE lease.unit = 0 AND lease.id = apart.id AND lease.units <= apart.number;
        END IF;
    END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER act_moves AFTER INSERT ON act REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION act_moves();
CREATE TRIGGER guard_act BEFORE UPDATE OR TRUNCATE ON act
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('append-only', 'an act is never changed');

-- Whoever is born is a unit of the act that says so, as that act leaves it.
CREATE FUNCTION guard_birth() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
    here bigint;
BEGIN
    here := (SELECT value::bigint FROM about WHERE name = 'generation') << 36 | pg_current_xact_id()::text::bigint;
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM fresh), true);
    IF EXISTS (
        SELECT 1 FROM (
            SELECT born, tenant, lifecycle, state, category, outcome, version, attempt, fence, lease, lease_id, holder,
                   act, changed_at, started_at, rests_in, dead_at, array_agg(id) AS ids,
                   count(lease_until) + count(lease_hash) AS lasting
              FROM fresh GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17) AS g
          LEFT JOIN act AS a ON a.id = g.born LEFT JOIN transition_path AS p ON p.id = a.path
         WHERE a.id IS NULL OR a.id >> 18 <> here OR p.source <> '' OR g.act <> g.born OR a.tenant <> g.tenant
            OR (p.lifecycle, p.target, p.category, p.hops) <> (g.lifecycle, g.state, g.category, g.version)
            OR g.outcome IS DISTINCT FROM CASE p.outcome WHEN 1 THEN p.category END
            OR g.attempt <> 1 + p.opens OR g.fence <> 0 OR g.lease IS NOT NULL OR g.lease_id IS NOT NULL
            OR g.holder IS NOT NULL OR g.lasting > 0 OR g.changed_at <> a.at
            OR g.started_at IS DISTINCT FROM CASE WHEN p.started IN (1, 3) THEN a.at END
            OR g.rests_in IS DISTINCT FROM
               CASE WHEN p.category IN ('gate', 'waiting', 'closing', 'failure', 'cancelled', 'dead') THEN p.target END
            OR g.dead_at IS DISTINCT FROM CASE WHEN p.category = 'dead' THEN a.at END
            OR NOT g.ids <@ a.units)
    THEN PERFORM guard_refuses('event-first', 'a unit is born by the act that says so'); END IF;
    IF EXISTS (
        SELECT 1 FROM (SELECT DISTINCT parent, tenant FROM fresh WHERE parent IS NOT NULL) AS child
         WHERE NOT EXISTS (SELECT 1 FROM unit WHERE id = child.parent AND tenant = child.tenant))
    THEN PERFORM guard_refuses('tenant', 'a child has the tenant of its parent'); END IF;
    IF EXISTS (SELECT 1 FROM fresh WHERE lane <> 0 AND lane / 4294967296 <> tenant)
    THEN PERFORM guard_refuses('tenant', 'a unit waits in a lane of its tenant'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_birth AFTER INSERT ON unit REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_birth();

-- At the end of its transaction every unit that an act bears is there, and was born by it.
CREATE FUNCTION guard_born() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', ARRAY[NEW.tenant]::text, true);
    IF (SELECT count(DISTINCT x.id) FROM unnest(NEW.units) AS x (id) JOIN unit ON unit.id = x.id AND unit.born = NEW.id)
       <> cardinality(NEW.units)
    THEN PERFORM guard_refuses('event-first', 'an act bears the units that it names'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_born AFTER INSERT ON act DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW WHEN (NEW.version = 0) EXECUTE FUNCTION guard_born();

CREATE TRIGGER guard_unit BEFORE UPDATE OF id, tenant, lifecycle, parent, born, state, category, outcome, version, act,
    changed_at, started_at, attempt, fence, lease, lease_id, holder, lease_until, lease_hash, rests_in, dead_at ON unit
    FOR EACH STATEMENT
    EXECUTE FUNCTION guard_caller('event-first', 'what an act writes changes only by an act', 'act\_moves()');

CREATE TRIGGER guard_unit_lane BEFORE UPDATE OF lane ON unit FOR EACH ROW
    WHEN (NEW.lane <> 0 AND NEW.lane / 4294967296 <> NEW.tenant)
    EXECUTE FUNCTION guard_says_no('tenant', 'a unit waits in a lane of its tenant');

-- Leases: only an act writes one, and whoever renews it makes it longer.
CREATE TRIGGER guard_lease BEFORE INSERT OR UPDATE ON lease FOR EACH STATEMENT
    EXECUTE FUNCTION guard_caller('lease', 'a lease is written by the act that grants or ends it',
                                  'act\_moves()', 'renew\_leases(bigint[],bigint[],bigint[])');
-- Whoever holds leases makes them longer, for their own time at most; they are never made shorter, and one that is over
-- stays so. Of units that share a row and those that are named, or those that are not, get rows of their own: whichever
-- are fewer. So each unit that is not named keeps the end that it had.
CREATE FUNCTION renew_leases(ids bigint[], units bigint[], ends bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    clock bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 60000000;
    part record;
    under bigint;
BEGIN
    -- As an act does: whoever ends one of these units counts it behind this, or has done so.
    PERFORM 1 FROM lease WHERE unit = 0 AND id = ANY (ids) AND tenant = ANY (declared_tenants()) ORDER BY id FOR UPDATE;
    FOR part IN
        SELECT shared.id, given.until, array_agg(DISTINCT given.unit) AS named
          FROM unnest(ids, renew_leases.units, ends) AS given (id, unit, until)
          JOIN lease AS shared ON shared.unit = 0 AND shared.id = given.id
          JOIN unit ON unit.id = given.unit AND unit.lease_id = given.id
         WHERE shared.until < given.until AND given.until <= clock + shared.ttl
           AND shared.tenant = ANY (declared_tenants())
           AND NOT EXISTS (SELECT 1 FROM lease AS own WHERE own.unit = given.unit AND own.id = given.id)
         GROUP BY shared.id, given.until ORDER BY shared.id, given.until
    LOOP
        SELECT shared.units - (SELECT count(*) FROM lease AS own
                                WHERE own.id = shared.id AND own.unit > 0 AND own.ended_at IS NULL)
          INTO under FROM lease AS shared WHERE shared.unit = 0 AND shared.id = part.id;
        IF cardinality(part.named) * 2 <= under THEN
            INSERT INTO lease (id, unit, tenant, worker, secret, until, ttl, beat)
            SELECT shared.id, unit.id, shared.tenant, shared.worker, unit.lease_hash, part.until, shared.ttl, shared.beat
              FROM unnest(part.named) AS named (unit) JOIN unit ON unit.id = named.unit
              JOIN lease AS shared ON shared.unit = 0 AND shared.id = part.id
                ON CONFLICT DO NOTHING;
        ELSE
            IF cardinality(part.named) < under THEN
                INSERT INTO lease (id, unit, tenant, worker, secret, until, ttl, beat)
                SELECT shared.id, unit.id, shared.tenant, shared.worker, unit.lease_hash, shared.until, shared.ttl,
                       shared.beat
                  FROM lease AS shared JOIN act ON act.id = shared.id CROSS JOIN LATERAL unnest(act.units) AS other (unit)
                  JOIN unit ON unit.id = other.unit AND unit.lease_id = shared.id
                 WHERE shared.unit = 0 AND shared.id = part.id AND NOT unit.id = ANY (part.named)
                    ON CONFLICT DO NOTHING;
            END IF;
            UPDATE lease SET until = part.until WHERE unit = 0 AND id = part.id;
        END IF;
    END LOOP;
    -- Written so that only the primary key fits: by the index of ends each row would be looked for among all live leases.
    IF EXISTS (SELECT 1 FROM lease WHERE id = ANY (ids) AND unit > 0 AND ended_at IS NULL) THEN
        UPDATE lease SET until = given.until
          FROM unnest(ids, renew_leases.units, ends) AS given (id, unit, until)
         WHERE lease.id = given.id AND lease.unit = given.unit AND lease.unit > 0 AND coalesce(lease.ended_at, 0) = 0
           AND lease.until + 0 < given.until AND given.until <= clock + lease.ttl
           AND lease.tenant = ANY (declared_tenants());
    END IF;
END $$;
CREATE TRIGGER guard_lease_delete BEFORE TRUNCATE ON lease
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('lease', 'a live lease is not deleted');
CREATE FUNCTION guard_lease_gone() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stack text;
BEGIN
    GET DIAGNOSTICS stack = PG_CONTEXT;
    IF EXISTS (SELECT 1 FROM gone WHERE ended_at IS NULL) AND NOT is_called_by(stack, 'act\_moves()')
    THEN PERFORM guard_refuses('lease', 'a live lease is not deleted'); END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard_lease_gone AFTER DELETE ON lease REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_lease_gone();

-- An act and its details leave with the last of its units; its digest stays.
CREATE FUNCTION guard_act_delete() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM gone), true);
    IF EXISTS (
        SELECT 1 FROM gone
         WHERE NOT EXISTS (
             SELECT 1 FROM act_gone
              WHERE act_gone.id = gone.id AND act_gone.tenant = gone.tenant AND act_gone.digest = gone.digest)
            OR EXISTS (SELECT 1 FROM unnest(gone.units) AS x (id) JOIN unit ON unit.id = x.id))
    THEN PERFORM guard_refuses('append-only', 'an act is deleted only with the last of its units'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_act_delete AFTER DELETE ON act REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_act_delete();

CREATE FUNCTION guard_gone() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM fresh), true);
    IF EXISTS (
        SELECT 1 FROM fresh LEFT JOIN act ON act.id = fresh.id AND act.tenant = fresh.tenant AND act.digest = fresh.digest
         WHERE act.id IS NULL)
    THEN PERFORM guard_refuses('append-only', 'an act that is gone leaves its own digest'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_gone AFTER INSERT ON act_gone REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_gone();
-- At the end of its transaction it is really gone: else a seal would count it twice.
CREATE FUNCTION guard_really_gone() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', ARRAY[NEW.tenant]::text, true);
    IF EXISTS (SELECT 1 FROM act WHERE id = NEW.id)
    THEN PERFORM guard_refuses('append-only', 'an act that is still there is not gone'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER guard_really_gone AFTER INSERT ON act_gone DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION guard_really_gone();
CREATE TRIGGER guard_gone_change BEFORE UPDATE OR DELETE OR TRUNCATE ON act_gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('append-only', 'what an act left behind is never changed');

CREATE FUNCTION guard_detail() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM fresh), true);
    IF EXISTS (
        SELECT 1 FROM fresh LEFT JOIN act ON act.id = fresh.act AND act.tenant = fresh.tenant
         WHERE act.id IS NULL OR json_typeof(fresh.payload::json) <> 'object'
            OR encode(sha256(convert_to(fresh.payload, 'UTF8')), 'hex')
               IS DISTINCT FROM act.details[array_position(act.units, fresh.unit)])
    THEN PERFORM guard_refuses('append-only', 'what is told of a unit is what its act has the digest of'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_detail AFTER INSERT ON act_detail REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_detail();
CREATE TRIGGER guard_detail_change BEFORE UPDATE OR TRUNCATE ON act_detail
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('append-only', 'what an act tells of a unit is never changed');

-- Seals follow each other, skip no act, cover only what no open transaction can come before, and are never changed.
CREATE FUNCTION guard_seal() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
    after bigint := 0;
    horizon bigint;
BEGIN
    PERFORM set_config('app.tenants', ARRAY[NEW.tenant]::text, true);
    IF NEW.number > 1 THEN
        SELECT last_act INTO after FROM seal WHERE tenant = NEW.tenant AND number = NEW.number - 1;
    END IF;
    horizon := ((SELECT value::bigint FROM about WHERE name = 'generation') << 36
                | pg_snapshot_xmin(pg_current_snapshot())::text::bigint) << 18;
    IF NEW.number < 1 OR after IS NULL OR NEW.first_act <= after OR NEW.last_act < NEW.first_act
       OR NEW.last_act >= horizon OR NEW.acts < 1 OR (NEW.acts = 1) <> (NEW.first_act = NEW.last_act)
       OR NEW.first_act IS DISTINCT FROM least(
           (SELECT min(id) FROM act WHERE tenant = NEW.tenant AND id > after),
           (SELECT min(id) FROM act_gone WHERE tenant = NEW.tenant AND id > after))
       OR NOT EXISTS (SELECT 1 FROM act WHERE tenant = NEW.tenant AND id = NEW.last_act
                      UNION ALL SELECT 1 FROM act_gone WHERE tenant = NEW.tenant AND id = NEW.last_act)
    THEN PERFORM guard_refuses('seal', 'a seal goes on where the last one ended'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_seal AFTER INSERT ON seal FOR EACH ROW EXECUTE FUNCTION guard_seal();
CREATE TRIGGER guard_seal_change BEFORE UPDATE OR DELETE OR TRUNCATE ON seal
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('seal', 'a seal is never changed');

CREATE FUNCTION guard_unit_delete() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM gone), true);
    IF EXISTS (
        SELECT 1 FROM gone
        WHERE NOT EXISTS (SELECT 1 FROM archived WHERE archived.unit = gone.id AND archived.version = gone.version))
    THEN PERFORM guard_refuses('append-only', 'a unit is deleted only if it is archived'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_unit_delete AFTER DELETE ON unit REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_unit_delete();
CREATE TRIGGER guard_unit_truncate BEFORE TRUNCATE ON unit
    FOR EACH STATEMENT EXECUTE FUNCTION guard_says_no('append-only', 'a unit is deleted only if it is archived');

CREATE FUNCTION guard_tenant() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM fresh), true);
    IF EXISTS (
        SELECT 1 FROM fresh LEFT JOIN unit ON unit.id = fresh.unit AND unit.tenant = fresh.tenant
        WHERE unit.id IS NULL)
    THEN PERFORM guard_refuses('tenant', TG_TABLE_NAME || ' has the tenant of its unit'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_body AFTER INSERT ON body REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_tenant();
CREATE TRIGGER guard_artifact AFTER INSERT ON artifact REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_tenant();

CREATE FUNCTION guard_need() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM fresh), true);
    IF EXISTS (
        -- One value per row: EXISTS below an OR may be answered by reading all units.
        SELECT 1 FROM fresh
        WHERE fresh.tenant IS DISTINCT FROM (SELECT tenant FROM unit WHERE id = fresh.unit)
           OR fresh.tenant IS DISTINCT FROM (SELECT tenant FROM unit WHERE id = fresh.needs)
              AND fresh.tenant IS DISTINCT FROM (SELECT tenant FROM place WHERE place.unit = fresh.needs))
    THEN PERFORM guard_refuses('tenant', 'a unit and what it needs are of one tenant'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_need AFTER INSERT ON need REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_need();

CREATE FUNCTION guard_place() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM fresh), true);
    IF EXISTS (
        SELECT 1 FROM fresh
        WHERE fresh.tenant IS DISTINCT FROM (SELECT tenant FROM unit WHERE id = fresh.parent)
           OR EXISTS (SELECT 1 FROM unit WHERE id = fresh.unit AND (tenant <> fresh.tenant OR parent IS DISTINCT FROM fresh.parent)))
    THEN PERFORM guard_refuses('tenant', 'a place is in a unit of its tenant, and is that of a child of it'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_place AFTER INSERT ON place REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_place();

CREATE TRIGGER guard_body_update BEFORE UPDATE ON body FOR EACH ROW
    WHEN (NEW.key IS DISTINCT FROM OLD.key AND NOT (NEW.key IS NULL AND NEW.replaced_by IS NOT NULL))
    EXECUTE FUNCTION guard_says_no('identity', 'the unit, tenant, task and key of a body never change');
CREATE TRIGGER guard_body_fixed BEFORE UPDATE OF unit, tenant, task, created_at, input, labels, policy, correlation,
    trace, mutex, limit_key, retry_of, rate_key ON body FOR EACH STATEMENT
    EXECUTE FUNCTION guard_says_no('identity', 'what a unit was given at its birth never changes');

CREATE FUNCTION guard_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM guard_refuses(CASE WHEN TG_TABLE_NAME IN ('need', 'place') THEN 'identity' ELSE 'append-only' END,
                          'a row of ' || TG_TABLE_NAME || ' is never changed');
    RETURN NULL;
END $$;
CREATE TRIGGER guard_need_update BEFORE UPDATE ON need FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();
CREATE TRIGGER guard_place_update BEFORE UPDATE ON place FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();
CREATE TRIGGER guard_artifact_update BEFORE UPDATE ON artifact FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();

-- What goes past the table, and what leaves the database.
CREATE FUNCTION guard_forced_move() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM fresh), true);
    IF EXISTS (
        SELECT 1 FROM fresh
        WHERE reason = '' OR NOT EXISTS (
            SELECT 1 FROM unit JOIN edge ON edge.lifecycle = unit.lifecycle AND edge.target = fresh.target
            WHERE unit.id = fresh.unit AND unit.tenant = fresh.tenant AND unit.version < fresh.version))
    THEN
        PERFORM guard_refuses('forced', 'a forced move has a reason, a unit, a version to come and a state of its lifecycle');
    END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_forced_move AFTER INSERT ON forced_move REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_forced_move();
CREATE TRIGGER guard_forced_move_update BEFORE UPDATE OR TRUNCATE ON forced_move
    FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();

-- What is archived has ended, and the row says how far its own history went.
CREATE FUNCTION guard_archived() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM fresh), true);
    IF EXISTS (
        SELECT 1 FROM fresh
        WHERE NOT EXISTS (
            SELECT 1 FROM unit JOIN act ON act.id = unit.act
            WHERE unit.id = fresh.unit AND unit.tenant = fresh.tenant AND unit.version = fresh.version
              AND unit.born = fresh.born AND act.digest = fresh.head AND unit.outcome IS NOT NULL))
    THEN PERFORM guard_refuses('archived', 'only a unit that has ended is archived, with its own version and head'); END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_archived AFTER INSERT ON archived REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_archived();
CREATE TRIGGER guard_archived_change BEFORE UPDATE OR DELETE OR TRUNCATE ON archived
    FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();

-- What a unit was given and what it made leave with it.
CREATE FUNCTION guard_kept() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    declared text := current_setting('app.tenants', true);
BEGIN
    PERFORM set_config('app.tenants', (SELECT array_agg(DISTINCT tenant)::text FROM gone), true);
    IF EXISTS (
        SELECT 1 FROM gone WHERE NOT EXISTS (SELECT 1 FROM archived WHERE archived.unit = gone.unit))
    THEN
        PERFORM guard_refuses('append-only', 'a row of ' || TG_TABLE_NAME || ' is deleted only if its unit is archived');
    END IF;
    PERFORM set_config('app.tenants', declared, true);
    RETURN NULL;
END $$;
CREATE TRIGGER guard_body_delete AFTER DELETE ON body REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_kept();
CREATE TRIGGER guard_body_truncate BEFORE TRUNCATE ON body FOR EACH STATEMENT
    EXECUTE FUNCTION guard_says_no('append-only', 'a row of body is deleted only if its unit is archived');
CREATE TRIGGER guard_artifact_delete AFTER DELETE ON artifact REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_kept();
CREATE TRIGGER guard_artifact_truncate BEFORE TRUNCATE ON artifact FOR EACH STATEMENT
    EXECUTE FUNCTION guard_says_no('append-only', 'a row of artifact is deleted only if its unit is archived');
CREATE TRIGGER guard_detail_delete AFTER DELETE ON act_detail REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_kept();
CREATE TRIGGER guard_forced_move_delete AFTER DELETE ON forced_move REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION guard_kept();


-- Under row-level security an audit and a tick find the tenants by these rows: one that is gone would hide all its work.
CREATE TRIGGER guard_tenant_identity BEFORE UPDATE ON tenant FOR EACH ROW WHEN (NEW.id <> OLD.id)
    EXECUTE FUNCTION guard_says_no('identity', 'the id of a tenant never changes');
CREATE TRIGGER guard_tenant_delete BEFORE DELETE ON tenant FOR EACH ROW
    EXECUTE FUNCTION guard_says_no('append-only', 'a tenant is never deleted: audits and ticks find its work by this row');
CREATE TRIGGER guard_tenant_truncate BEFORE TRUNCATE ON tenant FOR EACH STATEMENT EXECUTE FUNCTION guard_fixed();

-- A unit that cannot be moved is withheld: it may not be claimed while it is.
CREATE TRIGGER guard_unit_withheld BEFORE UPDATE OF parked_on, available_at ON unit FOR EACH ROW
    WHEN (NEW.parked_on = 'withheld' AND NEW.available_at IS NOT NULL)
    EXECUTE FUNCTION guard_says_no('withheld', 'a unit that is withheld may not be claimed');

-- Roles, and what each may do, are no migration's business: interlock/store/rights.py puts them right after every upgrade.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['lane', 'unit', 'body', 'act', 'act_gone', 'act_detail', 'lease', 'seal', 'note', 'need', 'place', 'worker',
                                'slot', 'token', 'schedule', 'skipped', 'pause', 'template', 'answer', 'artifact', 'log',
                                'archived', 'forced_move', 'key', 'asked', 'tally', 'tallied', 'metric_minute']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY declared ON %I USING (tenant = ANY ((SELECT declared_tenants())::integer[])) '
                       'WITH CHECK (tenant = ANY ((SELECT declared_tenants())::integer[]))', name);
    END LOOP;
END $$;

-- Hot rows are updated often: room on the page keeps the update on it, and out of the indexes.
ALTER TABLE unit SET (fillfactor = 60);
ALTER TABLE lease SET (fillfactor = 70);
-- Numbers that count up and digests do not get smaller: to try it costs time.
ALTER TABLE act ALTER units SET STORAGE EXTERNAL, ALTER before SET STORAGE EXTERNAL, ALTER leases SET STORAGE EXTERNAL,
    ALTER secrets SET STORAGE EXTERNAL, ALTER details SET STORAGE EXTERNAL;
