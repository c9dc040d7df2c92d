"""The scene in which the record is attacked by raw SQL, and the words in which attacks are told.

An attack says for each set-up what becomes of it: it is refused (by a rule of the guard, or by a right that is missing),
it has no effect, or it goes through and `audit` finds it by a law that it names.
"""

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.audit.laws import audit
from interlock.kernel.commands import (
    Cancel,
    Claim,
    Finish,
    LeaseRef,
    Outcome,
    Register,
    Release,
    Start,
    Submit,
    Tick,
    Work,
)
from interlock.kernel.paths import Path
from interlock.kernel.rows import Act, Unit, columns
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store import migrate
from interlock.store.acts import digest_act
from interlock.store.queries.snapshots import read_rows
from tests.store.databases import Connection, declare
from tests.store.raw_acts import forced_path, make_unborn, newborn, path_of

TABLES = (
    "unit",
    "body",
    "act",
    "act_gone",
    "act_detail",
    "lease",
    "seal",
    "edge",
    "transition_path",
    "path_hop",
    "archived",
    "forced_move",
    "tenant",
)
HERE = (
    "(((SELECT value::bigint FROM about WHERE name = 'generation') << 36 | pg_current_xact_id()::text::bigint) << 18 "
    "| {number})"
)
NEW = 900_000_000  # the ids of units that an attack makes
FOR_EVER = 9_000_000_000_000_000


class Refused(NamedTuple):
    """The database says no, in these words."""

    words: str


class Found(NamedTuple):
    """It goes through, and audits find it by this law."""

    law: str


NOTHING = "nothing"  # it goes through, and no row has changed
Expected = Refused | Found | str | None  # None: it cannot be made in this set-up
DENIED = Refused(r"permission denied|must be owner|must be able to|must be superuser")
CONSTRAINT = Refused(r"violates|constraint failed|UNIQUE|duplicate key")


def rule(*names: str) -> Refused:
    return Refused(rf"interlock guard \[({'|'.join(names)})\]")


class Raw(str):
    """A value that is an expression of SQL."""

    __slots__ = ()


Step = str | Callable[[Connection], object]  # a statement, or what a client does with its connection


class Attack(NamedTuple):
    """How to get past the record, and what becomes of it: for the program, the owner, and any client of SQLite."""

    name: str
    make: Callable[["Scene"], Sequence[Step]]
    app: Expected = None
    owner: Expected = None
    lite: Expected = None
    alone: Expected = None  # the owner who is no superuser, where it differs from one who is


def attack(name: str, sql: str, **expected: Expected) -> Attack:
    """One statement, with the names of the scene in it."""
    return Attack(name, lambda scene: [scene.fill(sql)], **expected)


