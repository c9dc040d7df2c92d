"""The context that a handler gets: its job, lease, steps, log, progress and signals."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import cached_property
from mimetypes import guess_type
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.blobs.store import read_file
from interlock.client.async_pairs import Sender
from interlock.client.blobs import keep_pieces, unpack
from interlock.client.context import AgentContext, JobLogger
from interlock.client.durations import Length
from interlock.client.exceptions import Await, NoSignal, check_cost
from interlock.kernel.commands import (
    AddArtifact,
    ChildStatus,
    EvidenceStatus,
    LeaseGrant,
    LeaseRef,
    LeaseStatus,
    ReadOutput,
    Record,
)
from interlock.kernel.errors import InterlockError, PermanentError, Stale
from interlock.plugins.evidence.artifacts import check_artifact_name
from interlock.worker.effects import EffectRecorder
from interlock.worker.job_logs import JobLog
from interlock.worker.log_lines import describe_job
from interlock.worker.meters import Meters
from interlock.worker.steps import STEP, StepRecorder
from interlock.worker.task_adder import TaskAdder
from interlock.worker.tools import ToolCaller
from interlock.worker.validation import Validation
from interlock.worker.waiting import SIGNALS_MAX, Asker, CallsUnderWay, Spawner, check_recorded, is_awaited

if TYPE_CHECKING:
    from interlock.client.agents import Agent
    from interlock.client.app import App
    from interlock.client.tasks import Task

LOG = logging.getLogger("interlock.job")
BYTES = (bytes, bytearray, memoryview, Path)  # what an artifact is kept as it is
MAKING = Lock()
OCTETS = "application/octet-stream"
SLEEP = "sleep:"  # how the engine calls a wait that only time ends
CORRECTING = "correct"  # how the name of that phase begins, and of the move to it


class StopFlag:
    """Whether a handler should stop; what runs it in another process listens. A lock per job would cost too much."""

    stopped = False
    listener: Callable[[], None] | None = None

    def is_set(self) -> bool:
        return self.stopped

    def set(self) -> None:
        self.stopped = True
        if self.listener:
            self.listener()


class LeaseOver(Stale):
    """A handler was about to start, and its lease is over by the worker's own clock."""


def is_never_over() -> bool:
    """Is what a lease without a clock says."""
    return False


def ignore() -> None:
    """A handler whose output is not captured has nothing to add."""


def drop_log(log: JobLog) -> None:
    """Closes a log of which nobody wants anything."""
    log.close()


