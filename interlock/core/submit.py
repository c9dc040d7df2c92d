"""Submit: make one or many units in one command, all of them or none."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from interlock.core.advance import Stamp, advance, make_stamp, make_unit
from interlock.core.effective_policy import policy_of
from interlock.core.fast_submit import Alike, add_alike_units, find_birth, keep_birth
from interlock.core.places import (
    PlaceState,
    Prerequisite,
    find_child,
    is_counted,
    load_places,
    name_of,
    needs_of_work,
    refuse_circles,
    refuse_other_work,
    take_place,
)
from interlock.core.plain import attach_to, is_born_plain
from interlock.core.reactions.needs import LostNeeds, is_lost
from interlock.core.ready import is_planned, make_ready
from interlock.core.tenants import refuse_too_long
from interlock.core.validation import check_work, check_work_once, encode_policy, policy_values
from interlock.kernel.commands import Submit, Submitted, Work
from interlock.kernel.errors import InterlockError, NotWanted, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.paths import BORN
from interlock.kernel.rows import Body, Need, Unit, copied
from interlock.kernel.workflow_graph import STEP, as_gate, has_ref, names_in, order_of
from interlock.store.acts import repeat_birth
from interlock.store.cache import EngineCache
from interlock.store.prefetch import Queries, declare_lanes
from interlock.store.queries.for_verbs import find_by_key, find_or_make_lane, get_limits, load_keys
from interlock.store.queries.places import read_places
from interlock.store.unit_of_work import UnitOfWork

ALONE = attrgetter(
    "key", "ref", "parent", "needs", "after", "needs_end", "after_end", "correlation", "trace", "cause", "step",
    "retry_of",
)  # fmt: skip


def submit(tx: UnitOfWork, command: Submit) -> list[Submitted]:
    """Every piece of work is a unit; one whose key is taken is the unit that has it."""
    if any(work.lifecycle == STEP for work in command.work):
        command = msgspec.structs.replace(command, work=tuple(map(as_gate, command.work)))
    if tx.hooks.complete_work or tx.hooks.complete_options:
        command = msgspec.structs.replace(command, work=complete_work(tx, command.work))
    kinds = [check_work_once(tx, work) for work in command.work]
    all_independent = not any(any(ALONE(work)) for work in command.work)
    if not all_independent:
        check_keys(tx, command)
    if get_limits(tx, command.tenant)[1] is not None:
        refuse_too_long(tx, command)
    refs: dict[str, int] = {}
    stamp, answers = make_stamp(command), dict[int, Submitted]()
    places: Sequence[int] = range(len(command.work))
    if not all_independent:
        places = arrange_work(tx, command.work) if any(map(names_in, command.work)) else places
        tx.load_units(need for work in command.work for need in (*work.after, *work.after_end))
        load_named(tx, command.work)
    firsts: dict[int, Unit] = {}  # by kind of work: the others of that kind are copies of the first
    by_lists = all_independent and not command.vouched_by
    alike: dict[int, Alike] = {}  # by kind: what is born by lists
    for place in places:
        work = command.work[place]
        if by_lists and kinds[place] not in firsts and (birth := find_birth(tx, kinds[place], work)):
            same = alike.setdefault(kinds[place], Alike(birth, [], []))
            same.numbers.append(tx.ids.take())
            same.inputs.append(work.input)
            answers[place] = Submitted(same.numbers[-1], True, False, work.lifecycle, birth.unit.state, command.cause)
            continue
        if (first := firsts.get(kinds[place])) is not None and is_independent(work):
            answers[place] = make_answer(make_alike(tx, first, work.input), command)
            continue
        answers[place] = submit_work(tx, command, work, stamp, refs)
        if is_independent(work) and is_plain(tx, unit := tx.rows.units[answers[place].unit], work):
            firsts[kinds[place]] = unit
            if by_lists and tx.fast_path:
                keep_birth(tx, kinds[place], unit)
        if work.ref:
            refs[work.ref] = answers[place].unit
    if alike:
        add_alike_units(tx, stamp, alike)
    made = [answers[place] for place in range(len(command.work))]
    if not all_independent:
        refuse_circles(tx)
        for hook in tx.hooks.after_submit:
            hook(tx, command, made)
    return made


def arrange_work(tx: UnitOfWork, works: Sequence[Work]) -> list[int]:
    """The order in which works are made: each behind its parent, and behind those of the same command that it needs.

    A child of a unit that is there already, or of one that waits for its plan, may need names that are yet to come.
    """
    planned = {work.ref for work in works if work.ref and waits_for_plan(tx, work)}
    return order_of(works, lambda work: not (isinstance(work.parent, int) or work.parent in planned))


def waits_for_plan(tx: UnitOfWork, work: Work) -> bool:
    """Whether a unit of this work is born without its children, and waits for somebody to say that all are there."""
    lifecycle = tx.lifecycles[work.lifecycle]
    return lifecycle.allows(lifecycle.birth.path[-1], "plan")


def load_named(tx: UnitOfWork, works: Sequence[Work]) -> None:
    """Reads the places that children of units which are there already name, and locks who is in them."""
    names: dict[int, list[str]] = {}
    for work in works:
        if isinstance(work.parent, int) and (work.step or has_ref(work) or work.needs or work.needs_end):
            some = (work.step, work.ref, *work.needs, *work.needs_end)
            names.setdefault(work.parent, []).extend(name for name in some if name and "\0" not in name)
    if not names:
        return
    if tx.connection.many_writers:  # children are locked before their parents; what is read here may still change
        read = [read_places(tx, parent, list(dict.fromkeys(named))) for parent, named in names.items()]
        tx.load_units(place.unit for rows in read for place, is_filled in rows if is_filled)
    tx.load_units(names)
    for parent, named in names.items():
        load_places(tx, parent, named)
    state = tx.state(PlaceState)
    known = [state.places[parent, name] for parent, named in names.items() for name in named]
    tx.load_units(place.unit for place in known if place and place.unit not in state.reserved)


def complete_work(tx: UnitOfWork, works: Sequence[Work]) -> tuple[Work, ...]:
    """Works with what plugins know of their tasks.

    Raises:
        InterlockError: one of them may not be made.
    """
    for hook in tx.hooks.complete_work:
        works = hook(tx, works)
    if any(work.options for work in works):
        for hook in tx.hooks.complete_options:
            works = hook(tx, works)
    return tuple(works)


def submit_reads(cache: EngineCache, submits: Sequence[Submit]) -> Queries:
    """The lanes of their tenants."""
    for tenant in sorted({command.tenant for command in submits}):
        yield from declare_lanes(cache, tenant)


def is_independent(work: Work) -> bool:
    """Whether work says nothing of itself but what work of its kind says, and its input."""
    return not any(ALONE(work))


def is_plain(tx: UnitOfWork, unit: Unit, work: Work) -> bool:
    """Whether its birth is all that follows from a unit's work: nothing is made with it, and no limit counts it."""
    if not is_ready_by_birth(tx.lifecycle(unit), unit.state, work) or has_key(work):
        return False
    move = tx.changes.last_moves.get(unit.id)
    return move is not None and move.path.source == BORN


