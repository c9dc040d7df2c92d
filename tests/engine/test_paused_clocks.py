"""What is paused has clocks that stand (S-18): nothing runs out meanwhile, and each has the rest of its time after it."""

import random

import msgspec
import pytest

from interlock.client.why import explain
from interlock.kernel.commands import PauseWork, Signal, Submit, UnpauseWork, Work
from interlock.kernel.timing import STANDS_US
from interlock.plugins.pauses.queries import find_run_out, find_stopped_for_ever
from tests.engine.world import SECOND, World
from tests.store.databases import declare

MINUTE, HOUR = 60, 3600
STEP = 10 * SECOND


def check_by(*jobs: object) -> str:
    return msgspec.json.encode({"checks": {"jobs": jobs}}).decode()


def make_stream(world: World, *tasks: Work, timeout: int) -> list[int]:
    """A workstream whose time runs, and its tasks, of which those with checks are in their gates."""
    stream = Work(
        task="all", lifecycle="workstream", ref="ws", timeout_us=timeout * SECOND, options='{"workstreams": {}}'
    )
    made = [made.unit for made in world.send(Submit(work=(stream, *tasks)))]
    worker = world.worker(incarnation=str(world.claims))
    for grant in world.claim(worker, limit=9):
        world.start(grant)
        if grant.task != "run":
            world.finish(grant)
    return made


def make_task(name: str, checks: str | None = None, **facts: object) -> Work:
    facts = {"decides": False, "parent": "ws", "lifecycle": "task", "step": name, "options": checks, **facts}
    return Work(task=name, **facts)  # type: ignore[arg-type]


def let_time_pass(world: World, seconds: int) -> None:
    world.pass_time(seconds)
    world.tick()


def test_gates_approvals_and_time_limits_stand_while_their_workstream_is_paused(world: World) -> None:
    person = {"task": "person", "lifecycle": "approval", "expires_us": 10 * MINUTE * SECOND}
    ws, build, pack, run = make_stream(
        world, make_task("build", check_by(person)), make_task("pack", check_by("lint")),
        make_task("run", timeout_us=20 * SECOND), timeout=HOUR,
    )  # fmt: skip
    approval = world.connection.rows("SELECT id FROM unit WHERE lifecycle = 'approval'")[0][0]
    let_time_pass(world, 5)
    world.send(PauseWork(unit=ws))
    let_time_pass(world, 20)
    assert world.unit(run).failures == 1, "what a worker holds goes on, with its clock"
    let_time_pass(world, 2 * HOUR)
    open_now = [world.unit(unit).state for unit in (ws, build, pack, approval)]
    assert open_now == ["executing", "validating", "validating", "WAITING_APPROVAL"]
    declare(world.connection, 1)
    told = explain(world.connection, 1, world.lifecycles, approval)
    assert "its clock stands while it is paused" in told.text
    assert "its time is over (" not in told.text
    world.send(UnpauseWork(unit=ws))
    rests = {approval: 10 * MINUTE - 5, pack: 30 * MINUTE - 5, ws: HOUR - 5}
    for unit, rest in rests.items():
        assert world.unit(unit).deadline_at == world.now_us + rest * SECOND
    passed = 0
    for unit, rest in rests.items():
        let_time_pass(world, rest - passed - 1)
        assert world.unit(unit).outcome is None
        let_time_pass(world, 1)
        assert world.unit(unit).outcome is not None
        passed = rest
    assert world.events(ws)[-1].name == "workstream_timed_out"


