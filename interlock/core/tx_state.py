"""Objects in which verbs and reactions keep state for one transaction: `tx.state(Class)`."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from interlock.core.stamps import Stamp
from interlock.kernel.rows import Unit
from interlock.store.connection import Queue
from interlock.store.queries.plain import WorkerPlace


@dataclass
class CancelRequests:
    """Who asked units to stop in this transaction, why and when, by unit."""

    by_unit: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass
class ToFollow:
    """What moved and may have a unit that follows it."""

    moves: deque[tuple[Unit, str, int]] = field(default_factory=deque)  # the unit, its trigger and its round
    retryable: set[int] = field(default_factory=set)  # units whose failure may be tried again


@dataclass
class WorkerCalls:
    """Workers that a transaction calls: each is to ask how it stands with what it holds."""

    queues: set[Queue] = field(default_factory=set)


class ClaimMark(NamedTuple):
    """What a claim leaves in its worker's row."""

    units: int
    key: str
    nonce_hash: str
    queues: tuple[str, ...]
    before: str | None  # the key of the claim before it
    stamp: Stamp


@dataclass
class WorkerChanges:
    """What the rows of workers are told last in a transaction, by tenant and worker."""

    claims: dict[tuple[int, int], ClaimMark] = field(default_factory=dict)
    # How many units, how many of them because the worker has finished them, and why.
    given_back: dict[tuple[int, int], tuple[int, int, Stamp]] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)  # workers that have lost a lease because they were not heard
    locked: dict[tuple[int, int], WorkerPlace] = field(default_factory=dict)  # those that claims have locked
