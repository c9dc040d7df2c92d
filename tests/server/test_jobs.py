"""Jobs over the wire: submitted once, looked at, cancelled and done again."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from interlock.client import responses
from interlock.store.queries.views import Filter, find_matching
from tests.server.stage import Stage


def count(stage: Stage) -> int:
    return len(stage.app.read(find_matching, Filter()))


def exactly(answer: Any, kind: Any) -> None:
    """An answer has the fields that the API promises, of their kinds, and no others."""
    assert msgspec.to_builtins(msgspec.convert(answer, kind)) == answer


def test_a_job_is_submitted_and_seen(stage: Stage) -> None:
    made = stage.post("/v1/jobs", {"task": "mail", "input": {"to": "a@b.c"}, "labels": {"team": "x"}}, status=201)
    exactly(made, responses.SubmitResponse)
    seen = stage.get(f"/v1/jobs/{made['id']}")
    exactly(seen, responses.JobDetailResponse)
    assert (seen["state"], seen["input"], seen["labels"]) == (made["state"], {"to": "a@b.c"}, {"team": "x"})
    page = stage.get("/v1/jobs")
    exactly(page, responses.JobsResponse)
    assert [one["id"] for one in page["jobs"]] == [made["id"]]


def test_lists_are_paged_and_filtered(stage: Stage) -> None:
    """The newest first, whichever server made them."""
    made = [stage.job(task=f"t{n % 2}") for n in range(5)][::-1]
    first = stage.get("/v1/jobs?limit=2")
    second = stage.get(f"/v1/jobs?limit=2&after={first['next']}")
    third = stage.get(f"/v1/jobs?limit=2&after={second['next']}")
    assert [one["id"] for page in (first, second, third) for one in page["jobs"]] == made
    assert third["next"] is None
    assert {one["task"] for one in stage.get("/v1/jobs?task=t1&category=ready&category=held")["jobs"]} == {"t1"}


def test_many_are_made_together_or_not_at_all(stage: Stage) -> None:
    some = {"jobs": [{"task": "a", "ref": "first"}, {"task": "b", "needs": ["first"]}]}
    made = stage.post("/v1/jobs/batch", some, status=201)["jobs"]
    need = {"id": made[0]["id"], "state": made[0]["state"], "name": None, "met_by": "success"}
    assert stage.get(f"/v1/jobs/{made[1]['id']}")["needs"] == [need]
    wrong = stage.ask("POST", "/v1/jobs/batch", {"jobs": [{"task": "a"}, {"task": "b", "lifecycle": "none"}]})
    assert (wrong.status_code, count(stage)) == (400, 2)


def test_events_come_with_a_cursor(stage: Stage) -> None:
    job = stage.job()
    stage.finish(stage.claim())
    found, after = [], 0
    while after is not None:
        page = stage.get(f"/v1/jobs/{job}/events?limit=1&after={after}")
        exactly(page, responses.EventsResponse)
        found += page["events"]
        after = page["next"]
    assert [one["version"] for one in found] == list(range(1, len(found) + 1))
    assert found[0]["actor"] == "ci"


def test_why_says_what_keeps_it(stage: Stage) -> None:
    why = stage.get(f"/v1/jobs/{stage.job(delay_seconds=60)}/why")
    exactly(why, responses.WhyResponse)
    assert why["reason"] == "delayed"


def test_cancel_and_requeue(stage: Stage) -> None:
    job = stage.job()
    assert stage.post(f"/v1/jobs/{job}/cancel")["applied"]
    assert not stage.post(f"/v1/jobs/{job}/cancel")["applied"]
    no = stage.post(f"/v1/jobs/{job}/requeue", status=409)["error"]
    assert (no["code"], no["details"]["lifecycle"]) == ("INVALID_STATE", "job")
    dead = stage.dead()
    again = stage.post(f"/v1/jobs/{dead}/requeue", status=201, headers={"Idempotency-Key": "r"})["id"]
    assert stage.get(f"/v1/jobs/{again}")["retry_of"] == dead
    assert stage.post(f"/v1/jobs/{dead}/requeue", headers={"Idempotency-Key": "r"})["id"] == again


@pytest.mark.req("R1-41", "R1-43")
@pytest.mark.parametrize("path", ["/v1/jobs", "/runs"])
def test_a_request_under_a_key_is_carried_out_once(stage: Stage, path: str) -> None:
    body: dict[str, Any] = {"task": "a", "steps": [{"task": "b"}]} if path == "/runs" else {"task": "a"}
    under = {"headers": {"Idempotency-Key": "k"}}
    made = stage.post(path, body, status=201, **under)
    before = count(stage)
    assert stage.post(path, body, status=200, **under) == made
    other = stage.post(path, {**body, "task": "other"}, status=409, **under)
    assert (other["error"]["code"], count(stage)) == ("IDEMPOTENCY_CONFLICT", before)
    assert stage.post(path, body, status=201, key=stage.foreign, **under)["id"] != made["id"]
    assert stage.post(path, body, status=201, key=stage.key(), **under)["id"] != made["id"]


@pytest.mark.req("R1-42")
def test_64_posts_at_once_make_one_run(stage: Stage) -> None:
    body = {"task": "a", "steps": [{"task": "b"}]}

    def post(_: int) -> tuple[int, str]:
        answer = stage.ask("POST", "/runs", body, headers={"Idempotency-Key": "k"})
        return answer.status_code, answer.json()["id"]

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(post, range(64)))
    assert sorted(status for status, _ in found) == [200] * 63 + [201]
    assert len({one for _, one in found}) == 1
    assert count(stage) == 2


def test_a_unit_key_finds_what_is_there(stage: Stage) -> None:
    made = stage.post("/v1/jobs", {"task": "a", "key": "k", "input": 1}, status=201)
    assert stage.post("/v1/jobs", {"task": "a", "key": "k", "input": 1}, status=200)["id"] == made["id"]
    assert (
        stage.post("/v1/jobs", {"task": "a", "key": "k", "input": 2}, status=409)["error"]["code"]
        == "IDEMPOTENCY_CONFLICT"
    )
    no = stage.post("/v1/jobs", {"task": "a", "key": "k", "on_duplicate": "reject"}, status=409)
    assert no["error"]["code"] == "DUPLICATE_KEY"


@pytest.mark.req("R1-41")
def test_the_same_request_has_the_same_answer_whatever_became_of_it(stage: Stage) -> None:
    under = {"Idempotency-Key": "k"}
    first = stage.ask("POST", "/v1/jobs", {"task": "mail"}, headers=under)
    stage.finish(stage.claim())
    again = stage.ask("POST", "/v1/jobs", {"task": "mail"}, headers=under)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.content == first.content
