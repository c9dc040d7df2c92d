"""What tasks of a workstream have by its rules: how many run at a time, and what becomes of one that may fail."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from interlock.core.advance import Stamp, advance
from interlock.core.outcomes import keep_result
from interlock.kernel.commands import Resource, Work
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.plugins.workstreams.options import ALLOWED, is_workstream, read_stream_options
from interlock.store.hooks import Moved, Reaction
from interlock.store.unit_of_work import UnitOfWork

UNSAID = {"exhaust": "its worker was lost", "time_out": "it ran too long"}  # why it failed, if its holder did not say
LIMIT = "workstream:{}"  # the resource of which each task of a workstream takes one


class FailureOutput(msgspec.Struct, frozen=True):
    """The output of a task whose failure is allowed: what it failed with."""

    failed: str


@dataclass
class AllowedFailures:
    """By task whose failure a transaction has allowed: what it failed with."""

    errors: dict[int, str] = field(default_factory=dict)


def limit_tasks(tx: UnitOfWork, work: Work, parent: Unit | None) -> Work:
    """Work as it is made: a task of a workstream that runs so many at a time takes one of as many places."""
    if parent is None or parent.category == Category.GATE or not is_workstream(tx.lifecycle(parent)):
        return work
    own = read_stream_options(tx.body(parent))
    if own is None or own.at_once is None or not tx.lifecycles[work.lifecycle].leased:
        return work
    return take_one(work, LIMIT.format(parent.id), own.at_once)


def take_one(work: Work, name: str, of: int) -> Work:
    """Work that takes one of so many places, unless it does so already."""
    if any(resource.name == name for resource in work.resources):
        return work
    place = Resource(name=name, mode="counted", n=1, of=of)
    return msgspec.structs.replace(work, resources=(*work.resources, place))


def allow_failure(tx: UnitOfWork, unit: Unit, trigger: str, payload: Mapping[str, Any]) -> str:
    """The trigger by which a task ends that has failed for good: one that may fail is completed, and says so."""
    if not tx.lifecycle(unit).allows(unit.state, ALLOWED):
        return trigger
    own = read_stream_options(tx.body(unit))
    if own is None or not own.allow_failure:
        return trigger
    tx.state(AllowedFailures).errors[unit.id] = payload.get("error") or UNSAID.get(trigger, "it failed")
    return ALLOWED


def pass_allowed(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Tasks whose failure is allowed pass their gate at once, with the failure as their output: it is not checked."""
    errors = tx.state(AllowedFailures).errors
    for each in moved:
        unit = tx.rows.units[each.unit.id]
        if unit.id in errors and tx.lifecycle(unit).allows(unit.state, "valid"):
            tx.act_for(unit)
            keep_result(tx, unit, msgspec.json.encode(FailureOutput(errors.pop(unit.id))).decode())
            advance(tx, unit, "valid", Stamp("engine", "its failure is allowed"))


# Before the reaction by which checks are made: what has left its gate gets none.
PASS_ALLOWED = Reaction("pass allowed failures", lambda kind: kind.category == Category.GATE, pass_allowed)
