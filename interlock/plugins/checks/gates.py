"""A unit that enters a gate has its checks made, and their ends are its verdict.

What is checked says so when it is submitted: `Work(options='{"checks": {"jobs": ["lint", "unit"]}}')`. When it enters a
gate (a state from which its lifecycle lists `valid` and `invalid`), its checks are made as children of it: all at once,
or one after another. The verdict falls in the transaction in which the last of them ends: `valid` if all succeeded,
else `invalid`, with the names and errors of those that did not. Without any check it is `valid` at once. `person`
stands for an approval, which is in the inbox as any other. What is in `last` is made when all the others have
succeeded, one after another. Whoever says nothing of checks waits for a verdict from outside, as before.

Each way into the gate is an *entry*, named by the version that the unit has there. A check that ends after the unit has
left the gate decides nothing. How many have ended is counted under the lock of the unit, so of two that end at the same
time one is the last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from interlock.core import validation
from interlock.core.advance import Stamp, advance, change
from interlock.core.effective_policy import NO_BACKOFF, find_deadline, option_of
from interlock.core.notes import note
from interlock.core.submit import complete_work, create_ready
from interlock.kernel.commands import Work
from interlock.kernel.durations import LONGEST_US
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Unit
from interlock.kernel.timing import backoff
from interlock.plugins.checks.queries import CheckNote, GateNote, read_checked, read_end
from interlock.store.hooks import Moved, Reaction
from interlock.store.queries.for_verbs import has_note, read_notes
from interlock.store.unit_of_work import UnitOfWork

NAME = "checks"  # of the plugin, and of its member of `Work.options`
ENTERED, ENDED = "gate", "checked"  # the kinds of notes: a gate was entered; a check of it has ended
APPROVAL, PERSON = "approval", "person"
CHECKS_MAX = 100  # of one gate
NOT_ALLOWED = ("parent", "needs", "after", "needs_end", "after_end", "ref", "key", "step", "undo", "when")
VALID, INVALID = "valid", "invalid"
LATEST = 1.0  # the place within a delay's jitter that makes it the longest
GROWING = 40  # so many pauses grow; those after them are as long as the last


class Checks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What work says of its checks; and what a check says of itself: which one it is, of which entry."""

    jobs: tuple[str | Work, ...] | None = None  # names of tasks, or work; None: the verdict comes from outside
    in_order: bool = False  # one after another, as long as they succeed
    last: tuple[str | Work, ...] = ()  # when all of `jobs` have succeeded, one after another: such as a merge
    entry: int | None = None
    index: int = 0


# What work says.


