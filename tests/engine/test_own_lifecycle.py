"""A user's own lifecycle file is law like the shipped ones: its units run, and the guard knows its edges."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.kernel.commands import Decide
from interlock.lifecycles import hurried, load, shipped
from tests.engine.world import World
from tests.lifecycles.sample import PARCEL
from tests.store.databases import KINDS, fresh


@pytest.fixture(params=KINDS)
def own(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[World]:
    file = tmp_path / "parcel.toml"
    file.write_text(PARCEL)
    parcel = load(file)
    with fresh(request.param, tmp_path, server, parcel) as connection:
        yield World(connection, {**shipped(), parcel.name: parcel})


def test_units_of_it_run(own: World) -> None:
    parcel = own.submit(lifecycle="parcel")
    (grant,) = own.claim(own.worker())
    assert own.finish(grant).state == "checked"
    assert own.send(Decide(unit=parcel, trigger="valid")).state == "delivered"
    assert own.path(parcel) == ["waiting", "packed", "carried", "checked", "delivered"]


def test_a_lost_lease_a_failure_and_a_cancel_do_what_its_table_says(own: World) -> None:
    lost, stopped = own.submit(lifecycle="parcel"), own.submit(lifecycle="parcel", delay_us=10_000_000)
    worker = own.worker()
    own.claim(worker)
    own.pass_time(61)
    own.cancel(stopped)
    (again,) = own.claim(worker, limit=9)
    assert (again.unit, again.attempt) == (lost, 2)
    own.finish(again, ended="failure")
    assert [own.unit(one).state for one in (lost, stopped)] == ["returned", "stopped"]


def test_what_it_does_not_list_is_refused_also_by_sql(own: World) -> None:
    parcel = own.submit(lifecycle="parcel")
    refusal = "permission denied" if own.connection.name == "postgres" else r"interlock guard \[event-first\]"
    with pytest.raises(Exception, match=refusal):
        own.connection.rows("UPDATE unit SET state = 'delivered' WHERE id = :one", {"one": parcel})


def test_hurried_lifecycles_have_short_leases(own: World) -> None:
    own_files = {name: lifecycle for name, lifecycle in own.lifecycles.items() if name != "effect"}  # a plugin's
    quick = World(own.connection, hurried(own_files, 100))
    job, worker = quick.submit(), quick.worker()
    (grant,) = quick.claim(worker)
    assert (grant.ttl_us, grant.beat_us) == (600_000, 200_000)
    quick.pass_time(0.41)
    (again,) = quick.claim(worker)
    assert (again.unit, again.fence) == (job, 2)
    assert {lifecycle.hops for lifecycle in quick.lifecycles.values()} == {
        lifecycle.hops for lifecycle in own.lifecycles.values()
    }
