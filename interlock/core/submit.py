"""Making units: one or many in one command, all of them or none."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from interlock.core.advance import Stamp, advance, make_stamp, make_unit
from interlock.core.ready import is_planned, make_ready
from interlock.core.tenants import refuse_too_long
from interlock.core.validation import check_work, check_work_once, encode_policy, policy_values
from interlock.kernel.commands import Submit, Submitted, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.paths import BORN
from interlock.kernel.rows import Body, Unit, copied
from interlock.kernel.workflow_graph import STEP, as_gate, names_in, order_of
from interlock.store.acts import repeat_birth
from interlock.store.cache import EngineCache
from interlock.store.prefetch import Queries, declare_lanes
from interlock.store.queries.for_verbs import find_by_key, find_or_make_lane, load_keys
from interlock.store.unit_of_work import UnitOfWork

ALONE = attrgetter("key", "ref", "parent", "needs", "after", "correlation", "trace", "cause")


def submit(tx: UnitOfWork, command: Submit) -> list[Submitted]:
    """Every piece of work is a unit; one whose key is taken is the unit that has it."""
    if any(work.lifecycle == STEP for work in command.work):
        command = msgspec.structs.replace(command, work=tuple(map(as_gate, command.work)))
    kinds = [check_work_once(tx, work) for work in command.work]
    keys: dict[str, list[str]] = {}
    for work in command.work:
        if work.key is not None:
            keys.setdefault(work.task, []).append(work.key)
    for task, names in keys.items():
        load_keys(tx, command.tenant, task, names)
    check_keys(tx, command)
    refuse_too_long(tx, command)
    refs: dict[str, int] = {}
    stamp, answers = make_stamp(command), dict[int, Submitted]()
    places = order_of(command.work) if any(map(names_in, command.work)) else range(len(command.work))
    tx.load_units(need for work in command.work for need in work.after)
    firsts: dict[int, Unit] = {}  # by kind of work: the others of that kind are copies of the first
    for place in places:
        work = command.work[place]
        if (first := firsts.get(kinds[place])) is not None and is_independent(work):
            answers[place] = make_answer(make_alike(tx, first, work.input), command)
            continue
        answers[place] = submit_work(tx, command, work, stamp, refs)
        if is_independent(work) and is_plain(tx, unit := tx.rows.units[answers[place].unit], work):
            firsts[kinds[place]] = unit
        if work.ref:
            refs[work.ref] = answers[place].unit
    return [answers[place] for place in range(len(command.work))]


def submit_reads(cache: EngineCache, submits: Sequence[Submit]) -> Queries:
    """The lanes of their tenants."""
    for tenant in sorted({command.tenant for command in submits}):
        yield from declare_lanes(cache, tenant)


def is_independent(work: Work) -> bool:
    """Whether work says nothing of itself but what work of its kind says, and its input."""
    return not any(ALONE(work))


def is_plain(tx: UnitOfWork, unit: Unit, work: Work) -> bool:
    """Whether its birth is all that follows from a unit's work: nothing is made with it, and no limit counts it."""
    if not is_ready_by_birth(tx.lifecycle(unit), unit.state, work) or work.mutex or work.limit_key or work.rate_key:
        return False
    move = tx.changes.last_moves.get(unit.id)
    return move is not None and move.path.source == BORN


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
        for work in command.work:
            check_work(tx.lifecycles, work, tx.hooks)
            find_or_make_lane(tx, command.tenant, work.queue, work.capabilities)
    except BaseException:
        tx.connection.rollback()
        raise
    tx.connection.commit()


def check_keys(tx: UnitOfWork, command: Submit) -> None:
    """A key stands for one piece of work: another one under it is refused, and so is the same where that was asked."""
    named: dict[tuple[str, str], list[Work]] = {}
    for work in command.work:
        if work.key is not None:
            named.setdefault((work.task, work.key), []).append(work)
    for (task, key), same in named.items():
        body = find_by_key(tx, command.tenant, task, key)
        modes = {work.on_duplicate for work in same}
        if "reject" in modes and (body or len(same) > 1):
            raise InterlockError(f"DUPLICATE_KEY: task '{task}' has a job under the key '{key}' already")
        inputs = {work.input for work in same} | ({body.input} if body else set())
        if "return" in modes and len(inputs) > 1:
            raise InterlockError(f"IDEMPOTENCY_CONFLICT: key '{key}' of task '{task}' has another body")


def submit_work(tx: UnitOfWork, command: Submit, work: Work, stamp: Stamp, refs: dict[str, int]) -> Submitted:
    body = find_by_key(tx, command.tenant, work.task, work.key) if work.key is not None else None
    if body is None:
        return make_answer(create_ready(tx, work, stamp, refs), command)
    old = tx.unit(body.unit)
    lifecycle = tx.lifecycle(old)
    unstarted = old.fence == 0 and not lifecycle.options.follows and lifecycle.allows(old.state, "cancel")
    if work.on_duplicate != "replace" or not unstarted:
        return make_answer(old, command, created=False)
    advance(
        tx,
        old,
        "cancel",
        Stamp(command.actor, "replaced", command.cause, command.vouched_by),
        payload={"key": body.key},
    )
    body.key = None
    tx.rows.keys[command.tenant, work.task, work.key or ""] = None
    new = create_ready(tx, work, stamp, refs)
    body.replaced_by = new.id
    tx.change(body)
    return make_answer(new, command, replaced=True)


