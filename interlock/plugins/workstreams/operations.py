"""What operators do to one task of a workstream that goes on: retry it, skip it, have another worker do it.

A task that has ended stays as it is (A3-22). What does it again is a new task in its place, with its name and its work;
whatever waits for the old one waits for the new one from then on, in the same commit, and the old one counts no more
(S-15). So the counters of the workstream, its laws and its log all know the tasks that count, and no others.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.core.advance import Stamp, advance
from interlock.core.cancel import make_standing
from interlock.core.effective_policy import policy_of
from interlock.core.leases import end_lease, is_held
from interlock.core.notes import note
from interlock.core.places import PlaceState, is_counted
from interlock.core.ready import is_planned, make_ready
from interlock.core.workers import notify_holder
from interlock.kernel import policy
from interlock.kernel.commands import Command, ReassignTask, RetryTask, SkipTask, Standing, Submitted
from interlock.kernel.errors import NotWanted
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import NamedPlace, Need, Unit, WorkerRow
from interlock.plugins.workstreams.adding import find_workstream, is_unplanned
from interlock.plugins.workstreams.copies import copy_task, name_all
from interlock.plugins.workstreams.maps import MAPPED
from interlock.plugins.workstreams.options import REASSIGNED
from interlock.plugins.workstreams.queries import (
    forget_needs,
    forget_place,
    read_needs,
    read_ready_workers,
    read_unmet_names,
    read_waiting,
    read_worker_name,
)
from interlock.store.flush import add_counts
from interlock.store.queries.for_verbs import load_lanes, read_notes
from interlock.store.unit_of_work import UnitOfWork

HEARD_US = 60_000_000  # a worker that has room asks for work every second or so
GOES_ON = (Category.WAITING, Category.ACTIVE)  # a workstream that has not been judged


def make_operator_stamp(command: Command[Any], reason: str) -> Stamp:
    """Who asks, and why."""
    return Stamp(command.actor, command.reason or reason, command.cause, command.vouched_by)


def find_open_workstream(tx: UnitOfWork, task: Unit) -> Unit:
    """The workstream of a task, locked.

    Raises:
        InterlockError: it has none.
        NotWanted: it has one that does not go on.
    """
    parent = find_workstream(tx, task)
    if parent.category not in GOES_ON:
        name, has_ended = format_id(parent.lifecycle, parent.id), parent.outcome is not None
        raise NotWanted(
            f"{name} is {parent.state}: nothing of it is changed any more; "
            f"{'rerun it' if has_ended else 'when it has ended, rerun it'}"
        )
    return parent


# Retry.


def retry_task(tx: UnitOfWork, command: RetryTask) -> Submitted:
    """A new task takes the place of one that failed or was cancelled.

    Raises:
        NotWanted: the task has not ended so, or its workstream is over.
    """
    waiting = read_waiting(tx, command.unit)
    tx.load_units([command.unit, *(need.unit for need in waiting)])  # children are locked before their parent
    old = tx.unit(command.unit)
    parent, name = find_open_workstream(tx, old), format_id(old.lifecycle, old.id)
    body = tx.body(old)
    if body.replaced_by is not None:
        raise NotWanted(f"{name} was retried already: {format_id(old.lifecycle, body.replaced_by)} does its work")
    if old.outcome not in (Category.FAILURE, Category.CANCELLED):
        raise NotWanted(f"{name} is {old.state}; only a task that failed or was cancelled can be retried")
    if old.decides and not is_unplanned(tx, parent):
        raise NotWanted(f"{name} is critical: its workstream ends with it, and is rerun as a whole")
    needs = follow_needs(tx, read_needs(tx, old.id))
    unmet = sum(not is_counted(tx, need, by_end) for need, by_end in needs.items())
    stamp = make_operator_stamp(command, f"retry of {name}")
    unit = copy_task(tx, tx.ids.take(), old, body, parent, needs, unmet, stamp, key=body.key)
    body.key, body.replaced_by = None, unit.id
    tx.change(body)
    payload = {"by": command.describe_actor(), "reason": stamp.reason, "as": unit.id}
    note(tx, old.id, "retried", msgspec.json.encode(payload).decode())
    for kept in read_notes(tx, [old.id], MAPPED):  # a map has its tasks already, and they are needed again
        note(tx, unit.id, MAPPED, kept.payload)
    take_over_place(tx, old, unit, policy_of(body).step)
    move_needs(tx, old, unit, [need for need in waiting if tx.rows.units[need.unit].outcome is None])
    add_counts(tx, {parent.id: {"total": -1, "lost": -1, "decided": -old.decides, "deciders": -old.decides}})
    if not unit.unmet and is_planned(tx, unit):
        make_ready(tx, unit)
    return Submitted(unit=unit.id, created=True, replaced=True, lifecycle=unit.lifecycle, state=unit.state)


def follow_needs(tx: UnitOfWork, needs: dict[int, bool]) -> dict[int, bool]:
    """What a task needs, locked: whatever was replaced meanwhile is what took its place."""
    followed: dict[int, bool] = {}
    tx.load_units(needs)
    for need, by_end in needs.items():
        while not by_end and need in tx.rows.units and (fresh := tx.body(tx.rows.units[need]).replaced_by):
            tx.load_units([fresh])
            need = fresh
        followed[need] = by_end
    return followed


def take_over_place(tx: UnitOfWork, old: Unit, unit: Unit, name: str | None) -> None:
    """The name of a task in its workstream leads to the new one."""
    if name is None or old.parent is None:
        return
    forget_place(tx, old.id)
    place = NamedPlace(parent=old.parent, name=name, unit=unit.id, tenant=unit.tenant)
    tx.add(place)
    tx.state(PlaceState).places[old.parent, name] = place


def move_needs(tx: UnitOfWork, old: Unit, unit: Unit, waiting: list[Need]) -> None:
    """What waits for the success of a task waits for that of the new one."""
    forget_needs(tx, waiting)
    for need in waiting:
        tx.add(Need(unit=need.unit, needs=unit.id, tenant=need.tenant))


# Skip.


def skip_task(tx: UnitOfWork, command: SkipTask) -> Standing:
    """A task that nobody has begun is completed without a result, and the rest goes on.

    Raises:
        NotWanted: it has started or ended, or its needs are not met; the text says what to do first.
    """
    task = tx.unit(command.unit)
    parent, lifecycle = find_open_workstream(tx, task), tx.lifecycle(task)
    name = format_id(task.lifecycle, task.id)
    if task.outcome is not None:
        raise NotWanted(f"{name} has ended ({task.state})")
    if task.fence:
        raise NotWanted(
            f"{name} has started ({task.state}); only a task that has not started can be skipped; cancel it instead"
        )
    if task.unmet:
        unmet = name_all(read_unmet_names(tx, task.id))
        raise NotWanted(f"{name} waits for {unmet}; retry or skip that first")
    if not lifecycle.allows(task.state, "skip"):
        raise NotWanted(f"{format_id(parent.lifecycle, parent.id)} is {parent.state}: it has no plan yet")
    advance(tx, task, "skip", make_operator_stamp(command, "skipped"), due_at=None)
    return make_standing(task, applied=True)


# Reassign.


def reassign_task(tx: UnitOfWork, command: ReassignTask) -> Standing:
    """The lease of a task is revoked, and it waits for another worker; no attempt is used up.

    Raises:
        NotWanted: nobody holds it.
    """
    task = tx.unit(command.unit)
    find_workstream(tx, task)
    if not is_held(tx, task):
        name = format_id(task.lifecycle, task.id)
        if task.outcome is not None:
            raise NotWanted(f"{name} has ended ({task.state})")
        raise NotWanted(f"{name} is {task.state}: nobody holds it, so it cannot be taken from anybody")
    note(tx, task.id, REASSIGNED, "{}", name=read_worker_name(tx, task.holder or 0), fence=task.fence)
    notify_holder(tx, task)
    trigger = policy.choose(tx.lifecycle(task), task.state, "release")
    end_lease(tx, task, trigger, "force", make_operator_stamp(command, "reassigned"), {"reassigned": True}, due_at=None)
    return make_standing(task, applied=True)


def leave_reassigned(tx: UnitOfWork, worker: WorkerRow, units: Sequence[Unit]) -> set[int]:
    """A worker leaves what was taken from one of its name to others, as long as there is one that can do it."""
    again = {unit.id: unit for unit in units if unit.fence and tx.lifecycle(unit).allows(unit.state, "skip")}
    if not again:
        return set()
    taken_from: dict[int, set[str]] = {}
    for taken in read_notes(tx, sorted(again), REASSIGNED):
        taken_from.setdefault(taken.unit, set()).add(taken.name)
    taken_here = [unit for unit, names in taken_from.items() if worker.name in names]
    workers = read_ready_workers(tx, HEARD_US) if taken_here else []
    return {
        unit for unit in taken_here
        if any(other.name not in taken_from[unit] and can_take(tx, other, again[unit]) for other in workers)
    }  # fmt: skip


def can_take(tx: UnitOfWork, worker: WorkerRow, unit: Unit) -> bool:
    """Whether a worker claims from the queue of a unit, knows its task, and has all that it asks for."""
    queues = tuple(msgspec.json.decode(worker.queues, type=list[str]))
    return unit.lane in load_lanes(tx, tx.tenant).served(queues, worker.capabilities, worker.tasks).queues
