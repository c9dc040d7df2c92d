"""A thousand jobs that fail, are cancelled, released, snoozed, buried and lost: one event for each change of state.

The changes are counted by whoever looks at the rows before and after every command, and by nobody else.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import (
    PERMANENT,
    Bury,
    Cancel,
    Claim,
    Command,
    Finish,
    LeaseGrant,
    Outcome,
    Release,
    Start,
    Submit,
    Tick,
    Work,
)
from interlock.lifecycles import shipped
from tests.engine.world import SECOND, World, held
from tests.store.databases import declare

JOBS = 1_000
A = TypeVar("A")


class Watch:
    """Sees the state of every job before and after each command, and counts what has changed."""

    def __init__(self, world: World) -> None:
        self.world, self.changes = world, 0
        self.states: dict[int, str] = {}

    def send(self, command: Command[A]) -> A:
        answer = self.world.engine.send(command)
        declare(self.world.connection, 1)
        now = dict(self.world.connection.rows("SELECT id, state FROM unit WHERE lifecycle = 'job'"))
        self.changes += sum(now[one] != state for one, state in self.states.items())
        self.states = now
        return answer


class Load:
    """Workers, people and time, at random from a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.watch, self.random = world, Watch(world), random.Random(seed)
        self.workers = [world.worker(name, capacity=JOBS) for name in "abc"]
        self.grants: list[LeaseGrant] = []

    def submit(self) -> None:
        work = [
            Work(
                task="load",
                attempts=self.random.choice((1, 2, 3)),
                exhausted=self.random.choice((None, "fail")),
                timeout_us=self.random.choice((None, 15 * SECOND)),
            )
            for _ in range(JOBS)
        ]
        self.watch.send(Submit(work=tuple(work)))
        assert len(self.watch.states) == JOBS

    def claim(self) -> None:
        self.watch.send(
            Tick(limit=2 * JOBS)
        )  # or the claim would end a lease and grant the next, two changes seen as one
        for worker in self.workers:
            name = f"{worker}-{self.world.now_us}"
            self.grants += self.watch.send(Claim(worker=worker, key=name, nonce=f"{name:0>16}", limit=150))

    def some(self, share: float) -> list[LeaseGrant]:
        """Some of the grants, also of those whose lease is over: what they say then must change nothing."""
        return [grant for grant in self.grants if self.random.random() < share]

    def start(self) -> None:
        self.watch.send(Start(held=tuple(map(held, self.some(0.7)))))

    def speak(self) -> None:
        for ended in ("success", "failure", "cancelled"):
            self.finish(self.some(0.15), ended=ended)
        self.finish(self.some(0.15), ended="failure", error_class=PERMANENT)
        self.watch.send(Release(held=tuple(map(held, self.some(0.1)))))
        self.watch.send(Release(held=tuple(map(held, self.some(0.1))), snooze_us=SECOND))

    def finish(self, grants: Sequence[LeaseGrant], **facts: Any) -> None:
        self.watch.send(Finish(outcomes=tuple(Outcome(held=held(grant), **facts) for grant in grants)))

    def interfere(self) -> None:
        """People cancel softly and hard, and bury."""
        orders: list[Callable[[int], Command[Any]]] = [
            lambda unit: Cancel(unit=unit),
            lambda unit: Cancel(unit=unit, hard=True),
            lambda unit: Bury(unit=unit, reason="policy_violation"),
        ]
        open_ones = [one for one, state in self.watch.states.items() if state in ("queued", "assigned", "running")]
        for unit in self.random.sample(open_ones, k=min(24, len(open_ones))):
            self.watch.send(self.random.choice(orders)(unit))

    def finish_all(self) -> None:
        """What is left is done, so that every job has an end."""
        while any(state in ("queued", "assigned", "running") for state in self.watch.states.values()):
            self.world.pass_time(130)
            self.claim()
            self.watch.send(Start(held=tuple(map(held, self.grants))))
            self.finish(self.grants)


@pytest.mark.req("R2-19", "R2-46")
def test_a_thousand_jobs_have_one_event_for_each_change(world: World) -> None:
    load = Load(world, seed=46)
    load.submit()
    for wait in (1, 5, 20, 61) * 4:
        load.claim()
        load.start()
        load.interfere()
        load.speak()
        load.grants = load.grants[-400:]
        world.pass_time(wait)
    load.finish_all()

    declare(world.connection, 1)
    events = world.connection.rows("SELECT unit, version, trigger, source, target FROM event WHERE lifecycle = 'job'")
    births = [event for event in events if event[3] is None]
    in_place = [event for event in events if event[3] == event[4]]
    assert len(births) == JOBS
    assert len(events) - len(births) - len(in_place) == load.watch.changes
    assert len({event[:2] for event in events}) == len(events)
    assert {trigger for _, _, trigger, _, _ in events} >= {
        "complete", "fail", "retry", "exhaust", "lost", "release", "snooze", "cancel", "stopped", "bury", "time_out",
    }  # fmt: skip
    assert list(audit(world.connection, shipped())) == []
