"""Workers come and go."""

from interlock.kernel.commands.base import Command, Standing


class Register(Command[int], frozen=True, kw_only=True):
    """A worker exists from now on; an older incarnation of its name ends. Answers its id."""

    name: str
    incarnation: str
    capabilities: tuple[str, ...] = ()
    capacity: int = 1  # units that it may hold
    concurrency: int = 0  # handlers that it runs at a time; 0: not said


class Drain(Command[Standing], frozen=True, kw_only=True):
    """A worker takes no new work, and shuts down with its last unit."""

    worker: int
