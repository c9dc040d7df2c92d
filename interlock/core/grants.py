"""How a unit is leased to a worker: first everything that may be wrong with it is asked, then it is granted."""

from typing import NamedTuple

from interlock.core.advance import Stamp, advance
from interlock.core.effective_policy import policy_of
from interlock.kernel import policy
from interlock.kernel.errors import Corrupt, InterlockError, Refused
from interlock.kernel.rows import Unit
from interlock.store.acts import LeaseTerms
from interlock.store.unit_of_work import UnitOfWork


class Terms(NamedTuple):
    """What a lease is granted on."""

    trigger: str
    ttl_us: int
    beat_us: int
    until: int
    active: bool  # its holder need not acknowledge it first


def terms_of(tx: UnitOfWork, unit: Unit) -> Terms:
    """The terms of the next lease on a unit; nothing has changed. Raises if it cannot be leased."""
    lifecycle, body = tx.lifecycle(unit), tx.body(unit)
    if unit.id in tx.rows.bodiless:
        raise Corrupt("its body is missing")
    for guard in tx.hooks.grant_guards:
        guard(tx, unit)
    rules = lifecycle.options.lease
    if rules is None:
        raise InterlockError(f"the lifecycle '{lifecycle.name}' has no [lease]")
    trigger = policy.claim(lifecycle, unit.state, held=False)
    if not trigger:
        raise Refused(lifecycle.name, unit.state, "claim", lifecycle.triggers(unit.state))
    ttl_us, beat_us = policy.granted_terms(rules, policy_of(body))
    active = policy.activates(lifecycle, lifecycle.move(unit.state, trigger).path[-1])
    until = policy.lease_end_at(rules, tx.now, ttl_us, beat_us, active=active)
    return Terms(trigger, ttl_us, beat_us, until, active)


def grant(
    tx: UnitOfWork, unit: Unit, terms: Terms, lease_hash: str, worker: int, stamp: Stamp, payload: dict[str, str]
) -> None:
    """A new lease on a unit, with a fence that is higher than all before it."""
    for hook in tx.hooks.before_grant:
        hook(tx, unit, policy.next_fence(unit.fence))
    lease = ("grant", "activate") if terms.active else ("grant",)
    granted = LeaseTerms(worker, terms.ttl_us, terms.beat_us, terms.until, lease_hash)
    advance(tx, unit, terms.trigger, stamp, lease=lease, payload=payload, terms=granted, due_at=None)