class Scene:
    """A database with a unit in every place that attacks speak of; most acts are sealed, the last ones are not."""

    def __init__(self, connection: Connection, owner: Connection) -> None:
        self.lifecycles = shipped()
        self.pg = connection.many_writers
        engine = make_engine(connection, self.lifecycles)
        free, spare, held, run, done, failed, taken = (
            engine.send(Submit(work=(Work(task="mail", priority=place),)))[0].unit for place in (1, 2, 9, 8, 7, 6, 5)
        )
        alien = engine.send(Submit(tenant=2, work=(Work(task="mail"),)))[0].unit
        worker = engine.send(Register(name="w", incarnation="1", capacity=10))
        grants = engine.send(Claim(worker=worker, limit=5, key="c", nonce="0123456789abcdef"))
        leases = {grant.unit: LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease) for grant in grants}
        engine.send(Start(held=(leases[run], leases[done], leases[failed])))
        engine.send(Finish(outcomes=(Outcome(held=leases[done], result='"ok"'),)))
        wrong = Outcome(held=leases[failed], ended="failure", error="no", error_class="PermanentError")
        engine.send(Finish(outcomes=(wrong,)))
        engine.send(Release(held=(leases[taken],)))
        engine.send(Cancel(unit=taken))
        for tenant in (1, 2):
            engine.send(Tick(tenant=tenant))
        late = engine.send(Submit(work=(Work(task="late", key="k", correlation="order 7"),)))[0].unit
        self.names: dict[str, Any] = {
            "free": free,
            "spare": spare,
            "held": held,
            "run": run,
            "done": done,
            "failed": failed,
            "taken": taken,
            "alien": alien,
            "worker": worker,
            "late": late,
            "new": NEW,
            "now": time.time_ns() // 1_000,
        }
        self.declare(connection)
        self.units = {unit.id: unit for unit in read_rows(connection, Unit, "ORDER BY id")}
        assert self.units[failed].outcome in ("failure", "dead"), self.units[failed]
        for name in ("free", "spare", "held", "run", "done", "failed", "alien", "late"):
            unit = self.units[self.names[name]]
            self.names |= {f"{name}_act": unit.act, f"{name}_lease": unit.lease_id}
        self.names["lane"], self.names["alien_lane"] = self.units[free].lane, self.units[alien].lane
        rows = connection.rows("SELECT id, digest FROM act WHERE id = :id", {"id": self.units[done].act})
        self.names["done_digest"] = rows[0][1]
        self.names["claim"] = self.path("free", "claim/grant").id
        (number, last), *_ = connection.rows("SELECT number, last_act FROM seal WHERE tenant = 1 ORDER BY number DESC")
        after = connection.rows("SELECT id FROM act WHERE tenant = 1 AND id > :last ORDER BY id", {"last": last})
        self.names |= {"sealed": number, "sealed_act": last, "unsealed": after[0][0], "unsealed_last": after[-1][0]}
        self.forced = forced_path(connection, free, "succeeded")
        migrate.make_path(owner, self.forced)
        self.last_act = connection.rows("SELECT max(id) FROM act")[0][0]
        assert self.broken(connection) == []
        self.rows = self.fingerprint(connection)

    def declare(self, connection: Connection) -> None:
        declare(connection, 1, 2)

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def unit(self, name: str) -> Unit:
        return self.units[self.names[name]]

    def fill(self, sql: str) -> str:
        return re.sub(r"<(\w+)>", lambda name: str(self.names[name[1]]), sql)

    def path(self, unit: str, *steps: str) -> Path:
        row = self.unit(unit)
        return path_of(row.lifecycle, row.state, row.lease, *steps)

    def fingerprint(self, connection: Connection) -> list[str]:
        """All rows of the record, each table by a digest."""
        found = []
        for table in (*TABLES, *(() if self.pg else ("member", "moving"))):
            rows = sorted(map(str, connection.rows(f"SELECT * FROM {table}")))
            found.append(f"{table} {len(rows)} {hashlib.sha256(''.join(rows).encode()).hexdigest()}")
        return found

    def broken(self, connection: Connection) -> list[str]:
        return [one.law for one in audit(connection, self.lifecycles, rebuild=True)]

    # Statements.

    def literal(self, value: Any, kind: str = "bigint") -> str:
        if value is None:
            return "NULL"
        if isinstance(value, Raw | int):
            return str(value)
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        if not self.pg:
            return self.literal(msgspec.json.encode(value).decode())
        return f"ARRAY[{', '.join(map(self.literal, value))}]::{kind}[]"

    def act_row(self, path: Path, *units: str, number: int = 1, **changes: Any) -> dict[str, Any]:
        """An act that the guard takes, but for what is changed in it."""
        rows = [self.unit(unit) for unit in units]
        leases = [row.lease_id for row in rows]
        first = rows[0]
        row: dict[str, Any] = {
            "id": Raw(HERE.format(number=number)) if self.pg else self.last_act + number,
            "tenant": first.tenant,
            "path": path.id,
            "path_digest": path.digest,
            "version": first.version,
            "attempt": first.attempt,
            "fence": first.fence,
            "at": self.names["now"],
            "actor": "attacker",
            "reason": "",
            "cause": None,
            "payload": "{}",
            "available": 0,
            "worker": None,
            "ttl": None,
            "beat": None,
            "until": None,
            "units": [row.id for row in rows],
            "before": [row.act for row in rows],
            "leases": leases if any(leases) else None,
            "secrets": None,
            "details": None,
        }
        if path.grants and not path.lease_ends:
            row |= {
                "worker": self.names["worker"],
                "ttl": 30_000_000,
                "beat": 5_000_000,
                "until": row["at"] + 30_000_000,
                "secrets": ["hash"] * len(rows),
            }
        return row | changes

    def insert_act(self, row: dict[str, Any], verb: str = "INSERT", rest: str = "") -> str:
        if not self.pg and "digest" not in row:
            try:
                row = {**row, "digest": digest_act(Act(**row))}
            except (TypeError, AttributeError):  # what has no digest is sent with a false one
                row = {**row, "digest": ""}
        kinds = dict.fromkeys(("secrets", "details"), "text")
        values = ", ".join(self.literal(value, kinds.get(name, "bigint")) for name, value in row.items())
        return f"{verb} INTO act ({', '.join(row)}) VALUES ({values}) {rest}"

    def act(self, path: Path, *units: str, **changes: Any) -> str:
        return self.insert_act(self.act_row(path, *units, **changes))

    def birth(self, *ids: int, lifecycle: str = "job", by: str = "submit", number: int = 1, **changes: Any) -> str:
        """The act that bears units of these ids."""
        given = {
            "tenant": 1,
            "version": 0,
            "attempt": 1,
            "fence": 0,
            "units": list(ids),
            "before": [0] * len(ids),
            "leases": None,
        }
        return self.act(path_of(lifecycle, "", None, by), "free", number=number, **{**given, **changes})

    def born(self, one: int, number: int = 1, **changes: Any) -> str:
        """The row of a unit that is born by that act; on SQLite it comes before it, and is nothing yet."""
        path = path_of("job", "", None, "submit")
        unit = newborn(path, one, 1, 0, self.names["now"])
        row = msgspec.structs.asdict(unit if self.pg else make_unborn(unit))
        names = [name for name in row if name in columns(Unit)]
        if self.pg:
            row |= {"act": Raw(HERE.format(number=number)), "born": Raw(HERE.format(number=number))}
        row |= changes
        return f"INSERT INTO unit ({', '.join(names)}) VALUES ({', '.join(self.literal(row[name]) for name in names)})"

    def make_born(self, act: str, *units: str) -> list[str]:
        """A birth in the order of the database: the act first on PostgreSQL, the units first on SQLite."""
        return [act, *units] if self.pg else [*units, act]

    def list_path(self, path: Path, **changes: Any) -> str:
        row = {**migrate.make_path_row(path), **changes}
        return f"INSERT INTO transition_path ({', '.join(row)}) VALUES ({', '.join(self.literal(v) for v in row.values())})"


Make = Callable[[Scene], Sequence[Step]]


def on_all(name: str, make: Make, expected: Expected, lite: Expected = "the same") -> Attack:
    return Attack(name, make, app=expected, owner=expected, lite=expected if lite == "the same" else lite)


def claim(scene: Scene, unit: str = "free", **changes: Any) -> list[Step]:
    return [scene.act(scene.path("free", "claim/grant"), unit, **changes)]


def complete(scene: Scene, **changes: Any) -> list[Step]:
    return [scene.act(scene.path("run", "complete/complete"), "run", **changes)]
