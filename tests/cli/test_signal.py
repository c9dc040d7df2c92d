"""A signal by the command line reaches whoever waits for it, or will."""

from interlock.kernel.commands import LeaseRef, Release, Submit, Work
from interlock.kernel.ids import format_id
from tests.cli.places import Place


def test_a_signal_wakes_what_waits_for_it_and_the_first_one_stays(place: Place) -> None:
    world = place.world
    job = world.send(Submit(work=(Work(task="pay"),)))[0].unit
    (grant,) = world.claim(world.worker())
    world.start(grant)
    lease = LeaseRef(unit=job, fence=grant.fence, lease=grant.lease)
    world.send(Release(held=(lease,), signal="paid"))
    name = format_id("job", job)
    assert place.ask("show", name, "--json").json["tree"][0]["waits_for"] == "the signal 'paid'"
    assert place.ask("signal", name, "other").out == f"{name} has the signal 'other'; it is queued\n"
    assert world.claim(world.worker()) == []
    done = place.ask("signal", name, "paid", '{"sum": 12}', "--json")
    assert (done.code, done.json) == (0, {"id": name, "name": "paid", "state": "queued", "applied": True})
    again = place.ask("signal", name, "paid", "7")
    assert (again.code, again.out) == (
        0,
        f"{name} had the signal 'paid' before, and the first one counts; it is queued\n",
    )
    (grant,) = world.claim(world.worker())
    assert dict(grant.signals) == {"other": "null", "paid": '{"sum": 12}'}


def test_what_is_no_json_is_refused(place: Place) -> None:
    job = format_id("job", place.world.submit())
    done = place.ask("signal", job, "paid", "{sum")
    assert done.code == 2
    assert done.err.startswith("the data of the signal is not JSON")
