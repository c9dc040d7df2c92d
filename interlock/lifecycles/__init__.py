"""The lifecycles themselves, one TOML file each, and how to get at one."""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.lifecycle import Lifecycle
from interlock.lifecycles.loader import load

__all__ = ["FOLDER", "find", "hurried", "load", "shipped"]

FOLDER = Path(__file__).parent


@cache
def shipped() -> dict[str, Lifecycle]:
    """The lifecycles of the five source documents, by name."""
    lifecycles = [load(path) for path in sorted(FOLDER.glob("*.toml"))]
    return {lifecycle.name: lifecycle for lifecycle in sorted(lifecycles, key=lambda lifecycle: lifecycle.document)}


def find(name_or_file: str) -> Lifecycle:
    """A shipped lifecycle by its name, or the one in a TOML file by its path."""
    if name_or_file.endswith(".toml") or "/" in name_or_file:
        return load(Path(name_or_file))
    if name_or_file not in shipped():
        known = ", ".join(shipped())
        raise Unknown(f"there is no lifecycle '{name_or_file}'; there are {known}; or name a .toml file")
    return shipped()[name_or_file]


def hurried(lifecycles: Mapping[str, Lifecycle], by: int) -> dict[str, Lifecycle]:
    """The same lifecycles with every lease, beat and cancel deadline so many times shorter.

    For tests and demonstrations alone: a lease that short is lost to any pause of a busy machine.
    """
    if by < 1:
        raise InterlockError(f"hurry = {by} is not allowed; allowed is at least 1")
    return {name: hurry(lifecycle, by) for name, lifecycle in lifecycles.items()}


def hurry(lifecycle: Lifecycle, by: int) -> Lifecycle:
    """Returns a lifecycle with leases, beats and cancel deadlines so many times shorter."""
    options = lifecycle.options
    lease = options.lease and replace(options.lease, **shorter(options.lease, by))
    states = lifecycle.states
    if not lifecycle.leased and lifecycle.birth.trigger == "register":  # who holds leases is missed as soon
        states = {name: replace(state, **shorter(state, by)) for name, state in lifecycle.states.items()}
    return replace(lifecycle, states=states, options=replace(options, lease=lease, **shorter(options, by)))


def shorter(rules: object, by: int) -> dict[str, Any]:
    """The times of a set of rules, so many times shorter."""
    times = {field.name: getattr(rules, field.name) for field in fields(rules) if field.name.endswith("_us")}  # type: ignore[arg-type]
    return {name: max(1, time // by) for name, time in times.items() if time is not None}
