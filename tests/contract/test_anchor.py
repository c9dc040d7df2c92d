"""An anchor proves later that no history was cut, removed or rewritten, also where a plain audit sees nothing."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from interlock.audit import anchor as anchors
from interlock.audit.laws import audit
from interlock.kernel.commands import Archive
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.store import reads
from interlock.store.reads import epoch, snapshot
from tests.contract.tamper import behind_the_guard, cut, erase, rewrite
from tests.contract.test_rebuild import much_work
from tests.contract.world import World
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
    monkeypatch.setattr(reads, "PAGE", 2)
    monkeypatch.setattr(anchors, "PAGE", 2)
    assert place.lost(place.file) == []
    much_work(place.world, commands=150)
    later = place.anchor("later")
    assert place.lost(place.file) == []
    assert place.lost(later) == []
    lines = later.read_bytes().splitlines()
    header, end = (msgspec.json.decode(line) for line in (lines[0], lines[-1]))
    declare(place.world.connection, 1)
    assert header["epoch"] == epoch(place.world.connection)
    assert header["cursor"][-1] == place.world.connection.rows("SELECT max(pos) FROM event")[0][0]
    assert end["events"] == place.world.connection.rows("SELECT count(*) FROM event")[0][0]
    assert end["units"] == len(lines) - 2 == place.world.connection.rows("SELECT count(*) FROM unit")[0][0]


Tampering = Callable[[Connection, Place], None]
FORGERIES: dict[str, tuple[Tampering, str]] = {
    "another actor": (lambda owner, place: rewrite(owner, place.done, actor="nobody"), "it was rewritten"),
    "another payload": (lambda owner, place: rewrite(owner, place.held, payload="[]"), "it was rewritten"),
    "a unit removed": (lambda owner, place: erase(owner, place.done), "is gone"),
    "events cut off": (lambda owner, place: cut(owner, place.held), "is gone"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_consistent_forgery_is_found_only_by_an_anchor(name: str, place: Place, server: str) -> None:
    tampering, said = FORGERIES[name]
    with behind_the_guard(place.world.connection, server) as owner:
        tampering(owner, place)
    ((unit, text),) = place.lost(place.file)
    assert unit in (place.done, place.held)
    assert text.endswith(said)


def archive(database: Connection, unit: int, version: int, head: str) -> None:
    """As retention would do it, but with these facts."""
    row = {"unit": unit, "version": version, "head": head}
    database.rows("INSERT INTO archived VALUES (:unit, 1, :version, :head, 'f', 'd', 0)", row)
    erase(database, unit)


def test_what_was_archived_is_not_missed(place: Place, server: str) -> None:
    """As long as its file is there, which tests/contract/test_archive_proof.py is about."""
    with pytest.raises(InterlockError, match="but what would be deleted is") as told:
        place.world.send(Archive(unit=place.done, file="f", digest=""))
    assert place.world.send(Archive(unit=place.done, file="f", digest=str(told.value).rsplit(" ", 1)[-1])) == 1
    assert [unit for unit, _ in place.lost(place.file)] == [place.done]
    later = place.anchor("later")
    assert later.read_bytes().splitlines()[1:-1] == place.file.read_bytes().splitlines()[1:-1]
    with behind_the_guard(place.world.connection, server) as owner:
        owner.rows("DELETE FROM archived")
    ((unit, text),) = place.lost(later)
    assert unit == place.done
    assert text.endswith("is gone")


@pytest.mark.parametrize(("less", "said"), [(0, "with another head"), (1, "but it was archived at version")])
def test_an_archive_that_does_not_fit_is_found(less: int, said: str, place: Place, server: str) -> None:
    version = place.world.unit(place.done).version
    with behind_the_guard(place.world.connection, server) as owner:
        archive(owner, place.done, version - less, "other")
    ((unit, text),) = place.lost(place.file)
    assert unit == place.done
    assert said in text


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("anchors")
    with fresh("sqlite memory", folder, "") as connection:
        yield Place(World(connection), folder)


def swapped(text: bytes, old: bytes, new: bytes) -> bytes:
    assert old in text
    return text.replace(old, new, 1)


SUMS = "its sums are not those of the lines before it"
DAMAGE: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("(line 1): it is cut off", lambda text: b""),
    ("(line 1)", lambda text: b"\xff\xfe\n"),
    ("(line 1)", lambda text: b"hello\n"),
    ("(line 1)", lambda text: b"{}\n"),
    ("(line 1)", lambda text: b"[" * 5_000),
    ("(line 2)", lambda text: text[: text.index(b"\n") + 1] + b"[" * 5_000 + b"\n"),
    ("it is cut off", lambda text: text[:-1]),
    ("it is cut off", lambda text: text[: text.rindex(b"{")]),
    (SUMS, lambda text: text + b'[9,1,"x"]\n'),
    (SUMS, lambda text: b"".join(text.splitlines(keepends=True)[:-2] + text.splitlines(keepends=True)[-1:])),
    ("(line 2)", lambda text: swapped(text, b"\n[", b"\n[-")),
    ("(line 2)", lambda text: swapped(text, b"\n[", b"\n[99999999999999999999")),
    ("comes after unit", lambda text: b"".join(text.splitlines(keepends=True)[place] for place in (0, 2, 1, 3))),
    (SUMS, lambda text: re.sub(rb'(\n\[\d+,\d+,")', rb"\g<1>0", text, count=1)),
    ("format 2 is not known; 1 is", lambda text: swapped(text, b'"anchor":1', b'"anchor":2')),
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
