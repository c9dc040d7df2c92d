"""Ids of units and notes, taken from the database in blocks."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from interlock.store.connection import Connection


class OutOfIds(Exception):
    """A transaction needed more ids than were reserved for it; the next one gets more."""


class Ids:
    """Ids from the store, a block at a time. A block is taken in a transaction of its own, so none is used twice."""

    BLOCK, SPARE = 4096, 2048

    def __init__(self, connection: Connection, alone: AbstractContextManager[Any] | None = None) -> None:
        """`alone` keeps others from speaking to the session meanwhile, if it is not the caller's own."""
        self.connection, self.spare, self.alone = connection, self.SPARE, alone or nullcontext()
        self.next = self.end = 0
        self.given_up: list[tuple[int, int]] = []  # stretches of ids, first and last, that it never gives out

    def reserve(self, wanted: int = 0) -> None:
        """There are ids enough for a transaction that wants so many, and some to spare but for the first.

        Many programs make one unit and end: they take no block of thousands with them. Others make none at all, and
        get a block only if one was missing.
        """
        if not wanted and not self.end and self.spare == self.SPARE:
            return
        first = wanted and not self.end
        least = wanted if first else wanted + self.spare
        if self.end - self.next >= least:
            return
        block = least if first else -(-least // self.BLOCK) * self.BLOCK
        sql = "UPDATE id_block SET next_id = next_id + :block WHERE name = 'unit' RETURNING next_id"
        with self.alone:
            before, self.end = self.end, self.connection.rows(sql, {"block": block})[0][0]
        if self.end - block != before:  # else it goes on where the last one ends
            self.next = self.end - block

    def give_up(self) -> None:
        """What is left of its block is given out by nobody."""
        if self.next < self.end:
            self.given_up.append((self.next, self.end - 1))
            self.next = self.end

    def take(self) -> int:
        if self.next >= self.end:
            self.spare *= 4
            raise OutOfIds
        self.next += 1
        return self.next - 1
