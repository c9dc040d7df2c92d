"""The worker: it claims what it has room for, runs it and reports in bulk; one heartbeat renews all its leases.

`run` is the whole life of a worker, top down: connect, register, serve, stop. While it serves, four loops run beside
each other: `claim_until_stopped` claims jobs and starts them (each is an asyncio task that runs the pipe of
`execution.py`), the reporter sends starts and ends, the heartbeats renew leases from a thread of their own, and the
ticker lets time pass, unless a server does.

`stop` is called by a signal or by an operator's drain, and ends the claimer; what is held then goes the way of
`shutdown.py`. A worker that loses its database waits for it; only while it stops, it does not wait for ever.
"""

import asyncio
import secrets
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from logging import ERROR, INFO, WARNING
from threading import get_ident
from typing import TYPE_CHECKING, Any

from interlock.client.agents import offer_contracts
from interlock.client.deploy import check_deploy
from interlock.kernel.commands import Claim, LeaseGrant, LeaseRef, LeaseStatus, Record, Register
from interlock.kernel.errors import Drained, Gone, InterlockError, Unavailable
from interlock.worker.context import JobContext
from interlock.worker.execution import Execution, run
from interlock.worker.executors import Executors
from interlock.worker.heartbeats import Heartbeats
from interlock.worker.job_logs import JobLog
from interlock.worker.leases import Executions, LocalLease, read_clock
from interlock.worker.log_lines import log_event, log_job
from interlock.worker.printed_output import OUTPUTS
from interlock.worker.reporter import Reporter, wait_for_event
from interlock.worker.repositories import ServedRepositories, offer_repositories
from interlock.worker.retrying_client import RetryingClient
from interlock.worker.shell import ShellSettings, offer_shell
from interlock.worker.shutdown import GIVE_UP_AFTER, give_back_waiting, stop_broken, stop_gracefully
from interlock.worker.ticker import WorkerTicker
from interlock.worker.time_limits import TimeLimits

if TYPE_CHECKING:
    from interlock.client.app import App

POLL_EVERY = 1.0  # seconds, if no wake-up comes
GRACE = 10.0  # seconds that running jobs get to finish on shutdown
AHEAD_SECONDS, AHEAD_MAX = 0.2, 500  # of work that is held and not started, so that fast handlers wait for no claim
EAGER: dict[str, bool] = {"eager_start": True} if sys.version_info >= (3, 12) else {}
CLAIM_MAX = 500  # jobs per claim: while some are claimed, others run, and others again are reported


class WorkerQueue:
    """One queue of a worker: how many of its jobs may run at a time, which wait, and how long a handler takes."""

    def __init__(self, name: str, concurrency: int) -> None:
        self.name, self.concurrency = name, concurrency
        self.waiting: deque[Execution] = deque()
        self.running = self.stuck = 0  # slots that are taken, and those of them whose thread cannot be stopped
        self.mean_seconds: float | None = None  # that a handler takes
        self.starting = False  # whether some of those that wait are being started
        self.empty_since = -1  # the number of the wake-up after which a claim found nothing more

    @property
    def room(self) -> int:
        """How many more jobs may be claimed: what can run now, and what will have started within AHEAD_SECONDS."""
        slots = self.concurrency - self.stuck
        mean = self.mean_seconds
        ahead = 0 if mean is None else min(AHEAD_MAX, int(slots * AHEAD_SECONDS / max(mean, 1e-4)))
        return self.concurrency + ahead - self.running - len(self.waiting)

    def add_duration(self, seconds: float) -> None:
        self.mean_seconds = seconds if self.mean_seconds is None else 0.9 * self.mean_seconds + 0.1 * seconds


