"""What workers do: claim, start, beat, finish and give back, each under a lease that is judged first."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from interlock.core.advance import Stamp, ToFollow, advance, asked_by, change, count
from interlock.core.effective_policy import counted, policy_of, tally
from interlock.core.grants import grant, terms_of
from interlock.core.lease_end import close, lose_in_place
from interlock.core.lease_secrets import check_nonce, hash_nonce, hashed, refuse_other_nonce, secret
from interlock.core.notes import beats_kept_us, note
from interlock.core.outcomes import (
    NULL,
    check,
    check_cost,
    failure,
    keep_result,
    keep_traceback,
    said_before,
    spent,
    tells_no_more,
)
from interlock.core.tick import WAKE_LEAST, wake
from interlock.core.validation import between, named
from interlock.core.withhold import ask_each
from interlock.core.workers import Taking, WorkerChanges, glimpse, heard_of, serves, take_on
from interlock.kernel import policy
from interlock.kernel.commands import (
    CONFLICT,
    TRANSIENT,
    Claim,
    Command,
    Enter,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    LeaseStatus,
    Outcome,
    Release,
    Start,
)
from interlock.kernel.errors import NotWanted, Refused, Stale
from interlock.kernel.lifecycle import BY_HOLDER, Category, Owner
from interlock.kernel.metrics import CONFLICTS, STALE
from interlock.kernel.paths import SELF
from interlock.kernel.rows import Event, Unit
from interlock.store.cache import EngineCache
from interlock.store.prefetch import Queries, declare_claim
from interlock.store.queries.claims import find_claimable
from interlock.store.queries.for_verbs import find_closing_event, has_note, load_held_units, read_remembered
from interlock.store.queries.tenants import count_held_now, get_max_held
from interlock.store.unit_of_work import Picks, UnitOfWork

CLAIM_MAX = 10_000
FENCE_MAX = 2**31 - 1  # no unit ever has a higher one, and no table can hold it
Verb = Callable[[Unit, int], None]
Again = Callable[[Event, Unit, int], bool]


def claim(tx: UnitOfWork, command: Claim) -> list[LeaseGrant]:
    """The worker holds up to `limit` units, the most urgent first: a fair share of each of its queues."""
    between("limit", command.limit, 1, CLAIM_MAX)
    check_nonce(command.nonce)
    most = get_max_held(tx, tx.tenant)  # limits are locked first
    seen = glimpse(tx, command.worker, command.key) if most is None else None
    worker = seen or heard_of(tx, command.worker)  # before time is let pass: it is alive, whatever it did not say
    if tx.connection.many_writers:
        tx.cache.remember_worker(worker)
    wake(tx, command.limit)
    if not seen:
        serves(worker, command.queues)
    if worker.claim_key == command.key:
        refuse_other_nonce(command, worker.claim_nonce_hash)
        return replay(tx, command)
    room = min(command.limit, worker.capacity - worker.holding)
    if most is not None:
        room = min(room, most - count_held_now(tx, tx.tenant))
    if worker.draining or room <= 0:
        return []
    found = tx.state(Picks).pick(find_claimable(tx, command.queues, worker.capabilities, room, command.key))
    stamp, payload = asked_by(command), {"worker": worker.name}
    terms = ask_each(found, lambda unit: terms_of(tx, unit))
    leases = [secret(command.nonce, command.key, unit.id, policy.next_fence(unit.fence)) for unit in found]
    for unit, lease, granted in zip(found, leases, terms, strict=True):
        grant(tx, unit, granted, hashed(lease), worker.unit, stamp, payload)
    taking = Taking(
        len(found), command.key, hash_nonce(command.nonce), command.queues, worker.claim_key, Stamp(command.actor)
    )
    if seen:
        tx.state(WorkerChanges).claims[tx.tenant, worker.unit] = taking
    else:
        take_on(tx, worker, taking)
    return handed_over(tx, found, leases)


def claim_reads(cache: EngineCache, claims: Sequence[Claim]) -> Queries:
    """What the first of these claims will read; the others read what it has left."""
    first = claims[0]
    return declare_claim(cache, first.tenant, first.worker, first.queues, first.limit, WAKE_LEAST)


def handed_over(tx: UnitOfWork, units: list[Unit], leases: list[str]) -> list[LeaseGrant]:
    """What a worker is told of units that it holds, with what earlier attempts left for this one."""
    memory = read_remembered(tx, [unit.id for unit in units if unit.fence > 1])
    more = [hook(tx, units) for hook in tx.hooks.grant_fields]
    grants = []
    for unit, lease in zip(units, leases, strict=True):
        body, (checkpoint, steps) = tx.body(unit), memory.get(unit.id, (None, {}))
        grants.append(
            LeaseGrant(
                unit=unit.id, task=body.task, input=body.input, attempt=unit.attempt, fence=unit.fence,
                lease=lease, until=unit.lease_until or 0, ttl_us=unit.lease_ttl or 0,
                beat_us=unit.lease_beat or 0, correlation=body.correlation, trace=body.trace,
                timeout_us=policy_of(body).timeout_us, checkpoint=checkpoint, steps=tuple(steps.items()),
                lifecycle=unit.lifecycle, lasts_us=lasts_us(tx, unit), parent=unit.parent, version=unit.version,
                **{name: value for fields in more if unit.id in fields for name, value in fields[unit.id].items()},
            )
        )  # fmt: skip
    return grants


def replay(tx: UnitOfWork, command: Claim) -> list[LeaseGrant]:
    """The same claim again: the leases that it got and that are still live, and no other."""
    held = [unit for unit in load_held_units(tx, command.worker) if unit.lease_until and unit.lease_until > tx.now]
    leases = [secret(command.nonce, command.key, unit.id, unit.fence) for unit in held]
    mine = [(unit, lease) for unit, lease in zip(held, leases, strict=True) if unit.lease_hash == hashed(lease)]
    return handed_over(tx, [unit for unit, _ in mine], [lease for _, lease in mine])


def each(
    tx: UnitOfWork,
    command: Command[Any],
    held: Iterable[LeaseRef],
    verb: Verb,
    again: Again = lambda event, unit, place: False,
) -> list[LeaseStatus]:
    """Every message is judged; one that is stale or not listed is refused, and changes nothing.

    `again` tells whether a message says once more what ended its lease: then it is answered once more.
    """
    said = list(held)
    tx.load_units(one.unit for one in said)
    tx.read_ended_leases(dict.fromkeys(one.unit for one in said))
    heard = [hear(tx, one, place, verb, again) for place, one in enumerate(said)]
    for one, answer in zip(said, heard, strict=True):
        if not answer.accepted and answer.state:
            remember_refusal(tx, command, one, answer)
            if answer.why in STALE:
                tx.counters.metrics[tx.tenant, CONFLICTS, type(command).__name__.lower()] += 1
    return heard


def remember_refusal(tx: UnitOfWork, command: Command[Any], held: LeaseRef, answer: LeaseStatus) -> None:
    """Whoever asks why sees for two days who was refused; the same refusal once."""
    verb = type(command).__name__
    name = f"{held.fence}.{verb}.{answer.why}"
    if not has_note(tx, held.unit, "refused", name):
        told = msgspec.json.encode({"by": command.actor, "verb": verb, "why": answer.why}).decode()
        note(tx, held.unit, "refused", told, name=name, fence=held.fence, keep_us=beats_kept_us(tx))


def hear(tx: UnitOfWork, held: LeaseRef, place: int, verb: Verb, again: Again) -> LeaseStatus:
    unit = tx.rows.units.get(held.unit)
    if unit is None or unit.lease is None or unit.tenant != tx.tenant or not 0 <= held.fence <= FENCE_MAX:
        return LeaseStatus(unit=held.unit, accepted=False, why="UNKNOWN_LEASE")
    why = policy.stale(
        tx.lease_lifecycle,
        unit.lease,
        fence=unit.fence,
        owner=unit.lease_hash or "",
        until=unit.lease_until or 0,
        by=hashed(held.lease) if held.fence == unit.fence else unit.lease_hash or "",
        said=held.fence,
        now=tx.now,
    )
    if why:
        ended = find_closing_event(tx, unit) if why in ("LEASE_ENDED", "LEASE_REVOKED") else None
        if ended and again(ended, unit, place):
            return LeaseStatus(unit=unit.id, accepted=True, state=ended.target, until=unit.lease_until or 0)
        return LeaseStatus(unit=unit.id, accepted=False, state=unit.state, why=why)
    try:
        verb(unit, place)
    except (Refused, Stale, NotWanted) as refused:
        return LeaseStatus(unit=unit.id, accepted=False, state=unit.state, why=str(refused))
    asked = unit.asked_at is not None
    return LeaseStatus(
        unit=unit.id, accepted=True, state=unit.state, cancel=asked, until=unit.lease_until or 0,
        lasts_us=lasts_us(tx, unit),
    )  # fmt: skip


def lasts_us(tx: UnitOfWork, unit: Unit) -> int:
    """How long a lease lasts from now on, for workers whose clock tells another time."""
    return max(0, (unit.lease_until or 0) - tx.now)


def start(tx: UnitOfWork, command: Start) -> list[LeaseStatus]:
    stamp = asked_by(command)

    def verb(unit: Unit, place: int) -> None:
        lifecycle = tx.lifecycle(unit)
        if not lifecycle.allows(unit.state, "start") and not activation(tx, unit):
            return  # said before
        policy.choose(lifecycle, unit.state, "start")
        advance(tx, unit, "start", stamp, lease=activation(tx, unit), lease_until=renewed(tx, unit))

    return each(tx, command, command.held, verb)


def renewed(tx: UnitOfWork, unit: Unit) -> int:
    """When the lease ends that lasts for its whole time again; it is never shortened."""
    terms = tx.lifecycle(unit).options.lease
    assert terms
    until = policy.lease_end_at(terms, tx.now, unit.lease_ttl or 0, unit.lease_beat or 0)
    return max(until, unit.lease_until or 0)


def activation(tx: UnitOfWork, unit: Unit) -> tuple[str, ...]:
    return ("activate",) if tx.lease_lifecycle.allows(unit.lease, "activate") else ()


def heartbeat(tx: UnitOfWork, command: Heartbeat) -> list[LeaseStatus]:
    stamp = asked_by(command)
    beats: dict[int, list[tuple[int, int, bool]]] = {}  # by worker: unit, fence, and whether its lease got longer

    def verb(unit: Unit, place: int) -> None:
        lifecycle, until = tx.lifecycle(unit), unit.lease_until
        trigger = policy.beat(lifecycle, unit.state) if command.running else ""
        if trigger:
            advance(tx, unit, trigger, stamp, lease=activation(tx, unit))
        change(tx, unit, lease_until=renewed(tx, unit))
        beats.setdefault(unit.holder or 0, []).append((unit.id, unit.fence, unit.lease_until != until))

    heard = each(tx, command, command.held, verb)
    for worker, units in beats.items():
        heard_of(tx, worker).renewals += sum(longer for _, _, longer in units)
        note(tx, worker, "beat", msgspec.json.encode(units).decode(), keep_us=beats_kept_us(tx))
    return heard


def finish(tx: UnitOfWork, command: Finish) -> list[LeaseStatus]:
    stamp = asked_by(command)
    for outcome in command.outcomes:
        check(outcome)

    def verb(unit: Unit, place: int) -> None:
        end(tx, unit, command.outcomes[place], stamp)

    def again(event: Event, unit: Unit, place: int) -> bool:
        return said_before(event, tx.body(unit), command.outcomes[place])

    return each(tx, command, (outcome.held for outcome in command.outcomes), verb, again)


def end(tx: UnitOfWork, unit: Unit, outcome: Outcome, stamp: Stamp) -> None:
    """The holder's word about how its work ended is carried out, unless a guard of a plugin does not accept it."""
    for guard in tx.hooks.end_guards:
        guard(tx, unit, outcome)
    lifecycle, body, payload = tx.lifecycle(unit), tx.body(unit), {}
    said = body.error
    if outcome.ended == "failure" and outcome.error_class == CONFLICT:
        raise Stale("LEASE_CONFLICT")  # its holder saw another one: nothing that it says counts
    if outcome.ended == "success":
        trigger, cause = policy.choose(lifecycle, unit.state, "complete"), "finish"
    elif outcome.ended == "cancelled":
        trigger, cause = policy.stopped(lifecycle, unit.state, asked=unit.asked_at is not None), "stop"
    else:
        trigger, cause, payload = failed(tx, unit, outcome), "finish", failure(outcome)
        body.error = payload["error"]
        keep_traceback(tx, unit, outcome)
    if lifecycle.category(unit.state) is Category.CLOSING:
        cause = "stop"  # whatever it says now, it answers the cancel (A4-13)
    close(tx, unit, trigger, cause, stamp, {**payload, **spent(tx, unit, outcome.cost)}, outcome.after_us)
    if outcome.ended == "success":
        keep_result(tx, unit, None if outcome.result == NULL else outcome.result)
    if body.error != said:
        tx.change(body)


