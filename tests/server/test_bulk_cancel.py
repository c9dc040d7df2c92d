"""Many jobs are cancelled by a filter, once somebody has confirmed their number; never one that was not counted."""

from typing import Any

import httpx

from interlock.client import responses
from interlock.server import bulk_cancel, confirmations
from tests.server.stage import Stage
from tests.server.test_jobs import exactly
from tests.server.test_metrics import Clock

PATH = "/v1/jobs/cancel"


def preview(stage: Stage, **body: Any) -> Any:
    return stage.post(PATH, {"filter": {"task": "mail"}, **body})


def confirm(stage: Stage, token: str, key: str | None = None, **body: Any) -> httpx.Response:
    return stage.ask("POST", PATH, {"filter": {"task": "mail"}, "confirm": token, **body}, key=key)


def states(stage: Stage, jobs: list[str]) -> list[str]:
    return [stage.get(f"/v1/jobs/{job}")["state"] for job in jobs]


def test_jobs_are_counted_first_and_cancelled_when_that_is_confirmed(stage: Stage) -> None:
    jobs = [stage.job() for _ in range(3)]
    other = stage.job(task="ship")
    foreign = stage.job(key=stage.foreign)
    shown = preview(stage, reason="not needed")
    exactly(shown, responses.BulkCancelResponse)
    assert (shown["count"], shown["more"], shown["done"]) == (3, False, 0)
    assert states(stage, [*jobs, other]) == ["queued"] * 4
    done = confirm(stage, shown["confirm"], reason="not needed").json()
    assert (done["count"], done["done"], done["refused"], done["units"]) == (3, 3, 0, jobs)
    assert states(stage, [*jobs, other]) == [*["cancelled"] * 3, "queued"]
    assert stage.get(f"/v1/jobs/{foreign}", key=stage.foreign)["state"] == "queued"
    last = stage.get(f"/v1/jobs/{jobs[0]}/events")["events"][-1]
    assert (last["actor"], last["reason"]) == ("ci", "not needed")
    again = confirm(stage, shown["confirm"], reason="not needed").json()
    assert (again["count"], again["done"]) == (0, 0)


def test_only_jobs_that_were_counted_are_cancelled(stage: Stage) -> None:
    first = stage.job()
    shown = preview(stage)
    later = stage.job()
    stage.finish(stage.claim())  # the first one has ended meanwhile
    done = confirm(stage, shown["confirm"]).json()
    assert (shown["count"], done["count"], done["done"]) == (1, 0, 0)
    assert states(stage, [first, later]) == ["succeeded", "queued"]


def test_a_token_is_for_its_key_filter_verb_and_ten_minutes(inside: Stage) -> None:
    stage, clock = inside, Clock(inside)
    job = stage.job()
    token = preview(stage)["confirm"]
    dead_letters = stage.post("/v1/dead-letters/requeue", {"filter": {"task": "mail"}})["confirm"]
    for answer in (
        confirm(stage, token, key=stage.key("operate")), confirm(stage, token, hard=True), confirm(stage, "x.y"),
        confirm(stage, token, reason="another"), confirm(stage, token, filter={"task": "ship"}),
        confirm(stage, dead_letters),
    ):  # fmt: skip
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "CONFIRM_MISMATCH"), answer.text
    clock.now += confirmations.CONFIRM_US + 1
    assert confirm(stage, token).status_code == 409
    assert states(stage, [job]) == ["queued"]


def test_a_preview_tells_groups_apart_and_what_is_left_out(stage: Stage) -> None:
    queued = [stage.job(), stage.job()]
    stage.dead()
    shown = preview(stage)
    (group,) = shown["groups"]
    assert (group["task"], group["state"], group["count"], group["oldest"]) == ("mail", "queued", 2, queued[0])
    assert shown["left_out"] == [{"why": "has ended", "count": 1, "more": False}]
    assert preview(stage, filter={"task": "mail", "category": ["dead"]})["count"] == 0
    stage.claim()
    assert {(group["state"], group["count"]) for group in preview(stage)["groups"]} == {("assigned", 1), ("queued", 1)}


def test_ids_name_what_is_meant_and_unchanged_holds_it_to_that(stage: Stage) -> None:
    jobs = [stage.job() for _ in range(3)]
    ids = [*jobs[:2], stage.dead(), "job_zzzzzz"]
    shown = preview(stage, filter={}, ids=ids)
    assert (shown["count"], {row["why"]: row["count"] for row in shown["left_out"]}) == (
        2, {"has ended": 1, "is no job, run or step that is there": 1},
    )  # fmt: skip
    stage.post(PATH, {"filter": {"task": "mail"}, "ids": ids}, status=400)
    stage.post(f"/v1/jobs/{jobs[0]}/cancel", {})
    changed = confirm(stage, shown["confirm"], filter={}, ids=ids, unchanged=True)
    assert (changed.status_code, changed.json()["error"]["code"]) == (409, "CONFIRM_MISMATCH")
    assert "1 of the 2 that were counted no longer matches" in changed.json()["error"]["message"]
    assert states(stage, jobs) == ["cancelled", "queued", "queued"]
    assert confirm(stage, shown["confirm"], filter={}, ids=ids).json()["units"] == [jobs[1]]
    assert states(stage, jobs) == ["cancelled", "cancelled", "queued"]


def test_dead_letters_of_a_filter_of_jobs_are_done_again_once(stage: Stage) -> None:
    dead, queued = [stage.dead(), stage.dead()], stage.job()
    stage.post(f"/v1/jobs/{dead[0]}/requeue", {}, status=201)
    path, body = "/v1/jobs/requeue", {"filter": {"task": "mail"}, "reason": "the bank is back"}
    shown = stage.post(path, body)
    exactly(shown, responses.BulkRequeueResponse)
    (group,) = shown["groups"]
    assert (shown["count"], group["error"], group["reason_code"], group["oldest"]) == (
        1, "it broke", "exhausted_retries", dead[1],
    )  # fmt: skip
    assert {row["why"]: row["count"] for row in shown["left_out"]} == {"is no dead letter": 2, "was requeued before": 1}
    done = [stage.post(path, {**body, "confirm": shown["confirm"], "unchanged": True}) for _ in range(2)]
    assert [answer["done"] for answer in done] == [1, 1]
    assert done[0]["units"] == done[1]["units"]
    assert len(stage.get("/v1/jobs?limit=100")["jobs"]) == 5
    assert states(stage, [queued]) == ["queued"]
    assert stage.ask("POST", "/v1/jobs/cancel", {**body, "confirm": shown["confirm"]}).status_code == 409


def test_an_empty_filter_must_be_meant(stage: Stage) -> None:
    stage.job()
    stage.post(PATH, {"filter": {}}, status=400)
    stage.post(PATH, {"filter": {"top": True}}, status=400)
    assert stage.post(PATH, {"filter": {}, "every": True})["count"] == 1
    stage.post(PATH, {"filter": {"state": ["none"]}}, status=400)


def test_ids_are_kept_in_a_token() -> None:
    for ids in ([], [7], [1, 2, 3, 2**62], list(range(10_000))):
        text = bulk_cancel.encode_ids(ids)
        assert bulk_cancel.decode_ids(text) == set(ids)
        assert len(text) < 100_000
