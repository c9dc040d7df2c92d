"""The stories of a plan: jobs, plan and move in one transaction, or the reason why there is none; classes of failures."""

from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import Enter, LeaseGrant, Plan, Record, Release, Rerun, Standing, Work
from interlock.kernel.errors import InterlockError, Refused, Unknown
from interlock.plugins.ci.failures import COMPANION, Sight
from interlock.plugins.ci.junit import CiTest
from interlock.plugins.ci.options import NOBODY, CiOptions, encode_options
from interlock.plugins.ci.queries import (
    find_successes,
    list_ci_attempts,
    list_ci_jobs,
    list_ci_runs,
    list_ci_tests,
    list_flaky_tests,
    read_ci_run,
    read_plan_failure,
)
from interlock.plugins.ci.results import SIGHT, TESTS
from tests.engine.world import World, held
from tests.store.databases import declare


def submit_run(world: World, report_to: str = "", **facts: Any) -> int:
    options = encode_options(CiOptions(report_to=report_to))
    return world.submit("ci.run", lifecycle="ci_run", options=options, **facts)


def make_job(name: str, *needs: str, options: CiOptions | None = None, **facts: Any) -> Work:
    own = {} if options is None else {"options": encode_options(options)}
    return Work(**{"task": name, "lifecycle": "ci_job", "ref": name, "step": name, "needs": needs, **own, **facts})


def plan(world: World, run: int, *work: Work, **facts: Any) -> Standing:
    return world.send(Plan(**{"unit": run, "work": work, "plan": '{"hash": "1"}', **facts}))


def look(world: World, query: Any, *args: Any, **facts: Any) -> Any:
    declare(world.connection, 1)
    return query(world.connection, 1, *args, **facts)


def states(world: World, run: int) -> dict[str, str]:
    return {job.name: job.state for job in look(world, list_ci_jobs, run)}


def start(world: World, worker: int) -> LeaseGrant:
    (grant,) = world.claim(worker)
    world.start(grant)
    world.send(Enter(held=(held(grant),), phase="run"))
    return grant


def fail(world: World, grant: LeaseGrant, **seen: Any) -> None:
    """A runner says what it saw, and that it failed."""
    payload = msgspec.json.encode(Sight(**seen)).decode()
    world.send(Record(held=(held(grant),), kind="step", name=SIGHT, payload=payload))
    assert world.finish(grant, ended="failure", error="it failed").accepted


@pytest.mark.req("R4-04", "R4-05", "R4-19", "R4-20", "R4-08")
def test_a_plan_is_jobs_and_move_in_one_transaction(world: World) -> None:
    run = submit_run(world)
    assert world.path(run) == ["CREATED", "PLANNING"]
    before = world.count("act")
    assert plan(world, run, make_job("build"), make_job("test", "build")).state == "QUEUED"
    assert world.count("act") > before
    assert states(world, run) == {"build": "QUEUED", "test": "CREATED"}
    assert [note.payload for note in world.notes(run, "plan")] == ['{"hash": "1"}']
    start(world, world.worker())
    assert world.unit(run).state == "RUNNING"


def test_a_run_with_a_plan_is_done_again_in_a_checkout(world: World) -> None:
    run = submit_run(world)
    plan(world, run, make_job("build"))
    world.cancel(run)
    before = world.count("unit")
    with pytest.raises(InterlockError, match=r"by: interlock ci rerun ci_run_\w+$"):
        world.send(Rerun(unit=run))
    assert world.count("unit") == before


@pytest.mark.req("R4-06", "R4-07", "R4-16")
@pytest.mark.parametrize("failed", ["ci.yaml:3:1: there is no job 'x'", ""])
def test_a_plan_that_failed_or_has_no_jobs_fails_the_run_with_its_reason(world: World, failed: str) -> None:
    run = submit_run(world)
    answer = plan(world, run, plan="null", failed=failed)
    assert (answer.state, answer.applied) == ("FAILED", True)
    assert world.path(run) == ["CREATED", "PLANNING", "PLAN_FAILED", "FAILED"]
    why = failed or "the plan has no jobs; a run has at least one"
    assert look(world, read_plan_failure, run) == why
    assert world.unit(run).outcome == "failure"
    assert states(world, run) == {}


