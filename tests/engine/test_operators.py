"""The stories of operators, voters and of what a holder records."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from interlock.audit.laws import audit
from interlock.core import timers
from interlock.kernel.commands import (
    REASONS,
    Bury,
    Claim,
    Decide,
    Finish,
    Force,
    Outcome,
    Record,
    Register,
    Rerun,
    Revoke,
    Start,
    Submit,
    Tick,
    Vote,
    Work,
)
from interlock.kernel.errors import InterlockError, Refused, Unknown
from interlock.kernel.rows import Unit
from interlock.lifecycles import FOLDER, load, shipped
from interlock.plugins import make_engine
from interlock.store import migrate
from interlock.store.sqlite import MEMORY, SqliteConnection
from interlock.store.unit_of_work import UnitOfWork
from tests.engine.test_families import states, workflow
from tests.engine.world import World, held

WORKSTREAM = (Work(task="s", lifecycle="workstream", ref="s"), Work(task="t", lifecycle="task", parent="s"))
PIPELINE = (Work(task="run", lifecycle="ci_run", ref="run"), Work(task="build", lifecycle="ci_job", parent="run"))


@pytest.mark.parametrize("reason", REASONS)
def test_a_job_is_buried_with_a_reason_code(reason: str, world: World) -> None:
    job = world.submit()
    assert world.send(Bury(unit=job, reason=reason)).state == "dead_lettered"
    letter = msgspec.json.decode(world.events(job)[-1].payload)
    assert (letter["reason_code"], letter["last_owner"], letter["last_lease_expires_at"]) == (reason, None, None)


def test_a_job_that_is_held_is_buried_and_its_holder_is_stale(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.send(Bury(unit=job, reason="infrastructure_failure"))
    assert world.finish(grant).why == "LEASE_REVOKED"


def test_what_has_a_command_of_its_own_is_no_verdict(world: World) -> None:
    job, worker = world.submit(), world.worker()
    (grant,) = world.claim(worker)
    for unit, trigger in ((job, "bury"), (job, "cancel"), (worker, "drain")):
        with pytest.raises(Refused):
            world.send(Decide(unit=unit, trigger=trigger))
    assert world.start(grant).accepted


def test_a_verdict_about_what_is_held_ends_its_lease(tmp_path: Path) -> None:
    """No shipped lifecycle lists such a move; a user's may."""
    halt = 'halt = { to = "cancelled", owner = "person", extension = true, why = "A person may halt it." }'
    text = (FOLDER / "job.toml").read_text(encoding="utf-8").replace('name = "job"', 'name = "own"')
    file = tmp_path / "own.toml"
    file.write_text(text.replace("[moves.running]", f"[moves.running]\n{halt}"), encoding="utf-8")
    lifecycles = {**shipped(), "own": load(file)}
    with closing(SqliteConnection(MEMORY)) as connection:
        migrate.upgrade(connection, lifecycles.values())
        engine = make_engine(connection, lifecycles)
        (job,) = engine.send(Submit(work=(Work(task="t", lifecycle="own"),)))
        worker = engine.send(Register(name="w", incarnation="1"))
        (grant,) = engine.send(Claim(worker=worker, key="k", nonce="n" * 16))
        engine.send(Start(held=(held(grant),)))
        assert engine.send(Decide(unit=job.unit, trigger="halt")).state == "cancelled"
        assert engine.send(Finish(outcomes=(Outcome(held=held(grant)),)))[0].why == "LEASE_REVOKED"
        assert list(audit(connection, lifecycles)) == []


def test_an_unknown_reason_code_is_refused(world: World) -> None:
    job = world.submit()
    with pytest.raises(InterlockError, match="reason = 'because' is not allowed; allowed are parse_error"):
        world.send(Bury(unit=job, reason="because"))
    assert world.unit(job).state == "queued"


