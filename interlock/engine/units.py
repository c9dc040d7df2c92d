"""What people and programs do to units: make them, and stop them."""

import msgspec

from interlock.engine.advance import Stamp, advance, derive
from interlock.engine.ends import close, live
from interlock.engine.family import make_ready, next_attempt, planned
from interlock.engine.terms import Policy, policy_of
from interlock.kernel import policy
from interlock.kernel.commands import Cancel, Decide, Standing, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError, Refused, Unknown
from interlock.kernel.lifecycle import Category, Owner, RollUp
from interlock.kernel.rows import Body, Need, Unit
from interlock.store.finders import lane_for, last_child, open_children, with_key
from interlock.store.tx import Tx

DECIDERS = (Owner.PERSON, Owner.VALIDATOR, Owner.REPORTER)


def submit(tx: Tx, command: Submit) -> list[Submitted]:
    """Every piece of work is a unit; one whose key is taken is the unit that has it."""
    for work in command.work:
        check(tx, work)
        if work.key is not None and (found := with_key(tx, command.tenant, work.task, work.key)):
            same_body(work, found.input)
    for work in command.work:
        same = [other for other in command.work if work.key and (other.task, other.key) == (work.task, work.key)]
        for other in same:
            same_body(work, other.input)
    refs: dict[str, int] = {}
    answers = []
    for work in command.work:
        answers.append(submit_one(tx, command, work, refs))
        if work.ref:
            refs[work.ref] = answers[-1].unit
    return answers


def check(tx: Tx, work: Work) -> None:
    """Nothing is made of a submit that cannot be made whole."""
    if work.lifecycle not in tx.lives:
        raise Unknown(f"there is no lifecycle '{work.lifecycle}'; there are {', '.join(tx.lives)}")
    if tx.lives[work.lifecycle].birth.trigger != "submit":
        raise InterlockError(f"a {work.lifecycle} is not submitted")
    if work.attempts is not None and work.attempts < 1:
        raise InterlockError(f"attempts = {work.attempts} is not allowed; at least 1 is")


def first_attempt(tx: Tx, unit: Unit) -> None:
    """A unit that follows its attempts is born with the first one."""
    attempt = Unit(id=tx.new_id(), tenant=unit.tenant, lane=unit.lane, lifecycle=tx.life(unit).options.follows)
    attempt.parent, attempt.priority = unit.id, unit.priority
    tx.bear(attempt)
    tx.add(msgspec.structs.replace(tx.body(unit), unit=attempt.id, key=None, policy="{}"))
    advance(tx, attempt, "submit", Stamp("engine"))


def same_body(work: Work, given: str) -> None:
    if work.input != given:
        raise InterlockError(f"IDEMPOTENCY_CONFLICT: key '{work.key}' of task '{work.task}' has another body")


def referred(refs: dict[str, int], name: int | str) -> int:
    """The unit that a piece of work names, by id or by the ref of work before it."""
    if isinstance(name, int):
        return name
    if name not in refs:
        raise Unknown(f"no work before this one has the ref '{name}'; there are {', '.join(refs) or 'none'}")
    return refs[name]


def submit_one(tx: Tx, command: Submit, work: Work, refs: dict[str, int]) -> Submitted:
    if work.key is not None and (found := with_key(tx, command.tenant, work.task, work.key)):
        return Submitted(unit=found.unit, created=False)
    parent = None if work.parent is None else tx.unit(referred(refs, work.parent))
    if parent is not None and tx.life(parent).settled(parent.state):
        raise InterlockError(f"unit {parent.id} has ended ({parent.state}); it gets no more children")
    needs = tx.lock([referred(refs, name) for name in work.needs])
    if len(needs) != len(work.needs):
        raise Unknown(f"one of the needs {', '.join(map(str, work.needs))} does not exist")
    unit = Unit(
        id=tx.new_id(),
        parent=parent.id if parent else None,
        decides=int(work.decides),
        unmet=sum(need.outcome != Category.SUCCESS for need in needs),
        tenant=command.tenant,
        lane=lane_for(tx, command.tenant, work.queue, work.capabilities),
        lifecycle=work.lifecycle,
        priority=work.priority,
        due_at=tx.now + work.delay_us if work.delay_us else None,
    )
    own = Policy(
        attempts=work.attempts,
        exhausted=work.exhausted,
        timeout_us=work.timeout_us,
        on_reject=work.on_reject,
        quorum=work.quorum,
    )
    tx.bear(unit)
    tx.add(
        Body(
            unit=unit.id, tenant=unit.tenant, task=work.task, key=work.key, created_at=tx.now, input=work.input,
            labels=work.labels, policy=msgspec.json.encode(own).decode(), trace=work.trace,
            correlation=work.correlation or str(unit.id),
        )
    )  # fmt: skip
    for need in needs:
        tx.add(Need(unit=unit.id, needs=need.id, tenant=unit.tenant))
    advance(tx, unit, "submit", Stamp(command.actor, command.reason))
    if tx.life(unit).options.follows:
        first_attempt(tx, unit)
    if not unit.unmet and planned(tx, unit):
        make_ready(tx, unit)
    return Submitted(unit=unit.id, created=True)


