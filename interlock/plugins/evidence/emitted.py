"""What handlers emit: stretches of their logs, which are void if the work that they tell of is done again.

A handler emits text while it works, such as the words of a model as they come (`ctx.emit`). The text is in the log; its
place, and the step in which it was emitted, are a row here. A step that is recorded is not done again, so what it
emitted stands. Everything else of an attempt stands only if that attempt succeeded: otherwise the next one begins the
handler anew, and emits it again. Nothing is written when an attempt is lost: which stretches are void follows from what
is recorded, so the mark behind them is there as soon as the attempt is over.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from interlock.core.validation import NAME_MAX
from interlock.kernel.commands import Emit, LogEntry
from interlock.kernel.errors import InterlockError


def check_emits(entry: LogEntry) -> None:
    """Raises InterlockError for stretches that are not within the bytes of their entry, one behind the other."""
    place, end = entry.start, entry.start + len(entry.data)
    for emit in entry.emits:
        if not place <= emit.start < emit.end <= end:
            raise InterlockError(
                f"what was emitted from {emit.start} to {emit.end} is not allowed; allowed are stretches of the bytes "
                f"{entry.start} to {end}, one behind the other"
            )
        if len(emit.step) > NAME_MAX or "\0" in emit.step:
            raise InterlockError(f"step = {emit.step[:40]!r} is not allowed; allowed are at most {NAME_MAX} characters")
        place = emit.end


def place_emits(emits: Iterable[Emit], sent: int, length: int) -> Iterable[tuple[int, int, str]]:
    """Where in a log the new stretches begin, how long they are, and their steps.

    Of the lease, `sent` bytes were there before, and of the log `length`.
    """
    for emit in emits:
        start = max(emit.start, sent)
        if start < emit.end:
            yield length - sent + start, emit.end - start, emit.step


def make_rows(place: dict[str, Any], stretches: Sequence[tuple[int, int, str]]) -> list[dict[str, Any]]:
    """The rows of stretches; `place` has what they have in common."""
    return [{**place, "start": start, "length": length, "step": step} for start, length, step in stretches]
