"""Filters and bulk actions: `app.jobs(filter).cancel()`, `.requeue()`.

`app.jobs(task="mail", state="queued")` is a selection. It is a filter and nothing else: to iterate, to count and to act
each read the database anew, page by page. `cancel` and `requeue` go through the jobs from the lowest id on, so a parent
comes before its children, and send the commands of a page together. A job is judged when its page is read.

What a verb does is written once, as steps (see `async_pairs`): the SDK runs them with and without `.aio`, beside a
database and over HTTP; the command line calls the SDK; the server runs the same steps for its callers.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from interlock.client.async_pairs import Read, SendAll, Steps, verb_of_steps
from interlock.client.durations import instant_us
from interlock.client.jobs import Job
from interlock.kernel.commands import ERROR_CLASSES, LOCAL, REASONS, Cancel, Command, Requeue
from interlock.kernel.errors import Contended, InterlockError, StoreError, Unknown
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.store.connection import Connection
from interlock.store.queries.dead_letters import DeadLetterConditions, read_dead_letters
from interlock.store.queries.lists import (
    Amount,
    UnitPage,
    UnitRef,
    amount,
    read_newest_units,
    read_oldest_units,
    refs_of,
)
from interlock.store.queries.views import Filter, count_by, read_done_again

if TYPE_CHECKING:
    from interlock.client.app import App

OPEN = tuple(category for category in Category if category not in SETTLED)
CATEGORIES = tuple(map(str, Category))
PAGE = 200  # jobs that are read, and commands that are sent, together
COUNT_MAX = 10_000
REQUEUE = "requeue"
WHICH = "which jobs? Name a filter such as task=…, or say every=True"
Texts = str | Sequence[str]


class CancelOutcome(msgspec.Struct, frozen=True):
    """What came of cancelling one job; `refused` says why it was not cancelled."""

    id: str
    state: str
    applied: bool = False
    refused: str | None = None


class RequeueOutcome(msgspec.Struct, frozen=True):
    """What came of requeueing one job: the new job, and whether it was made now; `refused` says why there is none."""

    id: str
    new: str | None = None
    created: bool = False
    refused: str | None = None


class JobPage(msgspec.Struct, frozen=True):
    """Some jobs of a selection; `next` is the `after` of the next page, None at the end. A page may be short."""

    jobs: list[Job]
    next: str | None


class JobFilter(TypedDict, total=False):
    """The filter of a selection; None leaves a field open."""

    state: Texts | None
    category: Texts | None
    lifecycle: str | None
    task: str | None
    queue: str | None
    key: str | None
    correlation: str | None
    error: str | None  # with which the last error begins
    worker: str | None  # the name of the worker that holds it
    parent: int | str | None
    reason_code: str | None  # these three are of dead letters alone
    error_class: str | None
    since: datetime | None


# The filter.


def check_value(name: str, value: str, allowed: Collection[str]) -> None:
    """Raises InterlockError for a value that is not allowed; the text lists those that are."""
    if value not in allowed:
        raise InterlockError(f"there is no {name} '{value}'; there are {', '.join(allowed)}")


def make_filter(
    known: Mapping[str, Collection[str]], *, state: Texts = (), status: Texts = (), category: Texts = (),
    lifecycle: str | None = None, worker: str | None = None, **fields: Any,
) -> Filter:  # fmt: skip
    """Makes the filter of the store.

    Parameters:
        known: the lifecycles that may be named, each with its states.
        status: the same as `state`.
        fields: task, queue, key, correlation, error: text; parent: the number of a job.

    Raises:
        InterlockError: a wrong value.
    """
    if lifecycle is not None:
        check_value("lifecycle", lifecycle, known)
    all_states = list(dict.fromkeys(state for states in known.values() for state in states))
    for name, values, allowed in (
        ("state", state, all_states),
        ("status", status, all_states),
        ("category", category, CATEGORIES),
    ):
        for value in to_tuple(values):
            check_value(name, value, allowed)
    return Filter(
        states=(*to_tuple(state), *to_tuple(status)),
        categories=to_tuple(category),
        lifecycle=lifecycle,
        holder=worker,
        **fields,
    )


def make_ends_filter(
    known: Collection[str], *, lifecycle: str | None = None, reason_code: str | None = None,
    error_class: str | None = None, since: datetime | None = None, **fields: str | None,
) -> DeadLetterConditions:  # fmt: skip
    """Makes the filter of dead letters; `since` is when they died at the earliest.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if lifecycle is not None:
        check_value("lifecycle", lifecycle, known)
    if reason_code is not None:
        check_value("reason code", reason_code, REASONS)
    if error_class is not None:
        check_value("error class", error_class, list(ERROR_CLASSES))
    since_us = 0 if since is None else max(instant_us("since", since), 0)
    return DeadLetterConditions(
        lifecycle=lifecycle, reason_code=reason_code, error_class=error_class, since=since_us, **fields
    )


