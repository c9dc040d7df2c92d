"""What pages show and do: lists, one job with its past, runs, the inbox, dead letters, queues, starting a job."""

import re
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from interlock.dashboard.pages import POLICY
from interlock.kernel.commands import Archive, Plan, Register, Submit, Tick, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id, parse_id
from interlock.kernel.lifecycle import Owner
from interlock.plugins.ci.options import NOBODY, CiOptions, encode_options
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage

TOLD_TO_NOBODY = encode_options(CiOptions(report_to=NOBODY))
HOSTILE = "\"><script>alert(1)</script><b onmouseover=x>\u202e\u0007'&lt;"


def make_job(stage: Stage, **facts: Any) -> str:
    return str(stage.post("/v1/jobs", {"task": "mail", **facts}, status=201)["id"])


def test_a_list_shows_jobs_and_filters_by_its_url(visitor: Visitor, stage: Stage) -> None:
    mail, other = stage.job(), make_job(stage, task="other", key="order-7")
    everything = visitor.get("/ui/jobs")
    assert mail in everything
    assert other in everything
    page = visitor.get("/ui/jobs?task=other")
    assert other in page
    assert mail not in page


def test_a_list_goes_on_where_a_page_ends(visitor: Visitor, stage: Stage) -> None:
    jobs = [stage.job() for _ in range(5)]
    first = visitor.open("/ui/jobs?limit=3")
    (older,) = [link for link in first.links if "after=" in link]
    rest = visitor.get(f"/ui/jobs{older}")
    assert [job for job in jobs if f">{job}<" in rest] == jobs[:2]


def test_a_wrong_word_of_a_filter_is_told_what_is_allowed(visitor: Visitor) -> None:
    page = visitor.open("/ui/jobs?state=runing")
    assert "there is no state 'runing'" in page.text
    assert "running" in page.text
    assert "Unknown" not in page.text
    assert (
        "not allowed" in visitor.open("/ui/jobs?limit=9999").text or "limit" in visitor.open("/ui/jobs?limit=9999").text
    )


def test_an_id_a_key_a_correlation_or_a_task_leads_to_what_has_it(visitor: Visitor, stage: Stage) -> None:
    job = make_job(stage, key="order-7", correlation="c-9")
    for text, place in ((job, f"/ui/jobs/{job}"), ("order-7", "/ui/jobs?key=order-7"),
                        ("c-9", "/ui/jobs?correlation=c-9"), ("mail", "/ui/jobs?task=mail")):  # fmt: skip
        assert visitor.send("GET", f"/ui/search?q={text}").headers["location"] == place
    assert "nothing has the id" in visitor.open("/ui/search?q=none", 404).text


def test_a_job_says_why_it_waits_and_is_drawn_where_it_stands(visitor: Visitor, stage: Stage) -> None:
    job = stage.job()
    text = visitor.get(f"/ui/jobs/{job}")
    assert stage.get(f"/v1/jobs/{job}/why")["answer"] in Forms(text).text
    assert lit_states(text) == ["queued"]


def lit_states(text: str) -> list[str]:
    """The states that are lit in the drawing of a page."""
    return [name for kind, name in drawn_states(text) if "lit" in kind.split()]


def drawn_states(text: str) -> list[tuple[str, str]]:
    (drawing,) = re.findall(r'<svg class="lifecycle".*?</svg>', text, re.DOTALL)
    space = "{http://www.w3.org/2000/svg}"
    groups = ElementTree.fromstring(drawing).iter(f"{space}g")
    return [(str(group.get("class")), str(group.findtext(f"{space}text"))) for group in groups]


def taken_edges(text: str) -> set[tuple[str, str]]:
    titles = re.findall(r'<path class="edge[^"]* taken"[^>]*><title>(\w+) → (\w+)', text)
    return set(titles)


