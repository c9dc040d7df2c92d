"""Events as they happen: in order, without gaps, and on from where the last connection ended."""

import json
import threading
from typing import Any

from interlock.kernel.commands import RevokeKey
from tests.server.stage import Stage
from tests.server.test_keys import number

ACCEPT = {"Accept": "text/event-stream"}


def listen(stage: Stage, path: str, *, key: str | None = None, **headers: str) -> tuple[int, list[dict[str, Any]]]:
    """What a stream told until it ended."""
    sent = {"Authorization": f"Bearer {key or stage.own}", **ACCEPT, **headers}
    with stage.client.stream("GET", path, headers=sent) as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    return answer.status_code, [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_stream_tells_what_happens_until_the_end(stage: Stage) -> None:
    job = stage.job()
    heard: list[Any] = []
    reader = threading.Thread(target=lambda: heard.append(listen(stage, f"/v1/jobs/{job}/events")))
    reader.start()
    stage.finish(stage.claim())
    reader.join(60)
    assert heard
    status, told = heard[0]
    assert (status, told) == (200, stage.get(f"/v1/jobs/{job}/events")["events"])


def test_a_stream_goes_on_where_the_last_one_ended(stage: Stage) -> None:
    run = stage.run()
    stage.post(f"/v1/runs/{run}/cancel")
    every = stage.get(f"/v1/runs/{run}/events")["events"]
    path = f"/runs/{run}/events"
    assert listen(stage, path) == (200, every)
    for place, one in enumerate(every[:-1], 1):
        assert listen(stage, path, **{"Last-Event-ID": str(one["version"])}) == (200, every[place:])
    assert listen(stage, path, **{"Last-Event-ID": str(every[-1]["version"])}) == (204, [])
    assert listen(stage, path, **{"Last-Event-ID": "x"})[0] == 400
    assert listen(stage, path, key=stage.foreign)[0] == 404


def test_a_stream_ends_with_its_key(stage: Stage) -> None:
    job, key = stage.job(), stage.key("read")
    heard: list[Any] = []
    reader = threading.Thread(target=lambda: heard.append(listen(stage, f"/v1/jobs/{job}/events", key=key)))
    reader.start()
    stage.app.send(RevokeKey(key=number(key)))
    reader.join(60)
    assert heard
    assert heard[0][0] in (200, 401)
