"""Objects in which verbs and reactions keep state for one transaction: `tx.state(Class)`."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from interlock.kernel.rows import Unit
from interlock.store.connection import Queue


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
