"""The real command in a process of its own, listening on a port that it chose."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.kernel.commands import CreateKey
from tests.conftest import COMMAND


@contextmanager
def serving(url: str, *more: str) -> Iterator[tuple[str, str, "subprocess.Popen[str]"]]:
    """A server on a database: its address, a key for everything, and its process, which is gone afterwards."""
    with App(url) as app:
        key = issue_key(app, CreateKey(name="ci", scopes=("admin",))).text
    command = [str(COMMAND), "serve", "--db", url, "--port", "0", "--log-format", "json", *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield f"{'https' if '--tls-cert' in more else 'http'}://127.0.0.1:{port_of(process)}", key, process
        finally:
            process.kill()


def port_of(process: "subprocess.Popen[str]") -> int:
    """The port that a server chose, from its log."""
    assert process.stderr
    end = time.monotonic() + 60
    while time.monotonic() < end:
        line = process.stderr.readline()
        if (found := re.search(r"https?://127\.0\.0\.1:(\d+)", line)) and int(found[1]):
            return int(found[1])
        assert line or process.poll() is None, "it ended"
    raise AssertionError("it never said where it listens")
