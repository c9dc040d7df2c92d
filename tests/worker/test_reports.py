"""Two reports may be on their way at a time, and never two about one job."""

import asyncio
from typing import Any

from interlock.kernel.commands import Command, Finish, Grant, Heard, Outcome, Start
from interlock.worker.context import JobContext
from interlock.worker.holds import Hold, Holds
from interlock.worker.reports import AT_ONCE, WORTH, Reports


class Slow:
    """Answers when it is told to, and looks at what is on its way meanwhile."""

    def __init__(self) -> None:
        self.waiting: list[tuple[set[int], asyncio.Event]] = []
        self.said: list[tuple[str, int]] = []

    async def all(self, commands: list[Command[Any]]) -> list[Any]:
        units = {one.unit for command in commands for one in spoken_for(command)}
        assert not any(units & others for others, _ in self.waiting), "two reports about one job"
        assert len(self.waiting) < AT_ONCE
        self.said += [(type(command).__name__, one.unit) for command in commands for one in spoken_for(command)]
        self.waiting.append((units, asyncio.Event()))
        await self.waiting[-1][1].wait()
        return [[Heard(unit=one.unit, accepted=True, state="x") for one in spoken_for(each)] for each in commands]

    def answer(self) -> None:
        self.waiting.pop(0)[1].set()


def spoken_for(command: Command[Any]) -> list[Any]:
    assert isinstance(command, Start | Finish)
    return [one.held for one in command.outcomes] if isinstance(command, Finish) else list(command.held)


def hold(number: int) -> Hold:
    grant = Grant(
        unit=number, task="t", input="{}", attempt=1, fence=1, lease="s", until=0, ttl_us=0, beat_us=0, correlation="",
        trace="", timeout_us=None, checkpoint=None, steps=(),
    )  # fmt: skip
    return Hold(grant, JobContext(None, grant, 1, lambda note: None), 0.0)  # type: ignore[arg-type]


async def until_still() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def ends(reports: Reports, some: list[Hold]) -> None:
    for one in some:
        one.end = Outcome(held=one.held, result="null")
        reports.end(one)


def test_a_second_report_goes_when_it_is_worth_it_and_never_about_the_same_job() -> None:
    async def story() -> None:
        asking, holds = Slow(), Holds()
        reports = Reports(asking, holds, 1, "w")  # type: ignore[arg-type]
        every = [hold(number) for number in range(3 * WORTH)]
        early, late = every[: 2 * WORTH], every[2 * WORTH :]
        for one in early:
            holds.add(one)
            reports.begin(one, 0.0)
        running = asyncio.create_task(reports.run())
        ends(reports, early[:1])
        await until_still()
        assert len(asking.waiting) == 1  # the first end is told at once, with every start that is due
        ends(reports, early[1:])
        await until_still()
        assert len(asking.waiting) == 1  # of all these a start is being told
        for one in late:
            holds.add(one)
            reports.begin(one, 0.0)
        ends(reports, late)
        await until_still()
        assert [len(units) for units, _ in asking.waiting] == [len(early), len(late)]
        while asking.waiting:
            asking.answer()
            await until_still()
        assert len(holds) == 0
        assert reports.told["success"] == len(every)
        for one in every:
            verbs = [verb for verb, unit in asking.said if unit == one.grant.unit]
            assert verbs == ["Start", "Finish"], (one.grant.unit, verbs)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_a_report_waits_for_those_on_their_way() -> None:
    """Whoever shuts down tells everything, and does not spin while others do it."""

    async def story() -> None:
        asking, holds = Slow(), Holds()
        reports = Reports(asking, holds, 1, "w")  # type: ignore[arg-type]
        one = hold(1)
        holds.add(one)
        reports.begin(one, 0.0)
        running = asyncio.create_task(reports.run())
        ends(reports, [one])
        await until_still()
        last = asyncio.create_task(reports.report())
        await until_still()
        assert not last.done()
        asking.answer()
        await last
        assert len(holds) == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())
