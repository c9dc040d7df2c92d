"""Commands that register and drain workers."""

from collections.abc import Collection

from interlock.kernel.commands.base import Command, Route, Standing


class Register(Command[int], frozen=True, kw_only=True):
    """Registers a worker, and returns its id; an older incarnation of its name ends."""

    committer = Route.OTHER
    scope = "worker"
    public = True

    name: str
    incarnation: str
    capabilities: tuple[str, ...] = ()
    capacity: int = 1  # units that it may hold
    concurrency: int = 0  # handlers that it runs at a time; 0: not said
    tasks: tuple[str, ...] | None = None  # that it knows, and is given no other; None: it takes any


class Drain(Command[Standing], frozen=True, kw_only=True):
    """Gives a worker no new work; it shuts down after its last unit."""

    committer = Route.OTHER
    scope = "worker"
    public = True
    other_scope = "operate"

    worker: int

    def needed_scope(self, own_workers: Collection[int] = ()) -> str:
        """A worker may drain itself; an operator, anybody's."""
        return self.scope if self.worker in own_workers else self.other_scope
