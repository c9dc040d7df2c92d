"""`interlock log` and `interlock artifacts`, and large values by the command line."""

import base64
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from interlock.blobs.folder import FolderBlobs
from interlock.blobs.store import write_pieces
from interlock.kernel.blobs import LARGE
from interlock.kernel.commands import AddArtifact, AddBlob, AppendLog, LogEntry, Record, Submit, Work
from interlock.kernel.ids import format_id
from interlock.plugins.evidence.queries import OF_UNITS
from tests.cli.places import Place
from tests.engine.world import held


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PostgreSQL keeps blobs; a SQLite file has them beside it."""
    monkeypatch.setenv("INTERLOCK_BLOBS", str(tmp_path / "blobs"))


def leave(place: Place) -> str:
    """A job that has logged and left something, and has ended."""
    world = place.world
    world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.send(AppendLog(entries=(LogEntry(held(grant), 0, "a line\nund noch é\n".encode()),)))
    assert world.connection.blobs is not None
    blob = write_pieces(world.connection.blobs, 1, [b"bytes\n"])
    world.send(AddBlob(digest=blob.digest, length=blob.length))
    world.send(AddArtifact(held=held(grant), name="a.txt", digest=blob.digest, media="text/plain"))
    world.send(Record(held=(held(grant),), kind="artifact", name="small", payload="[1]"))
    world.finish(grant)
    return format_id("job", grant.unit)


def test_a_log_is_printed_as_it_is(place: Place) -> None:
    job = leave(place)
    for words in ((), ("--follow",), ("--attempt", "1")):
        assert place.ask("log", job, *words).out == "a line\nund noch é\n", words
    (log,) = place.ask("log", job, "--json").json["logs"]
    assert (log["attempt"], log["length"], log["late"], log["is_over"]) == (1, 19, [], True)
    assert place.ask("log", job, "--attempt", "2") == (2, "", "there is no attempt 2; there are 1 to 1")
    assert place.ask("log", job, "--json", "--follow").err == "give --follow or --json, not both"
    assert place.ask("log", "job_zzzz").code == 2


def test_of_a_run_all_logs_are_printed(place: Place) -> None:
    world = place.world
    (run, first, second) = world.send(
        Submit(
            work=(
                Work(task="release", lifecycle="workflow_run", ref="run"),
                Work(task="build", lifecycle="step", parent="run", ref="build"),
                Work(task="test", lifecycle="step", parent="run", needs=("build",)),
            )
        )
    )
    for step in (first, second):
        (grant,) = world.claim(world.worker())
        assert grant.unit == step.unit
        world.start(grant)
        world.send(AppendLog(entries=(LogEntry(held(grant), 0, b"log of %s\n" % grant.task.encode()),)))
        world.finish(grant)
    names = [format_id("step", step.unit) for step in (first, second)]
    text = f"== build {names[0]}, attempt 1\nlog of build\n== test {names[1]}, attempt 1\nlog of test\n"
    for words in ((), ("--follow",)):
        assert place.ask("log", format_id("workflow_run", run.unit), *words).out == text


def test_artifacts_are_listed_and_downloaded(place: Place, tmp_path: Path) -> None:
    job = leave(place)
    rows = place.ask("artifacts", job).rows
    assert [row[:4] for row in rows] == [["a.txt", "1", "6", "text/plain"], ["small", "1", "3", "application/json"]]
    assert [row["name"] for row in place.ask("artifacts", job, "--json").json["artifacts"]] == ["a.txt", "small"]
    shown = place.ask("show", job, "--json").json["artifacts"]
    assert [(row["name"], row["length"], row["data"]) for row in shown] == [("a.txt", 6, None), ("small", 3, [1])]
    assert "6 bytes" in place.ask("show", job).out
    target = tmp_path / "copy"
    assert place.ask("artifacts", job, "a.txt", "--to", target).out.startswith(f"{target}: 6 bytes, SHA-256 ")
    assert target.read_bytes() == b"bytes\n"
    assert "is there already; name another file" in place.ask("artifacts", job, "a.txt", "--to", target).err
    assert place.ask("artifacts", job, "a.txt", "--to", "-").out == "bytes\n"
    assert place.ask("artifacts", job, "none").err == "there is no artifact 'none'; there are a.txt, small"
    assert place.ask("artifacts", job, "--to", "x").err == "--to needs the name of an artifact"
    assert "No such file" in place.ask("artifacts", job, "a.txt", "--to", tmp_path / "none" / "x").err


def test_a_large_input_is_shown_as_it_was_given(place: Place) -> None:
    text = "x" * (LARGE + 1)
    job = place.ask("submit", "mail", "--arg", f"text={text}").out.strip()
    assert place.world.count("blob_use") == 1
    assert place.ask("show", job, "--json").json["input"] == {"text": text}


def archived_lines(file: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of an archive, by table."""
    by_table: dict[str, list[dict[str, Any]]] = {}
    for line in file.read_text().splitlines():
        row = json.loads(line)
        by_table.setdefault(row["table"], []).append(row)
    return by_table


