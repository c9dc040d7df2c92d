"""Validations: `ctx.validate(result)`, by which a handler has its work judged, and goes on with what was found.

The run enters its gate (`validating`), where its checks are made, and its job is parked: nobody works for it. When the
verdict falls, the job goes on. If the work has passed, the run is running again, and the handler is told that nothing
was found. If it has not, and corrections are left, the run goes to running and to correcting, and the handler is told
the findings, which are the recorded answer: an attempt that comes to the same validation again gets them too. If none
are left, the run fails. A verdict is given by the checks, or by a person who decides; never by whoever holds the work.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.core.advance import SIGNAL, Stamp, advance, change, make_stamp
from interlock.core.cancel import make_standing
from interlock.core.effective_policy import find_deadline
from interlock.core.notes import note
from interlock.core.outcomes import keep_result
from interlock.kernel.blobs import parse_reference
from interlock.kernel.commands import Decide, Outcome, Record, Standing
from interlock.kernel.errors import InterlockError, NotWanted
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.kernel.timing import STANDS_US
from interlock.plugins.agents.binding import list_terms
from interlock.plugins.agents.budgets import STEP_MAX, find_open_job, find_run
from interlock.plugins.agents.contracts import ENFORCE, OFF, REQUIRED
from interlock.plugins.agents.options import JOB, RUN
from interlock.plugins.agents.phases import count_phase, has_left
from interlock.plugins.agents.verdicts import refuse_own_verdict
from interlock.store.queries.for_verbs import has_note, load_open_children, read_notes
from interlock.store.unit_of_work import UnitOfWork

# Kinds of notes: of a job, what its handler asked to be judged, and what was found; of a run, that it ended without.
REQUEST, ANSWER, SKIPPED = "validate", "validated", "unvalidated"
VERDICT = "verdict:"  # how the signal begins that a verdict has fallen; the number of the validation follows
CLOCK = "clock"  # the kind of note by which a grant has the clock of a parent go on: microseconds that it has left
VALID, INVALID = "valid", "invalid"
DECIDED = {"valid": "run", "optimize": "optimize", "invalid": "", "correct": "", "run": ""}  # after a pass, or not


# The handler asks.


def enter_validation(tx: UnitOfWork, job: Unit, command: Record) -> bool:
    """The run of a job enters its gate with what its handler has made of the work, once under its number.

    Raises:
        NotWanted: it is no job of an agent run, or the result is too large.
        Refused: the run is in no state from which it may be validated.
    """
    if command.kind != REQUEST:
        return False
    run = find_run(tx, job)
    if run is None:
        raise NotWanted(f"{format_id(job.lifecycle, job.id)} is no job of an agent run, and nothing of it is validated")
    if not command.name.isdecimal():
        raise NotWanted(f"'{command.name}' is no number of a validation; allowed is one as in '1'")
    blob = parse_reference(command.payload)
    size = len(command.payload) if blob is None else blob.length
    if size > STEP_MAX:
        raise NotWanted(f"what is validated is too large: {size:,} characters, and {STEP_MAX:,} are allowed")
    if has_note(tx, job.id, ANSWER, command.name):
        return True
    if tx.lifecycle(run).category(run.state) != Category.GATE:
        keep_result(tx, run, command.payload)  # for its checks
        stop_clock(tx, run)
        advance(tx, run, "check", make_stamp(command))
    if not has_note(tx, job.id, REQUEST, command.name):
        note(tx, job.id, REQUEST, "null", name=command.name, fence=job.fence)
    return True


def stop_clock(tx: UnitOfWork, run: Unit) -> None:
    """The clock of a run stands while it is validated; as with every wait, the next grant of its job has it go on."""
    if run.deadline_at is not None:
        at = run.deadline_at - STANDS_US if run.deadline_at >= STANDS_US else run.deadline_at
        note(tx, run.id, CLOCK, str(max(0, at - tx.now)))


def find_resting(tx: UnitOfWork, run: Unit) -> tuple[Unit, str] | None:
    """The job that rests until a verdict on its run falls, and the number of its validation; None if none does."""
    if run.lifecycle != RUN or tx.lifecycle(run).category(run.state) != Category.GATE:
        return None
    job = find_open_job(tx, run.id)
    requests = [] if job is None else read_notes(tx, [job.id], REQUEST)
    if job is None or not requests or has_note(tx, job.id, ANSWER, requests[-1].name):
        return None
    return job, requests[-1].name


# The verdict falls.


def hear_verdict(tx: UnitOfWork, run: Unit, failed: Sequence[tuple[str, str]], text: str) -> bool:
    """All checks of a gate have ended. Returns whether a handler waits for that, so the run has moved."""
    resting = find_resting(tx, run)
    if resting is None:
        return False
    findings = [{"check": check, "error": error} for check, error in failed]
    give_answer(tx, run, *resting, findings, Stamp("engine", text), "run")
    return True


def decide_validation(tx: UnitOfWork, command: Decide) -> Standing | None:
    """Somebody decides about a run whose handler waits for that; None if it is another decision.

    Raises:
        NotWanted: the decision is not allowed now.
    """
    if command.trigger not in DECIDED:
        return None
    load_open_children(tx, command.unit)  # children are locked before their parent
    run = tx.unit(command.unit)
    resting = find_resting(tx, run)
    if resting is None:
        return None
    if command.data != "null":
        raise InterlockError(f"data are not allowed with '{command.trigger}' here")
    refuse_own_verdict(tx, run, command)
    after = DECIDED[command.trigger]
    actor = command.describe_actor()
    findings = [] if after else [{"check": actor, "error": command.reason or f"{actor} says {command.trigger}"}]
    give_answer(tx, run, *resting, findings, make_stamp(command), after)
    return make_standing(run, applied=True)


def give_answer(
    tx: UnitOfWork, run: Unit, job: Unit, name: str, findings: list[dict[str, str]], stamp: Stamp, after: str
) -> None:  # fmt: skip
    """A run goes on after a verdict, by `after` if it has passed, and its handler is told the findings; or it fails."""
    text = "; ".join(f"check '{each['check']}': {each['error']}" for each in findings)[:2_000]
    body = tx.body(run)
    body.result = None  # its checks have had it
    if findings:
        body.error = text
    tx.change(body)
    verdict: dict[str, Any] = {"verdict": INVALID if findings else VALID, "validation": int(name)}
    if findings:
        verdict["error"] = text
    if findings and not has_left(tx, run, "correct"):
        advance(tx, run, "invalid", stamp, payload=verdict)
        return
    trigger = "correct" if findings else after
    count_phase(tx, run, trigger)
    advance(tx, run, trigger, stamp, payload=verdict)
    change(tx, run, deadline_at=None)
    note(tx, job.id, ANSWER, msgspec.json.encode(findings).decode(), name=name, fence=job.fence)
    note(tx, job.id, "signal", "null", name=VERDICT + name)
    if (job.parked_on or "").startswith(SIGNAL):
        change(tx, job, due_at=None, parked_on=None, deadline_at=find_deadline(tx, job, tx.now))


def hand_over_answers(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of jobs: what was found by validations, by their numbers."""
    answers_of: dict[int, list[tuple[str, str]]] = {}
    for kept in read_notes(tx, [unit.id for unit in units if unit.lifecycle == JOB], ANSWER):
        answers_of.setdefault(kept.unit, []).append((kept.name, kept.payload))
    return {job: {"validations": tuple(answers)} for job, answers in answers_of.items()}


# The handler returns.


def guard_return(tx: UnitOfWork, job: Unit, outcome: Outcome) -> None:
    """A handler returns.

    Raises:
        NotWanted: its run has to be validated, and was not; a warning is noted.
    """
    if outcome.ended != "success" or job.lifecycle != JOB:
        return
    run = find_run(tx, job)
    mode = OFF if run is None else list_terms(tx, run).validation or OFF
    if run is None or mode == OFF or has_passed(tx, job):
        return
    if mode == ENFORCE:
        raise NotWanted(describe_missing(format_id(run.lifecycle, run.id)))
    if not has_note(tx, run.id, SKIPPED, ""):
        note(tx, run.id, SKIPPED, "null")


def describe_missing(name: str) -> str:
    """Why a run may not end yet."""
    return f"{REQUIRED}: {name} may end only after a validation that has found nothing; its last is missing, or failed"


def has_passed(tx: UnitOfWork, job: Unit) -> bool:
    """Whether the last validation of a job has found nothing."""
    answers = read_notes(tx, [job.id], ANSWER)
    return bool(answers) and answers[-1].payload == "[]"
