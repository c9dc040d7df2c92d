"""Workstreams on a repository: where their tasks begin, what is merged into them, and what is left when they end.

A workstream says its repository once; its tasks and all checks have it too, unless one says `"repo": ""`. What the
engine knows is enough to never merge anything but the commit of an accepted result:

- A task begins at the workstream's *head*: the commit of the last merge that was accepted. It is in a note of the
  workstream, and not read from a branch, which a worker that has lost its lease could have moved. Before the first
  merge it is the revision `ref`.
- Its last check, made when the others have passed, merges the commit that its result names. Merges into one workstream
  exclude each other by a mutex, so the head that a merge was granted with is still the head when it is accepted.
- A merge onto a target branch, the last check of the workstream, merges the head.

When a workstream enters its gate, it gets a merge plan as an artifact. When it has ended, a job removes its worktrees.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from interlock.core.advance import Stamp
from interlock.core.effective_policy import policy_in, policy_of
from interlock.core.notes import note
from interlock.core.submit import create_ready
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Artifact, Unit
from interlock.plugins.repositories.options import (
    CHECKING,
    CHECKS,
    CLEAN,
    CLEANING,
    MERGE,
    MERGE_TERMS,
    MERGING,
    NAME,
    REPOSITORY,
    WORKING,
    WORKSTREAM,
    RepositoryOptions,
    RepositoryOrder,
    encode_members,
    is_merge,
    make_capability,
    read_members,
    read_onto,
    read_repository,
)
from interlock.plugins.repositories.queries import (
    BEGINS,
    DIGITS,
    MERGED,
    MergeNote,
    read_beginning,
    read_done_again,
    read_merges,
    read_newest_merge,
    read_streams,
)
from interlock.store.hooks import Moved, MoveKind, Reaction
from interlock.store.queries.for_verbs import has_artifact, load_lanes
from interlock.store.retention import split_ids
from interlock.store.unit_of_work import UnitOfWork

WORKSTREAMS = "workstreams"  # the member that says what a task is in its workstream
PLAN = "merge_plan"  # the name of the artifact
PLAN_MAX = 1_000  # merges that a plan lists
MERGES_MAX = 2**31  # of a workstream: all of them
DEFAULT = "default"  # the queue of work that names none
ENGINES = (MERGE, CLEAN)  # tasks that only the engine makes
EARLIER_MAX = 100  # workstreams that each do the one before again


# Work is made.


def complete_repositories(tx: UnitOfWork, works: Sequence[Work]) -> Sequence[Work]:
    """Work that names a repository is for workers that serve it; what only the engine says is taken out."""
    if not any(work.options and NAME in work.options for work in works):
        return works
    return [with_own_repository(tx, work) for work in works]


def with_own_repository(tx: UnitOfWork, work: Work) -> Work:
    """Returns work with the repository of its own, if it says one."""
    try:
        given = read_repository(work.options)
    except msgspec.ValidationError:
        return work  # it is refused by those who check options
    if given is None or work.lifecycle not in tx.lifecycles or (given.repo and not REPOSITORY.fullmatch(given.repo)):
        return work
    return with_repository(tx, work, msgspec.structs.replace(given, stream=0, role="", onto=""))


def with_repository(tx: UnitOfWork, work: Work, given: RepositoryOptions) -> Work:
    """Work with a repository, and with its capability if workers claim it."""
    members = {**read_members(work.options), NAME: given}
    lifecycle = tx.lifecycles[work.lifecycle]
    needed = given.repo and (lifecycle.leased or lifecycle.options.follows)
    capabilities = dict.fromkeys((*work.capabilities, make_capability(given.repo))) if needed else work.capabilities
    return msgspec.structs.replace(work, options=encode_members(members), capabilities=tuple(capabilities))


def prepare_repository(tx: UnitOfWork, work: Work, parent: Unit | None) -> Work:
    """Work as it is made: with the repository of its workstream, and with the merge as its last check."""
    if parent is None and work.options is None and work.task not in ENGINES:
        return work
    own = read_repository(work.options)
    is_check = (read_members(work.options).get(CHECKS) or {}).get("entry") is not None
    if work.task in ENGINES and not is_check:
        if own is not None and own.role == CLEANING:
            return work
        raise InterlockError(f"'{work.task}' cannot be submitted by itself; a merge is a check of a workstream")
    if parent is None:
        return work if own is None or work.lifecycle != WORKSTREAM else with_merges_last(work)
    above = read_repository(policy_of(tx.body(parent)).options)
    if above is None or not above.repo or not tx.lifecycles[work.lifecycle].leased:
        return work
    # A task that was copied into a workstream that does another again still names that one.
    stream = parent.id if parent.lifecycle == WORKSTREAM else (parent.parent or 0) if above.stream else 0
    if is_check:
        return prepare_check(tx, work, above, stream)
    if not stream or is_map(work) or (own is not None and own.repo != above.repo):
        return work  # it has none, or another one than its workstream: nothing of it is merged
    given = msgspec.structs.replace(own or RepositoryOptions(repo=above.repo), stream=stream)
    work = with_repository(tx, work, given)
    return with_merge(work) if has_gate(tx, work) else work


def prepare_check(tx: UnitOfWork, work: Work, above: RepositoryOptions, stream: int) -> Work:
    """A check has the repository of what it checks; a merge excludes others that move the same branch."""
    if work.task != MERGE:
        return with_repository(tx, work, RepositoryOptions(repo=above.repo, stream=stream, role=CHECKING))
    onto = "" if work.input == "{}" else read_onto({"input": work.input})
    mutex = f"git:{above.repo}:{onto or stream}"
    work = msgspec.structs.replace(work, mutex=mutex)
    return with_repository(tx, work, RepositoryOptions(repo=above.repo, stream=stream, role=MERGING, onto=onto))


def is_map(work: Work) -> bool:
    """Whether a task runs nothing itself: it stands for those that are made from a list."""
    return (read_members(work.options).get(WORKSTREAMS) or {}).get("map") is not None


def has_gate(tx: UnitOfWork, work: Work) -> bool:
    """Whether the lifecycle of work has a gate that checks decide."""
    return any(trigger == "valid" for _, trigger in tx.lifecycles[work.lifecycle].moves)


def with_merge(work: Work) -> Work:
    """A task whose last check merges its commit into its workstream."""
    members = read_members(work.options)
    checks = dict(members.get(CHECKS) or {})
    last = list(checks.get("last") or ())
    if not any(is_merge(job) for job in last):
        last.append({"task": MERGE, "input": "{}", "queue": work.queue, **MERGE_TERMS})
    members[CHECKS] = {**checks, "jobs": checks.get("jobs") or [], "last": last}
    return msgspec.structs.replace(work, options=encode_members(members))


def with_merges_last(work: Work) -> Work:
    """A workstream whose merges are made when its other checks have passed, in its own queue."""
    members = read_members(work.options)
    checks = members.get(CHECKS)
    if not isinstance(checks, dict) or not any(is_merge(job) for job in checks.get("jobs") or ()):
        return work
    jobs, merges = [], []
    for job in checks["jobs"]:
        if not is_merge(job):
            jobs.append(job)
            continue
        own = {**MERGE_TERMS, **({"task": job} if isinstance(job, str) else job)}
        merges.append({**own, "queue": work.queue} if own.get("queue", DEFAULT) == DEFAULT else own)
    members[CHECKS] = {**checks, "jobs": jobs, "last": [*(checks.get("last") or ()), *merges]}
    return msgspec.structs.replace(work, options=encode_members(members))


# Work is granted.


def hand_over_repositories(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of the repositories of these units: where they begin, and which branch they move."""
    texts = {unit.id: policy_of(tx.body(unit)).options for unit in units}
    given: dict[int, RepositoryOptions] = {}
    for unit in units:
        own = read_repository(texts[unit.id])
        if own is not None and own.repo:
            copied = own.stream and not own.role and unit.parent is not None
            given[unit.id] = msgspec.structs.replace(own, stream=unit.parent) if copied else own
    if not given:
        return {}
    streams = read_streams(tx, (options.stream for options in given.values() if options.stream))
    orders = {}
    for unit in units:
        if (options := given.get(unit.id)) is not None:
            order = make_order(tx, unit, options, streams)
            orders[unit.id] = {"options": encode_members({**read_members(texts[unit.id]), NAME: order})}
    return orders


