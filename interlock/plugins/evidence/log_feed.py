"""One reader per log, however many follow it: what is new is read once, and handed to everybody.

A follower reads what is there by itself, and then listens. The reader looks four times per second at every log that
somebody listens to, in one transaction per tenant. A follower that was too slow is told so, and one that came between
two looks notices that the next bytes are not its next ones; both read by themselves again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from interlock.core.listeners import Listener
from interlock.kernel.errors import InterlockError, Unknown
from interlock.plugins.evidence.queries import LogInfo, LogPart, list_logs, read_log_part, read_sources
from interlock.store.connection import Connection

POLL_SECONDS = 0.25  # between two looks
PART = 256 * 1024  # bytes that are read together
BACKLOG_MAX = 100  # parts that a follower has not taken
Read = Callable[[Callable[[Connection], Any], int], Awaitable[Any]]


class LogPosition(NamedTuple):
    """How far a follower has read: the attempt, and the offset in its log."""

    attempt: int = 1
    offset: int = 0


class NewParts(NamedTuple):
    """What is new in a log behind a position, and whether nothing more will come."""

    parts: list[LogPart]
    ended: bool


def read_new_parts(connection: Connection, tenant: int, unit: int, position: LogPosition) -> NewParts:
    """The next bytes of a job's logs, those of later attempts too; of each log at most a part, and the mark behind it.

    What was emitted by an attempt that is over may be void; the mark that says so is behind everything of its log.
    """
    try:
        outcome, _ = read_sources(connection, tenant, unit)
    except Unknown:
        return NewParts([], ended=True)
    parts: list[LogPart] = []
    whole = True
    for log in list_logs(connection, tenant, unit):
        start = position.offset if log.attempt == position.attempt else 0
        if log.attempt < position.attempt:
            continue
        if not whole:  # the log before it has more
            break
        if start < log.length:
            part = cut_incomplete(read_log_part(connection, tenant, unit, log.attempt, start, PART))
            parts += [part] if part.data else []
            whole = part.start + len(part.data) >= log.length
        if log.void and whole:
            parts.append(make_void_part(log))
    return NewParts(parts, ended=outcome is not None and not parts)


def make_void_part(log: LogInfo) -> LogPart:
    """The mark behind a log whose emitted text is void, or some of it."""
    return LogPart(log.attempt, log.length, b"", log.length, is_over=True, void=log.void)


def cut_incomplete(part: LogPart) -> LogPart:
    """A part without the beginning of a character of UTF-8 whose end is not there yet."""
    if part.is_over:
        return part
    for size in (1, 2, 3):
        last = part.data[-size : -size + 1 or None]
        if last and last[0] >= 0xC0:  # it begins a character of so many bytes
            wanted = 2 if last[0] < 0xE0 else 3 if last[0] < 0xF0 else 4
            return part if size >= wanted else msgspec.structs.replace(part, data=part.data[:-size])
        if not last or last[0] < 0x80:
            return part
    return part


def follow_part(position: LogPosition, part: LogPart) -> LogPosition:
    """The position behind a part; nothing is read behind a mark but the next attempt."""
    return LogPosition(part.attempt + 1) if part.void else LogPosition(part.attempt, part.start + len(part.data))


class FollowedLog:
    """A log that somebody follows, how far it was read, and who follows it."""

    def __init__(self, position: LogPosition) -> None:
        self.position, self.followers = position, set[Listener[LogPart]]()


class LogFeed:
    """Everybody who follows a log at this server."""

    def __init__(self, read: Read) -> None:
        self.read = read
        self.logs: dict[int, dict[int, FollowedLog]] = {}  # by tenant and unit
        self.reader: asyncio.Task[None] | None = None
        self.reads = 0  # of parts of logs, for whoever counts what followers cost

    @contextmanager
    def listen(self, tenant: int, unit: int, position: LogPosition) -> Iterator[Listener[LogPart]]:
        """While this lasts, the follower is given what is added behind that position."""
        logs = self.logs.setdefault(tenant, {})
        log = logs.setdefault(unit, FollowedLog(position))
        follower = Listener[LogPart](BACKLOG_MAX)
        log.followers.add(follower)
        if self.reader is None or self.reader.done():
            self.reader = asyncio.create_task(self.run())
        try:
            yield follower
        finally:
            log.followers.discard(follower)
            if not log.followers and logs.get(unit) is log:
                del logs[unit]
                if not logs and self.logs.get(tenant) is logs:
                    del self.logs[tenant]

    async def run(self) -> None:
        """Reads for everybody until nobody follows any more."""
        while self.logs:
            for tenant in list(self.logs):
                try:
                    await self.read_tenant(tenant)
                except InterlockError:  # the database is away; the next look may find it
                    continue
                except RuntimeError:  # the server has ended, and has no readers any more
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def read_tenant(self, tenant: int) -> None:
        """Reads what is new in the logs of one tenant, each once."""
        wanted = {unit: log.position for unit, log in self.logs.get(tenant, {}).items()}
        if not wanted:
            return

        def read_all(connection: Connection) -> dict[int, NewParts]:
            return {unit: read_new_parts(connection, tenant, unit, place) for unit, place in wanted.items()}

        new: dict[int, NewParts] = await self.read(read_all, tenant)
        self.reads += len(new)
        logs = self.logs.get(tenant, {})
        for unit, parts in new.items():
            if (log := logs.get(unit)) and log.position == wanted[unit]:
                for part in parts.parts:
                    log.position = follow_part(log.position, part)
                for follower in list(log.followers) if parts.parts or parts.ended else ():
                    follower.push(parts.parts, parts.ended)
