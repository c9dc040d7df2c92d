"""Request rates of tenants, counted in the store, so that all servers share them."""

from interlock.kernel.commands import Admission, Admit
from interlock.store.queries.api_keys import count_requests
from interlock.store.queries.tenants import read_tenant
from interlock.store.unit_of_work import UnitOfWork

MINUTE_US = 60_000_000


def admit(tx: UnitOfWork, command: Admit) -> Admission | None:
    """The tenant has asked once more in this minute, and this is whether it may."""
    tenant = read_tenant(tx.connection, command.tenant)
    if tenant is None or tenant.max_requests is None:
        return None
    minute = tx.now // MINUTE_US
    times = count_requests(tx, command.tenant, minute)
    most = tenant.max_requests
    return Admission(times <= most, most, max(most - times, 0), (minute + 1) * MINUTE_US - tx.now)
