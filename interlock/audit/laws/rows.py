"""Laws of events and rows: one function per law."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain

import msgspec

from interlock.audit.laws.rebuild import FoldedRow, Listed, apply_event, grants, list_differences, opens_attempt
from interlock.audit.laws.record import (
    DIGESTS,
    LEASES,
    MOVED,
    PAGE,
    PATHS,
    SEALS,
    judge_acts,
    judge_leases,
    judge_members,
    judge_paths,
    judge_seals,
)
from interlock.core.effective_policy import policy_in
from interlock.core.plugin import PluginLaw
from interlock.core.reactions.roll_up import BY_CHILDREN, BY_PARENT, VERDICTS, add, count_birth
from interlock.core.validation import SETTLED_BY_CHILDREN
from interlock.kernel.commands import SETTLES
from interlock.kernel.families import Children, may_be_resumed, verdict_of_children
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.paths import LISTED, SELF
from interlock.kernel.rows import Event, Unit
from interlock.store.acts import WITHHELD
from interlock.store.connection import Connection
from interlock.store.flush import COUNTED
from interlock.store.queries.evidence import has_erased_details, read_results, read_tracebacks
from interlock.store.queries.minute_metrics import find_wrong_minutes
from interlock.store.queries.places import has_place, read_lost_needs, read_named_children, read_needs_of_nothing
from interlock.store.queries.plain import find_wrongly_plain
from interlock.store.queries.snapshots import (
    count_unmet_needs,
    find_orphans,
    find_replaced,
    read_ended_families,
    read_forced_moves,
    read_histories,
    read_lost_leases,
    read_open_parents,
    read_policies,
    read_slots,
    read_workers,
    read_wrong_origins,
)


class Broken(msgspec.Struct, frozen=True):
    """A law that does not hold, and of which unit."""

    law: str
    unit: int
    text: str


EventLaw = Callable[[FoldedRow, Event, Listed], Iterator[str]]  # what the events before it say, and one event more
RowLaw = Callable[[Unit, FoldedRow, Listed], Iterator[str]]  # a row, and what all its events say
FORCE = "force"


# Of every event.


def no_gap(before: FoldedRow, event: Event, listed: Listed) -> Iterator[str]:
    """Versions of a unit follow each other without a gap."""
    if event.version != before.version + 1:
        yield f"version {before.version} is followed by version {event.version}"


def every_hop_is_listed(before: FoldedRow, event: Event, listed: Listed) -> Iterator[str]:
    """Every event is a hop that the lifecycle lists, or was forced."""
    alone = event.trigger == SELF and event.source == event.target and event.lease_to is not None
    forced = event.trigger == FORCE and event.reason and event.target in listed.lifecycle.states
    if not (alone or forced or (event.source, event.trigger, event.target) in listed.hops):
        yield f"{event.source} -> {event.target} by '{event.trigger}' (version {event.version}) is not listed"


def each_event_begins_where_the_last_ended(before: FoldedRow, event: Event, listed: Listed) -> Iterator[str]:
    """An event leaves the state that the one before it has led to, and is not earlier."""
    if event.source != before.state:
        yield f"version {event.version} leaves {event.source}, and version {before.version} led to {before.state}"
    if event.at < before.changed_at:
        yield f"version {event.version} is earlier than the one before it"
    if before.version and (event.tenant, event.lifecycle) != (before.tenant, before.lifecycle):
        yield f"version {event.version} is of another tenant or lifecycle than the one before it"


def attempts_and_fences_are_counted(before: FoldedRow, event: Event, listed: Listed) -> Iterator[str]:
    """Attempt and fence grow with the hops that open an attempt or grant a lease, and by nothing else."""
    counted = before.attempt + opens_attempt(event, listed), before.fence + grants(event)
    if (event.attempt, event.fence) != counted:
        stated = f"attempt {event.attempt} and fence {event.fence}"
        yield f"version {event.version} says {stated}, and they are {counted[0]} and {counted[1]}"


def leases_move_as_listed(before: FoldedRow, event: Event, listed: Listed) -> Iterator[str]:
    """A lease moves as its own lifecycle lists."""
    if event.lease_to is None:
        return
    if (event.lease_from, event.lease_to) not in listed.lease_hops:
        yield f"its lease goes from {event.lease_from} to {event.lease_to} (version {event.version})"
    if event.lease_from not in (None, before.lease):
        yield f"its lease leaves {event.lease_from} (version {event.version}), but it was {before.lease}"


def no_grant_beside_a_live_lease(before: FoldedRow, event: Event, listed: Listed) -> Iterator[str]:
    """No lease is granted while another one is live."""
    if grants(event) and before.lease in listed.live:
        yield f"a lease is granted (version {event.version}) while another one is live"


def settled_results_stay(before: FoldedRow, event: Event, listed: Listed) -> Iterator[str]:
    """What has ended does not end in another way."""
    states = listed.lifecycle.states
    source, target = states.get(event.source or ""), states.get(event.target)
    if source is None or target is None or source is target:
        return  # a name that does not exist is another law's finding
    closes = target.category is Category.CLOSED
    if source.settled and not (closes or opens_attempt(event, listed) or event.trigger == FORCE):
        yield f"the settled {event.source} became {event.target} (version {event.version})"


# Of every row.


def state_is_the_fold_of_events(unit: Unit, folded: FoldedRow, listed: Listed) -> Iterator[str]:
    """A row is in the state to which its events have led."""
    if folded.version == 0:
        yield "it has no event"
    elif (unit.version, unit.state) != (folded.version, folded.state):
        yield f"it is {unit.state} at version {unit.version}, but its last event is {folded.state} at {folded.version}"


def one_live_lease_at_most(unit: Unit, folded: FoldedRow, listed: Listed) -> Iterator[str]:
    """The lease and the holder of a row are those that its events leave."""
    if unit.lease != folded.lease:
        yield f"its lease is {unit.lease}, but its events leave it {folded.lease}"
    if (unit.holder is not None) != (folded.lease in listed.live):
        yield f"its holder is {unit.holder}, and its lease {folded.lease}"
    if (unit.holder is None) != (unit.lease_id is None):
        yield f"its holder is {unit.holder}, and the lease that it is under {unit.lease_id}"


def what_is_settled_rests(unit: Unit, folded: FoldedRow, listed: Listed) -> Iterator[str]:
    """What has ended has an outcome, and cannot be claimed, woken or held; only that has an outcome."""
    if unit.category not in SETTLED:
        if unit.outcome is not None:
            yield f"it is {unit.category} and has the outcome {unit.outcome}"
        return
    if unit.outcome is None and unit.category != Category.CLOSED:
        yield f"it is {unit.category} and has no outcome"
    if (unit.available_at, unit.wake_at, unit.holder) != (None, None, None):
        yield "it is settled, and may still be claimed, woken or held"


def available_means_claimable(unit: Unit, folded: FoldedRow, listed: Listed) -> Iterator[str]:
    """What may be claimed is ready, needs nothing and is not parked; and the other way round."""
    waits = unit.category == Category.READY or (listed.lifecycle.allows(unit.state, "reclaim") and unit.holder is None)
    if unit.available_at is not None and not (waits and not unit.unmet and unit.parked_on is None):
        yield f"it may be claimed, although it is {unit.category} with {unit.unmet} needs unmet"
    if waits and unit.available_at is None and not (unit.due_at or unit.unmet or unit.parked_on):
        yield "it is ready and waits for nothing, but nobody may claim it"


def nothing_is_withheld(unit: Unit, folded: FoldedRow, listed: Listed) -> Iterator[str]:
    """No unit had to be withheld."""
    if unit.parked_on == WITHHELD:
        name = format_id(unit.lifecycle, unit.id)
        yield f"{name} could not be granted, or not be moved by time, and is withheld; interlock why {name} says why"


def columns_follow_the_state(unit: Unit, folded: FoldedRow, listed: Listed) -> Iterator[str]:
    """Category, outcome, attempt and fence are those of the state and of the events."""
    state = listed.lifecycle.states.get(unit.state)
    if state is None:
        yield f"{unit.state} is no state of a {listed.lifecycle.name}"
    elif unit.category != state.category:
        yield f"its category is {unit.category}, and {unit.state} is {state.category}"
    if folded.version and (unit.attempt, unit.fence) != (folded.attempt, folded.fence):
        yield "its attempt or its fence is not that of its events"
    if unit.rests_in != (unit.state if unit.category in LISTED else None):
        yield f"it is {unit.state}, and is said to rest in {unit.rests_in}"
    if (unit.dead_at is not None) != (unit.category == Category.DEAD):
        yield f"it is {unit.category}, and is said to be dead since {unit.dead_at}"


def clocks_are_looked_at(unit: Unit, folded: FoldedRow, listed: Listed) -> Iterator[str]:
    """`wake_at` is the earliest clock; a delay that has passed, and time has seen, is none any more."""
    if unit.state not in listed.lifecycle.unsettled or unit.parked_on == WITHHELD:
        return  # what is settled is another law's; what is withheld is tried again by a clock of its own
    if unit.deadline_at is not None and unit.state not in listed.lifecycle.clocked:
        yield f"it has a deadline, and {unit.state} has none"
    clocks = [unit.deadline_at, unit.asked_by if folded.lease in listed.live else None]
    allowed = {earliest(*clocks), earliest(*clocks, unit.due_at)}
    if unit.wake_at not in allowed:
        yield f"time is to look at it at {unit.wake_at}, and its earliest clock is {earliest(*clocks, unit.due_at)}"


def earliest(*clocks: int | None) -> int | None:
    """Returns the earliest of these instants; None if there is none."""
    return min((at for at in clocks if at is not None), default=None)


OF_EVENTS: tuple[EventLaw, ...] = (
    no_gap,
    every_hop_is_listed,
    each_event_begins_where_the_last_ended,
    attempts_and_fences_are_counted,
    leases_move_as_listed,
    no_grant_beside_a_live_lease,
    settled_results_stay,
)
OF_ROWS: tuple[RowLaw, ...] = (
    state_is_the_fold_of_events,
    one_live_lease_at_most,
    what_is_settled_rests,
    available_means_claimable,
    nothing_is_withheld,
    columns_follow_the_state,
    clocks_are_looked_at,
)
KNOWN = "every lifecycle is known"
ALLOWED = "forced moves were allowed"
OWNED = "every event has its unit"
HOLDING = "workers hold what they hold"
COUNTING = "parents count their children"
NEEDING = "needs are counted"
HOPELESS = "nobody waits for what is lost"
TERMS = "terms are kept"
NAMES = "a name in a parent is one child"
PLAIN = "nothing follows from what is plain"
COSTING = "costs add up"
ALL_ENDED = SETTLES[1]  # the verdict falls when all children have ended
MILLION = 1_000_000
KEYS = "keys are kept"
ENDINGS = "results and errors are those that acts tell of"
BODIES = "every unit has its body"
POLICIES = "policies can be read"
MINUTES = "minutes add up to hours"
REBUILT = "rows are rebuilt from events"


def name_law(law: EventLaw | RowLaw) -> str:
    """The sentence that a law is known by: its function's name in words."""
    return law.__name__.replace("_", " ")


