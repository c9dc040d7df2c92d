"""The feed: a tenant's events in the order of commits, behind a cursor, whole whatever the size of a page."""

import secrets
from typing import Any

import psycopg
import pytest

from interlock.core.engine import Engine
from interlock.kernel.commands import SetTenant, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Event
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store.caller_transaction import join_transaction
from interlock.store.queries import feed as feed_module
from interlock.store.queries.feed import EVERYTHING, NOW, FeedEvent, FeedFilter, FeedPage, read_feed_page
from tests.engine.world import World
from tests.store.databases import declare, fresh_postgres

WHOLE = 1_000


def page_of(world: World, wanted: FeedFilter = EVERYTHING, limit: int = WHOLE, after: str | None = None) -> FeedPage:
    """The answer that a reader of tenant 1 gets; on SQLite nothing but the statement hides others' rows."""
    declare(world.connection, 1, 2)
    return read_feed_page(world.connection, 1, wanted, limit, after)


def read_all(world: World, limit: int, wanted: FeedFilter = EVERYTHING) -> list[FeedEvent]:
    """What a reader gets who takes so many events at a time and goes on until there are no more."""
    items, page = list[FeedEvent](), page_of(world, wanted, limit)
    while True:
        items += page.events
        if not page.more:
            return items
        page = page_of(world, wanted, limit, page.next)


def run_of(world: World) -> list[int]:
    """A run with two steps."""
    top = Work(task="release", lifecycle="workflow_run", ref="run")
    steps = [Work(task=task, lifecycle="step", parent="run", queue="slow", ref=task) for task in ("build", "ship")]
    return [made.unit for made in world.send(Submit(work=(top, *steps)))]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, WHOLE])
def test_pages_of_any_size_tell_the_same_and_a_cursor_rests_inside_an_act(world: World, limit: int) -> None:
    units = [made.unit for made in world.send(Submit(work=(Work(task="mail"),) * 5))]
    for grant in world.claim(world.worker(), 5):
        world.start(grant)
    told = [(item.event.unit, item.event.version) for item in read_all(world, limit)]
    assert len(told) == len(set(told)) == world.count("event")
    wanted = [(unit, version) for unit in units for version in range(1, world.unit(unit).version + 1)]
    assert sorted(pair for pair in told if pair[0] in units) == wanted
    assert [item.cursor for item in read_all(world, limit)] == [item.cursor for item in read_all(world, WHOLE)]


def test_every_cursor_goes_on_with_the_event_behind_it(world: World) -> None:
    run_of(world)
    for grant in world.claim(world.worker(), 5, queues=("slow",)):
        world.start(grant)
    items = read_all(world, WHOLE)
    for place, item in enumerate(items):
        assert page_of(world, after=item.cursor).events == items[place + 1 :]
    end = page_of(world)
    assert (end.more, page_of(world, after=end.next).events) == (False, [])
    late = world.submit()
    assert [item.event.unit for item in page_of(world, after=end.next).events] == [late]


def test_now_is_behind_everything_that_has_happened(world: World) -> None:
    world.submit()
    begun = page_of(world, after=NOW)
    assert (begun.events, begun.more) == ([], False)
    late = world.submit()
    assert [item.event.unit for item in page_of(world, after=begun.next).events] == [late]


def test_an_event_says_its_task_its_queue_and_what_is_above_it(world: World) -> None:
    run, build, _ = run_of(world)
    birth = next(item for item in read_all(world, WHOLE) if item.event.unit == build)
    assert (birth.task, birth.queue, [ancestor.unit for ancestor in birth.above]) == ("build", "slow", [run])
    (top,) = [item for item in page_of(world, FeedFilter(task="release")).events if item.event.source is None]
    assert (top.event.unit, top.above) == (run, ())


