"""What agent runs read beside the rows of units: children, fences, workers, steps; and their meters."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.kernel.budgets import ACTIVE, STEPS, Cap
from interlock.kernel.commands import MeterStatus
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Note
from interlock.plugins.agents.options import RUN, read_agent_options
from interlock.store.connection import Connection
from interlock.store.queries.views import view
from interlock.store.unit_of_work import UnitOfWork

# What was used, and may be, is in rows that are only ever added to: a run has a meter for each unit that it, or a run
# below it, has used or may use.
TABLES = """
CREATE TABLE meter (
    unit     BIGINT NOT NULL,               -- an agent run
    name     TEXT NOT NULL,
    tenant   INTEGER NOT NULL,
    used     BIGINT NOT NULL,               -- by it and all below it: millionths of usd, microseconds of active
    soft     BIGINT,                        -- somebody is asked when more is used
    hard     BIGINT,                        -- more ends the run
    since    BIGINT,                        -- of active: when its job was granted that is held now
    look_at  BIGINT,                        -- of active: when the time that may be used would be over
    PRIMARY KEY (unit, name)
);
CREATE INDEX meter_look_at ON meter (tenant, look_at) WHERE look_at IS NOT NULL;
CREATE TABLE contract (
    tenant   INTEGER NOT NULL,
    digest   TEXT NOT NULL,
    agent    TEXT NOT NULL,
    made_at  BIGINT NOT NULL,               -- when a program has told it last; 0: none has, but a submit
    text     TEXT NOT NULL,                 -- key-sorted JSON, of which the digest is
    PRIMARY KEY (tenant, digest)
);
CREATE INDEX contract_agent ON contract (tenant, agent, made_at);
"""
ADD = (
    "INSERT INTO meter (unit, name, tenant, used, soft, hard) VALUES {rows} "
    "ON CONFLICT (unit, name) DO UPDATE SET used = meter.used + excluded.used RETURNING name, used, soft, hard"
)
READ = "SELECT name, used, soft, hard FROM meter WHERE unit = :unit ORDER BY name"
READ_OF_TENANT = "SELECT name, used, soft, hard FROM meter WHERE unit = :unit AND tenant = :tenant ORDER BY name"
READ_OF = "SELECT unit, name, used, soft, hard FROM meter WHERE unit {ids} ORDER BY unit, name"
SET_CAPS = (
    "INSERT INTO meter (unit, name, tenant, used, soft, hard) VALUES (:unit, :name, :tenant, 0, :soft, :hard) "
    "ON CONFLICT (unit, name) DO UPDATE SET soft = excluded.soft, hard = excluded.hard, "
    "look_at = meter.since + excluded.hard - meter.used + 1"
)
BEGIN = (
    "INSERT INTO meter (unit, name, tenant, used, soft, hard, since, look_at) "
    f"VALUES (:unit, '{ACTIVE}', :tenant, 0, :soft, :hard, :now, :look_at) ON CONFLICT (unit, name) "
    "DO UPDATE SET since = excluded.since, look_at = excluded.since + meter.hard - meter.used + 1"
)
END = f"UPDATE meter SET since = NULL, look_at = NULL WHERE unit = :unit AND name = '{ACTIVE}'"
SINCE = f"SELECT since FROM meter WHERE unit = :unit AND name = '{ACTIVE}' AND since IS NOT NULL"
DUE = "SELECT unit FROM meter WHERE tenant = :tenant AND look_at <= :now ORDER BY look_at LIMIT :limit"
ALL = "SELECT unit, name, used FROM meter ORDER BY unit, name"
USAGE = "SELECT unit, payload FROM note WHERE kind = 'usage'"
RECORDED = (
    "SELECT job.parent, count(*) FROM note JOIN unit AS job ON job.id = note.unit "
    "WHERE note.kind = 'step' AND note.fence > 0 AND job.lifecycle = 'agent_job' AND job.parent IS NOT NULL "
    "GROUP BY job.parent"
)
ABOVE = (
    "SELECT run.id, job.parent FROM unit AS run JOIN unit AS job ON job.id = run.parent "
    "WHERE run.lifecycle = 'agent_run' AND job.lifecycle = 'agent_job'"
)
KEPT = ("unit", "name", "tenant", "used", "soft", "hard")  # columns that an archive has
ALL_STEPS = 2**31
PAGE = 500  # units of one question
FENCES = (
    "SELECT job.id, sum(earlier.fence) FROM unit AS job JOIN unit AS earlier ON earlier.parent = job.parent "
    "AND earlier.lifecycle = job.lifecycle AND earlier.id < job.id WHERE job.id {ids} GROUP BY job.id"
)
COUNT_STEPS = "SELECT count(*) FROM note WHERE unit = :job AND kind = 'step'"
LAST_JOB = "SELECT max(id) FROM unit WHERE parent = :run AND lifecycle = 'agent_job'"
STEPS_OF_RUN = (
    "SELECT note.name, note.payload, note.at, note.unit FROM note WHERE note.tenant = :tenant AND note.kind = 'step' "
    "AND note.unit = (SELECT max(id) FROM unit WHERE parent = :run AND lifecycle = 'agent_job') "
    "ORDER BY note.at, note.id LIMIT :limit OFFSET :first"
)
RESUMED = (
    "SELECT cause FROM event WHERE unit = :run AND tenant = :tenant AND trigger = 'resume' "
    "ORDER BY version DESC LIMIT 1"
)
MOVES_OF = (
    "SELECT act, version, trigger, source, target, at, actor, reason, payload, fence FROM event "
    "WHERE unit = :unit AND tenant = :tenant ORDER BY version"
)
NOTES_OF = (
    "SELECT id, kind, name, fence, at, payload FROM note WHERE unit = :unit AND tenant = :tenant AND kind IN ("
    "'step', 'step_request', 'usage', 'phase', 'child', 'vote', 'effect', 'effect_request', 'effect_result', 'signal', "
    "'wait', 'forked', 'replaced', 'contract', 'validate', 'validated', 'unvalidated') ORDER BY at, id"
)
KEEP_CONTRACT = (
    "INSERT INTO contract (tenant, digest, agent, made_at, text) VALUES (:tenant, :digest, :agent, :at, :text) "
    "ON CONFLICT (tenant, digest) DO {update}"
)
NEWEST_CONTRACT = (
    "SELECT digest, text FROM contract WHERE tenant = :tenant AND agent = :agent AND made_at > 0 "
    "ORDER BY made_at DESC, digest DESC LIMIT 1"
)
TOLD_AT = "SELECT max(made_at) FROM contract WHERE tenant = :tenant AND agent = :agent"
RUNS_BELOW = (
    "SELECT count(*) FROM unit AS below JOIN unit AS job ON job.id = below.parent "
    "WHERE job.parent = :run AND below.lifecycle = 'agent_run'"
)
GRANTED_TO = (
    "SELECT DISTINCT event.payload FROM unit AS job JOIN event ON event.unit = job.id "
    "WHERE job.parent = :run AND job.lifecycle = 'agent_job' AND event.trigger IN ('claim', 'reclaim')"
)
CONTRACT_TEXT = "SELECT text FROM contract WHERE tenant = :tenant AND digest = :digest"
WORK_BELOW = (
    "SELECT unit.id, unit.lifecycle, unit.state, unit.outcome, body.task, body.input, body.result, body.error "
    "FROM unit JOIN body ON body.unit = unit.id WHERE unit.parent = :parent AND unit.tenant = :tenant ORDER BY unit.id"
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
VALIDATED = (
    "SELECT event.unit, event.trigger, event.actor, event.payload FROM unit JOIN event ON event.unit = unit.id "
    "WHERE unit.lifecycle = 'agent_run' AND event.trigger IN ('run', 'correct', 'optimize') "
    "AND event.payload LIKE :like"
)
RESTING = (
    "SELECT job.id, job.parked_on, run.state FROM unit AS job JOIN unit AS run ON run.id = job.parent "
    "WHERE job.lifecycle = 'agent_job' AND job.parked_on LIKE :like AND run.category <> 'gate' "
    "AND NOT EXISTS (SELECT 1 FROM forced_move WHERE forced_move.unit IN (run.id, job.id))"
)
HOLDERS = (
    "SELECT job.parent, event.payload FROM unit AS job JOIN event ON event.unit = job.id "
    "WHERE job.lifecycle = 'agent_job' AND job.parent IS NOT NULL AND event.trigger IN ('claim', 'reclaim')"
)


def count_steps(tx: UnitOfWork, job: int) -> int:
    """How many steps a job has recorded, or was handed over."""
    here = sum(isinstance(row, Note) and (row.unit, row.kind) == (job, "step") for row in tx.changes.inserts)
    return here + int(tx.connection.rows(COUNT_STEPS, {"job": job})[0][0])


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


class AgentStep(msgspec.Struct, frozen=True):
    """A step that an agent run has recorded."""

    name: str
    result: str  # JSON; a large one names a blob
    at: int  # when its job had it, in microseconds
    job: int


def count_runs_below(tx: UnitOfWork, run: int) -> int:
    """How many runs the jobs of a run have spawned, those of this transaction among them."""
    jobs = {unit.id for unit in tx.rows.units.values() if unit.parent == run and unit.id}
    here = sum(tx.rows.units[unit].lifecycle == RUN and tx.rows.units[unit].parent in jobs for unit in tx.changes.born)
    return here + int(tx.connection.rows(RUNS_BELOW, {"run": run})[0][0])


def read_agent_steps(
    connection: Connection, tenant: int, unit: int, first: int = 0, limit: int | None = None
) -> list[AgentStep]:
    """The steps that a run has recorded, in their order; a resumed run has those of its earlier jobs too."""
    most = {"first": first, "limit": ALL_STEPS if limit is None else limit}
    rows = connection.rows(STEPS_OF_RUN, {"tenant": tenant, "run": unit, **most})
    return [AgentStep(name, result, at, job) for name, result, at, job in rows]


def find_resume_cause(connection: Connection, tenant: int, unit: int) -> str | None:
    """What led to the last resume of a run."""
    rows = connection.rows(RESUMED, {"tenant": tenant, "run": unit})
    return rows[0][0] if rows else None


class RunMove(NamedTuple):
    """A move of a run, or of something below it."""

    act: int
    version: int
    trigger: str
    source: str | None
    target: str
    at: int
    actor: str
    reason: str
    payload: str
    fence: int


class RunNote(NamedTuple):
    """What was noted of a run, or of something below it."""

    id: int
    kind: str
    name: str
    fence: int
    at: int
    payload: str


class WorkBelow(NamedTuple):
    """A unit below a run, or below one of its jobs."""

    id: int
    lifecycle: str
    state: str
    outcome: str | None
    task: str
    input: str
    result: str | None
    error: str | None


def read_moves_of(connection: Connection, tenant: int, unit: int) -> list[RunMove]:
    """The moves of a unit, in their order."""
    return [RunMove(*row) for row in connection.rows(MOVES_OF, {"unit": unit, "tenant": tenant})]


def read_notes_of(connection: Connection, tenant: int, unit: int) -> list[RunNote]:
    """What is noted of a unit and tells what became of a run, in the order in which it was."""
    return [RunNote(*row) for row in connection.rows(NOTES_OF, {"unit": unit, "tenant": tenant})]


def read_work_below(connection: Connection, tenant: int, unit: int) -> list[WorkBelow]:
    """What is below a unit, the oldest first."""
    return [WorkBelow(*row) for row in connection.rows(WORK_BELOW, {"parent": unit, "tenant": tenant})]


def read_contract_text(connection: Connection, tenant: int, digest: str) -> str | None:
    """The text of a contract; None if it is not stored."""
    rows = connection.rows(CONTRACT_TEXT, {"tenant": tenant, "digest": digest})
    return rows[0][0] if rows else None


def read_contract_texts(connection: Connection, tenant: int, digests: Collection[str]) -> dict[str, str]:
    """The texts of contracts that are stored, by digest."""
    known = ((digest, read_contract_text(connection, tenant, digest)) for digest in sorted(digests))
    return {digest: text for digest, text in known if text is not None}


class RunContract(msgspec.Struct, frozen=True):
    """The contract that a run has now. What is stored under its digest is `contract`, or None if nothing is."""

    run: str
    digest: str | None  # None: it has none
    contract: Any
    environment: list[str]  # fields that its program took from environment variables
    overridden_by: str | None  # who let it go on under another one than it was made with


def read_contract_of_run(connection: Connection, tenant: int, unit: int) -> RunContract | None:
    """The contract of an agent run; None for what is no agent run."""
    try:
        run = view(connection, tenant, unit)
    except Unknown:
        return None
    if run.unit.lifecycle != RUN:
        return None
    notes = [kept for kept in read_notes_of(connection, tenant, unit) if kept.kind == "contract"]
    last = msgspec.json.decode(notes[-1].payload) if notes else {}
    terms = read_agent_options(run.body).contract
    digest = last["contract"]["digest"] if last else terms.digest if terms else None
    text = read_contract_text(connection, tenant, digest) if digest else None
    return RunContract(
        format_id(RUN, unit), digest, None if text is None else decode_contract(text),
        list(terms.environment) if terms and not last else [], last.get("by"),
    )  # fmt: skip


def decode_contract(text: str) -> Any:
    """A stored contract, whatever is stored."""
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


def read_newest_contract(connection: Connection, tenant: int, agent: str) -> tuple[str, str] | None:
    """The digest and the text of the contract that a program has told of an agent last; None if none has."""
    rows = connection.rows(NEWEST_CONTRACT, {"tenant": tenant, "agent": agent})
    return (rows[0][0], rows[0][1]) if rows else None


def keep_contract(tx: UnitOfWork, agent: str, digest: str, text: str, *, is_newest: bool) -> None:
    """A contract is stored, once; with `is_newest` it is the one that a program has told last."""
    tx.changes.count += 1
    told_at = tx.connection.rows(TOLD_AT, {"tenant": tx.tenant, "agent": agent})[0][0] or 0
    sql = KEEP_CONTRACT.format(update="UPDATE SET made_at = excluded.made_at" if is_newest else "NOTHING")
    given = {
        "tenant": tx.tenant,
        "digest": digest,
        "agent": agent,
        "at": max(tx.now, told_at + 1) if is_newest else 0,
        "text": text,
    }
    tx.connection.rows(sql, given)


def read_granted_workers(tx: UnitOfWork, run: int) -> set[str]:
    """The names of the workers that hold the job of a run, or have held one of its jobs."""
    payloads = tx.connection.rows(GRANTED_TO, {"run": run})
    return {msgspec.json.decode(payload).get("worker", "") for (payload,) in payloads}


# For laws.


def read_open_jobs(connection: Connection) -> list[tuple[int, str | None, int]]:
    """Runs that have open jobs: id, outcome, and how many."""
    return [(run, outcome, count) for run, outcome, count in connection.rows(OPEN_JOBS)]


def read_decisions(connection: Connection) -> list[tuple[int, str, str, str]]:
    """The verdicts on runs, and their resumes: run, trigger, who decided and why."""
    return [(run, trigger, actor, reason) for run, trigger, actor, reason in connection.rows(DECISIONS)]


def read_validation_verdicts(connection: Connection) -> list[tuple[int, str, str]]:
    """Verdicts after which a handler went on: run, trigger, and who gave them."""
    return [
        (run, trigger, actor)
        for run, trigger, actor, payload in connection.rows(VALIDATED, {"like": '%"verdict"%'})
        if "verdict" in (msgspec.json.decode(payload) or {})
    ]


def read_resting_jobs(connection: Connection) -> list[tuple[int, str, str]]:
    """Jobs that rest for a verdict on a run that is in no gate: job, what it is parked on, and the state of the run."""
    return [(job, key, state) for job, key, state in connection.rows(RESTING, {"like": "signal:%:verdict:%"})]


def read_holders(connection: Connection) -> dict[int, set[str]]:
    """By run: the names of the workers that its jobs were granted to."""
    names: dict[int, set[str]] = {}
    for run, payload in connection.rows(HOLDERS):
        names.setdefault(run, set()).add(msgspec.json.decode(payload).get("worker", ""))
    return names


# Meters.


def add_used(tx: UnitOfWork, run: int, amounts: Mapping[str, int], caps: Mapping[str, Cap]) -> list[MeterStatus]:
    """Adds to what a run has used. Returns how its meters stand then; one that is new begins with these caps."""
    rows: list[str] = []
    given: dict[str, int | str | None] = {"unit": run, "tenant": tx.tenant}
    for place, (name, used) in enumerate(amounts.items()):
        cap = caps.get(name, Cap())
        rows.append(f"(:unit, :n{place}, :tenant, :u{place}, :s{place}, :h{place})")
        given |= {f"n{place}": name, f"u{place}": used, f"s{place}": cap.soft, f"h{place}": cap.hard}
    tx.changes.count += 1
    return [MeterStatus(*row) for row in tx.connection.rows(ADD.format(rows=", ".join(rows)), given)]


def read_meters(connection: Connection, run: int) -> list[MeterStatus]:
    """What a run has used and may use, by name."""
    return [MeterStatus(*row) for row in connection.rows(READ, {"unit": run})]


def read_meters_of_run(connection: Connection, tenant: int, unit: int) -> list[MeterStatus]:
    """What a run and all below it have used, and may use, by name."""
    return [MeterStatus(*row) for row in connection.rows(READ_OF_TENANT, {"unit": unit, "tenant": tenant})]


def read_meters_of(connection: Connection, runs: Sequence[int]) -> dict[int, list[MeterStatus]]:
    """The same of several runs."""
    meters: dict[int, list[MeterStatus]] = {}
    for run, *row in connection.rows(READ_OF, {"ids": sorted(set(runs))}) if runs else ():
        meters.setdefault(run, []).append(MeterStatus(*row))
    return meters


def set_caps(tx: UnitOfWork, run: int, name: str, cap: Cap) -> None:
    """A run may use so much of something from now on."""
    tx.changes.count += 1
    tx.connection.rows(SET_CAPS, {"unit": run, "name": name, "tenant": tx.tenant, "soft": cap.soft, "hard": cap.hard})


def begin_time(tx: UnitOfWork, run: int, cap: Cap) -> None:
    """The job of a run is granted: its time counts from now on."""
    look_at = None if cap.hard is None else tx.now + cap.hard + 1
    given = {"unit": run, "tenant": tx.tenant, "soft": cap.soft, "hard": cap.hard, "now": tx.now, "look_at": look_at}
    tx.connection.rows(BEGIN, given)


def end_time(tx: UnitOfWork, run: int) -> int | None:
    """The job of a run is held no more. Returns since when it was; None if it was not."""
    rows = tx.connection.rows(SINCE, {"unit": run})
    if not rows:
        return None
    tx.changes.count += 1
    tx.connection.rows(END, {"unit": run})
    return int(rows[0][0])


def find_due(tx: UnitOfWork, limit: int) -> list[int]:
    """Runs whose active time is over now."""
    rows = tx.connection.rows(DUE, {"tenant": tx.tenant, "now": tx.now, "limit": limit})
    return [run for (run,) in rows]


def read_all_meters(connection: Connection) -> dict[int, dict[str, int]]:
    """By run: what it has used, by name."""
    used: dict[int, dict[str, int]] = {}
    for run, name, amount in connection.rows(ALL):
        used.setdefault(run, {})[name] = amount
    return used


def read_all_usage(connection: Connection) -> Iterator[tuple[int, dict[str, int]]]:
    """What was recorded of each run: what its steps have used, and each step itself, but for those handed over."""
    for run, payload in connection.rows(USAGE):
        yield run, msgspec.json.decode(payload, type=dict[str, int])
    for run, steps in connection.rows(RECORDED):
        yield run, {STEPS: steps}


def read_runs_above(connection: Connection) -> dict[int, int]:
    """By run that another one has spawned: that one."""
    return dict(connection.rows(ABOVE))


# Archives.


def read_rows_to_archive(tx: UnitOfWork, units: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The meters of these units."""
    sql = f"SELECT {', '.join(KEPT)} FROM meter WHERE unit {{ids}} ORDER BY unit, name"
    for start in range(0, len(units), PAGE):
        for row in tx.connection.rows(sql, {"ids": list(units[start : start + PAGE])}):
            yield "meter", dict(zip(KEPT, row, strict=True))


def restore_rows(tx: UnitOfWork, units: Collection[int], rows: Sequence[Mapping[str, Any]]) -> None:
    """The meters of an archived tree are there again.

    Raises:
        InterlockError: a row that is none of this tree.
    """
    meters = [row for row in rows if row["table"] == "meter"]
    if any(row.get("tenant") != tx.tenant or row.get("unit") not in units for row in meters):
        raise InterlockError("a line of meter is of no run of this tree")
    names = ", ".join(f":{column}" for column in KEPT)
    sql = f"INSERT INTO meter ({', '.join(KEPT)}) VALUES ({names})"
    tx.connection.many(sql, [{column: row[column] for column in KEPT} for row in meters])


def forget_rows(tx: UnitOfWork, units: Sequence[int]) -> None:
    """The meters of units that have left the database are gone with them."""
    for start in range(0, len(units), PAGE):
        tx.connection.rows("DELETE FROM meter WHERE unit {ids}", {"ids": list(units[start : start + PAGE])})
