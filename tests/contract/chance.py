"""Random commands from a seed: everything that clients, workers, people and operators may do, in any order.

`Force` is left out: it may do what no table lists.
"""

import random
from collections.abc import Iterator
from typing import Any

from interlock.kernel.commands import (
    REASONS,
    Bury,
    Cancel,
    Claim,
    Command,
    Decide,
    Drain,
    Enter,
    Finish,
    Grant,
    Heartbeat,
    Outcome,
    Record,
    Register,
    Release,
    Replay,
    Revoke,
    Start,
    Submit,
    Tick,
    Vote,
    Work,
)
from tests.contract.world import held

VERDICTS = ("approve", "reject", "valid", "invalid", "plan", "report", "resume", "run", "optimize", "correct")
PHASES = ("run", "upload", "correct", "optimize", "check")
WAITS = (0.0,) * 60 + (0.1,) * 20 + (1,) * 10 + (5,) * 6 + (31,) * 2 + (61,) * 2 + (130, 400, 4_000, 23_000)
PLANNED = ("workstream", "ci_run")


class Chance:
    """Draws one command after another; whoever carries them out tells what came of each."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.units: list[int] = []
        self.workers: list[int] = []
        self.grants: list[Grant] = []
        self.plans: list[int] = []
        self.count = 0

    def commands(self, number: int) -> Iterator[tuple[Command[Any], float]]:
        """Commands, each with the seconds that pass before it."""
        for self.count in range(number):
            yield self.draw(), self.random.choice(WAITS)

    def heard(self, command: Command[Any], answer: Any) -> None:
        """Remembers what later commands may speak of."""
        if isinstance(answer, Exception):
            return
        if isinstance(command, Submit):
            self.units += [one.unit for one in answer if one.created]
            if command.work[0].lifecycle in PLANNED and self.random.random() < 0.8:
                self.plans.append(answer[0].unit)
        elif isinstance(command, Replay):
            self.units.append(answer.unit)
        elif isinstance(command, Register):
            self.workers.append(answer)
        elif isinstance(command, Claim):
            self.grants += answer
        self.units, self.workers, self.grants = self.units[-25:], self.workers[-4:], self.grants[-12:]

    def draw(self) -> Command[Any]:
        if not self.workers or self.random.random() < 0.02:
            name = self.random.choice("abc")
            return Register(name=name, incarnation=str(self.count), capacity=self.random.choice((1, 3, 9)))
        if self.plans and self.random.random() < 0.5:
            return Decide(unit=self.plans.pop(0), trigger="plan")
        kinds = [self.submit, self.claim, self.claim, self.speak, self.speak, self.speak, self.people, Tick]
        return self.random.choice(kinds)()

    def submit(self) -> Submit:
        key = self.random.choice((None, None, f"k{self.random.randrange(9)}"))
        attempts = self.random.choice((None, 1, 2))
        simple = Work(
            task="job", key=key, attempts=attempts, priority=self.random.randrange(3), input="1",
            delay_us=self.random.choice((0, 0, 3_000_000)), timeout_us=self.random.choice((None, 4_000_000)),
            exhausted=self.random.choice((None, "fail")),
        )  # fmt: skip
        shapes = [(simple,), self.workflow(), self.workstream(), self.agent(), self.pipeline()]
        return Submit(work=self.random.choice(shapes))

    def workflow(self) -> tuple[Work, ...]:
        reject = self.random.choice((None, "fail"))
        lives = self.random.choices(("step", "approval"), k=self.random.randrange(1, 4))
        run = [Work(task="flow", lifecycle="workflow_run", ref="r")]
        for place, life in enumerate(lives):
            needs = (f"s{place - 1}",) if place else ()
            run.append(
                Work(task=life, lifecycle=life, parent="r", ref=f"s{place}", needs=needs, on_reject=reject, attempts=2)
            )
        return tuple(run)

    def workstream(self) -> tuple[Work, ...]:
        tasks = [Work(task="stream", lifecycle="workstream", ref="w")]
        for place in range(self.random.randrange(1, 4)):
            needs = (f"t{place - 1}",) if place and self.random.random() < 0.5 else ()
            decides = self.random.random() < 0.5
            tasks.append(Work(task="t", lifecycle="task", parent="w", ref=f"t{place}", needs=needs, decides=decides))
        return tuple(tasks)

    def agent(self) -> tuple[Work, ...]:
        return Work(task="goal", lifecycle="agent_run", ref="r"), Work(task="goal", lifecycle="agent_job", parent="r")

    def pipeline(self) -> tuple[Work, ...]:
        jobs = [Work(task="ci", lifecycle="ci_run", ref="r")]
        for place in range(self.random.randrange(1, 3)):
            needs = (f"j{place - 1}",) if place else ()
            jobs.append(Work(task="j", lifecycle="ci_job", parent="r", ref=f"j{place}", needs=needs, attempts=2))
        return tuple(jobs)

    def claim(self) -> Claim:
        worker, name = self.random.choice(self.workers), f"c{self.count}"
        return Claim(worker=worker, key=name, nonce=name, limit=self.random.choice((1, 2, 5)))

    def speak(self) -> Command[Any]:
        if not self.grants:
            return self.claim()
        recent = self.grants[-self.random.choice((2, 4, 12)) :]
        some = self.random.sample(recent, k=min(len(recent), self.random.choice((1, 1, 2))))
        spoken = tuple(map(held, some))
        ended = self.random.choice(("success", "success", "failure", "failure", "cancelled"))
        kind = "TransientError" if self.random.random() < 0.7 else "PermanentError"
        finish = Finish(outcomes=tuple(Outcome(held=one, ended=ended, error_class=kind) for one in spoken))
        return self.random.choice([
            Start(held=spoken), Start(held=spoken), Heartbeat(held=spoken), Heartbeat(held=spoken, running=False),
            finish, finish, finish, Release(held=spoken), Release(held=spoken, snooze_us=2_000_000),
            Enter(held=spoken, phase=self.random.choice(PHASES)), Record(held=spoken, kind="step", name="s", payload="1"),
        ])  # fmt: skip

    def people(self) -> Command[Any]:
        if not self.units:
            return self.submit()
        unit = self.random.choice(self.units)
        near = unit + self.random.choice((0, 0, 0, 1, 2))  # attempts are units that nobody was told of
        decide = Decide(unit=near, trigger=self.random.choice(VERDICTS))
        return self.random.choice([
            decide, decide, decide, decide, decide, Cancel(unit=near, hard=self.random.random() < 0.5),
            Bury(unit=near, reason=self.random.choice(REASONS)), Revoke(unit=near), Replay(unit=unit),
            Vote(unit=near, voter=self.random.choice("xyz"), approve=self.random.random() < 0.7),
            Drain(worker=self.random.choice(self.workers)),
        ])  # fmt: skip
