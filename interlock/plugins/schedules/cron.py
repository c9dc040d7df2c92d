"""The instants of a schedule: by a cron expression in a time zone, or by an interval. Pure: the time is handed in.

Cron is what Debian's cron makes of it. When clocks go forward, what is due at a fixed time in the hour that is left out
is due right after it; when they go back, it is due once. What is due every hour or more often follows the real time.
"""

import re
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from interlock.kernel.durations import format_us, microseconds
from interlock.kernel.errors import InterlockError

SECOND_US = 1_000_000
LATE_US = 60 * SECOND_US  # an instant that is looked at later than that was missed
SPAN_US = 1_000 * SECOND_US  # how far back newer instants are looked for first
EVERY = "every "
TIMING_MAX = 1_000  # characters
WORDS = re.compile(r"(second|minute|hour|day)s?\b")
FIELDS = "minute, hour, day of the month, month, day of the week"
ALLOWED = f"a cron expression of five fields ({FIELDS}) as '30 8 * * MON-FRI', or an interval as 'every 5m'"


def normalize_timing(timing: str, timezone: str, now: int) -> str:
    """A timing in its shortest spelling.

    Raises:
        InterlockError: one that is wrong or does not come any more.
    """
    if not 0 < len(timing) <= TIMING_MAX:
        raise InterlockError(f"timing is not allowed; allowed are 1 to {TIMING_MAX} characters: {ALLOWED}")
    text = " ".join(timing.split())
    if text.lower().startswith(EVERY):
        if timezone != "UTC":
            raise InterlockError(f"timezone = '{timezone}' is not allowed: an interval has no time zone, leave it UTC")
        return EVERY + format_us(parse_interval(text))
    try:
        if next(cron(text, zone(timezone), now), None) is None:
            raise InterlockError(f"timing = '{text}' is not allowed: that day never comes")
    except (CronSimError, AssertionError, ValueError, TypeError) as error:
        why = str(error).lower() or "it cannot be read"
        raise InterlockError(f"timing = '{text[:80]}' is not allowed: {why}; allowed is {ALLOWED}") from None
    return text


def parse_interval(timing: str) -> int:
    """The length of an interval: `every 5m`, `every 5 minutes`, `every hour`."""
    text = WORDS.sub(lambda word: word[1][0], timing.lower().removeprefix(EVERY).strip())
    try:
        length = microseconds(f"1{text}" if text in ("s", "m", "h", "d") else text)
    except ValueError as error:
        raise InterlockError(f"timing = '{timing}' is not allowed: {error}") from None
    if length < SECOND_US:
        raise InterlockError(f"timing = '{timing}' is not allowed: a second is the shortest interval")
    return length


def zone(name: str) -> ZoneInfo:
    """Returns a time zone by its name."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InterlockError(f"there is no time zone '{name}'; one looks like Europe/Berlin, or is UTC") from None


def iterate_instants(timing: str, timezone: str, at: int) -> Iterator[int]:
    """The instants after one, in order, each once."""
    if timing.startswith(EVERY):
        length = parse_interval(timing)
        while True:
            at = at // length * length + length
            yield at
    for instant in cron(timing, zone(timezone), at):
        if instant > at:  # where clocks go back, or two instants fall into the hour that is left out, there are others
            at = instant
            yield at


def cron(timing: str, zone: ZoneInfo, at: int) -> Iterator[int]:
    """Yields the instants of a cron expression after `at`, in microseconds."""
    for instant in CronSim(timing, datetime.fromtimestamp(at // SECOND_US, zone)):
        yield round(instant.timestamp()) * SECOND_US


def find_due(timing: str, timezone: str, first: int, now: int, most: int) -> list[int]:
    """The last instants from `first` to `now`, at most so many.

    They are looked for in ever longer spans before now: a year of minutes is not counted to find the last of them.
    """
    span = SPAN_US
    while True:
        start = max(first, now - span)
        instants = deque(takewhile(lambda at: at <= now, iterate_instants(timing, timezone, start - 1)), maxlen=most)
        if len(instants) == most or start == first:
            return list(instants)
        span *= 4


def choose_missed(missed: str, instants: list[int], now: int) -> list[int]:
    """For which of the instants that are due a unit is made."""
    if missed == "all":
        return instants
    late = now - instants[-1] > LATE_US
    return [] if missed == "none" and late else instants[-1:]


def format_instant(at: int, timezone: str = "UTC") -> str:
    """An instant, as people of a time zone write it."""
    local = datetime.fromtimestamp(at / SECOND_US, zone(timezone)).isoformat()
    return local.replace("+00:00", "Z")
