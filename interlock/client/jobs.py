"""A job as whoever submitted it sees it: where it stands, what came of it, and how to stop it."""

import asyncio
import time
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.async_pairs import Asked, TwoWays
from interlock.client.durations import Length, length_us
from interlock.client.exceptions import Failed, StillWaiting
from interlock.kernel.commands import Cancel, Signal, Standing
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.store.queries.views import Glimpse, glimpse

if TYPE_CHECKING:
    from interlock.client.app import App

SOONEST, LATEST = 0.002, 0.25  # seconds between two looks, for what other processes end; what ends here is told


class Job:
    """A unit of work. It goes on existing whatever becomes of this object."""

    def __init__(self, app: "App", unit: int, *, created: bool = False, lifecycle: str = "") -> None:
        """`lifecycle` is known of a job that was just submitted; of another one it is read when it is asked for."""
        self.app, self.unit, self.created, self.lifecycle = app, unit, created, lifecycle

    def __repr__(self) -> str:
        try:
            return f"<{self.id} {self.state}>"
        except InterlockError:  # it is in a transaction that is not committed, or its database is away
            return f"<{format_id(self.lifecycle or 'unit', self.unit)}>"

    @property
    def wait(self) -> "Wait":
        """Until it has ended: `wait(timeout)` answers its result."""
        return Wait(self)

    @property
    def cancel(self) -> TwoWays[..., Standing]:
        """It is to stop: `cancel(hard=False, reason="")`."""
        return TwoWays(self.asked_to_stop)

    @property
    def signal(self) -> TwoWays[..., Standing]:
        """What it waits for has happened: `signal(name, data, by="local")`."""
        return TwoWays(self.signalled)

    @property
    def id(self) -> str:
        """As users see it. Whoever submitted the job has it without a read, also before its transaction commits."""
        if not self.lifecycle:
            self.lifecycle = self.look().lifecycle
        return format_id(self.lifecycle, self.unit)

    @property
    def state(self) -> str:
        return self.look().state

    def look(self) -> Glimpse:
        """Where it stands now. Raises Unknown if there is no such unit."""
        return self.app.read(glimpse, self.unit)

    def asked_to_stop(self, *, hard: bool = False, reason: str = "") -> Asked[Standing]:
        command = Cancel(tenant=self.app.tenant, unit=self.unit, hard=hard, reason=reason)
        return self.app, command, lambda standing: standing

    def signalled(self, name: str, data: Any = None, *, by: str = "local") -> Asked[Standing]:
        """What `ctx.wait_signal(name)` waits for has happened. It is kept if nobody waits yet; the first one stays."""
        payload = msgspec.json.encode(data).decode()
        command = Signal(tenant=self.app.tenant, unit=self.unit, name=name, payload=payload, actor=by)
        return self.app, command, lambda standing: standing

    def came_to(self, seen: Glimpse) -> Any:
        """What `wait` answers. Raises Failed."""
        return result_of(seen)


class Wait:
    """`wait(timeout)` gives the result, raises the error, or says why it is still waiting; `wait.aio` likewise."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, timeout: Length | None = None) -> Any:
        with self.job.app.engine.watch_end(self.job.unit) as end:
            looking = self.looks(timeout)
            while True:
                pause, result = looked(looking)
                if pause is None:
                    return result
                end.wait(pause)

    async def aio(self, timeout: Length | None = None) -> Any:
        far, loop, ended = self.job.app.far, asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
                loop.call_soon_threadsafe(ended.set)

        with self.job.app.engine.watch_end(self.job.unit) as end:
            end.call(tell)
            looking = self.looks(timeout)
            while True:  # a network may let a look take its time, and others run meanwhile
                pause, result = await asyncio.to_thread(looked, looking) if far else looked(looking)
                if pause is None:
                    return result
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), pause)
                ended.clear()

    def looks(self, timeout: Length | None) -> Generator[float, None, Any]:
        """Looks until the job has ended; yields the seconds until the next look."""
        if self.job.app.meanwhile:
            self.job.app.meanwhile(self.job, timeout)
            timeout = 0
        limit = None if timeout is None else time.monotonic() + length_us("timeout", timeout) / 1_000_000
        pause = SOONEST
        while True:
            seen = self.job.look()
            if seen.outcome is not None:
                return self.job.came_to(seen)
            left = pause if limit is None else limit - time.monotonic()
            if left <= 0:
                raise StillWaiting(self.job.app.why(self.job.unit))
            yield min(pause, left)
            pause = min(pause * 2, LATEST)


def looked(looking: Generator[float, None, Any]) -> tuple[float | None, Any]:
    """The seconds until the next look, or None and the result."""
    try:
        return next(looking), None
    except StopIteration as ended:
        return None, ended.value


def result_of(seen: Glimpse) -> Any:
    """What an ended job came to. Raises Failed."""
    if seen.outcome != Category.SUCCESS:
        raise Failed(format_id(seen.lifecycle, seen.unit), seen.state, seen.error or "")
    return None if seen.result is None else msgspec.json.decode(seen.result)
