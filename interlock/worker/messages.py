"""The messages between a worker and the processes of its handlers: one JSON object per line."""

import asyncio

import msgspec

from interlock.client.exceptions import Await, Cancelled, Outage, Reject, Retry, Snooze
from interlock.kernel.commands import EvidenceStatus, LeaseGrant, LeaseStatus, Record, StepsPage, Submitted, Work
from interlock.kernel.errors import (
    InterlockError,
    PermanentError,
    Stale,
    TransientError,
    Unavailable,
    ValidationError,
)
from interlock.kernel.texts import make_storable
from interlock.worker.outcome import ResultNotStorable, read_text
from interlock.worker.tracebacks import SENT, format_traceback

LINE_MAX = 64 * 1024 * 1024  # bytes
# An error keeps its class between processes if its outcome, or a handler that catches it, depends on that class.
KEPT_CLASSES: dict[str, type[InterlockError]] = {
    kind.__name__: kind
    for kind in (
        Retry, Snooze, Await, Outage, Reject, Cancelled, ResultNotStorable, PermanentError, ValidationError,
        TransientError, Stale, Unavailable, InterlockError,
    )
}  # fmt: skip


class ProcessMessage(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all messages."""


class Raised(ProcessMessage, frozen=True, kw_only=True):
    """The handler, or a note of it, raised an exception: its own name, and the class of ours that it counts as."""

    name: str
    counts_as: str
    text: str
    after_us: int | None = None
    signals: tuple[str, ...] = ()
    dependency: str = ""
    cost: float = 0
    traceback: str = ""


# From the worker.


class RunJob(ProcessMessage, frozen=True, kw_only=True):
    """Carry out one job. The lease's secret stays with the worker."""

    path: list[str]  # where modules are found
    app: str  # module:attribute
    module: str  # that defines the task
    grant: LeaseGrant
    tenant: int
    log_level: int
    worktree: str | None = None
    far: tuple[str, str] | None = None  # a server and a key, if that is what the worker's app speaks to


class Stop(ProcessMessage, frozen=True, kw_only=True):
    """The job that runs is asked to stop."""


class NoteAnswer(ProcessMessage, frozen=True, kw_only=True):
    """The answer to a note that has a number, or to a request."""

    number: int
    statuses: list[LeaseStatus] = []
    evidence: EvidenceStatus | None = None  # of an artifact
    output: str | None = None  # of something that the job needs, as JSON text
    page: StepsPage | None = None  # of recorded steps
    made: list[Submitted] = []  # of tasks
    raised: Raised | None = None


class Exit(ProcessMessage, frozen=True, kw_only=True):
    """There are no more jobs: the process ends."""


# From a process.


class NoteMessage(ProcessMessage, frozen=True, kw_only=True):
    """Something to record; with a number, the process waits for the answer."""

    record: Record
    number: int | None = None


class OutputRequest(ProcessMessage, frozen=True, kw_only=True):
    """The process waits for the result of something that its job needs."""

    unit: int
    fence: int
    name: str
    number: int


class StepsRequest(ProcessMessage, frozen=True, kw_only=True):
    """The process waits for recorded steps of its job, or for what an effect of it asked for."""

    unit: int
    fence: int
    name: str
    effect: bool
    number: int


class TasksMessage(ProcessMessage, frozen=True, kw_only=True):
    """Tasks that the job adds to its workstream; the process waits for the answer."""

    unit: int
    fence: int
    work: tuple[Work, ...]
    number: int


class LogMessage(ProcessMessage, frozen=True, kw_only=True):
    """A line for the worker's log."""

    unit: int
    fence: int
    level: int
    text: str


class LogBytes(ProcessMessage, frozen=True, kw_only=True):
    """Bytes for the log of the job, and the step in which they were emitted; '' is none, None that they were not."""

    unit: int
    fence: int
    data: bytes
    step: str | None = None


class ArtifactMessage(ProcessMessage, frozen=True, kw_only=True):
    """An artifact whose bytes are written; the process waits for the answer."""

    unit: int
    fence: int
    name: str
    digest: str
    media: str
    number: int


class Returned(ProcessMessage, frozen=True, kw_only=True):
    """What the handler returned."""

    result: msgspec.Raw
    cost: float = 0


ToChild = RunJob | Stop | NoteAnswer | Exit
ProcessRequest = ArtifactMessage | OutputRequest | StepsRequest | TasksMessage  # each is answered
ToWorker = NoteMessage | ProcessRequest | LogMessage | LogBytes | Returned | Raised


def encode_line(message: ProcessMessage) -> bytes:
    """A message as it is sent.

    Raises:
        PermanentError: one that is too large.
    """
    line = msgspec.json.encode(message) + b"\n"
    if len(line) > LINE_MAX:
        raise PermanentError(
            f"{len(line):,} bytes are too many to pass between a worker and the process of its handler; at most "
            f"{LINE_MAX:,} are allowed: keep large data elsewhere, and pass where it is"
        )
    return line


def encode_error(error: BaseException, cost: float = 0) -> Raised:
    """An exception as it is sent; one that is none of ours may be tried again."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if KEPT_CLASSES.get(kind.__name__) is kind]
    if isinstance(error, asyncio.CancelledError):
        kinds = [Cancelled.__name__]
    text = make_storable(read_text(error))
    after_us = error.after_us if isinstance(error, Retry | Snooze) else None
    counts_as = kinds[0] if kinds else TransientError.__name__
    signals = error.signals if isinstance(error, Await) else ()
    return Raised(
        name=type(error).__name__, counts_as=counts_as, text=text, after_us=after_us, signals=signals, cost=cost,
        traceback=format_traceback(error), dependency=error.dependency if isinstance(error, Outage) else "",
    )  # fmt: skip


def decode_error(raised: Raised) -> InterlockError:
    """The exception that was sent. What was a `ValueError: no` there reads so here, too."""
    base = KEPT_CLASSES[raised.counts_as]
    kind: type[InterlockError] = base if base.__name__ == raised.name else type(raised.name, (base,), {})
    error = kind.__new__(kind, raised.text)
    setattr(error, SENT, raised.traceback)
    if isinstance(error, Retry):
        error.after_us = raised.after_us
    elif isinstance(error, Snooze):
        error.after_us, error.cost = raised.after_us, 0.0
    if isinstance(error, Await):
        error.signals = raised.signals
    if isinstance(error, Outage):
        error.dependency = raised.dependency
    return error
