"""Parked units: they hold no lease and spend nothing, whatever lifecycle they have."""

import threading

import msgspec
import pytest

from interlock.kernel.commands import (
    Claim,
    Decide,
    DefineTask,
    LeaseGrant,
    LeaseStatus,
    Record,
    Register,
    Release,
    Signal,
    Start,
    Submit,
    Vote,
    Work,
)
from interlock.kernel.errors import InterlockError
from tests.engine.world import SECOND, World, held

HOUR = 3_600


def spawn(world: World, grant: LeaseGrant, name: str, **work: object) -> LeaseStatus:
    payload = msgspec.json.encode({"task": "child", **work}).decode()
    return world.send(Record(held=(held(grant),), kind="child", name=name, payload=payload))[0]


def child_of(world: World, parent: int) -> int:
    return int(world.connection.rows("SELECT id FROM unit WHERE parent = :p ORDER BY id DESC", {"p": parent})[0][0])


def begun(world: World, lifecycle: str, **work: object) -> tuple[int, LeaseGrant]:
    """A worker, and what it has begun: a job, the step of a run, the task of a workstream or the job of an agent run."""
    worker = world.worker()
    if lifecycle == "job":
        world.submit(**work)
    else:
        above = {"step": "workflow_run", "task": "workstream", "agent_job": "agent_run"}[lifecycle]
        parent = world.submit("all", lifecycle=above)
        world.submit(lifecycle=lifecycle, parent=parent, **work)
        if lifecycle == "task":
            world.send(Decide(unit=parent, trigger="plan"))
    (grant,) = world.claim(worker)
    world.start(grant)
    return worker, grant


@pytest.mark.parametrize("lifecycle", ["job", "step", "task", "agent_job"])
@pytest.mark.parametrize("how", ["signal", "time", "child", "early"])
def test_a_leased_unit_waits_without_a_lease_and_spends_nothing(world: World, lifecycle: str, how: str) -> None:
    worker, grant = begun(world, lifecycle, timeout_us=600 * SECOND)
    source = world.unit(grant.unit).parent if lifecycle == "step" else grant.unit
    if how == "early":
        world.send(Signal(unit=grant.unit, name="go"))
    if how == "child":
        spawn(world, grant, "c", lifecycle="approval")
    name = {"child": "child:c", "time": "sleep:n"}.get(how, "go")
    snooze = HOUR * SECOND if how == "time" else None
    assert world.release(grant, signals=(name,), snooze_us=snooze).accepted
    row = world.unit(grant.unit)
    assert row.holder is None
    if how != "early":
        assert row.parked_on is not None
        assert world.claim(worker) == []
        world.pass_time(HOUR - 1)
        world.tick()
        assert world.claim(world.worker("other")) == []
        assert world.unit(grant.unit).outcome is None  # its clock stands still
    if how == "signal":
        world.send(Signal(unit=source, name="go", payload="7"))
    elif how == "child":
        world.send(Vote(unit=child_of(world, grant.unit), voter="ann"))
    world.pass_time(2)
    world.tick()
    (again,) = world.claim(world.worker("third"))
    assert (again.unit, again.fence) == (grant.unit, 2)
    assert (again.waited == ("sleep:n",)) == (how == "time")
    if how == "child":
        (child,) = again.children
        assert (child.name, child.outcome, child.trigger, child.by) == ("c", "success", "approve", "ann")
    elif how == "signal":
        assert dict(again.signals) == {"go": "7"}
    row = world.unit(grant.unit)
    assert (row.failures, row.losses, row.snoozes) == (0, 0, 0)
    assert world.start(again).accepted
    assert world.finish(again).accepted


def test_the_clock_of_the_queue_starts_when_the_signal_has_come(world: World) -> None:
    _, grant = begun(world, "job", queue_timeout_us=60 * SECOND)
    world.release(grant, signal="go")
    world.pass_time(HOUR)
    world.tick()
    world.send(Signal(unit=grant.unit, name="go"))
    assert world.unit(grant.unit).deadline_at == world.now_us + 60 * SECOND
    world.pass_time(60)
    world.tick()
    assert world.unit(grant.unit).outcome == "dead"


def test_a_child_that_ends_first_is_no_reason_to_wait(world: World) -> None:
    worker, grant = begun(world, "job")
    assert spawn(world, grant, "c").accepted
    (other,) = world.claim(worker)
    world.start(other)
    world.finish(other, result="3")
    world.release(grant, signal="child:c")
    (again,) = world.claim(worker)
    assert (again.children[0].result, again.children[0].state) == ("3", "succeeded")


def test_a_child_is_made_under_the_lease_alone(world: World) -> None:
    _, grant = begun(world, "job")
    world.release(grant)
    answer = spawn(world, grant, "c")
    assert (answer.accepted, answer.why) == (False, "LEASE_REVOKED")
    assert world.unit(grant.unit).total == 0


def test_a_child_is_made_once_under_its_name(world: World) -> None:
    _, grant = begun(world, "job")
    assert [spawn(world, grant, "c", input="1").accepted for _ in range(3)] == [True] * 3
    assert world.unit(grant.unit).total == 1
    refused = spawn(world, grant, "c", input="2")
    assert not refused.accepted
    assert "with other arguments" in refused.why
    assert world.unit(grant.unit).total == 1


