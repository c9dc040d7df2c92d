"""A real server in a thread of the test's own process: one listener for all tests, an application for each."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.kernel.commands import CreateKey, SetTenant
from tests.server.served import serve

PATIENCE = 60.0  # seconds until a test gives up; none waits so long


class House:
    """Passes every request on to whoever lives here now."""

    def __init__(self) -> None:
        self.guest: Any = None
        self.app: App | None = None
        self.base = self.url = ""  # of the server, and of the database that a test has for it

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.guest(scope, receive, send)

    @contextmanager
    def hosts(self, app: App) -> Iterator[str]:
        """The server of an app's database; what it is asked is answered before it ends. Gives a key for everything."""
        with serve(app) as self.guest:
            self.app = app
            app.connect()
            try:
                yield self.key("admin", "vouch", "shell")
            finally:
                self.guest.state.server.closing = True
                self.guest.state.server.close(lent=False)

    def key(self, *scopes: str, tenant: int = 1) -> str:
        """A key to the database of the present guest; its name is that of whoever asks beside a database."""
        assert self.app
        if tenant != 1:
            self.app.send(SetTenant(tenant=tenant, name=f"tenant {tenant}"))
        return issue_key(self.app, CreateKey(name="local", scopes=scopes, tenant=tenant)).text


@contextmanager
def housed() -> Iterator[House]:
    house = House()
    config = uvicorn.Config(house, port=0, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    end = time.monotonic() + PATIENCE
    while not server.started:
        assert time.monotonic() < end
        time.sleep(0.005)
    house.base = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield house
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