def test_a_plan_that_comes_twice_is_answered_and_another_one_is_refused(world: World) -> None:
    run = submit_run(world)
    plan(world, run, make_job("build"))
    assert plan(world, run, make_job("build")).applied is False
    assert list(states(world, run)) == ["build"]
    for other in ({"plan": '{"hash": "2"}'}, {"plan": '{"hash": "2"}', "failed": "late"}):
        with pytest.raises(Refused, match="no 'plan' from 'QUEUED'"):
            plan(world, run, make_job("other"), **other)
    start(world, world.worker())
    with pytest.raises(Refused, match="no 'plan' from 'RUNNING'"):
        plan(world, run, plan="null", failed="late")
    assert world.unit(run).state == "RUNNING"


def test_a_plan_with_a_fault_changes_nothing(world: World) -> None:
    run, job = submit_run(world), world.submit()
    for wrong, why in (
        ({"plan": "{"}, "plan is not JSON"),
        ({"work": (make_job("build", "gone"),)}, "gone"),
        ({"work": (make_job("a", "b"), make_job("b", "a"))}, "circle|cycle|needs"),
        ({"work": (Work(task="mail"),)}, "a job is no part of a plan; allowed are ci_job and approval"),
        ({"work": (make_job("build", options=CiOptions(retries={"runner": 11})),)}, "allowed are 0 to 10"),
        ({"work": (make_job("build", options=CiOptions(report_to=NOBODY)),)}, "report_to"),
        ({"failed": "\0"}, "NUL"),
    ):
        with pytest.raises(InterlockError, match=why):
            world.send(Plan(unit=run, **wrong))
        assert (world.unit(run).state, states(world, run)) == ("PLANNING", {})
    with pytest.raises(InterlockError, match=r"job_\w+ is planned otherwise; allowed is a ci_run"):
        plan(world, job, make_job("build"))
    with pytest.raises(Unknown):
        plan(world, 12, make_job("build"))


@pytest.mark.req("R4-17", "R4-34")
def test_a_cancel_during_planning_is_carried_out_with_the_plan_or_dropped_with_its_failure(world: World) -> None:
    planned, failed = submit_run(world, NOBODY), submit_run(world, NOBODY)
    for run in (planned, failed):
        world.cancel(run)
    plan(world, planned, make_job("build"))
    assert world.path(planned) == ["CREATED", "PLANNING", "QUEUED", "CANCEL_REQUESTED", "CANCELED", "REPORTED"]
    plan(world, failed, failed="no config")
    assert world.path(failed) == ["CREATED", "PLANNING", "PLAN_FAILED", "FAILED", "REPORTED"]
    assert world.unit(failed).outcome == "failure"


@pytest.mark.req("R4-09", "R4-10", "R4-33", "R4-32")
def test_a_run_that_nobody_is_told_of_is_reported_as_soon_as_it_ends(world: World) -> None:
    worker = world.worker()
    for ended, outcome in (("success", "success"), ("failure", "failure")):
        run = submit_run(world, NOBODY, settle="all")
        plan(world, run, make_job("build"), make_job("lint", decides=False))
        grants = [start(world, worker), start(world, worker)]
        world.finish(grants[1], ended="failure")
        assert world.unit(run).state == "RUNNING"
        world.finish(grants[0], ended=ended)
        assert (world.unit(run).state, world.unit(run).outcome) == ("REPORTED", outcome)
        assert world.events(run)[-1].actor == "reporter"
    told = submit_run(world)
    plan(world, told, make_job("build"))
    world.finish(start(world, worker))
    assert world.unit(told).state == "SUCCESS"
    rows = look(world, list_ci_runs)
    assert [row.outcome for row in rows] == ["success", "failure", "success"]
    assert look(world, read_ci_run, told).state == "SUCCESS"
    assert look(world, list_ci_runs, open_only=True) == []
    with pytest.raises(Unknown):
        look(world, read_ci_run, rows[0].unit + 1)