def list_states(lifecycles: Mapping[str, Lifecycle]) -> dict[str, list[str]]:
    """Returns the states of each lifecycle."""
    return {lifecycle.name: list(lifecycle.states) for lifecycle in lifecycles.values()}


def find_known_states(app: "App", lifecycle: str | None, states: Sequence[str]) -> Mapping[str, Collection[str]]:
    """Returns the lifecycles and states that may be named: those of the app, and others that have jobs."""
    known: dict[str, list[str]] = list_states(app.lifecycles)

    def complete() -> bool:
        named = known.get(lifecycle, []) if lifecycle else [state for states in known.values() for state in states]
        return (lifecycle is None or lifecycle in known) and all(state in named for state in states)

    if not complete() and not app.far:
        for name, state, _ in app.read(count_by):
            known.setdefault(name, [])
            if state not in known[name]:
                known[name].append(state)
    return known


def to_tuple(values: Texts | None) -> tuple[str, ...]:
    """Returns one text or several as a tuple; None is none."""
    return () if values is None else (values,) if isinstance(values, str) else tuple(values)


# The views behind it, which can be read over HTTP too. Their parameters are the fields of the requests.


def read_jobs_page(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], wanted: Filter,
    ends: DeadLetterConditions | None,
    limit: int,
    after: int,
) -> UnitPage:  # fmt: skip
    """Reads a page of the jobs that fit, the newest first, behind the job `after`, or from the first one on (0).

    `ends` filters dead letters by how they ended.
    """
    page = read_newest_units(connection, tenant, lifecycles.values(), wanted, limit, after or None)
    rows = [view.unit for view in page.units]
    units = [UnitRef(row.id, row.lifecycle, row.state, row.outcome is not None) for row in rows]
    return UnitPage(filter_ends(connection, tenant, ends, units), None if page.next is None else parse_id(page.next))


def read_jobs_in_order(
    connection: Connection, tenant: int, wanted: Filter, ends: DeadLetterConditions | None, limit: int, after: int
) -> UnitPage:
    """Reads a page of the jobs that fit, the lowest id first, behind the id `after`."""
    page = read_oldest_units(connection, tenant, wanted, limit, after)
    return UnitPage(filter_ends(connection, tenant, ends, page.units), page.next)


def filter_ends(
    connection: Connection, tenant: int, ends: DeadLetterConditions | None, units: Sequence[UnitRef]
) -> list[UnitRef]:
    """Returns those that fit the filter of dead letters."""
    if ends is None:
        return list(units)
    dead_letters = read_dead_letters(connection, tenant, [ref.unit for ref in units])
    return [ref for ref in units if ref.unit in dead_letters and ends.fits(dead_letters[ref.unit])]


# What is done to jobs, step by step.


def cancel_steps(refs: Sequence[UnitRef], order: Cancel, *, dry_run: bool = False) -> Steps[list[CancelOutcome]]:
    """Cancels each job. One that its parent's end has ended meanwhile counts as done, not as refused."""
    if dry_run or not refs:
        return [CancelOutcome(format_id(ref.lifecycle, ref.unit), ref.state) for ref in refs]
    answers = yield SendAll([msgspec.structs.replace(order, unit=ref.unit) for ref in refs])
    refused = [ref.unit for ref, answer in zip(refs, answers, strict=True) if isinstance(answer, Exception)]
    now = {ref.unit: ref for ref in ((yield Read(refs_of, (refused,))) if refused else ())}
    outcomes = []
    for ref, answer in zip(refs, answers, strict=True):
        name = format_id(ref.lifecycle, ref.unit)
        if isinstance(answer, Exception):
            text = get_refusal(answer, also=Contended)
            left = now.get(ref.unit, ref)
            outcomes.append(CancelOutcome(name, left.state, False, None if left.ended and not ref.ended else text))
        else:
            outcomes.append(CancelOutcome(name, answer.state, answer.applied))
    return outcomes


