"""The execution of one job: a pipe of named steps, from the grant of its lease to its recorded outcome.

An `Execution` is one attempt under one lease. `run` takes it through these steps, in this order:

    may_start            the worker is stopping, or lost the lease while the job waited: it is given back
    resolve_task         finds the task by its name; one that is not known here is a failure, and so is another contract
    decode_arguments     reads the arguments; arguments that do not fit the handler are a failure
    refuse_ended_lease   nothing starts under a lease that is over by the worker's own clock: it is given back
    report_start         the engine is going to know that the handler runs, and its time limit begins
    call_handler         the handler runs: on the loop, in a thread or in a process
    classify             its return value or its exception becomes an outcome (`outcome.py`)
    complete_outcome     a stop gets its meaning, costs are added, secrets are taken out
    report_end           the outcome goes to the reporter, which sends it together with others, and the slot is free
    log_end              the engine has answered: one line in the log says how the attempt ended

A step before the handler ends the attempt by raising `NotStarted` with its outcome. Whatever user code raises is caught
in `run` and goes no further: a handler cannot break its worker. An outcome of None means that nothing is reported,
because nothing that this worker says would be accepted: the lease is another's.

Two things happen outside this file. The reporter (`reporter.py`) sends starts and ends in bulk, later: a job that ends
at once is started and finished in one transaction, and `log_end` is called when the engine has answered. And a lease
can be lost at any time: the worker (`loop.py`) then cancels the asyncio task that runs this pipe, which arrives here as
`CancelledError` in the handler, as a timeout (`time_limits.py`) or a stop of the worker does.

What is ugly: a thread cannot be stopped. The pipe ends without it, and the worker keeps its slot until it has ended.

Who runs the pipe is an `ExecutionRunner`: the worker of production, or the one of `interlock.testing`,
which has no loop.
The steps `may_start`, `report_start`, `call_handler` and `report_end` are its methods.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from interlock.client.exceptions import Snooze
from interlock.client.tasks import RUNNING, Task
from interlock.kernel.commands import PERMANENT, LeaseGrant, LeaseRef, LeaseStatus, Outcome
from interlock.kernel.errors import TransientError, Unknown
from interlock.plugins.agents.contracts import DIGEST_SHOWN, MISMATCH
from interlock.worker.context import JobContext, LeaseOver
from interlock.worker.leases import LocalLease
from interlock.worker.log_lines import log, log_job
from interlock.worker.outcome import (
    Ending,
    GiveBack,
    add_cost,
    classify_error,
    classify_result,
    classify_stop,
    classify_unreadable_arguments,
)
from interlock.worker.tracebacks import redact_outcome
from interlock.worker.validation import refuse_unvalidated

if TYPE_CHECKING:
    from interlock.client.app import App
    from interlock.worker.loop import WorkerQueue

MAKING = Lock()
END_EVENTS = {
    "success": "job succeeded",
    "failure": "job failed",
    "cancelled": "job cancelled",
    "given back": "job given back",
    "refused": "late result rejected",
}


class Execution(msgspec.Struct, eq=False):
    """One attempt of a job under one lease, as far as it has come. Times are seconds of the worker's loop."""

    grant: LeaseGrant
    held: LeaseRef  # how the engine is told which lease is meant
    lease: LocalLease
    make_context: Callable[["Execution"], JobContext]
    queue: "WorkerQueue | None" = None  # in whose slot it runs
    made_context: JobContext | None = None
    task: Task[Any, Any] | None = None
    arguments: dict[str, Any] = {}
    started_at: float | None = None  # when the handler was called
    ended: bool = False
    outcome: Ending = None
    timed_out: bool = False  # its handler was stopped because it ran for too long
    given_up: bool = False  # its worker is stopping, and does not wait for it any more
    asyncio_task: asyncio.Task[None] | None = None  # that runs the pipe
    start_reported: bool = False  # the engine knows that it runs
    in_report: bool = False  # something about it is being sent, and there is no answer yet
    outcome_replaced: bool = False  # the engine refused its outcome once

    @property
    def context(self) -> JobContext:
        """What its handler may ask of it. Most handlers ask nothing, so it is made when it is first needed."""
        if self.made_context is None:
            with MAKING:  # what a handler has started may print in several threads
                self.made_context = self.made_context or self.make_context(self)
        return self.made_context

    def lease_is_over(self) -> bool:
        """Whether another worker may have the job, by this worker's own clock."""
        return self.lease.is_over()

    def take_printed(self, data: bytes) -> None:
        """Adds what its handler prints to the log of the job. What a handler has left behind prints past it."""
        thread = self.made_context.thread if self.made_context else None
        if not self.ended or (thread is not None and not thread.done()):
            self.context.write_log(data)

    def read_value(self, text: str) -> str:
        """Returns a large value, which is kept beside the database; any other text stays as it is."""
        return self.context.read_value(text)


class ExecutionRunner(Protocol):
    """What the pipe needs of the worker that runs it."""

    app: "App"
    user_errors: tuple[type[BaseException], ...]  # whatever else is raised ends more than the attempt

    def may_start(self, execution: Execution) -> bool: ...
    def report_start(self, execution: Execution) -> None: ...
    def call_handler(self, execution: Execution) -> Awaitable[Any]: ...
    def report_end(self, execution: Execution) -> None: ...


class NotStarted(Exception):
    """The handler is not called, and the attempt ends like this."""

    def __init__(self, outcome: Ending) -> None:
        super().__init__()
        self.outcome = outcome