def failed(tx: UnitOfWork, unit: Unit, outcome: Outcome) -> str:
    """The trigger that a failure comes to; it is counted."""
    lifecycle, retryable = tx.lifecycle(unit), outcome.error_class == TRANSIENT
    trigger = policy.after_failure(lifecycle, unit.state, tally(tx, unit, failures=1), retryable=retryable)
    count(tx, counted(tx, unit), failures=1)
    if retryable:
        tx.state(ToFollow).retryable.add(unit.id)
    if trigger == "fail" and policy_of(tx.body(unit)).undoes:
        return policy.choose(
            lifecycle, unit.state, "exhaust", "fail"
        )  # a compensation that failed is a dead letter (A2-16)
    return trigger


def release(tx: UnitOfWork, command: Release) -> list[LeaseStatus]:
    """Units are given back; no attempt is spent."""
    stamp = asked_by(command)
    said = "release" if command.snooze_us is None and command.signal is None else "snooze"
    between("snooze_us", command.snooze_us or 0, 0)
    check_cost(command.cost)
    if command.signal is not None:
        named("signal", command.signal)

    def verb(unit: Unit, place: int) -> None:
        lifecycle = tx.lifecycle(unit)
        snoozes = said == "snooze" and command.signal is None
        if snoozes and unit.snoozes >= lifecycle.options.budget.snoozes:
            raise Refused(lifecycle.name, unit.state, said, lifecycle.triggers(unit.state))
        if lifecycle.allows(unit.state, "reclaim") and not lifecycle.allows(unit.state, said):
            lose_in_place(tx, unit, "revoke", stamp)
            return
        trigger = policy.after_release(lifecycle, unit.state, tally(tx, unit), said)
        if snoozes:
            count(tx, unit, snoozes=1)
        due_at = unit.due_at if command.snooze_us is None else tx.now + command.snooze_us
        found = [hook(tx, unit, command, due_at) for hook in tx.hooks.on_release]
        payload, columns = next((one for one in found if one is not None), ({}, {"due_at": due_at}))
        close(tx, unit, trigger, "force", stamp, {**payload, **spent(tx, unit, command.cost)}, **columns)

    return each(tx, command, command.held, verb, lambda event, unit, place: given_back(event, said, command.actor))


def given_back(event: Event, said: str, actor: str) -> bool:
    """Whether this is what its holder did by giving a unit back: it waits where it is, or a cancel ended it."""
    ended = event.trigger in (SELF, "stopped", "overdue") and tells_no_more(event)
    return event.trigger == said or (ended and event.actor == actor)


def enter(tx: UnitOfWork, command: Enter) -> list[LeaseStatus]:
    """The phase is entered by the unit itself, or by the run that it works for."""
    stamp = asked_by(command)

    def verb(unit: Unit, place: int) -> None:
        of_unit = tx.lifecycle(unit).moves.get((unit.state, command.phase))
        if of_unit and of_unit.owner is Owner.HOLDER and command.phase not in BY_HOLDER:
            advance(tx, unit, command.phase, stamp)
            return
        run = tx.unit(unit.parent) if unit.parent else unit
        of_run = tx.lifecycle(run).move(run.state, command.phase)
        if run is unit or of_run.owner not in (Owner.HOLDER, Owner.VALIDATOR):
            raise Refused(run.lifecycle, run.state, command.phase, tx.lifecycle(run).triggers(run.state))
        advance(tx, run, command.phase, stamp)

    return each(tx, command, command.held, verb)