def make_order(
    tx: UnitOfWork, unit: Unit, options: RepositoryOptions, streams: Mapping[int, tuple[str, int | None]]
) -> RepositoryOrder:
    """What a worker is told of one unit's repository."""
    role = options.role or WORKING
    if not options.stream:
        name = format_id(unit.lifecycle, unit.id)
        return RepositoryOrder(repo=options.repo, role=role, name=name, ref=options.ref)
    policy, retry_of = streams.get(options.stream, ("{}", None))
    above = read_repository(policy_in(policy).options) or RepositoryOptions()
    name = format_id(WORKSTREAM, options.stream)
    return RepositoryOrder(
        repo=options.repo, role=role, name=name, ref=options.ref or above.ref,
        branch=above.branch or f"interlock/{name}", head=find_head(tx, options.stream, retry_of), onto=options.onto,
    )  # fmt: skip


def find_head(tx: UnitOfWork, stream: int, retry_of: int | None) -> str:
    """The commit at which tasks of a workstream begin; `retry_of` is the one that it does again."""
    if head := find_unkept_head(tx, stream):
        return head
    _, newest = read_newest_merge(tx, stream)
    if newest is not None:
        return newest.head
    return "" if retry_of is None else read_beginning(tx, stream)


def find_unkept_head(tx: UnitOfWork, stream: int) -> str:
    """The head by a merge that this transaction has accepted and no note tells of yet.

    A merge that ends frees its mutex at once, so that another command of the group may be granted the next merge.
    """
    for unit in tx.changes.moved.values():
        if unit.outcome == Category.SUCCESS and unit.parent is not None:
            options, result = read_accepted_merge(tx, unit)
            if options is not None and options.stream == stream:
                return str(result["commit"])
    return ""


