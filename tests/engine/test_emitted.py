"""What handlers emit: it stands if its step is recorded or its attempt succeeded, and is void if it is done again."""

import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import AppendLog, Emit, LeaseGrant, LogEntry, Record
from interlock.kernel.errors import InterlockError
from interlock.plugins import STANDARD
from interlock.plugins.evidence.log_feed import LogPosition, follow_part, read_new_parts
from interlock.plugins.evidence.queries import list_logs
from tests.engine.tamper import behind_the_guard
from tests.engine.test_archive import archive
from tests.engine.test_logs import folder, lose, running  # noqa: F401 - a fixture
from tests.engine.world import World, held
from tests.store.databases import declare


def emit(world: World, grant: LeaseGrant, start: int, text: bytes, step: str = "") -> bool:
    emits = (Emit(start, start + len(text), step),)
    (status,) = world.send(AppendLog(entries=(LogEntry(held(grant), start, text, emits),)))
    return status.accepted


def record(world: World, grant: LeaseGrant, name: str) -> None:
    (status,) = world.send(Record(held=(held(grant),), kind="step", name=name, payload="1"))
    assert status.accepted


def void(world: World, unit: int) -> list[tuple[tuple[int, int], ...]]:
    declare(world.connection, 1)
    return [log.void for log in list_logs(world.connection, 1, unit)]


def test_of_a_lost_attempt_all_is_void_but_what_recorded_steps_emitted(world: World) -> None:
    first = running(world)
    for start, text, step in ((0, b"hello ", ""), (6, b"plan ", "plan"), (11, b"half of", "mend"), (18, b" it", "")):
        assert emit(world, first, start, text, step)
    record(world, first, "plan")
    assert void(world, first.unit) == [()]
    lose(world, first)
    assert void(world, first.unit) == [((0, 6), (11, 21))]
    (second,) = world.claim(world.worker())
    world.start(second)
    assert emit(world, second, 0, b"all of it", "mend")
    record(world, second, "mend")  # under another lease: what the first one emitted in it is void all the same
    assert emit(world, second, 9, b"done")
    assert world.finish(second).accepted
    assert void(world, first.unit) == [((0, 6), (11, 21)), ()]


@pytest.mark.parametrize("ended", ["failure", "cancelled"])
def test_of_work_that_came_to_nothing_all_is_void(world: World, ended: str) -> None:
    grant = running(world)
    emit(world, grant, 0, b"so far")
    if ended == "cancelled":
        world.cancel(grant.unit)
    world.finish(grant, ended=ended, **({"error_class": "PermanentError"} if ended == "failure" else {}))
    assert void(world, grant.unit) == [((0, 6),)]


def test_a_log_without_emitted_text_has_no_mark(world: World) -> None:
    grant = running(world)
    world.send(AppendLog(entries=(LogEntry(held(grant), 0, b"a line\n"),)))
    lose(world, grant)
    assert void(world, grant.unit) == [()]
    assert [part.data for part in read_new_parts(world.connection, 1, grant.unit, LogPosition()).parts] == [b"a line\n"]


def test_what_is_sent_twice_is_marked_once(world: World) -> None:
    grant = running(world)
    assert emit(world, grant, 0, b"one ")
    assert emit(world, grant, 0, b"one ")
    assert emit(world, grant, 2, b"e two")
    lose(world, grant)
    assert void(world, grant.unit) == [((0, 7),)]


def test_wrong_stretches_are_refused_and_change_nothing(world: World) -> None:
    grant = running(world)
    for emits in (
        (Emit(0, 5),), (Emit(-1, 2),), (Emit(2, 2),), (Emit(0, 2), Emit(1, 3)), (Emit(2, 3), Emit(0, 1)),
    ):  # fmt: skip
        with pytest.raises(InterlockError, match="allowed are stretches of the bytes 0 to 4, one behind the other"):
            world.send(AppendLog(entries=(LogEntry(held(grant), 0, b"four", emits),)))
    for step in ("x" * 201, "a\0b"):
        with pytest.raises(InterlockError, match="allowed are at most 200 characters"):
            emit(world, grant, 0, b"four", step)
    assert (world.count("emitted"), world.count("log_chunk")) == (0, 0)


def test_a_follower_reads_every_chunk_and_then_the_mark_wherever_it_begins(world: World) -> None:
    first = running(world)
    emit(world, first, 0, b"one ")
    emit(world, first, 4, b"two ")
    lose(world, first)
    (second,) = world.claim(world.worker())
    world.start(second)
    emit(world, second, 0, b"again")
    assert world.finish(second).accepted
    told = [(1, b"one two ", ()), (1, b"", ((0, 8),)), (2, b"again", ())]
    for begin, left in ((LogPosition(), told), (LogPosition(1, 8), told[1:]), (LogPosition(2, 0), told[2:])):
        position, parts = begin, []
        while not (new := read_new_parts(world.connection, 1, first.unit, position)).ended:
            for part in new.parts:
                position = follow_part(position, part)
                parts.append((part.attempt, part.data, part.void))
        assert parts == left


def test_a_law_sees_what_was_emitted_into_no_log(world: World, server: str) -> None:
    grant = running(world)
    emit(world, grant, 0, b"text")

    def broken() -> list[str]:
        declare(world.connection, 1)
        return [each.text for each in audit(world.connection, world.lifecycles, laws=STANDARD.laws)]

    assert broken() == []
    with behind_the_guard(world.connection, server) as database:
        declare(database, 1)
        database.rows("UPDATE emitted SET length = 5")
    assert any("what attempt 1 emitted from 0 on is not in its log" in each for each in broken())


def test_it_leaves_with_its_job(world: World) -> None:
    grant = running(world)
    emit(world, grant, 0, b"text")
    world.finish(grant)
    archive(world, grant.unit)
    assert world.count("emitted") == 0
