"""Queries of one worker: the worker, what it holds, and which leases it lost."""

from typing import NamedTuple

from interlock.kernel.rows import WorkerRow
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_rows

LOOKED_AT = 10_000  # ended leases of a tenant, the last ones, among which those of a worker are looked for
HELD = (
    "SELECT unit.id, unit.lifecycle, unit.state FROM live_lease AS held JOIN unit ON unit.id = held.unit "
    "WHERE held.tenant = :tenant AND held.worker = :worker ORDER BY held.unit LIMIT :limit"
)
ENDED = (
    "SELECT unit, ended_at FROM (SELECT unit, worker, ended_at FROM lease WHERE tenant = :tenant "
    "AND ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT :looked_at) AS ended WHERE worker = :worker "
    "ORDER BY ended_at DESC LIMIT :limit"
)
END = (
    "SELECT event.lifecycle, event.source, event.trigger, event.lease_to, event.actor, event.reason, unit.state "
    "FROM event JOIN unit ON unit.id = event.unit WHERE event.unit = :unit AND event.tenant = :tenant "
    "AND event.at = :at AND event.lease_from IS NOT NULL AND event.lease_to <> event.lease_from "
    "ORDER BY event.version DESC LIMIT 1"
)


class EndedLease(NamedTuple):
    """How a lease of a worker ended, and where its unit stands now."""

    unit: int
    ended_at: int
    lifecycle: str
    source: str  # the state of the unit in which it ended, and by which trigger
    trigger: str
    lease: str  # its last state
    actor: str  # who ended it
    reason: str
    state: str  # of the unit, now


def read_worker(connection: Connection, tenant: int, unit: int) -> WorkerRow | None:
    """A worker by its unit; None if it is none."""
    rows = read_rows(connection, WorkerRow, "WHERE unit = :unit AND tenant = :tenant", unit=unit, tenant=tenant)
    return rows[0] if rows else None


def find_worker_named(connection: Connection, tenant: int, name: str) -> int | None:
    """The unit of the worker that has registered last under a name; None if none has."""
    if "\0" in name:
        return None
    sql = "SELECT max(unit) FROM worker WHERE tenant = :tenant AND name = :name"
    return connection.rows(sql, {"tenant": tenant, "name": name})[0][0]  # type: ignore[no-any-return]


def list_held(connection: Connection, tenant: int, worker: int, limit: int) -> list[tuple[int, str, str]]:
    """What a worker holds: units, each with its lifecycle and its state."""
    rows = connection.rows(HELD, {"tenant": tenant, "worker": worker, "limit": limit})
    return [(unit, lifecycle, state) for unit, lifecycle, state in rows]


def list_ended_leases(connection: Connection, tenant: int, worker: int, limit: int) -> list[EndedLease]:
    """The leases of a worker that have ended within a day, the last one first."""
    given = {"tenant": tenant, "worker": worker, "limit": limit, "looked_at": LOOKED_AT}
    return [
        EndedLease(unit, ended_at, *row)
        for unit, ended_at in connection.rows(ENDED, given)
        for row in connection.rows(END, {"unit": unit, "tenant": tenant, "at": ended_at})
    ]
