"""What programs are told by `--json`: field names that stay, ids as they are shown, times as RFC 3339."""

from collections.abc import Iterable
from typing import Any

import msgspec

from interlock.client.inbox import Item
from interlock.client.times import stated
from interlock.client.trees import Node, Picture
from interlock.engine.notes import TRACEBACK
from interlock.kernel.lifecycle import Category
from interlock.kernel.names import shown
from interlock.kernel.rows import Artifact, Event, Note, Unit, Worker
from interlock.store.job_events import COMPENSATED, JOB, JobEvent
from interlock.store.views import View

WORKER = "worker"
MILLION = 1_000_000  # of what a cost is kept in, and microseconds of a second
# Words of documents 001 and 002 for what has another name too: for programs, and said once to people.
ALIASES = ("status", "correlation_id", "trace_id", "output", "total_cost")


def instant(at: int | None) -> str | None:
    return None if at is None else stated(at)


def raw(text: str | None) -> Any:
    """JSON text as what it says; text that is none as it is."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


def name_of(view: View) -> str:
    return shown(view.unit.lifecycle, view.unit.id)


def parent_of(view: View) -> str | None:
    return None if view.unit.parent is None else shown(view.above or "unit", view.unit.parent)


def unit(view: View) -> dict[str, Any]:
    """One unit, as `list` tells it."""
    row, body = view.unit, view.body
    return {
        "id": name_of(view), "task": body.task, "lifecycle": row.lifecycle, "state": row.state,
        "category": row.category, "outcome": row.outcome, "queue": view.queue,
        "capabilities": list(view.capabilities), "priority": row.priority, "key": body.key, "attempt": row.attempt,
        "failures": row.failures, "losses": row.losses, "version": row.version, "worker": view.holder,
        "parent": parent_of(view), "correlation": body.correlation, "created_at": instant(body.created_at),
        "changed_at": instant(row.changed_at), "error": body.error,
        **in_document_words(view), "correlation_id": body.correlation, "total_cost": row.cost / MILLION,
    }  # fmt: skip


def in_document_words(view: View) -> dict[str, Any]:
    """What documents 001 and 002 call the state of a unit, its claims and its times."""
    row = view.unit
    return {
        "status": row.state, "attempts": row.fence, "next_run_at": instant(next_run_at(row)),
        "started_at": instant(row.started_at), "cost": row.cost / MILLION,
    }  # fmt: skip


def next_run_at(row: Unit) -> int | None:
    """When a unit that nobody holds may be claimed: now or later; None if something else must happen first."""
    if row.outcome is not None or row.holder is not None:
        return None
    return row.available_at if row.due_at is None else row.due_at


def whole(view: View) -> dict[str, Any]:
    """One unit with all that its rows say, as `show` tells it."""
    row, body = view.unit, view.body
    policy = raw(body.policy)
    own = policy if isinstance(policy, dict) else {}
    reclaim_us = own.get("reclaim_after_us")
    return {
        **unit(view),
        "available_at": instant(row.available_at), "due_at": instant(row.due_at),
        "deadline_at": instant(row.deadline_at), "wake_at": instant(row.wake_at), "parked_on": row.parked_on,
        "cancel_asked_at": instant(row.asked_at), "cancel_forced_at": instant(row.asked_by), "needs_unmet": row.unmet,
        "lease": lease(view), "mutex": body.mutex, "limit": body.limit_key, "trace": body.trace,
        "labels": raw(body.labels), "policy": policy, "input": raw(body.input), "result": raw(body.result),
        "trace_id": body.trace, "output": raw(body.result), "webhook_url": own.get("webhook_url"),
        "reclaim_after": None if reclaim_us is None else reclaim_us / MILLION,
        "retry_of": body.retry_of and shown(row.lifecycle, body.retry_of),
        "replaced_by": body.replaced_by and shown(row.lifecycle, body.replaced_by),
    }  # fmt: skip


def lease(view: View) -> dict[str, Any] | None:
    """The last lease of a unit; `worker` is null once nobody holds it."""
    row = view.unit
    if row.lease is None:
        return None
    return {"state": row.lease, "worker": view.holder, "fence": row.fence, "until": instant(row.lease_until)}


def event(row: Event) -> dict[str, Any]:
    return {
        "unit": shown(row.lifecycle, row.unit), "version": row.version, "at": stated(row.at), "name": row.name,
        "trigger": row.trigger, "from": row.source, "to": row.target, "lease_from": row.lease_from,
        "lease_to": row.lease_to, "attempt": row.attempt, "fence": row.fence, "severity": row.severity,
        "actor": row.actor, "reason": row.reason, "cause": row.cause, "correlation": row.correlation,
        "trace": row.trace, "payload": raw(row.payload), "hash": row.hash,
    }  # fmt: skip


def job_event(row: JobEvent) -> dict[str, Any]:
    """An event of a job in document 002's shape. Its id is what the `cause` of another event names."""
    payload = raw(row.payload)
    if row.type == COMPENSATED:
        payload = {**payload, "by": shown(JOB, payload["by"])}
    return {
        "id": row.id, "job_id": shown(JOB, row.job_id), "type": row.type, "ts": stated(row.ts), "actor": row.actor,
        "correlation_id": row.correlation_id, "cause": row.cause, "payload": payload, "version": row.version,
    }  # fmt: skip


