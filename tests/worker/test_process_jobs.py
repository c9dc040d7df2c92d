"""Jobs whose handlers run in processes of their own, from submit to end, on every database."""

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.client.exceptions import Failed
from interlock.kernel.commands import Revoke
from interlock.plugins.graphs import outputs
from interlock.store.queries.views import notes_of
from interlock.store.sqlite import MEMORY
from interlock.worker.loop import Worker
from interlock.worker.process import InProcess
from tests.store.databases import KINDS, fresh_postgres
from tests.worker.note_receiver import PATIENCE, auntil, gone, pids, until
from tests.worker.test_origin import OUTSIDE, assert_made_by

Story = Callable[[Any], Awaitable[None]]


@contextmanager
def url_of(kind: str, folder: Path, server: str) -> Iterator[str]:
    if kind == "postgres":
        with fresh_postgres(server, f"p{abs(hash(folder))}") as url:
            yield url
    else:
        yield "sqlite://" + (MEMORY if kind == "sqlite memory" else f"/{folder}/work.db")


@pytest.fixture(params=KINDS)
def chores(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Any]:
    """The tasks, on a fresh database that every process finds by its environment."""
    name = "tests.worker.chores"
    before = sys.modules.get(name)
    with pytest.MonkeyPatch.context() as patch, url_of(request.param, tmp_path, server) as url:
        patch.setenv("CHORES_URL", url)
        patch.setenv("CHORES_HURRY", "20")
        patch.setenv("INTERLOCK_BLOBS", str(tmp_path / "blobs"))
        sys.modules.pop(name, None)
        fresh = importlib.import_module(name)
        yield fresh
        fresh.app.close()
        if before:
            sys.modules[name] = before


def play(chores: Any, story: Story) -> list[int]:
    """Plays a story beside a worker, which then shuts down; the groups of all processes that it had."""
    groups: list[int] = []

    class Watched(InProcess):
        async def start(self) -> Any:
            child = await super().start()
            groups.append(child.group)
            return child

    async def played() -> None:
        worker = Worker(chores.app, {"default": 3}, grace=0.1)
        worker.executors.made["process"] = Watched(3, kill_after=0.3)
        running = asyncio.create_task(worker.run())
        try:
            await story(worker)
        finally:
            worker.stop()
            await asyncio.wait_for(running, PATIENCE)
        assert [group for group in groups if not gone(group)] == []

    asyncio.run(played())
    return groups


async def hanging(chores: Any, folder: Path, task: str = "hang") -> Any:
    """A job whose handler is in its process, and has started another one."""
    folder.mkdir()
    job = await chores.app.tasks[task].submit.aio(folder=str(folder), how="plain")
    await auntil(Path(folder, "there").exists)
    return job


def test_a_job_is_done_and_one_that_dies_is_tried_again(chores: Any, tmp_path: Path) -> None:
    async def story(worker: Any) -> None:
        done = await chores.add.submit.aio(numbers=[1, 2])
        assert (await done.wait.aio(PATIENCE))["sum"] == 3
        again = await chores.second_try.submit.aio(folder=str(tmp_path))
        assert await again.wait.aio(PATIENCE) == {"attempt": 2, "saved": {"reached": 1}, "step": "made in attempt 1"}
        never = await chores.fail.submit.aio(how="own")
        with pytest.raises(Failed, match="NoSuchUser: bob"):
            await never.wait.aio(PATIENCE)
        if MEMORY not in chores.app.url:  # which is every process's own
            sower = await chores.sow.submit.aio(text="seed")
            assert await chores.app.job(await sower.wait.aio(PATIENCE)).wait.aio(PATIENCE) == "seed"

    play(chores, story)


def test_a_process_reads_what_its_job_needs(chores: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "OUTPUTS_MAX", 1)

    async def story(worker: Any) -> None:
        needs = [await chores.add.submit.aio(numbers=[number]) for number in (3, 4)]
        job = await chores.read_needs.submit.aio(names=[need.id for need in needs], after=needs)
        assert await job.wait.aio(PATIENCE) == {
            "handed": 1, "results": [3, 4], "other": "this job needs no 'nobody' that has succeeded",
        }  # fmt: skip

    play(chores, story)


