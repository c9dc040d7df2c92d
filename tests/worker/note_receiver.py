"""What stands in for a worker and its database when only processes are looked at; run as a program, it can be killed."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from interlock.kernel.commands import Command, LeaseGrant, LeaseStatus, Record
from interlock.worker.context import JobContext
from interlock.worker.process import InProcess
from tests.worker import chores

PATIENCE = 60.0  # seconds until a test gives up; none waits so long


class NoteReceiver:
    """Takes every note, and answers it."""

    def __init__(self) -> None:
        self.later: list[Record] = []
        self.sent: list[Record] = []
        self.answer: Any = True  # whether a note is accepted, or what is raised

    def send(self, command: Command[Any]) -> Any:
        raise AssertionError("a worker's loop does not wait")

    async def asend(self, command: Command[Any]) -> Any:
        assert isinstance(command, Record)
        self.sent.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return [LeaseStatus(unit=command.held[0].unit, accepted=self.answer, why="LEASE_SUPERSEDED")]

    def context(self, unit: int = 1, /, *, grant: dict[str, Any] | None = None, **arguments: Any) -> JobContext:
        facts = {
            "task": "", "input": msgspec.json.encode(arguments).decode(), "attempt": 1, "fence": 1, "lease": "secret",
            "until": 0, "ttl_us": 0, "beat_us": 0, "correlation": "", "trace": "", **(grant or {}),
        }  # fmt: skip
        return JobContext(self, LeaseGrant(unit=unit, **facts), 1, self.later.append)  # type: ignore[arg-type]


async def carry_out(pool: InProcess, task: Any, context: JobContext) -> Any:
    """What a task comes to in a process of the pool."""
    context.grant = msgspec.structs.replace(context.grant, task=task.name)
    result = await pool.run(task, {}, context)
    return msgspec.json.decode(result)


def gone(pid: int) -> bool:
    """Whether a process has ended, and is not left for this one to reap."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z" and int(parent) != os.getpid()


def members(group: int) -> list[int]:
    """The processes of a group that are left."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getpgid(int(place.name)) == group and not gone(int(place.name)):
                found.append(int(place.name))
    return found


def until(true: Callable[[], object]) -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.01)


async def auntil(true: Callable[[], object]) -> None:
    """Waits for a condition, and lets others run."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never became true"
        await asyncio.sleep(0.01)


def pids(folder: Path) -> list[int]:
    """The process of a handler that hangs, and the one that it started."""
    return [int(word) for word in Path(folder, "there").read_text().split()]


async def main(folder: str, how: str) -> None:
    receiver, pool = NoteReceiver(), InProcess(1)
    if how == "idle":
        await carry_out(pool, chores.leave_behind, receiver.context(folder=folder))
        await asyncio.sleep(600)
    await carry_out(pool, chores.hang, receiver.context(folder=folder, how=how))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
