"""`interlock export` as an operator runs it."""

from pathlib import Path

import msgspec
import pytest

from interlock.kernel.commands import PERMANENT, Decide, Submit, Work
from interlock.kernel.ids import format_id
from interlock.plugins.state_files.folder import LOG, open_folder
from tests.cli.places import Place

MB = 1 << 20


def run_tasks(place: Place, number: int) -> None:
    """A workstream whose tasks are claimed."""
    tasks = [Work(task="t", lifecycle="task", parent="w") for _ in range(number)]
    work = (Work(task="site", lifecycle="workstream", ref="w"), *tasks)
    stream = place.world.send(Submit(work=work))[0].unit
    place.world.send(Decide(unit=stream, trigger="plan"))
    place.world.claim(place.world.worker("w", incarnation=str(place.world.claims)), number)


def test_a_folder_is_written_and_gone_on_with_and_its_log_is_sound(place: Place, tmp_path: Path) -> None:
    run_tasks(place, 2)
    folder = tmp_path / ".state"
    assert place.ask("export", "--state", folder).out == f"8 lines written to {folder}; 8 in all\n"
    run_tasks(place, 1)
    assert place.ask("export", "--state", folder, "--json").json == {"folder": str(folder), "written": 6, "lines": 14}
    assert place.ask("export", "--state", folder).out == f"0 lines written to {folder}; 14 in all\n"
    checked = place.ask("validate-log", "--from-birth", folder / LOG)
    assert (checked.code, checked.out) == (0, f"{folder / LOG}: 14 lines checked, no problems found\n")


def end(place: Place, outcome: str = "completed") -> int:
    """A workstream that has completed, or has failed with its task, or was cancelled."""
    work = (
        Work(task="site", lifecycle="workstream", ref="w"),
        Work(task="t", lifecycle="task", parent="w", step="build"),
    )
    stream, task = (made.unit for made in place.world.send(Submit(work=work)))
    if place.world.unit(stream).state == "planned":
        place.world.send(Decide(unit=stream, trigger="plan"))
    (grant,) = place.world.claim(place.world.worker("w", incarnation="9"))
    if outcome == "cancelled":
        place.world.cancel(stream)
    if outcome != "completed":
        place.world.finish(grant, ended="failure", error="no disk", error_class=PERMANENT)
        return stream
    place.world.finish(grant)
    for unit in (task, stream):
        place.world.send(Decide(unit=unit, trigger="valid"))
    return stream


def test_documents_and_an_archive_that_comes_back(place: Place, tmp_path: Path) -> None:
    stream = format_id("workstream", end(place))
    folder = tmp_path / ".state"
    place.ask("export", "--state", folder)
    assert sorted(file.name for file in folder.iterdir() if file.name != ".lock") == [
        "archive", "current.json", f"dag_{stream}.json", f"execution_plan_{stream}.json", "metrics.json", LOG,
    ]  # fmt: skip
    current = msgspec.json.decode((folder / "current.json").read_bytes())
    assert current["counts"]["workstream"] == {"completed": 1}
    assert current["open_tasks"] == []
    dag = msgspec.json.decode((folder / f"dag_{stream}.json").read_bytes())
    assert [(task["name"], task["state"]) for task in dag["tasks"]] == [("build", "completed")]
    plan = msgspec.json.decode((folder / f"execution_plan_{stream}.json").read_bytes())
    assert (plan["stages"], [task["name"] for task in plan["tasks"]]) == (1, ["build"])
    file = folder / "archive" / f"{stream}.jsonl"
    said = place.ask("restore", file)
    assert (said.code, said.out) == (1, f"{stream} did not come back: {stream} is in this database already\n")
    empty = f"sqlite:///{tmp_path}/restored.db"
    assert place.ask("restore", file, "--db", empty, "--dry-run").out == f"{stream} would come back\n"
    assert place.ask("restore", file, "--db", empty).out == f"{stream} came back\n"
    assert place.ask("show", stream, "--db", empty, "--json").json["state"] == "completed"
    assert place.ask("audit", "--db", empty).code == 0
    assert place.ask("restore", file, "--db", empty, "--json").json["left"][0]["id"] == stream


