"""New tasks that do what earlier ones did: the same work, with needs of their own."""

from collections.abc import Mapping, Sequence

import msgspec

from interlock.core.advance import Stamp, make_unit
from interlock.core.effective_policy import policy_in
from interlock.kernel.commands import Policy, Work
from interlock.kernel.rows import Body, Need, Unit
from interlock.plugins.workstreams.tasks import LIMIT
from interlock.store.queries.for_verbs import load_lanes
from interlock.store.unit_of_work import UnitOfWork

POLICY_FIELDS = tuple(name for name in Policy.__struct_fields__ if name in Work.__struct_fields__)


def copy_task(
    tx: UnitOfWork, unit_id: int, old: Unit, body: Body, parent: Unit, needs: Mapping[int, bool], unmet: int,
    stamp: Stamp, **changes: str | None,
) -> Unit:  # fmt: skip
    """A task with this id does below `parent` what an old one did, and names it.

    `needs` are ids, each with whether the end is enough; `changes` are other values of its body.
    """
    unit = Unit(
        id=unit_id, tenant=old.tenant, lane=old.lane, lifecycle=old.lifecycle, parent=parent.id, decides=old.decides,
        unmet=unmet, priority=old.priority,
    )  # fmt: skip
    fresh = msgspec.structs.replace(
        body, unit=unit.id, key=None, created_at=tx.now, result=None, error=None, retry_of=old.id, replaced_by=None,
        policy=rename_limit(body.policy, old.parent, parent.id),
    )  # fmt: skip
    fresh = msgspec.structs.replace(fresh, **changes) if changes else fresh
    rows = [Need(unit=unit.id, needs=need, tenant=old.tenant, by_end=int(by_end)) for need, by_end in needs.items()]
    return make_unit(tx, unit, fresh, stamp, needs=rows)


def rename_limit(policy: str, before: int | None, now: int) -> str:
    """A policy whose task takes its place among the tasks of another workstream."""
    name = LIMIT.format(before)
    if before == now or f'"{name}"' not in policy:
        return policy
    own = policy_in(policy)
    resources = tuple(
        msgspec.structs.replace(resource, name=LIMIT.format(now)) if resource.name == name else resource
        for resource in own.resources
    )
    return msgspec.json.encode(msgspec.structs.replace(own, resources=resources)).decode()


def describe_work(tx: UnitOfWork, unit: Unit, body: Body) -> Work:
    """The work that a task would do, as it could be submitted; without its needs and its parent."""
    own = policy_in(body.policy)
    lane = load_lanes(tx, unit.tenant).find(unit.lane)
    assert lane is not None
    return Work(
        **{name: getattr(own, name) for name in POLICY_FIELDS}, task=body.task, lifecycle=unit.lifecycle,
        input=body.input, queue=lane.queue, capabilities=tuple(filter(None, lane.capabilities.split(","))),
        priority=unit.priority, mutex=body.mutex, limit_key=body.limit_key, rate_key=body.rate_key,
        labels=body.labels, correlation=body.correlation, trace=body.trace, decides=bool(unit.decides),
    )  # fmt: skip


def name_all(names: Sequence[str], most: int = 5) -> str:
    """The first of some names, for people."""
    return ", ".join(f"'{name}'" for name in names[:most]) + (" …" if len(names) > most else "")