def test_each_version_shows_what_the_events_up_to_it_make(visitor: Visitor, stage: Stage) -> None:
    job = stage.job()
    stage.finish(stage.claim(), ended="failure", error="it broke")
    events = stage.get(f"/v1/jobs/{job}/events")["events"]
    assert len(events) > 3
    for event in events:
        text = visitor.get(f"/ui/jobs/{job}?version={event['version']}")
        past = [each for each in events if each["version"] <= event["version"]]
        assert lit_states(text) == [event["to"]]
        moved = {(each["from"], each["to"]) for each in past if each["from"] not in (None, each["to"])}
        assert taken_edges(text) == moved
        assert ("As it was at version" in text) == (event["version"] < events[-1]["version"])
        rows = re.findall(r'<td class="num dim">(\d+)</td>', text)
        assert rows == [str(each["version"]) for each in reversed(past)]
    for wrong in ("0", "99", "x", "-1"):
        assert "allowed are 1 to" in visitor.open(f"/ui/jobs/{job}?version={wrong}", 400).text


def test_a_past_version_has_no_buttons(visitor: Visitor, stage: Stage) -> None:
    job = stage.job()
    stage.claim()
    assert f"/ui/jobs/{job}/cancel" in visitor.get(f"/ui/jobs/{job}")
    assert f"/ui/jobs/{job}/cancel" not in visitor.get(f"/ui/jobs/{job}?version=1")


def test_buttons_are_the_moves_that_the_lifecycle_lists_for_a_person(visitor: Visitor, stage: Stage) -> None:
    job = stage.job()
    for lifecycle_id in (job, stage.run()):
        detail = stage.get(f"/v1/jobs/{lifecycle_id}")
        lifecycle = stage.app.lifecycles[detail["lifecycle"]]
        listed = {move.trigger for (state, _), move in lifecycle.moves.items()
                  if state == detail["state"] and move.owner is Owner.PERSON}  # fmt: skip
        page = visitor.open(f"/ui/jobs/{lifecycle_id}")
        shown = {form["action"].rpartition("/")[2] for form in page.forms if lifecycle_id in form["action"]}
        assert shown == listed


def test_cancel_does_it_once_and_keeps_the_reason(visitor: Visitor, stage: Stage) -> None:
    job = stage.job()
    form = visitor.open(f"/ui/jobs/{job}").find(f"/ui/jobs/{job}/cancel")
    sent = {**form["fields"], "reason": "not needed"}
    for _ in range(2):  # a double click
        answer = visitor.send("POST", form["action"], data=sent)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/jobs/{job}")
    events = stage.get(f"/v1/jobs/{job}/events")["events"]
    (cancelled,) = [event for event in events if event["to"] == "cancelled"]
    assert (cancelled["reason"], cancelled["actor"]) == ("not needed", "ci")


def test_run_again_and_requeue_lead_to_the_new_job_and_make_one(visitor: Visitor, stage: Stage) -> None:
    dead = stage.dead()
    form = visitor.open(f"/ui/jobs/{dead}").find(f"/ui/jobs/{dead}/requeue")
    places = {visitor.send("POST", form["action"], data=form["fields"]).headers["location"] for _ in range(2)}
    (place,) = places
    assert stage.get(f"/v1/jobs/{place.rpartition('/')[2]}")["retry_of"] == dead


def test_a_refusal_is_shown_in_the_engines_words(visitor: Visitor, stage: Stage) -> None:
    dead = stage.dead()
    form = visitor.open(f"/ui/jobs/{dead}").find(f"/ui/jobs/{dead}/requeue")
    job = stage.job(queue="other")
    answer = visitor.send("POST", f"/ui/jobs/{job}/requeue", data=form["fields"])
    api = stage.ask("POST", f"/v1/jobs/{job}/requeue", {})
    assert answer.status_code == api.status_code == 409
    assert api.json()["error"]["message"] in Forms(answer.text).text
    assert stage.get(f"/v1/jobs/{job}")["state"] == "queued"


def test_a_run_shows_its_steps_and_its_id_leads_there(visitor: Visitor, stage: Stage) -> None:
    run = stage.run()
    assert visitor.send("GET", f"/ui/jobs/{run}").headers["location"] == f"/ui/runs/{run}"
    page = visitor.get(f"/ui/runs/{run}")
    for step in stage.get(f"/v1/runs/{run}/steps")["steps"]:
        assert step["id"] in page
        assert step["state"] in page
    assert page.count('<rect class="f-') >= 2


