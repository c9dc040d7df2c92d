"""A plugin of pytest that runs the suites of the core with no plugin of Interlock loaded.

    pytest -p no:interlock -p tests.core_alone FILES

The package `interlock` is loaded without its `__init__`, which would import the client and with it every plugin, and
`interlock.plugins` is replaced by a package that knows none. Whatever imports a plugin, or anything above the core,
fails with a sentence that names it.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ABOVE = tuple(f"interlock.{name}" for name in ("plugins", "client", "worker", "server", "cli", "testing"))


class CoreAlone(MetaPathFinder):
    """Refuses to import a plugin, and what is built on plugins."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name.startswith(ABOVE):
            raise ImportError(f"the core alone is tested, and imports {name}")


if loaded := sorted(name for name in sys.modules if name.startswith("interlock")):
    raise ImportError(f"{', '.join(loaded)} is loaded already, and may have loaded plugins; give -p no:interlock")
sys.modules["interlock"] = ModuleType("interlock")
sys.modules["interlock"].__path__ = [str(Path(__file__).parents[1] / "interlock")]
sys.meta_path.insert(0, CoreAlone())

from interlock.core.engine import Engine  # noqa: E402
from interlock.core.plugin import EMPTY  # noqa: E402
from interlock.kernel.lifecycle import Lifecycle  # noqa: E402
from interlock.store.connection import Connection  # noqa: E402


def make_engine(
    connection: Connection, lifecycles: Mapping[str, Lifecycle], *others: Connection, **more: Any
) -> Engine:
    """An engine with no plugin, on connections that are open."""
    return Engine(connection, lifecycles, *others, **more)


sys.modules["interlock.plugins"] = ModuleType("interlock.plugins")
vars(sys.modules["interlock.plugins"]).update(
    STANDARD=EMPTY, make_engine=make_engine, open_engine=Engine.open, __path__=[]
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where no test on PostgreSQL was chosen, none is started."""
    if any("postgres" in item.nodeid for item in items):
        return
    for module in config.pluginmanager.get_plugins():
        if hasattr(module, "postgres") and hasattr(module, "server"):
            vars(module)["postgres"] = nullcontext
