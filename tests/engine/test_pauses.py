"""Pauses: of a queue, a task or a family nothing starts after the answer, what runs goes on, and `why` says who."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.client.why import explain
from interlock.kernel.commands import (
    Claim,
    Decide,
    LeaseGrant,
    PauseStatus,
    PauseWork,
    Register,
    Submit,
    Tick,
    UnpauseWork,
    Work,
)
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.rows import PauseRow
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.plugins.pauses import verbs
from interlock.plugins.pauses.queries import find_granted_since, find_parked_on_none, pauses_of
from interlock.store.postgres import PostgresConnection
from tests.engine.world import SECOND, World
from tests.store.databases import declare, fresh_postgres

HOUR = 3600
PATIENCE = 30  # seconds
FAMILY = (
    Work(task="deploy", lifecycle="workflow_run", ref="run"),
    Work(task="build", lifecycle="step", parent="run", ref="build"),
    Work(task="test", lifecycle="step", parent="run", ref="test", needs=("build",)),
)


def pause(world: World, **facts: Any) -> PauseStatus:
    return world.send(PauseWork(**{"actor": "ann", "reason": "the provider is down", **facts}))


def unpause(world: World, **facts: Any) -> PauseStatus:
    return world.send(UnpauseWork(**{"actor": "bob", **facts}))


def take(world: World, limit: int = 10, **facts: Any) -> list[int]:
    """The units that a worker gets."""
    return [grant.unit for grant in claim(world, limit, **facts)]


def claim(world: World, limit: int = 10, **facts: Any) -> list[LeaseGrant]:
    worker = world.worker("w", incarnation=str(world.claims), capacity=5000)
    return world.claim(worker, limit, **facts)


def why(world: World, unit: int) -> str:
    declare(world.connection, 1)
    return explain(world.connection, 1, world.lifecycles, unit).text


def pauses(world: World, **facts: Any) -> list[PauseRow]:
    declare(world.connection, 1)
    return pauses_of(world.connection, 1, **facts)


def test_of_a_paused_queue_nothing_starts_and_what_runs_goes_on(world: World) -> None:
    first, second = world.submit(), world.submit()
    (grant,) = claim(world, 1)
    assert grant.unit == first
    told = pause(world, queue="default")
    assert (told.kind, told.name, told.paused, told.changed, told.by) == ("queue", "default", True, True, "ann")
    later, elsewhere = world.submit(), world.submit(queue="other")
    assert take(world, queues=("default", "other")) == [elsewhere]
    world.start(grant)
    assert world.finish(grant).accepted
    assert take(world) == []
    assert unpause(world, queue="default").changed
    assert take(world) == [second, later]


def test_of_a_paused_task_nothing_starts_and_others_behind_it_do(world: World) -> None:
    mails = [world.submit("mail", priority=9) for _ in range(3)]
    other = world.submit("report")
    pause(world, task="mail")
    assert take(world, limit=1) == [other]
    assert [world.unit(mail).parked_on for mail in mails] == ["pause:task:mail"] * 3
    late = world.submit("mail")
    assert take(world) == []
    unpause(world, task="mail")
    assert take(world) == [*mails, late]


def test_of_a_paused_run_no_step_starts_and_the_one_that_runs_goes_on(world: World) -> None:
    run, build, test = [made.unit for made in world.send(Submit(work=FAMILY))]
    (grant,) = claim(world)
    assert grant.unit == build
    pause(world, unit=run)
    world.start(grant)
    world.finish(grant)
    alone = world.submit()
    assert take(world) == [alone]
    assert world.unit(test).parked_on == f"pause:unit:{run}"
    unpause(world, unit=run)
    assert take(world) == [test]


def test_a_pause_reaches_what_is_far_below(world: World) -> None:
    ci = (
        Work(task="ci", lifecycle="ci_run", ref="run"),
        Work(task="build", lifecycle="ci_job", parent="run", ref="job"),
    )
    run, job = [made.unit for made in world.send(Submit(work=ci))]
    world.send(Decide(unit=run, trigger="plan"))
    pause(world, unit=run)
    assert take(world) == []
    unpause(world, unit=run)
    (attempt,) = take(world)
    assert world.unit(attempt).parent == job


def test_a_paused_job_alone_waits(world: World) -> None:
    job, other = world.submit(), world.submit()
    pause(world, unit=job)
    assert take(world) == [other]
    unpause(world, unit=job)
    assert take(world) == [job]


def test_a_pause_ends_at_its_time(world: World) -> None:
    job = world.submit()
    pause(world, task="mail", for_us=HOUR * SECOND)
    assert take(world) == []
    world.pass_time(HOUR - 1)
    world.tick()
    assert take(world) == []
    world.pass_time(1)
    late = world.submit()
    assert take(world, limit=1) == [late], "what no claim had come across is free at that instant"
    world.tick()
    assert take(world) == [job]
    (ended,) = pauses(world, ended=True)
    assert (ended.ended_by, ended.live) == ("clock", 0)


def test_a_queue_goes_on_at_its_time_without_a_tick(world: World) -> None:
    job = world.submit()
    pause(world, queue="default", until=world.now_us + HOUR * SECOND)
    assert take(world) == []
    world.pass_time(HOUR)
    assert take(world) == [job]


def test_what_fails_while_it_is_paused_waits_for_its_next_attempt(world: World) -> None:
    job = world.submit(backoff_us=SECOND)
    (grant,) = claim(world)
    pause(world, task="mail")
    world.finish(grant, ended="failure", error="no")
    world.pass_time(HOUR)
    world.tick()
    assert take(world) == []
    assert world.unit(job).attempt == 2
    unpause(world, task="mail")
    assert take(world) == [job]


def test_a_paused_job_gives_its_mutex_to_others(world: World) -> None:
    first = world.submit("mail", mutex="m")
    second = world.submit("report", mutex="m")
    pause(world, task="mail")
    assert take(world) == [second]
    unpause(world, task="mail")
    assert world.unit(first).parked_on == "mutex:m"


def test_a_paused_job_can_be_cancelled_and_times_out(world: World) -> None:
    job, short = world.submit(), world.submit(queue_timeout_us=HOUR * SECOND)
    pause(world, task="mail")
    assert take(world) == []
    assert world.cancel(job).applied
    world.pass_time(HOUR)
    world.tick()
    assert [world.unit(unit).outcome is not None for unit in (job, short)] == [True, True]
    unpause(world, task="mail")
    assert take(world) == []


def test_the_pause_of_a_run_ends_with_the_run(world: World) -> None:
    run, *_ = [made.unit for made in world.send(Submit(work=FAMILY))]
    pause(world, unit=run)
    assert take(world) == []
    world.cancel(run)
    world.tick()
    assert pauses(world) == []


def test_many_that_are_parked_are_released_bit_by_bit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "RELEASED", 3)
    jobs = [made.unit for made in world.send(Submit(work=(Work(task="mail"),) * 8))]
    pause(world, task="mail")
    assert take(world) == []
    unpause(world, task="mail")
    assert sum(world.unit(job).available_at is not None for job in jobs) == 3
    world.send(Tick(limit=3))
    assert sum(world.unit(job).available_at is not None for job in jobs) == 6
    world.send(Tick(limit=3))
    assert take(world, limit=10) == jobs
    assert world.count("pause", "live = 1") == 0


def test_paused_again_while_it_is_released_bit_by_bit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "RELEASED", 3)
    world.send(Submit(work=(Work(task="mail"),) * 8))
    pause(world, task="mail")
    take(world)
    unpause(world, task="mail")
    pause(world, task="mail")
    world.send(Tick(limit=3))
    assert take(world) == []
    assert world.count("unit", "parked_on LIKE 'pause:%'") == 8
    assert world.count("pause", "live = 1") == 1


def test_why_says_who_paused_it_and_why_and_until_when(world: World) -> None:
    run, build, _ = [made.unit for made in world.send(Submit(work=FAMILY))]
    pause(world, unit=run, until=world.now_us + HOUR * SECOND)
    said = "is paused by ann at 2023-11-14T22:13:20.000Z until 2023-11-14T23:13:20.000Z (in 1h): the provider is down"
    assert why(world, run).splitlines()[0].endswith(said)
    first, second, *_ = why(world, build).splitlines()
    assert " waits: workflow_run_" in first
    assert first.endswith(said)
    assert second.strip().startswith("let it go on: interlock unpause workflow_run_")
    take(world)
    assert why(world, build).splitlines()[0] == first, "it is the same once a claim has come across it"
    job = world.submit(queue="q")
    pause(world, queue="q", reason="")
    assert "waits: queue 'q' is paused by ann at " in why(world, job)
    assert "interlock unpause --queue q" in why(world, job)


def test_why_of_one_that_is_not_released_yet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "RELEASED", 1)
    jobs = [made.unit for made in world.send(Submit(work=(Work(task="mail"),) * 3))]
    pause(world, task="mail")
    take(world)
    unpause(world, task="mail")
    assert "goes on as soon as a tick has come to it" in why(world, jobs[-1])


def test_pausing_again_changes_the_reason_and_the_same_again_nothing(world: World) -> None:
    assert pause(world, queue="q").changed
    assert not pause(world, queue="q").changed
    told = pause(world, queue="q", reason="it is still down", for_us=HOUR * SECOND)
    assert (told.changed, told.reason, told.until) == (True, "it is still down", world.now_us + HOUR * SECOND)
    (now,) = pauses(world)
    assert now.reason == "it is still down"
    assert unpause(world, queue="q").changed
    assert not unpause(world, queue="q").changed
    first, second = reversed(pauses(world, ended=True))
    assert [(row.actor, row.ended_by) for row in (first, second)] == [("ann", "ann"), ("ann", "bob")]


def test_who_paused_and_unpaused_a_run_stays_with_it(world: World) -> None:
    job = world.submit()
    pause(world, unit=job)
    unpause(world, unit=job)
    said = [msgspec.json.decode(world.notes(job, kind)[0].payload)["by"] for kind in ("paused", "unpaused")]
    assert said == ["ann", "bob"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "name one thing to pause: a queue, a task, or the id of a job or run"),
        ({"queue": "q", "task": "t"}, "name one thing to pause"),
        ({"queue": ""}, "queue = '' is not allowed"),
        ({"task": "x" * 201}, "is not allowed; allowed are 1 to 200 characters"),
        ({"queue": "q", "until": 5}, "until is not allowed: it must be a time to come"),
        ({"queue": "q", "until": 2**62}, "until is not allowed: it must be a time to come"),
        ({"queue": "q", "for_us": 0}, "for_us = 0 is not allowed"),
        ({"queue": "q", "for_us": 5, "until": 5}, "not allowed together"),
        ({"queue": "q", "reason": "\0"}, "reason"),
    ],
)
def test_a_wrong_pause_is_refused_and_changes_nothing(world: World, facts: dict[str, Any], said: str) -> None:
    with pytest.raises(InterlockError, match=said):
        pause(world, **facts)
    assert world.count("pause") == 0


def test_what_cannot_be_paused(world: World) -> None:
    with pytest.raises(Unknown):
        pause(world, unit=999)
    with pytest.raises(Unknown):
        unpause(world, unit=999)
    with pytest.raises(InterlockError, match="is a worker; pause a queue"):
        pause(world, unit=world.worker())
    job = world.submit()
    world.cancel(job)
    with pytest.raises(InterlockError, match=r"has ended .*: nothing of it can start"):
        pause(world, unit=job)
    theirs = world.send(Submit(work=(Work(task="mail"),), tenant=2))[0].unit
    with pytest.raises(Unknown):
        pause(world, unit=theirs)


def test_a_tenant_pauses_only_its_own(world: World) -> None:
    theirs = world.send(Submit(work=(Work(task="mail"),), tenant=2))[0].unit
    pause(world, queue="default")
    pause(world, task="mail")
    worker = world.worker("theirs", tenant=2)
    grants = world.send(Claim(tenant=2, worker=worker, key="k", nonce="n" * 16))
    assert [grant.unit for grant in grants] == [theirs]


def test_no_more_than_a_thousand_things_are_paused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "PAUSED_MAX", 2)
    pause(world, queue="a")
    pause(world, queue="b")
    with pytest.raises(InterlockError, match="2 things are paused, and no more may be"):
        pause(world, queue="c")
    assert pause(world, queue="b", reason="another").changed


def test_the_laws_notice_a_grant_under_a_pause_and_a_parking_on_none(world: World) -> None:
    job = world.submit()
    pause(world, queue="default", for_us=HOUR * SECOND)
    world.pass_time(HOUR)
    assert take(world) == [job]
    declare(world.connection, 1)
    world.connection.rows("UPDATE pause SET until = NULL")
    assert [unit for unit, _ in find_granted_since(world.connection)] == [job]
    world.connection.rows("UPDATE pause SET ended_at = 1, live = 0")
    assert list(find_granted_since(world.connection)) == []
    other = world.submit()
    pause(world, task="mail")
    take(world)
    world.connection.rows("UPDATE pause SET live = 0, ended_at = 1")
    assert [unit for unit, _ in find_parked_on_none(world.connection)] == [other]


# On PostgreSQL claims and pauses overlap.


def test_what_was_granted_before_the_clock_was_put_back_is_not_called_wrong(world: World) -> None:
    job = world.submit()
    world.pass_time(10)
    assert take(world) == [job]
    world.pass_time(-5)
    pause(world, queue="default")
    declare(world.connection, 1)
    assert list(find_granted_since(world.connection)) == []


def test_a_pause_waits_for_claims_that_are_on_their_way(server: str, tmp_path: Path) -> None:
    with fresh_postgres(server, f"p{abs(hash(tmp_path))}") as url, ThreadPoolExecutor() as pool:
        first, second, third = (PostgresConnection(url) for _ in range(3))
        with closing(first), closing(second), closing(third):
            engines = [make_engine(connection, shipped()) for connection in (first, second)]
            engines[0].send(Submit(work=(Work(task="mail"),)))
            # As a claim does that has read the pauses and has not granted yet.
            third.begin([1])
            third.rows("SELECT pg_advisory_xact_lock_shared(1886745189, 1)")
            pausing = pool.submit(engines[0].send, PauseWork(queue="default"))
            wait_until_one_waits(third)
            assert not pausing.done()
            third.commit()
            assert pausing.result(30).changed
            # As a pause does that is not committed: a claim waits for it, and grants nothing.
            third.begin([1])
            third.rows("SELECT pg_advisory_xact_lock(1886745189, 1)")
            claiming = pool.submit(claim_once, engines[1])
            wait_until_one_waits(third)
            assert not claiming.done()
            third.commit()
            assert claiming.result(30) == []


def claim_once(engine: Any) -> list[LeaseGrant]:
    worker = engine.send(Register(name="w", incarnation="1", capacity=9))
    grants: list[LeaseGrant] = engine.send(Claim(worker=worker, key="k", nonce="n" * 16))
    return grants


def wait_until_one_waits(connection: PostgresConnection) -> None:
    end = time.monotonic() + PATIENCE
    while not connection.rows("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"):
        assert time.monotonic() < end, "nobody waits for the lock"
