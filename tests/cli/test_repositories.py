"""`interlock worker --repo` and `interlock up --repo`, as a user runs them."""

from pathlib import Path

import pytest

from tests.cli.inside import Ask, inside


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
