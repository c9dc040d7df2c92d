"""Claims: choose units for a worker, and lease them to it.

What happens, in this order
---------------------------
1. **Limits first.** If the tenant may hold only so many units, its limit is locked, because locks are taken in one
   order (limits, units, acts, leases and workers). Then the worker counts as alive, whatever it missed before.
2. **Timers.** What is due is done (`run_timers`): a unit whose lease has expired, or whose delay has passed, can be
   claimed by the very claim that noticed it.
3. **The same claim again.** A worker that got no answer repeats its claim under the same key. It gets the leases that
   the first one was granted and that are still live (`repeat_claim`), and never a second set of them.
4. **Choice** (`choose_units`). There is room for `limit` units, or fewer by the worker's capacity or the tenant's
   limit. Plugins may take queues away (a pause), filter units, or leave some to other workers. If no plugin has a
   say, plain units go the fast path (`core/fast_path.py`); `store/queries/claims.py` finds the others, the most urgent
   first, with a fair share for each queue.
5. **Grant.** For each unit the terms of its lease are computed (`find_terms`), a secret is made, and `grant` moves it.
   A unit that cannot be granted raises here; the committer withholds it and runs the claim again (`core/exclude.py`).
6. **The worker**, last: how much it holds, and the key of this claim. With many writers its row is written at the very
   end, so that two transactions of one worker hardly wait for each other.
7. **The answer** (`make_grants`): input, secret, terms, and what earlier attempts recorded (steps, a checkpoint).

Why so: a claim is the most frequent transaction of an idle system, so everything that it reads is declared ahead
(`claim_reads`) and costs one round trip together with BEGIN.

What is ugly: with many writers, the row of a worker that held something at its last claim is read without a lock
(`read_worker`). Only the write at the end finds out whether another claim of the same worker came between; then this
one is run again.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from interlock.core.advance import Stamp, make_stamp
from interlock.core.effective_policy import policy_of
from interlock.core.fast_path import grant_plain
from interlock.core.lease_secrets import check_nonce, hash_nonce, hash_secret, make_secret, refuse_other_nonce
from interlock.core.leases import grant, remaining_us
from interlock.core.timers import TIMERS_LEAST, run_timers
from interlock.core.tx_state import ClaimMark, WorkerChanges
from interlock.core.validation import check_range
from interlock.core.withhold import ask_each
from interlock.core.workers import add_queues, mark_alive, mark_claim, read_worker
from interlock.kernel import policy, timing
from interlock.kernel.commands import Claim, LeaseGrant
from interlock.kernel.errors import Corrupt, InterlockError, Refused
from interlock.kernel.rows import Body, Unit, WorkerRow
from interlock.store.acts import LeaseTerms
from interlock.store.cache import CALM, DUE, EngineCache
from interlock.store.hooks import Find, GrantKind
from interlock.store.prefetch import Queries, declare_claim
from interlock.store.queries.claims import find_claimable, urgency
from interlock.store.queries.for_verbs import Urgency, find_next_clock, get_limits, load_held_units, load_lanes
from interlock.store.queries.recorded_steps import Remembered, read_remembered
from interlock.store.queries.tenants import count_held_now, get_max_held
from interlock.store.unit_of_work import Picks, UnitOfWork

CLAIM_MAX = 10_000
NOTHING = Remembered()  # of a first attempt


def claim(tx: UnitOfWork, command: Claim) -> list[LeaseGrant]:
    """Leases up to `limit` units to the worker, the most urgent first: a fair share of each of its queues.

    What is due is done first, so that a unit whose lease has expired or whose delay has passed can be claimed at once.
    The same claim again (by its key) is answered with the leases that it got.
    """
    check_range("limit", command.limit, 1, CLAIM_MAX)
    check_nonce(command.nonce)
    most = get_max_held(tx, tx.tenant) if get_limits(tx, tx.tenant)[0] is not None else None  # limits are locked first
    well = read_worker(tx, command.worker, command.key) if most is None and tx.fast_path else None
    worker = well or mark_alive(tx, command.worker)  # before timers run: it is alive, whatever it did not say
    if tx.connection.many_writers:
        tx.cache.remember_worker(worker)
    calm = most is None and is_calm(tx, command)
    overdue = 0 if calm else run_timers(tx, command.limit)
    if not well:
        add_queues(worker, command.queues)
    if worker.claim_key == command.key:
        refuse_other_nonce(command, worker.claim_nonce_hash)
        return repeat_claim(tx, command)
    room = min(command.limit, worker.capacity - worker.holding)
    if most is not None:
        room = min(room, most - count_held_now(tx, tx.tenant))
    if worker.draining or room <= 0:
        return []
    if not (calm or overdue or most is not None or tx.connection.many_writers):
        note_calm(tx, command)
        calm = is_calm(tx, command)
    fast, units = choose_units(tx, command, worker, room, calm=calm)
    granted = grant_each(tx, command, worker, units) if units else []
    mark = ClaimMark(
        len(fast) + len(granted), command.key, hash_nonce(command.nonce), command.queues, worker.claim_key,
        Stamp(command.actor),
    )  # fmt: skip
    if well:
        tx.state(WorkerChanges).claims[tx.tenant, worker.unit] = mark
    else:
        mark_claim(tx, worker, mark)
    if fast and granted:
        return [lease for _, lease in sorted([*fast, *granted], key=itemgetter(0))]
    return [lease for _, lease in fast or granted]


def grant_each(
    tx: UnitOfWork, command: Claim, worker: WorkerRow, units: list[Unit]
) -> list[tuple[Urgency, LeaseGrant]]:  # fmt: skip
    """Grants these units one by one, as far as the claim may pick them. Returns each lease with its urgency."""
    units = tx.state(Picks).pick(units)
    order = [urgency(unit) for unit in units]  # as they stand before they are granted
    stamp, payload = make_stamp(command), {"worker": worker.name}
    terms = ask_each(units, lambda unit: find_terms(tx, unit))
    secrets = [make_secret(command.nonce, command.key, unit.id, policy.next_fence(unit.fence)) for unit in units]
    for unit, secret, granted in zip(units, secrets, terms, strict=True):
        lease = LeaseTerms(worker.unit, granted.ttl_us, granted.beat_us, granted.until, hash_secret(secret))
        if unit.plain and not unit.fence:
            tx.cache.slow_lanes.discard(unit.lane)
        grant(tx, unit, granted.trigger, lease, stamp, payload, active=granted.active)
    return list(zip(order, make_grants(tx, units, secrets), strict=True))


def is_calm(tx: UnitOfWork, command: Claim) -> bool:
    """Whether it is known that nothing is due, and that plugins keep nothing of these queues from a claim."""
    facts = tx.cache.facts
    is_known = (CALM, tx.tenant, command.queues) in facts and not tx.rows.units
    return is_known and tx.now < facts[DUE, tx.tenant]


def note_calm(tx: UnitOfWork, command: Claim) -> None:
    """It is known from now on, if it is so and plugins go by rows alone, and until when nothing is due."""
    hooks, queues = tx.hooks, command.queues
    of_claims = {*hooks.claim_timers, *hooks.claim_queues, *hooks.claim_filters}
    if not of_claims.issubset(hooks.by_rows) or any(tuple(allow(tx, queues)) != queues for allow in hooks.claim_queues):
        return

    def find_none(room: int) -> list[Unit]:
        return []

    if all(hook(tx, find_none) is find_none for hook in hooks.claim_filters):
        tx.cache.facts |= {(CALM, tx.tenant, queues): True, (DUE, tx.tenant): find_next_clock(tx)}


def choose_units(
    tx: UnitOfWork, command: Claim, worker: WorkerRow, room: int, *, calm: bool
) -> tuple[list[tuple[Urgency, LeaseGrant]], list[Unit]]:
    """Chooses what a claim takes, at most `room` units: what it finds, without what plugins keep from being granted.

    Returns what the fast path has granted, each with its urgency, and the units that are still to be granted.
    """
    queues: Sequence[str] = command.queues
    for allow in () if calm else tx.hooks.claim_queues:
        queues = allow(tx, queues)

    def find_any(wanted: int) -> list[Unit]:
        others = set[int]()  # units that this worker leaves to others
        while True:
            units = find_claimable(tx, queues, worker, wanted + len(others), command.key)
            own = [unit for unit in units if unit.id not in others]
            more = {unit for hook in tx.hooks.left_to_others for unit in hook(tx, worker, own)}
            if not more:
                return own[:wanted]
            others |= more

    find: Find = find_any
    for hook in () if calm else tx.hooks.claim_filters:
        find = hook(tx, find)
    fast, is_all = list[tuple[Urgency, LeaseGrant]](), False
    if find is find_any and not tx.hooks.grant_guards:
        served = load_lanes(tx, tx.tenant).served(tuple(queues), worker.capabilities, worker.tasks)
        fast, is_all = grant_plain(tx, command, worker, served, room)
    return fast, [] if is_all or len(fast) == room else find(room - len(fast))


class GrantTerms(NamedTuple):
    """What a lease is granted on."""

    trigger: str
    ttl_us: int
    beat_us: int
    until: int
    active: bool  # its holder need not acknowledge it first


def find_terms(tx: UnitOfWork, unit: Unit) -> GrantTerms:
    """Returns the terms of the next lease on a unit, and changes nothing. Raises if it cannot be leased."""
    body = tx.body(unit)
    if unit.id in tx.rows.bodiless:
        raise Corrupt("its body is missing")
    for guard in tx.hooks.grant_guards:
        guard(tx, unit)
    known, kind = tx.state(KnownTerms).terms, (unit.lifecycle, unit.state, body.policy)
    if kind not in known:
        known[kind] = make_terms(tx, unit, body)
    return known[kind]


class KnownTerms:
    """The terms of leases that this transaction has worked out, by lifecycle, state and policy of the unit."""

    def __init__(self) -> None:
        self.terms: dict[tuple[str, str, str], GrantTerms] = {}


def make_terms(tx: UnitOfWork, unit: Unit, body: Body) -> GrantTerms:
    """Works out the terms of a lease that is granted now."""
    lifecycle = tx.lifecycle(unit)
    rules = lifecycle.options.lease
    if rules is None:
        raise InterlockError(f"the lifecycle '{lifecycle.name}' has no [lease]")
    trigger = policy.claim_trigger(lifecycle, unit.state, held=False)
    if not trigger:
        raise Refused(lifecycle.name, unit.state, "claim", lifecycle.triggers(unit.state))
    ttl_us, beat_us = timing.clamp_lease_terms(rules, policy_of(body))
    active = policy.activates(lifecycle, lifecycle.move(unit.state, trigger).path[-1])
    until = timing.lease_end_at(rules, tx.now, ttl_us, beat_us, active=active)
    return GrantTerms(trigger, ttl_us, beat_us, until, active)


def claim_reads(cache: EngineCache, claims: Sequence[Claim]) -> Queries:
    """What the first of these claims will read; the others read what it has left."""
    first = claims[0]
    return declare_claim(cache, first.tenant, first.worker, first.queues, first.limit, TIMERS_LEAST)


def make_grants(tx: UnitOfWork, units: list[Unit], secrets: list[str]) -> list[LeaseGrant]:
    """What a worker is told of units that it holds, with what earlier attempts left for this one."""
    memory = read_remembered(tx, [unit.id for unit in units if has_memory(tx, unit)])
    extras = read_grant_fields(tx, units)
    grants = []
    for unit, secret in zip(units, secrets, strict=True):
        body, known = tx.body(unit), memory.get(unit.id, NOTHING)
        grants.append(
            LeaseGrant(
                unit=unit.id, task=body.task, input=body.input, attempt=unit.attempt, fence=unit.fence,
                lease=secret, until=unit.lease_until or 0, ttl_us=unit.lease_ttl or 0,
                beat_us=unit.lease_beat or 0, correlation=body.correlation, trace=body.trace,
                timeout_us=policy_of(body).timeout_us, checkpoint=known.checkpoint,
                steps=tuple((step.name, step.result) for step in known.steps),
                steps_left=known.total - len(known.steps),
                requests=tuple((step.name, step.of) for step in known.steps if step.of is not None),
                lifecycle=unit.lifecycle, lasts_us=remaining_us(tx, unit), parent=unit.parent, version=unit.version,
                **{name: value for fields in extras if unit.id in fields for name, value in fields[unit.id].items()},
            )
        )  # fmt: skip
    return grants


def has_memory(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether earlier attempts may have left something: its own, or those of the unit that it does again in its run."""
    return unit.fence > 1 or (unit.parent is not None and tx.body(unit).retry_of is not None)


