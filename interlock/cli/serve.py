"""`interlock serve`: the HTTP API, until somebody says stop."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock import __version__
from interlock.cli.app_loader import named_plugins
from interlock.cli.logs import logged
from interlock.cli.options import DEFAULT, OWN_FILES, Url, length
from interlock.cli.output import say
from interlock.cli.worker import LogFormat, LogLevel, shown_url
from interlock.client.app import open as open_app
from interlock.kernel.errors import InterlockError
from interlock.store.sqlite import MEMORY

Host = Annotated[str, typer.Option(envvar="INTERLOCK_HOST", help="The address to listen on.")]
Port = Annotated[int, typer.Option(envvar="INTERLOCK_PORT", min=0, max=65535, help="The port to listen on.")]
Proxy = Annotated[
    bool, typer.Option("--behind-proxy", envvar="INTERLOCK_BEHIND_PROXY", help="Something before it does TLS.")
]
Certificate = Annotated[
    Path | None, typer.Option("--tls-cert", envvar="INTERLOCK_TLS_CERT", help="A certificate, in a PEM file.")
]
PrivateKey = Annotated[
    Path | None, typer.Option("--tls-key", envvar="INTERLOCK_TLS_KEY", help="Its private key, which only you may read.")
]
MaxStreams = Annotated[
    int, typer.Option("--max-streams", min=1, envvar="INTERLOCK_MAX_STREAMS", help="Streams of events open for a key.")
]
IdleTimeout = Annotated[
    str,
    typer.Option(
        "--idle-timeout",
        envvar="INTERLOCK_IDLE_TIMEOUT",
        metavar="DURATION",
        help="After which a connection ends that asks nothing.",
    ),
]
RequestTimeout = Annotated[
    str,
    typer.Option(
        "--request-timeout",
        envvar="INTERLOCK_REQUEST_TIMEOUT",
        metavar="DURATION",
        help="In which headers must come whole, and as long again for a body.",
    ),
]
QuestionTimeout = Annotated[
    str,
    typer.Option(
        "--question-timeout",
        envvar="INTERLOCK_QUESTION_TIMEOUT",
        metavar="DURATION",
        help="After which a question to the database is stopped, and gets 503.",
    ),
]
MaxWrongKeys = Annotated[
    int,
    typer.Option(
        "--max-wrong-keys", min=1, envvar="INTERLOCK_MAX_WRONG_KEYS",
        help="Wrong keys of one address in a minute; further ones get 429.",
    ),
]  # fmt: skip
SECOND_US = 1_000_000


def serve(
    db: Url = DEFAULT,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    behind_proxy: Proxy = False,
    tls_cert: Certificate = None,
    tls_key: PrivateKey = None,
    max_streams: MaxStreams = 100,
    idle_timeout: IdleTimeout = "30s",
    request_timeout: RequestTimeout = "30s",
    question_timeout: QuestionTimeout = "2s",
    max_wrong_keys: MaxWrongKeys = 10,
    log_format: LogFormat = "text",
    log_level: LogLevel = "info",
) -> None:
    """Serve the HTTP API until SIGTERM or Ctrl-C. It listens to this machine alone unless it is safe to do more."""
    server = extra()
    if db == f"sqlite://{MEMORY}":
        raise InterlockError("a database in memory ends with its process; name a file: --db sqlite:///file.db")
    place = server.ServerOptions(
        host=host, port=port, behind_proxy=behind_proxy, certificate=tls_cert, private_key=tls_key,
        limits=server.Limits(
            streams=max_streams, idle_seconds=seconds("idle-timeout", idle_timeout),
            request_seconds=seconds("request-timeout", request_timeout),
            question_seconds=seconds("question-timeout", question_timeout), wrong_keys=max_wrong_keys,
        ),
    )  # fmt: skip
    server.check_options(place)
    with open_app(db, lifecycles=OWN_FILES, plugins=named_plugins()) as app:
        scheme = "https" if tls_cert else "http"
        say(f"Interlock {__version__} on {shown_url(app)}: {scheme}://{host}:{port} (try it there). Ctrl-C stops it.")
        sys.stdout.flush()
        with logged(log_format, log_level, lambda: f"serving {scheme}://{host}:{port}"):
            server.serve(app, place)


def seconds(name: str, text: str) -> float:
    """A length of time that leaves a client a chance. Raises InterlockError."""
    us = length(name, text)
    if us < SECOND_US:
        raise InterlockError(f"--{name} = {text} is not allowed; a second is the least")
    return us / SECOND_US


def extra() -> Any:
    """The server's code, whose libraries are an extra: who only runs workers does not need them."""
    try:
        return import_module("interlock.server.start")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("interlock"):
            raise
        raise InterlockError("the server needs its libraries: pip install 'interlock[server]'") from None
