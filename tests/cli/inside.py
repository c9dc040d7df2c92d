"""The command inside the test's own process: as fast as many small questions need, and with what it printed."""

import json
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple

from typer.testing import CliRunner

from interlock.cli.main import app
from interlock.kernel.errors import InterlockError
from tests.conftest import ROOT, TERMINAL


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table that was piped, its head left out."""
        return [line.split("\t") for line in self.out.splitlines()[1:]]


Ask = Callable[..., Done]


def inside(url: str, **env: str) -> Ask:
    """A way to run commands on one database."""

    def ask(*args: str | int, **more: str) -> Done:
        given = {"INTERLOCK_DB": url, "INTERLOCK_ACTOR": "ann", "COLUMNS": "200", **env, **more}
        done = CliRunner().invoke(app, [str(arg) for arg in args], env=given)
        if isinstance(done.exception, InterlockError):
            return Done(2, done.stdout, str(done.exception))
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    return ask


def called(*args: str | Path, cwd: Path = ROOT, **options: Any) -> CompletedProcess[str]:
    """What the real command would answer, without starting it."""
    given = [str(arg) for arg in args]
    with chdir(cwd):
        done = CliRunner().invoke(app, given, env={**TERMINAL, **options.pop("env", {})}, **options)
    if isinstance(done.exception, InterlockError):
        return CompletedProcess(given, 2, done.stdout, f"{done.stderr}interlock: {done.exception}\n")
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CompletedProcess(given, done.exit_code, done.stdout, done.stderr)
