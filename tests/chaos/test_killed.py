"""Worker processes are killed at random during many mixed jobs; everything ends, once, and the record is whole."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import psycopg
import pytest

import interlock
from interlock.audit.laws import audit
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Event
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_histories
from interlock.store.queries.views import count_by, workers_seen
from tests.chaos.tasks import KINDS, made
from tests.conftest import ROOT
from tests.store.databases import fresh_postgres, swap

WORKERS, HURRY = 3, 40
LEASE = 40.0  # seconds, of a job that nobody hurries
CALM = 10  # how much a soak is hurried: its workers share a machine with whatever else runs there
HOW = ("holder", "kill", "pause", "kill", "holder")  # and round again
HOW_ON_A_SERVER = ("holder", "cut", "kill", "pause", "cut", "kill")
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND datname = %s"
PATIENCE = 240.0
LIVE = ("GRANTED", "ACTIVE")


@pytest.fixture(params=["sqlite file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_postgres(server, f"chaos{abs(hash(tmp_path))}") as one:
            yield one
    else:
        yield f"sqlite:///{tmp_path}/work.db"


class Crew:
    """Worker processes, of which some are killed or held up."""

    def __init__(
        self,
        app: interlock.App,
        dice: random.Random,
        stack: ExitStack,
        workers: int = WORKERS,
        hurry: int = HURRY,
        server: str = "",
    ) -> None:
        self.app, self.dice, self.number, self.hurry, self.server = app, dice, 0, hurry, server
        self.killed: dict[str, float] = {}  # when
        self.alive: dict[str, subprocess.Popen[bytes]] = {}
        self.log = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        stack.callback(self.end)
        for _ in range(workers):
            self.hire()

    def hire(self) -> None:
        self.number += 1
        name = f"w{self.number}"
        command = [sys.executable, "-m", "tests.chaos.tasks", self.app.url, str(self.hurry), name]
        env = {**os.environ, "PGAPPNAME": name}
        self.alive[name] = subprocess.Popen(command, cwd=ROOT, stderr=self.log, env=env)

    def strike(self, how: str) -> None:
        """One of them is killed and replaced, loses its connections, or only stops for a while and is back too late.

        It always comes back: on SQLite it may have stopped inside a transaction, and then nobody else can write.
        """
        name = self.caught() if how == "holder" else self.dice.choice(sorted(self.alive))
        if how == "pause":
            self.alive[name].send_signal(signal.SIGSTOP)
            time.sleep(LEASE / self.hurry * 1.5)
            self.alive[name].send_signal(signal.SIGCONT)
        elif how == "cut":
            with psycopg.connect(self.server, autocommit=True) as owner:
                owner.execute(CUT, [name, owner.info.dbname])
        else:
            self.kill(name)
            self.hire()

    def caught(self) -> str:
        """Somebody who was stopped while holding something; anybody, once there is nothing left to hold."""
        while True:
            name = self.dice.choice(sorted(self.alive))
            self.alive[name].send_signal(signal.SIGSTOP)
            if any(worker.holding for worker, _ in self.app.read(workers_seen) if worker.name == name):
                return name
            if not unsettled(self.app):
                return name
            self.alive[name].send_signal(signal.SIGCONT)
            time.sleep(0.01)
            assert self.sound()

    def sound(self) -> bool:
        """Nobody has ended by themselves."""
        size = os.fstat(self.log.fileno()).st_size
        text = os.pread(self.log.fileno(), 4_000, max(0, size - 4_000)).decode(errors="replace")  # they share its place
        assert [one.poll() for one in self.alive.values()] == [None] * len(self.alive), text
        return True

    def kill(self, name: str) -> None:
        victim = self.alive.pop(name)
        victim.kill()
        victim.wait()
        self.killed[name] = time.time()

    def end(self) -> None:
        for name in list(self.alive):
            self.kill(name)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.02)


def unsettled(app: interlock.App) -> int:
    """How many jobs have not ended."""
    rows = app.read(count_by, ("lifecycle", "outcome"))
    return sum(count for lifecycle, outcome, count in rows if lifecycle == "job" and outcome is None)


def chaos(url: str, seed: int, jobs: int, strikes: int, *, workers: int = WORKERS, server: str = "") -> None:
    """A whole run: the crew is struck when so many jobs have ended, and in the end every promise is asked."""
    dice = random.Random(seed)
    how, hurry = (HOW_ON_A_SERVER, CALM) if server else (HOW, HURRY)
    with ExitStack() as stack:
        app = stack.enter_context(made(url, hurry))
        numbers = list(range(jobs))
        dice.shuffle(numbers)
        for name in KINDS:
            app.tasks[name].submit_many([{"n": n} for n in numbers if n % len(KINDS) == KINDS.index(name)])
        if server:
            stack.enter_context(old_snapshot(url))
        crew = Crew(app, dice, stack, workers, hurry, server)
        for place, point in enumerate(sorted(dice.sample(range(jobs * 9 // 10), strikes))):
            until(lambda point=point: crew.sound() and unsettled(app) <= jobs - point)  # type: ignore[misc]
            time.sleep(dice.random() * 0.05)  # somewhere within what goes on then
            crew.strike(how[place % len(how)])
        until(lambda: crew.sound() and not unsettled(app))
        app.read(lambda connection, tenant: judge(connection, app, jobs))
        times = app.read(lambda connection, tenant: sorted(recoveries(connection, crew.killed)))
        print(
            f"\n{jobs} jobs, {strikes} strikes: {len(times)} jobs of killed workers were free again after "
            f"{times[len(times) // 2]:.1f} s, the last after {times[-1]:.1f} s; a lease lasts {LEASE / hurry:.0f} s"
        )


@contextmanager
def old_snapshot(url: str) -> Iterator[None]:
    """Somebody reads from one picture of the database all the time: nothing that it needs can be cleaned up."""
    seen = "SELECT id, version, act FROM unit ORDER BY id"
    with psycopg.connect(url, application_name="old snapshot") as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        reader.execute("SELECT set_config('app.tenants', '{1}', true)")
        first = reader.execute(seen).fetchall()
        yield
        assert first
        assert reader.execute(seen).fetchall() == first


def recoveries(connection: Connection, killed: dict[str, float]) -> Iterator[float]:
    """For each job of a killed worker, how many seconds later it was free again."""
    for unit, events in read_histories(connection):
        worker = ""
        for event in events if unit.lifecycle == "job" else ():
            if event.trigger == "claim":
                worker = msgspec.json.decode(event.payload)["worker"]
            elif event.trigger == "lost" and worker in killed and event.at / 1_000_000 > killed[worker]:
                yield event.at / 1_000_000 - killed[worker]


def judge(connection: Connection, app: interlock.App, jobs: int) -> None:
    assert list(audit(connection, app.lifecycles, rebuild=True)) == []  # every row is the sum of its events, and more
    tasks = dict(connection.rows("SELECT unit, task FROM body"))
    found = [(unit, list(events)) for unit, events in read_histories(connection) if unit.lifecycle == "job"]
    assert len(found) == jobs
    for unit, events in found:
        wanted = {"refused": Category.FAILURE, "broken": Category.DEAD}.get(tasks[unit.id], Category.SUCCESS)
        assert (unit.outcome, app.lifecycles["job"].settled(unit.state)) == (wanted, True)
        assert forward(app.lifecycles["job"], events), events
        assert apart(events), events
    lost = [event for _, events in found for event in events if event.trigger == "lost"]
    assert lost, "nobody held anything when they were killed"


def forward(lifecycle: Lifecycle, events: list[Event]) -> bool:
    """No attempt goes back."""
    order = [Category.READY, Category.HELD, Category.ACTIVE]
    last: dict[int, int] = {}
    for event in events:
        if event.source != event.target:
            category = lifecycle.category(event.target)
            rank = order.index(category) if category in order else len(order)
            if rank <= last.get(event.attempt, -1):
                return False
            last[event.attempt] = rank
    return True


def apart(events: list[Event]) -> bool:
    """The times of a unit's leases do not overlap: each is over before the next is granted, under a higher fence."""
    spans: list[tuple[int, int, int]] = []  # fence, from, until
    since = None
    for event in events:
        if event.lease_to in LIVE and event.lease_from not in LIVE:
            if since is not None:
                return False  # granted while another one is live
            since = event.at
        elif event.lease_from in LIVE and event.lease_to not in LIVE:
            assert since is not None
            spans.append((event.fence, since, event.at))
            since = None
    ordered = all(one[2] <= two[1] and one[0] < two[0] for one, two in pairwise(spans))
    return since is None and ordered


