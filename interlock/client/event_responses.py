"""Events in the shape of document 002, as the API tells them."""

from typing import Any

import msgspec


class JobEventTold(msgspec.Struct, kw_only=True):
    """One event of a job in document 002's shape; beats, renewals and compensations move nothing: version 0."""

    id: str
    job_id: str
    type: str
    ts: str
    actor: str
    correlation_id: str
    cause: str | None
    payload: Any
    version: int


class JobEvents(msgspec.Struct):
    """A page of events in document 002's shape, the oldest first; `next` is the `cursor` of the next page, or null."""

    events: list[JobEventTold]
    next: str | None
