"""A database that the command and a story share."""

from typing import Any

from tests.cli.inside import inside
from tests.engine.world import World


class Place:
    """One, with its URL; the story's clock stands in 2023. On PostgreSQL people ask as operators."""

    def __init__(self, url: str, world: World) -> None:
        self.url, self.world, self.ask = url, world, inside(url.replace("//ordinary@", "//operator@"))

    def dead(self, task: str = "mail", **facts: Any) -> int:
        job = self.world.submit(task, attempts=1, **facts)
        (grant,) = self.world.claim(self.world.worker("w"))
        self.world.start(grant)
        self.world.finish(grant, ended="failure", error="no such host", stage="fetch")
        return job
