"""What a unit was promised: its lifecycle's rules, with what its own policy changes."""

from dataclasses import replace

import msgspec

from interlock.kernel.lifecycle import Backoff, Budget
from interlock.kernel.policy import Tally, backoff, spread
from interlock.kernel.rows import Body, Unit
from interlock.store.tx import Tx

NO_BACKOFF = Backoff(base_us=0)


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What differs from the lifecycle's own rules; stored with the unit."""

    attempts: int | None = None
    exhausted: str | None = None
    timeout_us: int | None = None
    on_reject: str | None = None


def policy_of(body: Body) -> Policy:
    return msgspec.json.decode(body.policy, type=Policy)


def tally(tx: Tx, unit: Unit) -> Tally:
    """What is left of a unit's attempts."""
    own = policy_of(tx.body(unit))
    budget: Budget = tx.life(unit).options.budget
    budget = replace(budget, attempts=own.attempts or budget.attempts, exhausted=own.exhausted or budget.exhausted)
    return Tally(budget, unit.failures, unit.losses, unit.asked_at is not None)


def retry_at(tx: Tx, unit: Unit) -> int:
    """When the next attempt is due."""
    rule = tx.life(unit).options.backoff or NO_BACKOFF
    return tx.now + backoff(rule, unit.failures + unit.losses, spread(unit.id, unit.attempt))
