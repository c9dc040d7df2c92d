"""What one unit's move means to others: those that need it, its parent, and the parent's other children."""

import msgspec

from interlock.engine.advance import Stamp, advance, derive
from interlock.engine.compensation import compensate, remember_undo
from interlock.engine.ends import close, live, summon
from interlock.engine.notes import CANCEL_REQUESTED, note
from interlock.engine.outcomes import keep_result
from interlock.engine.outputs import gathered, known_to
from interlock.engine.templates import expand
from interlock.engine.terms import follower, policy_of, tally
from interlock.engine.workers import free_workers
from interlock.kernel import conditions, policy
from interlock.kernel.lifecycle import Category, Lifecycle, RollUp
from interlock.kernel.policy import Children
from interlock.kernel.rows import Unit
from interlock.store.finders import open_children
from interlock.store.flush import COUNTED
from interlock.store.tallies import write_tallies
from interlock.store.tx import Tx

ENGINE = Stamp("engine")
BY_PARENT = ("its parent ended", "its parent was cancelled")  # why a child was stopped
SKIPPED = Stamp("engine", "skipped")
# By these, in this order, a unit that is not wanted goes to its success: each that its table lists.
WITHOUT_WORK = ("ready", "begin", "claim", "start", "complete", "approve", "succeed")
COUNTED_ROLL_UPS = (RollUp.ALL, RollUp.CRITICAL, RollUp.REQUIRED, RollUp.SINGLE)


def carry_on(tx: Tx) -> None:
    """Everything that follows from what this transaction did is done, and all of it is in the database.

    Counters are written by adding, as the last statement, and the verdict is taken from what they come to; so
    children of one parent do not wait for each other longer than that.
    """
    while moved := follow_and_meet_needs(tx):
        for unit, was in moved:
            if unit.total and has_ended(unit) and not (was and has_ended(was)) and not all_won(unit):
                end_family(tx, tx.as_its_own(tx.units[unit.id]))
        ended = [unit for unit, was in moved if unit.outcome and not (was and was.outcome)]
        remember_undo(tx, ended)
        compensate(tx, ended)
        children: dict[int, list[Unit]] = {}
        for unit, _ in moved:
            if unit.parent is not None:
                children.setdefault(unit.parent, []).append(unit)
        for parent in tx.add_counts(counts(moved)):
            hear_children(tx, tx.as_its_own(parent), children[parent.id])
    if tx.costs:
        tx.add_costs()
    if tx.tallies:
        write_tallies(tx)


def follow_and_meet_needs(tx: Tx) -> list[tuple[Unit, Unit | None]]:
    """What changed is in the database, and what became ready by it too: a parent must not hear half of it."""
    moved: list[tuple[Unit, Unit | None]] = []
    while tx.pending or tx.given_back or tx.takings:
        while tx.fired:
            child, trigger, happened = tx.fired.popleft()
            tx.floor = happened + 1
            follow(tx, tx.as_its_own(child), trigger)
        some = tx.flush()
        met = tx.meet_needs(succeeded(some))
        tx.load(unit.parent for unit in met if unit.parent is not None)  # each is asked for its plan
        for unit in met:
            needs_met(tx, tx.as_its_own(unit))
        moved += some
        free_workers(tx)
    return moved


def follow(tx: Tx, child: Unit, trigger: str) -> None:
    """A unit that follows its child makes the same move, and opens the next attempt where its table says so."""
    parent = follower(tx, child)
    if parent is None or trigger == "submit":
        return
    life, attempt = tx.life(parent), parent.attempt
    if life.settled(parent.state):
        return  # an operator has put it there: it follows nobody any more
    if child.id in tx.askers:
        tx.askers.setdefault(parent.id, tx.askers[child.id])
    if told := policy.follow(life, parent.state, trigger, child.state):
        advance(tx, parent, told, ENGINE)
    if child.id in tx.retryable:
        tx.retryable.discard(child.id)
        if again := policy.after_attempt(life, parent.state, tally(tx, child), retryable=True):
            advance(tx, parent, again, ENGINE)
    if parent.attempt > attempt:
        make_ready(tx, next_attempt(tx, parent, ENGINE, child))


