"""A worker: it claims what it has room for, runs it, and reports in bulk; one beat speaks for all its leases."""

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.origin import RUNNING
from interlock.kernel.commands import Claim, Drain, Outcome, Record, Register, Tick
from interlock.kernel.errors import Drained, Gone, InterlockError, TransientError, Unavailable, Unknown
from interlock.store.reads import due_tenants
from interlock.worker.asking import Asking, wait_for
from interlock.worker.context import JobContext, LeaseOver
from interlock.worker.executors import Executors
from interlock.worker.heartbeats import Heartbeats, read_clock
from interlock.worker.holds import AHEAD_MAX, AT_ONCE, End, GiveBack, Hold, Holds, Lane, meant
from interlock.worker.log_facts import facts_of
from interlock.worker.reports import Reports, titled
from interlock.worker.tracebacks import redact_end
from interlock.worker.verdicts import failure, priced, success, unreadable

if TYPE_CHECKING:
    from interlock.client.app import App

log = logging.getLogger("interlock.worker")
POLL, TICK = 1.0, 0.5  # seconds
GRACE = 10.0  # seconds that what runs has to end in, once the worker is told to stop
LEAVE = 1.0  # seconds that a handler has to end in, once it is stopped
PATIENCE = 10.0  # seconds beyond the grace that a worker which stops waits for its database


