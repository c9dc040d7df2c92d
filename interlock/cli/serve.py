"""`interlock serve`: run the HTTP API and the pages until stopped."""

import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

import interlock
from interlock import __version__
from interlock.cli.app_loader import find_plugins
from interlock.cli.logs import write_log
from interlock.cli.options import DEFAULT, OWN_FILES, Url, parse_length
from interlock.cli.output import print_line
from interlock.cli.worker import LogFormat, LogLevel, format_url
from interlock.kernel.errors import InterlockError
from interlock.store.sqlite import MEMORY

Host = Annotated[str, typer.Option(envvar="INTERLOCK_HOST", help="The address to listen on.")]
Port = Annotated[int, typer.Option(envvar="INTERLOCK_PORT", min=0, max=65535, help="The port to listen on.")]
Proxy = Annotated[
    bool, typer.Option("--behind-proxy", envvar="INTERLOCK_BEHIND_PROXY", help="A proxy in front terminates TLS.")
]
Certificate = Annotated[
    Path | None, typer.Option("--tls-cert", envvar="INTERLOCK_TLS_CERT", help="Certificate, a PEM file.")
]
PrivateKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key", envvar="INTERLOCK_TLS_KEY", help="Private key of the certificate, which only you may read."
    ),
]
MaxStreams = Annotated[
    int,
    typer.Option(
        "--max-streams", min=1, envvar="INTERLOCK_MAX_STREAMS", help="Maximum number of open event streams per key."
    ),
]
IdleTimeout = Annotated[
    str,
    typer.Option(
        "--idle-timeout",
        envvar="INTERLOCK_IDLE_TIMEOUT",
        metavar="DURATION",
        help="Close a connection without requests after this long.",
    ),
]
RequestTimeout = Annotated[
    str,
    typer.Option(
        "--request-timeout",
        envvar="INTERLOCK_REQUEST_TIMEOUT",
        metavar="DURATION",
        help="Time for a client to send the headers, and as long again for the body.",
    ),
]
QueryTimeout = Annotated[
    str,
    typer.Option(
        "--question-timeout",
        envvar="INTERLOCK_QUESTION_TIMEOUT",
        metavar="DURATION",
        help="Stop a database query after this long; the request gets 503.",
    ),
]
MaxWrongKeys = Annotated[
    int,
    typer.Option(
        "--max-wrong-keys", min=1, envvar="INTERLOCK_MAX_WRONG_KEYS",
        help="Wrong keys per minute and address; further ones get 429.",
    ),
]  # fmt: skip
PublicUrl = Annotated[
    str | None,
    typer.Option(
        "--public-url", envvar="INTERLOCK_PUBLIC_URL", metavar="URL",
        help="Where people reach the pages, such as https://jobs.example.com (default: this machine only).",
    ),
]  # fmt: skip
SECOND_US = 1_000_000


def start_server(
    db: Url = DEFAULT,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    behind_proxy: Proxy = False,
    tls_cert: Certificate = None,
    tls_key: PrivateKey = None,
    max_streams: MaxStreams = 100,
    idle_timeout: IdleTimeout = "30s",
    request_timeout: RequestTimeout = "30s",
    question_timeout: QueryTimeout = "2s",
    max_wrong_keys: MaxWrongKeys = 10,
    public_url: PublicUrl = None,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
) -> None:
    """Serve the HTTP API and the pages until SIGTERM or Ctrl-C. Other machines need TLS or --behind-proxy."""
    server = import_server()
    if db == f"sqlite://{MEMORY}":
        raise InterlockError("a database in memory ends with its process; name a file: --db sqlite:///file.db")
    place = server.ServerOptions(
        host=host, port=port, behind_proxy=behind_proxy, certificate=tls_cert, private_key=tls_key,
        limits=server.Limits(
            streams=max_streams, idle_seconds=parse_seconds("idle-timeout", idle_timeout),
            request_seconds=parse_seconds("request-timeout", request_timeout),
            question_seconds=parse_seconds("question-timeout", question_timeout), wrong_keys=max_wrong_keys,
        ),
        make_pages=import_pages(public_url),
    )  # fmt: skip
    server.check_options(place)
    with interlock.open(db, lifecycles=OWN_FILES, plugins=find_plugins()) as app:
        scheme = "https" if tls_cert else "http"
        print_line(
            f"Interlock {__version__} on {format_url(app)}: {scheme}://{host}:{port} (pages at /ui/). Ctrl-C stops it."
        )
        sys.stdout.flush()
        with write_log(log_format, log_level, lambda: f"serving {scheme}://{host}:{port}"):
            server.serve(app, place)


def parse_seconds(name: str, text: str) -> float:
    """Return a length of time in seconds.

    Raises:
        InterlockError: it is shorter than a second, which leaves a client no chance.
    """
    us = parse_length(name, text)
    if us < SECOND_US:
        raise InterlockError(f"--{name} = {text} is not allowed; the minimum is 1s")
    return us / SECOND_US


def import_pages(public_url: str | None = None) -> Any:
    """Return the function that makes the routes of the pages.

    Raises:
        InterlockError: the URL is not allowed.
    """
    site, pages = import_module("interlock.dashboard.site"), import_module("interlock.dashboard.pages")
    return partial(site.make_routes, public=None if public_url is None else pages.parse_public_url(public_url))


def import_server() -> Any:
    """Return the server's module, whose libraries are an extra: a machine that only runs workers does not need them.

    Raises:
        InterlockError: the libraries are not installed.
    """
    try:
        return import_module("interlock.server.start")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("interlock"):
            raise
        raise InterlockError("the server needs its libraries: pip install 'interlock[server]'") from None
