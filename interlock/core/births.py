"""How a unit comes to be: its row, its body and its needs, and the first event."""

from collections.abc import Sequence

import msgspec

from interlock.core.advance import Stamp, make_unit
from interlock.kernel.commands import Work
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Body, Unit
from interlock.store.queries.for_verbs import find_or_make_lane
from interlock.store.unit_of_work import UnitOfWork


def bear(tx: UnitOfWork, work: Work, policy: str, stamp: Stamp, parent: Unit | None, needs: Sequence[Unit]) -> Unit:
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
        make_first_attempt(tx, unit)
    return unit


def make_first_attempt(tx: UnitOfWork, unit: Unit) -> None:
    """A unit that follows its attempts is born with the first one."""
    attempt = Unit(
        id=tx.ids.take(), tenant=unit.tenant, lane=unit.lane, lifecycle=tx.lifecycle(unit).options.follows,
        parent=unit.id,
        priority=unit.priority,
    )  # fmt: skip
    make_unit(tx, attempt, msgspec.structs.replace(tx.body(unit), unit=attempt.id, key=None), Stamp("engine"))