def requeue_steps(
    refs: Sequence[UnitRef], order: Requeue, *, again: bool = False, dry_run: bool = False
) -> Steps[list[RequeueOutcome]]:
    """Requeues each job as a new one. One that was requeued before is left alone, unless `again` is set."""
    before: dict[int, int] = {} if again or not refs else (yield Read(read_done_again, ([ref.unit for ref in refs],)))
    to_do = [] if dry_run else [ref for ref in refs if ref.unit not in before]
    sent = (yield SendAll([make_requeue(ref.unit, order, again=again) for ref in to_do])) if to_do else []
    answers = {ref.unit: answer for ref, answer in zip(to_do, sent, strict=True)}
    outcomes = []
    for ref in refs:
        name, answer = format_id(ref.lifecycle, ref.unit), answers.get(ref.unit)
        if isinstance(answer, Exception):
            outcomes.append(RequeueOutcome(name, refused=get_refusal(answer)))
        elif answer is not None:
            outcomes.append(RequeueOutcome(name, format_id(ref.lifecycle, answer.unit), created=True))
        else:
            new = before.get(ref.unit)
            outcomes.append(RequeueOutcome(name, None if new is None else format_id(ref.lifecycle, new)))
    return outcomes


def make_requeue(unit: int, order: Requeue, *, again: bool = False) -> Requeue:
    """Makes the command that requeues a job; two callers at the same time make one job, unless `again` is set."""
    if again:
        return msgspec.structs.replace(order, unit=unit)
    return msgspec.structs.replace(order, unit=unit, idempotency_key=f"{REQUEUE} {unit}", key_scope=REQUEUE)


def is_requeue(command: Command[Any]) -> bool:
    """Whether a command is one that `make_requeue` makes once for everybody."""
    return isinstance(command, Requeue) and command.idempotency_key == f"{REQUEUE} {command.unit}"


def get_refusal(error: Exception, *, also: type[StoreError] | tuple[()] = ()) -> str:
    """Returns the text of a refusal,
    and raises any other error. `also` counts as a refusal though a database raised it."""
    if not isinstance(error, InterlockError) or (isinstance(error, StoreError) and not isinstance(error, also)):
        raise error
    return str(error)


