"""The pipe of an execution: what each step does, in which order, and how it ends an attempt early."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import interlock
from interlock.client.tasks import RUNNING
from interlock.kernel.commands import TRANSIENT, VALIDATION, LeaseGrant, LeaseStatus, Outcome
from interlock.worker.context import JobContext
from interlock.worker.execution import (
    Execution,
    NotStarted,
    complete_outcome,
    decode_arguments,
    log_end,
    may_be_refused,
    name_end,
    refuse_ended_lease,
    replace_refused_outcome,
    resolve_task,
    run,
)
from interlock.worker.leases import LocalLease
from interlock.worker.outcome import Ending, GiveBack
from interlock.worker.time_limits import TimeLimits

SECRET = "ab" * 32  # is taken out of every error


class ScriptedWorker:
    """A runner that writes down what the pipe asks of it."""

    user_errors: tuple[type[BaseException], ...] = (Exception, asyncio.CancelledError, SystemExit)

    def __init__(self) -> None:
        self.app = interlock.App("sqlite://:memory:")
        self.now, self.stopped = 0.0, False
        self.steps: list[str] = []
        self.time_limits = TimeLimits()

    def execution(self, task: str, timeout_us: int | None = None, **arguments: Any) -> Execution:
        grant = LeaseGrant(
            unit=1, task=task, input=msgspec.json.encode(arguments).decode(), attempt=1, fence=1, lease="secret",
            until=0, ttl_us=60_000_000, beat_us=0, correlation="", trace="", timeout_us=timeout_us,
        )  # fmt: skip
        context = JobContext(None, grant, 1, lambda note: None)  # type: ignore[arg-type]
        lease = LocalLease(grant, lambda: self.now, 0.0)
        return Execution(grant, context.held, lease, lambda _: context)

    def may_start(self, execution: Execution) -> bool:
        return not self.stopped

    async def call_handler(self, execution: Execution) -> Any:
        assert execution.task
        self.steps.append("perform")
        return await execution.task.handler(**execution.arguments)

    def report_start(self, execution: Execution) -> None:
        self.steps.append("started")
        if execution.grant.timeout_us:
            execution.asyncio_task = asyncio.current_task()
            self.time_limits.begin(execution)

    def report_end(self, execution: Execution) -> None:
        self.steps.append("ended")
        if execution.grant.timeout_us:
            self.time_limits.end(execution)


@pytest.fixture
def worker() -> ScriptedWorker:
    """A worker that knows a few tasks."""
    worker = ScriptedWorker()

    @worker.app.task
    async def double(n: int) -> int:
        return 2 * n

    @worker.app.task
    async def fail(why: str) -> None:
        raise ValueError(why)

    @worker.app.task
    async def last() -> None:
        await asyncio.Event().wait()

    @worker.app.task
    async def own_timeout() -> None:
        raise TimeoutError("of another clock")

    @worker.app.task
    async def give_in() -> None:
        raise interlock.Cancelled("as you wish")

    @worker.app.task
    async def leave() -> None:
        raise SystemExit(3)

    return worker


def run_through(worker: ScriptedWorker, execution: Execution) -> Ending:
    asyncio.run(run(execution, worker))
    return execution.outcome


def failure(ending: Ending) -> Outcome:
    assert isinstance(ending, Outcome)
    assert ending.ended == "failure"
    return ending


def test_an_attempt_is_started_performed_and_recorded_in_this_order(worker: ScriptedWorker) -> None:
    execution = worker.execution("double", n=21)
    assert run_through(worker, execution) == Outcome(held=execution.held, result="42")
    assert worker.steps == ["started", "perform", "ended"]
    assert execution.task is worker.app.tasks["double"]


def test_what_a_handler_raises_is_the_outcome_of_its_attempt(worker: ScriptedWorker) -> None:
    assert failure(run_through(worker, worker.execution("fail", why="no"))).error == "ValueError: no"
    assert failure(run_through(worker, worker.execution("leave"))).error == "SystemExit: 3"
    assert worker.steps == ["started", "perform", "ended"] * 2


def test_what_is_not_the_handlers_own_ends_more_than_the_attempt_and_is_not_reported(worker: ScriptedWorker) -> None:
    """An outcome of None is not sent to the engine."""
    worker.user_errors = (Exception,)
    execution = worker.execution("leave")
    with pytest.raises(SystemExit):
        asyncio.run(run(execution, worker))
    assert execution.outcome is None
    assert worker.steps[-1] == "ended", "but its slot and its lease are given up"


def not_started(step: Callable[[], None]) -> Ending:
    with pytest.raises(NotStarted) as refused:
        step()
    return refused.value.outcome


def test_a_job_that_was_lost_or_given_up_is_not_started(worker: ScriptedWorker) -> None:
    execution = worker.execution("double", n=1)
    worker.stopped = True
    assert isinstance(run_through(worker, execution), GiveBack)
    assert worker.steps == ["ended"]


def test_a_task_that_is_not_known_fails_where_it_is_looked_for(worker: ScriptedWorker) -> None:
    execution = worker.execution("unknown")
    ended = failure(not_started(lambda: resolve_task(execution, worker)))
    assert (ended.stage, ended.error_class) == ("fetch", TRANSIENT)
    assert "this app has no task 'unknown'" in ended.error
    assert run_through(worker, execution) == ended
    assert worker.steps == ["ended"]


@pytest.mark.parametrize(
    ("arguments", "reason"), [('{"n": "many"}', "validation_failed"), ("{", "parse_error")], ids=["unfit", "damaged"]
)
def test_arguments_that_cannot_be_read_fail_for_good(worker: ScriptedWorker, arguments: str, reason: str) -> None:
    execution = worker.execution("double")
    execution.grant = msgspec.structs.replace(execution.grant, input=arguments)
    resolve_task(execution, worker)
    ended = failure(not_started(lambda: decode_arguments(execution)))
    assert (ended.stage, ended.reason_code, ended.error_class) == ("input", reason, VALIDATION)
    assert run_through(worker, execution) == ended
    assert worker.steps == ["ended"]


def test_nothing_starts_under_a_lease_that_is_over_by_the_clock(
    worker: ScriptedWorker, caplog: pytest.LogCaptureFixture
) -> None:
    execution = worker.execution("double", n=1)
    worker.now = 59.9
    refuse_ended_lease(execution)
    worker.now = 60.0
    assert isinstance(not_started(lambda: refuse_ended_lease(execution)), GiveBack)
    assert "lease expired before the job started, giving it back id=job_1 task=double attempt=1 fence=1" in caplog.text
    assert isinstance(run_through(worker, execution), GiveBack)
    assert worker.steps == ["ended"]


def test_a_handler_has_its_time_and_no_more(worker: ScriptedWorker) -> None:
    execution = worker.execution("last", timeout_us=10_000)
    assert failure(run_through(worker, execution)).error == "TransientError: timed out: it ran for longer than 0.01 s"
    assert execution.context.cancelled, "a thread sees it"
    own = worker.execution("own_timeout", timeout_us=60_000_000)
    assert failure(run_through(worker, own)).error == "TimeoutError: of another clock"
    assert not own.context.cancelled


def test_what_a_handler_submits_belongs_to_its_job(worker: ScriptedWorker) -> None:
    seen: list[Any] = []

    @worker.app.task
    async def look() -> None:
        seen.append(RUNNING.get())

    execution = worker.execution("look")
    run_through(worker, execution)
    assert seen == [(worker.app, execution.grant)]
    assert RUNNING.get() is None


@pytest.mark.parametrize(
    ("given_up", "asked", "ended"), [(True, True, "given back"), (False, True, "cancelled"), (False, False, "failure")]
)
def test_a_stop_means_what_it_was_stopped_for(worker: ScriptedWorker, given_up: bool, asked: bool, ended: str) -> None:
    execution = worker.execution("give_in")
    execution.given_up = given_up
    if asked:
        execution.context.stopping.set()
    run_through(worker, execution)
    assert name_end(execution, LeaseStatus(unit=1, accepted=True)) == ended
    if ended == "failure":
        assert failure(execution.outcome).error.startswith("it stopped, though nobody had asked for it")


def test_an_outcome_is_completed_with_its_costs_and_without_secrets(worker: ScriptedWorker) -> None:
    worker.app.redact = lambda text: text.replace("4111-1111", "[card]")
    execution = worker.execution("fail", why=f"the card 4111-1111 and {SECRET}")
    execution.context.cost(2.5)
    ended = failure(run_through(worker, execution))
    assert ended.cost == 2.5
    for text in (ended.error, ended.traceback):
        assert "[card]" in text
        assert SECRET not in text
    snoozed = worker.execution("double")
    snoozed.outcome = interlock.Snooze("1m")
    snoozed.context.cost(1.0)
    complete_outcome(snoozed, worker)
    assert snoozed.outcome.cost == 1.0


def test_an_outcome_is_refused_under_a_sound_lease_only_if_the_engine_counts_it(worker: ScriptedWorker) -> None:
    execution = worker.execution("double")
    for outcome, refused in (
        (Outcome(held=execution.held), False),
        (Outcome(held=execution.held, ended="cancelled"), True),
        (interlock.Snooze(1), True),
        (GiveBack(), False),
    ):
        execution.outcome = outcome
        assert may_be_refused(execution) is refused
    execution.outcome = interlock.Snooze(1)
    replace_refused_outcome(execution, "a snooze too many")
    assert failure(execution.outcome).error == "its end was refused: a snooze too many"
    assert not may_be_refused(execution), "it is replaced once"


def test_the_end_is_one_line_in_the_log(worker: ScriptedWorker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "interlock.worker")
    execution = worker.execution("fail", why="no")
    run_through(worker, execution)
    log_end(execution, LeaseStatus(unit=1, accepted=True, state="waiting"))
    log_end(execution, LeaseStatus(unit=1, accepted=False, why="another has it"))
    execution.outcome = Outcome(held=execution.held)
    log_end(execution, LeaseStatus(unit=1, accepted=True, state="done"))
    failed, refused, succeeded = caplog.records
    assert failed.getMessage().startswith("job failed id=job_1 task=fail attempt=1 fence=1: ValueError: no\nTraceback")
    assert refused.getMessage().startswith("late result rejected id=job_1 task=fail attempt=1 fence=1: another has it")
    assert (succeeded.getMessage(), succeeded.levelname) == (
        "job succeeded id=job_1 task=fail attempt=1 fence=1",
        "INFO",
    )
    facts: dict[str, Any] = failed.facts  # type: ignore[attr-defined]
    assert (facts["id"], facts["ended"], facts["state"], facts["why"]) == (
        "job_1",
        "failure",
        "waiting",
        "ValueError: no",
    )
    assert facts["traceback"].endswith("ValueError: no")
