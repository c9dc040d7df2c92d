"""Archive a whole tree of ended units: delete it once a file holds what it was."""

from collections.abc import Iterator
from hashlib import sha256

import msgspec

from interlock.core.effective_policy import policy_at_end
from interlock.core.operator_verbs import refuse_unless_operator
from interlock.kernel.commands import Archive
from interlock.kernel.durations import format_us
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Archived, Row, Unit
from interlock.store.flush import flush
from interlock.store.queries.metrics import count_renewals
from interlock.store.retention import find_acts, find_needing, forget, load_tree, read_head_digests, read_kept_rows
from interlock.store.unit_of_work import UnitOfWork

TREE = b'{"table":"tree",'  # how the line begins that closes a tree in a file
EVENT = b'{"table":"event",'
ACT = b'{"table":"act",'  # and that of an act, which has a digest of its own and is in no tree's
BLOB = b'{"table":"blob",'  # and one that names bytes, which are copied to the folder beside the file


class ArchivedBlob(msgspec.Struct, frozen=True, tag_field="table", tag="blob"):
    """A line that names bytes of a tree, by their SHA-256; they are in the folder beside the file."""

    tenant: int
    digest: str
    length: int


class ArchivedTree(msgspec.Struct, frozen=True, tag_field="table", tag="tree"):
    """The line that closes a tree: its top, how many units it has, and the digest of its lines."""

    id: str
    unit: int
    units: int
    digest: str


def archive(tx: UnitOfWork, command: Archive) -> int:
    """The unit and all below it are gone; `archived` says which file holds them, and how far their events went."""
    root = tx.unit(command.unit)
    if root.parent is not None:
        raise InterlockError(
            f"{format_id(root.lifecycle, root.id)} is a child of {root.parent}; a whole tree is archived, from its top"
        )
    units = load_tree(tx, root)
    if unsettled := [unit for unit in units if not tx.lifecycle(unit).settled(unit.state)]:
        name = format_id(unsettled[0].lifecycle, unsettled[0].id)
        raise InterlockError(f"{name} is {unsettled[0].state}; only what has ended is archived")
    refuse_kept(tx, units)
    ids = [unit.id for unit in units]
    if needy := find_needing(tx, ids):
        raise InterlockError(f"job {needy[0]} has not ended and needs one of these")
    if (digest := digest_of(lines(tx, units))) != command.digest:
        raise InterlockError(f"the file is said to hold {command.digest}, but what would be deleted is {digest}")
    refuse_unless_operator(tx, "archive", Archived.table)
    heads = read_head_digests(tx, units)
    for unit in units:
        tx.add(
            Archived(
                unit=unit.id, tenant=unit.tenant, version=unit.version, born=unit.born, head=heads[unit.act],
                file=command.file, digest=command.digest, at=tx.now,
            )
        )  # fmt: skip
    flush(tx)
    count_renewals(tx, ids)
    forget(tx, ids)
    return len(units)


def refuse_kept(tx: UnitOfWork, units: list[Unit]) -> None:
    """Raises InterlockError if one of these is to be kept for longer after its end."""
    for unit in units:
        keep_us = policy_at_end(tx.body(unit)).keep_us
        if keep_us is not None and unit.changed_at + keep_us > tx.now:
            since_us = (tx.now - unit.changed_at) // 1_000_000 * 1_000_000
            kept = f"{format_us(keep_us)} after its end, {format_us(since_us)} ago"
            raise InterlockError(f"{format_id(unit.lifecycle, unit.id)} is kept for {kept}")


def lines(tx: UnitOfWork, units: list[Unit]) -> Iterator[bytes]:
    """What an archive file holds: one JSON object a row, tables and rows in a fixed order."""
    ids = [unit.id for unit in units]
    for row in read_kept_rows(tx, ids):
        yield as_line(row)
    for hook in tx.hooks.archive_rows:
        for table, columns in hook(tx, ids):
            yield msgspec.json.encode({"table": table, **columns}) + b"\n"


def act_lines(tx: UnitOfWork, units: list[Unit], written: set[int]) -> Iterator[bytes]:
    """The acts that moved these units, but for those that the file holds already."""
    for act in find_acts(tx, [unit.id for unit in units], written):
        written.add(act.id)
        yield as_line(act)


def as_line(row: Row) -> bytes:
    """Encodes a row as a line of an archive."""
    return msgspec.json.encode({"table": row.table, **msgspec.structs.asdict(row)}) + b"\n"


def digest_of(text: Iterator[bytes]) -> str:
    """Returns the digest of the lines of a tree."""
    whole = sha256()
    for line in text:
        whole.update(line)
    return whole.hexdigest()
