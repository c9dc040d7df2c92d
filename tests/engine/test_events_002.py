"""What an event of document 002 says: who moved the job, when, why, and for which correlation."""

import pytest

from interlock.kernel.commands import (
    Bury,
    Cancel,
    Claim,
    Command,
    Finish,
    Force,
    Heartbeat,
    Outcome,
    Register,
    Release,
    Requeue,
    Revoke,
    Start,
    Submit,
    Vote,
    Work,
)
from interlock.kernel.rows import Act, columns
from tests.engine.world import SECOND, World, held


def last(world: World, unit: int) -> tuple[str, str, str, int, str]:
    event = world.events(unit)[-1]
    return event.target, event.actor, event.reason, event.at, event.correlation


class Asked:
    """Everything that is asked is asked by another actor, for another reason, a second later."""

    def __init__(self, world: World) -> None:
        self.world, self.number = world, 0

    def next(self) -> dict[str, str]:
        self.number += 1
        self.world.pass_time(1)
        return {"actor": f"actor {self.number}", "reason": f"reason {self.number}"}

    def says(self, unit: int, target: str, correlation: str) -> None:
        """The unit's last event tells of what was asked last."""
        told = (f"actor {self.number}", f"reason {self.number}", self.world.now_us, correlation)
        assert last(self.world, unit) == (target, *told)


@pytest.mark.req("R2-49")
def test_every_event_says_who_asked_when_why_and_for_what(world: World) -> None:
    asked = Asked(world)
    units = []
    for number in range(8):
        work = Work(task="mail", correlation=f"c-{number}", queue=f"q{number}", attempts=9)
        units.append(world.send(Submit(work=(work,), **asked.next()))[0].unit)
        asked.says(units[-1], "queued", f"c-{number}")
    worker = world.send(Register(name="w", incarnation="1", capacity=99, **asked.next()))
    grants = []
    for number, unit in enumerate(units[:-1]):
        claim = Claim(
            worker=worker, key=f"k{number}", nonce=f"nonce-of-claim-{number:08}", queues=(f"q{number}",), **asked.next()
        )
        grants += world.send(claim)
        asked.says(unit, "assigned", f"c-{number}")
    for number, grant in enumerate(grants):
        begin: Command[object] = (
            Start(held=(held(grant),), **asked.next()) if number % 2 else Heartbeat(held=(held(grant),), **asked.next())
        )
        world.send(begin)
        asked.says(grant.unit, "running", f"c-{number}")
    done, failed, retried, released, stopped, buried, revoked = grants
    for grant, target, outcome in (
        (done, "succeeded", {}),
        (failed, "failed", {"ended": "failure", "error_class": "PermanentError"}),
        (retried, "queued", {"ended": "failure"}),
    ):
        world.send(Finish(outcomes=(Outcome(held=held(grant), **outcome),), **asked.next()))  # type: ignore[arg-type]
        asked.says(grant.unit, target, f"c-{grants.index(grant)}")
    world.send(Release(held=(held(released),), **asked.next()))
    asked.says(released.unit, "queued", "c-3")
    world.send(Cancel(unit=stopped.unit, hard=True, **asked.next()))
    asked.says(stopped.unit, "cancelled", "c-4")
    asked.next()
    world.send(Bury(unit=buried.unit, actor=f"actor {asked.number}", reason="policy_violation"))
    assert last(world, buried.unit)[1:3] == (f"actor {asked.number}", "policy_violation")
    world.send(Revoke(unit=revoked.unit, **asked.next()))
    asked.says(revoked.unit, "queued", "c-6")
    world.send(Cancel(unit=units[-1], **asked.next()))
    asked.says(units[-1], "cancelled", "c-7")
    again = world.send(Requeue(unit=buried.unit, **asked.next())).unit
    asked.says(again, "queued", "c-5")


@pytest.mark.req("R2-49")
def test_what_nobody_asked_for_is_the_clocks_or_the_engines(world: World) -> None:
    lost, worker = world.submit(correlation="c"), world.worker()
    world.claim(worker)
    world.pass_time(41)
    world.tick()
    assert last(world, lost) == ("queued", "clock", "the lease is over", world.now_us, "c")
    parent = world.submit(lifecycle="workflow_run", correlation="d")
    child = world.submit(lifecycle="approval", parent=parent)
    world.send(Vote(unit=child, voter="ann", actor="ann"))
    assert last(world, child)[1] == "ann"
    assert last(world, parent)[:3] == ("SUCCEEDED", "engine", "its children")


@pytest.mark.req("R2-49")
@pytest.mark.parametrize("column", ["at", "actor", "reason", "correlation"])
def test_the_database_keeps_no_event_without_them(world: World, column: str) -> None:
    unit = world.submit()
    world.send(Force(unit=unit, state="failed", actor="ann", reason="try"))
    if column == "correlation":  # it is the unit's, and programs may not even change it where there are roles
        with pytest.raises(Exception, match=r"(?i)not.null|permission denied"):
            world.connection.rows(f"UPDATE body SET correlation = NULL WHERE unit = {unit}")
        return
    names = [*columns(Act), *([] if world.connection.many_writers else ["digest"])]
    others = {"id": "id + 1", "version": "version + 1", column: "NULL"}
    values = ", ".join(others.get(name, name) for name in names)
    with pytest.raises(Exception, match=r"(?i)not.null"):
        world.connection.rows(
            f"INSERT INTO act ({', '.join(names)}) SELECT {values} FROM act WHERE id = {world.unit(unit).act}"
        )


@pytest.mark.req("R2-49")
def test_deadlines_and_soft_cancels_are_told_with_their_own_actor(world: World) -> None:
    world.submit(timeout_us=5 * SECOND, attempts=1)
    worker = world.worker()
    (slow,) = world.claim(worker)
    world.start(slow)
    world.pass_time(6)
    world.tick()
    assert last(world, slow.unit)[:3] == ("dead_lettered", "clock", "the deadline has passed")
    world.submit()
    (stopped,) = world.claim(worker)
    world.start(stopped)
    world.send(Cancel(unit=stopped.unit, actor="ann", reason="not wanted"))
    world.pass_time(30)
    world.tick()
    assert last(world, stopped.unit)[:2] == ("cancelled", "clock")
