"""From rows to what programs are told: ids as they are shown, times as RFC 3339, costs in whole units."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from interlock.client.durations import stated
from interlock.client.event_responses import JobEventTold
from interlock.client.inbox import Item
from interlock.client.responses import (
    ArtifactTold,
    EventTold,
    ItemTold,
    LeaseTold,
    LetterTold,
    NeedTold,
    NodeTold,
    NoteTold,
    StepTold,
    TracebackTold,
    UnitTold,
    UnitWhole,
    VoteTold,
    WorkerTold,
)
from interlock.client.trees import Node, Picture
from interlock.core.notes import TRACEBACK
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Artifact, Event, Note, Unit, Worker
from interlock.kernel.texts import cut_middle
from interlock.store.queries.dead_letters import Letter
from interlock.store.queries.job_events import COMPENSATED, JOB, JobEvent
from interlock.store.queries.views import Glimpse, View

WORKER = "worker"
MILLION = 1_000_000  # of what a cost is kept in, and microseconds of a second
TRACEBACK_SHOWN = 4_000  # bytes of each in a list
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
    return format_id(view.unit.lifecycle, view.unit.id)


def parent_of(view: View) -> str | None:
    return None if view.unit.parent is None else format_id(view.above or "unit", view.unit.parent)


def unit_fields(view: View) -> dict[str, Any]:
    """The fields of a unit, as lists tell it."""
    row, body = view.unit, view.body
    return {
        "id": name_of(view), "task": body.task, "lifecycle": row.lifecycle, "state": row.state,
        "category": row.category, "outcome": row.outcome, "queue": view.queue,
        "capabilities": list(view.capabilities), "priority": row.priority, "key": body.key, "attempt": row.attempt,
        "failures": row.failures, "losses": row.losses, "version": row.version, "worker": view.holder,
        "parent": parent_of(view), "correlation": body.correlation, "created_at": stated(body.created_at),
        "changed_at": stated(row.changed_at), "error": body.error,
        **document_fields(view), "correlation_id": body.correlation, "total_cost": row.cost / MILLION,
    }  # fmt: skip


def document_fields(view: View) -> dict[str, Any]:
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


def unit(view: View) -> UnitTold:
    return UnitTold(**unit_fields(view))


def whole(
    view: View, needs: Sequence[Glimpse] = (), gates: Sequence[tuple[int, str]] = (), notes: Iterable[Note] = ()
) -> UnitWhole:
    """One unit with all that its rows say, what it needs, the open gates below it, and how its attempts failed."""
    row, body = view.unit, view.body
    policy = raw(body.policy)
    own = policy if isinstance(policy, dict) else {}
    reclaim_us = own.get("reclaim_after_us")
    return UnitWhole(
        **unit_fields(view),
        available_at=instant(row.available_at), due_at=instant(row.due_at), deadline_at=instant(row.deadline_at),
        wake_at=instant(row.wake_at), parked_on=row.parked_on, cancel_asked_at=instant(row.asked_at),
        cancel_forced_at=instant(row.asked_by), needs_unmet=row.unmet, lease=lease(view), mutex=body.mutex,
        limit=body.limit_key, trace=body.trace, labels=raw(body.labels), policy=policy, input=raw(body.input),
        result=raw(body.result), trace_id=body.trace, output=raw(body.result), webhook_url=own.get("webhook_url"),
        reclaim_after=None if reclaim_us is None else reclaim_us / MILLION,
        retry_of=format_id(row.lifecycle, body.retry_of) if body.retry_of else None,
        replaced_by=format_id(row.lifecycle, body.replaced_by) if body.replaced_by else None,
        needs=[NeedTold(format_id(one.lifecycle, one.unit), one.state) for one in needs],
        waiting_on=[format_id(lifecycle, one) for one, lifecycle in gates], tracebacks=tracebacks(notes),
    )  # fmt: skip


def lease(view: View) -> LeaseTold | None:
    """The last lease of a unit; `worker` is null once nobody holds it."""
    row = view.unit
    if row.lease is None:
        return None
    return LeaseTold(state=row.lease, worker=view.holder, fence=row.fence, until=instant(row.lease_until))


def letter(view: View, end: Letter, traceback: Note | None) -> LetterTold:
    """A dead letter, with what was told of its end, and the head and the tail of its last traceback."""
    told = end.told
    names = ("reason_code", "error_class", "stage", "last_error", "attempts", "last_owner", "correlation_id")
    facts = {
        **unit_fields(view), **{name: told.get(name) for name in names},
        "last_lease_expires_at": instant(told.get("last_lease_expires_at")),
        "dead_since": stated(end.at), "again": end.again_at is not None,
        "traceback": None if traceback is None else cut_middle(raw(traceback.payload), TRACEBACK_SHOWN),
    }  # fmt: skip
    return LetterTold(**facts)


def event(row: Event) -> EventTold:
    return EventTold(
        unit=format_id(row.lifecycle, row.unit), version=row.version, at=stated(row.at), name=row.name,
        trigger=row.trigger, source=row.source, target=row.target, lease_from=row.lease_from,
        lease_to=row.lease_to, attempt=row.attempt, fence=row.fence, severity=row.severity,
        actor=row.actor, reason=row.reason, cause=row.cause, correlation=row.correlation,
        trace=row.trace, payload=raw(row.payload), hash=row.hash,
    )  # fmt: skip


def job_event(row: JobEvent) -> JobEventTold:
    """An event of a job in document 002's shape. Its id is what the `cause` of another event names."""
    payload = raw(row.payload)
    if row.type == COMPENSATED:
        payload = {**payload, "by": format_id(JOB, payload["by"])}
    return JobEventTold(
        id=row.id, job_id=format_id(JOB, row.job_id), type=row.type, ts=stated(row.ts), actor=row.actor,
        correlation_id=row.correlation_id, cause=row.cause, payload=payload, version=row.version,
    )  # fmt: skip


