"""Properties of each commit that the laws do not cover: nothing happens too early, to a stranger, or without reason."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from interlock.audit.laws.incremental import CommitReview
from interlock.core.advance import SIGNAL
from interlock.kernel.commands import REASONS, Command, LeaseGrant, Requeue, Rerun, Submit, Submitted
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Event, Unit
from interlock.plugins.parking.signals import BETWEEN
from interlock.store.connection import Connection
from interlock.store.queries.views import notes_of

BACKOFF_MAX_US = 100_000_000  # no lifecycle waits for longer
BY_PERSON = ("resume", "force")  # may open an attempt whatever was asked for


def find_broken_promises(
    lifecycles: Mapping[str, Lifecycle], review: CommitReview, units: Mapping[int, Unit], connection: Connection
) -> Iterator[str]:
    """What one commit did that it should not have done; `units` are all of them, as it left them."""
    by_unit: dict[int, list[Event]] = {}
    for event in review.events:
        by_unit.setdefault(event.unit, []).append(event)
    for was, unit in review.changed:
        if unit is None:
            continue
        for text in check_row(was, unit, units):
            yield f"unit {unit.id}: {text}"
        if was is not None and has_signal(connection, was):
            was = msgspec.structs.replace(was, due_at=None)  # it was woken before it was granted
        for event in by_unit.get(unit.id, ()):
            for text in check_event(lifecycles, was, unit, event):
                yield f"unit {unit.id}, version {event.version}: {text}"
    yield from check_lost_workers(lifecycles, review, by_unit)


def has_signal(connection: Connection, unit: Unit) -> bool:
    """Whether a signal for which a unit was parked has come."""
    key = unit.parked_on or ""
    if unit.due_at is None or not key.startswith(SIGNAL):
        return False
    source, _, names = key.removeprefix(SIGNAL).partition(":")
    notes = notes_of(connection, unit.tenant, int(source))
    return any(note.kind == "signal" and note.name in names.split(BETWEEN) for note in notes)


def check_lost_workers(
    lifecycles: Mapping[str, Lifecycle], review: CommitReview, by_unit: Mapping[int, list[Event]]
) -> Iterator[str]:
    """A worker from which only silence took what it held has completed nothing, and is not called idle for it.

    If something was granted and taken away again in this very commit, nobody can tell whose it was: perhaps a worker's
    that spoke at last, so nothing is promised then.
    """
    taken: dict[int, set[bool]] = {}  # by worker: of each unit that it holds no more, whether its last lease expired
    for was, unit in review.changed:
        if was is None or unit is None or (unit.holder is not None and unit.holder == was.holder):
            continue
        ends = [lifecycles["lease"].category(event.lease_to) for event in by_unit.get(unit.id, ()) if event.lease_to]
        if was.holder is not None:
            taken.setdefault(was.holder, set()).add(ends[-1:] == [Category.FAILURE])
        elif unit.holder is None and ends:
            return
    for worker, lost in taken.items():
        if lost == {True} and any(event.trigger == "free" for event in by_unit.get(worker, ())):
            yield f"worker {worker} was called idle, although all that it held was lost by its silence"


def check_row(was: Unit | None, unit: Unit, units: Mapping[int, Unit]) -> Iterator[str]:
    """Checks a row that a commit wrote."""
    if unit.holder is not None and units[unit.holder].tenant != unit.tenant:
        yield "it is held by a worker of another tenant"
    if unit.available_at is not None and (unit.due_at or 0) > unit.available_at:
        yield f"it may be claimed since {unit.available_at}, and is not due before {unit.due_at}"
    if was is None:
        return
    for name in ("version", "fence", "attempt", "changed_at"):
        if getattr(unit, name) < getattr(was, name):
            yield f"its {name} went back from {getattr(was, name)} to {getattr(unit, name)}"
    if unit.version == was.version and (unit.state, unit.lease, unit.attempt) != (was.state, was.lease, was.attempt):
        yield "it moved, and no event tells of it"


def check_event(lifecycles: Mapping[str, Lifecycle], was: Unit | None, unit: Unit, event: Event) -> Iterator[str]:
    """Checks an event that a commit wrote."""
    lifecycle = lifecycles[event.lifecycle]
    if lifecycle.category(event.target) is Category.DEAD and event.target != event.source:
        yield from dead_letter(event)
    if event.trigger == "retry" and unit.version == event.version and unit.due_at is not None:
        wait_us = unit.due_at - event.at
        if wait_us > BACKOFF_MAX_US:
            yield f"it is to be tried again only after {wait_us / 1e6} s"
    if was is None:
        return
    expired = lifecycles["lease"].moves.get((event.lease_from, "expire"))
    if event.lease_to and expired and event.lease_to == expired.path[-1] and (was.lease_until or 0) > event.at:
        yield f"its lease expired at {event.at}, and was to last until {was.lease_until}"
    if event.lease_to and not event.lease_from and not was.available_at and (was.due_at or 0) > event.at:
        yield f"it was granted at {event.at}, and was not due before {was.due_at}"
    requested = was.asked_at is not None and event.attempt > was.attempt
    if requested and event.trigger not in BY_PERSON and not lifecycle.options.follows:
        yield f"'{event.trigger}' opened an attempt, although a cancel had been asked for"


def dead_letter(event: Event) -> Iterator[str]:
    """Its six fields are there; an owner and the end of a lease only if it ever had one."""
    payload = msgspec.json.decode(event.payload)
    if payload.get("reason_code") not in REASONS:
        yield f"a dead letter for no known reason: {payload.get('reason_code')}"
    wanted = ["last_error", "attempts", "correlation_id", "stage"]
    if event.fence:
        wanted += ["last_owner", "last_lease_expires_at"]
    missing = [name for name in wanted if name not in payload or (name not in ("stage",) and payload[name] is None)]
    if missing:
        yield f"a dead letter without {', '.join(missing)}"


def check_answers(commands: Sequence[Command[Any]], answers: Sequence[Any], units: Mapping[int, Unit]) -> Iterator[str]:
    """What clients are told exists, exists."""
    for command, answer in zip(commands, answers, strict=True):
        for item in answer if isinstance(answer, list) else [answer]:
            if isinstance(item, Submitted) and item.unit not in units:
                yield f"{type(command).__name__} was answered with {item}, and there is no such unit"
            if isinstance(item, LeaseGrant) and (item.unit not in units or units[item.unit].fence < item.fence):
                yield f"{type(command).__name__} was answered with {item}, and nothing was granted"


def check_births(commands: Sequence[Command[Any]], review: CommitReview, actors: Sequence[str]) -> Iterator[str]:
    """Nobody gets more units than were asked for."""
    requested: Counter[str] = Counter()
    for command in commands:
        requested[command.actor] += (
            len(command.work) if isinstance(command, Submit) else isinstance(command, Requeue | Rerun)
        )
    born = Counter(event.actor for event in review.events if event.source is None and event.actor in actors)
    for actor, number in born.items():
        if number > requested[actor]:
            yield f"{actor} asked for {requested[actor]} units, and {number} were made"
