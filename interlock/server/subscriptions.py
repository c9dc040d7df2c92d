"""Subscriptions of workers at the server: a wake-up between two long polls is kept for a while."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future

from interlock.client.app import App
from interlock.core.wakeups import Subscription
from interlock.kernel.commands import Tick
from interlock.server.auth import read_loop_time
from interlock.server.errors import RETRY_SOON, ApiError
from interlock.server.logs import write_log

TICK_SECONDS = 0.5  # seconds
KEPT_SECONDS = 60.0  # seconds for which what happened is kept for a subscriber that sends no request
WAITERS_MAX = 10_000
Wanted = tuple[int, tuple[str, ...], str | None]  # a tenant, and its queues or one of its workers


class Waiter:
    """A client that waits, and whether something happened since its last response."""

    def __init__(self, watch: Subscription, wanted: Wanted) -> None:
        self.watch, self.wanted, self.used = watch, wanted, read_loop_time()
        self.woken, loop = asyncio.Event(), asyncio.get_running_loop()
        watch.on_notify(lambda: loop.call_soon_threadsafe(self.woken.set))

    async def wait(self, seconds: float) -> bool:
        """Whether something has happened since the last response, or happens within so many seconds."""
        self.used = read_loop_time()
        try:
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        except TimeoutError:
            return False
        self.woken.clear()
        return True


class Waiters:
    """Everybody who waits at this server, or did so a moment ago."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.known: dict[tuple[str, str], Waiter] = {}  # by the key of whoever asks, and a name of its own choice
        self.ticked: dict[int, float] = {}

    async def find(self, name: tuple[str, str], wanted: Wanted) -> Waiter:
        """Who asks, as it is known here.

        Raises:
            ApiError: too many wait.
        """
        self.drop_idle()
        waiter = self.known.get(name)
        if waiter and waiter.wanted == wanted:
            return waiter
        if len(self.known) >= WAITERS_MAX:
            raise ApiError(503, "too many long polls are open at this server; try again", headers=RETRY_SOON)
        watch = await asyncio.to_thread(self.watch, *wanted)
        if older := self.known.get(name):
            older.watch.unsubscribe(older.watch)
        self.known[name] = waiter = Waiter(watch, wanted)
        return waiter

    def watch(self, tenant: int, queues: Sequence[str], worker: str | None) -> Subscription:
        engine = self.app.engine
        return engine.watch(queues, tenant) if worker is None else engine.watch_worker(worker, tenant)

    def drop_idle(self) -> None:
        """Who has not asked for a while is gone."""
        for name, waiter in list(self.known.items()):
            if read_loop_time() - waiter.used > KEPT_SECONDS:
                waiter.watch.unsubscribe(waiter.watch)
                del self.known[name]

    def tick(self, tenant: int) -> None:
        """Time passes for a tenant whose workers wait here: they do not let it pass themselves."""
        now = read_loop_time()
        if tenant not in self.ticked or now - self.ticked[tenant] >= TICK_SECONDS:
            self.ticked[tenant] = now
            self.app.engine.put(Tick(tenant=tenant, actor="server")).add_done_callback(log_tick_failure)


def log_tick_failure(done: "Future[int]") -> None:
    """Logs a tick that failed."""
    if error := done.exception():
        write_log(logging.WARNING, f"tick failed: {error}")
