"""The tables of CI, and what is read of them: how attempts ended, and the runs and jobs that people look at."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from interlock.core.timers import CLOCK
from interlock.kernel.errors import Unknown
from interlock.plugins.ci.failures import CANCELLED
from interlock.plugins.ci.junit import CiTest
from interlock.plugins.ci.options import JOB, RUN
from interlock.plugins.ci.planner import CiPlan
from interlock.store.connection import Connection
from interlock.store.query import list_params, list_placeholders
from interlock.store.unit_of_work import UnitOfWork

TABLES = """
CREATE TABLE ci_result (
    unit         BIGINT NOT NULL,         -- an attempt that has ended
    tenant       INTEGER NOT NULL,
    job          BIGINT NOT NULL,
    fingerprint  TEXT NOT NULL,           -- what its result depends on
    kind         TEXT NOT NULL,           -- success, reused, or the class of its failure
    rule         TEXT NOT NULL,           -- under which it may be tried again
    source       BIGINT,                  -- the attempt whose result it took over
    at           BIGINT NOT NULL,
    PRIMARY KEY (unit)
);
CREATE INDEX ci_result_fingerprint ON ci_result (tenant, fingerprint, kind);
CREATE INDEX ci_result_job ON ci_result (job);
CREATE TABLE ci_test (
    unit         BIGINT NOT NULL,         -- the attempt that ran it
    place        INTEGER NOT NULL,        -- in its reports
    tenant       INTEGER NOT NULL,
    fingerprint  TEXT NOT NULL,           -- what the result of its job depends on
    name         TEXT NOT NULL,
    outcome      TEXT NOT NULL,           -- passed, failure, error or skipped
    ms           INTEGER NOT NULL,
    message      TEXT NOT NULL,
    PRIMARY KEY (unit, place)
);
CREATE INDEX ci_test_name ON ci_test (tenant, name);
"""
SUCCESS, REUSED = "success", "reused"
RESULT_COLUMNS = ("unit", "tenant", "job", "fingerprint", "kind", "rule", "source", "at")
ADD_RESULT = """
INSERT INTO ci_result (unit, tenant, job, fingerprint, kind, rule, source, at)
VALUES (:unit, :tenant, :job, :fingerprint, :kind, :rule, :source, :at) ON CONFLICT DO NOTHING
"""
COUNT_BY_RULE = "SELECT count(*) FROM ci_result WHERE job = :job AND rule = :rule AND unit < :unit"
TEST_COLUMNS = ("unit", "place", "tenant", "fingerprint", "name", "outcome", "ms", "message")
ADD_TEST = f"""
INSERT INTO ci_test ({", ".join(TEST_COLUMNS)}) VALUES ({", ".join(f":{name}" for name in TEST_COLUMNS)})
ON CONFLICT DO NOTHING
"""
TABLE_COLUMNS = {"ci_result": RESULT_COLUMNS, "ci_test": TEST_COLUMNS}
# Tests that failed and passed for one fingerprint.
FLAKY = """
SELECT name, sum(lost), sum(won) FROM (
    SELECT name, fingerprint, sum(CASE WHEN outcome IN ('failure', 'error') THEN 1 ELSE 0 END) AS lost,
    sum(CASE WHEN outcome = 'passed' THEN 1 ELSE 0 END) AS won FROM ci_test
    WHERE tenant = :tenant AND fingerprint <> ''{more} GROUP BY name, fingerprint
) AS by_input WHERE lost > 0 AND won > 0 GROUP BY name ORDER BY sum(lost) DESC, name LIMIT :limit
"""
TESTS_OF_RUN = """
SELECT place.name, ci_test.name, ci_test.outcome, ci_test.ms, ci_test.message, attempt.id FROM ci_test
JOIN unit AS attempt ON attempt.id = ci_test.unit JOIN place ON place.unit = attempt.parent
WHERE ci_test.tenant = :tenant AND place.parent = :run ORDER BY attempt.id, ci_test.place
"""
RUNS = f"""
SELECT unit.id, unit.state, unit.category, unit.outcome, body.created_at, unit.changed_at, body.labels, body.retry_of,
lane.queue FROM unit JOIN body ON body.unit = unit.id JOIN lane ON lane.id = unit.lane
WHERE unit.tenant = :tenant AND unit.lifecycle = '{RUN}'
"""
# A job with its last attempt; an approval has none.
JOBS = f"""
SELECT unit.id, place.name, unit.lifecycle, unit.state, unit.category, unit.outcome, unit.attempt, unit.decides,
(SELECT max(attempt.id) FROM unit AS attempt WHERE attempt.parent = unit.id),
(SELECT min(attempt.started_at) FROM unit AS attempt WHERE attempt.parent = unit.id),
unit.changed_at FROM unit JOIN place ON place.unit = unit.id
WHERE unit.tenant = :tenant AND unit.parent = :run AND unit.lifecycle IN ('{JOB}', 'approval') ORDER BY unit.id
"""
ATTEMPTS = """
SELECT unit.id, unit.state, unit.category, unit.outcome, unit.started_at, unit.changed_at, ci_result.kind, unit.holder
FROM unit LEFT JOIN ci_result ON ci_result.unit = unit.id
WHERE unit.tenant = :tenant AND unit.parent = :job ORDER BY unit.id
"""
LAST_EVENT = "SELECT payload, reason FROM event WHERE unit = :unit AND tenant = :tenant ORDER BY version DESC LIMIT 1"
PLAN_NOTE = "SELECT payload FROM note WHERE tenant = :tenant AND unit = :run AND kind = 'plan' ORDER BY id LIMIT 1"
# What decided how a run ended, unless its jobs did.
WHY_ENDED = """
SELECT CASE target WHEN 'PLAN_FAILED' THEN 'plan' WHEN 'TIMEOUT' THEN 'run' ELSE 'queue' END, actor, reason
FROM event WHERE unit = :run AND tenant = :tenant
AND target IN ('PLAN_FAILED', 'TIMEOUT', 'CANCEL_REQUESTED') ORDER BY version LIMIT 1
"""
PLAN, QUEUE, WHOLE = "plan", "queue", "run"  # what may take too long
CLOCKS = {
    PLAN: "planning took longer than run.plan_timeout allows",
    WHOLE: "the run took longer than run.timeout allows",
    QUEUE: "no job began within run.queue_timeout",
}
UNFIT_RESULTS = f"""
SELECT unit.id, ci_result.kind, unit.state FROM ci_result JOIN unit ON unit.id = ci_result.unit
WHERE coalesce(unit.outcome, '') <>
CASE WHEN ci_result.kind IN ('{SUCCESS}', '{REUSED}') THEN 'success'
WHEN ci_result.kind = '{CANCELLED}' THEN 'cancelled' ELSE 'failure' END
AND NOT EXISTS (SELECT 1 FROM forced_move WHERE forced_move.unit = unit.id)
"""
WRONG_REUSES = f"""
SELECT ci_result.unit, source.kind FROM ci_result JOIN ci_result AS source ON source.unit = ci_result.source
WHERE ci_result.kind = '{REUSED}'
AND (source.kind NOT IN ('{SUCCESS}', '{REUSED}') OR source.fingerprint <> ci_result.fingerprint)
"""
OLDEST_KEPT = 10_000  # runs that are listed at most


class CiRunRow(msgspec.Struct, frozen=True):
    """A run as it is listed."""

    unit: int
    state: str
    category: str
    outcome: str | None
    created_at: int
    changed_at: int
    labels: dict[str, str]
    retry_of: int | None
    queue: str


class CiJobRow(msgspec.Struct, frozen=True):
    """A job of a run, or an approval that one of them waits for."""

    unit: int
    name: str
    lifecycle: str
    state: str
    category: str
    outcome: str | None
    attempt: int
    required: bool
    last_attempt: int | None
    started_at: int | None
    changed_at: int


class CiAttemptRow(msgspec.Struct, frozen=True):
    """An attempt of a job, and how it ended."""

    unit: int
    state: str
    category: str
    outcome: str | None
    started_at: int | None
    ended_at: int
    kind: str | None  # success, or the class of its failure
    held: bool
    explanation: str = ""
    step: str = ""  # the one that failed
    fault: str = (
        ""  # whose it is: USER, INFRA, TOOLING, FLAKY, CANCELED or UNKNOWN, as document 004's companion has them
    )
    confidence: float | None = None  # how sure the class is


class CiResult(msgspec.Struct, frozen=True):
    """How an attempt ended."""

    unit: int
    tenant: int
    job: int
    fingerprint: str
    kind: str
    rule: str
    at: int
    source: int | None = None


# In a transaction.


def add_result(tx: UnitOfWork, result: CiResult) -> None:
    """Keeps how an attempt ended."""
    tx.connection.rows(ADD_RESULT, {name: getattr(result, name) for name in RESULT_COLUMNS})


def count_by_rule(tx: UnitOfWork, job: int, rule: str, before: int) -> int:
    """How many attempts of a job, those before this one, ended under a rule."""
    return int(tx.connection.rows(COUNT_BY_RULE, {"job": job, "rule": rule, "unit": before})[0][0])


def add_tests(tx: UnitOfWork, attempt: int, fingerprint: str, tests: Sequence[CiTest]) -> None:
    """Keeps the tests that an attempt ran."""
    for place, test in enumerate(tests):
        own = {"unit": attempt, "place": place, "tenant": tx.tenant, "fingerprint": fingerprint}
        tx.connection.rows(ADD_TEST, {**own, **msgspec.structs.asdict(test)})


def find_flaky(tx: UnitOfWork, names: Sequence[str]) -> set[str]:
    """Returns those of these tests that have failed and passed for one fingerprint."""
    sql = FLAKY.format(more=f" AND name IN ({list_placeholders(names)})")
    rows = tx.connection.rows(sql, {"tenant": tx.tenant, "limit": len(names), **list_params(names)}) if names else []
    return {name for name, _, _ in rows}


def read_rows_to_archive(tx: UnitOfWork, units: Sequence[int]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the results and tests of units that are written to an archive."""
    for table, columns in TABLE_COLUMNS.items():
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE unit {{ids}} ORDER BY {', '.join(columns[:2])}"
        for row in tx.connection.rows(sql, {"ids": list(units)}):
            yield table, dict(zip(columns, row, strict=True))


