"""How a worker stops: a list of steps, each a line in the log.

`Worker.stop` is called by a signal or by an operator's drain: nothing more is claimed or started. When the claimer has
ended, `stop_gracefully` gives back what has not started, lets what runs end within the grace, stops what still runs,
reports everything and deregisters the worker. No attempt is spent on what is given back.

A worker of which a loop broke does the same at once, without the grace (`stop_broken`): nobody shall wait for its
leases to end. A database that is away is then waited for no longer than GIVE_UP_AFTER.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from interlock.kernel.commands import Drain
from interlock.worker.execution import Execution
from interlock.worker.outcome import GiveBack
from interlock.worker.queues import WorkerQueue

if TYPE_CHECKING:
    from interlock.worker.loop import Worker

log = logging.getLogger("interlock.worker")
STOP_WITHIN = 1.0  # seconds that a handler has to end in, once it is cancelled
GIVE_UP_AFTER = 10.0  # seconds beyond the grace that a worker which stops waits for its database


async def stop_gracefully(worker: "Worker") -> None:
    """Everything that was held is reported or given back, and the worker is deregistered."""
    log.info("worker %s stopping: %d jobs held", worker.name, len(worker.executions))
    for queue in worker.queues.values():
        give_back_waiting(worker, queue)
    await wait_for_running(worker)
    await stop_running(worker)
    await report_and_deregister(worker)


async def stop_broken(worker: "Worker", error: Exception, claiming: "asyncio.Task[None]") -> None:
    """What is held is given back, if that can still be reported."""
    log.error("%s: %s; worker %s stops and gives back its jobs", type(error).__name__, error, worker.name)
    worker.stop()
    give_up_at = worker.now + GIVE_UP_AFTER
    worker.client.give_up_at = min(worker.client.give_up_at or give_up_at, give_up_at)
    try:
        async with asyncio.timeout(2 * GIVE_UP_AFTER):
            await asyncio.wait([claiming])  # what it has asked for may still be granted
            worker.reporter.ends = [each for each in worker.executions if each.ended]  # a broken report had taken them
            await stop_running(worker)
            await report_and_deregister(worker)
    except Exception as worse:
        log.error("%d jobs are lost when their leases end: %s", len(worker.executions), worse)


def give_back_waiting(worker: "Worker", queue: WorkerQueue) -> None:
    """Of jobs that have not started."""
    if queue.waiting:
        log.info("giving back %d jobs of queue %s that have not started", len(queue.waiting), queue.name)
    while queue.waiting:
        give_back(worker, queue.waiting.popleft())


async def wait_for_running(worker: "Worker") -> None:
    """What runs has the grace to end in."""
    running = find_running(worker)
    if running:
        log.info("waiting %g s for %d running jobs", worker.grace, len(running))
        await wait_for_ends(running, worker.grace)


async def stop_running(worker: "Worker") -> None:
    """What has not ended is cancelled and given back. A thread cannot be stopped: it is not waited for."""
    running = find_running(worker)
    if running:
        log.warning("stopping %d jobs that have not ended, and giving them back", len(running))
    for execution in running:
        execution.given_up = True
        worker.stop_handler(execution)
    await wait_for_ends(running, STOP_WITHIN)
    for execution in running:
        give_back(worker, execution)


async def report_and_deregister(worker: "Worker") -> None:
    while len(worker.executions):
        await worker.reporter.flush()
    await worker.client.send(Drain(tenant=worker.app.tenant, actor=worker.name, worker=worker.id))


def find_running(worker: "Worker") -> list[Execution]:
    return [execution for execution in worker.executions if not execution.ended]


def give_back(worker: "Worker", execution: Execution) -> None:
    if not execution.ended:
        execution.outcome = GiveBack()
        worker.reporter.add_end(execution)


async def wait_for_ends(executions: list[Execution], seconds: float) -> None:
    tasks = [each.asyncio_task for each in executions if each.asyncio_task and not each.asyncio_task.done()]
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)
