"""The engine, to which clients send commands. It owns the committers, their threads, the readers and the wake-ups.

A question takes one connection for one read-only transaction, so that everything in its answer is from one moment.
While all connections are taken, the next question waits for one. A question that has a limit is stopped by the
database itself once the limit is over (PostgreSQL: `statement_timeout`; SQLite: a progress handler), so that it costs
nobody anything more. It is not tried again: it would take as long again.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from threading import Condition, Lock, Thread
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from interlock.blobs.store import NO_FOLDER, BlobStore
from interlock.core import (
    api_keys,
    archive,
    cancel,
    claims,
    decide,
    holder_verbs,
    leases,
    metrics,
    operator_verbs,
    rate_limit,
    run_now,
    submit,
    tenants,
    tick,
    workers,
)
from interlock.core.committer import Committer
from interlock.core.group_reads import Prefetches, merge_prefetches, record_reads
from interlock.core.pending import PendingCommand
from interlock.core.plugin import EMPTY, Registry
from interlock.core.wakeups import Subscription, WakeupHub
from interlock.kernel import commands
from interlock.kernel.commands import Command
from interlock.kernel.errors import InterlockError, NoBlobs, StoreError, TooSlow, Unavailable
from interlock.kernel.lifecycle import Lifecycle
from interlock.store import migrate
from interlock.store.cache import HeldCache
from interlock.store.connection import CALL, Connection, NotPrepared, WakeupChannel
from interlock.store.ids import Ids
from interlock.store.observer import Observer
from interlock.store.queries.snapshots import snapshot
from interlock.store.unit_of_work import UnitOfWork, open_unit_of_work
from interlock.store.url import connect, open_wakeups

log = logging.getLogger("interlock.core")
A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
VERBS: dict[type[Command[Any]], Callable[[UnitOfWork, Any], Any]] = {
    commands.Submit: submit.submit,
    commands.Cancel: cancel.cancel,
    commands.Decide: decide.decide,
    commands.Enter: holder_verbs.enter,
    commands.Record: holder_verbs.record,
    commands.Bury: operator_verbs.bury,
    commands.Revoke: operator_verbs.revoke,
    commands.RunNow: run_now.run_now,
    commands.Requeue: operator_verbs.requeue,
    commands.Rerun: operator_verbs.rerun,
    commands.Force: operator_verbs.force,
    commands.Register: workers.register,
    commands.Drain: workers.drain,
    commands.Claim: claims.claim,
    commands.Start: leases.start,
    commands.Heartbeat: leases.heartbeat,
    commands.Finish: leases.finish,
    commands.Release: holder_verbs.release,
    commands.Archive: archive.archive,
    commands.SetTenant: tenants.set_tenant,
    commands.CreateKey: api_keys.create_key,
    commands.RotateKey: api_keys.rotate_key,
    commands.RevokeKey: api_keys.revoke_key,
    commands.Admit: rate_limit.admit,
    commands.CountEvents: metrics.count_events,
    commands.Tick: tick.tick,
}
# What commands declare ahead: queries that are sent with BEGIN.
PREFETCHES: Prefetches = {
    commands.Submit: submit.submit_reads, commands.Claim: claims.claim_reads, commands.Record: record_reads,
}  # fmt: skip
LARGE = 100  # rows
CLOSED = "this engine is closed; open another one"
OTHERS = 5  # connections that write, beside the first
READERS = 4  # connections that only read


def refuse_fork(process: int) -> None:
    """Raises InterlockError in a child of the process that opened something: its threads are not there."""
    if os.getpid() != process:
        raise InterlockError(
            f"process {os.getpid()} was forked from process {process} after the database was opened; the connections "
            "are the parent's and its threads are not here: open an app or an engine in the child, after the fork"
        )


class Engine:
    """Commands go in here and are answered. Without threads, whoever sends a command runs it."""

    far = False

    def __init__(
        self,
        connection: Connection,
        lifecycles: Mapping[str, Lifecycle],
        *others: Connection,
        channel: WakeupChannel | None = None,
        registry: Registry = EMPTY,
    ):
        """One committer does everything, unless there are connections more: for ends, for claims, for ticks."""
        self.registry, self.verbs = registry, {**VERBS, **registry.commands}
        self.wakeups = WakeupHub(channel)
        self.process = os.getpid()
        self.sessions = (connection, *others)
        shared = HeldCache() if connection.many_writers else None  # one writer: it is valid for one connection only
        # Those of plugins first: they may lock what is locked before units.
        prefetches = merge_prefetches(registry.prefetches, PREFETCHES)
        self.committers = tuple(
            Committer(
                session, lifecycles, self.verbs, self.wakeups, registry.hooks, prefetches=prefetches,
                held=shared or HeldCache(),
            )
            for session in self.sessions
        )  # fmt: skip
        self.committer = self.committers[0]
        self.threads: tuple[CommitterThread, ...] = ()  # one per committer, or none
        self.readers: Readers | None = None  # where questions have connections of their own
        self.reader, self.reading = connection, Lock()
        self.observers: tuple[Observer, ...] = ()
        self.committer.alone = self.reading  # a question does not come between the statements of a transaction

    @classmethod
    def open(cls, url: str, lifecycles: Mapping[str, Lifecycle], registry: Registry = EMPTY) -> "Engine":
        """An engine with connections and threads of its own; `close` ends them. A SQLite file is made and migrated."""
        with ExitStack() as stack:

            def open_another(*, later: bool = False) -> Connection:
                connection = connect(url, later=later)
                stack.callback(connection.close)
                return connection

            first = open_another()
            migrate.prepare(first, lifecycles.values(), registry.tables)
            others = [open_another(later=True) for _ in range(OTHERS)] if first.many_writers else []
            engine = cls(first, lifecycles, *others, channel=open_wakeups(url), registry=registry)
            if not first.private:
                engine.reader, engine.committer.alone = open_another(later=True), Lock()
                engine.readers = Readers([open_another(later=True) for _ in range(READERS)])
            stack.pop_all()
        engine.start_threads()
        return engine

    def start_threads(self) -> None:
        """From now on every committer has a thread, and a sender only waits."""
        self.threads = tuple(CommitterThread(committer) for committer in self.committers)

    def stop_threads(self) -> None:
        """Returns when what was sent is answered and the threads have ended."""
        for thread in self.threads:
            thread.stop()

    def observe(self, observer: Observer) -> None:
        """From now on the observer is told what this engine does, beside those that are told already."""
        self.observers = (*self.observers, observer)
        for committer in self.committers:
            committer.observers = self.observers
        for connection in (*self.sessions, self.reader, *(self.readers.sessions if self.readers else ())):
            connection.observe(self.observers)

    def committer_for(self, command: Command[Any]) -> Committer:
        """Which committer runs it: so no finish waits for submits, nor for claims, nor any of them for ticks."""
        return self.committers[command.committer.place if len(self.committers) > 1 else 0]

    def send(self, command: Command[A]) -> A:
        """The command is carried out whole and its answer given, or nothing has changed and the reason is raised."""
        if self.threads:
            return self.put_all([command])[0].result()  # type: ignore[no-any-return]
        refuse_fork(self.process)
        committer = self.committer_for(command)
        future = committer.put(command)
        committer.step()
        return future.result()

    def put(self, command: Command[A]) -> "Future[A]":
        """The answer will be there; whoever waits for it lets others run. Needs threads."""
        return self.put_all([command])[0]

    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        """The same for several, which one committer gets together and in order.

        A large command goes to the thread beside that of its committer if less is waiting there.
        """
        assert self.threads, "Engine.open starts them"
        if os.getpid() != self.process:
            refuse_fork(self.process)
        first, route = commands[0], commands[0].committer
        thread = self.threads[route.place if len(self.threads) > 1 else 0]
        beside = None if route.beside is None or route.beside >= len(self.threads) else self.threads[route.beside]
        if beside and thread.load > beside.load and first.count_rows() >= LARGE:
            thread = beside
        return thread.put_all(commands)

    def send_within(self, connection: Connection, command: Command[A]) -> A:
        """The command is carried out in a transaction that others commit; a refusal leaves it as it was.

        Its answer under an idempotency key is kept, and workers are woken, exactly if they commit.
        """
        refuse_fork(self.process)
        ids = Ids(connection)
        if connection.many_writers:  # else a block, or a queue that is new, would be locked until they commit
            ids = Ids(self.reader, self.reading)
            if isinstance(command, commands.Submit):
                with self.reading:
                    tx = open_unit_of_work(
                        self.reader, self.committer.lifecycles, ids, [command.tenant], self.registry.hooks
                    )
                    submit.make_lanes(tx, command)
        committer = Committer(
            connection, self.committer.lifecycles, self.verbs, self.wakeups, self.registry.hooks, lent_ids=ids
        )
        committer.observers = self.observers
        future = committer.put(command)
        committer.step()
        return future.result()

    def read(self, question: Callable[[Connection], T], tenant: int | None = 1, seconds: float | None = None) -> T:
        """What the database says to a question that changes nothing, from one picture of one tenant (None: of all).

        Raises:
            TooSlow: it takes longer than so many seconds.
        """
        if os.getpid() != self.process:
            refuse_fork(self.process)
        tenants = () if tenant is None else (tenant,)
        if self.readers:
            return self.readers.read(question, tenants, seconds)
        with self.reading:
            return answer(self.reader, question, tenants, seconds)

    def see(
        self, view: Callable[Concatenate[Connection, int, P], T], tenant: int, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What a view says of a tenant."""
        return self.read(lambda connection: view(connection, tenant, *args, **kwargs), tenant)

    def find_blobs(self, *, worker: bool = False) -> BlobStore:
        """Returns where this database keeps large bytes.

        Raises:
            NoBlobs: it has no place for them.
        """
        if self.reader.blobs is None:
            raise NoBlobs(NO_FOLDER)
        return self.reader.blobs

    def watch(self, queues: Iterable[str], tenant: int = 1) -> Subscription:
        """Whoever works for these queues learns from it when to claim; left with `with`, it is forgotten."""
        refuse_fork(self.process)
        return self.wakeups.watch((tenant, queue) for queue in queues)

    def watch_worker(self, worker: str, tenant: int = 1) -> Subscription:
        """The worker of that name learns from it that somebody stopped or took what it holds."""
        refuse_fork(self.process)
        return self.wakeups.watch([(tenant, f"{CALL}{worker}")])

    def watch_end(self, unit: int) -> Subscription:
        """Notified when this process has ended the unit; whoever waits also looks now and then, for other processes."""
        if os.getpid() != self.process:
            refuse_fork(self.process)
        return self.wakeups.watch_end(unit)

    def wait(self, queues: Iterable[str], timeout: float, tenant: int = 1) -> bool:
        """Whether one of the queues gets work within `timeout` seconds. A loop has no gaps with `watch`."""
        with self.watch(queues, tenant) as watch:
            return watch.wait(timeout)

    def close(self) -> None:
        """What was sent is answered, and all threads and connections are gone; after a fork the parent's stay."""
        if os.getpid() != self.process:
            return
        self.stop_threads()
        self.wakeups.close()
        if self.readers:
            self.readers.close()
        for connection in {id(session): session for session in (*self.sessions, self.reader)}.values():
            connection.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Readers:
    """Connections that only read. The one that was used last is taken first: idle ones stay idle."""

    def __init__(self, sessions: Sequence[Connection]) -> None:
        self.sessions = tuple(sessions)
        self.free = list(sessions)
        self.given_back = Condition()
        self.closed = False

    def read(self, question: Callable[[Connection], T], tenants: Sequence[int], seconds: float | None) -> T:
        """See `answer`. Waits for a connection while all are taken."""
        with self.given_back:
            while not self.free and not self.closed:
                self.given_back.wait()
            if self.closed:
                raise Unavailable(CLOSED)
            connection = self.free.pop()
        try:
            return answer(connection, question, tenants, seconds)
        finally:
            with self.given_back:
                if self.closed:
                    connection.close()
                else:
                    self.free.append(connection)
                    self.given_back.notify()

    def close(self) -> None:
        """Closes every connection; one that is answering a question is closed after its answer."""
        with self.given_back:
            self.closed = True
            for connection in self.free:
                connection.close()
            self.free.clear()
            self.given_back.notify_all()


