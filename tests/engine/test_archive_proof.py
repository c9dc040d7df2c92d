"""`archived` is no back door: it names what has ended, once; and what left is proven by its file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.core.archive import ACT, EVENT, ArchivedTree, act_lines, digest_of, lines
from interlock.kernel.commands import Archive, Force, Submit, Work
from interlock.kernel.errors import Denied
from interlock.kernel.rows import Event
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from interlock.store.ids import Ids
from interlock.store.postgres import PostgresConnection
from interlock.store.retention import load_tree
from interlock.store.unit_of_work import open_unit_of_work
from tests.engine.tamper import behind_the_guard, take_out
from tests.engine.test_anchor import Place
from tests.engine.world import World
from tests.store.databases import Connection, declare, insert


def write_archive(world: World, file: Path, *units: int) -> list[str]:
    """A file as `interlock archive` writes it; answers the digest of each tree."""
    digests, text, acts = [], b"", set[int]()
    for unit in units:
        tx = open_unit_of_work(world.connection, shipped(), Ids(world.connection), [1], STANDARD.hooks)
        try:
            found = load_tree(tx, tx.unit(unit))
            rows = list(lines(tx, found))
            text += b"".join(act_lines(tx, found, acts))
        finally:
            world.connection.rollback()
        digests.append(digest_of(iter(rows)))
        kept = ArchivedTree(id=f"job_{unit}", unit=unit, units=1, digest=digests[-1])
        text += b"".join(rows) + msgspec.json.encode(kept) + b"\n"
    file.write_bytes(text)
    return digests


def archive(place: Place, file: Path, *units: int) -> None:
    for unit, digest in zip(units, write_archive(place.world, file, *units), strict=True):
        place.world.send(Archive(unit=unit, file=str(file), digest=digest))


@pytest.fixture
def place(world: World, tmp_path: Path) -> Place:
    return Place(world, tmp_path)


def archived_row(world: World, named: int, **changes: Any) -> dict[str, Any]:
    row = world.unit(named)
    facts = {"unit": named, "tenant": 1, "version": row.version, "born": row.born, "head": world.events(named)[-1].hash}
    return {**facts, "file": "f", "digest": "d", "at": 1, **changes}


def operator(connection: Connection) -> Connection:
    """The same database with the rights of an operator."""
    if not isinstance(connection, PostgresConnection):
        return connection
    info = connection.raw.info
    made = PostgresConnection(f"postgresql://operator@{info.host}:{info.port}/{info.dbname}")
    declare(made, 1)
    return made


def test_a_forged_row_takes_nothing_that_has_not_ended(world: World) -> None:
    job = world.submit()
    connection = operator(world.connection)
    with pytest.raises(Exception, match=r"interlock guard \[archived\]"):
        insert(connection, "archived", **archived_row(world, job))
    for statement in ("DELETE FROM act WHERE id = (SELECT act FROM unit WHERE id = :job)",
                      "DELETE FROM unit WHERE id = :job", "DELETE FROM body WHERE unit = :job"):  # fmt: skip
        with pytest.raises(Exception, match=r"interlock guard \[append-only\]"):
            connection.rows(statement, {"job": job})
    assert [world.count("archived"), world.count("unit"), world.count("body"), world.count("event")] == [0, 1, 1, 1]
    if connection is not world.connection:
        connection.close()


@pytest.mark.parametrize(
    "change", [{"version": 1}, {"version": 99}, {"born": 99}, {"head": "other"}, {"tenant": 2}, {"unit": 99}]
)
def test_a_row_names_the_units_own_version_and_head(place: Place, change: dict[str, Any]) -> None:
    connection = operator(place.world.connection)
    declare(connection, 1, 2)
    row = archived_row(place.world, place.done, **change)
    with pytest.raises(Exception, match=r"interlock guard \[archived\]"):
        insert(connection, "archived", **row)
    declare(connection, 1)
    if connection is not place.world.connection:
        connection.close()


def test_a_row_stays_as_it_is(place: Place) -> None:
    archive(place, place.folder / "old.jsonl", place.done)
    connection = operator(place.world.connection)
    before = connection.rows("SELECT * FROM archived")
    for statement in ("UPDATE archived SET file = 'elsewhere'", "DELETE FROM archived"):
        with pytest.raises(Exception, match=r"interlock guard \[append-only\]|permission denied"):
            connection.rows(statement)
    assert connection.rows("SELECT * FROM archived") == before
    if connection is not place.world.connection:
        connection.close()


def test_the_role_for_programs_neither_archives_nor_deletes(place: Place) -> None:
    world = place.world
    if not isinstance(world.connection, PostgresConnection):
        pytest.skip("SQLite has no roles")
    (digest,) = write_archive(world, place.folder / "old.jsonl", place.done)
    with pytest.raises(
        Denied, match="may not archive: connect as the owner of the tables, or as a role that was granted"
    ):
        world.engine.send(Archive(unit=place.done, file="f", digest=digest))
    declare(world.connection, 1)
    with pytest.raises(Exception, match="permission denied for table archived"):
        insert(world.connection, "archived", **archived_row(world, place.done))
    for table in ("act", "unit", "body", "artifact"):
        with pytest.raises(Exception, match=f"permission denied for table {table}"):
            world.connection.rows(f"DELETE FROM {table}")
    assert world.unit(place.done).state == "succeeded"


def test_what_its_file_holds_is_proven(place: Place) -> None:
    archive(place, place.folder / "old.jsonl", place.done)
    assert place.lost(place.file) == []
    assert place.lost(place.anchor("later")) == []


def test_two_trees_of_one_file_and_one_of_another(place: Place) -> None:
    jobs = [place.world.submit() for _ in range(3)]
    anchor = place.anchor("before their ends")
    for job in jobs:
        place.world.cancel(job)
    archive(place, place.folder / "one.jsonl", *jobs[:2])
    archive(place, place.folder / "two.jsonl", jobs[2])
    assert place.lost(anchor) == []
    (place.folder / "one.jsonl").unlink()
    assert [unit for unit, _ in place.lost(anchor)] == jobs[:2]


def test_a_tree_with_a_forced_move_is_proven_too(place: Place) -> None:
    flow = (Work(task="r", lifecycle="workflow_run", ref="r"), Work(task="s", lifecycle="step", parent="r"))
    run, step = (one.unit for one in place.world.send(Submit(work=flow)))
    anchor = place.anchor("begun")
    for unit in (step, run):
        place.world.send(Force(unit=unit, state="CANCELED", reason="over", actor="ann"))
    archive(place, place.folder / "old.jsonl", run)
    assert place.world.count("forced_move") == 0
    assert place.lost(anchor) == []


def test_a_missing_file_names_the_units_until_it_is_found(place: Place) -> None:
    file, elsewhere = place.folder / "old.jsonl", place.folder / "elsewhere"
    archive(place, file, place.done)
    elsewhere.mkdir()
    moved = file.rename(elsewhere / file.name)
    ((unit, text),) = place.lost(place.file)
    assert unit == place.done
    assert text.startswith(f"it was archived in '{file}', which cannot be read (No such file or directory)")
    assert place.lost(place.file, elsewhere) == []
    moved.unlink()
    assert [unit for unit, _ in place.lost(place.file, elsewhere)] == [place.done]


def swap_last(text: bytes, kind: bytes, **changes: Any) -> bytes:
    """The same file with another last event or act."""
    rows = text.splitlines(keepends=True)
    at = max(place for place, row in enumerate(rows) if row.startswith(kind))
    rows[at] = msgspec.json.encode({**msgspec.json.decode(rows[at]), **changes}) + b"\n"
    return b"".join(rows)


def swap_event(text: bytes, **changes: Any) -> bytes:
    """The same file with another last event, whose tree's digest was counted anew."""
    rows = swap_last(text, EVENT, **changes).splitlines(keepends=True)
    whole = digest_of(row for row in rows[:-1] if not row.startswith(ACT))
    kept = msgspec.structs.replace(msgspec.json.decode(rows[-1], type=ArchivedTree), digest=whole)
    return b"".join(rows[:-1]) + msgspec.json.encode(kept) + b"\n"


