"""The feed query: all events of a tenant in commit order, after a cursor.

A cursor names the store, an act and a place in that act: `1f0c5a9e77d2.4711.3`. Nothing ever comes in before it. On
PostgreSQL an act's id begins with the number of its transaction, and only acts below the oldest open transaction are
read; on SQLite there is one writer. So whoever goes on behind the last cursor that it has kept misses nothing and gets
nothing twice, also if the page ended inside an act.

A page looks at a limited number of events. A filter that fits few is therefore answered in parts: a page may be short
or empty, and its cursor is that of the last event that was looked at.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Event, columns
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import Position, read_epoch, read_events_after, read_horizon
from interlock.store.restore import read_ended_epochs

NOW = "now"  # the cursor behind everything that has happened
NAMED = 12  # characters of the store's name that a cursor has
CURSOR = re.compile(rf"([0-9a-f]{{{NAMED}}})\.([0-9]{{1,19}})\.([0-9]{{1,10}})")
CURSOR_PATTERN = rf"^(now|{CURSOR.pattern})$"
PLACE_MAX = 2**31 - 1
ACT_MAX = 2**63 - 1
LOOKED_AT = 10_000  # events of one page at most
READ = 1_000  # of them together
ACTS_FEW = 4  # acts whose events are read together at first, to find the last ones
ALLOWED = "allowed is the cursor of an event or of a page, or 'now'"
LATEST_ACTS = "SELECT id FROM act WHERE tenant = :tenant AND id < :horizon ORDER BY id DESC LIMIT :limit"
FACTS = """
SELECT unit.id, unit.lifecycle, unit.parent, body.task, lane.queue FROM unit JOIN body ON body.unit = unit.id
LEFT JOIN lane ON lane.id = unit.lane WHERE unit.tenant = :tenant AND unit.id {ids}
"""
ABOVE = "SELECT id, lifecycle, parent FROM unit WHERE tenant = :tenant AND id {ids}"


class Ancestor(msgspec.Struct, frozen=True):
    """A unit above another one."""

    unit: int
    lifecycle: str


class FeedEvent(msgspec.Struct, frozen=True):
    """An event, its cursor, and facts about its unit."""

    act: int
    place: int  # in the act
    cursor: str
    event: Event
    task: str
    queue: str
    above: tuple[Ancestor, ...]  # its parent first, the top of its tree last

    @property
    def position(self) -> Position:
        """Where it stands in the feed."""
        return self.act, self.place


class FeedFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of events; without fields it selects all."""

    lifecycles: tuple[str, ...] = ()
    states: tuple[str, ...] = ()  # that a transition led to
    triggers: tuple[str, ...] = ()
    task: str | None = None
    queue: str | None = None
    actor: str | None = None
    correlation: str | None = None
    unit: int | None = None  # this one alone
    tree: int | None = None  # this one and all below it

    def fits(self, item: FeedEvent) -> bool:
        """Whether an event is meant."""
        event = item.event
        return (
            fits_any(event.lifecycle, self.lifecycles)
            and (not self.states or (event.target in self.states and event.source != event.target))
            and fits_any(event.trigger, self.triggers)
            and self.task in (None, item.task)
            and self.queue in (None, item.queue)
            and self.actor in (None, event.actor)
            and self.correlation in (None, event.correlation)
            and self.unit in (None, event.unit)
            and (self.tree in (None, event.unit) or any(self.tree == ancestor.unit for ancestor in item.above))
        )


class FeedPage(msgspec.Struct, frozen=True):
    """Some events, the oldest first; `next` is the cursor to go on with, also at the end."""

    events: list[FeedEvent]
    next: str
    act: int  # of `next`
    place: int  # of `next`
    more: bool  # there are further events already

    @property
    def position(self) -> Position:
        """Where the next page begins."""
        return self.act, self.place


EVERYTHING = FeedFilter()


def fits_any(word: str, allowed: Collection[str]) -> bool:
    """Whether a word is allowed; without any, all are."""
    return not allowed or word in allowed


def format_cursor(epoch: str, position: Position) -> str:
    """Returns the cursor of a position in the store of this epoch."""
    return f"{epoch[:NAMED]}.{position[0]}.{position[1]}"