def test_the_inbox_takes_votes_as_the_keys_own_name(visitor: Visitor, stage: Stage) -> None:
    run = stage.run()
    (item,) = stage.get("/v1/inbox")["items"]
    page = visitor.open("/ui/inbox")
    assert "sign" in page.text
    form = page.find(f"/ui/inbox/{item['id']}/approve")
    sent = {**form["fields"], "comment": "fine", "by": "somebody else", "roles": "boss"}
    assert visitor.send("POST", form["action"], data=sent).status_code == 303
    votes = [event for event in stage.get(f"/v1/jobs/{item['id']}/events")["events"] if event["to"] == "SUCCEEDED"]
    assert [event["actor"] for event in votes] == ["ci"]
    assert item["id"] not in visitor.get("/ui/inbox")
    assert stage.get(f"/v1/runs/{run}")["state"] == "RUNNING"


def test_the_inbox_shows_the_soonest_due_first(visitor: Visitor, stage: Stage) -> None:
    def ask(task: str, **facts: Any) -> None:
        stage.post("/v1/runs", {"task": "r", "steps": [{"task": task, "lifecycle": "approval", **facts}]}, status=201)

    ask("never")
    ask("late", expires_seconds=7200)
    ask("soon", expires_seconds=3600)
    text = visitor.open("/ui/inbox").text
    assert text.index("soon") < text.index("late") < text.index("never")


def test_a_queue_is_paused_with_a_reason_and_goes_on(visitor: Visitor, stage: Stage) -> None:
    stage.job(queue='mail/in "bulk"')
    visitor.press("/ui/queues", "/ui/queues/pause", reason="freeze", until="1h")
    (pause,) = stage.get("/v1/pauses")["pauses"]
    assert (pause["name"], pause["reason"], pause["by"]) == ('mail/in "bulk"', "freeze", "ci")
    assert "freeze" in visitor.get("/ui/queues")
    visitor.press("/ui/queues", "/ui/queues/unpause")
    assert "freeze" not in visitor.get("/ui/queues")
    refused = visitor.press("/ui/queues", "/ui/queues/pause", status=400, until="sometime")
    assert "sometime" in Forms(refused.text).text


def test_workers_and_schedules_are_listed_and_told(visitor: Visitor, stage: Stage) -> None:
    stage.schedule()
    stage.app.send(Register(name="press-1", incarnation="i", capacity=3, tenant=1))
    assert "press-1" in visitor.get("/ui/workers")
    assert "0 3 * * *" in visitor.get("/ui/schedules")
    visitor.press("/ui/schedules", "/ui/schedules/nightly/pause")
    assert stage.get("/v1/schedules")["schedules"][0]["paused"]
    visitor.press("/ui/schedules", "/ui/schedules/nightly/unpause")
    visitor.press("/ui/schedules", "/ui/schedules/nightly/trigger")
    assert stage.get("/v1/jobs?task=mail")["jobs"]


def test_every_lifecycle_is_drawn(visitor: Visitor, stage: Stage) -> None:
    text = visitor.get("/ui/lifecycles")
    for name, lifecycle in stage.app.lifecycles.items():
        assert f"/ui/lifecycles/{name}" in text
        page = visitor.get(f"/ui/lifecycles/{name}")
        assert {state for _, state in drawn_states(page)} == set(lifecycle.states)
    assert visitor.open("/ui/lifecycles/none", 404).text


