"""Who could take a unit that waits for a worker, and what keeps each of them from it."""

import msgspec

from interlock.client.durations import roughly
from interlock.client.why.facts import Facts
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit, Worker
from interlock.store.queries.views import AHEAD_MAX

SILENT_US = 60_000_000  # a worker that has room asks for work every second or so
Told = tuple[str, str, tuple[str, ...]]  # a code, an answer, details


def for_a_worker(facts: Facts) -> Told:
    """Why no worker has claimed a unit that could be claimed."""
    queue, wanted = facts.seen.queue, set(facts.seen.capabilities)
    start = f"start one: interlock worker MODULE:APP -q {queue}" + "".join(f" --cap {one}" for one in sorted(wanted))
    if not facts.workers:
        return "no_workers", f"{facts.name} waits for a worker, and none is registered", (start,)
    serving = [(worker, unit) for worker, unit in facts.workers if queue in queues_of(worker)]
    if not serving:
        here = tuple(f"{worker.name} {claims_from(worker)}" for worker, _ in facts.workers)
        answer = f"{facts.name} waits in queue '{queue}', which no worker claims from"
        return "queue_without_workers", answer, (*here, start)
    capable = [(worker, unit) for worker, unit in serving if not wanted - capabilities_of(worker)]
    if not capable:
        worker = min((worker for worker, _ in serving), key=lambda worker: len(wanted - capabilities_of(worker)))
        words = ", ".join(sorted(wanted))
        lacking = ", ".join(sorted(wanted - capabilities_of(worker)))
        answer = f"{facts.name} needs a worker with {words}, and no worker of queue '{queue}' has it all"
        return "no_capable_worker", answer, (f"{worker.name} comes closest: it lacks {lacking}", start)
    return free_or_not(facts, capable)


def free_or_not(facts: Facts, capable: list[tuple[Worker, Unit]]) -> Told:
    """Of the workers that could take it: one that has room, or why none has."""
    said = {worker.name: condition(worker, unit, facts.now) for worker, unit in capable}
    details = tuple(f"{name} {text}" for name, (_, text) in said.items())
    codes = [code for code, _ in said.values()]
    if "free" in codes:
        name = next(name for name, (code, _) in said.items() if code == "free")
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


def condition(worker: Worker, unit: Unit, now: int) -> tuple[str, str]:
    """How it is with a worker: free, full, draining or silent, and in words."""
    load = f"holds {worker.holding} of {worker.capacity}"
    if unit.category == Category.CLOSING or now - worker.seen_at > SILENT_US:
        return "silent", f"was not heard for {roughly(now - worker.seen_at)}"
    if worker.draining:
        return "draining", f"takes no new work, and {load}"
    if worker.holding >= worker.capacity:
        return "full", load
    return "free", load


def queues_of(worker: Worker) -> list[str]:
    return msgspec.json.decode(worker.queues, type=list[str])


def capabilities_of(worker: Worker) -> set[str]:
    return set(filter(None, worker.capabilities.split(",")))


def claims_from(worker: Worker) -> str:
    queues = ", ".join(queues_of(worker))
    return f"claims from {queues}" if queues else "has not claimed yet"
