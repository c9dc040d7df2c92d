"""Blobs: bytes by digest beside the database, used by what names them, and deleted in two phases once nothing does."""

import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from interlock.audit.laws import audit
from interlock.blobs.folder import FolderBlobs
from interlock.blobs.memory import MemoryBlob, MemoryBlobs
from interlock.blobs.store import read_whole, write_pieces
from interlock.kernel.blobs import LARGE, BlobRef, format_reference, is_large, parse_reference
from interlock.kernel.commands import AddBlob, Record, Revoke, Submit, Work
from interlock.kernel.errors import Corrupt, InterlockError, NoBlobs, Unknown
from interlock.plugins import STANDARD
from interlock.plugins.evidence import blobs as evidence_blobs
from interlock.plugins.evidence.queries import add_blob_row, list_artifacts
from tests.engine.tamper import behind_the_guard
from tests.engine.test_archive import archive
from tests.engine.world import World, held
from tests.store.databases import declare

HOUR, DAY = 3_600, 86_400


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where PostgreSQL keeps blobs; a SQLite file has them beside it."""
    monkeypatch.setenv("INTERLOCK_BLOBS", str(tmp_path / "blobs"))
    return tmp_path / "blobs"


def add(world: World, data: bytes) -> BlobRef:
    """A blob that the database knows of."""
    assert world.connection.blobs is not None
    blob = write_pieces(world.connection.blobs, 1, [data])
    world.send(AddBlob(digest=blob.digest, length=blob.length))
    return blob


def age(world: World, blob: BlobRef) -> None:
    """The bytes were written two hours ago."""
    store = world.connection.blobs
    if isinstance(store, MemoryBlobs):
        store.kept[1, blob.digest] = MemoryBlob(store.kept[1, blob.digest].data, time.monotonic() - 2 * HOUR)
    else:
        assert isinstance(store, FolderBlobs)
        os.utime(store.find_path(1, blob.digest), (time.time() - 2 * HOUR,) * 2)


def is_there(world: World, blob: BlobRef) -> bool:
    assert world.connection.blobs is not None
    return world.connection.blobs.find_length(1, blob.digest) is not None


def sweep(world: World, seconds: float) -> None:
    world.pass_time(seconds)
    world.tick()


def broken(world: World) -> list[str]:
    declare(world.connection, 1)
    return [str(each) for each in audit(world.connection, world.lifecycles, laws=STANDARD.laws)]


# Bytes.


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_bytes_are_kept_once_and_read_in_ranges(kind: str, tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path / "kept") if kind == "folder" else MemoryBlobs()
    blob = write_pieces(store, 1, [b"hello ", b"", b"world"])
    assert blob == (sha256(b"hello world").hexdigest(), 11)
    assert write_pieces(store, 1, [b"hello world"]) == blob
    assert read_whole(store, 1, blob) == b"hello world"
    for start, end in ((0, 5), (6, None), (3, 3), (4, 100), (100, None)):
        assert b"".join(store.read(1, blob.digest, start, end)) == b"hello world"[start:end]
    assert write_pieces(store, 1, []).length == 0
    with pytest.raises(Unknown, match="there is no blob"):
        store.read(2, blob.digest)  # another tenant's


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_bytes_that_were_changed_on_their_way_are_not_kept(kind: str, tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path / "kept") if kind == "folder" else MemoryBlobs()
    digest = sha256(b"good").hexdigest()
    with pytest.raises(InterlockError, match="they were changed on their way"):
        write_pieces(store, 1, [b"baad"], digest)
    assert store.find_length(1, digest) is None
    assert store.find_length(1, sha256(b"baad").hexdigest()) is None
    if kind == "folder":
        assert [path for path in (tmp_path / "kept").rglob("*") if path.is_file()] == []


def test_files_are_the_owners_alone_and_damage_is_noticed(tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path / "kept")
    blob = write_pieces(store, 7, [b"secret"])
    path = store.find_path(7, blob.digest)
    assert path.relative_to(tmp_path / "kept").parts == ("7", blob.digest[:2], blob.digest)
    assert {oct(part.stat().st_mode & 0o777) for part in (path, *list(path.parents)[:3])} == {"0o600", "0o700"}
    path.write_bytes(b"secreT")
    with pytest.raises(Corrupt, match="is damaged"):
        read_whole(store, 7, blob)


def test_what_was_just_written_again_is_not_deleted(tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path / "kept")
    blob = write_pieces(store, 1, [b"bytes"])
    path = store.find_path(1, blob.digest)
    os.utime(path, (1, 1))
    write_pieces(store, 1, [b"bytes"])
    assert not store.delete(1, blob.digest, HOUR)
    os.utime(path, (1, 1))
    assert store.delete(1, blob.digest, HOUR)
    assert store.delete(1, blob.digest, HOUR)  # it is gone already
    assert [left for left in (tmp_path / "kept").rglob("*") if left.is_file()] == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InterlockError, match=r"blobs cannot be kept in '.*file/blobs': (Not a directory|File exists)"):
        write_pieces(FolderBlobs(tmp_path / "file" / "blobs"), 1, [b""])


def test_what_a_crash_left_is_deleted_after_a_day(tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path / "kept")
    writer = store.open_writer(1)
    writer.add(b"half")
    os.utime(writer.path, (1, 1))
    other = store.open_writer(1)
    assert not writer.path.exists()
    other.cancel()
    writer.cancel()


# References.


def test_a_reference_is_json_and_nothing_else_is_one() -> None:
    blob = BlobRef("ab" * 32, 300_000)
    text = format_reference(blob)
    assert parse_reference(text) == blob
    for other in (f" {text}", text.replace('"bytes"', ' "bytes"'), text[:-1], text.replace("ab", "AB"), "{}", ""):
        assert parse_reference(other) is None
    assert not is_large("x" * LARGE)
    assert is_large("x" * (LARGE + 1))
    assert is_large("é" * (LARGE // 2 + 1))


def test_a_blob_is_known_once_its_bytes_are_there(world: World) -> None:
    digest = sha256(b"bytes").hexdigest()
    with pytest.raises(InterlockError, match="there are none: write them first"):
        world.send(AddBlob(digest=digest, length=5))
    add(world, b"bytes")
    with pytest.raises(InterlockError, match="has 4 bytes, and there are 5"):
        world.send(AddBlob(digest=digest, length=4))
    assert world.send(AddBlob(digest=f"sha256:{digest}", length=5)) is False
    with pytest.raises(InterlockError, match="allowed are 64 hexadecimal digits"):
        world.send(AddBlob(digest="../../etc/passwd", length=5))
    assert world.count("blob") == 1


def test_without_a_folder_postgresql_keeps_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    if world.connection.name != "postgres":
        return
    monkeypatch.delenv("INTERLOCK_BLOBS")
    with pytest.raises(NoBlobs, match="INTERLOCK_BLOBS=/var/lib/interlock/blobs"):
        world.send(AddBlob(digest="ab" * 32, length=5))
    with pytest.raises(NoBlobs, match="this database keeps no blobs"):
        world.engine.find_blobs()
    world.tick()  # nothing is deleted by who cannot see it


# Who uses them.


def test_work_uses_the_blob_of_its_input_and_of_its_result(world: World) -> None:
    given, result = add(world, b'"a large input"'), add(world, b'"a large result"')
    unit = world.submit(input=format_reference(given))
    (grant,) = world.claim(world.worker())
    assert grant.input == format_reference(given)
    world.start(grant)
    assert world.finish(grant, result=format_reference(result)).accepted
    declare(world.connection, 1)
    uses = world.connection.rows("SELECT digest, unit FROM blob_use ORDER BY digest")
    assert uses == sorted([(given.digest, unit), (result.digest, unit)])


@pytest.mark.parametrize("kind", ["step", "checkpoint"])
def test_work_uses_the_blob_of_what_its_holder_records(world: World, kind: str) -> None:
    blob = add(world, b'"what a step came to"')
    unit = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    missing = format_reference(BlobRef("0" * 64, 5))
    with pytest.raises(InterlockError, match="there is no blob sha256:0000"):
        world.send(Record(held=(held(grant),), kind=kind, name="fetch", payload=missing))
    assert world.count("note", f"kind = '{kind}'") == 0
    (status,) = world.send(Record(held=(held(grant),), kind=kind, name="fetch", payload=format_reference(blob)))
    assert status.accepted
    assert world.connection.rows("SELECT unit, digest FROM blob_use") == [(unit, blob.digest)]
    age(world, blob)
    sweep(world, 2 * HOUR)
    sweep(world, 2 * DAY)
    assert is_there(world, blob)
    assert broken(world) == []


def test_the_late_blob_of_a_step_is_an_artifact(world: World) -> None:
    blob = add(world, b'"what a step came to"')
    unit = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.send(Revoke(unit=unit, actor="ops", reason="r"))
    (status,) = world.send(Record(held=(held(grant),), kind="step", name="fetch", payload=format_reference(blob)))
    assert not status.accepted
    (row,) = list_artifacts(world.connection, 1, unit)
    assert (row.name, row.late, row.digest, row.length, row.value) == (
        "step fetch", True, blob.digest, blob.length, None,
    )  # fmt: skip
    assert world.count("blob_use") == 1


def test_many_alike_each_use_it(world: World) -> None:
    text = format_reference(add(world, b'"shared"'))
    world.send(Submit(work=tuple(Work(task="mail", input=text) for _ in range(5))))
    assert world.count("blob_use") == 5


def test_what_names_no_blob_is_refused_and_nothing_is_made(world: World) -> None:
    for blob in (BlobRef("ab" * 32, 5), add(world, b"12345")._replace(length=6)):
        with pytest.raises(InterlockError, match=r"there is no blob|has not 6 bytes"):
            world.send(Submit(work=(Work(task="mail"), Work(task="mail", input=format_reference(blob)))))
    assert world.count("unit") == 0
    assert world.count("blob_use") == 0


def test_another_tenants_blob_is_none(world: World) -> None:
    text = format_reference(add(world, b'"mine"'))
    with pytest.raises(InterlockError, match="there is no blob"):
        world.send(Submit(tenant=2, work=(Work(task="mail", input=text),)))


# Deleting.


def test_a_blob_that_nothing_uses_is_marked_and_deleted_a_day_later(world: World) -> None:
    blob = add(world, b"nobody wants it")
    age(world, blob)
    sweep(world, HOUR / 2)
    assert world.count("blob", "unused_at IS NOT NULL") == 0
    sweep(world, HOUR)
    assert world.count("blob", "unused_at IS NOT NULL") == 1
    sweep(world, DAY - HOUR)
    assert (world.count("blob"), is_there(world, blob)) == (1, True)
    sweep(world, 2 * HOUR)
    assert (world.count("blob"), is_there(world, blob)) == (0, False)


def test_a_blob_that_is_used_is_never_deleted(world: World) -> None:
    blob = add(world, b'"wanted"')
    world.submit(input=format_reference(blob))
    age(world, blob)
    for _ in range(4):
        sweep(world, DAY)
    assert is_there(world, blob)
    assert world.count("blob", "unused_at IS NULL") == 1


def test_one_that_is_used_again_after_it_was_marked_stays(world: World) -> None:
    blob = add(world, b'"wanted late"')
    age(world, blob)
    sweep(world, 2 * HOUR)
    assert world.count("blob", "unused_at IS NOT NULL") == 1
    world.submit(input=format_reference(blob))
    for _ in range(4):
        sweep(world, DAY)
    assert is_there(world, blob)


def test_a_file_that_was_just_written_outlives_its_row(world: World) -> None:
    """Somebody has written the same bytes, and is about to say so."""
    blob = add(world, b"bytes")
    sweep(world, 2 * HOUR)
    sweep(world, 2 * DAY)
    assert (world.count("blob"), is_there(world, blob)) == (0, True)
    assert world.send(AddBlob(digest=blob.digest, length=5)) is True


def test_what_was_archived_uses_nothing(world: World) -> None:
    blob = add(world, b'"of a job that was archived"')
    unit = world.submit(input=format_reference(blob))
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant)
    archive(world, unit)
    assert world.count("blob_use") == 0
    age(world, blob)
    sweep(world, 2 * HOUR)
    sweep(world, 2 * DAY)
    assert not is_there(world, blob)


# The laws.


def test_the_laws_notice_what_is_missing_or_damaged(world: World, server: str) -> None:
    blob = add(world, b'"bytes"')
    world.submit(input=format_reference(blob))
    store = world.connection.blobs
    assert broken(world) == []
    if isinstance(store, MemoryBlobs):
        store.kept[1, blob.digest] = MemoryBlob(b'"Bytes"', 0.0)
    else:
        assert isinstance(store, FolderBlobs)
        store.find_path(1, blob.digest).write_bytes(b'"Bytes"')
    assert any("is damaged" in each for each in broken(world))
    assert store.delete(1, blob.digest, 0.0)
    assert any("there is no blob" in each for each in broken(world))
    with behind_the_guard(world.connection, server) as database:
        declare(database, 1)
        database.rows("DELETE FROM blob")
    assert any("which is not there" in each for each in broken(world))


# Bytes of which the database is never told.


def write_long_ago(world: World, data: bytes) -> BlobRef:
    """Bytes that somebody wrote two days ago, and then died."""
    store = world.connection.blobs
    assert isinstance(store, FolderBlobs)
    blob = write_pieces(store, 1, [data])
    for hour in list((store.folder / "1" / "unclaimed").iterdir()):
        for mark in hour.iterdir():
            os.utime(store.find_path(1, mark.name), (time.time() - 2 * DAY,) * 2)
        hour.rename(hour.with_name(str(int(hour.name) - 48)))
    return blob


def list_marks(world: World) -> list[str]:
    assert isinstance(world.connection.blobs, FolderBlobs)
    return [mark.name for mark in (world.connection.blobs.folder / "1" / "unclaimed").rglob("*") if mark.is_file()]


def test_bytes_whose_writer_died_before_the_database_knew_are_deleted_after_a_day(world: World) -> None:
    if isinstance(world.connection.blobs, MemoryBlobs):
        return  # which ends with its writer
    known = add(world, b"known")
    lost = write_long_ago(world, b"nobody will ever ask for it")  # the other is as old now
    assert set(list_marks(world)) == {known.digest, lost.digest}
    young = write_pieces(world.connection.blobs, 1, [b"its writer is about to tell"])  # type: ignore[arg-type]
    world.tick()
    assert [is_there(world, blob) for blob in (known, lost, young)] == [True, False, True]
    assert list_marks(world) == [young.digest]
    world.tick()
    assert broken(world) == []


def test_bytes_that_a_transaction_is_about_to_name_are_not_swept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their writer tells of them two days late, and somebody sweeps before that is committed."""
    store = world.connection.blobs
    if not isinstance(store, FolderBlobs):
        return
    blob, swept = write_long_ago(world, b"late"), list[bool]()

    def sweep_first(*given: Any) -> bool:
        swept.append(store.delete(1, blob.digest, evidence_blobs.PENDING_KEPT))
        return add_blob_row(*given)

    monkeypatch.setattr(evidence_blobs, "add_blob_row", sweep_first)
    world.send(AddBlob(digest=blob.digest, length=blob.length))
    assert (swept, is_there(world, blob)) == ([False], True)
    world.tick()
    assert (list_marks(world), is_there(world, blob)) == ([], True)
