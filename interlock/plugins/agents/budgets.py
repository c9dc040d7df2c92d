"""Budgets of agent runs: what a step used is counted with it, and a run that has used too much ends at once.

A step that is recorded is counted in the same transaction: in the meters of its run, and in those of the runs above it.
If one of them has used more than its hard cap, it fails: the step is kept, because it is paid for, the lease of its job
is revoked, and what is below it is stopped. At a soft cap somebody is asked in the inbox, once: yes goes on, also with
other caps, and no ends the run. What was under way when a run failed comes too late; for five minutes it is kept and
counted all the same, so that a resumed run does not pay for it again.

Active time counts while somebody holds the job of a run. A timer ends a run whose active time is over.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from interlock.core.advance import Stamp, advance
from interlock.core.holder_verbs import keep_by_plugins
from interlock.core.late_leases import find_late_attempt
from interlock.core.leases import end_lease, is_held
from interlock.core.notes import note
from interlock.core.workers import notify_holder
from interlock.kernel.blobs import parse_reference
from interlock.kernel.budgets import (
    ACTIVE,
    COUNTED,
    STEPS,
    Cap,
    GivenCap,
    check_caps,
    check_unit_names,
    format_amount,
    name_question,
    parse_amount,
    parse_caps,
)
from interlock.kernel.commands import Command, LeaseRef, MeterStatus, Record, Work
from interlock.kernel.errors import InterlockError, NotWanted
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.plugins.agents.options import JOB, RUN, read_agent_options
from interlock.plugins.agents.queries import (
    add_used,
    begin_time,
    count_steps,
    end_time,
    find_due,
    find_last_job,
    read_meters,
    read_meters_of,
    set_caps,
)
from interlock.store.hooks import Moved, OnRecord, Reaction
from interlock.store.queries.for_verbs import has_note, load_open_children, read_notes
from interlock.store.unit_of_work import UnitOfWork

STEP, USAGE, QUESTION = "step", "usage", "budget_question"  # kinds of notes
LATE = "late_step"  # of a job: one that came when another job went on, which has it, or has it counted
EXHAUSTED = "BUDGET_EXHAUSTED"
STEP_MAX = 1024 * 1024  # characters of a result
DEPTH_MAX = 5  # of runs below runs


# A step is recorded.


def count_step(tx: UnitOfWork, unit: Unit, command: Record) -> bool:
    """A step of an agent run is kept, and counted with what it has used. Returns whether that was done here.

    Raises:
        NotWanted: the step is too large, its usage cannot be, or another number of steps is recorded than it expects.
    """
    if command.kind not in (STEP, USAGE):
        return False
    run = find_run(tx, unit)
    if run is None:
        if command.kind == USAGE or command.usage is not None:
            raise NotWanted("usage is not allowed here; only jobs of agent runs report it")
        return False
    amounts = check_step(command)
    if command.kind == USAGE and has_note(tx, run.id, USAGE, command.name):
        return True
    if command.kind == STEP and has_note(tx, unit.id, STEP, command.name):
        return True
    if command.expects is not None and command.expects != (recorded := count_steps(tx, unit.id)):
        raise NotWanted(
            f"STALE_TICK: {recorded} steps are recorded, and {command.expects} were expected; it is skipped"
        )
    keep_step(tx, unit, run, command, amounts, fence=unit.fence)
    return True


COUNT_STEP = OnRecord(
    lambda kind: kind.kind == USAGE or (kind.kind == STEP and (kind.is_child or kind.has_usage)), count_step
)  # fmt: skip


def find_run(tx: UnitOfWork, job: Unit) -> Unit | None:
    """The agent run that a job works for; None if it works for none."""
    if job.lifecycle != JOB or job.parent is None:
        return None
    run = tx.unit(job.parent)
    return run if run.lifecycle == RUN else None


def check_step(command: Record) -> dict[str, int]:
    """Returns what a step has used, in the parts that count.

    Raises:
        NotWanted: its usage is not allowed; the text says what is.
    """
    blob = parse_reference(command.payload) if command.kind == STEP else None
    size = len(command.payload) if blob is None else blob.length
    if size > STEP_MAX:
        raise NotWanted(
            f"the result of the step '{command.name}' is too large: {size:,} characters, and {STEP_MAX:,} are allowed; "
            "keep it as an artifact, and return its name"
        )
    try:
        return parse_usage(command.usage or {})
    except InterlockError as wrong:
        raise NotWanted(f"usage of '{command.name}': {wrong}") from None


def parse_usage(usage: Mapping[str, float]) -> dict[str, int]:
    """What was used, in the parts that count.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    check_unit_names(usage)
    if counted := [name for name in COUNTED if name in usage]:
        raise InterlockError(f"{counted[0]} is not allowed; Interlock counts it by itself")
    return {name: parse_amount(name, amount) for name, amount in usage.items()}


