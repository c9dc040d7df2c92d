"""*Run now*: shown for a job that waits for its time, and for nobody without the scope."""

from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage


def test_a_job_that_waits_for_its_time_is_run_now_once(visitor: Visitor, stage: Stage) -> None:
    job = stage.job(delay_seconds=3600)
    page, action = f"/ui/jobs/{job}", f"/ui/jobs/{job}/run-now"
    reader = Visitor(stage).sign_in(stage.key("read"))
    shown = reader.open(page).find(action)
    assert shown["disabled"]
    assert reader.send("POST", action, data=shown["fields"]).status_code == 403
    assert stage.get(f"/v1/jobs/{job}/why")["reason"] == "delayed"

    form = visitor.open(page).find(action)
    assert not form["disabled"]
    no_token = {**form["fields"], "form_token": ""}
    assert visitor.send("POST", action, data=no_token).status_code == 403
    for _ in range(2):  # a double click
        assert visitor.send("POST", action, data={**form["fields"], "reason": "urgent"}).status_code == 303
    assert stage.get(f"/v1/jobs/{job}/why")["reason"] != "delayed"
    after = visitor.open(f"{page}?tab=notes")
    assert action not in [form["action"] for form in after.forms]
    assert after.text.count("urgent") == 1
    assert stage.post(f"/v1/jobs/{job}/run-now")["applied"] is False

    stage.finish(stage.claim(), ended="failure", error="no route")  # it waits to be tried again
    visitor.press(page, action)
    stage.finish(stage.claim())
    late = visitor.send("POST", action, data={**form["fields"], "form_key": "another"})
    assert "does not wait for its time" in Forms(late.text).text
    refused = stage.post(f"/v1/jobs/{job}/run-now", status=409)["error"]
    assert (refused["code"], "allowed for what is delayed" in refused["message"]) == ("NOT_WANTED", True)
