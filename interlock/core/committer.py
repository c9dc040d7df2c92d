"""The committer: the one way in. It carries out every command, and each gets an answer that is true.

Commands that wait share a transaction. A refusal that changed nothing is the answer of its command alone; any other
failure undoes the group, which is tried once more and then command by command. A COMMIT without an answer is looked up
and never redone blindly. A command may also come with a transaction that its caller has lent: the same code carries it
out within a savepoint, and what it did, kept under its idempotency key and told to workers, stands if they commit.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock, local
from typing import Any, TypeVar

from interlock.core.idempotency import Nothing, keep_answer, kept_answer
from interlock.core.reactions import run_reactions
from interlock.core.records import look_ahead
from interlock.core.wakeups import WakeupHub
from interlock.core.withhold import (
    CannotProceed,
    bug_in,
    find_failures,
    is_passing,
    pass_over,
    unknown_here,
    withhold,
)
from interlock.kernel import commands
from interlock.kernel.commands import Command
from interlock.kernel.errors import Contended, Corrupt, InterlockError, StoreError, Unavailable
from interlock.kernel.lifecycle import Lifecycle
from interlock.store.cache import EngineCache
from interlock.store.commit_proof import confirm_on_standby, is_proven, wait_for_outcome
from interlock.store.connection import Connection, LostCommit, Taken, Unreachable
from interlock.store.held_cache import HeldCache
from interlock.store.hooks import NONE, Hooks
from interlock.store.ids import Ids, OutOfIds
from interlock.store.observer import Observers, notify, timed
from interlock.store.query import BoundQuery
from interlock.store.unit_of_work import Picks, UnitOfWork, open_unit_of_work

log = logging.getLogger("interlock.core")
A = TypeVar("A")
Verbs = Mapping[type[Command[Any]], Callable[[UnitOfWork, Any], Any]]
# By the class of a command: the queries that several of them will run first.
Prefetches = Mapping[type[Command[Any]], Callable[[EngineCache, Sequence[Any]], Iterable[BoundQuery[Any]]]]
Answer = tuple[Any, InterlockError | None]
GROUP_MAX, ROWS_MAX = 256, 10_000  # of a transaction that commands share
ALONE = 1_000  # rows; a command with more has a transaction to itself
IDS_A_ROW = 3  # a unit, its first attempt and their lane
TOO_MANY = "this command makes more units than one command may; send them in parts"
TRIES = 5  # of one command; a group is tried twice
ROUNDS_MAX = 100  # so often a claim or a tick is begun again without units that fail


class Ask:
    """A command on its way, and where its answer is waited for."""

    __slots__ = ("command", "future", "rows")

    def __init__(self, command: Command[Any]) -> None:
        self.command, self.rows = command, extent(command)
        self.future: Future[Any] = Future()

    def answer(self, answer: Answer) -> None:
        if answer[1]:
            self.future.set_exception(answer[1])
        else:
            self.future.set_result(answer[0])


class Answering(local):
    """What is left to do in this thread once the answers that are being given are all given."""

    after: list[Callable[[], None]] | None = None


ANSWERING = Answering()


@contextmanager
def answering() -> Iterator[None]:
    """Whoever is woken by these answers finds all of them."""
    after: list[Callable[[], None]] = []
    ANSWERING.after = after
    try:
        yield
    finally:
        ANSWERING.after = None
        for call in after:
            call()


def afterwards(call: Callable[[], None]) -> None:
    """To be called by whoever is told an answer: done when the answers that go with it are given too."""
    if ANSWERING.after is None:
        call()
    else:
        ANSWERING.after.append(call)


class Spoilt(Exception):
    """A command was refused after it had changed something: the others must be redone without it."""


class Unresolved(Unreachable):
    """Nobody can say whether the command was carried out."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the database did not answer to COMMIT and cannot be asked now ({why}); "
            "the command may have been carried out or not: look before you send it again"
        )


def extent(command: Command[Any]) -> int:
    """About how many rows a command reads or makes."""
    match command:
        case commands.Submit():
            return len(command.work)
        case commands.Finish():
            return len(command.outcomes)
        case commands.Claim() | commands.Tick():
            return command.limit
        case _:
            return len(getattr(command, "held", "1"))


def ids(command: Command[Any]) -> int:
    """How many ids a command may take; what is due may take some too, but seldom, and there are some to spare."""
    return 0 if isinstance(command, commands.Claim | commands.Tick) else extent(command) * IDS_A_ROW