WHOLE = (
    KNOWN, DIGESTS, PATHS, MOVED, LEASES, SEALS, ALLOWED, OWNED, HOLDING, COUNTING, NEEDING, HOPELESS, TERMS, NAMES,
    PLAIN, COSTING, KEYS, BODIES, POLICIES, ENDINGS, MINUTES,
)  # fmt: skip
LAWS = (*(name_law(law) for law in OF_EVENTS), *(name_law(law) for law in OF_ROWS), *WHOLE)


def audit(
    connection: Connection,
    lifecycles: Mapping[str, Lifecycle],
    *,
    rebuild: bool = False,
    from_seal: int = 1,
    paths: bool = True,
    laws: Mapping[str, PluginLaw] | None = None,
) -> Iterator[Broken]:
    """Every law, asked of every unit that the session sees; with `rebuild`, every row is compared with its fold.

    `laws` are those of plugins.

    Acts and seals before `from_seal` are taken as they are, tenant by tenant; without `paths`, so are the paths.

    Units and events are read a page at a time; what stays in memory is a few numbers for each parent and worker, and
    what units have failed with.
    """
    listed = {name: Listed(lifecycle, lifecycles["lease"]) for name, lifecycle in lifecycles.items()}
    held: dict[int, int] = {}
    failures: dict[int, set[str]] = {}  # by unit: the errors that its events tell of, and the digests of tracebacks
    costs: dict[int, int] = {}  # by unit: what it says of its cost that neither its events nor its children do
    stated: dict[int, dict[str, int]] = {}  # by parent: what it counts, and what it has
    counted_children: dict[int, dict[str, int]] = {}
    allowed = {(move.unit, move.version) for move in read_forced_moves(connection)}
    replaced = set(find_replaced(connection))
    for unit, events in read_histories(connection):
        if unit.parent is not None and unit.id not in replaced:
            family = counted_children.setdefault(unit.parent, dict.fromkeys(COUNTED, 0))
            count_birth(family, unit)
            add(family, unit, 1)
        if unit.total:
            stated[unit.id] = {name: getattr(unit, name) for name in COUNTED}
        if unit.cost:
            costs[unit.id] = costs.get(unit.id, 0) + unit.cost
            if unit.parent is not None:
                costs[unit.parent] = costs.get(unit.parent, 0) - unit.cost
        if unit.lifecycle in listed:
            yield from judge(unit, deduct(failing(events, failures), costs), listed[unit.lifecycle], allowed, rebuild)
        else:
            yield Broken(KNOWN, unit.id, f"its lifecycle '{unit.lifecycle}' is not")
        if unit.holder is not None:
            held[unit.holder] = held.get(unit.holder, 0) + 1
    yield from workers_hold_what_they_hold(connection, held)
    yield from parents_count_their_children(stated, counted_children)
    for unit_id, cost in costs.items():
        if cost and not has_erased_details(connection, unit_id):
            yield Broken(COSTING, unit_id, f"its cost is {cost / MILLION} more than its attempts and its children tell")
    yield from keys_are_kept(connection)
    yield from bodies_can_be_read(connection)
    yield from endings_are_told(connection, failures)
    yield from of_families(connection, lifecycles, {unit for unit, _ in allowed})
    yield from of_the_record(connection, from_seal, paths)
    for law, judge_all in (laws or {}).items():
        for unit_id, text in judge_all(connection):
            yield Broken(law, unit_id, text)
    for unit_id, count in find_orphans(connection):
        yield Broken(OWNED, unit_id, f"acts tell of it ({count}), but there is no such unit")


