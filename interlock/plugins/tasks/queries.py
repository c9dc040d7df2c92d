"""What people ask of tasks: which there are, what each takes, how much of it waits and runs, whether all is sound."""

from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256

import msgspec

from interlock.core.effective_policy import policy_at_end
from interlock.kernel.parameters import Parameter
from interlock.kernel.rows import Body, Row, columns
from interlock.store.cache import NUMBERS
from interlock.store.connection import Connection
from interlock.store.guard import EDGES
from interlock.store.query import list_columns, select

TABLES = """
CREATE TABLE task_definition (
    tenant      INTEGER NOT NULL,
    name        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    number      BIGINT NOT NULL,            -- of all definitions of the tenant, from 1 on
    parameters  TEXT,                       -- a JSON list; NULL: it takes anything
    rules       TEXT NOT NULL,              -- a JSON object: fields of work
    digest      TEXT NOT NULL,              -- of parameters and rules
    defined_at  BIGINT NOT NULL,
    defined_by  TEXT NOT NULL,
    PRIMARY KEY (tenant, name, version),
    UNIQUE (tenant, number)
);
"""


class TaskDefinition(Row):
    """One version of a task."""

    table = "task_definition"
    tenant: int
    name: str
    version: int
    number: int
    parameters: str | None
    rules: str
    digest: str
    defined_at: int
    defined_by: str


NEWER = select(TaskDefinition, "WHERE tenant = :tenant AND number > :last ORDER BY number")
SELECT = f"SELECT {', '.join(columns(TaskDefinition))} FROM task_definition"
NEWEST = (
    "version = (SELECT max(version) FROM task_definition AS other "
    "WHERE other.tenant = task_definition.tenant AND other.name = task_definition.name)"
)

# By lane: what may be claimed, what is held, and what waits for something else; each by an index of its own.
READY = "SELECT lane, count(*) FROM unit WHERE available_at IS NOT NULL AND lane > :low AND lane < :high GROUP BY lane"
HELD = (
    "SELECT unit.lane, count(*) FROM live_lease AS lease JOIN unit ON unit.id = lease.unit "
    "WHERE lease.tenant = :tenant GROUP BY unit.lane"
)
OTHERS = (
    "SELECT lane, count(*) FROM unit WHERE tenant = :tenant AND available_at IS NULL AND lease_id IS NULL "
    "AND outcome IS NULL AND (wake_at IS NOT NULL OR parked_on IS NOT NULL OR rests_in IS NOT NULL) GROUP BY lane"
)
LANES = "SELECT id, queue, task FROM lane WHERE tenant = :tenant AND task <> '' ORDER BY task, queue"
INPUTS = (
    f"SELECT {list_columns(Body)}, unit.lifecycle FROM lane JOIN unit ON unit.lane = lane.id "
    "JOIN body ON body.unit = unit.id WHERE lane.tenant = :tenant AND lane.task = :task "
    "AND unit.outcome IS NULL AND unit.lease_id IS NULL AND {which} LIMIT :limit"
)
# Units that wait: those that may be claimed, by the claim index, then those that wait for a time, a key or a need.
WAITING = (
    "unit.available_at IS NOT NULL",
    "unit.available_at IS NULL AND (wake_at IS NOT NULL OR parked_on IS NOT NULL OR rests_in IS NOT NULL)",
)
OPEN = (
    "SELECT unit.lifecycle, CASE WHEN lane.task = '' THEN body.task ELSE '' END AS run, count(*) "
    "FROM unit JOIN body ON body.unit = unit.id JOIN lane ON lane.id = unit.lane "
    "WHERE unit.tenant = :tenant AND unit.outcome IS NULL GROUP BY 1, 2"
)


class OpenTask(msgspec.Struct, frozen=True):
    """How much of a task waits in a queue, for whatever it waits, and how much of it workers hold."""

    task: str
    queue: str
    waiting: int
    running: int


class WaitingInput(msgspec.Struct, frozen=True):
    """The arguments of a job that waits."""

    unit: int
    lifecycle: str
    input: str
    of_run: bool  # it is a step: it takes what it names of its run's arguments and outputs


class OpenWork(msgspec.Struct, frozen=True):
    """How many units of a lifecycle have not ended; of runs, by the name of what they run."""

    lifecycle: str
    run: str
    count: int


def read_tasks(connection: Connection, tenant: int) -> list[TaskDefinition]:
    """The newest version of each task of a tenant, by name."""
    rows = connection.rows(f"{SELECT} WHERE tenant = :tenant AND {NEWEST} ORDER BY name", {"tenant": tenant})
    return [TaskDefinition(*row) for row in rows]


def read_task(connection: Connection, tenant: int, name: str, version: int = 0) -> TaskDefinition | None:
    """A version of a task, or the newest one (0)."""
    where = "WHERE tenant = :tenant AND name = :name AND :version IN (0, version) ORDER BY version DESC LIMIT 1"
    rows = connection.rows(f"{SELECT} {where}", {"tenant": tenant, "name": name, "version": version})
    return TaskDefinition(*rows[0]) if rows else None


