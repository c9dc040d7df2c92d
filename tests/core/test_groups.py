"""Commands that share a transaction come to what they come to apart; a refusal in a group is its own alone."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.core.pending import call_after_answers
from interlock.kernel.commands import (
    Admit,
    Cancel,
    Claim,
    Command,
    Count,
    CountEvents,
    CreateKey,
    Decide,
    DefineSchedule,
    Finish,
    FireSchedule,
    Heartbeat,
    Outcome,
    PauseSchedule,
    Position,
    Register,
    Release,
    RemoveSchedule,
    ResumeSchedule,
    RevokeKey,
    RotateKey,
    SetTenant,
    Start,
    Submit,
    Tick,
    Work,
)
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.rows import Event, Lease, Row, Unit, columns
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store import migrate
from interlock.store.sqlite import MEMORY, SqliteConnection
from tests.engine.world import World, held
from tests.store.databases import Connection, upgrade_by_copy


@cache
def prepared() -> tuple[World, dict[str, Command[Any]]]:
    """A world in which much may happen next, and commands that may."""
    connection = SqliteConnection(MEMORY)
    upgrade_by_copy(connection, shipped().values())
    world = World(connection)
    world.submit(key="k", input="1")
    world.submit(delay_us=5_000_000)
    world.submit(priority=3, rate_key="r", rate=1, rate_per_us=5_000_000)
    world.submit(rate_key="r", rate=1, rate_per_us=5_000_000)
    world.send(SetTenant(max_running=4, max_waiting=5, max_requests=2))
    world.send(DefineSchedule(name="s", timing="every 5s", work=Work(task="mail"), overlap="replace"))
    old = world.send(CreateKey(name="old", scopes=("read",), digest="c" * 64))
    one, two = world.worker("one", capacity=2), world.worker("two")
    (running,) = world.claim(one)
    world.start(running)
    (fresh,) = world.claim(two, limit=1)
    world.pass_time(6)
    named: dict[str, Command[Any]] = {
        "submit": Submit(work=(Work(task="mail"),)),
        "submit key": Submit(work=(Work(task="mail", key="k", input="1"),)),
        "submit other key": Submit(work=(Work(task="mail", key="new"),)),
        "conflict": Submit(work=(Work(task="a"), Work(task="mail", key="k", input="2"))),
        "claim one": Claim(worker=one, key="x", nonce="x" * 16, limit=2),
        "claim two": Claim(worker=two, key="y", nonce="y" * 16, limit=2),
        "start": Start(held=(held(fresh),)),
        "beat": Heartbeat(held=(held(running), held(fresh))),
        "finish": Finish(outcomes=(Outcome(held=held(running)),)),
        "fail": Finish(outcomes=(Outcome(held=held(running), ended="failure"),)),
        "release": Release(held=(held(fresh),)),
        "cancel": Cancel(unit=running.unit),
        "cancel hard": Cancel(unit=running.unit, hard=True),
        "cancel unknown": Cancel(unit=999_999),
        "cancel foreign": Cancel(unit=running.unit, tenant=2),
        "define": DefineSchedule(
            name="s", timing="every 7s", work=Work(task="mail", rate_key="r", rate=2, rate_per_us=1)
        ),
        "pause": PauseSchedule(name="s"),
        "resume": ResumeSchedule(name="s"),
        "remove": RemoveSchedule(name="s"),
        "trigger": FireSchedule(name="s"),
        "tick": Tick(),
        "limits": SetTenant(max_running=3, max_waiting=6),
        "no limit": SetTenant(name="first", max_running=None),
        "key": CreateKey(name="ci", scopes=("read",), digest="a" * 64),
        "admit": Admit(),
        "tally": CountEvents(after=Position("e"), upto=Position("e", 0, 1), counts=(Count("claims", '["mail"]', 2),)),
        "few requests": SetTenant(max_requests=1),
        "rotate": RotateKey(key=old.key, digest="b" * 64),
        "revoke": RevokeKey(key=old.key),
    }
    return world, named


def copy_of(connection: SqliteConnection) -> World:
    copy = SqliteConnection(MEMORY)
    connection.raw.backup(copy.raw)
    return World(copy)


NAMES = list(prepared()[1])


def answer(future: Any) -> Any:
    try:
        return msgspec.to_builtins(future.result())
    except InterlockError as error:
        return f"{type(error).__name__}: {error}"


def rows(connection: Connection) -> list[Any]:
    """What is there, but for which acts: a start and its end are one act if they come together."""
    whole: dict[type[Row], tuple[str, ...]] = {Unit: ("act", "born", "lease_id"), Event: ("hash",), Lease: ("id",)}
    found = []
    for kind, of_acts in whole.items():
        names = ", ".join(name for name in columns(kind) if name not in of_acts)
        found.append(sorted(connection.rows(f"SELECT {names} FROM {kind.table}"), key=repr))
    tables = {"body": "unit", "worker": "unit"}
    tables |= {
        "slot": "tenant, key",
        "token": "unit, fence",
        "schedule": "name",
        "skipped": "id",
        "tenant": "id",
        "key": "id",
        "asked": "tenant",
        "tally": "tenant, name, labels",
        "tallied": "tenant",
    }
    return found + [connection.rows(f"SELECT * FROM {table} ORDER BY {order}") for table, order in tables.items()]


@pytest.mark.parametrize("first", NAMES)
def test_every_pair_of_commands_is_the_same_in_one_group_and_in_two(first: str) -> None:
    template, named = prepared()
    assert isinstance(template.connection, SqliteConnection)
    for second in NAMES:
        results = []
        for together in (True, False):
            world = copy_of(template.connection)
            world.now_us = template.now_us
            committer = world.engine.committer
            futures = []
            for name in (first, second):
                futures.append(committer.put(named[name]))
                if not together:
                    committer.step()
            committer.step()
            results.append(([answer(future) for future in futures], rows(world.connection)))
            world.connection.close()
        assert results[0] == results[1], (first, second)


def test_only_the_offender_gets_the_error(world: World) -> None:
    committer = world.engine.committer
    futures = [
        committer.put(Submit(work=(Work(task="a", key="k", input="1"),))),
        committer.put(Submit(work=(Work(task="b"), Work(task="a", key="k", input="2")))),  # refused half-way
        committer.put(Cancel(unit=12345)),
        committer.put(Submit(work=(Work(task="c"),))),
    ]
    assert committer.step() == 4
    assert futures[0].result()[0].created
    with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT"):
        futures[1].result()
    with pytest.raises(Unknown):
        futures[2].result()
    assert futures[3].result()[0].created
    assert len(world.claim(world.worker(), limit=9)) == 2


def test_claims_of_one_group_do_not_take_the_same_units(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the group would be undone and its commands carried out one by one: right, and slow."""
    units = [made.unit for made in world.send(Submit(work=(Work(task="a"), Work(task="a"))))]
    one, two = world.worker("one"), world.worker("two")
    committer, commits = world.engine.committer, list[int]()
    commit = committer.commit
    monkeypatch.setattr(committer, "commit", lambda tx: (commits.append(1), commit(tx)))
    claims = [committer.put(Claim(worker=worker, key=f"k{worker}", nonce="n" * 16)) for worker in (one, two)]
    committer.step()
    assert sorted(grant.unit for claim in claims for grant in claim.result()) == units
    assert commits == [1]


