"""Lists, and many jobs at once: what is shown before, what is done once, and what is left alone."""

import shlex
import subprocess
from itertools import pairwise
from urllib.parse import urlencode

import pytest

from interlock.dashboard.bulk_pages import compare_groups, describe_queue
from interlock.dashboard.list_pages import make_command, make_curl, quote_word
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage

HOSTILE = "\"><script>alert(1)</script><b onmouseover=x>\u202e'&lt;"


def states(stage: Stage, jobs: list[str]) -> list[str]:
    return [stage.get(f"/v1/jobs/{job}")["state"] for job in jobs]


def show(visitor: Visitor, verb: str, *pairs: tuple[str, str]) -> Forms:
    return visitor.open(f"/ui/jobs/{verb}?{urlencode(pairs)}")


def test_a_list_has_chips_and_without_a_filter_shows_what_is_part_of_nothing(visitor: Visitor, stage: Stage) -> None:
    made = stage.post("/v1/jobs", {"task": "mail", "key": "order-7"}, status=201)
    job, run = str(made["id"]), stage.run()
    step = stage.get(f"/v1/runs/{run}/steps")["steps"][0]["id"]
    plain = visitor.open("/ui/jobs")
    assert f"/ui/jobs/{job}" in plain.links
    assert f"/ui/jobs/{run}" in plain.links
    assert f"/ui/jobs/{step}" not in plain.links
    assert f"/ui/jobs/{step}" in visitor.open("/ui/jobs?top=false").links
    chips = visitor.open("/ui/jobs?task=mail&key=order-7&category=ready")
    assert "?key=order-7&category=ready" in chips.links  # without the first chip
    assert "?task=mail&key=order-7" in chips.links
    assert "1" in visitor.open("/ui/jobs?task=mail&count=true").text
    wrong = visitor.open("/ui/jobs?category=redy&task=mail")
    assert "there is no category 'redy'; there are" in wrong.text
    assert "colour" in visitor.open("/ui/jobs?colour=red").find("/ui/jobs/cancel")["fields"]


@pytest.mark.parametrize(
    "text", ["a b", "'x'", "$(id)", "`id`", "-x", "\n;id", "!a", "é", HOSTILE, "a\\", "\t\x07f", ""]
)
def test_a_command_that_is_copied_is_one_command_with_these_words(text: str) -> None:
    """What a shell makes of it is what was meant, whatever the words are."""
    typed = subprocess.run(["bash", "-c", f"printf %s {quote_word(text)}"], capture_output=True, check=True).stdout
    assert typed == text.encode()
    command = make_command("printf '%s\\n'", [("task", text), ("key", "k")])
    assert subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout == (
        f"--task={text}\n--key=k\n".encode()
    )
    assert quote_word(text).isprintable()
    curl = make_curl("http://h/v1/jobs", [("task", text)])
    if text.isprintable():
        assert shlex.split(curl)[-1] == f"task={text}"


def test_a_list_is_told_as_a_command_that_finds_the_same(visitor: Visitor, stage: Stage) -> None:
    job = stage.job(task="it's", queue="q 1")
    stage.job(task="other")
    page = visitor.get(f"/ui/jobs?{urlencode([('task', chr(105) + 't' + chr(39) + 's'), ('queue', 'q 1')])}")
    words = Forms(page)
    assert """interlock list '--task=it'"'"'s' '--queue=q 1'""" in words.text
    curl = next(line for line in words.words if line.startswith("curl"))
    parts = shlex.split(curl)
    fields = [part.split("=", 1) for before, part in pairwise(parts) if before == "--data-urlencode"]
    (same,) = stage.get(f"/v1/jobs?{urlencode([(name, value) for name, value in fields])}")["jobs"]
    assert same["id"] == job