@pytest.mark.req("R4-29", "R4-50", "R4-51", "R4-52", "R4-54")
def test_the_class_decides_what_is_tried_again_and_the_runner_never_does(world: World) -> None:
    worker = world.worker()
    cases = [
        ({"stage": "checkout", "summary": "disk"}, "infra", 2),
        ({"step": "go", "exit_code": 1, "summary": "Could not resolve host: x"}, "infra", 2),
        ({"step": "go", "exit_code": 1}, "test", 1),
        ({"step": "go", "exit_code": 7}, "test", 2),
        ({"step": "go", "signal": "SIGKILL"}, "memory", 1),
        ({"step": "go", "exit_code": 124}, "timeout", 1),
        ({"step": "go", "stopped": "time", "signal": "SIGTERM"}, "timeout", 1),
    ]
    for seen, kind, tries in cases:
        run = submit_run(world)
        own = CiOptions(job="unit-tests", retries={"runner": 1, "exit 7": 1})
        plan(world, run, make_job("unit-tests", options=own, attempts=9))
        (job,) = look(world, list_ci_jobs, run)
        for attempt in range(1, tries + 1):
            assert world.unit(run).state != "FAILED"
            grant = start(world, worker)
            fail(world, grant, **seen)
            assert world.unit(grant.unit).state == "FAILED"
            closing = msgspec.json.decode(world.events(grant.unit)[-1].payload)
            assert (closing["class"], len(closing["explanation"]) <= 160) == (kind, True)
            assert 0 < closing["confidence"] <= 1
            assert world.unit(job.unit).attempt == min(attempt + 1, tries)
        assert world.claim(worker) == []
        assert (world.unit(job.unit).state, world.unit(run).state) == ("FAILED", "FAILED")
        attempts = look(world, list_ci_attempts, job.unit)
        assert [each.kind for each in attempts] == [kind] * tries
        assert all(each.explanation for each in attempts)


@pytest.mark.req("R4-49")
def test_what_a_runner_says_of_retries_changes_nothing(world: World) -> None:
    """A runner that calls a failed test transient, and one that says nothing of what it saw."""
    worker, run = world.worker(), submit_run(world)
    plan(world, run, make_job("test", options=CiOptions(job="test"), attempts=9))
    grant = start(world, worker)
    payload = msgspec.json.encode(Sight(step="go", exit_code=1)).decode()
    world.send(Record(held=(held(grant),), kind="step", name=SIGHT, payload=payload))
    world.finish(grant, ended="failure", error_class="TransientError", after_us=1)
    assert world.unit(run).state == "FAILED"
    silent = submit_run(world)
    plan(world, silent, make_job("test", options=CiOptions(job="test"), attempts=9))
    grant = start(world, worker)
    world.send(Record(held=(held(grant),), kind="step", name=SIGHT, payload='"nonsense"'))
    world.finish(grant, ended="failure", error="it broke")
    assert world.unit(silent).state == "FAILED"
    assert msgspec.json.decode(world.events(grant.unit)[-1].payload)["explanation"] == "it failed: it broke"


@pytest.mark.req("R4-25", "R4-53", "R4-69")
def test_a_lost_runner_and_a_timeout_have_classes_and_budgets_of_their_own(world: World) -> None:
    worker, run = world.worker(), submit_run(world)
    own = CiOptions(job="test", retries={"timeout": 1})
    plan(world, run, make_job("test", options=own, attempts=9, losses=2, timeout_us=60_000_000))
    (job,) = look(world, list_ci_jobs, run)
    start(world, worker)
    world.pass_time(121)
    world.tick()
    for _ in range(2):
        grant = start(world, worker)
        assert world.unit(run).state == "RUNNING"
        for _ in range(6):
            world.pass_time(10)
            world.beat(grant)
            world.tick()
    assert (world.unit(job.unit).state, world.unit(run).state) == ("TIMED_OUT", "FAILED")
    attempts = look(world, list_ci_attempts, job.unit)
    assert [(each.state, each.kind) for each in attempts] == [
        ("STALE", "runner_lost"), ("TIMED_OUT", "timeout"), ("TIMED_OUT", "timeout"),
    ]  # fmt: skip