def test_a_group_may_serve_several_tenants(world: World) -> None:
    committer = world.engine.committer
    mine = committer.put(Submit(work=(Work(task="a"),)))
    theirs = committer.put(Submit(tenant=2, work=(Work(task="a"),)))
    committer.step()
    with pytest.raises(Unknown):
        world.send(Cancel(tenant=2, unit=mine.result()[0].unit))
    assert world.send(Cancel(tenant=2, unit=theirs.result()[0].unit)).applied


@pytest.mark.parametrize(("result", "bodies"), [("1", ["update body"]), ("null", [])])
def test_five_hundred_jobs_finish_in_one_statement_a_table(
    world: World, monkeypatch: pytest.MonkeyPatch, result: str, bodies: list[str]
) -> None:
    """The flush of a batch costs one locking select and one act, whose trigger moves all units and ends their leases.

    Whatever its size, no row of a unit or of a lease is written besides; no result costs none.
    """
    world.send(Submit(work=tuple(Work(task="noop") for _ in range(501))))
    worker = world.worker(capacity=501)
    grants = world.claim(worker, limit=501)[:500]  # the last one would be told of its worker too, which is idle then
    world.send(Start(held=tuple(map(held, grants))))
    said: list[str] = []
    connection = world.connection
    count(connection, monkeypatch, said)
    finish = Finish(outcomes=tuple(Outcome(held=held(grant), result=result) for grant in grants))
    assert all(one.accepted for one in world.engine.send(finish))
    writes = [line for line in said if line.startswith(("insert", "update", "write", "many"))]
    locks = [line for line in said if line.startswith("rows SELECT unit.id, unit.tenant, unit.lane")]
    on_postgres = ["insert act"] if connection.many_writers else []
    assert sorted(writes) == [*on_postgres, *bodies, "update worker", "write_acts 1 acts, 0 born"]
    assert len(locks) <= 2  # the jobs, and their worker
    assert len(said) <= 12
    assert world.engine.send(finish)[0].accepted  # said again, it is answered again


