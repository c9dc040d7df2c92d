"""The words of documents 001 and 002 at the command line."""

import pytest

from interlock.kernel.commands import DefineTemplate, Work
from interlock.kernel.ids import format_id
from tests.cli.places import Place

NINE = ["id", "job_id", "type", "ts", "actor", "correlation_id", "cause", "payload", "version"]


def worked(place: Place, task: str = "mail", times: int = 1, seconds: float = 4) -> int:
    """The last of some jobs of a task, each of which waited two seconds and ran for some."""
    world = place.world
    for _ in range(times):
        job = world.submit(task, correlation="order-7")
        worker = world.worker(f"w{job}")
        world.pass_time(2)
        (grant,) = world.claim(worker)
        world.start(grant)
        for part in [10] * int(seconds // 10) + [seconds % 10]:
            world.pass_time(part)
            world.beat(grant)
        world.finish(grant, result='{"sent": true}', cost=0.5)
    return job


@pytest.mark.req("R2-35", "R2-36")
def test_events_in_the_shape_of_document_002(place: Place) -> None:
    job = worked(place)
    found = place.ask("events", job, "--shape", "002", "--json").json["events"]
    kinds = ["job_queued", "job_claimed", "job_started", "job_succeeded", "job_heartbeat", "job_lease_renewed"]
    assert [one["type"] for one in found] == kinds
    assert all(list(one) == NINE for one in found)
    assert {(one["job_id"], one["correlation_id"]) for one in found} == {(format_id("job", job), "order-7")}
    assert [row[1] for row in place.ask("events", job, "--shape", "002").rows] == kinds


def test_a_shape_that_there_is_not_is_refused(place: Place) -> None:
    job = worked(place)
    step = place.world.submit("build", lifecycle="step")
    for args, text in (
        ((job, "--shape", "003"), "there is no shape '003'; there are 002"),
        ((job, "--shape", "002", "--after", 2), "leave it out"),
        ((step, "--shape", "002"), "document 002's shape is of jobs"),
    ):
        done = place.ask("events", *args)
        assert (done.code, done.out) == (2, "")
        assert text in done.err


def test_show_and_list_tell_the_words(place: Place) -> None:
    job = worked(place)
    seen = place.ask("show", job, "--json").json
    assert (seen["status"], seen["attempts"], seen["output"]) == ("succeeded", 1, {"sent": True})
    assert (seen["total_cost"], seen["correlation_id"], seen["waiting_on"]) == (0.5, "order-7", [])
    (one,) = place.ask("list", "--json").json["units"]
    assert (one["status"], one["attempts"], one["next_run_at"]) == ("succeeded", 1, None)
    fields = [row[0] for row in place.ask("show", job).rows]
    assert "status" not in fields  # a person reads it once
    new = place.ask("show", place.world.submit(), "--json").json
    assert (new["attempts"], new["next_run_at"]) == (0, new["available_at"])


def test_a_run_says_what_it_waits_on_and_its_terms(place: Place) -> None:
    steps = (Work(task="sign", lifecycle="approval", ref="sign"), Work(task="ship", lifecycle="step", ref="ship"))
    place.world.send(DefineTemplate(name="release", steps=steps))
    hook = "https://ci.example/hook"
    run = place.ask("run", "release", "--reclaim-after", "5m", "--webhook-url", hook, "--json").json["id"]
    seen = place.ask("show", run, "--json").json
    gate = next(one["id"] for one in seen["children"] if one["task"] == "sign")
    assert (seen["waiting_on"], seen["reclaim_after"], seen["webhook_url"]) == ([gate], 300.0, hook)
    wrong = place.ask("run", "release", "--webhook-url", "mailto:a@b.c")
    assert (wrong.code, "allowed is http://host/" in wrong.err) == (2, True)


@pytest.mark.req("R2-34")
def test_a_dead_letter_has_its_six_fields(place: Place) -> None:
    place.dead(correlation="order-9")
    (letter,) = place.ask("dead", "list", "--json").json["dead"]
    six = ("reason_code", "last_error", "attempts", "last_owner", "last_lease_expires_at", "correlation_id")
    assert all(letter[name] is not None for name in six)
    assert (letter["attempts"], letter["correlation_id"]) == (1, "order-9")


@pytest.mark.req("R2-42")
def test_stats_tell_p50_and_p95_of_each_type(place: Place) -> None:
    worked(place, "mail", 9)
    worked(place, "mail", 1, seconds=59)
    worked(place, "scan", 1, seconds=0.02)
    place.dead("burn")
    told = place.ask("stats", "--json").json
    types = {one["type"]: one for one in told["types"]}
    assert sorted(types) == ["burn", "mail", "scan"]
    assert (types["mail"]["claims"], types["mail"]["queue"]["count"], types["mail"]["run"]["count"]) == (10, 10, 10)
    assert 1 < types["mail"]["queue"]["p50"] <= types["mail"]["queue"]["p95"] <= 2.5
    assert 2.5 < types["mail"]["run"]["p50"] <= 5 < 30 < types["mail"]["run"]["p95"] <= 60
    assert 0.01 < types["scan"]["run"]["p50"] <= 0.025
    assert (types["burn"]["failures"], types["burn"]["dead_lettered"]) == (1, 1)
    assert (told["claims"], told["lease_renewals"], told["DLQ_count"], told["behind"]) == (12, 16, 1, False)
    assert {(one["state"], one["units"]) for one in told["states"]} == {("succeeded", 11), ("dead_lettered", 1)}
    again = place.ask("stats", "--json").json
    assert again["claims"] == 12  # nothing is counted twice
    rows = {row[0]: row for row in place.ask("stats").rows}
    assert rows["mail"][1:6] == ["10", "0", "0", "0", "0"]
    assert rows["burn"][-1].endswith("ms")


def test_stats_of_nothing_are_empty(place: Place) -> None:
    told = place.ask("stats", "--json").json
    assert (told["types"], told["states"], told["queues"], told["claims"]) == ([], [], [], 0)
