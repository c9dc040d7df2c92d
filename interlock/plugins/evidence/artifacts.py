"""Artifacts: blobs that an attempt leaves under a name."""

import re

from interlock.core.validation import NAME_MAX
from interlock.kernel.blobs import check_digest
from interlock.kernel.commands import AddArtifact, EvidenceStatus
from interlock.kernel.errors import InterlockError
from interlock.plugins.evidence.blobs import use_blob
from interlock.plugins.evidence.late import judge_evidence
from interlock.plugins.evidence.queries import ADD_ARTIFACT, FIND_ARTIFACT
from interlock.store.queries.for_verbs import has_artifact
from interlock.store.queries.old_leases import read_ended_leases
from interlock.store.unit_of_work import UnitOfWork

# A name may become that of a file, and a part of a URL.
NAME = re.compile(r"(?!\.{1,2}$)[^\x00-\x1f\x7f/\\]+")
MEDIA = re.compile(r"[a-zA-Z0-9!#$&^_.+-]{1,60}/[a-zA-Z0-9!#$&^_.+-]{1,60}")


def add_artifact(tx: UnitOfWork, command: AddArtifact) -> EvidenceStatus:
    """Keeps a blob with the attempt of a lease. The same one again is answered; another one of its name is refused."""
    check_artifact_name(command.name)
    digest = check_digest(command.digest)
    if not MEDIA.fullmatch(command.media):
        raise InterlockError(f"media = {command.media[:80]!r} is not allowed; allowed is a type such as text/plain")
    tx.load_units([command.held.unit])
    read_ended_leases(tx, [command.held.unit])
    accepted = judge_evidence(tx, command.held)
    if isinstance(accepted, EvidenceStatus):
        return accepted
    unit, attempt, fence, late = accepted
    place = {"unit": unit.id, "attempt": attempt, "name": command.name}
    known = tx.connection.rows(FIND_ARTIFACT, place)
    if known != [(digest, fence)]:
        if known or has_artifact(tx, unit.id, attempt, command.name):
            raise InterlockError(f"attempt {attempt} has an artifact '{command.name}' already; it is never replaced")
        length = use_blob(tx, unit.tenant, digest, unit.id)
        row = {"tenant": unit.tenant, "fence": fence, "at": tx.now, "late": int(late), "media": command.media}
        tx.connection.rows(ADD_ARTIFACT, {**place, **row, "digest": digest, "length": length})
    return EvidenceStatus(unit.id, accepted=True, late=late, attempt=attempt)


def check_artifact_name(name: str) -> None:
    """Raises InterlockError for a name that could be no file's."""
    if len(name) > NAME_MAX or not NAME.fullmatch(name):
        allowed = f"1 to {NAME_MAX} characters without a slash, and neither . nor .."
        raise InterlockError(f"name = {name[:40]!r} is not allowed; allowed are {allowed}")
