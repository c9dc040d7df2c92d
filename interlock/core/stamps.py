"""Stamps: who made a transition, and why."""

from typing import Any

import msgspec

from interlock.core.validation import check_text
from interlock.kernel.commands import Command


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
    for name in ("actor", "reason", "cause"):
        check_text(name, getattr(command, name))
    return Stamp(command.actor, command.reason, command.cause, command.vouched_by)
