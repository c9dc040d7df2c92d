"""How a unit comes to be: its row, its body and its needs, and the first event."""

from collections.abc import Sequence

import msgspec

from interlock.engine.advance import Stamp, advance, derive
from interlock.engine.rates import set_rate
from interlock.engine.slots import set_limit
from interlock.kernel.commands import Work
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Body, Need, Unit, copied
from interlock.store.acts import repeat_birth
from interlock.store.finders import lane_for
from interlock.store.tx import Tx


def bear(tx: Tx, work: Work, policy: str, stamp: Stamp, parent: Unit | None, needs: Sequence[Unit]) -> Unit:
    """A unit with its body and its needs; whether it is ready is for others to say."""
    tenant, above = tx.tenant, tx.body(parent) if parent else None
    unit = Unit(
        id=tx.new_id(),
        parent=parent.id if parent else None,
        decides=int(work.decides),
        unmet=sum(need.outcome != Category.SUCCESS for need in needs),
        tenant=tenant,
        lane=lane_for(tx, tenant, work.queue, work.capabilities),
        lifecycle=work.lifecycle,
        priority=work.priority,
        due_at=max(work.at_us or 0, tx.now + work.delay_us if work.delay_us else 0) or None,
    )
    tx.bear(unit)
    tx.add(
        Body(
            unit=unit.id, tenant=tenant, task=work.task, key=work.key, created_at=tx.now, input=work.input,
            labels=work.labels, policy=policy, mutex=work.mutex,
            limit_key=work.limit_key, rate_key=work.rate_key, trace=work.trace or (above.trace if above else ""),
            correlation=work.correlation or (above.correlation if above else str(unit.id)),
        )
    )  # fmt: skip
    for need in needs:
        tx.add(Need(unit=unit.id, needs=need.id, tenant=tenant))
    if work.limit_key is not None and work.limit is not None:
        set_limit(tx, tenant, work.limit_key, work.limit, derive)
    if work.rate_key is not None and work.rate is not None:
        set_rate(tx, tenant, work.rate_key, work.rate)
    advance(tx, unit, "submit", stamp)
    if tx.life(unit).options.follows:
        first_attempt(tx, unit)
    return unit


def bear_alike(tx: Tx, first: Unit, text: str) -> Unit:
    """A unit that differs from one which was just born in nothing but its id and its input: the same move bears it."""
    unit: Unit = copied(first)
    body: Body = copied(tx.bodies[first.id])
    unit.id = body.unit = tx.new_id()
    body.input, body.correlation = text, str(unit.id)
    tx.bear(unit)
    tx.add(body)
    repeat_birth(tx, first, unit)
    return unit


def first_attempt(tx: Tx, unit: Unit) -> None:
    """A unit that follows its attempts is born with the first one."""
    attempt = Unit(id=tx.new_id(), tenant=unit.tenant, lane=unit.lane, lifecycle=tx.life(unit).options.follows)
    attempt.parent, attempt.priority = unit.id, unit.priority
    tx.bear(attempt)
    tx.add(msgspec.structs.replace(tx.body(unit), unit=attempt.id, key=None))
    advance(tx, attempt, "submit", Stamp("engine"))