def of_families(
    connection: Connection, lifecycles: Mapping[str, Lifecycle], forced: Container[int]
) -> Iterator[Broken]:
    """What is wrong with needs, with terms and with names; `forced` are units that operators have forced."""
    yield from needs_are_counted(connection)
    yield from nobody_waits_for_what_is_lost(connection, lifecycles)
    yield from terms_are_kept(connection, lifecycles, forced)
    yield from names_are_kept(connection, lifecycles)


def of_the_record(connection: Connection, from_seal: int, paths: bool) -> Iterator[Broken]:
    """What is wrong with the record itself: paths, acts, leases and seals; and with what is counted of it by minute."""
    of_record = (
        judge_paths(connection) if paths else (), judge_acts(connection, from_seal), judge_members(connection),
        judge_leases(connection), judge_seals(connection, from_seal),
    )  # fmt: skip
    for fault in chain.from_iterable(of_record):
        yield Broken(fault.law, fault.unit, fault.text)
    for text in find_wrong_minutes(connection):
        yield Broken(MINUTES, 0, text)


def deduct(events: Iterable[Event], costs: dict[int, int]) -> Iterator[Event]:
    """These events; what they tell of costs is subtracted from what the row says."""
    for event in events:
        if '"cost"' in event.payload:
            cost = round(msgspec.json.decode(event.payload).get("cost", 0) * MILLION)
            costs[event.unit] = costs.get(event.unit, 0) - cost
        yield event


