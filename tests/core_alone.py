"""A plugin of pytest: `pytest -p tests.core_alone FILES` runs the suites of the core on engines with no plugin.

The package `interlock.plugins` is replaced by one that knows none. Whatever imports a plugin then is told aloud.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

from interlock.core.engine import Engine
from interlock.core.plugin import EMPTY
from interlock.kernel.lifecycle import Lifecycle
from interlock.store.connection import Connection

PACKAGE = "interlock.plugins"


class NoPlugins(MetaPathFinder):
    """Refuses every import of a plugin."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name.startswith(f"{PACKAGE}."):
            raise ImportError(f"the core imports a plugin: {name}")


def make_engine(
    connection: Connection, lifecycles: Mapping[str, Lifecycle], *others: Connection, **more: Any
) -> Engine:
    return Engine(connection, lifecycles, *others, **more)


def open_engine(url: str, lifecycles: Mapping[str, Lifecycle]) -> Engine:
    return Engine.open(url, lifecycles)


loaded = [name for name in sys.modules if name.startswith(PACKAGE)]
if loaded:
    raise ImportError(f"the core imports plugins: {', '.join(sorted(loaded))}")
sys.modules[PACKAGE] = package = ModuleType(PACKAGE)
vars(package).update(STANDARD=EMPTY, make_engine=make_engine, open_engine=open_engine, __path__=[])
sys.meta_path.insert(0, NoPlugins())