class Worker:
    """Runs an app's tasks until it is told to stop."""

    user_errors: tuple[type[BaseException], ...] = (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt)

    def __init__(
        self, app: "App", queues: Mapping[str, int], *, name: str = "", capabilities: tuple[str, ...] = (),
        grace: float = GRACE, token: Callable[[int], str] = secrets.token_hex, clock: Callable[[], float] = read_clock,
        shell: ShellSettings | None = None, repositories: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """`queues`: how many jobs of each may run at a time; `clock`: seconds, also while this process is stopped.

        `shell`: how it runs jobs that are commands; without it, it claims none. `repositories`: the folders of git
        repositories by name; jobs that need others are not for it.
        """
        self.clock = clock
        served = ServedRepositories(repositories) if repositories else None
        capabilities = offer_repositories(app, offer_shell(app, capabilities, shell), served)
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
        self.ticker = WorkerTicker(app, self.client, self.name)
        self.capacity = sum(2 * (queue.concurrency + AHEAD_MAX) for queue in self.queues.values())  # with unreported
        self.executors, self.time_limits = Executors(sum(queues.values())), TimeLimits()
        call = self.executors.call_handler
        self.call_handler = partial(served.call_handler, call) if served else call
        self.id = self.claims = self.registered_tasks = 0
        self.wakeups = 0  # of all queues; a queue that was empty is asked again after the next one
        self.stopping = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.read_time: Callable[[], float]  # of the loop
        self.context: Context  # what handlers begin with
        self.thread = 0

    def make_heartbeats(self) -> Heartbeats:
        return Heartbeats(self.client, self.executions, self.clock, self.app.tenant, self.name, self.apply_answer)

    @property
    def now(self) -> float:
        return self.read_time()

    # From start to stop.

    async def run(self) -> None:
        """Runs until it is stopped. When this ends,
        all that it claimed is reported or given back. Raises what broke it."""
        self.loop, self.thread = asyncio.get_running_loop(), get_ident()
        self.read_time, self.context = self.loop.time, copy_context()
        await self.client.connect()
        await self.client.send_definitions()
        self.id = await self.register()
        queues = ",".join(f"{queue.name}:{queue.concurrency}" for queue in self.queues.values())
        log_event(INFO, "worker started", worker=self.name, queues=queues)
        unsubscribe = self.subscribe()
        checking = asyncio.create_task(self.log_deploy_problems())
        runs = [self.claim_until_stopped, self.reporter.run, self.heartbeats.run]
        runs += [] if self.app.engine.far else [self.ticker.run]
        loops = [asyncio.create_task(each()) for each in runs]
        try:
            with OUTPUTS.read():
                await self.serve(*loops)
        finally:
            for each in (checking, *loops):
                each.cancel()
            await asyncio.gather(checking, *loops, return_exceptions=True)
            await self.executors.close()
            unsubscribe()

    async def serve(self, claiming: asyncio.Task[None], *others: asyncio.Task[None]) -> None:
        """Waits until the claimer has ended and what it claimed is settled. A loop that breaks stops the worker."""
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
        self.registered_tasks = len(self.app.tasks)
        return await self.client.send(
            Register(
                tenant=self.app.tenant, name=self.name, incarnation=self.incarnation, capacity=self.capacity,
                capabilities=offer_contracts(self.app, self.capabilities), tasks=tuple(self.app.tasks),
                concurrency=sum(queue.concurrency for queue in self.queues.values()),
            )
        )  # fmt: skip

    async def log_deploy_problems(self) -> None:
        """Logs what waits or runs in its queues and this program does not understand."""
        try:
            report = await asyncio.to_thread(check_deploy, self.app, None, tuple(self.queues))
        except InterlockError as error:
            log_event(INFO, "what waits was not checked", error, worker=self.name)
            return
        for problem in report.problems:
            log_event(
                WARNING, "not understood by this program", problem.text, waiting=problem.waiting,
                running=problem.running,
            )  # fmt: skip

    def subscribe(self) -> Callable[[], None]:
        """Subscribes to wake-ups of the queues and calls for this worker; returns the function that ends that."""
        watches = {
            self.app.engine.watch(self.queues, self.app.tenant): self.wake_up,
            self.app.engine.watch_worker(self.name, self.app.tenant): self.heartbeats.send_soon,
        }
        for watch, call in watches.items():
            watch.on_notify(partial(self.call_on_loop, call))

        def unsubscribe() -> None:
            for watch in watches:
                watch.unsubscribe(watch)

        return unsubscribe

    def call_on_loop(self, call: Callable[..., None], *args: Any) -> None:
        """Calls a function on the loop, from any thread; a loop that has ended needs it no more."""
        assert self.loop
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(call, *args)

    # Claiming.

    async def claim_until_stopped(self) -> None:
        while not self.stopping:
            self.to_claim.clear()
            for queue in self.queues.values():
                if self.claim_limit(queue) > 0 and not self.stopping:
                    await self.claim(queue)
            if self.stopping or any(self.claim_limit(queue) > 0 for queue in self.queues.values()):
                continue
            if not await wait_for_event(self.to_claim, POLL_EVERY):
                self.wakeups += 1  # a wake-up may have been lost

    def wake_up(self) -> None:
        """Claims again: there is work in one of the queues."""
        self.wakeups += 1
        self.to_claim.set()

    def claim_limit(self, queue: WorkerQueue) -> int:
        """Returns how many jobs to claim now; none if there was no wake-up since the queue was empty."""
        if queue.empty_since == self.wakeups:
            return 0
        return min(queue.room, self.capacity - len(self.executions.by_unit), CLAIM_MAX)

    async def claim(self, queue: WorkerQueue) -> None:
        """Claims jobs and starts them. One claim at a time: only the last one can be answered again."""
        if self.registered_tasks < len(self.app.tasks):  # the program has got further ones
            self.id = await self.register()
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
        self.take(queue, grants, sent_at)
        if len(grants) < limit:
            queue.empty_since = wakeups
        if self.executions.heartbeat_at < self.heartbeats.waits_until:  # else its thread looks again by itself
            self.heartbeats.wake()
        self.start_waiting(queue)

    def take(self, queue: WorkerQueue, grants: Sequence[LeaseGrant], sent_at: float) -> None:
        """Puts granted jobs into their queue, where they wait for a slot. Those of equal terms share a lease."""
        leases: dict[tuple[int, int, int], LocalLease] = {}
        by_unit = self.executions.by_unit
        for grant in grants:
            older = by_unit.get(grant.unit)
            if older and not older.ended:
                self.lose(older, "it was granted again")
            terms = (grant.ttl_us, grant.beat_us, grant.lasts_us)
            lease = leases.get(terms)
            if lease is None:
                lease = leases[terms] = LocalLease(grant, self.clock, sent_at)
            execution = Execution(
                grant, LeaseRef(grant.unit, grant.fence, grant.lease), lease, self.make_context, queue
            )
            self.executions.add(execution)
            queue.waiting.append(execution)

    def make_context(self, execution: Execution) -> JobContext:
        context = JobContext(self.app, execution.grant, self.app.tenant, self.add_item)
        context.lease_over, context.app, context.on_log = execution.lease_is_over, self.app, self.add_item
        return context

    async def apply_claim_refusal(self, refusal: InterlockError) -> None:
        """Registers again if this worker counted as lost, and stops if it was drained.

        Raises:
            Unavailable: the worker was drained, or cannot go on.
        """
        if isinstance(refusal, Unavailable):
            raise refusal
        if isinstance(refusal, Drained):
            log_event(WARNING, "worker was drained, stopping", refusal, worker=self.name)
            self.stop()
        elif isinstance(refusal, Gone):
            log_event(WARNING, "worker counted as lost, registering again", refusal, worker=self.name)
            self.incarnation = self.token(8)
            self.id = await self.register()
            self.wakeups += 1
        else:
            log_event(ERROR, "claim failed", refusal, worker=self.name)

    # Running: what `execution.run` asks for.

    def start_waiting(self, queue: WorkerQueue) -> None:
        """Starts as many of the waiting jobs as there are free slots."""
        if queue.starting:  # a handler has ended at once: who has started it goes on
            return
        assert self.loop
        by_unit, limit = self.executions.by_unit, queue.concurrency
        queue.starting = True
        while queue.waiting and queue.running < queue.concurrency and not self.stopping:
            if not limit:  # all of these have ended at once: others have their turn
                self.loop.call_soon(self.start_waiting, queue)
                break
            execution = queue.waiting.popleft()
            if by_unit.get(execution.grant.unit) is execution:  # else it was lost before it could start
                limit -= 1
                queue.running += 1
                context = self.context.copy()  # without what an earlier handler has set in its own
                execution.asyncio_task = asyncio.Task(
                    run(execution, self), loop=self.loop, name=execution.grant.task, context=context, **EAGER
                )
        queue.starting = False

    def may_start(self, execution: Execution) -> bool:
        return self.executions.by_unit.get(execution.grant.unit) is execution and not execution.given_up

    def report_start(self, execution: Execution) -> None:
        if execution.asyncio_task is None:  # it is being started
            execution.asyncio_task = asyncio.current_task()
        self.reporter.add_start(execution, self.read_time())
        if execution.grant.timeout_us:
            self.time_limits.begin(execution)

    def report_end(self, execution: Execution) -> None:
        """Gives the outcome to the reporter, and frees the slot once the handler has really ended."""
        self.reporter.add_end(execution)
        if execution.grant.timeout_us:
            self.time_limits.end(execution)
        queue = execution.queue
        assert queue
        queue.add_duration(0.0 if execution.started_at is None else self.read_time() - execution.started_at)
        thread = execution.made_context.thread if execution.made_context else None
        if thread is None or thread.done():
            self.free_slot(queue)
        else:
            self.keep_slot(queue, execution, thread)

    def keep_slot(self, queue: WorkerQueue, execution: Execution, thread: "Future[Any]") -> None:
        """A thread cannot be stopped: until it has ended, its slot is not free."""
        log_job(WARNING, "thread still running: it keeps its slot, and its result is ignored", execution.grant)
        queue.stuck += 1
        thread.add_done_callback(lambda _: self.call_on_loop(self.free_slot, queue, True))
        if queue.stuck == queue.concurrency:
            give_back_waiting(self, queue)

    def free_slot(self, queue: WorkerQueue, stuck: bool = False) -> None:
        queue.running -= 1
        queue.stuck -= stuck
        if queue.waiting:
            self.start_waiting(queue)
        self.to_claim.set()

    def add_item(self, item: Record | JobLog) -> None:
        """Has a note, or the bytes of a log, sent with one of the next reports; from any thread."""
        self.reporter.incoming.append(item)
        if get_ident() == self.thread:
            self.reporter.take_incoming(self.now)
        else:
            self.call_on_loop(lambda: self.reporter.take_incoming(self.now))

    # Losing.

    def apply_answer(self, execution: Execution, answer: LeaseStatus) -> None:
        """Tells a handler to stop if that is asked, and stops it if its lease is lost."""
        if answer.accepted and answer.cancel:
            execution.context.stopping.set()
        if not answer.accepted and execution in self.executions and not execution.ended:
            self.lose(execution, answer.why)

    def lose(self, execution: Execution, why: str) -> None:
        """Stops the handler of a job that another worker may have by now; nothing of it is reported."""
        self.executions.remove(execution)
        if execution.started_at is not None:
            log_job(WARNING, "lease lost, handler stopped", execution.grant, why)
        self.stop_handler(execution)

    def stop_handler(self, execution: Execution) -> None:
        """A task that is cancelled before its first step would never free its slot: `may_start` ends it."""
        execution.context.stopping.set()
        if execution.asyncio_task and execution.started_at is not None:
            execution.asyncio_task.cancel()

    # Stopping.

    def stop(self) -> None:
        """Stops claiming and starting jobs; what runs may end."""
        if not self.stopping:
            self.stopping = True
            if self.loop:
                self.client.give_up_at = self.now + self.grace + GIVE_UP_AFTER
            self.to_claim.set()

    async def stop_after(self, claiming: asyncio.Task[None]) -> None:
        await asyncio.shield(claiming)
        await stop_gracefully(self)
