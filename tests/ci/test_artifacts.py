"""Artifacts of CI jobs as archives: names and links that leave their folder are refused, and nothing is written then."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.kernel.errors import InterlockError
from interlock.worker.ci_artifacts import unpack_artifact
from tests.ci.repositories import ci, make_repository


def pack(file: Path, *entries: tarfile.TarInfo) -> Path:
    """An archive with a good file and these entries."""
    good = tarfile.TarInfo("good")
    with tarfile.open(file, "w:gz") as archive:
        for entry in (good, *entries):
            archive.addfile(entry, io.BytesIO(b""))
    return file


def make_entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


BAD = {
    "a name that goes up": lambda: make_entry("../out"),
    "a name that goes up in the middle": lambda: make_entry("a/../../out"),
    "a link out": lambda: make_entry("link", tarfile.SYMTYPE, "../.."),
    "an absolute link": lambda: make_entry("link", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link out": lambda: make_entry("link", tarfile.LNKTYPE, "../../etc/passwd"),
    "a device": lambda: make_entry("null", tarfile.CHRTYPE),
    "a pipe": lambda: make_entry("pipe", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
def test_an_archive_that_leaves_its_folder_is_not_unpacked(make: Callable[[], tarfile.TarInfo], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    packed = pack(tmp_path / "packed", make())
    with pytest.raises(InterlockError, match="the artifact was not unpacked: "):
        unpack_artifact(packed, tmp_path / "to")
    packed.unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_no_archive_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(b"no archive")
    with pytest.raises(InterlockError, match="the artifact cannot be unpacked: "):
        unpack_artifact(tmp_path / "packed", tmp_path / "to")


def test_files_and_links_of_a_job_come_back_and_links_that_leave_are_refused(tmp_path: Path) -> None:
    config = """
jobs:
  a:
    steps: ["mkdir out; echo 1 > out/x; ln -s x out/y; echo 'a b' > 'out/a b'; chmod 755 out/x"]
    artifacts: [{name: out, paths: [out/**]}]
  b: {steps: ["ln -s /etc out"], artifacts: [{name: far, paths: [out]}]}
  c: {steps: ["mkfifo pipe"], artifacts: [{name: pipe, paths: [pipe]}]}
"""
    say = ci(make_repository(tmp_path / "shop", config))
    assert say("run").code == 1
    assert say("artifacts", "out", "--to", str(tmp_path / "to")).code == 0
    out = tmp_path / "to" / "out"
    assert (out / "y").readlink() == Path("x")
    assert ((out / "a b").read_text(), (out / "x").stat().st_mode & 0o777) == ("a b\n", 0o755)
    assert "the link 'out' leads out of the files of the job, and cannot be kept" in say("log", "b").out
    assert "'pipe' is neither a file nor a link, and cannot be kept" in say("log", "c").out
    assert [row[0] for row in say("artifacts").rows] == ["out"]