def failing(events: Iterable[Event], failures: dict[int, set[str]]) -> Iterator[Event]:
    """These events; what they tell of errors and tracebacks is noted."""
    for event in events:
        if '"error"' in event.payload:
            payload = msgspec.json.decode(event.payload)
            known = {payload[name] for name in ("error", "traceback_digest") if name in payload}
            failures.setdefault(event.unit, set()).update(known)
        yield event


def judge(
    unit: Unit, events: Iterable[Event], listed: Listed, allowed: Container[tuple[int, int]], rebuild: bool
) -> Iterator[Broken]:
    """What one unit breaks; `allowed` has the unit and the version of every forced move."""
    folded = FoldedRow()
    for event in events:
        if event.trigger == FORCE and (event.unit, event.version) not in allowed:
            yield Broken(ALLOWED, unit.id, f"version {event.version} was forced, and no operator allowed it")
        for law in OF_EVENTS:
            for text in law(folded, event, listed):
                yield Broken(name_law(law), unit.id, text)
        apply_event(folded, event, listed)
    for row_law in OF_ROWS:
        for text in row_law(unit, folded, listed):
            yield Broken(name_law(row_law), unit.id, text)
    if rebuild:
        for text in list_differences(unit, folded, listed):
            yield Broken(REBUILT, unit.id, text)


