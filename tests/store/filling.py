"""Tables filled in bulk with units that nobody can claim, and a watch on what statements read of them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import combinations, count, islice
from typing import Any

from interlock.kernel.rows import Act, Unit
from interlock.store.acts import UNITS_MAX
from interlock.store.cache import NUMBERS
from interlock.store.connection import Opened, Rows
from interlock.store.postgres import PostgresConnection
from interlock.store.postgres.driver import translate_sql
from interlock.store.query import BoundQuery
from interlock.store.sqlite import SqliteConnection
from tests.store.databases import Connection
from tests.store.raw_acts import path_of

LATER = 4_000_000_000_000_000
ENGINE_IDS = 100_000_000  # the engine's own units come after those that are filled in
TAGS = "abcdefghijklm"  # what a worker can do: enough for 8,192 different demands
BLOCK = 50  # lanes that it can serve lie in blocks between blocks of lanes that it cannot
BIRTH = path_of("job", "", None, "submit")
BODY = (
    "INSERT INTO body (unit, tenant, task, key, created_at, input, labels, policy, correlation, trace) "
    "SELECT :first + n, :tenant, 'filled', 'k' || CAST(:first + n AS TEXT), 1, 'null', '{}', '{}', "
    "'c' || CAST(:first + n AS TEXT), '' FROM number"
)
# What is told of each unit of a small act apart.
DETAIL = (
    "INSERT INTO act_detail (act, unit, tenant, payload) SELECT born, id, tenant, '{{}}' FROM unit "
    "WHERE id BETWEEN {first} AND {last}"
)
NOTHING_APART = sha256(b"{}").hexdigest()
FEW = 10  # units of a small act
NUMBER = "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count) "


def fill(connection: Connection, many: int, lanes: int, tenant: int = 1, due_at: int = LATER) -> None:
    """There are `many` units of three kinds that cannot be claimed, all older and more urgent than any other."""
    base = tenant * NUMBERS + 1
    demands = [subset for size in range(len(TAGS) + 1) for subset in combinations(TAGS, size)]
    rows = []
    for place, subset in enumerate(islice(demands, lanes // 2)):
        one = base + place // BLOCK * 2 * BLOCK + place % BLOCK
        able = {"id": one, "tenant": tenant, "queue": "default", "capabilities": ",".join(subset)}
        rows += [able, {**able, "id": one + BLOCK, "capabilities": ",".join((*subset, "x"))}]
    connection.begin([tenant])
    connection.many(
        "INSERT INTO lane (id, tenant, queue, capabilities) VALUES (:id, :tenant, :queue, :capabilities)", rows
    )
    numbers = count(1)
    rests = ({"unmet": 1}, {"wake_at": due_at, "due_at": due_at}, {"available_at": 1})
    for kind, rest in enumerate(rests):
        first, size = (tenant * 10 + kind) * 1_000_000, FEW if kind == 0 else UNITS_MAX
        unfit = "available_at" in rest
        units = [
            Unit(
                id=first + n, tenant=tenant, lane=base + (unfit_place(n, lanes) if unfit else 0), lifecycle="job",
                priority=9, **rest,
            )
            for n in range(1, many // 3 + 1)
        ]  # fmt: skip
        for start in range(0, len(units), UNITS_MAX):
            some = units[start : start + UNITS_MAX]
            groups = [some[place : place + size] for place in range(0, len(some), size)]
            connection.write_acts([birth_of(connection.act_id(next(numbers)), group) for group in groups], some)
        connection.rows(NUMBER + BODY, {"first": first, "count": many // 3, "tenant": tenant})
        if kind == 0:
            connection.rows(DETAIL.format(first=units[0].id if units else 0, last=first + many // 3))
    connection.rows("UPDATE id_block SET next_id = :next", {"next": ENGINE_IDS})
    connection.commit()


def fill_beside(connection: Connection, many: int) -> None:
    """There are many needs, names of children that are yet to come, and blobs: a planner knows nothing of empty tables."""
    units = 10_000_000  # the first kind of those that are filled in
    given = {"count": many, "first": units, "later": units + many, "at": LATER}
    connection.begin([1])
    connection.rows(
        f"{NUMBER}INSERT INTO need (unit, needs, tenant) SELECT :first + n, :later + n, 1 FROM number",
        given,
    )
    connection.rows(
        f"{NUMBER}INSERT INTO place (parent, name, unit, tenant) "
        "SELECT :first + n, 'filled', :later + 900000000 + n, 1 FROM number",
        given,
    )
    connection.rows(
        f"{NUMBER}INSERT INTO blob (tenant, digest, length, made_at, look_at) "
        "SELECT 1, 'd' || CAST(n AS TEXT), n, n, :at + n FROM number",
        given,
    )
    connection.commit()


def unfit_place(n: int, lanes: int) -> int:
    """Which of the lanes that the worker cannot serve is that of the n-th unit."""
    return BLOCK + n % (lanes // 2) // BLOCK * 2 * BLOCK + n % BLOCK


def birth_of(act: int, units: list[Unit]) -> Act:
    """The act that bears all these units, which are queued then."""
    at = units[0].id % 1_000_000
    for unit in units:
        unit.state, unit.category, unit.version = BIRTH.target, str(BIRTH.category), len(BIRTH.hops)
        unit.act, unit.born, unit.changed_at = act, act, at
        unit.available_at = at if unit.available_at is not None else None
    return Act(
        id=act, tenant=units[0].tenant, path=BIRTH.id, path_digest=BIRTH.digest, version=0, attempt=1, fence=0, at=at,
        actor="test", reason="", cause=None, payload="{}", available=int(units[0].available_at is not None),
        worker=None, ttl=None, beat=None, until=None, units=[unit.id for unit in units], before=[0] * len(units),
        details=[NOTHING_APART] * len(units) if len(units) <= FEW else None,
    )  # fmt: skip


class Read:
    """What one statement did: how many rows of each table it read, and by which indexes. SQLite does not count."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.rows: dict[str, float] = {}
        self.indexes: set[str] = set()
        self.scans: list[str] = []
        self.sorts: list[str] = []
        self.whole: list[str] = []  # indexes that were read from one end to the other, on PostgreSQL

    def of_postgres(self, node: Mapping[str, Any]) -> None:
        if "Relation Name" in node:
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            table = node["Relation Name"]
            seen = (node.get("Actual Rows", 0) + removed) * node.get("Actual Loops", 0)
            self.rows[table] = self.rows.get(table, 0) + seen
            if "Index Name" not in node and node["Node Type"] != "ModifyTable":
                self.scans.append(f"{node['Node Type']} {table}")
        if "Index Name" in node:
            self.indexes.add(node["Index Name"])
            if "Index Cond" not in node:
                self.whole.append(node["Index Name"])
        if "Sort" in node["Node Type"]:
            self.sorts.append(node["Node Type"])
        for below in node.get("Plans", ()):
            self.of_postgres(below)

    def of_sqlite(self, lines: Sequence[str]) -> None:
        for line in lines:
            if found := re.search(r"USING (?:COVERING )?INDEX (\w+)", line):
                self.indexes.add(found[1])
            if line.startswith("SCAN") and not re.match(
                r"SCAN (head|run|held|live_lease|json_each|\d+ CONSTANT ROWS?|CONSTANT ROW)\b", line
            ):
                self.scans.append(line)
            if "TEMP B-TREE" in line:
                self.sorts.append(line)


