"""What it costs PostgreSQL to renew leases does not grow with how many there are."""

from pathlib import Path

from interlock.kernel.commands import Claim, Heartbeat, LeaseRef, Register, Submit, Work
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
