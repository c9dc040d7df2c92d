"""Response shapes made from rows: ids as `job_4r1`, times as RFC 3339, costs in whole units."""

from collections.abc import Iterable, Sequence
from typing import Any

from interlock.client.durations import format_time
from interlock.client.event_views import decode_json as decode_json
from interlock.client.event_views import make_event as make_event
from interlock.client.inbox import InboxItem, format_view_id
from interlock.client.responses import (
    ArtifactResponse,
    DeadLetterResponse,
    InboxItemResponse,
    JobDetailResponse,
    JobEventResponse,
    JobResponse,
    LeaseResponse,
    NeedResponse,
    NoteResponse,
    StepResponse,
    TracebackResponse,
    TreeNodeResponse,
    VoteResponse,
    WorkerResponse,
)
from interlock.client.trees import TreeNode, TreeSnapshot
from interlock.core.notes import TRACEBACK
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Note, Unit, WorkerRow
from interlock.kernel.texts import cut_middle
from interlock.kernel.timing import present_deadline
from interlock.plugins.evidence.queries import ArtifactInfo
from interlock.store.queries.dead_letters import DeadLetter
from interlock.store.queries.job_events import COMPENSATED, JOB, JobEvent
from interlock.store.queries.views import Needed, View

WORKER = "worker"
MILLION = 1_000_000  # of what a cost is kept in, and microseconds of a second
TRACEBACK_SHOWN = 4_000  # bytes of each in a list
# Names of documents 001 and 002 for fields that have another name too; people are shown only one of the two.
ALIASES = ("status", "correlation_id", "trace_id", "output", "total_cost")


def format_parent_id(view: View) -> str | None:
    """Formats the id of what a unit is below; None if it is below nothing."""
    return None if view.unit.parent is None else format_id(view.above or "unit", view.unit.parent)


def make_job_fields(view: View) -> dict[str, Any]:
    """Makes the fields of a job, as lists have them."""
    row, body = view.unit, view.body
    return {
        "id": format_view_id(view), "task": body.task, "lifecycle": row.lifecycle, "state": row.state,
        "category": row.category, "outcome": row.outcome, "queue": view.queue,
        "capabilities": list(view.capabilities), "priority": row.priority, "key": body.key, "attempt": row.attempt,
        "failures": row.failures, "losses": row.losses, "version": row.version, "worker": view.holder,
        "parent": format_parent_id(view), "correlation": body.correlation, "created_at": format_time(body.created_at),
        "changed_at": format_time(row.changed_at), "error": body.error,
        **make_document_fields(view), "correlation_id": body.correlation, "total_cost": row.cost / MILLION,
    }  # fmt: skip


def make_document_fields(view: View) -> dict[str, Any]:
    """Makes the fields that documents 001 and 002 have for the state of a job, its claims and its times."""
    row = view.unit
    return {
        "status": row.state, "attempts": row.fence, "next_run_at": format_time(find_next_run_at(row)),
        "started_at": format_time(row.started_at), "cost": row.cost / MILLION,
    }  # fmt: skip


def find_next_run_at(row: Unit) -> int | None:
    """Returns when a job that nobody holds may be claimed; None if something else must happen first."""
    if row.outcome is not None or row.holder is not None:
        return None
    return row.available_at if row.due_at is None else row.due_at


def make_job(view: View) -> JobResponse:
    """Makes a job, as lists have it."""
    return JobResponse(**make_job_fields(view))


def make_need(need: Needed) -> NeedResponse:
    """Makes a need of a job, with what meets it."""
    met_by = "end" if need.by_end else "success"
    return NeedResponse(format_id(need.lifecycle, need.unit), need.state, need.name, met_by)


def make_job_detail(
    view: View, needs: Sequence[Needed] = (), gates: Sequence[tuple[int, str]] = (), notes: Iterable[Note] = ()
) -> JobDetailResponse:
    """Makes a job with all its fields, what it needs, the open gates below it, and how its attempts failed."""
    row, body = view.unit, view.body
    policy = decode_json(body.policy)
    own = policy if isinstance(policy, dict) else {}
    reclaim_us = own.get("reclaim_after_us")
    return JobDetailResponse(
        **make_job_fields(view),
        available_at=format_time(row.available_at), due_at=format_time(row.due_at),
        deadline_at=format_time(present_deadline(row.deadline_at)),
        wake_at=format_time(present_deadline(row.wake_at)), parked_on=row.parked_on,
        cancel_asked_at=format_time(row.asked_at), cancel_forced_at=format_time(row.asked_by),
        needs_unmet=row.unmet, lease=make_lease(view), mutex=body.mutex,
        limit=body.limit_key, trace=body.trace, labels=decode_json(body.labels), policy=policy,
        input=decode_json(body.input),
        result=decode_json(body.result), trace_id=body.trace, output=decode_json(body.result),
        webhook_url=own.get("webhook_url"),
        reclaim_after=None if reclaim_us is None else reclaim_us / MILLION,
        retry_of=format_id(row.lifecycle, body.retry_of) if body.retry_of else None,
        replaced_by=format_id(row.lifecycle, body.replaced_by) if body.replaced_by else None,
        needs=[make_need(need) for need in needs],
        waiting_on=[format_id(lifecycle, gate) for gate, lifecycle in gates], tracebacks=make_tracebacks(notes),
    )  # fmt: skip


