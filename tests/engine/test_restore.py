"""Archived trees come back under their own ids: with their history, through the guard, and never twice."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from interlock.core.archive import act_lines, lines
from interlock.kernel.commands import ArchivedLane, Decide, RestoreTree
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Act, Unit
from interlock.plugins.state_files import archives
from interlock.plugins.state_files.archives import read_archive
from interlock.plugins.state_files.cli import read_trees
from interlock.plugins.state_files.exporter import Exporter
from interlock.plugins.state_files.folder import open_folder
from interlock.store.ids import Ids
from interlock.store.retention import KEPT, load_tree
from interlock.store.unit_of_work import open_unit_of_work
from tests.engine.test_archive import archive
from tests.engine.test_families import workstream
from tests.engine.test_state_files import MB, live, read_lines, reader
from tests.engine.world import World
from tests.store.databases import KINDS, fresh

TABLES = {kind.table: kind for kind, _, _ in KEPT}


@pytest.fixture(params=KINDS[1:])
def other(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[World]:
    """A database in which nothing has happened."""
    (tmp_path / "other").mkdir()
    with fresh(request.param, tmp_path / "other", server) as connection:
        yield World(connection)


def tree_of(world: World, unit: int) -> RestoreTree:
    """A tree as a file holds it."""
    tx = open_unit_of_work(world.connection, world.lifecycles, Ids(world.connection), [1], world.registry.hooks)
    try:
        units = load_tree(tx, tx.unit(unit))
        acts = [msgspec.json.decode(line, type=Act) for line in act_lines(tx, units, set())]
        rows, lanes = list[Any](), list[ArchivedLane]()
        for line in lines(tx, units):
            table = msgspec.json.decode(line)["table"]
            if table == "lane":
                lanes.append(msgspec.json.decode(line, type=ArchivedLane))
            elif table in TABLES:
                rows.append(msgspec.json.decode(line, type=TABLES[table]))
    finally:
        world.connection.rollback()
    return RestoreTree(unit=unit, file="x.jsonl", acts=tuple(acts), rows=tuple(rows), lanes=tuple(lanes))


def history(world: World, unit: int) -> list[dict[str, Any]]:
    return [asdict(event) | {"hash": ""} for event in world.events(unit)]


def row_of(world: World, unit: int) -> dict[str, Any]:
    return asdict(world.unit(unit)) | {"act": 0, "born": 0, "lane": 0}


def ended_trees(world: World) -> list[int]:
    """The tops of trees in which everything has ended."""
    rows = world.connection.rows("SELECT id, parent, outcome FROM unit ORDER BY id")
    above = {unit: parent for unit, parent, _ in rows}

    def top(unit: int) -> int:
        while above[unit] is not None:
            unit = above[unit]
        return unit

    unfinished = {top(unit) for unit, _, outcome in rows if outcome is None}
    return [unit for unit, parent, _ in rows if parent is None and unit not in unfinished]


def test_random_trees_come_back_as_they_were(world: World, other: World) -> None:
    live(world, 5, commands=300)
    other.now_us = world.now_us
    trees = ended_trees(world)
    assert len(trees) > 8
    for top in reversed(trees):  # in any order: each skips ids that the next ones may take
        command = tree_of(world, top)
        units = [row.id for row in command.rows if isinstance(row, Unit)]
        assert other.carry_out(command) == len(units)
        for unit in units:
            assert history(other, unit) == history(world, unit)
            assert row_of(other, unit) == row_of(world, unit)
    other.tick()  # laws, seals and all
    job = other.submit()
    assert job > max(trees)


def ended(world: World) -> list[int]:
    units = stream, build = workstream(world, ("build", True, ()))
    (grant,) = world.claim(world.worker("ann"))
    world.finish(grant)
    world.send(Decide(unit=build, trigger="valid"))
    world.send(Decide(unit=stream, trigger="valid"))
    return units


def test_what_is_there_or_was_archived_there_is_refused(world: World) -> None:
    stream, _ = ended(world)
    command = tree_of(world, stream)
    with pytest.raises(InterlockError, match=r"workstream_\w+ is in this database already"):
        world.carry_out(command)
    archive(world, stream)
    with pytest.raises(InterlockError, match=r"was archived from this database, which has a part of its history"):
        world.carry_out(command)


def test_an_id_that_this_database_may_give_out_is_refused(world: World, other: World) -> None:
    stream, _ = ended(world)
    Ids(other.connection).reserve(1)  # another program has taken one, and has made nothing yet
    command = tree_of(world, stream)
    with pytest.raises(InterlockError, match=r"gives out ids up to \d+ itself, and \d+ is one of them"):
        other.carry_out(command)
    assert other.count("unit") == 0


def test_an_id_that_is_another_ones_is_refused(world: World, other: World) -> None:
    stream, _ = ended(world)
    other.submit()
    with pytest.raises(InterlockError, match=r"the id of workstream_1 is that of job_1 in this database"):
        other.carry_out(tree_of(world, stream))


@pytest.mark.parametrize("spoilt", ["history", "state", "tenant", "open"])
def test_a_tree_that_was_tampered_with_changes_nothing(world: World, other: World, spoilt: str) -> None:
    stream, _ = ended(world)
    command = tree_of(world, stream)
    top = next(row for row in command.rows if isinstance(row, Unit) and row.id == stream)
    others = tuple(row for row in command.rows if row is not top)
    changed = {
        "history": msgspec.structs.replace(command, acts=command.acts[:2] + command.acts[3:]),
        "state": msgspec.structs.replace(command, rows=(msgspec.structs.replace(top, state="failed"), *others)),
        "tenant": msgspec.structs.replace(command, rows=(msgspec.structs.replace(top, tenant=2), *others)),
        "open": msgspec.structs.replace(command, rows=(msgspec.structs.replace(top, outcome=None), *others)),
    }[spoilt]
    texts = {
        "history": "not hold the whole history", "state": "does not have the events", "tenant": "is of tenant 2",
        "open": "only what has ended comes back",
    }  # fmt: skip
    other.now_us = world.now_us
    with pytest.raises(InterlockError, match=texts[spoilt]):
        other.carry_out(changed)
    assert other.count("unit") == other.count("act") == 0


def test_a_tree_that_was_refused_takes_no_ids_from_the_next(world: World, other: World) -> None:
    command = tree_of(world, ended(world)[0])
    other.now_us = world.now_us
    for _ in range(2):
        with pytest.raises(InterlockError, match="not hold the whole history"):
            other.carry_out(msgspec.structs.replace(command, acts=command.acts[:2] + command.acts[3:]))
    again = World(other.connection)  # another program, which knows nothing of the first one
    again.now_us = world.now_us
    assert again.carry_out(command) == 2


def test_ids_that_a_program_gave_up_for_a_refused_tree_are_free_for_the_next(world: World, tmp_path: Path) -> None:
    command = tree_of(world, ended(world)[0])
    with fresh("sqlite memory", tmp_path, "") as connection:
        other = World(connection)
        other.now_us = world.now_us
        other.engine.committer.ids.reserve(100)
        with pytest.raises(InterlockError, match="not hold the whole history"):
            other.carry_out(msgspec.structs.replace(command, acts=command.acts[:2] + command.acts[3:]))
        assert other.carry_out(command) == 2
        assert other.submit() > 100


def test_an_archive_is_read_like_any_other_view_and_comes_back(
    world: World, other: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, build = ended(world)
    going = workstream(world, ("build", True, ()))[0]
    read = partial(read_archive, lifecycles=world.lifecycles, hooks=world.registry.hooks)
    text = reader(world)(read, stream)
    (tmp_path / "a.jsonl").write_text(text)
    ((name, command),) = read_trees(tmp_path / "a.jsonl", 1)
    other.now_us = world.now_us
    assert (name, other.carry_out(command)) == (format_id("workstream", stream), 2)
    assert [history(other, unit) for unit in (stream, build)] == [history(world, unit) for unit in (stream, build)]
    with pytest.raises(InterlockError, match="only what has ended is archived"):
        reader(world)(read, going)
    with pytest.raises(InterlockError, match="is a part of something else"):
        reader(world)(read, build)
    monkeypatch.setattr(archives, "UNITS_MAX", 1)
    with pytest.raises(InterlockError, match="has 2 tasks and jobs, and an answer has up to 1; "):
        reader(world)(read, stream)


def test_what_came_back_is_not_told_again_and_can_be_archived_again(world: World, other: World, tmp_path: Path) -> None:
    stream, _ = ended(world)
    other.now_us = world.now_us
    other.carry_out(tree_of(world, stream))
    with open_folder(tmp_path / "state", MB) as folder:
        Exporter(folder, reader(other)).run(follow=False)
    assert read_lines(tmp_path / "state") == []
    archive(other, stream)
    assert other.count("restored") == 0
    assert other.tick() >= 0
