"""Two reports may be on their way at a time, and never two about one job."""

import asyncio
from typing import Any

from interlock.client.exceptions import Snooze
from interlock.kernel.commands import Command, Finish, LeaseGrant, LeaseStatus, Outcome, Release, Start
from interlock.worker.context import JobContext
from interlock.worker.execution import Execution
from interlock.worker.leases import Executions, LocalLease
from interlock.worker.outcome import Ending, GiveBack
from interlock.worker.reporter import AT_ONCE, WORTH, Reporter


class Slow:
    """Answers when it is told to, and looks at what is on its way meanwhile."""

    def __init__(self) -> None:
        self.waiting: list[tuple[set[int], asyncio.Event]] = []
        self.said: list[tuple[str, int]] = []

    async def send_all(self, commands: list[Command[Any]]) -> list[Any]:
        units = {one.unit for command in commands for one in spoken_for(command)}
        assert not any(units & others for others, _ in self.waiting), "two reports about one job"
        assert len(self.waiting) < AT_ONCE
        self.said += [(type(command).__name__, one.unit) for command in commands for one in spoken_for(command)]
        self.waiting.append((units, asyncio.Event()))
        await self.waiting[-1][1].wait()
        return [[LeaseStatus(unit=one.unit, accepted=True, state="x") for one in spoken_for(each)] for each in commands]

    def answer(self) -> None:
        self.waiting.pop(0)[1].set()


def spoken_for(command: Command[Any]) -> list[Any]:
    assert isinstance(command, Start | Finish)
    return [one.held for one in command.outcomes] if isinstance(command, Finish) else list(command.held)


def execution(number: int) -> Execution:
    grant = LeaseGrant(
        unit=number, task="t", input="{}", attempt=1, fence=1, lease="s", until=0, ttl_us=0, beat_us=0, correlation="",
        trace="", timeout_us=None, checkpoint=None, steps=(),
    )  # fmt: skip
    context = JobContext(None, grant, 1, lambda note: None)  # type: ignore[arg-type]
    return Execution(grant, context.held, LocalLease(grant, lambda: 0.0, 0.0), lambda _: context)


async def until_still() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def ends(reporter: Reporter, some: list[Execution]) -> None:
    for one in some:
        one.outcome = Outcome(held=one.held, result="null")
        reporter.add_end(one)


def test_a_second_report_goes_when_it_is_worth_it_and_never_about_the_same_job() -> None:
    async def story() -> None:
        client, executions = Slow(), Executions()
        reporter = Reporter(client, executions, 1, "w")  # type: ignore[arg-type]
        every = [execution(number) for number in range(3 * WORTH)]
        early, late = every[: 2 * WORTH], every[2 * WORTH :]
        for one in early:
            executions.add(one)
            reporter.add_start(one, 0.0)
        running = asyncio.create_task(reporter.run())
        ends(reporter, early[:1])
        await until_still()
        assert len(client.waiting) == 1  # the first end is told at once, with every start that is due
        ends(reporter, early[1:])
        await until_still()
        assert len(client.waiting) == 1  # of all these a start is being told
        for one in late:
            executions.add(one)
            reporter.add_start(one, 0.0)
        ends(reporter, late)
        await until_still()
        assert [len(units) for units, _ in client.waiting] == [len(early), len(late)]
        while client.waiting:
            client.answer()
            await until_still()
        assert len(executions) == 0
        assert reporter.counts["success"] == len(every)
        for one in every:
            verbs = [verb for verb, unit in client.said if unit == one.grant.unit]
            assert verbs == ["Start", "Finish"], (one.grant.unit, verbs)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_a_report_waits_for_those_on_their_way() -> None:
    """Whoever shuts down tells everything, and does not spin while others do it."""

    async def story() -> None:
        client, executions = Slow(), Executions()
        reporter = Reporter(client, executions, 1, "w")  # type: ignore[arg-type]
        one = execution(1)
        executions.add(one)
        reporter.add_start(one, 0.0)
        running = asyncio.create_task(reporter.run())
        ends(reporter, [one])
        await until_still()
        last = asyncio.create_task(reporter.flush())
        await until_still()
        assert not last.done()
        client.answer()
        await last
        assert len(executions) == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_a_start_waits_while_a_note_of_its_job_is_on_its_way() -> None:
    async def story() -> list[list[str]]:
        executions, one = Executions(), execution(1)
        reporter = Reporter(Slow(), executions, 1, "w")  # type: ignore[arg-type]
        executions.add(one)
        reporter.add_start(one, 0.0)
        sent = []
        for one.in_report in (True, False):
            sent.append([type(command).__name__ for command, _ in reporter.take_due(10.0)])
        return sent

    assert asyncio.run(story()) == [[], ["Start"]]


def test_an_end_goes_as_what_it_is_and_one_without_outcome_not_at_all() -> None:
    async def story() -> None:
        executions, some = Executions(), [execution(number) for number in range(5)]
        reporter = Reporter(Slow(), executions, 1, "w")  # type: ignore[arg-type]
        outcomes: list[Ending] = [Outcome(held=some[0].held), Snooze(1), GiveBack(), None, Outcome(held=some[4].held)]
        for one, outcome in zip(some, outcomes, strict=True):
            executions.add(one)
            one.outcome = outcome
            reporter.add_end(one)
        parts = [(type(command), [each.grant.unit for each in about]) for command, about in reporter.take_due(0.0)]
        assert sorted(parts, key=str) == [(Finish, [0, 4]), (Release, [1]), (Release, [2])]
        assert executions.find(3) is None, "its lease is another's"

    asyncio.run(story())