def note(row: Note) -> dict[str, Any]:
    return {
        "at": stated(row.at), "kind": row.kind, "name": row.name, "fence": row.fence, "expires": instant(row.expires),
        "payload": raw(row.payload),
    }  # fmt: skip


def tracebacks(notes: Iterable[Note]) -> list[dict[str, Any]]:
    """The tracebacks among the notes of a unit, that of the last failed attempt at the end."""
    return [
        {"attempt": int(one.name), "at": stated(one.at), "text": raw(one.payload)}
        for one in notes
        if one.kind == TRACEBACK
    ]


def artifact(row: Artifact) -> dict[str, Any]:
    return {
        "name": row.name, "attempt": row.attempt, "fence": row.fence, "at": stated(row.at), "digest": row.digest,
        "data": raw(row.data),
    }  # fmt: skip


def worker(row: Worker, its: Unit) -> dict[str, Any]:
    return {
        "id": shown(WORKER, row.unit), "name": row.name, "incarnation": row.incarnation,
        "state": its.state, "draining": bool(row.draining), "holding": row.holding, "capacity": row.capacity,
        "concurrency": row.concurrency or row.capacity, "silent": its.category == Category.CLOSING,
        "queues": raw(row.queues), "capabilities": [one for one in row.capabilities.split(",") if one],
        "seen_at": stated(row.seen_at),
    }  # fmt: skip


def item(one: Item) -> dict[str, Any]:
    """An item, for programs."""
    votes = [{**msgspec.to_builtins(vote), "at": stated(vote.at)} for vote in one.votes]
    return {
        "id": one.id, "task": one.task, "lifecycle": one.lifecycle, "state": one.state, "run": one.run,
        "run_task": one.run_task, "words": one.words, "approvers": one.approvers, "quorum": one.quorum, "votes": votes,
        "submitter": one.submitter, "not_submitter": one.not_submitter, "since": stated(one.since),
        "expires_at": instant(one.expires_at), "input": one.input,
    }  # fmt: skip


def node(seen: Picture, one: Node) -> dict[str, Any]:
    """One unit of a tree, for programs."""
    took = seen.took(one)
    return {
        "id": one.id, "depth": one.depth, "task": one.task, "lifecycle": one.lifecycle, "state": one.state,
        "status": one.state, "category": one.category, "outcome": one.outcome, "attempt": one.attempt,
        "version": one.version,
        "created_at": instant(one.born_at), "began_at": instant(one.began_at), "ended_at": instant(one.ended_at),
        "took_ms": None if took is None else took // 1_000, "cost": one.cost, "worker": one.worker,
        "waits_for": one.waits_for or None,
    }  # fmt: skip


def step(seen: Picture, one: Node, view: View) -> dict[str, Any]:
    """One unit of a tree with document 001's words for a step."""
    more = {"output": raw(view.body.result), "error": view.body.error}
    return {**node(seen, one), **in_document_words(view), **more, "cost": one.cost}
