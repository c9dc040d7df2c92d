"""`interlock ci` in real repositories: what it says, and that it changes nothing."""

import hashlib
import os
from pathlib import Path

import pytest

from tests.cli.inside import Ask, inside
from tests.conftest import Run
from tests.git.repositories import commit_files, git, write_files

CONFIG = "jobs:\n  build: {steps: [make], inputs: [src/**]}\n  docs: {steps: [make docs], inputs: ['docs/**']}\n"


@pytest.fixture
def ask() -> Ask:
    return inside("sqlite:///none.db")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with a commit on main."""
    folder = tmp_path / "shop"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit_files(
        folder, {".interlock/ci.yaml": CONFIG, "src/a.c": "1", "docs/a.md": "1", ".gitignore": "*.o\n"}, "first"
    )
    return folder


def fingerprint(folder: Path) -> dict[str, str]:
    """Everything of a repository but its objects, and all its files."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "objects" not in path.parts)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_plan_is_of_the_working_tree_as_it_is_and_changes_nothing(place: Path, ask: Ask) -> None:
    git(place, "checkout", "--quiet", "-b", "topic")
    commit_files(place, {"docs/b.md": "2"}, "second")
    write_files(place, {"src/new.c": "new", "src/new.o": "ignored"})
    write_files(place, {"docs/staged.md": "x"})
    git(place, "add", "docs/staged.md")
    before = fingerprint(place)
    status, base = git(place, "status", "--porcelain"), git(place, "rev-parse", "main")
    plan = ask("ci", "plan", "-C", str(place), "--json").json
    assert (plan["source"], plan["base"], plan["changed"]) == ("config", base, 3)
    assert plan["paths"] == ["docs/b.md", "docs/staged.md", "src/new.c"]
    assert {job["name"]: job["reason"] for job in plan["jobs"]} == {
        "build": "'src/new.c' matches 'src/**'", "docs": "'docs/b.md' matches 'docs/**'",
    }  # fmt: skip
    assert ask("ci", "plan", "-C", str(place / "src"), "--json").json == plan
    only = ask("ci", "plan", "-C", str(place), "--base", "HEAD", "--explain").rows
    assert [row[0] for row in only] == ["JOB", "build", "docs"]
    assert fingerprint(place) == before
    assert git(place, "status", "--porcelain") == status


def test_a_plan_for_people_has_a_line_per_job(place: Path, ask: Ask) -> None:
    git(place, "checkout", "--quiet", "-b", "topic")
    write_files(place, {"src/b.c": "x"})
    lines = ask("ci", "plan", "-C", str(place), "--explain").out.splitlines()
    assert lines[0].startswith("plan ")
    assert lines[0].endswith(f"from the config: 1 changed path since {git(place, 'rev-parse', 'main')[:12]}")
    assert [line.split("\t") for line in lines[1:]] == [
        ["JOB", "WILL", "NEEDS", "WHY"],
        ["build", "runs", "-", "'src/b.c' matches 'src/**'"],
        ["docs", "left out", "-", "no changed path matches docs/**"],
    ]
    assert ask("ci", "plan", "-C", str(place)).out.splitlines()[2] == "build\truns\t-"


def test_what_it_is_compared_with(place: Path, ask: Ask) -> None:
    def reasons(*options: str) -> set[str]:
        return {job["reason"] for job in ask("ci", "plan", "-C", str(place), "--json", *options).json["jobs"]}

    assert reasons() == {"nothing differs from 'main', so everything is planned"}
    assert reasons("--base", "main") == {
        f"every job is left out: build: nothing has changed since {git(place, 'rev-parse', 'HEAD')[:12]}; "
        f"docs: nothing has changed since {git(place, 'rev-parse', 'HEAD')[:12]}"
    }
    git(place, "checkout", "--quiet", "--orphan", "island")
    commit_files(place, {"src/b.c": "x"}, "alone")
    assert reasons() == {"there is no common ancestor with 'main', so everything is planned"}
    git(place, "branch", "--quiet", "-D", "main")
    assert reasons() == {"there is no main branch to compare with, so everything is planned"}
    gone = ask("ci", "plan", "-C", str(place), "--base", "gone")
    assert (gone.code, gone.err) == (2, f"there is no revision 'gone' in '{place}/.git'")


