"""The floor: a bare driver loop that writes Interlock's rows to its schema, under its guard, and does nothing else."""

import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from bench.mark import ran
from bench.peers import interlock as product
from interlock.kernel.commands import Claim, Finish, LeaseRef, Outcome, Register, Start, Submit, Work
from interlock.kernel.rows import Act, Body, Unit, columns
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.postgres.bulk import Given, build_insert, build_update
from interlock.store.postgres.connection import ACT_BITS, PLANS, format_settings, format_tenants
from interlock.store.query import list_columns
from interlock.store.url import connect

PACKAGE = "interlock"
CONFIGURATION = "psycopg, one connection, batches of 500; same acts, guard, leases, digests and row-level security"
MEASURES = ["bulk", "drain"]
LEFT = product.LEFT
BATCH = 500
ACT, UNIT, BODY = columns(Act), columns(Unit), columns(Body)
BEGIN = "BEGIN; SELECT " + format_settings({**format_tenants([1]), **PLANS})
FIND = """SELECT id, act, lease_id FROM unit WHERE lane = %s AND available_at IS NOT NULL
ORDER BY priority DESC, available_at, id LIMIT %s FOR UPDATE SKIP LOCKED"""
LOCK = "SELECT id, act, lease_id FROM unit WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
FoundUnits = list[tuple[int, int, int | None]]  # units, the last act and the lease of each


def prepare(url: str) -> None:
    """The schema is there, and one job that Interlock itself has run: the pattern of all rows that the loop writes."""
    product.prepare(url)
    connection = connect(url)
    engine = make_engine(connection, shipped())
    rows: dict[str, Any] = {}
    [made] = engine.send(Submit(work=(Work(task="noop", input='{"sent":0.0}', queue="floor"),)))
    rows["born"] = pattern(connection, made.unit)
    worker = engine.send(Register(name="floor", incarnation="1", capacity=BATCH))
    [grant] = engine.send(Claim(worker=worker, key="1", nonce="floor" * 16, limit=1, queues=("floor",)))
    rows["claimed"] = pattern(connection, made.unit)
    held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
    engine.send(Start(held=(held,)))
    engine.send(Finish(outcomes=(Outcome(held=held),)))
    rows["ended"] = pattern(connection, made.unit)
    connection.script("CREATE TABLE floor_pattern AS SELECT " + "$$" + json.dumps(rows) + "$$::text AS rows")
    connection.script("GRANT SELECT ON floor_pattern TO clerk")
    connection.close()


def pattern(connection: Any, unit_id: int) -> dict[str, Any]:
    """The rows of a job, and all acts that have moved it."""
    [unit] = connection.rows(f"SELECT {list_columns(Unit)} FROM unit WHERE id = :one", {"one": unit_id})
    [body] = connection.rows(f"SELECT {list_columns(Body)} FROM body WHERE unit = :one", {"one": unit_id})
    acts = connection.rows(f"SELECT {', '.join(ACT)} FROM act WHERE :one = ANY (units) ORDER BY id", {"one": unit_id})
    return {
        "unit": dict(zip(UNIT, unit, strict=True)), "body": dict(zip(BODY, body, strict=True)),
        "acts": [dict(zip(ACT, act, strict=True)) for act in acts],
    }  # fmt: skip


class Loop:
    """One connection, and the rows of one job to repeat."""

    def __init__(self, url: str) -> None:
        self.raw = psycopg.connect(url.replace("postgres@", "clerk@"), autocommit=True)
        [(text,)] = self.raw.execute("SELECT rows FROM floor_pattern").fetchall()
        self.rows = json.loads(text)
        born, claimed = len(self.rows["born"]["acts"]), len(self.rows["claimed"]["acts"])
        acts = self.rows["ended"]["acts"]
        self.acts = {"born": acts[:born], "claimed": acts[born:claimed], "ended": acts[claimed:]}

    def insert(self, kind: Any, rows: list[tuple[Any, ...]]) -> None:
        given = Given(kind, columns(kind), rows)
        self.raw.execute(build_insert(given.shape), given.params)

    def change(self, kind: Any, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
        """The first of the names is the key."""
        given, (key, *rest) = Given(kind, names, rows), names
        self.raw.execute(build_update(given.shape, tuple(rest), key), given.params)

    def begin(self) -> int:
        """A transaction is open; answers the id of its first act."""
        self.raw.execute(BEGIN)
        [(transaction,)] = self.raw.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
        return int(transaction) << ACT_BITS

    def move(self, phase: str, act: int, units: FoundUnits, now: int) -> int:
        """The acts of a phase are written, which move these jobs; answers the last of them."""
        before, leases = [last for _, last, _ in units], [lease for _, _, lease in units]
        for shape in self.acts[phase]:
            act += 1
            changes = {
                "id": act, "at": now, "units": [unit_id for unit_id, _, _ in units], "before": before,
                "leases": leases if shape["leases"] else None,
                "secrets": shape["secrets"] and shape["secrets"] * len(units),
                "details": shape["details"] and shape["details"] * len(units),
                "until": shape["until"] and shape["until"] - shape["at"] + now,
            }  # fmt: skip
            self.insert(Act, [tuple({**shape, **changes}.values())])
            before = [act] * len(units)
        return act

    def submit(self, count: int) -> None:
        act = self.begin()
        sql = "UPDATE id_block SET next_id = next_id + %s WHERE name = 'unit' RETURNING next_id"
        [(end,)] = self.raw.execute(sql, (count,)).fetchall()
        now, units, bodies = time.time_ns() // 1_000, [], []
        born, ids = self.rows["born"], range(end - count, end)
        last = self.move("born", act, [(unit_id, 0, None) for unit_id in ids], now)
        for unit_id in ids:
            unit = {**born["unit"], "id": unit_id, "act": last, "born": last, "changed_at": now, "available_at": now}
            units.append(tuple(unit.values()))
            bodies.append(
                tuple({**born["body"], "unit": unit_id, "created_at": now, "correlation": str(unit_id)}.values())
            )
        self.insert(Unit, units)
        self.insert(Body, bodies)
        self.raw.execute("COMMIT")

    def drain(self) -> None:
        """Claims, runs and ends batches, one after the other, until nothing is left."""
        lane, end = self.rows["born"]["unit"]["lane"], self.rows["ended"]["body"]
        while True:
            act = self.begin()
            units = self.raw.execute(FIND, (lane, BATCH)).fetchall()
            if not units:
                self.raw.execute("COMMIT")
                return
            self.move("claimed", act, units, time.time_ns() // 1_000)
            self.raw.execute("COMMIT")
            for _ in units:
                ran()
            act = self.begin()
            units = self.raw.execute(LOCK, ([unit_id for unit_id, _, _ in units],)).fetchall()
            self.move("ended", act, units, time.time_ns() // 1_000)
            if (end["result"], end["error"]) != (None, None):
                self.change(
                    Body, ("unit", "result", "error"), [(unit_id, end["result"], end["error"]) for unit_id, *_ in units]
                )
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
