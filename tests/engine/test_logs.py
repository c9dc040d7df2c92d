"""Logs and artifacts of an attempt: taken under its lease, for five minutes also late, and never in the way of anything."""

import gzip
from pathlib import Path

import pytest

from interlock.audit.laws import audit
from interlock.blobs.store import write_pieces
from interlock.kernel.commands import (
    AddArtifact,
    AddBlob,
    AppendLog,
    Claim,
    EvidenceStatus,
    LeaseGrant,
    LogEntry,
    Record,
    Revoke,
)
from interlock.kernel.errors import InterlockError, Unknown
from interlock.plugins import STANDARD
from interlock.plugins.evidence import frames, logs
from interlock.plugins.evidence.queries import LogPart, list_artifacts, list_logs, read_log_part
from tests.engine.tamper import behind_the_guard
from tests.engine.test_archive import archive
from tests.engine.world import World, held
from tests.store.databases import declare

MINUTE = 60


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PostgreSQL keeps blobs; a SQLite file has them beside it."""
    monkeypatch.setenv("INTERLOCK_BLOBS", str(tmp_path / "blobs"))


def running(world: World) -> LeaseGrant:
    world.submit()
    (grant,) = world.claim(world.worker())
    assert world.start(grant).accepted
    return grant


def append(world: World, grant: LeaseGrant, data: bytes, start: int = 0) -> EvidenceStatus:
    (status,) = world.send(AppendLog(entries=(LogEntry(held(grant), start, data),)))
    return status


def read(world: World, unit: int, attempt: int | None = None, start: int = 0, size: int = 1024 * 1024) -> LogPart:
    declare(world.connection, 1)
    return read_log_part(world.connection, 1, unit, attempt, start, size)


def keep(world: World, grant: LeaseGrant, name: str, data: bytes, **facts: str) -> EvidenceStatus:
    assert world.connection.blobs is not None
    blob = write_pieces(world.connection.blobs, 1, [data])
    world.send(AddBlob(digest=blob.digest, length=blob.length))
    return world.send(AddArtifact(held=held(grant), name=name, digest=blob.digest, **facts))


def lose(world: World, grant: LeaseGrant) -> None:
    """The lease expires, and somebody notices it."""
    world.pass_time(10 * MINUTE)
    world.tick()
    assert world.unit(grant.unit).holder is None


# Appending.


def test_bytes_are_added_at_the_end_and_what_is_sent_twice_is_kept_once(world: World) -> None:
    grant = running(world)
    assert append(world, grant, b"one\n") == EvidenceStatus(grant.unit, accepted=True, attempt=1, length=4)
    assert append(world, grant, b"one\n").length == 4
    assert append(world, grant, b"e\ntwo\n", start=2).length == 8
    assert read(world, grant.unit).data == b"one\ntwo\n"
    ahead = append(world, grant, b"four\n", start=13)
    assert (ahead.accepted, ahead.length) == (False, 8)
    assert "8 bytes of this lease are here: go on there" in ahead.why
    version = world.unit(grant.unit).version
    assert world.finish(grant).accepted
    assert world.unit(grant.unit).version == version + 1  # a log is no event


def test_many_logs_are_one_command(world: World) -> None:
    for _ in range(3):
        world.submit()
    grants = world.claim(world.worker(), 3)
    entries = [LogEntry(held(grant), 0, b"%d" % grant.unit) for grant in grants]
    wrong = LogEntry(held(grants[0]), 100, b"x")
    answers = world.send(AppendLog(entries=(*entries, wrong)))
    assert [status.accepted for status in answers] == [True, True, True, False]
    assert [read(world, grant.unit).data for grant in grants] == [b"%d" % grant.unit for grant in grants]


def test_only_its_holder_adds_to_a_log(world: World) -> None:
    grant = running(world)
    for lease, fence in (("made up", grant.fence), (grant.lease, grant.fence + 1), (grant.lease, -1)):
        stranger = LogEntry(type(held(grant))(grant.unit, fence, lease), 0, b"mine")
        (status,) = world.send(AppendLog(entries=(stranger,)))
        assert (status.accepted, status.why) == (False, "UNKNOWN_LEASE")
    (other,) = world.send(AppendLog(tenant=2, entries=(LogEntry(held(grant), 0, b"mine"),)))
    assert (other.accepted, other.why) == (False, "UNKNOWN_LEASE")
    assert (world.count("unit_log"), world.count("log_chunk")) == (0, 0)


def test_wrong_sizes_are_refused(world: World) -> None:
    grant = running(world)
    with pytest.raises(InterlockError, match="start = -1 is not allowed"):
        append(world, grant, b"x", start=-1)
    with pytest.raises(
        InterlockError, match="1,048,577 bytes of a log are too many at once; at most 1,048,576 are allowed"
    ):
        append(world, grant, b"x" * (logs.ENTRY_MAX + 1))
    assert world.count("unit_log") == 0


def test_a_part_of_a_log_is_read_alone(world: World) -> None:
    grant = running(world)
    text = b"".join(b"line %03d\n" % number for number in range(100))
    for start in range(0, len(text), 70):
        append(world, grant, text[start : start + 70], start)
    for start, size in ((0, 1), (0, 900), (65, 10), (70, 70), (899, 5), (900, 5), (5_000, 5)):
        part = read(world, grant.unit, 1, start, size)
        assert (part.data, part.length) == (text[start : start + size], 900)
    with pytest.raises(Unknown, match="there is no attempt 2; there are 1 to 1"):
        read(world, grant.unit, 2)
    for start, size in ((-1, 1), (0, 0), (0, 2**40)):
        with pytest.raises(InterlockError, match="is not allowed"):
            read(world, grant.unit, 1, start, size)


def test_each_attempt_has_its_log(world: World) -> None:
    grant = running(world)
    append(world, grant, b"first")
    world.finish(grant, ended="failure", error="again")
    world.pass_time(MINUTE)
    (second,) = world.claim(world.worker())
    append(world, second, b"second")
    assert (read(world, grant.unit).data, read(world, grant.unit, 1).data) == (b"second", b"first")
    assert [(log.attempt, log.length, log.is_over) for log in list_logs(world.connection, 1, grant.unit)] == [
        (1, 5, True), (2, 6, False),
    ]  # fmt: skip


def test_of_a_long_log_the_head_and_the_tail_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "HEAD", 100)
    monkeypatch.setattr(logs, "TAIL", 100)
    grant = running(world)
    text = b"".join(b"%09d\n" % number for number in range(60))
    for start in range(0, len(text), 30):  # every story asks the law after each of these
        append(world, grant, text[start : start + 30], start)
    (log,) = list_logs(world.connection, 1, grant.unit)
    assert (log.length, log.gap_start, log.gap_end) == (600, 100, 480)
    assert read(world, grant.unit, 1, 0).data == text[:100]
    part = read(world, grant.unit, 1, 100)
    assert (part.start, part.data) == (480, text[480:])
    assert world.connection.rows("SELECT sum(length) FROM log_chunk")[0][0] < 100 + 100 + 30
    world.finish(grant)
    compress_all(world)
    assert (read(world, grant.unit, 1, 0).data, read(world, grant.unit, 1, 300).data) == (text[:100], text[480:])


# After the end.


def compress_all(world: World) -> None:
    for _ in range(8):
        world.pass_time(7 * MINUTE)
        world.tick()


def test_a_log_that_is_over_becomes_one_compressed_blob(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FRAME", 1_000)
    assert frames.FRAME == 1024 * 1024
    grant = running(world)
    text = b"".join(b"line %06d\n" % number for number in range(500))
    for start in range(0, len(text), 400):
        append(world, grant, text[start : start + 400], start)
    world.finish(grant)
    world.tick()
    assert world.count("log_chunk", "compressed = 0") > 0  # something may come late
    compress_all(world)
    assert world.count("log_chunk") == 0
    declare(world.connection, 1)
    ((digest,),) = world.connection.rows("SELECT digest FROM unit_log")
    assert world.connection.blobs is not None
    whole = b"".join(world.connection.blobs.read(1, digest))
    assert len(whole) < len(text) / 2
    assert gzip.decompress(whole) == text
    for start, size in ((0, 6_000), (999, 3), (3_000, 1), (5_999, 9)):
        assert read(world, grant.unit, 1, start, size).data == text[start : start + size]
    world.pass_time(3 * 24 * 60 * MINUTE)
    world.tick()
    assert read(world, grant.unit).data == text  # it is used, so it is not deleted


def test_the_log_of_work_that_still_runs_is_left_alone(world: World) -> None:
    grant = running(world)
    append(world, grant, b"before")
    for _ in range(4):
        world.pass_time(20)
        assert world.beat(grant).accepted
    world.connection.rows("UPDATE unit_log SET look_at = 1")
    world.tick()
    assert world.count("log_chunk", "compressed = 0") == 1
    assert append(world, grant, b" after", 6).accepted
    assert read(world, grant.unit).data == b"before after"


def test_a_log_goes_with_its_archived_job(world: World) -> None:
    grant = running(world)
    append(world, grant, b"text")
    keep(world, grant, "a.txt", b"bytes")
    world.finish(grant)
    archive(world, grant.unit)
    for table in ("unit_log", "log_chunk", "log_writer", "artifact_blob", "blob_use"):
        assert world.count(table) == 0, table


# Artifacts.


def test_an_artifact_is_a_blob_with_a_row(world: World) -> None:
    grant = running(world)
    assert keep(world, grant, "a.txt", b"bytes", media="text/plain") == EvidenceStatus(
        grant.unit, accepted=True, attempt=1
    )
    assert keep(world, grant, "a.txt", b"bytes", media="text/plain").accepted  # its answer was lost
    with pytest.raises(InterlockError, match=r"attempt 1 has an artifact 'a.txt' already; it is never replaced"):
        keep(world, grant, "a.txt", b"other bytes")
    world.send(Record(held=(held(grant),), kind="artifact", name="small", payload="[1]"))
    with pytest.raises(InterlockError, match="has an artifact 'small' already"):
        keep(world, grant, "small", b"bytes")
    rows = list_artifacts(world.connection, 1, grant.unit)
    assert [(row.name, row.attempt, row.media, row.length, row.late, row.value) for row in rows] == [
        ("a.txt", 1, "text/plain", 5, False, None), ("small", 1, "application/json", 3, False, "[1]"),
    ]  # fmt: skip
    assert list_artifacts(world.connection, 2, grant.unit) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\nb", "a\0b", "x" * 201])
def test_a_name_that_is_no_files_is_refused(world: World, name: str) -> None:
    grant = running(world)
    with pytest.raises(InterlockError, match="is not allowed; allowed are 1 to 200 characters without a slash"):
        keep(world, grant, name, b"bytes")


def test_an_artifact_names_bytes_that_are_there(world: World) -> None:
    grant = running(world)
    with pytest.raises(InterlockError, match="there is no blob"):
        world.send(AddArtifact(held=held(grant), name="a", digest="ab" * 32))
    with pytest.raises(InterlockError, match="allowed are 64 hexadecimal digits"):
        world.send(AddArtifact(held=held(grant), name="a", digest="ab"))
    with pytest.raises(InterlockError, match="allowed is a type such as text/plain"):
        world.send(AddArtifact(held=held(grant), name="a", digest="ab" * 32, media="text/html\r\nX: y"))
    assert world.count("artifact_blob") == 0


# Late.


@pytest.mark.parametrize("how", ["expired", "noticed", "granted again", "revoked"])
def test_evidence_is_taken_for_five_minutes_after_a_lease_was_lost(world: World, how: str) -> None:
    grant = running(world)
    append(world, grant, b"in time, ")
    if how == "revoked":
        world.send(Revoke(unit=grant.unit, reason="an operator"))
    else:
        world.pass_time((world.unit(grant.unit).lease_until or 0) / 1_000_000 - world.now_us / 1_000_000)
    if how in ("noticed", "granted again"):
        world.tick()
    if how == "granted again":
        world.pass_time(MINUTE)
        (second,) = world.claim(world.worker("other"))
        assert (second.unit, second.attempt) == (grant.unit, 2)
        append(world, second, b"the new holder's")
    before = world.unit(grant.unit)
    status = append(world, grant, b"late", 9)
    assert status == EvidenceStatus(grant.unit, accepted=True, late=True, attempt=1, length=13)
    assert keep(world, grant, "core", b"dump").late
    assert world.unit(grant.unit) == before  # nothing has moved
    assert read(world, grant.unit, 1).data == b"in time, late"
    (log, *_) = list_logs(world.connection, 1, grant.unit)
    assert log.late == ((9, 13),)
    assert [(row.name, row.late) for row in list_artifacts(world.connection, 1, grant.unit)] == [("core", True)]
    world.pass_time(5 * MINUTE + 1)
    status = append(world, grant, b"too late", 13)
    assert (status.accepted, status.late) == (False, False)
    assert status.why in ("LEASE_EXPIRED", "LEASE_REVOKED", "LEASE_SUPERSEDED", "LEASE_ENDED")
    with pytest.raises(InterlockError, match="there is no blob"):
        world.send(AddArtifact(held=held(running(world)), name="b", digest="cd" * 32))


def test_after_its_own_end_nobody_adds_anything(world: World) -> None:
    """A lease that its holder has ended was not taken from it: what it says afterwards is stale."""
    grant = running(world)
    world.finish(grant)
    assert append(world, grant, b"more").why == "LEASE_ENDED"
    assert keep(world, grant, "a", b"bytes").why == "LEASE_ENDED"
    assert (world.count("unit_log"), world.count("artifact_blob")) == (0, 0)


def test_a_stranger_is_not_late_but_wrong(world: World) -> None:
    grant = running(world)
    lose(world, grant)
    (status,) = world.send(
        AppendLog(entries=(LogEntry(type(held(grant))(grant.unit, grant.fence, "made up"), 0, b"x"),))
    )
    assert (status.accepted, status.why) == (False, "UNKNOWN_LEASE")
    world.claim(world.worker("other"))
    (status,) = world.send(
        AppendLog(entries=(LogEntry(type(held(grant))(grant.unit, grant.fence, "made up"), 0, b"x"),))
    )
    assert (status.accepted, status.why) == (False, "LEASE_SUPERSEDED")


def test_the_result_of_a_late_step_is_evidence_and_nothing_more(world: World) -> None:
    grant = running(world)
    world.pass_time(2 * MINUTE)
    world.tick()
    step = Record(held=(held(grant),), kind="step", name="pay", payload='{"paid": 3}')
    for _ in range(2):
        (status,) = world.send(step)
        assert not status.accepted
    (kept,) = list_artifacts(world.connection, 1, grant.unit)
    assert (kept.name, kept.attempt, kept.late, kept.value) == ("step pay", 1, True, '{"paid": 3}')
    (second,) = world.claim(world.worker("other"))
    assert second.steps == ()  # the next attempt does it itself
    world.send(Record(held=(held(second),), kind="step", name="pay", payload='{"paid": 4}'))
    assert [note.payload for note in world.notes(grant.unit, "step")] == ['{"paid": 4}']
    world.pass_time(6 * MINUTE)
    world.send(Record(held=(held(grant),), kind="step", name="mail", payload="1"))
    assert len(list_artifacts(world.connection, 1, grant.unit)) == 1


def test_a_small_artifact_that_comes_late_is_kept_and_replaces_none(world: World) -> None:
    grant = running(world)
    world.send(Record(held=(held(grant),), kind="artifact", name="report", payload="1"))
    world.send(Revoke(unit=grant.unit, reason="an operator"))
    for name in ("report", "late", "late"):
        (status,) = world.send(Record(held=(held(grant),), kind="artifact", name=name, payload="2"))
        assert not status.accepted
    rows = list_artifacts(world.connection, 1, grant.unit)
    assert [(row.name, row.late, row.value) for row in rows] == [("late", True, "2"), ("report", False, "1")]
    assert world.count("artifact") == 1


# The laws.


def test_the_law_notices_a_gap(world: World, server: str) -> None:
    grant = running(world)
    for start in range(0, 9, 3):
        append(world, grant, b"abc", start)

    def broken() -> list[str]:
        declare(world.connection, 1)
        laws = audit(world.connection, world.lifecycles, laws=STANDARD.laws)
        return [each.text for each in laws]

    assert broken() == []
    for sql, text in (
        ("DELETE FROM log_chunk WHERE start = 3", "has no bytes from 3 to 6"),
        ("DELETE FROM log_chunk WHERE start = 6", "ends at 3 of 9"),
        ("DELETE FROM unit_log", "has bytes of a log, and no log"),
    ):
        with behind_the_guard(world.connection, server) as database:
            declare(database, 1)
            database.rows(sql)
        assert any(text in each for each in broken()), text


def test_claims_do_not_wait_for_logs(world: World) -> None:
    """Bytes of a log are added by the committer of holders."""
    assert AppendLog.committer is not Claim.committer
