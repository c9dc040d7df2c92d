"""How the server is started: only where it is safe, and until somebody says stop."""

import ipaddress
import os
import stat
from pathlib import Path
from types import FrameType

import msgspec
import uvicorn

from interlock.client.app import App
from interlock.kernel.errors import InterlockError
from interlock.server.build import built
from interlock.store.session import Session
from interlock.store.tenants import passes_security_by

GRACE = 30  # seconds that open requests have to end in


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and how."""

    host: str = "127.0.0.1"
    port: int = 8000
    behind_proxy: bool = False
    certificate: Path | None = None
    private_key: Path | None = None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_unsafe(place: Place) -> None:
    """Raises InterlockError where keys would cross a network in the clear, or others could read what is secret."""
    if (place.certificate is None) != (place.private_key is None):
        raise InterlockError("--tls-cert and --tls-key belong together: give both, or none")
    if not is_loopback(place.host) and place.certificate is None and not place.behind_proxy:
        raise InterlockError(
            f"{place.host} can be reached from other machines, and keys would cross the network in the clear: give "
            "--tls-cert and --tls-key, or --behind-proxy if something before it does TLS, or --host 127.0.0.1"
        )
    for file in filter(None, (place.certificate, place.private_key)):
        if not os.access(file, os.R_OK):
            raise InterlockError(f"'{file}' cannot be read")
    if place.private_key and place.private_key.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        raise InterlockError(f"everybody can read or write '{place.private_key}': chmod 600 it")


def refuse_superuser(session: Session) -> None:
    """On PostgreSQL the last wall between tenants is row-level security; who passes it by may not serve them."""
    if passes_security_by(session):
        raise InterlockError(
            "this database role passes row-level security by, so nothing would keep tenants apart: serve with a role "
            "that is no superuser, has not BYPASSRLS, and was granted interlock_app"
        )


def serve(app: App, place: Place) -> None:
    """The server has run until it was told to stop, and every request that it took was answered."""
    refuse_unsafe(place)
    app.connect().read(refuse_superuser)
    files = {"ssl_certfile": place.certificate, "ssl_keyfile": place.private_key}
    asgi = built(app)
    config = uvicorn.Config(
        asgi, host=place.host, port=place.port, proxy_headers=place.behind_proxy, log_config=None,
        access_log=False, server_header=False, timeout_graceful_shutdown=GRACE, lifespan="on",
        **{name: str(file) for name, file in files.items() if file},  # type: ignore[arg-type]
    )  # fmt: skip
    server = uvicorn.Server(config)
    told_to_stop = server.handle_exit

    def stop(signal: int, frame: FrameType | None) -> None:
        asgi.state.hall.closing = True
        told_to_stop(signal, frame)

    server.handle_exit = stop  # type: ignore[method-assign, assignment]
    try:
        server.run()
    except SystemExit:
        raise InterlockError(f"the server cannot listen on {place.host} port {place.port}; is it taken?") from None
