"""What the fast path takes, what it leaves to the verbs, and that it refuses as they do."""

from typing import Any

import pytest

from interlock.core import fast_path
from interlock.kernel.commands import (
    Cancel,
    Claim,
    Finish,
    LeaseGrant,
    LeaseRef,
    LeaseStatus,
    Outcome,
    Record,
    SetTenant,
    Start,
    Submit,
    Work,
)
from interlock.kernel.errors import LimitReached
from interlock.plugins import STANDARD
from tests.engine.world import World, held


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The units of each act that the fast path writes."""
    acts_of: list[list[int]] = []
    write = fast_path.write_acts

    def remember(tx: Any, acts: Any) -> None:
        acts_of.extend(list(act.units) for act in acts)
        write(tx, acts)

    monkeypatch.setattr(fast_path, "write_acts", remember)
    return acts_of


def claim_jobs(world: World, count: int, **work: Any) -> list[LeaseGrant]:
    """So many jobs, claimed at once by a worker that holds another one besides."""
    worker = world.worker()
    world.send(Submit(work=tuple(Work(task="mail", **work) for _ in range(count))))
    return world.claim(worker, count)


def report(world: World, grants: list[LeaseGrant], **outcome: Any) -> list[LeaseStatus]:
    """Starts and ends in one group, as a worker sends them."""
    refs = tuple(held(grant) for grant in grants)
    committer = world.engine.committer
    futures = [
        committer.put(Start(held=refs, actor="w")),
        committer.put(Finish(outcomes=tuple(Outcome(held=ref, **outcome) for ref in refs), actor="w")),
    ]
    while committer.step():
        pass
    statuses: list[LeaseStatus] = futures[1].result()  # type: ignore[assignment]
    return statuses


def test_plain_jobs_are_granted_and_finished_by_one_act_each(world: World, moved: list[list[int]]) -> None:
    grants = claim_jobs(world, 5)
    units = [grant.unit for grant in grants]
    assert moved == [units]
    assert [(status.accepted, status.state) for status in report(world, grants)] == [(True, "succeeded")] * 5
    assert moved == [units, units]
    assert [event.target for event in world.events(units[0])] == ["queued", "assigned", "running", "succeeded"]
    assert world.unit(units[0]).holder is None


def test_a_result_is_kept_and_bound_by_its_act(world: World, moved: list[list[int]]) -> None:
    grants = claim_jobs(world, 2)
    report(world, grants, result='{"sent": true}')
    assert len(moved) == 2
    assert [world.body(grant.unit).result for grant in grants] == ['{"sent": true}'] * 2


def test_what_does_not_fit_is_left_to_the_verb_in_the_same_report(world: World, moved: list[list[int]]) -> None:
    """One job whose cancel was asked for does not send the others the slow way."""
    grants = claim_jobs(world, 4)
    world.start(grants[0])
    assert world.send(Cancel(unit=grants[0].unit, actor="ann", reason="stop")).applied
    statuses = report(world, grants)
    assert [status.accepted for status in statuses] == [True] * 4
    assert moved[1:] == [[grants[0].unit], [grant.unit for grant in grants[1:]]]  # a start alone, and the others' ends


def test_starts_that_come_alone_are_one_act(world: World, moved: list[list[int]]) -> None:
    """Their leases last anew, and those that may not run for long have a clock."""
    grants = [*claim_jobs(world, 2, timeout_us=9_000_000), *claim_jobs(world, 2)]
    world.pass_time(5)
    statuses = world.send(Start(held=tuple(held(grant) for grant in grants), actor="w"))
    assert [(status.accepted, status.state) for status in statuses] == [(True, "running")] * 4
    assert [status.until - grant.until for status, grant in zip(statuses, grants, strict=True)] == [5_000_000] * 4
    assert moved[2:] == [[grant.unit for grant in grants]]
    units = [world.unit(grant.unit) for grant in grants]
    assert [unit.started_at == unit.changed_at for unit in units] == [True] * 4
    deadlines = [unit.deadline_at and unit.deadline_at - unit.changed_at for unit in units]
    assert deadlines == [9_000_000, 9_000_000, None, None]
    assert [unit.wake_at for unit in units] == [unit.deadline_at for unit in units]
    assert [unit.lease_until for unit in units] == [status.until for status in statuses]
    again = world.send(Start(held=tuple(held(grant) for grant in grants), actor="w"))
    assert [(status.accepted, status.state) for status in again] == [(True, "running")] * 4
    assert len(moved) == 3


def test_the_first_step_of_a_job_leaves_it_to_the_next_ones(world: World) -> None:
    """A start on the fast path caches nothing, so its unit would be read again with each step."""
    (grant,) = claim_jobs(world, 1)
    world.start(grant)
    cached = world.engine.committer.cache.held
    assert cached is not None
    assert grant.unit not in cached.units
    world.send(Record(held=(held(grant),), kind="step", name="first", payload="1"))
    assert grant.unit in cached.units
    (status,) = world.send(Record(held=(held(grant),), kind="step", name="second", payload="2"))
    assert status.accepted
    assert report(world, [grant])[0].accepted
    assert grant.unit not in cached.units


def test_a_start_with_a_wrong_secret_or_fence_is_refused(world: World, moved: list[list[int]]) -> None:
    (grant,) = claim_jobs(world, 1)
    for ref in (LeaseRef(grant.unit, grant.fence, "guessed"), LeaseRef(grant.unit, grant.fence + 1, grant.lease)):
        (status,) = world.send(Start(held=(ref,)))
        assert not status.accepted
    assert len(moved) == 1
    assert world.unit(grant.unit).state == "assigned"


def test_a_wrong_secret_ends_nothing(world: World, moved: list[list[int]]) -> None:
    (grant,) = claim_jobs(world, 1)
    ref = LeaseRef(unit=grant.unit, fence=grant.fence, lease="guessed")
    (status,) = world.send(Finish(outcomes=(Outcome(held=ref),)))
    assert (status.accepted, status.why) == (False, "UNKNOWN_LEASE")
    world.start(grant)
    (status,) = world.send(Finish(outcomes=(Outcome(held=ref),)))
    assert (status.accepted, status.why) == (False, "UNKNOWN_LEASE")
    assert len(moved) == 2


def test_an_older_fence_ends_nothing(world: World, moved: list[list[int]]) -> None:
    (grant,) = claim_jobs(world, 1)
    ref = LeaseRef(unit=grant.unit, fence=grant.fence + 1, lease=grant.lease)
    (status,) = world.send(Finish(outcomes=(Outcome(held=ref),)))
    assert not status.accepted
    assert len(moved) == 1


def test_a_start_that_names_an_older_fence_beside_the_newer_one_is_refused_for_it(world: World) -> None:
    """In one report: what the newer lease may say is not an answer to the older one."""
    (grant,) = claim_jobs(world, 1)
    ref = held(grant)
    older = LeaseRef(unit=ref.unit, fence=ref.fence - 1, lease="older")
    committer = world.engine.committer
    futures = [
        committer.put(Start(held=(older, ref), actor="w")), committer.put(Finish(outcomes=(Outcome(held=ref),), actor="w")),
    ]  # fmt: skip
    while committer.step():
        pass
    assert [status.accepted for status in futures[0].result()] == [False, True]  # type: ignore[attr-defined]
    assert world.unit(grant.unit).state == "succeeded"


def test_the_end_of_a_lease_that_is_over_is_refused(world: World, moved: list[list[int]]) -> None:
    grants = claim_jobs(world, 1)
    world.pass_time(61)
    (status,) = report(world, grants)
    assert (status.accepted, status.why) == (False, "LEASE_EXPIRED")
    assert len(moved) == 1


def test_a_cancel_that_was_asked_for_is_recorded_with_the_success(world: World, moved: list[list[int]]) -> None:
    """The end goes the way of the verb, which clears the request."""
    (grant,) = claim_jobs(world, 1)
    world.start(grant)
    world.send(Cancel(unit=grant.unit, actor="ann", reason="stop"))
    (status,) = world.send(Finish(outcomes=(Outcome(held=held(grant)),)))
    assert status.accepted
    assert len(moved) == 2  # the grant and the start
    assert world.unit(grant.unit).asked_at is None


@pytest.mark.parametrize(
    "work", [{"mutex": "m"}, {"ttl_us": 90_000_000}, {"depends": ("stripe",)}, {"limit_key": "l", "limit": 3}]
)
def test_what_more_follows_from_is_not_plain(work: dict[str, Any], world: World, moved: list[list[int]]) -> None:
    worker = world.worker()
    unit = world.submit(**work)
    assert world.unit(unit).plain == 0
    assert [grant.unit for grant in world.claim(worker)] == [unit]
    assert moved == []


def test_a_job_that_another_one_needs_is_plain_no_more(world: World, moved: list[list[int]]) -> None:
    worker = world.worker()
    unit = world.submit()
    assert world.unit(unit).plain == 1
    after = world.submit(after=(unit,))
    assert world.unit(unit).plain == 0
    (grant,) = world.claim(worker)
    report(world, [grant])
    assert moved == []
    assert [grant.unit for grant in world.claim(worker)] == [after]


def test_a_job_that_is_given_a_need_while_it_is_held_is_plain_no_more(world: World, moved: list[list[int]]) -> None:
    """Whether it may go the fast way is asked under the lock, when it ends."""
    worker = world.worker()
    (grant,) = claim_jobs(world, 1)
    after = world.submit(after=(grant.unit,))
    report(world, [grant])
    assert len(moved) == 1
    assert [grant.unit for grant in world.claim(worker)] == [after]


def test_a_retried_job_is_granted_by_the_verb(world: World, moved: list[list[int]]) -> None:
    """Its holder is handed what earlier attempts have left."""
    (grant,) = claim_jobs(world, 1)
    world.start(grant)
    world.finish(grant, ended="failure", error="busy")
    world.pass_time(5)
    assert [again.attempt for again in world.claim(world.worker())] == [2]
    assert len(moved) == 2  # the first grant and its start


def test_the_most_urgent_of_all_lanes_are_granted(world: World, moved: list[list[int]]) -> None:
    """A worker that knows several tasks gets the most urgent of them, also where some are not plain."""
    worker = world.worker()
    made = world.send(
        Submit(
            work=(
                Work(task="a", priority=1), Work(task="b", priority=5), Work(task="c", priority=3, mutex="m"),
                Work(task="a", priority=4), Work(task="b", priority=2),
            )
        )
    )  # fmt: skip
    order = [made[1].unit, made[3].unit, made[2].unit, made[4].unit]
    grants = world.send(Claim(worker=worker, key="k", nonce="n" * 16, limit=4))
    assert [grant.unit for grant in grants] == order
    assert sorted(unit for act in moved for unit in act) == sorted((order[0], order[1], order[3]))


def test_a_claim_that_is_repeated_is_answered_with_the_same_leases(world: World, moved: list[list[int]]) -> None:
    worker = world.worker()
    world.send(Submit(work=tuple(Work(task="mail") for _ in range(3))))
    command = Claim(worker=worker, key="k", nonce="n" * 16, limit=2)
    first, second = world.send(command), world.send(command)
    assert [(grant.unit, grant.fence, grant.lease) for grant in first] == [
        (grant.unit, grant.fence, grant.lease) for grant in second
    ]
    assert len(moved) == 1


def test_no_plugin_of_ours_keeps_every_job_off_the_fast_path() -> None:
    """One that looks at grants or ends says at whose."""
    assert all(is_plain(Work(task="mail")) for is_plain in STANDARD.hooks.is_plain)


# Births.


def submit_all(world: World, *works: Work, **facts: Any) -> list[int]:
    return [made.unit for made in world.send(Submit(work=works, **facts))]


def test_alike_jobs_are_born_by_one_act_and_keep_their_inputs(world: World) -> None:
    units = submit_all(world, *(Work(task="mail", input=str(number)) for number in range(6)))
    again = submit_all(world, *(Work(task="mail", input=str(number)) for number in range(6, 9)))
    assert units + again == sorted(units + again)
    assert [world.body(unit).input for unit in (*units, *again)] == [str(number) for number in range(9)]
    assert len({world.unit(unit).born for unit in units[1:]}) == 1
    assert len({world.unit(unit).born for unit in again}) == 1
    assert [world.body(unit).correlation for unit in again] == [str(unit) for unit in again]
    assert [event.target for event in world.events(again[0])] == ["queued"]


def test_submits_of_a_group_share_an_act_of_birth(world: World) -> None:
    world.send(Submit(work=(Work(task="mail"),)))
    committer = world.engine.committer
    futures = [committer.put(Submit(work=(Work(task="mail", input=str(number)),), actor="ada")) for number in range(5)]
    while committer.step():
        pass
    units = [future.result()[0].unit for future in futures]
    assert len({world.unit(unit).act for unit in units}) == 1
    assert [world.body(unit).input for unit in units] == ["0", "1", "2", "3", "4"]


def test_what_a_group_brings_can_be_claimed_in_the_same_group(world: World) -> None:
    worker = world.worker()
    world.send(Submit(work=(Work(task="mail"),)))
    world.claim(worker, 1)
    committer = world.engine.committer
    submitted = committer.put(Submit(work=(Work(task="mail"),)))
    claimed = committer.put(Claim(worker=worker, nonce="n" * 64, key="k", limit=5))
    while committer.step():
        pass
    assert [grant.unit for grant in claimed.result()] == [submitted.result()[0].unit]


def test_jobs_of_several_kinds_have_ids_in_the_order_of_the_command(world: World) -> None:
    works = [Work(task=task, input=f'"{task}"') for task in ("a", "b", "a", "c", "b", "a")]
    for _ in range(2):
        units = submit_all(world, *works)
        assert units == sorted(units)
        assert [world.body(unit).task for unit in units] == ["a", "b", "a", "c", "b", "a"]
        assert [world.body(unit).input for unit in units] == ['"a"', '"b"', '"a"', '"c"', '"b"', '"a"']


def test_whoever_waits_for_work_is_woken_by_alike_jobs(world: World) -> None:
    submit_all(world, Work(task="mail"))
    with world.engine.watch(["default"]) as watch:
        submit_all(world, Work(task="mail"), Work(task="mail"))
        assert watch.wait(0)


def test_a_lane_that_was_rolled_back_is_not_used_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next lane gets its number, and another task."""

    def break_down(tx: Any) -> None:
        raise RuntimeError("the transaction is rolled back")

    with monkeypatch.context() as broken:
        broken.setattr(world.engine.wakeups, "collect", break_down)
        with pytest.raises(RuntimeError):
            world.engine.send(Submit(work=(Work(task="gone"), Work(task="gone"))))
    other = submit_all(world, Work(task="other"))
    gone = submit_all(world, Work(task="gone"), Work(task="gone"))
    assert [grant.unit for grant in world.claim(world.worker(tasks=("gone",)), 9)] == gone
    assert world.unit(other[0]).lane != world.unit(gone[0]).lane


def test_a_limit_of_waiting_jobs_holds_for_alike_jobs(world: World) -> None:
    submit_all(world, Work(task="mail"), Work(task="mail"))
    world.send(SetTenant(max_waiting=4))
    with pytest.raises(LimitReached):
        submit_all(world, Work(task="mail"), Work(task="mail"), Work(task="mail"))
    submit_all(world, Work(task="mail"), Work(task="mail"))


def test_other_rules_are_another_kind(world: World) -> None:
    submit_all(world, Work(task="mail"), Work(task="mail"))
    (urgent,) = submit_all(world, Work(task="mail", priority=5, attempts=1))
    (later,) = submit_all(world, Work(task="mail", delay_us=9_000_000))
    assert world.unit(urgent).priority == 5
    assert world.body(urgent).policy == '{"attempts":1}'
    assert world.unit(later).available_at is None


def test_a_reason_and_a_cause_are_in_the_birth_of_alike_jobs(world: World) -> None:
    submit_all(world, Work(task="mail"))
    (unit,) = submit_all(world, Work(task="mail"), actor="ada", reason="wanted", cause="job_1:1")
    (event,) = world.events(unit)
    assert (event.actor, event.reason, event.cause) == ("ada", "wanted", "job_1:1")
