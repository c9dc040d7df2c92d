"""Subagents: a handler spawns an agent, whose run is below its job, with a contract and a budget of its own.

The run is a child of the job, as any other: made once under its name, waited for, and stopped when the job ends before
it. What it uses counts for the runs above it too. A job that does the work of its run again, after a resume, gets a new
run for a child that had not succeeded, which remembers what that one had recorded: nothing of it is paid for again.
"""

import msgspec

from interlock.core import validation
from interlock.core.advance import Stamp
from interlock.core.holder_verbs import keep_by_plugins
from interlock.core.notes import note
from interlock.core.outcomes import keep_result
from interlock.core.submit import complete_work, create_ready
from interlock.kernel.commands import Record, Work
from interlock.kernel.errors import InterlockError, NotWanted
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Unit
from interlock.plugins.agents.budgets import DEPTH_MAX, find_run, list_runs_above
from interlock.plugins.agents.decisions import read_memory
from interlock.plugins.agents.options import JOB, RUN
from interlock.plugins.agents.queries import count_runs_below, find_last_job
from interlock.store.queries.for_verbs import has_note, read_notes
from interlock.store.unit_of_work import UnitOfWork

KIND, CHILD = "child_run", "child"  # what a holder records, and the note of what was made
BELOW_MAX = 100  # runs that one run may spawn, over all its jobs


class SpawnedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a holder records to spawn an agent: the work of its run, and that of the run's job."""

    run: Work
    job: Work


def spawn_run(tx: UnitOfWork, job: Unit, command: Record) -> bool:
    """A run of an agent is made below a job, by its holder, unless there is a child of that name.

    Raises:
        NotWanted: there are too many runs above it or beside it, or the child of that name does other work.
        InterlockError: the work could never be done.
    """
    if command.kind != KIND:
        return False
    spawned = decode_spawned(command)
    is_there = has_note(tx, job.id, CHILD, command.name)
    above = find_run(tx, job)
    if above is not None and not is_there:
        refuse_too_many(tx, above)
    fields = msgspec.structs.asdict(spawned.run)
    record = msgspec.structs.replace(command, kind=CHILD, payload=msgspec.json.encode(fields).decode())
    keep_by_plugins(tx, job, record)  # it is a child as any other
    if is_there:
        return True
    run = tx.unit(find_named_child(tx, job.id, command.name) or 0)
    last = find_last(tx, job, command.name, spawned.run)
    (work,) = complete_work(tx, [msgspec.structs.replace(spawned.job, parent=run.id, retry_of=last)])
    validation.check_work(tx.lifecycles, work, tx.hooks)
    new_job = create_ready(tx, work, Stamp(command.actor, "spawned"), run, {})
    for kept in [] if last is None else read_memory(tx, last):
        note(tx, new_job.id, kept.kind, kept.payload, name=kept.name)
    return True


def decode_spawned(command: Record) -> SpawnedRun:
    """What is to be spawned.

    Raises:
        InterlockError: it is no run of an agent with its job.
    """
    try:
        spawned = msgspec.json.decode(command.payload, type=SpawnedRun)
    except msgspec.MsgspecError as error:
        raise InterlockError(f"a spawned agent is an object with `run` and `job`: {error}") from None
    if (spawned.run.lifecycle, spawned.job.lifecycle) != (RUN, JOB) or spawned.run.task != spawned.job.task:
        raise InterlockError(f"a spawned agent is an {RUN} and an {JOB} of one task")
    return spawned


def refuse_too_many(tx: UnitOfWork, above: Unit) -> None:
    """Raises NotWanted if there are as many runs above a new one, or beside it, as there may be."""
    name = format_id(above.lifecycle, above.id)
    if len(list(list_runs_above(tx, above))) >= DEPTH_MAX:
        raise NotWanted(
            f"{name} is {DEPTH_MAX} runs deep, and cannot spawn an agent: runs may be nested {DEPTH_MAX} deep at most"
        )
    if count_runs_below(tx, above.id) >= BELOW_MAX:
        raise NotWanted(f"{name} has spawned {BELOW_MAX} agents, and at most {BELOW_MAX} are allowed")


def find_named_child(tx: UnitOfWork, job: int, name: str) -> int | None:
    """The child of a job that has this name."""
    made = [kept for kept in read_notes(tx, [job], CHILD) if kept.name == name]
    return int(msgspec.json.decode(made[-1].payload)["unit"]) if made else None


def find_last(tx: UnitOfWork, job: Unit, name: str, work: Work) -> int | None:
    """The last job of the run that had this name below the job before this one, and did the same; None if none did."""
    before = tx.body(job).retry_of
    old = None if before is None else find_named_child(tx, before, name)
    if old is None or (run := tx.unit(old)).lifecycle != RUN or run.outcome is None:
        return None
    body = tx.body(run)
    return find_last_job(tx, old) if (body.task, body.input) == (work.task, work.input) else None


def tell_result(tx: UnitOfWork, run: Unit, trigger: str) -> None:
    """A run that was spawned has the result of its job, for whoever waits for it."""
    if run.lifecycle != RUN or run.parent is None or trigger != "succeed":
        return
    jobs = [unit for unit in tx.rows.units.values() if unit.parent == run.id and unit.lifecycle == JOB]
    job = max(jobs, key=lambda unit: unit.id, default=None)
    if job is not None:
        keep_result(tx, run, tx.body(job).result)
