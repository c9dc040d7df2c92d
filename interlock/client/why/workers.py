"""Which workers could take a job and what keeps each of them from it; and the state of a worker."""

import msgspec

from interlock.client.durations import format_rounded, format_time, format_time_relative
from interlock.client.why.facts import Facts
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category, Owner
from interlock.kernel.rows import Unit, WorkerRow
from interlock.plugins.agents.contracts import CAPABILITY as CONTRACT
from interlock.plugins.agents.contracts import DIGEST_SHOWN
from interlock.plugins.agents.options import RUN
from interlock.plugins.repositories.options import CAPABILITY
from interlock.plugins.shell.options import SHELL
from interlock.plugins.workstreams.options import REASSIGNED
from interlock.store.queries.views import AHEAD_MAX
from interlock.store.queries.workers import EndedLease

TASKS_SHOWN = 20  # of one worker
TAKEN_SHOWN = 5  # leases that were taken from it
SILENT_US = 60_000_000  # a worker that has room asks for work every second or so
Explanation = tuple[str, str, tuple[str, ...]]  # a code, an answer, details


def explain_no_claim(facts: Facts) -> Explanation:
    """Why no worker has claimed a unit that could be claimed."""
    queue, wanted = facts.view.queue, set(facts.view.capabilities)
    start = f"start one: interlock worker MODULE:APP -q {queue}" + "".join(map(name_option, sorted(wanted)))
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
    if facts.newest_contract and not any(is_there(worker, unit, facts.now) for worker, unit in capable):
        return explain_other_contract(facts)
    if not capable:
        worker = min((worker for worker, _ in knowing), key=lambda worker: len(wanted - list_capabilities(worker)))
        words = ", ".join(sorted(wanted))
        lacking = ", ".join(sorted(wanted - list_capabilities(worker)))
        answer = f"{facts.name} needs a worker with {words}, and no worker of queue '{queue}' has it all"
        return "no_capable_worker", answer, (f"{worker.name} comes closest: it lacks {lacking}", start)
    taken_from = {note.name for note in facts.notes if note.kind == REASSIGNED}
    others = [(worker, unit) for worker, unit in capable if worker.name not in taken_from]
    code, answer, details = explain_capacity(facts, others or capable)
    leaving = sorted({worker.name for worker, _ in capable if others} & taken_from)
    return code, answer, (*details, *(f"{name} leaves it to others: it was reassigned" for name in leaving))


def is_there(worker: WorkerRow, unit: Unit, now: int) -> bool:
    """Whether a worker is heard, and takes new work once it has room."""
    return describe_worker(worker, unit, now)[0] in ("free", "full")


def explain_other_contract(facts: Facts) -> Explanation:
    """Why the run of an agent waits although workers know its task: they have another contract of the agent."""
    words = [word for word in facts.view.capabilities if word.startswith(CONTRACT)]
    own, newest = (each.removeprefix(CONTRACT)[:DIGEST_SHOWN] for each in (words[0], facts.newest_contract))
    run = format_id(RUN, facts.unit.parent) if facts.unit.parent is not None else facts.name
    answer = f"{facts.name} needs a worker with the contract {own}, and no worker has it"
    if own != newest:
        answer += f": the newest contract of '{facts.view.body.task}' is {newest}"
    return "no_worker_with_contract", answer, (
        f"start a worker of the program that has {own}",
        f"or end it and go on under the newest: interlock cancel {run}, interlock agent resume {run} --override",
        f"or go on in a new run: interlock agent fork {run} --at STEP",
    )  # fmt: skip


def name_option(capability: str) -> str:
    """Returns the option of a worker that gives it a capability."""
    if capability.startswith(CAPABILITY):
        return f" --repo {capability.removeprefix(CAPABILITY)}=FOLDER"
    return " --shell" if capability == SHELL else f" --cap {capability}"


