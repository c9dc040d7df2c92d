"""Acts and units written by raw SQL, each column as a test likes: what the product's own code would never send.

A step is spelled as `trigger`, or `trigger/hop+hop` with what the lease does meanwhile; `self/expire` is a hop of the
lease alone. Whatever is not given is as the unit's row says, so that the act is one that the guard takes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import msgspec
from psycopg.pq import TransactionStatus

from interlock.kernel.paths import BORN, LISTED, Path, PathHop, Step, compose, make_forced_path
from interlock.kernel.rows import Act, Unit
from interlock.kernel.rows import columns as columns_of
from interlock.lifecycles import shipped
from interlock.store import migrate
from interlock.store.acts import digest_act
from interlock.store.postgres import PostgresConnection
from interlock.store.sqlite import SqliteConnection
from interlock.store.sqlite.connection import UNBORN
from tests.store.databases import Connection, insert, swap

LIFECYCLES = shipped()
LEASES = LIFECYCLES["lease"]
NUMBERS = count(1)  # of acts within a transaction of PostgreSQL; no two need to begin anew
LISTS = {"units": "bigint[]", "before": "bigint[]", "leases": "bigint[]", "secrets": "text[]", "details": "text[]"}
NEXT = {
    "sqlite": "SELECT coalesce(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = 'act'",
    "postgres": "SELECT (value::bigint << 36 | pg_current_xact_id()::text::bigint) << 18 | :number "
    "FROM about WHERE name = 'generation'",
}
PLACE = ("tenant", "lifecycle", "state", "lease", "lease_id", "version", "attempt", "fence", "act", "changed_at")
TERMS = {"worker": 7, "ttl": 1_000_000, "beat": 100_000, "until": 1_000_000}


@contextmanager
def transaction(database: Connection) -> Iterator[None]:
    """One transaction, which may be open already."""
    if is_open(database):
        yield
        return
    database.script("BEGIN;")
    try:
        yield
        database.script("COMMIT;")
    except BaseException:
        if is_open(database):
            database.script("ROLLBACK;")
        raise


def is_open(database: Connection) -> bool:
    if isinstance(database, SqliteConnection):
        return database.in_transaction
    return database.raw.info.transaction_status != TransactionStatus.IDLE


@contextmanager
def owner_of(database: Connection, server: str) -> Iterator[Connection]:
    """Whoever may write every table: on PostgreSQL the owner, on SQLite everybody."""
    if isinstance(database, SqliteConnection):
        yield database
        return
    owner = PostgresConnection(swap(server, database.raw.info.dbname))
    try:
        yield owner
    finally:
        owner.close()


def parse(step: str) -> Step:
    trigger, _, lease = step.partition("/")
    return Step(trigger, tuple(lease.split("+")) if lease else ())


def path_of(lifecycle: str, source: str, lease: str | None, *steps: str) -> Path:
    """The listed path of these steps. Raises Refused if a step is not listed."""
    return compose(LIFECYCLES[lifecycle], LEASES, source, lease, tuple(map(parse, steps)))


def unlisted(source: str, trigger: str, target: str, **changes: Any) -> Path:
    """A path of one hop of a job that says whatever a test likes; else it is spelled as a listed one."""
    lifecycle = LIFECYCLES[changes.pop("lifecycle", "job")]
    category = lifecycle.category(target) if target in lifecycle.states else "ready"
    outcome = 2 if category == "closed" else int(category in ("success", "failure", "cancelled", "dead"))
    told = {"category": category, "outcome": outcome, "started": 0, "forced": False}
    told |= {name: changes.pop(name) for name in (*told,) if name in changes}
    hop = {"name": "x", "severity": "info", "attempt": 0, "fence": 0, **changes}
    return Path(lifecycle.name, (PathHop(trigger, source, target, **hop),), **told)


def list_path(database: Connection, path: Path) -> None:
    """As only the owner may."""
    insert(database, "transition_path", **migrate.make_path_row(path))


def place_of(database: Connection, unit: int) -> dict[str, Any]:
    return places_of(database, [unit])[0]


def places_of(database: Connection, units: Sequence[int]) -> list[dict[str, Any]]:
    """Where units are; nowhere if there is no such unit, or none that this role sees."""
    rows = database.rows(f"SELECT id, {', '.join(PLACE)} FROM unit WHERE id {{ids}}", {"ids": sorted(set(units))})
    found = {row[0]: row[1:] for row in rows}
    nowhere = (1, "job", BORN, None, None, 0, 1, 0, 0, 0)
    return [dict(zip(PLACE, found.get(unit, nowhere), strict=True)) for unit in units]


def write_act(database: Connection, path: Path, *units: int, **changes: Any) -> int:
    """An act takes units along a path; answers its id."""
    with transaction(database):
        places = places_of(database, units)
        first = places[0]
        leases = [place["lease_id"] for place in places]
        row: dict[str, Any] = {
            "id": next_act(database), "tenant": first["tenant"], "path": path.id, "path_digest": path.digest,
            "version": first["version"], "attempt": first["attempt"], "fence": first["fence"],
            "at": max(place["changed_at"] for place in places) + 1, "actor": "test", "reason": "", "cause": None,
            "payload": "{}", "available": 0, "worker": None, "ttl": None, "beat": None, "until": None,
            "units": list(units), "before": [place["act"] for place in places],
            "leases": leases if any(leases) else None, "secrets": None, "details": None,
        }  # fmt: skip
        if path.grants and not path.lease_ends:
            hire(database, row["tenant"])
            until = row["at"] + TERMS["ttl"]
            row |= {**TERMS, "until": until, "secrets": [f"hash of {unit}" for unit in units]}
        row |= changes
        insert_act(database, row)
    return int(row["id"])


def hire(database: Connection, tenant: int) -> None:
    """There is a worker to whom leases are granted."""
    given = {"unit": TERMS["worker"], "tenant": tenant}
    if not database.rows("SELECT 1 FROM worker WHERE unit = :unit AND tenant = :tenant", given):
        row = {"name": "h", "incarnation": str(tenant), "capabilities": "", "capacity": 9, "holding": 0, "draining": 0}
        insert(database, "worker", **given, **row, seen_at=0)


def next_act(database: Connection) -> int:
    given = {"number": next(NUMBERS)} if database.many_writers else {}
    return int(database.rows(NEXT[database.name], given)[0][0])


def encode_list(value: Any) -> Any:
    """SQLite keeps lists as JSON."""
    return msgspec.json.encode(value).decode() if isinstance(value, list) else value


def make_unborn(unit: Unit) -> Unit:
    """A row that no act has made anything of yet."""
    return msgspec.structs.replace(unit, **UNBORN)


def insert_act(database: Connection, row: dict[str, Any], verb: str = "INSERT") -> None:
    """A row of `act` as it is; on SQLite its digest fits, unless it is given."""
    if database.many_writers:
        sent = {name: as_array(value) if name in LISTS else value for name, value in row.items()}
        values = [f"(:{name})::{LISTS[name]}" if name in LISTS else f":{name}" for name in row]
    else:
        row = {"digest": digest_act(Act(**row)), **row}
        sent = {name: encode_list(value) for name, value in row.items()}
        values = [f":{name}" for name in row]
    database.rows(f"{verb} INTO act ({', '.join(row)}) VALUES ({', '.join(values)})", sent)


def as_array(values: Sequence[Any] | None) -> str | None:
    if values is None:
        return None
    return "{" + ",".join("NULL" if value is None else f'"{value}"' for value in values) + "}"


def bear(
    database: Connection, *units: int, lifecycle: str = "job", by: str = "submit", row: dict[str, Any] | None = None,
    with_body: bool = True, **changes: Any,
) -> int:  # fmt: skip
    """Units are born by an act, with these columns besides; answers its id."""
    path, tenant = path_of(lifecycle, BORN, None, by), changes.setdefault("tenant", 1)
    at = changes.setdefault("at", 1)
    with transaction(database):
        changes.setdefault("id", next_act(database))
        born = [newborn(path, unit, tenant, changes["id"], at) for unit in units]
        if not database.many_writers:
            write_units(database, map(make_unborn, born), row)
        write_act(
            database, path, *units, **{"version": 0, "attempt": 1, "fence": 0, "before": [0] * len(units)} | changes
        )
        if database.many_writers:
            write_units(database, born, row)
        for unit in units if with_body else ():
            write_body(database, unit, tenant=tenant, key=None)
    return int(changes["id"])


def newborn(path: Path, unit: int, tenant: int, act: int, at: int) -> Unit:
    """The row of a unit as the act of its birth leaves it."""
    category = path.category or ""
    return Unit(
        id=unit, tenant=tenant, lane=0, lifecycle=path.lifecycle, state=path.target, category=category,
        outcome=category if path.outcome == 1 else None, version=len(path.hops), act=act, born=act, changed_at=at,
        started_at=at if path.started in (1, 3) else None, attempt=1 + path.opens,
        rests_in=path.target if category in LISTED else None, dead_at=at if category == "dead" else None,
    )  # fmt: skip


def write_units(
    database: Connection, units: Iterator[Unit] | Sequence[Unit], row: dict[str, Any] | None = None
) -> None:
    for unit in units:
        insert(database, "unit", **as_columns(unit) | (row or {}))


def as_columns(unit: Unit) -> dict[str, Any]:
    names = columns_of(Unit)
    return dict(zip(names, msgspec.structs.astuple(unit)[: len(names)], strict=True))


def write_body(database: Connection, unit: int, **changes: Any) -> None:
    row = {"unit": unit, "tenant": 1, "task": "mail", "key": "k", "created_at": 0, "input": "{}", "labels": "{}",
           "policy": "{}", "correlation": "", "trace": ""}  # fmt: skip
    insert(database, "body", **{**row, **changes})


def move(database: Connection, unit: int, *steps: str, **changes: Any) -> int:
    """A unit takes the listed path of these steps from where it is; answers the act."""
    place = place_of(database, unit)
    path = path_of(place["lifecycle"], place["state"], place["lease"], *steps)
    return write_act(database, path, unit, **changes)


def finish(database: Connection, *units: int) -> None:
    """Jobs that are queued are claimed, started and completed."""
    for unit in units:
        for step in ("claim/grant", "start/activate", "complete/complete"):
            move(database, unit, step)


def forced_path(database: Connection, unit: int, target: str) -> Path:
    place = place_of(database, unit)
    lifecycle = LIFECYCLES[place["lifecycle"]]
    if target in lifecycle.states:
        return make_forced_path(
            lifecycle, LEASES, place["state"], place["lease"] if place["lease_id"] else None, target
        )
    return unlisted(
        place["state"], "force", target, lifecycle=lifecycle.name, name="forced", severity="warning", forced=True
    )


def archive(database: Connection, unit: int, **changes: Any) -> None:
    """A unit that has ended is archived, in word only: no file is written."""
    sql = "SELECT unit.version, born, act.digest FROM unit JOIN act ON act.id = unit.act WHERE unit.id = :unit"
    version, born, head = database.rows(sql, {"unit": unit})[0]
    row = {"unit": unit, "tenant": 1, "version": version, "born": born, "head": head, "file": "a.jsonl", "digest": "d"}
    insert(database, "archived", **{**row, "at": 9, **changes})


def forget(database: Connection, unit: int) -> None:
    """A unit that is archived leaves the database, with the acts that tell of nobody else."""
    with transaction(database):
        for table, column in (("lease", "unit"), ("body", "unit"), ("unit", "id")):
            database.rows(f"DELETE FROM {table} WHERE {column} = :unit", {"unit": unit})
        alone = "id IN (SELECT act FROM journal_unit WHERE unit = :unit) AND NOT EXISTS (SELECT 1 FROM journal_unit "
        alone += "JOIN unit ON unit.id = journal_unit.unit WHERE journal_unit.act = act.id)"
        gone = [one for (one,) in database.rows(f"SELECT id FROM act WHERE {alone}", {"unit": unit})]
        copied = "INSERT INTO act_gone SELECT id, tenant, digest FROM act WHERE id {ids}"
        database.rows(copied, {"ids": gone})
        database.rows("DELETE FROM act WHERE id {ids}", {"ids": gone})
        if not database.many_writers:
            left = "act NOT IN (SELECT id FROM act)"
            database.rows(f"DELETE FROM member WHERE unit = :unit AND {left}", {"unit": unit})


def history(database: Connection, unit: int = 1) -> list[tuple[Any, ...]]:
    return database.rows(
        "SELECT version, source, target FROM event WHERE unit = :unit ORDER BY version", {"unit": unit}
    )