@pytest.mark.parametrize(
    ("work", "text"),
    [
        ({"parent": 1}, "parent is not allowed for a child"),
        ({"key": "k"}, "key is not allowed for a child"),
        ({"task": ""}, "task = ''"),
        ({"lifecycle": "nothing"}, "there is no lifecycle 'nothing'"),
        ({"nonsense": 3, "priority": "high"}, "a child is an object with `task`"),
    ],
)
def test_a_child_that_cannot_be_is_refused(world: World, work: dict[str, object], text: str) -> None:
    _, grant = begun(world, "job")
    with pytest.raises(InterlockError, match=text):
        spawn(world, grant, "c", **work)
    assert world.unit(grant.unit).total == 0


def test_a_child_has_the_rules_of_its_task(world: World) -> None:
    """What the holder leaves out is what a program has said of the task, as for any other job."""
    rules = Work(task="child", queue="slow", attempts=1, timeout_us=HOUR * SECOND, capabilities=("big",), priority=3)
    worker, grant = begun(world, "job")
    world.send(DefineTask(work=msgspec.structs.replace(rules, labels='{"a": "b"}')))
    for name, own in (("first", {}), ("second", {"queue": "fast", "timeout_us": SECOND})):
        assert spawn(world, grant, name, **own).accepted
        assert spawn(world, grant, name, **own).accepted, "the same again"
    able = world.worker("able", capabilities=("big",))
    assert world.claim(worker, queues=("default", "slow", "fast")) == world.claim(able) == []
    (second,) = world.claim(able, queues=("fast",))
    (first,) = world.claim(able, queues=("slow",))
    assert (first.timeout_us, second.timeout_us) == (HOUR * SECOND, SECOND)
    for child in (first, second):
        assert (world.unit(child.unit).priority, world.body(child.unit).labels) == (3, '{"a":"b"}')
        world.start(child)
        world.finish(child, ended="failure", error="no")
        assert world.unit(child.unit).outcome == "dead", "it has no more than the one attempt of its task"


def test_the_job_of_a_spawned_agent_has_the_rules_of_its_task(world: World) -> None:
    worker, grant = begun(world, "job")
    world.send(DefineTask(work=Work(task="critic", queue="slow", timeout_us=HOUR * SECOND)))
    both = {kind: {"task": "critic", "lifecycle": f"agent_{kind}"} for kind in ("run", "job")}
    payload = msgspec.json.encode(both).decode()
    (answer,) = world.send(Record(held=(held(grant),), kind="child_run", name="c", payload=payload))
    assert answer.accepted
    assert world.claim(worker) == []
    (job,) = world.claim(worker, queues=("slow",))
    assert (job.task, job.timeout_us) == ("critic", HOUR * SECOND)


def test_children_are_stopped_with_their_parent(world: World) -> None:
    _, grant = begun(world, "job")
    spawn(world, grant, "c")
    world.finish(grant)
    assert world.unit(child_of(world, grant.unit)).state == "cancelled"


def test_ten_thousand_parked_jobs_hold_nothing_and_are_small(world: World) -> None:
    """No lease, no room of a worker, no thread, and less than 1 KiB each for having been parked."""
    count, page = (10_000, 1_000) if world.connection.name == "sqlite" else (2_000, 1_000)
    threads = threading.active_count()
    send = world.engine.send
    for _ in range(count // page):
        send(Submit(work=(Work(task="wait"),) * page))
    worker = send(Register(name="w", incarnation="1", capacity=count))
    held_now = []
    for number in range(count // page):
        key = f"claim {number}"
        grants = send(Claim(worker=worker, limit=page, key=key, nonce=f"{key:0>16}"))
        refs = tuple(held(grant) for grant in grants)
        send(Start(held=refs))
        held_now.append(refs)
    before = size_of(world)
    for refs in held_now:
        assert all(status.accepted for status in send(Release(held=refs, signal="go")))
    assert (size_of(world) - before) / count < 1_024
    assert world.count("unit", "parked_on LIKE 'signal:%'") == count
    assert world.count("unit", "holder IS NOT NULL OR lease_id IS NOT NULL OR available_at IS NOT NULL") == 0
    assert world.count("unit", "wake_at IS NOT NULL AND lifecycle = 'job'") == 0  # no clock has to look at them
    assert world.count("lease", "ended_at IS NULL") == 0
    assert world.count("worker", "holding > 0") == 0
    assert threading.active_count() == threads
    assert send(Claim(worker=worker, limit=page, key="more", nonce="n" * 16)) == []


def size_of(world: World) -> int:
    """The bytes that the database takes."""
    if world.connection.name == "sqlite":
        ((pages,),), ((size,),) = world.connection.rows("PRAGMA page_count"), world.connection.rows("PRAGMA page_size")
        return int(pages) * int(size)
    return int(world.connection.rows("SELECT pg_database_size(current_database())")[0][0])