def workers_hold_what_they_hold(connection: Connection, held: Mapping[int, int]) -> Iterator[Broken]:
    """The count of each worker is that of the units that name it as their holder: `held`, by worker."""
    known_workers = read_workers(connection)
    for worker in known_workers:
        if worker.holding != held.get(worker.unit, 0):
            text = f"it is said to hold {worker.holding} units, and holds {held.get(worker.unit, 0)}"
            yield Broken(HOLDING, worker.unit, text)
        if worker.holding > worker.capacity:
            text = f"it holds {worker.holding} units, above its capacity of {worker.capacity}"
            yield Broken(HOLDING, worker.unit, text)
    for unit_id in sorted(held.keys() - {worker.unit for worker in known_workers}):
        yield Broken(HOLDING, unit_id, f"it is said to hold {held[unit_id]} units, and is no worker")


def parents_count_their_children(
    stated: Mapping[int, dict[str, int]], counted_children: Mapping[int, dict[str, int]]
) -> Iterator[Broken]:
    """The counters of a parent are what its children make of them."""
    for parent in sorted(stated.keys() | counted_children.keys()):
        if stated.get(parent) != counted_children.get(parent):
            yield Broken(COUNTING, parent, f"it counts {stated.get(parent)}, and has {counted_children.get(parent)}")


def needs_are_counted(connection: Connection) -> Iterator[Broken]:
    """A row has as many unmet needs as are counted, and is plain only if nothing follows from it."""
    for unit_id, unmet, counted in count_unmet_needs(connection):
        if unmet != counted:
            yield Broken(NEEDING, unit_id, f"{unmet} of its needs are said to be unmet, and {counted} are")
    for unit_id in find_wrongly_plain(connection):
        yield Broken(PLAIN, unit_id, "something follows from its grant or its success, and it is said to be plain")


def nobody_waits_for_what_is_lost(connection: Connection, lifecycles: Mapping[str, Lifecycle]) -> Iterator[Broken]:
    """A unit whose need can never be met has been stopped, unless its parent judges by its critical children."""
    for wait in read_lost_needs(connection):
        lifecycle, above = lifecycles.get(wait.needed_lifecycle), lifecycles.get(wait.parent_lifecycle or "")
        if lifecycle is None or may_be_resumed(lifecycle, wait.needed_state):
            continue
        if above is None or above.options.roll_up is not RollUp.CRITICAL:
            yield Broken(HOPELESS, wait.unit, f"it waits for unit {wait.needs}, which is {wait.needed_state}")


def terms_are_kept(
    connection: Connection, lifecycles: Mapping[str, Lifecycle], allowed: Container[int]
) -> Iterator[Broken]:
    """A verdict falls when a unit's own terms say so, no more is lost than may be, and like is made anew.

    `allowed` are units that operators have forced.
    """
    yield from verdicts_have_fallen(connection, lifecycles)
    for events, children in read_ended_families(connection, ALL_ENDED):
        verdicts = {event.at for event in events if event.trigger in VERDICTS and event.reason == BY_CHILDREN}
        for child, end in children:
            if end.at in verdicts and end.reason in BY_PARENT:
                yield Broken(TERMS, child.parent or 0, f"its verdict fell before its child {child.id} had ended")
    resumed = {
        name for name, each in lifecycles.items()
        if any(may_be_resumed(each, state) for state in each.states if each.settled(state))
    }  # fmt: skip
    for unit, kind, losses, policy in read_lost_leases(connection):
        most = read_losses(policy)
        if most is not None and losses > most and unit not in allowed and kind not in resumed:
            yield Broken(TERMS, unit, f"it has lost {losses} leases, and may lose {most}")
    for unit, origin in read_wrong_origins(connection):
        yield Broken(TERMS, unit, f"it is said to do unit {origin} again, which is itself or of another kind")