class JobContext(AgentContext):
    """The context of one attempt. `cancelled` turns true when the job is asked to stop, or its lease is lost."""

    own_log: JobLog | None = None
    own_cost = 0.0  # of this attempt, besides what its result says
    worktree: str | None = None  # if its job has a repository
    corrections = 0  # how often the handler has been told to correct its work, up to where it is
    is_async = False  # whether its handler is `async def`: then a step is awaited
    redact: Callable[[Any], Any] | None = None  # takes out what may not be recorded
    agent: "Agent | None" = None  # whose handler it is
    thread: Future[Any] | None = None  # where a plain handler runs; it may outlive the wait for it
    app: "App | None" = None  # where large values and artifacts are kept
    # By the worker's own clock, which goes on while the process is stopped.
    lease_over: Callable[[], bool] = staticmethod(is_never_over)
    on_log: Callable[[JobLog], None] = staticmethod(drop_log)  # has the bytes sent that wait in the log
    read_captured: Callable[[], None] = staticmethod(ignore)  # adds what was printed before to the log

    def __init__(self, sender: Sender, grant: LeaseGrant, tenant: int, later: Callable[[Record], None]) -> None:
        self.sender, self.grant, self.tenant, self.later = sender, grant, tenant, later
        self.held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
        self.stopping = StopFlag()

    # Most handlers ask for none of these, so each is made when it is asked for.

    @cached_property
    def output(self) -> "OutputReader":  # type: ignore[override]
        return OutputReader(self)

    @cached_property
    def step(self) -> StepRecorder:  # type: ignore[override]
        return StepRecorder(self)

    @cached_property
    def calls(self) -> CallsUnderWay:
        """What an async handler does side by side."""
        return CallsUnderWay()

    @cached_property
    def meters(self) -> Meters:
        """What the run of this job has used, as far as this attempt knows."""
        return Meters(self)

    @property
    def spent(self) -> dict[str, float]:
        return self.meters.spent

    def left(self, name: str) -> float | None:
        return self.meters.left(name)

    @cached_property
    def phase(self) -> "PhaseEntrance":  # type: ignore[override]
        return PhaseEntrance(self)

    @cached_property
    def validate(self) -> Validation:  # type: ignore[override]
        return Validation(self)

    @cached_property
    def tool(self) -> ToolCaller:  # type: ignore[override]
        return ToolCaller(self)

    @cached_property
    def artifact(self) -> "ArtifactRecorder":  # type: ignore[override]
        return ArtifactRecorder(self)

    @cached_property
    def spawn(self) -> Spawner:  # type: ignore[override]
        return Spawner(self)

    @cached_property
    def add(self) -> TaskAdder:  # type: ignore[override]
        return TaskAdder(self)

    @cached_property
    def ask(self) -> Asker:  # type: ignore[override]
        return Asker(self)

    @cached_property
    def effect(self) -> EffectRecorder:  # type: ignore[override]
        return EffectRecorder(self)

    @cached_property
    def children(self) -> dict[str, ChildStatus]:
        """The children that earlier attempts made, by name."""
        return {child.name: child for child in self.grant.children}

    @cached_property
    def log(self) -> JobLogger:  # type: ignore[override]
        own = {"unit": self.grant.unit, "fence": self.grant.fence}
        return JobLogger(LOG, {**own, "facts": describe_job(self.grant)}, self.write_log)

    @property
    def job_log(self) -> JobLog:
        if self.own_log is None:
            with MAKING:  # several threads may write
                self.own_log = self.own_log or JobLog(self.held)
        return self.own_log

    def emit(self, text: str) -> None:
        """Adds text to the log of the job as it comes, from any thread; it is sent within a twentieth of a second."""
        if not isinstance(text, str):
            raise PermanentError(f"ctx.emit({text!r:.80}) is not allowed; allowed is text")
        recorder, step = STEP.get()
        text = self.clean("emit", text)
        self.write_log(text.encode(errors="backslashreplace"), step if recorder is self.step else "")

    def write_log(self, data: bytes, step: str | None = None) -> None:
        """Adds bytes to the log of the job, from any thread; sent with one of the next reports.

        Those that are emitted have the step in which they are; '' is none.
        """
        if data:
            self.read_captured()
            self.add_to_log(data, step)

    def add_to_log(self, data: bytes, step: str | None = None) -> None:
        self.job_log.add(data, step)
        self.on_log(self.job_log)

    def read_value(self, text: str) -> str:
        """Returns a large value, which is kept beside the database; any other text stays as it is."""
        return unpack(self.app, text, worker=True) if self.app else text

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: somebody asked for it, or the job is another worker's by now."""
        return self.stopping.is_set()

    @property
    def fence(self) -> int:
        """Grows with every grant of this job, and over the jobs of a run: for systems that can refuse an older one."""
        return self.grant.fence_base + self.grant.fence

    @property
    def correlation(self) -> str:
        """What all work that began with one request has in common."""
        return self.grant.correlation

    @property
    def trace(self) -> str:
        """The trace context that the job was submitted with; empty if there was none."""
        return self.grant.trace

    @property
    def attempt(self) -> int:
        return self.grant.attempt

    @property
    def unit(self) -> int:
        return self.grant.unit

    @property
    def saved(self) -> Any:
        """What the last checkpoint of an earlier attempt said; None if there was none."""
        return None if self.grant.checkpoint is None else msgspec.json.decode(self.read_value(self.grant.checkpoint))

    def refuse_late_start(self) -> None:
        """Called right before the handler.

        Raises:
            LeaseOver: the lease is over by the clock of this worker.
        """
        if self.lease_over():
            raise LeaseOver("the lease is over by the clock of this worker")

    def progress(self, done: float, text: str = "") -> None:
        """How far it is, from 0 to 1; sent with the next report, so it costs nothing to call it often."""
        self.later(self.record("progress", {"done": done, "text": text}))

    def checkpoint(self, data: Any) -> None:
        """What a later attempt finds as `saved`; sent with the next report."""
        self.later(self.record("checkpoint", data))

    def cost(self, amount: float) -> None:
        """What this attempt has cost more, whether it succeeds or not; sent with its outcome."""
        self.own_cost += check_cost(amount)

    @property
    def outputs(self) -> dict[str, Any]:
        """What the steps of this run, or the jobs that this one needs, have come to, by name."""
        outputs = (*(self.grant.outputs or ()), *self.grant.needed)
        return {name: msgspec.json.decode(self.read_value(output)) for name, output in outputs}

    def wait_signal(self, name: str, *, timeout: Length | None = None) -> Any:
        """What came with a signal. Until it comes nobody works here: the attempt ends, and the handler is called again.

        Raises:
            NoSignal: it has not come in time.
        """
        return self.wait_any(name, timeout=timeout)[1]

    def wait_any(self, *names: str, timeout: Length | None = None) -> tuple[str, Any]:
        """The first of several signals that is there, and what came with it.

        Raises:
            NoSignal: as `wait_signal` does.
        """
        if not 1 <= len(names) <= SIGNALS_MAX:
            raise InterlockError(f"the number of signals = {len(names)} is not allowed; allowed is 1 to {SIGNALS_MAX}")
        signals = dict(self.grant.signals)
        for name in names:
            if name in signals:
                return name, msgspec.json.decode(signals[name])
        if all(name in self.grant.waited for name in names):
            raise NoSignal(f"the signal {' or '.join(map(repr, names))} has not come in time")
        raise Await(*names, timeout=timeout)

    def sleep(self, name: str, length: Length) -> None:
        """Waits for so long, once under each name, however often the handler is called. Nobody works here meanwhile."""
        if SLEEP + name not in self.grant.waited:
            raise Await(SLEEP + name, timeout=length)

    def use_task(self, task: "Task[Any, Any]") -> None:
        """Takes over what a task says of its handler."""
        self.is_async, self.redact, self.agent = task.is_async, task.rules.redact, task.agent

    def clean(self, name: str, value: Any) -> Any:
        """What may be recorded of a value.

        Raises:
            PermanentError: that cannot be said: then nothing is.
        """
        if self.redact is None:
            return value
        try:
            return self.redact(value)
        except Exception as error:
            raise PermanentError(f"redact has raised for '{name}', so nothing is recorded: {error!r}") from error

    def record(self, kind: str, data: Any, name: str = "") -> Record:
        payload = msgspec.json.encode(data).decode()
        return Record(tenant=self.tenant, held=(self.held,), kind=kind, name=name, payload=payload)


