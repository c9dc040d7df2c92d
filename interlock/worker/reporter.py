"""Report starts, notes, logs and ends of jobs to the engine, many in one message.

An end is reported at once; a start or a note within REPORT_AFTER, so that a job which ends by then is started and
finished in one transaction. At most AT_ONCE reports are on their way at a time, and never two about the same job: an
execution is `in_report` from when a command about it is sent until the answer is there, and whatever happens to it
meanwhile goes with a later report. So the engine learns of each job in the order in which things happened.

A command that the engine refuses as a whole is sent again for each job alone: one of them spoils it for the others. An
outcome that is refused though its lease is sound is replaced by a failure, once.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from logging import ERROR
from typing import Any

import msgspec

from interlock.kernel.commands import (
    AppendLog,
    Command,
    Finish,
    LeaseStatus,
    LogEntry,
    Outcome,
    Record,
    Release,
    Start,
)
from interlock.kernel.errors import InterlockError
from interlock.worker.execution import Execution, log_end, may_be_refused, replace_refused_outcome
from interlock.worker.job_logs import JobLog
from interlock.worker.leases import Executions
from interlock.worker.log_lines import log_event, log_job
from interlock.worker.outcome import GiveBack, make_release
from interlock.worker.retrying_client import RetryingClient

REPORT_AFTER = 0.05  # seconds
LOG_AFTER = 0.2  # seconds that bytes of logs are gathered
EMIT_AFTER = 0.05  # seconds that what handlers emit is gathered
LOG_SIZE = 512 * 1024  # bytes of logs per command
CHUNK = 500  # jobs per command
AT_ONCE = 2  # reports on their way
WORTH = 100  # ends that make a second report worth its transaction
Part = tuple[Command[Any], list[Execution]]  # a command, and the executions that it is about


class Reporter:
    """Batches and sends the reports of one worker."""

    def __init__(
        self, client: RetryingClient, executions: Executions, tenant: int, actor: str,
        on_answer: Callable[[Execution, LeaseStatus], None] = lambda execution, answer: None,
        on_sent: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`on_answer` is called for what an answer asks before an end, `on_sent` after each report."""
        self.client, self.executions, self.tenant, self.actor = client, executions, tenant, actor
        self.on_answer, self.on_sent = on_answer, on_sent
        self.starts: list[Execution] = []
        self.ends: list[Execution] = []
        self.incoming = deque[Record | JobLog]()  # from any thread, in order
        self.notes: dict[tuple[int, int, str, str], Record] = {}
        self.oldest_note_at: float | None = None
        self.logs: dict[tuple[int, int], JobLog] = {}  # that have bytes to send, by unit and fence
        self.oldest_log_at: float | None = None
        self.changed, self.idle = asyncio.Event(), asyncio.Event()
        self.on_their_way = 0  # reports
        self.idle.set()
        self.counts = {"success": 0, "failure": 0, "cancelled": 0, "given back": 0, "refused": 0}

    # What is to be reported.

    def add_start(self, execution: Execution, now: float) -> None:
        execution.started_at = now
        if not self.starts:  # else it is due after another one
            self.changed.set()
        self.starts.append(execution)

    def take_incoming(self, now: float) -> None:
        """Adds notes and logs of other threads. No end overtakes them, because this comes before every report."""
        while self.incoming:
            item = self.incoming.popleft()
            if isinstance(item, JobLog):
                self.add_log(item, now)
            else:
                self.add_note(item, now)

    def add_note(self, note: Record, now: float) -> None:
        """Adds a note; of notes of one kind and name, the last one counts."""
        held = note.held[0]
        self.notes[held.unit, held.fence, note.kind, note.name] = note
        self.oldest_note_at = self.oldest_note_at or now
        self.changed.set()

    def add_log(self, log: JobLog, now: float) -> None:
        """Has the bytes of a log sent, with those of others."""
        self.logs[log.held.unit, log.held.fence] = log
        added_at = now - (LOG_AFTER - EMIT_AFTER) if log.emits else now  # what is emitted is sent sooner
        if self.oldest_log_at is None or added_at < self.oldest_log_at:
            self.oldest_log_at = added_at
            self.changed.set()

    def add_end(self, execution: Execution) -> None:
        if not execution.ended:
            execution.ended = True
            self.ends.append(execution)
            self.changed.set()

    # When it is sent.

    async def run(self) -> None:
        """Sends what is due, until this is cancelled. Raises what broke a report."""
        now, reports = asyncio.get_running_loop().time, set[asyncio.Task[None]]()
        try:
            while True:
                self.changed.clear()
                for done in [report for report in reports if report.done()]:
                    reports.remove(done)
                    done.result()  # raises what broke it
                due_at = None if self.on_their_way else self.due_at()
                wait = None if due_at is None else due_at - now()
                if self.is_worth_sending() or (wait is not None and wait <= 0):
                    parts = self.take_due(now())
                    report = asyncio.create_task(self.send(parts))
                    reports.add(report)
                    report.add_done_callback(partial(self.release, parts))
                else:
                    await wait_for_event(self.changed, wait)
        finally:
            for report in reports:
                report.cancel()
            await asyncio.gather(*reports, return_exceptions=True)

    async def flush(self) -> None:
        """Sends what is due now; when this ends, the engine has answered."""
        await self.idle.wait()
        parts = self.take_due(asyncio.get_running_loop().time())
        try:
            await self.send(parts)
        finally:
            self.release(parts)

    def is_worth_sending(self) -> bool:
        """Whether ends are sent now: at once if no report is on its way, else if there are many that are in none."""
        if not self.on_their_way:
            return bool(self.ends)
        waiting = len(self.ends) >= WORTH and sum(not execution.in_report for execution in self.ends)
        return self.on_their_way < AT_ONCE and waiting >= WORTH

    def due_at(self) -> float | None:
        """Returns when the oldest start, note or log is due, in seconds of the loop; None if there is none."""
        times = [execution.started_at for execution in self.starts[:1]] + [self.oldest_note_at]
        due = [time + REPORT_AFTER for time in times if time is not None]
        due += [] if self.oldest_log_at is None else [self.oldest_log_at + LOG_AFTER]
        return min(due, default=None)

    # What is sent.

    def take_due(self, now: float) -> list[Part]:
        """Takes the commands that are due. Until `release`, no other report is about their executions."""
        if self.incoming:
            self.take_incoming(now)
        parts = [*self.due_starts(now)]
        parts += self.due_notes(now) if self.notes else ()
        parts += self.due_logs(now) if self.logs else ()
        parts += self.due_ends()
        for _, executions in parts:
            for execution in executions:
                execution.in_report = True
        self.on_their_way += 1
        self.idle.clear()
        return parts

    def release(self, parts: list[Part], _: object = None) -> None:
        """Ends a report that was answered, or broke."""
        for _, executions in parts:
            for execution in executions:
                execution.in_report = False
        self.on_their_way -= 1
        if not self.on_their_way:
            self.idle.set()
        self.changed.set()

    def due_starts(self, now: float) -> Iterator[Part]:
        """Yields starts of jobs that have ended, or have run for so long that they will not end with their start."""
        due: list[Execution] = []
        later: list[Execution] = []
        held_here = self.executions.by_unit.get
        for execution in self.starts:
            if not execution.start_reported and held_here(execution.grant.unit) is execution:
                is_due = execution.ended or (execution.started_at or 0) + REPORT_AFTER <= now
                (due if is_due and not execution.in_report else later).append(execution)
        self.starts = later
        for start in range(0, len(due), CHUNK):
            chunk = due[start : start + CHUNK]
            yield Start(tenant=self.tenant, actor=self.actor, held=tuple([each.held for each in chunk])), chunk

    def due_notes(self, now: float) -> Iterator[Part]:
        """Yields all notes of jobs that are still held here, but those that are in a report."""
        notes, self.notes, self.oldest_note_at = self.notes, {}, None
        for (unit, fence, _, _), note in notes.items():
            execution = self.executions.find(unit, fence)
            if execution and execution.in_report:
                self.add_note(note, now)
            elif execution:
                yield note, [execution]

    def due_logs(self, now: float) -> Iterator[Part]:
        """Yields the bytes of all logs, but those of jobs that are in a report, in commands of a bounded size.

        A log of a job that is not held here any more is sent too: it is taken for a while, and marked as late.
        """
        logs, self.logs, self.oldest_log_at = self.logs, {}, None
        entries, executions, size = list[LogEntry](), list[Execution](), 0
        for place, log in logs.items():
            execution = self.executions.find(*place)
            if execution and execution.in_report:
                self.add_log(log, now)
                continue
            while entry := log.take(LOG_SIZE - size):
                entries.append(entry)
                executions += [execution] if execution else []
                size += len(entry.data)
                if size >= LOG_SIZE:
                    yield self.make_append(entries), executions
                    entries, executions, size = [], [], 0
        if entries:
            yield self.make_append(entries), executions

    def make_append(self, entries: list[LogEntry]) -> AppendLog:
        return AppendLog(tenant=self.tenant, actor=self.actor, entries=tuple(entries))

    def due_ends(self) -> Iterator[Part]:
        """Yields all ends but those that are in a report. Of an end without outcome nothing is reported."""
        ends, self.ends = self.ends, []
        finished: list[Execution] = []
        outcomes: list[Outcome] = []
        given_back: list[Execution] = []
        held_here = self.executions.by_unit.get
        for execution in ends:
            if execution.in_report:
                self.ends.append(execution)
                continue
            if held_here(execution.grant.unit) is not execution:
                continue
            outcome = execution.outcome
            if isinstance(outcome, Outcome):
                finished.append(execution)
                outcomes.append(outcome)
            elif isinstance(outcome, GiveBack):
                given_back.append(execution)
            elif outcome is None:
                self.executions.remove(execution)
            else:
                fields = {"tenant": self.tenant, "actor": self.actor, "reason": str(outcome)}
                yield make_release(outcome, execution.held, **fields), [execution]
        for start in range(0, len(finished), CHUNK):
            end = start + CHUNK
            yield Finish(tenant=self.tenant, actor=self.actor, outcomes=tuple(outcomes[start:end])), finished[start:end]
        for start in range(0, len(given_back), CHUNK):
            chunk = given_back[start : start + CHUNK]
            held = tuple([each.held for each in chunk])
            yield Release(tenant=self.tenant, actor=self.actor, held=held, reason="its worker cannot finish it"), chunk

    async def send(self, parts: list[Part]) -> None:
        answers = await self.client.send_all([command for command, _ in parts]) if parts else []
        again: list[Part] = []
        for (command, executions), answer in zip(parts, answers, strict=True):
            if isinstance(command, AppendLog):
                self.apply_log_answer(command, executions, answer)
            elif isinstance(answer, InterlockError):
                if len(executions) > 1:
                    again += split_command(command, executions)
                else:
                    self.apply_refusal(command, executions[0], answer)
            elif isinstance(command, Start):
                self.apply_start_answers(executions, answer)
            elif isinstance(command, Record):
                self.on_answer(executions[0], answer[0])
            else:
                self.apply_end_answers(executions, answer)
        if again:
            await self.send(again)
        self.on_sent()

    # What is answered.

    def apply_start_answers(self, executions: list[Execution], answers: list[LeaseStatus]) -> None:
        for execution, answer in zip(executions, answers, strict=True):
            if answer.accepted:
                execution.start_reported = True
            if answer.cancel or not answer.accepted:
                self.on_answer(execution, answer)

    def apply_end_answers(self, executions: list[Execution], answers: list[LeaseStatus]) -> None:
        for execution, answer in zip(executions, answers, strict=True):
            if answer.accepted or not may_be_refused(execution):
                self.close(execution, answer)
            else:
                self.report_replaced(execution, answer.why)

    def apply_log_answer(self, command: AppendLog, executions: list[Execution], answer: Any) -> None:
        """What is not accepted, or late, was written under a lease that is over: its handler is stopped."""
        if isinstance(answer, InterlockError):
            log_event(ERROR, "log of jobs not recorded", answer, jobs=len(command.entries))
            return
        held_here = {(execution.grant.unit, execution.grant.fence): execution for execution in executions}
        for entry, status in zip(command.entries, answer, strict=True):
            execution = held_here.get((entry.held.unit, entry.held.fence))
            if execution and not status.accepted:
                execution.context.job_log.close()
            if execution and (status.late or "LEASE" in status.why):
                why = status.why or "its lease is over"
                self.on_answer(execution, LeaseStatus(unit=status.unit, accepted=False, why=why))

    def apply_refusal(self, command: Command[Any], execution: Execution, refusal: InterlockError) -> None:
        """Handles a command about one job that the engine cannot carry out at all."""
        if not isinstance(command, Finish | Release):
            log_job(ERROR, "start or note not recorded", execution.grant, refusal)
        elif execution.outcome_replaced:
            self.close(execution, LeaseStatus(unit=execution.grant.unit, accepted=False, why=str(refusal)))
        else:
            self.report_replaced(execution, str(refusal))

    def report_replaced(self, execution: Execution, why: str) -> None:
        replace_refused_outcome(execution, why)
        execution.ended = False
        self.add_end(execution)

    def close(self, execution: Execution, answer: LeaseStatus) -> None:
        """Ends the execution here: it is counted and logged."""
        self.executions.remove(execution)
        self.counts[log_end(execution, answer)] += 1


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether the event was set within so many seconds; None waits for as long as it takes."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def split_command(command: Command[Any], executions: list[Execution]) -> list[Part]:
    """Returns the same command for each execution alone."""
    if isinstance(command, Finish):
        return [
            (msgspec.structs.replace(command, outcomes=(outcome,)), [execution])
            for execution, outcome in zip(executions, command.outcomes, strict=True)
        ]
    return [(msgspec.structs.replace(command, held=(execution.held,)), [execution]) for execution in executions]
