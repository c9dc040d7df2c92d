"""Artifacts and success are one: nobody ever reads that a job succeeded without what it has made."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock.kernel.commands import Finish, LeaseGrant, Outcome, Record
from interlock.store.postgres import PostgresConnection
from interlock.store.sqlite import SqliteConnection
from tests.engine.world import World, held
from tests.store.databases import Connection, declare

LOOK = "SELECT state, (SELECT count(*) FROM artifact WHERE artifact.unit = unit.id) FROM unit WHERE id = :unit"


def beside(connection: Connection) -> Connection | None:
    """A second connection to the same database; what is in memory has none."""
    if isinstance(connection, PostgresConnection):
        other: Connection = PostgresConnection(connection.url)
        declare(other, 1)
        return other
    name = str(connection.rows("PRAGMA database_list")[0][2])
    return SqliteConnection(name) if name else None


@contextmanager
def watched(world: World, unit: int) -> Iterator[list[tuple[str, int]]]:
    """What another reader sees of a job before and after every commit: its state, and how many artifacts it has."""
    seen: list[tuple[str, int]] = []
    other, commit = beside(world.connection), world.connection.commit
    reader = other or world.connection

    def look() -> None:
        seen.extend((str(state), int(count)) for state, count in reader.rows(LOOK, {"unit": unit}))
        if other:
            other.rollback()

    def committed() -> None:
        if other:
            look()
        commit()
        look()

    world.connection.commit = committed  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        del world.connection.commit
        if other:
            other.close()


def running(world: World) -> LeaseGrant:
    world.submit()
    (grant,) = world.claim(world.worker())
    assert world.start(grant).accepted
    return grant


@pytest.mark.req("R2-07")
@pytest.mark.parametrize("together", [True, False])
def test_who_first_sees_success_sees_the_artifacts(world: World, together: bool, tmp_path: Path) -> None:
    grant = running(world)
    made = [
        Record(held=(held(grant),), kind="artifact", name=name, payload=f'"{name}"') for name in ("report", "picture")
    ]
    done = Finish(outcomes=(Outcome(held=held(grant), result='"made"'),))
    committer = world.engine.committer
    with watched(world, grant.unit) as seen:
        for command in (*made, done):
            committer.put(command)
            if not together:
                committer.step()
        committer.step()
    assert {count for state, count in seen if state == "succeeded"} == {2}
    assert {state for state, _ in seen} <= {"running", "succeeded"}
    if together:
        assert {count for state, count in seen if state == "running"} <= {0}  # one commit
    rows = world.connection.rows(f"SELECT name, data, attempt FROM artifact WHERE unit = {grant.unit} ORDER BY name")
    assert rows == [("picture", '"picture"', 1), ("report", '"report"', 1)]


@pytest.mark.req("R2-07")
def test_nothing_is_added_to_what_has_succeeded(world: World) -> None:
    grant = running(world)
    assert world.finish(grant).state == "succeeded"
    (late,) = world.send(Record(held=(held(grant),), kind="artifact", name="report", payload='"late"'))
    assert (late.accepted, late.why) == (False, "LEASE_ENDED")
    assert world.count("artifact") == 0


@pytest.mark.req("R2-07")
def test_an_end_that_is_undone_leaves_no_artifact(world: World) -> None:
    """The commit fails: neither the success nor what was made with it is there, and both come with the next try."""
    grant = running(world)
    commit, failures = world.connection.commit, [1]

    def lost() -> None:
        if failures:
            failures.pop()
            raise KeyboardInterrupt  # nothing that the engine could try again
        commit()

    world.connection.commit = lost  # type: ignore[method-assign]
    committer = world.engine.committer
    artifact = Record(held=(held(grant),), kind="artifact", name="report", payload="1")
    committer.put(artifact)
    committer.put(Finish(outcomes=(Outcome(held=held(grant)),)))
    with pytest.raises(KeyboardInterrupt):
        committer.step()
    assert (world.unit(grant.unit).state, world.count("artifact")) == ("running", 0)
    committer.put(artifact)
    committer.put(Finish(outcomes=(Outcome(held=held(grant)),)))
    committer.step()
    del world.connection.commit
    assert (world.unit(grant.unit).state, world.count("artifact")) == ("succeeded", 1)