def test_a_revoked_lease_is_a_lost_one(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    assert world.send(Revoke(unit=job)).applied
    assert (world.unit(job).state, world.unit(job).lease, world.unit(job).losses) == ("queued", "REVOKED", 1)
    assert world.start(grant).why == "LEASE_REVOKED"
    assert world.send(Revoke(unit=job)).applied is False


def test_a_dead_letter_is_done_again_as_a_new_job(world: World) -> None:
    job = world.submit(input="7")
    with pytest.raises(Refused):
        world.send(Rerun(unit=job))
    world.send(Bury(unit=job, reason="timeout"))
    again = world.send(Rerun(unit=job)).unit
    (grant,) = world.claim(world.worker())
    assert (grant.unit, grant.input) == (again, "7")
    assert world.unit(job).state == "dead_lettered"


def test_a_task_that_is_done_again_waits_for_a_worker(world: World) -> None:
    _, task = (one.unit for one in world.send(Submit(work=WORKSTREAM)))
    world.cancel(task)
    again = world.send(Rerun(unit=task)).unit
    assert [grant.unit for grant in world.claim(world.worker())] == [again]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_nothing_by_itself_is_not_done_again(which: int, world: World) -> None:
    run, build = (one.unit for one in world.send(Submit(work=PIPELINE)))
    world.send(Decide(unit=run, trigger="plan"))
    world.cancel(run)
    before = world.connection.rows("SELECT count(*) FROM unit")
    with pytest.raises(InterlockError, match="cannot be rerun by itself; submit a new one"):
        world.send(Rerun(unit=(run, build, build + 1)[which]))
    assert world.connection.rows("SELECT count(*) FROM unit") == before


def test_votes_make_a_quorum(world: World) -> None:
    units = _, ship = workflow(world, "ship", quorum=2)
    assert world.send(Vote(unit=ship, voter="ann")).applied
    assert world.send(Vote(unit=ship, voter="ann")).applied is False
    assert world.unit(ship).state == "WAITING_APPROVAL"
    world.send(Vote(unit=ship, voter="bob"))
    assert states(world, units) == ["SUCCEEDED", "SUCCEEDED"]
    assert world.events(ship)[-1].actor == "bob"
    late = world.send(Vote(unit=ship, voter="eve"))
    assert (late.applied, late.version) == (False, world.unit(ship).version)  # nothing waits any more (A1-12)


def test_force_leaves_its_mark(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    with pytest.raises(InterlockError, match="force needs a reason"):
        world.send(Force(unit=job, state="queued"))
    with pytest.raises(Unknown, match="a job has no state 'paused'; it has queued"):
        world.send(Force(unit=job, state="paused", reason="x"))
    assert world.send(Force(unit=job, state="queued", actor="ann", reason="the worker was unplugged")).applied
    event = world.events(job)[-1]
    assert (event.trigger, event.actor, event.reason) == ("force", "ann", "the worker was unplugged")
    assert world.start(grant).accepted is False
    assert len(world.claim(world.worker("other"))) == 1


@pytest.mark.parametrize("reason", ["the disk is gone", "timeout"])
def test_what_is_forced_among_the_dead_letters_has_their_fields(world: World, reason: str) -> None:
    job = world.submit(correlation="order 7")
    (grant,) = world.claim(world.worker("w"))
    world.start(grant)
    assert world.send(Force(unit=job, state="dead_lettered", actor="ann", reason=reason)).applied
    told = msgspec.json.decode(world.events(job)[-1].payload)
    assert told == {
        "reason_code": "timeout" if reason == "timeout" else "policy_violation", "last_error": reason, "attempts": 1,
        "last_owner": "w", "last_lease_expires_at": grant.until, "correlation_id": "order 7", "stage": None,
    }  # fmt: skip
    world.submit(task="other")
    (grant,) = world.claim(world.worker("w"))
    world.send(Force(unit=grant.unit, state="failed", actor="ann", reason=reason))
    assert msgspec.json.decode(world.events(grant.unit)[-1].payload) == {}


def test_what_a_holder_records_moves_nothing(world: World) -> None:
    job = world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    version = world.unit(job).version
    for kind in ("progress", "checkpoint", "step", "step", "log"):
        assert world.send(Record(held=(held(grant),), kind=kind, name="one", payload="1"))[0].accepted
    assert world.unit(job).version == version
    rows = world.connection.rows("SELECT kind, count(*) FROM note GROUP BY kind ORDER BY kind")
    assert rows == [("checkpoint", 1), ("log", 1), ("progress", 1), ("step", 1)]
    with pytest.raises(InterlockError, match="allowed are progress, checkpoint"):
        world.send(Record(held=(held(grant),), kind="rumour"))


def test_an_artifact_is_written_once_an_attempt(world: World) -> None:
    world.submit()
    (grant,) = world.claim(world.worker())
    record = Record(held=(held(grant),), kind="artifact", name="report", payload="x")
    assert world.send(record)[0].accepted
    with pytest.raises(InterlockError, match="has an artifact 'report' already"):
        world.send(record)
    world.pass_time(60)
    assert world.send(record)[0].why == "LEASE_EXPIRED"


def test_a_unit_that_cannot_be_moved_does_not_stop_the_time_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, other = world.submit(delay_us=1_000_000), world.submit(delay_us=2_000_000)
    honest = timers.fire_timer

    def look(tx: UnitOfWork, unit: Unit) -> None:
        if unit.id == stuck:
            raise InterlockError("this one cannot be moved")
        honest(tx, unit)

    monkeypatch.setattr(timers, "fire_timer", look)
    world.pass_time(3)
    assert world.engine.send(Tick()) == 1
    monkeypatch.undo()
    world.pass_time(59)
    worker = world.engine.send(Register(name="w", incarnation="1", capacity=9))
    claim = Claim(worker=worker, limit=9, key="c", nonce="the-nonce-of-the-claim")
    assert [grant.unit for grant in world.engine.send(claim)] == [other]
    world.pass_time(2)
    assert world.tick() > 0
    assert world.unit(stuck).available_at is not None


def test_a_success_that_is_taken_back_is_needed_again(world: World) -> None:
    first = world.submit()
    needy = world.submit(after=(first,))
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant)
    assert world.unit(needy).available_at is not None
    world.send(Force(unit=first, state="queued", reason="its result was wrong"))
    assert (world.unit(needy).unmet, world.unit(needy).available_at) == (1, None)
    (again,) = world.claim(world.worker("other"), limit=9)
    world.start(again)
    world.finish(again)
    assert [grant.unit for grant in world.claim(world.worker("other"), limit=9)] == [needy]


def test_a_job_that_was_forced_to_its_end_follows_its_attempt_no_more(world: World) -> None:
    run, job = [one.unit for one in world.send(Submit(work=PIPELINE))]
    world.send(Decide(unit=run, trigger="plan"))
    (grant,) = world.claim(world.worker())
    world.start(grant)
    assert world.send(Force(unit=job, state="SUCCEEDED", reason="built by hand")).state == "SUCCEEDED"
    assert world.unit(run).state == "SUCCESS"
    assert world.unit(grant.unit).state == "CANCEL_REQUESTED"
    assert world.finish(grant).state == "CANCELED"
    assert world.unit(job).state == "SUCCEEDED"
