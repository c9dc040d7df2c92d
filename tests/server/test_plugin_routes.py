"""The server takes the routes of plugins from the registry of its app, and knows none of them itself."""

from pathlib import Path

from litestar.testing import TestClient

from interlock.client.app import App
from interlock.core.plugin import Registry, load_part
from interlock.plugins import STANDARD
from interlock.server.app import build_app


def paths_of(app: App) -> set[str]:
    with TestClient(build_app(app)) as client:
        return set(client.get("/openapi.json").json()["paths"])


def test_a_plugin_that_is_not_loaded_has_no_routes(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/work.db")
    every = paths_of(app)
    app = App(f"sqlite:///{tmp_path}/work.db")
    app.registry = Registry(())
    core = paths_of(app)
    of_plugins = {operation.path for place in STANDARD.routes for operation in load_part(place)}
    of_plugins |= {f"/v1/views/{query.__name__}" for query in STANDARD.queries}
    assert core == every - of_plugins
    assert {"/v1/runs", "/runs/{id}/approve", "/v1/templates", "/v1/inbox", "/v1/schedules"} <= of_plugins
    assert {"/v1/jobs", "/v1/workers", "/v1/lifecycles", "/v1/dead-letters", "/v1/keys", "/metrics"} <= core
