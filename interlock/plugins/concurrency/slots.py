"""Mutexes, limits, rates and resources: a unit that names a key is available only while it has what it needs of it.

What is full is not waited for in the claim index: the unit is parked on the key, and whoever gives a slot back makes
the next one available in the same transaction. A mutex and a limit are kept while the unit is held; of a rate only the
beginning counts.
"""

from collections.abc import Mapping

import msgspec

from interlock.core import validation
from interlock.core.advance import change, park
from interlock.kernel.commands import Work, read_options
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Body, Slot, Unit
from interlock.plugins.concurrency.queries import SLOTS, SlotState, find_parked, lock_slot
from interlock.plugins.concurrency.resources import IN_POLICY, RESOURCE, count_amounts, is_overtaking, read_resources
from interlock.store.unit_of_work import UnitOfWork

SLOTS_MAX = 2**31 - 1
NO_LIMIT = "limit_key and limit belong together: name the key, and how many of it may run at a time"
NO_RATE = "rate_key, rate and rate_per_us belong together: name the key, how many of it may begin, and in which time"


class ConcurrencyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What work says of the keys that it needs."""

    mutex: str | None = None  # one unit of that name at a time
    limit_key: str | None = None
    limit: int | None = None  # so many units of that limit key at a time
    rate_key: str | None = None
    rate: int | None = None  # so many units of that rate key begin in any stretch of time of that length
    rate_per_us: int | None = None


def list_slot_keys(body: Body, *, held: bool = False) -> dict[str, int]:
    """The keys that a unit has while it is available, or held, and how much of each, in the order of taking them."""
    keys: dict[str, int] = {}
    if body.limit_key is not None:
        keys[limit_name(body.limit_key)] = 1
    if body.mutex is not None:
        keys[f"mutex:{body.mutex}"] = 1
    if body.rate_key is not None and not held:
        keys[name_rate(body.rate_key)] = 1
    if IN_POLICY in body.policy:
        keys |= count_amounts(read_resources(body), held=held)
    return keys


def names_no_key(work: Work) -> bool:
    """Whether work needs no slot of any key."""
    return not (work.mutex or work.limit_key or work.rate_key or work.resources)


def limit_name(key: str) -> str:
    """The key of the slot of a limit."""
    return f"limit:{key}"


def name_rate(key: str) -> str:
    """The key of the slot of a rate."""
    return f"rate:{key}"


def check_keys(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what work says of the keys that it needs.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    options = read_options(work, ConcurrencyOptions)
    for name in ("mutex", "limit_key", "rate_key"):
        if getattr(options, name) is not None:
            validation.check_name(name, getattr(options, name))
    for name, most in (("limit", SLOTS_MAX), ("rate", SLOTS_MAX), ("rate_per_us", None)):
        if getattr(options, name) is not None:
            validation.check_range(name, getattr(options, name), 1, most)
    if (options.limit_key is None) != (options.limit is None):
        raise InterlockError(NO_LIMIT)
    if len({options.rate_key is None, options.rate is None, options.rate_per_us is None}) > 1:
        raise InterlockError(NO_RATE)


def set_limit(tx: UnitOfWork, tenant: int, key: str, limit: int) -> None:
    """So many of a limit key may run at a time from now on; what that makes room for is available."""
    set_capacity(tx, tenant, limit_name(key), limit)


def set_capacity(tx: UnitOfWork, tenant: int, key: str, capacity: int) -> None:
    """So many units may have a slot of the key from now on; what that makes room for is available."""
    slot = lock_slot(tx, tenant, key, capacity)
    if slot.capacity != capacity:
        slot.capacity = capacity
        tx.update(SLOTS, slot)
        offer(tx, tenant, key)


def take_or_park(tx: UnitOfWork, unit: Unit, wanted: bool, live: bool) -> bool:
    """Whether the unit has the keys that it needs now: it has taken or given back, or is parked on a full one.

    All keys or none: one that is kept while another is waited for would block others for nothing.
    """
    body = tx.body(unit)
    if body.mutex is None and body.limit_key is None and body.rate_key is None and IN_POLICY not in body.policy:
        return True
    has, waited_for = find_held_keys(tx, unit), unit.parked_on or ""
    needs = list_slot_keys(body, held=not wanted) if wanted or live else {}
    missing = [(lock_slot(tx, unit.tenant, key), amount) for key, amount in needs.items() if key not in has]
    full = next((slot for slot, amount in missing if not has_room(tx, unit, slot, amount)), None)
    park(unit, full.key if full else None)
    if full is not None and full.key.startswith(RESOURCE):
        tx.state(SlotState).waiting.setdefault(full.key, set()).add(unit.id)
    keeps = {} if full else needs
    tx.state(SlotState).keys[unit.id] = keeps
    for slot, amount in missing if full is None else []:
        slot.taken += amount
        tx.update(SLOTS, slot)
    for key, amount in has.items():
        if key not in keeps:
            give_back(tx, unit.tenant, key, amount)
    if waited_for.startswith(RESOURCE) and unit.parked_on != waited_for:
        offer(tx, unit.tenant, waited_for)  # others may have waited behind it, though there is enough for them
    return tx.state(SlotState).keys[unit.id] == needs  # what was given back may have led to it


def has_room(tx: UnitOfWork, unit: Unit, slot: Slot, amount: int) -> bool:
    """Whether there is so much left of a key, and nobody who waits for it comes first."""
    return slot.taken + amount <= slot.capacity and not is_overtaking(tx, unit, slot)


def find_held_keys(tx: UnitOfWork, unit: Unit) -> dict[str, int]:
    """The keys that a unit has and how much of each, as far as this transaction knows."""
    was, keys = tx.rows.loaded.get(unit.id), tx.state(SlotState).keys
    if unit.id in keys or was is None or (was.available_at is None and was.holder is None):
        return keys.get(unit.id, {})
    return list_slot_keys(tx.body(unit), held=was.available_at is None)


def give_back(tx: UnitOfWork, tenant: int, key: str, count: int = 1) -> None:
    """Slots are free again, and offered until somebody has them or nobody is parked on the key."""
    slot = lock_slot(tx, tenant, key)
    slot.taken -= count
    tx.update(SLOTS, slot)
    offer(tx, tenant, key)


def offer(tx: UnitOfWork, tenant: int, key: str) -> None:
    """Makes those available that wait for a key, as many as it has room for."""
    slot = lock_slot(tx, tenant, key)
    while slot.taken < slot.capacity and (unit := find_parked(tx, tenant, key)):
        change(tx, unit, parked_on=None)  # it may still have to wait, for another key
        if unit.parked_on == key:
            return  # it needs more than there is, and nobody who needs less overtakes it
