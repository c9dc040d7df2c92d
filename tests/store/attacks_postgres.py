"""Attacks that only PostgreSQL knows: TRUNCATE, settings, shadows, triggers and functions of one's own."""

from collections.abc import Iterator

from interlock.kernel.paths import Path
from interlock.store import migrate
from tests.store.attack_scene import (
    DENIED,
    HERE,
    NEW,
    NOTHING,
    Attack,
    Expected,
    Found,
    Raw,
    Refused,
    Scene,
    attack,
    claim,
    rule,
)
from tests.store.raw_acts import unlisted

ONLY, FIRST = rule("append-only"), rule("event-first")
FOLD = Found("state is the fold of events")
MOVED = "UPDATE unit SET state = 'succeeded', category = 'success', outcome = 'success', available_at = NULL WHERE id = <free>"


def truncating() -> Iterator[Attack]:
    rules = {"seal": "seal", "lease": "lease"}
    for table in (
        "unit",
        "body",
        "act",
        "act_gone",
        "act_detail",
        "seal",
        "lease",
        "edge",
        "transition_path",
        "path_hop",
        "archived",
        "forced_move",
        "tenant",
        "artifact",
    ):
        yield attack(f"{table} truncated", f"TRUNCATE {table}", app=DENIED, owner=rule(rules.get(table, "append-only")))


def lists() -> Iterator[Attack]:
    def over(name: str, expected: Expected, **changes: str) -> Attack:
        def make(s: Scene) -> list[str]:
            return claim(s, **{column: Raw(s.fill(text)) for column, text in changes.items()})  # type: ignore[return-value]

        return Attack(name, make, app=expected, owner=expected)

    shape = rule("act")
    yield over(
        "a list of lists",
        shape,
        units="'{{<free>}}'::bigint[]",
        before="'{{<free_act>}}'::bigint[]",
        secrets="'{{h}}'::text[]",
    )
    yield over(
        "a list that begins at 0",
        shape,
        units="'[0:0]={<free>}'::bigint[]",
        before="'[0:0]={<free_act>}'::bigint[]",
        secrets="'[0:0]={h}'::text[]",
    )
    yield over("acts before it in another shape", shape, before="'[5:5]={<free_act>}'::bigint[]")
    yield over("secrets in another shape", shape, secrets="'[5:5]={h}'::text[]")
    yield over("no list of units", Refused("violates not-null"), units="NULL")


def settings() -> Iterator[Attack]:
    yield Attack(
        "leases under a setting of ours",
        lambda s: [
            "SELECT set_config('interlock.renews', 'on', false)",
            s.fill("UPDATE lease SET until = until + 1000000000000 WHERE id = <held_lease>"),
        ],
        app=DENIED,
        owner=rule("lease"),
    )
    yield Attack(
        "units as a replica",
        lambda s: ["SET LOCAL session_replication_role = replica", s.fill(MOVED)],
        app=DENIED,
        owner=FOLD,
        alone=DENIED,
    )
    yield Attack(
        "history as a replica",
        lambda s: [
            "SET LOCAL session_replication_role = replica",
            s.fill("UPDATE act SET actor = 'x' WHERE id = <done_act>"),
        ],
        app=DENIED,
        owner=Found("seals are those of the acts below them"),
        alone=DENIED,
    )
    yield Attack(
        "another tenant's unit, not declared",
        lambda s: [
            "SELECT set_config('app.tenants', '{1}', true)",
            s.act(s.path("alien", "claim/grant"), "alien", worker=s["worker"]),
        ],
        app=Refused("row-level security"),
        owner=None,
        alone=Refused("row-level security"),
    )
    yield Attack(
        "another tenant's unit in an act of one's own",
        lambda s: ["SELECT set_config('app.tenants', '{1}', true)", *claim(s, "alien", tenant=1)],
        app=rule("chain"),
        owner=rule("chain"),
    )
    yield Attack(
        "no tenant declared",
        lambda s: ["SELECT set_config('app.tenants', '', true)", *claim(s)],
        app=Refused("row-level security"),
        owner=Found("workers hold what they hold"),
        alone=Refused("row-level security"),
    )
    yield Attack(
        "a path of names that begins elsewhere",
        lambda s: ["SET LOCAL search_path = pg_temp, public", s.fill(MOVED)],
        app=DENIED,
        owner=FIRST,
    )
    yield Attack(
        "births judged at once", lambda s: ["SET CONSTRAINTS ALL IMMEDIATE", s.birth(NEW)], app=FIRST, owner=FIRST
    )


