"""Handlers in processes of their own: what they may ask, how they are stopped, and that none is left behind."""

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock
from interlock.kernel.commands import Outcome
from interlock.kernel.errors import Stale, Unavailable
from interlock.worker.context import JobContext
from interlock.worker.executors import Executors
from interlock.worker.messages import LINE_MAX
from interlock.worker.outcome import classify_error, classify_result
from interlock.worker.process import KILL_AFTER, InProcess
from tests.conftest import ROOT
from tests.worker import chores
from tests.worker.note_receiver import NoteReceiver, auntil, carry_out, gone, members, pids, until

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
Story = Callable[[InProcess, NoteReceiver], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play() -> Iterator[Play]:
    """Plays a story with a pool of processes; none of them, nor of their groups, is left."""
    groups: set[int] = set()

    class Watched(InProcess):
        async def start(self) -> Any:
            child = await super().start()
            groups.add(child.group)
            return child

    async def played(story: Story, processes: int, kill_after: float) -> None:
        pool = Watched(processes, kill_after)
        try:
            await story(pool, NoteReceiver())
        finally:
            await pool.close()
        assert pool.children == set()
        assert [group for group in groups if not gone(group)] == []

    def run(story: Story, processes: int = 2, kill_after: float = 30.0) -> None:
        asyncio.run(played(story, processes, kill_after))

    yield run
    until(lambda: not [pid for group in groups for pid in members(group)])


async def raised(pool: InProcess, task: Any, context: Any) -> Exception:
    try:
        result = await carry_out(pool, task, context)
    except Exception as error:
        return error
    raise AssertionError(f"it returned {result!r}")


def test_a_process_is_spawned_leads_a_group_and_is_used_again(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "mark", "of the worker")

    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        assert pool.children == set()  # none before it is needed
        one = await carry_out(pool, chores.who, receiver.context())
        assert one["pid"] == one["group"] == one["session"] != os.getpid()
        assert one["parent"] == os.getpid()
        assert one["mark"] == "as imported"
        assert await carry_out(pool, chores.who_awaits, receiver.context()) == one["pid"]
        assert await carry_out(pool, chores.who, receiver.context()) == one
        assert len(pool.children) == 1

    play(story)


def test_there_are_never_more_processes_than_allowed(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        contexts = [receiver.context(unit) for unit in range(5)]
        running = [asyncio.create_task(carry_out(pool, chores.until_cancelled, one)) for one in contexts]
        await auntil(lambda: len(receiver.later) == 2)
        for place, context in enumerate(contexts):
            assert len(pool.children) <= 2
            context.stopping.set()
            with pytest.raises(interlock.Cancelled):
                await running[place]
        assert len(pool.children) == 2

    play(story)


def test_its_output_stays_the_users(play: Play, capfd: pytest.CaptureFixture[str]) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        await carry_out(pool, chores.speak, receiver.context())

    play(story)
    assert capfd.readouterr() == ("to stdout\n", "to stderr\n")


def test_a_handler_asks_its_context(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "interlock.job")

    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        context = receiver.context(7, numbers=[1, 2], grant={"fence": 3, "attempt": 2, "checkpoint": '{"at":0}'})
        assert await carry_out(pool, chores.add, context) == {
            "sum": 3, "unit": 7, "fence": 3, "attempt": 2, "saved": {"at": 0}, "cancelled": False, "secret": "",
        }  # fmt: skip
        assert [(one.kind, one.payload) for one in receiver.later] == [
            ("progress", '{"done":0.5,"text":"half"}'),
            ("checkpoint", '{"at":1}'),
        ]
        assert [(one.kind, one.name, one.payload) for one in receiver.sent] == [
            ("step", "sum", "3"),
            ("artifact", "sum.txt", '"3"'),
        ]
        assert {one.held for one in receiver.later + receiver.sent} == {(context.held,)}  # under the lease

    play(story)
    (record,) = [one for one in caplog.records if one.name == "interlock.job"]
    assert (record.levelname, record.getMessage()) == ("WARNING", "adding 2 numbers")
    assert (record.unit, record.fence) == (7, 3)  # type: ignore[attr-defined]


def test_an_async_handler_asks_its_context(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        assert await carry_out(pool, chores.add_awaits, receiver.context(numbers=[1, 2])) == 3
        assert [(one.kind, one.payload) for one in receiver.sent] == [("step", "3"), ("artifact", "3")]
        # What an earlier attempt did is not done again.
        known = receiver.context(numbers=[1, 2], grant={"steps": (("sum", "8"),)})
        assert await carry_out(pool, chores.add_awaits, known) == 8
        assert [one.kind for one in receiver.sent[2:]] == ["artifact"]

    play(story)


def test_a_note_that_is_refused_is_refused_in_the_process(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        for answer, kind in ((False, Stale), (Unavailable("away"), Unavailable)):
            for task in (chores.add, chores.add_awaits):
                receiver.answer = answer
                assert type(await raised(pool, task, receiver.context(numbers=[]))) is kind

    play(story)


def test_what_a_job_left_running_cannot_speak_for_the_next_one(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        await carry_out(pool, chores.talk_on, receiver.context(1))
        assert await carry_out(pool, chores.hear_out, receiver.context(2)) == [
            "this job has ended; what it left running cannot speak for it"
        ]
        assert receiver.later == receiver.sent == []

    play(story)


def test_a_soft_cancel_is_seen(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        for early in (True, False):
            context = receiver.context()
            if early:
                context.stopping.set()
            receiver.later.clear()
            running = asyncio.create_task(raised(pool, chores.until_cancelled, context))
            if not early:
                await auntil(lambda: receiver.later)
                context.stopping.set()
            error = await running
            assert (type(error), str(error)) == (interlock.Cancelled, "as asked")
            assert not (await carry_out(pool, chores.add, receiver.context(numbers=[])))["cancelled"]
        assert len(pool.children) == 1

    play(story)


# What becomes of a job is the same as in a thread.


def meaning(context: JobContext, error: BaseException) -> Any:
    """What an exception stands for; only where it was raised differs."""
    end = classify_error(context.held, error)
    return msgspec.structs.replace(end, traceback="") if isinstance(end, Outcome) else end


def test_an_error_means_what_it_means_everywhere(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        for how, make in chores.ERRORS.items():
            context = receiver.context(how=how)
            ours, theirs = make(), await raised(pool, chores.fail, context)
            if isinstance(ours, interlock.Snooze):
                assert isinstance(theirs, interlock.Snooze)
                assert theirs.after_us == ours.after_us == 9_000_000
            elif how == "surrogate":
                assert meaning(context, theirs) == meaning(context, ValueError("a?b"))
            else:
                assert meaning(context, theirs) == meaning(context, ours), how
            if type(ours).__module__.startswith("interlock"):
                assert type(theirs) is type(ours)
        assert len(pool.children) == 1

    play(story)


def test_a_result_that_is_no_json(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        for how in ("object", "surrogate", "function"):
            context = receiver.context(how=how)
            outcome = classify_error(context.held, await raised(pool, chores.no_json, context))
            assert outcome == classify_result(context.held, chores.no_json(how))
            assert isinstance(outcome, Outcome)
            assert (outcome.error_class, outcome.stage) == ("PermanentError", "output")
        assert len(pool.children) == 1

    play(story)


def test_large_arguments_and_results(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        text = "y\n" * 5_000_000
        assert await carry_out(pool, chores.echo, receiver.context(text=text)) == text
        error = await raised(pool, chores.large, receiver.context(size=LINE_MAX))
        assert isinstance(error, interlock.PermanentError)
        assert "are too many" in str(error)
        assert await carry_out(pool, chores.echo, receiver.context(text="still there")) == "still there"
        assert len(pool.children) == 1

    play(story)


def test_arguments_that_do_not_fit(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        error = await raised(pool, chores.echo, receiver.context(text=7))
        assert isinstance(error, interlock.ValidationError)
        assert "`$.text`" in str(error)

    play(story)


# Tasks that another process cannot find.


def test_a_task_of_the_script_that_was_started(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        monkeypatch.setattr(chores.who.handler, "__module__", "__main__")
        error = await raised(pool, chores.who, receiver.context())
        assert isinstance(error, interlock.PermanentError)
        assert "task 'who' runs in a process of its own" in str(error)
        assert "interlock worker module:app" in str(error)
        assert pool.children == set()

    play(story)


def test_a_task_that_no_name_leads_to(play: Play) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        error = await raised(pool, chores.hidden(), receiver.context())
        assert isinstance(error, interlock.PermanentError)
        assert "its app is defined where none can" in str(error)
        task = chores.gone_in_the_child()
        del chores.app.tasks[task.name]
        error = await raised(pool, task, receiver.context())
        assert isinstance(error, interlock.PermanentError)
        assert "did not find it by importing tests.worker.chores:app" in str(error)
        assert "this app has no task 'made_up'" in str(error)
        assert await carry_out(pool, chores.echo, receiver.context(text="still there")) == "still there"

    play(story)


# Ends that nobody asked for.


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("SIGKILL", "was ended by SIGKILL"),
        ("SIGSEGV", "was ended by SIGSEGV"),
        ("SIGTERM", "was ended by SIGTERM"),
        ("exit", "ended with exit code 3 and no answer"),
        ("at once", "ended with exit code 0 and no answer"),
    ],
)
def test_a_process_that_dies_is_named_and_replaced(play: Play, how: str, text: str) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        before = await carry_out(pool, chores.who, receiver.context())
        error = await raised(pool, chores.die, receiver.context(how=how))
        assert (type(error), str(error)) == (interlock.TransientError, f"the process of this handler {text}")
        after = await carry_out(pool, chores.who, receiver.context())
        assert before["pid"] != after["pid"]
        assert len(pool.children) == 1

    play(story)


def test_a_process_that_dies_takes_its_group_along_and_is_replaced_when_idle(play: Play, tmp_path: Path) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        grandchild = await carry_out(pool, chores.leave_behind, receiver.context(folder=str(tmp_path)))
        (child,) = pool.children
        assert not gone(grandchild)
        os.kill(child.group, signal.SIGKILL)
        assert await asyncio.shield(child.exited) == -signal.SIGKILL
        await auntil(lambda: gone(grandchild))
        assert (await carry_out(pool, chores.who, receiver.context()))["pid"] != child.group
        assert child not in pool.children

    play(story)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets an ordinary process be a reaper")
def test_a_worker_that_is_the_init_of_a_container_reaps(play: Play, tmp_path: Path) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        grandchild = await carry_out(pool, chores.leave_behind, receiver.context(folder=str(tmp_path)))
        (child,) = pool.children
        os.kill(child.group, signal.SIGKILL)
        await auntil(lambda: not Path(f"/proc/{grandchild}").exists())

    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1) == 0
    try:
        play(story)
    finally:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)


# Ends that somebody asked for.


@pytest.mark.parametrize(("how", "kill_after"), [("plain", 0.3), ("deaf", 0.3), ("neat", 30.0)])
def test_a_timeout_ends_the_group(play: Play, tmp_path: Path, how: str, kill_after: float) -> None:
    """A process, or the child of one, that does not listen is killed; one that does has time to tidy up."""

    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        running = asyncio.create_task(raised_in_time(pool, receiver.context(folder=str(tmp_path), how=how)))
        await auntil(Path(tmp_path, "there").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        child, grandchild = pids(tmp_path)
        assert gone(child)  # before anybody hears of it
        await auntil(lambda: gone(grandchild))
        assert pool.children == set()
        assert (Path(tmp_path, "tidied").exists(), Path(tmp_path, "grandchild tidied").exists()) == (
            (how == "neat",) * 2
        )
        assert await carry_out(pool, chores.echo, receiver.context(text="another one")) == "another one"

    play(story, kill_after=kill_after)


async def raised_in_time(pool: InProcess, context: Any) -> Any:
    return await carry_out(pool, chores.hang, context)


def test_who_cannot_wait_kills_at_once(play: Play, tmp_path: Path) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        running = asyncio.create_task(raised_in_time(pool, receiver.context(folder=str(tmp_path), how="deaf")))
        await auntil(Path(tmp_path, "there").exists)
        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await auntil(lambda: all(map(gone, pids(tmp_path))))

    play(story, kill_after=600.0)


def test_a_pool_that_is_closed_leaves_nothing(play: Play, tmp_path: Path) -> None:
    async def story(pool: InProcess, receiver: NoteReceiver) -> None:
        running = asyncio.create_task(raised(pool, chores.hang, receiver.context(folder=str(tmp_path), how="plain")))
        await auntil(Path(tmp_path, "there").exists)
        (tmp_path / "idle").mkdir()
        await carry_out(pool, chores.leave_behind, receiver.context(folder=str(tmp_path / "idle")))
        await pool.close()
        await auntil(lambda: all(map(gone, [*pids(tmp_path), *pids(tmp_path / "idle")])))
        assert "was ended by SIGTERM" in str(await running)

    play(story, kill_after=0.3)


def test_five_seconds_are_given() -> None:
    async def made() -> None:
        executor = Executors(3).make("process")
        assert isinstance(executor, InProcess)
        assert executor.kill_after == KILL_AFTER == 5.0

    asyncio.run(made())


@pytest.mark.parametrize("how", ["idle", "plain", "deaf", "blocked"])
def test_a_process_and_its_group_end_with_their_worker(tmp_path: Path, how: str) -> None:
    words = [sys.executable, "-m", "tests.worker.note_receiver", str(tmp_path), how]
    with subprocess.Popen(words, cwd=ROOT) as worker:
        try:
            until(Path(tmp_path, "there").exists)
            assert not [pid for pid in pids(tmp_path) if gone(pid)]
        finally:
            worker.kill()
    until(lambda: all(map(gone, pids(tmp_path))))