def answer(
    connection: Connection,
    question: Callable[[Connection], T],
    tenants: Sequence[int] = (),
    seconds: float | None = None,
) -> T:
    """The answer to a question that changes nothing, from one snapshot of these tenants (none: of all).

    Parameters:
        seconds: how long the question may take; None: as long as it takes.

    Raises:
        TooSlow: the question took longer, and was stopped.
    """
    for last in (False, True):
        began = time.monotonic()
        try:
            with snapshot(connection, tenants, seconds):
                return question(connection)
        except NotPrepared:
            if last:
                raise
        except Unavailable:
            if last:
                raise
            connection.reconnect()
        except StoreError as error:
            if seconds is not None and time.monotonic() - began >= seconds:
                raise TooSlow(f"this took longer than {seconds:g} s and was stopped: ask for less") from error
            raise
    raise AssertionError


class CommitterThread:
    """A thread that calls `step` of a committer whenever there is something to do.

    Commands that come while a step runs share the next one.
    """

    def __init__(self, committer: Committer) -> None:
        self.committer, self.changed, self.ending = committer, Condition(), False
        self.stepping = False  # whether a group is being run
        self.thread = Thread(target=self.run, name="interlock committer", daemon=True)
        self.thread.start()

    @property
    def load(self) -> int:
        """How many commands wait here; the group that is being run counts as one."""
        return len(self.committer.queue) + self.stepping

    def put_all(self, commands: Sequence[Command[Any]]) -> "list[Future[Any]]":
        with self.changed:
            if self.ending:
                raise Unavailable(CLOSED)
            pending = [PendingCommand(command) for command in commands]
            self.committer.queue.extend(pending)
            self.changed.notify()
        return [each.future for each in pending]

    def run(self) -> None:
        while True:
            with self.changed:
                self.stepping = False
                while not self.committer.queue and not self.ending:
                    self.changed.wait()
                if not self.committer.queue:
                    return
                self.stepping = True
            try:
                self.committer.step()
            except BaseException:
                log.exception("committer thread failed")
                raise

    def stop(self) -> None:
        """Returns when what was put is answered and the thread has ended."""
        with self.changed:
            self.ending = True
            self.changed.notify()
        self.thread.join()
