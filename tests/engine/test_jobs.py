"""The stories of a job: one a verb and refusal."""

from itertools import pairwise

import msgspec
import pytest

from interlock.kernel.commands import Drain, Submit, Work
from interlock.kernel.errors import InterlockError, Refused, Unknown
from tests.engine.tamper import acts_of
from tests.engine.world import World


def test_a_job_from_submit_to_success(world: World) -> None:
    job = world.submit(input='{"to": "a@b.c"}')
    worker = world.worker()
    (grant,) = world.claim(worker)
    assert (grant.unit, grant.task, grant.input, grant.attempt, grant.fence) == (job, "mail", '{"to": "a@b.c"}', 1, 1)
    assert world.unit(job).started_at is None
    assert world.start(grant).accepted
    assert world.finish(grant, result='"sent"').accepted
    assert world.path(job) == ["queued", "assigned", "running", "succeeded"]
    assert world.names(job) == ["job_queued", "job_claimed", "job_started", "job_succeeded"]
    unit = world.unit(job)
    assert (unit.version, unit.outcome, unit.lease, unit.holder) == (4, "success", "COMPLETED", None)
    assert (unit.available_at, unit.wake_at) == (None, None)


@pytest.mark.parametrize("result", ["done", "{", "", "[1, 2", "NaN"])
def test_a_result_that_is_no_json_is_refused_and_the_job_can_still_be_finished(world: World, result: str) -> None:
    world.submit(task="mail")
    (grant,) = world.claim(world.worker())
    world.start(grant)
    with pytest.raises(
        InterlockError, match=r"result is not JSON: .*; a result is JSON text, so the text done is sent"
    ):
        world.finish(grant, result=result)
    assert world.finish(grant, result='"done"').accepted
    assert world.body(grant.unit).result == '"done"'


def test_the_history_is_a_chain(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant)
    events = world.events(job)
    assert [event.version for event in events] == [1, 2, 3, 4]
    assert all(after.source == before.target for before, after in pairwise(events))
    acts = acts_of(world.connection, job)
    assert [act.digest for act in acts] == [event.hash for event in events]
    assert [act.before for act in acts] == [[0], *([act.id] for act in acts[:-1])]
    assert (world.unit(job).born, world.unit(job).act) == (acts[0].id, acts[-1].id)


def test_nothing_is_claimed_twice(world: World) -> None:
    world.submit()
    one, two = world.worker("one"), world.worker("two")
    assert len(world.claim(one)) == 1
    assert world.claim(two) == []


def test_the_most_urgent_comes_first_then_the_oldest(world: World) -> None:
    slow = world.submit(priority=1)
    world.pass_time(1)
    old, _ = world.submit(priority=5), world.pass_time(1)
    new = world.submit(priority=5)
    assert [grant.unit for grant in world.claim(world.worker(), limit=9)] == [old, new, slow]


def test_a_worker_gets_only_what_it_can_do(world: World) -> None:
    job = world.submit(capabilities=("gpu", "linux"))
    assert world.claim(world.worker("plain")) == []
    assert world.claim(world.worker("some", capabilities=("gpu",))) == []
    (grant,) = world.claim(world.worker("able", capabilities=("linux", "gpu", "ssd")))
    assert grant.unit == job


def test_a_worker_holds_no_more_than_its_capacity(world: World) -> None:
    for _ in range(5):
        world.submit()
    worker = world.worker(capacity=2)
    first = world.claim(worker, limit=5)
    assert len(first) == 2
    assert world.claim(worker, limit=5) == []
    world.start(first[0])
    world.finish(first[0])
    assert len(world.claim(worker, limit=5)) == 1


def test_a_delayed_job_is_visible_and_not_available(world: World) -> None:
    job = world.submit(delay_us=10_000_000)
    worker = world.worker()
    assert world.claim(worker) == []
    assert (world.unit(job).state, world.unit(job).available_at) == ("queued", None)
    world.pass_time(10)
    assert [grant.unit for grant in world.claim(worker)] == [job]


def test_the_same_claim_again_gets_the_same_lease(world: World) -> None:
    world.submit()
    world.submit()
    worker = world.worker()
    first = world.claim(worker, key="k", nonce="n" * 16)
    assert world.claim(worker, key="k", nonce="n" * 16) == first
    world.start(first[0])
    world.finish(first[0])
    assert world.claim(worker, key="k", nonce="n" * 16) == []


