"""Tracebacks on the command line: shown with the attempt that they are of, and not once the job has succeeded."""

from typing import Any

from interlock.kernel.ids import format_id
from tests.cli.places import Place

TEXT = 'Traceback (most recent call last):\n  File "mail.py", line 7, in mail\nOSError: no such host'


def attempt(place: Place, *, ended: str = "failure", **facts: Any) -> int:
    (grant,) = place.world.claim(place.world.worker("w"))
    place.world.start(grant)
    if ended == "failure":
        facts = {"error": "OSError: no such host", "traceback": TEXT, **facts}
    place.world.finish(grant, ended=ended, **facts)
    return grant.unit


def test_show_and_why_have_the_traceback_of_each_failed_attempt(place: Place) -> None:
    job = format_id("job", place.world.submit("mail", backoff_us=1_000_000))
    attempt(place)
    place.world.pass_time(60)
    attempt(place, traceback=TEXT.replace("line 7", "line 9"))
    out = place.ask("show", job).out
    assert out.index("TRACEBACK of attempt 1") < out.index("line 7") < out.index("TRACEBACK of attempt 2")
    assert "line 9" in out
    told = place.ask("show", job, "--json").json
    assert [(one["attempt"], one["text"]) for one in told["tracebacks"]] == [
        (1, TEXT), (2, TEXT.replace("line 7", "line 9")),
    ]  # fmt: skip
    assert [note["kind"] for note in told["notes"]] == []
    assert "line 9, in mail" in place.ask("why", job).out
    assert place.ask("why", job, "--json").json["traceback"] == TEXT.replace("line 7", "line 9")


def test_dead_show_has_the_traceback(place: Place) -> None:
    place.world.submit("mail", attempts=1)
    job = format_id("job", attempt(place))
    out = place.ask("dead", "show", job).out
    assert TEXT in out
    assert place.ask("dead", "show", job, "--json").json["tracebacks"][0]["text"] == TEXT


def test_a_terminal_obeys_no_traceback(place: Place) -> None:
    place.world.submit("mail", attempts=1)
    job = format_id("job", attempt(place, traceback="Traceback\x1b[2J: gone"))
    for verb in (("show",), ("why",), ("dead", "show")):
        out = place.ask(*verb, job).out
        assert "\x1b" not in out
        assert "[2J: gone" in out


def test_a_job_that_has_succeeded_shows_no_old_error(place: Place) -> None:
    job = format_id("job", place.world.submit("mail", backoff_us=1_000_000))
    attempt(place)
    place.world.pass_time(60)
    attempt(place, ended="success", result='"sent"')
    assert "no such host" not in place.ask("show", job).out
    assert place.ask("show", job, "--json").json["error"] is None
    assert place.ask("list", "--json").json["units"][0]["error"] is None


def test_the_events_of_a_cancel_say_who_asked_and_why(place: Place) -> None:
    job = format_id("job", place.world.submit("mail"))
    (grant,) = place.world.claim(place.world.worker("w"))
    place.world.start(grant)
    assert place.ask("cancel", job, "--reason", "too dear", "--actor", "bob").code == 0
    place.world.finish(grant, ended="cancelled")
    last = place.ask("events", job, "--json").json["events"][-1]
    assert (last["payload"]["asked"]["by"], last["payload"]["asked"]["reason"]) == ("bob", "too dear")
    assert "bob: too dear" in " ".join(place.ask("events", job).out.split("\n"))
    assert "asked to stop by bob" in place.ask("why", job).out
