"""Submits per second over HTTP: `interlock serve`, beside the same server with one commit per request.

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
WAYS = {"commits shared": (), "one commit per request": ("--alone",)}
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
    while not (match := re.search(r"running on http://127\.0\.0\.1:(\d+)", Path(log).read_text())):
        assert process.poll() is None, Path(log).read_text()
        assert time.monotonic() < end, Path(log).read_text()
        time.sleep(0.05)
    return int(match[1])


def rate(port: int, request: bytes, connections: int) -> float:
    """Submits per second of so many callers, each of which sends its next request when it has its answer."""
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    waiting = selectors.DefaultSelector()
    for connection in sockets:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        waiting.register(connection, selectors.EVENT_READ, bytearray())
    began = time.perf_counter()
    for connection in sockets:
        connection.sendall(request)
    done, unanswered = 0, connections
    while unanswered:
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
                unanswered -= 1
    seconds = time.perf_counter() - began
    for connection in sockets:
        connection.close()
    waiting.close()
    return done / seconds


def whole(answer: bytearray) -> bool:
    """Whether an answer is there with all of its body."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    size = re.search(rb"content-length: (\d+)", head.lower()) if separator else None
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
    print_rates(rates, cores)


def postmaster(server: str) -> int:
    """The process of the database from which all its others come."""
    with closing(psycopg.connect(server)) as connection:
        row = connection.execute("SELECT pg_backend_pid()").fetchone()
        assert row
        return parent_of(row[0])  # while it is there


def print_rates(rates: dict[tuple[str, int], list[float]], cores: float) -> None:
    for (way, connections), measured in rates.items():
        middle = statistics.median(measured)
        spread = f"{min(measured):,.0f}–{max(measured):,.0f}"
        print(f"{connections} connections, {way:<21} {middle:>6,.0f} submits/s ({spread})")
    shared, alone = WAYS
    for connections in CONNECTIONS:
        ratios = [
            alike / single for alike, single in zip(rates[shared, connections], rates[alone, connections], strict=True)
        ]
        middle = statistics.median(ratios)
        print(
            f"{connections} connections: {middle:.2f}× ({min(ratios):.2f}–{max(ratios):.2f}); "
            f"must {MUST}×, goal {GOAL}×{'' if middle >= MUST else ': BELOW'}"
        )
    print(f"{ROUNDS} rounds of {SECONDS:g} s; cores busy with other things: {cores:.1f}")


if __name__ == "__main__":
    main()
