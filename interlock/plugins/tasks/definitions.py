"""Definitions of tasks: stored by version, read by whoever submits; the newest one counts.

A worker sends the definitions of its program when it starts. A submit that leaves a rule out takes the stored one, and
arguments that the stored parameters do not take are refused. So a job is the same whichever way it comes in.

Definitions are numbered by tenant without a gap, and number n + 1 is written only where number n is committed (two who
take one number collide, and one of them begins again). So a cache asks for what is beyond the last number that it
knows, and cannot miss one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from interlock.core import validation
from interlock.kernel.blobs import parse_reference
from interlock.kernel.commands import DefineTask, Planned, Resource, Submit, Work
from interlock.kernel.errors import Corrupt, InterlockError
from interlock.kernel.parameters import ArgumentChecker, Parameter, check_parameters
from interlock.kernel.workflow_graph import STEP
from interlock.plugins.tasks.queries import NEWER, TaskDefinition, digest_definition
from interlock.store.cache import EngineCache
from interlock.store.queries.for_verbs import ensure_tenant
from interlock.store.query import BoundQuery
from interlock.store.unit_of_work import UnitOfWork

# Fields of work that a task sets for all its jobs. Those of a group belong together: a submit that says one of them
# takes none of the others from the task.
GROUPS: tuple[tuple[str, ...], ...] = (
    ("queue",), ("priority",), ("capabilities",), ("mutex",), ("limit_key", "limit"),
    ("rate_key", "rate", "rate_per_us"), ("attempts",), ("exhausted",), ("timeout_us",), ("queue_timeout_us",),
    ("backoff_us", "backoff_cap_us"), ("ttl_us", "beat_us", "silent"), ("sla_us",), ("keep_us",),
    ("cancel_timeout_us",), ("losses",), ("depends",), ("resources",),
)  # fmt: skip
LABELS = "labels"
RULES = (*(name for group in GROUPS for name in group), LABELS)
PLAIN = Work(task="")
DEFAULTS: dict[str, Any] = {name: getattr(PLAIN, name) for name in RULES}
NEEDS = attrgetter("needs", "after", "needs_end", "after_end")
rule_values = attrgetter(*RULES, "explicit")
OTHERS = tuple(name for name in Work.__struct_fields__ if name not in (*RULES, "task", "explicit"))
KINDS_MAX = 256  # ways in which the work of one task leaves rules out, remembered


class KnownTask:
    """A definition as submits use it."""

    def __init__(self, row: TaskDefinition) -> None:
        self.row = row
        self.changes: dict[tuple[Any, ...], dict[str, Any]] = {}  # by what work says of its rules

    @cached_property
    def checker(self) -> ArgumentChecker:
        return make_checker(self.row.name, tuple(read_parameters(self.row) or ()))

    @cached_property
    def rules(self) -> dict[str, Any]:
        return read_rules(self.row)

    def complete(self, work: Work) -> Work:
        """Returns work with the rules that it leaves out.

        Raises:
            InterlockError: wrong arguments.
        """
        if self.rules:
            values = rule_values(work)
            if (changes := self.changes.get(values)) is None:
                if len(self.changes) >= KINDS_MAX:
                    self.changes.clear()
                changes = self.changes[values] = dict(find_left_out(self.rules, work))
            if changes:
                work = msgspec.structs.replace(work, **changes)
        # Arguments are checked where the input is all that the task is called with, and is in the row. A part of a run
        # takes what it names of the run's arguments and outputs, and work that needs other work takes the outputs of
        # that. A large input is beside the database. Where it runs, it is checked in any case.
        is_part = work.parent is not None or work.step is not None or work.lifecycle == STEP or any(NEEDS(work))
        if self.row.parameters is not None and not is_part and parse_reference(work.input) is None:
            self.checker.check(work.input)
        return work


def find_left_out(rules: Mapping[str, Any], work: Work) -> Iterator[tuple[str, Any]]:
    """The rules of a task that work leaves out, by field."""
    for group in GROUPS:
        if all(getattr(work, name) == DEFAULTS[name] and name not in work.explicit for name in group):
            yield from ((name, rules[name]) for name in group if name in rules)
    if LABELS in rules:
        with suppress(msgspec.MsgspecError, RecursionError):  # labels that are no JSON are refused with the rest
            own = msgspec.json.decode(work.labels, type=dict[str, Any])
            if not own.keys() >= rules[LABELS].keys():
                yield LABELS, msgspec.json.encode({**rules[LABELS], **own}).decode()


@lru_cache(maxsize=1024)
def make_checker(task: str, parameters: tuple[Parameter, ...]) -> ArgumentChecker:
    """Makes what checks the arguments of a task."""
    return ArgumentChecker(task, parameters)


def read_rules(row: TaskDefinition) -> dict[str, Any]:
    """The rules of a definition by the fields of work; labels as an object.

    Raises:
        Corrupt: what is stored cannot be read.
    """
    rules: dict[str, Any] = decode_stored(row, row.rules, dict[str, Any])
    if "capabilities" in rules:
        rules["capabilities"] = tuple(rules["capabilities"])
    if "depends" in rules:
        rules["depends"] = tuple(rules["depends"])
    if "resources" in rules:
        rules["resources"] = msgspec.convert(rules["resources"], tuple[Resource, ...])
    return rules


def read_parameters(row: TaskDefinition) -> list[Parameter] | None:
    """The parameters of a definition; None if it takes anything.

    Raises:
        Corrupt: what is stored cannot be read.
    """
    return None if row.parameters is None else decode_stored(row, row.parameters, list[Parameter])


def decode_stored(row: TaskDefinition, text: str, kind: Any) -> Any:
    """Decodes what is stored of a task."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"version {row.version} of task '{row.name}' cannot be read: {error}") from None


