"""Many units at once: which are meant, and what is done to all of them.

`app.jobs(task="mail", state="queued")` is a selection. It is a filter and nothing else: whoever iterates, counts or
acts asks the database anew, page by page. `cancel` and `requeue` go through the units from the lowest id on, so a
parent comes before its children, and send the commands of a page together. A unit is judged when its page is read.

What a verb does is written once, as steps (see `two_ways`): the SDK runs them with and without `.aio`, beside a
database and over HTTP; the command line calls the SDK; the server runs the same steps for whoever asks it.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from interlock.client.async_pairs import InSteps, Read, SendAll, Steps
from interlock.client.durations import instant_us
from interlock.client.jobs import Job
from interlock.kernel.commands import ERROR_CLASSES, LOCAL, REASONS, Cancel, Command, Replay
from interlock.kernel.errors import Contended, InterlockError, StoreError, Unknown
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.store.connection import Connection
from interlock.store.queries.dead_letters import Letters, read_dead_letters
from interlock.store.queries.lists import Amount, Found, UnitRef, amount, newest, oldest, refs_of
from interlock.store.queries.views import Filter, count_by, done_again

if TYPE_CHECKING:
    from interlock.client.app import App

OPEN = tuple(category for category in Category if category not in SETTLED)
CATEGORIES = tuple(map(str, Category))
PAGE = 200  # units that are read, and commands that are sent, together
COUNT_MOST = 10_000
REQUEUE = "requeue"
WHICH = "which units? Name a filter such as task=…, or say every=True"
Words = str | Sequence[str]


class CancelOutcome(msgspec.Struct, frozen=True):
    """What came of asking one unit to stop; `refused` says why it could not be."""

    id: str
    state: str
    applied: bool = False
    refused: str | None = None


class RequeueOutcome(msgspec.Struct, frozen=True):
    """What came of doing one unit again: the new unit, and whether it was made now; `refused` says why it could not."""

    id: str
    new: str | None = None
    created: bool = False
    refused: str | None = None


class JobPage(msgspec.Struct, frozen=True):
    """Some jobs of a selection; `next` is the `after` of the next page, None at the end. A page may be short."""

    jobs: list[Job]
    next: str | None


class JobWords(TypedDict, total=False):
    """By which words units are meant; one that is None says nothing."""

    state: Words | None
    category: Words | None
    lifecycle: str | None
    task: str | None
    queue: str | None
    key: str | None
    correlation: str | None
    worker: str | None  # the name of whoever holds it
    parent: int | str | None
    reason_code: str | None  # these three are of dead letters alone
    error_class: str | None
    since: datetime | None


# Which units are meant.


def check_word(name: str, word: str, allowed: Collection[str]) -> None:
    """Raises InterlockError for a word that is none of these, which says what they are."""
    if word not in allowed:
        raise InterlockError(f"there is no {name} '{word}'; there are {', '.join(allowed)}")


def make_filter(
    known: Mapping[str, Collection[str]], *, state: Words = (), status: Words = (), category: Words = (),
    lifecycle: str | None = None, worker: str | None = None, **words: Any,
) -> Filter:  # fmt: skip
    """The filter that words mean. Raises InterlockError for a wrong one.

    Parameters:
        known: the lifecycles that may be named, each with its states.
        status: the same as `state`.
        words: task, queue, key, correlation: text; parent: a unit.
    """
    if lifecycle is not None:
        check_word("lifecycle", lifecycle, known)
    states = list(dict.fromkeys(one for some in known.values() for one in some))
    for name, given, allowed in (
        ("state", state, states),
        ("status", status, states),
        ("category", category, CATEGORIES),
    ):
        for one in several(given):
            check_word(name, one, allowed)
    wanted = (*several(state), *several(status))
    return Filter(states=wanted, categories=several(category), lifecycle=lifecycle, holder=worker, **words)


def make_letters(
    known: Collection[str], *, lifecycle: str | None = None, reason_code: str | None = None,
    error_class: str | None = None, since: datetime | None = None, **words: str | None,
) -> Letters:  # fmt: skip
    """The dead letters that words mean; `since` is when they died at the earliest. Raises InterlockError."""
    if lifecycle is not None:
        check_word("lifecycle", lifecycle, known)
    if reason_code is not None:
        check_word("reason code", reason_code, REASONS)
    if error_class is not None:
        check_word("error class", error_class, list(ERROR_CLASSES))
    since_us = 0 if since is None else max(instant_us("since", since), 0)
    return Letters(lifecycle=lifecycle, reason_code=reason_code, error_class=error_class, since=since_us, **words)


def states_of(lifecycles: Mapping[str, Lifecycle]) -> dict[str, list[str]]:
    return {lifecycle.name: list(lifecycle.states) for lifecycle in lifecycles.values()}


def known_to(app: "App", lifecycle: str | None, states: Sequence[str]) -> Mapping[str, Collection[str]]:
    """The lifecycles and states that may be named in an app: its own, and others of which there are units."""
    known: dict[str, list[str]] = states_of(app.lifecycles)

    def complete() -> bool:
        named = known.get(lifecycle, []) if lifecycle else [one for some in known.values() for one in some]
        return (lifecycle is None or lifecycle in known) and all(state in named for state in states)

    if not complete() and not app.far:
        for name, state, _ in app.read(count_by):
            known.setdefault(name, [])
            if state not in known[name]:
                known[name].append(state)
    return known


def several(words: Words | None) -> tuple[str, ...]:
    return () if words is None else (words,) if isinstance(words, str) else tuple(words)


# What is asked of a database; each of these can be asked over HTTP too.


def jobs_page(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], wanted: Filter, ends: Letters | None,
    limit: int,
    after: int,
) -> Found:  # fmt: skip
    """A page of the units that are meant, the newest first, behind the unit `after`, or from the first one on (0).

    `ends` is what is asked of the ends of dead letters.
    """
    page = newest(connection, tenant, lifecycles.values(), wanted, limit, after or None)
    rows = [one.unit for one in page.units]
    units = [UnitRef(row.id, row.lifecycle, row.state, row.outcome is not None) for row in rows]
    return Found(fitting(connection, tenant, ends, units), None if page.next is None else parse_id(page.next))


def jobs_in_order(
    connection: Connection, tenant: int, wanted: Filter, ends: Letters | None, limit: int, after: int
) -> Found:
    """A page of the units that are meant, the lowest id first, behind the id `after`."""
    page = oldest(connection, tenant, wanted, limit, after)
    return Found(fitting(connection, tenant, ends, page.units), page.next)


def fitting(connection: Connection, tenant: int, ends: Letters | None, units: Sequence[UnitRef]) -> list[UnitRef]:
    """Those of these units whose ends are as is asked."""
    if ends is None:
        return list(units)
    letters = read_dead_letters(connection, tenant, [one.unit for one in units])
    return [one for one in units if one.unit in letters and ends.fits(letters[one.unit])]


# What is done to units, step by step.


def cancel_steps(units: Sequence[UnitRef], order: Cancel, *, dry_run: bool = False) -> Steps[list[CancelOutcome]]:
    """Each unit is asked to stop. One that its parent's end has ended meanwhile is not refused."""
    if dry_run or not units:
        return [CancelOutcome(format_id(one.lifecycle, one.unit), one.state) for one in units]
    came = yield SendAll([msgspec.structs.replace(order, unit=one.unit) for one in units])
    refused = [one.unit for one, answer in zip(units, came, strict=True) if isinstance(answer, Exception)]
    now = {one.unit: one for one in ((yield Read(refs_of, (refused,))) if refused else ())}
    told = []
    for one, answer in zip(units, came, strict=True):
        name = format_id(one.lifecycle, one.unit)
        if isinstance(answer, Exception):
            text = refusal_of(answer, also=Contended)
            left = now.get(one.unit, one)
            told.append(CancelOutcome(name, left.state, False, None if left.ended and not one.ended else text))
        else:
            told.append(CancelOutcome(name, answer.state, answer.applied))
    return told


