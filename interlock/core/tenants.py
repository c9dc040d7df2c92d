"""Tenants: their names, and limits of running and waiting work."""

import msgspec

from interlock.core import validation
from interlock.kernel.commands import Quota, SetTenant, Submit
from interlock.kernel.errors import InterlockError, LimitReached
from interlock.kernel.rows import Tenant as Row
from interlock.kernel.timing import check_duration
from interlock.store.queries.for_verbs import find_by_key
from interlock.store.queries.tenants import (
    count_waiting_now,
    find_tenant,
    get_max_waiting,
    lock_tenant,
    read_tenant,
    write_tenant,
)
from interlock.store.unit_of_work import UnitOfWork

LIMITS = ("max_running", "max_waiting", "max_requests")
KEPT = ("keep_beats_us", "keep_verbose_us")
KEPT_LEAST_US, KEPT_MOST_US = 1_000_000, 10 * 366 * 86_400_000_000
TENANT_MAX = LIMIT_MAX = 2**31 - 1


def set_tenant(tx: UnitOfWork, command: SetTenant) -> Quota:
    """The tenant has this name and these limits from now on; what is not said stays as it is."""
    validation.check_range("tenant", command.tenant, 1, TENANT_MAX)
    fields = {name: getattr(command, name) for name in ("name", *LIMITS, *KEPT)}
    given = {name: value for name, value in fields.items() if value is not msgspec.UNSET}
    for name in LIMITS:
        if given.get(name) is not None:
            validation.check_range(name, given[name], 0, LIMIT_MAX)
    for name in KEPT:
        if given.get(name) is not None:
            check_duration(name, given[name], KEPT_LEAST_US, KEPT_MOST_US)
    known = lock_tenant(tx, command.tenant)
    new = known or Row(id=command.tenant, name=f"tenant-{command.tenant}", created_at=tx.now)
    before = None if known is None else msgspec.structs.replace(known)
    if "name" in given or known is None:
        refuse_name(tx, given.get("name", new.name), command.tenant)
    for name, value in given.items():
        setattr(new, name, value)
    changed = before != new
    if changed:
        new.changed_at, new.changed_by = tx.now, command.actor
        write_tenant(tx, new, fresh=known is None)
    return Quota(
        tenant=new.id, name=new.name, max_running=new.max_running, max_waiting=new.max_waiting, changed=changed,
        max_requests=new.max_requests, keep_beats_us=new.keep_beats_us, keep_verbose_us=new.keep_verbose_us,
    )  # fmt: skip


def refuse_name(tx: UnitOfWork, name: str, tenant: int) -> None:
    """A name means one tenant, and is not taken for a number."""
    validation.check_name("name", name)
    if name.isdecimal():
        raise InterlockError(f"name '{name}' is a number; a tenant's name has a letter in it")
    other = find_tenant(tx.connection, name)
    if other and other.id != tenant:
        raise InterlockError(f"tenant {other.id} has the name '{name}' already")


def refuse_too_long(tx: UnitOfWork, command: Submit) -> None:
    """A tenant's queue has room for what a submit makes; else nothing of it is made."""
    most = get_max_waiting(tx, command.tenant)
    if most is None:
        return
    plain = sum(work.key is None for work in command.work if tx.lifecycles[work.lifecycle].leased)
    keys = {
        (work.task, work.key) for work in command.work if work.key is not None and tx.lifecycles[work.lifecycle].leased
    }
    more = plain + sum(find_by_key(tx, command.tenant, task, key) is None for task, key in keys)
    if more and (now := count_waiting_now(tx, command.tenant)) + more > most:
        row = read_tenant(tx.connection, command.tenant)
        name = f"'{row.name}'" if row else command.tenant
        raise LimitReached(
            f"TENANT_LIMIT: of tenant {name} at most {most} jobs may wait; {now} do, and {more} more were submitted"
        )
