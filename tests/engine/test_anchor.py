"""An anchor proves later that no history was cut, removed or rewritten, also where a plain audit sees nothing."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from interlock.audit import anchors
from interlock.audit.laws import audit
from interlock.kernel.commands import Archive, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.store import seals
from interlock.store.queries import snapshots
from interlock.store.queries.snapshots import read_epoch, snapshot
from tests.engine.tamper import acts_of, behind_the_guard, cut, erase, rewrite, seal_again, write_again
from tests.engine.test_rebuild import much_work
from tests.engine.world import World
from tests.store.databases import Connection, declare, fresh


class Place:
    """A world in which a job is done and another one is held, and an anchor of it."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.folder = world, folder
        self.done, self.held = world.submit(), world.submit()
        self.worker = world.worker()
        (grant,) = world.claim(self.worker)
        world.start(grant)
        world.finish(grant)
        world.tick()
        world.claim(self.worker)
        self.file = self.anchor("anchor")

    def anchor(self, name: str) -> Path:
        with snapshot(self.world.connection):
            anchors.write(self.world.connection, self.folder / name)
        return self.folder / name

    def lost(self, file: Path, archives: Path | None = None) -> list[tuple[int, str]]:
        """What an anchor misses; a plain audit, with its rebuild, misses nothing."""
        with snapshot(self.world.connection):
            assert list(audit(self.world.connection, shipped(), rebuild=True)) == []
            return [(one.unit, one.text) for one in anchors.since(self.world.connection, file, archives)]


@pytest.fixture
def place(world: World, tmp_path: Path) -> Place:
    return Place(world, tmp_path)


def test_an_anchor_holds_while_work_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "PAGE", 2)
    monkeypatch.setattr(seals, "SEALED_MOST", 2)
    assert place.lost(place.file) == []
    much_work(place.world, commands=150)
    later = place.anchor("later")
    assert place.lost(place.file) == []
    assert place.lost(later) == []
    lines = later.read_bytes().splitlines()
    header, end = (msgspec.json.decode(line) for line in (lines[0], lines[-1]))
    declare(place.world.connection, 1)
    assert header["epoch"] == read_epoch(place.world.connection)
    last = place.world.connection.rows("SELECT act, place FROM journal ORDER BY act DESC, place DESC LIMIT 1")[0]
    assert tuple(header["cursor"]) == last
    root = msgspec.json.decode(lines[1])
    assert root[:3] == [1, last[0], place.world.connection.rows("SELECT count(*) FROM act")[0][0]]
    assert len(lines) == 3  # a line for each tenant that has work
    assert end["events"] == place.world.connection.rows("SELECT count(*) FROM event")[0][0]
    assert end["units"] == place.world.connection.rows("SELECT count(*) FROM unit")[0][0]


Tampering = Callable[[Connection, Place], None]
FORGERIES: dict[str, Tampering] = {
    "another actor": lambda owner, place: rewrite(owner, place.done, actor="nobody"),
    "another payload": lambda owner, place: rewrite(owner, place.held, payload="[]"),
    "a unit removed": lambda owner, place: erase(owner, place.done),
    "events cut off": lambda owner, place: cut(owner, place.held),
}
CHANGED = "are not those that were anchored"


@pytest.mark.parametrize("name", FORGERIES)
def test_a_consistent_forgery_is_found_only_by_an_anchor(name: str, place: Place, server: str) -> None:
    """Digests and seals were made again, and fit."""
    with behind_the_guard(place.world.connection, server) as owner:
        FORGERIES[name](owner, place)
    ((unit, text),) = place.lost(place.file)
    assert unit == 0
    assert CHANGED in text


def test_work_that_was_put_in_later_is_found_too(place: Place, server: str) -> None:
    """An act of another tenant is said to be one of this one's, behind what was anchored: no number is missing."""
    theirs = place.world.send(Submit(tenant=2, work=(Work(task="a"),)))[0].unit
    place.world.submit()
    later = place.anchor("later")
    with behind_the_guard(place.world.connection, server) as owner:
        (act,) = acts_of(owner, theirs)
        write_again(owner, replace(act, tenant=1))
        for table, column in (("unit", "id"), ("body", "unit")):
            owner.rows(f"UPDATE {table} SET tenant = 1 WHERE {column} = :unit", {"unit": theirs})
    assert place.lost(place.file) == []
    found = place.lost(later)
    assert [unit for unit, _ in found] == [0, 0]
    assert all(CHANGED in text for _, text in found)


