"""Small scopes, every law after every step: what breaks here, Hypothesis makes as short as it can be."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from interlock.audit.laws import audit
from interlock.audit.laws.incremental import IncrementalLaws
from interlock.kernel.commands import (
    ENDS,
    Cancel,
    Claim,
    Command,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Register,
    Release,
    Revoke,
    Start,
    Submit,
    Tick,
    Work,
)
from interlock.kernel.errors import InterlockError
from interlock.plugins import make_engine
from interlock.store.change_capture import start_capture, take_written
from interlock.testing.simulation.faulty_store import LIFECYCLES, Disk
from interlock.testing.simulation.promises import find_broken_promises
from interlock.testing.simulation.random_commands import make_decision

SECOND = 1_000_000
SCOPES: dict[str, tuple[Work, ...]] = {
    "one job": (Work(task="t", attempts=2),),
    "a mutex": (
        Work(task="t", mutex="m", attempts=2),
        Work(task="t", mutex="m"),
        Work(task="t", mutex="m", priority=1),
    ),
    "a limit and a rate": tuple(
        Work(task="t", limit_key="l", limit=2, rate_key="r", rate=1, rate_per_us=3 * SECOND) for _ in range(3)
    ),
    "a workflow": (
        Work(task="t", lifecycle="workflow_run", ref="r"),
        Work(task="t", lifecycle="step", parent="r", ref="s", attempts=2),
        Work(task="t", lifecycle="approval", parent="r", needs=("s",), expires_us=5 * SECOND),
    ),
    "a CI run": (
        Work(task="t", lifecycle="ci_run", ref="r"),
        Work(task="t", lifecycle="ci_job", parent="r", ref="a", attempts=2),
        Work(task="t", lifecycle="ci_job", parent="r", needs=("a",), decides=False),
    ),
    "an agent": (
        Work(task="t", lifecycle="agent_run", ref="r", timeout_us=8 * SECOND),
        Work(task="t", lifecycle="agent_job", parent="r", attempts=2),
    ),
}
PLACE = st.integers(0, 9)
GROUP = st.booleans()  # whether the next command shares its transaction


class Scope(RuleBasedStateMachine):
    """A few units, two workers, and whatever may happen to them in any order."""

    work: tuple[Work, ...] = ()

    @initialize()
    def open(self) -> None:
        self.now = 1_893_456_000 * SECOND
        self.disk, self.laws = Disk(), IncrementalLaws(LIFECYCLES)
        self.connection = self.disk.connection(lambda: self.now, lambda place: "")
        start_capture(self.connection)
        self.engine = make_engine(self.connection, LIFECYCLES)
        self.grants: list[LeaseGrant] = []
        self.waiting: list[Command[Any]] = []
        self.claims = 0
        self.units = [one.unit for one in self.ask(Submit(work=self.work))]
        self.workers = [self.ask(Register(name=name, incarnation="1", capacity=2)) for name in "ab"]

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            assert list(audit(self.connection, LIFECYCLES, rebuild=True, paths=False)) == []  # they are its image's
            self.disk.close()

    def ask(self, command: Command[Any], together: bool = False) -> Any:
        """Asks now, or with the next command."""
        self.waiting.append(command)
        if together:
            return None
        futures = [self.engine.committer.put(one) for one in self.waiting]
        self.waiting = []
        while self.engine.committer.step():
            pass
        for future in futures:
            error = future.exception()
            assert error is None or type(error).__module__ == InterlockError.__module__, error
            if error is None and isinstance(future.result(), list):
                self.grants += [one for one in future.result() if isinstance(one, LeaseGrant)]
        return futures[-1].exception() or futures[-1].result()

    def held(self, place: int) -> tuple[LeaseRef, ...]:
        some = self.grants[-(place % 3) - 1 :][:1]
        return tuple(LeaseRef(unit=one.unit, fence=one.fence, lease=one.lease) for one in some)

    @rule(place=PLACE, limit=st.integers(1, 2), together=GROUP)
    def claim(self, place: int, limit: int, together: bool) -> None:
        self.claims += 1
        name = f"c{self.claims}"
        self.ask(Claim(worker=self.workers[place % 2], key=name, nonce=f"{name:0>16}", limit=limit), together)

    @rule(place=PLACE, together=GROUP, verb=st.sampled_from((Start, Heartbeat, Release)))
    def speak(self, place: int, together: bool, verb: Any) -> None:
        self.ask(verb(held=self.held(place), actor="w"), together)

    @rule(place=PLACE, together=GROUP, ended=st.sampled_from(ENDS))
    def finish(self, place: int, together: bool, ended: str) -> None:
        self.ask(Finish(outcomes=tuple(Outcome(held=one, ended=ended) for one in self.held(place))), together)

    @rule(place=PLACE, together=GROUP, hard=st.booleans())
    def cancel(self, place: int, together: bool, hard: bool) -> None:
        self.ask(Cancel(unit=self.units[place % len(self.units)], hard=hard), together)

    @rule(
        place=PLACE, together=GROUP, trigger=st.sampled_from(("plan", "approve", "reject", "resume", "valid", "report"))
    )
    def decide(self, place: int, together: bool, trigger: str) -> None:
        self.ask(make_decision(self.units[place % len(self.units)], trigger), together)

    @rule(place=PLACE, together=GROUP)
    def revoke(self, place: int, together: bool) -> None:
        self.ask(Revoke(unit=self.units[place % len(self.units)]), together)

    @rule(seconds=st.sampled_from((0.1, 1.0, 3.5, -1.0)))
    def let_pass(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
        self.ask(Tick())

    @invariant()
    def laws_hold(self) -> None:
        if hasattr(self, "laws"):
            seen = self.laws.check_commit(self.connection, take_written(self.connection))
            assert seen.broken == []
            assert list(find_broken_promises(LIFECYCLES, seen, self.laws.units, self.connection)) == []


def explore(scope: str, examples: int, steps: int) -> None:
    machine = type("Scope", (Scope,), {"work": SCOPES[scope]})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("scope", SCOPES)
def test_small_scopes(scope: str) -> None:
    explore(scope, examples=12, steps=20)


@pytest.mark.proof
@pytest.mark.parametrize("scope", SCOPES)
def test_small_scopes_at_length(scope: str) -> None:
    explore(scope, examples=400, steps=40)
