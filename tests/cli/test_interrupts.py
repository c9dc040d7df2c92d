"""What a command says that is interrupted while it starts."""

import sys

import pytest

from interlock.cli import main as command
from interlock.cli.output import INTERRUPTED
from interlock.store.connection import LostCommit


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), INTERRUPTED, ""),
        (LostCommit("database or disk is full"), 2,
         "interlock: the database cannot be written: database or disk is full\n"),
    ],
)  # fmt: skip
def test_no_traceback_is_shown(
    error: BaseException, code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(only: str) -> None:
        raise error

    monkeypatch.setattr(sys.modules["interlock.cli.main"], "make_app", fail)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        command()
    assert (ended.value.code, capsys.readouterr().err) == (code, words)
