"""Sentences that are true of the database at every commit, each a function of what one unit left there."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

import msgspec

from interlock.engine.advance import SELF, chained
from interlock.engine.family import add, count_birth
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.kernel.policy import LIVE
from interlock.kernel.rows import Event, Unit
from interlock.store.reads import histories, slots, unmet_needs, workers
from interlock.store.session import Session
from interlock.store.tx import COUNTED


class Case(msgspec.Struct):
    """One unit and all its events, in order."""

    unit: Unit
    events: list[Event]
    life: Lifecycle
    lease: Lifecycle


class Broken(msgspec.Struct, frozen=True):
    """A law that does not hold, and of which unit."""

    law: str
    unit: int
    text: str


Law = Callable[[Case], Iterator[str]]
CHILDREN = COUNTED[1:]  # without the needs


def state_is_the_fold_of_events(case: Case) -> Iterator[str]:
    unit, last = case.unit, case.events[-1] if case.events else None
    if last is None:
        yield "it has no event"
    elif (unit.version, unit.state, unit.head) != (last.version, last.target, last.hash):
        yield f"it is {unit.state} at version {unit.version}, but its last event is {last.target} at {last.version}"


def no_gap(case: Case) -> Iterator[str]:
    versions = [event.version for event in case.events]
    if versions != list(range(1, len(versions) + 1)):
        yield f"its events are numbered {versions[:10]}"


def every_hop_is_listed(case: Case) -> Iterator[str]:
    hops = {(hop.source, hop.trigger, hop.target) for hop in case.life.hops}
    for event in case.events:
        alone = event.trigger == SELF and event.source == event.target and event.lease_to is not None
        forced = event.trigger == "force" and event.reason
        if not (alone or forced or (event.source, event.trigger, event.target) in hops):
            yield f"{event.source} -> {event.target} by '{event.trigger}' (version {event.version}) is not listed"


def each_event_begins_where_the_last_ended(case: Case) -> Iterator[str]:
    for before, after in pairwise(case.events):
        if after.source != before.target:
            yield f"version {after.version} leaves {after.source}, and version {before.version} led to {before.target}"
        if (after.at, after.fence, after.attempt) < (before.at, 0, 0) or after.fence < before.fence:
            yield f"version {after.version} is earlier, or has a lower fence, than the one before it"


def hashes_are_chained(case: Case) -> Iterator[str]:
    head = ""
    for event in case.events:
        head = chained(head, event)
        if head != event.hash:
            yield f"the hash of version {event.version} is not that of its contents"
            return


def leases_move_as_listed(case: Case) -> Iterator[str]:
    hops = {(hop.source, hop.target) for hop in case.lease.hops}
    state = None
    for event in case.events:
        if event.lease_to is None:
            continue
        if (event.lease_from, event.lease_to) not in hops:
            yield f"its lease goes from {event.lease_from} to {event.lease_to} (version {event.version})"
        if event.lease_from not in (None, state):
            yield f"its lease leaves {event.lease_from} (version {event.version}), but it was {state}"
        state = event.lease_to
    if state != case.unit.lease:
        yield f"its lease is {case.unit.lease}, but its events leave it {state}"


def one_live_lease_at_most(case: Case) -> Iterator[str]:
    live = False
    for event in case.events:
        if event.lease_from is None and event.lease_to is not None and live:
            yield f"a lease is granted (version {event.version}) while another one is live"
        if event.lease_to is not None:
            live = event.lease_to in case.lease.states and case.lease.category(event.lease_to) in LIVE
    held = case.unit.holder is not None
    if held != live:
        yield f"its holder is {case.unit.holder}, and its lease {case.unit.lease}"


def what_is_settled_rests(case: Case) -> Iterator[str]:
    unit = case.unit
    if unit.category not in SETTLED:
        if unit.outcome is not None:
            yield f"it is {unit.category} and has the outcome {unit.outcome}"
        return
    if unit.outcome is None and unit.category != Category.CLOSED:
        yield f"it is {unit.category} and has no outcome"
    if (unit.available_at, unit.wake_at, unit.holder) != (None, None, None):
        yield "it is settled, and may still be claimed, woken or held"


def available_means_claimable(case: Case) -> Iterator[str]:
    unit = case.unit
    waits = unit.category == Category.READY or (case.life.allows(unit.state, "reclaim") and unit.holder is None)
    if unit.available_at is not None and not (waits and not unit.unmet and unit.parked_on is None):
        yield f"it may be claimed, although it is {unit.category} with {unit.unmet} needs unmet"
    if waits and unit.available_at is None and not (unit.due_at or unit.unmet or unit.parked_on):
        yield "it is ready and waits for nothing, but nobody may claim it"


def columns_follow_the_state(case: Case) -> Iterator[str]:
    unit = case.unit
    if unit.state not in case.life.states:
        yield f"{unit.state} is no state of a {case.life.name}"
    elif unit.category != case.life.category(unit.state):
        yield f"its category is {unit.category}, and {unit.state} is {case.life.category(unit.state)}"
    if case.events and (unit.attempt, unit.fence) != (case.events[-1].attempt, case.events[-1].fence):
        yield "its attempt or its fence is not that of its last event"


def settled_results_stay(case: Case) -> Iterator[str]:
    opening = {(hop.source, hop.trigger) for hop in case.life.hops if hop.opens_attempt}
    for event in case.events:
        if event.source == event.target or not {event.source, event.target} <= case.life.states.keys():
            continue  # a name that does not exist is another law's finding
        if event.source is None or not case.life.settled(event.source):
            continue
        closes = case.life.category(event.target) is Category.CLOSED
        if not closes and (event.source, event.trigger) not in opening and event.trigger != "force":
            yield f"the settled {event.source} became {event.target} (version {event.version})"


LAWS: tuple[Law, ...] = (
    state_is_the_fold_of_events,
    no_gap,
    every_hop_is_listed,
    each_event_begins_where_the_last_ended,
    hashes_are_chained,
    leases_move_as_listed,
    one_live_lease_at_most,
    what_is_settled_rests,
    available_means_claimable,
    columns_follow_the_state,
    settled_results_stay,
)


def audit(session: Session, lives: Mapping[str, Lifecycle]) -> Iterator[Broken]:
    """Every law, asked of every unit that the session sees, in the order of their ids."""
    held: dict[int, int] = {}
    said: dict[int, dict[str, int]] = {}  # by parent: what it counts, and what it has
    found: dict[int, dict[str, int]] = {}
    for unit, events in histories(session):
        if unit.parent is not None:
            family = found.setdefault(unit.parent, dict.fromkeys(CHILDREN, 0))
            count_birth(family, unit)
            add(family, unit, 1)
        if unit.total:
            said[unit.id] = {name: getattr(unit, name) for name in CHILDREN}
        if unit.lifecycle in lives:
            yield from judge(Case(unit, events, lives[unit.lifecycle], lives["lease"]))
        else:
            yield Broken("every lifecycle is known", unit.id, f"its lifecycle '{unit.lifecycle}' is not")
        if unit.holder is not None:
            held[unit.holder] = held.get(unit.holder, 0) + 1
    yield from workers_hold_what_they_hold(session, held)
    for parent in sorted(said.keys() | found.keys()):
        if said.get(parent) != found.get(parent):
            text = f"it counts {said.get(parent)}, and has {found.get(parent)}"
            yield Broken("parents count their children", parent, text)
    yield from keys_are_kept(session)
    for one, unmet, counted in unmet_needs(session):
        if unmet != counted:
            yield Broken("needs are counted", one, f"{unmet} of its needs are said to be unmet, and {counted} are")


def judge(case: Case) -> Iterator[Broken]:
    for law in LAWS:
        for text in law(case):
            yield Broken(law.__name__.replace("_", " "), case.unit.id, text)


def keys_are_kept(session: Session) -> Iterator[Broken]:
    """A mutex or a limit is never exceeded, and nobody waits for a key that is free."""
    for tenant, key, capacity, taken, seated, waiting in slots(session):
        if taken != seated:
            yield Broken("keys are kept", 0, f"'{key}' of tenant {tenant} is taken {taken} times, and {seated} have it")
        if waiting and taken < capacity:
            yield Broken("keys are kept", 0, f"'{key}' of tenant {tenant} is free, and {waiting} units wait for it")


def workers_hold_what_they_hold(session: Session, held: dict[int, int]) -> Iterator[Broken]:
    for worker in workers(session):
        if worker.holding != held.get(worker.unit, 0):
            text = f"it is said to hold {worker.holding} units, and holds {held.get(worker.unit, 0)}"
            yield Broken("workers hold what they hold", worker.unit, text)
        if worker.holding > worker.capacity:
            text = f"it holds {worker.holding} units, above its capacity of {worker.capacity}"
            yield Broken("workers hold what they hold", worker.unit, text)
