"""Observers: metrics, traces and logs hang here; without one, observing costs nothing."""

import logging
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol, TypeVar, cast

from interlock.kernel.commands import Command

log = logging.getLogger("interlock.core")
R = TypeVar("R")
T = TypeVar("T")


class Observer(Protocol):
    """Is told what committers and connections do, in their threads: whoever takes long here makes the engine wait.

    A subclass has the methods that it needs. What one raises is logged, and changes nothing. `error` is what came
    instead of an answer, a refusal too; a group that is tried again is told again.
    """

    def on_group(self, commands: Sequence[Command[Any]]) -> None:
        """These commands are about to be carried out, in one transaction."""

    def on_command(self, command: Command[Any], seconds: float, error: Exception | None) -> None:
        """A command was carried out or refused; whether that stands, its commit says."""

    def on_commit(self, units: int, seconds: float, error: Exception | None) -> None:
        """A transaction that wrote so many units was committed. One that a caller lent is the caller's to commit."""

    def on_statement(self, sql: str, seconds: float, error: Exception | None) -> None:
        """A statement was sent to the database and answered, or in a pipeline sent only."""


Observers = Sequence[Observer]


def notify(observers: Observers, method: str, *facts: Any) -> None:
    """Every observer is told. No bug of theirs spoils a transaction."""
    for observer in observers:
        try:
            getattr(observer, method)(*facts)
        except Exception:
            log.exception("observer %s failed in %s", type(observer).__name__, method)


def time_call(observers: Observers, method: str, *facts: Any, call: Callable[[], T]) -> T:
    """What a call answers; observers are told how long it took and what it raised."""
    began, error = perf_counter(), None
    try:
        return call()
    except Exception as failed:
        error = failed
        raise
    finally:
        notify(observers, method, *facts, perf_counter() - began, error)


class ObservedDriver:
    """A connection of a driver's, of whose statements observers are told."""

    def __init__(self, raw: Any, observers: Observers) -> None:
        self.raw_driver, self.observers = raw, observers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw_driver, name)

    def execute(self, sql: str, params: Mapping[str, Any] | Sequence[Any] = ()) -> Any:
        call = self.raw_driver.execute
        return time_call(self.observers, "on_statement", sql, call=lambda: call(sql, params) if params else call(sql))

    def executemany(self, sql: str, rows: Sequence[Any]) -> Any:
        return time_call(self.observers, "on_statement", sql, call=lambda: self.raw_driver.executemany(sql, rows))


def wrap_connection(raw: R, observers: Observers) -> R:
    """The same connection of a driver's; if somebody observes, its statements are told of."""
    plain = raw.raw_driver if isinstance(raw, ObservedDriver) else raw
    return cast("R", ObservedDriver(plain, observers) if observers else plain)
