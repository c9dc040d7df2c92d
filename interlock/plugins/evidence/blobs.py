"""Blobs in the database: which there are, who uses them, and when they are deleted.

The bytes are written first, then `AddBlob` says that they are there, and then something names them: an input, a result,
an artifact, a log. Each of these adds a row to `blob_use`, which goes with its unit. A blob is deleted in two phases.
Every hour somebody looks whether it is used, and *marks* it if it is not. One that has been marked for a day, and is
still not used, is *deleted*: its row first, and the file with it. Bytes of which the database was never told, because
their writer died, are deleted a day after they were written. Whoever begins to use a blob writes its row, so that
the two wait for each other; whoever writes bytes anew makes the file new, and a new file is not deleted.
"""

from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from interlock.blobs.store import NO_FOLDER
from interlock.kernel.blobs import BlobRef, check_digest, parse_reference
from interlock.kernel.commands import RECORDED_VALUES, AddBlob, Record
from interlock.kernel.errors import InterlockError, NoBlobs
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.plugins.evidence.queries import (
    DELETE_UNUSED,
    DUE_BLOBS,
    MARK_BLOB,
    RESTORED_COLUMNS,
    add_blob_row,
    add_restored_rows,
    has_blob,
    use_blob_row,
)
from interlock.store.hooks import Moved, MoveKind, Reaction
from interlock.store.unit_of_work import UnitOfWork

HOUR_US = 3_600_000_000
LOOK_EVERY_US = HOUR_US  # how often somebody looks whether a blob is used
UNUSED_KEPT_US = 24 * HOUR_US  # how long a blob is kept that nothing uses
FILE_KEPT = 3_600.0  # seconds for which a file that was just written is not deleted
PENDING_KEPT = 86_400.0  # seconds that whoever has written bytes has to tell the database of them
DELETED_AT_ONCE = 100


def add_blob(tx: UnitOfWork, command: AddBlob) -> bool:
    """The database knows of bytes that were written. Answers whether it did not before."""
    digest = check_digest(command.digest)
    if tx.connection.blobs is None:
        raise NoBlobs(NO_FOLDER)
    length = tx.connection.blobs.renew(tx.tenant, digest)  # who sweeps does not delete them before this is committed
    if length != command.length:
        there = "there are none" if length is None else f"there are {length:,}"
        raise InterlockError(f"blob sha256:{digest} has {command.length:,} bytes, and {there}: write them first")
    return add_blob_row(tx, BlobRef(digest, length), tx.now + LOOK_EVERY_US)


def use_blob(tx: UnitOfWork, tenant: int, digest: str, unit: int) -> int:
    """A unit uses a blob from now on. Returns how many bytes the blob has.

    Raises:
        InterlockError: the database knows of no such blob.
    """
    length = use_blob_row(tx, tenant, digest, unit)
    if length is None:
        raise InterlockError(f"there is no blob sha256:{digest}; send its bytes before you name it")
    return length


def use_values(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Units that were born with a large input, or ended with a large result, use its blob."""
    for unit, was in moved:
        body = tx.rows.bodies.get(unit.id)
        if body is None:
            continue
        for text in (body.input if was is None else None, body.result if unit.outcome else None):
            blob = parse_reference(text) if text else None
            if blob and use_blob(tx, unit.tenant, blob.digest, unit.id) != blob.length:
                raise InterlockError(f"blob sha256:{blob.digest} has not {blob.length:,} bytes")


def serves_values(kind: MoveKind) -> bool:
    """Whether a unit was born, or has just succeeded."""
    return kind.is_birth or (kind.has_ended and kind.outcome == Category.SUCCESS)


def use_recorded_value(tx: UnitOfWork, unit: Unit, command: Record) -> bool:
    """A unit whose holder records a large value uses its blob. The core keeps the record itself.

    Raises:
        InterlockError: the database knows of no such blob.
    """
    blob = parse_reference(command.payload) if command.kind in RECORDED_VALUES else None
    if blob and use_blob(tx, unit.tenant, blob.digest, unit.id) != blob.length:
        raise InterlockError(f"blob sha256:{blob.digest} has not {blob.length:,} bytes")
    return False


def restore_rows(tx: UnitOfWork, units: Collection[int], rows: Sequence[Mapping[str, Any]]) -> None:
    """The artifacts, logs and large values of an archived tree are there again; their bytes were written before.

    Raises:
        InterlockError: bytes are missing, or a row is none of this tree.
    """
    by_table: dict[str, list[dict[str, Any]]] = {table: [] for table in RESTORED_COLUMNS}
    for row in rows:
        table = row["table"]
        if table == "blob":
            add_blob(tx, AddBlob(tenant=tx.tenant, digest=row["digest"], length=row["length"]))
        elif table in by_table:
            if row.get("tenant") != tx.tenant or row.get("unit") not in units:
                raise InterlockError(f"a line of {table} is of no job of this tree")
            by_table[table].append({column: row[column] for column in RESTORED_COLUMNS[table]})
    for chunk in by_table["log_chunk"]:
        chunk["data"] = b64decode(chunk["data"])
    for table, own in by_table.items():
        if own:
            add_restored_rows(tx, table, own)


# A plain unit has no large result: that is never reported the fast way.
USE_VALUES = Reaction("use the blobs of large values", serves_values, use_values, skips_plain=True)


def sweep_blobs(tx: UnitOfWork, limit: int) -> int:
    """Marks blobs that nothing uses, and deletes those that were marked a day ago. Returns how many were looked at."""
    due = {"tenant": tx.tenant, "now": tx.now, "limit": min(limit, DELETED_AT_ONCE)}
    digests = [digest for (digest,) in tx.connection.rows(DUE_BLOBS, due)]
    before = tx.now - UNUSED_KEPT_US
    for digest in digests:
        name = {"tenant": tx.tenant, "digest": digest}
        if tx.connection.blobs is not None and tx.connection.rows(DELETE_UNUSED, {**name, "before": before}):
            tx.connection.blobs.delete(tx.tenant, digest, FILE_KEPT)
        else:
            tx.connection.rows(MARK_BLOB, {**name, "now": tx.now, "look_at": tx.now + LOOK_EVERY_US})
    return len(digests)


def sweep_pending(tx: UnitOfWork, limit: int) -> int:
    """Deletes bytes that were written a day ago, and of which the database does not know. Returns how many it saw."""
    store = tx.connection.blobs
    if store is None:
        return 0
    digests = store.find_pending(tx.tenant, PENDING_KEPT, min(limit, DELETED_AT_ONCE))
    for digest in digests:
        if not has_blob(tx.connection, tx.tenant, digest):
            store.delete(tx.tenant, digest, PENDING_KEPT)
        store.forget_pending(tx.tenant, digest, PENDING_KEPT)
    return len(digests)
