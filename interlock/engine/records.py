"""What a holder asks to be remembered: progress, checkpoints, step results, artifacts, logs and compensations."""

from hashlib import sha256

import msgspec

from interlock.engine.compensation import Undo
from interlock.engine.leases import each
from interlock.engine.notes import VERBOSE_US, note
from interlock.engine.words import one_of
from interlock.kernel.commands import RECORDS, Heard, Record
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Artifact, Unit
from interlock.store.finders import has_artifact, has_note
from interlock.store.tx import Tx

VERBOSE = ("progress", "log")
ONCE = ("step", "compensation")


def record(tx: Tx, command: Record) -> list[Heard]:
    """What the holder says is remembered; a step result or an artifact once, and the first one stays."""
    one_of("kind", command.kind, RECORDS)
    if command.kind == "compensation":
        undo_of(command.payload)

    def verb(unit: Unit, place: int) -> None:
        if command.kind == "artifact":
            keep_artifact(tx, unit, command)
        elif command.kind not in ONCE or not has_note(tx, unit.id, command.kind, command.name):
            keep_us = VERBOSE_US if command.kind in VERBOSE else 0
            note(tx, unit.id, command.kind, command.payload, name=command.name, fence=unit.fence, keep_us=keep_us)

    return each(tx, command, command.held, verb)


def undo_of(payload: str) -> Undo:
    """The work that a compensation's payload names."""
    try:
        return msgspec.json.decode(payload, type=Undo)
    except msgspec.MsgspecError as error:
        raise InterlockError(f"a compensation is an object with `task`, and perhaps `input`: {error}") from None


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
