"""Stamps: who made a transition, and why."""

from typing import Any

import msgspec

from interlock.core.validation import check_text
from interlock.kernel.commands import Command

TEXTS = ("actor", "reason", "cause")


class Stamp(msgspec.Struct, frozen=True):
    """Who moves a unit, and why."""

    actor: str
    reason: str = ""
    cause: str | None = None
    vouched_by: str = ""  # the key that spoke for the actor


def make_stamp(command: Command[Any]) -> Stamp:
    """Who sends a command, and why.

    Raises:
        InterlockError: a text cannot be kept.
    """
    texts = command.actor, command.reason, command.cause
    for name, text in zip(TEXTS, texts, strict=True):
        if text is not None and (not isinstance(text, str) or "\0" in text):
            check_text(name, text)
    return Stamp(*texts, command.vouched_by)