async def run(execution: Execution, worker: ExecutionRunner) -> None:
    """Runs the whole attempt: when this ends, its outcome is with the reporter, and its slot is free."""
    try:
        try:
            if not worker.may_start(execution):
                raise NotStarted(GiveBack())
            resolve_task(execution, worker)
            decode_arguments(execution)
            refuse_ended_lease(execution)
            worker.report_start(execution)
            RUNNING.set((worker.app, execution.grant))  # the pipe has a context of its own, so this ends with it
            result = await worker.call_handler(execution)
            task = execution.task
            if task and task.agent and task.place != "process":  # which has asked that itself
                refuse_unvalidated(task, execution.made_context)
            execution.outcome = classify_result(execution.held, result)
        except NotStarted as not_started:
            execution.outcome = not_started.outcome
        except LeaseOver:  # a thread or a process was not free before the lease was over
            execution.outcome = give_back_late(execution)
        except worker.user_errors as error:
            execution.outcome = classify_error(execution.held, explain_timeout(execution, error))
        complete_outcome(execution, worker)
    finally:
        worker.report_end(execution)


# The steps.


def resolve_task(execution: Execution, worker: ExecutionRunner) -> None:
    """Raises NotStarted for a task that is not known here; another worker may know it, so it is tried again."""
    try:
        execution.task = worker.app.tasks.get(execution.grant.task) or worker.app.find_task(execution.grant.task)
    except Unknown as error:
        raise NotStarted(Outcome(held=execution.held, ended="failure", error=str(error), stage="fetch")) from None
    if execution.grant.contract:
        refuse_other_contract(execution, execution.task)


def refuse_other_contract(execution: Execution, task: Task[Any, Any]) -> None:
    """Raises NotStarted for the run of an agent that has another contract than the agent has here."""
    digest = execution.grant.contract or ""
    own = "" if task.agent is None else task.agent.digest
    if digest != own:
        error = f"{MISMATCH} {digest[:DIGEST_SHOWN]}: this worker has {own[:DIGEST_SHOWN] or 'none'} of '{task.name}'"
        raise NotStarted(
            Outcome(held=execution.held, ended="failure", error=error, error_class=PERMANENT, stage="fetch")
        )


def decode_arguments(execution: Execution) -> None:
    """Raises NotStarted for arguments that do not fit the handler."""
    assert execution.task
    arguments, context = execution.task.arguments, None
    if arguments.context_name:
        context = execution.context
        context.use_task(execution.task)
    try:
        execution.arguments = arguments.decode(execution.grant, context, execution.read_value)
    except msgspec.MsgspecError as error:
        raise NotStarted(classify_unreadable_arguments(execution.held, error)) from None


def refuse_ended_lease(execution: Execution) -> None:
    """Raises NotStarted if another worker may have the job by now; if none has, it is given back."""
    if execution.lease.is_over():
        raise NotStarted(give_back_late(execution))


def give_back_late(execution: Execution) -> GiveBack:
    """Gives a job back whose lease expired before it was started."""
    log_job(logging.WARNING, "lease expired before the job started, giving it back", execution.grant)
    return GiveBack()


def explain_timeout(execution: Execution, error: BaseException) -> BaseException:
    """Returns the error that an attempt ends with: that of its handler, unless it was stopped for its time limit."""
    if not execution.timed_out:
        return error
    execution.context.stopping.set()  # a thread may still run
    timeout = TransientError(f"timed out: it ran for longer than {(execution.grant.timeout_us or 0) / 1_000_000} s")
    timeout.__cause__ = error
    return timeout


def complete_outcome(execution: Execution, worker: ExecutionRunner) -> None:
    """Makes the outcome what is recorded: a stop as what it means, with the attempt's costs and without secrets."""
    outcome = execution.outcome
    if isinstance(outcome, Outcome) and outcome.ended == "cancelled":
        stop_requested = execution.context.cancelled
        outcome = classify_stop(outcome, given_up=execution.given_up, stop_requested=stop_requested)
    if execution.made_context and execution.made_context.own_cost:
        outcome = add_cost(outcome, execution.made_context.own_cost)
    if isinstance(outcome, Outcome) and (outcome.error or outcome.traceback):
        outcome = redact_outcome(outcome, worker.app.redact)
    execution.outcome = outcome


# After the answer.


def may_be_refused(execution: Execution) -> bool:
    """Whether an outcome can be refused under a sound lease: snoozes are counted, and a cancel must be asked for."""
    outcome = execution.outcome
    cancelled = isinstance(outcome, Outcome) and outcome.ended == "cancelled"
    return not execution.outcome_replaced and (cancelled or isinstance(outcome, Snooze))


def replace_refused_outcome(execution: Execution, why: str) -> None:
    """Makes the outcome a failure, which is reported once more, so that nobody waits for the lease to expire."""
    execution.outcome_replaced = True
    error = f"its end was refused: {why}"
    execution.outcome = Outcome(held=execution.held, ended="failure", error=error, error_class=PERMANENT)


def name_end(execution: Execution, answer: LeaseStatus) -> str:
    """Returns how it ended, in the word of the worker's counts."""
    if not answer.accepted:
        return "refused"
    return execution.outcome.ended if isinstance(execution.outcome, Outcome) else "given back"


def log_end(execution: Execution, answer: LeaseStatus) -> str:
    """Logs one line: how it ended, why, and the traceback of a failure. Returns how it ended, as `name_end` does."""
    ended, outcome = name_end(execution, answer), execution.outcome
    level = logging.INFO if ended in ("success", "given back") else logging.WARNING
    if not log.isEnabledFor(level):
        return ended
    why = answer.why if ended == "refused" else outcome.error if isinstance(outcome, Outcome) else ""
    facts, text = {"ended": ended, "state": answer.state, "why": why}, why
    if isinstance(outcome, Outcome) and outcome.traceback:
        text, facts["traceback"] = f"{why}\n{outcome.traceback}", outcome.traceback
    log_job(level, END_EVENTS[ended], execution.grant, text, **facts)
    return ended
