"""What holds secrets or history is made for its owner's eyes alone, and a key that others can read is not used."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.audit import anchors
from interlock.cli.server_options import read_key
from interlock.client.app import App
from interlock.client.keys import load_or_create_key, refuse_open
from interlock.kernel.commands import Cancel, CreateKey, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store import private_files
from interlock.store.doctor import check_settings
from interlock.store.sqlite import SqliteConnection
from tests.cli.inside import called

UMASKS = [0o000, 0o022, 0o377]
OWNER_ONLY = 0o600


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=UMASKS, ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_new_database_and_what_sqlite_puts_beside_it(tmp_path: Path, umask: int) -> None:
    with open_engine(f"sqlite:///{tmp_path}/work.db", shipped()) as engine:
        engine.send(Submit(work=(Work(task="mail"),)))
        made = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert made == dict.fromkeys(("work.db", "work.db-wal", "work.db-shm"), OWNER_ONLY)


def test_a_file_that_is_swapped_while_it_is_made_changes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "anchor", tmp_path / "other"
    other.touch(mode=0o640)
    before = mode(other)
    really_open = os.open

    def open_and_swap(*facts: Any) -> int:
        descriptor = really_open(*facts)
        path.unlink()
        path.symlink_to(other)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_swap)
    os.close(private_files.create_private(path))
    assert mode(other) == before


def test_a_database_behind_a_link(tmp_path: Path, umask: int) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "work.db")
    SqliteConnection(str(tmp_path / "link.db")).close()
    assert mode(tmp_path / "work.db") == OWNER_ONLY


def test_a_database_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """Whoever shares a file with a group has chosen so; `db doctor` says what it means."""
    path = tmp_path / "work.db"
    SqliteConnection(str(path)).close()
    path.chmod(0o660)
    connection = SqliteConnection(str(path))
    assert mode(path) == 0o660
    assert [text for text in list(check_settings(connection)) if f"chmod 600 '{path}'" in text]
    path.chmod(0o600)
    assert list(check_settings(connection)) == []
    connection.close()


def test_the_doctor_names_a_file_that_others_can_read(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    called("db", "upgrade", "--db", url)
    (tmp_path / "work.db").chmod(0o644)
    done = called("db", "doctor", "--db", url)
    assert done.returncode == 1
    assert "chmod 600" in done.stdout + done.stderr


def test_an_archive(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    with open_engine(url, shipped()) as engine:
        (made,) = engine.send(Submit(work=(Work(task="mail"),)))
        engine.send(Cancel(unit=made.unit))
    done = called("archive", "--all", "--out", str(tmp_path / "old.jsonl"), "--db", url)
    assert done.returncode == 0, done.stderr
    assert mode(tmp_path / "old.jsonl") == OWNER_ONLY


def test_an_anchor(tmp_path: Path, umask: int) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    open_engine(url, shipped()).close()
    connection = SqliteConnection(str(tmp_path / "work.db"))
    anchors.write(connection, tmp_path / "a.anchor")
    connection.close()
    assert mode(tmp_path / "a.anchor") == OWNER_ONLY


def test_a_key(tmp_path: Path, umask: int) -> None:
    with App(f"sqlite:///{tmp_path}/work.db") as app:
        load_or_create_key(app, tmp_path / "work.db.key", CreateKey(tenant=1, name="up", scopes=("admin",)))
    assert mode(tmp_path / "work.db.key") == OWNER_ONLY


@pytest.mark.parametrize("bits", [0o640, 0o620, 0o604, 0o602, 0o660, 0o644], ids=oct)
def test_a_key_that_the_group_or_others_can_read_or_write_is_refused(tmp_path: Path, bits: int) -> None:
    file = tmp_path / "key"
    file.write_text("ilk_1_4_" + "0" * 64)
    file.chmod(bits)
    for use in (read_key, refuse_open):
        with pytest.raises(InterlockError, match=r"the group or others can read or write '.*key': chmod 600 it"):
            use(file)
    file.chmod(0o600)
    assert read_key(file).startswith("ilk_")
    refuse_open(file)
