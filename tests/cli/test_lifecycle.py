"""`interlock lifecycle` as a user runs it: what it prints, in JSON too, and how it refuses."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from interlock.audit.docs.render import draw_mermaid, render_page
from interlock.audit.draw import draw_lifecycle
from interlock.lifecycles import shipped
from interlock.lifecycles.loader import parse
from tests.conftest import COMMAND, ROOT, Run
from tests.lifecycles.sample import PARCEL

NAMES = {
    "agent_run", "agent_job", "workflow_run", "step", "approval", "job", "task", "workstream", "worker",
    "ci_run", "ci_job", "ci_attempt", "lease",
}  # fmt: skip


@pytest.fixture
def parcel(tmp_path: Path) -> Path:
    path = tmp_path / "parcel.toml"
    path.write_text(PARCEL)
    return path


def test_list_has_those_of_the_documents_and_of_plugins(interlock: Run) -> None:
    done = interlock("lifecycle", "list", "--json")
    assert {lifecycle["name"] for lifecycle in json.loads(done.stdout)["lifecycles"]} == NAMES | {"effect"}
    assert "unknown" in interlock("lifecycle", "show", "effect").stdout
    text = interlock("lifecycle", "list").stdout
    assert all(name in text for name in NAMES)


def test_hello_says_what_to_look_at(interlock: Run) -> None:
    done = interlock("hello")
    assert done.returncode == 0
    assert all(name in done.stdout for name in NAMES)
    assert "interlock lifecycle show job" in done.stdout


def test_show_tells_states_and_moves(interlock: Run) -> None:
    text = interlock("lifecycle", "show", "approval").stdout
    assert "WAITING_APPROVAL\tgate" in text
    assert "approve" in text
    assert "approval_expired (error)" in text


def test_draw_writes_an_svg(interlock: Run, tmp_path: Path) -> None:
    lifecycle = shipped()["job"]
    assert interlock("lifecycle", "draw", "job").stdout == draw_lifecycle(lifecycle)
    file = tmp_path / "job.svg"
    assert interlock("lifecycle", "draw", "job", "-o", str(file)).stdout == f"{file}: the lifecycle job\n"
    assert file.read_text(encoding="utf-8") == draw_lifecycle(lifecycle)


def test_show_draws(interlock: Run) -> None:
    lifecycle = shipped()["job"]
    assert interlock("lifecycle", "show", "job", "--mermaid").stdout == draw_mermaid(lifecycle, whole=True) + "\n"
    assert interlock("lifecycle", "show", "job", "--markdown").stdout == render_page(lifecycle)
    assert json.loads(interlock("lifecycle", "show", "job", "--json").stdout)["name"] == "job"


def test_export_has_one_entry_for_each_single_hop(interlock: Run) -> None:
    lifecycles = json.loads(interlock("lifecycle", "export", "--json").stdout)["lifecycles"]
    assert {lifecycle["name"] for lifecycle in lifecycles} == NAMES
    for lifecycle in lifecycles:
        assert set(lifecycle) == {"name", "document", "states", "moves"}
        names = {state["name"] for state in lifecycle["states"]}
        assert all(set(s) == {"name", "category", "initial", "settled", "final"} for s in lifecycle["states"])
        assert [state["initial"] for state in lifecycle["states"]].count(True) == 1
        keys = {
            "from",
            "to",
            "trigger",
            "owner",
            "event",
            "severity",
            "opens_attempt",
            "extension",
            "why",
            "guards",
            "note",
        }
        assert all(set(move) == keys for move in lifecycle["moves"])
        assert {move["to"] for move in lifecycle["moves"]} <= names
        births = [move for move in lifecycle["moves"] if move["from"] is None]
        assert [move["to"] for move in births] == [state["name"] for state in lifecycle["states"] if state["initial"]]
        hops = [(move["from"], move["trigger"]) for move in lifecycle["moves"]]
        assert len(hops) == len(set(hops)), "a trigger has one answer in a state"


def test_a_path_is_exported_hop_by_hop(interlock: Run) -> None:
    (run,) = json.loads(interlock("lifecycle", "export", "ci_run", "--json").stdout)["lifecycles"]
    births = [(m["from"], m["to"]) for m in run["moves"] if m["trigger"] == "submit"]
    assert births == [(None, "CREATED"), ("CREATED", "PLANNING")]


def test_reclaims_in_place_are_listed_as_self_hops(interlock: Run) -> None:
    lifecycles = json.loads(interlock("lifecycle", "export", "--json").stdout)["lifecycles"]
    selfs = {
        (lifecycle["name"], m["from"], m["extension"])
        for lifecycle in lifecycles
        for m in lifecycle["moves"]
        if m["from"] == m["to"]
    }
    assert selfs == {("step", "RUNNING", False), ("agent_job", "claimed", True)}


def test_documents_leaves_extensions_out(interlock: Run) -> None:
    whole = json.loads(interlock("lifecycle", "export", "job", "--json").stdout)["lifecycles"][0]
    strict = json.loads(interlock("lifecycle", "export", "job", "--documents", "--json").stdout)["lifecycles"][0]
    assert [move for move in whole["moves"] if not move["extension"]] == strict["moves"]
    assert len(strict["moves"]) < len(whole["moves"])


def test_export_in_plain_text_is_one_line_a_hop(interlock: Run) -> None:
    lines = interlock("lifecycle", "export", "job").stdout.splitlines()
    assert lines[0] == "job: (birth) -> queued submit person job_queued info"
    assert "job: running -> queued lost engine job_lease_expired warning opens_attempt extension" in lines


def test_a_users_own_file_goes_the_same_way(parcel: Path, tmp_path: Path, interlock: Run) -> None:
    assert interlock("lifecycle", "lint", parcel).stdout == "1 file checked, no problems found\n"
    assert "carried" in interlock("lifecycle", "show", parcel).stdout
    exported = json.loads(interlock("lifecycle", "export", parcel, "--json").stdout)["lifecycles"]
    assert [lifecycle["name"] for lifecycle in exported] == ["parcel"]
    assert interlock("lifecycle", "docs", parcel, "--out", tmp_path / "pages").returncode == 0
    drawn = (tmp_path / "pages" / "parcel.md").read_text(encoding="utf-8")
    assert drawn == render_page(parse(PARCEL, "parcel.toml"))
    assert interlock("lifecycle", "docs", parcel, "--out", tmp_path / "pages", "--check").returncode == 0
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["parcel.md", "parcel.svg"]


def test_a_broken_file_is_reported_with_its_name(parcel: Path, interlock: Run) -> None:
    parcel.write_text(PARCEL.replace('claim  = "carried"', 'claim  = "carred"'))
    done = interlock("lifecycle", "lint", parcel)
    assert done.returncode == 1
    assert "parcel.toml: state 'packed': 'claim' leads to 'carred'" in done.stdout
    told = json.loads(interlock("lifecycle", "lint", parcel, "--json").stdout)
    assert told["ok"] is False
    assert "[unknown-state]" in told["findings"][0]["message"]


@pytest.mark.parametrize("verb", ["show", "export", "docs", "check"])
def test_a_broken_file_is_refused_by_every_verb(verb: str, parcel: Path, interlock: Run) -> None:
    parcel.write_text(PARCEL.replace('exhaust  = "returned"\n', ""))
    done = interlock("lifecycle", verb, parcel)
    assert done.returncode == 2
    assert "[lost-lease]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("lifecycle", "show", "jobs"), "there is no lifecycle 'jobs'; there are agent_job, agent_run"),
        (("lifecycle", "show", "none.toml"), "none.toml: cannot be read: No such file"),
        (("lifecycle", "lint", "none.toml"), "none.toml: cannot be read: No such file"),
        (("lifecycle", "lint", "jbo"), "there is no lifecycle 'jbo'; there are agent_job"),
        (("lifecycle", "show"), "Missing argument"),
        (("lifecycle", "paint"), "No such command"),
        (("lifecycle", "draw"), "Missing argument"),
        (("lifecycle", "draw", "jobs"), "there is no lifecycle 'jobs'; there are agent_job"),
        (("lifecycle", "draw", "job", "-o", "/dev/null/job.svg"), "'/dev/null/job.svg' cannot be written"),
        (("lifecycle", "list", "--yaml"), "No such option"),
        (("life",), "No such command"),
        (("lifecycle", "docs", "--out", "/dev/null/pages"), "the pages cannot be written"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(args: tuple[str, ...], said: str, interlock: Run) -> None:
    done = interlock(*args)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("redirect", ["| head -1", ">&-", ">/dev/full"])
def test_an_output_that_cannot_be_written_is_no_traceback(redirect: str) -> None:
    for args in ("lifecycle export", "lifecycle show job", "lifecycle list --json", "validate-log --json /dev/null"):
        shell = f"PYTHONIOENCODING=latin-1 {shlex.quote(str(COMMAND))} {args} {redirect}"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 2)


def test_docs_leaves_the_pages_of_others_alone(tmp_path: Path, interlock: Run) -> None:
    (tmp_path / "diary.md").write_text("Dear diary")
    (tmp_path / "gone.md").write_text((ROOT / "docs" / "lifecycles" / "job.md").read_text(encoding="utf-8"))
    done = interlock("lifecycle", "docs", "--out", tmp_path)
    assert f"{tmp_path / 'gone.md'}: removed" in done.stdout
    assert (tmp_path / "diary.md").exists()
    (tmp_path / "README.md").write_text("mine")
    refused = interlock("lifecycle", "docs", "--out", tmp_path)
    assert (refused.returncode, (tmp_path / "README.md").read_text()) == (2, "mine")
    assert "was not drawn by us and is not overwritten" in refused.stderr
    assert not (tmp_path / "gone.md").exists()


def test_docs_writes_only_what_changed(tmp_path: Path, interlock: Run) -> None:
    assert interlock("lifecycle", "docs", cwd=tmp_path).stdout == "14 pages in docs/lifecycles, 14 of them changed\n"
    (tmp_path / "docs" / "lifecycles" / "job.md").unlink()
    told = json.loads(interlock("lifecycle", "docs", "--json", cwd=tmp_path).stdout)
    assert told["written"] == ["job.md"]
    assert len(told["pages"]) == 14


def test_docs_draws_every_lifecycle_beside_its_page(tmp_path: Path, interlock: Run) -> None:
    interlock("lifecycle", "docs", cwd=tmp_path)
    folder = tmp_path / "docs" / "lifecycles"
    assert len(list(folder.glob("*.svg"))) == 13
    assert "](job.svg)" in (folder / "job.md").read_text(encoding="utf-8")
    drawing = (folder / "job.svg").read_text(encoding="utf-8")
    assert "".join(drawing.split("<!-- Drawn by `interlock lifecycle docs` -->\n")) == draw_lifecycle(shipped()["job"])
    (folder / "job.svg").write_text(drawing.replace("queued", "idle"), encoding="utf-8")
    (folder / "gone.svg").write_text(drawing, encoding="utf-8")
    (folder / "mine.svg").write_text("<svg/>", encoding="utf-8")
    checked = interlock("lifecycle", "docs", "--check", cwd=tmp_path)
    assert checked.returncode == 1
    assert "job.svg: differs from its lifecycle" in checked.stdout
    assert "gone.svg: there is no such lifecycle" in checked.stdout
    told = interlock("lifecycle", "docs", cwd=tmp_path).stdout
    assert (
        told
        == "14 pages in docs/lifecycles, 1 of them changed\ndocs/lifecycles/gone.svg: removed, there is no such lifecycle\n"
    )
    assert (folder / "mine.svg").exists()


def test_version_and_help(interlock: Run) -> None:
    told = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("interlock 0.")
    told = interlock("--help")
    assert told.returncode == 0
    assert "validate-log" in told.stdout
    for verb in ("list", "show", "lint", "export", "docs", "check"):
        done = interlock("lifecycle", verb, "--help")
        assert "--json" in done.stdout
