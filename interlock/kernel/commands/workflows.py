"""What a run of steps waits for."""

from interlock.kernel.commands.base import Command, Standing


class Signal(Command[Standing], frozen=True, kw_only=True):
    """Something has happened that a unit, or a step of a run, waits for or will wait for; the first one stays."""

    unit: int
    name: str
    payload: str = "null"
