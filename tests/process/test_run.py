"""A command runs in a process tree of its own: its end, its outputs, its limits, and that nothing of it is left."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.kernel.errors import InterlockError, PermanentError, TransientError
from interlock.process import ProcessEnd, ProcessLimits, arun, run
from interlock.process.leftovers import find_marked
from interlock.process.supervisor import count_descendants, count_tasks_of, list_descendants
from tests.process.commands import PATHS, Collected, is_alive, read_pids, run_script, wait_for

MIB = 1 << 20
# A process that leaves its session and its parent, as daemons do, and notes who it is.
DAEMON = "(setsid sh -c 'echo $$ > daemon.pid; exec sleep 1000' &); while ! test -s daemon.pid; do sleep 0.01; done\n"


def test_exit_code_and_both_outputs(tmp_path: Path) -> None:
    end, written = run_script("echo good; echo bad >&2; exit 3", tmp_path)
    assert (end.exit_code, end.signal, end.stopped, end.output_bytes) == (3, None, "", 9)
    assert (written.out, written.err) == ("good\n", "bad\n")
    assert not end.succeeded
    assert end.describe() == "ended with exit code 3"


def test_a_signal_is_told_by_its_name(tmp_path: Path) -> None:
    end, _ = run_script("kill -SEGV $$", tmp_path)
    assert (end.exit_code, end.signal) == (None, "SIGSEGV")
    assert end.describe() == "was ended by SIGSEGV"


def test_the_environment_is_what_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_STARTER", "secret")
    collected = Collected()
    run(["/usr/bin/env"], directory=tmp_path, environment={"GIVEN": "yes"}, on_output=collected)
    assert collected.out == "GIVEN=yes\n"


def test_it_runs_in_its_directory_and_reads_its_input(tmp_path: Path) -> None:
    _, written = run_script("pwd; cat", tmp_path, stdin=b"a line\n" * 100_000)
    assert written.out == f"{tmp_path}\n" + "a line\n" * 100_000


def test_without_input_it_reads_the_end_at_once(tmp_path: Path) -> None:
    assert run_script("cat; echo ended", tmp_path)[1].out == "ended\n"


def test_large_outputs_of_both_kinds_are_read_to_the_end(tmp_path: Path) -> None:
    script = "for n in $(seq 100); do head -c 20000 /dev/zero; head -c 20000 /dev/zero >&2; done"
    end, written = run_script(script, tmp_path)
    assert end.succeeded
    assert {name: len(data) for name, data in written.streams.items() if name != "log"} == {
        "out": 2_000_000,
        "err": 2_000_000,
    }


def test_a_daemon_is_adopted_and_killed(tmp_path: Path) -> None:
    end, _ = run_script(f"{DAEMON} echo done", tmp_path)
    assert end.succeeded
    assert end.killed == 1
    assert [is_alive(pid) for pid in read_pids(tmp_path)] == [False]


def test_orphans_of_orphans_are_killed(tmp_path: Path) -> None:
    script = """
    for n in 1 2 3; do
      (setsid sh -c "(setsid sh -c 'echo \\$\\$ > inner$n.pid; exec sleep 1000' &); echo \\$\\$ > outer$n.pid; exec sleep 1000" &)
    done
    while ! { test -s inner1.pid && test -s inner2.pid && test -s inner3.pid && test -s outer1.pid &&
              test -s outer2.pid && test -s outer3.pid; }; do sleep 0.01; done
    """
    end, _ = run_script(script, tmp_path)
    assert end.succeeded
    assert len(read_pids(tmp_path)) == 6
    assert not any(map(is_alive, read_pids(tmp_path)))


def test_the_end_of_the_process_counts_and_not_that_of_its_output(tmp_path: Path) -> None:
    """The background process holds both outputs open, and would for a while."""
    end, written = run_script("sleep 20 & echo $! > left.pid; echo last", tmp_path)
    assert (end.exit_code, end.killed, written.out) == (0, 1, "last\n")
    assert not is_alive(*read_pids(tmp_path))


def test_it_is_asked_to_end_and_ends_in_its_own_way(tmp_path: Path) -> None:
    script = "trap 'echo asked; exit 7' TERM; echo ready > ready; while :; do sleep 0.01; done"
    end, written = run_script(script, tmp_path, stop=(tmp_path / "ready").exists)
    assert (end.exit_code, end.stopped, written.out) == (7, "request", "asked\n")
    assert end.describe() == "was asked to stop, and ended with exit code 7"


def test_everything_in_the_tree_is_asked(tmp_path: Path) -> None:
    """A child in a session of its own gets no signal of its parent's group."""
    child = "trap 'echo child > asked; exit 0' TERM; echo $$ > child.pid; while :; do sleep 0.01; done"
    script = f"""
    setsid sh -c "{child.replace("$", chr(92) + "$")}" &
    trap 'while ! test -s asked; do sleep 0.01; done; exit 0' TERM
    while :; do sleep 0.01; done
    """
    end, _ = run_script(script, tmp_path, stop=lambda: bool(read_pids(tmp_path)))
    assert (end.exit_code, end.stopped) == (0, "request")
    assert (tmp_path / "asked").read_text() == "child\n"


