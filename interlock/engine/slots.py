"""Mutexes and limits: a unit that names a key is available or held only while it has a slot of that key.

What is full is not waited for in the claim index: the unit is parked on the key, and whoever gives a slot back makes
the next one available in the same transaction.
"""

from collections.abc import Callable

from interlock.kernel.rows import Body, Unit
from interlock.store.finders import parked, slot_for
from interlock.store.tx import Tx

Derive = Callable[[Tx, Unit], None]


def keys_of(body: Body) -> list[str]:
    """The keys that a unit names, in the order in which everybody takes them."""
    limit = [limit_name(body.limit_key)] if body.limit_key is not None else []
    return [*limit, f"mutex:{body.mutex}"] if body.mutex is not None else limit


def limit_name(key: str) -> str:
    return f"limit:{key}"


def set_limit(tx: Tx, tenant: int, key: str, limit: int, derive: Derive) -> None:
    """So many of a limit key may run at a time from now on; what that makes room for is available."""
    slot = slot_for(tx, tenant, limit_name(key), limit)
    if slot.capacity != limit:
        slot.capacity = limit
        tx.change_slot(slot)
        offer(tx, tenant, slot.key, derive)


def seat(tx: Tx, unit: Unit, derive: Derive, *, wanted: bool) -> bool:
    """Whether the unit has all its slots now: it has taken them, given them back, or is parked on a full one."""
    body = tx.body(unit)
    if body.mutex is None and body.limit_key is None:
        return wanted
    keys = keys_of(body)
    seated = tx.seated(unit)
    if wanted == seated:
        unit.parked_on = None
    elif wanted:
        take(tx, unit, keys)
    else:
        unit.parked_on = None
        tx.seats[unit.id] = False
        for key in keys:
            give_back(tx, unit.tenant, key, derive)
    return tx.seated(unit)


def take(tx: Tx, unit: Unit, keys: list[str]) -> None:
    """All slots or none: one that is held while another is waited for would block others for nothing."""
    slots = [slot_for(tx, unit.tenant, key) for key in keys]
    full = next((slot for slot in slots if slot.taken >= slot.capacity), None)
    unit.parked_on = full.key if full else None
    tx.seats[unit.id] = full is None
    for slot in slots if full is None else []:
        slot.taken += 1
        tx.change_slot(slot)


def give_back(tx: Tx, tenant: int, key: str, derive: Derive) -> None:
    """A slot is free again, and offered until somebody has it or nobody is parked on it."""
    slot = slot_for(tx, tenant, key)
    slot.taken -= 1
    tx.change_slot(slot)
    offer(tx, tenant, key, derive)


def offer(tx: Tx, tenant: int, key: str, derive: Derive) -> None:
    slot = slot_for(tx, tenant, key)
    while slot.taken < slot.capacity and (unit := parked(tx, tenant, key)):
        unit.parked_on = None
        derive(tx, unit)  # it may still have to wait, for another key
        tx.touch(unit)