@pytest.mark.parametrize("field", ["task", "key", "correlation", "queue", "labels", "input", "error"])
def test_text_of_strangers_is_text(visitor: Visitor, stage: Stage, field: str) -> None:
    text = HOSTILE.replace("\u0007", "")
    facts: dict[str, Any] = {field: text}
    if field == "labels":
        facts = {"labels": {text[:100]: text}}
    if field == "input":
        facts = {"input": {text: [text, {"deep": text}]}}
    if field == "error":
        facts = {"attempts": 1}
    job = make_job(stage, **facts)
    if field == "error":
        stage.finish(stage.claim(), ended="failure", error=text)
    for path in (f"/ui/jobs/{job}", "/ui/jobs", "/ui/", "/ui/queues", "/ui/dead-letters"):
        page = visitor.get(path)
        assert "<script>alert" not in page
        assert "\u202e" not in page
        tags = Forms(page).tags
        assert not [tag for tag, own in tags if tag == "b" and "onmouseover" in own]
        assert not [tag for tag, own in tags if tag == "script" and "src" not in own]


@pytest.mark.parametrize("name", ["input", "result"])
def test_a_large_value_is_folded_with_a_link_to_the_whole(visitor: Visitor, stage: Stage, name: str) -> None:
    large, small = ["begin", "<b>" + "x" * 70_000, "the end"], {"a": 1}
    job = stage.job(input=large if name == "input" else small)
    assert visitor.send("GET", f"/ui/jobs/{job}/result").status_code == 404
    stage.finish(stage.claim(), result=msgspec.json.encode(large if name == "result" else small).decode())
    text = visitor.get(f"/ui/jobs/{job}")
    page = Forms(text)
    assert len(text) < 60_000
    assert "70,025 characters the whole" in page.text
    assert ["begin" in text, "the end" in text, '"a"' in page.text] == [True, False, True]
    assert f"/ui/jobs/{job}/{name}" in page.links
    whole = visitor.send("GET", f"/ui/jobs/{job}/{name}")
    assert whole.json() == large
    assert whole.headers["content-type"].startswith("text/plain")
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.headers["content-security-policy"] == POLICY
    foreign = Visitor(stage).sign_in(stage.foreign)
    assert foreign.send("GET", f"/ui/jobs/{job}/{name}").status_code == 404


def test_with_nothing_there_the_overview_says_what_to_paste(visitor: Visitor, stage: Stage) -> None:
    assert "interlock submit" in visitor.open("/ui/").text
    stage.job()
    assert "interlock submit" not in visitor.open("/ui/").text
    assert "mail" in visitor.open("/ui/").text


def test_an_archived_job_says_in_which_file_it_is_to_those_whose_it_was(visitor: Visitor, stage: Stage) -> None:
    job = stage.job()
    stage.finish(stage.claim())
    with pytest.raises(InterlockError) as told:
        stage.archive(Archive(unit=parse_id(job), file="/archive/2026-11.jsonl", digest="none"))
    digest = str(told.value).rsplit(" ", 1)[-1]
    assert stage.archive(Archive(unit=parse_id(job), file="/archive/2026-11.jsonl", digest=digest)) == 1
    page = visitor.open(f"/ui/jobs/{job}", 404)
    assert f"{job} was archived; it is in the file /archive/2026-11.jsonl" in page.text
    foreign = Visitor(stage).sign_in(stage.foreign)
    assert "/archive/" not in foreign.get(f"/ui/jobs/{job}", 404)


def test_a_ci_run_that_failed_is_seen_to_have_failed_although_it_was_reported(visitor: Visitor, stage: Stage) -> None:
    run = stage.app.send(Submit(work=(Work(task="ci.run", lifecycle="ci_run", options=TOLD_TO_NOBODY),)))[0].unit
    plan = (Work(task="test", lifecycle="ci_job", attempts=1),)
    stage.app.send(Plan(unit=run, plan='{"hash": "1"}', work=plan))
    grant = stage.claim()
    stage.finish(grant, ended="failure", error="2 tests failed", error_class="PermanentError")
    for _ in range(3):
        stage.app.send(Tick(tenant=1))
    path = f"/ui/runs/{format_id('ci_run', run)}"
    assert stage.get(f"/v1/jobs/{format_id('ci_run', run)}")["state"] == "REPORTED"
    text = visitor.get(path)
    assert 'class="pill failure big"' in text
    assert 'class="pill failure"' in visitor.get("/ui/runs")
    assert "<dt>correlation" not in text  # nobody gave one