@pytest.mark.req("R3-35")
@pytest.mark.parametrize("outcome", ["completed", "failed", "cancelled"])
def test_a_workstream_is_preserved_however_it_ended_and_can_be_brought_back(
    place: Place, tmp_path: Path, outcome: str
) -> None:
    stream = format_id("workstream", unit := end(place, outcome))
    assert place.world.unit(unit).state == outcome
    place.ask("export", "--state", tmp_path / ".state")
    file = tmp_path / ".state" / "archive" / f"{stream}.jsonl"
    elsewhere = f"sqlite:///{tmp_path}/elsewhere.db"
    assert place.ask("restore", file, "--db", elsewhere).out == f"{stream} came back\n"
    assert place.ask("show", stream, "--json", "--db", elsewhere).json["state"] == outcome
    task = place.ask("show", f"{stream}/build", "--json", "--db", elsewhere).json
    assert (task["state"], task["error"]) == (outcome, "no disk" if outcome == "failed" else None)
    told = [
        [(event["name"], event["to"]) for event in place.ask("events", stream, "--json", *more).json["events"]]
        for more in ((), ("--db", elsewhere))
    ]
    assert told[0] == told[1] != []
    assert place.ask("audit", "--db", elsewhere).code == 0


def test_a_file_that_is_no_archive_is_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    said = place.ask("restore", tmp_path / "x")
    assert (said.code, said.err) == (2, f"'{tmp_path / 'x'}' is no archive of `interlock archive`")
    said = place.ask("restore", tmp_path / "none")
    assert (said.code, said.err) == (2, f"'{tmp_path / 'none'}' cannot be read: No such file or directory")


def test_a_part_of_an_archive_is_refused_and_nothing_of_it_comes_back(place: Place, tmp_path: Path) -> None:
    ends = [end(place), end(place, "cancelled")]
    place.ask("export", "--state", tmp_path)
    files = [tmp_path / "archive" / f"{format_id('workstream', stream)}.jsonl" for stream in ends]
    lines = [line for file in files for line in file.read_bytes().splitlines(keepends=True)]
    whole = {len(files[0].read_bytes().splitlines()), len(lines)}  # where a tree ends
    part, other = tmp_path / "part.jsonl", f"sqlite:///{tmp_path}/other.db"
    cuts = {0, 1, *(number + more for number in whole for more in (-2, -1, 0, 1)), len(lines) // 4}
    for count in sorted(cut for cut in cuts if cut <= len(lines)):
        part.write_bytes(b"".join(lines[:count]))
        said = place.ask("restore", part, "--dry-run", "--db", other)
        if count in whole:
            assert (said.code, said.err) == (0, "")
        else:
            assert (said.code, "is not whole: its last line is not the end of a tree" in said.err) == (2, True)
    assert place.ask("restore", part, "--db", other).code == 0


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = place.ask("export", "--state", tmp_path / "file")
    assert said.code == 2
    assert said.err == f"the state folder '{tmp_path / 'file'}' cannot be written: Not a directory"


def test_a_folder_has_one_writer(place: Place, tmp_path: Path) -> None:
    with open_folder(tmp_path, MB):
        said = place.ask("export", "--state", tmp_path)
    assert said.code == 2
    assert said.err.endswith(f"writes the state folder '{tmp_path}'; a folder has one writer")
    assert place.ask("export", "--state", tmp_path).code == 0


def test_a_log_of_something_else_is_refused(place: Place, tmp_path: Path) -> None:
    (tmp_path / LOG).write_text("hello\n")
    said = place.ask("export", "--state", tmp_path)
    assert said.code == 2
    assert said.err.startswith(f"the last line of '{tmp_path / LOG}' is none of `interlock export`; move")


def test_the_log_of_another_database_is_refused(place: Place, tmp_path: Path) -> None:
    run_tasks(place, 1)
    place.ask("export", "--state", tmp_path)
    log = tmp_path / LOG
    before = log.read_text()
    epoch = before.partition('"epoch":"')[2][:12]
    log.write_text(before.replace(epoch, "0" * 12))
    said = place.ask("export", "--state", tmp_path)
    assert said.code == 2
    assert "was written from another database, or before this one was restored" in said.err
    assert log.read_text() == before.replace(epoch, "0" * 12)