def has_key(work: Work) -> bool:
    """Whether others that name the same may keep it waiting."""
    return bool(work.mutex or work.limit_key or work.rate_key or work.resources)


def make_alike(tx: UnitOfWork, first: Unit, text: str) -> Unit:
    """A unit that differs from one which was just born in nothing but its id and its input: the same move bears it."""
    unit: Unit = copied(first)
    body: Body = copied(tx.rows.bodies[first.id])
    unit.id = body.unit = tx.ids.take()
    body.input, body.correlation = text, str(unit.id)
    tx.add_unit(unit)
    tx.add(body)
    repeat_birth(tx, first, unit)
    return unit


def make_lanes(tx: UnitOfWork, command: Submit) -> None:
    """The lanes of this work are there for everybody, whatever becomes of the work itself."""
    try:
        for work in complete_work(tx, command.work):
            check_work(tx.lifecycles, work, tx.hooks)
            find_lane_of_work(tx, command.tenant, work)
    except BaseException:
        tx.connection.rollback()
        raise
    tx.connection.commit()


def check_keys(tx: UnitOfWork, command: Submit) -> None:
    """A key stands for one piece of work: another one under it is refused, and so is the same where that was asked."""
    named: dict[tuple[str, str], list[Work]] = {}
    keys: dict[str, list[str]] = {}
    for work in command.work:
        if work.key is not None:
            named.setdefault((work.task, work.key), []).append(work)
            keys.setdefault(work.task, []).append(work.key)
    for task, names in keys.items():
        load_keys(tx, command.tenant, task, names)
    for (task, key), same in named.items():
        body = find_by_key(tx, command.tenant, task, key)
        modes = {work.on_duplicate for work in same}
        if "reject" in modes and (body or len(same) > 1):
            raise InterlockError(f"DUPLICATE_KEY: task '{task}' has a job under the key '{key}' already")
        inputs = {work.input for work in same} | ({body.input} if body else set())
        if "return" in modes and len(inputs) > 1:
            raise InterlockError(f"IDEMPOTENCY_CONFLICT: key '{key}' of task '{task}' has another body")


