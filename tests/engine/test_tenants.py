"""The limits of a tenant: what workers hold and what waits is never more, and other tenants go on."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread

import pytest

from interlock.core.engine import Engine
from interlock.kernel.commands import (
    Claim,
    DefineSchedule,
    Finish,
    FireSchedule,
    LeaseGrant,
    Outcome,
    Register,
    SetTenant,
    Submit,
    Tick,
    Work,
)
from interlock.kernel.errors import InterlockError, LimitReached
from interlock.lifecycles import shipped
from interlock.plugins import make_engine, open_engine
from interlock.store.queries.tenants import count_held as held_of
from interlock.store.queries.tenants import count_waiting
from interlock.store.url import connect
from tests.engine.test_claimers import opened, url
from tests.engine.world import SECOND, World, held
from tests.store.databases import Connection, declare

__all__ = ["url"]
JOBS, ENGINES, LIMIT = 60, 4, 3


def limit(world: World, running: int | None = None, waiting: int | None = None) -> None:
    world.send(SetTenant(max_running=running, max_waiting=waiting))


@pytest.mark.req("X-06")
def test_a_tenant_at_its_limit_gets_no_more_and_others_go_on(world: World) -> None:
    limit(world, running=2)
    worker = world.worker()
    for _ in range(5):
        world.submit()
    first, second = world.claim(worker, limit=5)
    assert world.claim(worker, limit=5) == []
    assert world.claim(world.worker("v")) == []
    world.send(Submit(tenant=2, work=(Work(task="mail"),) * 4))
    other = world.send(Register(tenant=2, name="w", incarnation="1", capacity=9))
    assert len(world.send(Claim(tenant=2, worker=other, key="k", nonce="n" * 16, limit=9))) == 4
    world.start(first)
    world.finish(first)
    (third,) = world.claim(worker, limit=5)
    world.release(second)
    assert [grant.unit for grant in world.claim(worker, limit=5)] == [second.unit]
    limit(world, running=None)
    assert len(world.claim(worker, limit=5)) == 2
    assert third.unit == first.unit + 2


def test_a_lease_that_is_over_makes_room_in_the_same_claim(world: World) -> None:
    limit(world, running=1)
    for _ in range(2):
        world.submit()
    (lost,) = world.claim(world.worker("ann"), limit=2)
    world.pass_time(100)
    (grant,) = world.claim(world.worker("bob"), limit=2)
    assert grant.unit == lost.unit + 1  # the lost one backs off


def test_a_limit_below_what_is_held_takes_nothing_away(world: World) -> None:
    worker = world.worker()
    for _ in range(4):
        world.submit()
    first, *_ = world.claim(worker, limit=3)
    limit(world, running=1)
    assert world.beat(first).accepted
    assert world.claim(worker) == []
    limit(world, running=0)
    assert world.claim(worker) == []


def test_a_queue_that_is_full_refuses_and_says_the_numbers(world: World) -> None:
    world.send(SetTenant(name="acme", max_waiting=3))
    world.submit(key="a", input="1")
    world.submit(delay_us=60 * SECOND)
    world.submit(mutex="m")
    before = world.count("unit")
    text = "TENANT_LIMIT: of tenant 'acme' at most 3 jobs may wait; 3 do, and 1 more were submitted"
    with pytest.raises(LimitReached, match=text):
        world.submit()
    assert world.count("unit") == before
    assert world.submit(key="a", input="1") == 1  # it is there already
    assert world.submit(key="a", input="2", on_duplicate="replace") > 1
    assert world.submit(lifecycle="workflow_run")  # no worker is asked for it
    world.send(Submit(tenant=2, work=(Work(task="mail"),) * 9))
    world.claim(world.worker())
    world.submit(mutex="m")
    with pytest.raises(LimitReached, match="3 do, and 2 more"):
        world.send(Submit(work=(Work(task="mail"),) * 2))
    declare(world.connection, 1)
    assert (held_of(world.connection, 1), count_waiting(world.connection, 1)) == (1, 3)


def test_two_submits_of_one_group_count_each_other(world: World) -> None:
    limit(world, waiting=3)
    committer = world.engine.committer
    futures = [committer.put(Submit(work=(Work(task="mail"),) * 2)) for _ in range(2)]
    committer.step()
    assert len(futures[0].result()) == 2
    with pytest.raises(LimitReached, match="2 do, and 2 more"):
        futures[1].result()
    assert world.count("unit") == 2


def test_a_schedule_of_a_full_tenant_skips_and_says_why(world: World) -> None:
    world.send(DefineSchedule(name="s", timing="every 1m", work=Work(task="mail"), overlap="allow"))
    limit(world, waiting=1)
    world.submit()
    world.pass_time(61)
    world.send(Tick())
    declare(world.connection, 1)
    ((reason,),) = world.connection.rows("SELECT reason FROM skipped")
    assert reason.startswith("refused: TENANT_LIMIT: of tenant 'default' at most 1 jobs may wait")
    with pytest.raises(LimitReached):
        world.send(FireSchedule(name="s"))


def test_what_is_said_of_a_tenant_is_checked_and_the_rest_stays(world: World) -> None:
    made = world.send(SetTenant(tenant=7, max_running=2))
    assert (made.name, made.max_running, made.max_waiting, made.changed) == ("tenant-7", 2, None, True)
    assert not world.send(SetTenant(tenant=7, max_running=2)).changed
    named = world.send(SetTenant(tenant=7, name="acme", max_waiting=5))
    assert (named.name, named.max_running, named.max_waiting) == ("acme", 2, 5)
    refused = {
        "tenant 7 has the name 'acme' already": SetTenant(tenant=8, name="acme"),
        "name '12' is a number": SetTenant(tenant=8, name="12"),
        "max_running": SetTenant(tenant=7, max_running=-1),
        "tenant": SetTenant(tenant=0, max_running=1),
    }
    for text, command in refused.items():
        with pytest.raises(InterlockError, match=text):
            world.send(command)
    assert world.connection.rows("SELECT id, name FROM tenant ORDER BY id") == [(1, "default"), (7, "acme")]


class Hand(Thread):
    """A worker with an engine of its own: it claims as much as it can get, and finishes it, until all is done."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(daemon=True)
        self.url, self.number = url, number
        self.done = self.most = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with closing(connect(self.url)) as connection:
                self.work(make_engine(connection, shipped()), connection)
        except BaseException as error:
            self.error = error

    def work(self, engine: Engine, connection: Connection) -> None:
        worker = engine.send(Register(name=f"w{self.number}", incarnation="1", capacity=100))
        rounds = 0
        while self.left(engine):
            rounds += 1
            key = f"{self.number}-{rounds}"
            grants: list[LeaseGrant] = engine.send(Claim(worker=worker, key=key, nonce=f"{key:0>16}", limit=10))
            self.most = max(self.most, engine.read(lambda connection: held_of(connection, 1)))
            if grants:
                engine.send(Finish(outcomes=tuple(Outcome(held=held(grant)) for grant in grants)))
            self.done += len(grants)

    def left(self, engine: Engine) -> int:
        return engine.read(lambda connection: held_of(connection, 1) + count_waiting(connection, 1))