def make_lease(view: View) -> LeaseResponse | None:
    """Makes the last lease of a job; `worker` is null once nobody holds it."""
    row = view.unit
    if row.lease is None:
        return None
    return LeaseResponse(state=row.lease, worker=view.holder, fence=row.fence, until=format_time(row.lease_until))


def make_dead_letter(view: View, end: DeadLetter, traceback: Note | None) -> DeadLetterResponse:
    """Makes a dead letter, with how it ended, and the head and the tail of its last traceback."""
    payload = end.details
    names = ("reason_code", "error_class", "stage", "last_error", "attempts", "last_owner", "correlation_id")
    facts = {
        **make_job_fields(view), **{name: payload.get(name) for name in names},
        "last_lease_expires_at": format_time(payload.get("last_lease_expires_at")),
        "dead_since": format_time(end.at), "again": end.again_at is not None,
        "traceback": None if traceback is None else cut_middle(decode_json(traceback.payload), TRACEBACK_SHOWN),
    }  # fmt: skip
    return DeadLetterResponse(**facts)


def make_job_event(row: JobEvent) -> JobEventResponse:
    """Makes an event of a job in document 002's shape. Its id is what the `cause` of another event names."""
    payload = decode_json(row.payload)
    if row.type == COMPENSATED:
        payload = {**payload, "by": format_id(JOB, payload["by"])}
    return JobEventResponse(
        id=row.id, job_id=format_id(JOB, row.job_id), type=row.type, ts=format_time(row.ts), actor=row.actor,
        correlation_id=row.correlation_id, cause=row.cause, payload=payload, version=row.version,
    )  # fmt: skip


def make_note(row: Note) -> NoteResponse:
    """Makes a note."""
    return NoteResponse(
        at=format_time(row.at), kind=row.kind, name=row.name, fence=row.fence, expires=format_time(row.expires),
        payload=decode_json(row.payload),
    )  # fmt: skip


def make_tracebacks(notes: Iterable[Note]) -> list[TracebackResponse]:
    """Makes the tracebacks among the notes of a job, that of the last failed attempt at the end."""
    return [
        TracebackResponse(attempt=int(note.name), at=format_time(note.at), text=decode_json(note.payload))
        for note in notes
        if note.kind == TRACEBACK
    ]


def make_artifact(row: ArtifactInfo) -> ArtifactResponse:
    """Makes an artifact."""
    return ArtifactResponse(
        name=row.name, attempt=row.attempt, fence=row.fence, at=format_time(row.at), digest=row.digest,
        data=decode_json(row.value), length=row.length, media=row.media, late=row.late,
    )  # fmt: skip


def make_worker(row: WorkerRow, its: Unit) -> WorkerResponse:
    """Makes a worker of its two rows."""
    return WorkerResponse(
        id=format_id(WORKER, row.unit), name=row.name, incarnation=row.incarnation, state=its.state,
        draining=bool(row.draining), holding=row.holding, capacity=row.capacity,
        concurrency=row.concurrency or row.capacity, silent=its.category == Category.CLOSING,
        queues=decode_json(row.queues), capabilities=[word for word in row.capabilities.split(",") if word],
        tasks=None if row.tasks is None else decode_json(row.tasks), seen_at=format_time(row.seen_at),
    )  # fmt: skip


def make_inbox_item(item: InboxItem) -> InboxItemResponse:
    """Makes an item of the inbox."""
    votes = [
        VoteResponse(vote.voter, vote.approve, list(vote.roles), vote.comment, format_time(vote.at), vote.vouched_by)
        for vote in item.votes
    ]
    return InboxItemResponse(
        id=item.id, task=item.task, lifecycle=item.lifecycle, state=item.state, run=item.run, run_task=item.run_task,
        words=list(item.words), approvers=list(item.approvers), quorum=item.quorum, votes=votes,
        submitter=item.submitter, not_submitter=item.not_submitter, since=format_time(item.since),
        expires_at=format_time(item.expires_at), input=item.input,
    )  # fmt: skip


def make_node_fields(tree: TreeSnapshot, node: TreeNode) -> dict[str, Any]:
    """The fields of one unit of a tree."""
    took = tree.duration_us(node)
    return {
        "id": node.id, "depth": node.depth, "task": node.task, "lifecycle": node.lifecycle, "state": node.state,
        "status": node.state, "category": node.category, "outcome": node.outcome, "attempt": node.attempt,
        "version": node.version,
        "created_at": format_time(node.born_at), "began_at": format_time(node.began_at),
        "ended_at": format_time(node.ended_at),
        "took_ms": None if took is None else took // 1_000, "cost": node.cost, "worker": node.worker,
        "waits_for": node.waits_for or None,
    }  # fmt: skip


def make_node(tree: TreeSnapshot, node: TreeNode) -> TreeNodeResponse:
    """Makes a node of a tree."""
    return TreeNodeResponse(**make_node_fields(tree, node))


def make_step(tree: TreeSnapshot, node: TreeNode, view: View) -> StepResponse:
    """One unit of a tree with document 001's words for a step."""
    fields = {**make_node_fields(tree, node), **make_document_fields(view), "cost": node.cost}
    return StepResponse(**fields, output=decode_json(view.body.result), error=view.body.error)
