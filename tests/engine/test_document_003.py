"""Document 003 by its requirements: tasks, workstreams and workers, each promise as a story."""

from itertools import pairwise
from typing import Any

import pytest

from interlock.client.progress import read_plan, read_progress
from interlock.kernel.commands import (
    PERMANENT,
    Cancel,
    Claim,
    Decide,
    Drain,
    ReassignTask,
    Register,
    Resource,
    RetryTask,
    SkipTask,
    Submit,
    Work,
)
from interlock.kernel.errors import InterlockError, NotWanted, Refused, StoreError
from tests.engine.world import SECOND, World
from tests.store.databases import declare

BOTH = pytest.mark.parametrize("world", ["sqlite memory", "postgres"], indirect=True)
PASSES = '{"checks": {"jobs": []}}'


def make_task(name: str, needs: tuple[str, ...] = (), **facts: Any) -> Work:
    given = {"attempts": 1, "options": PASSES, **facts}
    return Work(task=name, lifecycle="task", parent="site", step=name, ref=name, needs=needs, **given)


def submit(world: World, *tasks: Work, **facts: Any) -> dict[str, int]:
    """A workstream of these tasks, planned; its units by name."""
    work = (Work(task="site", lifecycle="workstream", ref="site", **facts), *tasks)
    units = [made.unit for made in world.send(Submit(work=work))]
    if world.unit(units[0]).state == "planned":
        world.send(Decide(unit=units[0], trigger="plan"))
    return dict(zip(["site", *(task.task for task in tasks)], units, strict=True))


def do(world: World, worker: int, **facts: Any) -> str:
    """A worker takes the next task, or a check, and ends it."""
    (grant,) = world.claim(worker)
    if grant.lifecycle == "job":
        world.start(grant)
    world.finish(grant, **facts)
    return grant.task


def states(world: World, units: dict[str, int]) -> dict[str, str]:
    return {name: world.unit(unit).state for name, unit in units.items()}


# Tasks.


@BOTH
@pytest.mark.req("R3-02", "R3-03", "R3-04", "R3-20")
def test_a_task_is_queued_when_what_it_needs_has_completed_and_never_before(world: World) -> None:
    units = submit(world, make_task("build"), make_task("test", ("build",)))
    assert world.path(units["test"]) == ["pending"]
    with pytest.raises(InterlockError):
        world.send(Decide(unit=units["test"], trigger="ready"))
    with pytest.raises(StoreError):  # nor does the database let it
        world.connection.rows("UPDATE unit SET state = 'queued' WHERE id = :id", {"id": units["test"]})
    worker = world.worker()
    (build,) = world.claim(worker)
    assert world.claim(worker) == []
    assert world.count("unit", "state = 'queued' AND unmet > 0") == 0
    world.finish(build)
    assert world.path(units["test"]) == ["pending", "queued"]
    assert world.names(units["test"])[1:] == ["scheduler_assigned"]
    declare(world.connection, 1)
    plan = read_plan(world.connection, 1, units["site"])
    assert [(task.name, task.stage, task.state) for task in plan.tasks] == [
        ("build", 1, "completed"), ("test", 2, "queued"),
    ]  # fmt: skip


@BOTH
@pytest.mark.req("R3-05", "R3-06", "R3-17")
def test_a_capable_worker_starts_a_task_and_only_a_running_task_has_a_worker(world: World) -> None:
    units = submit(world, make_task("build", capabilities=("node",), timeout_us=60 * SECOND, attempts=2))
    plain, node = world.worker("plain"), world.worker("node", capabilities=("node",))
    for _ in range(3):
        assert world.claim(plain) == []
        world.pass_time(30)
    holders = [world.unit(units["build"]).holder]
    (grant,) = world.claim(node)
    task = world.unit(units["build"])
    assert (task.state, task.holder, task.started_at) == ("running", node, world.now_us)
    assert task.deadline_at == world.now_us + 60 * SECOND
    assert [event.name for event in world.events(task.id) if event.target == "running"][:1] == ["worker_started"]
    world.finish(grant, ended="failure")
    holders.append(world.unit(task.id).holder)  # retrying
    world.pass_time(60)
    world.tick()
    holders.append(world.unit(task.id).holder)  # queued
    assert do(world, node) == "build"
    assert [*holders, world.unit(task.id).holder] == [None] * 4
    assert world.count("unit", "lifecycle = 'task' AND (state = 'running') <> (holder IS NOT NULL)") == 0


