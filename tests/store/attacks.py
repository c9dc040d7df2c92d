"""Attacks on the record by raw SQL, and the scene in which they are made.

An attack says for each set-up what becomes of it: it is refused (by a rule of the guard, or by a right that is missing),
it has no effect, or it goes through and `audit` finds it by a law that it names.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.audit.laws import audit
from interlock.kernel.commands import Claim, Finish, LeaseRef, Outcome, Register, Start, Submit, Tick, Work
from interlock.kernel.paths import Path
from interlock.kernel.rows import Act, Unit, columns
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store import migrate
from interlock.store.acts import digest_act
from interlock.store.queries.snapshots import read_rows
from interlock.store.sqlite.connection import make_unborn
from tests.store.databases import Connection, declare
from tests.store.raw_acts import forced_path, newborn, path_of, unlisted

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
        free, spare, held, run, done, failed = (
            engine.send(Submit(work=(Work(task="mail", priority=place),)))[0].unit for place in (1, 2, 9, 8, 7, 6)
        )
        alien = engine.send(Submit(tenant=2, work=(Work(task="mail"),)))[0].unit
        worker = engine.send(Register(name="w", incarnation="1", capacity=10))
        grants = engine.send(Claim(worker=worker, limit=4, key="c", nonce="0123456789abcdef"))
        leases = {grant.unit: LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease) for grant in grants}
        engine.send(Start(held=(leases[run], leases[done], leases[failed])))
        engine.send(Finish(outcomes=(Outcome(held=leases[done], result='"ok"'),)))
        wrong = Outcome(held=leases[failed], ended="failure", error="no", error_class="PermanentError")
        engine.send(Finish(outcomes=(wrong,)))
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
        row = {**migrate.as_row(path), **changes}
        return f"INSERT INTO transition_path ({', '.join(row)}) VALUES ({', '.join(self.literal(v) for v in row.values())})"


def by_acts() -> Iterator[Attack]:
    """Every column that acts write, and those that are fixed at birth."""
    text, number = "'x'", "77"
    values = {
        "id": number,
        "tenant": "2",
        "lifecycle": "'task'",
        "parent": "<spare>",
        "born": number,
        "state": "'succeeded'",
        "category": "'success'",
        "outcome": "'success'",
        "version": "9",
        "act": "<spare_act>",
        "changed_at": number,
        "started_at": number,
        "attempt": "9",
        "fence": "9",
        "lease": text,
        "lease_id": "<held_lease>",
        "holder": "<worker>",
        "rests_in": text,
        "dead_at": number,
    }
    for column, value in values.items():
        yield attack(
            f"{column} of a unit by hand",
            f"UPDATE unit SET {column} = {value} WHERE id = <free>",
            app=DENIED,
            owner=rule("event-first"),
            lite=rule("event-first"),
        )


def bodies() -> Iterator[Attack]:
    """What a unit was given at its birth."""
    values = {
        "unit": "77",
        "tenant": "2",
        "task": "'x'",
        "created_at": "1",
        "input": "'{}'",
        "labels": "'{}'",
        "policy": "'{}'",
        "correlation": "'x'",
        "trace": "'x'",
        "mutex": "'x'",
        "limit_key": "'x'",
        "retry_of": "<free>",
        "rate_key": "'x'",
    }
    for column, value in values.items():
        yield attack(
            f"{column} of a body by hand",
            f"UPDATE body SET {column} = {value} WHERE unit = <late>",
            app=DENIED,
            owner=rule("identity"),
            lite=rule("identity"),
        )
    same = rule("identity")
    yield attack("key of a body", "UPDATE body SET key = 'l' WHERE unit = <late>", app=same, owner=same, lite=same)
    yield attack(
        "key of a body given up", "UPDATE body SET key = NULL WHERE unit = <late>", app=same, owner=same, lite=same
    )
    gone = rule("append-only")
    yield attack("a body deleted", "DELETE FROM body WHERE unit = <done>", app=DENIED, owner=gone, lite=gone)


def derived() -> Iterator[Attack]:
    """What programs write beside acts."""
    everywhere: list[tuple[str, str, Expected]] = [
        ("a held unit offered", "available_at = 1 WHERE id = <held>", CONSTRAINT),
        ("a settled unit offered", "available_at = 1 WHERE id = <done>", CONSTRAINT),
        ("a unit hidden from claims", "available_at = NULL WHERE id = <free>", Found("available means claimable")),
        ("a withheld unit offered", "parked_on = 'withheld' WHERE id = <free>", rule("withheld")),
        ("another tenant's lane", "lane = <alien_lane> WHERE id = <free>", rule("tenant")),
        ("a settled unit woken", "wake_at = 1 WHERE id = <done>", Found("what is settled rests")),
        ("children that are none", "total = 3 WHERE id = <free>", Found("parents count their children")),
        ("needs that are none", "unmet = 3 WHERE id = <free>", Found("available means claimable")),
        ("a cost that nobody told of", "cost = 3 WHERE id = <free>", Found("costs add up")),
    ]
    for name, sql, expected in everywhere:
        yield attack(name, f"UPDATE unit SET {sql}", app=expected, owner=expected, lite=expected)


Make = Callable[[Scene], Sequence[Step]]


def on_all(name: str, make: Make, expected: Expected, lite: Expected = "the same") -> Attack:
    return Attack(name, make, app=expected, owner=expected, lite=expected if lite == "the same" else lite)


def claim(scene: Scene, unit: str = "free", **changes: Any) -> list[Step]:
    return [scene.act(scene.path("free", "claim/grant"), unit, **changes)]


def complete(scene: Scene, **changes: Any) -> list[Step]:
    return [scene.act(scene.path("run", "complete/complete"), "run", **changes)]


def acts() -> Iterator[Attack]:
    """Acts by hand over units that are not where the act begins."""
    chain, shape = rule("chain"), rule("act")
    yield on_all("an act over no unit that there is", lambda s: claim(s, units=[NEW]), chain)
    yield on_all("an act over nobody", lambda s: claim(s, units=Raw("'{}'" if s.pg else "'[]'")), shape)
    yield on_all("an act over 1,001 units", lambda s: claim(s, units=list(range(1, 1002)), before=[1] * 1001), shape)
    yield on_all("another tenant's unit", lambda s: claim(s, "alien", tenant=1), chain)
    yield on_all("for another tenant", lambda s: claim(s, tenant=2), chain)
    yield on_all("another version", lambda s: claim(s, version=2), chain)
    yield on_all("another attempt", lambda s: claim(s, attempt=2), chain)
    yield on_all("another fence", lambda s: claim(s, fence=3), chain)
    yield on_all("another act before it", lambda s: claim(s, before=[s["spare_act"]]), chain)
    yield on_all("no act before it", lambda s: claim(s, before=[None]), chain, shape)
    yield on_all("fewer acts before it", lambda s: claim(s, before=[1, 2]), shape)
    yield on_all("under a lease that is none", lambda s: claim(s, leases=[NEW]), chain)
    yield on_all("under another's lease", lambda s: complete(s, leases=[s["held_lease"] + 1]), chain)
    yield on_all("without the lease that is live", lambda s: complete(s, leases=None), chain)
    yield on_all("with fewer leases", lambda s: complete(s, leases=[1, 2]), shape)
    yield on_all("an old fence", lambda s: complete(s, fence=0), chain)
    yield on_all(
        "twice the same unit",
        lambda s: claim(s, units=[s["free"]] * 2, before=[s["free_act"]] * 2, secrets=["a", "b"]),
        chain,
    )
    yield on_all(
        "two acts over one unit",
        lambda s: [*claim(s), *claim(s, number=2, before=[s["free_act"]], secrets=["other"])],
        chain,
        rule("event-first"),
    )
    yield on_all(
        "one of two is elsewhere", lambda s: [s.act(s.path("free", "claim/grant"), "free", "run", leases=None)], chain
    )
    yield on_all("a grant over a live lease", lambda s: claim(s, "held"), chain)
    yield on_all("a grant over a live lease that is left out", lambda s: claim(s, "held", leases=None), chain)
    yield on_all("a path from another state", lambda s: [s.act(s.path("run", "complete/complete"), "free")], chain)
    yield on_all(
        "a path of another lifecycle",
        lambda s: [
            s.act(
                path_of("agent_job", *AGENT_CLAIM),
                "free",
                worker=s["worker"],
                ttl=1,
                beat=1,
                until=s["now"],
                secrets=["h"],
            )
        ],
        chain,
    )
    yield on_all(
        "a path that nobody listed",
        lambda s: [s.act(unlisted("queued", "complete", "succeeded"), "free")],
        rule("listed-hop"),
    )
    yield on_all("a path with another digest", lambda s: claim(s, path_digest="0" * 64), rule("listed-hop"))
    yield on_all(
        "a forced path that no operator allowed", lambda s: [s.act(s.forced, "free", reason="so")], rule("forced")
    )
    yield on_all("a forced path for no reason", lambda s: [s.act(s.forced, "free")], shape)
    yield on_all("an act in the year 2255", lambda s: claim(s, at=FOR_EVER), rule("time"))
    yield on_all("an act before the last one", lambda s: claim(s, at=s.unit("free").changed_at - 1, until=1), chain)
    yield on_all(
        "the number of another's transaction",
        lambda s: claim(s, id=s["free_act"] + 5),
        rule("position"),
        rule("append-only"),
    )
    yield on_all("a number far ahead", lambda s: claim(s, id=2**62), rule("position"))
    yield on_all(
        "the number of an act that there is", lambda s: claim(s, id=s["free_act"]), CONSTRAINT, rule("append-only")
    )
    yield on_all(
        "a number that there is, and no conflict",
        lambda s: [
            s.insert_act(
                s.act_row(s.path("free", "claim/grant"), "free", id=s["free_act"]), rest="ON CONFLICT DO NOTHING"
            )
        ],
        NOTHING,
        rule("append-only"),
    )
    yield on_all(
        "a payload that is no JSON",
        lambda s: claim(s, payload='"cost" {'),
        Refused("invalid input syntax for type json"),
        shape,
    )
    yield on_all("a payload that is a list", lambda s: claim(s, payload="[]"), shape)
    yield on_all("available seven times", lambda s: claim(s, available=7), shape)
    yield on_all("a held unit left available", lambda s: claim(s, available=1), CONSTRAINT)
    yield on_all("a grant without a secret", lambda s: claim(s, secrets=None), shape)
    yield on_all("a grant of an empty secret", lambda s: claim(s, secrets=[None]), CONSTRAINT, shape)
    yield on_all("a grant to nobody", lambda s: claim(s, worker=None), shape)
    yield on_all("a grant for ever", lambda s: claim(s, until=FOR_EVER), shape)
    yield on_all(
        "a grant to who is no worker", lambda s: claim(s, worker=s["spare"]), Found("workers hold what they hold")
    )
    yield on_all(
        "an end that leaves the lease", lambda s: [s.act(s.path("run", "complete"), "run")], rule("chain", "listed-hop")
    )
    yield on_all(
        "a retreat that leaves the lease",
        lambda s: [s.act(s.path("run", "release"), "run")],
        rule("chain", "listed-hop"),
    )
    yield on_all("a claim of which no worker knows", claim, Found("workers hold what they hold"))
    yield on_all(
        "an effect before its cause",
        lambda s: [
            *claim(s, number=5),
            *[
                s.act(
                    path_of("job", "assigned", "GRANTED", "start/activate"),
                    "free",
                    number=3,
                    version=2,
                    fence=1,
                    before=[Raw(HERE.format(number=5)) if s.pg else s.last_act + 5],
                    leases=[Raw(HERE.format(number=5)) if s.pg else s.last_act + 5],
                )
            ],
        ],
        chain,
        rule("position"),
    )
    yield on_all(
        "an event by hand",
        lambda s: ["INSERT INTO event (unit, version) VALUES (1, 9)"],
        Refused("cannot insert into view"),
        Refused("it is a view"),
    )
    yield Attack(
        "a digest by hand",
        lambda s: claim(s, digest="0" * 64),
        app=Refused("non-DEFAULT"),
        owner=Refused("non-DEFAULT"),
        lite=Found("acts are what their digests say"),
    )
    yield Attack(
        "a path that is retired",
        lambda s: [s.fill("UPDATE transition_path SET retired = 1 WHERE id = <claim>"), *claim(s)],
        app=DENIED,
        owner=rule("listed-hop"),
        lite=rule("listed-hop"),
    )
    yield Attack(
        "a path of an edge that is retired",
        lambda s: ["UPDATE edge SET retired = 1 WHERE lifecycle = 'job' AND trigger = 'claim'", *claim(s)],
        app=DENIED,
        owner=rule("listed-hop"),
        lite=rule("listed-hop"),
    )
    yield Attack(
        "a path that comes back without its edge",
        lambda s: [
            "UPDATE edge SET retired = 1 WHERE lifecycle = 'job' AND trigger = 'claim'",
            s.fill("UPDATE transition_path SET retired = 0 WHERE id = <claim>"),
        ],
        app=DENIED,
        owner=rule("listed-hop"),
        lite=rule("listed-hop"),
    )


AGENT_CLAIM = ("queued", None, "claim/grant")


def births() -> Iterator[Attack]:
    first, chain = rule("event-first"), rule("chain", "event-first")
    yield on_all("a birth of nobody", lambda s: [s.birth(NEW)], first, chain)
    yield on_all("a birth of who lives", lambda s: [s.birth(s["free"])], first, chain)
    yield on_all(
        "a birth that follows another act",
        lambda s: s.make_born(s.birth(NEW, before=[s["free_act"]]), s.born(NEW)),
        rule("act"),
        chain,
    )
    yield on_all(
        "a birth under a lease",
        lambda s: s.make_born(s.birth(NEW, leases=[s["held_lease"]]), s.born(NEW)),
        rule("act"),
        chain,
    )
    yield on_all("a birth at version 3", lambda s: s.make_born(s.birth(NEW, version=3), s.born(NEW)), rule("act"))
    yield on_all("twice the same unit is born", lambda s: s.make_born(s.birth(NEW, NEW), s.born(NEW)), first, chain)
    yield on_all(
        "one unit, two births",
        lambda s: [*s.make_born(s.birth(NEW), s.born(NEW)), s.birth(NEW, number=2)],
        first,
        chain,
    )
    yield on_all("one of two is not born", lambda s: s.make_born(s.birth(NEW, NEW + 1), s.born(NEW)), first, chain)
    yield on_all(
        "a unit that its act does not list",
        lambda s: s.make_born(s.birth(NEW), s.born(NEW), s.born(NEW + 1)),
        first,
        Found("state is the fold of events"),
    )
    yield on_all("a unit without an act", lambda s: [s.born(NEW)], first, Found("state is the fold of events"))
    yield on_all("a unit of an old act", lambda s: [s.born(NEW, act=s["free_act"], born=s["free_act"])], first)
    yield on_all(
        "a unit that is born ended",
        lambda s: s.make_born(s.birth(NEW), s.born(NEW, state="succeeded", category="success", outcome="success")),
        first,
    )
    yield on_all(
        "a unit that is born held",
        lambda s: s.make_born(s.birth(NEW), s.born(NEW, lease="GRANTED", lease_id=s["held_lease"], holder=s["worker"])),
        first,
    )
    yield on_all(
        "a unit that is born with a past", lambda s: s.make_born(s.birth(NEW), s.born(NEW, attempt=3, fence=2)), first
    )
    yield on_all(
        "a unit of another lifecycle", lambda s: s.make_born(s.birth(NEW), s.born(NEW, lifecycle="task")), first, chain
    )
    yield on_all("a unit of another tenant", lambda s: s.make_born(s.birth(NEW), s.born(NEW, tenant=2)), first, chain)
    yield on_all(
        "a child of another tenant", lambda s: s.make_born(s.birth(NEW), s.born(NEW, parent=s["alien"])), rule("tenant")
    )
    yield on_all("a child of nobody", lambda s: s.make_born(s.birth(NEW), s.born(NEW, parent=NEW + 7)), rule("tenant"))
    yield on_all(
        "born into another's lane",
        lambda s: s.make_born(s.birth(NEW), s.born(NEW, lane=s["alien_lane"])),
        rule("tenant"),
    )
    yield on_all(
        "a unit without a body", lambda s: s.make_born(s.birth(NEW), s.born(NEW)), Found("every unit has its body")
    )
    yield on_all(
        "a body of nobody",
        lambda s: [
            "INSERT INTO body (unit, tenant, task, created_at, input, labels, policy, correlation, trace) "
            f"VALUES ({NEW}, 1, 'mail', 1, '{{}}', '{{}}', '{{}}', '', '')"
        ],
        rule("tenant"),
    )


def history() -> Iterator[Attack]:
    """What was written once."""
    only = rule("append-only")
    for name, sql in {
        "an act changed": "UPDATE act SET actor = 'x' WHERE id = <done_act>",
        "an act deleted": "DELETE FROM act WHERE id = <done_act>",
        "all acts deleted": "DELETE FROM act",
        "a unit deleted": "DELETE FROM unit WHERE id = <done>",
        "what an act tells changed": "UPDATE act_detail SET payload = '{}'",
        "what an act tells deleted": "DELETE FROM act_detail",
        "an act said to be gone": "INSERT INTO act_gone VALUES (<done_act>, 1, 'x')",
        "an act gone that never was": "INSERT INTO act_gone VALUES (77, 1, '<done_digest>')",
        "an edge renamed": "UPDATE edge SET name = 'x' WHERE trigger = 'claim'",
        "an edge of another severity": "UPDATE edge SET severity = 'error'",
        "an edge that leads elsewhere": "UPDATE edge SET target = 'succeeded' WHERE trigger = 'claim'",
        "an edge deleted": "DELETE FROM edge",
        "a path changed": "UPDATE transition_path SET target = 'succeeded' WHERE id = <claim>",
        "a path that opens attempts": "UPDATE transition_path SET opens = 5 WHERE id = <claim>",
        "a path told otherwise": "UPDATE transition_path SET told = '[]' WHERE id = <claim>",
        "a path deleted": "DELETE FROM transition_path WHERE id = <claim>",
        "a hop renamed": "UPDATE path_hop SET name = 'x' WHERE path = <claim>",
        "a hop deleted": "DELETE FROM path_hop WHERE path = <claim>",
        "a hop added": "INSERT INTO path_hop VALUES (<claim>, 9, 'x', 'a', 'b', 'x', 'info', 0, 0, NULL, NULL)",
    }.items():
        yield attack(name, sql, app=DENIED, owner=only, lite=only)
    yield attack(
        "what an act never told",
        "INSERT INTO act_detail VALUES (<free_act>, <free>, 1, '{}')",
        app=only,
        owner=only,
        lite=only,
    )
    yield attack(
        "an act gone that is there",
        "INSERT INTO act_gone VALUES (<done_act>, 1, '<done_digest>')",
        app=DENIED,
        owner=only,
        lite=Found("seals are those of the acts below them"),
    )
    yield attack("a tenant deleted", "DELETE FROM tenant WHERE id = 2", app=DENIED, owner=only, lite=only)
    same = rule("identity")
    yield attack("a tenant's id changed", "UPDATE tenant SET id = 3 WHERE id = 2", app=same, owner=same, lite=same)


def seals() -> Iterator[Attack]:
    no, found = rule("seal"), Found("seals are those of the acts below them")
    columns = "INSERT INTO seal (tenant, number, first_act, last_act, acts, root, at) VALUES "
    root = "'" + "0" * 64 + "'"
    one = "(CASE WHEN <unsealed> = <unsealed_last> THEN 1 ELSE 2 END)"
    for name, sql, expected in (
        ("a seal with a false root", f"(1, <sealed> + 1, <unsealed>, <unsealed_last>, {one}, {root}, 1)", found),
        ("a seal that skips a number", f"(1, <sealed> + 2, <unsealed>, <unsealed_last>, {one}, {root}, 1)", no),
        ("a seal that skips an act", f"(1, <sealed> + 1, <unsealed> + 1, <unsealed_last> + 1, 1, {root}, 1)", no),
        ("a seal over what is sealed", f"(1, <sealed> + 1, <sealed_act>, <unsealed_last>, 2, {root}, 1)", no),
        ("a seal up to no act", f"(1, <sealed> + 1, <unsealed>, 4611686018427387904, 2, {root}, 1)", no),
        ("a seal of nothing", f"(1, <sealed> + 1, <unsealed>, <unsealed>, 0, {root}, 1)", no),
        ("a seal over another tenant's acts", f"(2, 2, <unsealed>, <unsealed_last>, {one}, {root}, 1)", no),
    ):
        yield attack(name, columns + sql, app=expected, owner=expected, lite=expected)
    yield attack("a seal changed", f"UPDATE seal SET root = {root}", app=DENIED, owner=no, lite=no)
    yield attack("a seal deleted", "DELETE FROM seal", app=DENIED, owner=no, lite=no)


def leases() -> Iterator[Attack]:
    no = rule("lease")
    held = "WHERE unit = <held> AND id = <held_lease>"
    for name, sql in {
        "a lease by hand": "INSERT INTO lease VALUES (<free_act>, <free>, 1, <worker>, 'h', 1, 1, 1, NULL)",
        "a second lease": "INSERT INTO lease VALUES (<free_act>, <held>, 1, <worker>, 'h', 1, 1, 1, NULL)",
        "a lease shortened": f"UPDATE lease SET until = 1 {held}",
        "a lease for ever": f"UPDATE lease SET until = 9000000000000000 {held}",
        "another secret": f"UPDATE lease SET secret = 'mine' {held}",
        "another worker": f"UPDATE lease SET worker = <spare> {held}",
        "other terms": f"UPDATE lease SET ttl = 9000000000 {held}",
        "a lease ended by hand": f"UPDATE lease SET ended_at = 1 {held}",
        "a lease brought back": "UPDATE lease SET ended_at = NULL WHERE unit = <done>",
        "a lease that is over renewed": "UPDATE lease SET until = until + 1 WHERE unit = <done>",
        "another unit's lease": f"UPDATE lease SET unit = <free> {held}",
    }.items():
        yield attack(name, sql, app=DENIED, owner=no, lite=no)
    yield attack("a live lease deleted", f"DELETE FROM lease {held}", app=no, owner=no, lite=no)


def operators() -> Iterator[Attack]:
    no = rule("forced")
    columns = "INSERT INTO forced_move (unit, version, tenant, target, actor, reason, at) VALUES "
    for name, sql in {
        "a forced move for no reason": "(<free>, 2, 1, 'succeeded', 'a', '', 1)",
        "a forced move of a version that was": "(<free>, 1, 1, 'succeeded', 'a', 'so', 1)",
        "a forced move to nowhere": "(<free>, 2, 1, 'nowhere', 'a', 'so', 1)",
        "a forced move of another tenant's unit": "(<alien>, 2, 1, 'succeeded', 'a', 'so', 1)",
    }.items():
        yield attack(name, columns + sql, app=DENIED, owner=no, lite=no)
    archive = "INSERT INTO archived (unit, tenant, version, born, head, file, digest, at) SELECT id, tenant, "
    no = rule("archived")
    for name, sql in {
        "a live unit archived": "version, born, '<done_digest>', 'f', 'd', 1 FROM unit WHERE id = <run>",
        "archived with another head": "version, born, 'x', 'f', 'd', 1 FROM unit WHERE id = <done>",
        "archived at another version": "version - 1, born, '<done_digest>', 'f', 'd', 1 FROM unit WHERE id = <done>",
        "archived with another birth": "version, born - 1, '<done_digest>', 'f', 'd', 1 FROM unit WHERE id = <done>",
    }.items():
        yield attack(name, archive + sql, app=DENIED, owner=no, lite=no)


def paths() -> Iterator[Attack]:
    """Paths by hand: only hops that are listed, one after the other, with what becomes of the unit."""

    def listing(name: str, path: Path | Callable[[], Path], expected: str, lite: str = "") -> Attack:
        made = path if isinstance(path, Path) else path()
        return Attack(
            name, lambda s: [s.list_path(made)], app=DENIED, owner=rule(expected), lite=rule(lite or expected)
        )

    job = path_of("job", "running", "ACTIVE", "complete/complete")
    claimed, started = path_of("job", "queued", None, "claim/grant"), path_of("job", "assigned", "GRANTED", "start")
    change = msgspec.structs.replace
    yield listing("a path with an unlisted hop", unlisted("queued", "complete", "succeeded"), "listed-hop")
    yield listing("a path with a renamed hop", change(job, hops=(job.hops[0]._replace(name="x"),)), "listed-hop")
    yield listing("a path of another category", change(job, category="ready", outcome=0), "path")
    yield listing("a path with another outcome", change(job, outcome=0), "path")
    yield listing("a path that starts anyhow", change(job, started=9), "path")
    yield listing("a path of no hop", change(job, hops=()), "path")
    yield listing("a path with a gap", change(job, hops=(claimed.hops[0], job.hops[0])), "path")
    yield listing(
        "a path that does not count its fence", change(claimed, hops=(claimed.hops[0]._replace(fence=0),)), "path"
    )
    yield listing("a path that opens an attempt", change(job, hops=(job.hops[0]._replace(attempt=1),)), "listed-hop")
    yield listing(
        "a path with an unlisted hop of the lease",
        change(job, hops=(job.hops[0]._replace(lease_from="COMPLETED", lease_to="ACTIVE"),)),
        "listed-lease-hop",
    )
    yield listing(
        "a path whose lease jumps",
        change(
            started,
            category="active",
            hops=(claimed.hops[0], started.hops[0]._replace(lease_from="ACTIVE", lease_to="REVOKED")),
        ),
        "path",
    )
    yield listing("a forced path of two hops", change(job, forced=True, hops=job.hops * 2), "path")
    yield listing("a forced path to nowhere", unlisted("queued", "force", "nowhere", forced=True), "path")
    yield Attack(
        "a path of another digest",
        lambda s: [s.list_path(path_of("job", "queued", None, "claim/grant"), id=NEW)],
        app=DENIED,
        owner=rule("path"),
        lite=Found("paths are what their digests say"),
    )


def everywhere() -> list[Attack]:
    """Those that can be made on either database."""
    kinds = (by_acts, bodies, derived, acts, births, history, seals, leases, operators, paths)
    return [one for kind in kinds for one in kind()]