def explain_capacity(facts: Facts, capable: list[tuple[WorkerRow, Unit]]) -> Explanation:
    """Of the workers that could take it: one that has room, or why none has."""
    described = {worker.name: describe_worker(worker, unit, facts.now) for worker, unit in capable}
    details = tuple(f"{name} {text}" for name, (_, text) in described.items())
    codes = [code for code, _ in described.values()]
    if "free" in codes:
        name = next(name for name, (code, _) in described.items() if code == "free")
        many = "at least " if facts.ahead >= AHEAD_MAX else ""
        before = f"{many}{facts.ahead} of its kind before it" if facts.ahead else "it is the next of its kind"
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


# A worker itself.


def explain_worker(facts: Facts, worker: WorkerRow) -> Explanation:
    """How it is with a worker: since when it is silent, what it holds, and what was taken from it."""
    code, text = describe_worker(worker, facts.unit, facts.now)
    last_word = f"last heard at {format_time_relative(worker.seen_at, facts.now)}"
    if code == "silent":
        answer = f"{facts.name} ('{worker.name}') is {facts.unit.state}: silent, {last_word}"
    else:
        answer = f"{facts.name} ('{worker.name}') is {facts.unit.state}: it {text}; {last_word}"
    holds = ", ".join(f"{format_id(lifecycle, unit)} ({state})" for unit, lifecycle, state in facts.holds)
    more = f" and {worker.holding - len(facts.holds)} more" if worker.holding > len(facts.holds) else ""
    back = "its next claim or heartbeat brings it back, empty" if facts.unit.category == Category.CLOSING else ""
    details = (f"it holds {holds}{more}" if holds else "", *describe_taken(facts), back)
    return "worker", answer, tuple(detail for detail in details if detail)


def describe_taken(facts: Facts) -> list[str]:
    """Which leases were taken from a worker within a day, the last one first."""
    taken = [lease for lease in facts.ended_leases if was_taken(facts, lease)]
    lines = [
        f"taken from it at {format_time(lease.ended_at)}: {format_id(lease.lifecycle, lease.unit)} "
        f"(now {lease.state}), by {lease.actor}: {lease.reason}"
        for lease in taken[:TAKEN_SHOWN]
    ]
    more = len(taken) - TAKEN_SHOWN
    return [*lines, f"and {more} more were taken from it"] if more > 0 else lines


def was_taken(facts: Facts, ended: EndedLease) -> bool:
    """Whether somebody else than the worker has ended its lease: neither lease nor unit moved by its holder's word."""
    lease_moves = facts.lifecycles["lease"].moves.values()
    lifecycle = facts.lifecycles.get(ended.lifecycle)
    move = lifecycle.moves.get((ended.source, ended.trigger)) if lifecycle else None
    by_holder = any(move.owner is Owner.HOLDER for move in lease_moves if move.path[-1] == ended.lease)
    return not by_holder and (move is None or move.owner is not Owner.HOLDER)


def list_queues(worker: WorkerRow) -> list[str]:
    """Returns the queues that a worker has claimed from."""
    return msgspec.json.decode(worker.queues, type=list[str])


def list_capabilities(worker: WorkerRow) -> set[str]:
    """Lists the capabilities of a worker."""
    return set(filter(None, worker.capabilities.split(",")))


def list_tasks(worker: WorkerRow) -> list[str] | None:
    """Returns the tasks that a worker knows; None if it takes any."""
    return None if worker.tasks is None else msgspec.json.decode(worker.tasks, type=list[str])


def knows_task(worker: WorkerRow, task: str) -> bool:
    """Whether a worker says that it knows a task; one that says nothing may know any."""
    known = list_tasks(worker)
    return known is None or task in known


def describe_tasks(worker: WorkerRow) -> str:
    """Names the tasks that a worker knows, the first few of them."""
    known = list_tasks(worker) or []
    more = f" and {len(known) - TASKS_SHOWN} more" if len(known) > TASKS_SHOWN else ""
    return f"{', '.join(known[:TASKS_SHOWN]) or 'no task'}{more}"


def describe_queues(worker: WorkerRow) -> str:
    """Says from which queues a worker claims."""
    queues = ", ".join(list_queues(worker))
    return f"claims from {queues}" if queues else "has not claimed yet"
