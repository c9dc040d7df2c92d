"""Budgets: amounts of money, tokens, steps and time, as whole numbers of the smallest unit."""

from collections.abc import Mapping
from math import isfinite

import msgspec

from interlock.kernel.durations import format_us
from interlock.kernel.errors import InterlockError

MONEY, ACTIVE, STEPS = "usd", "active", "steps"
COUNTED = (ACTIVE, STEPS)  # by the engine; nobody tells them
MILLION = 1_000_000
SCALES = {MONEY: MILLION, ACTIVE: MILLION}  # how many of the parts that count are one of those that people write
AMOUNT_MAX = 10**15
NAMES_MAX = 20
NAME_MAX = 60


class Cap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much may be used of something: at `soft` somebody is asked, and more than `hard` ends the run."""

    hard: int | None = None
    soft: int | None = None


class GivenCap(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The same as people write it: money in dollars, time in seconds."""

    hard: float | None = None
    soft: float | None = None


def parse_amount(name: str, amount: float) -> int:
    """An amount that somebody gave, in the parts that count: millionths of money and of seconds, the rest whole.

    Raises:
        InterlockError: it is negative, no number, too large, or has parts where it may have none.
    """
    scale = SCALES.get(name, 1)
    is_number = not isinstance(amount, bool) and isinstance(amount, int | float) and isfinite(amount)
    if is_number and 0 <= amount <= AMOUNT_MAX // scale and (name in SCALES or amount == int(amount)):
        return round(amount * scale)
    allowed = f"a number from 0 to {AMOUNT_MAX // scale}" + ("" if name in SCALES else ", without a fraction")
    raise InterlockError(f"{name} = {amount!r} is not allowed; allowed is {allowed}")


def parse_caps(given: Mapping[str, float | GivenCap]) -> dict[str, Cap]:
    """Caps as people write them: a number is a hard one.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    caps = {}
    for name, amount in given.items():
        limits = amount if isinstance(amount, GivenCap) else GivenCap(hard=amount)
        parts = (None if part is None else parse_amount(name, part) for part in (limits.hard, limits.soft))
        caps[name] = Cap(*parts)
    check_caps(caps)
    return caps


def format_amount(name: str, amount: int) -> str:
    """An amount for people, as in 402,113 or 0.25 or 30m."""
    if name == MONEY:
        return f"{amount / MILLION:,.6f}".rstrip("0").rstrip(".")
    return format_us(amount) if name == ACTIVE else f"{amount:,}"


def present_amount(name: str, amount: int) -> float:
    """An amount as programs have it: money in dollars and time in seconds, the rest whole."""
    return amount / SCALES[name] if name in SCALES else amount


def check_unit_names(names: Mapping[str, object]) -> None:
    """Raises InterlockError for too many names, or for one that nothing can be called."""
    if len(names) > NAMES_MAX:
        raise InterlockError(f"{len(names)} kinds of usage are not allowed; at most {NAMES_MAX} are")
    for name in names:
        if not name or len(name) > NAME_MAX or not name.replace("_", "a").replace("-", "a").isalnum():
            raise InterlockError(
                f"usage called {name[:80]!r} is not allowed; allowed are 1 to {NAME_MAX} letters, digits, - and _"
            )


def check_caps(caps: Mapping[str, Cap]) -> None:
    """Raises InterlockError for caps that could never hold."""
    check_unit_names(caps)
    for name, cap in caps.items():
        for limit in (cap.hard, cap.soft):
            if limit is not None and not 0 <= limit <= AMOUNT_MAX:
                raise InterlockError(f"the budget {name} = {limit} is not allowed; allowed is 0 to {AMOUNT_MAX}")
        if cap.soft is not None and cap.hard is not None and cap.soft > cap.hard:
            raise InterlockError(
                f"the budget {name}: soft = {format_amount(name, cap.soft)} is not allowed; allowed is at most hard = "
                f"{format_amount(name, cap.hard)}"
            )


def name_question(name: str, soft: int) -> str:
    """What the question is called that is asked when a soft cap is reached: each cap is asked about once."""
    return f"budget {name} {format_amount(name, soft)}"
