"""The stage that users test on: a virtual clock, a worker that does what it is told, and an app that is given back."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import interlock
from interlock.audit.laws import audit
from interlock.testing import Stage, staged

On = Callable[..., Stage]
ONCE = ["queued", "assigned", "running"]


def sound(stage: Stage) -> bool:
    return list(audit(stage.engine.reader, stage.app.lifecycles)) == []


def test_an_app_of_the_program_runs_on_memory_and_is_given_back(interlock_app: On, tmp_path: Path) -> None:
    app = interlock.open(f"sqlite:///{tmp_path}/real.db")

    @app.task
    def double(n: int) -> int:
        return 2 * n

    with staged(app) as stage:
        job = double.submit(n=21)
        app.close()  # as a program does at its end
        assert stage.drain() == 1
        assert job.wait() == 42
        assert stage.transitions(job) == [*ONCE, "succeeded"]
        assert sound(stage)
    assert not (tmp_path / "real.db").exists()
    assert app.opened is None
    with app:
        double.submit(n=1)
    assert (tmp_path / "real.db").exists()


def test_two_stages_of_one_test_know_nothing_of_each_other(interlock_app: On) -> None:
    one, two = interlock_app(), interlock_app()
    for stage in (one, two):
        stage.app.task(name="noop")(lambda: None)
    job = one.app.tasks["noop"].submit()
    assert two.drain() == 0
    assert one.drain() == 1
    assert job.state == "succeeded"


def test_time_stands_still_until_it_is_moved(interlock_app: On) -> None:
    stage = interlock_app()

    @stage.app.task
    def late() -> None: ...

    job = late.submit(delay="2h")
    assert stage.drain() == 0
    stage.advance(hours=1, minutes=59, seconds=59)
    assert stage.drain() == 0
    began = stage.now
    stage.advance("1s")
    assert stage.now - began == timedelta(seconds=1)
    assert stage.drain() == 1
    assert job.state == "succeeded"


@pytest.mark.parametrize(("args", "parts"), [((), {}), (("1h",), {"hours": 1}), ((-1,), {}), (("soon",), {})])
def test_advance_says_what_it_takes(interlock_app: On, args: tuple[object, ...], parts: dict[str, float]) -> None:
    with pytest.raises(interlock.InterlockError, match="advance"):
        interlock_app().advance(*args, **parts)  # type: ignore[arg-type]


def test_what_a_lost_worker_held_is_done_by_another_once_its_lease_is_over(interlock_app: On) -> None:
    stage = interlock_app()
    done = []

    @stage.app.task
    def work(ctx: interlock.Context) -> int:
        done.append(ctx.fence)
        return ctx.attempt

    job = work.submit()
    stage.lose_worker()
    assert stage.transitions(job) == ONCE
    assert stage.drain() == 0, "nobody takes what is held"
    stage.advance(minutes=2)
    assert stage.drain() == 1
    assert stage.transitions(job) == [*ONCE, *ONCE, "succeeded"]
    assert (job.wait(), done) == (2, [2])
    assert sound(stage)


def test_a_worker_that_is_lost_inside_a_handler_says_nothing_more(interlock_app: On) -> None:
    stage = interlock_app()
    seen: list[str] = []

    @stage.app.task
    def work(ctx: interlock.Context) -> str:
        ctx.step("first", lambda: seen.append("first"))
        try:
            if ctx.attempt == 1:
                stage.lose_worker()
        except Exception:
            seen.append("caught")
        finally:
            ctx.step("second", lambda: seen.append("second"))
        return "done"

    job = work.submit()
    assert stage.drain() == 1
    assert stage.transitions(job) == ONCE
    assert job.wait() == "done"
    assert seen == ["first", "second", "second"], "the second was never recorded by the worker that vanished"
    assert sound(stage)


def test_a_worker_is_lost_after_a_step_of_a_handler_that_knows_nothing_of_it(interlock_app: On) -> None:
    stage = interlock_app()
    charged = []

    @stage.app.task
    async def order(ctx: interlock.Context) -> str:
        async def charge() -> str:
            charged.append(ctx.attempt)
            return "receipt"

        return await ctx.step.aio("charge", charge)

    job = order.submit()
    stage.lose_worker(after_step="charge")
    assert job.state == "running"
    assert job.wait() == "receipt"
    assert charged == [1]
    order.submit(delay="1h")
    with pytest.raises(interlock.InterlockError, match="no job came to a step 'charge'"):
        stage.lose_worker(after_step="charge")


def test_a_handler_that_takes_long_keeps_its_lease_and_hears_a_cancel(interlock_app: On) -> None:
    stage = interlock_app()

    @stage.app.task
    def long(ctx: interlock.Context) -> None:
        stage.advance(hours=1)
        assert not ctx.cancelled
        stage.app.job(ctx.unit).cancel()
        assert ctx.cancelled
        raise interlock.Cancelled

    job = long.submit()
    assert stage.drain() == 1
    assert stage.transitions(job) == [*ONCE, "cancelled"]
    assert sound(stage)


def test_a_handler_that_outlives_its_timeout_is_not_heard(interlock_app: On, caplog: pytest.LogCaptureFixture) -> None:
    stage = interlock_app()

    @stage.app.task(attempts=1, timeout="1m")
    def long(ctx: interlock.Context) -> str:
        stage.advance(minutes=2)
        return "too late"

    job = long.submit()
    stage.drain()
    assert job.state == "dead_lettered"
    assert f"late result rejected id={job.id} task=long" in caplog.text


def test_waiting_works_and_lets_time_pass(interlock_app: On) -> None:
    stage = interlock_app()

    @stage.app.task
    def child() -> str:
        return "from below"

    @stage.app.task
    def parent() -> str:
        return str(child.submit(delay="1m").wait())

    began = stage.now
    assert parent.submit().wait() == "from below"
    assert stage.now - began == timedelta(minutes=1)
    with pytest.raises(interlock.StillWaiting, match="queued"):
        child.submit(delay="1h").wait(timeout="30m")
    assert stage.now - began == timedelta(minutes=31)
    with pytest.raises(interlock.StillWaiting, match="queued"):
        child.submit(capabilities=["gpu"]).wait()


def test_schedules_and_rates_are_kept_by_the_same_clock(interlock_app: On) -> None:
    stage = interlock_app(start=datetime(2030, 3, 1, 8, 59, tzinfo=UTC))
    made: list[str] = []

    @stage.app.every("0 * * * *")
    def hourly() -> None:
        made.append(f"hourly {stage.now:%H:%M}")

    @stage.app.task
    def seldom() -> None:
        made.append(f"seldom {stage.now:%H:%M}")

    stage.advance(hours=2)
    assert stage.drain() == 1, "the first of them had not ended, so the second was skipped"
    jobs = [seldom.submit(rate=interlock.rate("r", 1, "20m")) for _ in range(3)]
    for job in jobs:
        job.wait()
    assert made == ["hourly 10:59", "seldom 10:59", "hourly 11:00", "seldom 11:19", "seldom 11:39"]


def test_a_loop_of_the_test_is_not_disturbed(interlock_app: On) -> None:
    stage = interlock_app()

    @stage.app.task
    async def triple(n: int) -> int:
        await asyncio.sleep(0)
        return 3 * n

    async def main() -> int:
        job = await triple.submit.aio(n=4)
        assert stage.drain() == 1
        result: int = await job.wait.aio()
        return result

    assert asyncio.run(main()) == 12


def test_a_task_that_submits_itself_forever_is_noticed(interlock_app: On, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.testing.stage.ENOUGH", 20)
    stage = interlock_app()

    @stage.app.task
    def again() -> None:
        again.submit()

    again.submit()
    with pytest.raises(interlock.InterlockError, match="does a task submit itself again"):
        stage.drain()


def test_a_stage_without_the_capability_leaves_the_job_alone(interlock_app: On) -> None:
    app = interlock.open("sqlite://:memory:")

    @app.task(capabilities=["gpu"])
    def train() -> None: ...

    with staged(app) as plain:
        train.submit()
        assert plain.drain() == 0
    with staged(app, capabilities=["gpu", "big"]) as able:
        train.submit()
        assert able.drain() == 1


def test_the_same_test_twice_sees_the_same(interlock_app: On) -> None:
    def told() -> list[object]:
        stage = interlock_app()

        @stage.app.task(attempts=5)
        def shaky(ctx: interlock.Context) -> str:
            if ctx.attempt < 4:
                raise OSError("away")
            return f"{stage.now}"

        jobs = [shaky.submit() for _ in range(3)]
        return [*(job.wait() for job in jobs), *(stage.transitions(job) for job in jobs), *(job.id for job in jobs)]

    assert told() == told()


def test_a_stage_keeps_tracebacks_as_a_worker_does(interlock_app: On) -> None:
    stage = interlock_app()
    stage.app.redact = lambda text: text.replace("hunter2", "[word]")

    @stage.app.task(attempts=2)
    def log_in() -> None:
        raise PermissionError("not with hunter2")

    job = log_in.submit()
    with pytest.raises(interlock.Failed, match=r"not with \[word\]"):
        job.wait()
    told = stage.app.why(job.unit)
    assert "in log_in" in told
    assert "interlock/testing" not in told, "it begins with the handler"
    assert "hunter2" not in told


def test_a_users_own_project_has_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import interlock\n\n"
        "def test_mine(interlock_app):\n"
        "    stage = interlock_app()\n"
        "    job = stage.app.task(name='one')(lambda: 1).submit()\n"
        "    assert job.wait() == 1\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
