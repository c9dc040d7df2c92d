"""What comes before what, over HTTP: names of the same request, ids in `after`, in any order."""

from interlock.kernel.ids import parse_id
from interlock.store.queries.views import view
from tests.server.stage import Stage


def test_a_name_is_never_taken_for_the_id_of_a_stranger(stage: Stage) -> None:
    stranger = stage.job()
    word = stranger.partition("_")[2]
    for path, body in (
        ("/v1/jobs", {"task": "a", "needs": [word]}),
        ("/v1/jobs/batch", {"jobs": [{"task": "a", "ref": "a", "needs": [word]}]}),
        ("/v1/jobs/batch", {"jobs": [{"task": "a", "ref": "a", "parent": word}]}),
        ("/v1/runs", {"task": "r", "steps": [{"task": "a", "needs": [word]}]}),
    ):
        no = stage.ask("POST", path, body)
        assert no.status_code in (400, 404), (path, no.text)
        assert f"has the ref '{word}'" in no.json()["error"]["message"]


def test_after_takes_ids(stage: Stage) -> None:
    first = stage.job()
    made = stage.post("/v1/jobs", {"task": "b", "after": [first]}, status=201)["id"]
    assert [need["id"] for need in stage.get(f"/v1/jobs/{made}")["needs"]] == [first]


def test_jobs_and_steps_may_come_in_any_order(stage: Stage) -> None:
    some = {"jobs": [{"task": "b", "needs": ["first"]}, {"task": "a", "ref": "first"}]}
    made = stage.post("/v1/jobs/batch", some, status=201)["jobs"]
    assert [need["id"] for need in stage.get(f"/v1/jobs/{made[0]['id']}")["needs"]] == [made[1]["id"]]
    circle = {
        "task": "r",
        "steps": [{"task": "a", "ref": "a", "needs": ["b"]}, {"task": "b", "ref": "b", "needs": ["a"]}],
    }
    no = stage.ask("POST", "/v1/runs", circle)
    assert "a circle of needs: a needs b needs a" in no.json()["error"]["message"]


def test_ten_thousand_steps_in_one_request(stage: Stage) -> None:
    steps = [{"task": "t", "ref": f"s{n}", "needs": [f"s{n - 1}"] if n else []} for n in range(10_000)]
    run = stage.post("/v1/runs", {"task": "r", "steps": steps[::-1]}, status=201)["id"]
    assert stage.app.read(view, parse_id(run)).unit.total == 10_000


def test_children_have_names_and_are_found_by_them(stage: Stage) -> None:
    run = stage.post("/v1/runs", {"task": "r", "steps": [{"task": "a", "ref": "a"}]}, status=201)["id"]
    step = {"task": "b", "lifecycle": "step", "parent": run, "step": "b 1 é", "needs": ["a", "later"]}
    made = stage.post("/v1/jobs", step, status=201)["id"]
    assert stage.post("/v1/jobs", step, status=200)["id"] == made
    found = stage.get(f"/v1/runs/{run}/steps/b%201%20%C3%A9")
    assert [found["id"], found["policy"]["step"]] == [made, "b 1 é"]
    needs = [(need["name"], need["state"], need["met_by"]) for need in found["needs"]]
    assert sorted(needs) == [("a", "PENDING", "success"), ("later", "yet to come", "success")]
    assert stage.get(f"/runs/{run}/steps/a")["task"] == "a"


def test_a_name_that_is_not_there_is_not_found(stage: Stage) -> None:
    run = stage.post("/v1/runs", {"task": "r", "steps": [{"task": "a", "ref": "a"}]}, status=201)["id"]
    for name in ("b", "%00", "x" * 300, "later"):
        no = stage.ask("GET", f"/v1/runs/{run}/steps/{name}")
        assert no.status_code == 404, (name, no.text)
    assert "it has 'a'" in stage.ask("GET", f"/v1/runs/{run}/steps/b").json()["error"]["message"]


def test_the_end_of_another_job_may_be_enough(stage: Stage) -> None:
    first = stage.job()
    made = stage.post("/v1/jobs", {"task": "b", "after_end": [first]}, status=201)["id"]
    assert [need["met_by"] for need in stage.get(f"/v1/jobs/{made}")["needs"]] == ["end"]
    stopped = stage.post("/v1/jobs", {"task": "c", "after": [first]}, status=201)["id"]
    stage.post(f"/v1/jobs/{first}/cancel", {})
    assert stage.get(f"/v1/jobs/{stopped}")["state"] == "cancelled"
    assert stage.get(f"/v1/jobs/{made}")["needs_unmet"] == 0


def test_a_wrong_name_is_refused(stage: Stage) -> None:
    run = stage.post("/v1/runs", {"task": "r", "steps": [{"task": "a", "ref": "a"}]}, status=201)["id"]
    for wrong in (
        {"step": ""},
        {"step": "x" * 201},
        {"step": "a\0"},
        {"needs_end": [""]},
        {"after_end": ["?"]},
        {"step": 7},
    ):
        no = stage.ask("POST", "/v1/jobs", {"task": "b", "lifecycle": "step", "parent": run, **wrong})
        assert no.status_code in (400, 404, 422), (wrong, no.text)
    no = stage.ask("POST", "/v1/jobs", {"task": "other", "lifecycle": "step", "parent": run, "step": "a"})
    assert (no.status_code, no.json()["error"]["code"]) == (409, "NAME_TAKEN")
