"""Sixty-four claimers race for one job, round after round: one of them wins, on both databases.

They share four engines, each with a connection and a runner of its own, as the threads of four processes would.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.audit.laws import audit
from interlock.engine.door import Engine, Runner
from interlock.kernel.commands import Claim, Finish, Grant, Outcome, Register, Start, Submit, Work
from interlock.lifecycles import shipped
from interlock.store import migrate, postgres, sqlite
from tests.contract.world import held
from tests.store.databases import Connection, declare, fresh_postgres

CLAIMERS, ENGINES = 64, 4
Connect = Callable[[], Connection]


@pytest.fixture(params=["sqlite file", "postgres"])
def connect(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Connect]:
    """Opens one connection after another to the same database."""
    if request.param == "postgres":
        with fresh_postgres(server, "claimers") as url:
            yield lambda: postgres.Connection(url)
        return
    path = str(tmp_path / "work.db")
    first = sqlite.Connection(path)
    migrate.upgrade(first, shipped().values())
    first.close()
    yield lambda: sqlite.Connection(path)


class Racer(threading.Thread):
    """A worker in a thread of its own."""

    def __init__(self, number: int, engine: Engine, rounds: int, gate: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self.number, self.engine, self.rounds, self.gate = number, engine, rounds, gate
        self.won: list[list[Grant]] = []
        self.worker = self.engine.send(Register(name=f"w{number}", incarnation="1", capacity=10_000))

    def run(self) -> None:
        for place in range(self.rounds):
            self.gate.wait()
            name = f"{self.number}-{place}"
            try:
                self.won.append(self.engine.send(Claim(worker=self.worker, key=name, nonce=name)))
                for grant in self.won[-1]:  # or its lease would end, and it would rightly be won again
                    self.engine.send(Start(held=(held(grant),)))
                    self.engine.send(Finish(outcomes=(Outcome(held=held(grant)),)))
            finally:
                self.gate.wait()


def race(connect: Connect, rounds: int) -> None:
    gate = threading.Barrier(CLAIMERS + 1)
    connections = [connect() for _ in range(ENGINES + 1)]
    engine, *engines = [Engine(connection, shipped()) for connection in connections]
    runners = [Runner(one) for one in engines]
    racers = [Racer(number, engines[number % ENGINES], rounds, gate) for number in range(CLAIMERS)]
    jobs: list[int] = []
    for racer in racers:
        racer.start()
    for _ in range(rounds):
        jobs.append(engine.send(Submit(work=(Work(task="prize"),)))[0].unit)
        gate.wait()  # all claim at once
        gate.wait()  # all have claimed
    for racer in racers:
        racer.join()
    for place, job in enumerate(jobs):
        winners = [grant.unit for racer in racers for grant in racer.won[place]]
        assert winners == [job], f"round {place}"
    for runner in runners:
        runner.stop()
    declare(connections[0], 1)
    assert list(audit(connections[0], shipped())) == []
    for connection in connections:
        connection.close()


def test_one_of_sixty_four_wins(connect: Connect) -> None:
    race(connect, rounds=100)


@pytest.mark.proof
def test_one_of_sixty_four_wins_a_thousand_times(connect: Connect) -> None:
    race(connect, rounds=1_000)
