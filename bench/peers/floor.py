"""The floor: a bare driver loop that writes Interlock's rows to its schema, under its guard, and does nothing else."""

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import msgspec
import psycopg

from bench.mark import ran
from bench.peers import interlock as product
from interlock.engine.door import Engine
from interlock.kernel.commands import Claim, Finish, Held, Outcome, Register, Start, Submit, Work
from interlock.kernel.rows import Body, Event, Unit
from interlock.lifecycles import shipped
from interlock.store.columns import Given, insert_text, update_text
from interlock.store.postgres import PLANS, declared, settings
from interlock.store.session import listed
from interlock.store.url import connect

PACKAGE = "interlock"
CONFIGURATION = "psycopg, one connection, batches of 500; same rows, guard, events, hash chain and row-level security"
MEASURES = ["bulk", "drain"]
LEFT = product.LEFT
BATCH = 500
EVENT, UNIT, BODY = (kind.__struct_fields__ for kind in (Event, Unit, Body))
AT, HASH, UNIT_OF, PAYLOAD, CORRELATION = (
    EVENT.index(name) for name in ("at", "hash", "unit", "payload", "correlation")
)
# What a job's claim and its end write into its row.
CLAIMED = (
    "state", "category", "version", "head", "changed_at", "available_at", "wake_at", "fence", "lease", "lease_hash",
    "holder", "lease_until", "lease_ttl", "lease_beat",
)  # fmt: skip
ENDED = ("state", "category", "outcome", "version", "head", "changed_at", "started_at", "wake_at", "lease", "holder")
BEGIN = "BEGIN; SELECT " + settings({**declared([1]), **PLANS})
FIND = """SELECT id, head FROM unit WHERE lane = %s AND available_at IS NOT NULL
ORDER BY priority DESC, available_at, id LIMIT %s FOR UPDATE SKIP LOCKED"""
LOCK = "SELECT id, head FROM unit WHERE id = ANY(%s) ORDER BY id FOR UPDATE"


def prepare(url: str) -> None:
    """The schema is there, and one job that Interlock itself has run: the pattern of all rows that the loop writes."""
    product.prepare(url)
    session = connect(url)
    engine = Engine(session, shipped())
    rows: dict[str, Any] = {}
    [made] = engine.send(Submit(work=(Work(task="noop", input='{"sent":0.0}', queue="floor"),)))
    rows["born"] = pattern(session, made.unit)
    worker = engine.send(Register(name="floor", incarnation="1", capacity=BATCH))
    [grant] = engine.send(Claim(worker=worker, key="1", nonce="floor" * 16, limit=1, queues=("floor",)))
    rows["claimed"] = pattern(session, made.unit)
    held = Held(unit=grant.unit, fence=grant.fence, lease=grant.lease)
    engine.send(Start(held=(held,)))
    engine.send(Finish(outcomes=(Outcome(held=held),)))
    rows["ended"] = pattern(session, made.unit)
    session.script("CREATE TABLE floor_pattern AS SELECT " + "$$" + json.dumps(rows) + "$$::text AS rows")
    session.script("GRANT SELECT ON floor_pattern TO clerk")
    session.close()


def pattern(session: Any, one: int) -> dict[str, Any]:
    [unit] = session.rows(f"SELECT {listed(Unit)} FROM unit WHERE id = :one", {"one": one})
    [body] = session.rows(f"SELECT {listed(Body)} FROM body WHERE unit = :one", {"one": one})
    events = session.rows(f"SELECT {listed(Event)} FROM event WHERE unit = :one ORDER BY version", {"one": one})
    return {"unit": dict(zip(UNIT, unit, strict=True)), "body": dict(zip(BODY, body, strict=True)), "events": events}


