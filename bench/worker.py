"""What the worker's own code costs per job, in processor time, on an engine that answers at once.

Prints the best of some rounds for handlers that return at once: an async one, one with arguments and a context, one
with a time limit, and a plain function, which runs in a thread. What the engine's thread uses is not counted.
"""

import asyncio
import gc
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any

import msgspec

import interlock
from interlock.cli.worker import COLLECT
from interlock.core.pending import PendingCommand, answer_all
from interlock.core.wakeups import Subscription
from interlock.kernel.commands import Claim, Command, Finish, LeaseGrant, LeaseStatus, Start
from interlock.worker.loop import Worker

JOBS = int(os.environ.get("JOBS") or 50_000)
ROUNDS = int(os.environ.get("ROUNDS") or 5)
CONCURRENCY = 500
app = interlock.open("sqlite://:memory:")


@app.task
async def noop(sent: float) -> None:
    """As the drained jobs of the other measures."""


@app.task
async def with_context(name: str, numbers: list[int], ctx: interlock.Context) -> dict[str, int]:
    return {name: sum(numbers) + ctx.attempt}


@app.task(timeout=60)
async def with_timeout(sent: float) -> None: ...


@app.task
def in_thread(sent: float) -> None: ...


INPUTS = {
    "noop": '{"sent":0.0}', "with_context": '{"name":"total","numbers":[1,2,3]}', "with_timeout": '{"sent":0.0}',
    "in_thread": '{"sent":0.0}',
}  # fmt: skip


class FakeEngine:
    """Grants so many jobs of one task, and accepts whatever is said of them."""

    far = True  # so that the worker does not tick

    def __init__(self, task: str) -> None:
        self.left, self.finished, self.done = JOBS, 0, Future[None]()
        work = {"task": task, "input": INPUTS[task], "timeout_us": 60_000_000 if task == "with_timeout" else None}
        self.grant = LeaseGrant(
            **work, unit=0, attempt=1, fence=1, lease="ab" * 32, until=0, ttl_us=60_000_000, beat_us=20_000_000,
            correlation="", trace="", lasts_us=60_000_000,
        )  # type: ignore[arg-type]  # fmt: skip
        self.commands: SimpleQueue[list[PendingCommand] | None] = SimpleQueue()
        self.used = 0.0  # seconds of its thread
        self.thread = Thread(target=self.answer_commands)
        self.thread.start()

    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        group = [PendingCommand(command) for command in commands]
        self.commands.put(group)
        return [pending.future for pending in group]

    def answer_commands(self) -> None:
        while group := self.commands.get():
            answer_all(group, [(self.answer(pending.command), None) for pending in group])
        self.used = time.thread_time()

    def answer(self, command: Command[Any]) -> Any:
        match command:
            case Claim(limit=limit):
                first, count = self.left, min(limit, self.left)
                self.left -= count
                return [msgspec.structs.replace(self.grant, unit=first - place) for place in range(count)]
            case Start(held=held):
                return [LeaseStatus(unit=lease.unit, accepted=True, state="running") for lease in held]
            case Finish(outcomes=outcomes):
                self.finished += len(outcomes)
                if self.finished == JOBS:
                    self.done.set_result(None)
                return [LeaseStatus(unit=each.held.unit, accepted=True, state="succeeded") for each in outcomes]
        return 1

    def watch(self, queues: object, tenant: int) -> Subscription:
        return Subscription((), lambda subscription: None)

    watch_worker = watch

    def close(self) -> None:
        self.commands.put(None)
        self.thread.join()


class MeasuredWorker(Worker):
    """The worker as it is, on an engine that has no definitions and no deploy to check."""

    async def log_deploy_problems(self) -> None:
        """There is nothing to read."""


async def work_off(engine: FakeEngine) -> None:
    worker = MeasuredWorker(app, {"default": CONCURRENCY})
    running = asyncio.create_task(worker.run())
    await asyncio.wrap_future(engine.done)
    worker.stop()
    await running
    assert worker.reporter.counts["success"] == JOBS


def measure(task: str) -> float:
    """Returns the microseconds of processor time per job, without those of the engine."""
    engine: Any = FakeEngine(task)
    app.opened = engine
    start = time.process_time()
    asyncio.run(work_off(engine))
    app.close()
    return (time.process_time() - start - engine.used) / JOBS * 1e6


def main() -> None:
    gc.freeze()  # as `interlock worker` does it
    gc.set_threshold(*COLLECT)
    print("| handler | worker, µs per job |\n| --- | ---: |")
    for task in sys.argv[1:] or INPUTS:
        print(f"| {task} | {min(measure(task) for _ in range(ROUNDS)):.1f} |")


if __name__ == "__main__":
    main()
