"""Run git: cleared environment, no hooks, no prompts, a time limit, and nothing left behind.

What git does depends on much that the caller does not see: the configuration of the system, of the user and of the
repository, variables, hooks, attributes. A repository may belong to somebody who is trusted less than the program that
reads it: whoever may write to a worktree can also write to the configuration of its repository. So:

- The environment is this module's own. Configuration of the system and of the user is not read.
- Of the repository's own configuration, everything that names a program is overridden: hooks (`update-ref` runs some
  too), the file system monitor, external diffs, credential helpers, and the drivers of filters and merges, which are
  looked up for each call that could run one. Files are taken as they are, and merged as text.
- Git asks nobody: not on the terminal, not by a program, not by ssh.
- It fetches by one protocol, which the caller names; the others are refused, also where the repository redirects.
"""

import os
import re
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from interlock.kernel.errors import InterlockError
from interlock.process import ProcessLimits, run
from interlock.process.run import CHUNK, LOOK_EVERY, name_signal, never_stop

PROTOCOLS = ("file", "https", "ssh")
OLDEST = (2, 38)  # the first whose merge-tree writes a tree
SECONDS = 60.0
OUTPUT_MAX = 64 << 20  # bytes
# What only reads, whatever its arguments are here. `status` and `diff` are not among them: they look into submodules.
READING = ("cat-file", "config", "diff-tree", "for-each-ref", "ls-tree", "merge-base", "rev-parse", "version")
PATHS = "/usr/local/bin:/usr/bin:/bin"
ENVIRONMENT = {
    "HOME": "/nonexistent", "LC_ALL": "C", "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "false", "SSH_ASKPASS": "false",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes", "GIT_EDITOR": "false", "GIT_PAGER": "cat", "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_LITERAL_PATHSPECS": "1", "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_NO_LAZY_FETCH": "1",
}  # fmt: skip
SETTINGS = {
    "core.hooksPath": os.devnull, "core.fsmonitor": "false", "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull, "core.alternateRefsCommand": ":", "core.askPass": "false", "core.editor": "false",
    "core.quotePath": "false", "credential.helper": "", "diff.external": "", "gc.auto": "0",
    "maintenance.auto": "false", "commit.gpgSign": "false", "tag.gpgSign": "false", "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false", "advice.addEmbeddedRepo": "false", "protocol.allow": "never",
}  # fmt: skip
DRIVER = re.compile(r"(filter|merge)\.(.+)\.(clean|smudge|process|driver)", re.DOTALL)
REDIRECT = re.compile(
    r"url\..+\.(insteadof|pushinsteadof)|remote\..+\.(vcs|uploadpack|proxy)|core\.gitproxy", re.DOTALL
)
CREDENTIALS = re.compile(r"(://)[^/\s@]+@")


class GitError(InterlockError):
    """Git refused, failed or took too long; the text is git's own, without credentials."""


class GitTookTooLong(GitError):
    """Git was ended, because its time was over."""

    def __init__(self, words: str, seconds: float) -> None:
        super().__init__(f"git {words}: it took longer than {seconds:g} s and was ended")


class GitStopped(GitError):
    """Git was ended, because nobody waits for it any more."""

    def __init__(self, words: str) -> None:
        super().__init__(f"git {words}: it was asked to stop")


class GitWroteTooMuch(GitError):
    """Git was ended, because nobody can use that much."""

    def __init__(self, words: str) -> None:
        super().__init__(f"git {words}: it wrote more than {OUTPUT_MAX >> 20} MiB and was ended")


class BranchMoved(GitError):
    """Somebody else moved the branch meanwhile; nothing was changed, and it may be tried again."""


class LocalChanges(GitError):
    """A checkout has changes that are not committed and would be lost; nothing was changed."""