def requeue_steps(
    units: Sequence[UnitRef], order: Replay, *, again: bool = False, dry_run: bool = False
) -> Steps[list[RequeueOutcome]]:
    """Each unit is done again as a new one. One that was done again before is left alone, unless `again` is said."""
    before: dict[int, int] = {} if again or not units else (yield Read(done_again, ([one.unit for one in units],)))
    to_do = [] if dry_run else [one for one in units if one.unit not in before]
    came = (yield SendAll([replay_of(one.unit, order, again=again) for one in to_do])) if to_do else []
    answers = {one.unit: answer for one, answer in zip(to_do, came, strict=True)}
    told = []
    for one in units:
        name, answer = format_id(one.lifecycle, one.unit), answers.get(one.unit)
        if isinstance(answer, Exception):
            told.append(RequeueOutcome(name, refused=refusal_of(answer)))
        elif answer is not None:
            told.append(RequeueOutcome(name, format_id(one.lifecycle, answer.unit), created=True))
        else:
            done = before.get(one.unit)
            told.append(RequeueOutcome(name, None if done is None else format_id(one.lifecycle, done)))
    return told


def replay_of(unit: int, order: Replay, *, again: bool = False) -> Replay:
    """The command that does a unit again; two who do so at the same time make one, unless they mean it."""
    if again:
        return msgspec.structs.replace(order, unit=unit)
    return msgspec.structs.replace(order, unit=unit, idempotency_key=f"{REQUEUE} {unit}", key_scope=REQUEUE)


