"""Parse times of users: `"2m"`, 120 or a timedelta for a duration, a datetime for an instant."""

from datetime import UTC, datetime, timedelta
from typing import overload

from interlock.kernel.durations import ALLOWED, UNITS_US, format_us, microseconds
from interlock.kernel.errors import InterlockError

Length = str | int | float | timedelta


def length_us(name: str, length: Length) -> int:
    """A length of time in microseconds.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    try:
        if isinstance(length, str):
            return microseconds(length)
        us = round((length.total_seconds() if isinstance(length, timedelta) else length) * 1_000_000)
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error) if isinstance(length, str) else f"{length!r} is no length of time; allowed is {ALLOWED}"
        raise InterlockError(f"{name}: {reason}; a number of seconds or a timedelta is allowed too") from None
    if us < 0:
        raise InterlockError(f"{name} = {length!r} is not allowed; a length of time is not negative")
    return us


def instant_us(name: str, instant: datetime) -> int:
    """An instant in microseconds UTC.

    Raises:
        InterlockError: one that says no time zone.
    """
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise InterlockError(f"{name} = {instant!r} is not allowed; allowed is a datetime with a time zone")
    return round(instant.timestamp() * 1_000_000)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROUNDED_FROM_US = 10 * UNITS_US["s"]  # longer times are shown in whole seconds


@overload
def format_time(at: int) -> str: ...
@overload
def format_time(at: int | None) -> str | None: ...


def format_time(at: int | None) -> str | None:
    """Formats an instant (microseconds UTC) as RFC 3339 in milliseconds; None stays None."""
    if at is None:
        return None
    return (EPOCH + timedelta(microseconds=at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_rounded(length_us: int) -> str:
    """Formats a length of time as a person would say it: in whole seconds if it is long, else in milliseconds."""
    part = UNITS_US["s"] if abs(length_us) >= ROUNDED_FROM_US else UNITS_US["ms"]
    return format_us(abs(length_us) // part * part)


def format_brief(length_us: int) -> str:
    """Formats a length of time where there is little room: at most two parts, and tenths of a few seconds."""
    if UNITS_US["s"] <= abs(length_us) < ROUNDED_FROM_US:
        return f"{abs(length_us) / UNITS_US['s']:.1f}s"
    return " ".join(format_rounded(length_us).split(" ")[:2])


def format_time_relative(at: int, now: int) -> str:
    """Formats an instant together with how far away it is; both are microseconds UTC."""
    distance = f"in {format_rounded(at - now)}" if at > now else f"{format_rounded(now - at)} ago"
    return f"{format_time(at)} ({distance})"