def keep_step(tx: UnitOfWork, job: Unit, run: Unit, command: Record, amounts: dict[str, int], *, fence: int) -> None:
    """A step, or what a try of it used, is recorded and counted; who has used too much by it ends."""
    if command.kind == STEP:
        note(tx, job.id, STEP, command.payload, name=command.name, fence=fence)
    if amounts:
        note(tx, run.id, USAGE, encode(amounts), name=command.name, fence=fence)
    used = {**amounts, STEPS: 1} if command.kind == STEP else amounts
    if used:
        spend(tx, run, used)


def spend(tx: UnitOfWork, run: Unit, amounts: Mapping[str, int]) -> None:
    """A run, and those above it, have used so much more. The highest one that has used too much ends, and all below."""
    over: tuple[Unit, MeterStatus] | None = None
    for each in list_runs_above(tx, run):
        caps = read_agent_options(tx.body(each)).budget or {}
        for meter in add_used(tx, each.id, amounts, caps):
            if meter.hard is not None and meter.used > meter.hard:
                over = each, meter
            elif meter.soft is not None and meter.used > meter.soft:
                ask_for_more(tx, each, meter)
    if over is not None and over[0].outcome is None:
        exhaust(tx, *over)


def list_runs_above(tx: UnitOfWork, run: Unit) -> Iterator[Unit]:
    """A run, the run that has spawned it, and so on."""
    above: Unit | None = run
    while above is not None:
        yield above
        above = find_run(tx, tx.unit(above.parent)) if above.parent is not None else None


def exhaust(tx: UnitOfWork, run: Unit, meter: MeterStatus) -> None:
    """A run fails because it has used too much: its job does, and its lease is revoked."""
    text, job = describe_over(meter), find_open_job(tx, run.id)
    if job is None:
        return
    stamp, body = Stamp("engine", text), tx.body(job)
    trigger = "fail" if tx.lifecycle(job).allows(job.state, "fail") else "cancel"
    body.error = text
    tx.change(body)
    if is_held(tx, job):
        notify_holder(tx, job)
        end_lease(tx, job, trigger, "force", stamp, {"error": text})
    else:
        advance(tx, job, trigger, stamp, payload={"error": text})


def describe_over(meter: MeterStatus) -> str:
    """What was used of what, as in BUDGET_EXHAUSTED tokens 402,113 of 400,000."""
    used, hard = (format_amount(meter.name, amount or 0) for amount in (meter.used, meter.hard))
    return f"{EXHAUSTED} {meter.name} {used} of {hard}"


