"""What happened to a job in document 002's shape: moves, heartbeats, renewals and compensations, as its view has them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import Heartbeat, Record
from interlock.store.queries.job_events import BEATS, Place, place_of, read_job_events
from tests.engine.world import World, held
from tests.store.databases import KINDS, declare, fresh

NINE = ("id", "job_id", "type", "ts", "actor", "correlation_id", "cause", "payload", "version")


def listed(world: World, job: int, after: Place | None = None, limit: int = 1_000) -> list[Any]:
    declare(world.connection, 1)
    return read_job_events(world.connection, 1, job, after or Place(), limit)


def rows(world: World, job: int) -> list[tuple[Any, ...]]:
    return [tuple(getattr(one, name) for name in NINE) for one in listed(world, job)]


def viewed(world: World, job: int) -> list[tuple[Any, ...]]:
    declare(world.connection, 1)
    sql = f"SELECT {', '.join(NINE)} FROM job_event WHERE job_id = :job AND tenant = 1"
    return world.connection.rows(sql, {"job": job})


def eventful(world: World) -> tuple[int, int]:
    """A job that was lost once, renewed often beside another, and was undone in the end; and the other."""
    job, other = world.submit(correlation="c-7", attempts=5), world.submit()
    first, beside = world.claim(world.worker("one"), limit=2)
    for grant in (first, beside):
        world.start(grant)
    for _ in range(3):
        world.pass_time(10)
        world.send(Heartbeat(held=(held(first), held(beside))))
    world.pass_time(600)
    world.tick()
    two = world.worker("two")
    for _ in range(3):
        world.pass_time(100)
        for grant in world.claim(two, limit=2):
            world.start(grant)
            world.beat(grant)
            world.beat(grant)  # at the same instant: it makes no lease longer
            undo = msgspec.json.encode({"task": "undo", "input": None}).decode()
            if grant.unit == job:
                world.send(Record(held=(held(grant),), kind="compensation", name="flight", payload=undo))
            world.finish(grant, ended="failure" if grant.unit == job else "success", error_class="PermanentError")
    return job, other


@pytest.mark.req("R2-35", "R2-36")
def test_events_are_those_of_the_view_in_the_order_of_time(world: World) -> None:
    for job in eventful(world):
        found = rows(world, job)
        assert sorted(found, key=lambda row: str(row[0])) == sorted(viewed(world, job), key=lambda row: str(row[0]))
        assert [row[3] for row in found] == sorted(row[3] for row in found)
        moves = [row[8] for row in found if row[8]]
        assert moves == list(range(1, len(moves) + 1))


@pytest.mark.req("R2-35")
def test_heartbeats_renewals_and_compensations_are_among_them(world: World) -> None:
    job, _ = eventful(world)
    kinds = [one.type for one in listed(world, job)]
    assert (kinds.count("job_heartbeat"), kinds.count("job_compensated")) == (5, 1)
    assert 0 < kinds.count("job_lease_renewed") < 5
    assert {"job_claimed", "job_started", "job_failed"} <= set(kinds)
    assert {one.actor for one in listed(world, job) if one.type == "job_heartbeat"} == {"one", "two"}
    assert {one.correlation_id for one in listed(world, job)} == {"c-7"}


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_hold_each_event_once_whatever_their_size(world: World, limit: int) -> None:
    for job in eventful(world):
        found: list[Any] = []
        after = Place()
        while page := listed(world, job, after, limit):
            found += page
            after = place_of(str(page[-1].place))
        assert found == listed(world, job)


def test_many_beats_of_a_worker_are_read_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.store.queries.job_events.CHUNK", 2)
    for job in eventful(world):
        assert sorted(rows(world, job), key=str) == sorted(viewed(world, job), key=str)


def test_a_job_that_nobody_claimed_has_its_birth_alone(world: World) -> None:
    assert [one.type for one in listed(world, world.submit())] == ["job_queued"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_beats_of_a_worker_are_found_by_time(kind: str, tmp_path: Path, server: str) -> None:
    """Not by reading all that it ever said."""
    sql = BEATS.format(names=":name")
    given = {"tenant": 1, "name": "one", "at": 1, "id": 1, "until": 2, "limit": 9}
    with fresh(kind, tmp_path, server) as connection:
        plan = connection.rows(f"EXPLAIN {'QUERY PLAN' if connection.name == 'sqlite' else ''} {sql}", given)
    assert "note_beat" in str(plan)