def test_a_moved_file_and_a_name_in_other_letters_count(place: Path, ask: Ask) -> None:
    git(place, "checkout", "--quiet", "-b", "topic")
    git(place, "mv", "src/a.c", "other.c")
    Path(os.fsdecode(os.fsencode(place) + b"/docs/\xff.md")).write_text("x")
    plan = ask("ci", "plan", "-C", str(place), "--json").json
    assert plan["paths"] == ["docs/\\xff.md", "other.c", "src/a.c"]
    assert [job["name"] for job in plan["jobs"]] == ["build", "docs"]


def test_a_repository_that_cannot_be_planned_is_a_sentence(tmp_path: Path, place: Path, ask: Ask) -> None:
    def refuse(folder: Path, *words: str) -> str:
        done = ask("ci", *(words or ("plan",)), "-C", str(folder))
        assert (done.code, done.out) == (2, "")
        return done.err

    none, bare, empty = tmp_path / "none", tmp_path / "bare", tmp_path / "empty"
    none.mkdir()
    git(tmp_path, "init", "--quiet", "--bare", "bare")
    git(tmp_path, "init", "--quiet", "empty")
    for words in ("plan", "init", "lint"):
        assert refuse(none, words) == f"'{none}' is in no git repository; go to one, or make one with `git init`"
        assert refuse(bare, words) == f"'{bare}' is a bare repository, which has no files to check; go to a clone of it"
    assert refuse(tmp_path / "gone") == f"there is no folder '{tmp_path}/gone'"
    assert refuse(place / ".git") == f"'{place}/.git' is inside the .git folder; go to the files of the repository"
    assert refuse(empty) == f"the repository '{empty}' is empty; add files and commit them"
    write_files(empty, {"a.py": ""})
    assert refuse(empty) == f"the repository '{empty}' has no commit yet; make the first one"
    git(place, "checkout", "--quiet", "--detach")
    assert refuse(place) == f"HEAD is detached in '{place}', so its branch is not known: give --branch NAME"
    assert ask("ci", "plan", "-C", str(place), "--branch", "main").code == 0
    assert refuse(place, "plan", "--event", "later") == (
        "--event 'later' is not allowed; allowed are push, pull_request, schedule, manual"
    )
    assert refuse(place, "plan", "--branch", "a", "--tag", "b") == "give --branch or --tag, not both"


def test_a_config_that_is_wrong_never_falls_back(place: Path, ask: Ask, interlock: Run) -> None:
    write_files(place, {".interlock/ci.yaml": "jobs: {a: {stepz: [make]}}\n", "Makefile": "test:\n\ttrue\n"})
    done = interlock("ci", "plan", "-C", str(place))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("interlock: .interlock/ci.yaml:1:8: the job 'a' has no steps;")
    assert ".interlock/ci.yaml:1:12: a job has no key 'stepz' (did you mean 'steps'?);" in done.stderr
    (place / ".interlock" / "ci.yaml").rename(place / ".interlock" / "ci.yml")
    misspelt = "there is .interlock/ci.yml, which is not read; the config is .interlock/ci.yaml"
    assert ask("ci", "plan", "-C", str(place)).err == misspelt
    (place / ".interlock" / "ci.yml").unlink()
    plan = ask("ci", "plan", "-C", str(place), "--json").json
    assert (plan["source"], [job["name"] for job in plan["jobs"]]) == ("discovered", ["test"])
    write_files(place, {"ci.ai.yaml": "version: 1\njobs: {old: {steps: [make]}}\n"})
    assert [job["name"] for job in ask("ci", "plan", "-C", str(place), "--json").json["jobs"]] == ["old"]
    write_files(place, {".interlock/ci.yaml": CONFIG})
    two = "there are two configs, .interlock/ci.yaml and ci.ai.yaml; keep one of them"
    assert ask("ci", "plan", "-C", str(place)).err == ask("ci", "lint", "-C", str(place)).err == two
    (place / "ci.ai.yaml").unlink()
    write_files(place, {".gitignore": ".interlock/\n"})
    git(place, "rm", "--quiet", "--cached", ".interlock/ci.yaml")
    assert (
        ask("ci", "plan", "-C", str(place)).err
        == ".interlock/ci.yaml is there, and git ignores it; take it out of .gitignore (with --tracked: `git add` it)"
    )


