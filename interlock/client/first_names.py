"""Old names of commands, which are still accepted over HTTP."""

from typing import Any, ClassVar

import msgspec

from interlock.core import validation
from interlock.kernel import commands
from interlock.kernel.commands import Command, Work
from interlock.kernel.errors import InterlockError


class Renamed(Command[Any], frozen=True, kw_only=True):
    """A first name, sent in place of the commands that it stands for. It never reaches an engine."""

    stands_for: ClassVar[tuple[type[Command[Any]], ...]]
    sent_as: ClassVar[str] = ""  # its name over HTTP, if that is not the name of the class

    def translate(self) -> Command[Any]:
        """Returns the command that it stands for.

        Raises:
            InterlockError: there is none.
        """
        return self.translate_to(self.stands_for[0])

    def translate_to(self, kind: type[Command[Any]]) -> Command[Any]:
        facts = {name: getattr(self, name) for name in kind.__struct_fields__ if hasattr(self, name)}
        return kind(**facts)


class Define(Renamed, frozen=True, kw_only=True):
    """The first name of DefineSchedule and, with steps, of DefineTemplate."""

    stands_for = (commands.DefineSchedule, commands.DefineTemplate)
    name: str
    timing: str = ""
    work: Work = Work(task="")
    timezone: str = "UTC"
    overlap: str = "skip"
    missed: str = "one"
    steps: tuple[Work, ...] = ()

    def translate(self) -> Command[Any]:
        if self.steps and (self.timing or self.work.task):
            raise InterlockError("a definition is of a schedule, with timing and work, or of a template, with steps")
        return self.translate_to(self.stands_for[bool(self.steps)])


class Pause(Renamed, frozen=True, kw_only=True):
    """The first name of PauseSchedule."""

    stands_for = (commands.PauseSchedule,)
    name: str


class Resume(Renamed, frozen=True, kw_only=True):
    """The first name of ResumeSchedule."""

    stands_for = (commands.ResumeSchedule,)
    name: str


class Remove(Renamed, frozen=True, kw_only=True):
    """The first name of RemoveSchedule."""

    stands_for = (commands.RemoveSchedule,)
    name: str


class Trigger(Renamed, frozen=True, kw_only=True):
    """The first name of FireSchedule."""

    stands_for = (commands.FireSchedule,)
    name: str


class Replay(Renamed, frozen=True, kw_only=True):
    """The first name of Rerun."""

    stands_for = (commands.Rerun,)
    unit: int
    step: str | None = None


class KeyOrder(Renamed, frozen=True, kw_only=True):
    """The first name of CreateKey, RotateKey and RevokeKey, by its order: create, rotate or revoke."""

    sent_as = "Key"
    stands_for = (commands.CreateKey, commands.RotateKey, commands.RevokeKey)
    order: str
    key: int | None = None
    digest: str = ""
    name: str = ""
    scopes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    expires_us: int | None = None

    def translate(self) -> Command[Any]:
        orders = ("create", "rotate", "revoke")
        validation.check_choice("order", self.order, orders)
        named = msgspec.structs.replace(self, key=self.key or 0)  # 0 is nobody's
        return named.translate_to(self.stands_for[orders.index(self.order)])


FIRST_NAMES: tuple[type[Renamed], ...] = (Define, Pause, Resume, Remove, Trigger, Replay, KeyOrder)
