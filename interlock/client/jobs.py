"""A job as its submitter sees it: state, result, events, wait, cancel.

Whatever kind of work it is of, a handle has `id`, `state`, `outcome`, `wait`, `cancel`, `why`, `events`, `log`,
`children`, `outputs` and `cost`; kinds of work add to these.
"""

import asyncio
import time
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.async_pairs import Call, Read, Steps, verb, verb_of_steps
from interlock.client.blobs import unpack
from interlock.client.durations import Length, length_us
from interlock.client.event_views import make_event
from interlock.client.evidence import ArtifactReader, JobLogReader
from interlock.client.exceptions import Failed, StillWaiting
from interlock.client.pauses import Until, parse_until
from interlock.client.responses import EventResponse
from interlock.client.steps import read_outputs
from interlock.client.why import explain
from interlock.kernel.commands import LOCAL, Cancel, PauseStatus, PauseWork, Signal, Standing, UnpauseWork
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Event
from interlock.plugins.evidence.queries import ArtifactInfo, list_artifacts
from interlock.store.queries.views import UnitSummary, events_of, read_summary, view

if TYPE_CHECKING:
    from interlock.client.app import App
    from interlock.client.selections import Selection

# Seconds between two looks at a job that another process ends; of one that ends in this process the waiter is told.
POLL_FIRST, POLL_MAX = 0.002, 0.25
MILLION = 1_000_000  # of what a cost is kept in


