"""Whoever waits for work is woken when there is some: in the same engine, in another one, and in another process."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.core.wakeups import Subscription, Wakeup, WakeupHub
from interlock.kernel.commands import Cancel, Claim, Register, Release, Submit, Tick, Work
from interlock.kernel.errors import Unavailable
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store.postgres import PostgresConnection
from interlock.store.postgres.wakeups import Notify
from tests.conftest import ROOT
from tests.core.test_engine import PATIENCE, kill, until
from tests.engine.world import World, held
from tests.store.databases import fresh_postgres, swap


@pytest.fixture(params=["sqlite file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_postgres(server, "watched") as url:
            yield url
        return
    yield f"sqlite:///{tmp_path}/work.db"


def submit(queue: str = "default", **facts: object) -> Submit:
    return Submit(work=(Work(task="a", queue=queue, **facts),))  # type: ignore[arg-type]


def woken(watch: Subscription) -> bool:
    """Whether it is woken, however long that takes."""
    return watch.wait(PATIENCE)


def test_a_waiter_in_the_same_engine_is_woken(world: World) -> None:
    with world.engine.watch(["default", "other"]) as watch:
        assert not watch.wait(0)
        world.submit()
        assert watch.wait(0)
        assert not watch.wait(0)  # once for each time
        world.submit(queue="other")
        world.submit(queue="other")
        assert watch.wait(0)
        world.submit(queue="third")
        assert not watch.wait(0)
        world.send(Submit(tenant=2, work=(Work(task="theirs"),)))
        assert not watch.wait(0)
    world.submit()
    assert not watch.wait(0)  # it has left


def test_only_what_became_available_wakes(world: World) -> None:
    worker = world.worker()
    with world.engine.watch(["default"]) as watch:
        one = world.submit()
        (grant,) = world.claim(worker)
        assert watch.wait(0)
        world.start(grant)
        world.beat(grant)
        world.claim(worker)  # there is nothing
        assert not watch.wait(0)
        world.release(grant)
        assert watch.wait(0)
        world.cancel(one)
        assert not watch.wait(0)


def test_what_is_due_later_wakes_when_the_clock_says_so(world: World) -> None:
    with world.engine.watch(["default"]) as watch:
        world.submit(delay_us=5_000_000)
        world.tick()
        assert not watch.wait(0)
        world.pass_time(6)
        world.tick()
        assert watch.wait(0)


def test_what_was_taken_in_the_same_group_wakes_nobody(world: World) -> None:
    worker = world.worker()
    door = world.engine.committer
    with world.engine.watch(["default"]) as watch:
        futures = [door.put(submit()), door.put(Claim(worker=worker, key="k", nonce="n" * 16))]
        door.step()
        assert len(futures[1].result()) == 1
        assert not watch.wait(0)


def test_a_waiter_in_another_engine_is_woken(url: str) -> None:
    with open_engine(url, shipped()) as here, open_engine(url, shipped()) as there:
        worker = here.send(Register(name="w", incarnation="1", capacity=9))
        with here.watch(["default"]) as watch, here.watch(["other"]) as other:
            for place in range(3):
                there.send(submit())
                assert woken(watch)
                (grant,) = here.send(Claim(worker=worker, key=f"{place}", nonce="n" * 16))
            there.send(Release(held=(held(grant),)))
            assert woken(watch)
            there.send(submit("other"))
            assert woken(other)


def test_a_waiter_in_another_engine_waits_for_the_clock(url: str) -> None:
    with open_engine(url, shipped()) as here, open_engine(url, shipped()) as there, here.watch(["default"]) as watch:
        there.send(submit(delay_us=1))
        until(lambda: there.send(Tick()))
        assert woken(watch)


def test_idle_claims_wake_nobody(url: str) -> None:
    """Else two processes with nothing to do would wake each other for ever."""
    with open_engine(url, shipped()) as here, open_engine(url, shipped()) as there:
        worker = there.send(Register(name="w", incarnation="1", capacity=9))
        with here.watch(["default"]) as watch, here.watch(["mark"]) as mark:
            for place in range(5):
                assert there.send(Claim(worker=worker, key=f"{place}", nonce="n" * 16)) == []
            there.send(submit("mark"))
            assert woken(mark)
            assert not watch.wait(0)


def test_work_that_waits_already_is_not_told_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    with open_engine(url, shipped()) as here, open_engine(url, shipped()) as there:
        old = there.send(submit(priority=1))[0].unit
        with here.watch(["default"]) as watch, here.watch(["mark"]) as mark:
            there.send(submit("mark"))
            assert woken(mark)
            assert not watch.wait(0)
            there.send(submit(priority=2))
            assert woken(watch)
            there.send(Cancel(unit=old))


OTHER = """
import sys
from interlock.plugins import open_engine
from interlock.lifecycles import shipped
with open_engine(sys.argv[1], shipped()) as engine, engine.watch(["default"]) as watch:
    print("waiting", flush=True)
    print("woken" if watch.wait(60) else "not woken", flush=True)
