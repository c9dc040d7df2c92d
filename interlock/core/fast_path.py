"""The fast path: grant and finish hundreds of plain units with a few statements.

What is here
------------
`grant_plain` does for a claim what `claims.py` and `leases.grant` do unit by unit; `start_plain` and `finish_plain` do
for a report what `leases.start` and `leases.finish` do. Each reads what it needs in one question that locks the units
(whether a unit may go this way is asked in its WHERE, under the lock), takes the path from the same lifecycle by the
same policy, and writes the acts at once. The database judges these acts as it judges all others. No body or move
becomes an object.

What fits is taken, and everything else is left to the verbs, in the same transaction: another outcome than a plain
success, an older fence, a wrong secret, a unit with a parent, a need, a key, a cancel that was asked for. So a refusal
is always explained by the verb.

Why the verbs come to the same
------------------------------
A plain unit (`plain.py`) is one whose grant and whose success concern nobody else, so no reaction and no hook of a
plugin is left out: `PlainPaths` asks once for each kind of move whether any reaction serves it. What follows for the
worker (it holds more, or less) is told to `WorkerChanges` as the verbs do. `tests/property/test_fast_path.py` compares
both ways by random commands.

Starts and ends that stand next to each other in a group are done together, because that is one path: `look_ahead` finds
them before the first command of a group is run.

What is ugly: units that are moved here are not in the identity map, so whoever needs them later in the same transaction
reads them again. And a group that the database refuses is run again without the fast path, which `Committer` sees to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from interlock.core.advance import ENCODE, Stamp, make_stamp
from interlock.core.effective_policy import policy_in
from interlock.core.group_reads import IDS_MAX, Prefetches, declare_reads
from interlock.core.lease_secrets import hash_secret, make_secret
from interlock.core.outcomes import NULL, check_outcome, check_result
from interlock.core.served import find_serving, is_left_plain
from interlock.core.tx_state import WorkerChanges
from interlock.kernel import policy, timing
from interlock.kernel.blobs import parse_reference
from interlock.kernel.commands import (
    TRANSIENT,
    Claim,
    Command,
    Finish,
    LeaseGrant,
    LeaseRef,
    LeaseStatus,
    Outcome,
    Start,
)
from interlock.kernel.errors import InterlockError, Refused
from interlock.kernel.lifecycle import Category
from interlock.kernel.paths import ACTIVATE, BORN, START, Path, Step
from interlock.kernel.rows import Act, Body, Unit, WorkerRow
from interlock.store.acts import NOTHING, UNITS_MAX, digest_result
from interlock.store.cache import EngineCache, Served
from interlock.store.commit_proof import choose_proof
from interlock.store.hooks import GrantKind, MoveKind
from interlock.store.prefetch import declare_held
from interlock.store.queries.plain import (
    LANES_MAX,
    Claimable,
    HeldGroup,
    Startable,
    WorkerPlace,
    bind_claimable,
    bind_held_groups,
    bind_startables,
)
from interlock.store.query import BoundQuery
from interlock.store.renewals import renew_leases
from interlock.store.unit_of_work import BODIES, Picks, UnitOfWork

PLAIN_GRANT = GrantKind(False, False, True, False, False, False)
FIRST_FENCE = 1


class PlainGrant(NamedTuple):
    """How plain units of one lifecycle and state are granted."""

    path: Path
    ttl_us: int
    beat_us: int
    active: bool


class PlainGrants(NamedTuple):
    """What a claim was granted by the fast path."""

    leases: list[tuple[tuple[int, int, int], LeaseGrant]]  # each with its place in the order of claims
    is_all: bool  # whether nothing else waits for the worker


class PlainEnd(NamedTuple):
    """How plain units that are in one place succeed; `started` is the state between, if they are started with it."""

    path: Path
    renews: bool  # whether their start makes the lease last for its whole time again
    started: str


class WorkerMove(NamedTuple):
    """How a worker moves that gets its first lease or gives its last one back; without a path it stays as it is."""

    path: Path | None
    within_us: int | None  # for how long it may be silent then


class PlainPaths:
    """The paths of the fast path, as an engine has found them in its lifecycles; None where it has none."""

    def __init__(self) -> None:
        self.grants: dict[tuple[str, str], PlainGrant | None] = {}
        self.starts: dict[tuple[str, str, str], Path | None] = {}
        self.ends: dict[tuple[str, str, str, bool], PlainEnd | None] = {}
        self.workers: dict[tuple[str, str], WorkerMove | None] = {}  # by state and trigger

    def find_grant(self, tx: UnitOfWork, lifecycle: str, state: str) -> PlainGrant | None:
        key = lifecycle, state
        if key not in self.grants:
            self.grants[key] = make_grant(tx, lifecycle, state)
        return self.grants[key]

    def find_start(self, tx: UnitOfWork, unit: Startable) -> Path | None:
        key = unit.lifecycle, unit.state, unit.lease
        if key not in self.starts:
            path = make_start(tx, *key)
            self.starts[key] = path if path and not is_served(tx, path) else None
        return self.starts[key]

    def find_end(self, tx: UnitOfWork, group: HeldGroup, *, starts: bool) -> PlainEnd | None:
        key = group.lifecycle, group.state, group.lease, starts
        if key not in self.ends:
            try:
                self.ends[key] = make_end(tx, group.lifecycle, group.state, group.lease, starts=starts)
            except Refused:
                self.ends[key] = None
        return self.ends[key]


def make_grant(tx: UnitOfWork, name: str, state: str) -> PlainGrant | None:
    """How units in this state are granted on the terms of their lifecycle."""
    lifecycle = tx.lifecycles.get(name)
    rules = lifecycle.options.lease if lifecycle else None
    trigger = policy.claim_trigger(lifecycle, state, held=False) if lifecycle else ""
    if lifecycle is None or rules is None or not trigger or name in tx.paths.followed:
        return None
    active = policy.activates(lifecycle, lifecycle.move(state, trigger).path[-1])
    path = tx.paths.find(name, state, None, (Step(trigger, ("grant", "activate") if active else ("grant",)),))
    if is_served(tx, path) or any(hook.serves(PLAIN_GRANT) for hook in tx.hooks.grant_fields):
        return None
    ttl_us, beat_us = timing.clamp_lease_terms(rules, policy_in("{}"))
    return PlainGrant(path, ttl_us, beat_us, active)


def make_start(tx: UnitOfWork, name: str, state: str, lease: str) -> Path | None:
    """How a unit begins that is in this state under a lease in that state; None if it has nothing to begin."""
    lifecycle = tx.lifecycles.get(name)
    activation = (ACTIVATE,) if tx.lease_lifecycle.allows(lease, ACTIVATE) else ()
    if lifecycle is None or name in tx.paths.followed or not (activation or lifecycle.allows(state, START)):
        return None
    return tx.paths.find(name, state, lease, (Step(START, activation),))


def make_end(tx: UnitOfWork, name: str, state: str, lease: str, *, starts: bool) -> PlainEnd | None:
    """How units succeed that are in this state under a lease in that state.

    Raises:
        Refused: they cannot.
    """
    lifecycle, leases = tx.lifecycles.get(name), tx.lease_lifecycle
    if lifecycle is None:
        return None
    first, begun = make_start(tx, name, state, lease) if starts else None, state
    if first:
        begun, lease = first.target, first.lease_to or lease
    trigger = policy.choose(lifecycle, begun, "complete")
    target = lifecycle.move(begun, trigger).path[-1]
    if lifecycle.category(begun) is Category.CLOSING or lifecycle.category(target) is not Category.SUCCESS:
        return None
    path = tx.paths.find(
        name, begun, lease, (Step(trigger, (policy.lease_end_trigger(leases, lease, "finish"),)),)
    )  # fmt: skip
    both = tx.paths.join_paths(first, path) if first else path
    if both is None or name in tx.paths.followed or is_served(tx, both):
        return None
    return PlainEnd(both, first is not None, begun)


def make_worker_move(tx: UnitOfWork, state: str, trigger: str) -> WorkerMove | None:
    """How a worker that is in this state makes a move; without a trigger it is only heard."""
    lifecycle = tx.lifecycles["worker"]
    if not lifecycle.allows(state, "drain"):
        return None
    if not trigger:
        return WorkerMove(None, lifecycle.states[state].within_us)
    if not lifecycle.allows(state, trigger):
        return None
    path = tx.paths.find(lifecycle.name, state, None, (Step(trigger),))
    kind = MoveKind(lifecycle.name, path.category or "", None, False, True, False, False, False, True)
    return None if find_serving(tx, kind) else WorkerMove(path, lifecycle.states[path.target].within_us)


def is_served(tx: UnitOfWork, path: Path) -> bool:
    """Whether a reaction would follow from it that a plain unit made this move."""
    ended = path.category if path.category == Category.SUCCESS else None
    is_birth = path.source == BORN
    kind = MoveKind(path.lifecycle, path.category or "", ended, is_birth, True, ended is not None, False, False, True)
    return not is_left_plain(tx, kind)


# Claims.


def grant_plain(tx: UnitOfWork, command: Claim, worker: WorkerRow, served: Served, room: int) -> PlainGrants:
    """Grants the plain ones among the most urgent units of these lanes."""
    lanes = sorted(served.queues)
    if not may_grant(tx, lanes, command) or len(set(served.queues.values())) > 1:
        return PlainGrants([], False)
    rows = tx.run(bind_claimable(lanes, room, many_writers=tx.connection.many_writers))
    if len(lanes) == 1 and rows and all(row.task is None for row in rows):
        tx.cache.slow_lanes.update(lanes)
    groups: dict[tuple[str, str, int, int], list[Claimable]] = {}
    for row in rows:
        if row.task is not None and is_readable(row.policy):
            groups.setdefault((row.lifecycle, row.state, row.version, row.attempt), []).append(row)
    paths, granted = tx.cache.state(PlainPaths), list[tuple[tuple[int, int, int], LeaseGrant]]()
    acts: list[Act] = []
    for (lifecycle, state, _, _), units in groups.items():
        if way := paths.find_grant(tx, lifecycle, state):
            units.sort()
            acts += [
                grant_together(tx, command, worker, way, units[start : start + UNITS_MAX], granted)
                for start in range(0, len(units), UNITS_MAX)
            ]
    if acts:
        tx.state(Picks).picked.update(unit for act in acts for unit in act.units)
        tx.cache.note_clock(tx.tenant, min(lease.until for _, lease in granted))
        write_acts(tx, acts)
        granted.sort()
    # Of several lanes one may be locked by others, and hide what waits in the next.
    sees_all = len(lanes) == 1 or not tx.connection.many_writers
    return PlainGrants(granted, sees_all and len(granted) == len(rows) < room)


def is_readable(rules: str) -> bool:
    """Whether what a unit says of itself can be read; if not, the verb says so and withholds it."""
    try:
        policy_in(rules)
    except msgspec.MsgspecError:
        return False
    return True


def may_grant(tx: UnitOfWork, lanes: Sequence[int], command: Claim) -> bool:
    """Whether this claim may go the fast way: no plugin looks at each grant, and the database has seen all there is."""
    known = set(lanes)
    return (
        tx.fast_path
        and 0 < len(lanes) <= LANES_MAX
        and tx.cache.slow_lanes.isdisjoint(known)
        and not command.vouched_by
        and not tx.cache.passed_over
        and tx.state(Picks).allowed is None
        and not any(unit.lane in known for unit in tx.rows.units.values())
    )


def grant_together(
    tx: UnitOfWork, command: Claim, worker: WorkerRow, way: PlainGrant, units: Sequence[Claimable],
    granted: list[tuple[tuple[int, int, int], LeaseGrant]],
) -> Act:  # fmt: skip
    """The act that grants these units, which are in the same place; what the worker is told of each is added."""
    first, stamp, rules = units[0], make_stamp(command), tx.lifecycles[units[0].lifecycle].options.lease
    assert rules
    until = timing.lease_end_at(rules, tx.now, way.ttl_us, way.beat_us, active=way.active)
    secrets = [make_secret(command.nonce, command.key, unit.id, FIRST_FENCE) for unit in units]
    lasts_us, version = max(0, until - tx.now), first.version + len(way.path.hops)
    for unit, secret in zip(units, secrets, strict=True):
        grant = LeaseGrant(
            unit.id, unit.task or "", unit.input, first.attempt, FIRST_FENCE, secret, until, way.ttl_us, way.beat_us,
            unit.correlation, unit.trace, policy_in(unit.policy).timeout_us, lifecycle=first.lifecycle,
            lasts_us=lasts_us, version=version,
        )  # fmt: skip
        granted.append(((-unit.priority, unit.available_at, unit.id), grant))
    return make_act(
        tx, way.path, stamp, first, [unit.id for unit in units], [unit.act for unit in units], fence=0,
        payload=ENCODE({"worker": worker.name}).decode(), worker=worker.unit, ttl=way.ttl_us, beat=way.beat_us,
        until=until, secrets=[hash_secret(secret) for secret in secrets],
    )  # fmt: skip


# Starts and ends.


@dataclass
class PlainReport:
    """Commands of one worker that stand next to each other in a group: some of its starts, and its ends."""

    commands: list[Start | Finish]
    started: dict[int, LeaseRef] = field(default_factory=dict)  # by unit: under which lease it is started
    alone: list[int] = field(default_factory=list)  # units that are started, and whose end is not told
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by unit: those that may be plain
    done: bool = False  # whether the fast path has been taken for it
    starts: dict[int, LeaseStatus] = field(default_factory=dict)  # the answers, by unit
    ends: dict[int, LeaseStatus] = field(default_factory=dict)


class PlainReports:
    """The reports of a group, by the identity of their commands."""

    def __init__(self) -> None:
        self.by_command: dict[int, PlainReport] = {}


def look_ahead(commands: Sequence[Command[Any]]) -> dict[int, PlainReport]:
    """Finds the starts and ends of a group that can be carried out together, by the identity of each command."""
    reports: dict[int, PlainReport] = {}
    report, before = None, None
    for command in commands:
        if not isinstance(command, Start | Finish) or command.vouched_by or not can_be_checked(command):
            report = None
            continue
        speaker = command.tenant, command.actor, command.reason, command.cause
        if report is None or speaker != before:
            report, before = PlainReport([]), speaker
        report.commands.append(command)
        reports[id(command)] = report
    for each in {id(report): report for report in reports.values()}.values():
        read_report(each)
    return reports


def declare_ahead(
    reads: Prefetches, cache: EngineCache, commands: Sequence[Command[Any]], reports: Mapping[int, PlainReport]
) -> list[BoundQuery[Any]]:
    """What the first commands of a group ask first, by their prefetches or by the fast path: it is sent with BEGIN."""
    ahead, report = declare_reads(reads, cache, commands), reports.get(id(commands[0]))
    if report and report.outcomes:
        ahead.append(bind_held_groups(sorted(report.outcomes), commands[0].tenant))
    if report and report.alone:
        ahead.append(bind_startables(report.alone, commands[0].tenant))
    return ahead


def answer_plain(tx: UnitOfWork, command: Start | Finish) -> Mapping[int, LeaseStatus]:
    """The answers to those messages of a command that the fast path has carried out, by unit."""
    report = tx.state(PlainReports).by_command.get(id(command))
    if report is None:
        return {}
    if not report.done:
        report.done = True
        start_plain(tx, report)
        finish_plain(tx, report)
        if tx.connection.many_writers and (left := [unit for unit in report.alone if unit not in report.starts]):
            tx.prefetch([*declare_held(tx.cache, left), BODIES.bind(ids=left)])
    return report.starts if isinstance(command, Start) else report.ends


def start_plain(tx: UnitOfWork, report: PlainReport) -> None:
    """Starts what the report tells of that is plain, and whose end it does not tell of."""
    alone = [unit for unit in report.alone if unit not in tx.rows.units]
    if not alone:
        return
    paths, stamp = tx.cache.state(PlainPaths), make_stamp(report.commands[0])
    groups: dict[tuple[str, str, str, int, int, int], list[Startable]] = {}
    for unit in tx.run(bind_startables(alone, tx.tenant)):
        ref = report.started[unit.id]
        if ref.fence == unit.fence and hash_secret(ref.lease) == unit.secret and is_readable(unit.policy):
            place = unit.lifecycle, unit.state, unit.lease, unit.version, unit.attempt, unit.fence
            groups.setdefault(place, []).append(unit)
    acts: list[Act] = []
    begun: list[Unit] = []
    for units in groups.values():
        if path := paths.find_start(tx, units[0]):
            begun += [begin(tx, unit, path) for unit in units]
            acts += [
                start_together(tx, path, stamp, units[start : start + UNITS_MAX])
                for start in range(0, len(units), UNITS_MAX)
            ]
    if acts:
        write_acts(tx, acts)
        clocked = [unit for unit in begun if unit.deadline_at is not None]
        for each in clocked:
            tx.cache.note_clock(tx.tenant, each.deadline_at or tx.now)
        with tx.connection.pipeline():
            if clocked:
                tx.connection.update(clocked, ("wake_at", "deadline_at"), "id")
            renew_leases(tx.connection, begun)
        for started in begun:
            until = started.lease_until or 0
            report.starts[started.id] = LeaseStatus(
                started.id, True, started.state, until=until, lasts_us=until - tx.now
            )


def begin(tx: UnitOfWork, unit: Startable, path: Path) -> Unit:
    """What changes for a unit that begins now, beside what its act writes: how long it may run, and its lease."""
    limit_us = timing.time_limit(tx.lifecycles[unit.lifecycle], path.target, policy_in(unit.policy))
    deadline_at = None if limit_us is None else tx.now + limit_us
    return Unit(
        id=unit.id, tenant=tx.tenant, lane=0, lifecycle=unit.lifecycle, state=path.target, lease_id=unit.lease_id,
        lease_until=renew(tx, unit), deadline_at=deadline_at, wake_at=deadline_at,
    )  # fmt: skip


def start_together(tx: UnitOfWork, path: Path, stamp: Stamp, units: Sequence[Startable]) -> Act:
    """The act by which these units begin, which are in the same place."""
    return make_act(
        tx, path, stamp, units[0], [unit.id for unit in units], [unit.act for unit in units], fence=units[0].fence,
        leases=[unit.lease_id for unit in units],
    )  # fmt: skip


def finish_plain(tx: UnitOfWork, report: PlainReport) -> None:
    """Ends what the report tells of that is plain, starts included."""
    started, known = report.started, tx.rows.units
    outcomes = {unit: outcome for unit, outcome in report.outcomes.items() if unit not in known}
    if not outcomes:
        return
    paths, stamp = tx.cache.state(PlainPaths), make_stamp(report.commands[0])
    acts: list[Act] = []
    results: dict[int, str] = {}
    for group in tx.run(bind_held_groups(sorted(outcomes), tx.tenant)):
        for starts in (True, False):
            way = paths.find_end(tx, group, starts=starts)
            units = [
                row for row in group.units
                if (row[0] in started) is starts and is_sound(outcomes[row[0]], group.fence, row[3])
                and (not starts or started[row[0]] == outcomes[row[0]].held)
            ]  # fmt: skip
            if way is None or not units:
                continue
            until = renew(tx, group) if way.renews else group.until
            acts += [
                end_together(tx, way, stamp, group, units[start : start + UNITS_MAX], outcomes, results, until)
                for start in range(0, len(units), UNITS_MAX)
            ]
            add_answers(tx, report, way, [row[0] for row in units], until, starts=starts)
            count_finished(tx, group.holder, len(units), stamp)
    if acts:
        if results:
            bodies = [Body(unit=unit, tenant=tx.tenant, task="", result=results[unit]) for unit in sorted(results)]
            with tx.connection.pipeline():
                tx.connection.update(bodies, ("result",), "unit")
        write_acts(tx, acts)
        tx.changes.ended.update(unit for act in acts for unit in act.units)
        tx.changes.freed_tenants.add(tx.tenant)


def read_report(report: PlainReport) -> None:
    """Finds under which leases units are started, and which outcomes may be plain. None is of a unit named twice."""
    started, outcomes, twice = report.started, report.outcomes, set[int]()
    for command in report.commands:
        if isinstance(command, Start):
            for ref in command.held:
                if ref.unit in started or ref.unit in outcomes:
                    twice.add(ref.unit)
                started[ref.unit] = ref
            continue
        for outcome in command.outcomes:
            if outcome.held.unit in outcomes or not is_plain_success(outcome):
                twice.add(outcome.held.unit)
            outcomes[outcome.held.unit] = outcome
    report.alone = sorted(unit for unit in started.keys() - outcomes.keys() - twice if 0 < unit <= IDS_MAX)
    for unit in twice & outcomes.keys():
        del outcomes[unit]


def can_be_checked(command: Start | Finish) -> bool:
    """Whether the verb would allow every outcome of a command; if not, it refuses all of it."""
    try:
        make_stamp(command)
        for outcome in command.outcomes if isinstance(command, Finish) else ():
            if not is_plain_success(outcome):
                check_outcome(outcome)
            elif outcome.result != NULL:
                check_result(outcome.result)
    except InterlockError:
        return False
    return True


def is_plain_success(outcome: Outcome) -> bool:
    """Whether nothing is told of an attempt but that it succeeded, and with which result."""
    return (
        outcome.ended == "success" and not outcome.cost and not outcome.error and not outcome.traceback
        and outcome.reason_code is None and outcome.stage == "exec" and outcome.error_class == TRANSIENT
        and (outcome.result == NULL or parse_reference(outcome.result) is None)
    )  # fmt: skip


def is_sound(outcome: Outcome, fence: int, secret: str) -> bool:
    """Whether an outcome comes from whoever holds the lease with this hash."""
    return outcome.held.fence == fence and hash_secret(outcome.held.lease) == secret


def renew(tx: UnitOfWork, held: HeldGroup | Startable) -> int:
    """When leases end that last for their whole time again; they are never shortened."""
    rules = tx.lifecycles[held.lifecycle].options.lease
    assert rules
    return max(timing.lease_end_at(rules, tx.now, held.ttl, held.beat), held.until)


def end_together(
    tx: UnitOfWork, way: PlainEnd, stamp: Stamp, group: HeldGroup, units: Sequence[tuple[int, int, int, str]],
    outcomes: Mapping[int, Outcome], results: dict[int, str], until: int,
) -> Act:  # fmt: skip
    """The act by which these units succeed, which are in the same place; their results are added."""
    given = {row[0]: outcomes[row[0]].result for row in units}
    results.update((unit, result) for unit, result in given.items() if result != NULL)
    digests = [None if result == NULL else digest_result(result) for result in given.values()]
    return make_act(
        tx, way.path, stamp, group, list(given), [row[1] for row in units], fence=group.fence, until=until,
        leases=[row[2] for row in units], details=digests if any(digests) else None,
    )  # fmt: skip


def add_answers(
    tx: UnitOfWork, report: PlainReport, way: PlainEnd, units: Sequence[int], until: int, *, starts: bool
) -> None:  # fmt: skip
    """What the holder is told of units that have succeeded."""
    lasts_us, target = max(0, until - tx.now), way.path.target
    if starts:
        report.starts.update(
            (unit, LeaseStatus(unit, True, way.started, until=until, lasts_us=lasts_us)) for unit in units
        )
    report.ends.update((unit, LeaseStatus(unit, True, target, until=until, lasts_us=lasts_us)) for unit in units)


def count_finished(tx: UnitOfWork, holder: int, count: int, stamp: Stamp) -> None:
    """A worker holds so many units no more, because it has finished them."""
    given_back = tx.state(WorkerChanges).given_back
    before, finished, _ = given_back.get((tx.tenant, holder), (0, 0, stamp))
    given_back[tx.tenant, holder] = before + count, finished + count, Stamp(stamp.actor)


# Writing.


def make_act(
    tx: UnitOfWork, path: Path, stamp: Stamp, place: Claimable | Startable | HeldGroup | WorkerPlace,
    units: list[int],
    before: list[int], *, fence: int, payload: str = NOTHING, worker: int | None = None, ttl: int | None = None,
    beat: int | None = None, until: int | None = None, leases: list[int | None] | None = None,
    secrets: list[str] | None = None, details: list[str | None] | None = None,
) -> Act:  # fmt: skip
    """An act of this transaction over units that are in one place."""
    tx.changes.acts += 1
    return Act(
        id=tx.connection.act_id(tx.changes.acts), tenant=tx.tenant, path=path.id, path_digest=path.digest,
        version=place.version, attempt=place.attempt, fence=fence, at=tx.now, actor=stamp.actor, reason=stamp.reason,
        cause=stamp.cause, payload=payload, available=0, worker=worker, ttl=ttl, beat=beat, until=until, units=units,
        before=before, leases=leases, secrets=secrets, details=details,
    )  # fmt: skip


def write_acts(tx: UnitOfWork, acts: Sequence[Act]) -> None:
    """Writes acts at once, so that whoever reads their units in this transaction finds them moved."""
    with tx.connection.pipeline():
        tx.connection.write_acts(acts, ())
    units = [unit for act in acts for unit in act.units]
    tx.prefetched.clear()
    if tx.cache.held and tx.cache.held.units:
        tx.cache.held.forget(units)
    tx.changes.count += 1
    tx.changes.written.update(units)
    tx.changes.proof = choose_proof(tx.changes.proof, acts, ())
