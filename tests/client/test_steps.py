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


def test_another_request_under_a_recorded_name_is_drift_and_runs_nothing(stage: Stage) -> None:
    calls: list[str] = []
    prompt = {"model": "m", "messages": ["plan it"]}
    sent = {"to": "ann"}

    @stage.app.task(attempts=1)
    def order(ctx: interlock.Context) -> int:
        ctx.step("plan", lambda: calls.append("plan"), of=prompt)
        ctx.effect("send", lambda: calls.append("send"), of=sent)
        ctx.step("free", lambda: calls.append("free"))
        ctx.wait_signal("go")
        return 1

    jobs = [order.submit() for _ in range(3)]
    stage.drain()
    assert calls == 3 * ["plan", "send", "free"]
    prompt = {"messages": ["plan it"], "model": "m"}  # the order of a dictionary says nothing
    jobs[0].signal("go")
    assert jobs[0].wait() == 1
    prompt = {"messages": ["plan it twice"], "model": "m"}
    jobs[1].signal("go")
    with pytest.raises(interlock.Failed) as failed:
        jobs[1].wait()
    assert re.search(r"Drift: 'plan' is recorded.*nothing was run.*plan it\"\n.*plan it twice", str(failed.value), re.S)
    prompt, sent = {"model": "m", "messages": ["plan it"]}, {"to": "bob"}
    jobs[2].signal("go")
    with pytest.raises(interlock.Failed, match="Drift: 'send' is recorded"):
        jobs[2].wait()
    assert calls == 3 * ["plan", "send", "free"]


def test_requests_and_results_that_cannot_be_kept_are_refused_before_and_after_the_call(stage: Stage) -> None:
    calls: list[str] = []

    @stage.app.task(attempts=5)
    def order(ctx: interlock.Context) -> None:
        with pytest.raises(interlock.PermanentError, match=r"what 'plan' is asked .* cannot be kept as JSON"):
            ctx.step("plan", lambda: calls.append("plan"), of=object())
        for retry in (0, True, 101, "3"):
            with pytest.raises(interlock.PermanentError, match=r"retry = .* is not allowed; allowed is 1 to 100"):
                ctx.step("plan", lambda: calls.append("plan"), retry=retry)  # type: ignore[call-overload]
        ctx.step("plan", lambda: calls.append("plan") or object)

    with pytest.raises(interlock.Failed, match="the result of the step 'plan' cannot be kept as JSON"):
        order.submit().wait()
    assert calls == ["plan"]  # it is not tried again: it would come to the same


def test_a_step_is_tried_again_within_its_attempt(stage: Stage) -> None:
    tries: list[int] = []

    async def shaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("the network is away")
        return len(tries)

    @stage.app.task(attempts=1)
    async def order(ctx: interlock.Context) -> int:
        return await ctx.step("s", shaky, retry=3)

    assert order.submit().wait() == 3

    @stage.app.task(attempts=1)
    async def give_up(ctx: interlock.Context) -> int:
        tries.clear()
        with pytest.raises(OSError, match="away"):
            await ctx.step("s", shaky, retry=2)
        return await ctx.step("s", shaky)

    assert give_up.submit().wait() == 3


def test_steps_beyond_the_page_of_a_grant_are_not_done_again(stage: Stage) -> None:
    calls: list[int] = []

    @stage.app.task(attempts=2)
    async def order(ctx: interlock.Context) -> int:
        results = [await ctx.step(f"s{n}", lambda n=n: calls.append(n) or "x" * 30_000, of=n) for n in range(6)]
        if ctx.attempt == 1:
            raise OSError
        return sum(map(len, results)) + await ctx.step("one more", lambda: 1)

    assert order.submit().wait() == 180_001
    assert calls == list(range(6))