@BOTH
@pytest.mark.req("R3-07", "R3-12")
def test_a_task_is_validated_and_completes_if_every_rule_passes(world: World) -> None:
    checks = '{"checks": {"jobs": ["lint", "unit"]}}'
    exclusive = (Resource(name="repo"),)
    units = submit(world, make_task("build", options=checks, resources=exclusive), make_task("ship", ("build",)))
    other = world.submit("other", resources=exclusive, priority=-1)
    worker = world.worker()
    (build,) = world.claim(worker)
    running_until = world.unit(units["build"]).deadline_at
    world.pass_time(5)
    world.finish(build)
    gated = world.unit(units["build"])
    assert (gated.state, world.names(gated.id)[-1]) == ("validating", "execution_completed")
    assert gated.deadline_at != running_until
    assert world.unit(other).available_at is not None  # the resource is free again
    assert {do(world, worker), do(world, worker)} == {"lint", "unit"}
    completed = world.unit(units["build"])
    assert (completed.state, completed.changed_at, completed.lease_id) == ("completed", world.now_us, None)
    assert world.names(completed.id)[-1] == "validation_passed"
    assert world.unit(units["ship"]).state == "queued"


@BOTH
@pytest.mark.req("R3-07", "R3-08", "R3-11", "R3-18")
def test_a_task_that_fails_is_retried_after_its_backoff_as_often_as_it_may(world: World) -> None:
    units = submit(world, make_task("build", attempts=3))
    task, worker = units["build"], world.worker()
    for failures, delay in ((1, 1), (2, 2)):
        assert do(world, worker, ended="failure", error="exit code 1") == "build"
        unit = world.unit(task)
        assert (unit.state, unit.failures, unit.holder, unit.attempt) == ("retrying", failures, None, failures + 1)
        assert [(event.name, event.severity) for event in world.events(task)][-1] == ("execution_failed", "warning")
        assert unit.due_at is not None
        assert unit.due_at - world.now_us >= delay * SECOND
        world.now_us = unit.due_at - 1
        assert world.claim(worker) == []
        world.now_us = unit.due_at
        world.tick()
        assert (world.unit(task).state, world.names(task)[-1]) == ("queued", "retry_delay_elapsed")
    do(world, worker, ended="failure")
    assert world.unit(task).state == "failed"
    assert world.count("unit", "lifecycle = 'task' AND failures > 3") == 0


@BOTH
@pytest.mark.req("R3-09", "R3-31")
def test_a_task_without_retries_left_fails_and_blocks_what_needs_it(world: World) -> None:
    units = submit(world, make_task("docs", decides=False), make_task("site_map", ("docs",)), make_task("lint"))
    worker = world.worker()
    assert do(world, worker, ended="failure", error="exit code 2") == "docs"
    docs, event = world.unit(units["docs"]), world.events(units["docs"])[-1]
    assert (docs.state, docs.holder, world.body(docs.id).error) == ("failed", None, "exit code 2")
    assert (event.name, event.severity) == ("execution_failed", "error")
    declare(world.connection, 1)
    (blocked,) = read_progress(world.connection, 1, units["site"]).blocked_tasks
    assert (blocked.name, blocked.by) == ("site_map", ("docs",))
    assert states(world, units) == {"site": "executing", "docs": "failed", "site_map": "pending", "lint": "queued"}
    assert do(world, worker) == "lint"
    assert world.unit(units["lint"]).state == "completed"


@BOTH
@pytest.mark.req("R3-13")
def test_a_failed_rule_fails_the_task_although_retries_are_left(world: World) -> None:
    checks = '{"checks": {"jobs": ["lint", "unit"]}}'
    build = make_task("build", options=checks, attempts=4, decides=False)
    units = submit(world, build, make_task("ship", ("build",)), make_task("docs"))
    worker = world.worker()
    assert do(world, worker) == "build"
    ends = {"lint": "success", "unit": "failure", "docs": "success"}
    for grant in world.claim(worker, 3):
        world.start(grant)
        world.finish(grant, ended=ends[grant.task], error="2 of 9 failed", error_class=PERMANENT)
    task, event = world.unit(units["build"]), world.events(units["build"])[-1]
    assert (task.state, task.failures, event.name, event.severity) == ("failed", 0, "validation_failed", "error")
    assert world.body(task.id).error == "check 'unit': 2 of 9 failed"
    assert world.unit(units["ship"]).unmet == 1


