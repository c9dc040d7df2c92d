"""Whoever waits for a job is told by the process that ends it; for the others it looks now and then."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.client import jobs
from interlock.kernel.commands import Cancel, Claim, Finish, LeaseRef, Outcome, Register, Start
from tests.client.test_living import working

HOUR = 3_600.0
PATIENCE = 30  # seconds, on a machine with much to do


@pytest.fixture(params=["file", "memory"])
def app(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[interlock.App]:
    """An app whose waits look once, and then not again for an hour unless they are told."""
    monkeypatch.setattr(jobs, "POLL_FIRST", HOUR)
    monkeypatch.setattr(jobs, "POLL_MAX", HOUR)
    url = "sqlite://:memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/work.db"
    with interlock.open(url) as made:
        yield made


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The units that were looked at, one after the other."""
    looked, honest = list[int](), jobs.Job.look

    def look(self: jobs.Job) -> Any:
        looked.append(self.unit)
        return honest(self)

    monkeypatch.setattr(jobs.Job, "look", look)
    return looked


def end(app: interlock.App, job: interlock.Job) -> None:
    """What a worker of this process does."""
    worker = app.send(Register(name="w", incarnation="1"))
    (grant,) = app.send(Claim(worker=worker, nonce="n" * 16, key="k"))
    held = LeaseRef(grant.unit, grant.fence, grant.lease)
    assert app.send(Start(held=(held,)))[0].accepted
    assert app.send(Finish(outcomes=(Outcome(held=held, result="7"),)))[0].accepted
    assert grant.unit == job.unit


def when_waited_for(app: interlock.App, job: interlock.Job, call: Any) -> threading.Thread:
    """Calls once somebody waits for the job."""

    def run() -> None:
        while job.unit not in app.engine.wakeups.ends:  # type: ignore[attr-defined]
            threading.Event().wait(0.001)
        call()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def told(job: interlock.Job | interlock.Run, *, aio: bool = False) -> Any:
    """What a wait without a limit comes to. It fails if nobody tells it: the next look is an hour away."""
    came: list[Any] = []

    def wait() -> None:
        try:
            came.append(asyncio.run(job.wait.aio()) if aio else job.wait())
        except interlock.Failed as failed:
            came.append(failed.state)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert came, "nobody told it"
    return came[0]


@pytest.mark.parametrize("aio", [False, True])
def test_what_ends_here_is_told_and_looked_at_once_more(app: interlock.App, looks: list[int], aio: bool) -> None:
    job = app.task(name="seven")(lambda: 7).submit()
    thread = when_waited_for(app, job, lambda: end(app, job))
    assert told(job, aio=aio) == 7
    thread.join()
    assert 1 <= len(looks) <= 2, "before it waited, and when it was told"
    assert app.engine.wakeups.ends == {}, "nobody is left waiting"  # type: ignore[attr-defined]


def test_any_end_is_told_to_everybody_who_waits(app: interlock.App, looks: list[int]) -> None:
    job = app.task(name="never")(lambda: None).submit()
    ready = threading.Barrier(3)

    def wait() -> str:
        ready.wait(PATIENCE)
        return str(told(job))

    states: list[str] = []
    threads = [threading.Thread(target=lambda: states.append(wait())) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE)
    when_waited_for(app, job, lambda: app.send(Cancel(unit=job.unit))).join()
    for thread in threads:
        thread.join()
    assert states == ["cancelled"] * 2
    assert app.engine.wakeups.ends == {}  # type: ignore[attr-defined]
    assert len(looks) <= 4


def test_a_worker_beside_it_ends_a_run_and_the_wait_is_told(app: interlock.App, looks: list[int]) -> None:
    @app.task
    def first() -> int:
        return 1

    flow = app.workflow("flow", [first])
    with working(app):
        assert told(flow.submit()) == {"first": 1}
    assert len(looks) <= 2


def test_other_jobs_wake_nobody(app: interlock.App, looks: list[int]) -> None:
    never, other = app.task(name="never")(lambda: None).submit(), app.task(name="other")(lambda: None).submit()
    thread = when_waited_for(app, never, lambda: app.send(Cancel(unit=other.unit)))
    with pytest.raises(interlock.StillWaiting):
        never.wait("300ms")
    thread.join()
    assert looks == [never.unit] * 2, "at once, and when the time was over"


def test_a_wait_that_is_given_up_is_forgotten(app: interlock.App) -> None:
    job = app.task(name="never")(lambda: None).submit()
    with pytest.raises(interlock.StillWaiting):
        job.wait("1ms")

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job.wait.aio(), 0.05)

    asyncio.run(give_up())
    assert app.engine.wakeups.ends == {}  # type: ignore[attr-defined]
    app.send(Cancel(unit=job.unit))  # and whoever ends it wakes nobody


def test_what_another_process_ends_is_seen_by_looking(tmp_path: Path) -> None:
    """No committer of this app ends it, so nothing is told; another connection stands for the other process."""
    with interlock.open(f"sqlite:///{tmp_path}/a.db") as app, interlock.open(f"sqlite:///{tmp_path}/a.db") as other:
        job = app.task(name="seven")(lambda: 7).submit()
        thread = when_waited_for(app, job, lambda: end(other, job))
        assert job.wait(PATIENCE) == 7
        thread.join()
