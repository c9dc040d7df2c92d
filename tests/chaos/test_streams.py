"""A worker that is killed with SIGKILL while its handler emits: no chunk that was kept is lost, and what is void is marked."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import interlock
from interlock.client.evidence import StreamChunk
from tests.chaos import streamer

KILLS = 3


def numbers(part: str) -> str:
    return "".join(f"{part}{number} " for number in range(streamer.NUMBERS))


def test_a_follower_gets_every_kept_chunk_and_a_mark_behind_each_killed_attempt(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    with interlock.open(url, hurry=streamer.HURRY) as app:
        run = app.agent(attempts=20)(streamer.stream.task.handler).submit()
        followed: list[StreamChunk] = []
        follower = threading.Thread(target=lambda: followed.extend(run.log.stream()), daemon=True)
        follower.start()
        for attempt in range(1, KILLS + 2):
            command = [sys.executable, "-m", "tests.chaos.streamer", url]
            with subprocess.Popen(command, env=os.environ) as worker:
                end = time.monotonic() + 60
                while not any(chunk.attempt == attempt for chunk in followed):
                    assert time.monotonic() < end
                    time.sleep(0.05)
                if attempt <= KILLS:
                    time.sleep(0.5 * attempt)
                    worker.send_signal(signal.SIGKILL)
                else:
                    run.wait(timeout="60s")
                    worker.terminate()
        follower.join(60)
        assert not follower.is_alive()
        kept = {attempt: run.log(attempt=attempt) for attempt in range(1, KILLS + 2)}
    valid = ""
    for attempt, text in kept.items():
        chunks = [chunk for chunk in followed if chunk.attempt == attempt]
        assert "".join(chunk.text for chunk in chunks) == text
        marks = [chunk.void for chunk in chunks if chunk.void]
        assert chunks[-1].void == (marks[0] if marks else ())  # nothing comes behind a mark
        void = [place for start, end in (marks[0] if marks else ()) for place in range(start, end)]
        valid += "".join(letter for place, letter in enumerate(text) if place not in void)
    # A worker may be killed after a step is recorded, and before it has sent its last words.
    begin, _, rest = valid.partition("b0 ")
    assert begin
    assert numbers("a").startswith(begin)
    assert f"b0 {rest}" == numbers("b")
