"""The feed over HTTP: pages and streams behind a cursor, and one reader for all who follow."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from interlock.client.app import App
from interlock.kernel.commands import RevokeKey, Submit, Work
from interlock.server.event_feed import EventFeed
from interlock.store.queries.feed import EVERYTHING, read_feed_page
from tests.server.house import House, housed
from tests.server.stage import FOREIGN, OWN, Stage
from tests.server.test_keys import number

PATIENCE = 60.0  # seconds until a test gives up; none waits so long
ACCEPT = {"Accept": "text/event-stream"}
FOLLOWERS = 100


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with housed() as made:
        yield made


@pytest.fixture
def live(url: str, house: House) -> Iterator[Stage]:
    """A stage before a real listener: streams come piece by piece, and need not end."""
    app = App(url)
    with house.hosts(app), httpx.Client(base_url=house.base, timeout=PATIENCE) as client:
        yield Stage(app, client)


def read_all(stage: Stage, query: str = "limit=3", key: str | None = None) -> list[dict[str, Any]]:
    events, after = list[dict[str, Any]](), ""
    while True:
        page = stage.get(f"/v1/events?{query}{after}", key=key)
        events += page["events"]
        after = f"&after={page['next']}"
        if not page["more"]:
            return events


class Follower:
    """A stream that is read in a thread of its own until it ends, or has so many events."""

    def __init__(self, stage: Stage, path: str = "/v1/events", most: int = 1, key: str = "", **headers: str) -> None:
        self.stage, self.path, self.most = stage, path, most
        self.headers = {"Authorization": f"Bearer {key or stage.own}", **ACCEPT, **headers}
        self.status, self.events, self.ids = 0, list[dict[str, Any]](), list[str]()
        self.begun = threading.Event()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self) -> None:
        with self.stage.client.stream("GET", self.path, headers=self.headers) as answer:
            self.status = answer.status_code
            self.begun.set()
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    self.ids.append(line.removeprefix("id: "))
                if line.startswith("data: "):
                    self.events.append(json.loads(line.removeprefix("data: ")))
                    if len(self.events) == self.most:
                        return

    def wait(self) -> list[dict[str, Any]]:
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.events


def test_pages_go_on_behind_a_cursor_and_end_with_one(stage: Stage) -> None:
    jobs = [stage.job() for _ in range(3)]
    stage.post(f"/v1/jobs/{jobs[0]}/cancel")
    events = read_all(stage)
    assert [event["unit"] for event in events] == [*jobs, jobs[0]]
    assert {event["task"] for event in events} == {"mail"}
    end = stage.get("/v1/events?limit=1000")
    assert (end["events"], end["more"]) == (events, False)
    assert stage.get(f"/v1/events?after={end['next']}")["events"] == []
    late = stage.job()
    assert [event["unit"] for event in stage.get(f"/v1/events?after={end['next']}")["events"]] == [late]


def test_filters_take_what_fits(stage: Stage) -> None:
    run, job = stage.run(), stage.job(queue="slow", correlation="order-7")
    steps = [step["id"] for step in stage.get(f"/v1/runs/{run}/steps")["steps"]]
    everything = read_all(stage)
    for query, units in {
        "queue=slow": {job},
        "task=ship": {steps[1]},
        "correlation=order-7": {job},
        f"job={run}": {run},
        f"run={run}": {run, *steps},
        "lifecycle=job&lifecycle=step": {job, steps[1]},
        "trigger=submit": {run, job, *steps},
        "state=queued": {job},
    }.items():
        found = read_all(stage, f"limit=2&{query}")
        assert {event["unit"] for event in found} == units, query
        assert found == [event for event in everything if event in found]
    births = {event["unit"]: (event["parent"], event["run"]) for event in everything}
    assert (births[steps[0]], births[job]) == ((run, run), (None, None))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("after=x", "'x' is no cursor; allowed is the cursor of an event or of a page, or 'now'"),
        (f"after={'0' * 12}.1.1", "this cursor is of another database"),
        (f"after={'9' * 61}", "length"),
        ("limit=0", "the query is wrong"),
        ("limit=1001", "the query is wrong"),
        ("state=nowhere", "there is no state 'nowhere'; there are "),
        ("lifecycle=jobs", "there is no lifecycle 'jobs'; there are "),
        ("trigger=fly", "there is no trigger 'fly'; there are "),
        ("job=no+id!", "the query is wrong"),
        ("colour=red", "unknown field `colour`"),
        ("task=a&task=b", "'task' is given twice"),
    ],
)
@pytest.mark.parametrize("headers", [{}, ACCEPT])
def test_what_is_wrong_is_refused_with_what_is_allowed(
    stage: Stage, query: str, text: str, headers: dict[str, str]
) -> None:
    answer = stage.ask("GET", f"/v1/events?{query}", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_REQUEST"), answer.text
    assert text in answer.json()["error"]["message"]


def test_a_stream_refuses_a_wrong_last_event_id(stage: Stage) -> None:
    answer = stage.ask("GET", "/v1/events", headers={**ACCEPT, "Last-Event-ID": "7"})
    assert (answer.status_code, "is no cursor" in answer.text) == (400, True)


def test_a_stream_tells_the_past_and_then_what_happens(live: Stage) -> None:
    past = [live.job() for _ in range(2)]
    follower = Follower(live, most=4)
    assert follower.begun.wait(PATIENCE)
    late = [live.job() for _ in range(2)]
    events = follower.wait()
    assert [event["unit"] for event in events] == [*past, *late]
    assert events == read_all(live)[:4]


def test_a_stream_goes_on_where_the_last_one_ended_whatever_its_query_says(live: Stage) -> None:
    for _ in range(4):
        live.job()
    events = read_all(live)
    for place, event in enumerate(events[:-1], 1):
        rest = Follower(
            live, f"/v1/events?after={events[0]['cursor']}", len(events) - place, **{"Last-Event-ID": event["cursor"]}
        )
        assert rest.wait() == events[place:]


def test_a_stream_with_a_filter_moves_its_cursor_past_what_does_not_fit(live: Stage) -> None:
    wanted = live.job(task="web")
    for _ in range(3):
        live.job()
    follower = Follower(live, "/v1/events?task=web", most=2)
    assert follower.begun.wait(PATIENCE)
    last = live.job(task="web")
    assert [event["unit"] for event in follower.wait()] == [wanted, last]
    behind = {event["cursor"] for event in read_all(live) if event["task"] == "mail"}
    assert behind & set(follower.ids), "the id of an event that was left out, so that it is not looked at again"


def test_a_stream_of_another_tenant_hears_nothing_of_it(live: Stage) -> None:
    live.job()
    follower = Follower(live, key=live.foreign)
    assert follower.begun.wait(PATIENCE)
    live.job()
    strange = live.job(key=live.foreign)
    assert [event["unit"] for event in follower.wait()] == [strange]
    assert {event["unit"] for event in read_all(live, key=live.foreign)} == {strange}
    assert strange not in {event["unit"] for event in read_all(live)}


def test_a_stream_ends_with_its_key(live: Stage) -> None:
    key = live.key("read")
    follower = Follower(live, key=key)
    assert follower.begun.wait(PATIENCE)
    live.app.send(RevokeKey(key=number(key)))
    assert (follower.wait(), follower.status) == ([], 200)


def test_a_hundred_followers_cost_the_database_what_one_does(inside: Stage) -> None:
    """What is new is read once and encoded once, however many follow, and each gets all of it."""

    async def count_reads(followers: int) -> tuple[int, list[list[bytes]]]:
        reads = 0

        async def read(query: Any, tenant: int) -> Any:
            nonlocal reads
            reads += 1
            return inside.app.engine.read(query, tenant)

        feed = EventFeed(read, followers)
        feed.start = lambda: None  # type: ignore[method-assign]
        begin = inside.app.engine.see(read_feed_page, OWN, EVERYTHING, 1, "now").position
        with ExitStack() as stack:
            listeners = [stack.enter_context(feed.follow(OWN, begin)) for _ in range(followers)]
            for batch in range(3):
                inside.app.send(Submit(work=(Work(task=f"batch {batch}"),) * 20))
                inside.app.send(Submit(work=(Work(task="strange"),), tenant=FOREIGN))
                await feed.read_tail(OWN)
        heard = [[event.encode() for event in await listener.wait(1)] for listener in listeners]
        texts = {id(text) for batch in heard for text in batch}
        assert len(texts) == 60, "each event was encoded once"
        return reads, heard

    alone, (first,) = asyncio.run(count_reads(1))
    together, heard = asyncio.run(count_reads(FOLLOWERS))
    assert (alone, together) == (3, 3)
    assert (len(first), {len(batch) for batch in heard}) == (60, {60})
    assert not [text for text in first if b"strange" in text]


def test_a_follower_behind_the_tail_is_waited_for(tmp_path: Path) -> None:
    """The tail was read on between the last page of a stream and its first look at the tail."""
    with App(f"sqlite:///{tmp_path}/work.db") as app:

        async def play() -> list[list[str]]:
            async def read(query: Any, tenant: int) -> Any:
                return app.engine.read(query, tenant)

            feed = EventFeed(read, 2)
            feed.start = lambda: None  # type: ignore[method-assign]
            begin = app.engine.see(read_feed_page, OWN, EVERYTHING, 1, "now").position
            with feed.follow(OWN, begin) as first:
                app.send(Submit(work=(Work(task="between"),)))
                await feed.read_tail(OWN)
                with feed.follow(OWN, begin) as second:
                    app.send(Submit(work=(Work(task="later"),)))
                    await feed.read_tail(OWN)
                    return [[event.item.task for event in await one.wait(1)] for one in (first, second)]

        first, second = asyncio.run(play())
        assert second == ["between", "later"]
        assert sorted(set(first)) == ["between", "later"]


def test_a_follower_that_came_with_an_older_cursor_misses_nothing_and_others_hear_nothing_twice(live: Stage) -> None:
    first = Follower(live, most=6)
    assert first.begun.wait(PATIENCE)
    for _ in range(3):
        live.job()
    second = Follower(live, most=6)
    assert second.begun.wait(PATIENCE)
    for _ in range(3):
        live.job()
    assert first.wait() == second.wait() == read_all(live)
