"""Record every step of the store in a simulation, so that it can be replayed without the rest of the system."""

from typing import Any

import msgspec

from interlock.kernel.commands import Command


class RecordedStep(msgspec.Struct, frozen=True):
    """Commands that one server carried out together, what they were answered, and what went wrong meanwhile."""

    at: int
    server: str
    commands: tuple[Command[Any], ...]
    answers: tuple[Any, ...] = ()
    faults: tuple[str, ...] = ()  # place by place; empty: nothing
    fresh: bool = False  # the server has just been started


class Recording:
    """Steps in the order in which they happened."""

    def __init__(self) -> None:
        self.steps: list[RecordedStep] = []
        self.restarted: set[str] = set()

    def restart(self, server: str) -> None:
        self.restarted.add(server)

    def add(self, step: RecordedStep) -> None:
        if step.server in self.restarted:
            self.restarted.remove(step.server)
            step = msgspec.structs.replace(step, fresh=True)
        if not any(step.faults):
            step = msgspec.structs.replace(step, faults=())
        self.steps.append(step)