def test_chosen_rows_are_cancelled_once_after_a_preview(visitor: Visitor, stage: Stage) -> None:
    jobs = [stage.job() for _ in range(3)]
    ended = stage.dead()
    form = visitor.open("/ui/jobs").find("/ui/jobs/cancel")
    assert form["method"] == "get"
    chosen = [("id", jobs[0]), ("id", jobs[1]), ("id", ended), ("top", "true")]
    first = show(visitor, "cancel", *chosen)
    assert "Cancel 2 jobs?" in first.text
    assert "2 are cancelled at once" in first.text
    assert "left out 1 that has ended" in first.text
    assert not [form for form in first.forms if form["method"] == "post" and form["action"] == "/ui/jobs/cancel"]
    asked = show(visitor, "cancel", *chosen, ("reason", "not needed"))
    confirm = asked.find("/ui/jobs/cancel")
    answers = [visitor.send("POST", "/ui/jobs/cancel", data=confirm["fields"]) for _ in range(2)]  # a double click
    assert [answer.status_code for answer in answers] == [200, 200]
    for answer in answers:
        assert "Cancelled 2 of 2" in Forms(answer.text).text
        assert f"/ui/jobs/{jobs[0]}" in Forms(answer.text).links
    assert states(stage, jobs) == ["cancelled", "cancelled", "queued"]
    events = stage.get(f"/v1/jobs/{jobs[0]}/events")["events"]
    assert [(event["actor"], event["reason"]) for event in events if event["to"] == "cancelled"] == [
        ("ci", "not needed")
    ]


def test_all_that_match_are_shown_in_groups_that_are_not_lumped_together(visitor: Visitor, stage: Stage) -> None:
    stage.job(queue="fast")
    stage.job()
    stage.job(task="other")
    stage.claim(queue="fast")
    page = show(visitor, "cancel", ("all", "true"), ("task", "mail"), ("reason", "x"))
    assert "Cancel 2 jobs?" in page.text
    assert "1 run now and are asked to stop, within 30s" in page.text
    assert "1 are cancelled at once" in page.text
    assert "assigned" in page.text
    dead = [stage.dead(), stage.dead()]
    requeue = show(visitor, "requeue", ("all", "true"), ("reason", "x"))
    assert "Requeue 2 dead letters?" in requeue.text
    assert requeue.text.count("it broke") == 2  # in two queues, so in two groups
    assert "no worker serves it" in requeue.text
    assert f"/ui/jobs/{dead[0]}" in requeue.links
    done = visitor.send("POST", "/ui/jobs/requeue", data=requeue.find("/ui/jobs/requeue")["fields"])
    assert "Requeued 2 of 2" in Forms(done.text).text
    again = show(visitor, "requeue", ("all", "true"), ("reason", "x"))
    assert "Requeue 0 dead letters?" in again.text
    assert "2 that was requeued before" in again.text


def test_a_preview_that_is_out_of_date_says_what_changed_and_does_nothing(visitor: Visitor, stage: Stage) -> None:
    jobs = [stage.job() for _ in range(3)]
    pairs = [("all", "true"), ("task", "mail"), ("reason", "x")]
    fields = show(visitor, "cancel", *pairs).find("/ui/jobs/cancel")["fields"]
    stage.claim()  # one of them runs now
    answer = visitor.send("POST", "/ui/jobs/cancel", data=fields)
    text = Forms(answer.text).text
    assert answer.status_code == 409
    assert "this preview is out of date, and nothing was done" in text
    assert "queued · mail · default: 3 were shown, now there are 2" in text
    assert "Cancel 3 jobs?" in text  # what is there now, to be confirmed anew
    assert states(stage, jobs) == ["assigned", "queued", "queued"]
    fields = show(visitor, "cancel", *pairs, ("state", "queued")).find("/ui/jobs/cancel")["fields"]
    later = stage.job()
    assert "Cancelled 2 of 2" in Forms(visitor.send("POST", "/ui/jobs/cancel", data=fields).text).text
    assert states(stage, [*jobs, later]) == ["assigned", "cancelled", "cancelled", "queued"]  # it was not shown


