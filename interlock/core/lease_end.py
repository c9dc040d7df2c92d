"""How a holder's time with a unit ends: the lease is over, the unit moves on, the worker has room again."""

from typing import Any

import msgspec

from interlock.core.advance import Stamp, advance, hop_lease
from interlock.core.effective_policy import policy_at_end, policy_of, retry_at
from interlock.core.wakeups import WorkerCalls
from interlock.core.workers import give_back
from interlock.kernel import policy
from interlock.kernel.commands import ERROR_CLASSES, REASONS
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.store.connection import CALL
from interlock.store.queries.for_verbs import find_last_grant
from interlock.store.unit_of_work import UnitOfWork


def live(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether somebody holds the unit, as far as the record says."""
    return unit.lease is not None and not tx.lease_lifecycle.states[unit.lease].settled


def summon(tx: UnitOfWork, unit: Unit) -> None:
    """Whoever holds the unit will ask at once how it stands with it, and does not wait for its next beat."""
    if unit.holder is not None:
        worker = tx.worker(unit.holder)
        worker.summons += 1
        tx.change(worker)
        tx.state(WorkerCalls).queues.add((worker.tenant, f"{CALL}{worker.name}"))


def close(
    tx: UnitOfWork,
    unit: Unit,
    trigger: str,
    cause: str,
    stamp: Stamp,
    payload: dict[str, Any],
    after_us: int | None = None,
    **columns: Any,
) -> None:
    """The lease is over, and the unit has moved on; if it tries again, then when it is due."""
    lifecycle, leases = tx.lifecycle(unit), tx.lease_lifecycle
    target = lifecycle.move(unit.state, trigger).path[-1]
    if policy.keeps_lease(lifecycle, target):
        advance(tx, unit, trigger, stamp, payload=payload, **columns)
        return
    holder = unit.holder
    ended = (policy.lease_end(leases, unit.lease or "", cause),) if live(tx, unit) else ()
    if trigger == "retry":
        columns["due_at"] = tx.now + after_us if after_us is not None else retry_at(tx, unit)
    if lifecycle.category(target) is Category.DEAD:
        payload = {**payload, **dead_letter(tx, unit, trigger, stamp, payload)}
    advance(tx, unit, trigger, stamp, lease=ended, payload=payload, **columns)
    if holder is not None:
        give_back(tx, unit, holder, Stamp(stamp.actor))


def dead_letter(tx: UnitOfWork, unit: Unit, trigger: str, stamp: Stamp, told: dict[str, Any]) -> dict[str, Any]:
    """The six fields that a dead letter must have, and its stage; the owner is null only if it never had one."""
    body, grant = tx.body(unit), find_last_grant(tx, unit)
    return {
        "reason_code": reason_code(tx, unit, trigger, stamp, told),
        "last_error": body.error or stamp.reason,
        "attempts": unit.fence,
        "last_owner": msgspec.json.decode(grant.payload).get("worker") if grant else None,
        "last_lease_expires_at": unit.lease_until,
        "correlation_id": body.correlation,
        "stage": told.get("stage"),
    }


def reason_code(tx: UnitOfWork, unit: Unit, trigger: str, stamp: Stamp, told: dict[str, Any]) -> str:
    """The first that is known: what its holder or an operator said, what it was for, what happened to it."""
    if told.get("reason_code"):
        return str(told["reason_code"])
    if stamp.reason in REASONS:
        return stamp.reason
    if policy_at_end(tx.body(unit)).undoes:
        return "compensation_failed"
    by_trigger = {"exhaust": "exhausted_retries", "time_out": "timeout"}
    return by_trigger.get(trigger) or ERROR_CLASSES.get(told.get("error_class", ""), "policy_violation")


def lose_in_place(tx: UnitOfWork, unit: Unit, trigger: str, stamp: Stamp) -> None:
    """The lease is over, and the unit waits where it is for the next worker, at least until it is old enough (A1-8)."""
    holder, least_us = unit.holder, policy_of(tx.body(unit)).reclaim_after_us
    waits = least_us is not None and unit.started_at is not None
    hop_lease(tx, unit, trigger, stamp, due_at=(unit.started_at or 0) + (least_us or 0) if waits else unit.due_at)
    if holder is not None:
        give_back(tx, unit, holder, stamp)
