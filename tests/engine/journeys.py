"""The stories of the simulation, each played by itself in a world where every word of it must be accepted."""

from collections.abc import Callable

from interlock.kernel.commands import (
    PERMANENT,
    Bury,
    Drain,
    Enter,
    LeaseGrant,
    LeaseStatus,
    Rerun,
    SkipTask,
    Submit,
)
from interlock.testing.simulation.random_commands import make_decision
from interlock.testing.simulation.scenarios import PHASES, SECOND, works
from tests.engine.world import World, held


class Journey:
    """One story in a world, in a queue of its own; every word of it must be accepted."""

    grant: LeaseGrant  # the last one

    def __init__(self, world: World, queue: str) -> None:
        self.world, self.queue = world, queue
        self.worker = world.worker(queue)

    def play(self, line: str) -> None:
        made, _, told = line.partition(":")
        self.units = [one.unit for one in self.world.send(Submit(work=tuple(works(made.split(), self.queue))))]
        for word in told.split():
            who, _, verb = word.rpartition(".")
            if verb.isdigit():
                self.world.pass_time(int(verb))
            elif who or not self.speak(verb):
                self.order(self.units[{"run": 0, "2": 2}.get(who, len(self.units) > 1)], verb)

    def order(self, unit: int, verb: str) -> None:
        """What people and operators do to a unit."""
        if verb in ("cancel", "hard"):
            assert self.world.cancel(unit, hard=verb == "hard").applied
        elif verb == "bury":
            self.world.send(Bury(unit=unit, reason="policy_violation"))
        elif verb == "skip":
            self.world.send(SkipTask(unit=unit))
        elif verb == "again":
            self.world.send(Rerun(unit=unit, failed=True))
        else:
            self.world.send(make_decision(self.units[0] if verb == "plan" else unit, verb))

    def speak(self, verb: str) -> bool:
        """Whether it was the worker's word, or the clock's; if so it was heard."""
        world = self.world
        words: dict[str, Callable[[], LeaseStatus]] = {
            "start": lambda: world.start(self.grant),
            "beat": lambda: world.beat(self.grant),
            "complete": lambda: world.finish(self.grant),
            "list": lambda: world.finish(self.grant, result="[]"),
            "fail": lambda: world.finish(self.grant, ended="failure"),
            "break": lambda: world.finish(self.grant, ended="failure", error_class=PERMANENT),
            "stop": lambda: world.finish(self.grant, ended="cancelled"),
            "release": lambda: world.release(self.grant),
            "snooze": lambda: world.release(self.grant, snooze_us=SECOND),
        }
        if verb in PHASES:
            (heard,) = world.send(Enter(held=(held(self.grant),), phase=verb))
            assert heard.accepted, heard
        elif verb in words:
            heard = words[verb]()
            assert heard.accepted, heard
        elif verb == "claim":
            (self.grant,) = world.claim(self.worker, queues=(self.queue,))
        else:
            return self.let_pass(verb)
        return True

    def let_pass(self, verb: str) -> bool:
        """Whether it was time that did something; if so it is done."""
        world = self.world
        if verb == "lose":
            world.now_us = world.unit(self.grant.unit).lease_until or 0
        elif verb == "endure":  # beats until its own clock has run out
            end = world.unit(self.grant.unit).deadline_at or 0
            while world.now_us + 50 * SECOND < end:
                world.pass_time(50)
                assert world.beat(self.grant).accepted
            world.now_us = end
        elif verb == "drain":
            world.send(Drain(worker=self.worker))
            return True
        elif verb != "tick":
            return False
        world.tick()
        return True
