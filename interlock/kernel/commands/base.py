"""What all commands share: actor, tenant, reason. `Command[A]` is answered with an `A`."""

from collections.abc import Collection, Sequence
from enum import Enum
from typing import ClassVar, Generic, TypeVar

import msgspec

A = TypeVar("A")
LOCAL = "local"  # whoever sends it: the program beside the database, or the holder of a server's key


class Route(Enum):
    """Who carries a command out: its committer and, for what is large, another one beside it. Each has a connection.

    So nobody waits for submits, nor the ends of work for claims, nor any of them for the clock. While a committer waits
    for the database, the one beside it has something to do; what is small is better off with others in one transaction.
    """

    OTHER = (0, None)
    SUBMIT = (0, 4)
    HOLDER = (1, 5)
    CLAIM = (2, None)
    TICK = (3, None)

    def __init__(self, place: int, beside: int | None) -> None:
        self.place, self.beside = place, beside


class Command(msgspec.Struct, Generic[A], frozen=True, kw_only=True):
    """Base of all commands: who asks, for which tenant, and why. Each class says of itself who carries it out."""

    committer: ClassVar[Route] = Route.OTHER
    scope: ClassVar[str] = "admin"  # that a key needs to ask it
    public: ClassVar[bool] = False  # whether it can be asked over HTTP, or only beside the database
    other_scope: ClassVar[str] = ""  # that a key needs instead, for some of them
    takes_key: ClassVar[bool] = True  # under an idempotency key; the verbs of a worker are told apart by their leases
    counted: ClassVar[str] = ""  # the field that says how many rows it reads or makes; without it, it is one
    makes_rows: ClassVar[bool] = True  # whether it may need ids of its own for what it makes

    tenant: int = 1
    actor: str = LOCAL
    reason: str = ""
    cause: str | None = None  # the event that led to it
    idempotency_key: str | None = None  # the same command under the same key is answered, and changes nothing
    key_scope: str = "local"  # whose idempotency keys these are
    key_lasts: bool = False  # the key of what makes a unit stands for it for ever, not for a day
    vouched_by: str = ""  # the key that speaks for the actor, if it is another one's

    def needed_scope(self, own_workers: Collection[int] = ()) -> str:
        """The scope that a key needs to ask this; `own_workers` are those that were registered with it."""
        return self.scope

    def describe_actor(self) -> str:
        """Who acts, and which key vouches for that, where there is one column for both."""
        return f"{self.actor} (vouched for by {self.vouched_by})" if self.vouched_by else self.actor

    def count_rows(self) -> int:
        """Returns about how many rows the command reads or makes: `counted` names a number, or a list of them."""
        counted = getattr(self, self.counted) if self.counted else 1
        return counted if isinstance(counted, int) else len(counted)

    def held_units(self) -> Sequence[int]:
        """Returns the units that the sender holds leases on and speaks for."""
        return ()


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
