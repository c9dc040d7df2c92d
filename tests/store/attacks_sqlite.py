"""Attacks that only SQLite knows: REPLACE, rowids, triggers of one's own, pragmas and functions of a client's own."""

import sqlite3
from collections.abc import Iterator
from typing import Any

from interlock.kernel.paths import Path
from tests.store.attack_scene import NEW, NOTHING, Attack, Expected, Found, Raw, Refused, attack, claim, rule
from tests.store.databases import Connection
from tests.store.raw_acts import unlisted

ONLY, FIRST = rule("append-only"), rule("event-first")
FOLD = Found("state is the fold of events")


def lite(name: str, sql: str, expected: Expected) -> Attack:
    return attack(name, sql, lite=expected)


def as_client(sql: str) -> Any:
    """A statement that a client sends outside of what it wants to undo."""

    def send(connection: Connection) -> None:
        connection.rows(sql)

    return send


def replacing() -> Iterator[Attack]:
    copy = "SELECT * FROM {table} WHERE {where}"
    for table, where in {
        "unit": "id = <done>",
        "body": "unit = <done>",
        "act": "id = <done_act>",
        "seal": "number = 1",
        "transition_path": "id = <claim>",
        "path_hop": "path = <claim>",
        "lease": "id = <held_lease>",
        "act_detail": "1 = 1",
        "edge": "trigger = 'claim'",
        "member": "unit = <done>",
    }.items():
        expected = Refused(r"interlock guard \[\w+(-\w+)*\]")
        source = copy.format(table=table, where=where)
        yield lite(f"{table} written again", f"INSERT OR REPLACE INTO {table} {source}", expected)
        if table not in ("act", "act_detail", "member"):
            yield lite(
                f"{table} pushed out by its rowid",
                f"UPDATE OR REPLACE {table} SET rowid = (SELECT max(rowid) FROM {table}) "
                f"WHERE rowid = (SELECT min(rowid) FROM {table} WHERE rowid < (SELECT max(rowid) FROM {table}))",
                expected,
            )
    yield lite("a tenant written again", "REPLACE INTO tenant (id, name, created_at) VALUES (2, 'x', 1)", NOTHING)
    yield lite(
        "a tenant pushed out by its name",
        "REPLACE INTO tenant (id, name, created_at) VALUES (9, 'default', 1)",
        NOTHING,
    )
    yield lite(
        "an upsert of a unit",
        "INSERT INTO unit SELECT * FROM unit WHERE id = <free> ON CONFLICT (id) DO UPDATE SET state = 'succeeded'",
        ONLY,
    )
    yield Attack(
        "an act that ignores what it cannot write",
        lambda s: [s.insert_act(s.act_row(s.path("free", "claim/grant"), "free", secrets=[None]), "INSERT OR IGNORE")],
        lite=rule("act"),
    )
    yield Attack(
        "an act that replaces",
        lambda s: [
            s.insert_act(s.act_row(s.path("free", "claim/grant"), "free", id=s["done_act"]), "INSERT OR REPLACE")
        ],
        lite=ONLY,
    )
    yield Attack("units as texts", lambda s: claim(s, units=Raw(f"'[\"{s['free']}\"]'")), lite=rule("act"))
    yield Attack("units as an object", lambda s: claim(s, units=Raw("'{\"a\": 1}'")), lite=rule("act"))
    yield Attack("units that are no JSON", lambda s: claim(s, units=Raw("'x'")), lite=Refused("malformed JSON"))
    yield Attack("secrets that are numbers", lambda s: claim(s, secrets=Raw("'[7]'")), lite=rule("act"))
    yield Attack(
        "a text in an integer",
        lambda s: [s.fill("UPDATE unit SET priority = 'high' WHERE id = <free>")],
        lite=Refused("cannot store"),
    )


def sentinel() -> Iterator[Attack]:
    """Only the trigger of an act may say that an act is moving units."""
    yield lite("the sentinel by hand", "INSERT INTO moving VALUES (<done_act>)", FIRST)
    yield Attack("the sentinel for the last act", lambda s: [f"INSERT INTO moving VALUES ({s.last_act})"], lite=FIRST)
    yield lite("the sentinel for an act to come", f"INSERT INTO moving VALUES ({NEW})", FIRST)
    yield Attack(
        "the sentinel after the count was set back",
        lambda s: [
            "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'act'",
            f"INSERT INTO moving VALUES ({s.last_act})",
        ],
        lite=FIRST,
    )
    yield lite("a member by hand", "INSERT INTO member VALUES (<free>, 1, <done_act>)", FIRST)
    yield lite("a member changed", "UPDATE member SET act = <free_act> WHERE unit = <done>", ONLY)
    yield lite("members deleted", "DELETE FROM member", ONLY)
    yield Attack(
        "members deleted of what is archived",
        lambda s: [
            s.fill(
                "INSERT INTO archived SELECT id, tenant, version, born, '<done_digest>', 'f', 'd', 1 "
                "FROM unit WHERE id = <done>"
            ),
            s.fill("DELETE FROM member WHERE unit = <done>"),
        ],
        lite=ONLY,
    )
    yield Attack(
        "the count of acts at its end",
        lambda s: [
            "UPDATE sqlite_sequence SET seq = 9223372036854775806 WHERE name = 'act'",
            s.insert_act(
                {
                    name: value
                    for name, value in s.act_row(s.path("free", "claim/grant"), "free").items()
                    if name != "id"
                }
            ),
        ],
        lite=rule("position"),
    )


