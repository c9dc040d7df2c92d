"""Schedules: a unit for each instant, made by whoever ticks, once."""

from contextlib import suppress
from hashlib import sha256
from itertools import groupby

import msgspec

from interlock.core import validation
from interlock.core.cancel import cancel
from interlock.core.notes import verbose_kept_us
from interlock.core.submit import submit
from interlock.core.validation import check_work
from interlock.kernel.commands import (
    MISSED,
    OVERLAP,
    Cancel,
    Command,
    DefineSchedule,
    FireSchedule,
    PauseSchedule,
    Planned,
    RemoveSchedule,
    ResumeSchedule,
    Submit,
    Submitted,
    Work,
)
from interlock.kernel.commands.submit import encode_work
from interlock.kernel.errors import InterlockError, Refused, StoreError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Schedule, Skipped, Unit
from interlock.plugins.schedules import cron
from interlock.plugins.schedules.queries import (
    SCHEDULES,
    add_schedule,
    find_schedule,
    get_schedule,
    lock_due_schedules,
)
from interlock.store.queries.for_verbs import ensure_tenant
from interlock.store.unit_of_work import UnitOfWork

NAME_MAX = 150  # a key has room for it and an instant
ALL_MAX = 1_000  # instants that are made up for after a downtime
AT_ONCE = 100  # of one schedule in one tick
ONE_AT_A_TIME = ("queue", "replace")
CLOCK = "clock"
OWN = ("key", "parent", "needs", "after", "needs_end", "after_end", "ref", "at_us", "delay_us")


def define_schedule(tx: UnitOfWork, command: DefineSchedule) -> Planned:
    """The schedule is as it is defined here; if it was so before, nothing has changed. Paused, it stays paused."""
    timing = cron.normalize_timing(command.timing, command.timezone, tx.now)
    check_definition(tx, command)
    work = encode_work(command.work)
    facts = {"timing": timing, "timezone": command.timezone, "overlap": command.overlap, "missed": command.missed}
    digest = sha256(msgspec.json.encode([*facts.values(), work])).hexdigest()
    known = find_schedule(tx, command.tenant, command.name)
    if known is None:
        first = next(cron.iterate_instants(timing, command.timezone, tx.now))
        fresh = {"defined_at": tx.now, "next_at": first, "work": work, "digest": digest}
        known = Schedule(tenant=command.tenant, name=command.name, **facts, **fresh)  # type: ignore[arg-type]
        ensure_tenant(tx, command.tenant)
        add_schedule(tx, known)
    elif known.removed_at is not None or known.digest != digest:
        redefine(tx, known, {**facts, "work": work, "digest": digest, "defined_at": tx.now})
    else:
        return describe_planned(known, changed=False)
    return describe_planned(known, changed=True)


def check_definition(tx: UnitOfWork, command: DefineSchedule) -> None:
    """What could never be made is refused before anybody waits for it."""
    validation.check_name("name", command.name)
    validation.check_range("the length of the name", len(command.name), 1, NAME_MAX)
    validation.check_choice("overlap", command.overlap, OVERLAP)
    validation.check_choice("missed", command.missed, MISSED)
    plain = Work(task=command.work.task)
    for name in OWN:
        if getattr(command.work, name) != getattr(plain, name):
            raise InterlockError(f"the work of a schedule has no {name}; set it on the schedule")
    check_work(tx.lifecycles, command.work, tx.hooks)
    if not isinstance(msgspec.json.decode(command.work.labels), dict):
        raise InterlockError("the labels of a schedule's work are a JSON object")
    if command.overlap in ONE_AT_A_TIME and not tx.lifecycles[command.work.lifecycle].leased:
        raise InterlockError(f"overlap = '{command.overlap}' is for work that workers claim: skip or allow are left")


def redefine(tx: UnitOfWork, schedule: Schedule, facts: dict[str, object]) -> None:
    """What is due is made as it was defined until now; another timing counts from now on."""
    if schedule.next_at is not None and schedule.next_at <= tx.now:
        make_due(tx, schedule)
    back = schedule.removed_at is not None
    schedule.removed_at = schedule.removed_by = schedule.remove_note = None
    moved = back or (schedule.timing, schedule.timezone) != (facts["timing"], facts["timezone"])
    for name, value in facts.items():
        setattr(schedule, name, value)
    if moved and schedule.paused_at is None:
        go_on(tx, schedule)
    tx.update(SCHEDULES, schedule)


