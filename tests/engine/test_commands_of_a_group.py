"""Commands that share a transaction: what an earlier one has led to is there before a later one moves a unit above it."""

from typing import Any

import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import Cancel, Claim, Finish, LeaseGrant, Outcome, Submit, Tick, Work
from interlock.kernel.errors import Refused
from tests.engine.streams import do, stream, task
from tests.engine.test_random_commands import ask_together
from tests.engine.world import World, held
from tests.store.databases import declare

HOUR = 3_600
CHECKED = '{"checks": {"jobs": ["lint"]}}'


def ask_in_one_group(world: World, *commands: Any) -> list[Any]:
    """The answers to commands that share a transaction; what they leave keeps every law."""
    answers = ask_together(world, list(commands))
    declare(world.connection, 1, 2)
    assert list(audit(world.connection, world.lifecycles, laws=world.registry.laws)) == []
    return answers


def begin(world: World, worker: int) -> LeaseGrant:
    """What a worker has claimed and started."""
    (grant,) = world.claim(worker)
    world.start(grant)
    return grant


def end(grant: LeaseGrant, ended: str = "failure") -> Finish:
    """The command of a holder that has succeeded, or failed for good."""
    error = {"error": "no", "error_class": "PermanentError"} if ended == "failure" else {}
    return Finish(outcomes=(Outcome(held=held(grant), ended=ended, **error),))


@pytest.mark.req("R3-54")
@pytest.mark.parametrize("how", ["finish", "claim", "tick", "check"])
def test_a_cancel_behind_a_critical_failure_comes_too_late(world: World, how: str) -> None:
    """The workstream has failed with its task, as it would have if each had been committed alone (seed 701)."""
    first = task("a", "ws", attempts=1, losses=1, **({"options": CHECKED} if how == "check" else {}))
    ws, a, b = stream(world, first, task("b", "ws", needs=("a",)))
    worker = world.worker()
    if how == "check":
        do(world, worker, "a")
    failing = end(begin(world, worker))
    if how in ("claim", "tick"):
        world.pass_time(HOUR)
    claim = Claim(worker=world.worker("other"), limit=1, key="k", nonce="n" * 16)
    command = {"claim": claim, "tick": Tick()}.get(how, failing)
    _, answer = ask_in_one_group(world, command, Cancel(unit=ws, hard=True))
    assert isinstance(answer, Refused)
    assert [world.unit(unit).state for unit in (ws, a, b)] == ["failed", "failed", "cancelled"]
    assert [world.events(unit)[-1].name for unit in (ws, b)] == ["critical_task_failed", "critical_task_failed"]


@pytest.mark.req("R3-54")
def test_a_critical_failure_behind_a_cancel_comes_too_late(world: World) -> None:
    ws, a, b = stream(world, task("a", "ws"), task("b", "ws", needs=("a",)))
    failing = end(begin(world, world.worker()))
    answer, (status,) = ask_in_one_group(world, Cancel(unit=ws), failing)
    assert (answer.state, answer.applied) == ("cancelled", True)
    assert [world.unit(unit).state for unit in (ws, a, b)] == ["cancelled", "cancelled", "cancelled"]
    assert world.events(a)[-1].name == "workstream_cancelled"
    assert (status.accepted, status.state) == (False, "cancelled")


def test_a_run_whose_last_step_has_succeeded_is_not_cancelled(world: World) -> None:
    run = Work(task="release", lifecycle="workflow_run", ref="run")
    step = Work(task="build", lifecycle="step", parent="run")
    made = world.send(Submit(work=(run, step)))
    grant = begin(world, world.worker())
    _, answer = ask_in_one_group(world, end(grant, "success"), Cancel(unit=made[0].unit))
    assert isinstance(answer, Refused)
    assert [world.unit(each.unit).state for each in made] == ["SUCCEEDED", "SUCCEEDED"]
