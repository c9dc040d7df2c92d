"""Response shapes of previews of bulk actions: groups of jobs, and what is left out."""

import msgspec


class BulkGroupResponse(msgspec.Struct, kw_only=True):
    """Some of what a filter means, alike in all that is said here; of errors, the first line."""

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
    """How many are left out and why; null if they were not counted, and with `more`, there are more than that."""

    why: str
    count: int | None
    more: bool = False


class BulkResponse(msgspec.Struct):
    """What is meant by an action on many jobs, and what became of it."""

    count: int
    more: bool
    confirm: str | None
    done: int = 0
    refused: int = 0
    units: list[str] = []
    groups: list[BulkGroupResponse] = []
    left_out: list[LeftOutResponse] = []


class BulkCancelResponse(BulkResponse):
    """Which jobs are meant, and what became of them.

    Without a `confirm`: `count` jobs would be asked to stop, or more than that; send `confirm` back within ten
    minutes. `groups` are the hundred largest groups of them, and `left_out` is what fits and is left alone. With it:
    `done` of them were, `units` are the first thousand of those, and `refused` could not be.
    """


class BulkRequeueResponse(BulkResponse):
    """What is meant, and what became of it.

    Without a `confirm`: `count` letters would be done again, or more than that; send `confirm` back within ten minutes.
    `groups` are the hundred largest groups of them, and `left_out` is what fits and is left alone. With it: `done` of
    them were, `units` are the first thousand new ones, and `refused` could not be.
    """