def parse_cursor(connection: Connection, text: str | None) -> Position:
    """Returns the position that a cursor names in this store; None is the beginning.

    Raises:
        InterlockError: it is no cursor, or one of another store.
    """
    if text is None:
        return 0, 0
    horizon = read_horizon(connection)
    if text == NOW:
        return max(horizon - 1, 0), PLACE_MAX
    match = CURSOR.fullmatch(text)
    if match is None or int(match[2]) > ACT_MAX or int(match[3]) > PLACE_MAX:
        raise InterlockError(f"'{text[:80]}' is no cursor; {ALLOWED}")
    epoch = read_epoch(connection) or ""
    if match[1] != epoch[:NAMED]:
        if any(ended.epoch[:NAMED] == match[1] for ended in read_ended_epochs(connection)):
            raise InterlockError(
                "this cursor is from before the database was restored, and what came after the backup is gone; "
                "read from the beginning, without a cursor"
            )
        raise InterlockError(f"this cursor is of another database; {ALLOWED}")
    position = int(match[2]), int(match[3])
    if position[0] >= horizon:
        raise InterlockError(
            "this cursor is ahead of everything in this database; if it was restored, run `interlock db restored`"
        )
    return position


def read_feed(connection: Connection, tenant: int, after: Position, limit: int) -> list[FeedEvent]:
    """Returns the next events of a tenant behind a position, the oldest first, at most `limit` of them."""
    return add_facts(connection, tenant, read_events_after(connection, after, limit, tenant))


def add_facts(connection: Connection, tenant: int, rows: Sequence[tuple[Position, Event]]) -> list[FeedEvent]:
    """Returns events with their cursors, and with what is known of their units."""
    epoch = read_epoch(connection) or ""
    units = {event.unit for _, event in rows}
    facts = {row[0]: row for row in connection.rows(FACTS, {"tenant": tenant, "ids": sorted(units)})} if units else {}
    above = read_ancestors(connection, tenant, [(row[0], row[2]) for row in facts.values()])
    return [
        FeedEvent(
            *position, format_cursor(epoch, position), event,
            facts[event.unit][3] if event.unit in facts else "",
            (facts[event.unit][4] if event.unit in facts else None) or "", above.get(event.unit, ()),
        )
        for position, event in rows
    ]  # fmt: skip


def read_latest(connection: Connection, tenant: int, limit: int) -> list[FeedEvent]:
    """Returns the last events of a tenant, the newest first; of an act that moves very many, the first of them.

    An act may have thousands of events, so few acts are read at first, and more of them while few events come.
    """
    given: dict[str, Any] = {"tenant": tenant, "horizon": read_horizon(connection), "limit": limit}
    acts = [row[0] for row in connection.rows(LATEST_ACTS, given)]
    sql = f"SELECT act, place, {', '.join(columns(Event))} FROM journal WHERE act {{ids}} AND place <= :limit"
    rows, first, some = list[Any](), 0, ACTS_FEW
    while first < len(acts) and len(rows) < limit:
        rows += connection.rows(sql, {"ids": acts[first : first + some], "limit": limit})
        first, some = first + some, some * 4
    newest = sorted(rows, key=lambda row: row[:2], reverse=True)[:limit]
    return add_facts(connection, tenant, [((row[0], row[1]), Event(*row[2:])) for row in newest])


def read_ancestors(
    connection: Connection, tenant: int, parents: Sequence[tuple[int, int | None]]
) -> dict[int, tuple[Ancestor, ...]]:
    """Returns the units above each of these, given with their parents; a level of all trees costs one statement."""
    known: dict[int, tuple[str, int | None]] = {}
    wanted = {parent for _, parent in parents if parent is not None}
    while wanted:
        rows = connection.rows(ABOVE, {"tenant": tenant, "ids": sorted(wanted)})
        known |= {unit: (lifecycle, parent) for unit, lifecycle, parent in rows}
        wanted = {parent for _, _, parent in rows if parent is not None} - known.keys()
    above: dict[int, tuple[Ancestor, ...]] = {}
    for unit, first in parents:
        ancestors, parent = list[Ancestor](), first
        while parent is not None and parent in known:
            lifecycle, following = known[parent]
            ancestors.append(Ancestor(parent, lifecycle))
            parent = following
        above[unit] = tuple(ancestors)
    return above


def read_feed_page(
    connection: Connection, tenant: int, wanted: FeedFilter, limit: int, cursor: str | None = None
) -> FeedPage:
    """Returns a page of the events that a filter means, behind a cursor (None: from the first one on).

    Raises:
        InterlockError: it is no cursor of this store.
    """
    position = parse_cursor(connection, cursor)
    epoch, events, more = read_epoch(connection) or "", list[FeedEvent](), True
    together = min(READ, limit + 1) if wanted == EVERYTHING else READ
    for _ in range(LOOKED_AT // READ):
        batch = read_feed(connection, tenant, position, together)
        more = len(batch) == together
        for place, item in enumerate(batch):
            position = item.position
            if wanted.fits(item):
                events.append(item)
                if len(events) == limit:
                    more = more or place + 1 < len(batch)
                    return FeedPage(events, item.cursor, *position, more)
        if not more:
            break
    return FeedPage(events, format_cursor(epoch, position), *position, more)
