"""Run a command to its end, with limits: `run` blocks, `arun` does not.

The command runs below a supervisor (`supervisor.py`), which holds its whole process tree. It gets the environment that
is listed and no other, standard input from a file, and a pipe for each of its outputs. Here the pipes are read, secrets
are masked, and the limits of time and output are kept: a command that exceeds one is asked to end (TERM), and killed
after a grace. What counts as its end is the end of the process, not of its output: whatever it left in the background
is killed, so that the outputs end too.
"""

import asyncio
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from interlock.kernel.errors import InterlockError, PermanentError, TransientError
from interlock.process.masking import Masker
from interlock.process.sandbox import NO_SANDBOX, SandboxChoice
from interlock.process.supervisor import GIVE_UP_AFTER, LENGTH_BYTES

CROWDED = "processes"  # why a tree was ended that had too many
OUT, ERR, LOG = "out", "err", "log"  # the two outputs, and what is said here about the command
SUPERVISOR = str(Path(__file__).with_name("supervisor.py"))
LOOK_EVERY = 0.05  # seconds between two looks at clocks and at whether it should stop
SUPERVISOR_SECONDS = GIVE_UP_AFTER + 5  # that a supervisor has to kill its tree
DRAIN_SECONDS = 1.0  # for what the pipes still hold when the tree has ended
CHUNK = 1 << 16
MIB = 1 << 20
# The limits that the kernel keeps for each process, by the field that says them.
RLIMITS = {
    "memory_bytes": "RLIMIT_AS", "file_bytes": "RLIMIT_FSIZE", "open_files": "RLIMIT_NOFILE",
    "processes": "RLIMIT_NPROC", "cpu_seconds": "RLIMIT_CPU",
}  # fmt: skip

OnOutput = Callable[[str, bytes], None]  # the stream, and what was written to it


@dataclass(frozen=True, kw_only=True)
class ProcessLimits:
    """What a command may use. None is no limit.

    Parameters:
        seconds: how long it may run; then it is asked to end.
        grace_seconds: how long it has to end after it was asked; then it is killed.
        output_bytes: how much it may write to both outputs together; then it is asked to end, and the rest is dropped.
        memory_bytes: address space of each of its processes.
        file_bytes: size of each file that it writes.
        open_files: how many files each of its processes may have open.
        processes: how many processes its user may have; the kernel does not hold root to it.
        cpu_seconds: processor time of each of its processes.
        tree_processes: how many processes its tree may have at a time; with more, all of it is killed.
    """

    seconds: float | None = None
    grace_seconds: float = 10.0
    output_bytes: int | None = 64 * MIB
    memory_bytes: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None
    cpu_seconds: int | None = None
    tree_processes: int | None = None

    def __post_init__(self) -> None:
        """Raises InterlockError for a limit that is not allowed."""
        values: dict[str, Any] = vars(self)
        for name, value in values.items():
            whole = name not in ("seconds", "grace_seconds")
            if value is None and name != "grace_seconds":
                continue
            number = isinstance(value, int) if whole else isinstance(value, int | float)
            if not number or isinstance(value, bool) or not (1 if whole else 0) <= value <= MOST:
                what = f"a whole number from 1 to {MOST:,}" if whole else f"a number of seconds from 0 to {MOST:,}"
                raise InterlockError(f"{name} = {value!r} is not allowed; allowed is {what}")


MOST = 2**62


