"""Errors in the committer: which are worth a retry, which are bugs, and what the caller gets."""

import logging
from typing import Any

from interlock.kernel.commands import Command
from interlock.kernel.errors import Contended, Corrupt, InterlockError, Unavailable
from interlock.store.connection import LostCommit, Taken
from interlock.store.ids import OutOfIds

TRIES = 5  # of one command; a group is tried twice
log = logging.getLogger("interlock.core")


class Spoilt(Exception):
    """A command was refused after it had changed something: the others must be run again without it."""


def is_passing(error: Exception) -> bool:
    """Whether a command may go well the next time it is tried, so that no unit is to blame."""
    contended = isinstance(error, Contended) and not isinstance(error, Taken)
    return (
        contended
        or isinstance(error, Unavailable | LostCommit | OutOfIds | MemoryError)
        or not isinstance(error, Exception)
    )


def find_bug(error: Exception) -> Exception | None:
    """Returns the error if no command may raise it: its traceback says where to look."""
    return None if isinstance(error, InterlockError) else error


def log_bug(command: Command[Any], error: Exception) -> None:
    """Logs an error that no verb may raise with its traceback; the caller gets it too."""
    if bug := find_bug(error):
        unit, kind = getattr(command, "unit", None), type(command).__name__
        named = kind if unit is None else f"{kind} unit={unit}"
        facts = {"command": kind, "unit": unit, "tenant": command.tenant, "error": repr(error)}
        text = "command=%s tenant=%s failed: %r"
        log.error(text, named, command.tenant, error, exc_info=bug, extra={"facts": facts})


def log_trouble(text: str, error: Exception) -> None:
    """Logs that the database or a channel failed, where we go on by ourselves."""
    log.warning("%s: error=%s", text, error, extra={"facts": {"error": str(error)}})


def explain(error: Exception) -> Exception:
    """Returns what the caller is told when the last try has failed."""
    if isinstance(error, Taken):
        return Corrupt(f"the database is damaged, a row exists that no event explains: {error}")
    if isinstance(error, Contended):
        return Contended(
            f"other transactions were in the way, {TRIES} times in a row: {error}; nothing was changed, send it again"
        )
    if isinstance(error, OutOfIds):
        return InterlockError("one command cannot make so many jobs; send them in parts")
    return error


def format_reason(error: Exception) -> str:
    """The text that a log line or a note keeps of an error."""
    text = str(error)
    return text if type(error).__module__.startswith("interlock") else f"{type(error).__name__}: {text}"