def test_what_is_wrong_with_a_choice_is_said_and_changes_nothing(visitor: Visitor, stage: Stage) -> None:
    job = stage.job()
    before = stage.get("/v1/events?limit=1000")["next"]
    for path, words in {
        "/ui/jobs/cancel": "choose some rows", "/ui/jobs/requeue?top=true": "choose some rows",
        "/ui/jobs/cancel?id=x!": "ids", "/ui/jobs/cancel?all=true&state=none": "there is no state 'none'",
        "/ui/jobs/cancel?all=true&parent=%00": "parent",
        "/ui/dead-letters/requeue?reason_code=none": "reason_code",
    }.items():  # fmt: skip
        assert words in visitor.open(path).text, path
    fields = show(visitor, "cancel", ("id", job), ("reason", "x")).find("/ui/jobs/cancel")["fields"]
    for change, status in (
        ({"confirm": ""}, 400), ({"confirm": "x.y"}, 409), ({"reason": "another"}, 409), ({"remembered": "{"}, 400),
        ({"form_token": "00"}, 403), ({"ids": ""}, 400),
    ):  # fmt: skip
        assert visitor.send("POST", "/ui/jobs/cancel", data={**fields, **change}).status_code == status, change
    assert Visitor(stage).send("POST", "/ui/jobs/cancel", data=fields).status_code == 401
    reader = Visitor(stage).sign_in(stage.key("read"))
    assert reader.send("GET", f"/ui/jobs/cancel?id={job}").status_code == 403
    token = reader.open("/ui/jobs").find("/ui/logout")["fields"]["form_token"]
    assert reader.send("POST", "/ui/jobs/cancel", data={**fields, "form_token": token}).status_code == 403
    foreign = stage.job(key=stage.foreign)
    assert "1 that is no job, run or step that is there" in show(visitor, "cancel", ("id", foreign)).text
    assert stage.get("/v1/events?limit=1000")["next"] == before


def test_dead_letters_are_grouped_and_requeued_after_a_preview(visitor: Visitor, stage: Stage) -> None:
    dead = [stage.dead(), stage.dead()]
    page = visitor.open("/ui/dead-letters")
    (link,) = [link for link in page.links if "/requeue?" in link]
    assert "Requeue 2 dead letters?" in visitor.open(link).text
    form = visitor.open(f"{link}&reason=the+bank+is+back").find("/ui/dead-letters/requeue")
    wrong = visitor.send("POST", form["action"], data={**form["fields"], "reason": "another"})
    assert wrong.status_code == 409
    assert "this token was given for another filter or reason" in Forms(wrong.text).text
    form = visitor.open(f"{link}&reason=the+bank+is+back").find("/ui/dead-letters/requeue")
    for _ in range(2):  # a double click
        answer = visitor.send("POST", form["action"], data=form["fields"])
        assert (answer.status_code, "Requeued 2 of 2" in Forms(answer.text).text) == (200, True)
    letters = {letter["id"]: letter["again"] for letter in stage.get("/v1/dead-letters")["letters"]}
    assert letters == dict.fromkeys(dead, True)
    assert len(stage.get("/v1/jobs?limit=100")["jobs"]) == 4


@pytest.mark.parametrize("verb", ["cancel", "requeue"])
def test_text_of_strangers_is_text_in_a_preview(visitor: Visitor, stage: Stage, verb: str) -> None:
    stage.job(task=HOSTILE, queue=HOSTILE, attempts=1)
    if verb == "requeue":
        stage.finish(stage.claim(queue=HOSTILE), ended="failure", error=HOSTILE)
    pairs = [("all", "true"), ("task", HOSTILE), ("queue", HOSTILE), ("reason", HOSTILE)]
    page = visitor.get(f"/ui/jobs/{verb}?{urlencode(pairs)}")
    assert f"{verb.capitalize()} 1 " in Forms(page).text
    listed = visitor.get(f"/ui/jobs?{urlencode(pairs[1:3])}")
    answer = visitor.send("POST", f"/ui/jobs/{verb}", data=Forms(page).find(f"/ui/jobs/{verb}")["fields"])
    assert answer.status_code == 200
    for text in (page, listed, answer.text):
        assert "<script>alert" not in text
        assert not [tag for tag, own in Forms(text).tags if "onmouseover" in own]
        shown = " ".join(Forms(text).words)
        assert "\u202e" not in shown


def test_what_has_changed_and_how_long_a_queue_needs_is_told_in_words() -> None:
    assert compare_groups({"a": 3, "b": 1}, {"a": 5, "b": 1, "c": 2}) == []
    assert compare_groups({"a": 3, "b": 1}, {"a": 1}) == [
        "a: 3 were shown, now there is 1", "b: 1 were shown, now there are 0",
    ]  # fmt: skip
    many = compare_groups({str(n): 1 for n in range(9)}, {})
    assert (len(many), many[-1]) == (6, "and 4 other groups have fewer")
    assert describe_queue(6, 4, 2, 3.0) == "where 6 wait; all of them need about 15s, 2 at a time"
    assert describe_queue(0, 1, 0, 3.0) == "where nothing waits; no worker serves it, so they wait until one does"
    assert "not known yet" in describe_queue(0, 1, 1, 0)
