"""What workers do: claim, start, beat, finish and give back, each under a lease that is judged first."""

import hmac
from collections.abc import Callable, Iterable
from hashlib import sha256

from interlock.engine.advance import Stamp, advance, derive
from interlock.engine.ends import close, lose_in_place
from interlock.engine.terms import counted, policy_of, tally
from interlock.engine.tick import wake
from interlock.engine.workers import heard_of, take_on
from interlock.kernel import policy
from interlock.kernel.commands import (
    RECORDS,
    Claim,
    Enter,
    Finish,
    Grant,
    Heard,
    Heartbeat,
    Held,
    Outcome,
    Record,
    Release,
    Start,
)
from interlock.kernel.errors import InterlockError, Refused
from interlock.kernel.lifecycle import BY_HOLDER, Category, Owner
from interlock.kernel.rows import Artifact, Note, Unit
from interlock.store.finders import claimable, has_artifact, has_note, held_by, lanes_for
from interlock.store.tx import Tx

VERBOSE_US = 14 * 86_400_000_000  # how long what is verbose is kept


def secret(nonce: str, unit: int, fence: int) -> str:
    """The id of a lease: nobody who does not know the claim's nonce can guess it."""
    return hmac.new(nonce.encode(), f"{unit}:{fence}".encode(), sha256).hexdigest()


def hashed(lease: str) -> str:
    return sha256(lease.encode()).hexdigest()


def claim(tx: Tx, command: Claim) -> list[Grant]:
    """The worker holds up to `limit` units, the most urgent first."""
    wake(tx, command.limit)
    worker = heard_of(tx, command.worker)
    if worker.claim_key == command.key:
        return replay(tx, command, worker.claim_nonce or "")
    room = min(command.limit, worker.capacity - worker.holding)
    if worker.draining or room <= 0:
        return []
    lanes = lanes_for(tx, command.tenant, command.queues, set(worker.capabilities.split(",")))
    grants = [grant(tx, unit, command) for unit in claimable(tx, lanes, room)]
    worker.claim_key, worker.claim_nonce = command.key, command.nonce
    take_on(tx, worker, len(grants), Stamp(command.actor))
    return grants


def grant(tx: Tx, unit: Unit, command: Claim) -> Grant:
    """A new lease on a unit, with a fence that is higher than all before it."""
    life, body = tx.life(unit), tx.body(unit)
    terms = life.options.lease
    assert terms, "the lints want a [lease] wherever a worker may claim"
    ttl_us = checked_ttl(command.ttl_us or terms.ttl_us, terms.ttl_min_us, terms.ttl_max_us)
    trigger = policy.claim(life, unit.state, held=False)
    unit.fence = policy.next_fence(unit.fence)
    unit.holder, unit.lease_ttl, unit.lease_beat = command.worker, ttl_us, terms.beat_us
    unit.lease_hash = hashed(secret(command.nonce, unit.id, unit.fence))
    active = policy.activates(life, life.move(unit.state, trigger).path[-1])
    unit.lease_until = policy.lease_end_at(terms, tx.now, ttl_us, terms.beat_us, active=active)
    unit.due_at = None
    advance(tx, unit, trigger, Stamp(command.actor), lease=("grant", "activate") if active else ("grant",))
    begin(tx, unit)
    return granted(unit, command.nonce, body.task, body.input, body.correlation, body.trace)


def granted(unit: Unit, nonce: str, task: str, given: str, correlation: str, trace: str) -> Grant:
    return Grant(
        unit=unit.id, task=task, input=given, attempt=unit.attempt, fence=unit.fence,
        lease=secret(nonce, unit.id, unit.fence), until=unit.lease_until or 0, ttl_us=unit.lease_ttl or 0,
        beat_us=unit.lease_beat or 0, correlation=correlation, trace=trace,
    )  # fmt: skip


def replay(tx: Tx, command: Claim, nonce: str) -> list[Grant]:
    """The same claim again: the leases that it got and that are still live, and no other."""
    held = held_by(tx, command.worker)
    live = [unit for unit in held if unit.lease_hash == hashed(secret(nonce, unit.id, unit.fence))]
    bodies = [tx.body(unit) for unit in live]
    return [
        granted(unit, nonce, body.task, body.input, body.correlation, body.trace)
        for unit, body in zip(live, bodies, strict=True)
        if unit.lease_until and unit.lease_until > tx.now
    ]