@pytest.mark.req("R2-02", "R2-44", "R2-45")
def test_kills_at_random_points_lose_nothing_and_do_nothing_twice(url: str) -> None:
    chaos(url, seed=2, jobs=300, strikes=8)


@pytest.fixture
def place(tmp_path: Path, server: str) -> Iterator[tuple[str, str]]:
    """A database on a server, and how its owner comes to it."""
    name = f"soak{abs(hash(tmp_path))}"
    with fresh_postgres(server, name) as url:
        yield url, swap(server, name)


def test_kills_freezes_and_cuts_under_an_old_snapshot(place: tuple[str, str]) -> None:
    chaos(place[0], seed=4, jobs=3_000, strikes=30, workers=4, server=place[1])


@pytest.mark.proof
def test_two_hundred_kills_freezes_and_cuts_of_twenty_thousand_jobs(place: tuple[str, str]) -> None:
    chaos(place[0], seed=5, jobs=20_000, strikes=200, workers=4, server=place[1])


@pytest.mark.proof
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kills_at_random_points_of_two_thousand_jobs(url: str, seed: int) -> None:
    chaos(url, seed=seed, jobs=2_000, strikes=40)


def test_two_leases_at_a_time_would_be_seen() -> None:
    def event(version: int, fence: int, at: int, before: str | None, after: str) -> Event:
        facts = {"unit": 1, "version": version, "fence": fence, "at": at, "lease_from": before, "lease_to": after}
        rest = dict.fromkeys(set(Event.__struct_fields__) - set(facts), "")
        return Event(**facts, **rest)  # type: ignore[arg-type]

    first, end = event(1, 1, 10, None, "GRANTED"), event(2, 1, 20, "GRANTED", "EXPIRED")
    again, over = event(3, 2, 20, "EXPIRED", "GRANTED"), event(4, 2, 30, "ACTIVE", "COMPLETED")
    assert apart([first, end, again, over])
    assert not apart([first, again, end, over])
    assert not apart([first, end, event(3, 2, 19, "EXPIRED", "GRANTED"), over])
    assert not apart([first, end, again])