def note(row: Note) -> NoteTold:
    return NoteTold(
        at=stated(row.at), kind=row.kind, name=row.name, fence=row.fence, expires=instant(row.expires),
        payload=raw(row.payload),
    )  # fmt: skip


def tracebacks(notes: Iterable[Note]) -> list[TracebackTold]:
    """The tracebacks among the notes of a unit, that of the last failed attempt at the end."""
    return [
        TracebackTold(attempt=int(one.name), at=stated(one.at), text=raw(one.payload))
        for one in notes
        if one.kind == TRACEBACK
    ]


def artifact(row: Artifact) -> ArtifactTold:
    return ArtifactTold(
        name=row.name, attempt=row.attempt, fence=row.fence, at=stated(row.at), digest=row.digest, data=raw(row.data)
    )


def worker(row: Worker, its: Unit) -> WorkerTold:
    return WorkerTold(
        id=format_id(WORKER, row.unit), name=row.name, incarnation=row.incarnation, state=its.state,
        draining=bool(row.draining), holding=row.holding, capacity=row.capacity,
        concurrency=row.concurrency or row.capacity, silent=its.category == Category.CLOSING,
        queues=raw(row.queues), capabilities=[one for one in row.capabilities.split(",") if one],
        seen_at=stated(row.seen_at),
    )  # fmt: skip


def item(one: Item) -> ItemTold:
    """What waits for a person."""
    votes = [
        VoteTold(vote.voter, vote.approve, list(vote.roles), vote.comment, stated(vote.at), vote.vouched_by)
        for vote in one.votes
    ]
    return ItemTold(
        id=one.id, task=one.task, lifecycle=one.lifecycle, state=one.state, run=one.run, run_task=one.run_task,
        words=list(one.words), approvers=list(one.approvers), quorum=one.quorum, votes=votes,
        submitter=one.submitter, not_submitter=one.not_submitter, since=stated(one.since),
        expires_at=instant(one.expires_at), input=one.input,
    )  # fmt: skip


def node_fields(seen: Picture, one: Node) -> dict[str, Any]:
    """The fields of one unit of a tree."""
    took = seen.took(one)
    return {
        "id": one.id, "depth": one.depth, "task": one.task, "lifecycle": one.lifecycle, "state": one.state,
        "status": one.state, "category": one.category, "outcome": one.outcome, "attempt": one.attempt,
        "version": one.version,
        "created_at": stated(one.born_at), "began_at": instant(one.began_at), "ended_at": instant(one.ended_at),
        "took_ms": None if took is None else took // 1_000, "cost": one.cost, "worker": one.worker,
        "waits_for": one.waits_for or None,
    }  # fmt: skip


def node(seen: Picture, one: Node) -> NodeTold:
    return NodeTold(**node_fields(seen, one))


def step(seen: Picture, one: Node, view: View) -> StepTold:
    """One unit of a tree with document 001's words for a step."""
    fields = {**node_fields(seen, one), **document_fields(view), "cost": one.cost}
    return StepTold(**fields, output=raw(view.body.result), error=view.body.error)