@pytest.mark.req("X-06")
def test_engines_that_race_never_exceed_the_limit(url: str) -> None:
    """What is held is looked at after every claim, from one picture of the database."""
    with closing(opened(url)) as connection:
        engine = make_engine(connection, shipped())
        engine.send(SetTenant(max_running=LIMIT))
        engine.send(Submit(work=(Work(task="mail", lifecycle="step"),) * JOBS))
    hands = [Hand(url, number) for number in range(ENGINES)]
    for hand in hands:
        hand.start()
    for hand in hands:
        hand.join(120)
    assert [hand.error for hand in hands] == [None] * ENGINES
    assert sum(hand.done for hand in hands) == JOBS
    assert max(hand.most for hand in hands) <= LIMIT


@pytest.fixture
def engines(url: str) -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        made = [make_engine(stack.enter_context(closing(opened(url))), shipped()) for _ in range(ENGINES)]
        for engine in made:
            engine.start_threads()
        yield made
        for engine in made:
            engine.stop_threads()


@pytest.mark.req("X-06")
def test_submits_that_race_never_make_a_queue_too_long(engines: list[Engine]) -> None:
    engines[0].send(SetTenant(max_waiting=10))
    futures = [engine.put(Submit(work=(Work(task="mail"),) * 3)) for _ in range(5) for engine in engines]
    refused = [future for future in futures if isinstance(future.exception(60), LimitReached)]
    assert len(futures) - len(refused) == 3
    assert engines[0].read(lambda connection: count_waiting(connection, 1)) == 9


def test_whoever_was_kept_by_a_limit_is_woken_when_there_is_room(url: str, tmp_path: Path) -> None:
    with open_engine(url, shipped()) as engine, engine.watch(["default"]) as watch:
        engine.send(SetTenant(max_running=1))
        engine.send(Submit(work=(Work(task="mail", lifecycle="step"),) * 2))
        worker = engine.send(Register(name="w", incarnation="1", capacity=10))
        (grant,) = engine.send(Claim(worker=worker, key="k", nonce="n" * 16, limit=2))
        while watch.wait(0.3):
            pass  # what has been rung so far
        engine.send(Finish(outcomes=(Outcome(held=held(grant)),)))
        assert watch.wait(60)
        while watch.wait(0.3):
            pass
        assert len(engine.send(Claim(worker=worker, key="l", nonce="n" * 16, limit=2))) == 1
        engine.send(SetTenant(max_running=None))
        assert watch.wait(60)