@contextmanager
def watched(connection: Connection) -> Iterator[list[Read]]:
    """Every select that is sent meanwhile is explained in the transaction in which it runs, just before it runs."""
    reads: list[Read] = []
    asked = connection.rows

    def explained(sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        if re.match(r"\s*(SELECT|WITH)\b", sql) and "set_config" not in sql:
            reads.append(Read(sql))
            if isinstance(connection, SqliteConnection):
                reads[-1].of_sqlite([row[3] for row in asked("EXPLAIN QUERY PLAN " + sql, params)])
            else:
                ((plan,),) = asked("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, params)
                reads[-1].of_postgres((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
                if asked("SHOW plan_cache_mode") == [("force_generic_plan",)]:
                    reads[-1].of_postgres(unvalued(connection, sql))
        return asked(sql, params)

    def fetch_together(queries: Sequence[BoundQuery[Any]], now: int) -> list[Rows]:
        return [explained(bound.query.sql, bound.params(now)) for bound in queries]

    def begin(tenants: Sequence[int] = (), ahead: Sequence[BoundQuery[Any]] = ()) -> Opened:
        now = begun(tenants).now
        return Opened(now, fetch_together(ahead, now))

    begun = connection.begin
    connection.rows = explained  # type: ignore[method-assign]
    connection.fetch_together = fetch_together  # type: ignore[method-assign]
    connection.begin = begin  # type: ignore[method-assign]
    try:
        yield reads
    finally:
        del connection.rows, connection.fetch_together, connection.begin


def unvalued(connection: Connection, sql: str) -> Mapping[str, Any]:
    """The plan that stands for all values; it tells of no rows."""
    assert isinstance(connection, PostgresConnection)
    names: dict[str, str] = {}
    spelled = re.sub(r"%\((\w+)\)s", lambda found: names.setdefault(found[1], f"${len(names) + 1}"), translate_sql(sql))
    with connection.raw.psycopg.cursor() as cursor:
        plan: Any = cursor.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {spelled}", prepare=False).fetchall()[0][0]
    found: Mapping[str, Any] = plan[0]["Plan"]
    return found


@contextmanager
def stepped(connection: SqliteConnection) -> Iterator[list[int]]:
    """Counts what SQLite's machine does meanwhile, in hundreds of steps."""
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    connection.raw.set_progress_handler(count, 100)
    try:
        yield steps
    finally:
        connection.raw.set_progress_handler(None, 0)


@contextmanager
def counted(connection: PostgresConnection) -> Iterator[list[int]]:
    """Counts the rows of `unit` that each transaction reads by whatever plan, prepared ones included."""
    reads: list[int] = []
    seen = [0]
    commit = connection.commit

    def counting() -> None:
        query = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'unit'"
        now, before = connection.rows(query)[0][0], seen.pop()
        reads.append(now - before if now >= before else now)  # the server counts anew from time to time
        seen.append(now)
        commit()

    connection.commit = counting  # type: ignore[method-assign]
    try:
        yield reads
    finally:
        del connection.commit