def count(connection: Connection, monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    def spy(name: str, describe: Callable[..., str]) -> None:
        real = getattr(connection, name)

        def call(*args: Any) -> Any:
            said.append(f"{name} {describe(*args)}")
            return real(*args)

        monkeypatch.setattr(connection, name, call)

    spy("rows", lambda sql, params=None: sql)
    spy("insert", lambda rows: rows[0].table)
    spy("update", lambda rows, columns, key: rows[0].table)
    spy("write_acts", lambda acts, born: f"{len(acts)} acts, {len(born)} born")
    spy("many", lambda sql, rows: sql)


def test_a_thread_answers_what_was_sent_before_it_stops(tmp_path: Path) -> None:
    connection = SqliteConnection(str(tmp_path / "work.db"))
    migrate.upgrade(connection, shipped().values())
    engine = make_engine(connection, shipped())
    engine.start_threads()
    futures = [engine.put(Submit(work=(Work(task=f"t{number}"),))) for number in range(300)]
    engine.stop_threads()
    assert len({future.result(timeout=0)[0].unit for future in futures}) == 300
    connection.close()


def test_families_of_several_tenants_share_a_group(world: World) -> None:
    """What follows from a command is done for its own tenant, whoever came last in the group."""
    works = (
        Work(task="trip", lifecycle="ci_run", ref="r"),
        Work(task="build", lifecycle="ci_job", parent="r", ref="j"),
        Work(task="test", lifecycle="ci_job", parent="r", needs=("j",)),
    )
    committer = world.engine.committer
    runs = {}
    for tenant in (1, 2):
        runs[tenant] = world.send(Submit(tenant=tenant, work=works))[0].unit
        world.send(Decide(tenant=tenant, unit=runs[tenant], trigger="plan"))
    workers = {tenant: world.send(Register(tenant=tenant, name="w", incarnation="1", capacity=9)) for tenant in (1, 2)}
    for step in range(2):
        claims = [
            committer.put(Claim(tenant=one, worker=workers[one], key=f"{step}", nonce="n" * 16)) for one in (1, 2)
        ]
        assert committer.step() == 2
        grants = {tenant: future.result()[0] for tenant, future in zip((1, 2), claims, strict=True)}
        for verb in (Start, Heartbeat):
            futures = [committer.put(verb(tenant=one, held=(held(grants[one]),))) for one in (1, 2)]
            committer.step()
            assert all(future.result()[0].accepted for future in futures)
        ends = [committer.put(Finish(tenant=one, outcomes=(Outcome(held=held(grants[one])),))) for one in (1, 2)]
        committer.step()
        assert [future.result()[0].state for future in ends] == ["SUCCEEDED"] * 2
    assert world.count("unit", "state = 'SUCCESS'") == 2


def test_whoever_is_woken_by_an_answer_finds_those_of_the_whole_group(world: World) -> None:
    """Else its next command would go alone, while those of the others are on their way."""
    committer, seen = world.engine.committer, list[bool]()
    first, last = (committer.put(Submit(work=(Work(task=task),))) for task in ("a", "b"))
    first.add_done_callback(lambda _: call_after_answers(lambda: seen.append(last.done())))
    committer.step()
    assert seen == [True]
    call_after_answers(lambda: seen.append(False))  # nothing is being answered: it is done at once
    assert seen == [True, False]