"""


def test_a_waiter_in_another_process_is_woken(url: str) -> None:
    with open_engine(url, shipped()) as engine:
        command = [sys.executable, "-c", OTHER, url]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout
            assert other.stdout.readline() == "waiting\n"
            engine.send(submit())
            assert other.stdout.readline() == "woken\n"
            assert other.wait(PATIENCE) == 0


def test_a_wait_alone_is_a_watch_for_once(url: str) -> None:
    with open_engine(url, shipped()) as engine:
        assert not engine.wait(["default"], 0)


def test_lost_lines_are_mended(server: str) -> None:
    with (
        fresh_postgres(server, "mended") as url,
        open_engine(url, shipped()) as here,
        open_engine(url, shipped()) as there,
    ):
        admin = PostgresConnection(swap(server, "mended"))
        with here.watch(["default"]) as watch:
            there.send(submit())
            assert woken(watch)
            kill(admin)
            assert woken(watch)  # something may have been missed
            there.send(submit())
            there.send(submit())  # the first may have been told on a dead line
            assert woken(watch)
        admin.close()


def test_in_a_quiet_moment_the_commit_tells(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it is told after the commit, by whoever has nothing else to do."""
    with (
        fresh_postgres(server, "quiet") as url,
        open_engine(url, shipped()) as here,
        open_engine(url, shipped()) as there,
        here.watch(["default"]) as watch,
    ):
        wire, told = there.wakeups.channel, list[object]()
        assert isinstance(wire, Notify)
        monkeypatch.setattr(wire, "tell", told.append)
        there.send(submit())
        assert woken(watch)
        assert told == []
        wire.quiet_at = time.monotonic() + PATIENCE
        there.send(submit())
        until(lambda: told == [{(1, "default")}])
        assert not watch.wait(0)


def test_what_is_undone_is_not_told(server: str) -> None:
    with (
        fresh_postgres(server, "undone") as url,
        open_engine(url, shipped()) as here,
        open_engine(url, shipped()) as there,
        here.watch(["default"]) as watch,
        here.watch(["mark"]) as mark,
    ):
        wire = there.wakeups.channel
        assert wire
        connection = there.committer.connection
        with there.committer.alone:
            connection.begin([1])
            assert wire.tell_within(connection, [(1, "default")])
            connection.rollback()
        there.send(submit("mark"))
        assert woken(mark)
        assert not watch.wait(0)


class Mute:
    """A wire on which nothing can be said."""

    tells = True

    def tell(self, queues: object) -> None:
        raise Unavailable("no line")

    def tell_within(self, connection: object, queues: object) -> None:
        raise Unavailable("no line")

    def tell_with(self, connection: object, queues: object) -> None:
        raise Unavailable("no line")

    def listen(self, queues: object) -> None:
        raise Unavailable("no line")

    def heard(self, watched: object, timeout: float) -> set[tuple[int, str]]:
        raise Unavailable("no line")

    def close(self) -> None:
        pass


def test_a_dead_channel_costs_a_poll_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    hub = WakeupHub(Mute())
    with hub.watch([(1, "default")]) as watch:
        hub.send(Wakeup({}, {(1, "default")}))
        assert watch.wait(0)
    hub.close()
    assert "wake-up channel failed, falling back to polling: error=no line" in caplog.text
    assert "wake-up not sent to other processes: queues=1 error=no line" in caplog.text


def test_thousands_of_queues_are_told_as_all(server: str) -> None:
    with (
        fresh_postgres(server, "many") as url,
        open_engine(url, shipped()) as here,
        open_engine(url, shipped()) as there,
        here.watch(["q1999"]) as watch,
    ):
        there.send(Submit(work=tuple(Work(task="a", queue=f"q{number}") for number in range(2_000))))
        assert woken(watch)
