"""What a plugin is: one object that lists everything that a kind of work adds to the core.

The core knows the law and nothing else. What workflows, schedules or mutexes need beyond it they say here, and whoever
assembles an engine (`interlock.plugins`) gives it the list. The core imports no plugin, and plugins know each other
only by what the core offers them.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

import msgspec

from interlock.core.group_reads import Prefetches, merge_prefetches
from interlock.kernel import commands
from interlock.kernel.commands import Command, Work
from interlock.kernel.lifecycle import Lifecycle
from interlock.lifecycles import load
from interlock.store.connection import Connection
from interlock.store.hooks import NONE, Hooks, merge
from interlock.store.unit_of_work import UnitOfWork

Verb = Callable[[UnitOfWork, Any], Any]
# What the rows say: asked with a connection, a tenant and further parameters, all of them with type hints.
PluginQuery = Callable[..., Any]
# Asked of the whole database: every unit that breaks the law (0: none in particular), and how.
PluginLaw = Callable[[Connection], Iterator[tuple[int, str]]]


class Gauge(NamedTuple):
    """A number that Prometheus is told, as `interlock_NAME`."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = {}


# Asked with a connection and a tenant.
PluginMetrics = Callable[[Connection, int], Iterable[Gauge]]


class Storyteller(Protocol):
    """Who plays a story of a plugin in the simulation: one of many clients, while faults strike."""

    @property
    def random(self) -> Random: ...  # drawn from the seed
    async def ask(self, command: Command[Any]) -> Any: ...  # returns the answer, or the error that it got
    async def pause(self, seconds: float) -> None: ...
    def read(self, query: PluginQuery, *args: Any) -> Any: ...  # returns None while no server is up


Story = Callable[[Storyteller], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """What a kind of work adds. Whatever it leaves out it does not have."""

    name: str
    lifecycles: Sequence[Path] = ()  # files
    options: type[msgspec.Struct] | None = None  # what work says to it; see `read_options` and `option_of`
    option_scope: str = ""  # that a key needs besides, to ask for work that says something to it
    tables: str = ""  # SQL that both databases read; every table has a column `tenant`
    commands: Mapping[type[Command[Any]], Verb] = field(default_factory=dict)
    prefetches: Prefetches = field(default_factory=dict)  # by command: the queries that are sent ahead, with BEGIN
    queries: Sequence[PluginQuery] = ()  # what can be asked of the database, beside it and over HTTP
    hooks: Hooks = NONE
    laws: Mapping[str, PluginLaw] = field(default_factory=dict)  # by the sentence that is true
    metrics: PluginMetrics | None = None  # what Prometheus is told of a tenant
    stories: Sequence[Story] = ()  # what the simulation plays beside its own stories
    routes: str = ""  # where the server finds its operations, as in "package.module:NAME"
    pages: str = ""  # where the server finds its web pages, as `dashboard/pages.py` has them
    cli: str = ""  # where the command line finds its group of commands
    docs: str = ""  # its page of the documentation


class Registry:
    """The plugins of an engine, read by everything that is assembled from them."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        names = [plugin.name for plugin in plugins]
        if len(set(names)) != len(names):
            raise ValueError(f"a plugin is listed twice: {', '.join(sorted(names))}")
        self.plugins = tuple(plugins)
        self.options = {plugin.name: plugin.options for plugin in plugins if plugin.options}
        self.option_scopes = {plugin.name: plugin.option_scope for plugin in plugins if plugin.option_scope}
        self.hooks = merge(plugin.hooks for plugin in plugins)._replace(options=own_options(plugins))
        self.tables = {plugin.name: plugin.tables for plugin in plugins if plugin.tables}
        self.routes = [plugin.routes for plugin in plugins if plugin.routes]
        self.pages = [plugin.pages for plugin in plugins if plugin.pages]
        self.metrics = [plugin.metrics for plugin in plugins if plugin.metrics]
        self.stories = [story for plugin in plugins for story in plugin.stories]
        self.groups = {plugin.name: plugin.cli for plugin in plugins if plugin.cli}
        self.queries = tuple(query for plugin in plugins for query in plugin.queries)
        self.commands: dict[type[Command[Any]], Verb] = {}
        self.prefetches: Prefetches = {}
        self.laws: dict[str, PluginLaw] = {}
        for plugin in plugins:
            refuse_taken_commands(plugin, {command.__name__ for command in self.commands})
            self.commands |= plugin.commands
            self.prefetches = merge_prefetches(self.prefetches, plugin.prefetches)
            self.laws |= plugin.laws

    def lifecycles(self, known: Mapping[str, Lifecycle]) -> dict[str, Lifecycle]:
        """All lifecycles: those that are known, and those of the plugins."""
        merged = dict(known)
        for plugin in self.plugins:
            for path in plugin.lifecycles:
                lifecycle = load(path)
                if lifecycle.name in merged:
                    raise ValueError(
                        f"plugin '{plugin.name}' brings the lifecycle '{lifecycle.name}', which is there already"
                    )
                merged[lifecycle.name] = lifecycle
        return merged


def own_options(plugins: Sequence[Plugin]) -> tuple[tuple[str, type], ...]:
    """By plugin, the options that are a member of `Work.options`.

    Those of the plugins that Interlock ships are fields of `Work` itself, as programs and stored policies spell them.
    """
    known = set(Work.__struct_fields__)
    return tuple(
        (plugin.name, plugin.options)
        for plugin in plugins
        if plugin.options and not known.issuperset(plugin.options.__struct_fields__)
    )


def refuse_taken_commands(plugin: Plugin, taken: Collection[str]) -> None:
    """A command is known by its name, over HTTP and in the record of idempotency keys.

    Raises:
        ValueError: if another plugin, or the core, has a command of that name.
    """
    for command in plugin.commands:
        of_core = getattr(commands, command.__name__, command) is not command
        if command.__name__ in taken or of_core:
            raise ValueError(f"plugin '{plugin.name}' takes the command {command.__name__}, which another one has")


def load_part(place: str) -> Any:
    """What a plugin has for the server or the command line, which a program without them never imports."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


EMPTY = Registry(())