def restore_rows(tx: UnitOfWork, units: Iterable[int], rows: Sequence[Mapping[str, Any]]) -> None:
    """The results and tests of an archived tree are there again."""
    known, add = set(units), {"ci_result": ADD_RESULT, "ci_test": ADD_TEST}
    for row in rows:
        if row["table"] in add and row.get("unit") in known and row.get("tenant") == tx.tenant:
            tx.connection.rows(add[row["table"]], {name: row[name] for name in TABLE_COLUMNS[row["table"]]})


def forget_rows(tx: UnitOfWork, units: Sequence[int]) -> None:
    """Units are deleted, and with them how they ended."""
    for table in TABLE_COLUMNS:
        tx.connection.rows(f"DELETE FROM {table} WHERE unit {{ids}}", {"ids": list(units)})


# For people.


def list_ci_runs(
    connection: Connection, tenant: int, limit: int = OLDEST_KEPT, open_only: bool = False
) -> list[CiRunRow]:
    """The CI runs, the newest first; with `open_only` those that have not ended."""
    where = "AND unit.outcome IS NULL " if open_only else ""
    rows = connection.rows(f"{RUNS} {where}ORDER BY unit.id DESC LIMIT :limit", {"tenant": tenant, "limit": limit})
    return [make_run_row(row) for row in rows]


