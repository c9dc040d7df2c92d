"""A worker: it claims what it has room for, runs it, and reports in bulk; one beat speaks for all its leases."""

import asyncio
import logging
import secrets
import socket
from collections import deque
from collections.abc import Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.outcomes import Snooze
from interlock.kernel.commands import (
    Claim,
    Command,
    Drain,
    Finish,
    Grant,
    Heard,
    Heartbeat,
    Outcome,
    Record,
    Register,
    Release,
    Start,
    Tick,
)
from interlock.kernel.errors import InterlockError, Unavailable
from interlock.worker.context import JobContext
from interlock.worker.executors import Executors
from interlock.worker.verdicts import failure, success, unreadable

if TYPE_CHECKING:
    from interlock.client.app import App

log = logging.getLogger("interlock.worker")
AHEAD_SECONDS, AHEAD_MAX = 0.2, 200  # of work that is held but not begun, so that fast handlers never wait for a claim
REPORT_AFTER = 0.05  # a handler that still runs then is reported as started
POLL, TICK = 1.0, 0.5  # seconds
PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)  # while the database is away


class Hold:
    """One lease, and what is done under it."""

    def __init__(self, grant: Grant, context: JobContext) -> None:
        self.grant, self.context, self.held = grant, context, context.held
        self.running: asyncio.Task[None] | None = None
        self.begun = self.told = False  # user code has begun; the engine knows
        self.end: Outcome | Snooze | None = None


class Lane:
    """One queue of a worker: how much may run at a time, what waits, and how long a handler takes here."""

    def __init__(self, name: str, concurrency: int) -> None:
        self.name, self.concurrency = name, concurrency
        self.waiting: deque[Hold] = deque()
        self.running = 0
        self.mean: float | None = None

    @property
    def room(self) -> int:
        ahead = 0 if self.mean is None else min(AHEAD_MAX, int(self.concurrency * AHEAD_SECONDS / max(self.mean, 1e-4)))
        return self.concurrency + ahead - self.running - len(self.waiting)

    def took(self, seconds: float) -> None:
        self.mean = seconds if self.mean is None else 0.9 * self.mean + 0.1 * seconds


