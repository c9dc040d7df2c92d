"""`interlock ci` on a terminal: the live table, gates that ask, logs that are followed, and Ctrl-C."""

import signal
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.kernel.commands import Decide
from interlock.plugins.ci.queries import list_ci_jobs, list_ci_runs
from tests.ci.repositories import ci, make_repository, open_runs, wait_until
from tests.ci.terminal import Terminal

SLOW = """
jobs:
  slow:
    steps:
      - |
        echo [bold]first[/bold]; printf 'a\\033[31mb\\n'; echo $$ > $HOME/began
        while [ ! -e $HOME/go ]; do sleep 0.05; done
        echo last
  quick: {steps: ["exit 3"], allow_failure: true}
"""
GATE = """
jobs:
  ship: {gate: {approvers: [ops]}, steps: [echo shipped]}
  other: {steps: ["while [ ! -e $HOME/go ]; do sleep 0.05; done"]}
"""
Start = Callable[..., Terminal]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    started: list[Terminal] = []

    def begin(place: Path, *words: str) -> Terminal:
        started.append(Terminal(*words, folder=place))
        return started[-1]

    yield begin
    for terminal in started:
        terminal.close()


def test_the_table_is_live_and_shows_the_last_lines_as_text(tmp_path: Path, home: Path, start: Start) -> None:
    terminal = start(make_repository(tmp_path / "shop", SLOW), "run")
    terminal.wait_for("quick")
    terminal.wait_for("RUNNING")
    terminal.wait_for("[bold]first[/bold]")  # nothing of a log is taken for markup
    terminal.wait_for("a\N{REPLACEMENT CHARACTER}[31mb")  # nor for a command to the terminal
    (home / "go").touch()
    terminal.wait_for("ci_run_1 succeeded")
    assert terminal.end() == 0
    assert "exit code 3" in terminal.text
    assert "\x1b[?25h" in terminal.text  # the cursor is shown again


@pytest.mark.parametrize(("key", "code", "state"), [("y", 0, "SUCCEEDED"), ("n", 130, "CANCELED")])
def test_a_gate_asks_on_the_terminal_while_other_jobs_go_on(
    key: str, code: int, state: str, tmp_path: Path, home: Path, start: Start
) -> None:
    place = make_repository(tmp_path / "shop", GATE)
    terminal = start(place, "run")
    terminal.wait_for("'ship' waits for approval; may it begin? [y/n]")
    terminal.press("x?")  # means nothing
    terminal.wait_for("other")
    terminal.press(f"{key}\n")
    if key == "y":
        terminal.wait_for("ship")
        terminal.wait_for("SUCCEEDED")  # before the other one has ended
    (home / "go").touch()
    assert terminal.end() == code
    jobs = {job.name: job.state for job in look(place)}
    assert jobs["ship"] == state


def look(place: Path) -> list[object]:
    with open_runs(place) as app:
        (run,) = app.read(list_ci_runs)
        return list(app.read(list_ci_jobs, run.unit))


def test_a_gate_that_is_not_answered_here_waits_in_the_inbox(tmp_path: Path, home: Path, start: Start) -> None:
    place = make_repository(tmp_path / "shop", GATE)
    terminal = start(place, "run", "ship")
    terminal.wait_for("may it begin? [y/n]")
    terminal.press("\x04")
    terminal.wait_for(f"interlock inbox --db sqlite:///{place}/.git/interlock/ci.db")
    decide(place, "approve")
    assert terminal.end() == 0
    assert "shipped" in ci(place)("log", "ship").out


def decide(place: Path, trigger: str) -> None:
    with open_runs(place) as app:
        run, *_ = app.read(list_ci_runs)
        (gate,) = [job for job in app.read(list_ci_jobs, run.unit) if job.category == "gate"]
        app.send(Decide(unit=gate.unit, trigger=trigger, actor="bob"))


def test_a_gate_that_somebody_else_decides_asks_no_more(tmp_path: Path, home: Path, start: Start) -> None:
    place = make_repository(tmp_path / "shop", GATE)
    terminal = start(place, "run", "ship")
    terminal.wait_for("may it begin? [y/n]")
    decide(place, "approve")
    assert terminal.end() == 0


def test_ctrl_c_at_a_gate_needs_no_answer_and_the_terminal_is_as_it_was(
    tmp_path: Path, home: Path, start: Start
) -> None:
    place = make_repository(tmp_path / "shop", GATE)
    terminal = start(place, "run", "ship")
    before = termios.tcgetattr(terminal.terminal)
    terminal.wait_for("may it begin? [y/n]")
    wait_until(lambda: not termios.tcgetattr(terminal.terminal)[3] & termios.ECHO)
    terminal.press("\x03")
    terminal.wait_for("stopping; press Ctrl-C again to stop immediately")
    terminal.wait_for("was cancelled")
    assert termios.tcgetattr(terminal.terminal)[3] == before[3]
    assert terminal.end() == 130


@pytest.fixture(params=["in the foreground", "in the background"])
def _tests_run(request: pytest.FixtureRequest) -> Iterator[None]:
    """A shell without job control has what it puts into the background ignore Ctrl-C; a terminal undoes that."""
    ignored = request.param == "in the background"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_tests_run")
def test_a_log_is_followed_until_its_job_ends_and_ctrl_c_leaves_the_job_alone(
    tmp_path: Path, home: Path, start: Start
) -> None:
    place = make_repository(tmp_path / "shop", SLOW)
    run = start(place, "run", "slow")
    wait_until((home / "began").exists)
    first, second = start(place, "log", "slow", "-f"), start(place, "log", "slow", "-f")
    for each in (first, second):
        each.wait_for("[bold]first[/bold]")
    second.press("\x03")
    assert second.end() == 0
    (home / "go").touch()
    first.wait_for("last")
    assert (first.end(), run.end()) == (0, 0)
