"""The writer of state files, killed with SIGKILL while it follows, and its log torn: no line is lost, none comes twice."""

import os
import random
import subprocess
import time
from pathlib import Path

from interlock.plugins.state_files.folder import LOG
from tests.conftest import COMMAND
from tests.engine.test_state_files import count_transitions, find_problems, live, read_lines
from tests.engine.world import World
from tests.store.databases import fresh

KILLS = 6
PATIENCE = 60.0  # seconds until a writer is given up that writes nothing


def follow(url: str, folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([COMMAND, "export", "--state", folder, "--follow", "--db", url], stdout=subprocess.DEVNULL)


def wait_for_growth(log: Path, size: int) -> None:
    until = time.monotonic() + PATIENCE
    while not (log.exists() and log.stat().st_size != size):
        assert time.monotonic() < until, "nothing is written"
        time.sleep(0.002)


def test_a_writer_that_is_killed_while_it_follows(tmp_path: Path) -> None:
    chance, folder = random.Random(1), tmp_path / ".state"
    url, log = f"sqlite:///{tmp_path}/test.db", folder / LOG
    with fresh("sqlite file", tmp_path, "") as connection:
        world = World(connection)
        for kill in range(KILLS):
            live(world, 1_000 + kill, commands=120)
            size = log.stat().st_size if log.exists() else 0
            writer = follow(url, folder)
            try:
                wait_for_growth(log, size)
                live(world, 2_000 + kill, commands=30)  # it is in the middle of something
            finally:
                writer.kill()
                writer.wait()
            os.truncate(log, log.stat().st_size - chance.randrange(1, 400))
        done = subprocess.run(
            [COMMAND, "export", "--state", folder, "--db", url], check=True, capture_output=True, text=True
        )
        lines = read_lines(folder)
        assert done.stdout.endswith(f"{len(lines)} in all\n")
        assert len(lines) == count_transitions(world) > 100
        assert [line["metadata"]["seq"] for line in lines] == list(range(1, len(lines) + 1))
        assert find_problems(folder) == []
