"""Tasks that edit a repository; run as a program, a worker for them: python -m tests.chaos.edits URL HURRY NAME SITE POINT.

With a point it kills itself there: `update-ref<` right before it moves a branch, `update-ref>` right after it.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import interlock
from interlock.git import Repository
from interlock.kernel.errors import Unavailable
from interlock.worker.loop import Worker

MANY = 1_000  # attempts: whoever is killed often is still finished


def made(url: str, hurry: int) -> interlock.App:
    app = interlock.open(url, hurry=hurry)
    app.task(name="edit")(edit)
    return app


def edit(name: str, kind: str, ctx: interlock.Context) -> str:
    """Writes a file of its own, or one that others write too, or fails."""
    assert ctx.worktree
    place = Path(ctx.worktree)
    (place / f"{name}.txt").write_text(f"{ctx.fence}\n")
    time.sleep(0.01 * (len(name) % 5))
    if kind == "conflict":
        (place / "shared.txt").write_text(f"{name}\n")
    if kind == "fail":
        raise interlock.Reject("it is not wanted")
    return name


def die_at(point: str) -> None:
    """Lets this process be killed when it comes to a point of a merge."""
    word, place, plain = point[:-1], point[-1], Repository.git

    def git(repository: Repository, *arguments: str, **options: Any) -> Any:
        is_there = arguments[0] == word and (word != "update-ref" or "refs/heads/main" in arguments)
        if is_there and place == "<":
            os.kill(os.getpid(), signal.SIGKILL)
        result = plain(repository, *arguments, **options)
        if is_there:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    Repository.git = git  # type: ignore[method-assign, assignment]


async def work(url: str, hurry: int, name: str, site: str, point: str) -> None:
    if point:
        die_at(point)
    app: Any = made(url, hurry)
    while not app.opened:
        try:
            await asyncio.to_thread(getattr, app, "engine")
        except Unavailable:
            await asyncio.sleep(0.05)
    await Worker(app, {"default": 4}, name=name, repositories={"site": site}).run()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], int(sys.argv[2]), *sys.argv[3:6]))
