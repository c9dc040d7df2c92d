"""What an operation of the API is: data from which routes, the OpenAPI text and tests are made."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from interlock.client.app import App
from interlock.core.engine import READERS
from interlock.kernel.commands import Command
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import parse_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.lifecycle_options import RollUp
from interlock.server.actors import make_actor_fields
from interlock.server.auth import Caller, require_option_scopes
from interlock.server.errors import ApiError
from interlock.server.event_feed import EventFeed
from interlock.server.limits import Limits
from interlock.server.subscriptions import Waiters
from interlock.store.connection import Connection
from interlock.store.queries.views import read_summary

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
UNIT_MAX = 2**63 - 1
JSON, TEXT, HTML = "application/json", "text/plain", "text/html"  # of text, Litestar says that it is UTF-8


CheckAccess = Callable[[], Awaitable[Caller | None]]
PAGING = ("limit", "after", "cursor", "count")
ANONYMOUS = Caller(1, "", "", ())  # the caller of an operation that needs no key


class ServerState:
    """What all requests of a server share: its app, its limits, and the threads in which it reads.

    There are as many threads as connections that read, so the event loop never waits for the database. A read that
    takes too long is stopped.
    """

    def __init__(self, app: App, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.readers = ThreadPoolExecutor(READERS, "interlock reader")
        self.app_for = cache(self.make_app)
        self.waiters = Waiters(app)
        self.streams = EventFeed(self.read, limits.streams)
        self.counting = cache(lambda tenant: asyncio.Lock())  # by tenant: held while its events are counted
        self.observer: Any = None  # a MetricsObserver, once the server runs
        self.closing = False  # the server is told to stop: streams and long polls end

    def make_app(self, tenant: int) -> App:
        """Returns an app of a tenant, on the same engine."""
        app = App(self.app.url, tenant=tenant)
        app.lifecycles, app.registry, app.opener = self.app.lifecycles, self.app.registry, lambda: self.app.engine
        return app

    async def read(self, query: Callable[[Connection], T], tenant: int, seconds: float | None = None) -> T:
        """Runs a query for a tenant in a reader thread.

        Parameters:
            seconds: after which the query is stopped; by default the limit of the server.

        Raises:
            TooSlow: the query was stopped.
        """
        read = partial(self.app.engine.read, query, tenant, seconds or self.limits.question_seconds)
        return await asyncio.get_running_loop().run_in_executor(self.readers, read)

    async def send(self, command: Command[A]) -> A:
        return await self.app.asend(command)

    async def send_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """Sends commands together and returns, for each, its answer or the exception that came instead."""
        return await asyncio.gather(*map(self.send, commands), return_exceptions=True)

    def close(self, *, lent: bool) -> None:
        """Ends the reader threads, and the app too unless it is lent."""
        self.streams.closed = True
        self.readers.shutdown()
        if not lent:
            self.app.close()


class BytesReply(msgspec.Struct, frozen=True):
    """A response of bytes, which are told piece by piece."""

    pieces: AsyncIterator[bytes]
    media: str
    headers: Mapping[str, str]
    status: int = 200


class Reply(msgspec.Struct, frozen=True):
    """A response with a status of its own."""

    body: Any
    status: int = 200


class Request:
    """One request to an operation: the caller, the path, the query and the body, all of them checked."""

    def __init__(
        self,
        server: ServerState,
        caller: Caller | None,
        path: Mapping[str, str],
        headers: Mapping[str, str],
        check_access: CheckAccess,
    ) -> None:
        self.server, self.path, self.headers, self.check_access = server, path, headers, check_access
        self.idempotency_key: str | None = None
        self.caller = caller or ANONYMOUS
        self.app = server.app_for(self.caller.tenant)
        self.request_id = ""
        self.question_seconds = server.limits.question_seconds  # that each of its reads may take
        self.query: Any = None
        self.body: Any = None
        self.pieces: AsyncIterator[bytes] | None = None  # of a body of bytes, as they come

    async def send(self, command: Command[A]) -> A:
        """Sends a command for the caller's tenant. Under an idempotency key it is carried out once.

        The key is the caller's own, so it lasts as long as what it made. Those that clients make for themselves, to
        send again what got no answer, are in their commands and last for a day.
        """
        own = self.sign_command(command)
        if command.takes_key:
            own = msgspec.structs.replace(own, idempotency_key=self.idempotency_key, key_lasts=True)
        return await self.server.send(own)

    def sign_command(self, command: Command[A], **more: Any) -> Command[A]:
        """Returns the same command as the caller's: tenant, cause and actor are set.

        Raises:
            ApiError: the command names another actor, and the key may not vouch; or it asks for work that needs a scope
                of its own.
        """
        require_option_scopes(self.caller, self.app.registry, command)
        fields = {"tenant": self.caller.tenant, "cause": self.request_id, "key_scope": self.caller.key, **more}
        return msgspec.structs.replace(command, **fields, **make_actor_fields(self.caller, command))

    async def is_still_allowed(self) -> bool:
        """Returns whether the key of the request is still good for it."""
        try:
            await self.check_access()
        except ApiError:
            return False
        return True

    async def read(self, view: Callable[Concatenate[Connection, int, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a view for the caller's tenant.

        Raises:
            TooSlow: the view took too long, and was stopped.
        """
        tenant = self.caller.tenant
        return await self.server.read(
            lambda connection: view(connection, tenant, *args, **kwargs), tenant, self.question_seconds
        )

    @property
    def run_lifecycles(self) -> tuple[str, ...]:
        return run_lifecycles(self.app.lifecycles)

    async def find_run(self) -> int:
        """Returns the run that the path names.

        Raises:
            Unknown: there is none.
        """
        return await self.find_unit(*self.run_lifecycles)

    async def find_unit(self, *lifecycles: str) -> int:
        """Returns the unit that the path names, of one of these lifecycles if any are given.

        Raises:
            Unknown: there is none.
        """
        number, text = parse_unit_id(self.path["id"]), self.path["id"]
        lifecycle = (await self.read(read_summary, number)).lifecycle
        if (lifecycles and lifecycle not in lifecycles) or (
            "_" in text and text.lower().rpartition("_")[0] != lifecycle
        ):
            raise Unknown(text)
        return number


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path: what it takes, what it returns, and the scope that it needs."""

    method: str
    path: str
    scope: str | None  # None: it needs no key
    summary: str
    call: Callable[[Request], Awaitable[Any]]
    response: Any
    body: Any = None
    openapi_body: Any = None  # the body as the OpenAPI text has it, if it takes more than that
    takes_bytes: int = 0  # at most so many as its body, and no JSON
    query: Any = None
    status: int = 200
    other_statuses: tuple[int, ...] = ()  # of success
    media: str = JSON
    streams: bool = False  # also as server-sent events
    ranges: bool = False  # answers bytes, all of them or those of the header Range
    event_id: str = "^[0-9]{1,9}$"  # what the ids of those events look like
    other_responses: tuple[Any, ...] = ()  # in which a caller may ask for the same
    finds: bool = False  # the body names something, which may not be there
    keyed: bool = True  # takes an Idempotency-Key
    counted: bool = True  # among the requests per minute of a tenant
    question_seconds: float = 0.0  # that each of its reads may take, if that is more than the server's limit

    @property
    def name(self) -> str:
        words = [word.strip("{}") for word in self.path.split("/") if word]
        return "_".join([self.method.lower(), *words]).replace(".", "_").replace("-", "_") or self.method.lower()

    @property
    def documented_body(self) -> Any:
        return self.openapi_body or self.body

    @property
    def advice(self) -> str:
        """How to ask for less, told to a caller whose read took too long."""
        kinds = [kind for kind in (self.query, self.body) if kind is not None]
        names = [field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)]
        filters = [name for name in names if name not in (*PAGING, "confirm", "reason")]
        ways = []
        if "limit" in names:
            ways.append("a smaller `limit`")
        if "count" in names:
            ways.append("no `count`")
        if filters and not self.changes:
            ways.append(f"fewer units by {', '.join(f'`{name}`' for name in filters)}")
        return f"ask for {' or '.join(ways)}" if ways else "ask for a smaller part of it"

    @property
    def has_parameter(self) -> bool:
        """Whether the path names something."""
        return "{" in self.path

    @property
    def takes_key(self) -> bool:
        return self.changes and self.keyed

    @property
    def changes(self) -> bool:
        return self.method == "POST"


def with_short_paths(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Returns operations, and each of them again without `/v1`, as document 001 has its paths."""
    short = (msgspec.structs.replace(operation, path=operation.path.removeprefix("/v1")) for operation in operations)
    return (*operations, *short)


def run_lifecycles(lifecycles: Mapping[str, Lifecycle]) -> tuple[str, ...]:
    """Returns the names of the lifecycles whose units are runs: they have others below them, and mirror none."""
    return tuple(
        lifecycle.name
        for lifecycle in lifecycles.values()
        if lifecycle.options.roll_up not in (RollUp.NONE, RollUp.FOLLOW)
    )


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of an operation that takes none."""


def make_request_id() -> str:
    """Returns the id of a request: it is in the response, in the log, and the cause of events."""
    return f"request_{secrets.token_hex(8)}"


def parse_unit_id(text: str) -> int:
    """Returns the unit that an id means.

    Raises:
        Unknown: there is none.
    """
    number = parse_id(text)
    if number > UNIT_MAX or "\0" in text:
        raise Unknown(text)
    return number