@dataclass(frozen=True)
class GitResult:
    """What git wrote, and its exit code."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """What it wrote, without the end of the line."""
        return self.out.decode(errors="surrogateescape").removesuffix("\n")


@lru_cache(maxsize=1)
def find_git() -> str:
    """Returns the path of the system's git.

    Raises:
        GitError: there is none, or it is too old.
    """
    program = shutil.which("git")
    if program is None:
        raise GitError("git is not installed; install it, at least version 2.38")
    words = run_git_program(program, ["version"], directory="/").text
    match = re.search(r"(\d+)\.(\d+)", words)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        raise GitError(f"{words or 'this git'} is too old; at least version 2.38 is needed")
    return program


def run_git(
    arguments: Sequence[str], *, directory: str | Path, environment: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None, protocol: str | None = None, stdin: bytes = b"",
    seconds: float = SECONDS, accepted: Sequence[int] = (0,), check_drivers: bool = False, finishes: bool = False,
    stop: Callable[[], bool] = never_stop,
) -> GitResult:  # fmt: skip
    """Runs git, and returns what it wrote.

    Parameters:
        directory: where it runs.
        environment: variables that are added to those of this module.
        settings: configuration that is added to that of this module.
        protocol: by which it may fetch; by default by none.
        seconds: how long it may take.
        accepted: exit codes that are no failure.
        check_drivers: whether it could run programs that the repository's configuration names for files.
        finishes: whether it comes to its end also if this process is killed: killed while it moves a branch, git would
            leave a lock behind, and nobody could move that branch any more.
        stop: asked twenty times per second whether nobody waits for it any more; not of a call that `finishes`.

    Raises:
        GitError: it failed, took too long, or was stopped.
    """
    program = find_git()
    own = dict(settings or {})
    if check_drivers or protocol is not None:
        names = read_setting_names(program, directory, environment or {}, stop)
        if protocol is not None and (redirects := [name for name in names if REDIRECT.fullmatch(name)]):
            raise GitError(f"the repository's configuration redirects what is fetched: remove {redirects[0]}")
        own |= disable_drivers(names)
    if protocol is not None:
        own[f"protocol.{protocol}.allow"] = "always"
    result = run_git_program(
        program, arguments, directory=directory, environment=environment, settings=own, protocol=protocol, stdin=stdin,
        seconds=seconds, finishes=finishes, stop=stop,
    )  # fmt: skip
    if result.code not in accepted:
        words = "git " + " ".join(arguments[:2])
        raise GitError(f"{words}: {hide_credentials(result.err.strip()) or f'exit code {result.code}'}")
    return result


def run_git_program(
    program: str, arguments: Sequence[str], *, directory: str | Path, environment: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None, protocol: str | None = None, stdin: bytes = b"",
    seconds: float = SECONDS, finishes: bool = False, stop: Callable[[], bool] = never_stop,
) -> GitResult:  # fmt: skip
    """Runs git by its path, whatever its exit code is.

    Raises:
        GitError: it took too long, wrote too much or was stopped.
    """
    outputs: dict[str, list[bytes]] = {"out": [], "err": [], "log": []}
    configured = [part for pair in {**SETTINGS, **(settings or {})}.items() for part in ("-c", "=".join(pair))]
    variables = {
        **ENVIRONMENT, "PATH": f"{os.path.dirname(program)}:{PATHS}", "GIT_ALLOW_PROTOCOL": protocol or "none",
        **(environment or {}),
    }  # fmt: skip
    if finishes:
        return run_to_its_end([program, *configured, *arguments], directory, variables, stdin, seconds)
    words = " ".join(arguments[:2])
    if arguments[0] in READING and not stdin:
        return run_reading([program, *configured, *arguments], directory, variables, words, seconds, stop)
    end = run(
        [program, *configured, *arguments], directory=directory, environment=variables, stdin=stdin,
        on_output=lambda stream, data: outputs[stream].append(data),
        limits=ProcessLimits(seconds=seconds, output_bytes=OUTPUT_MAX), stop=stop,
    )  # fmt: skip
    if end.stopped == "request":
        raise GitStopped(words)
    if end.stopped == "time":
        raise GitTookTooLong(words, seconds)
    if end.stopped == "output":
        raise GitWroteTooMuch(words)
    if end.exit_code is None:
        raise GitError(f"git {words}: it was ended by {end.signal}")
    return GitResult(end.exit_code, b"".join(outputs["out"]), b"".join(outputs["err"]).decode(errors="replace"))


def run_to_its_end(
    argv: Sequence[str], directory: str | Path, environment: Mapping[str, str], stdin: bytes, seconds: float
) -> GitResult:
    """Runs a command in a session of its own, which does not end with this process.

    Raises:
        GitError: git is not installed, or it failed.
    """
    try:
        done = subprocess.run(
            argv, cwd=directory, env=environment, input=stdin, capture_output=True, timeout=seconds,
            start_new_session=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise GitTookTooLong("", seconds) from None
    return GitResult(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def run_reading(
    argv: Sequence[str], directory: str | Path, environment: Mapping[str, str], words: str, seconds: float,
    stop: Callable[[], bool],
) -> GitResult:  # fmt: skip
    """Runs git where it only reads: it starts no other program then, so no supervisor must hold a tree of them.

    That takes a tenth of the processor time.

    Raises:
        GitError: it took too long, wrote too much or was stopped.
    """
    ends_at, parts, size = time.monotonic() + seconds, list[bytes](), 0
    with tempfile.TemporaryFile() as errors, selectors.DefaultSelector() as selector:
        running = subprocess.Popen(
            argv, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        assert running.stdout
        try:
            selector.register(running.stdout, selectors.EVENT_READ)
            while (left := ends_at - time.monotonic()) > 0:
                if stop():
                    raise GitStopped(words)
                if not selector.select(min(left, LOOK_EVERY)):
                    continue
                data = os.read(running.stdout.fileno(), CHUNK)
                if not data:
                    break
                parts.append(data)
                size += len(data)
                if size > OUTPUT_MAX:
                    raise GitWroteTooMuch(words)
            code = running.wait(max(0.0, ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise GitTookTooLong(words, seconds) from None
        finally:
            running.stdout.close()
            if running.returncode is None:
                running.kill()
                running.wait()
        errors.seek(0)
        if code < 0:
            raise GitError(f"git {words}: it was ended by {name_signal(-code)}")
        return GitResult(code, b"".join(parts), errors.read().decode(errors="replace"))


def read_setting_names(
    program: str, directory: str | Path, environment: Mapping[str, str], stop: Callable[[], bool]
) -> list[str]:
    """Lists the names in the repository's configuration, those of files that it includes among them."""
    arguments = ["config", "--list", "--includes", "--name-only", "-z"]
    result = run_git_program(program, arguments, directory=directory, environment=environment, stop=stop)
    if result.code:
        raise GitError(f"git config: {result.err.strip()}")
    own = {name.lower() for name in SETTINGS}
    return [name for name in result.text.split("\0") if name and name.lower() not in own]


def disable_drivers(names: Sequence[str]) -> dict[str, str]:
    """Returns settings that keep git from running what these settings name for files.

    A filter does nothing then, and a merge driver fails, so that its file is a conflict.
    """
    disabled: dict[str, str] = {}
    for name in names:
        if match := DRIVER.fullmatch(name):
            kind, driver, key = match.groups()
            if kind == "merge":
                disabled[name] = "false"
            else:
                disabled |= {f"filter.{driver}.{key}": "", f"filter.{driver}.required": "false"}
    return disabled


def hide_credentials(text: str) -> str:
    """Returns a text of git without user names and passwords in its addresses."""
    return CREDENTIALS.sub(r"\1…@", text)
