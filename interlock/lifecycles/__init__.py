"""The lifecycles themselves, one TOML file each, and how to get at one."""

from functools import cache
from pathlib import Path

from interlock.kernel.errors import Unknown
from interlock.kernel.lifecycle import Lifecycle
from interlock.lifecycles.loader import load

__all__ = ["FOLDER", "find", "load", "shipped"]

FOLDER = Path(__file__).parent


@cache
def shipped() -> dict[str, Lifecycle]:
    """The lifecycles of the five source documents, by name."""
    lives = [load(path) for path in sorted(FOLDER.glob("*.toml"))]
    return {life.name: life for life in sorted(lives, key=lambda life: life.document)}


def find(name_or_file: str) -> Lifecycle:
    """A shipped lifecycle by its name, or the one in a TOML file by its path."""
    if name_or_file.endswith(".toml") or "/" in name_or_file:
        return load(Path(name_or_file))
    if name_or_file not in shipped():
        known = ", ".join(shipped())
        raise Unknown(f"there is no lifecycle '{name_or_file}'; there are {known}; or name a .toml file")
    return shipped()[name_or_file]
