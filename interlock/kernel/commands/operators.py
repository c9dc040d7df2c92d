"""Commands of operators about one unit."""

from collections.abc import Mapping
from typing import Any

import msgspec

from interlock.kernel.commands.base import Command, Route, Standing
from interlock.kernel.commands.submit import Submitted
from interlock.kernel.rows import Act, Row

REASONS = (
    "parse_error", "validation_failed", "dependency_unavailable", "timeout", "exhausted_retries",
    "policy_violation", "infrastructure_failure", "compensation_failed",
)  # fmt: skip


class Cancel(Command[Standing], frozen=True, kw_only=True):
    """Cancels a unit: by default its holder is asked to stop, with `hard` it is stopped immediately."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int
    hard: bool = False


class Bury(Command[Standing], frozen=True, kw_only=True):
    """Makes a unit a dead letter; `reason` is one of the eight reason codes."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int


class Revoke(Command[Standing], frozen=True, kw_only=True):
    """Revokes the lease of a unit, as if its holder were lost."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int


class RunNow(Command[Standing], frozen=True, kw_only=True):
    """Ends the delay, the backoff or the snooze of a unit."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int


class Requeue(Command[Submitted], frozen=True, kw_only=True):
    """Makes a new job that does what a dead letter, or another job that has ended, did; it names the old one."""

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int


class Rerun(Command[Submitted], frozen=True, kw_only=True):
    """Makes a new run or job that does what an ended one did, and names it; of a run, from one of its steps on.

    With `failed`, what has succeeded is taken over, and only the rest is rerun. The steps of a workstream are its
    tasks: `from_task` means the same as `step`.
    """

    committer = Route.OTHER
    scope = "operate"
    public = True

    unit: int
    step: str | None = None
    failed: bool = False
    from_task: str | None = None

    @property
    def first(self) -> str | None:
        """The step, or task, from which on it is done again."""
        return self.from_task if self.step is None else self.step


class Force(Command[Standing], frozen=True, kw_only=True):
    """Puts a unit into a state that its lifecycle may not list from here, for a reason.

    The event is marked as forced.
    """

    committer = Route.OTHER
    scope = "admin"
    public = True

    unit: int
    state: str


class Archive(Command[int], frozen=True, kw_only=True):
    """A settled unit and all below it leave the database, once a file holds them. Answers how many units went."""

    committer = Route.OTHER
    scope = "admin"
    public = False

    unit: int
    file: str
    digest: str  # of what the file holds; other contents are refused


class ArchivedLane(msgspec.Struct, frozen=True):
    """What the units of a lane asked of a worker; lanes have other ids in every database."""

    id: int
    queue: str
    capabilities: str
    task: str


class RestoreTree(Command[int], frozen=True, kw_only=True):
    """An archived tree comes back, as its file holds it. Answers how many jobs, runs and steps it has."""

    committer = Route.OTHER
    scope = "admin"
    public = False
    makes_rows = False

    unit: int  # its top
    file: str
    acts: tuple[Act, ...]
    rows: tuple[Row, ...]
    lanes: tuple[ArchivedLane, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()  # rows of plugins' own tables, each with its table

    def count_rows(self) -> int:
        """Returns how many rows come back."""
        return len(self.rows) + len(self.others)