class Worker:
    """Runs an app's tasks until it is told to stop."""

    def __init__(
        self, app: "App", queues: Mapping[str, int], *, name: str = "", capabilities: tuple[str, ...] = (),
        grace: float = GRACE, token: Callable[[int], str] = secrets.token_hex, clock: Callable[[], float] = read_clock,
    ) -> None:  # fmt: skip
        """`clock` counts seconds, also while this process is stopped: by it, no lease is thought to last too long."""
        self.clock = clock
        self.app, self.capabilities, self.grace, self.token = app, capabilities, grace, token
        self.incarnation = token(8)
        self.name = name or f"{socket.gethostname()}-{self.incarnation[:4]}"  # two on one machine are two
        self.lanes = {queue: Lane(queue, concurrency) for queue, concurrency in queues.items()}
        self.holds, self.asking = Holds(), Asking(app)
        self.to_claim = asyncio.Event()
        self.reports = Reports(self.asking, self.holds, app.tenant, self.name)
        self.reports.on_lost, self.reports.on_end = self.lose, self.to_claim.set
        self.heartbeats = self.make_heartbeats()
        self.capacity = sum(2 * (lane.concurrency + AHEAD_MAX) for lane in self.all_lanes)  # with what is not told yet
        self.executors = Executors(sum(queues.values()))
        self.id = self.claims = self.rings = 0
        self.stopping = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = 0

    @property
    def now(self) -> float:
        assert self.loop
        return self.loop.time()

    # From beginning to end.

    async def run(self) -> None:
        """Everything that it claimed has been reported or given back when this ends. Raises what broke it."""
        self.loop, self.thread = asyncio.get_running_loop(), get_ident()
        await self.asking.open()
        await self.asking.define()
        self.id = await self.register()
        log.info("worker %s serves %s", self.name, ", ".join(f"{one.name}:{one.concurrency}" for one in self.all_lanes))
        deafen = self.hear()
        runs = [self.claiming, self.reports.run, self.heartbeats.run]
        runs += [] if self.app.engine.far else [self.ticking]
        loops = [asyncio.create_task(one()) for one in runs]
        try:
            await self.until_stopped(loops)
        finally:
            for one in loops:
                one.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self.executors.close()
            deafen()

    async def until_stopped(self, loops: list[asyncio.Task[None]]) -> None:
        """The claimer has ended and what it claimed is settled. A loop that breaks ends the worker."""
        draining = asyncio.create_task(self.drain_after(loops[0]))
        try:
            await asyncio.wait([draining, *loops[1:]], return_when=asyncio.FIRST_COMPLETED)
            for one in (*loops, draining):
                if one.done():
                    one.result()
        except Exception as error:
            draining.cancel()
            await self.break_off(error, loops[0])
            raise
        finally:
            draining.cancel()
            for hold in self.holds:
                self.stop_handler(hold)
            await asyncio.gather(draining, return_exceptions=True)

    def make_heartbeats(self) -> Heartbeats:
        return Heartbeats(self.asking, self.holds, self.reports, self.clock)

    async def register(self) -> int:
        return await self.asking.one(
            Register(
                tenant=self.app.tenant, name=self.name, incarnation=self.incarnation, capabilities=self.capabilities,
                capacity=self.capacity, concurrency=sum(lane.concurrency for lane in self.all_lanes),
            )
        )  # fmt: skip

    @property
    def all_lanes(self) -> list[Lane]:
        return list(self.lanes.values())

    def stop(self) -> None:
        """No more is claimed or begun; what runs may end."""
        if not self.stopping:
            self.stopping = True
            if self.loop:
                self.asking.patience = self.now + self.grace + PATIENCE
            self.to_claim.set()

    # Claiming.

    async def claiming(self) -> None:
        while not self.stopping:
            self.to_claim.clear()
            for lane in self.all_lanes:
                if self.wants(lane) and not self.stopping:
                    await self.claim(lane)
            if (
                not any(map(self.wants, self.all_lanes))
                and not self.stopping
                and not await wait_for(self.to_claim, POLL)
            ):
                self.rings += 1  # a ring may have been lost

    def wants(self, lane: Lane) -> bool:
        """Whether there is room, and perhaps work."""
        return self.room(lane) > 0 and lane.dry != self.rings

    def room(self, lane: Lane) -> int:
        return min(lane.room, self.capacity - len(self.holds), AT_ONCE)

    async def claim(self, lane: Lane) -> None:
        """What is granted waits in its lane, or runs. One claim at a time: only the last can be answered again."""
        self.claims += 1
        sent, rings, limit = self.clock(), self.rings, self.room(lane)
        command = Claim(
            tenant=self.app.tenant, actor=self.name, worker=self.id, key=f"{self.incarnation}.{self.claims}",
            nonce=self.token(32), limit=limit, queues=(lane.name,),
        )  # fmt: skip
        try:
            grants = await self.asking.one(command)
        except InterlockError as refused:
            lane.dry = rings
            await self.refused(refused)
            return
        for grant in grants:
            older = self.holds.find(grant.unit)
            if older and not older.ended:
                self.lose(older, "it was granted again")
            hold = Hold(grant, JobContext(self.app, grant, self.app.tenant, self.later), sent)
            hold.context.lease_over = partial(hold.is_over, self.clock)
            self.holds.add(hold)
            lane.waiting.append(hold)
        if len(grants) < limit:
            lane.dry = rings
        self.heartbeats.wake()
        self.begin(lane)

    async def refused(self, why: InterlockError) -> None:
        """A worker that was thought gone is there again; one that was drained ends."""
        if isinstance(why, Unavailable):
            raise why
        if isinstance(why, Drained):
            log.warning("%s", why)
            self.stop()
        elif isinstance(why, Gone):
            log.warning("%s; registering again", why)
            self.incarnation = self.token(8)
            self.id = await self.register()
            self.rings += 1
        else:
            log.error("nothing can be claimed: %s", why)

    def ring(self) -> None:
        self.rings += 1
        self.to_claim.set()

    def hear(self) -> Callable[[], None]:
        """What others tell is heard, until what is answered here is called."""
        watches = {
            self.app.engine.watch(self.lanes, self.app.tenant): self.ring,
            self.app.engine.calls(self.name, self.app.tenant): self.heartbeats.summon,
        }
        for watch, call in watches.items():
            watch.call(partial(self.from_thread, call))

        def deafen() -> None:
            for watch in watches:
                watch.leave(watch)

        return deafen

    def from_thread(self, call: Callable[..., None], *args: Any) -> None:
        """Done on the loop; a loop that has ended needs it no more."""
        assert self.loop
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call, *args)

    # Running.

    def begin(self, lane: Lane) -> None:
        assert self.loop
        while lane.waiting and lane.running < lane.concurrency and not self.stopping:
            hold = lane.waiting.popleft()
            if hold in self.holds:  # else it was lost before it began
                lane.running += 1
                hold.running = self.loop.create_task(self.carry_out(lane, hold), name=hold.grant.task)

    async def carry_out(self, lane: Lane, hold: Hold) -> None:
        """The handler has run, its outcome is on its way, and its place is free."""
        started = self.now
        try:
            self.end(hold, await self.outcome(hold))
        except asyncio.CancelledError as cancelled:
            self.end(hold, failure(hold.held, cancelled))
        finally:
            lane.took(self.now - started)
            self.reports.end(hold)
            self.leave(lane, hold)

    def end(self, hold: Hold, came_to: End) -> None:
        hold.end = redact_end(priced(meant(hold, came_to), hold.context.spent), self.app.redact)

    def leave(self, lane: Lane, hold: Hold) -> None:
        """The place of a handler is free once it has really ended: a thread cannot be stopped."""
        thread = hold.context.thread
        if thread is None or thread.done():
            self.free(lane)
            return
        facts = {"facts": facts_of(hold.grant)}
        log.warning("%s: its thread runs on, though nobody will hear of it", titled(hold), extra=facts)
        lane.stuck += 1
        thread.add_done_callback(lambda _: self.from_thread(self.free, lane, True))
        if lane.stuck == lane.concurrency:
            self.give_back_waiting(lane)

    def free(self, lane: Lane, stuck: bool = False) -> None:
        lane.running -= 1
        lane.stuck -= stuck
        self.begin(lane)
        self.to_claim.set()

    async def outcome(self, hold: Hold) -> End:
        """What the handler came to. Nothing that user code raises goes further than here, but for a cancel."""
        if hold.leaving or hold not in self.holds:  # stopped or lost since its task was made
            return GiveBack()
        try:
            task = self.app.find_task(hold.grant.task)
            kwargs = task.arguments.of(hold.grant)
        except Unknown as error:
            return Outcome(held=hold.held, ended="failure", error=str(error), stage="fetch")
        except msgspec.MsgspecError as error:
            return unreadable(hold.held, error)
        if hold.context.lease_over():
            return self.not_begun(hold)
        self.reports.begin(hold, self.now)
        RUNNING.set((self.app, hold.grant))  # this is a task of its own, so it ends with it
        try:
            handled = self.executors.for_task(task).run(task, kwargs, hold.context)
            return success(hold.held, await (self.in_time(hold, handled) if hold.grant.timeout_us else handled))
        except LeaseOver:
            return self.not_begun(hold)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return failure(hold.held, error)

    def not_begun(self, hold: Hold) -> GiveBack:
        """Its lease is over by this worker's own clock, so another may have it; if none has, it is given back."""
        log.warning("%s: not begun: its lease is over by the clock of this worker", titled(hold))
        return GiveBack()

    async def in_time(self, hold: Hold, handled: Awaitable[Any]) -> Any:
        """What the handler returns, within the time that it has. Raises TransientError once that is over."""
        seconds = (hold.grant.timeout_us or 0) / 1_000_000
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                return await handled
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            if not clock.expired():
                raise
            hold.context.stopping.set()
            raise TransientError(f"timed out: it ran for longer than {seconds} s") from error

    def later(self, note: Record) -> None:
        """From any thread: a note goes with the next report, and never after the end of its handler."""
        if get_ident() == self.thread:
            self.reports.note(note, self.now)
        else:
            self.from_thread(lambda: self.reports.note(note, self.now))

    # Staying alive.

    def lose(self, hold: Hold, why: str) -> None:
        """Another worker may have it by now: the handler is stopped, and whatever it says is not told."""
        self.holds.drop(hold)
        if hold.begun is not None:
            log.warning("%s: lost: %s", titled(hold), why, extra={"facts": facts_of(hold.grant)})
        self.stop_handler(hold)

    def stop_handler(self, hold: Hold) -> None:
        """A task that is cancelled before its first step never runs and never frees its place: it sees for itself."""
        hold.context.stopping.set()
        if hold.running and hold.begun is not None:
            hold.running.cancel()

    async def ticking(self) -> None:
        """Time passes for this worker's tenant, and for every other one that has something due."""
        while True:
            await asyncio.sleep(TICK)
            for tenant in await self.find_due_tenants():
                try:
                    await self.asking.one(Tick(tenant=tenant, actor=self.name))
                except Unavailable:
                    raise
                except InterlockError as error:  # one that is refused does not stop the time of the others
                    log.error("the clock of tenant %d cannot be served: %s", tenant, error)

    async def find_due_tenants(self) -> list[int]:
        return await asyncio.to_thread(self.due_tenants)

    def due_tenants(self) -> list[int]:
        own = self.app.tenant
        with suppress(InterlockError):  # its own tick will say so, and has patience
            return sorted({own, *self.app.engine.read(due_tenants, None)})
        return [own]

    # Leaving.

    async def drain_after(self, claiming: asyncio.Task[None]) -> None:
        """What has not begun is given back, what runs may end, and what does not is stopped and given back too."""
        await asyncio.shield(claiming)
        log.info("stopping: %d held", len(self.holds))
        for lane in self.all_lanes:
            self.give_back_waiting(lane)
        await self.ends_of(list(self.holds), self.grace)
        await self.give_up()

    async def break_off(self, error: Exception, claiming: asyncio.Task[None]) -> None:
        """What is held is given back, if that can still be said: nobody waits for its leases to end."""
        log.error("%s: %s; what is held is given back", type(error).__name__, error)
        self.stop()
        self.asking.patience = min(self.asking.patience or self.now + PATIENCE, self.now + PATIENCE)
        try:
            async with asyncio.timeout(2 * PATIENCE):
                await asyncio.wait([claiming])  # what it has asked for may still be granted
                self.reports.ends = [hold for hold in self.holds if hold.ended]  # a report that broke told of none
                await self.give_up()
        except Exception as worse:
            log.error("%d held are lost when their leases end: %s", len(self.holds), worse)

    async def give_up(self) -> None:
        """What has not ended is stopped and given back, everything is told, and the worker has left."""
        late = [hold for hold in self.holds if not hold.ended]
        for hold in late:
            hold.leaving = True
            self.stop_handler(hold)
        await self.ends_of(late, LEAVE)
        for hold in late:
            self.give_back(hold)
        while len(self.holds):
            await self.reports.report()
        await self.asking.one(Drain(tenant=self.app.tenant, actor=self.name, worker=self.id))

    def give_back_waiting(self, lane: Lane) -> None:
        while lane.waiting:
            self.give_back(lane.waiting.popleft())

    def give_back(self, hold: Hold) -> None:
        if not hold.ended:
            hold.end = GiveBack()
            self.reports.end(hold)

    async def ends_of(self, holds: list[Hold], seconds: float) -> None:
        running = [hold.running for hold in holds if hold.running and not hold.running.done()]
        if running:
            await asyncio.wait(running, timeout=seconds)