def keep_late_step(tx: UnitOfWork, command: Command[object], ref: LeaseRef) -> None:
    """What was under way when its run ended is kept and counted for a while, so that nobody pays for it again.

    If the run was resumed meanwhile, its newest job has the step, unless somebody holds that one: then the step may be
    under way once more, and only what was used is counted.
    """
    if not isinstance(command, Record) or command.kind not in (STEP, USAGE):
        return
    job = tx.rows.units.get(ref.unit)
    if job is None or job.outcome is None or job.parent is None or find_late_attempt(tx, ref) is None:
        return
    load_open_children(tx, job.parent)  # children are locked before their parent
    run, newest = find_run(tx, job), find_last_job(tx, job.parent)
    if run is None or newest is None:
        return
    try:
        amounts = check_step(command)
    except NotWanted:
        return
    if command.kind == STEP and any(has_note(tx, job.id, kind, command.name) for kind in (STEP, LATE)):
        return
    keeper = tx.unit(newest)
    if keeper.id != job.id:
        note(tx, job.id, LATE, "null", name=command.name, fence=ref.fence)
    if command.kind == STEP and (is_held(tx, keeper) or has_note(tx, keeper.id, STEP, command.name)):
        name = f"{command.name} late {format_id(job.lifecycle, job.id)}.{ref.fence}"
        late = msgspec.structs.replace(command, kind=USAGE, name=name)
    else:
        late = command
    if late.kind == USAGE and has_note(tx, run.id, USAGE, late.name):
        return
    keep_step(tx, keeper, run, late, amounts, fence=ref.fence)


# Soft caps.


def ask_for_more(tx: UnitOfWork, run: Unit, meter: MeterStatus) -> None:
    """Somebody is asked in the inbox whether a run may use more; about each cap once."""
    assert meter.soft is not None
    name, job = name_question(meter.name, meter.soft), find_open_job(tx, run.id)
    if job is None or has_note(tx, job.id, "child", name):
        return
    facts = {"meter": meter.name, **{word: getattr(meter, word) for word in ("used", "soft", "hard")}}
    shown = {word: amount if word == "meter" else show(meter.name, amount) for word, amount in facts.items()}
    work = {"task": name, "lifecycle": "approval", "input": encode(shown), "on_reject": "fail"}
    record = Record(tenant=tx.tenant, actor="engine", held=(), kind="child", name=name, payload=encode(work))
    keep_by_plugins(tx, job, record)  # as its holder would ask
    made = next(kept for kept in read_notes(tx, [job.id], "child") if kept.name == name)
    note(tx, run.id, QUESTION, encode({"meter": meter.name}), name=str(msgspec.json.decode(made.payload)["unit"]))


def show(name: str, amount: int | None) -> str | None:
    """Formats an amount; None stays None."""
    return None if amount is None else format_amount(name, amount)


