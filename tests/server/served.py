"""The application of a server, which one test after another uses: its routes take longer to make than most tests do."""

from collections.abc import Iterator
from contextlib import contextmanager

from litestar import Litestar

from interlock.client.app import App
from interlock.plugins import STANDARD
from interlock.server.app import LIMITS, build_app, make_state
from interlock.server.limits import Limits
from tests.store.databases import LIFECYCLES

made: list[Litestar] = []  # those that nobody uses now


@contextmanager
def serve(app: App, limits: Limits = LIMITS) -> Iterator[Litestar]:
    """The server of an app's database. An app with plugins or lifecycles of its own has an application of its own."""
    if app.registry.plugins != STANDARD.plugins or app.lifecycles != LIFECYCLES:
        yield build_app(app, limits=limits)
        return
    asgi = made.pop() if made else build_app(app, limits=limits)
    state = make_state(app, limits)
    asgi.state.server, asgi.state.pipeline = state.server, state.pipeline
    try:
        yield asgi
    finally:
        made.append(asgi)
