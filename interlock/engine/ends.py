"""How a holder's time with a unit ends: the lease is over, the unit moves on, the worker has room again."""

from typing import Any

from interlock.engine.advance import Stamp, advance, hop_lease
from interlock.engine.terms import retry_at
from interlock.engine.workers import give_back
from interlock.kernel import policy
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.store.tx import Tx


def live(tx: Tx, unit: Unit) -> bool:
    """Whether somebody holds the unit, as far as the record says."""
    return unit.lease is not None and not tx.lives["lease"].settled(unit.lease)


def close(
    tx: Tx, unit: Unit, trigger: str, cause: str, stamp: Stamp, payload: dict[str, Any], after_us: int | None = None
) -> None:
    """The lease is over, and the unit has moved on; if it tries again, then when it is due."""
    life, leases = tx.life(unit), tx.lives["lease"]
    target = life.move(unit.state, trigger).path[-1]
    if policy.keeps_lease(life, target):
        advance(tx, unit, trigger, stamp, payload=payload)
        return
    holder = unit.holder
    ended = (policy.lease_end(leases, unit.lease or "", cause),) if live(tx, unit) else ()
    if trigger == "retry":
        unit.due_at = tx.now + after_us if after_us is not None else retry_at(tx, unit)
    if life.category(target) is Category.DEAD:
        payload = {**payload, **dead_letter(tx, unit, trigger, stamp)}
    unit.holder = None
    advance(tx, unit, trigger, stamp, lease=ended, payload=payload)
    if holder is not None:
        give_back(tx, holder, Stamp(stamp.actor))


def dead_letter(tx: Tx, unit: Unit, trigger: str, stamp: Stamp) -> dict[str, Any]:
    """The six fields that a dead letter must have; the last two are null only if there never was a lease."""
    body = tx.body(unit)
    usual = {"exhaust": "exhausted_retries", "time_out": "timeout"}
    return {
        "reason_code": usual.get(trigger, stamp.reason or "policy_violation"),
        "last_error": body.error,
        "attempts": unit.attempt,
        "last_owner": unit.holder,
        "last_lease_expires_at": unit.lease_until,
        "correlation_id": body.correlation,
    }


def lose_in_place(tx: Tx, unit: Unit, trigger: str, stamp: Stamp) -> None:
    """The lease is over, and the unit waits where it is for the next worker."""
    holder, unit.holder = unit.holder, None
    hop_lease(tx, unit, trigger, stamp)
    if holder is not None:
        give_back(tx, holder, stamp)
