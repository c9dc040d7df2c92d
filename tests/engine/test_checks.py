"""Gates and their checks: jobs below what they check, whose ends are the verdict."""

from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import Decide, DefineTask, Enter, LeaseGrant, Submit, Vote, Work
from interlock.kernel.durations import LONGEST_US
from interlock.kernel.errors import InterlockError
from tests.engine.world import SECOND, World, held

MINUTE, HOUR_US = 60, 3_600 * SECOND
COMMAND = '{"shell": {"command": "make lint"}}'


def options(*jobs: Any, **more: Any) -> str:
    return msgspec.json.encode({"checks": {"jobs": jobs, **more}}).decode()


def stream_of(world: World, checks: str | None, *, own: str | None = None, **facts: Any) -> tuple[int, int, int]:
    """A workstream with one task that has these checks, planned; its task, and a worker."""
    work = (
        Work(task="all", lifecycle="workstream", ref="all", options=own),
        Work(task="build", lifecycle="task", parent="all", options=checks, input='{"path": "src"}', **facts),
    )
    stream, task = (made.unit for made in world.send(Submit(work=work)))
    world.send(Decide(unit=stream, trigger="plan"))
    return stream, task, world.worker()


def finish_next(world: World, worker: int, task: str, **facts: Any) -> LeaseGrant:
    """The next thing that a worker finds is of this task, and ends."""
    (grant,) = world.claim(worker)
    assert grant.task == task
    world.start(grant)
    assert world.finish(grant, **facts).accepted
    return grant


def test_all_checks_run_at_once_and_the_last_one_is_the_verdict(world: World) -> None:
    stream, task, worker = stream_of(world, options("lint", "unit", "e2e"), own=options())
    finish_next(world, worker, "build", result='{"size": 3}')
    assert world.unit(task).state == "validating"
    grants = {grant.task: grant for grant in world.claim(worker, limit=9)}
    assert set(grants) == {"lint", "unit", "e2e"}
    assert dict(grants["lint"].outputs or ())["result"] == '{"size": 3}'
    assert grants["lint"].input == '{"path": "src"}'
    for name in ("e2e", "lint"):
        world.start(grants[name])
        world.finish(grants[name])
        assert world.unit(task).state == "validating"
    world.start(grants["unit"])
    world.finish(grants["unit"])
    assert world.path(task)[-2:] == ["validating", "completed"]
    assert world.unit(stream).state == "completed"  # and its own gate has nothing to check
    ends = {world.events(unit)[-1].at for unit in (task, stream, grants["unit"].unit)}
    assert len(ends) == 1  # one transaction


def test_a_command_is_a_check_with_what_it_runs(world: World) -> None:
    command = {"task": "shell", "capabilities": ["shell"], "options": COMMAND}
    _, task, worker = stream_of(world, options(command))
    finish_next(world, worker, "build")
    assert world.claim(worker) == [], "it needs a worker that runs commands"
    grant = finish_next(world, world.worker("runner", capabilities=("shell",)), "shell")
    assert msgspec.json.decode(grant.options or "")["shell"] == {"command": "make lint"}
    assert world.unit(task).state == "completed"


def test_a_check_that_fails_is_told_when_all_have_ended(world: World) -> None:
    stream, task, worker = stream_of(world, options({"task": "lint", "attempts": 1}, "unit"))
    finish_next(world, worker, "build")
    finish_next(world, worker, "lint", ended="failure", error="a tab", error_class="PermanentError")
    assert world.unit(task).state == "validating"
    finish_next(world, worker, "unit")
    assert world.unit(task).state == "failed"
    assert world.body(task).error == "check 'lint': a tab"
    assert world.events(task)[-1].name == "validation_failed"
    assert world.unit(stream).state == "failed"


def test_a_check_is_tried_again_by_its_own_terms(world: World) -> None:
    _, task, worker = stream_of(world, options({"task": "lint", "attempts": 2}))
    finish_next(world, worker, "build")
    finish_next(world, worker, "lint", ended="failure")
    assert world.unit(task).state == "validating"
    world.pass_time(5)
    finish_next(world, worker, "lint")
    assert world.unit(task).state == "completed"


def test_checks_in_order_stop_at_the_first_that_fails(world: World) -> None:
    _, task, worker = stream_of(world, options("one", "two", "three", in_order=True))
    finish_next(world, worker, "build")
    finish_next(world, worker, "one")
    finish_next(world, worker, "two", ended="failure", error="no", error_class="PermanentError")
    assert world.unit(task).state == "failed"
    assert world.claim(worker) == []
    assert world.unit(task).total == 2


def test_checks_in_order_pass_one_after_another(world: World) -> None:
    _, task, worker = stream_of(world, options("one", "two", in_order=True))
    finish_next(world, worker, "build")
    for name in ("one", "two"):
        assert world.unit(task).state == "validating"
        finish_next(world, worker, name)
    assert world.unit(task).state == "completed"


