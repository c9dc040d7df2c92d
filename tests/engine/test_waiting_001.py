"""A run of document 001 and its gates: when it waits for a person, when it fails there, and that nobody claims a gate."""

from typing import Any

import pytest

from interlock.kernel.commands import Claim, DefineTemplate, LeaseGrant, Vote, Work
from tests.engine.world import SECOND, World
from tests.store.raw_acts import path_of, unlisted, write_act

DONE, GATE, OPEN, BEGUN = "SUCCEEDED", "WAITING_APPROVAL", "PENDING", "RUNNING"


def gate(name: str = "sign", *needs: str, **facts: Any) -> Work:
    return Work(task=name, lifecycle="approval", ref=name, needs=needs, **facts)


def step(name: str, *needs: str, **facts: Any) -> Work:
    return Work(task=name, lifecycle="step", ref=name, needs=needs, **facts)


def begun(world: World, *steps: Work) -> tuple[int, int]:
    """A run of these steps, and a worker that has claimed nothing yet."""
    world.send(DefineTemplate(name="release", steps=steps))
    return world.submit("release", lifecycle="workflow_run", template="release"), world.worker()


def state(world: World, run: int) -> str:
    return world.unit(run).state


def step_of(world: World, run: int, name: str) -> int:
    sql = "SELECT unit.id FROM unit JOIN body ON body.unit = unit.id WHERE unit.parent = :run AND body.task = :task"
    return int(world.connection.rows(sql, {"run": run, "task": name})[0][0])


def claimed(world: World, worker: int, task: str) -> LeaseGrant:
    (grant,) = world.claim(worker)
    assert grant.task == task
    return grant


@pytest.mark.req("R1-20")
def test_a_run_waits_only_while_nothing_else_can_run(world: World) -> None:
    """A gate and two steps side by side: ready, held, backing off and lost work can all still run (A1-2)."""
    run, worker = begun(world, gate(), step("build", backoff_us=SECOND, attempts=9), step("test"), step("ship", "sign"))
    sign = step_of(world, run, "sign")
    assert (world.unit(sign).state, state(world, run)) == (GATE, OPEN)  # steps are ready, and none was claimed
    grants = {grant.task: grant for grant in world.claim(worker, limit=9)}
    assert set(grants) == {"build", "test"}
    assert state(world, run) == BEGUN
    world.finish(grants["test"])
    assert state(world, run) == BEGUN  # one is held
    world.finish(grants["build"], ended="failure")
    assert state(world, run) == BEGUN  # it backs off, and will run
    world.pass_time(5)
    again = claimed(world, worker, "build")
    assert state(world, run) == BEGUN
    world.pass_time(3_600)
    world.tick()
    assert state(world, run) == BEGUN  # its worker is lost, and another will do it
    assert world.unit(again.unit).outcome is None
    last = claimed(world, world.worker("other"), "build")
    world.finish(last)
    assert (state(world, run), world.unit(sign).state) == (GATE, GATE)  # now only a person can go on
    world.send(Vote(unit=sign, voter="ann"))
    assert state(world, run) == BEGUN
    world.finish(claimed(world, world.worker("other"), "ship"))
    assert world.path(run) == [OPEN, BEGUN, GATE, BEGUN, DONE]


@pytest.mark.req("R1-20")
def test_a_run_with_two_gates_waits_until_one_of_them_lets_work_on(world: World) -> None:
    run, worker = begun(world, gate("legal"), gate("ops"), step("ship", "legal"), step("tell", "ops"))
    assert world.path(run) == [OPEN, BEGUN, GATE]
    world.send(Vote(unit=step_of(world, run, "legal"), voter="ann"))
    assert state(world, run) == BEGUN  # `ship` can run, although `ops` still waits
    assert world.unit(step_of(world, run, "ops")).state == GATE
    world.finish(claimed(world, worker, "ship"))
    assert state(world, run) == GATE
    world.send(Vote(unit=step_of(world, run, "ops"), voter="ann"))
    assert state(world, run) == BEGUN


