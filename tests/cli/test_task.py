"""`interlock task` and `interlock deploy check`, on SQLite and PostgreSQL."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.kernel.commands import Submit, Work
from tests.cli.inside import Ask, inside
from tests.store.databases import fresh_postgres

PROGRAM = """
import interlock
from interlock.client.workflows import step

app = interlock.open({url!r})

@app.task(queue="post", attempts=7, timeout="3m")
def send(to: str, copies: int = 1) -> None: ...

@app.task
def build() -> None: ...

app.workflow("release", steps=[build, "send"])
"""


@pytest.fixture(params=["sqlite file", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_postgres(server, f"task{abs(hash(tmp_path))}") as place:
            yield place
    else:
        yield f"sqlite:///{tmp_path}/work.db"


@pytest.fixture
def ask(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "shop", url)
    yield inside(url)
    for name in ("shop", "other"):
        sys.modules.pop(name, None)


def write(folder: Path, name: str, url: str, **changes: str) -> None:
    """A program, with some words of it changed."""
    text = PROGRAM.format(url=url)
    for old, new in changes.items():
        text = text.replace(SAID[old], new)
    (folder / f"{name}.py").write_text(text)


SAID = {
    "signature": "def send(to: str, copies: int = 1)", "task": "def send(", "steps": 'steps=[build, "send"]',
}  # fmt: skip


def submit(url: str, *works: Work) -> None:
    with interlock.open(url) as app:
        app.send(Submit(work=works))


def problems(ask: Ask, *more: str) -> list[tuple[str, str, int, int]]:
    done = ask("deploy", "check", *more, "--json")
    report = done.json
    assert done.code == (0 if report["ok"] else 1)
    assert report["ok"] == (not report["problems"])
    return [(item["kind"], item["name"], item["waiting"], item["running"]) for item in report["problems"]]


def test_tasks_are_stored_listed_and_shown(ask: Ask) -> None:
    ask("db", "upgrade")
    assert "no task is stored" in ask("task", "list").out
    assert ask("task", "define", "shop:app").out.splitlines() == ["send: stored", "build: stored", "release: stored"]
    assert ask("task", "define", "shop:app").out.splitlines()[0] == "send: as it was"
    rows = ask("task", "list").rows
    assert rows[1] == ["send", "1", "to: str, copies: int = 1", "0", "0", "queue=post attempts=7 timeout=3m"]
    shown = ask("task", "show", "send", "--json").json
    assert [parameter["name"] for parameter in shown["parameters"]] == ["to", "copies"]
    assert shown["rules"] == {"queue": "post", "attempts": 7, "timeout": "3m"}
    assert (shown["waiting"], shown["running"]) == (0, 0), "as over HTTP"
    refused = ask("task", "show", "strange")
    assert refused.code == 2
    assert "there is no task 'strange'; stored are build, send" in refused.err
    assert "no task 'send' version 9" in ask("task", "show", "send", "--version", 9).err


def test_what_is_left_out_is_as_the_task_says_and_wrong_arguments_are_refused(ask: Ask) -> None:
    ask("task", "define", "shop:app")
    ask("submit", "send", "--arg", "to=ann")
    (job,) = ask("list", "--json").json["units"]
    assert job["queue"] == "post"
    refused = ask("submit", "send", "--arg", "too=ann")
    assert refused.code == 2
    assert "it has no argument 'too'; it takes to: str, copies: int = 1" in refused.err
    assert len(ask("list", "--json").json["units"]) == 1
    ask("submit", "send", "--arg", "to=ann", "--queue", "default", "--priority", 0)
    assert {job["queue"] for job in ask("list", "--json").json["units"]} == {"post", "default"}


def test_a_program_that_understands_everything(ask: Ask, url: str) -> None:
    ask("task", "define", "shop:app")
    submit(url, Work(task="send", input='{"to": "a"}'), Work(task="build"))
    assert problems(ask, "shop:app") == []
    assert "shop:app understands the 2 jobs that wait and 0 that run" in ask("deploy", "check", "shop:app").out


def test_tasks_and_arguments_that_a_program_does_not_understand(ask: Ask, url: str, tmp_path: Path) -> None:
    ask("task", "define", "shop:app")
    submit(url, Work(task="strange"), Work(task="strange", queue="far", delay_us=9_000_000_000))
    submit(url, *[Work(task="send", input='{"to": "a", "copies": 2}')] * 3)
    assert problems(ask, "shop:app") == [("task_unknown", "strange", 2, 0)]
    assert problems(ask, "shop:app", "--queue", "post,far") == [("task_unknown", "strange", 1, 0)]
    assert problems(ask, "shop:app", "-q", "post") == []
    write(tmp_path, "other", url, signature="def send(to: str, urgent: bool, copies: str = '')")
    assert [item[:2] for item in problems(ask, "other:app")] == [
        ("argument_wrong", "send"),
        ("task_unknown", "strange"),
    ]


@pytest.mark.parametrize(
    ("signature", "kind"),
    [
        ("def send(to: str, copies: int, urgent: bool)", "parameter_lacking"),
        ("def send(to: str)", "parameter_new"),
        ("def send(to: str, copies: str)", "argument_wrong"),
    ],
)
def test_arguments_that_a_program_does_not_take(ask: Ask, url: str, tmp_path: Path, signature: str, kind: str) -> None:
    ask("task", "define", "shop:app")
    submit(url, Work(task="send", input='{"to": "a", "copies": 2}'))
    write(tmp_path, "other", url, signature=signature)
    assert problems(ask, "other:app") == [(kind, "send", 1, 0)]
    done = ask("deploy", "check", "other:app")
    assert done.code == 1
    assert "1 job such as job_" in done.out


def test_a_workflow_that_differs_while_runs_go_on(ask: Ask, url: str, tmp_path: Path) -> None:
    ask("task", "define", "shop:app")
    write(tmp_path, "other", url, steps='steps=["send", build]')
    assert problems(ask, "other:app") == []
    submit(url, Work(task="release", lifecycle="workflow_run", template="release", input='{"to": "a"}'))
    assert problems(ask, "shop:app") == []
    assert problems(ask, "other:app") == [("workflow_differs", "release", 0, 1)]


def test_a_check_changes_nothing_and_needs_a_database_that_is_there(ask: Ask, url: str, tmp_path: Path) -> None:
    if url.startswith("sqlite"):
        refused = ask("deploy", "check", "shop:app")
        assert (refused.code, "there is no database" in refused.err) == (2, True)
        assert not (tmp_path / "work.db").exists()
    ask("task", "define", "shop:app")
    before = ask("task", "list").out
    assert ask("deploy", "check", "shop:app").code == 0
    assert ask("task", "list").out == before
    assert ask("deploy", "check", "nothing:app").code == 2
