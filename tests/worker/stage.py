"""A worker in the test's own process, and short ways to look at what it did."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import interlock
from interlock.audit.laws import audit
from interlock.kernel.rows import Event, Unit
from interlock.store.queries.views import events_of, view
from interlock.worker.loop import Worker
from tests.server.house import housed

FAR = "http"
PATIENCE = 60.0  # seconds until a test gives up; none waits so long


@contextmanager
def opened(url: str, hurry: int = 1) -> Iterator[interlock.App]:
    """An app, whose database breaks no law when the test is done with it; a far one speaks to the server of it."""
    if url.startswith(FAR):
        there = interlock.open(url.removeprefix(f"{FAR} "), hurry=hurry)
        with housed() as house, house.hosts(there) as key:
            with interlock.open(house.base, key=key) as app:
                yield app
            lawful(there)
        return
    with interlock.open(url, hurry=hurry) as app:
        yield app
        lawful(app)


def lawful(app: interlock.App) -> None:
    assert app.read(lambda connection, tenant: list(audit(connection, app.lifecycles))) == []


@asynccontextmanager
async def working(app: interlock.App, concurrency: int = 10, **facts: Any) -> AsyncIterator[Worker]:
    """A worker that runs meanwhile; at the end it is stopped, and has ended well."""
    worker = Worker(app, {"default": concurrency}, **facts)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, PATIENCE)


async def until(true: Callable[[], object]) -> None:
    """Waits for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.005)


def unit(job: interlock.Job) -> Unit:
    return job.app.read(view, job.unit).unit


def events(job: interlock.Job) -> list[Event]:
    return job.app.read(events_of, job.unit)


def triggers(job: interlock.Job) -> list[str]:
    return [event.trigger for event in events(job)]


def error(job: interlock.Job) -> str:
    return job.look().error or ""
