"""Resources: a unit may need several, each exclusively, shared, so much of it, or so often in a time.

Each is a slot as mutexes and limits are, of which a unit takes an amount: one that uses a resource exclusively takes
all of it. Units take what they need in one order, all of it or nothing, and give it back whenever they are neither
available nor held. A unit that needs much is not overtaken for ever by others that need little: what waits for a
resource is served in the order of urgency.
"""

from collections.abc import Iterator, Mapping

from interlock.core import validation
from interlock.core.effective_policy import policy_in, policy_of
from interlock.kernel.commands import Resource, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Body, Slot, Unit
from interlock.plugins.concurrency.queries import (
    PARKED_AT_ONCE,
    SlotState,
    count_tokens,
    read_parked_urgency,
    read_resource_parked,
    read_resource_slots,
    read_resource_uses,
)
from interlock.store.connection import Connection
from interlock.store.unit_of_work import UnitOfWork

MODES = ("exclusive", "shared", "counted", "rated")
KINDS = {"exclusive": "lock", "shared": "lock", "counted": "count", "rated": "rate"}
RESOURCE = "resource:"  # how the keys of their slots begin
IN_POLICY = '"resources"'  # in the policy of a unit that needs some
WHOLE = 1_000_000  # of a resource that is used exclusively or shared: so many may share it
NAMED_MAX = 20
SLOTS_MAX = 2**31 - 1


def check_resources(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check the resources that work needs.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if len(work.resources) > NAMED_MAX:
        raise InterlockError(f"{len(work.resources)} resources are named; at most {NAMED_MAX} are allowed")
    for resource in work.resources:
        check_resource(resource)
    keys = [name_slot(resource) for resource in work.resources]
    twice = [resource.name for resource, key in zip(work.resources, keys, strict=True) if keys.count(key) > 1]
    if twice:
        raise InterlockError(f"the resource '{twice[0]}' is named twice; once is allowed")


def check_resource(resource: Resource) -> None:
    """Check one of them.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    name, mode = resource.name, resource.mode
    validation.check_name("resource", name)
    validation.check_choice("mode", mode, MODES)
    validation.check_range("n", resource.n, 1, SLOTS_MAX)
    if mode == "counted":
        if resource.of is None:
            raise InterlockError(f"the resource '{name}' is counted: say of how many (of)")
        validation.check_range("of", resource.of, resource.n, SLOTS_MAX)
    elif resource.of is not None:
        raise InterlockError(f"of is not allowed for the resource '{name}', which is {mode}; it is for a counted one")
    if mode == "rated":
        if resource.per_us is None:
            raise InterlockError(f"the resource '{name}' is rated: say in which time (per)")
        validation.check_range("per_us", resource.per_us, 1)
    elif resource.per_us is not None:
        raise InterlockError(f"per is not allowed for the resource '{name}', which is {mode}; it is for a rated one")
    if mode in ("exclusive", "shared") and resource.n != 1:
        raise InterlockError(f"n is not allowed for the resource '{name}', which is {mode}; it is for a counted one")


def name_slot(resource: Resource) -> str:
    """The key of its slot."""
    return f"{RESOURCE}{KINDS[resource.mode]}:{resource.name}"


def count_taken(resource: Resource) -> int:
    """How much of a resource a unit takes."""
    return WHOLE if resource.mode == "exclusive" else resource.n if resource.mode == "counted" else 1


def find_capacity(resource: Resource) -> int:
    """How much there is of a resource, as far as work says."""
    if resource.mode == "counted":
        return resource.of or resource.n
    return resource.n if resource.mode == "rated" else WHOLE


def read_resources(body: Body) -> tuple[Resource, ...]:
    """The resources that a unit needs."""
    return policy_of(body).resources if IN_POLICY in body.policy else ()


def count_amounts(resources: tuple[Resource, ...], *, held: bool) -> dict[str, int]:
    """What a unit takes while it is available, or held, in the order in which everybody takes it."""
    kept = (resource for resource in resources if not (held and resource.mode == "rated"))
    return dict(sorted((name_slot(resource), count_taken(resource)) for resource in kept))


def is_overtaking(tx: UnitOfWork, unit: Unit, slot: Slot) -> bool:
    """Whether a unit that waits for the same resource, and needs more of it, comes first."""
    if not slot.key.startswith(RESOURCE):
        return False
    own = (-unit.priority, unit.id)
    here = (tx.rows.units[number] for number in tx.state(SlotState).waiting.get(slot.key, ()) if number != unit.id)
    if any(other.parked_on == slot.key and (-other.priority, other.id) < own for other in here):
        return True
    limit = PARKED_AT_ONCE
    while True:
        rows = read_parked_urgency(tx, unit.tenant, slot.key, limit)
        for number, priority in rows:
            known = tx.rows.units.get(number)
            if number != unit.id and (known is None or known.parked_on == slot.key):
                return (-priority, number) < own
        if len(rows) < limit:
            return False
        limit *= 2  # all of them are parked no more, as far as this transaction knows


# Laws.


def find_wrong_amounts(connection: Connection) -> Iterator[tuple[int, str]]:
    """What is taken of a resource is what those have who are available or held, and nobody waits for what is free."""
    taken: dict[tuple[int, str], int] = {}
    for tenant, policy, held in read_resource_uses(connection):
        for key, amount in count_amounts(policy_in(policy).resources, held=bool(held)).items():
            taken[tenant, key] = taken.get((tenant, key), 0) + amount
    for tenant, key, count in count_tokens(connection, RESOURCE):
        taken[tenant, key] = taken.get((tenant, key), 0) + count
    slots = {(tenant, key): (capacity, amount) for tenant, key, capacity, amount in read_resource_slots(connection)}
    for (tenant, key), (_, amount) in slots.items():
        if amount != taken.get((tenant, key), 0):
            has = taken.get((tenant, key), 0)
            yield 0, f"{amount} of '{key}' of tenant {tenant} are taken, and those who have it have {has}"
    for unit, tenant, key, policy in read_resource_parked(connection):
        capacity, amount = slots[tenant, key]
        if amount + count_amounts(policy_in(policy).resources, held=False)[key] <= capacity:
            yield unit, f"it waits for '{key}', of which there is enough"
