"""Pausing and unpausing, and what a claim makes of it.

A pause of a queue costs nothing: a claim leaves the queue out. What a claim comes across of a paused task or family it
parks on the pause, so that each such unit is looked at once; whoever ends the pause takes them from there, the most
urgent first, and ticks go on with what is left.
"""

from collections.abc import Sequence

import msgspec

from interlock.core.advance import change, make_stamp
from interlock.core.notes import note
from interlock.core.tx_state import WorkerCalls
from interlock.core.validation import check_name, check_range
from interlock.kernel.commands import PauseStatus, PauseWork, UnpauseWork
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import PauseRow, Unit
from interlock.plugins.pauses.clocks import move_clocks
from interlock.plugins.pauses.outages import find_outage_key, read_detail
from interlock.plugins.pauses.queries import (
    OUTAGE,
    PAUSED_MAX,
    QUEUE,
    TASK,
    UNIT,
    add_pause,
    end_pause,
    find_ended,
    find_parked_on,
    forget_pause,
    load_parents,
    peek_pauses,
    read_for_claim,
    read_last_act,
    read_time,
    read_to_change,
    try_to_change,
)
from interlock.store.hooks import Find
from interlock.store.unit_of_work import UnitOfWork

WHICH = "name one thing to pause: a queue, a task, or the id of a job or run"
RELEASED = 1_000  # units that are taken from a pause at once
LOOKED_AT = 200  # units that a claim looks at, at least, while a task or a family is paused
ROUNDS = 5  # how often a claim looks for more
FAR_US = 100 * 366 * 86_400_000_000


# What an operator asks for.


def pause_work(tx: UnitOfWork, command: PauseWork) -> PauseStatus:
    """Nothing of a queue, a task or a unit with all below it is granted from now on."""
    kind, name = name_target(command)
    make_stamp(command)
    until = find_end(tx, command)
    live = read_to_change(tx)
    unit = check_unit(tx, command.unit) if command.unit is not None else None
    actor, now = command.describe_actor(), read_time(tx)
    known = find_pause(live, kind, name)
    if known and (known.until, known.actor, known.reason) == (until, actor, command.reason):
        return describe_pause(known, changed=False)
    if known:
        end_pause(tx, known, now, actor)
        move_clocks(tx, known)
    elif len(live) >= PAUSED_MAX:
        raise InterlockError(f"{PAUSED_MAX} things are paused, and no more may be; pause a queue or a task instead")
    pause = PauseRow(
        id=tx.ids.take(), tenant=tx.tenant, kind=kind, name=name, unit=command.unit, since=now, until=until,
        actor=actor, reason=command.reason, act=read_last_act(tx),
    )  # fmt: skip
    add_pause(tx, pause)
    for other in [other for other in live if other.key == pause.key and other is not pause]:
        forget_pause(tx, other)  # what is parked on it is parked on the new one, which has the same name
    if unit is not None:
        note_pause(tx, unit.id, "paused", pause)
    return describe_pause(pause, changed=True)


def unpause_work(tx: UnitOfWork, command: UnpauseWork) -> PauseStatus:
    """A queue, a task or a unit that was paused goes on."""
    kind, name = name_target(command)
    make_stamp(command)
    pause = find_pause(read_to_change(tx), kind, name)
    if command.unit is not None:
        tx.unit(command.unit)
    if pause is None:
        return PauseStatus(kind, name, paused=False, changed=False)
    stop_pause(tx, pause, command.describe_actor())
    return PauseStatus(kind, name, paused=False, changed=True)


def name_target(command: PauseWork | UnpauseWork) -> tuple[str, str]:
    """Returns what a command means: a kind and a name.

    Raises:
        InterlockError: it names nothing, or more than one thing.
    """
    away = command.outage if isinstance(command, UnpauseWork) else None
    wanted = {QUEUE: command.queue, TASK: command.task, UNIT: command.unit, OUTAGE: away}
    named = [(kind, str(name)) for kind, name in wanted.items() if name is not None]
    if len(named) != 1:
        raise InterlockError(WHICH)
    check_name(*named[0])
    return named[0]


