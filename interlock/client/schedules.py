"""Schedules: `@app.every("0 * * * *", timezone="Europe/Berlin")`."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from interlock.client.async_pairs import Call, verb
from interlock.client.durations import length_us
from interlock.client.tasks import Task
from interlock.kernel.commands import (
    DefineSchedule,
    FireSchedule,
    PauseSchedule,
    Planned,
    RemoveSchedule,
    ResumeSchedule,
)
from interlock.kernel.durations import format_us
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.rows import Schedule, Skipped
from interlock.plugins.schedules.cron import EVERY, format_instant
from interlock.store.connection import Connection
from interlock.store.queries.views import read_skipped, schedule_of, schedules_of

if TYPE_CHECKING:
    from interlock.client.app import App
    from interlock.client.jobs import Job

P = ParamSpec("P")
R = TypeVar("R")
CRON_FIELDS = 5


class Schedules:
    """The schedules of an app. A worker of the app sends the definitions when it starts, or `define()` does."""

    def __init__(self, app: "App") -> None:
        self.app = app
        self.definitions: dict[str, DefineSchedule] = {}

    def every(
        self, timing: str | timedelta, *, timezone: str = "UTC", overlap: str = "skip", missed: str = "one",
        name: str | None = None, arguments: Mapping[str, Any] | None = None, **rules: Any,
    ) -> Callable[[Callable[P, R] | Task[P, R]], Task[P, R]]:  # fmt: skip
        """Runs a task, or a function that becomes one by `rules`, at each instant with these arguments."""

        def add(handler: Callable[P, R] | Task[P, R]) -> Task[P, R]:
            if isinstance(handler, Task) and rules:
                raise InterlockError(f"task '{handler.name}' has its rules already; `every` takes none beside them")
            task = handler if isinstance(handler, Task) else cast("Task[P, R]", self.app.task(**rules)(handler))
            self.add(
                DefineSchedule(
                    tenant=self.app.tenant, name=name or task.name, timing=format_timing(timing), timezone=timezone,
                    overlap=overlap, missed=missed, work=task.make_work(task.arguments.encode((), arguments or {}), {}),
                )
            )  # fmt: skip
            return task

        return add

    def add(self, definition: DefineSchedule) -> None:
        if definition.name in self.definitions:
            raise InterlockError(f"this app has a schedule '{definition.name}' already; give one of them another name")
        self.definitions[definition.name] = definition

    def define(self) -> list[Planned]:
        """Sends all schedules of this app to the database, as they are written here."""
        commands = list(self.definitions.values())
        return [future.result() for future in self.app.put_all(commands)] if commands else []

    @verb
    def pause(self, name: str, *, reason: str = "") -> Call[Planned]:
        """Pauses a schedule: until it is unpaused, it makes no jobs."""
        return Call(self.app, PauseSchedule(tenant=self.app.tenant, name=name, reason=reason))

    @verb
    def unpause(self, name: str) -> Call[Planned]:
        """Lets a paused schedule go on."""
        return Call(self.app, ResumeSchedule(tenant=self.app.tenant, name=name))

    resume = unpause  # the same

    @verb
    def remove(self, name: str, *, reason: str = "") -> Call[Planned]:
        """Removes a schedule; a worker whose app still defines it brings it back."""
        return Call(self.app, RemoveSchedule(tenant=self.app.tenant, name=name, reason=reason))

    @verb
    def trigger(self, name: str) -> "Call[Job]":
        """Makes a job of a schedule now, besides those that it makes at its instants."""
        return Call(self.app, FireSchedule(tenant=self.app.tenant, name=name), lambda made: self.app.job(made.unit))

    def stored(self) -> list[Schedule]:
        """Returns the schedules that the database has, by name."""
        return self.app.read(schedules_of)

    def skipped(self, name: str, limit: int = 100) -> list[Skipped]:
        """Returns the instants for which a schedule made no job, the latest first, with the reason."""
        return self.app.read(read_skipped, name, limit)


def format_timing(timing: str | timedelta) -> str:
    """Returns a timing as the engine knows it: a cron expression has at least five fields, all else is an interval."""
    if isinstance(timing, timedelta):
        return EVERY + format_us(length_us("timing", timing))
    interval = len(timing.split()) < CRON_FIELDS and not timing.lower().startswith(EVERY)
    return EVERY + timing if interval else timing


def explain_pause(schedule: Schedule) -> str:
    """Says why a schedule makes no jobs now; empty if it is not paused."""
    if schedule.paused_at is None:
        return ""
    note = f": {schedule.pause_note}" if schedule.pause_note else ""
    at = format_second(schedule.paused_at, schedule)
    return (
        f"schedule {schedule.name} was paused by {schedule.paused_by} at {at}{note}; "
        f"it goes on with `interlock schedule unpause {schedule.name}`"
    )


def format_second(at: int, schedule: Schedule) -> str:
    """Formats an instant in the time zone of a schedule, in whole seconds."""
    return format_instant(at // 1_000_000 * 1_000_000, schedule.timezone)


def explain_schedule(connection: Connection, tenant: int, name: str) -> str:
    """Says why a schedule is where it is: removed, paused, or waiting for its next instant.

    Raises:
        Unknown: there is none.
    """
    schedule = schedule_of(connection, tenant, name)
    if schedule is None:
        raise Unknown(f"there is no schedule '{name}'")
    if schedule.removed_at is not None:
        note = f": {schedule.remove_note}" if schedule.remove_note else ""
        when = f"by {schedule.removed_by} at {format_second(schedule.removed_at, schedule)}{note}"
        return f"schedule {name} was removed {when}; a worker whose app still defines it brings it back"
    if why := explain_pause(schedule):
        return why
    if schedule.next_at is None:
        return f"schedule {name} has no instant any more"
    return f"schedule {name} waits for its next instant, {format_instant(schedule.next_at, schedule.timezone)}"
