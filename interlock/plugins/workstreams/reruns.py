"""A workstream that has ended is done again, as a new one that names it.

It has the tasks that counted in the old one, each again with its name, its work and its needs. With `failed`, those
that were completed are taken over with their outputs; with `from_task`, those that were completed and do not come after
that task. A map that is done again makes its tasks anew, but for those that were completed with the same element and
that would have been taken over too. Other plugins may name tasks that cannot be taken over because of what is left out.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from interlock.core.advance import Stamp, advance, make_unit
from interlock.core.decide import ready_children
from interlock.core.effective_policy import policy_in
from interlock.core.notes import note
from interlock.core.operator_verbs import make_again_stamp
from interlock.core.outcomes import keep_result
from interlock.core.places import is_counted, take_place
from interlock.kernel.commands import Requeue, Rerun, Submitted
from interlock.kernel.errors import InterlockError
from interlock.kernel.graph import reachable
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Body, Need, Unit
from interlock.plugins.workstreams.adding import PLAN
from interlock.plugins.workstreams.copies import copy_task, name_all
from interlock.plugins.workstreams.maps import TAKES_ITEMS
from interlock.plugins.workstreams.options import decode_stream_options, is_workstream, read_stream_options
from interlock.plugins.workstreams.queries import read_children, read_needs_of_children
from interlock.store.unit_of_work import UnitOfWork


class OldTask(NamedTuple):
    """A task of the workstream that is done again."""

    unit: Unit
    body: Body

    @property
    def name(self) -> str | None:
        return policy_in(self.body.policy).step


def rerun_workstream(tx: UnitOfWork, old: Unit, command: Requeue | Rerun) -> Submitted | None:
    """An ended workstream is done again; None if it is none."""
    if not isinstance(command, Rerun) or not is_workstream(tx.lifecycle(old)):
        return None
    tasks, replaced = list_counting_tasks(tx, old)
    if not tasks:
        raise InterlockError(f"{format_id(old.lifecycle, old.id)} has no task; there is nothing to do again")
    refuse_unplanned(tx, old, len(tasks))
    needs = list_needs(tx, old, tasks, replaced)
    kept, partly = choose_kept(command, tasks, needs)
    stamp = make_again_stamp(command)
    fresh = copy_workstream(tx, old, stamp)
    if command.failed or command.first is not None:
        kept, partly = leave_out_more(tx, old, fresh, needs, kept, partly)
    made = copy_tasks(tx, fresh, tasks, needs, kept, stamp)
    for task in sorted(partly - kept):
        if is_map(tasks[task].body):
            note(tx, made[task], TAKES_ITEMS, str(old.id))
    advance(tx, fresh, PLAN, Stamp("engine", f"all {len(tasks)} tasks are there"))
    ready_children(tx, fresh)
    return Submitted(unit=fresh.id, created=True, lifecycle=fresh.lifecycle, state=fresh.state)


def refuse_unplanned(tx: UnitOfWork, old: Unit, count: int) -> None:
    """Raises InterlockError if a workstream ended before it had the tasks that it expects."""
    own = read_stream_options(tx.body(old))
    if own is not None and own.expects is not None and count < own.expects:
        name = format_id(old.lifecycle, old.id)
        raise InterlockError(f"{name} ended with {count} of the {own.expects} tasks that it expects; submit it anew")


def list_counting_tasks(tx: UnitOfWork, old: Unit) -> tuple[dict[int, OldTask], dict[int, int]]:
    """The tasks of a workstream that count, by id; and by task that was replaced, the one in its place.

    Those that a map made are the map's, and checks are no tasks.
    """
    tasks: dict[int, OldTask] = {}
    replaced: dict[int, int] = {}
    for unit, body in read_children(tx, old.id):
        if body.replaced_by is not None:
            replaced[unit.id] = body.replaced_by
        elif (unit.decides or not is_check(body)) and not is_item(body):
            tasks[unit.id] = OldTask(unit, body)
    return tasks, replaced


def is_check(body: Body) -> bool:
    """Whether a child is a check of its parent."""
    options = policy_in(body.policy).options
    return options is not None and "entry" in msgspec.json.decode(options).get("checks", {})


def is_map(body: Body) -> bool:
    """Whether a task is a map."""
    own = decode_stream_options(body.policy)
    return own is not None and own.map is not None


def is_item(body: Body) -> bool:
    """Whether a map made a task."""
    own = decode_stream_options(body.policy)
    return own is not None and own.item_of is not None


def list_needs(
    tx: UnitOfWork, old: Unit, tasks: Mapping[int, OldTask], replaced: Mapping[int, int]
) -> dict[int, list[Need]]:
    """By task: what it needs, as far as that is still there; needs of what was replaced are of what is in its place."""
    needs: dict[int, list[Need]] = {unit: [] for unit in tasks}
    below = {unit for unit, _ in needs.items()}
    for need, is_sibling in read_needs_of_children(tx, old.id):
        target = need.needs
        while target in replaced:
            target = replaced[target]
        if need.unit in tasks and (target in below or not is_sibling):
            needs[need.unit].append(msgspec.structs.replace(need, needs=target))
    return needs


def choose_kept(
    command: Rerun, tasks: Mapping[int, OldTask], needs: Mapping[int, Iterable[Need]]
) -> tuple[set[int], set[int]]:
    """The tasks that are taken over, and those of which parts may be.

    Raises:
        InterlockError: none has the name.
    """
    completed = {unit for unit, task in tasks.items() if task.unit.outcome == Category.SUCCESS}
    if command.first is None:
        return (completed, set(tasks)) if command.failed else (set(), set())
    first = [unit for unit, task in tasks.items() if task.name == command.first]
    if not first:
        names = name_all([task.name for task in tasks.values() if task.name is not None])
        raise InterlockError(f"there is no task '{command.first}'; there are {names or 'none with a name'}")
    after = find_after(first, needs)
    return completed - after, tasks.keys() - after


def find_after(first: Iterable[int], needs: Mapping[int, Iterable[Need]]) -> set[int]:
    """Some tasks, and all that come after them."""
    return set(reachable(first, [(need.needs, unit) for unit, some in needs.items() for need in some]))


def leave_out_more(
    tx: UnitOfWork, old: Unit, fresh: Unit, needs: Mapping[int, Iterable[Need]], kept: set[int], partly: set[int]
) -> tuple[set[int], set[int]]:
    """What is kept, without what plugins cannot keep because of what is left out, and without what comes after it."""
    left_out = needs.keys() - partly
    more = {task for hook in tx.hooks.before_rerun for task in hook(tx, old, fresh, left_out)}
    after = find_after(more - left_out, needs)
    return kept - after, partly - after


def copy_workstream(tx: UnitOfWork, old: Unit, stamp: Stamp) -> Unit:
    """A new workstream like an old one, without tasks."""
    unit = Unit(id=tx.ids.take(), tenant=old.tenant, lane=old.lane, lifecycle=old.lifecycle, priority=old.priority)
    fresh = {"unit": unit.id, "key": None, "created_at": tx.now, "result": None, "error": None, "retry_of": old.id}
    return make_unit(tx, unit, msgspec.structs.replace(tx.body(old), replaced_by=None, **fresh), stamp)


def copy_tasks(
    tx: UnitOfWork, parent: Unit, tasks: Mapping[int, OldTask], needs: Mapping[int, list[Need]], kept: set[int],
    stamp: Stamp,
) -> dict[int, int]:  # fmt: skip
    """The tasks are there again. Those that are kept are completed at once, which meets the needs of others.

    Returns the new tasks by the old ones.
    """
    ids = {unit: take_place(tx, parent, task.name) for unit, task in tasks.items()}
    outside = {need.needs for some in needs.values() for need in some if need.needs not in ids}
    tx.load_units(outside)
    for old, (unit, body) in tasks.items():
        wanted = {ids.get(need.needs, need.needs): bool(need.by_end) for need in needs[old]}
        unmet = sum(not is_counted(tx, need, by_end) for need, by_end in wanted.items())
        fresh = copy_task(
            tx, ids[old], unit, body, parent, wanted, unmet, stamp, correlation=tx.body(parent).correlation
        )
        if old in kept:
            keep_result(tx, fresh, body.result)
            advance(tx, fresh, "take_over", Stamp("engine", f"completed as {format_id(unit.lifecycle, unit.id)}"))
    return ids