# A merge has succeeded.


def is_merged(kind: MoveKind) -> bool:
    """Whether a check has just succeeded."""
    return kind.has_ended and kind.outcome == Category.SUCCESS and kind.is_child and not kind.decides


def keep_merges(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Merges of tasks into their workstream were accepted: from there the workstream goes on."""
    for check, _ in moved:
        options, result = read_accepted_merge(tx, check)
        if options is None or check.parent is None:
            continue
        task = tx.unit(check.parent)  # children are locked before their parent
        tx.unit(options.stream)
        number, _ = read_newest_merge(tx, options.stream)
        merge = MergeNote(
            task=task.id, name=policy_of(tx.body(task)).step or tx.body(task).task, job=check.id, fence=check.fence,
            commit=str(result.get("merged")), base=str(result.get("base")), head=str(result["commit"]),
        )  # fmt: skip
        text = msgspec.json.encode(merge).decode()
        note(tx, options.stream, MERGED, text, name=f"{number + 1:0{DIGITS}}")


def read_accepted_merge(tx: UnitOfWork, check: Unit) -> tuple[RepositoryOptions | None, dict[str, Any]]:
    """Of a check that succeeded: its options and its result if it has merged something into a workstream."""
    body = tx.body(check)
    options = read_repository(policy_of(body).options) if body.task == MERGE else None
    if options is None or options.role != MERGING or options.onto:
        return None, {}
    result = msgspec.json.decode(body.result or "{}")
    if not isinstance(result, dict) or not result.get("commit") or result.get("already"):
        return None, {}  # there was nothing to merge
    return options, result


# A workstream is done again.


def leave_out_merges(tx: UnitOfWork, old: Unit, fresh: Unit, left_out: Collection[int]) -> set[int]:
    """A workstream that takes tasks over begins before the first commit of a task that is done again.

    Returns the tasks whose commits were merged from there on: they stand on what is left out.
    """
    options = read_repository(policy_of(tx.body(old)).options)
    if options is None or not options.repo:
        return set()
    merges = list_merges(tx, old.id)
    first = next((place for place, (task, _) in enumerate(merges) if task in left_out), len(merges))
    head = merges[first - 1][1].head if first else ""
    note(tx, fresh.id, BEGINS, msgspec.json.encode(head).decode())
    return {task for task, _ in merges[first:]}


def list_merges(tx: UnitOfWork, stream: int, depth: int = 0) -> list[tuple[int, MergeNote]]:
    """What the head of a workstream is made of, the first merge first, each with the task, or the map that made it.

    What was merged into an earlier workstream that this one does again is told of its own tasks.
    """
    merges = list[tuple[int, MergeNote]]()
    beginning = read_beginning(tx, stream)
    _, retry_of = read_streams(tx, [stream]).get(stream, ("{}", None))
    if beginning and retry_of is not None and depth < EARLIER_MAX:
        again = read_done_again(tx, stream)
        for task, merge in list_merges(tx, retry_of, depth + 1):
            merges.append((again.get(task, task), merge))
            if merge.head == beginning:
                break
    if beginning and not merges:  # the earlier one was archived
        merges.append((0, MergeNote(task=0, name="", job=0, fence=0, commit="", base="", head=beginning)))
    own = read_merges(tx.connection, stream, MERGES_MAX)
    policies = {
        task: policy
        for part in split_ids([merge.task for merge in own])
        for task, (policy, _) in read_streams(tx, part).items()
    }
    return [*merges, *((find_map(policies.get(merge.task, "{}")) or merge.task, merge) for merge in own)]


def find_map(policy: str) -> int | None:
    """The map that made a task, if one did."""
    own: int | None = (read_members(policy_in(policy).options).get(WORKSTREAMS) or {}).get("item_of")
    return own


# A workstream enters its gate, and ends.


def enters_final_gate(kind: MoveKind) -> bool:
    """Whether a transition takes a workstream into its final gate."""
    return kind.lifecycle == WORKSTREAM and kind.category == Category.GATE and kind.has_entered


def plan_merges(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Workstreams enter their gate: each gets a merge plan, which says what is merged onto what."""
    for stream, _ in moved:
        body = tx.body(stream)
        options = read_repository(policy_of(body).options)
        if options is None or not options.repo or has_artifact(tx, stream.id, stream.attempt, PLAN):
            continue
        name = format_id(WORKSTREAM, stream.id)
        checks = read_members(policy_of(body).options).get(CHECKS) or {}
        merges = read_merges(tx.connection, stream.id, PLAN_MAX)
        plan = {
            "workstream": name, "repo": options.repo, "ref": options.ref or "HEAD",
            "branch": options.branch or f"interlock/{name}", "head": find_head(tx, stream.id, body.retry_of) or None,
            "onto": [read_onto(job) for job in checks.get("last") or () if is_merge(job)],
            "merges": [
                {"task": merge.name, "id": format_id("task", merge.task), "commit": merge.commit, "head": merge.head}
                for merge in merges
            ],
        }  # fmt: skip
        text = encode_members(plan)
        tx.add(
            Artifact(
                unit=stream.id, attempt=stream.attempt, name=PLAN, tenant=stream.tenant, fence=stream.fence, at=tx.now,
                digest=sha256(text.encode()).hexdigest(), data=text,
            )
        )  # fmt: skip


def ends_workstream(kind: MoveKind) -> bool:
    """Whether a transition ends a workstream."""
    return kind.lifecycle == WORKSTREAM and kind.has_ended


def clean_up(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Workstreams have ended, in whichever way: a job removes their worktrees, if they can have had any."""
    for stream, _ in moved:
        options = read_repository(policy_of(tx.body(stream)).options)
        if options is None or not options.repo or stream.started_at is None:
            continue
        lane, name = load_lanes(tx, stream.tenant).find(stream.lane), format_id(WORKSTREAM, stream.id)
        own = RepositoryOptions(repo=options.repo, stream=stream.id, role=CLEANING)
        work = Work(
            task=CLEAN, queue=lane.queue if lane else DEFAULT, capabilities=(make_capability(options.repo),),
            input=encode_members({"workstream": name}), options=encode_members({NAME: own}),
            correlation=tx.body(stream).correlation, attempts=5, losses=100,
        )  # fmt: skip
        create_ready(tx, work, Stamp("engine", "clean up", f"{name}:{stream.version}"), None, {})


KEEP_MERGES = Reaction("keep merges", is_merged, keep_merges)
PLAN_MERGES = Reaction("plan merges", enters_final_gate, plan_merges)
CLEAN_UP = Reaction("clean up workstreams", ends_workstream, clean_up)
