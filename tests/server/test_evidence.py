"""Artifacts, logs and blobs over HTTP: ranges, uploads, streams, and what is refused."""

import asyncio
import json
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from interlock.kernel.blobs import LARGE
from interlock.kernel.commands import AppendLog, Emit, Finish, LeaseGrant, LeaseRef, LogEntry, Outcome, Revoke, Start
from interlock.kernel.ids import format_id
from interlock.plugins.evidence.log_feed import LogFeed, LogPosition, NewParts
from interlock.plugins.evidence.queries import LogPart
from interlock.plugins.evidence.routes import FEEDS
from tests.server.stage import Stage
from tests.server.test_stream import listen

OCTETS = {"Content-Type": "application/octet-stream"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PostgreSQL keeps blobs; a SQLite file has them beside it."""
    monkeypatch.setenv("INTERLOCK_BLOBS", str(tmp_path / "blobs"))


def upload(stage: Stage, data: bytes, *, key: str | None = None, digest: str = "", path: str = "/v1/blobs") -> Any:
    name = digest or sha256(data).hexdigest()
    headers = {**OCTETS, "Authorization": f"Bearer {key or stage.own}"}
    return stage.client.post(f"{path}/{name}", content=data, headers=headers)


def hold(stage: Stage) -> tuple[str, LeaseGrant, dict[str, Any]]:
    """A job that somebody holds, and how the holder names its lease."""
    stage.job()
    grant = stage.claim()
    stage.app.send(Start(held=(LeaseRef(grant.unit, grant.fence, grant.lease),)))
    return format_id("job", grant.unit), grant, {"fence": grant.fence, "lease": grant.lease}


def fetch(stage: Stage, path: str, span: str = "", **facts: Any) -> Any:
    return stage.ask("GET", path, headers={"Range": span} if span else {}, **facts)


# Blobs.


def test_bytes_are_sent_and_read_by_their_digest(inside: Stage) -> None:
    stage, data = inside, bytes(range(256)) * 8_000  # more than a JSON body may have
    answer = upload(stage, data)
    assert answer.status_code == 200, answer.text
    digest = sha256(data).hexdigest()
    assert answer.json() == {"digest": digest, "length": len(data)}
    assert upload(stage, data).status_code == 200
    whole = fetch(stage, f"/v1/blobs/{digest}")
    assert (whole.status_code, whole.content) == (200, data)
    assert (whole.headers["content-length"], whole.headers["accept-ranges"]) == (str(len(data)), "bytes")
    for span, part in {"bytes=0-9": data[:10], "bytes=100-": data[100:], "bytes=-7": data[-7:]}.items():
        answer = fetch(stage, f"/v1/blobs/{digest}", span)
        assert (answer.status_code, answer.content) == (206, part), span
    assert answer.headers["content-range"] == f"bytes {len(data) - 7}-{len(data) - 1}/{len(data)}"
    assert upload(stage, data, key=stage.key("worker"), path="/v1/worker/blobs").status_code == 200
    assert fetch(stage, f"/v1/worker/blobs/{digest}", key=stage.key("worker")).content == data


def test_what_is_wrong_with_a_blob_or_a_range_is_said(inside: Stage) -> None:
    stage = inside
    digest = upload(stage, b"hello").json()["digest"]
    wrong = upload(stage, b"hello", digest="ab" * 32)
    assert (wrong.status_code, "they were changed on their way" in wrong.text) == (400, True)
    assert upload(stage, b"hello", digest="nonsense").status_code == 400
    assert fetch(stage, f"/v1/blobs/{'ab' * 32}").status_code == 404
    assert fetch(stage, f"/v1/blobs/{digest}", key=stage.foreign).status_code == 404
    for span in ("bytes=a-b", "lines=0-1", "bytes=1-2,4-5", "bytes=5-1", "bytes=-", "0-1", f"bytes={'9' * 40}-"):
        answer = fetch(stage, f"/v1/blobs/{digest}", span)
        assert (answer.status_code, "allowed is one range" in answer.text) == (400, True), span
    past = fetch(stage, f"/v1/blobs/{digest}", "bytes=5-")
    assert (past.status_code, past.headers["content-range"]) == (416, "bytes */5")
    assert upload(stage, b"hello", key=stage.key("read")).status_code == 403


def test_a_server_without_a_folder_says_so(inside: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = inside
    if not stage.app.url.startswith("postgres"):
        return
    monkeypatch.delenv("INTERLOCK_BLOBS")
    answer = upload(stage, b"hello")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "NO_BLOBS")
    assert "INTERLOCK_BLOBS" in answer.text


def test_large_values_go_beside_the_database_and_come_back(inside: Stage) -> None:
    stage, text = inside, "x" * (LARGE + 1)
    job = stage.post("/v1/jobs", {"task": "mail", "input": {"text": text}}, status=201)["id"]
    grant = stage.claim()
    assert '"$blob"' in grant.input
    held = LeaseRef(grant.unit, grant.fence, grant.lease)
    stage.app.send(Start(held=(held,)))
    stage.app.send(Finish(outcomes=(Outcome(held=held, result=json.dumps(text * 2)),)))
    shown = stage.get(f"/v1/jobs/{job}")
    assert (shown["input"], shown["result"]) == ({"text": text}, text * 2)


# Artifacts.


def test_a_runner_keeps_artifacts_and_readers_download_them(inside: Stage) -> None:
    stage = inside
    job, _, lease = hold(stage)
    data = b"some bytes of a report"
    digest = upload(stage, data, path="/v1/worker/blobs", key=stage.key("worker")).json()["digest"]
    body = {**lease, "name": "report.txt", "digest": digest, "media": "text/plain"}
    assert stage.post(f"/v1/jobs/{job}/artifacts", body) == {"attempt": 1, "late": False, "length": 0}
    (item,) = stage.get(f"/v1/jobs/{job}/artifacts")["artifacts"]
    assert (item["name"], item["attempt"], item["digest"], item["length"], item["late"]) == (
        "report.txt", 1, digest, 22, False,
    )  # fmt: skip
    answer = fetch(stage, f"/v1/jobs/{job}/artifacts/report.txt")
    assert (answer.status_code, answer.content) == (200, data)
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''report.txt"
    assert answer.headers["x-content-type-options"] == "nosniff"
    part = fetch(stage, f"/v1/jobs/{job}/artifacts/report.txt?attempt=1", "bytes=5-9")
    assert (part.status_code, part.content) == (206, b"bytes")
    for path in (f"{job}/artifacts/none", f"{job}/artifacts/report.txt?attempt=2", "job_zzzzzz/artifacts/report.txt"):
        assert fetch(stage, f"/v1/jobs/{path}").status_code == 404, path
    assert fetch(stage, f"/v1/jobs/{job}/artifacts/report.txt?attempt=0").status_code == 400
    stage.post(f"/v1/jobs/{job}/artifacts", {**body, "name": "a/b"}, status=400)
    stage.post(f"/v1/jobs/{job}/artifacts", {**body, "name": "b", "digest": "ab" * 32}, status=400)
    told = stage.post(f"/v1/jobs/{job}/artifacts", {**body, "lease": "made up"}, status=409)
    assert told["error"]["code"] == "STALE_LEASE"


# Logs.


def test_a_runner_adds_to_a_log_and_readers_read_ranges(inside: Stage) -> None:
    stage = inside
    job, grant, lease = hold(stage)
    assert (fetch(stage, f"/v1/jobs/{job}/log").text, stage.get(f"/v1/jobs/{job}/logs")) == ("", {"logs": []})
    assert stage.post(f"/v1/jobs/{job}/log", {**lease, "start": 0, "text": "hello "})["length"] == 6
    assert stage.post(f"/v1/jobs/{job}/log", {**lease, "start": 6, "data": "d29ybGQK"})["length"] == 12
    ahead = stage.post(f"/v1/jobs/{job}/log", {**lease, "start": 50, "text": "!"}, status=409)
    assert ahead["error"]["details"]["length"] == 12
    for body in ({"start": 12}, {"start": 12, "text": "a", "data": "YQ=="}, {"start": -1, "text": "a"}, {"text": "a"}):
        stage.post(f"/v1/jobs/{job}/log", {**lease, **body}, status=400)
    answer = fetch(stage, f"/v1/jobs/{job}/log")
    assert (answer.text, answer.headers["content-type"]) == ("hello world\n", "text/plain; charset=utf-8")
    part = fetch(stage, f"/v1/jobs/{job}/log", "bytes=6-10")
    assert (part.status_code, part.text, part.headers["content-range"]) == (206, "world", "bytes 6-10/12")
    assert fetch(stage, f"/v1/jobs/{job}/log", "bytes=12-").status_code == 416
    assert fetch(stage, f"/v1/jobs/{job}/log?attempt=2").status_code == 404
    (log,) = stage.get(f"/v1/jobs/{job}/logs")["logs"]
    assert (log["attempt"], log["length"], log["late"], log["is_over"]) == (1, 12, [], False)
    stage.app.send(Revoke(unit=grant.unit))
    assert stage.post(f"/v1/jobs/{job}/log", {**lease, "start": 12, "text": "late"}) == {
        "attempt": 1, "late": True, "length": 16,
    }  # fmt: skip
    assert stage.get(f"/v1/jobs/{job}/logs")["logs"][0]["late"] == [[12, 16]]


def test_a_log_is_followed_until_the_job_has_ended(inside: Stage) -> None:
    stage = inside
    job, grant, lease = hold(stage)
    stage.post(f"/v1/jobs/{job}/log", {**lease, "start": 0, "text": "é before\n"})
    heard: list[Any] = []
    thread = threading.Thread(target=lambda: heard.append(listen(stage, f"/v1/jobs/{job}/log")))
    thread.start()
    held = LeaseRef(grant.unit, grant.fence, grant.lease)
    for start, data in ((10, b"during \xc3"), (18, b"\xa9\n")):  # a letter in two parts
        stage.app.send(AppendLog(entries=(LogEntry(held, start, data),)))
    stage.app.send(Finish(outcomes=(Outcome(held=held),)))
    thread.join(60)
    assert heard
    status, told = heard[0]
    assert (status, told[-1]) == (200, {})
    assert "".join(event["text"] for event in told[:-1]) == "é before\nduring é\n"
    starts = [event["start"] for event in told[:-1]]
    assert starts == sorted(set(starts))
    assert listen(stage, f"/v1/jobs/{job}/log", **{"Last-Event-ID": "1.10"})[1][0]["text"] == "during é\n"
    assert listen(stage, f"/v1/jobs/{job}/log", **{"Last-Event-ID": "1.20"}) == (204, [])
    for wrong in ("x", "1", "1.x", "-1.0"):
        assert listen(stage, f"/v1/jobs/{job}/log", **{"Last-Event-ID": wrong})[0] == 400, wrong
    assert listen(stage, f"/v1/jobs/{job}/log", key=stage.foreign)[0] == 404


def read_events(stage: Stage, path: str, **headers: str) -> list[tuple[str, str, Any]]:
    """The events of a stream until it ends: id, name and data."""
    sent = {"Authorization": f"Bearer {stage.own}", "Accept": "text/event-stream", **headers}
    with stage.client.stream("GET", path, headers=sent) as answer:
        events = [
            dict(line.split(": ", 1) for line in part.splitlines())
            for part in answer.read().decode().split("\n\n")
            if part and not part.startswith(":")
        ]
    return [(event.get("id", ""), event["event"], json.loads(event["data"])) for event in events]


def test_what_a_lost_attempt_emitted_is_followed_by_a_mark_with_an_id(inside: Stage) -> None:
    stage = inside
    job, grant, lease = hold(stage)
    stage.post(f"/v1/jobs/{job}/log", {**lease, "start": 0, "text": "one ", "emitted": True})
    stage.post(f"/v1/jobs/{job}/log", {**lease, "start": 4, "text": "two", "emitted": True, "step": "plan"})
    stage.post(
        f"/v1/jobs/{job}/log", {**lease, "start": 7, "text": "x", "emitted": True, "step": "x" * 201}, status=400
    )
    heard: list[Any] = []
    thread = threading.Thread(target=lambda: heard.append(read_events(stage, f"/v1/jobs/{job}/log")))
    thread.start()
    stage.app.send(Revoke(unit=grant.unit))
    second = stage.claim()
    held = LeaseRef(second.unit, second.fence, second.lease)
    stage.app.send(Start(held=(held,)))
    stage.app.send(AppendLog(entries=(LogEntry(held, 0, b"again"),)))
    stage.app.send(Finish(outcomes=(Outcome(held=held),)))
    thread.join(60)
    (told,) = heard
    text, mark, rest = told[:-3], told[-3], told[-2:]
    assert "".join(event[2]["text"] for event in text) == "one two"
    assert mark == ("2.0", "void", {"attempt": 1, "void": [[0, 7]]})
    assert rest == [("2.5", "log", {"attempt": 2, "start": 0, "text": "again"}), ("", "end", {})]
    for reached in range(len(told) - 1):  # whoever goes on behind any event misses none and is told none twice
        assert read_events(stage, f"/v1/jobs/{job}/log", **{"Last-Event-ID": told[reached][0]}) == told[
            reached + 1 :
        ] or (reached == len(told) - 2)
    assert stage.get(f"/v1/jobs/{job}/logs")["logs"][0]["void"] == [[0, 7]]


def test_the_log_of_an_agent_run_is_that_of_its_jobs(inside: Stage) -> None:
    stage = inside
    run = stage.post("/v1/agent-runs", {"agent": "goal"}, status=201)["id"]
    for number in (1, 2):
        grant = stage.claim()
        held = LeaseRef(grant.unit, grant.fence, grant.lease)
        stage.app.send(Start(held=(held,)))
        emits = (Emit(0, 5),)
        stage.app.send(AppendLog(entries=(LogEntry(held, 0, b"job %d" % number, emits),)))
        stage.finish(grant, **({"ended": "failure", "error_class": "PermanentError"} if number == 1 else {}))
        if number == 1:
            stage.post(f"/v1/runs/{run}/resume", {"reason": "again"}, status=202)
    assert [(event[0], event[1]) for event in read_events(stage, f"/v1/runs/{run}/log")] == [
        ("1.5", "log"), ("2.0", "void"), ("2.5", "log"), ("", "end"),
    ]  # fmt: skip
    assert fetch(stage, f"/v1/runs/{run}/log").text == "job 2"
    assert fetch(stage, f"/v1/runs/{run}/log?attempt=1").text == "job 1"
    assert fetch(stage, f"/v1/runs/{run}/log?attempt=3").status_code == 404


def test_a_hundred_followers_cost_what_one_does() -> None:
    """A log is read once for all who follow it, however many they are."""
    reads: list[int] = []

    async def read(query: Any, tenant: int) -> dict[int, NewParts]:
        reads.append(tenant)
        start = len(reads) - 1
        return {7: NewParts([LogPart(1, start, b"x", start + 1, False)], ended=start == 3)}

    async def follow(feed: LogFeed) -> bytes:
        text = b""
        with feed.listen(1, 7, LogPosition(1, 0)) as follower:
            while not follower.ended:
                text += b"".join(part.data for part in await follower.wait(1.0))
        return text

    async def play() -> list[bytes]:
        feed = LogFeed(read)
        return await asyncio.gather(*(follow(feed) for _ in range(100)))

    texts = asyncio.run(play())
    assert set(texts) == {b"xxxx"}
    assert len(reads) == 4


def test_all_streams_of_a_server_share_a_reader(inside: Stage) -> None:
    stage = inside
    job, grant, _ = hold(stage)
    heard: list[Any] = []
    threads = [threading.Thread(target=lambda: heard.append(listen(stage, f"/v1/jobs/{job}/log"))) for _ in range(5)]
    for thread in threads:
        thread.start()
    held = LeaseRef(grant.unit, grant.fence, grant.lease)
    stage.app.send(AppendLog(entries=(LogEntry(held, 0, b"for all"),)))
    stage.app.send(Finish(outcomes=(Outcome(held=held),)))
    for thread in threads:
        thread.join(60)
    assert ["".join(event.get("text", "") for event in told) for _, told in heard] == ["for all"] * 5
    assert len(FEEDS) <= 1 or all(feed.logs == {} for feed in FEEDS.values())
