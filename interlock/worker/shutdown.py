"""Shut down a worker: a list of steps, each with one line in the log.

`Worker.stop` is called by a signal or by an operator's drain: nothing more is claimed or started. When the claimer has
ended, `stop_gracefully` gives back what has not started, lets what runs end within the grace, stops what still runs,
reports everything and deregisters the worker. No attempt is spent on what is given back.

A worker of which a loop broke does the same at once, without the grace (`stop_broken`): nobody shall wait for its
leases to end. A database that is away is then waited for no longer than GIVE_UP_AFTER.
"""

import asyncio
from logging import ERROR, INFO, WARNING
from typing import TYPE_CHECKING

from interlock.kernel.commands import Drain
from interlock.worker.execution import Execution
from interlock.worker.log_lines import log_event
from interlock.worker.outcome import GiveBack

if TYPE_CHECKING:
    from interlock.worker.loop import Worker, WorkerQueue

STOP_WITHIN = 1.0  # seconds that a handler gets to end, once it is cancelled
GIVE_UP_AFTER = 10.0  # seconds beyond the grace that a worker which stops waits for its database


async def stop_gracefully(worker: "Worker") -> None:
    """Reports or gives back everything that is held, and deregisters the worker."""
    log_event(INFO, "worker stopping", worker=worker.name, held=len(worker.executions))
    for queue in worker.queues.values():
        give_back_waiting(worker, queue)
    await wait_for_running(worker)
    await stop_running(worker)
    await report_and_deregister(worker)
    log_event(INFO, "worker stopped", worker=worker.name)


async def stop_broken(worker: "Worker", error: Exception, claiming: "asyncio.Task[None]") -> None:
    """Gives back what is held, if that can still be reported."""
    reason = f"{type(error).__name__}: {error}"
    log_event(ERROR, "worker failed, stopping and giving back its jobs", reason, worker=worker.name)
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
        held = len(worker.executions)
        log_event(ERROR, "jobs not given back: others get them when their leases expire", worse, held=held)


def give_back_waiting(worker: "Worker", queue: "WorkerQueue") -> None:
    """Gives back the jobs of a queue that have not started."""
    if queue.waiting:
        log_event(INFO, "giving back jobs that have not started", queue=queue.name, jobs=len(queue.waiting))
    while queue.waiting:
        give_back(worker, queue.waiting.popleft())


async def wait_for_running(worker: "Worker") -> None:
    """Waits for running jobs, at most for the grace."""
    running = find_running(worker)
    if running:
        log_event(INFO, "waiting for running jobs", jobs=len(running), grace_seconds=worker.grace)
        await wait_for_ends(running, worker.grace)


async def stop_running(worker: "Worker") -> None:
    """Cancels and gives back what has not ended. A thread cannot be stopped: it is not waited for."""
    running = find_running(worker)
    if running:
        log_event(WARNING, "stopping jobs that have not ended, giving them back", jobs=len(running))
    for execution in running:
        execution.given_up = True
        worker.stop_handler(execution)
    await wait_for_ends(running, STOP_WITHIN)
    for execution in running:
        give_back(worker, execution)


async def report_and_deregister(worker: "Worker") -> None:
    """Reports every outcome, and drains the worker."""
    while len(worker.executions):
        await worker.reporter.flush()
    await worker.client.send(Drain(tenant=worker.app.tenant, actor=worker.name, worker=worker.id))


def find_running(worker: "Worker") -> list[Execution]:
    """Returns the executions that have not ended."""
    return [execution for execution in worker.executions if not execution.ended]


def give_back(worker: "Worker", execution: Execution) -> None:
    """Gives back a job that has not ended."""
    if not execution.ended:
        execution.outcome = GiveBack()
        worker.reporter.add_end(execution)


async def wait_for_ends(executions: list[Execution], seconds: float) -> None:
    """Waits for executions to end, at most so many seconds."""
    tasks = [each.asyncio_task for each in executions if each.asyncio_task and not each.asyncio_task.done()]
    if tasks:
        await asyncio.wait(tasks, timeout=seconds)
