"""Format tracebacks of handlers: bounded, without secrets, whatever the exception does.

A traceback begins with the handler: the frames of the worker that called it say nothing to its author. An error of ours
that no handler of a user has seen, such as the end of a command, has none. What a user's
own hook makes of the texts is the last word; a hook that breaks costs the texts, and never tells what it should hide.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable
from logging import ERROR
from pathlib import Path
from traceback import TracebackException
from types import TracebackType

import msgspec

from interlock.kernel.api_keys import redact_keys
from interlock.kernel.commands import TRACEBACK_MAX, Outcome
from interlock.kernel.errors import InterlockError
from interlock.kernel.texts import cut_middle, make_storable
from interlock.worker.log_lines import log_event

WORKER = Path(__file__).parent
CALLERS = {
    *(
        str(WORKER / f"{name}.py")
        for name in ("execution", "executors", "process", "child", "outcome", "repositories", "shell")
    ),
    str(WORKER.parent / "testing" / "worker.py"),
    str(WORKER.parent / "client" / "async_pairs.py"),  # by which results of threads come to the loop
}
LIBRARIES = (
    *(str(Path(str(module.__file__)).parent) for module in (asyncio, concurrent.futures)),
    str(WORKER.parent / "git"),  # which the worker calls before a handler and after it
)
SENT = "interlock_traceback"  # the attribute that carries the text from the process where it was raised
HIDDEN = "hidden: the redact function of this app failed"


def format_traceback(error: BaseException) -> str:
    """Formats the traceback of an exception, with its causes, from the first frame of the handler on."""
    sent = getattr(error, SENT, None)
    if isinstance(sent, str):
        return sent
    try:
        frames = skip_callers(error.__traceback__)
        if frames is None and error.__traceback__ is not None and isinstance(error, InterlockError):
            return ""
        text = "".join(TracebackException(type(error), error, frames, compact=True).format())
    except Exception as broken:  # its own text, notes or causes cannot be had
        text = f"{type(error).__name__}: its traceback cannot be formatted: {type(broken).__name__}"
    return make_storable(cut_middle(text.rstrip("\n"), TRACEBACK_MAX))


def skip_callers(frames: TracebackType | None) -> TracebackType | None:
    """Skips the frames that are ours, so that a traceback begins with the handler."""
    while frames is not None and is_caller(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames


def is_caller(file: str) -> bool:
    """Whether a file is ours or Python's own."""
    return file in CALLERS or file.startswith(LIBRARIES)


def redact_outcome(outcome: Outcome, redact: Callable[[str], str] | None) -> Outcome:
    """Returns an outcome without secrets: keys, leases, and whatever the app's own function takes out."""
    error, traceback = redact_keys(outcome.error), redact_keys(outcome.traceback)
    if redact is not None:
        error, traceback = call_redact(redact, error), call_redact(redact, traceback)
    return msgspec.structs.replace(outcome, error=error, traceback=cut_middle(traceback, TRACEBACK_MAX))


def call_redact(redact: Callable[[str], str], text: str) -> str:
    """Returns text as the user's function leaves it; if that fails, nothing of the text is kept."""
    try:
        changed = redact(text) if text else text
        if not isinstance(changed, str):
            raise TypeError(f"it returned {type(changed).__name__}, and text is wanted")
    except Exception as error:
        log_event(ERROR, "redact function failed", type(error).__name__)
        return HIDDEN
    return make_storable(changed)
