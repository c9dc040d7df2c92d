"""`interlock run-now` as an operator runs it."""

from interlock.kernel.ids import format_id
from tests.cli.places import Place

YEAR_US = 366 * 86_400_000_000


def test_a_delayed_job_is_run_now_once(place: Place) -> None:
    job = place.world.submit(delay_us=20 * YEAR_US)  # the story's clock stands in 2023
    name = format_id("job", job)
    assert "is delayed" in place.ask("why", name).out
    answer = place.ask("run-now", name, "--reason", "urgent", "--actor", "bob")
    assert (answer.code, answer.out) == (0, f"{name} no longer waits for its time; it is queued\n")
    again = place.ask("run-now", name, "--json").json
    assert again == {"unit": name, "state": "queued", "version": place.world.unit(job).version, "applied": False}
    assert "is delayed" not in place.ask("why", name).out
    assert [grant.unit for grant in place.world.claim(place.world.worker("w"))] == [job]
    refused = place.ask("run-now", format_id("job", place.world.submit()))
    assert (refused.code, refused.out) == (2, "")
    assert "is queued and does not wait for its time; allowed for what is delayed" in refused.err
    assert place.ask("run-now", "job_zzz").code == 2
