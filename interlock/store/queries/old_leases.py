"""Queries of ended leases: on which terms each was, how it ended, and of which attempt it was.

A lease that was taken from its holder keeps its row for a day. One that its holder has finished has none: what its
acts tell of it is read for as long.
"""

from collections.abc import Iterable, Sequence

from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.store.queries.snapshots import LEASES_US, select_acts
from interlock.store.unit_of_work import UnitOfWork

OLD_LEASE = """
SELECT until, ended_at FROM (
    SELECT id, until, ended_at FROM lease WHERE unit = :unit AND tenant = :tenant AND secret = :secret
    UNION ALL SELECT id, until, NULL FROM live_lease WHERE unit = :unit AND tenant = :tenant AND secret = :secret
) AS known ORDER BY id DESC LIMIT 1
"""
LEASE_HOPS = """
SELECT attempt, lease_to FROM event
WHERE unit = :unit AND tenant = :tenant AND fence = :fence AND lease_to IS NOT NULL ORDER BY version
"""
# By unit, the act that granted its last lease, and when that ended.
LAST_GRANTS = """
SELECT event.unit, max(CASE WHEN event.lease_from IS NULL THEN event.act END), max(event.at)
FROM unit JOIN event ON event.unit = unit.id
WHERE unit.id {ids} AND event.fence = unit.fence AND event.lease_to IS NOT NULL GROUP BY event.unit
"""


def read_ended_leases(tx: UnitOfWork, ids: Iterable[int]) -> None:
    """Fills in the last lease of those units whose lease is over: its holder may have to be told so."""
    units = [tx.rows.units[unit] for unit in ids if unit in tx.rows.units]
    ended = [unit for unit in units if unit.lease is not None and unit.lease_hash is None]
    finished = [unit for unit in ended if tx.lease_lifecycle.category(unit.lease or "") is Category.SUCCESS]
    if finished:
        read_finished_leases(tx, finished)
    tx.read_leases([unit for unit in ended if unit not in finished])


def read_finished_leases(tx: UnitOfWork, units: Sequence[Unit]) -> None:
    """Fills in what the acts that granted them say of leases that their holders have finished within a day."""
    by_unit = {unit.id: unit for unit in units}
    rows = tx.connection.rows(LAST_GRANTS, {"ids": sorted(by_unit)})
    granted = {unit: act for unit, act, ended_at in rows if ended_at > tx.now - LEASES_US}
    if not granted:
        return
    acts = {act.id: act for act in select_acts(tx.connection, "WHERE id {ids}", ids=sorted({*granted.values()}))}
    for unit, act in ((by_unit[unit], acts[act]) for unit, act in granted.items()):
        assert act.secrets
        unit.lease_hash = act.secrets[act.units.index(unit.id)]
        unit.lease_ttl, unit.lease_beat = act.ttl, act.beat