def read_losses(policy: str) -> int | None:
    """How many leases a unit may lose, as it says itself; None if it does not, or if nobody can read it."""
    try:
        return policy_in(policy).losses
    except msgspec.MsgspecError:
        return None  # another law tells


def verdicts_have_fallen(connection: Connection, lifecycles: Mapping[str, Lifecycle]) -> Iterator[Broken]:
    """No unit waits for a verdict that its children have decided, by the terms that it was given."""
    for parent, policy in read_open_parents(connection):
        lifecycle = lifecycles.get(parent.lifecycle)
        if lifecycle is None or lifecycle.options.roll_up not in SETTLED_BY_CHILDREN:
            continue
        if parent.state not in lifecycle.states:
            continue  # another law tells
        children = Children(**{name: getattr(parent, name) for name in COUNTED})
        waits = f'"settle":"{ALL_ENDED}"' in policy
        verdict = verdict_of_children(lifecycle, parent.state, children, waits=waits)
        if verdict in VERDICTS:
            yield Broken(TERMS, parent.id, f"its children say '{verdict}', and it is {parent.state}")


def names_are_kept(connection: Connection, lifecycles: Mapping[str, Lifecycle]) -> Iterator[Broken]:
    """A name leads to a child that says the same of itself, and every child with a name can be found by it."""
    for child in read_named_children(connection):
        try:
            own = policy_in(child.policy)
        except msgspec.MsgspecError:
            continue  # another law tells
        if child.place is not None and child.place != (child.parent, own.step):
            yield Broken(NAMES, child.unit, f"it is the child '{child.place[1]}' of unit {child.place[0]}, it is said")
        above = lifecycles.get(child.parent_lifecycle or "")
        if child.place or child.parent is None or own.step is None or own.undoes is not None:
            continue
        if above is not None and above.options.follows == child.lifecycle:
            continue  # it repeats what its parent says
        if not has_place(connection, child.parent, own.step):
            yield Broken(NAMES, child.unit, f"it is called '{own.step}', and its parent knows no such child")
    for unit, need in read_needs_of_nothing(connection):
        yield Broken(NAMES, unit, f"it needs unit {need}, which is not there, and no place is kept for it")


def bodies_can_be_read(connection: Connection) -> Iterator[Broken]:
    """What a unit was promised is there, and is what a program understands."""
    for unit_id, text in read_policies(connection):
        if text is None:
            yield Broken(BODIES, unit_id, "it has none")
            continue
        try:
            policy_in(text)
        except msgspec.MsgspecError as error:
            yield Broken(POLICIES, unit_id, f"its policy cannot be read: {error}")


def endings_are_told(connection: Connection, failures: Mapping[int, set[str]]) -> Iterator[Broken]:
    """Results, errors and tracebacks are kept beside the acts, which have their digests; what was erased is missed."""
    for kept in read_results(connection, PAGE):
        if not kept.recorded:
            yield Broken(ENDINGS, kept.unit, "its result is not the one that its acts tell of")
        is_known = kept.error is None or kept.error in failures.get(kept.unit, ())
        if not is_known and not has_erased_details(connection, kept.unit):
            yield Broken(ENDINGS, kept.unit, "its error is not one that its events tell of")
    for unit, text in read_tracebacks(connection):
        if sha256(text.encode()).hexdigest() not in failures.get(unit, ()) and not has_erased_details(connection, unit):
            yield Broken(ENDINGS, unit, "a traceback of it is not one that its events tell of")


def keys_are_kept(connection: Connection) -> Iterator[Broken]:
    """A mutex, a limit or a rate is never exceeded, and nobody waits for a key that is free."""
    for tenant, key, capacity, taken, seated, waiting in read_slots(connection):
        if taken != seated:
            yield Broken(KEYS, 0, f"'{key}' of tenant {tenant} is taken {taken} times, and {seated} have it")
        if waiting and taken < capacity:
            yield Broken(KEYS, 0, f"'{key}' of tenant {tenant} is free, and {waiting} units wait for it")
