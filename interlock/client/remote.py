"""The engine of an app that speaks to a server: what it sends is done once, though it may be sent twice."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from itertools import groupby
from threading import Lock, Thread
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import msgspec

from interlock.client.http_codec import BODY_MAX, PROGRAMS, TOGETHER, AllCame, error_of, scope_of, sent
from interlock.client.http_transport import Post, TooMuch, Unread
from interlock.client.long_poll import Ears
from interlock.client.remote_views import question_of
from interlock.core.idempotency import answer_type
from interlock.core.wakeups import Subscription
from interlock.kernel.commands import LOCAL, Command, Drain, Record, Register
from interlock.kernel.errors import InterlockError, Unavailable
from interlock.store.connection import Connection

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
ROOM = BODY_MAX - 1_000  # bytes of the commands of one request
GRACE = 10.0  # seconds that what is under way has to be answered in, once the client is closed
CUT_OFF = "the client was closed before there was an answer; whether this was done is not known"
CLOSED = "this client is closed; open another one"
ONCE_ANYWAY = ("progress", "checkpoint", "step", "compensation")


class Ask:
    """A command on its way, and where its answer is waited for."""

    __slots__ = ("command", "future", "scope", "text")

    def __init__(self, command: Command[Any], scope: str) -> None:
        self.command, self.scope, self.text = command, scope, sent(command)
        self.future: Future[Any] = Future()

    @property
    def line(self) -> tuple[str, int]:
        """What goes the same way: nobody waits for a claim, nor a claim for others."""
        return self.scope, self.command.committer.place


class Remote:
    """Carries commands and questions to a server, from any thread; a loop of its own speaks to the network."""

    far = True

    def __init__(self, url: str, key: str, queries: Sequence[Callable[..., Any]] = ()) -> None:
        """`queries` are those of plugins, which the server has too.

        Raises:
            Unavailable: if no server is there.
        """
        self.queries = tuple(queries)
        self.loop, self.lock = asyncio.new_event_loop(), Lock()
        self.waiting: list[list[Ask]] = []
        self.under_way: set[asyncio.Task[None]] = set()
        self.own: set[int] = set()  # workers that were registered here
        self.closed = False
        self.post = Post(url, key)
        self.ears = Ears(self.post, self.loop)
        self.thread = Thread(target=self.loop.run_forever, name="interlock remote", daemon=True)
        self.thread.start()
        try:
            self.wait_for(self.post.greet())
        except BaseException:
            self.close()
            raise

    def wait_for(self, asking: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asking, self.loop).result()

    # Commands.

    def send(self, command: Command[A]) -> A:
        return self.put(command).result()

    def put(self, command: Command[A]) -> "Future[A]":
        return self.put_all([command])[0]

    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        """Those of one kind are carried out in this order, and if nothing speaks against it in one transaction."""
        asks = [ask_for(command, scope_of(command, self.own)) for command in commands]
        with self.lock:
            if self.closed:
                raise Unavailable(CLOSED)
            self.waiting.append(asks)
            if len(self.waiting) == 1:
                self.loop.call_soon_threadsafe(self.flush)
        return [ask.future for ask in asks]

    def flush(self) -> None:
        """What came meanwhile is under way, all that goes the same way together."""
        with self.lock:
            groups, self.waiting = self.waiting, []
        lines: dict[tuple[str, int], list[Ask]] = {}
        for group in groups:
            runs = [(line, list(run)) for line, run in groupby(group, lambda ask: ask.line)]
            if len(runs) == 1:
                lines.setdefault(runs[0][0], []).extend(group)
            else:
                self.start(self.carry([run for _, run in runs]))
        for asks in lines.values():
            self.start(self.carry([asks]))

    def start(self, carrying: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(carrying)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)

    async def carry(self, runs: Iterable[Sequence[Ask]]) -> None:
        """Every command has its answer, one request after the other."""
        for run in runs:
            for some in parts(run):
                wanted = [ask for ask in some if ask.future.set_running_or_notify_cancel()]
                if wanted:
                    await self.carried(wanted)

    async def carried(self, asks: Sequence[Ask]) -> None:
        try:
            body = b'{"commands":[' + b",".join(ask.text for ask in asks) + b"]}"
            text = await self.post.told(f"{PROGRAMS}/{asks[0].scope}", body)
            came = msgspec.json.decode(text, type=AllCame).answers
            for ask, one in zip(asks, came, strict=True):
                if one.refused:
                    ask.future.set_exception(error_of(one.refused))
                else:
                    self.answer(ask, msgspec.json.decode(one.answer, type=answer_type(type(ask.command))))
        except Unread as error:  # one of them spoils it for the others
            if len(asks) == 1:
                asks[0].future.set_exception(InterlockError(str(error)))
            else:
                for ask in asks:
                    await self.carried([ask])
        except BaseException as error:
            for ask in asks:
                if not ask.future.done():
                    ask.future.set_exception(error if isinstance(error, Exception) else Unavailable(CUT_OFF))
            if not isinstance(error, Exception):
                raise

    def answer(self, ask: Ask, answer: Any) -> None:
        if isinstance(ask.command, Register):
            self.own.add(answer)
        ask.future.set_result(answer)

    # Questions.

    def see(
        self, view: Callable[Concatenate[Connection, int, P], T], tenant: int, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What a view says of the tenant of the key."""
        asked = question_of(view, self.queries)
        if self.closed:
            raise Unavailable(CLOSED)
        text = self.wait_for(self.post.told(asked.path, asked.said(args, kwargs), changes=False))
        told: T = msgspec.json.decode(text, type=asked.tells).answer  # type: ignore[attr-defined]
        return told

    def read(
        self, question: Callable[[Connection], T], tenant: int | None = 1, seconds: float | None = None
    ) -> NoReturn:
        raise InterlockError("this is asked of a database, and over HTTP there is none; ask it beside the database")

    def send_within(self, connection: Connection, command: Command[A]) -> NoReturn:
        raise InterlockError("a server cannot join a transaction of yours")

    # Waiting.

    def watch(self, queues: Iterable[str], tenant: int = 1) -> Subscription:
        """Whoever works for these queues learns from it when to claim."""
        names = list(queues)
        return self.ears.open([(tenant, name) for name in names], {"queues": names})

    def calls(self, worker: str, tenant: int = 1) -> Subscription:
        """The worker of that name learns from it that somebody stopped or took what it holds."""
        return self.ears.open([(tenant, worker)], {"worker": worker})

    def watch_end(self, unit: int) -> Subscription:
        """Never rung: nobody here ends a unit."""
        return Subscription((), lambda watch: None)

    def close(self) -> None:
        """What was sent is answered, and the thread and all connections are gone."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
        self.wait_for(self.last())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def last(self) -> None:
        self.flush()
        await self.ears.close()
        if self.under_way:
            _, late = await asyncio.wait(self.under_way, timeout=GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self.post.close()


def ask_for(command: Command[Any], scope: str) -> Ask:
    """A command as it is asked. A worker acts as its key, whatever name it has in the worker's own log."""
    own = msgspec.structs.replace(command, actor=LOCAL) if scope == "worker" else command
    return Ask(once(own), scope)


def once(command: Command[A]) -> Command[A]:
    """The same command, which may be sent twice and is done once."""
    noted = isinstance(command, Record) and command.kind in ONCE_ANYWAY
    by_itself = noted or isinstance(command, Register | Drain) or not command.takes_key
    if by_itself or command.idempotency_key is not None:
        return command
    return msgspec.structs.replace(command, idempotency_key=secrets.token_hex(16))


def parts(asks: Sequence[Ask]) -> Iterable[list[Ask]]:
    """As many commands together as one request may hold; one that is too large alone is answered with that."""
    part, size = list[Ask](), 0
    for ask in asks:
        if len(ask.text) > ROOM:
            if ask.future.set_running_or_notify_cancel():
                ask.future.set_exception(TooMuch(len(ask.text), ROOM))
            continue
        if part and (size + len(ask.text) > ROOM or len(part) == TOGETHER):
            yield part
            part, size = [], 0
        part.append(ask)
        size += len(ask.text) + 1
    if part:
        yield part
