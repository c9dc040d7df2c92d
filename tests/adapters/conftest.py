"""An app whose worker is killed with SIGKILL right after every step that it records, until its run has ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.client.app import App
from interlock.kernel.commands import Record

LIVES_MAX = 30
PATIENCE = 60  # seconds


def note_call(call: str) -> None:
    """Writes down that something was called, or recorded, where a killed process leaves it."""
    with Path(os.environ["ADAPTER_CALLS"]).open("a") as calls:
        print(call, file=calls)


def find_repeated(lines: list[str]) -> list[str]:
    """The calls that were made although they were recorded. What was in flight at a kill may be made again."""
    return [call for place, call in enumerate(lines) if f"recorded {call}" in lines[:place]]


def die_after_steps(app: App) -> None:
    """From here on this process is killed once a step that it has sent is recorded."""
    asend = app.asend

    async def send(command: Any) -> Any:
        answer = await asend(command)
        if isinstance(command, Record) and command.kind == "step":
            note_call(f"recorded {command.name}")
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    app.asend = send  # type: ignore[method-assign]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[str], tuple[Any, int]]:
    """Runs the agent of a module to its end, with workers that are killed; returns the run, and how many were."""

    def run_to_its_end(module: str) -> tuple[Any, int]:
        url = f"sqlite:///{tmp_path}/work.db"
        environment = {**os.environ, "ADAPTER_URL": url, "ADAPTER_CALLS": str(tmp_path / "calls.txt")}
        app = interlock.open(url, hurry=40)
        submit = f"import {module} as m; print(m.fix.submit('go').id)"
        made = subprocess.run(
            [sys.executable, "-c", submit], env=environment, check=True, capture_output=True, text=True
        )
        run, killed = app.run(made.stdout.strip()), 0
        for _ in range(LIVES_MAX):
            worker = subprocess.Popen([sys.executable, "-m", module], env=environment)
            until = time.monotonic() + PATIENCE
            while worker.poll() is None and run.outcome is None:
                assert time.monotonic() < until, "neither was a worker killed, nor did the run end"
                for item in app.inbox():
                    item.approve(by="ann", role="ops", arguments={"branch": "older"})
                time.sleep(0.02)
            if run.outcome is not None:
                worker.terminate()
                worker.wait(PATIENCE)
                break
            assert worker.returncode == -signal.SIGKILL
            killed += 1
        return run, killed

    return run_to_its_end
