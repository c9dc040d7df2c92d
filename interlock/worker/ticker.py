"""Send ticks: a worker beside a database sends one for every tenant that has something due."""

import asyncio
from contextlib import suppress
from logging import ERROR
from typing import TYPE_CHECKING

from interlock.kernel.commands import Tick
from interlock.kernel.errors import InterlockError, Unavailable
from interlock.store.queries.snapshots import read_due_tenants
from interlock.worker.log_lines import log_event
from interlock.worker.retrying_client import RetryingClient

if TYPE_CHECKING:
    from interlock.client.app import App

TICK_EVERY = 0.5  # seconds


class WorkerTicker:
    """Ticks for the worker's own tenant, and for every other one that has something due."""

    def __init__(self, app: "App", client: RetryingClient, actor: str) -> None:
        self.app, self.client, self.actor = app, client, actor

    async def run(self) -> None:
        """Ticks every TICK_EVERY seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(TICK_EVERY)
            for tenant in await self.find_due_tenants():
                try:
                    await self.client.send(Tick(tenant=tenant, actor=self.actor))
                except Unavailable:
                    raise
                except InterlockError as error:  # one that is refused does not stop the time of the others
                    log_event(ERROR, "tick failed", error, tenant=tenant)

    async def find_due_tenants(self) -> list[int]:
        return await asyncio.to_thread(self.read_due_tenants)

    def read_due_tenants(self) -> list[int]:
        own = self.app.tenant
        with suppress(InterlockError):  # its own tick will fail too, and is sent until it does not
            return sorted({own, *self.app.engine.read(read_due_tenants, None)})
        return [own]