def find_end(tx: UnitOfWork, command: PauseWork) -> int | None:
    """Returns when a pause ends by itself (microseconds), None if never.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if command.until is not None and command.for_us is not None:
        raise InterlockError("until and for_us are not allowed together; one of them is")
    if command.for_us is not None:
        check_range("for_us", command.for_us, 1, FAR_US)
        return tx.now + command.for_us
    if command.until is not None and not tx.now < command.until < tx.now + FAR_US:
        raise InterlockError("until is not allowed: it must be a time to come, within 100 years")
    return command.until


def check_unit(tx: UnitOfWork, number: int) -> Unit:
    """Returns a unit that can be paused, locked.

    Raises:
        Unknown: there is none.
        InterlockError: nothing of it can start.
    """
    unit = tx.unit(number)
    lifecycle, name = tx.lifecycle(unit), format_id(unit.lifecycle, unit.id)
    if lifecycle.birth.trigger == "register":
        raise InterlockError(f"{name} is a worker; pause a queue, a task, a job or a run, or drain the worker")
    if lifecycle.settled(unit.state):
        raise InterlockError(f"{name} has ended ({unit.state}): nothing of it can start")
    return unit


def find_pause(live: Sequence[PauseRow], kind: str, name: str) -> PauseRow | None:
    """Finds the live pause of this kind and name."""
    return next((pause for pause in live if (pause.kind, pause.name, pause.ended_at) == (kind, name, None)), None)


def describe_pause(pause: PauseRow, *, changed: bool) -> PauseStatus:
    """Makes the answer to a command about a pause."""
    return PauseStatus(
        pause.kind, pause.name, True, changed, pause.actor, pause.reason, pause.since, pause.until
    )  # fmt: skip


def note_pause(tx: UnitOfWork, unit: int, kind: str, pause: PauseRow) -> None:
    """Who paused or unpaused a unit stays with the unit."""
    payload = {"by": pause.ended_by or pause.actor, "reason": pause.reason, "until": pause.until}
    note(tx, unit, kind, msgspec.json.encode(payload).decode())


# The end of a pause.


def stop_pause(tx: UnitOfWork, pause: PauseRow, actor: str) -> None:
    """A pause has ended, and the first units that were parked on it may be claimed."""
    end_pause(tx, pause, tx.now, actor)
    move_clocks(tx, pause)
    if pause.unit is not None:
        note_pause(tx, pause.unit, "unpaused", pause)
    if pause.kind == QUEUE:
        tx.state(WorkerCalls).queues.add((tx.tenant, pause.name))
        forget_pause(tx, pause)  # nothing is ever parked on it
    else:
        release_units(tx, pause, RELEASED)


def release_units(tx: UnitOfWork, pause: PauseRow, limit: int) -> int:
    """Units that are parked on a pause that has ended may be claimed, at most so many. Returns how many they are."""
    units, is_last = find_parked_on(tx, pause.key, limit)
    for unit in units:
        change(tx, unit, parked_on=None)
    if is_last:
        forget_pause(tx, pause)
    return len(units)


def end_due_pauses(tx: UnitOfWork, limit: int) -> int:
    """Pauses whose time is over, or whose unit has ended, are over; what is parked on them is released bit by bit."""
    live = peek_pauses(tx)
    ended = find_ended(tx, {pause.unit for pause in live if pause.unit is not None and pause.ended_at is None})
    due = [pause for pause in live if pause.ended_at is None and (pause.unit in ended or not pause.holds(tx.now))]
    done = 0
    if due:
        ids = {pause.id for pause in due}
        for pause in [pause for pause in try_to_change(tx) if pause.id in ids]:
            stop_pause(tx, pause, "clock")
            done += 1
    for pause in peek_pauses(tx):
        if pause.ended_at is not None:
            done += release_units(tx, pause, max(limit, RELEASED))
    return done


# What a claim makes of it.


def leave_paused_queues(tx: UnitOfWork, queues: Sequence[str]) -> Sequence[str]:
    """Returns the queues of a claim of which something may be granted."""
    paused = {pause.name for pause in read_for_claim(tx) if pause.kind == QUEUE and pause.holds(tx.now)}
    return [queue for queue in queues if queue not in paused] if paused else queues


def pass_over_paused(tx: UnitOfWork, find: Find) -> Find:
    """Returns a function that finds what is not paused; what it comes across and is paused is parked."""
    holding = [pause for pause in read_for_claim(tx) if pause.kind != QUEUE and pause.holds(tx.now)]
    if not holding:
        return find

    def find_unpaused(room: int) -> list[Unit]:
        free: list[Unit] = []
        for _ in range(ROUNDS):
            units = find(max(room, LOOKED_AT))
            keys = find_keys(tx, holding, units)
            free = [unit for unit in units if keys[unit.id] is None]
            for unit in units:
                if keys[unit.id] is not None:
                    change(tx, unit, parked_on=keys[unit.id])
            if len(free) >= room or len(free) == len(units):
                break
        return free[:room]

    return find_unpaused


def find_keys(tx: UnitOfWork, holding: Sequence[PauseRow], units: Sequence[Unit]) -> dict[int, str | None]:
    """Returns, by unit, the key of the pause that it is to be parked on; None if none of them holds it."""
    tasks = {pause.name: pause.key for pause in holding if pause.kind == TASK}
    families = {pause.unit: pause.key for pause in holding if pause.unit is not None}
    outages = {pause.name: (pause.key, read_detail(pause)) for pause in holding if pause.kind == OUTAGE}
    parents = load_parents(tx, units) if families else {}
    keys: dict[int, str | None] = {}
    for unit in units:
        keys[unit.id] = tasks.get(tx.body(unit).task) if tasks else None
        if outages and keys[unit.id] is None:
            keys[unit.id] = find_outage_key(tx, outages, unit)
        above: int | None = unit.id
        while families and above is not None and keys[unit.id] is None:
            keys[unit.id] = families.get(above)
            above = unit.parent if above == unit.id else parents.get(above)
    return keys
