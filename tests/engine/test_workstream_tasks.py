"""Tasks that may fail, workstreams that take too long, and how many tasks run at a time."""

from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import PERMANENT, TRANSIENT, LeaseGrant, Rerun, Submit, Work
from interlock.kernel.errors import InterlockError
from tests.engine.streams import do, options, stream, task
from tests.engine.world import SECOND, World

FAILURES = {
    "for good": {"ended": "failure", "error": "no paper", "error_class": PERMANENT},
    "at last": {"ended": "failure", "error": "no paper", "error_class": TRANSIENT},
}


@pytest.mark.parametrize("how", FAILURES)
def test_a_task_that_may_fail_is_completed_with_its_failure(world: World, how: str) -> None:
    may_fail = options(allow_failure=True)
    ws, a, _ = stream(world, task("a", "ws", options=may_fail, attempts=1), task("b", "ws", needs=("a",)))
    worker = world.worker()
    grant = do(world, worker, "a", **FAILURES[how])
    assert world.path(a) == ["pending", "queued", "running", "validating", "completed"]
    assert world.names(a)[-2:] == ["failure_allowed", "validation_passed"]
    assert msgspec.json.decode(world.body(a).result or "") == {"failed": "no paper"}
    assert world.body(a).error is None
    assert world.finish(grant, **FAILURES[how]).accepted  # said again, it is known
    (next_grant,) = world.claim(worker)
    assert dict(next_grant.needed) == {"a": '{"failed":"no paper"}'}
    world.start(next_grant)
    world.finish(next_grant)
    assert world.unit(ws).state == "completed"


def test_a_task_that_may_fail_uses_up_its_attempts_first(world: World) -> None:
    ws, a = stream(world, task("a", "ws", options=options(allow_failure=True), attempts=2))
    worker = world.worker()
    do(world, worker, "a", ended="failure", error="no paper")
    assert world.unit(a).state == "retrying"
    world.pass_time(60)
    (grant,) = world.claim(worker)
    world.start(grant)
    world.now_us = world.unit(a).lease_until or 0
    world.tick()
    assert (world.unit(a).state, world.unit(ws).state) == ("completed", "completed")
    assert msgspec.json.decode(world.body(a).result or "") == {"failed": "its worker was lost"}


def test_a_task_that_may_fail_may_run_too_long(world: World) -> None:
    _, a = stream(world, task("a", "ws", options=options(allow_failure=True), attempts=1, timeout_us=5 * SECOND))
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.pass_time(5)
    world.tick()
    assert msgspec.json.decode(world.body(a).result or "") == {"failed": "it ran too long"}
    assert world.unit(a).state == "completed"


def test_a_failure_that_is_allowed_is_not_checked(world: World) -> None:
    own = msgspec.json.encode({"checks": {"jobs": ["lint"]}, "workstreams": {"allow_failure": True}}).decode()
    ws, a, _ = stream(world, task("a", "ws", options=own, attempts=1), task("b", "ws", needs=("a",)))
    worker = world.worker()
    do(world, worker, "a", **FAILURES["for good"])
    assert (world.unit(a).state, world.unit(a).total) == ("completed", 0)
    do(world, worker, "b")
    assert world.unit(ws).state == "completed"


def test_a_check_that_fails_is_no_failure_that_is_allowed(world: World) -> None:
    own = msgspec.json.encode({"checks": {"jobs": ["lint"]}, "workstreams": {"allow_failure": True}}).decode()
    ws, a = stream(world, task("a", "ws", options=own))
    worker = world.worker()
    do(world, worker, "a")
    do(world, worker, "lint", **FAILURES["for good"])
    assert (world.unit(a).state, world.unit(ws).state) == ("failed", "failed")


# Time.


@pytest.mark.req("R3-24")
def test_a_workstream_that_takes_too_long_from_its_first_task_on_has_failed(world: World) -> None:
    work = Work(task="site", lifecycle="workstream", ref="ws", options=options(), timeout_us=60 * SECOND)
    ws, a, b = (made.unit for made in world.send(Submit(work=(work, task("a", "ws"), task("b", "ws")))))
    world.pass_time(600)
    world.tick()
    assert (world.unit(ws).state, world.unit(ws).deadline_at) == ("ready", None)
    worker = world.worker()
    do(world, worker, "a")
    assert world.unit(ws).deadline_at == world.now_us + 60 * SECOND
    world.pass_time(60)
    world.tick()
    assert world.names(ws)[-1] == "workstream_timed_out"
    assert [world.unit(unit).state for unit in (ws, a, b)] == ["failed", "completed", "cancelled"]
    again = world.send(Rerun(unit=ws, failed=True)).unit
    do(world, worker, "b")
    assert world.unit(again).state == "completed"


# How many at a time.


def hold_all(world: World, worker: int) -> list[LeaseGrant]:
    return world.claim(worker, limit=50)


def test_so_many_tasks_of_a_workstream_run_at_a_time(world: World) -> None:
    tasks = [task(f"t{number}", "ws", task="t") for number in range(5)]
    ws, *_ = stream(world, *tasks, at_once=2)
    other, *_ = stream(world, task("u", "ws"), at_once=2)
    worker = world.worker()
    grants = hold_all(world, worker)
    assert sorted(grant.task for grant in grants) == ["t", "t", "u"]
    while grants:
        for grant in grants:
            world.start(grant)
            world.finish(grant)
        assert len([grant for grant in grants if grant.task == "t"]) <= 2
        grants = hold_all(world, worker)
    assert [world.unit(unit).state for unit in (ws, other)] == ["completed", "completed"]


@pytest.mark.parametrize(
    ("lifecycle", "own", "wrong"),
    [
        ("workstream", {"at_once": 0}, "at_once = 0 is not allowed; allowed is 1 to"),
        ("task", {"at_once": 2}, "at_once is not allowed for a task; it is for a workstream"),
        ("workstream", {"allow_failure": True}, "allow_failure is not allowed for a workstream"),
        ("job", {"allow_failure": True}, "allow_failure is not allowed for a job; it is for a task"),
        ("task", {"item_of": 3}, "item_of is not allowed"),
        ("task", {"map": {"over": "x.y"}}, "a map has a name"),
    ],
)
def test_options_that_make_no_sense_are_refused(world: World, lifecycle: str, own: Any, wrong: str) -> None:
    with pytest.raises(InterlockError) as refused:
        world.submit("x", lifecycle=lifecycle, options=msgspec.json.encode({"workstreams": own}).decode())
    assert wrong in str(refused.value)
    assert world.count("unit") == 0