def submit_work(tx: UnitOfWork, command: Submit, work: Work, stamp: Stamp, refs: dict[str, int]) -> Submitted:
    """Makes the unit of one work, or finds the one that has its key."""
    body = find_by_key(tx, command.tenant, work.task, work.key) if work.key is not None else None
    if body is None:
        return submit_child(tx, command, work, stamp, refs)
    old = tx.unit(body.unit)
    lifecycle = tx.lifecycle(old)
    unstarted = old.fence == 0 and not lifecycle.options.follows and lifecycle.allows(old.state, "cancel")
    if work.on_duplicate != "replace" or not unstarted:
        return make_answer(old, command, created=False)
    if old.parent is not None and policy_of(tx.body(old)).step is not None:
        raise InterlockError("on_duplicate = 'replace' is not allowed for a child with a name: the name stays with it")
    advance(
        tx,
        old,
        "cancel",
        Stamp(command.actor, "replaced", command.cause, command.vouched_by),
        payload={"key": body.key},
    )
    body.key = None
    tx.rows.keys[command.tenant, work.task, work.key or ""] = None
    new = create_ready(tx, work, stamp, find_parent(tx, work, refs), refs)
    body.replaced_by = new.id
    tx.change(body)
    return make_answer(new, command, replaced=True)


def submit_child(tx: UnitOfWork, command: Submit, work: Work, stamp: Stamp, refs: dict[str, int]) -> Submitted:
    """Work is a unit of its own, unless its parent has a child of that name already: then it is that child."""
    parent = find_parent(tx, work, refs)
    child = None if parent is None else find_child(tx, parent, name_of(tx, work, parent))
    if parent is None or child is None:
        return make_answer(create_ready(tx, work, stamp, parent, refs), command)
    refuse_other_work(tx, work, parent, child)
    return make_answer(child, command, created=False)


def make_answer(unit: Unit, command: Submit, created: bool = True, replaced: bool = False) -> Submitted:
    """Makes the answer for one work."""
    return Submitted(unit.id, created, replaced, unit.lifecycle, unit.state, command.cause)


def find_parent(tx: UnitOfWork, work: Work, refs: dict[str, int]) -> Unit | None:
    """The parent that work names, locked.

    Raises:
        Unknown: there is none.
    """
    if work.parent is None:
        return None
    return tx.unit(refs[work.parent] if isinstance(work.parent, str) else work.parent)


def create_ready(tx: UnitOfWork, work: Work, stamp: Stamp, parent: Unit | None, refs: dict[str, int]) -> Unit:
    """A unit with its body and its needs, ready if nothing keeps it."""
    if parent is not None and tx.lifecycle(parent).settled(parent.state):
        raise NotWanted(
            f"{format_id(parent.lifecycle, parent.id)} has ended ({parent.state}); it gets no more children"
        )
    needs = lock_needs(tx, work, parent, refs)
    for hook in tx.hooks.prepare_work:
        work = hook(tx, work, parent)
    if parent is not None and work.decides:
        refuse_second_child(tx, parent)
    if work.retry_of is not None:
        refuse_wrong_retry(tx, work, work.retry_of)
    if work.cause:
        stamp = msgspec.structs.replace(stamp, cause=work.cause)
    rules = encode_policy(policy_values(work), takes_outputs(tx, work, parent))
    unit = create_unit(tx, work, rules, stamp, parent, needs)
    if not is_ready_by_birth(tx.lifecycle(unit), unit.state, work) and not unit.unmet and is_planned(tx, unit):
        make_ready(tx, unit)
    for need in needs:
        if need.unit is not None and not need.is_met and is_lost(tx, need.unit):
            tx.state(LostNeeds).units.add(need.id)
    return unit


def takes_outputs(tx: UnitOfWork, work: Work, parent: Unit | None) -> bool:
    """Whether a unit gets the results of what it needs; a step of a run of steps gets those of all steps before it."""
    if parent is None:
        return bool(work.needs or work.after or work.needs_end or work.after_end)
    named = work.step is not None or work.needs or work.after or work.needs_end or work.after_end
    return bool(named) and tx.lifecycle(parent).options.roll_up is not RollUp.ALL


def refuse_wrong_retry(tx: UnitOfWork, work: Work, old: int) -> None:
    """Raises Unknown or InterlockError unless work does a unit of its own kind again that has ended."""
    unit = tx.unit(old)
    name = format_id(unit.lifecycle, unit.id)
    if unit.lifecycle != work.lifecycle:
        raise InterlockError(f"retry_of names {name}; allowed is a {work.lifecycle}")
    if not tx.lifecycle(unit).settled(unit.state):
        raise InterlockError(f"retry_of names {name}, which is {unit.state}; allowed is one that has ended")


