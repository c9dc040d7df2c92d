"""Response shapes of previews of bulk actions: groups of jobs, and what is left out."""

import msgspec


class BulkGroupResponse(msgspec.Struct, kw_only=True):
    """Jobs of a preview with the same task, queue, state, reason and error (its first line), and the oldest of them."""

    task: str
    queue: str
    lifecycle: str
    state: str
    reason_code: str | None
    error_class: str | None
    error: str | None
    count: int
    oldest: str
    oldest_at: str | None


class LeftOutResponse(msgspec.Struct):
    """How many jobs are left out, and why; null if they were not counted. With `more`, there are more than that."""

    why: str
    count: int | None
    more: bool = False


class BulkResponse(msgspec.Struct):
    """The preview of an action on many jobs, or its result."""

    count: int
    more: bool
    confirm: str | None
    done: int = 0
    refused: int = 0
    units: list[str] = []
    groups: list[BulkGroupResponse] = []
    left_out: list[LeftOutResponse] = []


class BulkCancelResponse(BulkResponse):
    """The preview of a bulk cancel, or its result.

    Without `confirm` in the request: `count` jobs match, or more if `more` is true. Send `confirm` back within ten
    minutes to cancel them. `groups` are the hundred largest groups of them; `left_out` are jobs that match and are left
    alone. With `confirm`: `done` jobs were cancelled or asked to stop, `units` are the first thousand of them, and
    `refused` could not be cancelled.
    """


class BulkRequeueResponse(BulkResponse):
    """The preview of a bulk requeue, or its result.

    Without `confirm` in the request: `count` dead letters match, or more if `more` is true. Send `confirm` back within
    ten minutes to requeue them. `groups` are the hundred largest groups of them; `left_out` are jobs that match and are
    left alone. With `confirm`: `done` were requeued, `units` are the first thousand new jobs, and `refused` could not
    be requeued.
    """
