"""Declare that a database was restored from a backup or copied, before it is used.

What happened after the backup is gone, and nobody in the database knows of it: workers hold leases that it never
granted, or has never heard the end of; cursors and anchors name events that are no more. On PostgreSQL another server
counts transactions anew besides, so that new acts would come before old ones.

`begin_again` therefore raises the generation, with which the id of every act begins, and gives the store a new epoch,
which cursors and anchors carry. The leases are then voided by acts, through the engine.
"""

import secrets
from typing import NamedTuple

import msgspec

from interlock.kernel.errors import Denied, InterlockError
from interlock.kernel.rows import Lease
from interlock.store.catalog import lock_migration, may_insert
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_tenant_ids, snapshot

GENERATION_MAX = 2**9 - 1  # an act's id has 63 bits: 36 for the transaction and 18 for the act within it
# The act after the last one that this server could have given an id to.
NEXT = (
    "SELECT ((SELECT value::bigint FROM about WHERE name = 'generation') << 36 "
    "| pg_snapshot_xmax(pg_current_snapshot())::text::bigint) << 18"
)
OTHERS = (
    "SELECT pid::text, coalesce(usename, '?'), coalesce(application_name, '') FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL ORDER BY pid"
)
NAMED_MAX = 5
LIVE = "SELECT id, unit, tenant, worker, secret, until, ttl, beat FROM live_lease ORDER BY tenant, unit"
REASON = "the database was restored"  # why leases are void
RUN = "its owner runs `interlock db restored --db URL`, while no program is connected"


class Before(NamedTuple):
    """An epoch that a restore has ended."""

    epoch: str
    generation: int
    ended_at: int  # microseconds


class Begun(NamedTuple):
    """What a restore has begun."""

    generation: int
    epoch: str
    leases: list[Lease]  # those that are live, and nobody may use any more


KNOWN = "SELECT name, value FROM about WHERE name IN ('generation', 'epoch', 'before')"


def refuse_counted_anew(connection: Connection) -> None:
    """Raises InterlockError if new acts would come before old ones: this server has not made what it holds."""
    if is_counted_anew(connection):
        raise InterlockError(
            "this database was made by another server, which had counted more transactions than this one: new events "
            f"would come before old ones. If it was restored from a backup, {RUN}"
        )


def is_counted_anew(connection: Connection) -> bool:
    """Whether the database holds acts that its server cannot have written."""
    if connection.name != "postgres":
        return False  # a file counts its acts itself
    with snapshot(connection):
        last = connection.rows("SELECT max(id) FROM act")[0][0]
        return last is not None and last >= connection.rows(NEXT)[0][0]


def refuse_others(connection: Connection) -> None:
    """Raises InterlockError if somebody else is connected to the same database of a server."""
    others = connection.rows(OTHERS) if connection.name == "postgres" else []
    if others:
        some = ", ".join(f"{pid} ({' '.join(filter(None, who))})" for pid, *who in others[:NAMED_MAX])
        more = f" and {len(others) - NAMED_MAX} more" if len(others) > NAMED_MAX else ""
        raise InterlockError(
            f"others are connected to this database: {some}{more}. Stop workers, servers and poolers first: what they "
            "hold is void, and what they write before this has ended comes before what was restored. If they are no "
            "programs of Interlock, say --while-connected"
        )


def begin_again(connection: Connection, now: int) -> Begun:
    """The store is a new one that goes on where the backup ended: another generation, another epoch.

    Raises:
        Denied: the connection's role may not.
    """
    if not may_insert(connection, "about"):
        raise Denied("only the owner of the tables can say that a database was restored: connect as its owner")
    connection.begin()
    try:
        lock_migration(connection)
        connection.declare(read_tenant_ids(connection))
        known: dict[str, str] = dict(connection.rows(KNOWN))
        was, generation, epoch = known["epoch"], int(known["generation"]) + 1, secrets.token_hex(16)
        if generation > GENERATION_MAX:
            raise InterlockError(f"this database was restored {GENERATION_MAX} times, which is as often as it can be")
        before = msgspec.json.decode(known.get("before", "[]"), type=list[Before])
        before.append(Before(was, generation - 1, now))
        for name, value in (
            ("generation", str(generation)), ("epoch", epoch), ("before", msgspec.json.encode(before).decode()),
        ):  # fmt: skip
            connection.rows("DELETE FROM about WHERE name = :name", {"name": name})
            connection.rows("INSERT INTO about (name, value) VALUES (:name, :value)", {"name": name, "value": value})
        # What was counted is in the same backup as what it was counted of.
        connection.rows("UPDATE tallied SET epoch = :epoch WHERE epoch = :was", {"epoch": epoch, "was": was})
        leases = [Lease(*row) for row in connection.rows(LIVE)]
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    return Begun(generation, epoch, leases)


def read_ended_epochs(connection: Connection) -> list[Before]:
    """The epochs that this store had before its restores, the oldest first."""
    rows = connection.rows("SELECT value FROM about WHERE name = 'before'")
    return msgspec.json.decode(rows[0][0], type=list[Before]) if rows else []


def find_ended_epoch(connection: Connection, epoch: str) -> Before | None:
    """When this store had that epoch, if it ever had."""
    return next((before for before in read_ended_epochs(connection) if before.epoch == epoch), None)