class Committer:
    """Carries commands out in groups, a transaction each. It has no thread: whoever has one calls `step`."""

    def __init__(
        self, connection: Connection, lifecycles: Mapping[str, Lifecycle], verbs: Verbs, bell: WakeupHub,
        ids: Ids | None = None,
        hooks: Hooks = NONE, *, prefetches: Prefetches | None = None, held: HeldCache | None = None,
    ) -> None:  # fmt: skip
        """`ids` come with a session that was lent: its transaction is others' to commit."""
        self.connection, self.lifecycles, self.verbs, self.bell = connection, lifecycles, verbs, bell
        self.hooks, self.lent = hooks, ids is not None
        self.prefetches, self.cache = prefetches or {}, EngineCache(held=held)
        self.ids = ids or Ids(connection)
        self.queue: deque[Ask] = deque()
        self.picked: set[int] = set()  # by the claims and ticks of the last attempt
        self.alone = Lock()  # nobody else speaks to the connection meanwhile
        self.observers: Observers = ()

    def put(self, command: Command[A]) -> "Future[A]":
        ask = Ask(command)
        self.queue.append(ask)
        return ask.future

    def step(self) -> int:
        """What waits, at most a group, is carried out and answered; answers how many commands that were."""
        group = self.next_group()
        wanted = [ask for ask in group if ask.future.set_running_or_notify_cancel()]
        try:
            if wanted:
                with self.alone:
                    self.settle(wanted)
        except BaseException:
            for ask in wanted:
                if not ask.future.done():
                    ask.future.set_exception(Unavailable("the program was interrupted before there was an answer"))
            raise
        return len(group)

    def next_group(self) -> list[Ask]:
        """Commands in the order in which they came, as many as may share a transaction."""
        group: list[Ask] = []
        rows = 0
        while self.queue and len(group) < GROUP_MAX:
            rows += self.queue[0].rows
            if group and (rows > ROWS_MAX or max(group[0].rows, self.queue[0].rows) > ALONE):
                break
            group.append(self.queue.popleft())
        return group

    def settle(self, group: list[Ask]) -> None:
        """Every command has its answer; if they cannot be carried out together, only the offender's is an error."""
        try:
            answers = self.carried_out(group)
        except Unreachable as error:
            for ask in group:
                ask.future.set_exception(error)
        except Exception as error:
            if len(group) == 1:
                log_bug(group[0].command, error)
                group[0].future.set_exception(error)
                return
            for ask in group:
                self.settle([ask])
        else:
            with answering():
                for ask, answer in zip(group, answers, strict=True):
                    ask.answer(answer)

    def carried_out(self, group: list[Ask]) -> list[Answer]:
        """The answers of a group; a claim or a tick that is alone goes on without the units that it fails of."""
        for _ in range(ROUNDS_MAX if len(group) == 1 and not self.lent else 0):
            try:
                return self.tried(group)
            except Exception as error:
                if is_passing(error) or not self.left_out(group[0], error):
                    raise
        return self.tried(group)

    def left_out(self, ask: Ask, error: Exception) -> bool:
        """Whether units that stood in the way of a claim or a tick are out of it, so that it may be tried again."""
        picked = sorted(self.picked)
        if isinstance(error, CannotProceed):
            failures = error.failures
        elif picked and self.trial(ask, ()) is None:
            failures = find_failures(picked, lambda units: self.trial(ask, units))
        else:
            failures = {}
        if failures:
            self.leave_out(ask.command.tenant, failures)
        return bool(failures)

    def trial(self, ask: Ask, units: Sequence[int]) -> Exception | None:
        """What goes wrong when a command may pick these units and no others. Nothing of it stays."""
        tx = self.begun([ask])
        tx.state(Picks).allowed = frozenset(units)
        try:
            self.carry_out(tx, ask.command)
            run_reactions(tx)
            self.connection.rows("SELECT 1")  # what was sent without waiting has been answered then
        except Exception as error:
            if is_passing(error):
                raise
            cause = error.__cause__ if isinstance(error, Spoilt | CannotProceed) else error
            return explained(cause if isinstance(cause, Exception) else error)
        finally:
            self.connection.rollback()
        return None

    def leave_out(self, tenant: int, failures: Mapping[int, Exception]) -> None:
        """Units that failed are withheld; where that fails too, or they fail only here, they are passed over here."""
        self.ids.reserve(len(failures))
        tx = open_unit_of_work(self.connection, self.lifecycles, self.ids, [tenant], self.hooks, cache=self.cache)
        try:
            here = unknown_here(tx, failures)
            pass_over(tx, here)
            withhold(tx, {one: error for one, error in failures.items() if one not in here})
            self.conclude(tx)
        except Exception as error:
            self.connection.rollback()
            if is_passing(error):
                raise
            pass_over(tx, failures)

    def tried(self, group: list[Ask]) -> list[Answer]:
        """The answers of a group, after as many tries as it deserves. When this raises, nothing has changed."""
        left = TRIES if len(group) == 1 and not self.lent else 2
        while True:
            left -= 1
            try:
                return self.attempt(group)
            except Unreachable:
                raise
            except Spoilt as spoilt:
                raise spoilt.__cause__ or spoilt from None
            except (StoreError, OutOfIds) as error:
                if self.lent and not isinstance(error, Taken | OutOfIds):
                    raise  # others must end their transaction first
                hopeless = len(group) == 1 and not isinstance(error, Contended | Unavailable | OutOfIds)
                if hopeless or not left:
                    raise explained(error) from error
                if isinstance(error, Unavailable):
                    self.reconnect()

    def attempt(self, group: list[Ask]) -> list[Answer]:
        """All commands of a group in one transaction; a refusal that changed nothing is that command's answer."""
        if self.observers:
            notify(self.observers, "on_group", [ask.command for ask in group])
        tx = self.begun(group)
        self.picked = tx.state(Picks).picked
        try:
            if len(group) > 1:
                look_ahead(tx, [ask.command for ask in group])
            answers = [self.carry_out(tx, ask.command) for ask in group]
        except BaseException:
            self.connection.rollback()
            raise
        self.conclude(tx)
        return answers

    def conclude(self, tx: UnitOfWork) -> None:
        """What the transaction did stands, and whoever waits for it knows."""
        try:
            run_reactions(tx)
            if self.lent:
                self.bell.tell_with(tx)
                self.connection.commit()
                return
            ring = self.bell.ring_of(tx)
        except BaseException:
            self.connection.rollback()
            raise
        self.commit(tx)
        self.bell.ring(ring)
        self.bell.ring_ends(tx)

    def begun(self, group: list[Ask]) -> UnitOfWork:
        """A transaction is open, and has ids enough. That others lock the whole database is no command's fault."""
        wanted = sum(ids(ask.command) for ask in group)
        tenants = sorted({ask.command.tenant for ask in group})
        for last in (False, True):
            try:
                self.ids.reserve(wanted)
                ahead = self.declared_reads(group)
                return open_unit_of_work(
                    self.connection, self.lifecycles, self.ids, tenants, self.hooks, cache=self.cache, ahead=ahead
                )
            except Contended as error:
                if last or self.lent:
                    raise Unreachable(
                        f"others keep the database to themselves: {error}; nothing was changed"
                    ) from error
        raise AssertionError

    def declared_reads(self, group: list[Ask]) -> list[BoundQuery[Any]]:
        """The queries that commands like the first declare ahead, where a round trip can be saved by it."""
        kind = type(group[0].command)
        if kind not in self.prefetches or not self.connection.many_writers or self.lent:
            return []
        alike = [ask.command for ask in group if type(ask.command) is kind]
        return list(dict.fromkeys(self.prefetches[kind](self.cache, alike)))

    def reconnect(self) -> None:
        self.connection.reconnect()
        self.cache.forget_lanes()

    def carry_out(self, tx: UnitOfWork, command: Command[Any]) -> Answer:
        tx.tenant = command.tenant
        before = tx.changes.count
        try:
            if self.observers:
                return timed(
                    self.observers, "on_command", command, call=lambda: perform_once(tx, command, self.verbs)
                ), None
            return perform_once(tx, command, self.verbs), None
        except StoreError:
            raise
        except InterlockError as refusal:
            if tx.changes.count != before:
                raise Spoilt from refusal
            return None, refusal

    def commit(self, tx: UnitOfWork) -> None:
        """The transaction stands. One whose COMMIT got no answer is never redone before it is known to be lost."""
        try:
            if self.observers:
                timed(self.observers, "on_commit", len(tx.changes.written), call=self.connection.commit)
            else:
                self.connection.commit()
        except LostCommit as lost:
            if not self.stands(tx, str(lost)):
                raise Unavailable(f"the database went away in COMMIT: {lost}") from lost
        except BaseException:
            self.connection.rollback()
            raise
        else:
            tx.after_commit()

    def stands(self, tx: UnitOfWork, why: str) -> bool:
        """Whether a transaction was committed, although nobody said so."""
        for _ in range(TRIES):
            try:
                self.reconnect()
                committed = wait_for_outcome(self.connection, tx.mark)  # not before it is over
                if tx.changes.proof:
                    committed = is_proven(self.connection, tx.tenants, tx.changes.proof)
                if committed:
                    confirm_on_standby(self.connection)
                return bool(committed)
            except (StoreError, LostCommit) as error:
                why = str(error)
        raise Unresolved(why)


def perform_once(tx: UnitOfWork, command: Command[A], verbs: Verbs) -> A:
    """The answer of a command; under an idempotency key that is known, the answer that it got the first time."""
    answer = kept_answer(tx, command)
    if answer is Nothing:
        answer = verbs[type(command)](tx, command)
        keep_answer(tx, command, answer)
    return answer  # type: ignore[no-any-return]


def log_bug(command: Command[Any], error: Exception) -> None:
    """An error that no verb may raise is told to the log in full; the caller gets it too."""
    if bug := bug_in(error):
        unit = getattr(command, "unit", None)
        named = type(command).__name__ + ("" if unit is None else f" unit={unit}")
        log.error("command=%s tenant=%s failed: %r", named, command.tenant, error, exc_info=bug)


def explained(error: Exception) -> Exception:
    """What the caller is told when the last try has failed."""
    if isinstance(error, Taken):
        return Corrupt(f"the record is not whole, a row is there that nothing tells of: {error}")
    if isinstance(error, Contended):
        return Contended(f"others were in the way, {TRIES} times over: {error}; nothing was changed, send it again")
    if isinstance(error, OutOfIds):
        return InterlockError(TOO_MANY)
    return error
