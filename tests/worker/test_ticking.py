"""A worker lets time pass for every tenant that has something due."""

import asyncio
from typing import Any

from interlock.client.app import App
from interlock.kernel.commands import Tick
from interlock.kernel.errors import InterlockError
from interlock.worker.loop import Worker

BROKEN = 2


def test_a_tenant_whose_tick_is_refused_does_not_stop_the_others() -> None:
    """It stood before them, so that no time passed for them at all."""
    ticked: list[int] = []

    async def answer(command: Tick) -> int:
        ticked.append(command.tenant)
        if command.tenant == BROKEN:
            raise InterlockError("a row of it is broken")
        return 0

    async def find_due_tenants() -> list[int]:
        return [1, BROKEN, 3]

    async def tick(worker: Any) -> None:
        worker.client.send, worker.ticker.find_due_tenants = answer, find_due_tenants
        ticking = asyncio.create_task(worker.ticker.run())
        while len(ticked) < 6 and not ticking.done():
            await asyncio.sleep(0.01)
        ticking.cancel()

    with App("sqlite://:memory:") as app:
        asyncio.run(tick(Worker(app, {"default": 1})))
    assert ticked == [1, BROKEN, 3] * 2