def test_an_attempt_that_its_runner_gave_back_has_the_class_of_a_lost_one(world: World) -> None:
    run = submit_run(world)
    plan(world, run, make_job("test", options=CiOptions(job="test")))
    (job,) = look(world, list_ci_jobs, run)
    grant = start(world, world.worker())
    world.send(Release(held=(held(grant),)))
    (first, second) = look(world, list_ci_attempts, job.unit)
    assert (first.state, first.kind, first.fault) == ("STALE", "runner_lost", "INFRA")
    assert (first.explanation, second.state) == ("its runner gave it back", "QUEUED")


@pytest.mark.req("R4-17", "R4-34")
def test_a_cancelled_attempt_says_in_its_closing_event_that_it_was_and_why(world: World) -> None:
    """Held and answered, forced, never begun, and never to begin as what it needs has failed."""
    worker, attempts = world.worker(), []
    for way in ("answered", "forced", "waiting", "unmet"):
        run = submit_run(world, settle="all")
        plan(world, run, make_job("a", options=CiOptions(job="a")), make_job("b", "a", options=CiOptions(job="b")))
        first, second = look(world, list_ci_jobs, run)
        if way == "waiting":
            world.cancel(run, reason="wrong branch")
            attempts.append((second, "it was cancelled: wrong branch"))
            continue
        grant = start(world, worker)
        if way == "unmet":
            fail(world, grant, step="go", exit_code=1)
            attempts.append((second, ""))
            continue
        world.cancel(run, reason="wrong branch")
        if way == "answered":
            assert world.finish(grant, ended="cancelled").accepted
        else:
            world.pass_time(30)
            world.tick()
        attempts.append((first, "it was cancelled: wrong branch"))
    for job, why in attempts:
        (row,) = look(world, list_ci_attempts, job.unit)
        closing = msgspec.json.decode(world.events(row.unit)[-1].payload)
        assert (row.state, row.kind, row.fault) == ("CANCELED", "cancelled", "CANCELED")
        assert (closing["class"], closing["confidence"]) == ("cancelled", 1.0)
        assert why in closing["explanation"]
        assert closing["explanation"].startswith("it was cancelled: ")


def test_each_class_has_its_word_of_the_companion() -> None:
    classes = {
        "runner_lost",
        "infra",
        "memory",
        "flaky",
        "test",
        "build",
        "lint",
        "step",
        "timeout",
        "cancelled",
        "unknown",
    }
    assert COMPANION.keys() == classes
    assert set(COMPANION.values()) <= {"USER", "INFRA", "TOOLING", "FLAKY", "CANCELED", "UNKNOWN"}


@pytest.mark.req("R4-62", "R4-66")
def test_an_attempt_has_one_lease_and_one_end(world: World) -> None:
    """Two runners ask for one attempt, and the first one is lost: whoever comes late changes nothing."""
    first, second, run = world.worker("first"), world.worker("second"), submit_run(world)
    plan(world, run, make_job("build", options=CiOptions(job="build")))
    lost = start(world, first)
    assert world.claim(second) == []
    world.pass_time(121)
    world.tick()
    grant = start(world, second)
    version = world.unit(run).version
    assert world.finish(lost).accepted is False
    assert world.unit(run).version == version
    assert world.finish(grant).accepted
    assert world.finish(grant).accepted  # the answer was lost, and the message came again
    assert world.finish(grant, ended="failure").accepted is False
    assert (states(world, run), world.unit(run).state) == ({"build": "SUCCEEDED"}, "SUCCESS")


@pytest.mark.req("R4-13", "R4-57", "R4-16")
def test_a_run_that_takes_too_long_is_timed_out_with_all_its_jobs(world: World) -> None:
    run, worker = submit_run(world, NOBODY, timeout_us=60_000_000, settle="all"), world.worker()
    plan(world, run, make_job("build"), make_job("test", "build"))
    grant = start(world, worker)
    for _ in range(6):
        world.pass_time(10)
        world.beat(grant)
        world.tick()
    assert "TIMEOUT" in world.path(run)
    assert (world.unit(run).state, world.unit(run).outcome) == ("REPORTED", "failure")
    assert states(world, run) == {"build": "CANCEL_REQUESTED", "test": "CANCELED"}
    world.finish(grant, ended="cancelled")
    assert states(world, run) == {"build": "CANCELED", "test": "CANCELED"}