def test_what_does_not_listen_is_killed_after_the_grace(tmp_path: Path) -> None:
    script = "trap '' TERM; echo ready > ready; while :; do sleep 0.01; done"
    limits = ProcessLimits(grace_seconds=0.1)
    end, _ = run_script(script, tmp_path, stop=(tmp_path / "ready").exists, limits=limits)
    assert (end.exit_code, end.signal, end.stopped) == (None, "SIGKILL", "request")


def test_the_limit_of_time(tmp_path: Path) -> None:
    end, _ = run_script("echo $$ > it.pid; exec sleep 1000", tmp_path, limits=ProcessLimits(seconds=0.3))
    assert (end.signal, end.stopped) == ("SIGTERM", "time")
    assert end.describe() == "ran for longer than it may, and was ended by SIGTERM"
    assert not end.succeeded
    assert not any(map(is_alive, read_pids(tmp_path)))


def test_the_limit_of_output_counts_both_and_delivers_no_more(tmp_path: Path) -> None:
    script = "trap 'exit 0' TERM; while :; do echo out; echo err >&2; done"
    end, written = run_script(script, tmp_path, limits=ProcessLimits(output_bytes=1000))
    assert (end.exit_code, end.stopped) == (0, "output")
    assert not end.succeeded
    assert len(written.out) + len(written.err) == 1000 < end.output_bytes


@pytest.mark.parametrize(
    ("limits", "script", "sign"),
    [
        ({"file_bytes": MIB}, "head -c 2000000 /dev/zero > file; echo $?; wc -c < file", "1048576"),
        ({"open_files": 16}, "ulimit -n", "16"),
        ({"memory_bytes": 256 * MIB}, "ulimit -v", "262144"),
        ({"cpu_seconds": 2}, "ulimit -t", "2"),
        ({"processes": 64}, "ulimit -u 2>/dev/null || ulimit -p", "64"),
        ({}, "ulimit -c", "0"),
    ],
)
def test_the_limits_that_the_kernel_keeps(limits: dict[str, Any], script: str, sign: str, tmp_path: Path) -> None:
    _, written = run_script(script, tmp_path, limits=ProcessLimits(**limits))
    assert written.out.splitlines()[-1].strip() == sign


def test_memory_over_the_limit_is_not_given(tmp_path: Path) -> None:
    collected = Collected()
    argv = [sys.executable, "-I", "-S", "-c", "bytearray(1 << 30)"]
    limits = ProcessLimits(memory_bytes=512 * MIB)
    end = run(argv, directory=tmp_path, environment=PATHS, on_output=collected, limits=limits)
    assert end.exit_code == 1
    assert "MemoryError" in collected.err


def test_a_command_that_loops_ends_by_its_limit_of_processor_time(tmp_path: Path) -> None:
    end, _ = run_script("while :; do :; done", tmp_path, limits=ProcessLimits(cpu_seconds=1))
    assert end.signal in ("SIGXCPU", "SIGKILL")


# Each begins two more, down to 1,023 processes: many more than are allowed, and no more than a machine bears.
FORKS = "forks() { [ $1 -eq 9 ] || { forks $(($1+1)) & forks $(($1+1)) & }; sleep 1000; }; forks 0"
SESSIONS = "echo '[ $1 -eq 9 ] || { setsid sh f $(($1+1)) & setsid sh f $(($1+1)) & }; sleep 1000' > f; sh f 0"


@pytest.mark.parametrize("script", [FORKS, SESSIONS], ids=["forks", "forks in sessions"])
def test_a_tree_that_has_more_processes_than_it_may_is_killed(script: str, tmp_path: Path) -> None:
    limits, mark = ProcessLimits(tree_processes=64, seconds=60), {"OF": str(tmp_path)}
    end, _ = run_script(script, tmp_path, limits=limits, environment={**PATHS, **mark})
    assert (end.signal, end.stopped, end.left) == ("SIGKILL", "processes", 0)
    assert end.describe() == "had more processes at a time than it may, and was ended by SIGKILL"
    assert find_marked(f"OF={tmp_path}".encode()) == []