def read_grant_fields(tx: UnitOfWork, units: list[Unit]) -> list[Mapping[int, Mapping[str, Any]]]:
    """Returns what plugins tell a worker of units, in the order of the plugins: each of those that it serves."""
    hooks, known = tx.hooks.grant_fields, tx.cache.state(ServedGrants).places
    served: dict[int, list[Unit]] = {}
    for unit in units:
        own = policy_of(tx.body(unit))
        kind = GrantKind(
            has_memory(tx, unit), unit.parent is not None, bool(unit.decides), own.step is not None, own.takes_outputs,
            own.options is not None,
        )  # fmt: skip
        if kind not in known:
            known[kind] = tuple(place for place, hook in enumerate(hooks) if hook.serves(kind))
        for place in known[kind]:
            served.setdefault(place, []).append(unit)
    return [hooks[place].read(tx, served[place]) for place in sorted(served)]


class ServedGrants:
    """The places of the hooks that serve a kind of grant, for the kinds that an engine has met."""

    def __init__(self) -> None:
        self.places: dict[GrantKind, tuple[int, ...]] = {}


def repeat_claim(tx: UnitOfWork, command: Claim) -> list[LeaseGrant]:
    """The same claim again: the leases that it got and that are still live, and no other."""
    held = [unit for unit in load_held_units(tx, command.worker) if unit.lease_until and unit.lease_until > tx.now]
    secrets = [make_secret(command.nonce, command.key, unit.id, unit.fence) for unit in held]
    pairs = [pair for pair in zip(held, secrets, strict=True) if pair[0].lease_hash == hash_secret(pair[1])]
    return make_grants(tx, [unit for unit, _ in pairs], [secret for _, secret in pairs])