def pause_schedule(tx: UnitOfWork, command: PauseSchedule) -> Planned:
    """The schedule makes nothing until it is resumed; what was due before is made."""
    schedule = get_schedule(tx, command.tenant, command.name)
    if schedule.paused_at is not None:
        return describe_planned(schedule, changed=False)
    if schedule.next_at is not None and schedule.next_at <= tx.now:
        make_due(tx, schedule)
    schedule.paused_at, schedule.paused_by, schedule.pause_note = tx.now, command.describe_actor(), command.reason
    schedule.next_at = None
    tx.update(SCHEDULES, schedule)
    return describe_planned(schedule, changed=True)


def resume_schedule(tx: UnitOfWork, command: ResumeSchedule) -> Planned:
    """The schedule goes on with its next instant; those of the pause are skipped."""
    schedule = get_schedule(tx, command.tenant, command.name)
    if schedule.paused_at is None:
        return describe_planned(schedule, changed=False)
    gone = cron.find_due(schedule.timing, schedule.timezone, schedule.paused_at + 1, tx.now, ALL_MAX)
    note = f": {schedule.pause_note}" if schedule.pause_note else ""
    skip(tx, schedule, [(instant, f"paused by {schedule.paused_by}{note}") for instant in gone])
    schedule.paused_at = schedule.paused_by = schedule.pause_note = None
    go_on(tx, schedule)
    return describe_planned(schedule, changed=True)


def remove_schedule(tx: UnitOfWork, command: RemoveSchedule) -> Planned:
    """The schedule makes nothing any more; what was due before is made, and what it made stays as it is."""
    schedule = find_schedule(tx, command.tenant, command.name) or get_schedule(tx, command.tenant, command.name)
    if schedule.removed_at is not None:
        return describe_planned(schedule, changed=False)
    if schedule.next_at is not None and schedule.next_at <= tx.now:
        make_due(tx, schedule)
    schedule.removed_at, schedule.removed_by, schedule.remove_note = tx.now, command.describe_actor(), command.reason
    schedule.next_at = schedule.paused_at = schedule.paused_by = schedule.pause_note = None
    tx.update(SCHEDULES, schedule)
    return describe_planned(schedule, changed=True)


def fire_schedule(tx: UnitOfWork, command: FireSchedule) -> Submitted:
    """A unit of the schedule exists now, whatever its clock says, and whether or not it is paused."""
    schedule = get_schedule(tx, command.tenant, command.name)
    if schedule.overlap == "replace" and (last := find_last_open(tx, schedule)):
        stop(tx, last, schedule)
    made = make(tx, schedule, None, command)
    schedule.last_unit = made.unit
    tx.update(SCHEDULES, schedule)
    return made


def describe_planned(schedule: Schedule, *, changed: bool) -> Planned:
    """Makes the answer to a command about a schedule."""
    return Planned(
        name=schedule.name, changed=changed, paused=schedule.paused_at is not None, next_at=schedule.next_at,
        removed=schedule.removed_at is not None,
    )  # fmt: skip


def run_schedules(tx: UnitOfWork, limit: int) -> int:
    """For the instants that are due, units are made or the reason is kept why not; answers how many were made."""
    made = 0
    for schedule in lock_due_schedules(tx, limit):
        if made >= limit:
            break  # the next tick goes on
        before = tx.changes.count
        try:
            made += make_due(tx, schedule)
        except InterlockError as error:
            if isinstance(error, StoreError) or tx.changes.count != before:
                raise
            # This machine does not know its time zone, say: it stays due, for another one.
    return made


