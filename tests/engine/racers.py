"""Workers in threads that all claim at once, round after round; run as a program, a process full of them.

The program says `ready`; at each line from whoever started it, its threads claim, and it says who won what.
"""

import sys
import threading

import msgspec

from interlock.core.engine import Engine
from interlock.kernel.commands import Claim, Finish, LeaseGrant, Outcome, Register, Start
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.url import connect
from tests.engine.world import held


class Racer(threading.Thread):
    """A worker in a thread of its own. One that breaks down breaks the gate, so that nobody waits for it."""

    def __init__(self, number: int, engine: Engine, gate: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self.number, self.engine, self.gate = number, engine, gate
        self.won: list[list[LeaseGrant]] = []
        self.error: BaseException | None = None
        self.worker = self.engine.send(Register(name=f"w{number}", incarnation="1", capacity=10_000))

    def run(self) -> None:
        try:
            while True:
                self.gate.wait()
                self.claim()
                self.gate.wait()
        except threading.BrokenBarrierError:
            return  # the race is over
        except BaseException as error:
            self.error = error
            self.gate.abort()

    def claim(self) -> None:
        name = f"{self.number}-{len(self.won)}"
        self.won.append(self.engine.send(Claim(worker=self.worker, key=name, nonce=f"{name:0>16}")))
        for grant in self.won[-1]:  # or its lease would end, and it would rightly be won again
            self.engine.send(Start(held=(held(grant),)))
            self.engine.send(Finish(outcomes=(Outcome(held=held(grant)),)))


class Race:
    """Racers behind one gate, spread over engines with threads of their own."""

    def __init__(self, engines: list[Engine], racers: int, first: int = 0) -> None:
        self.engines = engines
        for engine in engines:
            engine.start_threads()
        self.gate = threading.Barrier(racers + 1)
        self.racers = [Racer(first + place, engines[place % len(engines)], self.gate) for place in range(racers)]
        for racer in self.racers:
            racer.start()

    def round(self) -> list[int]:
        """All have claimed; the units that were won."""
        try:
            self.gate.wait()  # all claim at once
            self.gate.wait()  # all have claimed
        except threading.BrokenBarrierError:
            for racer in self.racers:
                racer.join()
            raise next((racer.error for racer in self.racers if racer.error), None) or AssertionError from None
        return [grant.unit for racer in self.racers for grant in racer.won[-1]]

    def end(self) -> None:
        self.gate.abort()
        for racer in self.racers:
            racer.join()
        for engine in self.engines:
            engine.stop_threads()


def main(url: str, first: int, racers: int) -> None:
    connection = connect(url)
    race = Race([make_engine(connection, shipped())], racers, first)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(msgspec.json.encode(race.round()).decode(), flush=True)
    race.end()
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
