"""A worker that was started for it runs commands, on every database and over HTTP."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.store.queries.views import notes_of
from interlock.worker.loop import Worker
from interlock.worker.shell import ShellSettings
from tests.process.commands import is_alive, read_pids
from tests.worker.stage import opened, triggers, until, working


def shell(tmp_path: Path, **settings: Any) -> ShellSettings:
    """A worker's settings: commands run in a folder of their own, without a sandbox."""
    folder = tmp_path / "commands"
    folder.mkdir(exist_ok=True)
    return ShellSettings(directory=str(folder), **{"sandbox": "none", **settings})


def on_loop(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Makes a test of a story that is told on an event loop."""

    @wraps(story)
    def test(*args: Any, **kwargs: Any) -> None:
        asyncio.run(story(*args, **kwargs))

    return test


async def ended(job: Any) -> None:
    await until(lambda: job.look().outcome is not None)


@on_loop
async def test_a_command_runs_and_its_output_is_in_the_log_and_the_result(url: str, tmp_path: Path) -> None:
    with opened(url) as app:
        async with working(app, shell=shell(tmp_path)):
            job = await app.shell.aio("echo first; sleep 0.2; echo second >&2; sleep 0.2; printf third; pwd > here")
            assert await job.wait.aio() == {"exit_code": 0, "output": "first\nsecond\nthird"}
            log = await job.log.aio()
    assert log.splitlines() == ["sandbox: none (none was wanted)", "first", "second", "third"]
    assert (tmp_path / "commands" / "here").read_text().strip() == str(tmp_path / "commands")


@on_loop
async def test_a_worker_that_was_not_started_for_it_claims_none(url: str, tmp_path: Path) -> None:
    with opened(url) as app:
        app.task(name="plain")(lambda: "done")
        async with working(app):
            job = app.shell("touch it-ran")
            assert await app.tasks["plain"].submit().wait.aio() == "done"
            assert triggers(job) == ["submit"]
            assert "shell" in app.why(job.unit)
        async with working(app, shell=shell(tmp_path)):
            await ended(job)
        assert job.look().state == "succeeded"


@on_loop
async def test_exit_code_and_last_output_are_in_the_error(url: str, tmp_path: Path) -> None:
    with opened(url) as app:
        async with working(app, shell=shell(tmp_path)):
            job = app.shell("echo useful; exit 3; echo never", attempts=1)
            with pytest.raises(interlock.Failed, match=r"the command ended with exit code 3\nuseful"):
                await job.wait.aio()
            killed = app.shell("kill -SEGV $$", attempts=1)
            with pytest.raises(interlock.Failed, match="the command was ended by SIGSEGV"):
                await killed.wait.aio()
            stops = app.shell("false; echo never", attempts=1)
            with pytest.raises(interlock.Failed, match=r"exit code 1$"):
                await stops.wait.aio()


@on_loop
async def test_the_last_forty_lines_are_in_the_error(tmp_path: Path) -> None:
    with opened("sqlite://:memory:") as app:
        async with working(app, shell=shell(tmp_path)):
            many = app.shell("for n in $(seq 60); do echo line $n; done; exit 7", attempts=1)
            await ended(many)
            first, *lines = (many.look().error or "").splitlines()
            assert first == "TransientError: the command ended with exit code 7"
            assert lines == [f"line {number}" for number in range(21, 61)]
            assert [note.kind for note in app.read(notes_of, many.unit) if note.kind == "traceback"] == []
            wide = app.shell("for n in $(seq 60); do printf 'a b %.0s' $(seq 99); echo $n; done; exit 7", attempts=1)
            await ended(wide)
            assert (wide.look().error or "").endswith("a b 60"), "what comes last is never cut"


@on_loop
async def test_the_environment_is_listed(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_WORKER", "hidden")
    settings = shell(tmp_path, environment={"STAGE": "test"}, secrets={"TOKEN": "open-sesame"})
    with opened(url) as app:
        async with working(app, shell=settings):
            job = app.shell("env | cut -d= -f1 | sort | tr '\\n' ' '", environment={"OWN": "1"})
            names = (await job.wait.aio())["output"].split()
            assert names == [
                "HOME", "INTERLOCK_ATTEMPT", "INTERLOCK_CORRELATION", "INTERLOCK_FENCE", "INTERLOCK_INPUT",
                "INTERLOCK_JOB", "INTERLOCK_OUTPUTS", "LANG", "OWN", "PATH", "PWD", "STAGE", "TOKEN",
            ]  # fmt: skip
            job = app.shell('echo "$INTERLOCK_JOB $INTERLOCK_ATTEMPT $STAGE $OWN $TOKEN"', environment={"OWN": "1"})
            assert (await job.wait.aio())["output"] == f"{job.id} 1 test 1 ***"


@on_loop
async def test_a_cancelled_command_is_asked_to_stop_and_is_cancelled(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "commands"
    with opened(url) as app:
        async with working(app, shell=shell(tmp_path)):
            job = app.shell("trap 'echo asked > asked; exit 0' TERM; echo $$ > it.pid; while :; do sleep 0.01; done")
            await until(lambda: read_pids(folder))
            job.cancel()
            await ended(job)
        assert job.look().state == "cancelled"
        assert (folder / "asked").exists()
        assert not any(map(is_alive, read_pids(folder)))


@on_loop
async def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "commands"
    with opened(url) as app:
        async with working(app, shell=shell(tmp_path)):
            job = app.shell("setsid sh -c 'echo $$ > daemon.pid; exec sleep 1000' & echo $$ > it.pid; exec sleep 1000",
                            timeout="2s", attempts=1)  # fmt: skip
            with pytest.raises(
                interlock.Failed, match="the command ran for longer than it may, and was ended by SIGTERM"
            ):
                await job.wait.aio()
        assert len(read_pids(folder)) == 2
        assert not any(map(is_alive, read_pids(folder)))


@on_loop
async def test_limits_of_a_command(url: str, tmp_path: Path) -> None:
    with opened(url) as app:
        async with working(app, shell=shell(tmp_path)):
            job = app.shell("ulimit -n; ulimit -v", limits={"open_files": 32, "memory_bytes": 1 << 30})
            assert (await job.wait.aio())["output"] == "32\n1048576"
            flood = app.shell("yes", limits={"output_bytes": 1000, "grace_seconds": 0.5}, attempts=1)
            with pytest.raises(interlock.Failed, match="the command wrote more output than it may"):
                await flood.wait.aio()


@on_loop
async def test_a_directory_below_the_workers(url: str, tmp_path: Path) -> None:
    settings = shell(tmp_path)
    (tmp_path / "commands" / "below").mkdir()
    os.symlink("/", tmp_path / "commands" / "out")
    with opened(url) as app:
        async with working(app, shell=settings):
            job = app.shell("pwd", directory="below")
            assert (await job.wait.aio())["output"] == str(tmp_path / "commands" / "below")
            for directory, why in (
                ("out/tmp", "leads out of the folder of this worker"),
                ("none", "cannot be entered"),
            ):
                job = app.shell("pwd", directory=directory)
                with pytest.raises(interlock.Failed, match=why):
                    await job.wait.aio()


@on_loop
async def test_steps_of_a_workflow_are_commands_that_get_what_came_before_as_variables(
    url: str, tmp_path: Path
) -> None:
    with opened(url) as app:

        @app.task
        def pick(version: str) -> str:
            return f"v{version}; touch injected"

        release = app.workflow(
            "release",
            steps=[
                pick,
                interlock.shell("build", 'echo "$INTERLOCK_OUTPUTS" "$INTERLOCK_INPUT"', timeout="1m"),
                interlock.shell("skip", "touch skipped", when="build.exit_code != 0"),
            ],
        )
        async with working(app, shell=shell(tmp_path)):
            run = await release.submit.aio(version="1.2")
            outputs = await run.wait.aio()
        assert run.outputs["build"]["output"] == '{"pick":"v1.2; touch injected"} {"version":"1.2"}', outputs
        assert not (tmp_path / "commands" / "injected").exists()
        assert not (tmp_path / "commands" / "skipped").exists()


@on_loop
async def test_a_job_with_the_name_and_no_command_runs_nothing(url: str, tmp_path: Path) -> None:
    """Whoever may submit, and not have commands run, gains nothing by the name of the task and its input."""
    with opened(url) as app:
        async with working(app, shell=shell(tmp_path)):
            (made,) = app.send(Submit(work=(Work(task="shell", input='{"command": "touch ran"}'),)))
            with pytest.raises(interlock.Failed, match="has the name 'shell', and no command"):
                await app.job(made.unit).wait.aio()
        assert not (tmp_path / "commands" / "ran").exists()


@on_loop
async def test_the_end_of_the_worker_ends_its_commands_and_gives_them_back(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "commands"
    with opened(url) as app:
        async with working(app, shell=shell(tmp_path), grace=0.1):
            job = app.shell("echo $$ > it.pid; exec sleep 1000")
            await until(lambda: read_pids(folder))
        assert not any(map(is_alive, read_pids(folder)))
        assert job.look().outcome is None


# What is refused; no database is needed for it.


def test_the_capability_is_not_given_by_name() -> None:
    app = interlock.open("sqlite://:memory:")
    with pytest.raises(InterlockError, match="the capability 'shell' is not given by name: --shell gives it"):
        Worker(app, {"default": 1}, capabilities=("shell",))


def test_an_app_with_a_task_of_that_name_runs_no_commands(tmp_path: Path) -> None:
    with interlock.open("sqlite://:memory:") as app:
        app.task(name="shell")(lambda: None)
        with pytest.raises(InterlockError, match="has a task 'shell' already"):
            Worker(app, {"default": 1}, shell=shell(tmp_path))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"directory": "/nowhere"}, "there is no folder '/nowhere' to run commands in"),
        ({"secrets": {"TOKEN": "abc"}}, "TOKEN: a secret of fewer than 4 bytes"),
        ({"sandbox": "docker"}, "sandbox = 'docker' is not allowed; allowed are auto, bubblewrap, none"),
    ],
)
def test_settings_with_which_no_command_could_run_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InterlockError, match=why):
        ShellSettings(**settings)


@pytest.mark.parametrize(
    ("command", "options", "why"),
    [
        ("", {}, "1 to 65,536 characters"),
        (7, {}, "shell: Expected `str`"),
        ("a", {"environment": {"A": 1}}, "shell: Expected `str`"),
        ("a", {"environment": "A=1"}, "shell: Expected `object`"),
        ("a", {"environment": {"A B": "1"}}, "the name 'A B' is not allowed"),
        ("a", {"directory": "/etc"}, "below the worker's"),
        ("a", {"limits": {"seconds": 1}}, "there is no limit 'seconds'"),
        ("a", {"user": "root"}, "shell has no option 'user'; it has environment, directory"),
        ("a", {"attempts": "3"}, "attempts = '3' is not allowed"),
        ("a", {"timeout": "soon"}, "timeout"),
        ("a", {"queue": 7}, "queue = 7 is not allowed"),
        ("a", {"capabilities": "gpu"}, "capabilities = 'gpu' is not allowed"),
    ],
)
def test_wrong_commands_and_options_are_refused_where_they_are_written(
    command: Any, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(InterlockError, match=why):
        interlock.shell("step", command, **options).work.make_work("null", {})  # type: ignore[union-attr]
    with interlock.open("sqlite://:memory:") as app:
        with pytest.raises(InterlockError, match=why):
            app.shell(command, **options)
        for name, value in (("key", 7), ("delay", "soon"), ("at", "now"), ("priority", "high"), ("labels", "x")):
            with pytest.raises(InterlockError, match=name):
                app.shell("true", **{name: value})
        assert app.jobs().count().count == 0