def test_a_lease_that_is_not_renewed_is_over_and_its_word_is_stale(world: World) -> None:
    job = world.submit()
    one, two = world.worker("one"), world.worker("two")
    (grant,) = world.claim(one)
    world.start(grant)
    world.pass_time(39.9)
    assert world.claim(two) == []
    world.pass_time(0.1)  # two missed beats of twenty seconds end it before its minute
    late = world.finish(grant)
    assert (late.accepted, late.why) == (False, "LEASE_EXPIRED")
    (again,) = world.claim(two)
    assert (again.unit, again.attempt, again.fence) == (job, 2, 2)
    stale = world.finish(grant)
    assert (stale.accepted, stale.why) == (False, "LEASE_SUPERSEDED")
    assert world.path(job) == ["queued", "assigned", "running", "queued", "assigned"]
    assert world.unit(job).losses == 1


def test_a_beat_renews_and_starts(world: World) -> None:
    job = world.submit()
    worker = world.worker()
    (grant,) = world.claim(worker)
    for _ in range(5):
        world.pass_time(30)
        heard = world.beat(grant, running=False)
        assert heard.accepted
    assert world.unit(job).state == "assigned"
    assert world.beat(grant).state == "running"


def test_somebody_elses_secret_is_refused(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    forged = msgspec.structs.replace(grant, lease="0" * 64)
    before = world.unit(job)
    heard = world.start(forged)
    assert (heard.accepted, heard.why) == (False, "UNKNOWN_LEASE")
    assert world.unit(job) == before


def test_a_retryable_failure_waits_and_tries_again(world: World) -> None:
    job = world.submit()
    worker = world.worker()
    (grant,) = world.claim(worker)
    world.start(grant)
    world.finish(grant, ended="failure", error="no route")
    unit = world.unit(job)
    assert (unit.state, unit.attempt, unit.failures, unit.available_at) == ("queued", 2, 1, None)
    wait_us = (unit.due_at or 0) - world.now_us
    assert 500_000 <= wait_us <= 1_500_000
    assert world.claim(worker) == []
    world.pass_time(1.5)
    assert world.claim(worker)[0].attempt == 2


def test_exhaustion_is_a_dead_letter_with_its_six_fields(world: World) -> None:
    job = world.submit(attempts=2, correlation="c-1")
    worker = world.worker()
    for _ in range(2):
        world.pass_time(60)
        (grant,) = world.claim(worker)
        world.start(grant)
        world.finish(grant, ended="failure", error="no route", stage="fetch")
    assert world.unit(job).state == "dead_lettered"
    letter = msgspec.json.decode(world.events(job)[-1].payload)
    assert letter["reason_code"] == "exhausted_retries"
    assert (letter["last_error"], letter["attempts"], letter["stage"]) == ("no route", 2, "fetch")
    assert (letter["last_owner"], letter["correlation_id"]) == ("w", "c-1")
    assert letter["last_lease_expires_at"] == grant.until
    assert world.claim(worker) == []


def test_exhaustion_may_fail_instead(world: World) -> None:
    job = world.submit(attempts=1, exhausted="fail")
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant, ended="failure")
    assert world.unit(job).state == "failed"


def test_a_failure_for_good_is_not_tried_again(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant, ended="failure", error_class="PermanentError")
    assert world.unit(job).state == "failed"


def test_lost_leases_use_up_the_attempts(world: World) -> None:
    job = world.submit(attempts=2)
    worker = world.worker()
    for _ in range(2):
        world.claim(worker)
        world.pass_time(60)
    assert world.tick() == 1
    assert world.unit(job).state == "dead_lettered"


def test_a_released_job_costs_no_attempt(world: World) -> None:
    job = world.submit(attempts=1)
    worker = world.worker()
    (grant,) = world.claim(worker)
    assert world.release(grant).accepted
    unit = world.unit(job)
    assert (unit.state, unit.attempt, unit.failures, unit.losses) == ("queued", 2, 0, 0)
    (again,) = world.claim(worker)
    world.start(again)
    assert world.release(again, snooze_us=5_000_000).accepted
    assert world.claim(worker) == []
    world.pass_time(5)
    assert len(world.claim(worker)) == 1


def test_a_waiting_job_is_cancelled_at_once(world: World) -> None:
    job = world.submit()
    assert world.cancel(job).applied
    assert world.unit(job).state == "cancelled"
    assert world.cancel(job).applied is False
    assert world.claim(world.worker()) == []


