"""The backend of an app: an engine in this process, or a server over HTTP."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from importlib import import_module
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import urlsplit

from interlock.blobs.store import BlobStore
from interlock.core.engine import Engine
from interlock.core.plugin import Registry
from interlock.core.wakeups import Subscription
from interlock.kernel.api_keys import read_key
from interlock.kernel.commands import Command
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.store.connection import Connection

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
FAR = ("http://", "https://")


class Backend(Protocol):
    """Takes commands and views, and answers them."""

    far: bool  # across the network: there is no database here, and the server lets time pass

    def send(self, command: Command[A]) -> A: ...
    def put(self, command: Command[A]) -> "Future[A]": ...
    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]": ...
    def send_within(self, connection: Connection, command: Command[A]) -> A: ...
    def read(self, question: Callable[[Connection], T], tenant: int | None = 1, seconds: float | None = None) -> T: ...
    def see(
        self, view: Callable[Concatenate[Connection, int, P], T], tenant: int, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    def find_blobs(self, *, worker: bool = False) -> BlobStore: ...
    def watch(self, queues: Iterable[str], tenant: int = 1) -> Subscription: ...
    def watch_worker(self, worker: str, tenant: int = 1) -> Subscription: ...
    def watch_end(self, unit: int) -> Subscription: ...
    def close(self) -> None: ...


def is_far(url: str) -> bool:
    """Whether a URL names a server, and no database."""
    return url.startswith(FAR)


def parse_address(url: str) -> str:
    """Returns the address of a server.

    Raises:
        InterlockError: a URL with a key in it, or with more than an address.
    """
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise InterlockError("a key does not belong into a URL, where logs show it: give it as key=, or INTERLOCK_KEY")
    if not parts.hostname or parts.query or parts.fragment:
        raise InterlockError(f"'{url}' is no address of a server; allowed are http://host:port and https://host")
    return url.rstrip("/")


def find_tenant(key: str | None) -> int:
    """Returns the tenant that a key is for.

    Raises:
        InterlockError: it is no key.
    """
    if not key:
        raise InterlockError("a server needs a key: give key=, or INTERLOCK_KEY; `interlock key create` makes one")
    parts = read_key(key)
    if parts is None:
        raise InterlockError("this is no key; a key begins with ilk_, and `interlock key create` makes one")
    return parts[0]


def open_here(url: str, lifecycles: Mapping[str, Lifecycle], registry: Registry) -> Backend:
    """Opens the database of a URL."""
    return Engine.open(url, lifecycles, registry)


def open_far(url: str, key: str, registry: Registry) -> Backend:
    """Connects to a server.

    Raises:
        InterlockError: the library for it, an extra, is not installed.
    """
    try:
        module = import_module("interlock.client.remote")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("interlock"):
            raise
        raise InterlockError("a client over HTTP needs its library: pip install 'interlock[http]'") from None
    engine: Backend = module.RemoteEngine(url, key, registry.queries)
    return engine
