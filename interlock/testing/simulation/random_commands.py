"""Random commands from a seed: anything that clients, workers, people and operators may send, in any order.

`Force` is left out: it may do what no table lists.
"""

import random
from collections.abc import Callable, Iterator
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
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Record,
    Register,
    Release,
    Requeue,
    Rerun,
    Revoke,
    Start,
    Submit,
    Tick,
    Vote,
    Work,
)
from interlock.kernel.lifecycle import Owner
from interlock.lifecycles import shipped

SECOND = 1_000_000
PEOPLE = (Owner.PERSON, Owner.VALIDATOR, Owner.REPORTER)
VERDICTS = {
    lifecycle.name: sorted({move.trigger for move in lifecycle.moves.values() if move.source and move.owner in PEOPLE})
    for lifecycle in shipped().values()
}
PHASES = {"goal": ("run", "correct", "optimize", "check"), "ci": ("run", "upload"), "": ("upload", "check")}
WAITS = (0.0,) * 60 + (0.1,) * 20 + (1,) * 10 + (5,) * 6 + (31,) * 3 + (61,) * 2 + (130, 400, 4_000, 23_000)
PLANNED = ("workstream", "ci_run")
ROUTES = {"ci": ("start", "beat", "upload"), "goal": ("start", "check"), "t": ("finish",)}  # what goes well, by task


def make_decision(unit: int, trigger: str) -> Decide:
    """A decision as people send it: a resume has a name and a reason."""
    if trigger == "resume":
        return Decide(unit=unit, trigger=trigger, actor="ann", reason="she looked at it")
    return Decide(unit=unit, trigger=trigger)


