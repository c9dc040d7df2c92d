"""Mutexes, limits and rates: a unit that names a key is available only while it has a slot of that key.

What is full is not waited for in the claim index: the unit is parked on the key, and whoever gives a slot back makes
the next one available in the same transaction. A mutex and a limit are kept while the unit is held; of a rate only the
beginning counts.
"""

from collections.abc import Callable

from interlock.kernel.rows import Body, Unit
from interlock.store.acts import WITHHELD as WITHHELD
from interlock.store.finders import parked, slot_for
from interlock.store.tx import Tx

Derive = Callable[[Tx, Unit], None]
SLOTS_MAX = 2**31 - 1
SIGNAL = "signal:"


def keys_of(body: Body, *, held: bool = False) -> tuple[str, ...]:
    """The keys that a unit has while it is available, or held, in the order in which everybody takes them."""
    limit = (limit_name(body.limit_key),) if body.limit_key is not None else ()
    mutex = (f"mutex:{body.mutex}",) if body.mutex is not None else ()
    rate = (rate_name(body.rate_key),) if body.rate_key is not None and not held else ()
    return limit + mutex + rate


def signal_name(unit: int, name: str) -> str:
    return f"{SIGNAL}{unit}:{name}"


def awaited(unit: Unit) -> str | None:
    """The signal that a unit is parked on, if it is one."""
    return unit.parked_on if unit.parked_on is not None and unit.parked_on.startswith(SIGNAL) else None


def limit_name(key: str) -> str:
    return f"limit:{key}"


def rate_name(key: str) -> str:
    return f"rate:{key}"


def set_limit(tx: Tx, tenant: int, key: str, limit: int, derive: Derive) -> None:
    """So many of a limit key may run at a time from now on; what that makes room for is available."""
    set_capacity(tx, tenant, limit_name(key), limit, derive)


def set_capacity(tx: Tx, tenant: int, key: str, capacity: int, derive: Derive) -> None:
    slot = slot_for(tx, tenant, key, capacity)
    if slot.capacity != capacity:
        slot.capacity = capacity
        tx.change_slot(slot)
        offer(tx, tenant, key, derive)


def seat(tx: Tx, unit: Unit, derive: Derive, *, wanted: bool, live: bool) -> bool:
    """Whether the unit has the keys that it needs now: it has taken or given back, or is parked on a full one.

    All keys or none: one that is kept while another is waited for would block others for nothing.
    """
    body = tx.body(unit)
    if body.mutex is None and body.limit_key is None and body.rate_key is None:
        return True
    has = seats_of(tx, unit)
    needs = keys_of(body, held=not wanted) if wanted or live else ()
    missing = [slot_for(tx, unit.tenant, key) for key in needs if key not in has]
    full = next((slot for slot in missing if slot.taken >= slot.capacity), None)
    unit.parked_on = full.key if full else None
    keeps = () if full else needs
    tx.seats[unit.id] = keeps
    for slot in missing if full is None else []:
        slot.taken += 1
        tx.change_slot(slot)
    for key in has:
        if key not in keeps:
            give_back(tx, unit.tenant, key, derive)
    return tx.seats[unit.id] == needs  # what was given back may have led to it


def seats_of(tx: Tx, unit: Unit) -> tuple[str, ...]:
    """The keys that a unit has, as far as this transaction knows."""
    was = tx.was.get(unit.id)
    if unit.id in tx.seats or was is None or (was.available_at is None and was.holder is None):
        return tx.seats.get(unit.id, ())
    return keys_of(tx.body(unit), held=was.available_at is None)


def give_back(tx: Tx, tenant: int, key: str, derive: Derive, count: int = 1) -> None:
    """Slots are free again, and offered until somebody has them or nobody is parked on the key."""
    slot = slot_for(tx, tenant, key)
    slot.taken -= count
    tx.change_slot(slot)
    offer(tx, tenant, key, derive)


def offer(tx: Tx, tenant: int, key: str, derive: Derive) -> None:
    slot = slot_for(tx, tenant, key)
    while slot.taken < slot.capacity and (unit := parked(tx, tenant, key)):
        unit.parked_on = None
        derive(tx, unit)  # it may still have to wait, for another key
        tx.touch(unit)
