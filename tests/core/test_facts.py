"""What an engine has once been told holds while plain jobs come and go, and no longer."""

from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.kernel.commands import (
    Claim,
    DefineTask,
    Finish,
    Outcome,
    PauseWork,
    Register,
    SetTenant,
    Start,
    Submit,
    UnpauseWork,
    Work,
)
from interlock.kernel.errors import InterlockError, LimitReached
from interlock.kernel.parameters import Parameter
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store.sqlite import SqliteConnection
from tests.engine.world import World, held
from tests.store.databases import fresh

ASKED = ("FROM pause", "FROM token", "FROM lane", "FROM task_definition", "wake_at <= :now", "until <= :now")


def run_jobs(world: World, worker: int, count: int = 3) -> None:
    """So many plain jobs come and go, one after the other."""
    for _ in range(count):
        world.submit()
        (grant,) = world.claim(worker)
        world.send(Start(held=(held(grant),)))
        world.send(Finish(outcomes=(Outcome(held=held(grant)),)))


def test_nothing_is_asked_for_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = world.worker()
    run_jobs(world, worker)
    said: list[str] = []
    rows = world.connection.rows
    monkeypatch.setattr(world.connection, "rows", lambda sql, params=None: (said.append(sql), rows(sql, params))[1])
    world.engine.send(Submit(work=(Work(task="mail"),)))
    (grant,) = world.engine.send(Claim(worker=worker, key="own", nonce="n" * 16))
    world.engine.send(Finish(outcomes=(Outcome(held=held(grant)),)))
    assert said
    if not world.connection.many_writers:  # there it goes with BEGIN, because others may have written
        assert [sql for sql in said if any(part in sql for part in ASKED)] == []


@pytest.mark.parametrize("paused", [{"queue": "default"}, {"task": "mail"}])
def test_a_pause_holds_at_once(world: World, paused: dict[str, str]) -> None:
    worker = world.worker()
    run_jobs(world, worker)
    job = world.submit()
    world.send(PauseWork(**paused))
    assert world.claim(worker) == []
    assert world.claim(worker) == []
    world.send(UnpauseWork(**paused))
    assert [grant.unit for grant in world.claim(worker)] == [job]


def test_a_queue_that_is_paused_says_nothing_of_another(world: World) -> None:
    worker = world.worker()
    world.send(PauseWork(queue="other"))
    run_jobs(world, worker)
    world.submit(queue="other")
    assert world.claim(worker, queues=("other",)) == []
    assert world.claim(worker, queues=("default", "other")) == []


@pytest.mark.parametrize("started", [False, True])
def test_a_lease_that_expires_is_seen_by_the_next_claim(world: World, started: bool) -> None:
    first, second = world.worker(), world.worker("other")
    run_jobs(world, first)
    job = world.submit()
    (grant,) = world.claim(first)
    if started:
        world.start(grant)
    run_jobs(world, second, count=2)
    world.pass_time(61)
    assert [grant.unit for grant in world.claim(second)] == [job]


def test_a_job_that_runs_for_too_long_is_seen_by_the_next_claim(world: World) -> None:
    first, second = world.worker(), world.worker("other")
    run_jobs(world, first)
    job = world.submit(timeout_us=5_000_000)
    (grant,) = world.claim(first)
    world.start(grant)
    run_jobs(world, second, count=2)
    world.pass_time(6)
    world.claim(second)
    assert world.unit(job).state != "running"


def test_what_is_delayed_is_claimed_once_it_is_due(world: World) -> None:
    worker = world.worker()
    run_jobs(world, worker)
    job = world.submit(delay_us=2_000_000)
    run_jobs(world, worker, count=2)
    world.pass_time(3)
    assert [grant.unit for grant in world.claim(worker)] == [job]


def test_a_token_of_a_rate_that_is_back_is_given_by_the_next_claim(world: World) -> None:
    worker = world.worker()
    rate = {"rate_key": "mail", "rate": 1, "rate_per_us": 2_000_000}
    first, second = world.submit(**rate), world.submit(**rate)
    assert [grant.unit for grant in world.claim(worker, limit=2)] == [first]
    run_jobs(world, worker)
    world.pass_time(3)
    assert [grant.unit for grant in world.claim(worker)] == [second]


def test_limits_hold_at_once(world: World) -> None:
    worker = world.worker()
    run_jobs(world, worker)
    world.submit()
    world.send(SetTenant(max_running=0, max_waiting=1))
    assert world.claim(worker) == []
    with pytest.raises(LimitReached):
        world.submit()


def test_a_definition_holds_at_once(world: World) -> None:
    run_jobs(world, world.worker())
    world.send(DefineTask(work=Work(task="mail"), parameters=(Parameter(name="to", kinds=("text",), required=True),)))
    with pytest.raises(InterlockError, match="to"):
        world.submit()


def test_a_pause_and_a_claim_in_one_group(world: World) -> None:
    """What shares a transaction with something else goes by no fact."""
    worker = world.worker()
    run_jobs(world, worker)
    world.submit()
    committer = world.engine.committer
    claim = Claim(worker=worker, key="k", nonce="n" * 16)
    futures = [committer.put(PauseWork(queue="default")), committer.put(claim)]
    assert committer.step() == 2
    assert futures[1].result() == []


def test_what_another_process_writes_is_seen(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """On a file that several programs have open."""
    with fresh("sqlite file", tmp_path, "") as connection:
        assert isinstance(connection, SqliteConnection)
        other = SqliteConnection(connection.path)
        one, two = make_engine(connection, shipped()), make_engine(other, shipped())
        worker = one.send(Register(name="w", incarnation="1", capacity=9))
        keys = iter(range(99))

        def claim() -> int:
            return len(one.send(Claim(worker=worker, key=f"{next(keys)}", nonce="n" * 16)))

        submit: Callable[[], object] = lambda: one.send(Submit(work=(Work(task="mail"),)))  # noqa: E731
        for _ in range(2):
            submit()
            assert claim() == 1
        submit()
        two.send(PauseWork(queue="default"))
        assert claim() == 0
        two.send(UnpauseWork(queue="default"))
        assert claim() == 1
        two.send(SetTenant(max_waiting=0))
        with pytest.raises(LimitReached):
            submit()
        other.close()