def test_an_archive_has_the_artifacts_and_logs_of_its_jobs_and_their_bytes(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, file = leave(place), tmp_path / "old.jsonl"
    assert place.ask("archive", "--all", "--out", file, "--json").json["trees"] == [job]
    lines = archived_lines(file)
    (artifact,) = lines["artifact_blob"]
    assert (artifact["name"], artifact["length"]) == ("a.txt", 6)
    assert [row["digest"] for row in lines["blob"]] == [artifact["digest"]]
    assert b"".join(FolderBlobs(f"{file}.blobs").read(1, artifact["digest"])) == b"bytes\n"
    chunks = lines["log_chunk"]
    assert (sum(row["length"] for row in chunks), lines["unit_log"][0]["length"]) == (19, 19)
    plain = [base64.b64decode(row["data"]) for row in chunks]
    assert b"".join(
        gzip.decompress(data) if row["compressed"] else data for row, data in zip(chunks, plain, strict=True)
    ) == ("a line\nund noch é\n".encode())
    assert [row["name"] for row in lines["artifact"]] == ["small"]
    for table in OF_UNITS:
        assert place.world.count(table) == 0, table
    assert place.ask("audit").code == 0
    again = place.ask("archive", "--all", "--out", file.with_name("other.jsonl"))
    assert again.out == "nothing to archive\n"
    come_back(place, monkeypatch, job, file)


def come_back(place: Place, monkeypatch: pytest.MonkeyPatch, job: str, file: Path) -> None:
    """An archived job comes back with its artifacts, its log and their bytes, or not at all."""
    monkeypatch.setenv("INTERLOCK_BLOBS", str(file.parent / "other blobs"))
    empty = ("--db", f"sqlite:///{file.parent}/restored.db")
    assert place.ask("restore", file, *empty).out == f"{job} came back\n"
    assert place.ask("log", job, *empty).out == "a line\nund noch é\n"
    assert place.ask("artifacts", job, "a.txt", "--to", "-", *empty).out == "bytes\n"
    assert place.ask("audit", *empty).code == 0
    shutil.rmtree(f"{file}.blobs")
    lost = place.ask("restore", file, "--db", f"sqlite:///{file.parent}/none.db")
    assert (lost.code, "there is no blob sha256:" in lost.err) == (2, True)


def test_a_compressed_log_is_in_the_folder_beside_the_archive(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, world, file = leave(place), place.world, tmp_path / "old.jsonl"
    for _ in range(3):
        world.pass_time(600)
        world.tick()
    assert place.ask("archive", "--all", "--out", file, "--json").json["trees"] == [job]
    lines = archived_lines(file)
    assert "log_chunk" not in lines
    (log,) = lines["unit_log"]
    whole = b"".join(FolderBlobs(f"{file}.blobs").read(1, log["digest"]))
    assert gzip.decompress(whole) == "a line\nund noch é\n".encode()
    come_back(place, monkeypatch, job, file)


def test_a_job_whose_bytes_are_lost_stays_and_is_named(place: Place, tmp_path: Path) -> None:
    job, world, file = leave(place), place.world, tmp_path / "old.jsonl"
    world.submit()
    (grant,) = world.claim(world.worker("other"))
    world.start(grant)
    world.finish(grant)
    digest = world.connection.rows("SELECT digest FROM artifact_blob")[0][0]
    assert world.connection.blobs is not None
    assert world.connection.blobs.delete(1, digest, 0.0)
    done = place.ask("archive", "--all", "--out", file, "--json")
    assert (done.code, done.json["trees"]) == (1, [format_id("job", grant.unit)])
    assert done.json["left"] == [
        {"id": job, "why": f"its bytes sha256:{digest} cannot be copied: there is no blob sha256:{digest}"}
    ]
    assert world.count("artifact_blob") == 1
    (tree,) = archived_lines(file)["tree"]
    assert tree["unit"] == grant.unit


def test_a_folder_of_another_archive_is_not_written_to(place: Place, tmp_path: Path) -> None:
    leave(place)
    (tmp_path / "old.jsonl.blobs").mkdir()
    refused = place.ask("archive", "--all", "--out", tmp_path / "old.jsonl")
    assert (refused.code, "old.jsonl.blobs' exists; an archive is not written over" in refused.err) == (2, True)
    assert place.world.count("unit_log") == 1
