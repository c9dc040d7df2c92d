"""What people and checks decide about an agent run: verdicts, which its holder never gives, and the resume.

A resume makes a new job for the run (A0-11). That job goes on with what the run has recorded: results of steps, the
last checkpoint, effects, phases, signals, waits that are over, and children that succeeded, such as approvals. They are
copied to it in the transaction of the resume, so that each job has its whole memory in one place, whatever becomes of
the earlier ones. Children that were stopped with the old job are made again when the handler asks for them.
"""

from typing import Any

import msgspec

from interlock.core.decide import apply_verdict
from interlock.core.notes import note
from interlock.kernel.budgets import GivenCap, parse_caps
from interlock.kernel.commands import LOCAL, Decide, Standing
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Note, Unit
from interlock.plugins.agents.binding import settle_contract
from interlock.plugins.agents.budgets import raise_caps, refuse_spent
from interlock.plugins.agents.options import JOB, RUN
from interlock.plugins.agents.phases import PHASE, count_phase
from interlock.plugins.agents.queries import find_succeeded_children, read_fences
from interlock.plugins.agents.verdicts import refuse_own_verdict
from interlock.store.queries.for_verbs import load_open_children, read_notes
from interlock.store.queries.recorded_steps import EFFECT_REQUEST, REQUEST
from interlock.store.unit_of_work import UnitOfWork

RESUME, VERDICTS = "resume", ("valid", "invalid")
# Kinds of notes that a new job has as they are.
KEPT = ("step", REQUEST, "effect", EFFECT_REQUEST, "effect_result", "compensation", PHASE, "validated")
OWN_SIGNALS = ("child:", "sleep:", "verdict:")  # how the names begin of what the engine itself says to a job
SLEEP = "sleep:"


class ResumeTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What belongs to a resume: caps of the run's budget, as people write amounts (a number is a hard one), and its
    contract."""

    budget: dict[str, float | GivenCap] = msgspec.field(default_factory=dict)
    contract: str | dict[str, Any] | None = None  # the digest of a stored one, or one
    override: bool = False  # whether it may be another one than the run has; without a contract, the newest


class GivenTerms:
    """What belongs to the resumes of a transaction, by run."""

    def __init__(self) -> None:
        self.by_run: dict[int, ResumeTerms] = {}


def resume_on_terms(tx: UnitOfWork, command: Decide) -> Standing | None:
    """A run is resumed on other terms; None if that is not what was asked.

    Raises:
        InterlockError: wrong terms.
    """
    if command.trigger != RESUME or command.data == "null":
        return None
    load_open_children(tx, command.unit)  # children are locked before their parent
    if tx.unit(command.unit).lifecycle != RUN:
        return None
    try:
        terms = msgspec.json.decode(command.data, type=ResumeTerms)
    except msgspec.MsgspecError as error:
        raise InterlockError(f'a resume takes data such as {{"budget": {{"usd": 10}}}}: {error}') from None
    parse_caps(terms.budget)
    tx.state(GivenTerms).by_run[command.unit] = terms
    return apply_verdict(tx, msgspec.structs.replace(command, data="null"))


def follow_decision(tx: UnitOfWork, run: Unit, command: Decide) -> None:
    """What follows from a decision about a run.

    Raises:
        InterlockError: it may not be made: it is undone then.
    """
    if run.lifecycle != RUN:
        return
    if command.trigger == RESUME:
        refuse_nameless_resume(run, command)
        hand_over_memory(tx, run)
        terms = tx.state(GivenTerms).by_run.pop(run.id, ResumeTerms())
        settle_contract(tx, run, terms.contract, command.describe_actor(), override=terms.override)
        raise_caps(tx, run, parse_caps(terms.budget))
        refuse_spent(tx, run)
    elif command.trigger in VERDICTS:
        refuse_own_verdict(tx, run, command)
    count_phase(tx, run, command.trigger)


def refuse_nameless_resume(run: Unit, command: Decide) -> None:
    """Raises InterlockError unless somebody resumes the run by name, for a reason."""
    missing = [
        what
        for what, is_there in (
            ("a name", (command.actor or "").strip() not in ("", LOCAL)),
            ("a reason", bool((command.reason or "").strip())),
        )
        if not is_there
    ]
    if missing:
        called = format_id(run.lifecycle, run.id)
        raise InterlockError(f"{called} is resumed by somebody, for a reason; {' and '.join(missing)} is missing")


# The memory of a run.


def hand_over_memory(tx: UnitOfWork, run: Unit) -> None:
    """The new job of a run has what the last one recorded."""
    jobs = [unit for unit in load_open_children(tx, run.id) if unit.lifecycle == JOB]
    last = tx.body(jobs[-1]).retry_of if jobs else None
    if last is None:
        return
    for kept in read_memory(tx, last):
        note(tx, jobs[-1].id, kept.kind, kept.payload, name=kept.name)


def read_memory(tx: UnitOfWork, job: int) -> list[Note]:
    """What a job recorded that the next one goes on with, in the order in which it was recorded."""
    memory = [kept for kind in KEPT for kept in read_notes(tx, [job], kind)]
    memory += read_notes(tx, [job], "checkpoint")[-1:]
    memory += [kept for kept in read_notes(tx, [job], "signal") if not kept.name.startswith(OWN_SIGNALS)]
    memory += [kept for kept in read_notes(tx, [job], "wait") if kept.name.startswith(SLEEP)]
    children = read_notes(tx, [job], "child")
    succeeded = find_succeeded_children(tx, children)
    memory += [kept for kept in children if kept.id in succeeded]
    return sorted(memory, key=lambda kept: (kept.at, kept.id))


def hand_over_fences(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, int]]:
    """What the fences of earlier jobs of a run came to: those of the next one are higher."""
    jobs = [unit.id for unit in units if unit.lifecycle == JOB]
    return {job: {"fence_base": fences} for job, fences in read_fences(tx, jobs).items()}
