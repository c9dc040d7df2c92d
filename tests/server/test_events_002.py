"""Document 002's events over HTTP: nine fields, nine types, page by page."""

from typing import Any

import pytest

from interlock.client import responses
from interlock.kernel.commands import Finish, Heartbeat, LeaseGrant, LeaseRef, Outcome, Record, Start
from tests.server.stage import Stage
from tests.server.test_jobs import exactly

NINE = ["id", "job_id", "type", "ts", "actor", "correlation_id", "cause", "payload", "version"]


def held(grant: LeaseGrant) -> tuple[LeaseRef]:
    return (LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease),)


def undone(stage: Stage) -> str:
    """A job that has beaten, failed and been undone."""
    job = stage.job(correlation_id="order-7", queue="q")
    grant = stage.claim(queue="q")
    stage.app.send(Start(held=held(grant)))
    stage.app.send(Heartbeat(held=held(grant)))
    stage.app.send(Record(held=held(grant), kind="compensation", name="pay", payload='{"task": "refund"}'))
    failed = Outcome(held=held(grant)[0], ended="failure", error="no", error_class="PermanentError")
    stage.app.send(Finish(outcomes=(failed,)))
    stage.finish(stage.claim(queue="q"))
    return job


def events(stage: Stage, job: str, limit: int = 200) -> list[dict[str, Any]]:
    found, cursor = list[dict[str, Any]](), ""
    while True:
        page = stage.get(f"/v1/jobs/{job}/events?shape=002&limit={limit}{cursor}")
        exactly(page, responses.JobEventsResponse)
        found += page["events"]
        if page["next"] is None:
            return found
        assert len(page["events"]) == limit
        cursor = f"&cursor={page['next']}"


@pytest.mark.req("R2-35", "R2-36")
def test_an_event_has_the_nine_fields_and_its_type(stage: Stage) -> None:
    job = undone(stage)
    found = events(stage, job)
    assert all(list(one) == NINE for one in found)
    kinds = [one["type"] for one in found]
    expected = ["job_queued", "job_claimed", "job_started", "job_heartbeat", "job_failed", "job_compensated"]
    assert [kind for kind in kinds if kind != "job_lease_renewed"] == expected
    assert "job_lease_renewed" in kinds
    assert {(one["job_id"], one["correlation_id"]) for one in found} == {(job, "order-7")}
    assert [one["actor"] for one in found if one["type"] == "job_heartbeat"] == ["w"]
    undo = stage.get(f"/v1/jobs?parent={job}")["jobs"][0]["id"]
    assert found[-1]["payload"]["by"] == undo
    # The job that undoes it names the event that caused it.
    assert events(stage, undo)[0]["cause"] in [one["id"] for one in found]


def test_pages_go_on_with_their_cursor(stage: Stage) -> None:
    job = undone(stage)
    for limit in (1, 2, 3):
        assert events(stage, job, limit) == events(stage, job)


def test_plain_events_are_as_they_were(stage: Stage) -> None:
    job = undone(stage)
    names = [one["name"] for one in stage.get(f"/v1/jobs/{job}/events")["events"]]
    assert names == ["job_queued", "job_claimed", "job_started", "job_failed"]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("shape=003", "the query is wrong"),
        ("shape=002&cursor=x", "the query is wrong"),
        ("shape=002&cursor=9999999999999999999.1.1", "the query is wrong"),
        ("shape=002&after=2", "its pages go on with `cursor`"),
        ("cursor=1.0.1", "cursor is not allowed without shape=002"),
    ],
)
def test_a_wrong_word_is_told_the_right_one(stage: Stage, query: str, text: str) -> None:
    answer = stage.ask("GET", f"/v1/jobs/{stage.job()}/events?{query}")
    assert (answer.status_code, text in answer.json()["error"]["message"]) == (400, True), answer.text


def test_what_is_no_job_and_what_streams_has_no_such_pages(stage: Stage) -> None:
    run = stage.run()
    for path in (f"/v1/jobs/{run}/events", f"/runs/{run}/events"):
        answer = stage.ask("GET", f"{path}?shape=002")
        assert answer.status_code == 400
        assert "document 002's shape is of jobs" in answer.json()["error"]["message"]
    streamed = stage.ask("GET", f"/v1/jobs/{stage.job()}/events?shape=002", headers={"Accept": "text/event-stream"})
    assert streamed.status_code == 400
    foreign = stage.ask("GET", f"/v1/jobs/{stage.job()}/events?shape=002", key=stage.foreign)
    assert foreign.status_code == 404