@BOTH
@pytest.mark.req("R3-10", "R3-15", "R3-16", "R3-19")
def test_a_task_is_in_one_state_after_the_other_and_stays_in_its_end(world: World) -> None:
    units = submit(world, make_task("build"), make_task("docs", decides=False), make_task("pack", ("docs",)))
    worker = world.worker()
    world.pass_time(2)
    build, docs = world.claim(worker, 2)
    world.pass_time(3)
    assert world.cancel(docs.unit).state == "cancelled"
    assert world.names(docs.unit)[-1] == "user_cancelled"
    world.finish(build)
    for unit in units.values():
        hops = [(event.source, event.target) for event in world.events(unit)]
        assert hops[0][0] is None
        assert all(before[1] == after[0] for before, after in pairwise(hops))
    ended = world.unit(build.unit)
    created = world.body(ended.id).created_at
    assert ended.started_at is not None
    assert created < ended.started_at < ended.changed_at
    for trigger in ("ready", "claim", "retry", "due", "valid"):
        with pytest.raises(InterlockError):
            world.send(Decide(unit=ended.id, trigger=trigger))
    for change in ("state = 'queued'", "state = NULL", "outcome = NULL", "started_at = 0"):
        with pytest.raises(StoreError):
            world.connection.rows(f"UPDATE unit SET {change} WHERE id = :id", {"id": ended.id})
    assert world.unit(ended.id) == ended


# Workstreams.


@BOTH
@pytest.mark.req("R3-23")
def test_tasks_that_need_each_other_in_a_circle_are_refused_and_named(world: World) -> None:
    site = world.submit("site", lifecycle="workstream", options='{"workstreams": {"expects": 3}}')
    circle = {"a": ("c",), "b": ("a",), "c": ("b",)}
    work = tuple(
        Work(task=name, lifecycle="task", parent=site, step=name, needs=needs) for name, needs in circle.items()
    )
    with pytest.raises(InterlockError, match=r"(a needs c needs b needs a|b needs a needs c|c needs b needs a)"):
        world.send(Submit(work=work))
    assert (world.unit(site).state, world.unit(site).total) == ("planned", 0)


@BOTH
@pytest.mark.req("R3-24", "R3-25")
def test_a_workstream_executes_with_its_first_task_and_is_validated_after_the_last(world: World) -> None:
    units = submit(world, make_task("a"), make_task("b", ("a",)), options='{"checks": {"jobs": ["smoke"]}}')
    site, worker = units["site"], world.worker()
    world.pass_time(100)
    assert (world.unit(site).state, world.unit(site).started_at) == ("ready", None)
    (a,) = world.claim(worker)
    assert (world.names(site)[-1], world.unit(site).started_at) == ("first_task_started", world.now_us)
    world.pass_time(7)
    world.finish(a)
    assert world.unit(site).state == "executing"
    declare(world.connection, 1)
    assert read_progress(world.connection, 1, site).elapsed_seconds == 7.0  # from the first task's start
    assert do(world, worker) == "b"
    assert (world.unit(site).state, world.names(site)[-1]) == ("validating", "all_tasks_completed")
    assert do(world, worker) == "smoke"
    assert (world.unit(site).state, world.names(site)[-1]) == ("completed", "validation_passed")


@BOTH
@pytest.mark.req("R3-26", "R3-34")
def test_a_critical_failure_cancels_what_is_left_in_the_same_commit(world: World) -> None:
    waits = '{"checks": {"jobs": null}}'
    tasks = [make_task(name, priority=9 - place) for place, name in enumerate(("retried", "gated", "held", "bad"))]
    tasks[0] = make_task("retried", priority=9, attempts=2)
    tasks[1] = make_task("gated", priority=8, options=waits)
    units = submit(world, *tasks, make_task("queued"), make_task("pending", ("queued",)))
    worker = world.worker()
    retried, gated, _, bad = world.claim(worker, 4)
    world.finish(retried, ended="failure")
    world.finish(gated)
    before = states(world, units)
    assert sorted(before.values()) == sorted(
        ["executing", "retrying", "validating", "running", "running", "queued", "pending"]
    )
    world.finish(bad, ended="failure", error="exit code 1")
    others = {name: state for name, state in states(world, units).items() if name not in ("site", "bad")}
    assert set(others.values()) == {"cancelled"}
    last = [world.events(unit)[-1] for unit in units.values()]
    assert {event.at for event in last} == {world.now_us}
    assert {event.name for event in last[1:]} == {"critical_task_failed", "execution_failed"}
    site = world.events(units["site"])[-1]
    assert (site.target, site.name, site.severity) == ("failed", "critical_task_failed", "critical")
    assert world.body(units["bad"]).error == "exit code 1"  # what it was is kept


