"""The bubblewrap sandbox: a read-only system, one writable folder, no other processes.

Whether it works depends on the machine: the program may be missing, and many kernels and containers forbid user
namespaces. So it is tried once per directory before it is used, and whoever runs a command says which of the two he
got. Started by root it would keep the user 0 of the machine inside, so as root the command first becomes a user that
owns nothing; then the directory must be one that this user may write to.
"""

import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from interlock.kernel.errors import InterlockError

SANDBOXES = ("auto", "bubblewrap", "none")
NOBODY = 65534
TRY_SECONDS = 10
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt")
SETTINGS = (
    "alternatives", "ca-certificates", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "nsswitch.conf", "passwd", "pki", "resolv.conf", "ssl",
)  # fmt: skip
SEPARATE = (
    "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent",
    "--new-session", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr",
)  # fmt: skip


@dataclass(frozen=True)
class SandboxChoice:
    """How a command is run: in bubblewrap, by the path of its program, or in no sandbox, with the reason."""

    program: str = ""
    why: str = ""
    user: int | None = None  # that the command becomes first; None leaves it as it is
    network: bool = True

    def describe(self) -> str:
        """Returns the line of the log that says which it is."""
        return f"sandbox: bubblewrap ({self.program})" if self.program else f"sandbox: none ({self.why})"

    def wrap(self, argv: Sequence[str], directory: str) -> list[str]:
        """Returns the command that starts a command in the sandbox; without one, the command itself."""
        if not self.program:
            return list(argv)
        options = [*SEPARATE, *([] if self.network else ["--unshare-net"])]
        for path in SYSTEM:
            if os.path.islink(path):
                options += ["--symlink", os.readlink(path), path]
            elif os.path.isdir(path):
                options += ["--ro-bind", path, path]
        for name in SETTINGS:
            options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        options += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", directory, directory]
        return [self.program, *options, "--chdir", directory, "--", *argv]


NO_SANDBOX = SandboxChoice(why="none was wanted")


def choose_sandbox(wanted: str, directory: str, *, network: bool = True) -> SandboxChoice:
    """Returns how commands are run in a directory: `auto` takes bubblewrap where it works.

    Raises:
        InterlockError: `bubblewrap` was wanted, and does not work here; the text says why.
    """
    if wanted not in SANDBOXES:
        raise InterlockError(f"sandbox = '{wanted}' is not allowed; allowed are {', '.join(SANDBOXES)}")
    if wanted == "none":
        return NO_SANDBOX
    choice = try_bubblewrap(os.path.abspath(directory), network)
    if wanted == "bubblewrap" and not choice.program:
        raise InterlockError(f"bubblewrap does not work here: {choice.why}")
    return choice


@lru_cache(maxsize=256)
def try_bubblewrap(directory: str, network: bool) -> SandboxChoice:
    """Returns bubblewrap if a command can be run with it in this directory, else the reason why not."""
    program = shutil.which("bwrap")
    if program is None:
        return SandboxChoice(why="bwrap is not installed")
    if directory == "/":
        return SandboxChoice(why="the directory is the whole system")
    user = NOBODY if os.geteuid() == 0 else None
    if user is not None and not may_write(directory, user):
        return SandboxChoice(why=f"as root it would run as user {user}, who may not write to {directory}")
    choice = SandboxChoice(program, user=user, network=network)
    try:
        tried = subprocess.run(
            choice.wrap(["true"], directory), stdin=subprocess.DEVNULL, capture_output=True, timeout=TRY_SECONDS,
            env={"PATH": os.defpath}, user=user, group=user, extra_groups=None if user is None else [], check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return SandboxChoice(why=f"bwrap was tried, and failed: {error}")
    if tried.returncode:
        words = tried.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {tried.returncode}"]
        return SandboxChoice(why=f"bwrap was tried, and failed: {words[-1]}")
    return choice


def may_write(directory: str, user: int) -> bool:
    """Returns whether a user who is in no group may write to a directory."""
    try:
        status = os.stat(directory)
    except OSError:
        return False
    return bool(status.st_mode & (stat.S_IWUSR if status.st_uid == user else stat.S_IWOTH))
