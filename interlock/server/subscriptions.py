"""Who waits at a server for work: what is rung between two of its questions is kept, and time passes meanwhile."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future

from interlock.client.app import App
from interlock.core.wakeups import Subscription
from interlock.kernel.commands import Tick
from interlock.server.auth import moment
from interlock.server.errors import AGAIN, Refusal

log = logging.getLogger("interlock.server")
TICK = 0.5  # seconds
KEPT = 60.0  # seconds for which what is rung is kept for somebody who does not ask
EARS_MAX = 10_000
Wanted = tuple[int, tuple[str, ...], str | None]  # a tenant, and its queues or one of its workers


class Ear:
    """Somebody who waits, and what was rung since it was last told."""

    def __init__(self, watch: Subscription, wanted: Wanted) -> None:
        self.watch, self.wanted, self.used = watch, wanted, moment()
        self.rung, loop = asyncio.Event(), asyncio.get_running_loop()
        watch.call(lambda: loop.call_soon_threadsafe(self.rung.set))

    async def wait(self, seconds: float) -> bool:
        """Whether it was rung, until now or within so many seconds."""
        self.used = moment()
        try:
            async with asyncio.timeout(seconds):
                await self.rung.wait()
        except TimeoutError:
            return False
        self.rung.clear()
        return True


class Ears:
    """Everybody who waits at this server, or did so a moment ago."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.known: dict[tuple[str, str], Ear] = {}  # by the key of whoever asks, and a name of its own choice
        self.ticked: dict[int, float] = {}

    async def find(self, name: tuple[str, str], wanted: Wanted) -> Ear:
        """Who asks, as it is known here. Raises Refusal if too many wait."""
        self.forget()
        ear = self.known.get(name)
        if ear and ear.wanted == wanted:
            return ear
        if len(self.known) >= EARS_MAX:
            raise Refusal(503, "too many wait at this server; ask again", headers=AGAIN)
        watch = await asyncio.to_thread(self.watch, *wanted)
        if older := self.known.get(name):
            older.watch.leave(older.watch)
        self.known[name] = ear = Ear(watch, wanted)
        return ear

    def watch(self, tenant: int, queues: Sequence[str], worker: str | None) -> Subscription:
        engine = self.app.engine
        return engine.watch(queues, tenant) if worker is None else engine.calls(worker, tenant)

    def forget(self) -> None:
        """Who has not asked for a while is gone."""
        for name, ear in list(self.known.items()):
            if moment() - ear.used > KEPT:
                ear.watch.leave(ear.watch)
                del self.known[name]

    def tick(self, tenant: int) -> None:
        """Time passes for a tenant whose workers wait here: they do not let it pass themselves."""
        now = moment()
        if tenant not in self.ticked or now - self.ticked[tenant] >= TICK:
            self.ticked[tenant] = now
            self.app.engine.put(Tick(tenant=tenant, actor="server")).add_done_callback(passed)


def passed(done: "Future[int]") -> None:
    if error := done.exception():
        log.warning("the clock cannot be served: %s", error)