def read_ci_run(connection: Connection, tenant: int, unit: int) -> CiRunRow:
    """A CI run.

    Raises:
        Unknown: there is none.
    """
    rows = connection.rows(f"{RUNS} AND unit.id = :unit", {"tenant": tenant, "unit": unit})
    if not rows:
        raise Unknown(f"there is no CI run {unit}")
    return make_run_row(rows[0])


def make_run_row(row: Sequence[Any]) -> CiRunRow:
    """Makes a CI run of its row."""
    named = dict(zip(CiRunRow.__struct_fields__, row, strict=True))
    return CiRunRow(**{**named, "labels": msgspec.json.decode(named["labels"])})


def list_ci_jobs(connection: Connection, tenant: int, run: int) -> list[CiJobRow]:
    """The jobs of a run in the order of its plan, and the approvals that they wait for."""
    rows = connection.rows(JOBS, {"tenant": tenant, "run": run})
    named = (dict(zip(CiJobRow.__struct_fields__, row, strict=True)) for row in rows)
    return [CiJobRow(**{**each, "required": bool(each["required"])}) for each in named]


def list_ci_attempts(connection: Connection, tenant: int, job: int) -> list[CiAttemptRow]:
    """The attempts of a job, the first one first."""
    attempts = []
    for facts in connection.rows(ATTEMPTS, {"tenant": tenant, "job": job}):
        named = dict(zip(CiAttemptRow.__struct_fields__, facts, strict=False))
        row = CiAttemptRow(**{**named, "held": named["held"] is not None})
        if row.outcome not in (None, SUCCESS):
            ended = connection.rows(LAST_EVENT, {"unit": row.unit, "tenant": tenant})
            payload = msgspec.json.decode(ended[0][0]) if ended else {}
            row = msgspec.structs.replace(
                row, explanation=read_explanation(payload, ended[0][1] if ended else ""), step=payload.get("step", ""),
                fault=payload.get("fault", ""), confidence=payload.get("confidence"),
            )  # fmt: skip
        attempts.append(row)
    return attempts


