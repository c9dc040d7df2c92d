"""Tasks are added to a workstream, and the last one that it expects plans it.

A workstream that expects so many tasks stays planned while it has fewer. Its tasks may come in pages, each a submit;
the page with the last one plans it, in the same transaction. A page with too many is refused as a whole. A workstream
that says no number and comes in one submit with its tasks is planned by that submit.

Once it is planned, further tasks may be added until all have ended: by anybody who may submit, and by the holder of
one of its tasks under that lease (`AddTasks`). They raise what it expects. While it is validated, and after its end,
none is added any more: it would be completed without them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from interlock.core.advance import Stamp, advance
from interlock.core.decide import ready_children
from interlock.core.leases import apply_each
from interlock.core.places import PlaceState, refuse_missing_children
from interlock.core.submit import submit
from interlock.kernel.commands import AddTasks, Decide, Standing, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError, NotWanted, Stale
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.plugins.workstreams.copies import name_all
from interlock.plugins.workstreams.options import is_workstream, read_stream_options
from interlock.plugins.workstreams.queries import read_unplanned
from interlock.store.unit_of_work import UnitOfWork

PLAN = "plan"


@dataclass
class AddedTasks:
    """By workstream: its counter of children, and how many a transaction has made that the counter does not count."""

    by_parent: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, parent: Unit, count: int) -> int:
        """So many children more were made. Returns how many the parent has."""
        total, added = self.by_parent.get(parent.id, (parent.total, 0))
        added = count if total != parent.total else added + count
        self.by_parent[parent.id] = (parent.total, added)
        return parent.total + added


# Whoever submits tasks.


def refuse_late(tx: UnitOfWork, work: Work, parent: Unit | None) -> Work:
    """Returns work as it is.

    Raises:
        NotWanted: a task that comes when all others have ended.
    """
    if parent is None or parent.category != Category.GATE or not is_workstream(tx.lifecycle(parent)):
        return work
    if work.decides or not is_check(work):
        name = format_id(parent.lifecycle, parent.id)
        raise NotWanted(f"{name} is {parent.state}: all its tasks have ended, and none is added any more")
    return work


def is_check(work: Work) -> bool:
    """Whether work is a check of the workstream itself, which is made when all tasks have ended."""
    own = msgspec.json.decode(work.options).get("checks", {}) if work.options else {}
    return "entry" in own


def plan_complete(tx: UnitOfWork, command: Submit, made: Sequence[Submitted]) -> None:
    """Workstreams that have all their tasks now are planned.

    Raises:
        InterlockError: one has too many.
    """
    if all(work.parent is None for work in command.work):
        return
    units, fresh = tx.rows.units, {each.unit for each in made if each.created}
    counts = Counter(units[unit].parent for unit in fresh)
    for number, count in counts.items():
        parent = units[number] if number is not None else None
        if parent is not None and is_unplanned(tx, parent):
            count_tasks(tx, parent, count, is_whole=parent.id in fresh)
        elif parent is not None and is_workstream(tx.lifecycle(parent)):
            refuse_unknown_needs(tx, parent)


def refuse_unknown_needs(tx: UnitOfWork, parent: Unit) -> None:
    """Raises InterlockError if a task of a planned workstream needs one that there is not: it would wait for ever."""
    reserved = tx.state(PlaceState).reserved.values()
    if missing := sorted({place.name for place in reserved if place.parent == parent.id}):
        raise InterlockError(
            f"{format_id(parent.lifecycle, parent.id)} is {parent.state}, and has no task {name_all(missing)}; "
            "what is added to it needs tasks that are there, or come with it"
        )


def is_unplanned(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether a unit is a workstream that waits for its plan."""
    lifecycle = tx.lifecycle(unit)
    return is_workstream(lifecycle) and lifecycle.allows(unit.state, PLAN)


def count_tasks(tx: UnitOfWork, parent: Unit, count: int, *, is_whole: bool) -> None:
    """So many tasks more were made. With the last one that it expects, a workstream is planned."""
    own = read_stream_options(tx.body(parent))
    total = tx.state(AddedTasks).add(parent, count)
    if own is None:
        return
    if own.expects is not None and total > own.expects:
        name = format_id(parent.lifecycle, parent.id)
        raise InterlockError(
            f"{name} expects {own.expects} tasks and has {total - count}: {count} more are too many, and none was added"
        )
    if total == own.expects or (own.expects is None and is_whole):
        refuse_missing_children(tx, parent)
        advance(tx, parent, PLAN, Stamp("engine", f"all {total} tasks are there"))
        ready_children(tx, parent)


def refuse_early_plan(tx: UnitOfWork, command: Decide) -> Standing | None:
    """Raises InterlockError if somebody plans a workstream that still expects tasks: the last one plans it."""
    if command.trigger != PLAN:
        return None
    unit = read_unplanned(tx, command.unit)
    if unit is None or not is_unplanned(tx, unit.row) or unit.options is None or unit.options.expects is None:
        return None
    name = format_id(unit.row.lifecycle, unit.row.id)
    raise InterlockError(f"{name} expects {unit.options.expects} tasks and has {unit.row.total}; the last one plans it")


# The holder of a task.


def add_tasks(tx: UnitOfWork, command: AddTasks) -> list[Submitted]:
    """Tasks are added to the workstream of a task, by its holder; those whose names are there already are answered.

    Raises:
        Stale: whoever asks does not hold the task.
        InterlockError: the task is not in a workstream, or what is added is not allowed.
    """
    (answer,) = apply_each(tx, command, (command.lease,), lambda unit, index: None)
    if not answer.accepted:
        raise Stale(answer.why)
    task = tx.rows.units[command.lease.unit]
    parent = find_workstream(tx, task)
    work = tuple(name_parent(work, task, parent) for work in command.work)
    cause = command.cause or f"{format_id(task.lifecycle, task.id)}:{task.version}"
    return submit(
        tx,
        Submit(
            tenant=command.tenant, actor=command.actor, reason=command.reason, cause=cause,
            vouched_by=command.vouched_by, work=work,
        ),
    )  # fmt: skip


def find_workstream(tx: UnitOfWork, task: Unit) -> Unit:
    """The workstream of a task, locked.

    Raises:
        InterlockError: it has none.
    """
    parent = tx.unit(task.parent) if task.parent is not None else None
    if parent is None or not is_workstream(tx.lifecycle(parent)):
        raise InterlockError(f"{format_id(task.lifecycle, task.id)} is no task of a workstream")
    return parent


def name_parent(work: Work, task: Unit, parent: Unit) -> Work:
    """Work as it is added below the workstream of a task.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if work.lifecycle != task.lifecycle:
        raise InterlockError(f"a {work.lifecycle} is not added to a {parent.lifecycle}; allowed is a {task.lifecycle}")
    if work.step is None:
        raise InterlockError(f"task '{work.task}' has no name (step); one that is added under a lease has its own")
    if work.parent not in (None, parent.id):
        raise InterlockError(f"task '{work.step}' names a parent; it is added to that of the task whose holder adds it")
    return msgspec.structs.replace(work, parent=parent.id)