def checked_ttl(ttl_us: int, least_us: int, most_us: int) -> int:
    if not least_us <= ttl_us <= most_us:
        raise InterlockError(f"a lease of {ttl_us} µs is not allowed; allowed is {least_us} to {most_us} µs")
    return ttl_us


def begin(tx: Tx, unit: Unit) -> None:
    """The attempt has started, if the unit is active now; its own timeout runs from here."""
    if unit.category != Category.ACTIVE or unit.started_at is not None:
        return
    unit.started_at = tx.now
    timeout_us = policy_of(tx.body(unit)).timeout_us
    if timeout_us is not None and tx.life(unit).allows(unit.state, "time_out"):
        unit.deadline_at = tx.now + timeout_us
        derive(tx, unit)


def each(tx: Tx, held: Iterable[Held], verb: Callable[[Unit, int], None]) -> list[Heard]:
    """Every message is judged; one that is stale or not listed is refused, and changes nothing."""
    said = list(held)
    tx.lock(sorted({one.unit for one in said}))
    return [hear(tx, one, place, verb) for place, one in enumerate(said)]


def hear(tx: Tx, held: Held, place: int, verb: Callable[[Unit, int], None]) -> Heard:
    unit = tx.units.get(held.unit)
    if unit is None or unit.lease is None or unit.tenant != tx.tenant:
        return Heard(unit=held.unit, accepted=False, why="UNKNOWN_LEASE")
    why = policy.stale(
        tx.lives["lease"],
        unit.lease,
        fence=unit.fence,
        owner=unit.lease_hash or "",
        until=unit.lease_until or 0,
        by=hashed(held.lease) if held.fence == unit.fence else unit.lease_hash or "",
        said=held.fence,
        now=tx.now,
    )
    if why:
        return Heard(unit=unit.id, accepted=False, state=unit.state, why=why)
    try:
        verb(unit, place)
    except Refused as refused:
        return Heard(unit=unit.id, accepted=False, state=unit.state, why=str(refused))
    asked = unit.asked_at is not None
    return Heard(unit=unit.id, accepted=True, state=unit.state, cancel=asked, until=unit.lease_until or 0)


def start(tx: Tx, command: Start) -> list[Heard]:
    stamp = Stamp(command.actor)

    def verb(unit: Unit, place: int) -> None:
        if unit.started_at is not None:
            return  # said before
        policy.choose(tx.life(unit), unit.state, "start")
        renew(tx, unit)
        advance(tx, unit, "start", stamp, lease=activation(tx, unit))
        begin(tx, unit)

    return each(tx, command.held, verb)


def renew(tx: Tx, unit: Unit) -> None:
    """The lease lasts for its whole time again; it is never shortened."""
    terms = tx.life(unit).options.lease
    assert terms
    until = policy.lease_end_at(terms, tx.now, unit.lease_ttl or terms.ttl_us, unit.lease_beat or terms.beat_us)
    unit.lease_until = max(until, unit.lease_until or 0)


def activation(tx: Tx, unit: Unit) -> tuple[str, ...]:
    return ("activate",) if tx.lives["lease"].allows(unit.lease, "activate") else ()


def heartbeat(tx: Tx, command: Heartbeat) -> list[Heard]:
    stamp = Stamp(command.actor)

    def verb(unit: Unit, place: int) -> None:
        life = tx.life(unit)
        trigger = policy.beat(life, unit.state) if command.running else ""
        if trigger:
            advance(tx, unit, trigger, stamp, lease=activation(tx, unit))
            begin(tx, unit)
        if unit.holder is not None:
            heard_of(tx, unit.holder)
        renew(tx, unit)
        derive(tx, unit)
        tx.touch(unit)

    return each(tx, command.held, verb)


def finish(tx: Tx, command: Finish) -> list[Heard]:
    stamp = Stamp(command.actor, command.reason)

    def verb(unit: Unit, place: int) -> None:
        end(tx, unit, command.outcomes[place], stamp)

    return each(tx, (outcome.held for outcome in command.outcomes), verb)


