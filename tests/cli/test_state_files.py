"""`interlock export` as an operator runs it."""

from pathlib import Path

from interlock.kernel.commands import Decide, Submit, Work
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
