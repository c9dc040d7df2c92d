"""The transitions of tasks, workstreams and workers as document 003 logs them, in an order that a log can have.

They are read from the feed, behind a cursor (`store/queries/feed.py`). A line tells a transition and what a reader of
the log needs in order to judge it: who ran a task, its retries, what it depends on. All of that is read from acts and
rows that do not change any more, so that a page which is read twice says the same twice.

On PostgreSQL transactions that followed one that began later are told behind it (`transaction_order.py`). Only then the
cursor of a line is not its own place but that of the last line before the transactions which changed places: whoever
goes on there reads them again, and leaves out what it has.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from interlock.audit.log.checker import EVENT, TASK, WORKER, WORKSTREAM
from interlock.core.effective_policy import budget_of, policy_in
from interlock.kernel.commands import Policy
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import SETTLED, Category
from interlock.kernel.rows import Event
from interlock.lifecycles import shipped
from interlock.plugins.state_files.queries import (
    EDGES,
    ENTITY_FACTS,
    FROM_THERE_ON,
    GRANTED_TO,
    HISTORIES,
    NEEDS_OF_TASKS,
    TASK_NAMES,
    WORKER_NAMES,
)
from interlock.plugins.state_files.transaction_order import Followed, Placed, get_transaction, put_in_order
from interlock.store.acts import ACT_BITS
from interlock.store.connection import Connection
from interlock.store.queries.feed import LOOKED_AT, READ, format_cursor, parse_cursor
from interlock.store.queries.snapshots import Position, read_epoch, read_events_after, read_horizon, select_acts

LOGGED = (TASK, WORKSTREAM, WORKER)
PAGE = 500  # lines that are read together
AHEAD = 1_000  # events that may belong before those of a page
RETRY = "retry"  # the trigger that spends one of a task's retries
ENDED = SETTLED | {Category.GATE}  # of a workstream: its tasks move no more
RESTING = SETTLED | {Category.WAITING}  # of a worker: it has no task


class TransitionMetadata(msgspec.Struct, omit_defaults=True):
    """What a line says beside the transition itself. What is not known, or concerns another kind, is left out."""

    event_id: str  # the entity and its version: no two lines have the same
    position: str  # where reading goes on behind this line
    epoch: str  # of the database
    seq: int = 0  # the number of the line in the whole log, from 1 on
    attempt: int = 0
    actor: str = ""
    reason: str = ""
    task: str = ""  # what it runs
    name: str = ""  # its name in its workstream; of a worker its own
    workstream_id: str = ""
    critical: bool | None = None
    duration_seconds: float | None = None  # for how long it ran when it ran last
    retry_count: int | None = None
    max_retries: int | None = None
    worker_id: str = ""  # who runs it, or has just run it
    dependencies: list[str] = []
    retry_of: str = ""  # the task that it was made in place of
    capacity: int | None = None  # of a worker: how much it holds at a time


class LoggedTransition(msgspec.Struct):
    """A line of the log, but for its time: the writer makes that of `at` (microseconds), and never lets it go back."""

    at: int
    event_type: str
    severity: str
    entity_id: str
    from_state: str
    to_state: str
    trigger: str
    metadata: TransitionMetadata


class TransitionPage(msgspec.Struct):
    """Some transitions, the oldest first; `next` is the cursor to go on with, also at the end."""

    transitions: list[LoggedTransition]
    next: str
    more: bool  # there is more to read already
    workstreams: list[int]  # those of which something was made or has moved


class EntityFacts(msgspec.Struct, frozen=True):
    """What does not change of a task, a workstream or a worker."""

    unit: int
    lifecycle: str
    parent: int | None
    decides: int
    task: str
    policy: str
    retry_of: int | None  # the task that it was made in place of
    above: str | None  # the lifecycle of the parent

    @property
    def workstream(self) -> int | None:
        """Returns the workstream that it is, or is a task of."""
        return self.unit if self.lifecycle == WORKSTREAM else self.parent if self.above == WORKSTREAM else None


def read_transitions(
    connection: Connection, tenant: int, cursor: str | None = None, limit: int = PAGE
) -> TransitionPage:
    """Returns about `limit` transitions behind a cursor (None: from the first one on).

    Raises:
        InterlockError: it is no cursor of this database.
    """
    start = parse_cursor(connection, cursor)
    events, end, more = read_logged_events(connection, tenant, start, limit)
    ahead = read_ahead(connection, tenant, end) if events and connection.many_writers else []
    facts = read_facts(connection, tenant, {event.unit for _, event in (*events, *ahead)})
    reader = LineReader(connection, tenant, facts, [*events, *ahead])
    changed_places = False
    if connection.many_writers:
        horizon = read_horizon(connection)
        ordered = put_in_order(reader.find_followed(), start, events, end, ahead, horizon)
        more = more or bool(ordered.events and ordered.end != end)
        events, end, changed_places = ordered
    shown = [(place, event) for place, event in events if is_transition(event) and event.unit in facts]
    behind = [start if changed_places else place for place, _ in shown]
    if changed_places and shown:
        behind[-1] = end
    epoch = read_epoch(connection) or ""
    lines = [reader.make_line(*placed, format_cursor(epoch, at)) for placed, at in zip(shown, behind, strict=True)]
    workstreams = {facts[event.unit].workstream for _, event in events if event.unit in facts}
    return TransitionPage(lines, format_cursor(epoch, end), more, sorted(unit for unit in workstreams if unit))


def read_logged_events(
    connection: Connection, tenant: int, position: Position, limit: int
) -> tuple[list[Placed], Position, bool]:
    """Returns events of what is logged, how far it looked, and whether there is more to look at."""
    events, more = list[Placed](), True
    for _ in range(LOOKED_AT // READ):
        batch = read_events_after(connection, position, READ, tenant)
        more = len(batch) == READ
        for position, event in batch:
            if event.lifecycle in LOGGED:
                events.append((position, event))
                if len(events) >= limit:
                    return events, position, True
        if not more:
            break
    return events, position, more


def read_ahead(connection: Connection, tenant: int, after: Position) -> list[Placed]:
    """Returns events of what is logged behind a position, also those that others may still come in before."""
    given = {"tenant": tenant, "act": after[0], "place": after[1], "limit": AHEAD}
    rows = connection.rows(FROM_THERE_ON, given)
    events = [((row[0], row[1]), Event(*row[2:])) for row in rows]
    return [placed for placed in events if placed[1].lifecycle in LOGGED]


def is_transition(event: Event) -> bool:
    """Whether a line tells of it: creations have none (A3-19), and what a lease does alone moves nobody."""
    return event.source is not None and event.source != event.target


def read_facts(connection: Connection, tenant: int, units: Iterable[int]) -> dict[int, EntityFacts]:
    """Reads what lines of the log say of units."""
    ids = sorted(units)
    rows = connection.rows(ENTITY_FACTS, {"tenant": tenant, "ids": ids}) if ids else []
    return {row[0]: EntityFacts(*row) for row in rows}


class LineReader:
    """What the lines of some events say, and which of their transactions followed which; read for all together."""

    def __init__(
        self, connection: Connection, tenant: int, facts: dict[int, EntityFacts], events: Sequence[Placed]
    ) -> None:
        self.facts, self.events = facts, events
        edges = connection.rows(EDGES)
        self.categories = {(row[0], row[3]): row[5] for row in edges}
        self.retries = {(*row[2:5],) for row in edges if row[0] == TASK and row[1] == RETRY}

        def read(sql: str, units: Iterable[int]) -> list[tuple[Any, ...]]:
            ids = sorted(set(units))
            return connection.rows(sql, {"tenant": tenant, "ids": ids}) if ids else []

        units = {event.unit: event.lifecycle for _, event in events}
        self.names: dict[int, str] = dict(read(TASK_NAMES, units))
        self.workers = {row[0]: row[1:] for row in read(WORKER_NAMES, units)}
        self.needs: dict[int, list[int]] = {}
        for unit, needed in read(
            NEEDS_OF_TASKS, (event.unit for _, event in events if self.is_in(Category.READY, event))
        ):
            self.needs.setdefault(unit, []).append(needed)
        self.counts = self.count(read(HISTORIES, (unit for unit in units if units[unit] != WORKER)), units)
        self.leases, self.granted_to = read_leases_of(connection, {place[0] for place, _ in events})

    def is_in(self, category: Category, event: Event) -> bool:
        """Whether an event leads a task to a state of this category."""
        return event.lifecycle == TASK and self.categories.get((TASK, event.target)) == category

    def count(
        self, history: Iterable[tuple[Any, ...]], lifecycles: dict[int, str]
    ) -> dict[tuple[int, int], tuple[int, float]]:
        """Returns by unit and version how many retries were spent by then, and for how long it last ran, in seconds."""
        counts: dict[tuple[int, int], tuple[int, float]] = {}
        last, spent, ran_us, began_at = 0, 0, 0, 0
        for unit, version, source, target, name, at in history:
            if unit != last:
                last, spent, ran_us = unit, 0, 0
            spent += (source, target, name) in self.retries
            was, now = (self.categories.get((lifecycles[unit], state)) == Category.ACTIVE for state in (source, target))
            if now and not was:
                began_at, ran_us = at, 0
            elif was and not now:
                ran_us = at - began_at
            counts[unit, version] = spent, ran_us / 1_000_000
        return counts

    def make_line(self, position: Position, event: Event, cursor: str) -> LoggedTransition:
        """Returns the line of an event; `cursor` is where reading goes on behind it."""
        lifecycle, unit = event.lifecycle, event.unit
        name, (epoch, _, place) = format_id(lifecycle, unit), cursor.partition(".")
        metadata = TransitionMetadata(
            event_id=f"{name}.{event.version}", position=place, epoch=epoch, attempt=event.attempt, actor=event.actor,
            reason="" if event.reason == event.trigger else event.reason, name=self.names.get(unit, ""),
        )  # fmt: skip
        if lifecycle == WORKER:
            metadata.name, metadata.capacity = self.workers.get(unit, ("", None))
        else:
            spent, metadata.duration_seconds = self.counts.get((unit, event.version), (0, 0.0))
            metadata.task = self.facts[unit].task
        if lifecycle == TASK:
            self.describe_task(metadata, position[0], event, spent)
        return LoggedTransition(
            event.at, EVENT.format(lifecycle), event.severity, name, event.source or "", event.target, event.name,
            metadata,
        )  # fmt: skip

    def describe_task(self, metadata: TransitionMetadata, act: int, event: Event, spent: int) -> None:
        """Adds what the line of a task says beside what all lines say."""
        task = self.facts[event.unit]
        metadata.retry_count, metadata.max_retries = spent, count_retries_allowed(task.policy)
        metadata.critical = bool(task.decides)
        if task.workstream is not None:
            metadata.workstream_id = format_id(WORKSTREAM, task.workstream)
        if self.is_in(Category.READY, event):
            metadata.dependencies = [format_id(TASK, needed) for needed in self.needs.get(event.unit, ())]
        if Category.ACTIVE in (
            self.categories.get((TASK, event.source or "")),
            self.categories.get((TASK, event.target)),
        ):
            holder = self.granted_to.get(self.leases.get((act, event.unit), 0))
            metadata.worker_id = format_id(WORKER, holder) if holder else ""
        if task.retry_of is not None:
            metadata.retry_of = format_id(TASK, task.retry_of)

    def find_followed(self) -> set[Followed]:
        """Finds transactions that followed one which stands behind them in the feed.

        Such are those that moved a unit on from where the other had left it; that queued a task whose last need the
        other met; that ended a workstream whose task the other ended; and that let a worker rest which the other had
        freed of a task.
        """
        followed: set[Followed] = set()
        rested: set[tuple[int, int, int]] = set()  # who let a worker rest, who had freed it, and who granted the lease
        later: dict[int, list[tuple[int, int]]] = {}  # by unit: versions and transactions that stand behind
        completed: dict[int, int] = {}  # tasks, with the transaction that stands behind
        of_workstream: dict[int, set[int]] = {}
        freed: dict[int, list[tuple[int, int]]] = {}  # by worker: leases that end behind, and their transactions
        for position, event in reversed(self.events):
            own, unit, sources = get_transaction(position), event.unit, list[int]()
            sources += [source for version, source in later.get(unit, ()) if version < event.version]
            later.setdefault(unit, []).append((event.version, own))
            category = self.categories.get((event.lifecycle, event.target))
            if event.lifecycle == WORKSTREAM and category in ENDED:
                sources += of_workstream.get(unit, ())
            elif event.lifecycle == WORKER and category in RESTING:
                rested |= {(own, source, lease >> ACT_BITS) for lease, source in freed.get(unit, ())}
            elif event.lifecycle == TASK:
                if category == Category.READY:
                    sources += [completed[needed] for needed in self.needs.get(unit, ()) if needed in completed]
                if category == Category.SUCCESS:
                    completed[unit] = own
                if unit in self.facts and (workstream := self.facts[unit].workstream) is not None:
                    of_workstream.setdefault(workstream, set()).add(own)
                lease = self.leases.get((position[0], unit), 0)
                if lease in self.granted_to and category != Category.ACTIVE:
                    freed.setdefault(self.granted_to[lease], []).append((lease, own))
            followed |= {(own, source) for source in sources if source > own}
        # A lease that was granted after the rest has nothing to do with it.
        return followed | {
            (own, source) for own, source, grant in rested if grant < own < source and (grant, own) not in followed
        }


@lru_cache(maxsize=4096)
def count_retries_allowed(policy: str) -> int:
    """Returns how often a task with this policy is tried again; one that cannot be read changes nothing."""
    try:
        own = policy_in(policy)
    except msgspec.MsgspecError:
        own = Policy()
    budget = budget_of(shipped()[TASK].options.budget, own)
    return budget.attempts - 1 + (budget.losses - 1 if budget.losses else 0)


def read_leases_of(
    connection: Connection, ids: Iterable[int]
) -> tuple[dict[tuple[int, int], int], dict[int, int]]:  # fmt: skip
    """Returns by act and unit the lease that the act grants, or finds the unit under; and by lease its worker."""
    wanted = sorted(ids)
    acts = select_acts(connection, "WHERE id {ids} ORDER BY id", ids=wanted) if wanted else []
    leases = {(act.id, unit): act.id for act in acts if act.worker is not None for unit in act.units}
    for act in acts:
        for unit, lease in zip(act.units, act.leases or (), strict=False):
            if lease is not None:
                leases[act.id, unit] = lease
    granting = sorted(set(leases.values()))
    rows = connection.rows(GRANTED_TO, {"ids": granting}) if granting else []
    return leases, {lease: worker for lease, worker in rows if worker is not None}