def test_clocks_under_pauses_that_overlap_count_what_was_not_paused(world: World) -> None:
    """Random pauses of a workstream and of a task in it, some with an end, some with a late tick."""
    for seed in range(4):
        dice = random.Random(seed)
        ws, task = make_stream(world, make_task("pack", check_by("lint")), timeout=5_000)
        left = {ws: 5_000 * SECOND, task: 30 * MINUTE * SECOND}
        paused: dict[int, int | None] = {}  # until when; None: until somebody ends it
        for _ in range(40):
            for unit in (ws, task):
                is_paused = unit in paused
                if dice.random() < 0.3 and not is_paused:
                    for_us = dice.choice((None, 2 * STEP, 5 * STEP))
                    world.send(PauseWork(unit=unit, for_us=for_us, reason=str(dice.random())))
                    paused[unit] = None if for_us is None else world.now_us + for_us
                elif dice.random() < 0.3 and is_paused:
                    world.send(UnpauseWork(unit=unit))
                    del paused[unit]
            world.now_us += STEP
            left[ws] -= 0 if ws in paused else STEP
            left[task] -= 0 if paused else STEP
            if dice.random() < 0.7:
                world.tick()
            paused = {unit: until for unit, until in paused.items() if until is None or until > world.now_us}
        for unit in paused:
            world.send(UnpauseWork(unit=unit))
        world.tick()
        for unit in (task, ws):
            assert world.unit(unit).deadline_at == world.now_us + left[unit], (seed, unit)
            assert world.unit(unit).outcome is None
        let_time_pass(world, left[task] // SECOND)
        assert world.unit(task).outcome is not None


def test_a_clock_that_starts_anew_during_a_pause_has_stood_since_then_only(world: World) -> None:
    """What waits has a clock again when its signal comes; before, between or after what was paused."""
    limit = 100 * SECOND
    job = world.submit("parent", queue_timeout_us=limit)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.release(grant, signal="child")
    assert world.unit(job).deadline_at is None
    world.send(PauseWork(unit=job))
    let_time_pass(world, 500)
    world.send(Signal(unit=job, name="child"))
    assert world.unit(job).deadline_at == world.now_us + limit
    let_time_pass(world, 30)
    world.send(PauseWork(unit=job, for_us=50 * SECOND, reason="for a while"))
    let_time_pass(world, 60)  # ten seconds after its end
    assert world.unit(job).deadline_at == world.now_us + limit - 10 * SECOND
    world.send(PauseWork(unit=job))
    let_time_pass(world, 500)
    assert world.unit(job).outcome is None
    world.send(UnpauseWork(unit=job))
    assert world.unit(job).deadline_at == world.now_us + limit - 10 * SECOND
    let_time_pass(world, 90)
    assert world.unit(job).outcome is not None


@pytest.mark.parametrize("limit", [100, 30])
def test_a_run_whose_job_begins_to_wait_under_a_pause_has_the_rest_of_its_time(world: World, limit: int) -> None:
    """Its clock stands for two reasons, one after the other; of 30 s it has seen the end before the job waits."""
    run = world.submit("all", lifecycle="agent_run", timeout_us=limit * SECOND)
    world.submit(lifecycle="agent_job", parent=run)
    (grant,) = world.claim(world.worker())
    world.start(grant)

    def work_for(seconds: int) -> None:
        for _ in range(seconds // 5):
            let_time_pass(world, 5)
            world.beat(grant)

    work_for(10)
    world.send(PauseWork(unit=run))
    work_for(10)
    world.send(UnpauseWork(unit=run))
    world.send(PauseWork(unit=run, for_us=5 * SECOND, reason="for a while"))
    world.pass_time(10)  # nobody has noticed its end yet
    world.beat(grant)
    world.send(PauseWork(unit=run, reason="for longer"))
    work_for(20)
    assert world.release(grant, signal="go").accepted
    assert world.unit(run).deadline_at is None
    let_time_pass(world, HOUR)
    world.send(UnpauseWork(unit=run))
    let_time_pass(world, HOUR)
    world.send(Signal(unit=grant.unit, name="go"))
    (again,) = world.claim(world.worker("another"))
    assert world.unit(run).deadline_at == world.now_us + (limit - 15) * SECOND
    world.start(again)
    assert world.unit(run).outcome is None


def test_the_laws_notice_a_clock_that_ran_out_under_a_pause_and_one_that_stands_for_ever(world: World) -> None:
    ws, task = make_stream(world, make_task("pack", check_by("lint")), timeout=HOUR)
    world.send(PauseWork(unit=ws))
    world.pass_time(2 * HOUR)
    world.tick()
    assert (world.unit(task).deadline_at or 0) > STANDS_US
    world.connection.rows("UPDATE pause SET live = 0, ended_at = 1")
    declare(world.connection, 1)
    assert {unit for unit, _ in find_stopped_for_ever(world.connection)} == {ws, task}
    world.connection.rows("UPDATE unit SET deadline_at = 1, wake_at = 1 WHERE deadline_at IS NOT NULL")
    world.engine.send(UnpauseWork(unit=ws))
    world.engine.send(PauseWork(unit=ws))
    declare(world.connection, 1)
    world.connection.rows("UPDATE pause SET ended_at = 1, live = 0")
    world.pass_time(1)
    world.tick()
    declare(world.connection, 1)
    world.connection.rows("UPDATE pause SET ended_at = NULL, live = 1 WHERE id = (SELECT max(id) FROM pause)")
    assert {unit for unit, _ in find_run_out(world.connection)} >= {ws}