class Job:
    """A job, a step or a run. It goes on existing whatever becomes of this object."""

    def __init__(self, app: "App", unit: int, *, created: bool = False, lifecycle: str = "") -> None:
        """`lifecycle` is known of a job that was just submitted; of another one it is read when it is needed."""
        self.app, self.unit, self.created, self.lifecycle = app, unit, created, lifecycle

    def __repr__(self) -> str:
        try:
            return f"<{self.id} {self.state}>"
        except InterlockError:  # it is in a transaction that is not committed, or its database is away
            return f"<{format_id(self.lifecycle or 'unit', self.unit)}>"

    @property
    def id(self) -> str:
        """The id that users see. It needs no read of a job that was submitted here, also before a commit."""
        if not self.lifecycle:
            self.lifecycle = self.look().lifecycle
        return format_id(self.lifecycle, self.unit)

    @property
    def state(self) -> str:
        """The state that it is in now."""
        return self.look().state

    @property
    def outcome(self) -> str | None:
        """How it ended: `success`, `failure`, `cancelled` or `dead`; None while it has not."""
        return self.look().outcome

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the steps below it that have succeeded, by name; its own result is what `wait` returns."""
        return read_outputs(self.app, self.unit)

    @property
    def cost(self) -> float:
        """What it and all below it have cost so far, attempts that failed included."""
        return self.app.read(view, self.unit).unit.cost / MILLION

    @property
    def children(self) -> "Selection":
        """What is directly below it: steps, tasks, attempts. It is read when it is iterated over, the newest first."""
        return self.app.jobs(parent=self.unit)

    @verb_of_steps
    def why(self) -> Steps[str]:
        """Explains why it is in its state, and what would move it on."""
        explanation = yield Read(explain, (self.app.lifecycles, self.unit))
        text: str = explanation.text
        return text

    @verb_of_steps
    def events(self, after: int = 0) -> Steps[list[EventResponse]]:
        """Lists what happened to it, from behind the version `after` on; `app.events(run=…)` has all below it too."""
        events: list[Event] = yield Read(events_of, (self.unit, after))
        return [make_event(event) for event in events]

    def look(self) -> UnitSummary:
        """Reads its state, outcome and result.

        Raises:
            Unknown: there is no such job.
        """
        return self.app.read(read_summary, self.unit)

    @property
    def wait(self) -> "Wait":
        """`wait(timeout)` returns its result once it has ended; `await wait.aio(timeout)` likewise."""
        return Wait(self)

    @property
    def log(self) -> JobLogReader:
        """`log()` returns what its handler has logged; `log.follow()` goes on until it has ended."""
        return JobLogReader(self.app, self.unit)

    @property
    def artifacts(self) -> list[ArtifactInfo]:
        """What its attempts have left, by attempt and name."""
        return self.app.read(list_artifacts, self.unit)

    @property
    def read_artifact(self) -> ArtifactReader:
        """`read_artifact(name)` returns the bytes of an artifact; `await read_artifact.aio(name)` likewise."""
        return ArtifactReader(self.app, self.unit)

    @verb
    def cancel(self, *, hard: bool = False, reason: str = "") -> Call[Standing]:
        """Stops it: the handler is asked to stop, or with `hard` it is stopped immediately."""
        return Call(self.app, Cancel(tenant=self.app.tenant, unit=self.unit, hard=hard, reason=reason))

    @verb
    def pause(self, *, reason: str = "", until: Until | None = None, by: str = LOCAL) -> Call[PauseStatus]:
        """Pauses it: neither it nor anything below it starts after the answer; what runs goes on.

        `until` is a time of day (`"18:00"`), a length of time, or a time; without it, it is paused until `unpause`.
        """
        command = PauseWork(tenant=self.app.tenant, unit=self.unit, reason=reason, actor=by, **parse_until(until))
        return Call(self.app, command)

    @verb
    def unpause(self, *, reason: str = "", by: str = LOCAL) -> Call[PauseStatus]:
        """Lets it go on."""
        return Call(self.app, UnpauseWork(tenant=self.app.tenant, unit=self.unit, reason=reason, actor=by))

    @verb
    def signal(self, name: str, data: Any = None, *, by: str = "local") -> Call[Standing]:
        """Sends the signal that `ctx.wait_signal(name)` waits for.

        It is kept if nobody waits for it yet. Of several with one name the first counts.
        """
        payload = msgspec.json.encode(data).decode()
        return Call(self.app, Signal(tenant=self.app.tenant, unit=self.unit, name=name, payload=payload, actor=by))

    def decode_result(self, ended: UnitSummary) -> Any:
        """Returns what `wait` returns.

        Raises:
            Failed: it ended without success.
        """
        if ended.outcome != Category.SUCCESS:
            raise Failed(format_id(ended.lifecycle, ended.unit), ended.state, ended.error or "")
        return None if ended.result is None else msgspec.json.decode(unpack(self.app, ended.result))


class Wait:
    """Waits for the end of a job: `wait(timeout)`, or `await wait.aio(timeout)`.

    Both return the result. They raise `Failed` if the job ended without success, and `StillWaiting`, which says why,
    if it has not ended in time. `timeout` is a length of time; without one they wait for as long as it takes.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.result = job, None

    def __call__(self, timeout: Length | None = None) -> Any:
        end = self.job.app.engine.watch_end(self.job.unit)
        try:
            for pause in self.poll(timeout):
                end.wait(pause)
        finally:
            end.unsubscribe(end)
        return self.result

    async def aio(self, timeout: Length | None = None) -> Any:
        far, loop, ended = self.job.app.far, asyncio.get_running_loop(), asyncio.Event()

        def set_ended() -> None:
            with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
                loop.call_soon_threadsafe(ended.set)

        with self.job.app.engine.watch_end(self.job.unit) as end:
            end.on_notify(set_ended)
            polls = self.poll(timeout)
            while True:
                # A read over the network takes its time, and others run meanwhile.
                pause = await asyncio.to_thread(next, polls, None) if far else next(polls, None)
                if pause is None:
                    return self.result
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), pause)
                ended.clear()

    def poll(self, timeout: Length | None) -> Generator[float, None, None]:
        """Reads the job until it has ended, and sets the result; yields the seconds until the next read."""
        if self.job.app.meanwhile:
            self.job.app.meanwhile(self.job, timeout)
            timeout = 0
        deadline = None if timeout is None else time.monotonic() + length_us("timeout", timeout) / 1_000_000
        pause = POLL_FIRST
        while True:
            now = self.job.look()
            if now.outcome is not None:
                self.result = self.job.decode_result(now)
                return
            left = pause if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise StillWaiting(self.job.app.why(self.job.unit))
            yield min(pause, left)
            pause = min(pause * 2, POLL_MAX)