def cancel(tx: Tx, command: Cancel) -> Standing:
    """The unit is cancelled, or its holder is told to stop, or the wish is kept; asking again changes nothing."""
    open_children(tx, command.unit)  # children are locked before their parent
    unit = tx.unit(command.unit)
    life, stamp = tx.life(unit), Stamp(command.actor, command.reason)
    if life.options.follows and (attempts := open_children(tx, unit.id)):
        cancel(tx, msgspec.structs.replace(command, unit=attempts[-1].id))
        return standing(unit, applied=True)  # it follows
    version = unit.version
    again = unit.asked_at is not None and not command.hard
    if again or life.category(unit.state) == "cancelled":
        return standing(unit, applied=False)
    answer = policy.cancel(life, unit.state, hard=command.hard, held=live(tx, unit))
    unit.asked_at = tx.now
    unit.asked_by = tx.now + (life.options.cancel_within_us or 0)
    if answer == "cancel" and live(tx, unit):
        close(tx, unit, answer, "force", stamp, {})
    elif answer == "cancel":
        advance(tx, unit, answer, stamp)
    else:
        derive(tx, unit)
        tx.touch(unit)
    return standing(unit, applied=unit.version > version or answer != "cancel")


def decide(tx: Tx, command: Decide) -> Standing:
    """A verdict is carried out; one that the lifecycle does not list here changes nothing and says so."""
    open_children(tx, command.unit)
    unit = tx.unit(command.unit)
    life, stamp = tx.life(unit), Stamp(command.actor, command.reason)
    move = life.move(unit.state, command.trigger)
    if move.owner not in DECIDERS or command.trigger == "cancel":
        raise Refused(life.name, unit.state, command.trigger, life.triggers(unit.state))
    if command.trigger == "plan" and unit.total == 0:
        raise InterlockError(f"unit {unit.id} has no children yet; a plan has at least one")
    source = unit.state
    advance(tx, unit, command.trigger, stamp)
    if command.trigger == "plan":
        go_on(tx, unit)
    if unit.asked_at is not None and policy.resumed_cancel(life, source, unit.state):
        advance(tx, unit, "cancel", stamp)
    if move.opens_attempt and life.options.roll_up is RollUp.SINGLE:
        work_again(tx, unit, stamp)
    if command.trigger == "reject" and unit.parent and policy_of(tx.body(unit)).on_reject != "fail":
        reject_parent(tx, unit.parent, stamp)
    return standing(unit, applied=True)


def work_again(tx: Tx, run: Unit, stamp: Stamp) -> None:
    """A run that was resumed has a new child for its work, like the last one (A0-11)."""
    last = last_child(tx, run.id)
    if last is not None:
        next_attempt(tx, run, stamp, last)


def go_on(tx: Tx, parent: Unit) -> None:
    """The plan is there: every child that waits for nothing else is ready."""
    for child in open_children(tx, parent.id):
        if not child.unmet:
            make_ready(tx, child)


def reject_parent(tx: Tx, parent: int, stamp: Stamp) -> None:
    """What was rejected takes its run with it: cancelled, unless the template says failed."""
    run = tx.unit(parent)
    if tx.life(run).allows(run.state, "cancel"):
        advance(tx, run, "cancel", Stamp(stamp.actor, stamp.reason or "rejected"))


def standing(unit: Unit, *, applied: bool) -> Standing:
    return Standing(unit=unit.id, state=unit.state, version=unit.version, applied=applied)
