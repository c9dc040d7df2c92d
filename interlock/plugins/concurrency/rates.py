"""Rates: at most so many units that name a key begin in any stretch of time of a given length.

A rate is a slot with a token for each unit that may begin. A unit that becomes available takes one; if it is granted,
the token is away for the length of time that the unit says, and if not, it is given back at once.
"""

from collections import Counter

from interlock.core.effective_policy import policy_of
from interlock.kernel.commands import Work
from interlock.kernel.rows import Token, Unit
from interlock.plugins.concurrency.queries import SlotState, take_due_tokens
from interlock.plugins.concurrency.resources import find_capacity, name_slot, read_resources
from interlock.plugins.concurrency.slots import give_back, list_slot_keys, name_rate, set_capacity, set_limit
from interlock.store.unit_of_work import UnitOfWork


def set_capacities(tx: UnitOfWork, work: Work) -> None:
    """What work says of the keys that it needs holds from now on, for everybody."""
    if work.limit_key is not None and work.limit is not None:
        set_limit(tx, tx.tenant, work.limit_key, work.limit)
    if work.rate_key is not None and work.rate is not None:
        set_rate(tx, tx.tenant, work.rate_key, work.rate)
    for resource in work.resources:
        set_capacity(tx, tx.tenant, name_slot(resource), find_capacity(resource))


def set_rate(tx: UnitOfWork, tenant: int, key: str, rate: int) -> None:
    """So many of a rate key may begin in its stretch of time from now on."""
    set_capacity(tx, tenant, name_rate(key), rate)


def spend_token(tx: UnitOfWork, unit: Unit, fence: int) -> None:
    """A unit that is being granted has its tokens no longer: they come back, but not to this unit."""
    body = tx.body(unit)
    spent = {name_rate(body.rate_key): policy_of(body).rate_per_us or 0} if body.rate_key is not None else {}
    spent |= {
        name_slot(resource): resource.per_us or 0 for resource in read_resources(body) if resource.mode == "rated"
    }
    if not spent:
        return
    for key, per_us in spent.items():
        tx.add(Token(unit=unit.id, fence=fence, tenant=unit.tenant, key=key, back_at=tx.now + per_us))
    tx.state(SlotState).keys[unit.id] = list_slot_keys(body, held=True)


def take_tokens_back(tx: UnitOfWork, limit: int) -> int:
    """Tokens that are back are offered to those that are parked on them."""
    counts = Counter(token.key for token in take_due_tokens(tx, limit))
    for key in sorted(counts):
        give_back(tx, tx.tenant, key, counts[key])
    return counts.total()