def next_attempt(tx: Tx, parent: Unit | None, stamp: Stamp, last: Unit) -> Unit:
    """A new unit that does the same work as the last one, and names it."""
    unit = Unit(id=tx.new_id(), tenant=last.tenant, lane=last.lane, lifecycle=last.lifecycle)
    unit.parent, unit.priority = parent.id if parent else None, last.priority
    tx.bear(unit)
    fresh = {"unit": unit.id, "key": None, "created_at": tx.now, "result": None, "error": None, "retry_of": last.id}
    tx.add(msgspec.structs.replace(tx.body(last), **fresh))
    advance(tx, unit, "submit", stamp)
    return unit


def make_ready(tx: Tx, unit: Unit) -> None:
    """A unit that waits for nothing any more is ready; one that follows another says so to it.

    The run of a template has its steps now. A step that is not wanted has succeeded without work.
    """
    own = policy_of(tx.body(unit))
    if own.when is not None and not conditions.holds(own.when, known_to(tx, unit)):
        skip(tx, unit)
        return
    if own.template is not None and not unit.total:
        make_steps_ready(tx, expand(tx, unit))
    child = next(iter(open_children(tx, unit.id)), None) if tx.life(unit).options.follows else None
    if child is not None:
        make_ready(tx, child)
    elif tx.life(unit).allows(unit.state, "ready"):
        advance(tx, unit, "ready", ENGINE)
    else:
        derive(tx, unit)
        tx.touch(unit)


def make_steps_ready(tx: Tx, steps: list[Unit]) -> None:
    for step in steps:
        if not step.unmet:
            make_ready(tx, step)


def skip(tx: Tx, unit: Unit) -> None:
    """The unit has succeeded, and nobody worked for it."""
    for trigger in WITHOUT_WORK:
        if tx.life(unit).allows(unit.state, trigger):
            advance(tx, unit, trigger, SKIPPED)


def planned(tx: Tx, unit: Unit) -> bool:
    """Whether a unit may go on: the children of one that still waits for its plan may not."""
    parent = tx.unit(unit.parent) if unit.parent is not None else None
    return parent is None or not tx.life(parent).allows(parent.state, "plan")


def succeeded(moved: list[tuple[Unit, Unit | None]]) -> dict[int, int]:
    """Units that have just succeeded (1), and those that an operator took their success from (-1)."""
    won: dict[int, int] = {}
    for unit, was in moved:
        change = (unit.outcome == Category.SUCCESS) - (was is not None and was.outcome == Category.SUCCESS)
        if change:
            won[unit.id] = change
    return won


def counts(moved: list[tuple[Unit, Unit | None]]) -> dict[int, dict[str, int]]:
    """What to add to the counters of each parent."""
    sums: dict[int, dict[str, int]] = {}
    for unit, was in moved:
        if unit.parent is None:
            continue
        sums.setdefault(unit.parent, dict.fromkeys(COUNTED, 0))
        if was is None:
            count_birth(sums[unit.parent], unit)
        else:
            add(sums[unit.parent], was, -1)
        add(sums[unit.parent], unit, 1)
    return sums


def count_birth(total: dict[str, int], unit: Unit) -> None:
    total["total"] += 1
    total["deciders"] += unit.decides


def add(total: dict[str, int], unit: Unit, sign: int) -> None:
    """A unit counts once: as settled, as blocked, as a gate, as begun, or not at all."""
    if unit.outcome == Category.SUCCESS:
        total["succeeded"] += sign
        total["won"] += sign * unit.decides
    elif unit.outcome is not None:
        total["lost"] += sign
        total["decided"] += sign * unit.decides
    elif unit.unmet:
        total["blocked"] += sign
    elif unit.category == Category.GATE:
        total["gates"] += sign
    elif unit.category in policy.LEASED:
        total["begun"] += sign


