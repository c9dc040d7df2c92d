"""Times as users write them: `"2m"`, 120 or a timedelta for a length, a datetime for an instant."""

from datetime import datetime, timedelta

from interlock.kernel.durations import ALLOWED, microseconds
from interlock.kernel.errors import InterlockError

Length = str | int | float | timedelta


def length_us(name: str, length: Length) -> int:
    """A length of time in microseconds. Raises InterlockError, which says what is allowed."""
    try:
        if isinstance(length, str):
            return microseconds(length)
        us = round((length.total_seconds() if isinstance(length, timedelta) else length) * 1_000_000)
    except (ValueError, TypeError, OverflowError) as error:
        said = str(error) if isinstance(length, str) else f"{length!r} is no length of time"
        raise InterlockError(f"{name}: {said}; a number of seconds or a timedelta is allowed too ({ALLOWED})") from None
    if us < 0:
        raise InterlockError(f"{name} = {length!r} is not allowed; a length of time is not negative")
    return us


def instant_us(name: str, instant: datetime) -> int:
    """An instant in microseconds UTC. Raises InterlockError for one that says no time zone."""
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise InterlockError(f"{name} = {instant!r} is not allowed; allowed is a datetime with a time zone")
    return round(instant.timestamp() * 1_000_000)
