"""`interlock events` of everything: filtered, after a cursor, followed, as lines of JSON."""

import json
from typing import Any

import pytest

from interlock.kernel.ids import format_id
from tests.cli.places import Place


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_everything_as_lines_of_json_after_any_cursor(place: Place) -> None:
    jobs = [format_id("job", place.world.submit()) for _ in range(3)]
    events = lines(place.ask("events", "--jsonl").out)
    assert [event["unit"] for event in events] == jobs
    for number, event in enumerate(events, 1):
        assert lines(place.ask("events", "--jsonl", "--after", event["cursor"]).out) == events[number:]
    assert place.ask("events", "--jsonl", "--after", "now").out == ""
    assert lines(place.ask("events", "--jsonl", "--limit", 2).out) == events[:2]
    page = place.ask("events", "--json", "--limit", 2).json
    assert (page["events"], page["more"]) == (events[:2], True)
    assert place.ask("events", "--json", "--after", page["next"]).json["events"] == events[2:]


def test_a_table_for_people(place: Place) -> None:
    job = format_id("job", place.world.submit())
    (row,) = place.ask("events").rows
    assert (row[1], row[4], row[5]) == (job, "queued", "mail")
    assert [row[8]] == [event["cursor"] for event in lines(place.ask("events", "--jsonl").out)]


def test_filters(place: Place) -> None:
    mail = format_id("job", place.world.submit("mail", correlation="order-7"))
    web = format_id("job", place.world.submit("web", queue="slow"))
    place.ask("cancel", web)
    for args, units in {
        ("--task", "mail"): [mail],
        ("--queue", "slow"): [web, web],
        ("--state", "cancelled"): [web],
        ("--trigger", "submit", "--lifecycle", "job"): [mail, web],
        ("--correlation", "order-7"): [mail],
        ("--by", "ann"): [web],
        ("--job", mail): [mail],
        ("--run", web): [web, web],
        ("--tenant", "2"): [],
    }.items():
        assert [event["unit"] for event in lines(place.ask("events", "--jsonl", *args).out)] == units, args


def test_following_tells_what_there_is_and_ends_with_its_time_or_its_limit(place: Place) -> None:
    jobs = [format_id("job", place.world.submit()) for _ in range(2)]
    followed = place.ask("events", "--follow", "--jsonl", "--for", "1ms")
    assert (followed.code, [event["unit"] for event in lines(followed.out)]) == (0, jobs)
    assert len(place.ask("events", "--follow", "--limit", 2).rows) == 2


def test_one_job_is_followed_until_it_has_ended(place: Place) -> None:
    job = format_id("job", place.world.submit())
    place.ask("cancel", job)
    events = place.ask("events", job, "--json").json["events"]
    assert lines(place.ask("events", job, "--follow", "--jsonl").out) == events
    assert lines(place.ask("events", job, "--jsonl", "--after", 1).out) == events[1:]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--after", "x"), "'x' is no cursor; allowed is the cursor of an event or of a page, or 'now'"),
        (("--after", "0" * 12 + ".1.1"), "this cursor is of another database"),
        (("--state", "nowhere"), "there is no state 'nowhere'; there are "),
        (("--trigger", "fly"), "there is no trigger 'fly'; there are "),
        (("--lifecycle", "jobs"), "there is no lifecycle 'jobs'; there are "),
        (("--run", "job_zz"), "no job, run or step 'job_zz'"),
        (("--shape", "002"), "--shape is of one job: give its id"),
        (("--for", "1s"), "--for is for --follow"),
        (("--follow", "--for", "ever"), "--for: 'ever' is not a duration"),
        (("ID", "--task", "mail"), "--task is for the events of everything: leave the id out"),
        (("ID", "--by", "ann"), "--by is for the events of everything"),
        (("ID", "--after", "x"), "--after 'x' is not allowed; of one job it is a version"),
        (("ID", "--shape", "002", "--follow"), "leave --follow and --jsonl out"),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_allowed(place: Place, args: tuple[str, ...], text: str) -> None:
    job = format_id("job", place.world.submit())
    done = place.ask("events", *(job if arg == "ID" else arg for arg in args))
    assert (done.code, done.out) == (2, "")
    assert text in done.err
