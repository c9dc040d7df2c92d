"""Sixty-four claimers race for one job, round after round: one of them wins, on both databases.

As threads they share four engines, each with a connection and a runner of its own; as processes they share nothing.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store import migrate
from interlock.store.postgres import PostgresConnection
from interlock.store.sqlite import SqliteConnection
from tests.conftest import ROOT
from tests.engine.racers import Race
from tests.store.databases import Connection, declare, fresh_postgres

CLAIMERS, ENGINES = 64, 4
Winners = Callable[[], list[int]]


@pytest.fixture(params=["sqlite file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    """A fresh database that many may open."""
    if request.param == "postgres":
        with fresh_postgres(server, f"claimers{abs(hash(tmp_path))}") as one:
            yield one
        return
    path = tmp_path / "work.db"
    first = SqliteConnection(str(path))
    migrate.upgrade(first, shipped().values())
    first.close()
    yield f"sqlite:///{path}"


def opened(url: str) -> Connection:
    return SqliteConnection(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else PostgresConnection(url)


@contextmanager
def threads(url: str) -> Iterator[Winners]:
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(opened(url))) for _ in range(ENGINES)]
        race = Race([make_engine(connection, shipped()) for connection in connections], CLAIMERS)
        stack.callback(race.end)
        yield race.round


class Racers:
    """A process of claimers."""

    def __init__(self, url: str, first: int, number: int) -> None:
        command = [sys.executable, "-m", "tests.engine.racers", url, str(first), str(number)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"a process of claimers has ended with {self.process.wait()}"
        return line

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> None:
        with self.process:  # closes its pipes, and waits
            assert self.process.stdin
            self.process.stdin.close()


@contextmanager
def processes(url: str, number: int) -> Iterator[Winners]:
    with ExitStack() as stack:
        share = CLAIMERS // number
        racers = [Racers(url, place * share, share) for place in range(number)]
        for one in racers:
            stack.callback(one.end)
        for one in racers:
            assert one.hear() == "ready\n"

        def winners() -> list[int]:
            for one in racers:
                one.go()
            return [unit for one in racers for unit in msgspec.json.decode(one.hear(), type=list[int])]

        yield winners


def race(url: str, winners: Winners, rounds: int) -> None:
    """In every round one job is there, and won once."""
    with closing(opened(url)) as connection:
        engine = make_engine(connection, shipped())
        for place in range(rounds):
            (job,) = engine.send(Submit(work=(Work(task="prize"),)))
            assert winners() == [job.unit], f"round {place}"
        declare(connection, 1)
        assert list(audit(connection, shipped())) == []


@pytest.mark.req("R2-01", "R2-40")
def test_one_of_sixty_four_threads_wins(url: str) -> None:
    with threads(url) as winners:
        race(url, winners, rounds=100)


@pytest.mark.req("R2-01", "R2-40")
def test_one_of_sixty_four_in_eight_processes_wins(url: str) -> None:
    with processes(url, number=8) as winners:
        race(url, winners, rounds=100)


@pytest.mark.proof
def test_one_of_sixty_four_threads_wins_a_thousand_times(url: str) -> None:
    with threads(url) as winners:
        race(url, winners, rounds=1_000)


@pytest.mark.proof
def test_one_of_sixty_four_in_eight_processes_wins_a_thousand_times(url: str) -> None:
    with processes(url, number=8) as winners:
        race(url, winners, rounds=1_000)


@pytest.mark.proof
def test_one_of_sixty_four_processes_wins(url: str) -> None:
    with processes(url, number=CLAIMERS) as winners:
        race(url, winners, rounds=100)