@BOTH
@pytest.mark.req("R3-28")
def test_a_failed_final_check_fails_the_workstream(world: World) -> None:
    units = submit(world, make_task("a"), options='{"checks": {"jobs": ["smoke"]}}')
    worker = world.worker()
    do(world, worker)
    do(world, worker, ended="failure", error="the page is empty", error_class=PERMANENT)
    event = world.events(units["site"])[-1]
    assert (event.target, event.name, event.severity) == ("failed", "validation_failed", "critical")
    assert world.body(units["site"]).error == "check 'smoke': the page is empty"


@BOTH
@pytest.mark.req("R3-29")
def test_a_workstream_is_cancelled_in_three_states_and_not_while_it_is_validated(world: World) -> None:
    planned = {"site": world.submit("site", lifecycle="workstream")}
    ready, executing, validating = (submit(world, make_task(name), options=None) for name in ("a", "b", "c"))
    worker = world.worker()
    world.send(Cancel(unit=ready["site"]))
    assert do(world, worker) == "b"
    executing = submit(world, make_task("d"), make_task("e"))
    assert do(world, worker) == "c"
    assert do(world, worker) == "d"
    for units in (planned, executing):
        world.cancel(units["site"])
    for units in (planned, ready, executing):
        assert (world.unit(units["site"]).state, world.names(units["site"])[-1]) == ("cancelled", "user_cancelled")
    assert [world.unit(executing[name]).state for name in ("d", "e")] == ["completed", "cancelled"]
    with pytest.raises(Refused):
        world.cancel(validating["site"])
    assert world.unit(validating["site"]).state == "validating"


ENDS = {"completed", "failed", "cancelled"}


@BOTH
@pytest.mark.req("R3-01", "R3-14", "R3-58")
def test_no_end_of_a_task_or_a_workstream_is_left_by_any_command_or_statement(world: World) -> None:
    done, bad, late = (submit(world, make_task(name), options=PASSES) for name in ("a", "b", "c"))
    worker = world.worker()
    assert [do(world, worker), do(world, worker, ended="failure", error="no", error_class=PERMANENT)] == ["a", "b"]
    world.cancel(late["site"])
    ended = [unit for units in (done, bad, late) for unit in units.values()]
    before = [world.unit(unit) for unit in ended]
    assert [unit.state for unit in before] == ["completed", "completed", "failed", "failed", "cancelled", "cancelled"]
    for unit in before:
        lifecycle = world.lifecycles[unit.lifecycle]
        for trigger in sorted({trigger for _, trigger in lifecycle.moves}):
            with pytest.raises(InterlockError):
                world.send(Decide(unit=unit.id, trigger=trigger))
        for state in sorted(lifecycle.states):
            with pytest.raises(StoreError):
                world.connection.rows("UPDATE unit SET state = :to WHERE id = :id", {"to": state, "id": unit.id})
        verbs = (RetryTask, SkipTask, ReassignTask) if unit.lifecycle == "task" else ()
        for verb in verbs:
            with pytest.raises(NotWanted):
                world.send(verb(unit=unit.id))
        if not verbs:
            with pytest.raises(NotWanted, match="has ended"):
                world.send(Submit(work=(Work(task="more", lifecycle="task", parent=unit.id),)))
    assert [world.unit(unit) for unit in ended] == before
    sql = "SELECT DISTINCT source FROM edge WHERE lifecycle = :of AND retired = 0"
    for name in ("task", "workstream"):  # what the database moves by
        sources = {source for (source,) in world.connection.rows(sql, {"of": name})}
        assert sources & ENDS == set()
        assert set(world.lifecycles[name].states) - ENDS <= sources


# Workers.


