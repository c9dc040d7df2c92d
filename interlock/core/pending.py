"""Commands that wait for an answer: how they are grouped, and how a group is answered."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import local
from typing import Any

from interlock.kernel.commands import Command
from interlock.kernel.errors import InterlockError, Unavailable

GROUP_MAX, ROWS_MAX = 256, 10_000  # of a transaction that commands share
ALONE = 1_000  # rows; a command with more has a transaction to itself
Result = tuple[Any, InterlockError | None]  # what a command is answered with: a value, or a refusal


class PendingCommand:
    """A command that was sent and not answered yet; `future` gets its answer."""

    __slots__ = ("command", "future")

    def __init__(self, command: Command[Any]) -> None:
        self.command = command
        self.future: Future[Any] = Future()


def take_group(queue: deque[PendingCommand]) -> list[PendingCommand]:
    """Takes commands in the order in which they came, as many as may share a transaction."""
    group = [queue.popleft()]
    if not queue:
        return group
    rows = first = group[0].command.count_rows()
    while queue and len(group) < GROUP_MAX:
        more = queue[0].command.count_rows()
        rows += more
        if rows > ROWS_MAX or max(first, more) > ALONE:
            break
        group.append(queue.popleft())
    return group


class Callbacks(local):
    """What this thread calls when it has given all answers of a group; None while it gives none."""

    waiting: list[Callable[[], None]] | None = None


CALLBACKS = Callbacks()


def answer_all(group: Sequence[PendingCommand], results: Sequence[Result]) -> None:
    """Gives every command its answer. Whoever is woken by one of them finds the others given too."""
    callbacks: list[Callable[[], None]] = []
    CALLBACKS.waiting = callbacks
    try:
        for pending, (value, refusal) in zip(group, results, strict=True):
            if refusal:
                pending.future.set_exception(refusal)
            else:
                pending.future.set_result(value)
    finally:
        CALLBACKS.waiting = None
        for call in callbacks:
            call()


def fail_unanswered(group: Sequence[PendingCommand]) -> None:
    """The program is interrupted: nobody waits for an answer that will never come."""
    for pending in group:
        if not pending.future.done():
            pending.future.set_exception(Unavailable("the program was interrupted before there was an answer"))


def call_after_answers(call: Callable[[], None]) -> None:
    """Calls this when the group that this thread is answering is answered; at once if it is answering none."""
    if CALLBACKS.waiting is None:
        call()
    else:
        CALLBACKS.waiting.append(call)
