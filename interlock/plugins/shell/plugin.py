"""What shell commands add to the core: an option of work, which a key needs a scope for and a worker a capability.

A job runs a command because its options say so, and for no other reason: its task and its input may be anybody's. The
option is refused without the capability, so no worker claims such a job that was not started for it. The server
refuses the option to keys that lack the scope (`Plugin.option_scope`), in whichever command it comes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from interlock.core.effective_policy import policy_in, policy_of
from interlock.core.plugin import Plugin
from interlock.kernel.api_keys import SHELL as SCOPE
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Unit
from interlock.plugins.shell.queries import read_command_holders, read_commands
from interlock.process import ProcessLimits
from interlock.store.connection import Connection
from interlock.store.hooks import Hooks
from interlock.store.unit_of_work import UnitOfWork

SHELL = "shell"  # the option, the task and the capability
COMMAND_MAX = 65_536  # characters
ENVIRONMENT_MAX = 65_536  # characters of all names and values
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = "INTERLOCK_"
LIMITS = tuple(name for name in ProcessLimits.__dataclass_fields__ if name != "seconds")


class ShellOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What work says that is a command."""

    command: str
    environment: dict[str, str] = {}
    directory: str = ""  # below that of its worker
    limits: dict[str, float | int] = {}  # by the names of `ProcessLimits`, but for the time, which the job itself has


def check_shell_options(options: ShellOptions) -> None:
    """Raises InterlockError for a command that could never be run."""
    if not options.command.strip() or len(options.command) > COMMAND_MAX or "\0" in options.command:
        raise InterlockError(f"a command is text of 1 to {COMMAND_MAX:,} characters without NUL")
    for name, value in options.environment.items():
        if not VARIABLE.fullmatch(name) or name.startswith(RESERVED):
            allowed = f"letters, digits and _, not first a digit, and not {RESERVED}…"
            raise InterlockError(f"environment: the name {name[:40]!r} is not allowed; allowed are {allowed}")
        if "\0" in value:
            raise InterlockError(f"environment: the value of {name} has a NUL character, which is not allowed")
    size = sum(len(name) + len(value) for name, value in options.environment.items())
    if size > ENVIRONMENT_MAX:
        raise InterlockError(f"environment: {size:,} characters are not allowed; allowed are {ENVIRONMENT_MAX:,}")
    if options.directory.startswith("/") or ".." in options.directory.split("/") or "\0" in options.directory:
        raise InterlockError(
            f"directory = {options.directory[:40]!r} is not allowed; allowed is one below the worker's"
        )
    make_limits(options)


def make_limits(options: ShellOptions) -> ProcessLimits:
    """Returns the limits of a command. Raises InterlockError for one that there is not, or that is not allowed."""
    if unknown := [name for name in options.limits if name not in LIMITS]:
        raise InterlockError(f"limits: there is no limit '{unknown[0]}'; there are {', '.join(LIMITS)}")
    limits: dict[str, Any] = dict(options.limits)
    return ProcessLimits(**limits)


def read_shell(text: str | None) -> ShellOptions | None:
    """Returns what options say of a command; None if they say nothing of one."""
    value = None if text is None else msgspec.json.decode(text).get(SHELL)
    return None if value is None else msgspec.convert(value, ShellOptions)


def encode_shell(options: ShellOptions) -> str:
    """Returns the options of work that is this command."""
    return msgspec.json.encode({SHELL: options}).decode()


def check_shell(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Work that says a command is for workers that run commands. Raises InterlockError."""
    if (options := read_shell(work.options)) is None:
        return
    lifecycle = lifecycles[work.lifecycle]
    if not lifecycle.leased and not lifecycle.options.follows:
        raise InterlockError(f"a {work.lifecycle} runs no command; a job or a step does")
    if work.task != SHELL or SHELL not in work.capabilities:
        raise InterlockError(f"a command is run by the task '{SHELL}', on workers with the capability '{SHELL}'")
    check_shell_options(options)


def hand_over_command(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of the commands among these units."""
    texts = {unit.id: policy_of(tx.body(unit)).options for unit in units}
    return {unit: {"options": text} for unit, text in texts.items() if text is not None}


def find_unguarded_commands(connection: Connection) -> Iterator[tuple[int, str]]:
    """Finds commands that a worker could claim, or has claimed, which was not started to run any."""
    for unit, policy, capabilities in read_commands(connection):
        if is_command(policy) and SHELL not in capabilities.split(","):
            yield unit, f"it is a command, and asks for the capabilities '{capabilities}' alone"
    for unit, policy, capabilities in read_command_holders(connection):
        if is_command(policy) and SHELL not in capabilities.split(","):
            yield unit, "it is a command, and is held by a worker that runs none"


def is_command(policy: str) -> bool:
    """Whether a unit with this policy is a command; of a policy that cannot be read, another law speaks."""
    try:
        return read_shell(policy_in(policy).options) is not None
    except (msgspec.MsgspecError, AttributeError):
        return False


PLUGIN = Plugin(
    name=SHELL,
    docs="shell.md",
    options=ShellOptions,
    option_scope=SCOPE,
    routes="interlock.plugins.shell.routes:ROUTES",
    cli="interlock.plugins.shell.cli:app",
    laws={"commands are held by workers that run commands": find_unguarded_commands},
    hooks=Hooks(checks=(check_shell,), grant_fields=(hand_over_command,)),
)
