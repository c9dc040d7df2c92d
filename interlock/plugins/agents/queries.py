"""What agent runs read beside the rows of units: children, fences, workers and steps."""

from collections.abc import Iterable, Sequence

import msgspec

from interlock.kernel.rows import Note
from interlock.store.connection import Connection
from interlock.store.unit_of_work import UnitOfWork

FENCES = (
    "SELECT job.id, sum(earlier.fence) FROM unit AS job JOIN unit AS earlier ON earlier.parent = job.parent "
    "AND earlier.lifecycle = job.lifecycle AND earlier.id < job.id WHERE job.id {ids} GROUP BY job.id"
)
LAST_JOB = "SELECT max(id) FROM unit WHERE parent = :run AND lifecycle = 'agent_job'"
STEPS = (
    "SELECT note.name, note.payload, note.at, note.unit FROM note WHERE note.tenant = :tenant AND note.kind = 'step' "
    "AND note.unit = (SELECT max(id) FROM unit WHERE parent = :run AND lifecycle = 'agent_job') "
    "ORDER BY note.at, note.id"
)
OPEN_JOBS = (
    "SELECT run.id, run.outcome, count(*) FROM unit AS job JOIN unit AS run ON run.id = job.parent "
    "WHERE job.lifecycle = 'agent_job' AND job.outcome IS NULL AND run.lifecycle = 'agent_run' "
    "AND NOT EXISTS (SELECT 1 FROM forced_move WHERE forced_move.unit IN (run.id, job.id)) "
    "GROUP BY run.id, run.outcome"
)
DECISIONS = (
    "SELECT event.unit, event.trigger, event.actor, act.reason FROM unit JOIN event ON event.unit = unit.id "
    "JOIN act ON act.id = event.act "
    "WHERE unit.lifecycle = 'agent_run' AND event.trigger IN ('resume', 'valid', 'invalid')"
)
HOLDERS = (
    "SELECT job.parent, event.payload FROM unit AS job JOIN event ON event.unit = job.id "
    "WHERE job.lifecycle = 'agent_job' AND job.parent IS NOT NULL AND event.trigger IN ('claim', 'reclaim')"
)


def find_last_job(tx: UnitOfWork, run: int) -> int | None:
    """The job that works for a run, or was the last to do so."""
    rows = tx.connection.rows(LAST_JOB, {"run": run})
    return rows[0][0] if rows else None


def find_succeeded_children(tx: UnitOfWork, notes: Sequence[Note]) -> set[int]:
    """The ids of those notes of children that tell of one that has succeeded."""
    units = {kept.id: msgspec.json.decode(kept.payload)["unit"] for kept in notes}
    sql = "SELECT id FROM unit WHERE outcome = 'success' AND id {ids}"
    succeeded = {unit for (unit,) in tx.connection.rows(sql, {"ids": sorted(units.values())})} if units else set()
    return {kept for kept, unit in units.items() if unit in succeeded}


def read_fences(tx: UnitOfWork, jobs: Iterable[int]) -> dict[int, int]:
    """By job of a run that is not its first: what the fences of the earlier ones come to."""
    ids = sorted(jobs)
    return {job: int(fences) for job, fences in tx.connection.rows(FENCES, {"ids": ids})} if ids else {}


def read_worker_names(tx: UnitOfWork, workers: Sequence[int]) -> set[str]:
    """The names of workers."""
    return {name for (name,) in tx.connection.rows("SELECT name FROM worker WHERE unit {ids}", {"ids": list(workers)})}


class AgentStep(msgspec.Struct, frozen=True):
    """A step that an agent run has recorded."""

    name: str
    result: str  # JSON; a large one names a blob
    at: int  # when its job had it, in microseconds
    job: int


def read_agent_steps(connection: Connection, tenant: int, unit: int) -> list[AgentStep]:
    """The steps that a run has recorded, in their order; a resumed run has those of its earlier jobs too."""
    rows = connection.rows(STEPS, {"tenant": tenant, "run": unit})
    return [AgentStep(name, result, at, job) for name, result, at, job in rows]


# For laws.


def read_open_jobs(connection: Connection) -> list[tuple[int, str | None, int]]:
    """Runs that have open jobs: id, outcome, and how many."""
    return [(run, outcome, count) for run, outcome, count in connection.rows(OPEN_JOBS)]


def read_decisions(connection: Connection) -> list[tuple[int, str, str, str]]:
    """The verdicts on runs, and their resumes: run, trigger, who decided and why."""
    return [(run, trigger, actor, reason) for run, trigger, actor, reason in connection.rows(DECISIONS)]


def read_holders(connection: Connection) -> dict[int, set[str]]:
    """By run: the names of the workers that its jobs were granted to."""
    names: dict[int, set[str]] = {}
    for run, payload in connection.rows(HOLDERS):
        names.setdefault(run, set()).add(msgspec.json.decode(payload).get("worker", ""))
    return names
