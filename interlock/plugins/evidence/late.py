"""Who may still add evidence: the holder of a lease, and for five minutes whoever held one that was taken from it.

A worker that has lost its lease may have the very lines that say why. So its log and its artifacts are taken for a
while after the lease was revoked or has expired, and marked as late, and so is what a step of it came to. None of
this moves anything: the lease stays over, and the next holder is not told of it.
"""

from typing import NamedTuple

from interlock.core.late_leases import find_late_attempt
from interlock.core.leases import judge_message
from interlock.kernel.blobs import parse_reference
from interlock.kernel.commands import Command, EvidenceStatus, LeaseRef, Record
from interlock.kernel.rows import Unit
from interlock.plugins.evidence.queries import ADD_LATE_VALUE, FIND_ARTIFACT, use_blob_row
from interlock.store.queries.for_verbs import has_artifact
from interlock.store.unit_of_work import UnitOfWork


class Accepted(NamedTuple):
    """Evidence that is taken: of which unit and attempt, under which fence, and whether it is late."""

    unit: Unit
    attempt: int
    fence: int
    late: bool


def judge_evidence(tx: UnitOfWork, ref: LeaseRef) -> Accepted | EvidenceStatus:
    """Returns with which attempt evidence is kept, or why it is not taken. The unit must be loaded."""
    status = judge_message(tx, ref, 0, lambda unit, index: None, None)
    if status.accepted:
        unit = tx.rows.units[ref.unit]
        return Accepted(unit, unit.attempt, unit.fence, late=False)
    attempt = find_late_attempt(tx, ref)
    if attempt is None:
        return EvidenceStatus(ref.unit, accepted=False, why=status.why)
    return Accepted(tx.rows.units[ref.unit], attempt, ref.fence, late=True)


def keep_late_value(tx: UnitOfWork, command: Command[object], ref: LeaseRef) -> None:
    """What a step came to, or a small artifact, is kept although it came too late: of each name the first one.

    The next attempt does not find it, and an artifact that came in time is not replaced.
    """
    if not isinstance(command, Record) or command.kind not in ("step", "artifact"):
        return
    attempt = find_late_attempt(tx, ref)
    if attempt is None:
        return
    name = f"step {command.name}" if command.kind == "step" else command.name
    place = {"unit": ref.unit, "attempt": attempt, "name": name}
    if not has_artifact(tx, ref.unit, attempt, name) and not tx.connection.rows(FIND_ARTIFACT, place):
        if blob := parse_reference(command.payload):
            use_blob_row(tx, tx.tenant, blob.digest, ref.unit)
        row = {"tenant": tx.tenant, "fence": ref.fence, "at": tx.now, "value": command.payload}
        tx.connection.rows(ADD_LATE_VALUE, {**place, **row})
