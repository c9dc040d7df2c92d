"""Response shapes of events and of the feed, made from rows."""

from typing import Any

import msgspec

from interlock.client.durations import format_time
from interlock.client.responses import EventResponse
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Event
from interlock.store.queries.feed import FeedEvent, FeedPage


class FeedEventResponse(EventResponse, kw_only=True):
    """One event of the feed, with its cursor and facts about its job, run or step."""

    cursor: str
    lifecycle: str
    task: str
    queue: str
    parent: str | None
    run: str | None  # the topmost above it


class FeedResponse(msgspec.Struct):
    """A page of the feed, the oldest event first. `next` is the `after` of the next page, also at the end.

    `more` says that there are further events already. A page may be short, or empty, all the same: a filter that
    matches few is answered in parts.
    """

    events: list[FeedEventResponse]
    next: str
    more: bool


def decode_json(text: str | None) -> Any:
    """Decodes JSON text; text that is no JSON stays as it is."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


def make_event(row: Event) -> EventResponse:
    """Makes an event."""
    return EventResponse(**make_event_fields(row))


def make_event_fields(row: Event) -> dict[str, Any]:
    """Makes the fields that all response shapes of an event have."""
    return {
        "unit": format_id(row.lifecycle, row.unit), "version": row.version, "at": format_time(row.at),
        "name": row.name, "trigger": row.trigger, "source": row.source, "target": row.target,
        "lease_from": row.lease_from, "lease_to": row.lease_to, "attempt": row.attempt, "fence": row.fence,
        "severity": row.severity, "actor": row.actor, "reason": row.reason, "cause": row.cause,
        "correlation": row.correlation, "trace": row.trace, "payload": decode_json(row.payload), "hash": row.hash,
    }  # fmt: skip


def make_feed_event(item: FeedEvent) -> FeedEventResponse:
    """Makes an event of the feed."""
    above = [format_id(ancestor.lifecycle, ancestor.unit) for ancestor in item.above]
    return FeedEventResponse(
        **make_event_fields(item.event), cursor=item.cursor, lifecycle=item.event.lifecycle, task=item.task,
        queue=item.queue, parent=above[0] if above else None, run=above[-1] if above else None,
    )  # fmt: skip


def make_feed_page(page: FeedPage) -> FeedResponse:
    """Makes a page of the feed."""
    return FeedResponse([make_feed_event(item) for item in page.events], page.next, page.more)
