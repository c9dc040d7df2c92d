"""`interlock.budget(usd=5, tokens=400_000)`: limits of an agent run and all below it."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from interlock.client.durations import Length, length_us
from interlock.kernel.budgets import ACTIVE, MILLION, MONEY, STEPS, Cap, GivenCap, parse_caps, present_amount
from interlock.kernel.commands import MeterStatus
from interlock.kernel.errors import InterlockError

Soft = float | Mapping[str, float | Length] | None


class RunBudget:
    """Caps by name, made by `interlock.budget`."""

    def __init__(self, limits: Mapping[str, GivenCap]) -> None:
        """Raises InterlockError for caps that could never hold."""
        self.caps = parse_caps(limits)

    def __repr__(self) -> str:
        return f"interlock.budget({self.caps})"


def budget(
    usd: float | None = None, *, soft: Soft = None, tokens: int | None = None, steps: int | None = None,
    active: Length | None = None, **units: float,
) -> RunBudget:  # fmt: skip
    """What a run and all below it may use; more ends it.

    Parameters:
        usd: money, kept in millionths.
        soft: at so much money somebody is asked whether it may use more; or by name, as in `{"tokens": 300_000}`.
        tokens: what models read and write.
        steps: recorded steps.
        active: for how long somebody may work on it, as in "30m"; waiting does not count.
        units: whatever else steps say that they have used.

    Raises:
        InterlockError: a number is negative or no number, or a soft cap is above its hard one.
    """
    hard = {MONEY: usd, "tokens": tokens, STEPS: steps, ACTIVE: active, **units}
    softer: Mapping[str, Any] = soft if isinstance(soft, Mapping) else {MONEY: soft}
    names = [name for name in {**hard, **softer} if (hard.get(name), softer.get(name)) != (None, None)]
    return RunBudget(
        {name: GivenCap(to_number(name, hard.get(name)), to_number(name, softer.get(name))) for name in names}
    )


def to_number(name: str, amount: Any) -> Any:
    """An amount as a number; a length of time may be written as one."""
    if name != ACTIVE or amount is None:
        return amount
    return length_us(ACTIVE, amount) / MILLION


def check_budget(given: Any) -> RunBudget | None:
    """Returns a budget that somebody gave.

    Raises:
        InterlockError: it is none.
    """
    if given is None or isinstance(given, RunBudget):
        return given
    raise InterlockError(f"budget = {given!r} is not allowed; allowed is interlock.budget(usd=5, tokens=400_000)")


def describe_caps(given: RunBudget | Mapping[str, Any]) -> dict[str, GivenCap]:
    """Caps as a command has them.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if not isinstance(given, RunBudget):
        if not isinstance(given, Mapping):
            raise InterlockError(f'budget = {given!r} is not allowed; allowed is one such as {{"usd": 10}}')
        try:
            given = RunBudget(
                {
                    name: msgspec.convert(part, GivenCap)
                    if isinstance(part, Mapping)
                    else GivenCap(to_number(name, part))
                    for name, part in given.items()
                }
            )
        except msgspec.ValidationError as error:
            raise InterlockError(f"budget: {error}") from None
    return {
        name: GivenCap(*(None if part is None else present_amount(name, part) for part in (cap.hard, cap.soft)))
        for name, cap in given.caps.items()
    }


def list_meters(known: Iterable[MeterStatus], caps: Mapping[str, Cap]) -> list[MeterStatus]:
    """Meters, and the caps of what was not used yet, by name."""
    meters = {name: MeterStatus(name, 0, cap.soft, cap.hard) for name, cap in caps.items()}
    meters |= {meter.name: meter for meter in known}
    return [meters[name] for name in sorted(meters)]
