"""Handlers of a simulation: they do what their arguments say, and record their effects in a sink."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Any, NoReturn

from interlock.client.app import App
from interlock.client.context import Context
from interlock.client.exceptions import Cancelled, NoAnswer, Reject, Rejected, Retry, Snooze
from interlock.kernel.errors import PermanentError, ValidationError
from interlock.testing.simulation.faulty_store import LIFECYCLES
from interlock.testing.simulation.virtual_loop import HERE, Process

Act = tuple[str, float]
SNOOZES = 3  # of a handler that asks to be called again later
TASKS = ("job", "flow", "step", "approval", "stream", "t", "goal", "ci", "undo")  # what other clients submit


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")


# Each is made when it is raised: one that is raised twice would keep the frames of both times, and all that they hold.
POISON: dict[str, Callable[[], BaseException]] = {
    "exit": partial(SystemExit, "handlers may not end a worker"),
    "interrupt": KeyboardInterrupt,
    "zero": partial(RuntimeError, "a zero \0 byte"),
    "half": partial(RuntimeError, "half a letter \ud800"),
    "mute": Mute,
    "long": partial(RuntimeError, "x" * 100_000),
    "type": TypeError,
}
ENDS: dict[str, Callable[[], BaseException]] = {
    "fail": partial(RuntimeError, "as asked"),
    "permanent": partial(PermanentError, "as asked"),
    "invalid": partial(ValidationError, "as asked"),
    "reject": partial(Reject, "as asked"),
}


class Sink:
    """An outside system that refuses a fence older than one that it has seen. It counts those that came late."""

    def __init__(self) -> None:
        self.fences: dict[int, int] = {}
        self.owner: dict[tuple[int, int], Process] = {}
        self.late = 0
        self.written: Counter[tuple[int, int]] = Counter()
        self.broken: list[str] = []
        self.is_recorded: Callable[[int, str], bool] = lambda unit, step: False  # the world says it

    def check_call(self, unit: int, step: str) -> None:
        """The function of a step is called: it is not recorded yet, else it would be paid for again."""
        if self.is_recorded(unit, step):
            self.broken.append(f"unit {unit}: step '{step}' is recorded, and was called again")

    def write(self, unit: int, fence: int, process: Process) -> bool:
        """Whether the effect was accepted."""
        if not process.alive:
            return False
        if fence < self.fences.get(unit, 0):
            self.late += 1
            return False
        self.fences[unit] = fence
        if self.owner.setdefault((unit, fence), process) is not process:
            self.broken.append(f"unit {unit}: two processes have fence {fence}")
        self.written[unit, fence] += 1
        return True


class Hand(Process):
    """The process of a worker."""

    def __init__(self, name: str, sink: Sink) -> None:
        super().__init__(name)
        self.sink = sink


@cache
def template() -> App:
    """An app with every task of the simulation; its tasks are shared, for they keep nothing."""
    app = App("sqlite://:memory:")
    app.lifecycles = LIFECYCLES
    app.task(name="play")(play)
    app.agent(name="helper", model="m")(play)
    for name in TASKS:
        app.task(name=name)(succeed)
    return app


async def play(acts: list[Act], ctx: Context) -> Any:
    """Does one thing after another."""
    effect(ctx)
    for place, (act, number) in enumerate(acts):
        name = f"{act} {place} {number}"
        if act == "step":
            await ctx.step(name, partial(try_step, ctx, name))
        elif act == "spend":
            await ctx.step(name, partial(try_step, ctx, name), usage={"usd": 1})
        elif act == "drift":  # asks for something else in every attempt
            await ctx.step(name, partial(try_step, ctx, name), of=ctx.fence)
        else:
            await perform(act, number, ctx)
    effect(ctx)
    return next((make_list(number) for act, number in acts if act == "list"), len(acts))


def make_list(number: float) -> list[list[Act]]:
    """So many lists of acts, for handlers that each do one of them; of an even number the last one fails."""
    lists: list[list[Act]] = [[("step", float(place))] for place in range(int(number))]
    return [*lists[:-1], [("reject", 0.1)]] if number % 2 == 0 else lists


async def succeed(ctx: Context) -> str:
    """Does what a plain job does: one effect, and success."""
    effect(ctx)
    return "done"


def effect(ctx: Context) -> bool:
    """Writes to the sink outside, which refuses older tokens. Returns whether it was accepted."""
    process = HERE.get()
    return isinstance(process, Hand) and process.sink.write(ctx.unit, ctx.fence, process)


async def perform(act: str, number: float, ctx: Context) -> None:
    """Does one thing of those that a handler can do."""
    if act == "list":
        return
    if act == "sleep":
        await asyncio.sleep(number)
    elif act == "artifact":
        await ctx.artifact.aio(f"artifact {number}", {"n": number})
    elif act == "progress":
        ctx.progress(number)
    elif act == "checkpoint":
        ctx.checkpoint({"last": number, "before": ctx.saved is not None})
    elif act == "effect":
        await ctx.effect.aio(f"effect {number}", lambda: try_step(ctx), check=lambda: look_outside(ctx))
    elif act == "spawn":
        await ctx.spawn.aio(f"child {number}", "play", acts=[["step", number]])
    elif act == "join":
        (await ctx.spawn.aio(f"child {number}", "play", acts=[["step", number]])).wait(timeout="1h")
    elif act == "agent":
        await spawn_agent(number, ctx)
    elif act == "agents":
        for each in range(1, int(number) + 1):
            (await spawn_agent(each, ctx)).wait(timeout="1h")
    elif act == "ask":
        with suppress(Rejected, NoAnswer):
            await ctx.ask.aio(f"question {number}", number, expires=number)
    elif act == "nap":
        ctx.sleep(f"nap {number}", number)
    elif act == "signal":
        ctx.wait_signal("go", timeout=number)
    elif act == "mind":
        if ctx.cancelled:
            raise Cancelled
    elif act == "stubborn":
        try:
            await asyncio.sleep(number)
        except asyncio.CancelledError:
            await asyncio.sleep(number)
            raise
    elif act != "snooze" or ctx.attempt <= SNOOZES:
        end(act, number)


def end(act: str, number: float) -> NoReturn:
    """The handler ends here."""
    if act == "snooze":
        raise Snooze(number)
    if act == "retry":
        raise Retry(after=number)
    raise (ENDS.get(act) or POISON[act])()


async def spawn_agent(number: float, ctx: Context) -> Any:
    """Spawns a run below this one, which records two steps of its own."""
    helper = template().tasks["helper"].agent
    return await ctx.spawn.aio(f"run {int(number)}", helper, acts=[["step", number], ["sleep", 0.2], ["step", 0]])


async def try_step(ctx: Context, name: str = "") -> int:
    """Does a step, which the sink outside hears of."""
    process = HERE.get()
    if effect(ctx) and name and isinstance(process, Hand):
        process.sink.check_call(ctx.unit, name)
    return ctx.attempt


async def look_outside(ctx: Context) -> int | None:
    """What came of a call, as the outside tells: sometimes it has happened."""
    return ctx.attempt if ctx.unit % 2 else None