def create_unit(
    tx: UnitOfWork, work: Work, policy: str, stamp: Stamp, parent: Unit | None, needs: Sequence[Prerequisite]
) -> Unit:
    """A unit with its body and its needs; whether it is ready is for others to say."""
    tenant, above = tx.tenant, tx.body(parent) if parent else None
    unit = Unit(
        id=take_place(tx, parent, work.step),
        parent=parent.id if parent else None,
        decides=int(work.decides),
        unmet=sum(not need.is_met for need in needs),
        tenant=tenant,
        lane=find_lane_of_work(tx, tenant, work),
        lifecycle=work.lifecycle,
        priority=work.priority,
        due_at=max(work.at_us or 0, tx.now + work.delay_us if work.delay_us else 0) or None,
        plain=int(is_born_plain(tx, work, policy, parent, needs)),
    )
    body = Body(
        unit=unit.id, tenant=tenant, task=work.task, key=work.key, created_at=tx.now, input=work.input,
        labels=work.labels, policy=policy, mutex=work.mutex,
        limit_key=work.limit_key, rate_key=work.rate_key, trace=work.trace or (above.trace if above else ""),
        correlation=work.correlation or (above.correlation if above else str(unit.id)), retry_of=work.retry_of,
    )  # fmt: skip
    for hook in tx.hooks.before_birth:
        hook(tx, work)
    rows = [Need(unit=unit.id, needs=need.id, tenant=tenant, by_end=int(need.by_end)) for need in needs]
    make_unit(tx, unit, body, stamp, needs=rows)
    if parent is not None:
        attach_to(tx, parent)
    if needs:
        tx.state(PlaceState).needs += [(unit.id, need.id) for need in needs]
    if tx.lifecycle(unit).options.follows:
        create_first_attempt(tx, unit)
    return unit


def find_lane_of_work(tx: UnitOfWork, tenant: int, work: Work) -> int:
    """The lane in which work waits. What workers claim waits for one that knows its task."""
    lifecycle = tx.lifecycles[work.lifecycle]
    claimed = lifecycle.leased or lifecycle.options.follows
    return find_or_make_lane(tx, tenant, work.queue, work.capabilities, work.task if claimed else "")


def create_first_attempt(tx: UnitOfWork, unit: Unit) -> None:
    """A unit that follows its attempts is born with the first one."""
    attempt = Unit(
        id=tx.ids.take(), tenant=unit.tenant, lane=unit.lane, lifecycle=tx.lifecycle(unit).options.follows,
        parent=unit.id,
        priority=unit.priority,
    )  # fmt: skip
    make_unit(tx, attempt, msgspec.structs.replace(tx.body(unit), unit=attempt.id, key=None), Stamp("engine"))


def is_ready_by_birth(lifecycle: Lifecycle, state: str, work: Work) -> bool:
    """Whether a new unit waits for nothing that its lifecycle, its template or its condition would say."""
    return not (lifecycle.options.follows or lifecycle.allows(state, "ready") or work.template is not None or work.when)


def refuse_second_child(tx: UnitOfWork, parent: Unit) -> None:
    """Raises InterlockError if one child at a time works for this unit, and one is open (A0-11).

    Those that decide nothing about it, such as its checks, do other work.
    """
    if tx.lifecycle(parent).options.roll_up is not RollUp.SINGLE:
        return
    born = any(unit.parent == parent.id and unit.decides and unit.outcome is None for unit in tx.rows.units.values())
    if born or parent.deciders > parent.won + parent.decided:  # its counters know those of earlier transactions
        raise InterlockError(
            f"{format_id(parent.lifecycle, parent.id)} has an open child already; {parent.lifecycle} has one at a time"
        )


def lock_needs(tx: UnitOfWork, work: Work, parent: Unit | None, refs: dict[str, int]) -> list[Prerequisite]:
    """What must succeed or end first: units, locked, and ids of those that are yet to come.

    Raises:
        Unknown: there is none.
    """
    if not (work.needs or work.after or work.needs_end or work.after_end):
        return []
    ids = needs_of_work(tx, work, parent, refs)
    if parent is not None and parent.id in ids:
        called = format_id(parent.lifecycle, parent.id)
        raise InterlockError(f"a child of {called} cannot need it: it does not end before its children")
    reserved = tx.state(PlaceState).reserved
    units = {unit.id: unit for unit in tx.lock_units([need for need in ids if need not in reserved])}
    if missing := [str(need) for need in ids if need not in units and need not in reserved]:
        raise Unknown(f"after names {', '.join(missing)}: no such job, run or step")
    for unit in units.values():
        attach_to(tx, unit)
    return [Prerequisite(need, units.get(need), by_end, is_counted(tx, need, by_end)) for need, by_end in ids.items()]
