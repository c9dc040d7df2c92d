"""Verbs of a lease holder besides start, heartbeat and finish: release, notes, artifacts, phases."""

from hashlib import sha256

from interlock.core.advance import advance, count, make_stamp
from interlock.core.effective_policy import attempts_used
from interlock.core.leases import apply_each, end_lease, lose_in_place
from interlock.core.notes import note, verbose_kept_us
from interlock.core.outcomes import add_cost, check_cost, is_release_again
from interlock.core.validation import check_choice, check_name, check_range
from interlock.kernel import policy
from interlock.kernel.blobs import parse_reference
from interlock.kernel.commands import RECORDED_ONCE, RECORDS, Enter, LeaseStatus, Record, Release
from interlock.kernel.errors import InterlockError, NotWanted, Refused
from interlock.kernel.guards import BY_HOLDER
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Owner
from interlock.kernel.rows import Artifact, Unit
from interlock.store.hooks import RecordKind
from interlock.store.queries.for_verbs import has_artifact, has_note
from interlock.store.unit_of_work import UnitOfWork

VERBOSE = ("progress", "log")


def record(tx: UnitOfWork, command: Record) -> list[LeaseStatus]:
    """What the holder says is remembered; a step result or an artifact once, and the first one stays."""
    check_choice("kind", command.kind, RECORDS)
    for hook in tx.hooks.before_record:
        hook(command)

    def apply(unit: Unit, index: int) -> None:
        if keep_by_plugins(tx, unit, command):
            return
        if command.kind == "artifact":
            keep_artifact(tx, unit, command)
        elif command.kind not in RECORDED_ONCE or not has_note(tx, unit.id, command.kind, command.name):
            keep_us = verbose_kept_us(tx) if command.kind in VERBOSE else 0
            note(tx, unit.id, command.kind, command.payload, name=command.name, fence=unit.fence, keep_us=keep_us)

    return apply_each(tx, command, command.held, apply)


class ServedRecords:
    """The places of the hooks that serve a kind of record, for the kinds that an engine has met."""

    def __init__(self) -> None:
        self.places: dict[RecordKind, tuple[int, ...]] = {}


def keep_by_plugins(tx: UnitOfWork, unit: Unit, command: Record) -> bool:
    """Whether a plugin has kept what is recorded: each is asked that serves its kind, until one has."""
    hooks, known = tx.hooks.on_record, tx.cache.state(ServedRecords).places
    kind = RecordKind(
        command.kind, unit.parent is not None, command.of is not None, command.usage is not None,
        parse_reference(command.payload) is not None,
    )  # fmt: skip
    if kind not in known:
        known[kind] = tuple(place for place, hook in enumerate(hooks) if hook.serves(kind))
    return any(hooks[place].run(tx, unit, command) for place in known[kind])


def release(tx: UnitOfWork, command: Release) -> list[LeaseStatus]:
    """The holder gives units back, for now or (snooze) for a while. No attempt is spent."""
    stamp = make_stamp(command)
    signals = command.names()
    verb = "release" if command.snooze_us is None and command.outage is None and not signals else "snooze"
    check_range("snooze_us", command.snooze_us or 0, 0)
    check_cost(command.cost)
    for name in signals:
        check_name("signal", name)
    if command.outage is not None:
        check_name("outage", command.outage)

    def apply(unit: Unit, index: int) -> None:
        lifecycle = tx.lifecycle(unit)
        snoozes = verb == "snooze" and command.outage is None and not signals
        if snoozes and unit.snoozes >= lifecycle.options.budget.snoozes:
            raise Refused(lifecycle.name, unit.state, verb, lifecycle.triggers(unit.state))
        in_place = lifecycle.allows(unit.state, "reclaim") and not lifecycle.allows(unit.state, verb)
        if in_place and verb == "release":
            lose_in_place(tx, unit, "force", stamp)
            return
        trigger = "" if in_place else policy.after_release(lifecycle, unit.state, attempts_used(tx, unit), verb)
        if snoozes:
            count(tx, unit, snoozes=1)
        due_at = unit.due_at if command.snooze_us is None else tx.now + command.snooze_us
        plugins = (hook(tx, unit, command, due_at) for hook in tx.hooks.on_release)
        payload, columns = next((answer for answer in plugins if answer is not None), ({}, {"due_at": due_at}))
        cost = add_cost(tx, unit, command.cost)
        if in_place:
            lose_in_place(tx, unit, "force", stamp, cost, **columns)
        else:
            end_lease(tx, unit, trigger, "force", stamp, {**payload, **cost}, **columns)

    return apply_each(
        tx, command, command.held, apply, lambda event, unit, index: is_release_again(event, verb, command.actor)
    )


def keep_artifact(tx: UnitOfWork, unit: Unit, command: Record) -> None:
    """An artifact of this attempt; one of that name is never replaced."""
    if has_artifact(tx, unit.id, unit.attempt, command.name):
        raise InterlockError(
            f"attempt {unit.attempt} of {format_id(unit.lifecycle, unit.id)} has an artifact '{command.name}' already"
        )
    digest = sha256(command.payload.encode()).hexdigest()
    tx.add(
        Artifact(
            unit=unit.id, attempt=unit.attempt, name=command.name, tenant=unit.tenant, fence=unit.fence, at=tx.now,
            digest=digest, data=command.payload,
        )
    )  # fmt: skip


def enter(tx: UnitOfWork, command: Enter) -> list[LeaseStatus]:
    """The phase is entered by the unit itself, or by the run that it works for."""
    stamp = make_stamp(command)

    def apply(unit: Unit, index: int) -> None:
        of_unit = tx.lifecycle(unit).moves.get((unit.state, command.phase))
        if of_unit and of_unit.owner is Owner.HOLDER and command.phase not in BY_HOLDER:
            advance(tx, unit, command.phase, stamp)
            return
        run = tx.unit(unit.parent) if unit.parent else unit
        of_run = tx.lifecycle(run).move(run.state, command.phase)
        if run is unit or of_run.owner not in (Owner.HOLDER, Owner.VALIDATOR):
            raise Refused(run.lifecycle, run.state, command.phase, tx.lifecycle(run).triggers(run.state))
        if of_run.owner is Owner.VALIDATOR and tx.lifecycle(run).settled(of_run.path[-1]):
            raise NotWanted(f"'{command.phase}' is a verdict: checks or people give it, never the holder of the work")
        for guard in tx.hooks.phase_guards:
            guard(tx, run, command.phase)
        advance(tx, run, command.phase, stamp, payload={"fence": unit.fence})  # so it is no verdict of somebody else

    return apply_each(tx, command, command.held, apply)
