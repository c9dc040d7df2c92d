"""The feed in programs: `app.events`, with `for` and with `async for`, beside a database and over HTTP."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any, cast

import pytest

import interlock
from interlock.client.app import App
from interlock.client.event_views import FeedEventResponse
from interlock.client.feed import Feed
from interlock.client.remote_feed import RemoteFeed
from interlock.kernel.errors import InterlockError

SYNC, AIO = "sync", "aio"
BOTH = pytest.mark.parametrize("way", [SYNC, AIO])
PATIENCE = 60.0  # seconds until a test gives up; none waits so long


@pytest.fixture
def app(url: str) -> Iterator[App]:
    app = interlock.open(url)

    @app.task
    def mail(to: int) -> int:
        return to

    @app.task(queue="slow")
    def report() -> None: ...

    with app:
        yield app


def take(way: str, feed: Feed, number: int | None = None) -> list[FeedEventResponse]:
    """The first events of a feed, or all of them."""

    async def gather() -> list[FeedEventResponse]:
        events = []
        async for event in feed:
            events.append(event)
            if len(events) == number:
                break
        return events

    if way == AIO:
        return asyncio.run(gather())
    events = []
    for event in feed:
        events.append(event)
        if len(events) == number:
            break
    return events


@BOTH
def test_a_feed_tells_everything_in_order_and_goes_on_from_any_cursor(app: App, way: str) -> None:
    jobs = [app.tasks["mail"].submit(to=number) for number in range(3)]
    jobs[1].cancel()
    events = take(way, app.events())
    assert [event.unit for event in events if event.source is None] == [job.id for job in jobs]
    assert events[-1].target == "cancelled"
    for place, event in enumerate(events):
        assert take(way, app.events(after=event.cursor)) == events[place + 1 :]


@BOTH
def test_a_loop_that_was_left_goes_on_where_it_was(app: App, way: str) -> None:
    jobs = [app.tasks["mail"].submit(to=number) for number in range(4)]
    feed = app.events(state="queued")
    assert [event.unit for event in take(way, feed, 2)] == [job.id for job in jobs[:2]]
    assert [event.unit for event in take(way, feed)] == [job.id for job in jobs[2:]]
    assert take(way, feed) == []
    late = app.tasks["mail"].submit(to=9)
    assert [event.unit for event in take(way, feed)] == [late.id]


@BOTH
def test_a_feed_that_follows_tells_what_others_do_meanwhile(app: App, way: str) -> None:
    first = app.tasks["mail"].submit(to=0)
    made = list[str]()

    def produce() -> None:
        made.extend(app.tasks["mail"].submit(to=number).id for number in range(1, 6))

    other = threading.Thread(target=produce)
    feed = app.events(follow=True, task="mail", trigger="submit")
    assert [event.unit for event in take(way, feed, 1)] == [first.id]
    app.tasks["report"].submit()
    other.start()
    events = take(way, feed, 5)
    other.join(PATIENCE)
    assert [event.unit for event in events] == made


@BOTH
def test_a_feed_from_now_on_leaves_the_past_out(app: App, way: str) -> None:
    app.tasks["mail"].submit(to=0)
    page = app.events(after="now").page()
    assert page.events == []
    late = app.tasks["mail"].submit(to=1)
    assert [event.unit for event in take(way, app.events(after=page.next, follow=True), 1)] == [late.id]


@BOTH
def test_filters_of_a_feed(app: App, way: str) -> None:
    mail, report = app.tasks["mail"].submit(to=1, correlation="order-7"), app.tasks["report"].submit()
    report.cancel()
    for fields, jobs in (
        ({"task": "mail"}, [mail]),
        ({"queue": "slow"}, [report, report]),
        ({"state": ["cancelled", "failed"]}, [report]),
        ({"trigger": "submit"}, [mail, report]),
        ({"correlation": "order-7"}, [mail]),
        ({"job": mail.id}, [mail]),
        ({"run": report.id}, [report, report]),
        ({"lifecycle": "worker"}, []),
        ({"actor": "nobody"}, []),
        ({"task": None, "job": mail.unit}, [mail]),
    ):
        found = [event.unit for event in take(way, app.events(**fields))]  # type: ignore[arg-type]
        assert found == [job.id for job in jobs], fields


def test_the_events_of_a_neighbour_are_not_in_it(app: App, neighbour: Callable[[App], App]) -> None:
    own = app.tasks["mail"].submit(to=1)
    other = neighbour(app)
    strange = other.task(name="mail")(lambda: None).submit()
    assert {event.unit for event in app.events()} == {own.id}
    assert {event.unit for event in other.events()} == {strange.id}
    assert [list(app.events(job=strange.unit)), list(app.events(run=strange.unit))] == [[], []]
    assert next(iter(app.events(follow=True))).unit == own.id


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"after": "x"}, "'x' is no cursor; allowed is the cursor of an event or of a page, or 'now'"),
        ({"after": 7}, "after = 7 is not allowed; allowed is the cursor"),
        ({"after": "0" * 12 + ".1.1"}, "this cursor is of another database"),
        ({"state": "nowhere"}, "there is no state 'nowhere'; there are queued, "),
        ({"state": "idle", "lifecycle": "job"}, "there is no state 'idle'; there are queued, assigned, "),
        ({"lifecycle": "jobs"}, "there is no lifecycle 'jobs'; there are "),
        ({"trigger": "fly"}, "there is no trigger 'fly'; there are "),
        ({"colour": "red"}, "there is no filter 'colour'; there are lifecycle, state, "),
        ({"job": "no id!"}, "'no id!' is no id; one looks like job_4r1"),
    ],
)
@pytest.mark.parametrize("follow", [False, True])
def test_a_wrong_word_is_told_what_is_right(app: App, fields: dict[str, object], text: str, follow: bool) -> None:
    with pytest.raises(InterlockError) as refusal:
        list(app.events(**fields, follow=follow))  # type: ignore[arg-type]
    assert text in str(refusal.value)


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_page_has_a_limit(app: App, limit: int) -> None:
    with pytest.raises(InterlockError, match=r"allowed is a number from 1 to 1,000"):
        app.events().page(limit)


class ClosedMeanwhile(set[Any]):
    """The feeds of a client, of which each is cut by another thread just when it has seen that it is open."""

    def __contains__(self, feed: object) -> bool:
        found = super().__contains__(feed)
        if found and threading.current_thread() is threading.main_thread() and not hasattr(self, "closer"):
            self.closer = threading.Thread(target=feed.cut)  # type: ignore[attr-defined]
            self.closer.start()
            self.closer.join(0.3)  # it comes through only if nothing keeps it from doing so
        return found


def test_a_feed_that_is_cut_while_it_asks_for_more_ends() -> None:
    """Whoever closes a client comes before the next batch is asked for, or after: never in between."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    feeds = ClosedMeanwhile()
    feed = RemoteFeed(cast("Any", None), loop, (), None, feeds)

    async def wait_for_ever() -> AsyncGenerator[Any, None]:
        await asyncio.Event().wait()
        yield

    async def wait_for_tasks() -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        await asyncio.gather(*others, return_exceptions=True)

    feed.batches = wait_for_ever()
    try:
        with pytest.raises(CancelledError):
            feed.start_next().result(PATIENCE)
        feeds.closer.join(PATIENCE)
        assert not feeds
        asyncio.run_coroutine_threadsafe(wait_for_tasks(), loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_client_that_is_closed_ends_its_feeds(app: App) -> None:
    ended = list[BaseException | None]()
    begun = threading.Event()
    app.tasks["mail"].submit(to=1)

    def read() -> None:
        try:
            for _ in app.events(follow=True):
                begun.set()
        except InterlockError as error:
            ended.append(error)

    if not app.far:
        pytest.skip("beside a database, closing an app opens it again at the next use")
    reader = threading.Thread(target=read)
    reader.start()
    assert begun.wait(PATIENCE)
    app.close()
    reader.join(PATIENCE)
    assert len(ended) == 1
