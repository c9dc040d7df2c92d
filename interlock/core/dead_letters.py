"""What a dead letter records of a unit that was given up."""

from typing import Any

import msgspec

from interlock.core.advance import Stamp
from interlock.core.effective_policy import policy_at_end
from interlock.kernel.commands import ERROR_CLASSES, REASONS
from interlock.kernel.rows import Unit
from interlock.store.queries.for_verbs import find_last_grant
from interlock.store.unit_of_work import UnitOfWork


def describe_dead_letter(
    tx: UnitOfWork, unit: Unit, trigger: str, stamp: Stamp, payload: dict[str, Any]
) -> dict[str, Any]:
    """The six fields that a dead letter must have, and its stage; the owner is null only if it never had one."""
    body, grant = tx.body(unit), find_last_grant(tx, unit)
    return {
        "reason_code": choose_reason_code(tx, unit, trigger, stamp, payload),
        "last_error": body.error or stamp.reason,
        "attempts": unit.fence,
        "last_owner": msgspec.json.decode(grant.payload).get("worker") if grant else None,
        "last_lease_expires_at": unit.lease_until,
        "correlation_id": body.correlation,
        "stage": payload.get("stage"),
    }


def choose_reason_code(tx: UnitOfWork, unit: Unit, trigger: str, stamp: Stamp, payload: dict[str, Any]) -> str:
    """The first that is known: what its holder or an operator said, what it was for, what happened to it."""
    if payload.get("reason_code"):
        return str(payload["reason_code"])
    if stamp.reason in REASONS:
        return stamp.reason
    if policy_at_end(tx.body(unit)).undoes:
        return "compensation_failed"
    by_trigger = {"exhaust": "exhausted_retries", "time_out": "timeout"}
    return by_trigger.get(trigger) or ERROR_CLASSES.get(payload.get("error_class", ""), "policy_violation")