def make_due(tx: UnitOfWork, schedule: Schedule) -> int:
    """Of one schedule, at most a few at once: it is due again then."""
    instants = cron.find_due(schedule.timing, schedule.timezone, schedule.next_at or 0, tx.now, ALL_MAX + 1)
    if len(instants) > ALL_MAX:
        reason = f"more than {ALL_MAX:,} instants were missed, and these are older; from the first to the last of them"
        skip(tx, schedule, [(schedule.next_at or 0, reason), (instants[0], reason)], counted=False)
        instants = instants[1:]
    wanted = cron.choose_missed(schedule.missed, instants, tx.now) if instants else []
    reason = f"missed: nobody looked until {cron.format_instant(tx.now // 1_000_000 * 1_000_000)}"
    skips = [(instant, reason) for instant in instants if instant not in set(wanted)]
    made = 0
    for instant in wanted[:AT_ONCE]:
        why = make_at(tx, schedule, instant)
        made += not why
        skips += [(instant, why)] if why else []
    skip(tx, schedule, skips)
    if later := wanted[AT_ONCE:]:
        schedule.next_at = later[0]
    else:
        go_on(tx, schedule)
    tx.update(SCHEDULES, schedule)
    return made


def make_at(tx: UnitOfWork, schedule: Schedule, instant: int) -> str:
    """A unit exists for the instant, or there is a reason why not."""
    last = find_last_open(tx, schedule)
    if last and schedule.overlap == "skip":
        return f"{format_id(last.lifecycle, last.id)} of the instant before has not ended"
    if last and schedule.overlap == "replace":
        stop(tx, last, schedule)
    before = tx.changes.count
    try:
        order = Submit(tenant=schedule.tenant, actor=CLOCK, reason=f"schedule {schedule.name}", work=())
        made = make(tx, schedule, instant, order)
    except StoreError:
        raise
    except InterlockError as refusal:
        if tx.changes.count != before:
            raise
        return f"refused: {refusal}"  # one schedule that cannot be kept must not stop the time of all others
    schedule.last_at, schedule.last_unit = instant, made.unit
    return ""


def make(
    tx: UnitOfWork, schedule: Schedule, instant: int | None, by: Command[list[Submitted]] | FireSchedule
) -> Submitted:
    """The unit of an instant, which has its key; one that was triggered has none."""
    try:
        work = msgspec.json.decode(schedule.work, type=Work)
    except msgspec.MsgspecError as error:
        raise InterlockError(f"the work of schedule '{schedule.name}' cannot be read: {error}") from None
    labels = {**msgspec.json.decode(work.labels), "schedule": schedule.name}
    key = None
    if instant is not None:
        labels["instant"] = cron.format_instant(instant)
        key = f"{schedule.name}@{labels['instant']}"
    mutex = work.mutex or (f"schedule:{schedule.name}" if schedule.overlap in ONE_AT_A_TIME else None)
    work = msgspec.structs.replace(work, key=key, mutex=mutex, labels=msgspec.json.encode(labels).decode())
    order = Submit(
        tenant=schedule.tenant, actor=by.actor, reason=by.reason, cause=by.cause, vouched_by=by.vouched_by,
        work=(work,),
    )  # fmt: skip
    return submit(tx, order)[0]


def find_last_open(tx: UnitOfWork, schedule: Schedule) -> Unit | None:
    """The unit that the schedule made last, if it has not ended."""
    units = tx.lock_units([schedule.last_unit]) if schedule.last_unit is not None else []
    return units[0] if units and units[0].outcome is None else None


def stop(tx: UnitOfWork, unit: Unit, schedule: Schedule) -> None:
    """The unit is cancelled, or asked to stop: its mutex keeps the next one waiting until it has."""
    with suppress(Refused):  # it ends by itself, then
        reason = f"replaced by the next one of schedule {schedule.name}"
        cancel(tx, Cancel(tenant=schedule.tenant, unit=unit.id, actor=CLOCK, reason=reason))


def skip(tx: UnitOfWork, schedule: Schedule, skips: list[tuple[int, str]], *, counted: bool = True) -> None:
    """Instants without a unit are remembered for a while, a row for each stretch with one reason."""
    for reason, some in groupby(skips, key=lambda skipped: skipped[1]):
        of = [instant for instant, _ in some]
        tx.add(
            Skipped(
                id=tx.ids.take(), tenant=schedule.tenant, schedule=schedule.name, first_at=of[0], last_at=of[-1],
                count=len(of) if counted else 0, reason=reason, at=tx.now, expires=tx.now + verbose_kept_us(tx),
            )
        )  # fmt: skip


def go_on(tx: UnitOfWork, schedule: Schedule) -> None:
    """The schedule waits for its next instant."""
    schedule.next_at = next(cron.iterate_instants(schedule.timing, schedule.timezone, tx.now), None)
    tx.update(SCHEDULES, schedule)