def end(tx: Tx, unit: Unit, outcome: Outcome, stamp: Stamp) -> None:
    """The holder's word about how its work ended is carried out."""
    life, body, payload = tx.life(unit), tx.body(unit), {}
    if outcome.ended == "success":
        trigger, cause = policy.choose(life, unit.state, "complete"), "finish"
        body.result = outcome.result
    elif outcome.ended == "cancelled":
        trigger, cause = policy.stopped(life, unit.state, asked=unit.asked_at is not None), "stop"
    else:
        trigger, cause = failed(tx, unit, outcome), "finish"
        body.error = outcome.error
        payload = {"error": outcome.error, "stage": outcome.stage}
    if life.category(unit.state) is Category.CLOSING:
        cause = "stop"  # whatever it says now, it answers the cancel (A4-13)
    close(tx, unit, trigger, cause, stamp, payload, outcome.after_us)
    tx.change(body)


def failed(tx: Tx, unit: Unit, outcome: Outcome) -> str:
    spender = counted(tx, unit)
    spender.failures += 1
    try:
        trigger = policy.after_failure(tx.life(unit), unit.state, tally(tx, unit), retryable=outcome.retryable)
    except Refused:
        spender.failures -= 1
        raise
    tx.touch(spender)
    if outcome.retryable:
        tx.retryable.add(unit.id)
    return trigger


def release(tx: Tx, command: Release) -> list[Heard]:
    """Units are given back; no attempt is spent."""
    stamp = Stamp(command.actor, command.reason)
    said = "release" if command.snooze_us is None else "snooze"

    def verb(unit: Unit, place: int) -> None:
        life = tx.life(unit)
        if said == "snooze" and unit.snoozes >= life.options.budget.snoozes:
            raise Refused(life.name, unit.state, said, life.triggers(unit.state))
        if life.allows(unit.state, "reclaim") and not life.allows(unit.state, said):
            lose_in_place(tx, unit, "revoke", stamp)
            return
        trigger = policy.after_release(life, unit.state, tally(tx, unit), said)
        if said == "snooze":
            unit.snoozes += 1
            unit.due_at = tx.now + (command.snooze_us or 0)
        close(tx, unit, trigger, "force", stamp, {})

    return each(tx, command.held, verb)


def enter(tx: Tx, command: Enter) -> list[Heard]:
    """The phase is entered by the unit itself, or by the run that it works for."""
    stamp = Stamp(command.actor, command.reason)

    def verb(unit: Unit, place: int) -> None:
        of_unit = tx.life(unit).moves.get((unit.state, command.phase))
        if of_unit and of_unit.owner is Owner.HOLDER and command.phase not in BY_HOLDER:
            advance(tx, unit, command.phase, stamp)
            begin(tx, unit)
            return
        run = tx.unit(unit.parent) if unit.parent else unit
        of_run = tx.life(run).move(run.state, command.phase)
        if run is unit or of_run.owner not in (Owner.HOLDER, Owner.VALIDATOR):
            raise Refused(run.lifecycle, run.state, command.phase, tx.life(run).triggers(run.state))
        advance(tx, run, command.phase, stamp)

    return each(tx, command.held, verb)


def record(tx: Tx, command: Record) -> list[Heard]:
    """What the holder says is remembered; a step result or an artifact once, and the first one stays."""
    if command.kind not in RECORDS:
        raise InterlockError(f"'{command.kind}' cannot be recorded; allowed are {', '.join(RECORDS)}")

    def verb(unit: Unit, place: int) -> None:
        if command.kind == "artifact":
            keep_artifact(tx, unit, command)
        elif command.kind != "step" or not has_note(tx, unit.id, "step", command.name):
            expires = tx.now + VERBOSE_US if command.kind in ("progress", "log") else None
            tx.add(
                Note(
                    id=tx.new_id(), tenant=unit.tenant, unit=unit.id, kind=command.kind, name=command.name,
                    fence=unit.fence, at=tx.now, expires=expires, payload=command.payload,
                )
            )  # fmt: skip

    return each(tx, command.held, verb)


def keep_artifact(tx: Tx, unit: Unit, command: Record) -> None:
    """An artifact of this attempt; one of that name is never replaced."""
    if has_artifact(tx, unit.id, unit.attempt, command.name):
        raise InterlockError(f"attempt {unit.attempt} of unit {unit.id} has an artifact '{command.name}' already")
    digest = sha256(command.payload.encode()).hexdigest()
    tx.add(
        Artifact(
            unit=unit.id, attempt=unit.attempt, name=command.name, tenant=unit.tenant, fence=unit.fence, at=tx.now,
            digest=digest, data=command.payload,
        )
    )  # fmt: skip
