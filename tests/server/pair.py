"""Servers in processes of their own on one database; each request goes to the next one in turn."""

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx

from interlock.client.app import App
from tests.conftest import COMMAND
from tests.server.stage import Stage

TWO = "two servers"
PATIENCE = 60.0


class Turns:
    """The client of several servers."""

    def __init__(self, clients: list[httpx.Client]) -> None:
        self.clients, self.turn = clients, cycle(clients)

    def request(self, method: str, path: str, **facts: Any) -> httpx.Response:
        return next(self.turn).request(method, path, **facts)

    def post(self, path: str, **facts: Any) -> httpx.Response:
        return self.request("POST", path, **facts)

    def stream(self, method: str, path: str, **facts: Any) -> AbstractContextManager[httpx.Response]:
        return next(self.turn).stream(method, path, **facts)


@contextmanager
def paired(url: str, folder: Path, number: int = 2) -> Iterator[Stage]:
    """A stage before so many servers, which are gone afterwards."""
    command = [str(COMMAND), "serve", "--db", url, "--port", "0", "--max-wrong-keys", "1000000"]
    with ExitStack() as stack:
        app = stack.enter_context(App(url))
        logs = [folder / f"{one}.log" for one in range(number)]
        processes = []
        for log in logs:
            with log.open("w") as out:
                process = stack.enter_context(subprocess.Popen(command, stdout=out, stderr=out))
            stack.callback(process.kill)
            processes.append(process)
        bases = [said_where(log, process) for log, process in zip(logs, processes, strict=True)]
        clients = [stack.enter_context(httpx.Client(base_url=base, timeout=PATIENCE)) for base in bases]
        yield Stage(app, Turns(clients))


def said_where(log: Path, process: "subprocess.Popen[bytes]") -> str:
    """Where a server listens, as it says."""
    end = time.monotonic() + PATIENCE
    while not (found := re.search(r"http://127\.0\.0\.1:[1-9]\d*", log.read_text())):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.02)
    return found[0]