def check_accepted(answers: list[LeaseStatus]) -> None:
    """Raises Stale if the job is another worker's by now."""
    if not answers[0].accepted:
        raise Stale(f"this job is no longer held here: {answers[0].why}")


class PhaseEntrance:
    """`ctx.phase("optimizing")`: the run of this job enters a phase; in an `async def` handler it is awaited."""

    def __init__(self, context: JobContext) -> None:
        self.context, self.count = context, 0

    def __call__(self, name: str) -> Any:
        if is_awaited(self.context):
            return self.aio(name)
        check_recorded(self.context.sender.send(self.make_record(name)))
        return None

    async def aio(self, name: str) -> None:
        check_recorded(await self.context.sender.asend(self.make_record(name)))

    def make_record(self, name: str) -> Record:
        """Each phase of a handler has a number, so that one which is called again enters none a second time."""
        self.count += 1
        self.context.corrections += name.startswith(CORRECTING)
        return self.context.record("phase", None, f"{self.count} {name}")


class ArtifactRecorder:
    """`ctx.artifact("report", data)`: kept with this attempt, once under each name; bytes and files as a blob."""

    def __init__(self, context: JobContext) -> None:
        self.context = context

    def __call__(self, name: str, data: Any, *, media: str | None = None) -> None:
        if isinstance(data, BYTES):
            check_taken(self.context.sender.send(self.keep_bytes(name, data, media)))
        else:
            check_accepted(self.context.sender.send(self.context.record("artifact", data, name)))

    async def aio(self, name: str, data: Any, *, media: str | None = None) -> None:
        if isinstance(data, BYTES):
            command = await asyncio.to_thread(self.keep_bytes, name, data, media)
            check_taken(await self.context.sender.asend(command))
        else:
            check_accepted(await self.context.sender.asend(self.context.record("artifact", data, name)))

    def keep_bytes(self, name: str, data: Any, media: str | None) -> AddArtifact:
        """Writes a blob, and returns the command that names it.

        Raises:
            InterlockError: a wrong name.
        """
        check_artifact_name(name)
        context = self.context
        assert context.app, "a worker sets it"
        pieces = read_file(data) if isinstance(data, Path) else (bytes(data),)
        blob = keep_pieces(context.app, context.tenant, pieces, worker=True)
        media = media or guess_type(name)[0] or OCTETS
        return AddArtifact(tenant=context.tenant, held=context.held, name=name, digest=blob.digest, media=media)


def check_taken(status: EvidenceStatus) -> None:
    """Raises Stale if the job is another worker's by now, also if its artifact was taken although it is late."""
    if not status.accepted or status.late:
        kept = "; the artifact was kept, and is marked as late" if status.accepted else ""
        raise Stale(f"this job is no longer held here: {status.why or 'its lease is over'}{kept}")


class OutputReader:
    """`ctx.output("name")`: what a need came to, also one that was not handed over; `await ctx.output.aio("name")`."""

    def __init__(self, context: JobContext) -> None:
        grant = context.grant
        self.context, self.known = context, dict((*(grant.outputs or ()), *grant.needed))

    def __call__(self, name: str) -> Any:
        if name not in self.known:
            self.known[name] = self.context.sender.send(self.make_command(name))
        return msgspec.json.decode(self.context.read_value(self.known[name]))

    async def aio(self, name: str) -> Any:
        if name not in self.known:
            self.known[name] = await self.context.sender.asend(self.make_command(name))
        return msgspec.json.decode(self.context.read_value(self.known[name]))

    def make_command(self, name: str) -> ReadOutput:
        return ReadOutput(tenant=self.context.tenant, held=self.context.held, name=name)
