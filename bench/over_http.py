"""Submits a second over HTTP: `interlock serve`, beside the same server with one commit a request.

Both servers stand on one PostgreSQL, each on a database of its own. The rounds are interleaved; the client writes
ready-made requests to sockets that are kept alive and reads as little as it can, so that it is not what is measured.
"""

import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg

from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.kernel.commands import CreateKey

sys.path.insert(0, str(Path(__file__).parent.parent))
from bench import machine
from bench.stage import parent_of
from tests.postgres.server import postgres
from tests.store.databases import fresh_postgres

QUICK = bool(os.environ.get("QUICK"))
ROUNDS = int(os.environ.get("ROUNDS") or (2 if QUICK else 7))
SECONDS = 2.0 if QUICK else 5.0  # of one measurement
CONNECTIONS = (32, 64)
WAYS = {"commits shared": (), "one commit a request": ("--alone",)}
MUST, GOAL = 1.3, 1.8
SERVER = "-c fsync=on -c synchronous_commit=on -c shared_buffers=1GB -c max_wal_size=4GB"
BODY = b'{"task": "mail", "input": {"to": "ada@example.org"}}'
PATIENCE = 60.0


@contextmanager
def serving(url: str, *more: str) -> Iterator[tuple[int, bytes]]:
    """A server in a process of its own: its port, and a request that submits a job."""
    with App(url) as app:
        key = issue_key(app, CreateKey(name="bench", scopes=("submit",))).text
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
    )
    command = [sys.executable, str(Path(__file__).with_name("http_serve.py")), "--db", url, "--port", "0", *more]
    with (
        tempfile.NamedTemporaryFile("r") as log,
        open(log.name, "w") as out,
        subprocess.Popen(command, stdout=out, stderr=out) as process,
    ):
        try:
            yield port_in(log.name, process), head.encode() + BODY
        finally:
            process.kill()


def port_in(log: str, process: "subprocess.Popen[bytes]") -> int:
    end = time.monotonic() + PATIENCE
    while not (found := re.search(r"running on http://127\.0\.0\.1:(\d+)", Path(log).read_text())):
        assert process.poll() is None, Path(log).read_text()
        assert time.monotonic() < end, Path(log).read_text()
        time.sleep(0.05)
    return int(found[1])


def rate(port: int, request: bytes, connections: int) -> float:
    """Submits a second of so many callers, each of which sends its next request when it has its answer."""
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    waiting = selectors.DefaultSelector()
    for one in sockets:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(one, selectors.EVENT_READ, bytearray())
    began = time.perf_counter()
    for one in sockets:
        one.sendall(request)
    done, asked = 0, connections
    while asked:
        for key, _ in waiting.select():
            key.data.extend(key.fileobj.recv(65_536))
            if not whole(key.data):
                continue
            assert key.data.startswith(b"HTTP/1.1 201"), bytes(key.data)
            key.data.clear()
            done += 1
            if time.perf_counter() - began < SECONDS:
                key.fileobj.sendall(request)
            else:
                asked -= 1
    seconds = time.perf_counter() - began
    for one in sockets:
        one.close()
    waiting.close()
    return done / seconds


def whole(answer: bytearray) -> bool:
    """Whether an answer is there with all of its body."""
    head, found, body = answer.partition(b"\r\n\r\n")
    size = re.search(rb"content-length: (\d+)", head.lower()) if found else None
    return size is not None and len(body) >= int(size[1])


def main() -> None:
    rates: dict[tuple[str, int], list[float]] = {(way, number): [] for way in WAYS for number in CONNECTIONS}
    with ExitStack() as stack:
        server = stack.enter_context(postgres(SERVER))
        places = {}
        for number, (way, more) in enumerate(WAYS.items()):
            url = stack.enter_context(fresh_postgres(server, f"bench{number}"))
            places[way] = stack.enter_context(serving(url, *more))
        for port, request in places.values():
            rate(port, request, CONNECTIONS[0])  # warmed up
        others = machine.Others([os.getpid(), postmaster(server)])
        for turn in range(ROUNDS):
            for connections in CONNECTIONS:
                for way in [*WAYS][:: 1 if turn % 2 else -1]:
                    rates[way, connections].append(rate(*places[way], connections))
        cores = others.cores()
    told(rates, cores)


def postmaster(server: str) -> int:
    """The process of the database from which all its others come."""
    with closing(psycopg.connect(server)) as connection:
        found = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert found
        return parent_of(found[0])  # while it is there


def told(rates: dict[tuple[str, int], list[float]], cores: float) -> None:
    for (way, connections), found in rates.items():
        middle = statistics.median(found)
        print(f"{connections} connections, {way:<21} {middle:>6,.0f} submits/s ({min(found):,.0f}–{max(found):,.0f})")
    shared, alone = WAYS
    for connections in CONNECTIONS:
        ratios = [one / other for one, other in zip(rates[shared, connections], rates[alone, connections], strict=True)]
        middle = statistics.median(ratios)
        print(
            f"{connections} connections: {middle:.2f}× ({min(ratios):.2f}–{max(ratios):.2f}); "
            f"must {MUST}×, goal {GOAL}×{'' if middle >= MUST else ': BELOW'}"
        )
    print(f"{ROUNDS} rounds of {SECONDS:g} s; cores busy with other things: {cores:.1f}")


if __name__ == "__main__":
    main()
