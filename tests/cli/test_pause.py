"""`interlock pause`, `unpause` and `pauses` as an operator runs them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from interlock.client.pauses import parse_until
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from tests.cli.places import Place

NOON = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def us(*when: int) -> int:
    return round(datetime(*when, tzinfo=UTC).timestamp()) * 1_000_000  # type: ignore[arg-type]


def take(place: Place) -> list[int]:
    worker = place.world.worker("w", incarnation=str(place.world.claims))
    return [grant.unit for grant in place.world.claim(worker, 10)]


def test_a_queue_is_paused_and_unpaused(place: Place) -> None:
    job = place.world.submit()
    said = place.ask("pause", "--queue", "default", "--reason", "the provider is down")
    assert (said.code, said.out) == (0, "queue default is paused\n")
    again = place.ask("pause", "--queue", "default", "--reason", "the provider is down")
    assert again.out == "queue default is paused; it was so before\n"
    assert take(place) == []
    why = place.ask("why", format_id("job", job))
    assert "waits: queue 'default' is paused by ann at " in why.out
    assert why.out.splitlines()[0].endswith(": the provider is down")
    (row,) = place.ask("pauses").rows
    assert row[:3] == ["queue", "default", "ann"]
    assert row[-1] == "the provider is down"
    assert place.ask("unpause", "--queue", "default").out == "queue default is not paused\n"
    assert place.ask("unpause", "--queue", "default").out == "queue default is not paused; it was so before\n"
    assert take(place) == [job]
    assert place.ask("pauses").out == "nothing is paused\n"
    (ended,) = place.ask("pauses", "--all", "--json").json["pauses"]
    assert (ended["kind"], ended["name"], ended["ended_by"]) == ("queue", "default", "ann")


def test_a_run_is_paused_by_its_id(place: Place) -> None:
    work = (Work(task="deploy", lifecycle="workflow_run", ref="r"), Work(task="a", lifecycle="step", parent="r"))
    run, step = [made.unit for made in place.world.send(Submit(work=work))]
    name = format_id("workflow_run", run)
    told = place.ask("pause", name, "--json", "--actor", "bob").json
    assert (told["name"], told["paused"], told["changed"], told["by"]) == (name, True, True, "bob")
    assert take(place) == []
    assert place.ask("pauses", "--json").json["pauses"][0]["name"] == name
    assert place.ask("unpause", name).out == f"{name} is not paused\n"
    assert take(place) == [step]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which one? Give the ID of a job or run, or --queue NAME, or --task NAME: one of them"),
        (("--queue", "a", "--task", "b"), "one of them"),
        (("job_zzz",), "no job, run or step 'job_zzz'"),
        (("--queue", "a", "--until", "noon"), "until = 'noon' is not allowed; a time of day as in 18:00, a time as in"),
        (("--queue", "a", "--until", "2026-13-01"), "until = '2026-13-01' is not allowed"),
        (("--queue", "a", "--until", "2001-01-01"), "it must be a time to come"),
        (("--queue", "a", "--until", "0s"), "for_us = 0 is not allowed"),
        (("--queue", ""), "queue = '' is not allowed"),
    ],
)
def test_a_wrong_pause_says_what_is_allowed(place: Place, words: tuple[str, ...], said: str) -> None:
    done = place.ask("pause", *words)
    assert done.code == 2
    assert said in done.err
    assert place.world.count("pause") == 0


def test_until_is_a_length_a_time_of_day_or_a_time() -> None:
    berlin = timezone(timedelta(hours=2))
    assert parse_until("2h") == {"for_us": 7_200_000_000}
    assert parse_until(90) == {"for_us": 90_000_000}
    assert parse_until(timedelta(days=1)) == {"for_us": 86_400_000_000}
    assert parse_until("18:00", UTC, NOON) == {"until": us(2026, 6, 1, 18)}
    assert parse_until("9:30", UTC, NOON) == {"until": us(2026, 6, 2, 9, 30)}, "it is past today"
    assert parse_until("18:00", berlin, NOON) == {"until": us(2026, 6, 1, 16)}
    assert parse_until("2026-06-01T18:00", berlin) == {"until": us(2026, 6, 1, 16)}
    assert parse_until("2026-06-01T18:00Z", berlin) == {"until": us(2026, 6, 1, 18)}
    assert parse_until(datetime(2026, 6, 1, 18, tzinfo=berlin)) == {"until": us(2026, 6, 1, 16)}
    assert parse_until(None) == {}
    for wrong in ("24:00", "18:60", "soon", "", "-5s", "9999999999999999999h"):
        with pytest.raises(InterlockError, match=r"until = .* is not allowed"):
            parse_until(wrong)