def is_requeue(command: Command[Any]) -> bool:
    """Whether a command is one that `replay_of` makes once for everybody."""
    return isinstance(command, Replay) and command.idempotency_key == f"{REQUEUE} {command.unit}"


def refusal_of(error: Exception, *, also: type[StoreError] | tuple[()] = ()) -> str:
    """The text of a refusal; whatever is none is raised. `also` is what counts as one though the database said it."""
    if not isinstance(error, InterlockError) or (isinstance(error, StoreError) and not isinstance(error, also)):
        raise error
    return str(error)


class Selection:
    """The units that ids or a filter mean: made by `app.jobs`. Nothing is read before somebody asks."""

    def __init__(self, app: "App", ids: Sequence[int | str] = (), **words: Any) -> None:
        """Raises InterlockError for a word that is wrong."""
        self.app = app
        self.ids = tuple(dict.fromkeys(parse_id(one) if isinstance(one, str) else one for one in ids))
        for name in words:
            check_word("filter", name, JobWords.__annotations__)
        given = {name: word for name, word in words.items() if word not in (None, (), [])}
        if self.ids and given:
            raise InterlockError("give ids or a filter, not both")
        ends = {name: given.pop(name) for name in ("reason_code", "error_class", "since") if name in given}
        self.ends = make_letters((), **ends) if ends else None
        lifecycle, parent = given.get("lifecycle"), given.get("parent")
        if isinstance(parent, str):
            given["parent"] = parse_id(parent)
        known = known_to(app, lifecycle, several(given.get("state")))
        own = {lifecycle: known[lifecycle]} if lifecycle is not None and lifecycle in known else known
        self.filter = make_filter(own, **given)
        if self.ends and not self.filter.categories:
            self.filter = msgspec.structs.replace(self.filter, categories=(Category.DEAD,))

    @property
    def empty(self) -> bool:
        """Whether nothing was said of which units are meant."""
        return not self.ids and self.ends is None and self.filter.empty

    @property
    def dead(self) -> "Selection":
        """The dead letters among them; what ids name stays as it is."""
        found = copy(self)
        if not self.ids:
            found.filter = msgspec.structs.replace(self.filter, categories=(Category.DEAD,))
        return found

    # Looking.

    @property
    def page(self) -> InSteps[..., JobPage]:
        """`page(limit=50, after=None)`: the newest first; `after` is the `next` of the page before."""
        return InSteps(self.app, self.page_steps)

    @property
    def count(self) -> InSteps[[], Amount]:
        """`count()`: how many there are, exactly up to 10,000; `more` says that there are more."""
        return InSteps(self.app, self.count_steps)

    @property
    def refs(self) -> InSteps[[], list[UnitRef]]:
        """`refs()`: all of them, the lowest id first; those that ids name in the order of the ids."""
        return InSteps(self.app, self.ref_steps)

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

    @property
    def cancel(self) -> InSteps[..., list[CancelOutcome]]:
        """`cancel(reason="", hard=False, by="local", every=False, dry_run=False)`: those that have not ended stop.

        A selection without a filter needs `every=True`.
        """
        return InSteps(self.app, self.cancel_all)

    @property
    def requeue(self) -> InSteps[..., list[RequeueOutcome]]:
        """`requeue(reason="", again=False, by="local", every=False, dry_run=False)`: dead letters are done again.

        Each becomes a new unit, and the dead one stays. With `again` also those that were done again before. A
        selection without a filter needs `every=True`; one of ids may name any unit that has ended.
        """
        return InSteps(self.app, self.requeue_all)

    def cancel_all(
        self, *, reason: str = "", hard: bool = False, by: str = LOCAL, every: bool = False, dry_run: bool = False
    ) -> Steps[list[CancelOutcome]]:
        self.refuse_unfiltered(every)
        lifecycles = tuple(
            lifecycle.name for lifecycle in self.app.lifecycles.values() if lifecycle.birth.trigger == "submit"
        )
        wanted = msgspec.structs.replace(self.filter, categories=self.filter.categories or OPEN, lifecycles=lifecycles)
        order = Cancel(unit=0, hard=hard, tenant=self.app.tenant, actor=by, reason=reason)
        told, page = list[CancelOutcome](), Found([], 0)
        while page.next is not None:
            page = yield from self.read_in_order(wanted, page.next)
            told += yield from cancel_steps(page.units, order, dry_run=dry_run)
        return told

    def requeue_all(
        self, *, reason: str = "", again: bool = False, by: str = LOCAL, every: bool = False, dry_run: bool = False
    ) -> Steps[list[RequeueOutcome]]:
        self.refuse_unfiltered(every)
        order = Replay(unit=0, tenant=self.app.tenant, actor=by, reason=reason)
        told, page = list[RequeueOutcome](), Found([], 0)
        while page.next is not None:
            page = yield from self.read_in_order(self.dead.filter, page.next)
            told += yield from requeue_steps(page.units, order, again=again, dry_run=dry_run)
        return told

    def refuse_unfiltered(self, every: bool) -> None:
        """Nothing is done to many units by mistake: a filter whose words are all None means everything."""
        if self.empty and not every:
            raise InterlockError(WHICH)

    def read_in_order(self, wanted: Filter, after: int, limit: int = PAGE) -> Steps[Found]:
        """The next page of what is meant, behind the id `after`. Of ids, `after` counts those that were read."""
        if not self.ids:
            found: Found = yield Read(jobs_in_order, (wanted, self.ends, limit, after))
            return found
        ids = self.ids[after : after + limit]
        there = {one.unit: one for one in (yield Read(refs_of, (ids,)))}
        for one in ids:
            if one not in there:
                raise Unknown(f"there is no unit {format_id('unit', one)}")
        return Found([there[one] for one in ids], after + limit if after + limit < len(self.ids) else None)

    def page_steps(self, limit: int = 50, after: str | None = None) -> Steps[JobPage]:
        place = 0 if after is None else parse_id(after)
        if self.ids:
            found = yield from self.read_in_order(self.filter, place, limit)
        else:
            found = yield Read(jobs_page, (self.app.lifecycles, self.filter, self.ends, limit, place))
        jobs = [Job(self.app, one.unit, lifecycle=one.lifecycle) for one in found.units]
        return JobPage(jobs, None if found.next is None else format_id("unit", found.next))

    def count_steps(self) -> Steps[Amount]:
        if self.ids or self.ends:
            units = yield from self.ref_steps(COUNT_MOST + 1)
            return Amount(min(len(units), COUNT_MOST), len(units) > COUNT_MOST)
        found: Amount = yield Read(amount, (self.filter,))
        return found

    def ref_steps(self, most: int | None = None) -> Steps[list[UnitRef]]:
        units, page = list[UnitRef](), Found([], 0)
        while page.next is not None and (most is None or len(units) < most):
            page = yield from self.read_in_order(self.filter, page.next)
            units += page.units
        return units