class Loop:
    """One connection, and the rows of one job to repeat."""

    def __init__(self, url: str) -> None:
        self.raw = psycopg.connect(url.replace("postgres@", "clerk@"), autocommit=True)
        [(text,)] = self.raw.execute("SELECT rows FROM floor_pattern").fetchall()
        self.rows = json.loads(text)
        born, claimed = len(self.rows["born"]["events"]), len(self.rows["claimed"]["events"])
        events = self.rows["ended"]["events"]
        self.events = {"born": events[:born], "claimed": events[born:claimed], "ended": events[claimed:]}

    def chained(self, phase: str, one: int, head: str, now: int, out: list[Any]) -> str:
        """The events of one job's phase, chained to what was before; answers the last hash."""
        for pattern in self.events[phase]:
            event = list(pattern)
            event[UNIT_OF], event[AT], event[CORRELATION] = one, now, str(one)
            fields = event[:-1]
            fields[-1] = sha256(event[PAYLOAD].encode()).hexdigest()
            event[HASH] = head = sha256(head.encode() + msgspec.json.encode(fields)).hexdigest()
            out.append(tuple(event))
        return head

    def insert(self, kind: Any, rows: list[tuple[Any, ...]]) -> None:
        given = Given(kind, kind.__struct_fields__, rows)
        self.raw.execute(insert_text(given.shape), given.params)

    def change(self, kind: Any, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        """The first of the names is the key."""
        given, (key, *rest) = Given(kind, names, rows), names
        self.raw.execute(update_text(given.shape, tuple(rest), key), given.params)

    def move(self, phase: str, names: tuple[str, ...], found: list[tuple[int, str]]) -> None:
        """The events of a phase are written, and what it changes in the rows of these jobs."""
        now, events, units = time.time_ns() // 1_000, [], []
        fixed = {name: self.rows[phase]["unit"][name] for name in names}
        for one, head in found:
            last = self.chained(phase, one, head, now, events)
            units.append((one, *{**fixed, "head": last, "changed_at": now}.values()))
        self.insert(Event, events)
        self.change(Unit, ("id", *names), units)

    def submit(self, count: int) -> None:
        self.raw.execute(BEGIN)
        sql = "UPDATE id_block SET next_id = next_id + %s WHERE name = 'unit' RETURNING next_id"
        [(end,)] = self.raw.execute(sql, (count,)).fetchall()
        now, events, units, bodies = time.time_ns() // 1_000, [], [], []
        born = self.rows["born"]
        for one in range(end - count, end):
            head = self.chained("born", one, "", now, events)
            unit = {**born["unit"], "id": one, "head": head, "changed_at": now, "available_at": now}
            units.append(tuple(unit.values()))
            bodies.append(tuple({**born["body"], "unit": one, "created_at": now, "correlation": str(one)}.values()))
        self.insert(Event, events)
        self.insert(Unit, units)
        self.insert(Body, bodies)
        self.raw.execute("COMMIT")

    def drain(self) -> None:
        """Claims, runs and ends batches, one after the other, until nothing is left."""
        lane, end = self.rows["born"]["unit"]["lane"], self.rows["ended"]["body"]
        while True:
            self.raw.execute(BEGIN)
            found = self.raw.execute(FIND, (lane, BATCH)).fetchall()
            if not found:
                self.raw.execute("COMMIT")
                return
            self.move("claimed", CLAIMED, found)
            self.raw.execute("COMMIT")
            for _ in found:
                ran()
            self.raw.execute(BEGIN)
            found = self.raw.execute(LOCK, ([one for one, _ in found],)).fetchall()
            self.move("ended", ENDED, found)
            self.change(Body, ("unit", "result", "error"), [(one, end["result"], end["error"]) for one, _ in found])
            self.raw.execute("COMMIT")


class Client(Loop):
    async def bulk(self, count: int) -> None:
        for start in range(0, count, BATCH):
            self.submit(min(BATCH, count - start))


@asynccontextmanager
async def client(url: str) -> AsyncIterator[Client]:
    made = Client(url)
    try:
        yield made
    finally:
        made.raw.close()


def work(url: str) -> None:
    loop = Loop(url)
    loop.drain()
    loop.raw.close()
    while os.environ.get("BENCH_URL"):  # others may still be at it; whoever measures ends it
        time.sleep(1)
