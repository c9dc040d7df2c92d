"""`interlock log` and `interlock artifacts`, and large values by the command line."""

from pathlib import Path

import pytest

from interlock.blobs.store import write_pieces
from interlock.kernel.blobs import LARGE
from interlock.kernel.commands import AddArtifact, AddBlob, AppendLog, LogEntry, Record, Submit, Work
from interlock.kernel.ids import format_id
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
