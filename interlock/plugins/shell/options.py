"""What a command says of itself: the text, its environment, its directory and its limits."""

import re
from typing import Any

import msgspec

from interlock.kernel.errors import InterlockError
from interlock.process import ProcessLimits

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
    """Returns the limits of a command.

    Raises:
        InterlockError: one that there is not, or that is not allowed.
    """
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
