"""What was opened before a fork is of no use in the child, which is told so; the parent's goes on."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.databases import KINDS, fresh_postgres

URLS = {"sqlite file": "sqlite:///{folder}/work.db", "sqlite memory": "sqlite://:memory:"}
PROGRAM = """
import os, sys, warnings
import interlock
from interlock.kernel.errors import InterlockError

warnings.simplefilter("ignore")
app = interlock.open(sys.argv[1])

@app.task
def mail() -> None: ...

mail.submit()
child = os.fork()
if child == 0:
    ask = {
        "submit": mail.submit, "many": lambda: mail.submit_many([{}]), "why": lambda: app.why(1),
        "watch": lambda: app.engine.watch(["default"]), "watch_worker": lambda: app.engine.watch_worker("w"),
    }
    for name, call in ask.items():
        try:
            call()
            print(name, "was done", flush=True)
        except InterlockError as error:
            print(name, error, flush=True)
    app.close()
    print("closed", flush=True)
    if "memory" not in sys.argv[1]:
        print("its own", mail.submit().state, flush=True)  # opened anew, after the fork
        app.close()
    os._exit(0)
_, status = os.waitpid(child, 0)
print("child", status)
print("parent", mail.submit().id is not None, mail.submit().state)
app.close()
"""


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_postgres(server, f"fork{os.getpid()}") as made:
            yield made
    else:
        yield URLS[request.param].format(folder=tmp_path)


def test_a_child_is_told_that_its_app_is_the_parents(url: str) -> None:
    command = [sys.executable, "-c", PROGRAM, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if not line.startswith("its own")]
    assert ("memory" in url) or "its own queued" in done.stdout
    *child, closed, ended, parent = said
    assert [line.split()[0] for line in child] == ["submit", "many", "why", "watch", "watch_worker"]
    for line in child:
        assert "was forked from process" in line
        assert "open an app or an engine in the child" in line
    assert (closed, ended, parent) == ("closed", "child 0", "parent True queued")
