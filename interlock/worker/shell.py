"""Run shell commands as jobs, on workers started with --shell.

The command runs below a supervisor of its own (`interlock.process`), with a listed environment: a few variables that
programs need, those of the worker that were named when it was started, those of the job, and what the job is. Its
output goes to the log of the job, and the last of it into its result or its error. A cancel, a timeout, a lost
lease and the end of the worker all arrive as a stop: TERM, a grace, KILL.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.context import Context
from interlock.client.exceptions import Cancelled
from interlock.kernel.errors import InterlockError, PermanentError, TransientError
from interlock.kernel.ids import format_id
from interlock.plugins.shell.options import SHELL, ShellOptions, make_limits, read_shell
from interlock.process import Masker, ProcessEnd, ProcessLimits, arun, choose_sandbox
from interlock.process.run import LOG
from interlock.worker.context import JobContext

if TYPE_CHECKING:
    from interlock.client.app import App

PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
TAIL = 4_096  # characters of output in the result
ERROR_LINES, ERROR_TAIL = 40, 3_500  # lines and characters of output in the error
TAIL_BYTES = 4 * TAIL  # that hold so many characters
HANDED_MAX = 65_536  # characters of a variable that holds JSON; a longer one is left out


@dataclass(frozen=True, kw_only=True)
class ShellSettings:
    """How a worker runs commands.

    Parameters:
        directory: where they run.
        environment: variables that every command gets.
        secrets: variables that every command gets, and whose values are masked in what it writes.
        sandbox: auto, bubblewrap or none.
    """

    directory: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    sandbox: str = "auto"

    def __post_init__(self) -> None:
        """Raises InterlockError for settings with which no command could run."""
        if not os.path.isdir(self.directory):
            raise InterlockError(f"there is no folder '{self.directory}' to run commands in")
        for name, value in self.secrets.items():
            try:
                Masker([value])
            except InterlockError as error:
                raise InterlockError(f"{name}: {error}") from None
        choose_sandbox(self.sandbox, self.directory)


def offer_shell(app: "App", capabilities: tuple[str, ...], settings: ShellSettings | None) -> tuple[str, ...]:
    """Lets an app run commands, and returns the capabilities of its worker; without settings it runs none.

    Raises:
        InterlockError: the capability is given by itself, or the app has a task of its own under that name.
    """
    if SHELL in capabilities:
        raise InterlockError(f"the capability '{SHELL}' is not given by name: --shell gives it, and runs commands")
    if settings is None:
        return capabilities
    app.define(make_handler(settings), SHELL, {})
    return (*capabilities, SHELL)


def make_handler(settings: ShellSettings) -> Any:
    """Returns the handler of the task that runs commands."""

    async def run_shell(ctx: Context, command: Any = None) -> dict[str, Any]:
        # What counts is what the engine checked and handed over, and not `command`, which is only there to be read.
        assert isinstance(ctx, JobContext)
        options = read_shell(ctx.grant.options)
        if options is None:
            raise PermanentError(f"this job has the name '{SHELL}', and no command; `interlock shell` submits one")
        output, root = CommandOutput(ctx), ctx.worktree or settings.directory
        end = await arun(
            ["sh", "-e", "-c", options.command], stop=lambda: ctx.cancelled, on_output=output.add,
            directory=find_directory(root, options), environment=make_environment(settings, options, ctx),
            limits=add_time_limit(make_limits(options), ctx.grant.timeout_us),
            secrets=[value for value in settings.secrets.values() if value],
            sandbox=choose_sandbox(settings.sandbox, root),
        )  # fmt: skip
        return read_end(end, output.tail, ctx)

    return run_shell


def read_end(end: ProcessEnd, tail: str, ctx: JobContext) -> dict[str, Any]:
    """Returns the result of a command that succeeded.

    Raises:
        TransientError: it failed.
        Cancelled: it was asked to stop.
    """
    if end.succeeded:
        return {"exit_code": end.exit_code, "output": tail}
    last = "\n".join(tail[-ERROR_TAIL:].split("\n")[-ERROR_LINES:])
    if end.stopped == "request" and ctx.cancelled:
        raise Cancelled(f"the command {end.describe()}")
    raise TransientError(f"the command {end.describe()}" + (f"\n{last}" if last else ""))


def add_time_limit(limits: ProcessLimits, timeout_us: int | None) -> ProcessLimits:
    """Returns limits with a time, after which the command still has its grace before its job has timed out."""
    if timeout_us is None:
        return limits
    seconds = timeout_us / 1_000_000
    return replace(limits, seconds=seconds - min(limits.grace_seconds + 1, seconds / 5))


def find_directory(folder: str, options: ShellOptions) -> str:
    """Returns where a command runs.

    Raises:
        PermanentError: a folder that leads out of its worker's or worktree.
    """
    root = os.path.realpath(folder)
    place = os.path.realpath(os.path.join(root, options.directory))
    if os.path.commonpath((root, place)) != root:
        raise PermanentError(f"the directory '{options.directory}' leads out of the folder of this worker")
    return place


def make_environment(settings: ShellSettings, options: ShellOptions, ctx: JobContext) -> dict[str, str]:
    """Returns all variables that a command gets."""
    grant, home = ctx.grant, os.path.realpath(ctx.worktree or settings.directory)
    handed = {"INTERLOCK_INPUT": grant.input, "INTERLOCK_OUTPUTS": msgspec.json.encode(ctx.outputs).decode()}
    return {
        **PLAIN, "HOME": home, **settings.environment, **settings.secrets,
        **options.environment, "INTERLOCK_JOB": format_id(grant.lifecycle, grant.unit),
        "INTERLOCK_ATTEMPT": str(grant.attempt), "INTERLOCK_FENCE": str(grant.fence_base + grant.fence),
        "INTERLOCK_CORRELATION": grant.correlation,
        **{name: text for name, text in handed.items() if len(text) <= HANDED_MAX},
    }  # fmt: skip


class CommandOutput:
    """What a command writes goes to the log of its job; the last of it is kept."""

    def __init__(self, ctx: JobContext) -> None:
        self.ctx, self.last = ctx, b""

    def add(self, stream: str, data: bytes) -> None:
        """Adds what was written to one of the outputs, or said about the command."""
        self.ctx.write_log(data)
        if stream != LOG:
            self.last = (self.last + data)[-TAIL_BYTES:]

    @property
    def tail(self) -> str:
        """The last characters, as text that can be stored."""
        text = self.last.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        return text.strip("\n")[-TAIL:]
