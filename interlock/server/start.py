"""Start the server where that is safe, and run it until a signal stops it."""

import asyncio
import ipaddress
import math
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
import uvicorn

from interlock.client.app import App
from interlock.client.keys import refuse_open
from interlock.kernel.errors import InterlockError
from interlock.server.app import LIMITS, MakePages, build_app
from interlock.server.connections import make_protocol
from interlock.server.limits import Limits
from interlock.server.operations import ServerState
from interlock.server.tls import refuse_unusable
from interlock.store.connection import Connection
from interlock.store.queries.tenants import bypasses_row_security

GRACE = 30  # seconds that open requests have to end in


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and how."""

    host: str = "127.0.0.1"
    port: int = 8000
    behind_proxy: bool = False
    certificate: Path | None = None
    private_key: Path | None = None
    limits: Limits = LIMITS
    make_pages: MakePages | None = None


def is_loopback(host: str) -> bool:
    """Returns whether a host, by name or by address, is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_options(options: ServerOptions) -> None:
    """Raises InterlockError where keys would cross a network in the clear, or others could read what is secret."""
    if (options.certificate is None) != (options.private_key is None):
        raise InterlockError("--tls-cert and --tls-key belong together: give both, or none")
    if not is_loopback(options.host) and options.certificate is None and not options.behind_proxy:
        raise InterlockError(
            f"{options.host} can be reached from other machines, and keys would cross the network in the clear: give "
            "--tls-cert and --tls-key, or --behind-proxy if a proxy in front terminates TLS, or --host 127.0.0.1"
        )
    for file in filter(None, (options.certificate, options.private_key)):
        if not (file.is_file() and os.access(file, os.R_OK)):
            raise InterlockError(f"'{file}' cannot be read")
    if options.certificate and options.private_key:
        refuse_open(options.private_key)
        refuse_unusable(options.certificate, options.private_key)


class UnsafeRole(InterlockError):
    """What is there would not keep tenants apart."""


def check_role(connection: Connection) -> None:
    """On PostgreSQL the last wall between tenants is row-level security; who passes it by may not serve them."""
    if bypasses_row_security(connection):
        raise UnsafeRole(
            "this database role bypasses row-level security, so nothing would keep tenants apart: serve with a role "
            "that is no superuser, has not BYPASSRLS, and was granted interlock_app"
        )


class Server(uvicorn.Server):
    """A server that ends well once it is told to stop, and then also ends what would go on and on."""

    def __init__(self, app: App, options: ServerOptions, *, lent: bool = False) -> None:
        asgi = build_app(  # who lends it ticks
            app, lent=lent, ticks=not lent, limits=options.limits, make_pages=options.make_pages
        )
        self.state: ServerState = asgi.state.server
        self.limits = options.limits
        files = {"ssl_certfile": options.certificate, "ssl_keyfile": options.private_key}
        super().__init__(
            uvicorn.Config(
                asgi, host=options.host, port=options.port, proxy_headers=options.behind_proxy, log_config=None,
                access_log=False, server_header=False, timeout_graceful_shutdown=GRACE, lifespan="on",
                log_level="warning" if lent else None, http=make_protocol(options.limits), ws="none",
                timeout_keep_alive=math.ceil(options.limits.idle_seconds),
                **{name: str(file) for name, file in files.items() if file},  # type: ignore[arg-type]
            )
        )  # fmt: skip

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens; a client that begins TLS has as long for it as for a request."""
        loop = asyncio.get_running_loop()
        if self.config.is_ssl:
            limit = self.limits.request_seconds
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=limit)  # type: ignore[method-assign]
        await super().startup(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Who told it to stop is obeyed, and not answered with a failure."""
        mine = threading.current_thread() is threading.main_thread()
        before = {
            signum: signal.signal(signum, self.stop_on_signal) for signum in (signal.SIGINT, signal.SIGTERM) if mine
        }
        try:
            yield
        finally:
            for signum, old in before.items():
                signal.signal(signum, old)

    def stop_on_signal(self, signum: int, frame: FrameType | None) -> None:
        self.state.closing = True
        self.handle_exit(signum, frame)

    def stop(self) -> None:
        """From any thread: no more is taken, and what was taken is answered."""
        self.state.closing = self.should_exit = True


def serve(app: App, options: ServerOptions) -> None:
    """The server has run until it was told to stop, and every request that it took was answered."""
    check_options(options)
    app.connect().read(check_role)
    try:
        Server(app, options).run()
    except SystemExit:
        raise InterlockError(f"the server cannot listen on {options.host} port {options.port}; is it taken?") from None


@contextmanager
def serve_beside(
    app: App, listener: socket.socket, make_pages: MakePages | None = None
) -> Iterator[Server]:  # fmt: skip
    """While this lasts, a thread serves an app that others use too, and close; at the end all it took is answered."""
    app.connect().read(check_role)
    server = Server(app, ServerOptions(make_pages=make_pages), lent=True)
    thread = threading.Thread(target=server.run, args=([listener],), name="interlock server", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        listener.close()
