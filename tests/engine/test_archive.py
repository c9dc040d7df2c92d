"""Retention: a whole tree of settled units leaves the database, and only once a file holds it."""

import pytest

from interlock.core.archive import digest_of, lines
from interlock.kernel.commands import Archive, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from interlock.store.ids import Ids
from interlock.store.retention import load_tree
from interlock.store.unit_of_work import open_unit_of_work
from tests.engine.world import World

TABLES = ("unit", "body", "event", "journal", "journal_unit", "note", "need", "place", "artifact", "lease")


def exported(world: World, unit: int) -> str:
    """The digest of what a file must hold of a tree."""
    tx = open_unit_of_work(world.connection, shipped(), Ids(world.connection), [1], STANDARD.hooks)
    try:
        return digest_of(lines(tx, load_tree(tx, tx.unit(unit))))
    finally:
        world.connection.rollback()


def archive(world: World, unit: int, digest: str | None = None) -> int:
    return world.send(Archive(unit=unit, file="2026.jsonl", digest=digest or exported(world, unit)))


def finished(world: World) -> int:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant)
    return job


def test_a_settled_unit_leaves_and_its_place_is_known(world: World) -> None:
    job, stays = finished(world), world.submit()
    version, head = world.unit(job).version, world.events(job)[-1].hash
    assert archive(world, job) == 1
    where = f"unit = {job}"
    counts = [world.count(table, where.replace("unit", "id") if table == "unit" else where) for table in TABLES]
    assert counts == [0] * len(TABLES)
    row = world.connection.rows("SELECT version, head, file FROM archived WHERE unit = :job", {"job": job})
    assert row == [(version, head, "2026.jsonl")]
    assert world.unit(stays).state == "queued"


def test_a_tree_leaves_whole(world: World) -> None:
    run = Work(task="flow", lifecycle="workflow_run", ref="r")
    steps = tuple(
        Work(task="s", lifecycle="step", parent="r", ref=f"s{n}", needs=(f"s{n - 1}",) if n else ()) for n in range(3)
    )
    top = world.send(Submit(work=(run, *steps)))[0].unit
    with pytest.raises(InterlockError, match="only what has ended is archived"):
        archive(world, top)
    worker = world.worker()
    for _ in steps:
        (grant,) = world.claim(worker)
        world.finish(grant)
    with pytest.raises(InterlockError, match="a whole tree is archived, from its top"):
        archive(world, grant.unit)
    assert archive(world, top) == 4
    assert world.count("unit", "lifecycle <> 'worker'") == 0


def test_what_an_open_unit_needs_stays(world: World) -> None:
    job = finished(world)
    needy = world.submit(after=(job,))
    with pytest.raises(InterlockError, match=f"job {needy} has not ended and needs one of these"):
        archive(world, job)


def test_a_file_that_holds_something_else_is_refused(world: World) -> None:
    job = finished(world)
    with pytest.raises(InterlockError, match="the file is said to hold abc"):
        archive(world, job, "abc")
    assert world.unit(job).state == "succeeded"


def test_an_open_unit_is_refused(world: World) -> None:
    with pytest.raises(InterlockError, match="is queued; only what has ended is archived"):
        archive(world, world.submit())
