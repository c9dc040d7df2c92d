"""Renewals on PostgreSQL: what they cost does not grow with how many leases there are, and who ends one meanwhile waits."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import sleep

import pytest

from interlock.core.engine import Engine
from interlock.kernel.commands import (
    Cancel,
    Claim,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Register,
    Submit,
    Tick,
    Work,
)
from interlock.store.postgres import PostgresConnection
from tests.engine.world import World
from tests.store.databases import fresh

HELD, NAMED = 600, 20
READ = "SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname = 'lease'"


def test_a_heartbeat_reads_the_leases_that_it_names(tmp_path: Path, server: str) -> None:
    """Of a worker with many leases, row by row by the key: not each among all that are live."""
    with fresh("postgres", tmp_path, server) as connection:
        world = World(connection)
        worker = world.engine.send(Register(name="w", incarnation="1", capacity=HELD))
        world.engine.send(Submit(work=tuple(Work(task="mail") for _ in range(HELD))))
        grants = world.engine.send(Claim(worker=worker, key="k", nonce="n" * 16, limit=HELD))
        assert len(grants) == HELD
        world.pass_time(5)
        held = tuple(LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease) for grant in grants[:NAMED])
        before = read_of_leases(world)
        statuses = world.engine.send(Heartbeat(held=held))
        assert all(status.accepted for status in statuses)
        assert read_of_leases(world) - before <= 4 * NAMED


def read_of_leases(world: World) -> int:
    """How many entries of the indexes of leases were read so far."""
    world.connection.rows("SELECT pg_stat_force_next_flush()")
    return int(world.connection.rows(READ)[0][0])


def finish_last(engine: Engine, grants: list[LeaseGrant]) -> None:
    last = grants[-1]
    outcome = Outcome(held=LeaseRef(unit=last.unit, fence=last.fence, lease=last.lease))
    assert engine.send(Finish(outcomes=(outcome,)))[0].accepted


def cancel_last(engine: Engine, grants: list[LeaseGrant]) -> None:
    engine.send(Cancel(unit=grants[-1].unit, hard=True))


@pytest.mark.parametrize("named", [slice(6, 8), slice(0, 7)], ids=["named", "not_named"])
@pytest.mark.parametrize("end", [finish_last, cancel_last])
def test_who_ends_a_lease_that_gets_a_row_of_its_own_meanwhile(
    tmp_path: Path, server: str, end: Callable[[Engine, list[LeaseGrant]], None], named: slice
) -> None:
    """It waits for the renewal, finds the row that its unit got, and counts right: `send` asks every law."""
    with fresh("postgres", tmp_path, server) as connection:
        world = World(connection)
        worker = world.worker()
        world.send(Submit(work=tuple(Work(task="mail") for _ in range(8))))
        grants = sorted(world.claim(worker, 8), key=lambda grant: grant.unit)
        if end is finish_last:
            world.start(grants[-1])
            world.beat(grants[-1])
            world.pass_time(5)
            world.send(Heartbeat(held=tuple(LeaseRef(unit=g.unit, fence=g.fence, lease=g.lease) for g in grants)))
        ids = [world.unit(grant.unit).lease_id for grant in grants[named]]
        assert isinstance(connection, PostgresConnection)
        info = connection.raw.info
        url = f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"
        with closing(PostgresConnection(url, lambda: world.now_us)) as other, ThreadPoolExecutor(1) as pool:
            other.begin([1], ())
            other.rows(
                "SELECT renew_leases(:ids, :units, :ends)",
                {
                    "ids": ids,
                    "units": [g.unit for g in grants[named]],
                    "ends": [world.now_us + 55_000_000] * len(grants[named]),
                },
            )
            ended = pool.submit(end, world.engine, grants)
            while not other.rows("SELECT 1 FROM pg_locks WHERE NOT granted") and not ended.done():
                sleep(0.01)
            assert not ended.done()
            other.commit()
            ended.result(timeout=30)
        world.send(Tick())
        world.send(Heartbeat(held=tuple(LeaseRef(unit=g.unit, fence=g.fence, lease=g.lease) for g in grants[:-1])))
        assert world.connection.rows("SELECT count(*) FROM live_lease") == [(7,)]
