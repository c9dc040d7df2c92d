"""What all commands have: who asks, for which tenant, and why. `Command[A]` is answered with an `A`."""

from typing import Generic, TypeVar

import msgspec

A = TypeVar("A")
LOCAL = "local"  # whoever sends it: the program beside the database, or the holder of a server's key


class Command(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """Base of all commands: who asks, for which tenant, and why."""

    tenant: int = 1
    actor: str = LOCAL
    reason: str = ""
    cause: str | None = None  # the event that led to it
    idempotency_key: str | None = None  # the same command under the same key is answered, and changes nothing
    scope: str = "local"  # whose keys these are
    key_lasts: bool = False  # the key of what makes a unit stands for it for ever, not for a day
    vouched_by: str = ""  # the key that speaks for the actor, if it is another one's


class Standing(msgspec.Struct, frozen=True):
    """Where a unit stands after a command, and whether the command changed anything."""

    unit: int
    state: str
    version: int
    applied: bool


class Planned(msgspec.Struct, frozen=True):
    """Where a schedule or a template stands after a command, and whether the command changed anything."""

    name: str
    changed: bool
    paused: bool = False
    next_at: int | None = None  # None while it is paused
    version: int = 0  # of a template
    removed: bool = False