class Chance:
    """Draws one command after another; whoever carries them out tells what came of each."""

    def __init__(self, seed: int, tag: str = "") -> None:
        """`tag` keeps the names of its workers and claims apart from those of another one."""
        self.random, self.tag = random.Random(seed), tag
        self.units: dict[int, str] = {}  # with their lifecycles
        self.workers: list[int] = []
        self.grants: list[LeaseGrant] = []
        self.plans: list[int] = []
        self.gone: dict[LeaseGrant, int] = {}  # how far on its route
        self.count = 0

    def commands(self, number: int) -> Iterator[tuple[Command[Any], float]]:
        """Commands, each with the seconds that pass before it."""
        for self.count in range(number):
            yield self.draw(), self.random.choice(WAITS)

    def learn(self, command: Command[Any], answer: Any) -> None:
        """Remembers what later commands may speak of."""
        if isinstance(command, Claim) and isinstance(answer, Exception):
            self.workers = [item for item in self.workers if item != command.worker]  # it has shut down
        if isinstance(answer, Exception):
            return
        if isinstance(command, Submit):
            made = zip(answer, command.work, strict=True)
            self.units |= {item.unit: work.lifecycle for item, work in made if item.created}
            if command.work[0].lifecycle in PLANNED and self.random.random() < 0.8:
                self.plans.append(answer[0].unit)
        elif isinstance(command, Requeue | Rerun):
            self.units[answer.unit] = answer.lifecycle  # it may do a child of another's again
        elif isinstance(command, Register):
            self.workers.append(answer)
        elif isinstance(command, Claim):
            self.grants += answer
        self.units, self.workers = dict(list(self.units.items())[-25:]), self.workers[-4:]
        self.grants = self.grants[-12:]

    def draw(self) -> Command[Any]:
        if not self.workers or self.random.random() < 0.02:
            name = self.tag + self.random.choice("abc")
            return Register(name=name, incarnation=str(self.count), capacity=self.random.choice((1, 3, 9)))
        if self.plans and self.random.random() < 0.5:
            return Decide(unit=self.plans.pop(0), trigger="plan")
        kinds: list[Callable[[], Command[Any]]] = [
            self.submit,
            self.claim,
            self.claim,
            *[self.speak] * 6,
            *[self.people] * 3,
            Tick,
        ]
        return self.random.choice(kinds)()

    def submit(self) -> Submit:
        key = self.random.choice((None, None, f"k{self.random.randrange(9)}"))
        rate: dict[str, Any] = {"rate_key": "r", "rate": 3, "rate_per_us": 2 * SECOND} if self.count % 3 == 0 else {}
        simple = Work(
            task="job", key=key, attempts=self.random.choice((None, 1, 2)), priority=self.random.randrange(3),
            input="1",
            delay_us=self.random.choice((0, 0, 3 * SECOND)), timeout_us=self.random.choice((None, 4 * SECOND)),
            exhausted=self.random.choice((None, "fail")),
            queue_timeout_us=self.random.choice((None, None, 20 * SECOND)),
            mutex=self.random.choice((None, None, "m")), on_duplicate=self.random.choice(("return", "replace")), **rate,
        )  # fmt: skip
        shapes = [(simple,), self.workflow(), self.workstream(), self.agent(), self.pipeline()]
        known = self.random.choice((None, None, None, f"s{self.random.randrange(50)}"))
        return Submit(work=self.random.choice(shapes), idempotency_key=known)

    def clocks(self) -> dict[str, Any]:
        """Limits of a unit's own, so short that they run out now and then."""
        return {
            "timeout_us": self.random.choice((None, None, 4 * SECOND)),
            "queue_timeout_us": self.random.choice((None, None, 20 * SECOND)),
            "expires_us": self.random.choice((None, None, 20 * SECOND)),
        }

    def workflow(self) -> tuple[Work, ...]:
        reject = self.random.choice((None, "fail"))
        lifecycles = self.random.choices(("step", "approval"), k=self.random.randrange(1, 4))
        run = [Work(task="flow", lifecycle="workflow_run", ref="r")]
        for place, lifecycle in enumerate(lifecycles):
            needs = (f"s{place - 1}",) if place else ()
            own: dict[str, Any] = {"on_reject": reject, "attempts": 2, **self.clocks()}
            run.append(Work(task=lifecycle, lifecycle=lifecycle, parent="r", ref=f"s{place}", needs=needs, **own))
        return tuple(run)

    def workstream(self) -> tuple[Work, ...]:
        tasks = [Work(task="stream", lifecycle="workstream", ref="w", **self.clocks())]
        for place in range(self.random.randrange(1, 4)):
            needs = (f"t{place - 1}",) if place and self.random.random() < 0.5 else ()
            own: dict[str, Any] = {
                "decides": self.random.random() < 0.5,
                "attempts": self.random.choice((None, 1)),
                **self.clocks(),
            }
            tasks.append(Work(task="t", lifecycle="task", parent="w", ref=f"t{place}", needs=needs, **own))
        return tuple(tasks)

    def agent(self) -> tuple[Work, ...]:
        run = Work(task="goal", lifecycle="agent_run", ref="r", **self.clocks())
        return run, Work(task="goal", lifecycle="agent_job", parent="r", attempts=self.random.choice((None, 1)))

    def pipeline(self) -> tuple[Work, ...]:
        jobs = [Work(task="ci", lifecycle="ci_run", ref="r", **self.clocks())]
        for place in range(self.random.randrange(1, 3)):
            needs = (f"j{place - 1}",) if place else ()
            own: dict[str, Any] = {"attempts": 2, "decides": self.random.random() < 0.7, **self.clocks()}
            jobs.append(Work(task="ci", lifecycle="ci_job", parent="r", ref=f"j{place}", needs=needs, **own))
        return tuple(jobs)

    def claim(self) -> Claim:
        worker, name = self.random.choice(self.workers), f"{self.tag}c{self.count}"
        return Claim(worker=worker, key=name, nonce=f"{name:0>16}", limit=self.random.choice((1, 2, 5)))

    def go_on(self, grant: LeaseGrant) -> Command[Any]:
        """The next word of a holder whose work goes well."""
        word = ROUTES[grant.task][self.gone.get(grant, 0)]
        self.gone[grant] = self.gone.get(grant, 0) + 1
        words: dict[str, Command[Any]] = {
            "start": Start(held=(make_lease_ref(grant),)),
            "beat": Heartbeat(held=(make_lease_ref(grant),)),
            "finish": Finish(outcomes=(Outcome(held=make_lease_ref(grant)),)),
        }
        return words.get(word) or Enter(held=(make_lease_ref(grant),), phase=word)

    def speak(self) -> Command[Any]:
        if not self.grants:
            return self.claim()
        last = self.grants[-1]
        if self.gone.get(last, 0) < len(ROUTES.get(last.task, ())) and self.random.random() < 0.7:
            return self.go_on(last)
        recent = self.grants[-self.random.choice((1, 1, 2, 12)) :]
        some = self.random.sample(recent, k=min(len(recent), self.random.choice((1, 1, 2))))
        spoken = tuple(map(make_lease_ref, some))
        ended = self.random.choice(("success", "success", "failure", "failure", "cancelled"))
        kind = "TransientError" if self.random.random() < 0.7 else "PermanentError"
        phases = PHASES.get(some[0].task, PHASES[""])
        enter = Enter(held=spoken, phase=self.random.choice(phases))
        finish = Finish(outcomes=tuple(Outcome(held=item, ended=ended, error_class=kind) for item in spoken))
        return self.random.choice([
            Start(held=spoken), Start(held=spoken), Heartbeat(held=spoken), Heartbeat(held=spoken, running=False),
            finish, finish, finish, Release(held=spoken), Release(held=spoken, snooze_us=2 * SECOND),
            enter, enter, enter,
            Record(held=spoken, kind="step", name="s", payload="1"),
            Record(held=spoken, kind="compensation", payload='{"task": "undo"}'), Cancel(unit=some[0].unit),
        ])  # fmt: skip

    def people(self) -> Command[Any]:
        if not self.units:
            return self.submit()
        unit = self.random.choice(list(self.units)[-self.random.choice((2, 5, 25)) :])
        if self.grants and self.random.random() < 0.5:  # what is being worked on, or stands above it
            around = [self.grants[-1].unit - up for up in range(3)]
            unit = self.random.choice([item for item in around if item in self.units] or [unit])
        near = unit + self.random.choice((0, 0, 0, 0, 1, 2))  # attempts are units that nobody was told of
        verdicts = VERDICTS[self.units[unit]] or ["approve"]
        verdicts = ["valid"] * (2 * ("valid" in verdicts)) + verdicts
        decide = make_decision(near, self.random.choice(verdicts))
        return self.random.choice([
            *[decide] * 9, *[Cancel(unit=near, hard=self.random.random() < 0.3)] * 2,
            Bury(unit=near, reason=self.random.choice(REASONS)), Revoke(unit=near),
            (Requeue, Rerun)[self.count % 2](unit=unit),
            Vote(unit=near, voter=self.random.choice("xyz"), approve=self.random.random() < 0.7),
            Drain(worker=self.random.choice(self.workers)),
        ])  # fmt: skip


def make_lease_ref(grant: LeaseGrant) -> LeaseRef:
    """The reference to a lease that a message carries."""
    return LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
