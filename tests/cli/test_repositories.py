"""`interlock worker --repo` and `interlock up --repo`, as a user runs them."""

import subprocess
from pathlib import Path

import pytest

from interlock.git import Repository
from tests.cli.inside import Ask, inside
from tests.conftest import COMMAND
from tests.git.repositories import commit_files, git


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    return inside(f"sqlite:///{tmp_path / 'work.db'}")


@pytest.mark.parametrize("command", [("worker", "run"), ("up",)])
@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--repo", "site"), "--repo = 'site' is not allowed; allowed is a name and a folder, as in site=."),
        (("--repo", "site="), "--repo = 'site=' is not allowed"),
        (("--repo", "a b=."), "the repository 'a b' is not allowed; allowed are 1 to 100 letters"),
        (("--repo", "site=/nowhere"), "there is no folder '/nowhere'"),
        (("--repo", "site=/"), "not a git repository"),
        (("--repo", "site=.", "--repo", "site=."), "--repo names 'site' twice"),
        (("--cap", "repo:site"), "the capability 'repo:site' is not given by name: --repo gives it"),
    ],
)
def test_a_worker_without_its_repository_does_not_start(
    ask: Ask, command: tuple[str, ...], args: tuple[str, ...], text: str
) -> None:
    app = ("tests.worker.chores:app",) if "--cap" in args or command == ("up",) else ()
    done = ask(*command, *app, *args)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert "Traceback" not in done.err


def test_a_task_has_the_repository_of_its_workstream(ask: Ask) -> None:
    stream = ask("submit", "all", "--lifecycle", "workstream", "--options", '{"repositories": {"repo": "site"}}')
    task = ask("submit", "edit", "--lifecycle", "task", "--parent", stream.out.strip(), "--step", "a").out.strip()
    assert ask("show", task, "--json").json["capabilities"] == ["repo:site"]


FILE = """
name = "pages"
repo = "site"
checks = [{run = "ls about.html links.html"}, {merge = "main"}]

[tasks.about]
run = "echo about > about.html"

[tasks.links]
run = "cp about.html links.html"
needs = ["about"]
"""


def test_the_workstream_of_a_file_ends_on_the_branch_of_the_checkout_that_it_was_submitted_in(tmp_path: Path) -> None:
    site = tmp_path / "site"
    Repository.create(site, bare=False)
    commit_files(site, {"index.html": "<h1>\n"}, "first")
    (tmp_path / "pages.toml").write_text(FILE)
    (site / "notes.txt").write_text("not committed\n")
    words = ["workstream", "submit", "../pages.toml", "--here", "--shell-sandbox", "none", "--db"]
    command = [str(COMMAND), *words, "sqlite:///../work.db"]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(site, "ls-tree", "--name-only", "main").split() == ["about.html", "index.html", "links.html"]
    assert git(site, "status", "--porcelain") == "?? notes.txt"
    assert len(git(site, "worktree", "list").splitlines()) == 1
    assert not (tmp_path / "site.interlock").exists()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('ref = "v1"', "ref is not allowed without repo"),
        ('repo = "a b"', "the repository 'a b' is not allowed"),
        ('repo = "site"\nref = "-x"', "the revision '-x' is not allowed"),
        ('repo = "site"\nchecks = [{merge = "a b"}]', "the branch 'a b' is not allowed"),
        ('repo = "site"\nchecks = [{merge = "main", timeout = "1m"}]', "a merge says nothing but the branch"),
        ('checks = [{merge = "main"}]', "a merge is a check of a workstream that has a repository"),
        ('rep = "site"', "rep: there is no such key; did you mean 'repo'?"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(ask: Ask, tmp_path: Path, line: str, text: str) -> None:
    (tmp_path / "pages.toml").write_text(f'name = "pages"\n{line}\n[tasks.a]\nrun = "true"\n')
    done = ask("workstream", "submit", str(tmp_path / "pages.toml"))
    assert (done.code, done.out) == (2, "")
    assert text in done.err
