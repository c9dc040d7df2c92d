"""Steps of a handler: what one recorded is not done again, and a name stands for one of them."""

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest

import interlock
from interlock.store.queries.views import view
from interlock.testing import Stage


def test_steps_are_not_repeated_by_the_next_attempt(stage: Stage) -> None:
    calls: list[str] = []

    def call(name: str) -> dict[str, str]:
        calls.append(name)
        return {"made": name}

    @stage.app.task(attempts=3)
    def order(ctx: interlock.Context) -> list[Any]:
        first = ctx.step("charge", lambda: call("charge"))
        if ctx.attempt == 1:
            raise OSError("the network is away")
        if ctx.attempt == 2:
            stage.lose_worker()
        return [first, ctx.step("ship", lambda: call("ship"))]

    charged, shipped = {"made": "charge"}, {"made": "ship"}
    assert order.submit().wait() == [charged, shipped]
    assert calls == ["charge", "ship"]


def test_a_step_that_fails_is_tried_again(stage: Stage) -> None:
    tries: list[int] = []

    def shaky() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise OSError
        return len(tries)

    stage.app.task(name="t")(lambda ctx: ctx.step("s", shaky))

    @stage.app.task
    def careful(ctx: interlock.Context) -> int:
        return ctx.step("s", shaky)

    assert careful.submit().wait() == 2


def test_a_step_has_one_spelling_in_plain_and_async_handlers(stage: Stage) -> None:
    calls: list[str] = []

    def call(name: str) -> str:
        calls.append(name)
        return name

    async def think(name: str) -> str:
        await asyncio.sleep(0)
        return call(name)

    @stage.app.task(attempts=2, backoff="1ms")
    async def agent(ctx: interlock.Context) -> list[str]:
        both = [await ctx.step("plan", lambda: think("plan")), await ctx.step("look", lambda: call("look"))]
        some = await asyncio.gather(*(ctx.step(f"tool-{n}", lambda n=n: think(f"tool-{n}")) for n in range(3)))
        threaded = await asyncio.to_thread(ctx.step, "thread", lambda: call("thread"))  # no loop runs there
        if ctx.attempt == 1:
            raise interlock.TransientError("once more")
        return [*both, *some, threaded, await ctx.step.aio("last", lambda: think("last"))]

    names = ["plan", "look", "tool-0", "tool-1", "tool-2", "thread", "last"]
    assert agent.submit().wait() == names
    assert calls == names


def test_a_step_name_that_is_used_twice_is_refused(stage: Stage) -> None:
    calls: list[int] = []

    def count() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise OSError
        return len(calls)

    @stage.app.task(attempts=3)
    def careful(ctx: interlock.Context) -> int:
        with suppress(OSError):
            ctx.step("s", count)
        return ctx.step("s", count)  # the first one raised, so nothing has that name

    assert careful.submit().wait() == 2

    @stage.app.task(attempts=3)
    def loop(ctx: interlock.Context) -> list[int]:
        return [ctx.step("s", count) for _ in range(2)]

    @stage.app.task(attempts=3)
    async def gather(ctx: interlock.Context) -> list[int]:
        async def think() -> int:
            await asyncio.sleep(0)
            return count()

        return list(await asyncio.gather(ctx.step("s", think), ctx.step("s", think)))

    @stage.app.task(attempts=3)
    def mixed(ctx: interlock.Context) -> object:
        return ctx.step("s", lambda: asyncio.sleep(0))

    refused = {loop: "the step 's' is there twice", gather: 'ctx.step(f"s-{number}", …)', mixed: "its handler is not"}
    for task, why in refused.items():
        job = task.submit()
        with pytest.raises(interlock.Failed, match=re.escape(why)):
            job.wait()
        assert stage.app.read(view, job.unit).unit.attempt == 1  # it would fail again
