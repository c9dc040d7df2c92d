"""What an attempt of a CI job has left outlives a forced cancel and a lost runner; what comes late decides nothing."""

from pathlib import Path

import pytest

from interlock.kernel.commands import LeaseGrant
from interlock.kernel.errors import InterlockError
from interlock.plugins.ci.options import CiOptions
from interlock.plugins.ci.queries import list_ci_attempts, list_ci_jobs
from interlock.plugins.evidence.queries import list_artifacts
from tests.engine.test_ci_plans import look, make_job, plan, start, submit_run
from tests.engine.test_logs import append, keep, read
from tests.engine.world import World


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PostgreSQL keeps blobs; a SQLite file has them beside it."""
    monkeypatch.setenv("INTERLOCK_BLOBS", str(tmp_path / "blobs"))


def begin(world: World, **facts: int) -> tuple[int, LeaseGrant]:
    """A run with an attempt that has written a line and kept an artifact."""
    run = submit_run(world)
    plan(world, run, make_job("build", options=CiOptions(job="build"), **facts))
    grant = start(world, world.worker())
    assert append(world, grant, b"one\n").accepted
    assert keep(world, grant, "out", b"bytes").accepted
    return run, grant


@pytest.mark.req("R4-47", "R4-48")
def test_a_forced_cancel_keeps_what_is_there_takes_what_comes_late_and_no_result(world: World) -> None:
    run, grant = begin(world)
    world.cancel(run)
    for _ in range(3):  # its runner is silent until the time to stop in is over
        world.pass_time(10)
        world.tick()
    world.pass_time(5)
    world.tick()
    assert (world.unit(run).state, world.unit(grant.unit).state) == ("CANCELED", "CANCELED")
    version = world.unit(grant.unit).version
    assert append(world, grant, b"two\n", start=4).accepted
    assert keep(world, grant, "late", b"more").accepted
    late = world.finish(grant)
    assert (late.accepted, late.why) == (False, "LEASE_REVOKED")
    assert (world.unit(grant.unit).version, world.unit(run).state) == (version, "CANCELED")
    assert read(world, grant.unit).data == b"one\ntwo\n"
    assert [(row.name, row.late) for row in look(world, list_artifacts, grant.unit)] == [("late", True), ("out", False)]


@pytest.mark.req("R4-31")
def test_the_result_of_a_lost_attempt_changes_nothing_while_the_next_one_runs(world: World) -> None:
    run, lost = begin(world, losses=2)
    world.pass_time(121)
    world.tick()
    assert world.unit(lost.unit).state == "STALE"
    grant = start(world, world.worker("other"))
    for ended in ("success", "failure"):
        late = world.finish(lost, ended=ended)
        assert not late.accepted
    (job,) = look(world, list_ci_jobs, run)
    assert [each.state for each in look(world, list_ci_attempts, job.unit)] == ["STALE", "RUNNING"]
    assert world.finish(grant).accepted
    assert (job.state, world.unit(run).state) == ("RUNNING", "SUCCESS")
    assert read(world, lost.unit).data == b"one\n"


@pytest.mark.req("X-23")
def test_an_artifact_of_an_attempt_is_written_once_and_each_attempt_has_its_own(world: World) -> None:
    _, lost = begin(world, losses=2)
    with pytest.raises(InterlockError, match="has an artifact 'out' already"):
        keep(world, lost, "out", b"other bytes")
    world.pass_time(121)
    world.tick()
    grant = start(world, world.worker("other"))
    assert keep(world, grant, "out", b"other bytes").accepted
    digests = [look(world, list_artifacts, unit)[0].digest for unit in (lost.unit, grant.unit)]
    assert len(set(digests)) == 2
