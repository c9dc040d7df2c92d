"""The examples work: each is played on a stage, with the trouble that it is about."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

import interlock
from interlock.testing import Stage
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
On = Callable[..., Stage]


def loaded(name: str) -> ModuleType:
    """A fresh copy of an example's module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_example_has_a_test() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'"{path.stem}' not in text] == []


def test_the_mail_queue(interlock_app: On, capsys: pytest.CaptureFixture[str]) -> None:
    example = loaded("mail_queue")
    stage = interlock_app(example.app)
    example.main()
    stage.advance("10s")  # the others follow the one that was tried
    stage.drain()
    (outage,) = [pause for pause in example.app.pauses(ended=True) if pause.kind == "outage"]
    assert (outage.name, outage.reason) == ("smtp", "smtp is away: connection refused")
    assert capsys.readouterr().out == "one welcome: True\nsent to ada@example.org\n"
    assert sorted(example.mailbox.sent) == [
        "ada@example.org: welcome", "bob@example.org: news", "cy@example.org: news"
    ]  # fmt: skip
    with pytest.raises(interlock.Failed, match="'nobody' is no address"):
        example.send.submit(to="nobody", text="").wait()


def test_the_durable_order_is_charged_once(interlock_app: On, capsys: pytest.CaptureFixture[str]) -> None:
    example = loaded("durable_order")
    stage = interlock_app(example.app)
    job = example.fulfil.submit(order=1)
    stage.lose_worker(after_step="charge")
    assert job.wait() == {"receipt": "receipt-1", "parcel": "parcel-1"}
    assert example.charges == [1]
    example.main()
    assert capsys.readouterr().out == "{'receipt': 'receipt-7', 'parcel': 'parcel-7'}\n"


def test_the_import_goes_on_where_it_stopped(interlock_app: On, monkeypatch: pytest.MonkeyPatch) -> None:
    example = loaded("stoppable_import")
    stage = interlock_app(example.app)

    def store(page: int) -> None:
        example.stored.append(page)
        if example.stored == [0, 1, 2, 3]:
            stage.lose_worker()

    monkeypatch.setattr(example, "store", store)
    assert example.load.submit().wait() == "pages 3 to 9"
    assert example.stored == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]

    def stop(page: int) -> None:
        job.cancel()

    monkeypatch.setattr(example, "store", stop)
    job = example.load.submit()
    stage.drain()
    assert (job.state, job.log()) == ("cancelled", "stopped before page 1\n")


def test_the_report_comes_on_workdays(interlock_app: On, capsys: pytest.CaptureFixture[str]) -> None:
    example = loaded("daily_report")
    friday = datetime(2030, 3, 29, 6, tzinfo=UTC)  # on Sunday clocks go forward there
    stage = interlock_app(example.app, start=friday)
    times = []
    for _ in range(8 * 24):
        stage.advance("30m")
        times += [f"{stage.now:%a %H:%M}"] * stage.drain()
    assert times == ["Fri 07:30", "Mon 06:30"]
    example.main()
    assert capsys.readouterr().out == (
        "sent to team@example.org\nday,orders\nmonday,7\nwriting the report for team@example.org\n"
    )
    assert example.sent == ["team@example.org"] * 3


def test_the_release_train(interlock_app: On, capsys: pytest.CaptureFixture[str]) -> None:
    example = loaded("release_train")
    stage = interlock_app(example.app)
    example.main()
    assert capsys.readouterr().out == "waiting on ['ship'] at a cost of 0.75\ndeployed by ['bob', 'cy']\n"
    assert example.live == ["web:1.2", "api:1.2"]
    run = example.release.submit(version="1.3-broken", by="ann")
    stage.drain()
    with pytest.raises(interlock.InterlockError, match="'ann' submitted this"):
        run.approve(by="ann")
    for voter in ("bob", "cy"):
        run.approve(by=voter)
    with pytest.raises(interlock.Failed):
        run.wait()
    stage.drain()
    assert example.live == ["web:1.2", "api:1.2"]


def test_the_transactional_submit(interlock_app: On, tmp_path: Path) -> None:
    example = EXAMPLES / "transactional_submit.py"
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("order 2: the card was refused\norders: 1\n", "")
    with interlock.open(f"sqlite:///{tmp_path}/shop.db") as app:
        confirm = app.task(name="confirm")(lambda order: f"confirmed {order}")
        stage = interlock_app(app, app.url)
        assert stage.drain() == 1
        assert confirm.submit(2).wait() == "confirmed 2"


def test_the_branch_cleaner_asks_before_it_deletes(interlock_app: On) -> None:
    example = loaded("branch_cleaner")
    stage = interlock_app(example.app)
    job = example.clean.submit(names=["main", "old", "older"])
    stage.drain()
    (item,) = example.app.inbox(role="ops")
    assert (item.task, item.input, example.deleted) == ("delete these?", ["old", "older"], [])
    item.approve(by="ann", role="ops", arguments=["older"])
    assert job.wait() == ["older"]
    assert (example.deleted, list(example.branches)) == (["older"], ["main", "old"])


def test_three_coding_agents_work_on_one_repository(tmp_path: Path) -> None:
    assert shutil.which("git"), "git is not installed, so this example cannot be played; install git 2.38 or newer"
    assert loaded("coding_agents").site.name == "improve prices"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK")}
    words = [sys.executable, str(EXAMPLES / "coding_agents.py")]
    done = subprocess.run(words, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (
        0,
        "Merge workstream_1 onto main\nfirst\ndef total(prices):\n    return sum(prices)\n",
    ), done.stderr
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == [
        ".git", "README.md", "agents", "prices.py", "prices.pyi", "test_prices.py",
    ]  # fmt: skip


def test_the_bug_fixer_pays_once_and_asks_before_it_merges(tmp_path: Path) -> None:
    """Killed while it waits for the answer, and started again: it goes on, and pays for nothing twice."""
    words = [sys.executable, "-u", str(EXAMPLES / "bug_fixer.py")]
    with subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout
        shown = ""
        while "merge? [y/n]" not in shown:
            shown += first.stdout.read(1)
        first.kill()
    assert "+    return sum(prices)" in shown
    shutil.copytree(tmp_path / "shop", tmp_path / "seen")
    assert "return 0" in (tmp_path / "seen" / "prices.py").read_text(encoding="utf-8")  # not merged unasked
    last = subprocess.run(words, cwd=tmp_path, input="y\n", capture_output=True, text=True, timeout=120, check=True)
    assert "complete 0.04 USD" in last.stdout
    assert "return sum(prices)" in (tmp_path / "shop" / "prices.py").read_text(encoding="utf-8")
    calls = (tmp_path / "calls.txt").read_text(encoding="utf-8").splitlines()
    assert calls == ["make the test pass, try 1", "make the test pass, try 2"]