def test_a_tree_that_has_as_many_processes_as_it_may_is_left_alone(tmp_path: Path) -> None:
    """They are there until they were counted, which the supervisor does before it waits."""
    script = (
        "for n in $(seq 30); do sleep 1000 & done; echo ready > ready; while ! test -e counted; do sleep 0.01; done"
    )
    looks: list[int] = []

    def count() -> bool:
        looks.append((tmp_path / "ready").exists())
        if sum(looks) == 5:
            (tmp_path / "counted").touch()
        return False

    end, _ = run_script(script, tmp_path, limits=ProcessLimits(tree_processes=32), stop=count)
    assert (end.exit_code, end.stopped, end.killed) == (0, "", 30)


def test_without_lists_of_children_the_tree_is_counted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kernels are built without them."""
    words = ["sh", "-c", "sleep 1000 & sleep 1000 & echo; wait"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as tree:
        assert tree.stdout
        tree.stdout.readline()
        below = list_descendants()
        assert [group for _, group in below].count(tree.pid) == 3
        assert count_descendants(1_000) == len(below)
        monkeypatch.setattr("interlock.process.supervisor.read_children", lambda _: None)
        assert count_descendants(1_000) == len(below)
        os.killpg(tree.pid, signal.SIGKILL)


def test_the_kernel_bounds_what_comes_between_two_counts(tmp_path: Path) -> None:
    script = "ulimit -u 2>/dev/null || ulimit -p"
    _, written = run_script(script, tmp_path, limits=ProcessLimits(tree_processes=100))
    tasks, most = count_tasks_of(os.getuid()), int(written.out)
    assert 800 < most < 10 * (800 + tasks)
    _, written = run_script(script, tmp_path, limits=ProcessLimits(tree_processes=100, processes=64))
    assert int(written.out) == 64  # what was said goes before


STARTER = """
import sys
from interlock.process import run
run(["sh", "-c", sys.argv[1]], directory=".", environment={"PATH": "/usr/bin:/bin"}, on_output=lambda *_: None)
"""


def test_the_tree_ends_with_its_starter(tmp_path: Path) -> None:
    """Also when the starter is killed, and cannot say anything more."""
    script = f"{DAEMON} echo $$ > main.pid; exec sleep 1000"
    starter = subprocess.Popen([sys.executable, "-c", STARTER, script], cwd=tmp_path)
    wait_for(lambda: len(read_pids(tmp_path)) == 2)
    assert all(map(is_alive, read_pids(tmp_path)))
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    wait_for(lambda: not any(map(is_alive, read_pids(tmp_path))))


def test_the_tree_is_killed_if_its_output_cannot_be_taken(tmp_path: Path) -> None:
    def refuse(stream: str, data: bytes) -> None:
        if stream == "out":
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        run_script(f"{DAEMON} echo $$ > main.pid; echo word; exec sleep 1000", tmp_path, on_output=refuse)
    assert len(read_pids(tmp_path)) == 2
    assert not any(map(is_alive, read_pids(tmp_path)))


def test_a_command_that_kills_its_supervisor_dies_with_it(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="supervisor"):
        run_script("echo $$ > main.pid; kill -9 $PPID; exec sleep 1000", tmp_path)
    wait_for(lambda: not is_alive(*read_pids(tmp_path)))


def test_a_command_that_stops_its_supervisor_is_waited_for_all_the_same(tmp_path: Path) -> None:
    end, written = run_script(f"{DAEMON} kill -STOP $PPID; echo after; exit 4", tmp_path)
    assert (end.exit_code, end.killed, written.out) == (4, 1, "after\n")
    assert not any(map(is_alive, read_pids(tmp_path)))


def test_nothing_of_the_starter_is_open_in_the_command(tmp_path: Path) -> None:
    with (tmp_path / "of the starter").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        _, written = run_script("ls -l /proc/self/fd", tmp_path)
    names = [line.split()[8] for line in written.out.splitlines() if "->" in line]
    assert sorted(names) == ["0", "1", "2", "3"]  # the last one is the directory that ls reads


def test_secrets_are_masked_in_both_outputs(tmp_path: Path) -> None:
    script = 'printf "%s" "$TOKEN" | head -c 5; sleep 0.1; printf "%s" "$TOKEN" | tail -c +6; echo; echo "$TOKEN" >&2'
    environment = {**PATHS, "TOKEN": "open-sesame"}
    _, written = run_script(script, tmp_path, environment=environment, secrets=["open-sesame"])
    assert (written.out, written.err) == ("***\n", "***\n")


def test_output_comes_while_the_command_runs(tmp_path: Path) -> None:
    """The command waits for a file that is made when its first word has come, also with secrets that might begin."""

    def answer(stream: str, data: bytes) -> None:
        if b"ready" in data:
            (tmp_path / "go").touch()

    script = "echo ready; while ! test -e go; do sleep 0.01; done"
    assert run_script(script, tmp_path, on_output=answer, secrets=["readiness"])[0].succeeded


@pytest.mark.parametrize(
    ("argv", "options", "why"),
    [
        (["nonesuch"], {}, "'nonesuch' cannot be started: No such file or directory"),
        (["./plain"], {}, "'./plain' cannot be started: Permission denied"),
        (["true"], {"directory": "/nonesuch"}, "its directory '/nonesuch' cannot be entered: No such file"),
        (["true"], {"environment": {"PATH": "/nonesuch"}}, "'true' cannot be started"),
    ],
)
def test_what_cannot_be_started_says_why(argv: list[str], options: dict[str, Any], why: str, tmp_path: Path) -> None:
    (tmp_path / "plain").touch(mode=0o644)
    given = {"directory": tmp_path, "environment": PATHS, "on_output": Collected(), **options}
    with pytest.raises(PermanentError, match=why):
        run(argv, **given)


@pytest.mark.parametrize(
    ("argv", "options", "why"),
    [
        ([], {}, "no command to run"),
        ([""], {}, "no command to run"),
        ("ls -l", {}, "a list of words"),
        (["a\0b"], {}, "text without NUL"),
        ([1], {}, "text without NUL"),
        (["true"], {"environment": {"A=B": "c"}}, "the name 'A=B' is not allowed"),
        (["true"], {"environment": {"": "c"}}, "the name '' is not allowed"),
        (["true"], {"environment": {"A": 1}}, "the value of A is not allowed"),
        (["true"], {"environment": {"A": "\0"}}, "the value of A is not allowed"),
        (["true"], {"secrets": ["abc"]}, "fewer than 4 bytes"),
        (["true"], {"secrets": [""]}, "fewer than 4 bytes"),
    ],
)
def test_wrong_parameters_are_refused_and_nothing_is_started(
    argv: Any, options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    collected = Collected()
    with pytest.raises(InterlockError, match=why):
        run(argv, **{"directory": tmp_path, "environment": PATHS, "on_output": collected, **options})
    assert collected.log == ""


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": -1},
        {"seconds": float("nan")},
        {"seconds": "3"},
        {"grace_seconds": None},
        {"grace_seconds": -0.1},
        {"output_bytes": 0},
        {"output_bytes": 1.5},
        {"memory_bytes": True},
        {"open_files": -1},
        {"processes": 2**70},
        {"tree_processes": 0},
    ],
)
def test_limits_that_are_none_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(InterlockError, match=f"^{next(iter(limits))} = .* is not allowed; allowed is a"):
        ProcessLimits(**limits)


# On an event loop.


async def run_on_loop(script: str, folder: Path) -> ProcessEnd:
    return await arun(["sh", "-c", script], directory=folder, environment=PATHS, on_output=Collected())


def test_commands_run_beside_each_other_on_a_loop(tmp_path: Path) -> None:
    """Each of them ends only when all of them run."""

    async def run_all() -> list[ProcessEnd]:
        script = "touch {}; while ! test -e 0 -a -e 1 -a -e 2; do sleep 0.01; done"
        return list(await asyncio.gather(*(run_on_loop(script.format(n), tmp_path) for n in range(3))))

    assert [end.exit_code for end in asyncio.run(run_all())] == [0, 0, 0]


def test_a_cancelled_command_is_asked_to_end_and_has_ended(tmp_path: Path) -> None:
    script = f"trap 'echo asked > asked; exit 0' TERM; {DAEMON} while :; do sleep 0.01; done"

    async def cancel() -> None:
        task = asyncio.create_task(run_on_loop(script, tmp_path))
        while not read_pids(tmp_path):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert (tmp_path / "asked").exists()
    assert not any(map(is_alive, read_pids(tmp_path)))


def test_errors_come_through_the_loop(tmp_path: Path) -> None:
    async def fail() -> None:
        await arun(["nonesuch"], directory=tmp_path, environment=PATHS, on_output=Collected())

    with pytest.raises(PermanentError, match="nonesuch"):
        asyncio.run(fail())


def test_many_commands_leave_no_file_open(tmp_path: Path) -> None:
    run_script("true", tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        run_script(f"{DAEMON} true", tmp_path)
        (tmp_path / "daemon.pid").unlink()
    assert len(os.listdir("/proc/self/fd")) == before
