"""Tables filled in bulk with units that nobody can claim, and a watch on what statements read of them."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations, islice
from typing import Any

from interlock.store import postgres, sqlite
from interlock.store.driver import dialect
from interlock.store.lanes import NUMBERS
from tests.store.databases import Connection

LATER = 4_000_000_000_000_000
ENGINE_IDS = 100_000_000  # the engine's own units come after those that are filled in
TAGS = "abcdefghijklm"  # what a worker can do: enough for 8,192 different demands
BLOCK = 50  # lanes that it can serve lie in blocks between blocks of lanes that it cannot
EVENT = (
    "INSERT INTO event (unit, version, tenant, lifecycle, trigger, target, attempt, fence, name, severity, at, actor, "
    "reason, correlation, trace, payload, hash) SELECT :first + n, 1, :tenant, 'job', 'submit', 'queued', 1, 0, 'job_queued', "
    "'info', n, 'test', '', '', '', '{}', 'h' FROM number"
)
UNIT = (
    "INSERT INTO unit (id, tenant, lane, lifecycle, state, category, version, head, changed_at, attempt, fence, "
    "priority, failures, losses, snoozes, decides, total, succeeded, lost, decided, deciders, won, gates, blocked, begun, "
    "unmet, available_at, wake_at, due_at) SELECT :first + n, :tenant, {lane}, 'job', 'queued', 'ready', 1, 'h', 1, 1, "
    "0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, {rest} FROM number"
)
BODY = (
    "INSERT INTO body (unit, tenant, task, key, created_at, input, labels, policy, correlation, trace) "
    "SELECT :first + n, :tenant, 'filled', 'k' || CAST(:first + n AS TEXT), 1, 'null', '{}', '{}', '', '' FROM number"
)
NUMBER = "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count) "


def fill(connection: Connection, count: int, lanes: int, tenant: int = 1, due_at: int = LATER) -> None:
    """There are `count` units of three kinds that cannot be claimed, all older and more urgent than any other."""
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
    unfit = f"{base + BLOCK} + n % {lanes // 2} / {BLOCK} * {2 * BLOCK} + n % {BLOCK}"
    kinds = {"1, NULL, NULL, NULL": str(base), f"0, NULL, {due_at}, {due_at}": str(base), "0, 1, NULL, NULL": unfit}
    for number, (rest, lane) in enumerate(kinds.items()):
        given = {"first": (tenant * 10 + number) * 1_000_000, "count": count // 3, "tenant": tenant}
        for sql in (EVENT, UNIT.format(lane=lane, rest=rest), BODY):
            used = {name: value for name, value in given.items() if f":{name}" in NUMBER + sql}
            connection.rows(NUMBER + sql, used)
    connection.rows("UPDATE id_block SET next_id = :next", {"next": ENGINE_IDS})
    connection.commit()


class Read:
    """What one statement did: how many rows of each table it read, and by which indexes. SQLite does not count."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.rows: dict[str, float] = {}
        self.indexes: set[str] = set()
        self.scans: list[str] = []
        self.sorts: list[str] = []

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
        if "Sort" in node["Node Type"]:
            self.sorts.append(node["Node Type"])
        for below in node.get("Plans", ()):
            self.of_postgres(below)

    def of_sqlite(self, lines: Sequence[str]) -> None:
        for line in lines:
            if found := re.search(r"USING (?:COVERING )?INDEX (\w+)", line):
                self.indexes.add(found[1])
            if line.startswith("SCAN") and not re.match(
                r"SCAN (head|run|json_each|\d+ CONSTANT ROWS?|CONSTANT ROW)\b", line
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
            if isinstance(connection, sqlite.Connection):
                reads[-1].of_sqlite([row[3] for row in asked("EXPLAIN QUERY PLAN " + sql, params)])
            else:
                ((plan,),) = asked("EXPLAIN (ANALYZE, FORMAT JSON) " + sql, params)
                reads[-1].of_postgres((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
                if asked("SHOW plan_cache_mode") == [("force_generic_plan",)]:
                    reads[-1].of_postgres(unvalued(connection, sql))
        return asked(sql, params)

    connection.rows = explained  # type: ignore[method-assign]
    try:
        yield reads
    finally:
        del connection.rows


def unvalued(connection: Connection, sql: str) -> Mapping[str, Any]:
    """The plan that stands for all values; it tells of no rows."""
    assert isinstance(connection, postgres.Connection)
    names: dict[str, str] = {}
    spelled = re.sub(r"%\((\w+)\)s", lambda found: names.setdefault(found[1], f"${len(names) + 1}"), dialect(sql))
    with connection.raw.cursor() as cursor:
        plan: Any = cursor.execute(f"EXPLAIN (GENERIC_PLAN, FORMAT JSON) {spelled}", prepare=False).fetchall()[0][0]
    found: Mapping[str, Any] = plan[0]["Plan"]
    return found


@contextmanager
def stepped(connection: sqlite.Connection) -> Iterator[list[int]]:
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
def counted(connection: postgres.Connection) -> Iterator[list[int]]:
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