@pytest.mark.parametrize("limit", [1, WHOLE])
@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"lifecycles": ("step",)}, lambda event, units: event.lifecycle == "step"),
        ({"lifecycles": ("job", "worker")}, lambda event, units: event.lifecycle in ("job", "worker")),
        ({"states": ("running",)}, lambda event, units: event.target == "running" != event.source),
        ({"triggers": ("submit",)}, lambda event, units: event.trigger == "submit"),
        ({"task": "mail"}, lambda event, units: event.unit == units["job"]),
        ({"queue": "slow"}, lambda event, units: event.unit in units["steps"]),
        ({"actor": "ann"}, lambda event, units: event.actor == "ann"),
        ({"correlation": "order-7"}, lambda event, units: event.unit == units["job"]),
        ({"unit": "run"}, lambda event, units: event.unit == units["run"]),
        ({"tree": "run"}, lambda event, units: event.unit in (units["run"], *units["steps"])),
        ({"task": "mail", "states": ("running",)}, lambda event, units: event.target == "running" != event.source),
        ({"task": "mail", "queue": "slow"}, lambda event, units: False),
    ],
)
def test_a_filter_takes_what_fits_and_nothing_else(world: World, fields: Any, fits: Any, limit: int) -> None:
    run, *steps = run_of(world)
    job = world.submit(correlation="order-7")
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.cancel(steps[0], actor="ann")
    units = {"run": run, "steps": steps, "job": job}
    wanted = FeedFilter(
        **{name: units.get(value, value) if value == "run" else value for name, value in fields.items()}
    )
    events: list[Event] = [item.event for item in read_all(world, WHOLE)]
    assert [item.event for item in read_all(world, limit, wanted)] == [event for event in events if fits(event, units)]


def test_a_filter_that_fits_few_is_answered_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at so many events at most; its cursor is behind those that it has looked at."""
    monkeypatch.setattr(feed_module, "READ", 2)
    monkeypatch.setattr(feed_module, "LOOKED_AT", 4)
    for _ in range(9):
        world.submit()
    last = world.submit("web")
    first = page_of(world, FeedFilter(task="web"))
    assert (first.events, first.more) == ([], True)
    assert [item.event.unit for item in read_all(world, WHOLE, FeedFilter(task="web"))] == [last]


def test_the_events_of_another_tenant_are_not_in_it(world: World) -> None:
    world.send(SetTenant(tenant=2, name="other"))
    own = world.submit()
    ((foreign,),) = [world.send(Submit(tenant=2, work=(Work(task="mail"),)))]
    below = world.submit()
    for wanted in (EVERYTHING, FeedFilter(task="mail"), FeedFilter(unit=foreign.unit), FeedFilter(tree=foreign.unit)):
        seen = {item.event.unit for item in read_all(world, 2, wanted)}
        assert seen <= {own, below}
    assert {item.event.unit for item in read_all(world, 2)} == {own, below}


@pytest.mark.parametrize(
    "text", ["", "x", "1.1", "now ", "0" * 12 + ".1", "0" * 12 + ".-1.0", "é.1.1", "z" * 12 + ".1.1"]
)
def test_what_is_no_cursor_is_refused_with_what_is_allowed(world: World, text: str) -> None:
    with pytest.raises(InterlockError, match=r"is no cursor; allowed is the cursor of an event or of a page, or 'now'"):
        page_of(world, after=text)


def test_a_cursor_of_another_database_or_from_before_a_restore_is_refused(world: World) -> None:
    world.submit()
    cursor = page_of(world).next
    epoch, act, place = cursor.split(".")
    with pytest.raises(InterlockError, match="of another database"):
        page_of(world, after=f"{secrets.token_hex(6)}.{act}.{place}")
    for ahead in (f"{epoch}.{2**63 - 1}.0", f"{epoch}.{int(act) + 2**40}.1"):
        with pytest.raises(InterlockError, match="ahead of everything"):
            page_of(world, after=ahead)
    for huge in (f"{epoch}.{2**63}.0", f"{epoch}.1.{2**31}"):
        with pytest.raises(InterlockError, match="is no cursor"):
            page_of(world, after=huge)


def read_units(engine: Engine, after: str | None) -> tuple[list[int], str]:
    """The units whose events come behind a cursor, one event at a time, and the last cursor."""
    units = list[int]()
    while True:
        page = engine.see(read_feed_page, 1, EVERYTHING, 1, after)
        units += [item.event.unit for item in page.events]
        after = page.next
        if not page.more:
            return units, after


def test_what_was_begun_first_and_committed_last_is_not_skipped(server: str) -> None:
    """A reader that took the quick one first would never see the late one: its position is lower."""
    with fresh_postgres(server, "feed") as url, open_engine(url, shipped()) as engine:
        first = engine.send(Submit(work=(Work(task="first"),)))[0].unit
        with psycopg.connect(url) as slow:
            late = engine.send_within(join_transaction(slow), Submit(work=(Work(task="late"),)))[0].unit
            quick = engine.send(Submit(work=(Work(task="quick"),)))[0].unit
            units, cursor = read_units(engine, None)
            assert units == [first]  # what is behind an open transaction is not shown yet
            now = engine.see(read_feed_page, 1, EVERYTHING, 1, NOW).next
        assert read_units(engine, cursor)[0] == [late, quick]
        assert read_units(engine, now)[0] == [late, quick]
