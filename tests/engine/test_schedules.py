"""Schedules: one unit an instant, whoever ticks; overlap, downtime, pauses and both changes of the clocks."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import interlock
from interlock.client.schedules import explain_pause, explain_schedule
from interlock.kernel.commands import (
    DefineSchedule,
    FireSchedule,
    PauseSchedule,
    Planned,
    RemoveSchedule,
    ResumeSchedule,
    Start,
    Submit,
    Tick,
    Work,
)
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Schedule, Skipped
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.plugins.schedules import cron
from interlock.store.postgres import PostgresConnection
from interlock.store.queries.views import read_skipped, schedule_of, schedules_of
from interlock.worker.loop import Worker
from tests.engine.world import SECOND, World, held
from tests.store.databases import declare, fresh_postgres

HOUR = 3600
BERLIN = ZoneInfo("Europe/Berlin")


def us(*when: int, zone: str = "UTC") -> int:
    return round(datetime(*when, tzinfo=ZoneInfo(zone)).timestamp()) * SECOND  # type: ignore[arg-type]


def define(world: World, timing: str = "0 * * * *", **facts: object) -> Planned:
    work = Work(task="report", input='{"n": 1}', labels='{"team": "x"}')
    return world.send(DefineSchedule(**{"name": "hourly", "timing": timing, "work": work, **facts}))  # type: ignore[arg-type]


def schedule(world: World, name: str = "hourly") -> Schedule:
    declare(world.connection, 1)
    found = schedule_of(world.connection, 1, name)
    assert found
    return found


def skips(world: World, name: str = "hourly") -> list[Skipped]:
    declare(world.connection, 1)
    return read_skipped(world.connection, 1, name, 100)


def made(world: World) -> list[int]:
    declare(world.connection, 1)
    return [one for (one,) in world.connection.rows("SELECT unit FROM body WHERE task = 'report' ORDER BY unit")]


def keys(world: World) -> list[str]:
    return [str(world.body(one).key) for one in made(world)]


@pytest.fixture
def noon(world: World) -> World:
    world.now_us = us(2026, 6, 1, 12, 0)
    return world


def pass_hours(world: World, hours: int) -> None:
    for _ in range(hours):
        world.pass_time(HOUR)
        world.tick()


def end(world: World) -> None:
    """What is there is done."""
    worker = world.worker(f"w{world.now_us}")
    for grant in world.claim(worker, limit=50):
        world.start(grant)
        world.finish(grant)


def test_one_unit_an_instant_whoever_ticks(noon: World) -> None:
    assert define(noon, overlap="allow").next_at == us(2026, 6, 1, 13, 0)
    assert noon.tick() == 0
    noon.pass_time(HOUR - 1)
    assert noon.tick() == 0
    noon.pass_time(1)
    assert [noon.tick() for _ in range(5)] == [1, 0, 0, 0, 0]
    assert keys(noon) == ["hourly@2026-06-01T13:00:00Z"]
    (unit,) = made(noon)
    body = noon.body(unit)
    assert body.input == '{"n": 1}'
    assert '"team":"x"' in body.labels
    assert '"schedule":"hourly"' in body.labels
    assert noon.events(unit)[0].reason == "schedule hourly"
    found = schedule(noon)
    assert (found.last_unit, found.last_at, found.next_at) == (unit, noon.now_us, us(2026, 6, 1, 14, 0))


def test_ticks_of_one_group_make_one(noon: World) -> None:
    define(noon, overlap="allow")
    noon.pass_time(HOUR)
    committer = noon.engine.committer
    futures = [committer.put(Tick()) for _ in range(4)]
    committer.step()
    assert [future.result() for future in futures] == [1, 0, 0, 0]


def test_many_tickers_make_one(tmp_path: Path, server: str) -> None:
    """Four connections to one PostgreSQL, all of which tick as soon as the other has the row locked."""
    with fresh_postgres(server, f"t{abs(hash(tmp_path))}") as url:
        connections = [PostgresConnection(url) for _ in range(4)]
        for connection in connections:
            connection.clock = lambda: clock[0]
        clock = [us(2026, 6, 1, 12, 0)]
        engines = [make_engine(connection, shipped()) for connection in connections]
        engines[0].send(DefineSchedule(name="hourly", timing="every 1m", work=Work(task="report"), overlap="allow"))
        for _ in range(20):
            clock[0] += 60 * SECOND
            assert sum(engine.send(Tick()) for engine in engines) == 1
        for connection in connections:
            connection.close()


def test_a_tick_that_finds_the_row_locked_goes_on(tmp_path: Path, server: str) -> None:
    with fresh_postgres(server, f"t{abs(hash(tmp_path))}") as url:
        one, two = (PostgresConnection(url, lambda: clock[0]) for _ in range(2))
        clock = [us(2026, 6, 1, 12, 0)]
        make_engine(one, shipped()).send(DefineSchedule(name="hourly", timing="every 1m", work=Work(task="report")))
        clock[0] += 60 * SECOND
        one.begin([1])
        one.rows("SELECT 1 FROM schedule FOR UPDATE")
        assert make_engine(two, shipped()).send(Tick()) == 0
        one.rollback()
        assert make_engine(two, shipped()).send(Tick()) == 1
        one.close()
        two.close()


def test_the_same_definition_changes_nothing(noon: World) -> None:
    assert define(noon).changed
    before = schedule(noon)
    noon.pass_time(60)
    assert not define(noon, timing=" 0  *  *  *  * ").changed
    assert schedule(noon) == before
    assert define(noon, missed="all").changed
    assert schedule(noon).next_at == before.next_at


def test_another_timing_counts_from_now_on_and_what_was_due_is_made(noon: World) -> None:
    define(noon)
    noon.pass_time(HOUR + 60)
    assert define(noon, timing="30 * * * *").next_at == us(2026, 6, 1, 13, 30)
    assert keys(noon) == ["hourly@2026-06-01T13:00:00Z"]


def test_a_definition_again_after_a_downtime_leaves_what_was_missed(noon: World) -> None:
    define(noon, missed="all", overlap="allow")
    noon.pass_time(3 * HOUR)
    assert not define(noon, missed="all", overlap="allow").changed
    noon.tick()
    assert len(made(noon)) == 3


# Overlap.


def test_overlap_skip_makes_none_while_the_last_has_not_ended(noon: World) -> None:
    define(noon, overlap="skip")
    pass_hours(noon, 3)
    (unit,) = made(noon)
    assert [(one.count, one.first_at) for one in skips(noon)] == [(1, us(2026, 6, 1, hour)) for hour in (15, 14)]
    assert skips(noon)[0].reason == f"{format_id('job', unit)} of the instant before has not ended"
    end(noon)
    pass_hours(noon, 1)
    assert len(made(noon)) == 2


def test_overlap_allow_makes_all(noon: World) -> None:
    define(noon, overlap="allow")
    pass_hours(noon, 3)
    assert len(noon.claim(noon.worker(), limit=9)) == 3
    assert skips(noon) == []


def test_overlap_queue_runs_one_after_the_other(noon: World) -> None:
    define(noon, overlap="queue")
    pass_hours(noon, 3)
    worker, order = noon.worker(), []
    for _ in range(3):
        (grant,) = noon.claim(worker, limit=9)
        order.append(grant.unit)
        noon.start(grant)
        noon.finish(grant)
    assert order == made(noon)


def test_overlap_replace_cancels_one_that_waits(noon: World) -> None:
    define(noon, overlap="replace")
    pass_hours(noon, 3)
    first, second, third = made(noon)
    assert [noon.unit(one).outcome for one in (first, second, third)] == ["cancelled", "cancelled", None]
    assert noon.events(first)[-1].reason == "replaced by the next one of schedule hourly"


def test_overlap_replace_waits_until_a_running_one_has_stopped(noon: World) -> None:
    define(noon, timing="every 10s", overlap="replace")
    noon.pass_time(10)
    noon.tick()
    worker = noon.worker()
    (grant,) = noon.claim(worker)
    noon.send(Start(held=(held(grant),)))
    noon.pass_time(10)
    noon.tick()
    assert noon.beat(grant).cancel
    assert noon.claim(worker, limit=9) == []  # never two at a time
    noon.finish(grant, ended="cancelled")
    assert [one.unit for one in noon.claim(worker, limit=9)] == made(noon)[1:]


# Downtime.


@pytest.mark.parametrize(
    ("missed", "late", "count", "skipped"),
    [("none", 120, 0, 5), ("none", 30, 1, 4), ("one", 120, 1, 4), ("all", 120, 5, 0)],
)
def test_after_a_downtime(noon: World, missed: str, late: int, count: int, skipped: int) -> None:
    define(noon, missed=missed, overlap="allow")
    noon.pass_time(5 * HOUR + late)
    noon.tick()
    hours = range(13 + 5 - count, 13 + 5)  # the latest
    assert keys(noon) == [f"hourly@2026-06-01T{hour}:00:00Z" for hour in hours]
    assert sum(one.count for one in skips(noon)) == skipped
    if skipped:
        (one,) = skips(noon)
        assert one.reason.startswith("missed: nobody looked until 2026-06-01T17:0")
        assert (one.first_at, one.last_at) == (us(2026, 6, 1, 13), us(2026, 6, 1, 12 + skipped))
    assert schedule(noon).next_at == us(2026, 6, 1, 18)


def test_all_that_was_missed_is_at_most_a_thousand_and_says_so(world: World) -> None:
    world.now_us = us(2026, 6, 1, 12, 0)
    trust = world.engine.send
    trust(DefineSchedule(name="often", timing="every 1s", work=Work(task="report"), missed="all", overlap="allow"))
    world.pass_time(1_500)
    ticks = [trust(Tick()) for _ in range(11)]
    assert ticks == [100] * 10 + [0]  # so many at once
    (one,) = skips(world, "often")
    assert one.count == 0
    assert one.reason.startswith("more than 1,000 instants were missed, and these are older")
    assert (one.first_at, one.last_at) == (us(2026, 6, 1, 12, 0, 1), us(2026, 6, 1, 12, 0) + 500 * SECOND)


def test_years_of_minutes_are_not_counted() -> None:
    """It would take minutes; and what is counted is said."""
    looked = []

    class Counting(cron.CronSim):  # type: ignore[name-defined, misc]
        def __next__(self) -> datetime:
            looked.append(1)
            return super().__next__()

    original, cron.CronSim = cron.CronSim, Counting  # type: ignore[attr-defined]
    try:
        found = cron.find_due("* * * * *", "UTC", us(2016, 1, 1), us(2026, 1, 1), 1_001)
    finally:
        cron.CronSim = original  # type: ignore[attr-defined]
    assert found == [us(2026, 1, 1) - n * 60 * SECOND for n in reversed(range(1_001))]
    assert len(looked) < 10_000


# Pausing.


def test_a_paused_schedule_makes_nothing_and_says_what_it_skipped(noon: World) -> None:
    define(noon, overlap="allow", missed="all")
    paused = noon.send(PauseSchedule(name="hourly", actor="ann", reason="the mail server moves"))
    assert (paused.paused, paused.next_at, paused.changed) == (True, None, True)
    assert not noon.send(PauseSchedule(name="hourly", actor="bob")).changed
    pass_hours(noon, 5)
    assert made(noon) == []
    assert define(noon, timing="30 * * * *", overlap="allow").paused  # another definition does not wake it
    define(noon, overlap="allow", missed="all")
    resumed = noon.send(ResumeSchedule(name="hourly"))
    assert (resumed.paused, resumed.next_at) == (False, us(2026, 6, 1, 18))
    (one,) = skips(noon)
    assert (one.count, one.reason) == (5, "paused by ann: the mail server moves")
    assert not noon.send(ResumeSchedule(name="hourly")).changed
    pass_hours(noon, 1)
    assert keys(noon) == ["hourly@2026-06-01T18:00:00Z"]


def test_what_was_due_before_a_pause_is_made(noon: World) -> None:
    define(noon)
    noon.pass_time(HOUR)
    noon.send(PauseSchedule(name="hourly"))
    assert keys(noon) == ["hourly@2026-06-01T13:00:00Z"]


def test_a_trigger_makes_one_now_also_while_paused(noon: World) -> None:
    define(noon)
    noon.send(PauseSchedule(name="hourly"))
    first = noon.send(FireSchedule(name="hourly", actor="ann"))
    second = noon.send(FireSchedule(name="hourly"))
    assert (first.created, second.created) == (True, True)
    assert noon.body(first.unit).key is None
    assert noon.events(first.unit)[0].actor == "ann"
    noon.send(ResumeSchedule(name="hourly"))
    pass_hours(noon, 1)
    assert "has not ended" in skips(noon)[0].reason  # it counts as the last one


def test_a_removed_schedule_makes_nothing_and_what_it_made_stays(noon: World) -> None:
    define(noon)
    noon.pass_time(HOUR)
    gone = noon.send(RemoveSchedule(name="hourly", actor="ann", reason="nobody reads it"))
    assert (gone.removed, gone.changed, gone.next_at) == (True, True, None)
    assert len(made(noon)) == 1  # it was due
    noon.pass_time(3 * HOUR)
    assert noon.send(Tick()) == 0
    assert not noon.send(RemoveSchedule(name="hourly")).changed
    for command in (PauseSchedule(name="hourly"), ResumeSchedule(name="hourly"), FireSchedule(name="hourly")):
        with pytest.raises(Unknown, match="schedule 'hourly' was removed; there are none"):
            noon.send(command)
    with pytest.raises(Unknown, match="there is no schedule 'none'"):
        noon.send(RemoveSchedule(name="none"))
    declare(noon.connection, 1)
    assert schedules_of(noon.connection, 1) == []
    assert explain_schedule(noon.connection, 1, "hourly") == (
        "schedule hourly was removed by ann at 2026-06-01T13:00:00Z: nobody reads it; "
        "a worker whose app still defines it brings it back"
    )
    back = define(noon)
    assert (back.changed, back.removed, back.next_at) == (True, False, us(2026, 6, 1, 17, 0))
    assert len(made(noon)) == 1


def test_an_unknown_schedule_is_told_with_those_that_there_are(noon: World) -> None:
    with pytest.raises(Unknown, match="there is no schedule 'x'; there are none"):
        noon.send(PauseSchedule(name="x"))
    define(noon)
    with pytest.raises(Unknown, match="there is no schedule 'x'; there are hourly"):
        noon.send(FireSchedule(name="x"))
    with pytest.raises(Unknown, match="there are none"):
        noon.send(PauseSchedule(name="hourly", tenant=2))


def test_a_unit_that_cannot_be_made_is_skipped_with_the_reason_and_time_goes_on(noon: World) -> None:
    define(noon)
    noon.send(Submit(work=(Work(task="report", key="hourly@2026-06-01T13:00:00Z", input="2"),)))
    other = noon.submit(delay_us=HOUR * SECOND)
    pass_hours(noon, 1)
    assert skips(noon)[0].reason.startswith("refused: IDEMPOTENCY_CONFLICT")
    assert noon.unit(other).available_at is not None
    assert schedule(noon).next_at == us(2026, 6, 1, 14)


def test_a_machine_that_lacks_a_time_zone_leaves_the_schedule_to_others(
    noon: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(noon, timezone="Europe/Berlin")
    other = noon.submit(delay_us=HOUR * SECOND)
    with monkeypatch.context() as here:
        here.setattr(cron, "ZoneInfo", lambda name: {}[name])
        noon.pass_time(HOUR)
        noon.tick()
    assert noon.unit(other).available_at is not None
    assert made(noon) == []
    assert noon.tick() == 1


def test_skipped_instants_are_forgotten_after_two_weeks(noon: World) -> None:
    define(noon)
    pass_hours(noon, 2)
    assert noon.count("skipped") == 1
    noon.send(PauseSchedule(name="hourly"))
    noon.pass_time(14 * 24 * HOUR)
    noon.tick()
    assert noon.count("skipped") == 0


# The words.


REFUSED: list[tuple[dict[str, object], str]] = [
    (
        {"timing": "61 * * * *"},
        "timing = '61 * * * *' is not allowed: bad minute; allowed is a cron expression of five",
    ),
    ({"timing": "* * *"}, "wrong number of fields"),
    ({"timing": "0 0 30 2 *"}, "is not allowed: bad day-of-month"),
    ({"timing": "* * */20 * 1L"}, "that day never comes"),
    ({"timing": "* * * * MON#1/2"}, "bad day-of-week"),
    ({"timing": "every potato"}, "'potato' is not a duration"),
    ({"timing": "every 10ms"}, "a second is the shortest interval"),
    ({"timing": "every 5m", "timezone": "Europe/Berlin"}, "an interval has no time zone"),
    ({"timezone": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'"),
    ({"timezone": "../etc/passwd"}, "there is no time zone '../etc/passwd'"),
    ({"overlap": "maybe"}, "allowed are skip, queue, replace, allow"),
    ({"missed": "some"}, "allowed are none, one, all"),
    ({"name": ""}, "name = '' is not allowed"),
    ({"name": "n" * 151}, "the length of the name = 151 is not allowed"),
    ({"work": Work(task="t", key="k")}, "the work of a schedule has no key"),
    ({"work": Work(task="t", delay_us=1)}, "the work of a schedule has no delay_us"),
    ({"work": Work(task="")}, "task = '' is not allowed"),
    ({"work": Work(task="t", labels="[]")}, "the labels of a schedule's work are a JSON object"),
    ({"work": Work(task="t", lifecycle="workflow_run"), "overlap": "queue"}, "for work that workers claim"),
]


def test_a_definition_that_could_never_be_kept_is_refused(noon: World) -> None:
    for facts, said in REFUSED:
        with pytest.raises(InterlockError) as refused:
            define(noon, **facts)  # type: ignore[arg-type]
        assert said in str(refused.value)
    assert noon.count("schedule") == 0


@pytest.mark.parametrize(
    ("timing", "spelled"),
    [
        ("every 5 minutes", "every 5m"),
        ("every 90 seconds", "every 1m 30s"),
        ("every hour", "every 1h"),
        ("EVERY 1d", "every 1d"),
        ("0  8 * *   mon-fri", "0 8 * * mon-fri"),
    ],
)
def test_spellings(timing: str, spelled: str) -> None:
    assert cron.normalize_timing(timing, "UTC", 0) == spelled


# The clocks of Berlin go forward on 29 March 2026 and back on 25 October 2026.


def local(timing: str, start: datetime, days: int) -> list[str]:
    """The instants of some days as the clocks on the wall say them; they only ever go up, from wherever one starts."""
    first = round(start.timestamp()) * SECOND
    last = first + days * 24 * HOUR * SECOND
    found = cron.find_due(timing, "Europe/Berlin", first, last, 100_000)
    assert found == sorted(set(found))
    for at in range(first, last, 600 * SECOND):
        expected = next((one for one in found if one > at), None)
        assert expected in (None, next(cron.iterate_instants(timing, "Europe/Berlin", at)))
    return [datetime.fromtimestamp(one // SECOND, BERLIN).strftime("%d %H:%M%z")[:-2] for one in found]


FORWARD, BACK = datetime(2026, 3, 28, 12, tzinfo=BERLIN), datetime(2026, 10, 24, 12, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("timing", "start", "expected"),
    [
        ("30 2 * * *", FORWARD, ["29 03:00+02", "30 02:30+02"]),  # right after the hour that is left out
        ("30 2 * * *", BACK, ["25 02:30+02", "26 02:30+01"]),  # once
        ("0,30 2,3 * * *", FORWARD, ["29 03:00+02", "29 03:30+02", *(f"30 {at}+02" for at in ("02:00", "02:30", "03:00", "03:30"))]),
        ("0 8 * * *", FORWARD, ["29 08:00+02", "30 08:00+02"]),  # at eight, whatever became of the night
        ("0 8 * * *", BACK, ["25 08:00+01", "26 08:00+01"]),
    ],
)  # fmt: skip
def test_a_fixed_time_when_the_clocks_change(timing: str, start: datetime, expected: list[str]) -> None:
    assert local(timing, start, 2) == expected


def test_every_hour_when_the_clocks_change() -> None:
    """Twenty-three hours the one day and twenty-five the other; none is left out and none comes twice."""
    forward = local("0 * * * *", datetime(2026, 3, 28, 23, 30, tzinfo=BERLIN), 1)
    assert forward[:4] == ["29 00:00+01", "29 01:00+01", "29 03:00+02", "29 04:00+02"]
    back = local("0 * * * *", datetime(2026, 10, 24, 23, 30, tzinfo=BERLIN), 1)
    assert back[:5] == ["25 00:00+02", "25 01:00+02", "25 02:00+02", "25 02:00+01", "25 03:00+01"]
    assert len(forward) == len(back) == 24


@pytest.mark.parametrize("start", [FORWARD, BACK])
def test_units_when_the_clocks_change(world: World, start: datetime) -> None:
    """Every quarter of an hour for a night, and a fixed time in the hour that is left out or comes twice."""
    world.now_us = round(start.timestamp()) * SECOND
    for name, timing in (("fixed", "30 2 * * *"), ("often", "*/15 * * * *")):
        world.engine.send(
            DefineSchedule(
                name=name, timing=timing, timezone="Europe/Berlin", work=Work(task="report"), overlap="allow"
            )
        )
    for _ in range(24 * 12):
        world.now_us += 300 * SECOND
        world.engine.send(Tick())
    names = [key.partition("@")[0] for key in keys(world)]
    assert (names.count("fixed"), names.count("often")) == (1, 24 * 4)
    assert skips(world, "often") == skips(world, "fixed") == []


# As programs write them.


def test_an_app_says_what_it_does_by_the_clock(tmp_path: Path) -> None:
    with interlock.open(f"sqlite:///{tmp_path / 'work.db'}") as app:

        @app.every("0 8 * * MON-FRI", timezone="Europe/Berlin", arguments={"to": "a@b.c"})
        @app.task(queue="mail")
        def send(to: str) -> str:
            return to

        @app.every(timedelta(minutes=90), overlap="queue", missed="all", queue="slow")
        def tidy() -> None: ...

        app.every("5 minutes", name="often", arguments={"to": "b"})(send)
        assert send("x") == "x"
        assert [planned.changed for planned in app.schedules.define()] == [True] * 3
        assert [planned.changed for planned in app.schedules.define()] == [False] * 3
        found = {one.name: one for one in app.schedules.stored()}
        assert {name: one.timing for name, one in found.items()} == {
            "often": "every 5m", "send": "0 8 * * MON-FRI", "tidy": "every 1h 30m",
        }  # fmt: skip
        assert '"queue":"slow"' in found["tidy"].work
        job = app.schedules.trigger("send")
        assert job.look().lifecycle == "job"
        assert app.schedules.pause("send", reason="why not").paused
        (paused,) = [one for one in app.schedules.stored() if one.name == "send"]
        assert "paused by local" in explain_pause(paused)
        assert app.read(explain_schedule, "send") == explain_pause(paused)
        assert "waits for its next instant" in app.read(explain_schedule, "often")
        assert not app.schedules.unpause("send").paused
        assert app.schedules.pause("send").paused
        assert not app.schedules.resume("send").paused
        assert app.schedules.skipped("send") == []


def test_what_an_app_says_wrongly_is_told_where_it_is_written(tmp_path: Path) -> None:
    with interlock.open(f"sqlite:///{tmp_path / 'work.db'}") as app:

        @app.task
        def send(to: str) -> None: ...

        with pytest.raises(InterlockError, match=r"task 'send'.*to"):
            app.every("5m")(send)
        with pytest.raises(InterlockError, match="has its rules already"):
            app.every("5m", queue="q", arguments={"to": "x"})(send)
        app.every("5m", arguments={"to": "x"})(send)
        with pytest.raises(InterlockError, match="a schedule 'send' already"):
            app.every("6m", arguments={"to": "x"})(send)
        app.every("0 0 0 0 0", name="never", arguments={"to": "x"})(send)
        with pytest.raises(InterlockError, match="timing = '0 0 0 0 0' is not allowed"):
            app.schedules.define()


def test_a_worker_defines_the_schedules_of_its_app_and_does_them(tmp_path: Path) -> None:
    done = []
    with interlock.open(f"sqlite:///{tmp_path / 'work.db'}") as app:

        @app.every("1s", arguments={"to": "x"}, missed="all", overlap="allow")
        def send(to: str) -> None:
            done.append(to)

        async def until_done() -> None:
            worker = Worker(app, {"default": 2})
            running = asyncio.create_task(worker.run())
            async with asyncio.timeout(30):
                while len(done) < 2:
                    await asyncio.sleep(0.02)
            worker.stop()
            await running

        asyncio.run(until_done())