@BOTH
@pytest.mark.req("R3-36", "R3-37", "R3-38", "R3-59")
def test_a_worker_is_busy_from_its_first_task_to_its_last(world: World) -> None:
    submit(world, *(make_task(name, decides=False) for name in "abc"))
    worker = world.worker(capabilities=("node", "gpu"), capacity=2)
    assert world.names(worker) == ["worker_created", "registration_complete"]
    assert world.connection.rows("SELECT capabilities FROM worker") == [("gpu,node",)]
    unit = world.unit(worker)
    assert (unit.state, unit.deadline_at is not None) == ("idle", True)  # it is watched

    def is_consistent() -> bool:
        ((holding,),) = world.connection.rows("SELECT holding FROM worker")
        return (world.unit(worker).state == "busy") == (holding >= 1)

    first, second = world.claim(worker, 3)
    assert (world.unit(worker).state, world.names(worker)[-1], is_consistent()) == ("busy", "task_assigned", True)
    world.finish(first, ended="failure")
    assert (world.unit(worker).state, is_consistent()) == ("busy", True)
    world.finish(second)
    assert (world.unit(worker).state, world.names(worker)[-1], is_consistent()) == ("idle", "task_completed", True)
    assert world.connection.rows("SELECT completions FROM worker") == [(2,)]


@BOTH
@pytest.mark.req("R3-39", "R3-40", "R3-48", "R3-59")
def test_a_silent_worker_loses_everything_and_comes_back_empty(world: World) -> None:
    exclusive = (Resource(name="repo"),)
    units = submit(world, make_task("build", attempts=2, resources=exclusive), make_task("docs"))
    silent, other = world.worker("silent"), world.worker("other")
    (old,) = world.claim(silent)
    world.pass_time(61)
    assert {grant.task for grant in world.claim(other, 2)} == {"build", "docs"}  # and the resource with it
    event = world.events(silent)[-1]
    assert (event.target, event.name, event.severity) == ("unresponsive", "health_check_timeout", "error")
    assert world.unit(units["build"]).holder == other
    assert not world.finish(old).accepted
    submit(world, make_task("late"))
    assert [grant.task for grant in world.claim(silent)] == ["late"]  # its claim is the recovery
    assert world.names(silent)[-2:] == ["health_check_recovered", "task_assigned"]
    assert not world.finish(old).accepted


@BOTH
@pytest.mark.req("R3-41", "R3-44", "R3-46")
def test_a_worker_that_stays_silent_is_shut_down_for_good(world: World) -> None:
    submit(world, make_task("build", attempts=2))
    worker = world.worker()
    (grant,) = world.claim(worker)
    world.pass_time(61)
    world.tick()
    assert world.unit(worker).state == "unresponsive"
    world.pass_time(181)
    world.tick()
    assert (world.unit(worker).state, world.names(worker)[-1]) == ("shutdown", "max_timeout_exceeded")
    version = world.unit(worker).version
    with pytest.raises(InterlockError, match="has shut down"):
        world.claim(worker)
    assert not world.beat(grant).accepted
    with pytest.raises(InterlockError):  # and one that never registered is nobody
        world.claim(987_654)
    assert world.unit(worker).version == version


@BOTH
@pytest.mark.req("R3-42", "R3-43", "R3-47")
def test_a_worker_that_is_asked_to_leave_completes_what_it_holds(world: World) -> None:
    submit(world, make_task("build"), make_task("docs"))
    idle, busy = world.worker("idle"), world.worker("busy")
    world.send(Drain(worker=idle))
    assert (world.unit(idle).state, world.names(idle)[-1]) == ("shutdown", "shutdown_requested")
    (grant,) = world.claim(busy)
    world.send(Drain(worker=busy))
    assert world.unit(busy).state == "busy"
    assert world.claim(busy) == []
    assert world.finish(grant).accepted
    assert (world.unit(busy).state, world.names(busy)[-1]) == ("shutdown", "shutdown_requested")
    assert world.unit(grant.unit).state == "completed"


@BOTH
@pytest.mark.req("R3-45")
def test_sixty_four_claims_at_once_never_give_a_worker_more_than_it_may_hold(world: World) -> None:
    submit(world, *(make_task(f"t{number}") for number in range(20)))
    worker = world.send(Register(name="w", incarnation="1", capacity=3))
    committer = world.engine.committer
    futures = [
        committer.put(Claim(worker=worker, key=f"k{number}", nonce=f"{number:0>16}", limit=2)) for number in range(64)
    ]
    while committer.step():
        pass
    granted = [grant.unit for future in futures for grant in future.result()]
    assert len(granted) == len(set(granted)) == 3
    assert world.count("unit", "lifecycle = 'task' AND state = 'running'") == 3
    world.tick()
