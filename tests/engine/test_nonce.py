"""A claim's nonce is the worker's own secret: what is stored lets nobody who reads it compute a live lease."""

from hashlib import blake2b, sha256
from typing import Any

import msgspec
import pytest

from interlock.core.lease_secrets import NONCE_MIN, make_secret
from interlock.kernel.commands import Claim
from interlock.kernel.errors import InterlockError
from interlock.store.connection import Connection
from tests.engine.world import World
from tests.store.databases import declare

NONCE = "0123456789abcdef" * 2


def tables(connection: Connection) -> list[str]:
    wanted = (
        "SELECT name FROM sqlite_master WHERE type = 'table'"
        if connection.name == "sqlite"
        else "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    )
    return [name for (name,) in connection.rows(wanted)]


def stored_values(world: World) -> set[str]:
    """Every text and number of every row, and every text and number within stored JSON."""
    declare(world.connection, 1)
    found: set[str] = set()
    for table in tables(world.connection):
        for row in world.connection.rows(f"SELECT * FROM {table}"):
            for value in row:
                found |= values_within(value)
    return found


def values_within(value: Any) -> set[str]:
    found = {str(value)}
    if isinstance(value, str) and value[:1] in ("{", "["):
        pending = [msgspec.json.decode(value)]
        while pending:
            part = pending.pop()
            if isinstance(part, dict):
                pending += part.values()
            elif isinstance(part, list):
                pending += part
            else:
                found.add(str(part))
    return found


@pytest.mark.parametrize("nonce", [NONCE, "a nonce of more than 64 bytes, " * 4], ids=["short", "long"])
def test_a_reader_of_the_database_cannot_compute_a_live_lease(world: World, nonce: str) -> None:
    """Whatever is stored is tried as the nonce, as it is and as the bytes and digests that it may stand for."""
    world.submit()
    (grant,) = world.claim(world.worker(), key="k", nonce=nonce)
    values = stored_values(world)
    assert sha256(grant.lease.encode()).hexdigest() in values, "the search has seen what is stored of the lease"
    assert not values & {nonce, grant.lease, sha256(nonce.encode()).hexdigest()}
    message = b"%d:%d:k" % (grant.unit, grant.fence)
    assert make_secret(nonce, "k", grant.unit, grant.fence) == grant.lease
    for value in values:
        assert make_secret(value, "k", grant.unit, grant.fence) != grant.lease
        for key in possible_keys(value):
            assert blake2b(message, key=key, digest_size=32).hexdigest() != grant.lease


def possible_keys(value: str) -> list[bytes]:
    try:
        raw = bytes.fromhex(value)
    except ValueError:
        raw = b""
    return [key for key in (raw, sha256(value.encode()).digest(), sha256(raw).digest()) if len(key) <= 64]


def test_the_same_claim_with_the_same_nonce_gets_the_same_leases(world: World) -> None:
    world.submit()
    world.submit()
    worker = world.worker()
    first = world.claim(worker, key="k", nonce=NONCE)
    assert len(first) == 1
    assert world.claim(worker, key="k", nonce=NONCE) == first


def test_the_same_claim_with_another_nonce_is_refused_and_gets_nothing(world: World) -> None:
    world.submit()
    world.submit()
    worker = world.worker()
    first = world.claim(worker, key="k", nonce=NONCE)
    before = jobs(world)
    with pytest.raises(InterlockError, match=r"'k' was made with another nonce.*repeat it with its own.*another key"):
        world.claim(worker, key="k", nonce=NONCE[::-1])
    assert jobs(world) == before
    assert world.claim(worker, key="k", nonce=NONCE) == first


def test_claims_under_one_nonce_do_not_get_each_others_leases(world: World) -> None:
    """Also not when claims with other nonces were between them."""
    for _ in range(4):
        world.submit()
    worker = world.worker()
    for key, nonce in (("a", NONCE), ("b", NONCE), ("c", NONCE[::-1]), ("d", NONCE)):
        got = world.claim(worker, key=key, nonce=nonce)
        assert len(got) == 1
        assert world.claim(worker, key=key, nonce=nonce) == got


def jobs(world: World) -> list[tuple[Any, ...]]:
    declare(world.connection, 1)
    return world.connection.rows("SELECT * FROM unit WHERE lifecycle = 'job' ORDER BY id")


@pytest.mark.parametrize("nonce", ["", "n", "x" * (NONCE_MIN - 1), "é" * (NONCE_MIN // 2 - 1)])
def test_a_nonce_that_is_too_short_is_refused_and_nothing_is_granted(world: World, nonce: str) -> None:
    job, worker = world.submit(), world.worker()
    with pytest.raises(InterlockError, match=r"nonce.*at least 16 random bytes"):
        world.send(Claim(worker=worker, key="k", nonce=nonce))
    assert (world.unit(job).state, world.unit(job).fence) == ("queued", 0)
    assert [grant.unit for grant in world.claim(worker, key="k", nonce=NONCE)] == [job]


def test_the_refusal_does_not_tell_the_nonce(world: World) -> None:
    with pytest.raises(InterlockError) as refused:
        world.send(Claim(worker=world.worker(), key="k", nonce="my-own-secret"))
    assert "my-own-secret" not in str(refused.value)