def test_a_success_is_found_by_its_fingerprint(world: World) -> None:
    worker, run = world.worker(), submit_run(world)
    prints = {"build": "f" * 64, "test": "0" * 64}
    plan(world, run, *(make_job(name, options=CiOptions(job=name, fingerprint=text)) for name, text in prints.items()))
    first, second = start(world, worker), start(world, worker)
    world.finish(first)
    fail(world, second, step="go", exit_code=1)
    found = look(world, find_successes, list(prints.values()), 0)
    assert {text: success.attempt for text, success in found.items()} == {"f" * 64: first.unit}
    assert look(world, find_successes, list(prints.values()), world.now_us + 1) == {}
    assert look(world, find_successes, [], 0) == {}


def test_what_was_taken_over_is_no_new_success(world: World) -> None:
    """Else a result would count for longer than it may, from one run to the next."""
    worker, first, second = world.worker(), submit_run(world), submit_run(world)
    plan(world, first, make_job("a", options=CiOptions(job="a", fingerprint="f")))
    grant = start(world, worker)
    world.finish(grant)
    at = world.now_us
    world.pass_time(60)
    plan(world, second, make_job("a", options=CiOptions(job="a", fingerprint="f", reuses=grant.unit)))
    world.finish(start(world, worker))
    assert states(world, second) == {"a": "SUCCEEDED"}
    (success,) = look(world, find_successes, ["f"], 0).values()
    assert (success.attempt, success.at) == (grant.unit, at)


def report(world: World, grant: LeaseGrant, *tests: CiTest) -> None:
    """A runner reports tests, each in a record of its own."""
    for number, test in enumerate(tests):
        payload = msgspec.json.encode([test]).decode()
        world.send(Record(held=(held(grant),), kind="step", name=f"{TESTS}{number}", payload=payload))


def test_tests_become_rows_and_one_that_failed_and_passed_for_one_input_is_flaky(world: World) -> None:
    """The first failure is a failed test. The second one is known to be flaky, and so the job is tried again."""
    worker = world.worker()
    good, bad = CiTest("pkg::adds", "passed", 7), CiTest("pkg::waits", "failure", 9, "too late")
    own = CiOptions(job="test", fingerprint="f", retries={"flaky": 1})
    kinds = []
    for passes in (False, True, False):
        run = submit_run(world)
        plan(world, run, make_job("test", options=own, attempts=9))
        grant = start(world, worker)
        report(world, grant, good, bad if not passes else CiTest("pkg::waits", "passed", 9))
        if passes:
            world.finish(grant)
        else:
            fail(world, grant, step="go", exit_code=1)
        (job,) = look(world, list_ci_jobs, run)
        kinds.append((look(world, list_ci_attempts, job.unit)[0].kind, job.state))
    assert kinds == [("test", "FAILED"), ("success", "SUCCEEDED"), ("flaky", "QUEUED")]
    assert [(row.name, row.lost, row.won) for row in look(world, list_flaky_tests)] == [("pkg::waits", 2, 1)]
    rows = look(world, list_ci_tests, run)
    assert [(row.job, row.name, row.outcome, row.ms, row.message) for row in rows] == [
        ("test", "pkg::waits", "failure", 9, "too late"), ("test", "pkg::adds", "passed", 7, ""),
    ]  # fmt: skip


def test_tests_that_cannot_be_read_are_passed_over(world: World) -> None:
    worker, run = world.worker(), submit_run(world)
    plan(world, run, make_job("test", options=CiOptions(job="test", fingerprint="f")))
    grant = start(world, worker)
    world.send(Record(held=(held(grant),), kind="step", name=f"{TESTS}1", payload='[{"name": 1}]'))
    world.finish(grant)
    assert (look(world, list_ci_tests, run), world.unit(run).state) == ([], "SUCCESS")