def test_nothing_to_check_is_passed_at_once(world: World) -> None:
    stream, task, worker = stream_of(world, options(), own=options())
    finish_next(world, worker, "build")
    assert [world.unit(unit).state for unit in (task, stream)] == ["completed", "completed"]
    assert "validating" in world.path(task)
    assert "validating" in world.path(stream)


def test_without_a_word_of_checks_the_verdict_comes_from_outside(world: World) -> None:
    _, task, worker = stream_of(world, None)
    finish_next(world, worker, "build")
    assert (world.unit(task).state, world.unit(task).total) == ("validating", 0)
    world.send(Decide(unit=task, trigger="valid"))
    assert world.unit(task).state == "completed"


@pytest.mark.parametrize("approve", [True, False])
def test_a_person_is_a_check(world: World, approve: bool) -> None:
    stream, task, worker = stream_of(world, options("person"))
    finish_next(world, worker, "build")
    assert world.unit(task).deadline_at is None  # a person has the approval's expiry, and no other clock
    assert world.send(Vote(unit=task, voter="ann", approve=approve, reason="seen")).applied
    assert world.unit(task).state == ("completed" if approve else "failed")
    assert world.unit(stream).state == ("validating" if approve else "failed")


def test_the_final_gate_of_a_workstream_has_checks_too(world: World) -> None:
    stream, _, worker = stream_of(world, options(), own=options("smoke", {"task": "merge"}, in_order=True))
    finish_next(world, worker, "build")
    for name in ("smoke", "merge"):
        assert world.unit(stream).state == "validating"
        finish_next(world, worker, name)
    assert world.unit(stream).state == "completed"


@pytest.mark.parametrize(("gate", "minutes"), [("task", 30), ("workstream", 60)])
def test_a_gate_that_nobody_answers_runs_out_of_time(world: World, gate: str, minutes: int) -> None:
    stream, task, worker = stream_of(world, None if gate == "task" else options())
    finish_next(world, worker, "build")
    unit = task if gate == "task" else stream
    world.pass_time(minutes * MINUTE - 1)
    world.tick()
    assert world.unit(unit).state == "validating"
    world.pass_time(1)
    world.tick()
    assert world.unit(unit).state == "failed"


@pytest.mark.parametrize(
    ("more", "longest_us"),
    [
        ({"attempts": 1}, HOUR_US),
        ({"attempts": 2, "backoff_us": 60 * SECOND}, 2 * HOUR_US + 60 * SECOND),
        ({"backoff_us": 60 * SECOND, "backoff_cap_us": 90 * SECOND}, 3 * HOUR_US + 180 * SECOND),  # a job has 3 tries
        ({"attempts": 1, "losses": 2, "backoff_us": 60 * SECOND, "backoff_cap_us": 60 * SECOND}, 3 * HOUR_US + 120 * SECOND),
        ({"attempts": 1, "queue_timeout_us": HOUR_US}, 2 * HOUR_US),
        ({"attempts": 2**40}, LONGEST_US),
    ],
)  # fmt: skip
def test_a_gate_waits_as_long_as_its_checks_may_take(world: World, more: dict[str, int], longest_us: int) -> None:
    long = {"task": "soak", "timeout_us": HOUR_US, **more}
    _, task, worker = stream_of(world, options(long, "lint"))
    finish_next(world, worker, "build")
    assert world.unit(task).deadline_at == world.now_us + longest_us


def test_a_check_has_the_rules_of_its_task(world: World) -> None:
    """It is named alone, as in a file; what it leaves out is what a program has said of the task."""
    rules = Work(task="soak", queue="slow", attempts=1, timeout_us=HOUR_US, capabilities=("big",), labels='{"a": "b"}')
    world.send(DefineTask(work=rules))
    own = {"task": "soak", "queue": "fast"}
    _, task, worker = stream_of(world, options("soak", own, last=["soak"], in_order=True))
    finish_next(world, worker, "build")
    assert world.unit(task).deadline_at == world.now_us + 3 * HOUR_US
    able = world.worker("able", capabilities=("big",))
    for queue in ("slow", "fast", "slow"):
        assert world.claim(worker, queues=("slow", "fast")) == world.claim(able) == []
        (grant,) = world.claim(able, queues=(queue,))
        world.start(grant)
        world.finish(grant)
    assert world.unit(task).state == "completed"
    assert world.body(grant.unit).labels == '{"a":"b"}'


def test_checks_are_stopped_with_what_they_check(world: World) -> None:
    _, task, worker = stream_of(world, options("lint", "unit"))
    finish_next(world, worker, "build")
    (grant,) = world.claim(worker)
    world.start(grant)
    world.cancel(task)
    assert world.unit(task).state == "cancelled"
    assert world.count("unit", "lifecycle = 'job' AND outcome IS NULL") == 0
    assert not world.finish(grant).accepted


def agent(world: World, checks: str | None) -> tuple[int, LeaseGrant]:
    """An agent run whose job is held, and asks for its checks."""
    work = (
        Work(task="goal", lifecycle="agent_run", ref="run", options=checks),
        Work(task="goal", lifecycle="agent_job", parent="run"),
    )
    run = world.send(Submit(work=work))[0].unit
    (grant,) = world.claim(world.worker())
    world.start(grant)
    assert world.send(Enter(held=(held(grant),), phase="check"))[0].accepted
    return run, grant