def hear_answers(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Questions about budgets were answered: a run goes on, with other caps if they were given, or it fails."""
    for question, _ in moved:
        if question.parent is None:
            continue
        tx.act_for(question)
        job = tx.unit(question.parent)
        run = find_run(tx, job)
        if run is None or not has_note(tx, run.id, QUESTION, str(question.id)):
            continue
        name = next(kept for kept in read_notes(tx, [run.id], QUESTION) if kept.name == str(question.id)).payload
        meter = next(m for m in read_meters(tx.connection, run.id) if m.name == msgspec.json.decode(name)["meter"])
        if question.outcome == Category.SUCCESS:
            set_caps(tx, run.id, meter.name, find_new_cap(meter, tx.body(question).result))
        elif job.outcome is None and tx.lifecycle(run).category(run.state) != Category.CANCELLED:
            exhaust(tx, run, msgspec.structs.replace(meter, hard=meter.soft))


def find_new_cap(meter: MeterStatus, result: str | None) -> Cap:
    """The caps after a yes: as they were given, if they can be; without them there is no soft cap any more."""
    kept = Cap(meter.hard, None)
    try:
        given = msgspec.convert(msgspec.json.decode(result or "{}").get("arguments", {}), GivenCap)
        cap = parse_caps({meter.name: given})[meter.name]
        cap = Cap(meter.hard if cap.hard is None else cap.hard, cap.soft)
    except (msgspec.MsgspecError, InterlockError, AttributeError):
        return kept
    return cap if all(limit is None or limit >= meter.used for limit in (cap.hard, cap.soft)) else kept


HEAR_ANSWERS = Reaction(
    "hear answers about budgets",
    lambda kind: kind.lifecycle == "approval" and kind.has_ended and kind.is_child and not kind.decides,
    hear_answers,
)


# Active time.


def has_no_run(work: Work) -> bool:
    """Whether no run has a meter on which the time of its job is counted."""
    return work.parent is None


def start_time(tx: UnitOfWork, job: Unit, fence: int) -> None:
    """The job of a run is granted: from now on its active time counts."""
    run = find_run(tx, job)
    if run is not None:
        count_time(tx, run, job)
        begin_time(tx, run.id, (read_agent_options(tx.body(run)).budget or {}).get(ACTIVE, Cap()))


def count_time(tx: UnitOfWork, run: Unit, job: Unit) -> None:
    """What its job was held for is counted, if it was held."""
    since = end_time(tx, run.id)
    until = tx.now if job.lease_until is None else min(tx.now, job.lease_until)
    if since is not None and until > since:
        spend(tx, run, {ACTIVE: until - since})


def stop_time(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Jobs that nobody holds any more: their active time is counted."""
    for job, _ in moved:
        tx.act_for(job)
        run = None if is_held(tx, job) else find_run(tx, job)
        if run is not None:
            count_time(tx, run, job)


def end_active_runs(tx: UnitOfWork, limit: int) -> int:
    """Runs whose active time is over fail. Returns how many."""
    due = find_due(tx, limit)
    for run_id in due:
        job = find_open_job(tx, run_id)  # children are locked before their parent
        if job is None:
            end_time(tx, run_id)
        else:
            count_time(tx, tx.unit(run_id), job)
    return len(due)


def find_open_job(tx: UnitOfWork, run: int) -> Unit | None:
    """The job that works for a run, locked; None if it has ended."""
    return next((unit for unit in load_open_children(tx, run) if unit.lifecycle == JOB), None)


STOP_TIME = Reaction("stop active time", lambda kind: kind.lifecycle == JOB and not kind.is_birth, stop_time)


# What a worker is told.


def hand_over_meters(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of jobs of agent runs: what their runs have used, and may use."""
    runs = {unit.id: unit.parent for unit in units if unit.lifecycle == JOB and unit.parent is not None}
    known = read_meters_of(tx.connection, list(runs.values()))
    meters = {}
    for unit, run in runs.items():
        caps = read_agent_options(tx.body(tx.unit(run))).budget or {}
        used = {meter.name: meter for meter in known.get(run, ())}
        unused = [MeterStatus(name, 0, cap.soft, cap.hard) for name, cap in caps.items() if name not in used]
        meters[unit] = {"meters": (*used.values(), *unused)}
    return meters


# Caps that are raised.


def raise_caps(tx: UnitOfWork, run: Unit, budget: Mapping[str, Cap]) -> None:
    """A run may use more.

    Raises:
        InterlockError: less than it has used.
    """
    check_caps(budget)
    used = {meter.name: meter.used for meter in read_meters(tx.connection, run.id)}
    for name, cap in budget.items():
        if cap.hard is not None and cap.hard < used.get(name, 0):
            given, spent = format_amount(name, cap.hard), format_amount(name, used[name])
            raise InterlockError(f"the budget {name} = {given} is not allowed; {spent} are used already")
    for name, cap in budget.items():
        set_caps(tx, run.id, name, cap)


def refuse_spent(tx: UnitOfWork, run: Unit) -> None:
    """A resumed run that has used too much already fails again at once, for that reason (A0-12)."""
    for meter in read_meters(tx.connection, run.id):
        if meter.hard is not None and meter.used > meter.hard:
            exhaust(tx, run, meter)
            return


def encode(value: object) -> str:
    """The JSON text of a note."""
    return msgspec.json.encode(value).decode()