# Reading and defining.


class TenantTasks:
    """The tasks of one tenant, as far as they are known to be committed."""

    def __init__(self) -> None:
        self.last = 0
        self.tasks: dict[str, KnownTask] = {}

    def bind_newer(self, tenant: int) -> BoundQuery[TaskDefinition]:
        return NEWER.bind(tenant=tenant, last=self.last)

    def add(self, rows: Sequence[TaskDefinition]) -> None:
        for row in rows:
            self.tasks[row.name], self.last = KnownTask(row), row.number


@dataclass
class TaskMemory:
    """What a committer knows of tasks, by tenant."""

    tenants: dict[int, TenantTasks] = field(default_factory=dict)


@dataclass
class TaskState:
    """What a transaction knows of tasks, with those that it defines, by tenant."""

    tasks: dict[int, Mapping[str, KnownTask]] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)


def load_tasks(tx: UnitOfWork, tenant: int) -> Mapping[str, KnownTask]:
    """The tasks of a tenant, as this transaction sees them."""
    state = tx.state(TaskState)
    if tenant not in state.tasks:
        tenants = tx.cache.state(TaskMemory).tenants
        known = tenants.get(tenant) or tenants.setdefault(tenant, TenantTasks())
        if (TaskMemory, tenant) not in tx.cache.facts:
            known.add(tx.run(known.bind_newer(tenant)))
            tx.cache.facts[TaskMemory, tenant] = True
        state.tasks[tenant], state.last[tenant] = known.tasks, known.last
    return state.tasks[tenant]


def submit_reads(cache: EngineCache, submits: Sequence[Submit]) -> Iterator[BoundQuery[Any]]:
    """New definitions of their tenants."""
    known = cache.state(TaskMemory).tenants
    for tenant in sorted({command.tenant for command in submits}):
        yield known.get(tenant, TenantTasks()).bind_newer(tenant)


def complete_rules(tx: UnitOfWork, works: Sequence[Work]) -> Sequence[Work]:
    """Works with the rules of their tasks where they leave them out.

    Raises:
        InterlockError: wrong arguments.
    """
    tasks, completed = load_tasks(tx, tx.tenant), list[Work]()
    for work in works if tasks else ():
        task, lifecycle = tasks.get(work.task), tx.lifecycles.get(work.lifecycle)
        is_job = task and lifecycle and (lifecycle.leased or lifecycle.options.follows)
        completed.append(task.complete(work) if task and is_job else work)
    return completed or works


def define_task(tx: UnitOfWork, command: DefineTask) -> Planned:
    """The newest version of the task is as it is defined here; if it was so before, nothing has changed."""
    name = command.work.task
    parameters, rules = encode_definition(tx, command)
    digest = digest_definition(parameters, rules)
    last = load_tasks(tx, command.tenant).get(name)
    if last is not None and last.row.digest == digest:
        return Planned(name=name, changed=False, version=last.row.version)
    state = tx.state(TaskState)
    state.last[command.tenant] += 1
    row = TaskDefinition(
        tenant=command.tenant, name=name, version=last.row.version + 1 if last else 1,
        number=state.last[command.tenant], parameters=parameters, rules=rules, digest=digest, defined_at=tx.now,
        defined_by=command.describe_actor(),
    )  # fmt: skip
    ensure_tenant(tx, command.tenant)
    tx.add(row)
    state.tasks[command.tenant] = {**state.tasks[command.tenant], name: KnownTask(row)}
    return Planned(name=name, changed=True, version=row.version)


def encode_definition(tx: UnitOfWork, command: DefineTask) -> tuple[str | None, str]:
    """Parameters and rules as they are kept.

    Raises:
        InterlockError: those that could never hold.
    """
    work = command.work
    for other in OTHERS:
        if getattr(work, other) != getattr(PLAIN, other):
            raise InterlockError(f"task '{work.task}': the rules of a task have no {other}; set it on its jobs")
    validation.check_work(tx.lifecycles, work, tx.hooks)
    labels = msgspec.json.decode(work.labels)
    if not isinstance(labels, dict):
        raise InterlockError(f"task '{work.task}': labels are a JSON object")
    rules = {name: getattr(work, name) for name in RULES if getattr(work, name) != DEFAULTS[name]}
    text = msgspec.json.encode({**rules, **({LABELS: labels} if LABELS in rules else {})}).decode()
    if command.parameters is None:
        return None, text
    check_parameters(work.task, command.parameters)
    return msgspec.json.encode(command.parameters).decode(), text
