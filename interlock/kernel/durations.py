"""Durations as people write them (`500ms`, `60s`, `1h 30m`), as integer microseconds."""

import re

UNITS_US = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
LONGEST_US = 100 * 366 * UNITS_US["d"]
ALLOWED = "a number and one of ms, s, m, h, d, as in '500ms', '60s' or '1h 30m'"
# A number is looked for at its beginning alone, or a long row of digits would be read anew from each of them.
_PART = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def microseconds(text: str) -> int:
    """The duration that `text` names.

    Raises:
        ValueError: it is not allowed; the text says what is.
    """
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        raise ValueError(f"{text[:40]!r} is not a duration; allowed is {ALLOWED}")
    length_us = sum(float(number) * UNITS_US[unit] for number, unit in parts)
    if length_us > LONGEST_US:
        raise ValueError(f"{text[:40]!r} is too long; a hundred years is the most")
    return round(length_us)


def format_us(length_us: int) -> str:
    """The shortest exact way to write a duration: 90 s is `1m 30s`."""
    words = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, length_us = divmod(length_us, UNITS_US[unit])
        if count:
            words.append(f"{count}{unit}")
    return " ".join(words) or "0s"
