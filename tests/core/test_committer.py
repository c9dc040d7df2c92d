"""Whatever the database says, and whenever its line goes dead: nothing happens twice, nothing is lost, answers are true."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.core import committer
from interlock.kernel.commands import (
    Cancel,
    Claim,
    Command,
    Enter,
    Finish,
    Heartbeat,
    Outcome,
    Record,
    Register,
    Release,
    Start,
    Submit,
    Tick,
    Work,
)
from interlock.kernel.errors import Contended, Corrupt, InterlockError, StoreError, Unavailable
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.postgres import PostgresConnection
from interlock.store.sqlite import MEMORY, SqliteConnection
from tests.engine.faults import Refusing, lose_commit
from tests.engine.tamper import behind_the_guard
from tests.engine.test_archive import archive, exported, finished
from tests.engine.world import World, held
from tests.store.databases import Connection, declare, swap, upgrade_with_tables

# What differs when an id is taken once more; the rest of every row must be the same.
IDS = {"id", "unit", "lane", "act", "born", "lease_id", "hash", "correlation"}


def prepared(world: World) -> dict[str, Command[Any]]:
    """Commands of every kind, each of which has something to do."""
    cancelled = world.submit("cancel me", queue="a")
    assigned, running, waiting = (world.submit(queue=queue) for queue in "bcd")
    world.submit(queue="later", delay_us=1_000_000)
    worker = world.worker()
    (first,) = world.claim(worker, queues=("b",))
    (second,) = world.claim(worker, queues=("c",))
    assert [first.unit, second.unit, waiting] == [assigned, running, waiting]
    world.start(second)
    world.pass_time(2)
    return {
        "submit": Submit(work=(Work(task="one"), Work(task="two", queue="new", key="k"))),
        "claim": Claim(worker=worker, key="k", nonce="n" * 16, queues=("d",)),
        "claim nothing": Claim(worker=worker, key="k", nonce="n" * 16, queues=("none",)),
        "start": Start(held=(held(first),)),
        "beat": Heartbeat(held=(held(second),)),
        "first beat": Heartbeat(held=(held(first),)),
        "finish": Finish(outcomes=(Outcome(held=held(second), result="1"),)),
        "fail": Finish(outcomes=(Outcome(held=held(second), ended="failure", error="no"),)),
        "release": Release(held=(held(second),)),
        "enter": Enter(held=(held(second),), phase="nowhere"),
        "checkpoint": Record(held=(held(second),), kind="checkpoint", payload="7"),
        "step": Record(held=(held(second),), kind="step", name="s", payload="7"),
        "artifact": Record(held=(held(second),), kind="artifact", name="log.txt", payload="7"),
        "cancel": Cancel(unit=cancelled),
        "register": Register(name="other", incarnation="1"),
        "tick": Tick(),
    }


def in_memory() -> World:
    connection = SqliteConnection(MEMORY)
    upgrade_with_tables(connection, shipped().values())
    return World(connection)


def kinds() -> list[str]:
    world = in_memory()
    named = prepared(world)
    world.connection.close()
    return list(named)


def left(connection: Connection) -> list[Any]:
    """Every row that a command may leave, without what an id taken once more changes."""
    declare(connection, 1)
    found: list[Any] = []
    for table, order in {
        "unit": "id", "body": "unit", "event": "unit, version", "note": "id", "artifact": "unit", "worker": "unit",
    }.items():  # fmt: skip
        columns = sorted(set(column_names(connection, table)) - IDS)
        found.append(connection.rows(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}"))
    return found


def column_names(connection: Connection, table: str) -> list[str]:
    if connection.name == "sqlite":
        return [row[1] for row in connection.rows(f"PRAGMA table_info({table})")]
    query = "SELECT column_name FROM information_schema.columns WHERE table_name = :table"
    return [row[0] for row in connection.rows(query, {"table": table})]


def shape(answer: Any) -> Any:
    """An answer without the numbers of units."""
    plain = msgspec.to_builtins(answer)
    if isinstance(plain, int):
        return "id or count"
    rows = plain if isinstance(plain, list) else [plain]
    return [
        {name: value for name, value in row.items() if name not in ("unit", "lease", "correlation")} for row in rows
    ]


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "not committed"])
@pytest.mark.parametrize("kind", kinds())
def test_a_lost_commit_is_neither_lost_nor_done_twice(world: World, kind: str, commits: bool) -> None:
    plain = in_memory()
    wanted = plain.send(prepared(plain)[kind])
    command = prepared(world)[kind]
    faulty = lose_commit(world.connection, commits=commits)
    answer = world.send(command)
    assert not faulty.armed
    assert shape(answer) == shape(wanted)
    assert left(world.connection) == left(plain.connection)
    plain.connection.close()


def test_a_lost_commit_of_a_group(world: World) -> None:
    named = prepared(world)
    door = world.engine.committer
    group = [door.put(named[kind]) for kind in ("submit", "claim", "checkpoint", "finish", "cancel")]
    lose_commit(world.connection, commits=True)
    before = count(world, "event")
    assert door.step() == 5
    submitted, claimed, noted, finished, cancelled = (future.result() for future in group)
    assert [one.created for one in submitted] == [True, True]
    assert [len(claimed), finished[0].accepted, noted[0].accepted, cancelled.applied] == [1, True, True, True]
    assert count(world, "event") - before == 2 + 1 + 1 + 1  # births, an assignment, an end, a cancel
    assert count(world, "note") == 1


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "not committed"])
def test_a_lost_commit_of_an_archive(world: World, commits: bool) -> None:
    """It takes the events of its unit away, so it is known by what it leaves."""
    unit = finished(world)
    digest = exported(world, unit)
    lose_commit(world.connection, commits=commits)
    assert archive(world, unit, digest) == 1
    assert count(world, "archived") == 1


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "not committed"])
def test_a_lost_commit_under_a_key(world: World, commits: bool) -> None:
    lose_commit(world.connection, commits=commits)
    first, again = (world.send(Submit(idempotency_key="k", work=(Work(task="a"),))) for _ in range(2))
    assert first == again
    assert [count(world, "body"), count(world, "answer")] == [1, 1]


def count(world: World, table: str) -> int:
    declare(world.connection, 1)
    found: int = world.connection.rows(f"SELECT count(*) FROM {table}")[0][0]
    return found


def refusing(world: World, *errors: Exception) -> Refusing:
    connection = Refusing(world.connection, *errors)
    world.engine.committer.connection = connection
    return connection


def test_a_group_that_the_database_refuses_is_redone_once_whole(world: World) -> None:
    connection = refusing(world, Contended("deadlock detected"))
    futures = [world.engine.committer.put(Submit(work=(Work(task=name),))) for name in "abc"]
    world.engine.committer.step()
    assert connection.begun == 2
    assert len({future.result()[0].unit for future in futures}) == 3


def test_then_each_alone_and_only_the_offender_gets_the_error(world: World) -> None:
    poison = StoreError("no")
    connection = refusing(world, poison, poison, poison)  # the group, the group again, its first command
    futures = [world.engine.committer.put(Submit(work=(Work(task=name),))) for name in "abc"]
    world.engine.committer.step()
    assert connection.begun == 2 + 3
    assert futures[0].exception() is poison
    assert futures[1].result()[0].created
    assert futures[2].result()[0].created


def test_a_command_in_the_way_of_others_is_tried_five_times(world: World) -> None:
    connection = refusing(world, *[Contended("deadlock detected")] * 4)
    assert world.submit()
    assert connection.begun == 5
    connection.errors = [Contended("deadlock detected")] * 5
    with pytest.raises(Contended, match=r"other transactions were in the way.*deadlock detected.*nothing was changed"):
        world.submit()
    assert world.submit()
    assert count(world, "body") == 2


def test_a_dead_line_outside_commit_is_mended(world: World) -> None:
    if world.connection.name == "sqlite" and world.connection.path == MEMORY:  # type: ignore[union-attr]
        return  # it would be gone with its only handle
    world.connection.raw.close()
    assert world.submit()
    world.connection.raw.close()
    assert len(world.claim(world.worker())) == 1


def test_memory_that_is_gone_is_told(world: World) -> None:
    if world.connection.name == "sqlite" and world.connection.path == MEMORY:  # type: ignore[union-attr]
        world.connection.raw.close()
        with pytest.raises(Unavailable, match="closed database"):
            world.engine.send(Submit(work=(Work(task="a"),)))


def test_a_row_that_no_act_can_follow_is_corrupt(world: World, server: str) -> None:
    """Somebody changed it behind the guard; the unit cannot go on, everybody else can."""
    one, other = world.submit(), world.submit()
    with behind_the_guard(world.connection, server) as owner:
        owner.rows("UPDATE unit SET changed_at = 4000000000000000 WHERE id = :unit", {"unit": one})
    door = world.engine.committer
    futures = [door.put(Cancel(unit=unit)) for unit in (one, other)]
    door.step()
    with pytest.raises(Corrupt, match=r"interlock guard \[time\]"):
        futures[0].result()
    assert futures[1].result().applied


def test_the_guards_word_reaches_the_offender_alone(world: World, server: str) -> None:
    one, other = world.submit(), world.submit()
    as_owner(
        world, server,
        "UPDATE transition_path SET retired = 1 WHERE lifecycle = 'job' AND source = 'queued' AND target = 'cancelled'",
    )  # fmt: skip
    door = world.engine.committer
    futures = [door.put(Cancel(unit=one)), door.put(Submit(work=(Work(task="b"),)))]
    door.step()
    with pytest.raises(Corrupt, match=r"interlock guard \[listed-hop\]"):
        futures[0].result()
    assert futures[1].result()[0].created
    assert world.unit(other).version == world.unit(one).version == 1


def as_owner(world: World, server: str, sql: str) -> None:
    if isinstance(world.connection, SqliteConnection):
        world.connection.script(sql + ";")
        return
    owner = PostgresConnection(swap(server, world.connection.raw.info.dbname))
    owner.script(sql)
    owner.close()


@pytest.mark.parametrize("task", ["nul \0", "half a letter \ud800", "x" * 3])
def test_no_error_of_a_driver_comes_out(world: World, task: str) -> None:
    for command in (
        Submit(work=(Work(task=task, priority=2**70),)),
        Cancel(unit=2**70),
        Claim(worker=2**70, key="", nonce="n" * 16),
    ):
        with pytest.raises(InterlockError):
            world.engine.send(command)
    with suppress(InterlockError):  # one database can keep such a text, another cannot
        world.submit(task)
    assert world.submit("another")


def test_a_locked_file_is_told_and_later_commands_work(tmp_path: Path) -> None:
    path = str(tmp_path / "work.db")
    connection, other = SqliteConnection(path), SqliteConnection(path)
    upgrade_with_tables(connection, shipped().values())
    engine = make_engine(connection, shipped())
    connection.rows("PRAGMA busy_timeout = 20")
    other.begin()
    futures = [engine.committer.put(Submit(work=(Work(task="a"),))) for _ in range(3)]
    engine.committer.step()
    for future in futures:
        with pytest.raises(Unavailable, match=r"others keep the database to themselves.*nothing was changed"):
            future.result()
    other.rollback()
    assert engine.send(Submit(work=(Work(task="a"),)))[0].created
    other.close()
    connection.close()


def test_a_command_that_was_called_off_is_not_carried_out(world: World) -> None:
    door = world.engine.committer
    off, on = (door.put(Submit(work=(Work(task=name),))) for name in ("off", "on"))
    assert off.cancel()
    assert door.step() == 2
    assert on.result()[0].created
    assert count(world, "body") == 1


def test_a_long_command_has_a_transaction_to_itself(world: World) -> None:
    connection = refusing(world)
    door = world.engine.committer
    sizes = (1, 1001, 1, 600, 600, 1001)
    futures = [door.put(Submit(work=tuple(Work(task="a") for _ in range(size)))) for size in sizes]
    assert [door.step() for _ in range(4)] == [1, 1, 3, 1]
    assert connection.begun == 4
    assert [len(future.result()) for future in futures] == list(sizes)


def test_thousands_of_units_in_one_command(world: World) -> None:
    submit_many(world, 5_000)


@pytest.mark.proof
def test_fifty_thousand_units_in_one_command(world: World) -> None:
    submit_many(world, 50_000)


def submit_many(world: World, number: int) -> None:
    made = world.engine.send(Submit(work=tuple(Work(task="a") for _ in range(number))))
    assert len({one.unit for one in made}) == number
    assert count(world, "unit") == number


def test_ids_that_do_not_suffice_are_reserved_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command may make more than anybody foresaw: it is tried again with more ids."""
    monkeypatch.setattr(committer, "IDS_PER_ROW", 0)
    made = world.send(Submit(work=tuple(Work(task="a") for _ in range(5_000))))
    assert len({one.unit for one in made}) == 5_000
