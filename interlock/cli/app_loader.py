"""Load apps and plugins named as `module:name`, and parse queues such as `mail:10,default:50`."""

import os
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from interlock.client.app import App
from interlock.core.plugin import Plugin, Registry
from interlock.kernel.errors import InterlockError
from interlock.plugins import STANDARD

PLUGINS = "INTERLOCK_PLUGINS"  # the environment variable that names further plugins
CONCURRENCY, CONCURRENCY_MAX = 10, 10_000


def find_app(place: str, db: str | None = None) -> App:
    """Return the app that `module:attribute` names, as seen from the current folder, on `db` if it is given.

    Raises:
        InterlockError: there is no such app, or it has no tasks.
    """
    name, colon, attribute = place.partition(":")
    if name.endswith(".py") or "/" in name:
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        raise InterlockError(f"'{place}' names a file; name the module instead: {module}:{attribute or 'app'}")
    module_ = import_user_module(name)
    if not colon or not attribute:
        raise InterlockError(f"'{place}' names no app; {suggest_apps(module_)}")
    if not hasattr(module_, attribute):
        raise InterlockError(f"module '{name}' has no '{attribute}'; {suggest_apps(module_)}")
    app = getattr(module_, attribute)
    if not isinstance(app, App):
        raise InterlockError(f"'{place}' is a {type(app).__name__}, not an app; {suggest_apps(module_)}")
    if not app.tasks:
        raise InterlockError(f"'{place}' has no tasks, so there is nothing to run; mark functions with @app.task")
    app.add_plugins(find_plugins())
    if db is not None:
        app.reach(db, tenant=app.tenant)
    return app


def find_plugins() -> list[Plugin]:
    """Return the plugins that INTERLOCK_PLUGINS names, as in `module:PLUGIN,other:PLUGIN`.

    Raises:
        InterlockError: one of them is no plugin.
    """
    places = [place.strip() for place in os.environ.get(PLUGINS, "").split(",")]
    return [find_plugin(place) for place in places if place]


def load_registry() -> Registry:
    """Return the plugins that Interlock ships, and those that INTERLOCK_PLUGINS names.

    Raises:
        InterlockError: one of them is no plugin, or two of them do not go together.
    """
    try:
        return Registry((*STANDARD.plugins, *find_plugins()))
    except ValueError as error:
        raise InterlockError(f"{PLUGINS}: {error}") from None


def find_plugin(place: str) -> Plugin:
    """Return the plugin that `module:name` names."""
    name, _, attribute = place.partition(":")
    try:
        module = import_user_module(name)
    except InterlockError as error:
        raise InterlockError(f"{PLUGINS} names the plugin '{place}': {error}") from None
    plugin = getattr(module, attribute, None) if attribute else None
    if not isinstance(plugin, Plugin):
        plugins = [f"{name}:{key}" for key, value in vars(module).items() if isinstance(value, Plugin)]
        known = f"it has {', '.join(plugins)}" if plugins else "it has none; make one: interlock.core.plugin.Plugin"
        raise InterlockError(f"{PLUGINS} names '{place}', which is no plugin of module '{name}'; {known}")
    return plugin


def import_user_module(name: str) -> ModuleType:
    """Import a module of the user's, from the current folder too."""
    if not name:
        raise InterlockError("no module is named; name an app as module:attribute, such as mail:app")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except InterlockError:
        raise
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise InterlockError(
                f"there is no module '{missing}' in this folder ({here}), nor is one installed"
            ) from None
        raise InterlockError(f"module '{name}' needs '{missing}', which is not installed") from None
    except (Exception, SystemExit) as error:
        raise InterlockError(f"module '{name}' cannot be imported: {describe_error(error)}") from None


def describe_error(error: BaseException) -> str:
    """Return an error of a user's module as text, with the file and line."""
    places = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})" if places else ""
    return f"{type(error).__name__}: {error}{'' if isinstance(error, SyntaxError) else where}"


def suggest_apps(module: ModuleType) -> str:
    """Say which apps a module has."""
    apps = [f"{module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, App)]
    if apps:
        return f"it has {', '.join(apps)}"
    return "it has none; make one: app = interlock.open('sqlite:///work.db')"


def parse_queues(words: Iterable[str], app: App) -> dict[str, int]:
    """Return how many jobs of each queue may run at a time; without `words`, of the queues of the app's tasks."""
    parts = [part.strip() for word in words for part in word.split(",")]
    queues = dict(parse_queue(part) for part in parts if part)
    return queues or dict.fromkeys(sorted({task.rules.queue for task in app.tasks.values()}), CONCURRENCY)


def parse_queue(part: str) -> tuple[str, int]:
    """Parse the name of a queue, perhaps with how many of its jobs may run at a time."""
    name, colon, number = part.partition(":")
    if not name or (colon and not (number.isdecimal() and 1 <= int(number) <= CONCURRENCY_MAX)):
        allowed = f"a queue and how many of its jobs may run at a time (1 to {CONCURRENCY_MAX}), such as mail:10"
        raise InterlockError(f"queue '{part}' is not allowed; allowed is {allowed}")
    return name, int(number) if colon else CONCURRENCY
