"""The demos: they exit with 0, tell what they promise, and leave nothing behind."""

import re
from pathlib import Path

import pytest

from tests.conftest import Run


def test_split_brain_is_told_step_by_step(started: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = started("demo", "split-brain", timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^(\d)\. ", done.stdout, re.M) == list("1234567")
    assert "20 times shorter than in production" in done.stdout
    assert "Its late result is rejected: LEASE_SUPERSEDED. The result is still 'hello, world'." in done.stdout
    assert "no problems found" in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_the_demo_explains_what_was_seen(started: Run) -> None:
    done = started("demo", "--jobs", "60", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("succeeded", "was retried, after", "was lost", "dead letters", "were rejected", "asked to stop"):
        (number,) = re.findall(rf"^ +(\d+)  .*{word}", done.stdout, re.M)
        assert int(number) > 0, word
    assert "no problems found" in done.stdout
