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

If the tree may have so many processes and no more, it is counted several times per second, and killed once it has
more; then the supervisor says `crowded`. Why it counts: the kernel counts by user (RLIMIT_NPROC) and not by tree, and
holds root to nothing; its groups (cgroups) need rights that few have. What comes between two counts is bounded by the
kernel where it can be, at a multiple. So that a tree which forks without end cannot keep its supervisor from a
processor, the supervisor of a large tree goes before it where it may (root). Whole process groups are killed at once:
no process can be born in one meanwhile.

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
COUNT_EVERY, COUNT_SHARE = 0.05, 0.1  # seconds between two counts, and which part of a processor they take at most
HURRY_FROM = 4  # from this part of what a tree may have on, its supervisor goes before it
BRAKE = 8  # the kernel holds a user to so many times the processes of a tree, threads among them
NOT_ASKED = "bwrap"  # asked to end, a sandbox ends at once, and what is in it with it: only its inside is asked
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the starter decides when this ends, by the control socket
LENGTH_BYTES = 8
EXITING = 0x4  # in the flags of a process: the kernel is ending it


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
        self.stop_requested = False  # whether the tree was asked to end
        self.tree_max: int | None = None  # how many processes the tree may have
        self.count_at = 0.0  # when they are counted next

    def run(self) -> None:
        """Starts the command, and returns when nothing of its tree is left."""
        signal.set_wakeup_fd(self.wakeup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        spec = self.read_spec()
        call_prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.tree_max = spec["tree_processes"]
        if why := self.start(spec):
            self.say(not_started=why)
            return
        self.say(started=self.main)
        while self.reap() and not self.has_given_up():
            if self.exit_code is not None:
                self.start_killing()
            if self.tree_max is not None and self.killing_since is None:
                self.count_tree(self.tree_max)
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
        until_count = None if self.tree_max is None else max(0.0, self.count_at - time.monotonic())
        ready, _, _ = select.select(waited, [], [], until_count if self.killing_since is None else KILL_EVERY)
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
            self.stop_requested = True
            for pid, _ in list_descendants():
                if read_name(pid) != NOT_ASKED:
                    send_signal(pid, signal.SIGTERM)
                    send_signal(pid, signal.SIGCONT)  # one that is stopped could not hear it

    def start_killing(self) -> None:
        if self.killing_since is None:
            self.killing_since = time.monotonic()

    def has_given_up(self) -> bool:
        return self.killing_since is not None and time.monotonic() - self.killing_since > GIVE_UP_AFTER

    def count_tree(self, most: int) -> None:
        """Begins to kill the tree if it has more processes than it may."""
        if time.monotonic() < self.count_at:
            return
        began = time.process_time()
        number = count_descendants(most) if count_tasks() > most // HURRY_FROM else 0
        if number > most // HURRY_FROM:
            go_before_others()
        if number > most:
            self.say(crowded=number)
            self.start_killing()
        self.count_at = time.monotonic() + max(COUNT_EVERY, (time.process_time() - began) / COUNT_SHARE)

    def kill_tree(self) -> None:
        """Kills everything in the tree. What is born meanwhile is killed by the next look."""
        tree, own = list_descendants(), os.getpgrp()
        for pid, _ in tree:
            if self.exit_code is not None and not (self.stop_requested and is_about_to_end(pid)):
                self.killed.add(pid)
        for group in {group for _, group in tree} - {own}:  # the sessions of the tree are its own, and so their groups
            send_group_signal(group, signal.SIGKILL)
        for pid, _ in tree:
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
        if spec["tree_processes"] is not None and "RLIMIT_NPROC" not in spec["limits"]:
            lower_process_limit(BRAKE * spec["tree_processes"])
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


def go_before_others() -> None:
    """Has this process run before ordinary ones, but nothing that it starts, where that is allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (OSError, AttributeError):
        return


def lower_process_limit(more: int) -> None:
    """Has the kernel give this user so many more processes and threads than it has now, and no further ones."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = count_tasks_of(os.getuid()) + more
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def send_signal(pid: int, number: int) -> None:
    """Sends a signal to a process, if it is still there."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):  # it has ended, or became another user's
        return


def send_group_signal(group: int, number: int) -> None:
    """Sends a signal to all processes of a group at once, if there is one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def count_tasks() -> int:
    """Returns how many processes and threads the machine has, which no tree has more of."""
    with open("/proc/loadavg") as file:
        return int(file.read().split()[3].partition("/")[2])


def count_tasks_of(user: int) -> int:
    """Returns how many processes and threads a user has."""
    number = 0
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == user:
                number += len(os.listdir(f"/proc/{entry}/task"))
        except OSError:  # it is gone
            continue
    return number


def count_descendants(most: int) -> int:
    """Returns how many processes are in the tree below this one; more than `most` are not counted."""
    number, wanted = 0, [os.getpid()]
    while wanted and number <= most:
        children = read_children(wanted.pop())
        if children is None:
            return len(list_descendants())
        number += len(children)
        wanted += children
    return number


def read_children(pid: int) -> list[int] | None:
    """Returns the children of a process; None if this kernel does not list them."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                children += map(int, file.read().split())
    except OSError:  # it is gone, or no process has such a file
        if pid == os.getpid():
            return None
    return children


def list_descendants() -> list[tuple[int, int]]:
    """Lists the processes of the tree below this one, each with its group. Those that have ended and were not reaped
    are left out.
    """
    children: dict[int, list[tuple[int, int, bool]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := read_stat(int(entry))):
            state, parent, group = fields
            children.setdefault(parent, []).append((int(entry), group, state not in "ZX"))
    tree, wanted = [], [os.getpid()]
    while wanted:
        for pid, group, is_alive in children.get(wanted.pop(), ()):
            wanted.append(pid)
            if is_alive:
                tree.append((pid, group))
    return tree


def read_stat(pid: int) -> tuple[str, int, int] | None:
    """Returns the state, the parent and the group of a process, or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return "X" if int(fields[6]) & EXITING else fields[0].decode(), int(fields[1]), int(fields[2])


def is_about_to_end(pid: int) -> bool:
    """Returns whether a process was asked to end, and had no processor since then to do anything about it."""
    try:
        with open(f"/proc/{pid}/status") as file:
            pending = [int(line.split()[1], 16) for line in file if line.startswith(("SigPnd:", "ShdPnd:"))]
    except OSError:
        return True
    return any(signals & (1 << number - 1) for signals in pending for number in (signal.SIGTERM, signal.SIGKILL))


def read_name(pid: int) -> str:
    """Returns the name of a process; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    Supervisor(int(sys.argv[1])).run()
