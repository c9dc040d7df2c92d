"""Reports under a lease that was lost: accepted for a while as evidence, without changing a state."""

from interlock.core.lease_secrets import hash_secret
from interlock.kernel.commands import LeaseRef
from interlock.kernel.lifecycle import Category
from interlock.store.queries.old_leases import LEASE_HOPS, OLD_LEASE
from interlock.store.unit_of_work import UnitOfWork

LATE_US = 5 * 60 * 1_000_000  # for which evidence is taken after the end of its lease
TAKEN_FROM = (
    Category.FAILURE,
    Category.CANCELLED,
)  # how the lifecycle of leases calls those that expired or were revoked


def find_late_attempt(tx: UnitOfWork, ref: LeaseRef) -> int | None:
    """The attempt of a lease that was taken from its holder no longer ago than evidence is taken; None if it was not.

    The secret of a lease is compared with the one that was granted with this fence, however many came after it.
    """
    unit = tx.rows.units.get(ref.unit)
    if unit is None or unit.tenant != tx.tenant:
        return None
    given = {"unit": unit.id, "tenant": unit.tenant}
    leases = tx.connection.rows(OLD_LEASE, {**given, "secret": hash_secret(ref.lease)})
    hops = tx.connection.rows(LEASE_HOPS, {**given, "fence": ref.fence}) if leases else []
    if not hops:
        return None
    (until, ended_at), (attempt, _), (_, state) = leases[0], hops[0], hops[-1]
    expired_unnoticed = ended_at is None and until <= tx.now
    taken = expired_unnoticed or tx.lease_lifecycle.category(state) in TAKEN_FROM
    return int(attempt) if taken and tx.now <= (ended_at or until) + LATE_US else None
