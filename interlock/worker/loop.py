"""A worker: it claims what it has room for, runs it, and reports in bulk; one heartbeat renews all its leases.

`run` is the whole life of a worker, top down: connect, register, serve, stop. While it serves, four loops run beside
each other: `claim_until_stopped` claims jobs and starts them (each is an asyncio task that runs the pipe of
`execution.py`), the reporter sends starts and ends, the heartbeats renew leases from a thread of their own, and the
ticker lets time pass, unless a server does.

`stop` is called by a signal or by an operator's drain, and ends the claimer; what is held then goes the way of
`shutdown.py`. A worker that loses its database waits for it; only while it stops, it does not wait for ever.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any

from interlock.kernel.commands import Claim, LeaseGrant, LeaseStatus, Record, Register
from interlock.kernel.errors import Drained, Gone, InterlockError, Unavailable
from interlock.worker.clocks import read_clock, wait_for_event
from interlock.worker.context import JobContext
from interlock.worker.execution import Execution, run
from interlock.worker.executors import Executors
from interlock.worker.heartbeats import Heartbeats
from interlock.worker.leases import Lease
from interlock.worker.log_facts import facts_of
from interlock.worker.queues import AHEAD_MAX, CLAIM_MAX, Executions, WorkerQueue
from interlock.worker.reporter import Reporter
from interlock.worker.retrying_client import RetryingClient
from interlock.worker.shutdown import GIVE_UP_AFTER, give_back_waiting, stop_broken, stop_gracefully
from interlock.worker.ticker import Ticker

if TYPE_CHECKING:
    from interlock.client.app import App

log = logging.getLogger("interlock.worker")
POLL_EVERY = 1.0  # seconds, if no wake-up comes
GRACE = 10.0  # seconds that running handlers have to end in, once the worker is told to stop


class Worker:
    """Runs an app's tasks until it is told to stop."""

    user_errors: tuple[type[BaseException], ...] = (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt)

    def __init__(
        self, app: "App", queues: Mapping[str, int], *, name: str = "", capabilities: tuple[str, ...] = (),
        grace: float = GRACE, token: Callable[[int], str] = secrets.token_hex, clock: Callable[[], float] = read_clock,
    ) -> None:  # fmt: skip
        """`queues`: how many jobs of each may run at a time; `clock`: seconds, also while this process is stopped."""
        self.clock = clock
        self.app, self.capabilities, self.grace, self.token = app, capabilities, grace, token
        self.incarnation = token(8)
        self.name = name or f"{socket.gethostname()}-{self.incarnation[:4]}"  # two on one machine are two
        self.queues = {queue: WorkerQueue(queue, concurrency) for queue, concurrency in queues.items()}
        self.executions, self.client = Executions(), RetryingClient(app)
        self.to_claim = asyncio.Event()
        self.reporter = Reporter(
            self.client, self.executions, app.tenant, self.name, self.apply_answer, self.to_claim.set
        )
        self.heartbeats = self.make_heartbeats()
        self.ticker = Ticker(app, self.client, self.name)
        self.capacity = sum(2 * (queue.concurrency + AHEAD_MAX) for queue in self.queues.values())  # with unreported
        self.executors = Executors(sum(queues.values()))
        self.id = self.claims = 0
        self.wakeups = 0  # of all queues; a queue that was empty is asked again after the next one
        self.stopping = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread = 0

    def make_heartbeats(self) -> Heartbeats:
        return Heartbeats(self.client, self.executions, self.clock, self.app.tenant, self.name, self.apply_answer)

    @property
    def now(self) -> float:
        assert self.loop
        return self.loop.time()

    # From start to stop.

    async def run(self) -> None:
        """Everything that it claimed has been reported or given back when this ends. Raises what broke it."""
        self.loop, self.thread = asyncio.get_running_loop(), get_ident()
        await self.client.connect()
        await self.client.send_definitions()
        self.id = await self.register()
        served = ", ".join(f"{queue.name}:{queue.concurrency}" for queue in self.queues.values())
        log.info("worker %s serves %s", self.name, served)
        unsubscribe = self.subscribe()
        runs = [self.claim_until_stopped, self.reporter.run, self.heartbeats.run]
        runs += [] if self.app.engine.far else [self.ticker.run]
        loops = [asyncio.create_task(each()) for each in runs]
        try:
            await self.serve(*loops)
        finally:
            for each in loops:
                each.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self.executors.close()
            unsubscribe()

    async def serve(self, claiming: asyncio.Task[None], *others: asyncio.Task[None]) -> None:
        """The claimer has ended and what it claimed is settled. A loop that breaks stops the worker."""
        stopping = asyncio.create_task(self.stop_after(claiming))
        try:
            await asyncio.wait([stopping, *others], return_when=asyncio.FIRST_COMPLETED)
            for each in (claiming, *others, stopping):
                if each.done():
                    each.result()
        except Exception as error:
            stopping.cancel()
            await stop_broken(self, error, claiming)
            raise
        finally:
            stopping.cancel()
            for execution in self.executions:
                self.stop_handler(execution)
            await asyncio.gather(stopping, return_exceptions=True)

    async def register(self) -> int:
        return await self.client.send(
            Register(
                tenant=self.app.tenant, name=self.name, incarnation=self.incarnation, capabilities=self.capabilities,
                capacity=self.capacity, concurrency=sum(queue.concurrency for queue in self.queues.values()),
            )
        )  # fmt: skip

    def subscribe(self) -> Callable[[], None]:
        """Wake-ups of the queues, and calls for this worker, come in until what is returned here is called."""
        watches = {
            self.app.engine.watch(self.queues, self.app.tenant): self.wake_up,
            self.app.engine.calls(self.name, self.app.tenant): self.heartbeats.send_soon,
        }
        for watch, call in watches.items():
            watch.call(partial(self.call_on_loop, call))

        def unsubscribe() -> None:
            for watch in watches:
                watch.leave(watch)

        return unsubscribe

    def call_on_loop(self, call: Callable[..., None], *args: Any) -> None:
        """From any thread; a loop that has ended needs it no more."""
        assert self.loop
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call, *args)

    # Claiming.

    async def claim_until_stopped(self) -> None:
        while not self.stopping:
            self.to_claim.clear()
            for queue in self.queues.values():
                if self.may_claim(queue) and not self.stopping:
                    await self.claim(queue)
            if self.stopping or any(map(self.may_claim, self.queues.values())):
                continue
            if not await wait_for_event(self.to_claim, POLL_EVERY):
                self.wakeups += 1  # a wake-up may have been lost

    def wake_up(self) -> None:
        """There is work in one of the queues."""
        self.wakeups += 1
        self.to_claim.set()

    def may_claim(self, queue: WorkerQueue) -> bool:
        """Whether there is room, and perhaps work."""
        return self.claim_limit(queue) > 0 and queue.empty_since != self.wakeups

    def claim_limit(self, queue: WorkerQueue) -> int:
        return min(queue.room, self.capacity - len(self.executions), CLAIM_MAX)

    async def claim(self, queue: WorkerQueue) -> None:
        """What is granted waits in its queue, or runs. One claim at a time: only the last can be answered again."""
        self.claims += 1
        sent_at, wakeups, limit = self.clock(), self.wakeups, self.claim_limit(queue)
        command = Claim(
            tenant=self.app.tenant, actor=self.name, worker=self.id, key=f"{self.incarnation}.{self.claims}",
            nonce=self.token(32), limit=limit, queues=(queue.name,),
        )  # fmt: skip
        try:
            grants = await self.client.send(command)
        except InterlockError as refusal:
            queue.empty_since = wakeups
            await self.apply_claim_refusal(refusal)
            return
        for grant in grants:
            self.take(queue, grant, sent_at)
        if len(grants) < limit:
            queue.empty_since = wakeups
        self.heartbeats.wake()
        self.start_waiting(queue)

    def take(self, queue: WorkerQueue, grant: LeaseGrant, sent_at: float) -> None:
        """A granted job waits for its slot."""
        older = self.executions.find(grant.unit)
        if older and not older.ended:
            self.lose(older, "it was granted again")
        context = JobContext(self.app, grant, self.app.tenant, self.add_note)
        lease = Lease(grant, self.clock, sent_at)
        context.lease_over = lease.is_over
        execution = Execution(lease, context, grant.timeout_us / 1_000_000 if grant.timeout_us else None)
        self.executions.add(execution)
        queue.waiting.append(execution)

    async def apply_claim_refusal(self, refusal: InterlockError) -> None:
        """A worker that counted as gone registers again; one that was drained stops."""
        if isinstance(refusal, Unavailable):
            raise refusal
        if isinstance(refusal, Drained):
            log.warning("%s", refusal)
            self.stop()
        elif isinstance(refusal, Gone):
            log.warning("%s; registering again", refusal)
            self.incarnation = self.token(8)
            self.id = await self.register()
            self.wakeups += 1
        else:
            log.error("the claim was refused: %s", refusal)

    # Running: what `execution.run` asks for.

    def start_waiting(self, queue: WorkerQueue) -> None:
        """As many of the waiting jobs are started as there are slots."""
        assert self.loop
        while queue.waiting and queue.running < queue.concurrency and not self.stopping:
            execution = queue.waiting.popleft()
            if execution in self.executions:  # else it was lost before it could start
                queue.running += 1
                running = self.run_job(queue, execution)
                execution.asyncio_task = self.loop.create_task(running, name=execution.grant.task)

    async def run_job(self, queue: WorkerQueue, execution: Execution) -> None:
        """The handler has run, its outcome is with the reporter, and its slot is free."""
        began = self.now
        try:
            await run(execution, self)
        finally:
            queue.add_duration(self.now - began)
            self.leave_slot(queue, execution)

    def may_start(self, execution: Execution) -> bool:
        return execution in self.executions and not execution.given_up

    def call_handler(self, execution: Execution) -> Awaitable[Any]:
        assert execution.task
        return self.executors.for_task(execution.task).run(execution.task, execution.arguments, execution.context)

    def report_start(self, execution: Execution) -> None:
        self.reporter.add_start(execution, self.now)

    def report_end(self, execution: Execution) -> None:
        self.reporter.add_end(execution)

    def leave_slot(self, queue: WorkerQueue, execution: Execution) -> None:
        """The slot is free once the handler has really ended: a thread cannot be stopped."""
        thread = execution.context.thread
        if thread is None or thread.done():
            self.free_slot(queue)
            return
        facts = {"facts": facts_of(execution.grant)}
        log.warning(
            "%s: its thread runs on and keeps its slot; what it returns is ignored", execution.title, extra=facts
        )
        queue.stuck += 1
        thread.add_done_callback(lambda _: self.call_on_loop(self.free_slot, queue, True))
        if queue.stuck == queue.concurrency:
            give_back_waiting(self, queue)

    def free_slot(self, queue: WorkerQueue, stuck: bool = False) -> None:
        queue.running -= 1
        queue.stuck -= stuck
        self.start_waiting(queue)
        self.to_claim.set()

    def add_note(self, note: Record) -> None:
        """From any thread: a note goes with the next report, and never after the end of its handler."""
        if get_ident() == self.thread:
            self.reporter.add_note(note, self.now)
        else:
            self.call_on_loop(lambda: self.reporter.add_note(note, self.now))

    # Losing.

    def apply_answer(self, execution: Execution, answer: LeaseStatus) -> None:
        """A handler that is asked to stop sees it; one whose lease is lost is stopped."""
        if answer.accepted and answer.cancel:
            execution.context.stopping.set()
        if not answer.accepted and execution in self.executions and not execution.ended:
            self.lose(execution, answer.why)

    def lose(self, execution: Execution, why: str) -> None:
        """Another worker may have it by now: the handler is stopped, and nothing of it is reported."""
        self.executions.remove(execution)
        if execution.started_at is not None:
            log.warning("%s: lease lost: %s", execution.title, why, extra={"facts": facts_of(execution.grant)})
        self.stop_handler(execution)

    def stop_handler(self, execution: Execution) -> None:
        """A task that is cancelled before its first step would never free its slot: `refuse_stopped` ends it."""
        execution.context.stopping.set()
        if execution.asyncio_task and execution.started_at is not None:
            execution.asyncio_task.cancel()

    # Stopping.

    def stop(self) -> None:
        """No more is claimed or started; what runs may end."""
        if not self.stopping:
            self.stopping = True
            if self.loop:
                self.client.give_up_at = self.now + self.grace + GIVE_UP_AFTER
            self.to_claim.set()

    async def stop_after(self, claiming: asyncio.Task[None]) -> None:
        await asyncio.shield(claiming)
        await stop_gracefully(self)