def test_a_config_that_is_no_file_is_refused_by_plan_and_lint_alike(place: Path, ask: Ask) -> None:
    file = place / ".interlock" / "ci.yaml"
    file.rename(place / "other.yaml")
    file.symlink_to("../other.yaml")
    done = [ask("ci", words, "-C", str(place)) for words in ("plan", "lint")]
    assert [(each.code, each.err) for each in done] == [
        (2, ".interlock/ci.yaml is a link or a submodule; a config is a file"),
        (2, ".interlock/ci.yaml is a link; a config is a file"),
    ]
    file.unlink()
    write_files(place, {".interlock/ci.yaml/jobs.yaml": "jobs: {}"})
    done = [ask("ci", words, "-C", str(place)) for words in ("plan", "lint")]
    assert [(each.code, each.err) for each in done] == [(2, ".interlock/ci.yaml is a folder; a config is a file")] * 2


def test_lint_says_everything_at_once(place: Path, tmp_path: Path, ask: Ask) -> None:
    assert ask("ci", "lint", "-C", str(place)).out == ".interlock/ci.yaml: 2 jobs, no problems\n"
    file = tmp_path / "mine.yaml"
    file.write_text("jobs: {a: {steps: [make], needs: [b]}, c: {}}\n")
    done = ask("ci", "lint", str(file))
    assert (done.code, done.out.splitlines()) == (
        1,
        [
            f"{file}:1:35: there is no job 'b'; allowed are a, c",
            f"{file}:1:40: the job 'c' has no steps; allowed are 1 to 100, or a gate",
            f"{file}: 2 problems",
        ],
    )
    told = ask("ci", "lint", str(file), "--json")
    assert (told.code, told.json["ok"], len(told.json["problems"])) == (1, False, 2)
    missing = ask("ci", "lint", str(tmp_path / "gone.yaml"))
    assert (missing.code, missing.err) == (2, f"'{tmp_path}/gone.yaml' cannot be read: No such file or directory")
    file.write_bytes(b"#" * (3 << 20))
    assert ask("ci", "lint", str(file)).out.startswith(f"{file}:1:1: the file has more than 1,048,576 bytes;")


def test_init_writes_what_is_found_and_never_over_a_config(place: Path, tmp_path: Path, ask: Ask) -> None:
    done = ask("ci", "init", "-C", str(place))
    assert (done.code, done.err) == (2, "there is a .interlock/ci.yaml; --force writes it anew")
    assert (place / ".interlock" / "ci.yaml").read_text() == CONFIG
    write_files(place, {"Makefile": "build:\n\ttrue\ntest:\n\ttrue\n"})
    assert (
        ask("ci", "init", "-C", str(place), "--force").out
        == ".interlock/ci.yaml was written, with the jobs build, test\n"
    )
    assert ask("ci", "lint", "-C", str(place), "--json").json["jobs"] == 2
    new = tmp_path / "new"
    git(tmp_path, "init", "--quiet", "new")
    written = ask("ci", "init", "-C", str(new), "--json").json
    assert written == {"file": ".interlock/ci.yaml", "discovered": False, "jobs": ["check"]}
    assert ask("ci", "lint", "-C", str(new)).code == 0
    commit_files(place, {"a": ""}, "third")
    (place / ".interlock" / "ci.yaml").unlink()
    (place / ".interlock").rmdir()
    (place / ".interlock").write_text("a file")
    blocked = ask("ci", "init", "-C", str(place))
    assert (blocked.code, blocked.err) == (2, f"'{place}/.interlock' cannot be made: File exists")


def test_without_a_config_and_without_anything_known_a_sentence_says_what_to_do(tmp_path: Path, ask: Ask) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main", "notes")
    commit_files(tmp_path / "notes", {"notes.txt": "x"}, "first")
    done = ask("ci", "plan", "-C", str(tmp_path / "notes"))
    words = "there is no .interlock/ci.yaml, and nothing was found to build or test; `interlock ci init` writes one"
    assert (done.code, done.err) == (2, words)