def check_checks(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what work says of its checks.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    given = read_checks(work)
    if given is None or given.jobs is None:
        return
    lifecycle = lifecycles[work.lifecycle]
    if not any(trigger == VALID for _, trigger in lifecycle.moves):
        gated = ", ".join(name for name, other in lifecycles.items() if any(word == VALID for _, word in other.moves))
        raise InterlockError(f"checks are not allowed for a {work.lifecycle}, which has no gate; {gated} have one")
    validation.check_range("the number of checks", len(given.jobs) + len(given.last), 0, CHECKS_MAX)
    for job in (*given.jobs, *given.last):
        check_job(lifecycles, as_work(job))


def check_job(lifecycles: Mapping[str, Lifecycle], job: Work) -> None:
    """Check the work of one check.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    validation.check_name("the task of a check", job.task)
    for name in NOT_ALLOWED:
        if getattr(job, name):
            raise InterlockError(f"{name} is not allowed for a check; it is made below what it checks")
    if NAME in read_all_options(job):
        raise InterlockError("checks are not allowed for a check; it is one itself")
    if job.lifecycle not in lifecycles or not (lifecycles[job.lifecycle].leased or job.lifecycle == APPROVAL):
        allowed = ", ".join([name for name, lifecycle in lifecycles.items() if lifecycle.leased] + [APPROVAL])
        raise InterlockError(f"a check is no {job.lifecycle}; allowed are {allowed}")


def read_checks(work: Work) -> Checks | None:
    """What work says of its checks, before it is made."""
    given = read_all_options(work)
    return msgspec.convert(given[NAME], Checks) if NAME in given else None


def read_all_options(work: Work) -> dict[str, Any]:
    """What work says to all plugins, by their names.

    Raises:
        InterlockError: it is no JSON.
    """
    if work.options is None:
        return {}
    validation.check_json("options", work.options)
    given = msgspec.json.decode(work.options)
    return given if isinstance(given, dict) else {}


def as_work(job: str | Work) -> Work:
    """The work of a check that is named, or described."""
    if job == PERSON:
        job = Work(task=PERSON, lifecycle=APPROVAL)
    elif isinstance(job, str):
        job = Work(task=job)
    if job.lifecycle != APPROVAL:
        return job
    return msgspec.structs.replace(job, on_reject="fail")  # a rejection is a verdict, and ends nothing by itself


# The gate is entered.


def enter_gates(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Units have entered a gate: their checks are made, or they have passed at once."""
    for unit, _ in moved:
        gated, given = tx.rows.units[unit.id], option_of(tx.body(unit), NAME, Checks)
        if given is not None and given.jobs is not None and tx.lifecycle(gated).allows(gated.state, VALID):
            enter_gate(tx, tx.act_for(gated), given, given.jobs)


def enter_gate(tx: UnitOfWork, unit: Unit, given: Checks, jobs: Sequence[str | Work]) -> None:
    """Makes the checks of a unit that has entered its gate; without any, it passes."""
    every = (*jobs, *given.last)
    if not every:
        pass_gate(tx, unit, "there is nothing to check")
        return
    entry = unit.version
    gate = GateNote(len(jobs), given.in_order, len(given.last))
    note(tx, unit.id, ENTERED, encode_note(gate), name=str(entry))
    works = list_checks(tx, unit, every)
    change(tx, unit, deadline_at=deadline_of_gate(tx, unit, given, works))
    for index in range(1 if given.in_order or not jobs else len(jobs)):
        make_check(tx, unit, entry, index, works[index])


def list_checks(tx: UnitOfWork, unit: Unit, jobs: Sequence[str | Work]) -> Sequence[Work]:
    """The works of checks below a unit, with the rules that their tasks have and they leave out."""
    return complete_work(tx, [msgspec.structs.replace(as_work(job), parent=unit.id) for job in jobs])


def make_check(tx: UnitOfWork, unit: Unit, entry: int, index: int, work: Work) -> None:
    """A check is made below what it checks. It takes the arguments of that, unless it has its own."""
    body = tx.body(unit)
    options = {**read_all_options(work), NAME: Checks(entry=entry, index=index)}
    work = msgspec.structs.replace(
        work, decides=False, input=body.input if work.input == "null" else work.input,
        options=encode_note(options), priority=work.priority or unit.priority,
    )  # fmt: skip
    stamp = Stamp("engine", "check", f"{format_id(unit.lifecycle, unit.id)}:{entry}")
    create_ready(tx, work, stamp, unit, {})


def deadline_of_gate(tx: UnitOfWork, unit: Unit, given: Checks, jobs: Sequence[Work]) -> int | None:
    """When the gate's clock runs out: after its own time, or what its checks may take by their terms if that is more.

    What waits for a person has the approval's expiry, and no other clock.
    """
    own_at = find_deadline(tx, unit, tx.now)
    if own_at is None or any(job.lifecycle == APPROVAL for job in jobs):
        return None
    each_us = [find_longest_us(tx.lifecycles[job.lifecycle], job) for job in jobs]
    first_us, last_us = each_us[: len(jobs) - len(given.last)], each_us[len(jobs) - len(given.last) :]
    all_us = (sum(first_us) if given.in_order else max(first_us, default=0)) + sum(last_us)
    return max(own_at, tx.now + min(all_us, LONGEST_US))


def find_longest_us(lifecycle: Lifecycle, job: Work) -> int:
    """How long a check may take by its own terms: waiting, all its attempts, and the pauses between them.

    One that may run for any time has no such terms, but for how long it may wait.
    """
    waits_us = job.queue_timeout_us or 0
    if job.timeout_us is None:
        return waits_us
    tries = (job.attempts or lifecycle.options.budget.attempts) + (job.losses or 0)
    rule = lifecycle.options.backoff or NO_BACKOFF
    rule = replace(rule, base_us=job.backoff_us or rule.base_us, cap_us=job.backoff_cap_us or rule.cap_us)
    growing = sum(backoff(rule, before, LATEST) for before in range(min(tries - 1, GROWING)))
    return waits_us + job.timeout_us * tries + growing + max(tries - 1 - GROWING, 0) * backoff(rule, GROWING, LATEST)


# A check has ended.


def end_checks(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Checks have ended: each is counted, and the last one is the verdict on what they check."""
    for check, _ in moved:
        own = option_of(tx.body(check), NAME, Checks)
        if own is None or own.entry is None or check.parent is None:
            continue
        tx.act_for(check)
        unit = tx.unit(check.parent)  # children are locked before their parent
        if unit.version == own.entry and tx.lifecycle(unit).allows(unit.state, VALID):
            count_check(tx, unit, check, own)


def count_check(tx: UnitOfWork, unit: Unit, check: Unit, own: Checks) -> None:
    """One more check of this entry has ended; the next one is made, or the verdict falls."""
    entry, name = own.entry or 0, f"{own.entry}.{own.index}"
    given = option_of(tx.body(unit), NAME, Checks)
    if given is None or given.jobs is None or has_note(tx, unit.id, ENDED, name):
        return
    body, passed = tx.body(check), check.outcome == Category.SUCCESS
    error = "" if passed else (body.error or describe_end(tx, check))
    note(tx, unit.id, ENDED, encode_note(CheckNote(check.id, body.task, passed, error)), name=name)
    ended = [
        msgspec.json.decode(kept.payload, type=CheckNote)
        for kept in read_notes(tx, [unit.id], ENDED)
        if kept.name.startswith(f"{entry}.")
    ]
    every, all_passed = (*given.jobs, *given.last), all(check.passed for check in ended)
    if not given.in_order and len(ended) < len(given.jobs):
        return
    if all_passed and len(ended) < len(every):
        (work,) = list_checks(tx, unit, every[len(ended) : len(ended) + 1])
        make_check(tx, unit, entry, len(ended), work)
    else:
        give_verdict(tx, unit, ended)


def describe_end(tx: UnitOfWork, check: Unit) -> str:
    """How a check ended that says no error of its own, such as an approval that somebody has rejected."""
    actor, reason = read_end(tx, check.id)
    return f"it is {check.state}" + (f" by {actor}: {reason}" if reason else "")


def give_verdict(tx: UnitOfWork, unit: Unit, ended: Sequence[CheckNote]) -> None:
    """All checks of an entry have ended: what they checked is valid, or it is not, and says why."""
    failed = [check for check in ended if not check.passed]
    if not failed:
        pass_gate(tx, unit, f"{len(ended)} checks have passed")
        return
    reason = f"{len(failed)} of {len(ended)} checks have failed"
    if any(hook(tx, unit, [(check.task, check.error) for check in failed], reason) for hook in tx.hooks.on_verdict):
        return
    text = "; ".join(f"check '{check.task}': {check.error}" for check in failed)[:2_000]
    body = tx.body(unit)
    body.error = text
    tx.change(body)
    payload = {"error": text, "checks": [check.unit for check in failed]}
    advance(tx, unit, INVALID, Stamp("engine", reason), payload=payload)


def pass_gate(tx: UnitOfWork, unit: Unit, text: str) -> None:
    """What was checked is valid, unless a plugin has another move for that."""
    if not any(hook(tx, unit, (), text) for hook in tx.hooks.on_verdict):
        advance(tx, unit, VALID, Stamp("engine", text))


# What a check is told.


def hand_over_results(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of the checks among these units: the id of what they check, and its result."""
    parents = {
        unit.id: unit.parent
        for unit in units
        if unit.parent is not None
        and (own := option_of(tx.body(unit), NAME, Checks)) is not None
        and own.entry is not None
    }
    if not parents:
        return {}
    above = read_checked(tx, parents.values())
    return {
        unit: {"outputs": (("checked", encode_note(above[parent][0])), ("result", above[parent][1]))}
        for unit, parent in parents.items()
        if parent in above
    }


def encode_note(value: Any) -> str:
    """Encodes the payload of a note."""
    return msgspec.json.encode(value).decode()


ENTER_GATES = Reaction("enter gates", lambda kind: kind.category == Category.GATE and kind.has_entered, enter_gates)
END_CHECKS = Reaction("end checks", lambda kind: kind.has_ended and kind.is_child and not kind.decides, end_checks)