def test_what_was_archived_is_not_missed(place: Place, server: str) -> None:
    """As long as its file is there, which tests/engine/test_archive_proof.py is about."""
    with pytest.raises(InterlockError, match="but what would be deleted is") as told:
        place.world.send(Archive(unit=place.done, file="f", digest=""))
    assert place.world.send(Archive(unit=place.done, file="f", digest=str(told.value).rsplit(" ", 1)[-1])) == 1
    assert [unit for unit, _ in place.lost(place.file)] == [place.done]
    later = place.anchor("later")
    assert later.read_bytes().splitlines()[1:-1] == place.file.read_bytes().splitlines()[1:-1]
    gone = [one for (one,) in place.world.connection.rows("SELECT id FROM act_gone ORDER BY id")]
    assert len(gone) == 4
    with behind_the_guard(place.world.connection, server) as owner:
        owner.rows("DELETE FROM archived")
    assert place.lost(later) == [
        (0, f"act {act} has left the database, and no archive of its units holds it") for act in gone
    ]
    with behind_the_guard(place.world.connection, server) as owner:
        owner.rows("DELETE FROM act_gone")
        seal_again(owner)
    ((unit, text),) = place.lost(later)
    assert unit == 0
    assert CHANGED in text


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("anchors")
    with fresh("sqlite memory", folder, "") as connection:
        yield Place(World(connection), folder)


def swapped(text: bytes, old: bytes, new: bytes) -> bytes:
    assert old in text
    return text.replace(old, new, 1)


SUMS = "its digest is not that of the lines before it"
DAMAGE: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("(line 1): it is cut off", lambda text: b""),
    ("(line 1)", lambda text: b"\xff\xfe\n"),
    ("(line 1)", lambda text: b"hello\n"),
    ("(line 1)", lambda text: b"{}\n"),
    ("(line 1)", lambda text: b"[" * 5_000),
    ("(line 2)", lambda text: text[: text.index(b"\n") + 1] + b"[" * 5_000 + b"\n"),
    ("it is cut off", lambda text: text[:-1]),
    ("it is cut off", lambda text: text[: text.rindex(b"{")]),
    (SUMS, lambda text: text + b'[9,1,1,"x"]\n'),
    (SUMS, lambda text: b"".join(text.splitlines(keepends=True)[:-2] + text.splitlines(keepends=True)[-1:])),
    ("(line 2)", lambda text: swapped(text, b"\n[", b"\n[-")),
    ("(line 2)", lambda text: swapped(text, b"\n[", b"\n[99999999999999999999")),
    (SUMS, lambda text: b"".join(text.splitlines(keepends=True)[place] for place in (0, 1, 1, 2))),
    (SUMS, lambda text: re.sub(rb'(\n\[\d+,\d+,\d+,")', rb"\g<1>0", text, count=1)),
    ("format 1 is not known; 2 is", lambda text: swapped(text, b'"anchor":2', b'"anchor":1')),
    (SUMS, lambda text: swapped(text, b'"epoch":"', b'"epoch":"0')),
]


@pytest.mark.parametrize("case", range(len(DAMAGE)))
def test_a_damaged_anchor_is_told_and_judges_nothing(case: int, whole: Place, tmp_path: Path) -> None:
    said, damage = DAMAGE[case]
    (tmp_path / "a").write_bytes(damage(whole.file.read_bytes()))
    with pytest.raises(InterlockError, match="is no anchor, or is damaged") as told:
        list(anchors.since(whole.world.connection, tmp_path / "a"))
    assert said in str(told.value)


def test_a_file_that_was_cut_off_while_it_was_written_is_not_left(
    whole: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(anchors.os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        anchors.write(whole.world.connection, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_an_epoch_is_told_how_to_get_one(tmp_path: Path) -> None:
    with fresh("sqlite memory", tmp_path, "") as connection:
        connection.rows("DELETE FROM about WHERE name = 'epoch'")
        with pytest.raises(InterlockError, match="run `interlock db upgrade`"):
            anchors.write(connection, tmp_path / "a")
