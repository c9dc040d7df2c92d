"""The engine of an app that uses a server: a command that is sent twice is carried out once."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from itertools import groupby
from threading import Lock, Thread
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import msgspec

from interlock.client.http_codec import (
    BODY_MAX,
    COMMANDS_MAX,
    COMMANDS_PATH,
    RawCommandsResponse,
    decode_error,
    encode_command,
    find_scope,
)
from interlock.client.http_transport import HttpTransport, RequestRejected, RequestTooLarge
from interlock.client.long_poll import LongPolls
from interlock.client.remote_blobs import RemoteBlobs
from interlock.client.remote_feed import RemoteFeed
from interlock.client.remote_views import find_remote_view
from interlock.core.idempotency import answer_type
from interlock.core.wakeups import Subscription
from interlock.kernel.commands import LOCAL, Command, Drain, Record, Register
from interlock.kernel.errors import InterlockError, Unavailable
from interlock.store.connection import Connection

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
SIZE_MAX = BODY_MAX - 1_000  # bytes of all commands of one request
GRACE = 10.0  # seconds that requests on their way get to finish, once the client is closed
CUT_OFF = "the client was closed before there was an answer; whether this was done is not known"
CLOSED = "this client is closed; open another one"
IDEMPOTENT_NOTES = ("progress", "checkpoint", "step", "compensation", "phase")


class OutgoingCommand:
    """A command that waits for its answer, and the future that gets it."""

    __slots__ = ("command", "future", "scope", "text")

    def __init__(self, command: Command[Any], scope: str) -> None:
        self.command, self.scope, self.text = command, scope, encode_command(command)
        self.future: Future[Any] = Future()

    @property
    def lane(self) -> tuple[str, int]:
        """Commands of one lane are sent together: nobody waits for a claim, nor a claim for others."""
        return self.scope, self.command.committer.place


class RemoteEngine:
    """Sends commands to a server and reads its views, from any thread; a loop of its own does the HTTP."""

    far = True

    def __init__(self, url: str, key: str, queries: Sequence[Callable[..., Any]] = ()) -> None:
        """`queries` are those of plugins, which the server has too.

        Raises:
            Unavailable: if no server is there.
        """
        self.queries = tuple(queries)
        self.loop, self.lock = asyncio.new_event_loop(), Lock()
        self.waiting: list[list[OutgoingCommand]] = []  # each list was put together
        self.on_their_way: set[asyncio.Task[None]] = set()
        self.own_workers: set[int] = set()  # that were registered here
        self.feeds: set[RemoteFeed] = set()  # that are followed
        self.closed = False
        self.transport = HttpTransport(url, key)
        self.long_polls = LongPolls(self.transport, self.loop)
        self.thread = Thread(target=self.loop.run_forever, name="interlock remote", daemon=True)
        self.thread.start()
        try:
            self.run_on_loop(self.transport.check_ready())
        except BaseException:
            self.close()
            raise

    def run_on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    # Commands.

    def send(self, command: Command[A]) -> A:
        return self.put(command).result()

    def put(self, command: Command[A]) -> "Future[A]":
        return self.put_all([command])[0]

    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        """Commands of one lane are carried out in this order, and if possible in one transaction."""
        pending = [make_pending(command, find_scope(command, self.own_workers)) for command in commands]
        with self.lock:
            if self.closed:
                raise Unavailable(CLOSED)
            self.waiting.append(pending)
            if len(self.waiting) == 1:
                self.loop.call_soon_threadsafe(self.flush)
        return [each.future for each in pending]

    def flush(self) -> None:
        """Starts to send all that waits, the commands of one lane together."""
        with self.lock:
            groups, self.waiting = self.waiting, []
        lanes: dict[tuple[str, int], list[OutgoingCommand]] = {}
        for group in groups:
            runs = [(lane, list(run)) for lane, run in groupby(group, lambda pending: pending.lane)]
            if len(runs) == 1:
                lanes.setdefault(runs[0][0], []).extend(group)
            else:
                self.start(self.send_in_order([run for _, run in runs]))
        for pending in lanes.values():
            self.start(self.send_in_order([pending]))

    def start(self, sending: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(sending)
        self.on_their_way.add(task)
        task.add_done_callback(self.on_their_way.discard)

    async def send_in_order(self, runs: Iterable[Sequence[OutgoingCommand]]) -> None:
        """Sends one request after the other; when this ends, every command has its answer."""
        for run in runs:
            for part in split_by_size(run):
                wanted = [each for each in part if each.future.set_running_or_notify_cancel()]
                if wanted:
                    await self.send_request(wanted)

    async def send_request(self, pending: Sequence[OutgoingCommand]) -> None:
        try:
            body = b'{"commands":[' + b",".join(each.text for each in pending) + b"]}"
            text = await self.transport.post(f"{COMMANDS_PATH}/{pending[0].scope}", body)
            responses = msgspec.json.decode(text, type=RawCommandsResponse).answers
            for each, response in zip(pending, responses, strict=True):
                if response.refused:
                    each.future.set_exception(decode_error(response.refused))
                else:
                    answer = msgspec.json.decode(response.answer, type=answer_type(type(each.command)))
                    if isinstance(each.command, Register):
                        self.own_workers.add(answer)
                    each.future.set_result(answer)
        except RequestRejected as error:  # one of them spoils it for the others
            if len(pending) == 1:
                pending[0].future.set_exception(InterlockError(str(error)))
            else:
                for each in pending:
                    await self.send_request([each])
        except BaseException as error:
            for each in pending:
                if not each.future.done():
                    each.future.set_exception(error if isinstance(error, Exception) else Unavailable(CUT_OFF))
            if not isinstance(error, Exception):
                raise

    # Views.

    def see(
        self, view: Callable[Concatenate[Connection, int, P], T], tenant: int, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Returns what a view says of the tenant of the key."""
        remote_view = find_remote_view(view, self.queries)
        if self.closed:
            raise Unavailable(CLOSED)
        request = remote_view.encode_request(args, kwargs)
        text = self.run_on_loop(self.transport.post(remote_view.path, request, changes=False))
        answer: T = msgspec.json.decode(text, type=remote_view.response_type).answer  # type: ignore[attr-defined]
        return answer

    def read(
        self, question: Callable[[Connection], T], tenant: int | None = 1, seconds: float | None = None
    ) -> NoReturn:
        raise InterlockError("this is read from a database, and over HTTP there is none; read it beside the database")

    def send_within(self, connection: Connection, command: Command[A]) -> NoReturn:
        raise InterlockError("a server cannot join a transaction of yours")

    def find_blobs(self, *, worker: bool = False) -> RemoteBlobs:
        """Returns where the server keeps large bytes; `worker`: as a worker's key may reach it."""
        return RemoteBlobs(self, worker=worker)

    def stream_feed(self, query: Sequence[tuple[str, str]], after: str | None) -> RemoteFeed:
        """Follows the feed of the server behind a cursor."""
        if self.closed:
            raise Unavailable(CLOSED)
        return RemoteFeed(self.transport, self.loop, query, after, self.feeds)

    # Waiting.

    def watch(self, queues: Iterable[str], tenant: int = 1) -> Subscription:
        """Returns a subscription that is notified when one of these queues has work."""
        names = list(queues)
        return self.long_polls.subscribe([(tenant, name) for name in names], {"queues": names})

    def watch_worker(self, worker: str, tenant: int = 1) -> Subscription:
        """Returns a subscription that is notified when somebody stopped or took what the worker of that name holds."""
        return self.long_polls.subscribe([(tenant, worker)], {"worker": worker})

    def watch_end(self, unit: int) -> Subscription:
        """Returns a subscription that is never notified: no job ends in this process."""
        return Subscription((), lambda subscription: None)

    def close(self) -> None:
        """When this ends, what was sent is answered, and the thread and all connections are gone."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
        for feed in list(self.feeds):
            feed.cut()
        self.run_on_loop(self.close_connections())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def close_connections(self) -> None:
        self.flush()
        await self.long_polls.close()
        if self.on_their_way:
            _, late = await asyncio.wait(self.on_their_way, timeout=GRACE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        # Feeds that were cut have been told to end, and have not yet.
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self.transport.close()


def make_pending(command: Command[Any], scope: str) -> OutgoingCommand:
    """Makes a command ready to be sent. A worker acts as its key, whatever name it has in the worker's own log."""
    own = msgspec.structs.replace(command, actor=LOCAL) if scope == "worker" else command
    return OutgoingCommand(add_idempotency_key(own), scope)


def add_idempotency_key(command: Command[A]) -> Command[A]:
    """Returns the same command with an idempotency key, unless it is carried out once anyway."""
    idempotent_note = isinstance(command, Record) and command.kind in IDEMPOTENT_NOTES
    idempotent = idempotent_note or isinstance(command, Register | Drain) or not command.takes_key
    if idempotent or command.idempotency_key is not None:
        return command
    return msgspec.structs.replace(command, idempotency_key=secrets.token_hex(16))


def split_by_size(pending: Sequence[OutgoingCommand]) -> Iterable[list[OutgoingCommand]]:
    """Yields as many commands together as one request may hold; one that is too large alone fails with that."""
    part, size = list[OutgoingCommand](), 0
    for each in pending:
        if len(each.text) > SIZE_MAX:
            if each.future.set_running_or_notify_cancel():
                each.future.set_exception(RequestTooLarge(len(each.text), SIZE_MAX))
            continue
        if part and (size + len(each.text) > SIZE_MAX or len(part) == COMMANDS_MAX):
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each.text) + 1
    if part:
        yield part