@pytest.mark.req("R1-17")
@pytest.mark.parametrize("on_reject", ["fail", None])
@pytest.mark.parametrize("how", ["expired", "rejected"])
def test_a_gate_that_is_not_opened_ends_the_run_that_waits(world: World, how: str, on_reject: str | None) -> None:
    """An expiry always fails the run; a rejection does where its template says so, and else cancels it (A1-3, A1-4)."""
    facts = {"on_reject": on_reject} if on_reject else {}
    run, _ = begun(world, gate(expires_us=60 * SECOND, **facts), step("ship", "sign"))
    sign, ship = step_of(world, run, "sign"), step_of(world, run, "ship")
    world.pass_time(59)
    world.tick()
    assert state(world, run) == GATE
    if how == "expired":
        world.pass_time(1)
        world.tick()
    else:
        world.send(Vote(unit=sign, voter="ann", approve=False, reason="not today", actor="ann"))
    ended = "FAILED" if how == "expired" or on_reject == "fail" else "CANCELED"
    assert world.path(run) == [OPEN, BEGUN, GATE, ended]
    assert world.unit(run).outcome == ("failure" if ended == "FAILED" else "cancelled")
    assert [world.unit(one).state for one in (sign, ship)] == ["CANCELED", "CANCELED"]
    name, actor = ("approval_expired", "clock") if how == "expired" else ("approval_rejected", "ann")
    assert (world.events(sign)[-1].name, world.events(sign)[-1].actor) == (name, actor)
    assert len({world.events(one)[-1].at for one in (run, sign, ship)}) == 1  # one transaction
    assert world.send(Vote(unit=run, voter="bob")).applied is False  # too late
    assert state(world, run) == ended


@pytest.mark.req("R1-17")
def test_a_run_that_was_approved_may_fail_afterwards(world: World) -> None:
    run, worker = begun(world, gate(), step("ship", "sign", attempts=1))
    assert state(world, run) == GATE
    world.send(Vote(unit=run, voter="ann"))
    world.finish(claimed(world, worker, "ship"), ended="failure", error="no route")
    assert world.path(run) == [OPEN, BEGUN, GATE, BEGUN, "FAILED"]
    assert world.unit(step_of(world, run, "sign")).state == DONE  # what a person said stays


@pytest.mark.req("R1-31")
@pytest.mark.parametrize("at", [OPEN, GATE, DONE, "CANCELED"])
def test_no_claim_finds_a_gate_wherever_it_stands(world: World, at: str) -> None:
    """Not even a worker that claims from the gate's own queue, with what the gate asks for."""
    own = {"queue": "people", "capabilities": ("hand",), "priority": 9}
    run, _ = begun(world, step("build"), gate("sign", "build", expires_us=60 * SECOND, **own), step("ship", "sign"))
    sign = step_of(world, run, "sign")
    worker = world.worker("eager", capabilities=("hand",))
    claim = ("default", "people")
    if at != OPEN:
        (grant,) = world.claim(worker, queues=claim)
        world.finish(grant)
    if at == DONE:
        world.send(Vote(unit=sign, voter="ann"))
    if at == "CANCELED":
        world.pass_time(60)
        world.tick()
    assert world.unit(sign).state == at
    for seconds in (0, 30, 29, 3_600):  # also when clocks look at it
        world.pass_time(seconds)
        world.tick()
        grants = world.claim(world.worker(f"after {seconds}", capabilities=("hand",)), limit=9, queues=claim)
        assert sign not in {grant.unit for grant in grants}
    assert world.count("unit", "lifecycle = 'approval' AND available_at IS NOT NULL") == 0
    assert no_lease_ever(world, sign)


def no_lease_ever(world: World, unit: int) -> bool:
    row = world.unit(unit)
    events = [event for event in world.events(unit) if event.lease_from or event.lease_to or event.fence]
    return (row.fence, row.lease, row.lease_hash, row.holder, events) == (0, None, None, None, [])


@pytest.mark.req("R1-31")
def test_the_database_knows_no_claim_of_a_gate(world: World) -> None:
    """Its table lists none, and what a program writes by itself is refused."""
    assert world.lifecycles["approval"].options.lease is None
    triggers = {trigger for _, trigger in world.lifecycles["approval"].moves}
    assert not triggers & {"claim", "start", "complete", "reclaim", "lost"}
    run, worker = begun(world, gate())
    sign = step_of(world, run, "sign")
    assert world.engine.send(Claim(worker=worker, key="k", nonce="a-nonce-of-a-claim-that-finds-nothing")) == []
    with pytest.raises(Exception, match=r"interlock guard \[event-first\]|permission denied for table unit"):
        world.connection.rows(f"UPDATE unit SET state = 'RUNNING' WHERE id = {sign}")
    world.connection.rollback()
    claim = {"fence": 1, "lease_to": "GRANTED", "lifecycle": "approval"}
    for path, rule in (
        (unlisted(world.unit(sign).state, "claim", "APPROVED", **claim), "listed-hop"),
        (path_of("step", "PENDING", None, "claim/grant"), "chain"),  # a path, but none of its own lifecycle
    ):
        with pytest.raises(Exception, match=rf"interlock guard \[{rule}\]"):
            write_act(world.connection, path, sign)
        world.connection.rollback()
    assert no_lease_ever(world, sign)