def functions() -> Iterator[Attack]:
    renew = "SELECT renew_leases(ARRAY[<{lease}>]::bigint[], ARRAY[<{unit}>]::bigint[], ARRAY[{until}]::bigint[])"
    soon = "<now> + 31000000"
    held, done = {"lease": "held_lease", "unit": "held"}, {"lease": "held_lease", "unit": "done"}
    for name, sql in {
        "a lease renewed for ever": renew.format(until="9000000000000000", **held),
        "a lease renewed backwards": renew.format(until="1", **held),
        "a lease of another unit renewed": renew.format(until=soon, **done),
    }.items():
        yield attack(name, sql, app=NOTHING, owner=NOTHING)
    yield attack(
        "a lease that is over renewed by its function",
        "SELECT renew_leases(array_agg(id), array_agg(unit), array_agg(<now> + 1000000)) FROM lease "
        "WHERE ended_at IS NOT NULL",
        app=NOTHING,
        owner=NOTHING,
    )
    yield Attack(
        "another tenant's lease renewed",
        lambda s: [
            "SELECT set_config('app.tenants', '{2}', true)",
            s.fill(renew.format(until=soon, **held)),
            "SELECT set_config('app.tenants', '{1,2}', true)",
        ],
        app=NOTHING,
        owner=NOTHING,
    )
    listing = "SELECT list_forced_path({id}, {told}, {digest})"

    def listed(s: Scene, path: Path) -> list[str]:
        return [listing.format(**{name: s.literal(v) for name, v in migrate.make_path_row(path).items()})]

    yield Attack("a forced path listed by a program", lambda s: listed(s, s.forced), app=DENIED, owner=NOTHING)
    yield Attack(
        "an unforced path listed as a forced one",
        lambda s: listed(s, unlisted("queued", "complete", "succeeded")),
        app=DENIED,
        owner=rule("path"),
    )
    for name in ("guard_birth", "act_moves", "guard_path", "guard_seal"):
        yield attack(
            f"{name} called by hand",
            f"SELECT {name}()",
            app=Refused("permission denied|only be called as trigger"),
            owner=Refused("only be called as trigger"),
        )


def own_triggers() -> Iterator[Attack]:
    """A trigger on a temporary table runs as deep as the guard's own."""

    def inside(name: str, body: str, app: Expected, owner: Expected) -> Attack:
        return Attack(
            name,
            lambda s: [
                "CREATE TEMP TABLE mine (x integer)",
                s.fill(
                    f"CREATE FUNCTION pg_temp.mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NULL; END $$"
                ),
                "CREATE TRIGGER mine AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION pg_temp.mine()",
                "INSERT INTO mine VALUES (1)",
            ],
            app=app,
            owner=owner,
        )

    yield inside("units from a trigger of one's own", MOVED, DENIED, FIRST)
    yield inside(
        "units from a trigger that names the guard's",
        f"{MOVED} /*\nPL/pgSQL function act_moves() line 1 at SQL statement */",
        DENIED,
        FIRST,
    )
    yield inside("units from a trigger's trigger", f"EXECUTE $sql$ {MOVED} $sql$", DENIED, FIRST)
    yield inside(
        "leases from a trigger of one's own",
        "UPDATE lease SET secret = 'mine' WHERE id = <held_lease>",
        DENIED,
        rule("lease"),
    )
    yield inside(
        "hops from a trigger of one's own",
        "INSERT INTO path_hop VALUES (<claim>, 9, 'x', 'a', 'b', 'x', 'info', 0, 0, NULL, NULL)",
        DENIED,
        ONLY,
    )
    yield inside("hops renamed from a trigger of one's own", "UPDATE path_hop SET name = 'x'", DENIED, ONLY)
    yield Attack(
        "the trigger of acts on a table of one's own",
        lambda s: [
            "CREATE TEMP TABLE mine (LIKE public.act)",
            "CREATE TRIGGER mine AFTER INSERT ON mine REFERENCING NEW TABLE AS fresh "
            "FOR EACH STATEMENT EXECUTE FUNCTION public.act_moves()",
            claim(s)[0].replace("INTO act (", "INTO mine (digest, ").replace("VALUES (", "VALUES ('', ", 1),
        ],  # type: ignore[union-attr]
        app=DENIED,
        owner=FIRST,
    )
    yield Attack(
        "a function by the name of the guard's, in a schema of one's own",
        lambda s: [
            "CREATE SCHEMA evil",
            "SET LOCAL search_path = evil, public",
            "CREATE TEMP TABLE mine (x integer)",
            s.fill(
                "CREATE FUNCTION evil.act_moves() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN {MOVED}; RETURN NULL; END $$"
            ),
            "CREATE TRIGGER mine AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION evil.act_moves()",
            "INSERT INTO mine VALUES (1)",
        ],
        app=DENIED,
        owner=FOLD,
    )