def make_answer(unit: Unit, command: Submit, created: bool = True, replaced: bool = False) -> Submitted:
    return Submitted(unit.id, created, replaced, unit.lifecycle, unit.state, command.cause)


def create_ready(tx: UnitOfWork, work: Work, stamp: Stamp, refs: dict[str, int]) -> Unit:
    """A unit with its body and its needs, ready if nothing keeps it."""
    parent = (
        None if work.parent is None else tx.unit(refs[work.parent] if isinstance(work.parent, str) else work.parent)
    )
    if parent is not None and tx.lifecycle(parent).settled(parent.state):
        raise InterlockError(
            f"{format_id(parent.lifecycle, parent.id)} has ended ({parent.state}); it gets no more children"
        )
    if parent is not None:
        refuse_second_child(tx, parent)
    needs = lock_needs(tx, work, refs) if work.needs or work.after else []
    for hook in tx.hooks.prepare_work:
        work = hook(tx, work, parent)
    if work.cause:
        stamp = msgspec.structs.replace(stamp, cause=work.cause)
    unit = create_unit(tx, work, encode_policy(policy_values(work)), stamp, parent, needs)
    if not is_ready_by_birth(tx.lifecycle(unit), unit.state, work) and not unit.unmet and is_planned(tx, unit):
        make_ready(tx, unit)
    return unit


def create_unit(
    tx: UnitOfWork, work: Work, policy: str, stamp: Stamp, parent: Unit | None, needs: Sequence[Unit]
) -> Unit:
    """A unit with its body and its needs; whether it is ready is for others to say."""
    tenant, above = tx.tenant, tx.body(parent) if parent else None
    unit = Unit(
        id=tx.ids.take(),
        parent=parent.id if parent else None,
        decides=int(work.decides),
        unmet=sum(need.outcome != Category.SUCCESS for need in needs),
        tenant=tenant,
        lane=find_or_make_lane(tx, tenant, work.queue, work.capabilities),
        lifecycle=work.lifecycle,
        priority=work.priority,
        due_at=max(work.at_us or 0, tx.now + work.delay_us if work.delay_us else 0) or None,
    )
    body = Body(
        unit=unit.id, tenant=tenant, task=work.task, key=work.key, created_at=tx.now, input=work.input,
        labels=work.labels, policy=policy, mutex=work.mutex,
        limit_key=work.limit_key, rate_key=work.rate_key, trace=work.trace or (above.trace if above else ""),
        correlation=work.correlation or (above.correlation if above else str(unit.id)),
    )  # fmt: skip
    for hook in tx.hooks.before_birth:
        hook(tx, work)
    make_unit(tx, unit, body, stamp, needs=needs)
    if tx.lifecycle(unit).options.follows:
        create_first_attempt(tx, unit)
    return unit


def create_first_attempt(tx: UnitOfWork, unit: Unit) -> None:
    """A unit that follows its attempts is born with the first one."""
    attempt = Unit(
        id=tx.ids.take(), tenant=unit.tenant, lane=unit.lane, lifecycle=tx.lifecycle(unit).options.follows,
        parent=unit.id,
        priority=unit.priority,
    )  # fmt: skip
    make_unit(tx, attempt, msgspec.structs.replace(tx.body(unit), unit=attempt.id, key=None), Stamp("engine"))


def is_ready_by_birth(lifecycle: Lifecycle, state: str, work: Work) -> bool:
    return not (lifecycle.options.follows or lifecycle.allows(state, "ready") or work.template is not None or work.when)


def refuse_second_child(tx: UnitOfWork, parent: Unit) -> None:
    """Raises InterlockError if one child at a time works for this unit, and one is open (A0-11)."""
    if tx.lifecycle(parent).options.roll_up is not RollUp.SINGLE:
        return
    born = any(unit.parent == parent.id and unit.outcome is None for unit in tx.rows.units.values())
    if born or parent.total > parent.succeeded + parent.lost:  # its counters know those of earlier transactions
        raise InterlockError(
            f"{format_id(parent.lifecycle, parent.id)} has an open child already; {parent.lifecycle} has one at a time"
        )


def lock_needs(tx: UnitOfWork, work: Work, refs: dict[str, int]) -> list[Unit]:
    """The units that must succeed first, locked."""
    names = list(dict.fromkeys((*(refs[name] for name in work.needs), *work.after)))
    needs = tx.lock_units(names)
    if len(needs) != len(names):
        known = {need.id for need in needs}
        raise Unknown(
            f"after names {', '.join(str(need) for need in names if need not in known)}: no such job, run or step"
        )
    return needs
