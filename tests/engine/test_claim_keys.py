"""A claim's own key: the same claim is answered with the same leases, another one with others."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock.kernel.commands import Claim, Register, Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from tests.engine.world import World
from tests.store.databases import fresh_postgres

NONCE = "a-nonce-that-nobody-could-have-guessed"


@pytest.mark.req("R2-48")
def test_the_same_claim_is_the_same_lease_and_another_claim_another(world: World) -> None:
    for _ in range(4):
        world.submit()
    worker = world.worker()
    first = world.claim(worker, key="first", nonce=NONCE, limit=2)
    assert len(first) == 2
    assert world.claim(worker, key="first", nonce=NONCE, limit=2) == first
    assert world.claim(worker, key="first", nonce=NONCE, limit=9) == first  # however many it asks for now
    second = world.claim(worker, key="second", nonce=f"{NONCE}-2", limit=2)
    assert world.claim(worker, key="second", nonce=f"{NONCE}-2", limit=2) == second
    assert len({grant.unit for grant in (*first, *second)}) == 4
    assert len({grant.lease for grant in (*first, *second)}) == 4
    assert {world.unit(grant.unit).fence for grant in (*first, *second)} == {1}
    assert world.count("event", "trigger = 'claim'") == 4


@pytest.mark.req("R2-48")
def test_a_claim_that_comes_again_after_its_leases_ended_gets_nothing(world: World) -> None:
    world.submit()
    world.submit()
    worker = world.worker()
    (grant,) = world.claim(worker, key="once", nonce=NONCE)
    world.start(grant)
    world.finish(grant)
    assert world.claim(worker, key="once", nonce=NONCE) == []  # not the next one: A2-10
    assert world.count("unit", "lease IS NOT NULL AND outcome IS NULL") == 0


@pytest.mark.req("R2-48")
def test_one_claim_sent_twice_at_once_is_one_lease(server: str, tmp_path: Path) -> None:
    """By two connections of one worker, with more work than they ask for, on both databases."""
    with fresh_postgres(server, f"c{abs(hash(tmp_path))}") as url:
        for place in (url, f"sqlite:///{tmp_path}/work.db"):
            claim_at_once(place)


def claim_at_once(url: str) -> None:
    with open_engine(url, shipped()) as one, open_engine(url, shipped()) as two, ThreadPoolExecutor(8) as pool:
        one.send(Submit(work=(Work(task="mail"),) * 50))
        worker = one.send(Register(name="w", incarnation="1", capacity=100))
        for number in range(10):
            claim = Claim(worker=worker, key=f"k{number}", nonce=f"{NONCE}-{number}")
            answers = list(pool.map(lambda place, claim=claim: (one, two)[place % 2].send(claim), range(8)))  # type: ignore[misc]
            assert [len(grants) for grants in answers] == [1] * 8
            assert len({grants[0].lease for grants in answers}) == 1
        held = one.read(lambda connection: connection.rows("SELECT count(*) FROM unit WHERE holder IS NOT NULL"))
        assert held == [(10,)]


@pytest.mark.req("R2-48")
def test_a_key_is_its_workers_own(world: World) -> None:
    """Two workers that chose one key: each unit has one lease, and neither hears the other's (A2-10)."""
    for _ in range(2):
        world.submit()
    one, two = world.worker("one"), world.worker("two")
    (first,) = world.claim(one, key="k", nonce=NONCE)
    (second,) = world.claim(two, key="k", nonce=f"{NONCE}-2")
    assert first.unit != second.unit
    assert world.claim(one, key="k", nonce=NONCE) == [first]
    assert world.claim(two, key="k", nonce=f"{NONCE}-2") == [second]
