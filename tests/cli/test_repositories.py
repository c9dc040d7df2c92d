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


class Checkout:
    """A checkout of `main` in which commands are run as a newcomer does, without a database named."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        Repository.create(folder, bare=False)

    def run(self, *words: str, file: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/bin:/bin", "INTERLOCK_ACTOR": "ann"}
        return subprocess.run(
            [str(COMMAND), "workstream", *words], cwd=folder or self.folder, env=environment, input=file, capture_output=True,
            text=True, check=False,
        )  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path / "a [site]")
    commit_files(made.folder, {"index.html": "<h1>\n"}, "first")
    return made


HERE = ("submit", "-", "--here", "--shell-sandbox", "none")


def test_a_checkout_is_clean_after_a_workstream_ran_in_it(checkout: Checkout) -> None:
    exclude = checkout.folder / ".git" / "info" / "exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("*.bak")  # without an end of the line
    (checkout.folder / "notes.txt").write_text("not committed\n")
    below = checkout.folder / "sub"
    below.mkdir()
    for folder in (checkout.folder, below, checkout.folder):
        done = checkout.run(*HERE, file=FILE, folder=folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (folder / "interlock.db").exists()
    assert git(checkout.folder, "status", "--porcelain") == "?? notes.txt"
    assert exclude.read_text().splitlines() == ["*.bak", "/interlock.db*", "/sub/interlock.db*"]
    assert "about.html" in git(checkout.folder, "ls-tree", "--name-only", "main").split()
    assert len(git(checkout.folder, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "words", "why"),
    [
        (("main", "mian"), (), "there is no branch 'mian' to merge onto in '{}/.git'; there are main"),
        (("[{run", '[{merge = "v1"}, {run'), (), "there is no branch 'v1' to merge onto in '{}/.git'; there are main"),
        (('repo = "site"', 'repo = "site"\nref = "v9"'), (), "there is no revision 'v9' in '{}/.git'"),
        (("", ""), ("--arg", "ref=v8"), "there is no revision 'v8' in '{}/.git'"),
    ],
)
def test_what_the_repository_has_not_got_is_said_before_anything_is_made(
    checkout: Checkout, change: tuple[str, str], words: tuple[str, ...], why: str
) -> None:
    done = checkout.run(*HERE, *words, file=FILE.replace(*change, 1))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"interlock: {why.format(checkout.folder)}\n"
    assert sorted(path.name for path in checkout.folder.iterdir()) == [".git", "index.html"]


def test_a_repository_without_a_commit_and_a_folder_that_is_none_are_told(tmp_path: Path) -> None:
    empty = Checkout(tmp_path / "empty")
    done = empty.run(*HERE, file=FILE)
    assert done.stderr == f"interlock: there is no revision 'HEAD' in '{empty.folder}/.git'; commit something first\n"
    (tmp_path / "plain").mkdir()
    done = empty.run(*HERE, file=FILE, folder=tmp_path / "plain")
    assert done.stderr == f"interlock: '{tmp_path / 'plain'}' is not a git repository, nor a folder in one\n"
    assert list((tmp_path / "plain").iterdir()) == []


def test_a_dry_run_makes_nothing(checkout: Checkout) -> None:
    done = checkout.run("submit", "-", "--dry-run", file=FILE)
    assert (done.returncode, done.stdout) == (0, "workstream 'pages' with 2 tasks can be submitted\n")
    assert sorted(path.name for path in checkout.folder.iterdir()) == [".git", "index.html"]


def test_a_workstream_that_failed_is_done_again_here(checkout: Checkout, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    failing = FILE.replace("cp about", f"test -e '{flag}'; cp about").replace("needs", "attempts = 1\nneeds")
    done = checkout.run(*HERE, file=failing)
    assert done.returncode == 1
    *_, why, hint = done.stdout.splitlines()
    assert why.startswith("workstream_1 is failed: task 'links' is failed: ")
    flag.touch()
    words = hint.partition("interlock workstream ")[2].split()
    assert words == ["rerun", "workstream_1", "--failed", "--here"]
    done = checkout.run(*words, "--shell-sandbox", "none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(checkout.folder, "ls-tree", "--name-only", "main").split() == ["about.html", "index.html", "links.html"]
    assert git(checkout.folder, "status", "--porcelain") == ""


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