@pytest.mark.parametrize("word", ["valid", "invalid"])
def test_a_holder_never_judges_its_own_work(world: World, word: str) -> None:
    run, grant = agent(world, None)
    (answer,) = world.send(Enter(held=(held(grant),), phase=word))
    assert (answer.accepted, "never the holder" in answer.why) == (False, True)
    assert world.unit(run).state == "validating"
    assert world.send(Enter(held=(held(grant),), phase="run"))[0].accepted  # it may go on working


def test_checks_of_an_agent_run_decide_it_and_its_job_goes_on_meanwhile(world: World) -> None:
    run, grant = agent(world, options("lint"))
    worker = world.worker("checker")
    finish_next(world, worker, "lint")
    assert world.unit(run).state == "complete"
    run, grant = agent(world, options("lint"))
    (check,) = world.claim(worker)
    world.send(Enter(held=(held(grant),), phase="run"))  # it has left the gate
    world.start(check)
    world.finish(check, ended="failure", error_class="PermanentError")
    assert world.unit(run).state == "running"  # so this check decides nothing
    assert world.finish(grant).accepted
    assert world.unit(run).state == "complete"


@pytest.mark.parametrize(
    ("lifecycle", "text", "why"),
    [
        ("job", options("lint"), "checks are not allowed for a job, which has no gate; .*task.* have one"),
        ("task", options("lint" * 60), "the task of a check = "),
        ("task", options(*["lint"] * 101), "the number of checks = 101 is not allowed; allowed is 0 to 100"),
        ("task", options({"task": "lint", "key": "k"}), "key is not allowed for a check"),
        ("task", options({"task": "lint", "options": options("unit")}), "checks are not allowed for a check"),
        ("task", options({"task": "lint", "options": '{"checks": 7}'}), "checks are not allowed for a check"),
        ("task", options({"task": "lint", "options": "no"}), "options is not JSON"),
        ("task", options({"task": "lint", "options": "[]"}), "options are a JSON object"),
        ("task", options({"task": "lint", "options": '{"odd": 1}'}), "there is no option 'odd'"),
        (
            "task",
            options({"task": "lint", "options": COMMAND}),
            "a command is run by the task 'shell', on workers with",
        ),
        ("task", options({"task": "lint", "attempts": 0}), "'lint': attempts = 0 is not allowed; allowed is at least"),
        ("task", options({"task": "lint", "queue": ""}), "'lint': queue = '' is not allowed"),
        ("task", options({"task": "lint", "timeout_us": -1}), "'lint': timeout_us = -1 is not allowed"),
        (
            "workstream",
            options({"task": "ops", "lifecycle": "approval", "quorum": 0}),
            "'ops': quorum = 0 is not allowed; allowed is at least 1",
        ),
        ("task", options({"task": "lint", "lifecycle": "workflow_run"}), "a check is no workflow_run; allowed are"),
        ("task", '{"checks": {"job": []}}', "option 'checks': .*`job`"),
        ("task", '{"checks": "lint"}', "option 'checks'"),
    ],
)
def test_checks_that_cannot_be_are_refused(world: World, lifecycle: str, text: str, why: str) -> None:
    with pytest.raises(InterlockError, match=why):
        world.submit("build", lifecycle=lifecycle, options=text)
    assert world.count("unit") == 0


def test_the_last_checks_are_made_when_the_others_have_passed(world: World) -> None:
    _, task, worker = stream_of(world, options("lint", "unit", last=["merge", "tell"]))
    finish_next(world, worker, "build")
    grants = {grant.task: grant for grant in world.claim(worker, limit=9)}
    assert set(grants) == {"lint", "unit"}
    for name in ("unit", "lint"):
        assert world.claim(worker) == []
        world.start(grants[name])
        world.finish(grants[name])
    for name in ("merge", "tell"):
        assert world.unit(task).state == "validating"
        finish_next(world, worker, name)
    assert world.unit(task).state == "completed"


@pytest.mark.parametrize("in_order", [True, False])
def test_the_last_checks_are_not_made_when_another_has_failed(world: World, in_order: bool) -> None:
    _, task, worker = stream_of(world, options("lint", "unit", last=["merge"], in_order=in_order))
    finish_next(world, worker, "build")
    finish_next(world, worker, "lint")
    finish_next(world, worker, "unit", ended="failure", error_class="PermanentError")
    assert world.unit(task).state == "failed"
    assert world.claim(worker) == []


def test_a_last_check_alone_decides(world: World) -> None:
    _, task, worker = stream_of(world, options(last=["merge"]))
    finish_next(world, worker, "build")
    finish_next(world, worker, "merge", ended="failure", error="no", error_class="PermanentError")
    assert (world.unit(task).state, world.body(task).error) == ("failed", "check 'merge': no")
