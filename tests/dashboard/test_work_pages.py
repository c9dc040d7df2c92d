"""The pages of the day: what a decision will do, what queues run and finish, and dead letters in groups."""

from typing import Any

import pytest

from interlock.dashboard import work_pages
from interlock.dashboard.decisions import list_names
from interlock.kernel.commands import Bury
from interlock.kernel.ids import parse_id
from interlock.store.queries.feed import read_latest
from interlock.store.queries.followers import Follower
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import FOREIGN, Stage


def make_run(stage: Stage, *steps: dict[str, Any]) -> str:
    return str(stage.post("/v1/runs", {"task": "release", "steps": list(steps)}, status=201)["id"])


def test_the_inbox_says_what_each_word_does_before_it_is_said(visitor: Visitor, stage: Stage) -> None:
    run = stage.run()
    text = visitor.open("/ui/inbox").text
    assert "Approve ship starts; release goes on" in text
    assert "Reject release is cancelled; ship does not start" in text
    visitor.press("/ui/inbox", f"/ui/inbox/{stage.get('/v1/inbox')['items'][0]['id']}/reject")
    assert stage.get(f"/v1/runs/{run}")["state"] == "CANCELED"

    last = {"task": "sign", "lifecycle": "approval", "quorum": 2, "on_reject": "fail"}
    run = make_run(stage, last)
    text = visitor.open("/ui/inbox").text
    assert "Approve one vote of 2; with 1 more: release goes on" in text
    assert "Reject release fails" in text
    visitor.press("/ui/inbox", f"/ui/inbox/{stage.get('/v1/inbox')['items'][0]['id']}/reject")
    assert stage.get(f"/v1/runs/{run}")["state"] == "FAILED"

    jobs = [{"task": "w", "lifecycle": "workstream", "ref": "w"}, {"task": "t", "lifecycle": "task", "parent": "w"}]
    stream = stage.post("/v1/jobs/batch", {"jobs": jobs}, status=201)["jobs"][0]["id"]
    assert "Plan it becomes ready: " in visitor.open("/ui/inbox").text
    visitor.press("/ui/inbox", f"/ui/inbox/{stream}/decide")
    assert stage.get(f"/v1/jobs/{stream}")["state"] == "ready"


def test_names_of_many_steps_are_cut() -> None:
    steps = [Follower(1, number, f"s{number}", 1, False) for number in range(6)]
    assert [list_names(steps[:count]) for count in (1, 2, 3, 6)] == [
        "s0",
        "s0 and s1",
        "s0, s1 and s2",
        "s0, s1, s2 and 3 more",
    ]


def test_a_queue_has_what_waits_runs_and_was_finished(visitor: Visitor, stage: Stage) -> None:
    for _ in range(3):
        stage.job(queue="post")
        stage.finish(stage.claim(queue="post"))
    for _ in range(3):
        stage.job(queue="post")
    stage.claim(queue="post", name="another")
    stage.job(queue="post", key=stage.foreign)
    stage.claim(FOREIGN, queue="post")
    words = visitor.open("/ui/queues").text.split()
    assert words[words.index("post") + 1] == "2"  # wait
    assert words[words.index("post") + 3 : words.index("post") + 6] == ["1", "200", "0.05"]


def test_all_dead_letters_are_grouped_and_the_page_says_of_how_many(
    visitor: Visitor, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = stage.post("/v1/jobs/batch", {"jobs": [{"task": "mail"}] * 105 + [{"task": "pay"}]}, status=201)["jobs"]
    for job in jobs:
        stage.app.send(Bury(unit=parse_id(job["id"]), reason="timeout"))
    page = visitor.open("/ui/dead-letters")
    assert "mail timeout 105" in page.text
    assert "pay timeout 1 " in page.text
    assert "of the newest" not in page.text
    assert "pay timeout 1 " in visitor.open("/ui/dead-letters?task=pay&since=2001-01-01T00:00:00Z").text
    assert "mail timeout 105" not in visitor.open("/ui/dead-letters?task=pay").text
    assert "reason_code" in visitor.open("/ui/dead-letters?reason_code=none", 400).text
    assert Forms(visitor.get("/ui/")).text.count("105 mail · timeout") == 1

    monkeypatch.setattr(work_pages, "GROUPED_MAX", 40)
    page = visitor.open("/ui/dead-letters")
    assert "of the newest 40" in page.text
    assert "mail timeout 39" in page.text


def test_the_overview_has_the_last_events_the_newest_first(visitor: Visitor, stage: Stage) -> None:
    stage.post("/v1/jobs/batch", {"jobs": [{"task": "many"}] * 600}, status=201)  # moved by one act
    events = stage.app.read(read_latest, 15)
    assert (len(events), {each.task for each in events}) == (15, {"many"})
    job = stage.job(queue="one")
    stage.finish(stage.claim(queue="one"), result='"<b>done</b>"')
    foreign = stage.job(key=stage.foreign)
    text = visitor.get("/ui/")
    page = Forms(text)
    assert foreign not in text
    rows = [str(own["id"]) for tag, own in page.tags if tag == "tr" and str(own.get("id")).startswith("event-")]
    own = [row for row in rows if row.startswith(f"event-{job}-")]
    assert own == [f"event-{job}-{version}" for version in range(len(own), 0, -1)]
    assert len(own) == 4
    assert f"{job} mail running → succeeded " in page.text


def test_dead_letters_are_told_apart_by_their_exception_and_requeued_so(visitor: Visitor, stage: Stage) -> None:
    for error in ("CardDeclined: 7", "CardDeclined: 8", "Timeout: 3 s"):
        stage.job(attempts=1, queue="pay", task="charge")
        stage.finish(stage.claim(queue="pay"), ended="failure", error=error)
    page = visitor.open("/ui/dead-letters")
    assert "CardDeclined 2" in page.text
    (link,) = [each for each in page.links if "error=CardDeclined" in each]
    preview = visitor.open(link)
    assert "Requeue 2 dead letters?" in preview.text
    assert "Timeout" not in preview.text
    assert "2 charge · CardDeclined" in visitor.open("/ui/").text