def test_a_soft_cancel_tells_the_holder(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    assert world.finish(grant, ended="cancelled").accepted is False  # nobody asked yet
    assert world.cancel(job).state == "running"
    assert world.cancel(job).applied is False
    assert world.beat(grant).cancel
    assert world.finish(grant, ended="cancelled").accepted
    assert (world.unit(job).state, world.unit(job).lease) == ("cancelled", "CANCELED")


def test_a_soft_cancel_may_still_succeed(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.cancel(job)
    assert world.finish(grant).state == "succeeded"


def test_a_soft_cancel_becomes_hard_at_its_deadline(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.cancel(job)
    world.pass_time(30)
    world.tick()
    assert (world.unit(job).state, world.unit(job).lease) == ("cancelled", "REVOKED")
    assert world.finish(grant).why == "LEASE_REVOKED"


def test_a_hard_cancel_waits_for_nobody(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    assert world.cancel(job, hard=True).state == "cancelled"
    assert world.finish(grant).accepted is False
    assert world.unit(job).state == "cancelled"


def test_what_has_ended_is_not_cancelled(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant)
    with pytest.raises(Refused):
        world.cancel(job)
    assert world.unit(job).version == 4


def test_a_job_that_runs_too_long_is_tried_again_and_then_buried(world: World) -> None:
    job = world.submit(timeout_us=5_000_000, attempts=2)
    worker = world.worker()
    for _ in range(2):
        world.pass_time(60)
        (grant,) = world.claim(worker)
        world.start(grant)
        world.pass_time(5)
        world.tick()
    assert world.path(job)[-3:] == ["assigned", "running", "dead_lettered"]
    assert msgspec.json.decode(world.events(job)[-1].payload)["reason_code"] == "timeout"


def test_a_key_makes_one_unit(world: World) -> None:
    job = world.submit(key="welcome-42", input="1")
    assert world.submit(key="welcome-42", input="1") == job
    assert world.submit("other", key="welcome-42", input="1") != job
    with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT"):
        world.submit(key="welcome-42", input="2")


def test_a_key_twice_in_one_command_makes_one_unit(world: World) -> None:
    work = Work(task="mail", key="k")
    one, two = world.send(Submit(work=(work, work)))
    assert (one.unit, one.created, two.created) == (two.unit, True, False)


def test_a_submit_that_cannot_be_made_whole_makes_nothing(world: World) -> None:
    with pytest.raises(Unknown, match="there is no lifecycle 'jobs'; there are"):
        world.send(Submit(work=(Work(task="a"), Work(task="b", lifecycle="jobs"))))
    with pytest.raises(InterlockError, match="at least 1"):
        world.submit(attempts=0)
    assert world.claim(world.worker(), limit=9) == []


def test_an_unknown_unit_is_said_to_be_unknown(world: World) -> None:
    with pytest.raises(Unknown, match="no job, run or step 999"):
        world.cancel(999)


def test_a_worker_is_busy_while_it_holds_something(world: World) -> None:
    world.submit()
    worker = world.worker()
    assert world.unit(worker).state == "idle"
    (grant,) = world.claim(worker)
    assert world.unit(worker).state == "busy"
    world.start(grant)
    world.finish(grant)
    assert world.unit(worker).state == "idle"
    assert world.path(worker) == ["initializing", "idle", "busy", "idle"]


def test_a_drained_worker_ends_with_its_last_unit(world: World) -> None:
    world.submit()
    world.submit()
    worker = world.worker()
    (grant,) = world.claim(worker)
    assert world.send(Drain(worker=worker)).state == "busy"
    assert world.claim(worker) == []
    world.start(grant)
    world.finish(grant)
    assert world.unit(worker).state == "shutdown"


@pytest.mark.parametrize("waiting", [0, 1])
def test_a_worker_that_has_shut_down_is_told_to_register_again(waiting: int, world: World) -> None:
    worker = world.worker("ann")
    world.pass_time(180)  # silent for too long
    world.tick()
    for _ in range(waiting):
        world.submit()
    with pytest.raises(InterlockError, match="worker ann has shut down; it may register again as a new incarnation"):
        world.claim(worker)
    assert len(world.claim(world.worker("ann", incarnation="2"))) == waiting


def test_other_tenants_see_nothing(world: World) -> None:
    job = world.submit()
    (other,) = world.send(Submit(tenant=2, work=(Work(task="mail"),)))
    assert [grant.unit for grant in world.claim(world.worker(), limit=9)] == [job]
    assert other.unit != job