def count_open_tasks(connection: Connection, tenant: int) -> list[OpenTask]:
    """What waits and runs, by task and queue; tasks of which nothing is open are left out."""
    ends = {"low": tenant * NUMBERS, "high": (tenant + 1) * NUMBERS}
    ready: dict[int, int] = dict(connection.rows(READY, ends))
    held: dict[int, int] = dict(connection.rows(HELD, {"tenant": tenant}))
    others: dict[int, int] = dict(connection.rows(OTHERS, {"tenant": tenant}))
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for lane, queue, task in connection.rows(LANES, {"tenant": tenant}):
        waiting, running = counts.get((task, queue), (0, 0))
        counts[task, queue] = waiting + ready.get(lane, 0) + others.get(lane, 0), running + held.get(lane, 0)
    return [OpenTask(*name, *count) for name, count in sorted(counts.items()) if any(count)]


def read_waiting_inputs(connection: Connection, tenant: int, task: str, limit: int = 1_000) -> list[WaitingInput]:
    """The arguments of jobs of a task that wait, at most `limit` of them."""
    inputs: list[WaitingInput] = []
    width = len(columns(Body))
    for which in WAITING:
        given = {"tenant": tenant, "task": task, "limit": limit - len(inputs)}
        for row in connection.rows(INPUTS.format(which=which), given) if len(inputs) < limit else ():
            body = Body(*row[:width])
            inputs.append(WaitingInput(body.unit, row[width], body.input, policy_at_end(body).step is not None))
    return inputs


def count_open_work(connection: Connection, tenant: int) -> list[OpenWork]:
    """What has not ended, by lifecycle; runs by their names too."""
    return [OpenWork(*row) for row in connection.rows(OPEN, {"tenant": tenant})]


class StoredEdge(msgspec.Struct, frozen=True):
    """A transition that the database allows."""

    lifecycle: str
    source: str
    trigger: str
    target: str
    event: str
    severity: str
    opens_attempt: int
    category: str


def read_edges(connection: Connection, tenant: int) -> list[StoredEdge]:
    """The transitions that the database allows. They are the same for every tenant."""
    return [StoredEdge(*row) for row in connection.rows(EDGES)]


def digest_definition(parameters: str | None, rules: str) -> str:
    """The digest of what a version says."""
    return sha256(msgspec.json.encode([parameters, rules])).hexdigest()


def find_unsound_definitions(connection: Connection) -> Iterator[tuple[int, str]]:
    """What is stored of tasks and cannot be: a gap between versions or numbers, or other words than were defined."""
    last: dict[tuple[int, str], int] = {}
    numbers: dict[int, int] = {}
    for row in connection.rows(f"{SELECT} ORDER BY tenant, number"):
        task = TaskDefinition(*row)
        name = f"task '{task.name}' of tenant {task.tenant}, version {task.version}"
        if task.version != last.get((task.tenant, task.name), 0) + 1:
            yield 0, f"{name}: the version before it is missing"
        if task.number != numbers.get(task.tenant, 0) + 1:
            yield 0, f"{name}: the definition before it is missing"
        if task.digest != digest_definition(task.parameters, task.rules):
            yield 0, f"{name}: it is not what was defined"
        if not is_readable(task):
            yield 0, f"{name}: it cannot be read"
        last[task.tenant, task.name], numbers[task.tenant] = task.version, task.number


MISPLACED = (
    "SELECT unit.id, body.task, lane.task FROM unit JOIN lane ON lane.id = unit.lane JOIN body ON body.unit = unit.id "
    "WHERE unit.available_at IS NOT NULL AND lane.task <> '' AND lane.task <> body.task"
)
HOLDERS = (
    "SELECT lease.unit, body.task, worker.name, worker.tasks FROM live_lease AS lease "
    "JOIN worker ON worker.unit = lease.worker "
    "JOIN body ON body.unit = lease.unit WHERE worker.tasks IS NOT NULL"
)


def find_misplaced_work(connection: Connection) -> Iterator[tuple[int, str]]:
    """Units that wait for workers who know another task than theirs."""
    for unit, task, other in connection.rows(MISPLACED):
        yield unit, f"it is a '{task}', and waits for who knows '{other}'"


def find_ignorant_holders(connection: Connection) -> Iterator[tuple[int, str]]:
    """Units that are held by workers who have said that they know other tasks."""
    for unit, task, worker, tasks in connection.rows(HOLDERS):
        if task not in decode_names(tasks):
            yield unit, f"worker {worker} holds it, and does not know '{task}'"


@lru_cache(maxsize=256)
def decode_names(text: str) -> frozenset[str]:
    """Decodes names that are stored as a JSON list."""
    return frozenset(msgspec.json.decode(text, type=list[str]))


def is_readable(task: TaskDefinition) -> bool:
    """Whether the stored rules and parameters of a task can be read."""
    try:
        msgspec.json.decode(task.rules, type=dict[str, msgspec.Raw])
        msgspec.json.decode(task.parameters or "[]", type=list[Parameter])
    except msgspec.MsgspecError:
        return False
    return True
