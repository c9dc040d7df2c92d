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
