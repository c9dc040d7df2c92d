"""The effective policy of a unit: the rules of its lifecycle, overridden by its own."""

from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import msgspec

from interlock.kernel.commands import Policy
from interlock.kernel.errors import Corrupt
from interlock.kernel.lifecycle import Category
from interlock.kernel.lifecycle_options import Backoff, Budget
from interlock.kernel.policy import AttemptsUsed
from interlock.kernel.rows import Body, Unit
from interlock.kernel.timing import backoff, spread, time_limit
from interlock.store.unit_of_work import UnitOfWork

T = TypeVar("T")
NO_BACKOFF = Backoff(base_us=0)


def policy_of(body: Body) -> Policy:
    """What a unit says of itself.

    Raises:
        Corrupt: what is stored cannot be read.
    """
    try:
        return policy_in(body.policy)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the policy of job {body.unit} cannot be read: {error}") from None


def policy_at_end(body: Body) -> Policy:
    """The same for a unit that ends, or is ended: what cannot be read has promised nothing."""
    try:
        return policy_of(body)
    except Corrupt:
        return Policy()


@lru_cache(maxsize=4096)
def policy_in(text: str) -> Policy:
    """Units of one type say the same of themselves, so it is read once."""
    return msgspec.json.decode(text, type=Policy)


def option_of(body: Body, name: str, kind: type[T]) -> T | None:
    """What a unit says of itself for a plugin; None if it says nothing."""
    text = policy_of(body).options
    value = None if text is None else msgspec.json.decode(text).get(name)
    return None if value is None else msgspec.convert(value, kind)


def follower(tx: UnitOfWork, unit: Unit) -> Unit | None:
    """The unit that makes the moves of this one, if there is one. Others' parents are not even locked."""
    if unit.lifecycle not in tx.paths.followed:
        return None
    parent = tx.unit(unit.parent) if unit.parent is not None else None
    return parent if parent and tx.lifecycle(parent).options.follows == unit.lifecycle else None


def find_budget_unit(tx: UnitOfWork, unit: Unit) -> Unit:
    """The unit whose budget is spent: an attempt's is that of the unit that follows it."""
    return follower(tx, unit) or unit


def budget_of(budget: Budget, own: Policy) -> Budget:
    """How often a unit may be tried: as its lifecycle says, with what it says of itself."""
    return replace(
        budget,
        attempts=own.attempts or budget.attempts,
        losses=own.losses or budget.losses,
        exhausted=own.exhausted or budget.exhausted,
    )


def attempts_used(tx: UnitOfWork, unit: Unit, *, failures: int = 0) -> AttemptsUsed:
    """What a unit has used up of its attempts, after so many failures more."""
    spender = find_budget_unit(tx, unit)
    own = policy_of(tx.body(spender))
    budget: Budget = tx.lifecycle(spender).options.budget
    budget = budget_of(budget, own)
    return AttemptsUsed(budget, spender.failures + failures, spender.losses, unit.asked_at is not None)


def retry_at(tx: UnitOfWork, unit: Unit) -> int:
    """When the next attempt is due."""
    rule, own = tx.lifecycle(unit).options.backoff or NO_BACKOFF, policy_of(tx.body(unit))
    rule = replace(rule, base_us=own.backoff_us or rule.base_us, cap_us=own.backoff_cap_us or rule.cap_us)
    return tx.now + backoff(rule, unit.failures + unit.losses, spread(unit.id, unit.attempt))


def find_deadline(tx: UnitOfWork, unit: Unit, since: int | None = None) -> int | None:
    """When the clock of the unit's state runs out; for how long it may run counts from its start (A4-7).

    `since` is an instant from which it counts instead.
    """
    lifecycle = tx.lifecycle(unit)
    limit_us = time_limit(lifecycle, unit.state, policy_of(tx.body(unit)))
    if limit_us is None:
        return None
    runs = lifecycle.states[unit.state].deadline == "time_out" and unit.category == Category.ACTIVE
    return (since or (unit.started_at if runs and unit.started_at else unit.changed_at)) + limit_us