@dataclass(frozen=True, kw_only=True)
class ProcessEnd:
    """How a command ended."""

    exit_code: int | None  # None if a signal ended it
    signal: str | None  # its name, such as SIGKILL
    stopped: str = ""  # why it was ended: time, output, request or processes; empty if it ended by itself
    killed: int = 0  # processes that it left behind, and that were killed
    left: int = 0  # processes that could not even be killed
    output_bytes: int = 0  # that it wrote, those that were dropped among them

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself, with exit code 0."""
        return self.exit_code == 0 and not self.stopped

    def describe(self) -> str:
        """Returns how it ended, as a sentence goes on."""
        ended = f"was ended by {self.signal}" if self.exit_code is None else f"ended with exit code {self.exit_code}"
        return f"{STOPS[self.stopped]}, and {ended}" if self.stopped else ended


STOPS = {
    "time": "ran for longer than it may", "output": "wrote more output than it may", "request": "was asked to stop",
    CROWDED: "had more processes at a time than it may",
}  # fmt: skip


def never_stop() -> bool:
    """Says that nobody wants the command to stop."""
    return False


@dataclass(kw_only=True)
class ProcessRun:
    """One command while it runs, as its starter sees it."""

    on_output: OnOutput
    limits: ProcessLimits
    stop: Callable[[], bool]
    kill: Callable[[], bool]
    control: socket.socket
    supervisor: "subprocess.Popen[bytes]"
    maskers: dict[str, Masker]
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    written: int = 0
    stopped: str = ""
    kill_at: float | None = None
    give_up_at: float | None = None
    messages: dict[str, Any] = field(default_factory=dict)  # of the supervisor, by their first word
    unread: bytes = b""

    def watch(self, pipes: Mapping[str, int]) -> ProcessEnd:
        """Waits until nothing of the tree is left.

        Raises:
            PermanentError: the command was not started, and never can be.
            TransientError: nobody knows how it ended.
        """
        ends_at = None if self.limits.seconds is None else time.monotonic() + self.limits.seconds
        for name, pipe in pipes.items():
            os.set_blocking(pipe, False)
            self.selector.register(pipe, selectors.EVENT_READ, name)
        self.selector.register(self.control, selectors.EVENT_READ)
        while "clean" not in self.messages and "not_started" not in self.messages:
            for key, _ in self.selector.select(LOOK_EVERY):
                if key.data is None:
                    self.read_messages()
                else:
                    self.read_output(key.data, key.fd)
            self.supervisor.send_signal(signal.SIGCONT)  # a command of the same user may have stopped it
            self.keep_limits(ends_at)
        for name, pipe in pipes.items():
            self.drain(name, pipe)
        if "not_started" in self.messages:
            raise PermanentError(f"the command was not started: {self.messages['not_started']}")
        code = self.messages["ended"]
        return ProcessEnd(
            exit_code=code if code >= 0 else None, signal=None if code >= 0 else name_signal(-code),
            stopped=self.stopped, killed=self.messages["clean"], left=self.messages["left"],
            output_bytes=self.written,
        )  # fmt: skip

    def read_messages(self) -> None:
        """Raises TransientError if the supervisor has ended before its tree."""
        data = b""
        with suppress(ConnectionError):
            data = self.control.recv(CHUNK)
        if not data:
            raise TransientError(
                "the supervisor of the command was killed, so nobody knows how the command ended; "
                "a command that kills its parent does this"
            )
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            self.messages |= json.loads(line)
        if "crowded" in self.messages and not self.stopped:
            self.stopped = CROWDED  # the supervisor kills the tree

    def read_output(self, name: str, pipe: int) -> bool:
        """Reads what a pipe holds, at most a chunk. Returns whether there may be more."""
        try:
            data = os.read(pipe, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            with suppress(KeyError):
                self.selector.unregister(pipe)
            return False
        most = self.limits.output_bytes
        room = len(data) if most is None else max(0, most - self.written)
        self.written += len(data)
        if room < len(data):
            self.ask_to_end("output")
        self.tell(name, self.maskers[name].feed(data[:room]))
        return True

    def drain(self, name: str, pipe: int) -> None:
        """Reads the rest. A pipe that was handed to a process outside of the tree may never end."""
        until = time.monotonic() + DRAIN_SECONDS
        while self.read_output(name, pipe) and time.monotonic() < until:
            pass
        self.tell(name, self.maskers[name].flush())

    def tell(self, name: str, data: bytes) -> None:
        if data:
            self.on_output(name, data)

    def keep_limits(self, ends_at: float | None) -> None:
        now = time.monotonic()
        if ends_at is not None and now >= ends_at:
            self.ask_to_end("time")
        elif self.stop():
            self.ask_to_end("request")
        if self.kill_at is not None and (now >= self.kill_at or self.kill()):
            self.send(b"K")
            self.kill_at, self.give_up_at = None, now + SUPERVISOR_SECONDS
        if self.give_up_at is not None and now >= self.give_up_at:
            self.supervisor.kill()

    def ask_to_end(self, why: str) -> None:
        """Asks the tree to end, once; it is killed after the grace."""
        if not self.stopped and "ended" not in self.messages:
            self.stopped, self.kill_at = why, time.monotonic() + self.limits.grace_seconds
            self.send(b"T")

    def send(self, word: bytes) -> None:
        with suppress(OSError):  # the supervisor has ended meanwhile
            self.control.sendall(word)


def run(
    argv: Sequence[str], *, directory: str | Path, environment: Mapping[str, str], on_output: OnOutput,
    limits: ProcessLimits | None = None, secrets: Iterable[str | bytes] = (), stdin: bytes = b"",
    stop: Callable[[], bool] = never_stop, kill: Callable[[], bool] = never_stop, sandbox: SandboxChoice = NO_SANDBOX,
) -> ProcessEnd:  # fmt: skip
    """Runs a command, and returns when nothing of its process tree is left.

    Parameters:
        argv: the program, which is looked for in the PATH of `environment`, and its arguments.
        directory: where it runs.
        environment: all of its environment; nothing else is handed on.
        on_output: called with `out` or `err` and the bytes that it wrote there, as they come, and with `log` and a line
            that says which sandbox it runs in. If it raises, the tree is killed.
        secrets: masked in both outputs, at least 4 bytes each.
        stdin: what it reads from its standard input.
        stop: asked twenty times per second whether the command should end.
        kill: asked as often, once it was asked to end, whether its grace is over at once.

    Raises:
        InterlockError: a parameter is wrong; nothing was started.
        PermanentError: the program or the directory is not there, or a limit cannot be set.
        TransientError: its supervisor was killed.
    """
    limits, secrets = limits or ProcessLimits(), tuple(secrets)
    words = check_words("the command", argv)
    if not words or not words[0]:
        raise InterlockError("there is no command to run; give a program and its arguments")
    place = os.path.abspath(directory)
    spec = {
        "argv": sandbox.wrap(words, place), "directory": place, "environment": check_environment(environment),
        "user": sandbox.user, "tree_processes": limits.tree_processes,
        "limits": {"RLIMIT_CORE": 0} | {
            rlimit: value for name, rlimit in RLIMITS.items() if (value := getattr(limits, name)) is not None
        },
    }  # fmt: skip
    maskers = {name: Masker(secrets) for name in (OUT, ERR)}
    on_output(LOG, f"{sandbox.describe()}\n".encode())
    with ExitStack() as stack:
        supervisor, control, pipes = start_supervisor(stack, stdin)
        text = json.dumps(spec).encode()
        running = ProcessRun(
            on_output=on_output,
            limits=limits,
            stop=stop,
            kill=kill,
            control=control,
            supervisor=supervisor,
            maskers=maskers,
        )
        stack.callback(running.selector.close)
        running.send(len(text).to_bytes(LENGTH_BYTES, "big") + text)
        return running.watch(pipes)


def start_supervisor(stack: ExitStack, stdin: bytes) -> "tuple[subprocess.Popen[bytes], socket.socket, dict[str, int]]":
    """Starts a supervisor that waits for what to run. When the stack is closed, it and its whole tree have ended."""
    if sys.platform != "linux":
        raise InterlockError("running a command needs Linux: only there a process tree can be held together")
    given = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    given.write(stdin)
    given.seek(0)
    ours, theirs = socket.socketpair()
    pipes = {name: os.pipe() for name in (OUT, ERR)}
    for reading, _ in pipes.values():
        stack.callback(os.close, reading)
    try:
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", SUPERVISOR, str(theirs.fileno())], stdin=given, stdout=pipes[OUT][1],
            stderr=pipes[ERR][1], pass_fds=(theirs.fileno(),), env={}, cwd="/", start_new_session=True,
        )  # fmt: skip
    finally:
        theirs.close()
        for _, writing in pipes.values():
            os.close(writing)
    stack.callback(end_supervisor, supervisor)
    stack.callback(ours.close)  # which ends the tree, if anything of it is left
    return supervisor, ours, {name: reading for name, (reading, _) in pipes.items()}


def end_supervisor(supervisor: "subprocess.Popen[bytes]") -> None:
    """Waits for the end of a supervisor, which has no socket any more; one that does not end is killed."""
    supervisor.send_signal(signal.SIGCONT)
    try:
        supervisor.wait(SUPERVISOR_SECONDS)
    except subprocess.TimeoutExpired:
        supervisor.kill()
        supervisor.wait()


async def arun(argv: Sequence[str], *, stop: Callable[[], bool] = never_stop, **options: Any) -> ProcessEnd:
    """Does the same as `run`, and lets others run meanwhile. If it is cancelled, the command is asked to end first.

    `on_output` and `stop` are called in a thread.
    """
    cancelled, future = Event(), Future[ProcessEnd]()

    def call() -> None:
        try:
            future.set_result(run(argv, stop=lambda: cancelled.is_set() or stop(), **options))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=call, name="interlock command", daemon=True).start()
    ended = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(ended)
    finally:
        cancelled.set()
        while not ended.done():  # cancelled: nobody goes on before the tree has ended
            with suppress(asyncio.CancelledError):
                await asyncio.wait([ended])
        if not ended.cancelled():
            ended.exception()  # it was looked at


def check_words(what: str, words: Iterable[str]) -> list[str]:
    """Returns words that a program can be started with.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if isinstance(words, str | bytes):
        raise InterlockError(f"{what} is a list of words, not one text; a shell takes a text: ['sh', '-c', text]")
    listed = list(words)
    for word in listed:
        if not isinstance(word, str) or "\0" in word:
            raise InterlockError(f"{what}: {word!r} is not allowed; allowed is text without NUL")
    return listed


def check_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment that a program can be started with.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    for name, value in environment.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise InterlockError(f"environment: the name {name!r} is not allowed; allowed is text without = and NUL")
        if not isinstance(value, str) or "\0" in value:
            raise InterlockError(f"environment: the value of {name} is not allowed; allowed is text without NUL")
    return dict(environment)


def name_signal(number: int) -> str:
    """Returns the name of a signal, such as SIGTERM."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