def without_first(text: bytes, kind: bytes) -> bytes:
    rows = text.splitlines(keepends=True)
    rows.remove(next(row for row in rows if row.startswith(kind)))
    return b"".join(rows)


DAMAGES = {
    "empty": lambda text: b"",
    "cut": lambda text: text[: len(text) // 2],
    "no archive": lambda text: b'{"table":"event",nonsense}\n' + text,
    "another event": lambda text: swap_event(text, actor="somebody else"),
    "an event less": lambda text: without_first(text, EVENT),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_that_does_not_fit_proves_nothing(place: Place, name: str) -> None:
    file = place.folder / "old.jsonl"
    archive(place, file, place.done)
    file.write_bytes(DAMAGES[name](file.read_bytes()))
    ((unit, text),) = place.lost(place.file)
    assert unit == place.done
    assert "does not hold it as it was archived" in text


@pytest.mark.parametrize("damage", [without_first, partial(swap_last, actor="somebody else")])
def test_a_file_without_an_act_of_its_units_proves_nothing(
    place: Place, damage: Callable[[bytes, bytes], bytes]
) -> None:
    """A tree's digest does not count acts, which are in a file once: they have digests that the database keeps."""
    file = place.folder / "old.jsonl"
    archive(place, file, place.done)
    file.write_bytes(damage(file.read_bytes(), ACT))
    ((unit, text),) = place.lost(place.file)
    assert unit == place.done
    assert "holds a history that is not whole" in text


@pytest.mark.parametrize("change", [{"version": 3}, {"head": "other"}])
def test_an_archive_that_does_not_fit_is_found(change: dict[str, Any], place: Place, server: str) -> None:
    file = place.folder / "old.jsonl"
    (digest,) = write_archive(place.world, file, place.done)
    row = archived_row(place.world, place.done, file=str(file), digest=digest, **change)
    with behind_the_guard(place.world.connection, server) as owner:
        insert(owner, "archived", **row)
        take_out(owner, place.done)
    ((unit, text),) = place.lost(place.file)
    assert unit == place.done
    assert "holds another history than was archived" in text


def test_an_act_of_many_is_proven_when_some_of_them_have_left(place: Place) -> None:
    """Its row stays until the last of its units leaves, and then its digest does."""
    one, other = (done.unit for done in place.world.send(Submit(work=(Work(task="a"), Work(task="b")))))
    anchor = place.anchor("before they left")
    for unit in (one, other):
        place.world.cancel(unit)
    archive(place, place.folder / "one.jsonl", one)
    assert place.world.count("act_gone") == 1  # its end; its birth is that of the other too
    assert place.lost(anchor) == []
    archive(place, place.folder / "other.jsonl", other)
    assert place.world.count("act_gone") == 3
    assert place.lost(anchor) == []
    assert place.world.count("journal_unit", f"unit IN ({one}, {other})") == 0


def test_a_file_that_fits_a_forged_row_is_found_by_its_history(place: Place, server: str) -> None:
    """Whoever owns the database may name any file and digest; the history in it must still be the one that was anchored."""
    file = place.folder / "old.jsonl"
    archive(place, file, place.done)
    forged = swap_event(file.read_bytes(), actor="somebody else")
    file.write_bytes(forged)
    digest = msgspec.json.decode(forged.splitlines()[-1], type=ArchivedTree).digest
    with behind_the_guard(place.world.connection, server) as owner:
        owner.rows("UPDATE archived SET digest = :digest", {"digest": digest})
    ((unit, text),) = place.lost(place.file)
    assert unit == place.done
    assert "holds a history that is not whole" in text


def test_a_forged_row_without_a_file_is_found(place: Place, server: str) -> None:
    row = archived_row(place.world, place.done, file=str(place.folder / "none.jsonl"))
    with behind_the_guard(place.world.connection, server) as owner:
        insert(owner, "archived", **row)
        take_out(owner, place.done)
    ((unit, text),) = place.lost(place.file)
    assert unit == place.done
    assert "cannot be read" in text


def test_a_line_of_an_archive_is_read_back_as_it_was(place: Place) -> None:
    events = place.world.events(place.done)
    file = place.folder / "old.jsonl"
    archive(place, file, place.done)
    rows = [row for row in file.read_bytes().splitlines() if row.startswith(b'{"table":"event",')]
    assert [msgspec.json.decode(row, type=Event) for row in rows] == events
