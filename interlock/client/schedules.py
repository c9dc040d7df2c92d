"""Schedules as programs write them: `@app.every("0 * * * *", timezone="Europe/Berlin")`."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from interlock.client.async_pairs import Asked, TwoWays
from interlock.client.durations import length_us
from interlock.client.tasks import Task
from interlock.kernel.commands import (
    DefineSchedule,
    FireSchedule,
    PauseSchedule,
    Planned,
    RemoveSchedule,
    ResumeSchedule,
    Submitted,
)
from interlock.kernel.durations import spoken
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.rows import Schedule, Skipped
from interlock.plugins.schedules.cron import EVERY, format_instant
from interlock.store.connection import Connection
from interlock.store.queries.views import schedule_of, schedules_of, skipped_of

if TYPE_CHECKING:
    from interlock.client.app import App
    from interlock.client.jobs import Job

P = ParamSpec("P")
R = TypeVar("R")
CRON_FIELDS = 5


class Schedules:
    """What an app does by the clock. A worker of the app sends the definitions when it starts, or `define()` does."""

    def __init__(self, app: "App") -> None:
        self.app = app
        self.definitions: dict[str, DefineSchedule] = {}
        self.pause, self.resume, self.trigger = TwoWays(self.paused), TwoWays(self.resumed), TwoWays(self.triggered)
        self.remove = TwoWays(self.removed)

    def every(
        self, timing: str | timedelta, *, timezone: str = "UTC", overlap: str = "skip", missed: str = "one",
        name: str | None = None, arguments: Mapping[str, Any] | None = None, **rules: Any,
    ) -> Callable[[Callable[P, R] | Task[P, R]], Task[P, R]]:  # fmt: skip
        """A task, or a function that becomes one by `rules`, is done at each instant with these arguments."""

        def add(handler: Callable[P, R] | Task[P, R]) -> Task[P, R]:
            if isinstance(handler, Task) and rules:
                raise InterlockError(f"task '{handler.name}' has its rules already; `every` takes none beside them")
            task = handler if isinstance(handler, Task) else cast("Task[P, R]", self.app.task(**rules)(handler))
            self.add(
                DefineSchedule(
                    tenant=self.app.tenant, name=name or task.name, timing=timing_of(timing), timezone=timezone,
                    overlap=overlap, missed=missed, work=task.work(task.arguments.packed((), arguments or {}), {}),
                )
            )  # fmt: skip
            return task

        return add

    def add(self, definition: DefineSchedule) -> None:
        if definition.name in self.definitions:
            raise InterlockError(f"this app has a schedule '{definition.name}' already; give one of them another name")
        self.definitions[definition.name] = definition

    def define(self) -> list[Planned]:
        """The database has all schedules of this app as they are written here."""
        commands = list(self.definitions.values())
        return [future.result() for future in self.app.put_all(commands)] if commands else []

    def paused(self, name: str, *, reason: str = "") -> Asked[Planned]:
        return self.app, PauseSchedule(tenant=self.app.tenant, name=name, reason=reason), lambda planned: planned

    def resumed(self, name: str) -> Asked[Planned]:
        return self.app, ResumeSchedule(tenant=self.app.tenant, name=name), lambda planned: planned

    def removed(self, name: str, *, reason: str = "") -> Asked[Planned]:
        return self.app, RemoveSchedule(tenant=self.app.tenant, name=name, reason=reason), lambda planned: planned

    def triggered(self, name: str) -> "Asked[Job]":
        def job(made: Submitted) -> "Job":
            return self.app.job(made.unit)

        return self.app, FireSchedule(tenant=self.app.tenant, name=name), job

    def stored(self) -> list[Schedule]:
        """The schedules that the database has, by name."""
        return self.app.read(schedules_of)

    def skipped(self, name: str, limit: int = 100) -> list[Skipped]:
        """The instants for which a schedule made nothing, the latest first, with the reason."""
        return self.app.read(skipped_of, name, limit)


def timing_of(timing: str | timedelta) -> str:
    """A timing as the engine knows it: a cron expression has at least five fields, all else is an interval."""
    if isinstance(timing, timedelta):
        return EVERY + spoken(length_us("timing", timing))
    interval = len(timing.split()) < CRON_FIELDS and not timing.lower().startswith(EVERY)
    return EVERY + timing if interval else timing


def why_paused(schedule: Schedule) -> str:
    """Why a schedule makes nothing now; empty if it is not paused."""
    if schedule.paused_at is None:
        return ""
    note = f": {schedule.pause_note}" if schedule.pause_note else ""
    return (
        f"schedule {schedule.name} was paused by {schedule.paused_by} at {second(schedule.paused_at, schedule)}{note}; "
        f"it goes on with `interlock schedule resume {schedule.name}`"
    )


def second(at: int, schedule: Schedule) -> str:
    return format_instant(at // 1_000_000 * 1_000_000, schedule.timezone)


def why_schedule(connection: Connection, tenant: int, name: str) -> str:
    """Why a schedule is where it is: removed, paused, or waiting for its next instant. Raises Unknown."""
    schedule = schedule_of(connection, tenant, name)
    if schedule is None:
        raise Unknown(f"there is no schedule '{name}'")
    if schedule.removed_at is not None:
        note = f": {schedule.remove_note}" if schedule.remove_note else ""
        when = f"by {schedule.removed_by} at {second(schedule.removed_at, schedule)}{note}"
        return f"schedule {name} was removed {when}; a worker whose app still defines it brings it back"
    if why := why_paused(schedule):
        return why
    if schedule.next_at is None:
        return f"schedule {name} has no instant any more"
    return f"schedule {name} waits for its next instant, {format_instant(schedule.next_at, schedule.timezone)}"
