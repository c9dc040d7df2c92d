"""What an operation of the API is: data from which routes, the OpenAPI text and the tests are made."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from interlock.client.app import App
from interlock.core.engine import READERS
from interlock.kernel.commands import Command
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import parse_id
from interlock.kernel.lifecycle import Lifecycle, RollUp
from interlock.server.actors import spoken
from interlock.server.auth import Caller
from interlock.server.errors import Refusal
from interlock.server.event_feed import Streams
from interlock.server.limits import Limits
from interlock.server.subscriptions import Ears
from interlock.store.connection import Connection
from interlock.store.queries.views import glimpse

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
UNIT_MAX = 2**63 - 1
JSON, TEXT, HTML = "application/json", "text/plain", "text/html"  # of text, Litestar says that it is UTF-8


Again = Callable[[], Awaitable[Caller | None]]
PAGING = ("limit", "after", "cursor", "count")
NOBODY = Caller(1, "", "", ())  # whoever asks what is open to all


class ServerState:
    """The engine of a server, and threads in which questions to it wait, so that the event loop never does.

    There are as many threads as connections that read. A question that takes too long is stopped.
    """

    def __init__(self, app: App, limits: Limits) -> None:
        self.app, self.limits = app, limits
        self.readers = ThreadPoolExecutor(READERS, "interlock reader")
        self.of_tenant = cache(self.made_for)
        self.ears = Ears(app)
        self.streams = Streams(self.look, limits.streams)
        self.closing = False  # the server is told to stop: what goes on and on ends

    def made_for(self, tenant: int) -> App:
        """An app of a tenant, on the same engine."""
        app = App(self.app.url, tenant=tenant)
        app.lifecycles, app.registry, app.opener = self.app.lifecycles, self.app.registry, lambda: self.app.engine
        return app

    async def look(self, question: Callable[[Connection], T], tenant: int, seconds: float | None = None) -> T:
        """The answer to a question of a tenant. Raises TooSlow after so many seconds, by default the server's limit."""
        read = partial(self.app.engine.read, question, tenant, seconds or self.limits.question_seconds)
        return await asyncio.get_running_loop().run_in_executor(self.readers, read)

    async def send(self, command: Command[A]) -> A:
        return await self.app.asend(command)

    async def send_all(self, commands: Sequence[Command[Any]]) -> list[Any]:
        """What came of each command: its answer, or an exception."""
        return await asyncio.gather(*map(self.send, commands), return_exceptions=True)

    def close(self, *, lent: bool) -> None:
        self.streams.closed = True
        self.readers.shutdown()
        if not lent:
            self.app.close()


class Reply(msgspec.Struct, frozen=True):
    """An answer that is not the usual one: another status, or no JSON."""

    body: Any
    status: int = 200


class Request:
    """One request: who asks, for which tenant, what and with which words."""

    def __init__(
        self,
        hall: ServerState,
        caller: Caller | None,
        path: Mapping[str, str],
        headers: Mapping[str, str],
        again: Again,
    ) -> None:
        self.hall, self.path, self.headers, self.again = hall, path, headers, again
        self.idempotency_key: str | None = None
        self.caller = caller or NOBODY
        self.app = hall.of_tenant(self.caller.tenant)
        self.request_id = ""  # how it is called
        self.question_seconds = hall.limits.question_seconds  # that each of its questions may take
        self.query: Any = None
        self.body: Any = None

    async def send(self, command: Command[A]) -> A:
        """The command is carried out for this caller's tenant; under an idempotency key it is once.

        The key is the caller's own, so it lasts as long as what it made: those that clients make for themselves, to ask
        again what got no answer, are in their commands and last for a day.
        """
        own = self.owned(command)
        if command.takes_key:
            own = msgspec.structs.replace(own, idempotency_key=self.idempotency_key, key_lasts=True)
        return await self.hall.send(own)

    def owned(self, command: Command[A], **more: Any) -> Command[A]:
        """The same command, as this caller's. Raises Refusal if it is said to be another one's."""
        facts = {"tenant": self.caller.tenant, "cause": self.request_id, "key_scope": self.caller.key, **more}
        return msgspec.structs.replace(command, **facts, **spoken(self.caller, command))

    async def still_allowed(self) -> bool:
        """Whether the key that this was asked with is still good for it."""
        try:
            await self.again()
        except Refusal:
            return False
        return True

    async def read(self, view: Callable[Concatenate[Connection, int, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        tenant = self.caller.tenant
        return await self.hall.look(
            lambda connection: view(connection, tenant, *args, **kwargs), tenant, self.question_seconds
        )

    @property
    def run_lifecycles(self) -> tuple[str, ...]:
        return run_lifecycles(self.app.lifecycles)

    async def find_run(self) -> int:
        """The run that the path names. Raises Unknown."""
        return await self.unit(*self.run_lifecycles)

    async def unit(self, *lifecycles: str) -> int:
        """The unit that the path names, of one of these lifecycles. Raises Unknown."""
        number, text = unit_of(self.path["id"]), self.path["id"]
        lifecycle = (await self.read(glimpse, number)).lifecycle
        if (lifecycles and lifecycle not in lifecycles) or (
            "_" in text and text.lower().rpartition("_")[0] != lifecycle
        ):
            raise Unknown(text)
        return number


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """A method and a path, what they take and give, and which scope they need; none: they are open to all."""

    method: str
    path: str
    scope: str | None
    summary: str
    call: Callable[[Request], Awaitable[Any]]
    answer: Any
    body: Any = None
    documented: Any = None  # the body as the OpenAPI text has it, if more than that is understood
    query: Any = None
    status: int = 200
    also: tuple[int, ...] = ()  # other statuses of success
    media: str = JSON
    streams: bool = False  # also as server-sent events
    shapes: tuple[Any, ...] = ()  # other answers, for whoever asks for them
    finds: bool = False  # the body names something, which may not be there
    keyed: bool = True  # a header may say that it is done once
    counted: bool = True  # among the requests that a tenant may make in a minute
    question_seconds: float = 0.0  # that each of its questions may take, if that is more than others may

    @property
    def name(self) -> str:
        words = [word.strip("{}") for word in self.path.split("/") if word]
        return "_".join([self.method.lower(), *words]).replace(".", "_").replace("-", "_") or self.method.lower()

    @property
    def body_told(self) -> Any:
        """The body that users are told of."""
        return self.documented or self.body

    @property
    def narrower(self) -> str:
        """How to ask for less, where that is possible."""
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
    def by_id(self) -> bool:
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


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No words at all."""


def make_request_id() -> str:
    """How a request is called in its answer, in the log and as the cause of events."""
    return f"request_{secrets.token_hex(8)}"


def unit_of(text: str) -> int:
    """The unit that an id means. Raises Unknown."""
    number = parse_id(text)
    if number > UNIT_MAX or "\0" in text:
        raise Unknown(text)
    return number