def shadows() -> Iterator[Attack]:
    def shadow(name: str, *statements: str, app: Expected, owner: Expected) -> Attack:
        return Attack(name, lambda s: [*map(s.fill, statements)], app=app, owner=owner)

    yield Attack(
        "a shadow of the paths",
        lambda s: [
            "CREATE TEMP TABLE transition_path AS SELECT * FROM public.transition_path",
            "UPDATE pg_temp.transition_path SET retired = 0, target = 'succeeded'",
            *claim(s, path_digest="0" * 64),
        ],
        app=rule("listed-hop"),
        owner=rule("listed-hop"),
    )
    yield Attack(
        "a shadow of the acts",
        lambda s: [
            "CREATE TEMP TABLE act (LIKE public.act)",
            "SET LOCAL search_path = pg_temp, public",
            claim(s)[0].replace("INTO act (", "INTO act (digest, ").replace("VALUES (", "VALUES ('', ", 1),  # type: ignore[union-attr]
            "SET LOCAL search_path = public",
            "DROP TABLE pg_temp.act",
        ],
        app=NOTHING,
        owner=NOTHING,
    )
    yield shadow(
        "a shadow of what is archived",
        "CREATE TEMP TABLE archived AS SELECT <done>::bigint AS unit, 4 AS version, 1 AS tenant",
        "DELETE FROM public.unit WHERE id = <done>",
        app=DENIED,
        owner=ONLY,
    )
    yield shadow(
        "a refusal of one's own",
        "CREATE FUNCTION pg_temp.guard_refuses(rule text, why text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$",
        "SET LOCAL search_path = pg_temp, public",
        "DELETE FROM lease WHERE id = <held_lease>",
        app=rule("lease"),
        owner=rule("lease"),
    )
    yield shadow(
        "tenants of one's own",
        "CREATE FUNCTION pg_temp.declared_tenants() RETURNS integer[] LANGUAGE sql AS $$ SELECT ARRAY[1, 2, 3] $$",
        "SET LOCAL search_path = pg_temp, public",
        MOVED,
        app=DENIED,
        owner=FIRST,
    )


