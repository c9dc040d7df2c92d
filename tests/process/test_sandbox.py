"""Bubblewrap where it works, and a line that says which."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.kernel.errors import InterlockError
from interlock.process import ProcessLimits, choose_sandbox
from interlock.process.sandbox import NO_SANDBOX, NOBODY, SandboxChoice, may_write, try_bubblewrap
from tests.process.commands import run_script


@pytest.fixture(autouse=True)
def tried_anew() -> Iterator[None]:
    """What was found out about a directory is forgotten."""
    try_bubblewrap.cache_clear()
    yield
    try_bubblewrap.cache_clear()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder that belongs to whoever the command runs as."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        for parent in (tmp_path, *tmp_path.parents):
            if parent.stat().st_uid == 0 and not parent.stat().st_mode & stat.S_IXOTH:
                parent.chmod(parent.stat().st_mode | stat.S_IXOTH)
    return folder


@pytest.fixture
def sandbox(workspace: Path) -> SandboxChoice:
    """Bubblewrap, where this machine lets it work; elsewhere the test is skipped, and says why."""
    choice = choose_sandbox("auto", str(workspace))
    if not choice.program:
        pytest.skip(f"nothing is shown about bubblewrap: {choice.why}")
    return choice


def test_the_log_says_that_there_is_none(tmp_path: Path) -> None:
    assert run_script("true", tmp_path)[1].log == "sandbox: none (none was wanted)\n"


def test_without_the_program_there_is_none_and_the_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    choice = choose_sandbox("auto", str(tmp_path))
    assert run_script("echo done", tmp_path, sandbox=choice)[1].log == "sandbox: none (bwrap is not installed)\n"
    with pytest.raises(InterlockError, match="bubblewrap does not work here: bwrap is not installed"):
        choose_sandbox("bubblewrap", str(tmp_path))


def test_a_program_that_fails_is_not_used_and_its_reason_is_told(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no permission' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    choice = choose_sandbox("auto", str(workspace))
    assert choice.describe() == "sandbox: none (bwrap was tried, and failed: bwrap: no permission)"


def test_none_is_none_though_it_would_work(workspace: Path) -> None:
    assert choose_sandbox("none", str(workspace)) is NO_SANDBOX


@pytest.mark.parametrize("wanted", ["", "docker", "Auto"])
def test_another_sandbox_is_refused(wanted: str, tmp_path: Path) -> None:
    with pytest.raises(
        InterlockError, match=rf"sandbox = '{wanted}' is not allowed; allowed are auto, bubblewrap, none"
    ):
        choose_sandbox(wanted, str(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is somebody else inside")
def test_root_may_not_share_a_folder_with_a_user_who_may_not_write_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "as root it would run as user 65534, who may not write to" in choose_sandbox("auto", str(tmp_path)).why
    assert choose_sandbox("auto", "/").why == "the directory is the whole system"


def test_who_may_write_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "closed").mkdir(mode=0o700)
    assert may_write(str(tmp_path / "open"), 4711)
    assert not may_write(str(tmp_path / "closed"), 4711)
    assert may_write(str(tmp_path / "closed"), os.geteuid())
    assert not may_write(str(tmp_path / "nowhere"), 4711)


# What bubblewrap keeps from a command; only where it works.


def test_a_command_sees_its_folder_and_no_other_process(sandbox: SandboxChoice, workspace: Path) -> None:
    (workspace.parent / "beside").write_text("secret")
    (workspace / "inside").write_text("mine")
    script = f"cat inside; cat {workspace.parent}/beside; echo; ls /proc | grep -c '^[0-9]'; id -u; echo made > made"
    end, written = run_script(script, workspace, sandbox=sandbox)
    assert end.succeeded, written.err
    assert "secret" not in written.out
    processes, user = written.out.splitlines()[-2:]
    assert int(processes) < 10
    assert user != "0"
    assert (workspace / "made").read_text() == "made\n"
    assert written.log == f"sandbox: bubblewrap ({shutil.which('bwrap')})\n"


def test_the_system_cannot_be_written_to(sandbox: SandboxChoice, workspace: Path) -> None:
    end, _ = run_script("touch /usr/file-of-a-test", workspace, sandbox=sandbox)
    assert end.exit_code == 1


def test_it_is_asked_to_end_inside_the_sandbox(sandbox: SandboxChoice, workspace: Path) -> None:
    script = "trap 'echo asked; exit 7' TERM; echo ready > ready; while :; do sleep 0.01; done"
    end, written = run_script(script, workspace, sandbox=sandbox, stop=(workspace / "ready").exists)
    assert (end.exit_code, end.stopped, written.out) == (7, "request", "asked\n")


def test_what_does_not_listen_is_killed_with_its_sandbox(sandbox: SandboxChoice, workspace: Path) -> None:
    script = "trap '' TERM; setsid sleep 1000 & echo ready > ready; while :; do sleep 0.01; done"
    limits = ProcessLimits(grace_seconds=0.1)
    end, _ = run_script(script, workspace, sandbox=sandbox, limits=limits, stop=(workspace / "ready").exists)
    assert (end.signal, end.stopped, end.left) == ("SIGKILL", "request", 0)