class Worker:
    """Runs an app's tasks until it is told to stop."""

    def __init__(
        self, app: "App", queues: Mapping[str, int], *, name: str = "", capabilities: tuple[str, ...] = (),
        grace: float = 10.0,
    ) -> None:  # fmt: skip
        self.app, self.capabilities, self.grace = app, capabilities, grace
        self.name = name or f"{socket.gethostname()}"
        self.incarnation = secrets.token_hex(8)
        self.lanes = {queue: Lane(queue, concurrency) for queue, concurrency in queues.items()}
        self.holds: dict[tuple[int, int], Hold] = {}
        self.starts: list[Hold] = []
        self.ends: list[Hold] = []
        self.notes: dict[tuple[int, str, str], Record] = {}
        self.executors = Executors(sum(queues.values()))
        self.id = self.claims = self.done = 0
        self.stopping = self.ended = False

    async def run(self) -> None:
        """Everything that it claimed has been reported or given back when this ends."""
        self.loop = asyncio.get_running_loop()
        self.to_report, self.to_claim, self.quick = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.id = await self.register()
        bell = Thread(target=self.listen, name="interlock worker bell", daemon=True)
        bell.start()
        loops = [asyncio.create_task(one()) for one in (self.claiming, self.reporting, self.beating, self.ticking)]
        try:
            await loops[0]
            await self.drain()
        finally:
            self.ended = True
            for one in loops:
                one.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self.executors.close()

    async def register(self) -> int:
        capacity = sum(lane.concurrency + AHEAD_MAX for lane in self.lanes.values())
        worker: int = await self.insist(
            Register(
                tenant=self.app.tenant, name=self.name, incarnation=self.incarnation, capabilities=self.capabilities,
                capacity=capacity,
            )
        )  # fmt: skip
        return worker

    def stop(self) -> None:
        """No more is claimed; what runs may end."""
        self.stopping = True
        self.to_claim.set()

    # Asking. A database that is away is waited for: what is asked twice is answered twice and done once.

    async def insist(self, command: Command[Any]) -> Any:
        return (await self.insist_all([command]))[0]

    async def insist_all(self, commands: list[Command[Any]]) -> list[Any]:
        for pause in (*PAUSES, *[PAUSES[-1]] * 10_000):
            try:
                return [await asyncio.wrap_future(future) for future in self.app.put_all(commands)]
            except Unavailable as error:
                log.warning("the database is away: %s", error)
                await asyncio.sleep(pause)
        raise AssertionError

    # Claiming.

    async def claiming(self) -> None:
        while not self.stopping:
            self.to_claim.clear()
            wanted = [lane for lane in self.lanes.values() if lane.room > 0]
            found = sum([await self.claim(lane) for lane in wanted])
            if not found and not self.stopping:
                await wait_for(self.to_claim, POLL)

    async def claim(self, lane: Lane) -> int:
        self.claims += 1
        command = Claim(
            tenant=self.app.tenant, actor=self.name, worker=self.id, key=f"{self.incarnation}.{self.claims}",
            nonce=secrets.token_hex(32), limit=lane.room, queues=(lane.name,),
        )  # fmt: skip
        try:
            grants = await self.insist(command)
        except InterlockError as refused:  # it counts as gone: another one begins
            log.warning("%s; registering again", refused)
            self.incarnation = secrets.token_hex(8)
            self.id = await self.register()
            return 0
        for grant in grants:
            hold = Hold(grant, JobContext(self.app, grant, self.app.tenant, self.later))
            self.holds[grant.unit, grant.fence] = hold
            lane.waiting.append(hold)
        self.begin(lane)
        return len(grants)

    def begin(self, lane: Lane) -> None:
        while lane.waiting and lane.running < lane.concurrency:
            hold = lane.waiting.popleft()
            if (hold.grant.unit, hold.grant.fence) not in self.holds:
                continue  # lost before it began
            lane.running += 1
            hold.running = self.loop.create_task(self.carry_out(lane, hold))

    def listen(self) -> None:
        """In a thread of its own: a queue that gets work wakes the claimer."""
        with self.app.engine.watch(self.lanes, self.app.tenant) as watch:
            while not self.ended:
                if watch.wait(POLL) and not self.ended:
                    self.loop.call_soon_threadsafe(self.to_claim.set)

    # Running.

    async def carry_out(self, lane: Lane, hold: Hold) -> None:
        """The handler has run, and its outcome is on its way."""
        started = self.loop.time()
        try:
            hold.end = await self.outcome(hold)
        except asyncio.CancelledError as cancelled:
            hold.end = failure(hold.held, cancelled)
        finally:
            lane.running -= 1
            lane.took(self.loop.time() - started)
            self.ends.append(hold)
            self.quick.set()
            self.to_report.set()
            self.begin(lane)

    async def outcome(self, hold: Hold) -> Outcome | Snooze | None:
        try:
            task = self.app.find_task(hold.grant.task)
            kwargs = task.arguments.unpacked(hold.grant.input)
        except msgspec.MsgspecError as error:
            return unreadable(hold.held, error)
        except InterlockError as error:
            return failure(hold.held, error)
        hold.begun = True
        self.starts.append(hold)
        self.to_report.set()
        limit = hold.grant.timeout_us
        try:
            async with asyncio.timeout(limit / 1_000_000 if limit else None):
                return success(hold.held, await self.executors.for_task(task).run(task, kwargs, hold.context))
        except Exception as error:
            return failure(hold.held, error)

    def later(self, note: Record) -> None:
        """From any thread: a note goes with the next report; of progress, only the last one."""

        def keep() -> None:
            self.notes[note.held[0].unit, note.kind, note.name] = note
            self.to_report.set()

        self.loop.call_soon_threadsafe(keep)

    # Reporting.

    async def reporting(self) -> None:
        while True:
            await self.to_report.wait()
            if not self.ends:
                await wait_for(self.quick, REPORT_AFTER)
            self.to_report.clear()
            self.quick.clear()
            await self.report()

    async def report(self) -> None:
        """What has begun, was noted or has ended is told, if nothing speaks against it in one transaction."""
        ends, self.ends = self.ends, []
        starts = [hold for hold in self.starts if not hold.told and self.holds.get(key(hold)) is hold]
        notes, self.notes, self.starts = list(self.notes.values()), {}, []
        commands: list[Command[Any]] = []
        if starts:
            commands.append(Start(tenant=self.app.tenant, actor=self.name, held=tuple(hold.held for hold in starts)))
        commands += notes
        outcomes = tuple(hold.end for hold in ends if isinstance(hold.end, Outcome))
        if outcomes:
            commands.append(Finish(tenant=self.app.tenant, actor=self.name, outcomes=outcomes))
        for hold in ends:
            if isinstance(hold.end, Snooze):
                commands.append(
                    Release(tenant=self.app.tenant, actor=self.name, held=(hold.held,), snooze_us=hold.end.after_us)
                )
        answers = await self.insist_all(commands) if commands else []
        for hold in starts:
            hold.told = True
        for command, heard in zip(commands, answers, strict=True):
            self.hear(command, heard)
        for hold in ends:
            self.holds.pop(key(hold), None)
            self.done += 1
        self.to_claim.set()

    def hear(self, command: Command[Any], heard: list[Heard]) -> None:
        for one in heard:
            if not one.accepted:
                log.warning("refused: %s of unit %s: %s", type(command).__name__, one.unit, one.why)

    # Staying alive.

    async def beating(self) -> None:
        while True:
            beats = [hold.grant.beat_us for hold in self.holds.values() if hold.grant.beat_us]
            await asyncio.sleep(min(beats, default=20_000_000) / 2_000_000)
            await self.beat()

    async def beat(self) -> None:
        """Every lease is renewed; one that is lost stops its handler, one that is asked to stop is told so."""
        holds = list(self.holds.values())
        for running in (True, False):
            some = [hold for hold in holds if hold.begun is running]
            held = tuple(hold.held for hold in some)
            if running or held:
                beat = Heartbeat(tenant=self.app.tenant, actor=self.name, held=held, running=running)
                for hold, heard in zip(some, await self.insist(beat), strict=True):
                    self.mind(hold, heard)

    def mind(self, hold: Hold, heard: Heard) -> None:
        if heard.accepted and not heard.cancel:
            return
        hold.context.stopping.set()
        if heard.accepted:
            return
        self.holds.pop(key(hold), None)
        if hold.running:
            log.warning("lost: unit %s: %s", hold.grant.unit, heard.why)
            hold.running.cancel()

    async def ticking(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            await self.insist(Tick(tenant=self.app.tenant, actor=self.name))

    # Leaving.

    async def drain(self) -> None:
        """What has not begun is given back, what runs may end, and what does not is given back too."""
        waiting = [hold for lane in self.lanes.values() for hold in lane.waiting]
        for lane in self.lanes.values():
            lane.waiting.clear()
        await self.give_back(waiting)
        running = [hold.running for hold in self.holds.values() if hold.running and not hold.running.done()]
        if running:
            await asyncio.wait(running, timeout=self.grace)
        left = [hold for hold in self.holds.values() if hold.running and not hold.running.done()]
        await self.give_back(left)
        for hold in left:
            hold.context.stopping.set()
            if hold.running:
                hold.running.cancel()
        while self.ends or self.notes:
            await self.report()
        await self.insist(Drain(tenant=self.app.tenant, actor=self.name, worker=self.id))

    async def give_back(self, holds: list[Hold]) -> None:
        for hold in holds:
            self.holds.pop(key(hold), None)
        if holds:
            held = tuple(hold.held for hold in holds)
            reason = "its worker shuts down"
            await self.insist(Release(tenant=self.app.tenant, actor=self.name, held=held, reason=reason))


def key(hold: Hold) -> tuple[int, int]:
    return hold.grant.unit, hold.grant.fence


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
