"""Pauses: `app.pause(queue="mail", until="18:00", reason="the provider is down")`."""

import re
from datetime import datetime, time, timedelta, tzinfo
from typing import Any

from interlock.client.durations import Length, format_time, format_time_relative, length_us
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import PauseRow

Until = Length | datetime  # a length of time from now on, a time of day, or an instant
TIME_OF_DAY = re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?")
INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
ALLOWED = "a time of day as in 18:00, a time as in 2026-11-16T18:00, or a length of time as in 2h is"
EPOCH_US = 1_000_000


def parse_until(until: Until | None, zone: tzinfo | None = None, now: datetime | None = None) -> dict[str, Any]:
    """Returns the fields of a command that say until when something is paused.

    A time of day is the next one, today or tomorrow. A time that says no zone is in `zone`, by default that of this
    machine.

    Raises:
        InterlockError: it is no such time; the message says what is allowed.
    """
    if until is None:
        return {}
    if isinstance(until, str) and TIME_OF_DAY.fullmatch(until.strip()):
        here = (now or datetime.now().astimezone()).astimezone(zone)
        at = datetime.combine(here.date(), time.fromisoformat(until.strip().zfill(5)), zone)
        return {"until": to_us(at if at.astimezone() > here else at + timedelta(days=1))}
    if isinstance(until, datetime):
        return {"until": to_us(until if until.tzinfo else until.replace(tzinfo=zone))}
    if isinstance(until, str) and INSTANT.match(until.strip()):
        return {"until": to_us(parse_instant(until, zone))}
    try:
        return {"for_us": length_us("until", until)}
    except InterlockError:
        raise InterlockError(f"until = {str(until)[:40]!r} is not allowed; {ALLOWED}") from None


def parse_instant(text: str, zone: tzinfo | None) -> datetime:
    """Parses a time as ISO 8601; one without a zone is in `zone`."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InterlockError(f"until = {text[:40]!r} is not allowed; {ALLOWED}") from None
    return at if at.tzinfo else at.replace(tzinfo=zone)


def to_us(at: datetime) -> int:
    """Returns an instant in microseconds UTC; one without a zone is a time of this machine."""
    try:
        return round(at.timestamp() * EPOCH_US)
    except (OverflowError, OSError, ValueError):
        raise InterlockError(f"until = {at} is not allowed; {ALLOWED}") from None


def describe_pause(pause: PauseRow, now: int) -> str:
    """Says who paused something, when, until when and why."""
    until = f" until {format_time_relative(pause.until, now)}" if pause.until is not None else ""
    return f"paused by {pause.actor} at {format_time(pause.since)}{until}" + (
        f": {pause.reason}" if pause.reason else ""
    )


def name_options(pause: PauseRow, name: str) -> str:
    """Returns the arguments of `interlock unpause` that end a pause; `name` is the id of a job or run."""
    return name if pause.unit is not None else f"--{pause.kind} {pause.name}"
