"""A worker whose handler emits numbers, for whoever kills it: `python -m tests.chaos.streamer URL`."""

import asyncio
import sys

import interlock
from interlock.worker.loop import Worker

HURRY = 40  # the lease of a killed worker is over that much sooner
NUMBERS = 100

app = interlock.open(sys.argv[1] if __name__ == "__main__" else "sqlite://:memory:", hurry=HURRY)


@app.agent(attempts=20)
async def stream(ctx: interlock.AgentContext) -> None:
    async def say(part: str) -> None:
        for number in range(NUMBERS):
            ctx.emit(f"{part}{number} ")
            await asyncio.sleep(0.02)

    await ctx.step("a", lambda: say("a"))
    await ctx.step("b", lambda: say("b"))


if __name__ == "__main__":
    asyncio.run(Worker(app, {"default": 1}).run())