def owners() -> Iterator[Attack]:
    """What whoever owns the tables can do, and what audits make of it."""
    yield Attack(
        "units with triggers off",
        lambda s: ["ALTER TABLE unit DISABLE TRIGGER USER", s.fill(MOVED)],
        app=DENIED,
        owner=FOLD,
    )
    yield Attack(
        "acts with triggers off",
        lambda s: ["ALTER TABLE act DISABLE TRIGGER act_moves", *claim(s)],
        app=DENIED,
        owner=Found("acts list the units that they moved"),
    )
    yield Attack(
        "leases with triggers off",
        lambda s: [
            "ALTER TABLE lease DISABLE TRIGGER USER",
            s.fill("UPDATE lease SET secret = 'mine' WHERE id = <held_lease>"),
        ],
        app=DENIED,
        owner=Found("leases are what acts have granted"),
    )
    yield Attack(
        "seals with triggers off",
        lambda s: ["ALTER TABLE seal DISABLE TRIGGER USER", "UPDATE seal SET root = repeat('0', 64)"],
        app=DENIED,
        owner=Found("seals are those of the acts below them"),
    )
    yield Attack(
        "an act taken out with triggers off",
        lambda s: ["ALTER TABLE act DISABLE TRIGGER USER", s.fill("DELETE FROM act WHERE id = <done_act>")],
        app=DENIED,
        owner=Found("seals are those of the acts below them"),
    )
    yield Attack(
        "paths with triggers off",
        lambda s: [
            "ALTER TABLE transition_path DISABLE TRIGGER USER",
            s.fill("UPDATE transition_path SET told = replace(told, 'job_', 'x') WHERE id = <claim>"),
        ],
        app=DENIED,
        owner=Found("paths are what their digests say"),
    )
    yield Attack(
        "hops with triggers off",
        lambda s: [
            "ALTER TABLE path_hop DISABLE TRIGGER USER",
            s.fill("UPDATE path_hop SET name = 'x' WHERE path = <claim>"),
        ],
        app=DENIED,
        owner=Found("paths are what their digests say"),
    )
    yield Attack(
        "correlation with triggers off",
        lambda s: [
            "ALTER TABLE body DISABLE TRIGGER USER",
            s.fill("UPDATE body SET correlation = 'x' WHERE unit = <late>"),
        ],
        app=DENIED,
        owner=Found("acts are what their digests say"),
    )
    yield Attack(
        "what an act tells with triggers off",
        lambda s: ["ALTER TABLE act_detail DISABLE TRIGGER USER", "UPDATE act_detail SET payload = '{}'"],
        app=DENIED,
        owner=Found("acts are what their digests say"),
    )
    yield Attack(
        "a guard dropped", lambda s: ["DROP TRIGGER guard_unit ON unit", s.fill(MOVED)], app=DENIED, owner=FOLD
    )
    yield Attack(
        "a guard rewritten",
        lambda s: [
            "CREATE OR REPLACE FUNCTION guard_caller() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
            s.fill(MOVED),
        ],
        app=DENIED,
        owner=FOLD,
    )
    yield Attack(
        "a table under the units",
        lambda s: [
            "CREATE TABLE more () INHERITS (unit)",
            s.fill("INSERT INTO more SELECT * FROM ONLY unit WHERE id = <done>"),
            f"UPDATE more SET id = {NEW}",
        ],
        app=DENIED,
        owner=Found("no gap"),
    )
    yield Attack(
        "an edge of one's own, a path and an act",
        lambda s: [
            "INSERT INTO edge VALUES ('job', 'queued', 'jump', 'succeeded', 'x', 'info', 0, 'success', 0)",
            s.list_path(jump()),
            s.act(jump(), "free"),
        ],
        app=DENIED,
        owner=Found("every hop is listed"),
    )
    yield Attack(
        "a seal over one's own act",
        lambda s: [
            *claim(s),
            s.fill("INSERT INTO seal VALUES (1, <sealed> + 1, <unsealed>, ")
            + HERE.format(number=1)
            + ", 2, repeat('0', 64), 1)",
        ],
        app=rule("seal"),
        owner=rule("seal"),
    )
    yield attack(
        "a merge into units",
        "MERGE INTO unit USING (SELECT <free>::bigint AS id) AS s ON unit.id = s.id "
        "WHEN MATCHED THEN UPDATE SET state = 'succeeded'",
        app=DENIED,
        owner=FIRST,
    )
    yield attack(
        "an upsert of a unit",
        "INSERT INTO unit SELECT * FROM unit WHERE id = <free> ON CONFLICT (id) DO UPDATE SET state = 'succeeded'",
        app=DENIED,
        owner=FIRST,
    )
    yield attack(
        "a deletion that answers",
        "WITH gone AS (DELETE FROM act RETURNING id) SELECT count(*) FROM gone",
        app=DENIED,
        owner=ONLY,
    )


def jump() -> Path:
    return unlisted("queued", "jump", "succeeded")


def only_postgres() -> list[Attack]:
    kinds = (truncating, lists, settings, functions, own_triggers, shadows, owners)
    return [one for kind in kinds for one in kind()]