class Selection:
    """The jobs of some ids, or those that a filter fits: made by `app.jobs`. It reads nothing before it is used."""

    def __init__(self, app: "App", ids: Sequence[int | str] = (), **fields: Any) -> None:
        """Raises InterlockError for a wrong field or value."""
        self.app = app
        self.ids = tuple(dict.fromkeys(parse_id(unit) if isinstance(unit, str) else unit for unit in ids))
        for name in fields:
            check_value("filter", name, JobFilter.__annotations__)
        given = {name: value for name, value in fields.items() if value not in (None, (), [])}
        if self.ids and given:
            raise InterlockError("give ids or a filter, not both")
        ends = {name: given.pop(name) for name in ("reason_code", "error_class", "since") if name in given}
        self.ends = make_ends_filter((), **ends) if ends else None
        lifecycle, parent = given.get("lifecycle"), given.get("parent")
        if isinstance(parent, str):
            given["parent"] = parse_id(parent)
        known = find_known_states(app, lifecycle, to_tuple(given.get("state")))
        own = {lifecycle: known[lifecycle]} if lifecycle is not None and lifecycle in known else known
        self.filter = make_filter(own, **given)
        if self.ends and not self.filter.categories:
            self.filter = msgspec.structs.replace(self.filter, categories=(Category.DEAD,))

    @property
    def empty(self) -> bool:
        """Whether it has neither ids nor a filter, and so selects everything."""
        return not self.ids and self.ends is None and self.filter.empty

    @property
    def dead(self) -> "Selection":
        """The dead letters among them; a selection of ids stays as it is."""
        selection = copy(self)
        if not self.ids:
            selection.filter = msgspec.structs.replace(self.filter, categories=(Category.DEAD,))
        return selection

    # Reading.

    @verb_of_steps
    def page(self, limit: int = 50, after: str | None = None) -> Steps[JobPage]:
        """Reads one page, the newest first; `after` is the `next` of the page before."""
        place = 0 if after is None else parse_id(after)
        if self.ids:
            page = yield from self.read_in_order(self.filter, place, limit)
        else:
            page = yield Read(read_jobs_page, (self.app.lifecycles, self.filter, self.ends, limit, place))
        jobs = [Job(self.app, ref.unit, lifecycle=ref.lifecycle) for ref in page.units]
        return JobPage(jobs, None if page.next is None else format_id("unit", page.next))

    @verb_of_steps
    def count(self) -> Steps[Amount]:
        """Counts them, exactly up to 10,000; `more` says that there are more."""
        if self.ids or self.ends:
            refs = yield from self.read_refs(COUNT_MAX + 1)
            return Amount(min(len(refs), COUNT_MAX), len(refs) > COUNT_MAX)
        count: Amount = yield Read(amount, (self.filter,))
        return count

    @verb_of_steps
    def refs(self) -> Steps[list[UnitRef]]:
        """Lists all of them, the lowest id first; those of ids in the order of the ids."""
        return (yield from self.read_refs())

    def __iter__(self) -> Iterator[Job]:
        page = self.page(PAGE)
        while True:
            yield from page.jobs
            if page.next is None:
                return
            page = self.page(PAGE, page.next)

    async def __aiter__(self) -> AsyncIterator[Job]:
        page = await self.page.aio(PAGE)
        while True:
            for job in page.jobs:
                yield job
            if page.next is None:
                return
            page = await self.page.aio(PAGE, page.next)

    # Acting.

    @verb_of_steps
    def cancel(
        self, *, reason: str = "", hard: bool = False, by: str = LOCAL, every: bool = False, dry_run: bool = False
    ) -> Steps[list[CancelOutcome]]:
        """Cancels those that have not ended. A selection without a filter needs `every=True`."""
        self.refuse_unfiltered(every)
        lifecycles = tuple(
            lifecycle.name for lifecycle in self.app.lifecycles.values() if lifecycle.birth.trigger == "submit"
        )
        wanted = msgspec.structs.replace(self.filter, categories=self.filter.categories or OPEN, lifecycles=lifecycles)
        order = Cancel(unit=0, hard=hard, tenant=self.app.tenant, actor=by, reason=reason)
        outcomes, page = list[CancelOutcome](), UnitPage([], 0)
        while page.next is not None:
            page = yield from self.read_in_order(wanted, page.next)
            outcomes += yield from cancel_steps(page.units, order, dry_run=dry_run)
        return outcomes

    @verb_of_steps
    def requeue(
        self, *, reason: str = "", again: bool = False, by: str = LOCAL, every: bool = False, dry_run: bool = False
    ) -> Steps[list[RequeueOutcome]]:
        """Requeues dead letters: each becomes a new job, and the dead one stays.

        With `again` also those that were requeued before. A selection without a filter needs `every=True`; one of ids
        may name any job that has ended.
        """
        self.refuse_unfiltered(every)
        order = Requeue(unit=0, tenant=self.app.tenant, actor=by, reason=reason)
        outcomes, page = list[RequeueOutcome](), UnitPage([], 0)
        while page.next is not None:
            page = yield from self.read_in_order(self.dead.filter, page.next)
            outcomes += yield from requeue_steps(page.units, order, again=again, dry_run=dry_run)
        return outcomes

    def refuse_unfiltered(self, every: bool) -> None:
        """Nothing is done to many jobs by mistake: a filter whose fields are all None fits everything."""
        if self.empty and not every:
            raise InterlockError(WHICH)

    def read_in_order(self, wanted: Filter, after: int, limit: int = PAGE) -> Steps[UnitPage]:
        """Reads the next page, behind the id `after`. Of a selection of ids, `after` counts those that were read."""
        if not self.ids:
            page: UnitPage = yield Read(read_jobs_in_order, (wanted, self.ends, limit, after))
            return page
        ids = self.ids[after : after + limit]
        refs = {ref.unit: ref for ref in (yield Read(refs_of, (ids,)))}
        for unit in ids:
            if unit not in refs:
                raise Unknown(f"no job, run or step '{format_id('unit', unit)}'")
        return UnitPage([refs[unit] for unit in ids], after + limit if after + limit < len(self.ids) else None)

    def read_refs(self, most: int | None = None) -> Steps[list[UnitRef]]:
        """Reads all of them, or at least `most` if there are so many."""
        refs, page = list[UnitRef](), UnitPage([], 0)
        while page.next is not None and (most is None or len(refs) < most):
            page = yield from self.read_in_order(self.filter, page.next)
            refs += page.units
        return refs
