"""What people and programs do to units: make them, and stop them."""

import msgspec

from interlock.engine.advance import Stamp, advance, derive
from interlock.engine.ends import close, live
from interlock.engine.terms import Policy
from interlock.kernel import policy
from interlock.kernel.commands import Cancel, Standing, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.rows import Body, Unit
from interlock.store.finders import lane_for, with_key
from interlock.store.tx import Tx


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
    return [submit_one(tx, command, work) for work in command.work]


def check(tx: Tx, work: Work) -> None:
    """Nothing is made of a submit that cannot be made whole."""
    if work.lifecycle not in tx.lives:
        raise Unknown(f"there is no lifecycle '{work.lifecycle}'; there are {', '.join(tx.lives)}")
    if tx.lives[work.lifecycle].birth.trigger != "submit":
        raise InterlockError(f"a {work.lifecycle} is not submitted")
    if work.attempts is not None and work.attempts < 1:
        raise InterlockError(f"attempts = {work.attempts} is not allowed; at least 1 is")


def same_body(work: Work, given: str) -> None:
    if work.input != given:
        raise InterlockError(f"IDEMPOTENCY_CONFLICT: key '{work.key}' of task '{work.task}' has another body")


def submit_one(tx: Tx, command: Submit, work: Work) -> Submitted:
    if work.key is not None and (found := with_key(tx, command.tenant, work.task, work.key)):
        return Submitted(unit=found.unit, created=False)
    unit = Unit(
        id=tx.new_id(),
        tenant=command.tenant,
        lane=lane_for(tx, command.tenant, work.queue, work.capabilities),
        lifecycle=work.lifecycle,
        priority=work.priority,
        due_at=tx.now + work.delay_us if work.delay_us else None,
    )
    own = Policy(attempts=work.attempts, exhausted=work.exhausted, timeout_us=work.timeout_us)
    tx.bear(unit)
    tx.add(
        Body(
            unit=unit.id, tenant=unit.tenant, task=work.task, key=work.key, created_at=tx.now, input=work.input,
            labels=work.labels, policy=msgspec.json.encode(own).decode(), trace=work.trace,
            correlation=work.correlation or str(unit.id),
        )
    )  # fmt: skip
    advance(tx, unit, "submit", Stamp(command.actor, command.reason))
    return Submitted(unit=unit.id, created=True)


def cancel(tx: Tx, command: Cancel) -> Standing:
    """The unit is cancelled, or its holder is told to stop, or the wish is kept; asking again changes nothing."""
    unit = tx.unit(command.unit)
    life, stamp = tx.life(unit), Stamp(command.actor, command.reason)
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


def standing(unit: Unit, *, applied: bool) -> Standing:
    return Standing(unit=unit.id, state=unit.state, version=unit.version, applied=applied)
