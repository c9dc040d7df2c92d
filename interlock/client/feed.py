"""The feed of events: `app.events(after=cursor, follow=True)`, with `for` or `async for`.

    for event in app.events(after=kept, lifecycle="job", follow=True):
        handle(event)
        kept = event.cursor  # whoever goes on from there misses nothing, and gets nothing twice

Beside a database it reads page after page. Over HTTP a feed that follows is one event stream of the server, which reads
once for all who follow; it connects again where it was cut.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from interlock.client.async_pairs import Read, Steps, verb_of_steps
from interlock.client.event_views import FeedEventResponse, FeedResponse, make_feed_page
from interlock.client.selections import Texts, check_value, find_known_states, list_states, to_tuple
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.paths import FORCE, SELF
from interlock.store.queries.feed import ALLOWED, FeedFilter, FeedPage, read_feed_page

if TYPE_CHECKING:
    from interlock.client.app import App

PAGE, PAGE_MAX = 500, 1_000  # events that are read together
POLL_SECONDS = 0.25  # between two looks at a database in which nothing new has happened


class EventFilter(TypedDict, total=False):
    """The filter of a feed; None leaves a field open."""

    lifecycle: Texts | None
    state: Texts | None  # that a transition led to
    trigger: Texts | None
    task: str | None
    queue: str | None
    actor: str | None
    correlation: str | None
    job: int | str | None  # this job, run or step alone
    run: int | str | None  # this job, run or step, and all below it


def make_feed_filter(
    known: Mapping[str, Collection[str]], triggers: Collection[str], *, lifecycle: Texts | None = None,
    state: Texts | None = None, trigger: Texts | None = None, job: int | str | None = None,
    run: int | str | None = None, **fields: str | None,
) -> FeedFilter:  # fmt: skip
    """Makes the filter of the store.

    Parameters:
        known: the lifecycles that may be named, each with its states.
        triggers: those that may be named.
        fields: task, queue, actor, correlation.

    Raises:
        InterlockError: a wrong value.
    """
    for name in to_tuple(lifecycle):
        check_value("lifecycle", name, known)
    named = to_tuple(lifecycle) or tuple(known)
    states = list(dict.fromkeys(each for name in named for each in known[name]))
    for name in to_tuple(state):
        check_value("state", name, states)
    for name in to_tuple(trigger):
        check_value("trigger", name, triggers)
    return FeedFilter(
        lifecycles=to_tuple(lifecycle), states=to_tuple(state), triggers=to_tuple(trigger), unit=parse_unit(job),
        tree=parse_unit(run), **fields,
    )  # fmt: skip


def parse_unit(text: int | str | None) -> int | None:
    """Returns the number of a unit that is given as an id or as a number."""
    return parse_id(text) if isinstance(text, str) else text


def list_triggers(lifecycles: Iterable[Lifecycle]) -> list[str]:
    """Returns every trigger of these lifecycles, and those that all of them have."""
    listed = dict.fromkeys(trigger for lifecycle in lifecycles for _, trigger in lifecycle.moves)
    return [*listed, *(trigger for trigger in (SELF, FORCE) if trigger not in listed)]


def make_query(wanted: FeedFilter) -> list[tuple[str, str]]:
    """Returns a filter as the query of `/v1/events` has it."""
    pairs = {
        "lifecycle": wanted.lifecycles, "state": wanted.states, "trigger": wanted.triggers,
        **{name: to_tuple(getattr(wanted, name)) for name in ("task", "queue", "actor", "correlation")},
    }  # fmt: skip
    query = [(name, value) for name, values in pairs.items() for value in values]
    ids = (("job", wanted.unit), ("run", wanted.tree))
    return query + [(name, format_id("unit", unit)) for name, unit in ids if unit is not None]


class Feed:
    """Events in the order in which they were committed, made by `app.events`. It reads nothing before it is used.

    `cursor` is how far it was read: a second loop goes on there.
    """

    def __init__(self, app: "App", after: str | None, follow: bool, **fields: Any) -> None:
        """Raises InterlockError for a wrong field or value."""
        if not (after is None or isinstance(after, str)):
            raise InterlockError(f"after = {after!r} is not allowed; {ALLOWED}")
        for name in fields:
            check_value("filter", name, EventFilter.__annotations__)
        self.app, self.cursor, self.follow = app, after, follow
        given = {name: value for name, value in fields.items() if value not in (None, (), [])}
        lifecycles, states = to_tuple(given.get("lifecycle")), to_tuple(given.get("state"))
        known: dict[str, Collection[str]] = dict(list_states(app.lifecycles))
        for lifecycle in lifecycles or (None,):
            known |= find_known_states(app, lifecycle, states)
        self.filter = make_feed_filter(known, list_triggers(app.lifecycles.values()), **given)

    @verb_of_steps
    def page(self, limit: int = PAGE) -> Steps[FeedResponse]:
        """Reads the page behind its cursor; `next` is the cursor of the next one. A page may be short, or empty."""
        if not 1 <= limit <= PAGE_MAX:
            raise InterlockError(f"limit = {limit!r} is not allowed; allowed is a number from 1 to {PAGE_MAX:,}")
        page: FeedPage = yield Read(read_feed_page, (self.filter, limit, self.cursor))
        return make_feed_page(page)

    def pages(self) -> Iterator[list[FeedEventResponse]]:
        """Yields the events of each page, none if nothing has happened for a while; it ends unless it follows."""
        if self.follow and self.app.far:
            for events, cursor in self.open_stream():
                yield events
                self.cursor = cursor
            return
        while True:
            page = self.page()
            yield page.events
            self.cursor = page.next
            if not page.more:
                if not self.follow:
                    return
                time.sleep(POLL_SECONDS)

    async def pages_aio(self) -> AsyncIterator[list[FeedEventResponse]]:
        """Does the same as `pages`, and lets others run meanwhile."""
        if self.follow and self.app.far:
            async for events, cursor in self.open_stream():
                yield events
                self.cursor = cursor
            return
        while True:
            page = await self.page.aio()
            yield page.events
            self.cursor = page.next
            if not page.more:
                if not self.follow:
                    return
                await asyncio.sleep(POLL_SECONDS)

    def __iter__(self) -> Iterator[FeedEventResponse]:
        for events in self.pages():
            for event in events:
                self.cursor = event.cursor
                yield event

    async def __aiter__(self) -> AsyncIterator[FeedEventResponse]:
        async for events in self.pages_aio():
            for event in events:
                self.cursor = event.cursor
                yield event

    def open_stream(self) -> Any:
        engine: Any = self.app.engine
        return engine.stream_feed(make_query(self.filter), self.cursor)
