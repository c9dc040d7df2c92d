"""Streams as a program sees them: what a handler emits comes as it is emitted, and what is done again is marked."""

import asyncio
from typing import Any

import pytest

import interlock
from interlock.testing import Stage


def read_stream(reader: Any) -> list[tuple[int, str, tuple[tuple[int, int], ...]]]:
    return [(chunk.attempt, chunk.text, chunk.void) for chunk in reader.stream()]


def test_a_run_streams_over_lost_workers_and_a_resume(stage: Stage) -> None:
    app, broken = stage.app, [True]

    @app.agent
    async def fix(ctx: interlock.AgentContext) -> str:
        def say(text: str) -> str:
            for word in text.split():
                ctx.emit(f"{word} ")
            return text

        ctx.emit("begin ")
        await ctx.step("plan", lambda: say("a plan"))
        await ctx.step("mend", lambda: say("mend it"))
        if broken:
            raise interlock.PermanentError("no")
        ctx.emit("end")
        return "done"

    run = fix.submit()
    stage.lose_worker(after_step="plan")
    stage.advance("2m")
    with pytest.raises(interlock.Failed):
        run.wait()
    assert read_stream(run.log) == [
        (1, "begin a plan ", ()), (1, "", ((0, 6),)), (2, "begin mend it ", ()), (2, "", ((0, 6),)),
    ]  # fmt: skip
    broken.clear()
    run.resume(by="ann", reason="mended")
    assert run.wait() == "done"
    assert read_stream(run.log)[-1] == (3, "begin end", ())  # attempts are counted on over the jobs of a run
    assert (run.log(), run.log(attempt=1)) == ("begin end", "begin a plan ")
    assert "".join(run.log.follow()).count("[void: what attempt") == 2


def test_a_plain_job_emits_text_and_nothing_else(stage: Stage) -> None:
    app, tries = stage.app, list[int]()

    @app.task(attempts=2, backoff="1s", redact=lambda value: value.replace("secret", "***"))
    def tell(ctx: interlock.Context) -> None:
        tries.append(1)
        ctx.log("a line")
        ctx.emit(f"try {len(tries)} secret")
        if len(tries) == 1:
            raise interlock.TransientError("again")
        with pytest.raises(interlock.PermanentError, match="allowed is text"):
            ctx.emit(b"bytes")  # type: ignore[arg-type]

    job = tell.submit()
    job.wait()
    assert read_stream(job.log) == [
        (1, "a line\ntry 1 ***", ()), (1, "", ((7, 16),)), (2, "a line\ntry 2 ***", ()),
    ]  # fmt: skip


def test_text_belongs_to_the_step_in_which_it_is_emitted_also_side_by_side(stage: Stage) -> None:
    app = stage.app

    @app.agent
    async def both(ctx: interlock.AgentContext) -> None:
        async def say(text: str) -> None:
            for letter in text:
                ctx.emit(letter)
                await asyncio.sleep(0)

        await asyncio.gather(ctx.step("small", lambda: say("abc")), ctx.step("large", lambda: say("ABC")))
        ctx.emit(".")
        raise interlock.PermanentError("no")

    run = both.submit()
    with pytest.raises(interlock.Failed):
        run.wait()
    (text, mark) = read_stream(run.log)
    assert (sorted(text[1]), mark[2]) == (sorted("abcABC."), ((6, 7),))
