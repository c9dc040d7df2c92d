"""The supervisor: a small process between us and a command, which ends the whole process tree.

It is run as a script, without the package and without the environment of its starter. Why a process of its own:

- A process group does not hold a child that calls `setsid`, and a daemon leaves its parent. Linux hands every orphan to
  the nearest ancestor that is a *subreaper* (`prctl`). The supervisor is one, so whatever the command leaves behind
  becomes its child, and it has ended only when it has no child any more. The starter itself must not be a subreaper: it
  would get the orphans of everything else that it starts.
- It outlives its starter by a moment. When the control socket ends, because the starter closed it or was killed, the
  supervisor kills the whole tree. Nothing runs on that nobody waits for.

In order: it reads what to start from the control socket, becomes a subreaper, starts the command as the leader of a
session, and says `started` or `not_started`. Then it waits for three things: a child that ended, a byte from the
starter (`T`: ask everything in the tree to end, `K`: kill it), the end of the socket (kill it). When the command itself
has ended it says `ended`, kills what is left until nothing is left, and says `clean`.

What is ugly: a command of the same user can kill its supervisor. The command itself dies with it (`PR_SET_PDEATHSIG`),
but what it has put into the background is then nobody's. Only a sandbox with a process namespace prevents that.
"""

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
KILL_EVERY = 0.02  # seconds between two looks at what is left
GIVE_UP_AFTER = 10.0  # seconds of killing; what cannot be killed sleeps in the kernel
NOT_ASKED = "bwrap"  # asked to end, a sandbox ends at once, and what is in it with it: only its inside is asked
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the starter decides when this ends, by the control socket
LENGTH_BYTES = 8


class Supervisor:
    """One command, the tree below it, and the socket to whoever started this."""

    def __init__(self, control: int) -> None:
        self.control = control
        os.set_inheritable(control, False)  # nor is anything else that is open here
        self.wakeups, self.wakeup = os.pipe()
        os.set_blocking(self.wakeups, False)
        os.set_blocking(self.wakeup, False)
        self.main = 0
        self.exit_code: int | None = None
        self.killing_since: float | None = None
        self.killed: set[int] = set()  # that the command left behind

    def run(self) -> None:
        """Starts the command, and returns when nothing of its tree is left."""
        signal.set_wakeup_fd(self.wakeup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        spec = self.read_spec()
        call_prctl(PR_SET_CHILD_SUBREAPER, 1)
        if why := self.start(spec):
            self.say(not_started=why)
            return
        self.say(started=self.main)
        while self.reap() and not self.has_given_up():
            if self.exit_code is not None:
                self.start_killing()
            if self.killing_since is not None:
                self.kill_tree()
            self.wait()
        self.say(clean=len(self.killed), left=len(list_descendants()))

    def read_spec(self) -> dict[str, Any]:
        size = int.from_bytes(self.read_exactly(LENGTH_BYTES), "big")
        spec: dict[str, Any] = json.loads(self.read_exactly(size))
        return spec

    def read_exactly(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            if not (part := os.read(self.control, size - len(parts))):
                sys.exit(1)  # nobody wants the command any more
            parts += part
        return parts

    def say(self, **message: Any) -> None:
        try:
            os.write(self.control, json.dumps(message).encode() + b"\n")
        except OSError:
            self.start_killing()  # nobody listens

    def start(self, spec: dict[str, Any]) -> str:
        """Starts the command. Returns why it could not be started, or nothing."""
        errors, error = os.pipe()
        self.main = os.fork()
        if not self.main:
            become_command(spec, error)
        os.close(error)
        nothing = os.open(os.devnull, os.O_RDWR)
        for own in (0, 1, 2):  # so that the outputs end with the tree
            os.dup2(nothing, own)
        with os.fdopen(errors, "rb") as pipe:
            why = pipe.read().decode(errors="replace")
        if why:
            os.waitpid(self.main, 0)
        return why

    def reap(self) -> bool:
        """Takes note of every child that has ended. Returns whether one is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.main:
                self.exit_code = os.waitstatus_to_exitcode(status)
                self.say(ended=self.exit_code)

    def wait(self) -> None:
        """Waits until a child has ended, the starter says something, or it is time to kill again."""
        waited = [self.wakeups] if self.control < 0 else [self.wakeups, self.control]
        ready, _, _ = select.select(waited, [], [], None if self.killing_since is None else KILL_EVERY)
        if self.wakeups in ready:
            os.read(self.wakeups, 4096)
        if self.control in ready:
            self.obey()

    def obey(self) -> None:
        try:
            words = os.read(self.control, 64)
        except OSError:
            words = b""
        if not words:
            self.control = -1
        if not words or b"K" in words:
            self.start_killing()
        elif b"T" in words:
            for pid in list_descendants():
                if read_name(pid) != NOT_ASKED:
                    send_signal(pid, signal.SIGTERM)
                    send_signal(pid, signal.SIGCONT)  # one that is stopped could not hear it

    def start_killing(self) -> None:
        if self.killing_since is None:
            self.killing_since = time.monotonic()

    def has_given_up(self) -> bool:
        return self.killing_since is not None and time.monotonic() - self.killing_since > GIVE_UP_AFTER

    def kill_tree(self) -> None:
        """Kills everything in the tree. What is born meanwhile is killed by the next look."""
        for pid in list_descendants():
            if self.exit_code is not None:
                self.killed.add(pid)
            send_signal(pid, signal.SIGKILL)


def become_command(spec: dict[str, Any], error: int) -> NoReturn:
    """In the child: becomes the command, or tells why not and ends."""
    what = "it cannot be started"
    try:
        os.setsid()
        for number in (*IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        if spec["user"] is not None:
            os.setgroups([])
            os.setgid(spec["user"])
            os.setuid(spec["user"])
        call_prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of the user would forget it
        what = "its limits cannot be set"
        for name, value in spec["limits"].items():
            resource.setrlimit(getattr(resource, name), (value, value))
        what = f"its directory '{spec['directory']}' cannot be entered"
        os.chdir(spec["directory"])
        what = f"'{spec['argv'][0]}' cannot be started"
        os.execvpe(spec["argv"][0], spec["argv"], spec["environment"])
    except (OSError, ValueError) as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        os.write(error, f"{what}: {why}".encode())
    finally:
        os._exit(127)


def call_prctl(option: int, value: int) -> None:
    """Calls prctl, which the standard library does not offer."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def send_signal(pid: int, number: int) -> None:
    """Sends a signal to a process, if it is still there."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # it has ended, or became another user's
        return


def list_descendants() -> list[int]:
    """Lists the processes of the tree below this one, those that have ended and were not reaped left out."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := read_stat(int(entry))):
            state, parent = fields
            children.setdefault(parent, []).append(int(entry) if state not in "ZX" else -int(entry))
    tree, wanted = [], [os.getpid()]
    while wanted:
        for pid in children.get(wanted.pop(), ()):
            wanted.append(abs(pid))
            if pid > 0:
                tree.append(pid)
    return tree


def read_stat(pid: int) -> tuple[str, int] | None:
    """Returns the state and the parent of a process, or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1])


def read_name(pid: int) -> str:
    """Returns the name of a process; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    Supervisor(int(sys.argv[1])).run()