def needs_met(tx: Tx, unit: Unit) -> None:
    """The last need of a unit has succeeded: it is ready, or a gate opens. One that needs something again waits."""
    tx.touch(unit)
    if unit.unmet:
        derive(tx, unit)
    elif planned(tx, unit):
        make_ready(tx, unit)


def hear_children(tx: Tx, parent: Unit, moved: list[Unit]) -> None:
    """The parent does what its children say, and its end is the end of those that are left."""
    life = tx.life(parent)
    if life.options.roll_up not in COUNTED_ROLL_UPS or life.settled(parent.state):
        return
    if life.options.roll_up is RollUp.SINGLE:
        trigger = current_child(life, parent, moved)
    else:
        trigger = policy.verdict(life, parent.state, Children(**{name: getattr(parent, name) for name in COUNTED[1:]}))
    if trigger == "succeed" and parent.parent is not None and policy_of(tx.body(parent)).step is not None:
        keep_result(tx, parent, gathered(tx, parent))
    if trigger:
        advance(tx, parent, trigger, Stamp("engine", "its children"))


def current_child(life: Lifecycle, parent: Unit, moved: list[Unit]) -> str:
    """What the one child that does the work says; older ones are not asked."""
    child = max(moved, key=lambda unit: unit.id, default=None)
    if child is None:
        return ""
    if child.outcome is not None:
        said = "succeed" if child.outcome == Category.SUCCESS else "fail"
    else:
        said = "begin" if child.category in policy.LEASED else ""
    return said if said and life.allows(parent.state, said) else ""


def all_won(unit: Unit) -> bool:
    """Whether a unit has succeeded after all its children have ended: then none is left to be stopped."""
    return unit.outcome == Category.SUCCESS and unit.succeeded + unit.lost == unit.total


def has_ended(unit: Unit) -> bool:
    return unit.outcome is not None or unit.category == Category.CLOSING


def end_family(tx: Tx, parent: Unit) -> None:
    """The open children of a unit that has ended, or was asked to, are stopped as well."""
    closing = parent.category == Category.CLOSING
    stamp = Stamp("engine", BY_PARENT[closing])
    asked = tx.askers.get(parent.id)
    for child in open_children(tx, parent.id):
        if asked is not None:
            tx.askers.setdefault(child.id, asked)
        end_child(tx, child, closing or parent.outcome == Category.CANCELLED, stamp)


def end_child(tx: Tx, child: Unit, cancelled: bool, stamp: Stamp) -> None:
    """A child is stopped as its own lifecycle says; of one that follows another, the other."""
    life = tx.life(child)
    attempts = open_children(tx, child.id) if life.options.follows else []
    if attempts:
        if child.id in tx.askers:
            tx.askers.setdefault(attempts[-1].id, tx.askers[child.id])
        end_child(tx, attempts[-1], cancelled, stamp)
        return
    trigger = policy.after_parent(life, child.state, cancelled=cancelled)
    summon(tx, child)
    if trigger and live(tx, child):
        child.asked_at, child.asked_by = tx.now, tx.now + (life.options.cancel_within_us or 0)
        close(tx, child, trigger, "force", stamp, {})
    elif trigger:
        advance(tx, child, trigger, stamp)
    elif life.states[child.state].cancel == "deferred":
        child.asked_at, child.asked_by = tx.now, tx.now + (life.options.cancel_within_us or 0)
        asked = tx.askers.get(child.id, {"by": stamp.actor, "reason": stamp.reason})
        said = msgspec.json.encode(Stamp(asked["by"], asked["reason"])).decode()
        note(tx, child.id, CANCEL_REQUESTED, said, fence=child.fence)
        derive(tx, child)
        tx.touch(child)