def read_explanation(payload: Mapping[str, Any], reason: str | None) -> str:
    """What an event that closes an attempt says of why."""
    return str(payload.get("explanation") or payload.get("error") or reason or "")


def read_ci_plan(connection: Connection, tenant: int, run: int) -> CiPlan | None:
    """The plan of a run; None if there is none (yet)."""
    rows = connection.rows(PLAN_NOTE, {"tenant": tenant, "run": run})
    if not rows or rows[0][0] == "null":
        return None
    return msgspec.json.decode(rows[0][0], type=CiPlan)


def read_plan_failure(connection: Connection, tenant: int, run: int) -> str | None:
    """Why a run could not be planned; None if it could, or nobody knows yet."""
    phase, words = read_end_of_run(connection, tenant, run)
    return words if phase == PLAN else None


def read_why_stopped(connection: Connection, tenant: int, run: int) -> str:
    """Why a run was cancelled, or took too long; empty if its jobs or its plan decided how it ended."""
    phase, words = read_end_of_run(connection, tenant, run)
    return "" if phase == PLAN else words


def read_end_of_run(connection: Connection, tenant: int, run: int) -> tuple[str, str]:
    """What else than its jobs decided how a run ended: in which phase, and why; both empty if nothing did."""
    rows = connection.rows(WHY_ENDED, {"tenant": tenant, "run": run})
    if not rows:
        return "", ""
    phase, actor, reason = rows[0]
    return phase, CLOCKS[phase] if actor == CLOCK else reason or f"by {actor}"


class CiSuccess(msgspec.Struct, frozen=True):
    """The last success of a fingerprint."""

    attempt: int
    job: int
    at: int


def find_successes(
    connection: Connection, tenant: int, fingerprints: Sequence[str], since: int
) -> dict[str, CiSuccess]:  # fmt: skip
    """The last success of each fingerprint; none that is older than `since`."""
    if not fingerprints:
        return {}
    sql = (
        f"SELECT fingerprint, unit, job, at FROM ci_result WHERE tenant = :tenant AND kind = '{SUCCESS}' "
        f"AND at >= :since AND fingerprint IN ({list_placeholders(fingerprints)}) ORDER BY unit"
    )
    rows = connection.rows(sql, {"tenant": tenant, "since": since, **list_params(fingerprints)})
    return {fingerprint: CiSuccess(unit, job, at) for fingerprint, unit, job, at in rows}


class CiTestRow(msgspec.Struct, frozen=True):
    """A test of a run."""

    job: str
    name: str
    outcome: str
    ms: int
    message: str
    attempt: int


class FlakyTest(msgspec.Struct, frozen=True):
    """A test that has failed and passed for one input, and how often."""

    name: str
    lost: int
    won: int


def list_ci_tests(connection: Connection, tenant: int, run: int) -> list[CiTestRow]:
    """The tests of a run, by attempt."""
    rows = connection.rows(TESTS_OF_RUN, {"tenant": tenant, "run": run})
    return [CiTestRow(*row) for row in rows]


def list_flaky_tests(connection: Connection, tenant: int, limit: int = 100) -> list[FlakyTest]:
    """The tests that have failed and passed for one fingerprint, those that failed most often first."""
    rows = connection.rows(FLAKY.format(more=""), {"tenant": tenant, "limit": limit})
    return [FlakyTest(name, int(lost), int(won)) for name, lost, won in rows]


# For laws.


def read_unfit_results(connection: Connection) -> list[tuple[int, str, str]]:
    """Attempts whose result is another than their outcome: id, kind and state."""
    return [(unit, kind, state) for unit, kind, state in connection.rows(UNFIT_RESULTS)]


def read_wrong_reuses(connection: Connection) -> list[tuple[int, str]]:
    """Attempts that took over what they may not: id, and the kind of what they took."""
    return [(unit, kind) for unit, kind in connection.rows(WRONG_REUSES)]