def test_a_process_reads_recorded_steps(chores: Any) -> None:
    async def story(worker: Any) -> None:
        job = await chores.read_steps.submit.aio()
        assert await job.wait.aio(PATIENCE) == [40_002, "1", True]

    play(chores, story)


def test_an_enforced_validation_is_asked_of_a_process_and_the_run_says_at_once_what_is_missing(chores: Any) -> None:
    async def story(worker: Any) -> None:
        asked = await chores.judged.submit.aio(how="asked")
        assert await asked.wait.aio(PATIENCE) == "asked"
        unasked = await chores.judged.submit.aio(how="not at all")
        with pytest.raises(
            Failed, match="VALIDATION_REQUIRED: the validation of agent 'judged' is enforced, so it may"
        ):
            await unasked.wait.aio(PATIENCE)

    play(chores, story)


def test_a_process_calls_tools_of_its_contract(chores: Any) -> None:
    async def story(worker: Any) -> None:
        run = await chores.use_tools.submit.aio()
        assert await run.wait.aio(PATIENCE) == [
            True, "the tool 'drop' is not in the contract of agent 'use_tools'; allowed are 'pick'",
        ]  # fmt: skip

    play(chores, story)


def test_a_process_adds_tasks_to_its_workstream(chores: Any) -> None:
    async def story(worker: Any) -> None:
        stream = await chores.app.workstream("all", tasks=[chores.add_tasks]).submit.aio()
        outputs = await stream.wait.aio(PATIENCE)
        (first, created), again = outputs["add_tasks"]
        assert (created, again, outputs["more"]["sum"]) == (True, [first, False], 7)
        alone = await chores.add_tasks.submit.aio()
        with pytest.raises(Failed, match="is no task of a workstream"):
            await alone.wait.aio(PATIENCE)

    play(chores, story)


def test_the_traceback_of_a_process_is_kept_with_its_job(chores: Any) -> None:
    async def story(worker: Any) -> None:
        job = await chores.fail_deeply.submit.aio()
        await auntil(lambda: any(note.kind == "traceback" for note in chores.app.read(notes_of, job.unit)))
        (note, *_) = [one for one in chores.app.read(notes_of, job.unit) if one.kind == "traceback"]
        assert "in deeper" in note.payload
        assert "ArithmeticError: too deep" in note.payload

    play(chores, story)


def test_whatever_stops_a_job_ends_its_processes(chores: Any, tmp_path: Path) -> None:
    """A timeout, a hard cancel, a lease that is taken away, a soft cancel, and the end of the worker."""

    async def story(worker: Any) -> None:
        await (await chores.who.submit.aio()).wait.aio(PATIENCE)
        late = await hanging(chores, tmp_path / "late", "hang_briefly")
        with pytest.raises(Failed):
            await late.wait.aio(PATIENCE)

        cancelled = await hanging(chores, tmp_path / "cancelled")
        lost = await hanging(chores, tmp_path / "lost")
        stopped = [pid for one in ("late", "cancelled", "lost") for pid in pids(tmp_path / one)]
        await cancelled.cancel.aio(hard=True)
        await chores.app.asend(Revoke(unit=lost.unit, reason="a test"))
        worker.heartbeats.send_soon()
        await auntil(lambda: all(map(gone, stopped)))

        soft = await chores.until_cancelled.submit.aio()
        await auntil(lambda: soft.state == "running")
        await soft.cancel.aio()
        worker.heartbeats.send_soon()
        with pytest.raises(Failed, match="cancelled"):
            await soft.wait.aio(PATIENCE)

        left.append(await hanging(chores, tmp_path / "left"))

    left: list[Any] = []
    play(chores, story)
    assert left[0].state == "queued"  # given back
    until(lambda: all(map(gone, pids(tmp_path / "left"))))


def test_what_it_submits_inherits_and_names_its_cause(chores: Any) -> None:
    if chores.app.url.endswith(":memory:"):
        pytest.skip("another process does not see this memory")

    async def story(_: Any) -> None:
        for task in (chores.begets, chores.begets_awaits):
            parent = await task.submit.aio(**OUTSIDE)
            facts = await parent.wait.aio(60)
            assert [facts["correlation"], facts["trace"]] == list(OUTSIDE.values())
            assert_made_by(parent, [facts["made"]], **OUTSIDE)

    play(chores, story)
