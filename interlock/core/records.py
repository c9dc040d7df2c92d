"""What a holder asks to be remembered: progress, checkpoints, step results, artifacts, logs and compensations."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from interlock.core.leases import each
from interlock.core.notes import note, verbose_kept_us
from interlock.core.validation import one_of
from interlock.kernel.commands import RECORDS, Command, Finish, LeaseRef, LeaseStatus, Record
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Artifact, Unit
from interlock.store.queries.for_verbs import has_artifact, has_note, load_notes
from interlock.store.unit_of_work import UnitOfWork

VERBOSE = ("progress", "log")
ONCE = ("step", "compensation")


def record(tx: UnitOfWork, command: Record) -> list[LeaseStatus]:
    """What the holder says is remembered; a step result or an artifact once, and the first one stays."""
    one_of("kind", command.kind, RECORDS)
    for hook in tx.hooks.before_record:
        hook(command)

    def verb(unit: Unit, place: int) -> None:
        if command.kind == "artifact":
            keep_artifact(tx, unit, command)
        elif command.kind not in ONCE or not has_note(tx, unit.id, command.kind, command.name):
            keep_us = verbose_kept_us(tx) if command.kind in VERBOSE else 0
            note(tx, unit.id, command.kind, command.payload, name=command.name, fence=unit.fence, keep_us=keep_us)

    return each(tx, command, command.held, verb)


def look_ahead(tx: UnitOfWork, commands: Iterable[Command[Any]]) -> None:
    """What these commands will ask of the database is known already, of all of them at once."""
    tx.load_units({held.unit for command in commands for held in held_of(command)})
    units: dict[tuple[str, str], list[int]] = {}
    for command in commands:
        if isinstance(command, Record) and command.kind in ONCE:
            units.setdefault((command.kind, command.name), []).extend(held.unit for held in command.held)
    for (kind, name), some in units.items():
        load_notes(tx, kind, name, some)


def held_of(command: Command[Any]) -> Iterable[LeaseRef]:
    """The leases that a command speaks for."""
    if isinstance(command, Finish):
        return [outcome.held for outcome in command.outcomes]
    return getattr(command, "held", ())


def keep_artifact(tx: UnitOfWork, unit: Unit, command: Record) -> None:
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