def own_triggers() -> Iterator[Attack]:
    """What a client adds fires inside the trigger of an act."""

    def inside(name: str, body: str, expected: Expected, event: str = "INSERT ON main.member") -> Attack:
        return Attack(
            name,
            lambda s: [s.fill(f"CREATE TEMP TRIGGER mine AFTER {event} BEGIN {body}; END"), *claim(s)],
            lite=expected,
        )

    yield inside("another unit moved meanwhile", "UPDATE unit SET state = 'succeeded' WHERE id = <spare>", FIRST)
    yield inside(
        "another unit moved by the same act",
        "UPDATE unit SET state = 'succeeded', version = version + 1, act = NEW.act WHERE id = <spare>",
        FOLD,
    )
    yield inside(
        "another unit made a member",
        "INSERT OR IGNORE INTO member VALUES (<spare>, 1, NEW.act)",
        Found("acts list the units that they moved"),
    )
    yield inside(
        "another lease meanwhile",
        "UPDATE lease SET secret = 'mine' WHERE id = <held_lease>",
        Found("leases are what acts have granted"),
    )
    yield inside(
        "the same unit once more",
        "UPDATE unit SET state = 'succeeded' WHERE id = NEW.unit",
        FIRST,
        "INSERT ON main.member",
    )
    yield Attack(
        "a shadow of the paths",
        lambda s: [
            "CREATE TEMP TABLE transition_path AS SELECT * FROM main.transition_path",
            s.fill(
                "UPDATE temp.transition_path SET target = 'succeeded', category = 'success', outcome = 1 "
                "WHERE id = <claim>"
            ),
            *claim(s, worker=s["worker"]),
        ],
        lite=Found("workers hold what they hold"),
    )
    yield Attack(
        "a shadow of the acts",
        lambda s: ["CREATE TEMP TABLE act AS SELECT * FROM main.act WHERE 1 = 0", *claim(s), "DROP TABLE temp.act"],
        lite=NOTHING,
    )
    yield Attack(
        "a shadow of the units",
        lambda s: [
            "CREATE TEMP TABLE unit AS SELECT * FROM main.unit",
            s.fill("UPDATE main.unit SET state = 'succeeded' WHERE id = <free>"),
        ],
        lite=FIRST,
    )


def pragmas() -> Iterator[Attack]:
    moved = "UPDATE unit SET state = 'succeeded', category = 'success', outcome = 'success', available_at = NULL WHERE id = <free>"
    for pragma in (
        "recursive_triggers = OFF",
        "foreign_keys = OFF",
        "trusted_schema = OFF",
        "legacy_alter_table = ON",
        "reverse_unordered_selects = ON",
        "count_changes = ON",
        "query_only = OFF",
    ):
        yield Attack(
            f"moved with {pragma}", lambda s, pragma=pragma: [as_client(f"PRAGMA {pragma}"), s.fill(moved)], lite=FIRST
        )
    yield Attack(
        "offered without checks",
        lambda s: [
            as_client("PRAGMA ignore_check_constraints = ON"),
            s.fill("UPDATE unit SET available_at = 1 WHERE id = <done>"),
        ],
        lite=Found("what is settled rests"),
    )
    yield Attack("moved without its guard", lambda s: ["DROP TRIGGER guard_unit", s.fill(moved)], lite=FOLD)
    yield Attack(
        "acts without their trigger",
        lambda s: ["DROP TRIGGER act_moves", *claim(s)],
        lite=Found("acts list the units that they moved"),
    )
    yield Attack(
        "history without its guard",
        lambda s: ["DROP TRIGGER guard_act", s.fill("UPDATE act SET actor = 'x' WHERE id = <done_act>")],
        lite=Found("acts are what their digests say"),
    )
    yield Attack(
        "an act taken out",
        lambda s: ["DROP TRIGGER guard_act_delete", s.fill("DELETE FROM act WHERE id = <done_act>")],
        lite=Found("seals are those of the acts below them"),
    )
    yield Attack(
        "an edge of one's own, a path and an act",
        lambda s: [
            "INSERT INTO edge VALUES ('job', 'queued', 'jump', 'succeeded', 'x', 'info', 0, 'success', 0)",
            s.list_path(jump()),
            s.act(jump(), "free"),
        ],
        lite=Found("every hop is listed"),
    )

    def count_wrong(connection: Connection) -> None:
        assert isinstance(connection.raw, sqlite3.Connection)
        connection.raw.create_function("changes", 0, lambda: 2)

    yield Attack(
        "a client that counts otherwise",
        lambda s: [
            count_wrong,
            s.act(
                s.path("run", "complete/complete"),
                "run",
                units=[s["run"], s["spare"]],
                before=[s["run_act"], s["spare_act"]],
                leases=[s["run_lease"], None],
            ),
        ],
        lite=Found("acts list the units that they moved"),
    )


def jump() -> Path:
    return unlisted("queued", "jump", "succeeded")


def only_sqlite() -> list[Attack]:
    return [one for kind in (replacing, sentinel, own_triggers, pragmas) for one in kind()]
