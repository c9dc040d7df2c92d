"""Renewals: leases are made longer, though many units share a row.

Units that were granted together share the row of their lease. A renewal that names only some of them parts them: those
that it names, or those that it does not, get rows of their own, whichever are fewer. So a unit that nobody names keeps
the end that it had. PostgreSQL does this in its function `renew_leases`, because no ordinary role may write leases;
SQLite has no functions, and its triggers check each step.
"""

from collections.abc import Sequence

from interlock.kernel.rows import Unit
from interlock.store.connection import Connection

RENEW_TOGETHER = "SELECT renew_leases(:leases, :units, :ends)"
RENEW = "UPDATE lease SET until = :until WHERE id = :id AND unit = :unit AND until < :until"
# Rows that units share: until when, and how many units have no row of their own.
SHARED = """
SELECT id, until, units - (
    SELECT count(*) FROM lease AS own WHERE own.id = lease.id AND own.unit > 0 AND own.ended_at IS NULL)
FROM lease WHERE unit = 0 AND id {ids}
"""
APART = "SELECT unit FROM lease WHERE unit {ids} AND ended_at IS NULL"
TOGETHER = """
SELECT unit FROM live_lease WHERE id = :id
AND NOT EXISTS (SELECT 1 FROM lease AS own WHERE own.unit = live_lease.unit AND own.id = :id) ORDER BY unit
"""
PART = """
INSERT INTO lease (id, unit, tenant, worker, secret, until, ttl, beat)
SELECT shared.id, unit.id, shared.tenant, shared.worker, unit.lease_hash, :until, shared.ttl, shared.beat
FROM unit JOIN lease AS shared ON shared.unit = 0 AND shared.id = unit.lease_id WHERE unit.id {ids}
"""


def renew_leases(connection: Connection, held: Sequence[Unit]) -> None:
    """The leases of these units last as long as their rows say, and no shorter than before."""
    if connection.many_writers:
        units = {"leases": [unit.lease_id for unit in held], "units": [unit.id for unit in held]}
        connection.many(RENEW_TOGETHER, [{**units, "ends": [unit.lease_until for unit in held]}])
        return
    shared = {
        lease: (until, under)
        for lease, until, under in connection.rows(SHARED, {"ids": sorted({unit.lease_id or 0 for unit in held})})
    }
    apart = {unit for (unit,) in connection.rows(APART, {"ids": sorted(unit.id for unit in held)})}
    together: dict[tuple[int, int], list[int]] = {}  # by lease and its new end: units that share its row
    for unit in held:
        lease, until = unit.lease_id or 0, unit.lease_until or 0
        if unit.id not in apart and lease in shared and until > shared[lease][0]:
            together.setdefault((lease, until), []).append(unit.id)
    for (lease, until), named in sorted(together.items()):
        if renew_shared(connection, lease, named, until, *shared[lease]):
            shared[lease] = until, len(named)
        else:
            shared[lease] = shared[lease][0], shared[lease][1] - len(named)
    alone = [{"id": unit.lease_id, "unit": unit.id, "until": unit.lease_until} for unit in held if unit.id in apart]
    if alone:
        connection.many(RENEW, alone)


def renew_shared(
    connection: Connection, lease: int, named: Sequence[int], until: int, before: int, under: int
) -> bool:  # fmt: skip
    """Renews some of the units that share a row. Returns whether the row is theirs now, or that of the others."""
    if 2 * len(named) <= under:
        connection.rows(PART, {"ids": sorted(named), "until": until})
        return False
    if len(named) < under:
        others = [unit for (unit,) in connection.rows(TOGETHER, {"id": lease}) if unit not in named]
        connection.rows(PART, {"ids": others, "until": before})
    connection.many(RENEW, [{"id": lease, "unit": 0, "until": until}])
    return True
