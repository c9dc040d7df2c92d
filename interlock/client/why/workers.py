"""Who could take a unit that waits for a worker, and what keeps each of them from it."""

import msgspec

from interlock.client.durations import format_rounded
from interlock.client.why.facts import Facts
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit, WorkerRow
from interlock.store.queries.views import AHEAD_MAX

TASKS_SHOWN = 20  # of one worker
SILENT_US = 60_000_000  # a worker that has room asks for work every second or so
Explanation = tuple[str, str, tuple[str, ...]]  # a code, an answer, details


def explain_no_claim(facts: Facts) -> Explanation:
    """Why no worker has claimed a unit that could be claimed."""
    queue, wanted = facts.view.queue, set(facts.view.capabilities)
    start = f"start one: interlock worker MODULE:APP -q {queue}" + "".join(f" --cap {word}" for word in sorted(wanted))
    if not facts.workers:
        return "no_workers", f"{facts.name} waits for a worker, and none is registered", (start,)
    serving = [(worker, unit) for worker, unit in facts.workers if queue in list_queues(worker)]
    if not serving:
        here = tuple(f"{worker.name} {describe_queues(worker)}" for worker, _ in facts.workers)
        answer = f"{facts.name} waits in queue '{queue}', which no worker claims from"
        return "queue_without_workers", answer, (*here, start)
    task = facts.view.body.task
    knowing = [(worker, unit) for worker, unit in serving if knows_task(worker, task)]
    if not knowing:
        here = tuple(f"{worker.name} knows {describe_tasks(worker)}" for worker, _ in serving)
        answer = f"{facts.name} waits: no worker of queue '{queue}' knows the task '{task}'"
        return "task_unknown", answer, (*here, start)
    capable = [(worker, unit) for worker, unit in knowing if not wanted - list_capabilities(worker)]
    if not capable:
        worker = min((worker for worker, _ in knowing), key=lambda worker: len(wanted - list_capabilities(worker)))
        words = ", ".join(sorted(wanted))
        lacking = ", ".join(sorted(wanted - list_capabilities(worker)))
        answer = f"{facts.name} needs a worker with {words}, and no worker of queue '{queue}' has it all"
        return "no_capable_worker", answer, (f"{worker.name} comes closest: it lacks {lacking}", start)
    return explain_capacity(facts, capable)


def explain_capacity(facts: Facts, capable: list[tuple[WorkerRow, Unit]]) -> Explanation:
    """Of the workers that could take it: one that has room, or why none has."""
    described = {worker.name: describe_worker(worker, unit, facts.now) for worker, unit in capable}
    details = tuple(f"{name} {text}" for name, (_, text) in described.items())
    codes = [code for code, _ in described.values()]
    if "free" in codes:
        name = next(name for name, (code, _) in described.items() if code == "free")
        many = "at least " if facts.ahead >= AHEAD_MAX else ""
        before = f"{many}{facts.ahead} of its lane before it" if facts.ahead else "it is the next of its lane"
        return "ready", f"{facts.name} is ready, and {name} has room for it: {before}", details
    code = next(code for code in ("full", "draining", "silent") if code in codes)
    number, verb = ("the one worker", "is") if len(capable) == 1 else (f"all {len(capable)} workers", "are")
    return (
        f"workers_{code}",
        f"{facts.name} waits: {number} that could take it {verb} {' or '.join(sorted(set(codes)))}",
        details,
    )


def describe_worker(worker: WorkerRow, unit: Unit, now: int) -> tuple[str, str]:
    """How it is with a worker: free, full, draining or silent, and in words."""
    load = f"holds {worker.holding} of {worker.capacity}"
    if unit.category == Category.CLOSING or now - worker.seen_at > SILENT_US:
        return "silent", f"was not heard for {format_rounded(now - worker.seen_at)}"
    if worker.draining:
        return "draining", f"takes no new work, and {load}"
    if worker.holding >= worker.capacity:
        return "full", load
    return "free", load


def list_queues(worker: WorkerRow) -> list[str]:
    """Returns the queues that a worker has claimed from."""
    return msgspec.json.decode(worker.queues, type=list[str])


def list_capabilities(worker: WorkerRow) -> set[str]:
    return set(filter(None, worker.capabilities.split(",")))


def list_tasks(worker: WorkerRow) -> list[str] | None:
    """Returns the tasks that a worker knows; None if it takes any."""
    return None if worker.tasks is None else msgspec.json.decode(worker.tasks, type=list[str])


def knows_task(worker: WorkerRow, task: str) -> bool:
    known = list_tasks(worker)
    return known is None or task in known


def describe_tasks(worker: WorkerRow) -> str:
    known = list_tasks(worker) or []
    more = f" and {len(known) - TASKS_SHOWN} more" if len(known) > TASKS_SHOWN else ""
    return f"{', '.join(known[:TASKS_SHOWN]) or 'no task'}{more}"


def describe_queues(worker: WorkerRow) -> str:
    queues = ", ".join(list_queues(worker))
    return f"claims from {queues}" if queues else "has not claimed yet"
