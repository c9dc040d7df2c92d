"""The committer: the one way in. It runs every command in a transaction, and answers each.

How a command becomes a transaction
-----------------------------------
`put` appends a command to a queue and returns a future. `step`, called by whoever has a thread (`CommitterThread` in
`core/engine.py`), takes what waits, at most a *group*, and answers it:

    answer_group            every command of the group gets its answer, or an error
      run_with_retries      the database is busy or away: the group is run again, up to a fixed number of times
        run_once            one transaction: open_tx, run_command for each, then finish_tx
          run_command       reactions, if commands before it moved its family; then the verb, or its kept answer
          finish_tx         reactions, which write everything; COMMIT; wake-ups
      run_excluding         a claim or a tick that failed runs again without the units that make it fail (`exclude.py`)

Why groups: a COMMIT is expensive, so commands that arrive during one share the next. What may go wrong:
- A verb refuses (InterlockError): that is its command's answer. If it has changed something, everything is rolled back.
- The database is busy or was away: the group is run again, and then command by command.
- A bug in a verb: command by command at once, so that only the offender gets the error. It is logged, with traceback.
- COMMIT gets no answer: the database is asked whether it happened (`store/commit_proof.py`); nothing is run twice.

A command may also come with a transaction that its caller has lent (`lent`): the same code runs it within a savepoint.
Its answer is kept under its idempotency key, and workers are woken, exactly if the caller commits.
What is ugly: reactions run for several commands at once; if one refuses, the commands are run alone to find the cause.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from interlock.core.exclude import run_excluding
from interlock.core.failures import TRIES, Spoilt, explain, log_bug, log_trouble
from interlock.core.fast_path import PlainReports, declare_ahead, look_ahead
from interlock.core.fast_submit import UnwrittenBirths, write_alike_units
from interlock.core.group_reads import Prefetches, load_for_group
from interlock.core.idempotency import run_by_key
from interlock.core.pending import PendingCommand, Result, answer_all, fail_unanswered, take_group
from interlock.core.reactions import needs_reactions, run_reactions
from interlock.core.wakeups import WakeupHub
from interlock.kernel.commands import Claim, Command, Finish, Start, Submit, Tick
from interlock.kernel.errors import Contended, InterlockError, StoreError, Unavailable
from interlock.kernel.lifecycle import Lifecycle
from interlock.store.cache import EngineCache, HeldCache
from interlock.store.commit_proof import was_committed
from interlock.store.connection import Connection, LostCommit, Taken, Unreachable
from interlock.store.hooks import NONE, Hooks
from interlock.store.ids import Ids, OutOfIds
from interlock.store.observer import Observers, notify, time_call
from interlock.store.unit_of_work import Picks, UnitOfWork, open_unit_of_work

A = TypeVar("A")
Verbs = Mapping[type[Command[Any]], Callable[[UnitOfWork, Any], Any]]
IDS_PER_ROW = 3  # a unit, its first attempt and their lane
READ_LATER = (Start, Finish)  # commands that the fast path reads for, in its own way
PLAIN = {Submit, Claim, Start, Finish, Tick}  # commands that may write nothing but moves of plain units


class Committer:
    """Runs commands in groups, each group in a transaction. It has no thread: whoever has one calls `step`."""

    def __init__(
        self, connection: Connection, lifecycles: Mapping[str, Lifecycle], verbs: Verbs, wakeups: WakeupHub,
        hooks: Hooks = NONE, *, prefetches: Prefetches | None = None, held: HeldCache | None = None,
        lent_ids: Ids | None = None,
    ) -> None:  # fmt: skip
        """`lent_ids` come with a connection whose transaction is the caller's to commit."""
        self.connection, self.lifecycles, self.verbs, self.wakeups = connection, lifecycles, verbs, wakeups
        self.hooks, self.prefetches, self.cache = hooks, prefetches or {}, EngineCache(held=held)
        self.ids, self.lent = lent_ids or Ids(connection), lent_ids is not None
        self.queue: deque[PendingCommand] = deque()
        self.chosen: set[int] = set()  # units that claims and ticks of the last run picked
        self.alone = Lock()  # nobody else uses the connection meanwhile
        self.observers: Observers = ()
        self.fast_path = True  # whether the next run may take it: not the one after a run that failed

    def put(self, command: Command[A]) -> "Future[A]":
        pending = PendingCommand(command)
        self.queue.append(pending)
        return pending.future

    def step(self) -> int:
        """Runs and answers what waits, at most a group. Returns how many commands that were."""
        group = take_group(self.queue) if self.queue else []
        wanted = [pending for pending in group if pending.future.set_running_or_notify_cancel()]
        try:
            if wanted:
                with self.alone:
                    self.answer_group(wanted)
        except BaseException:
            fail_unanswered(wanted)
            raise
        return len(group)

    def answer_group(self, group: list[PendingCommand]) -> None:
        """Gives every command its answer. If they cannot be run together, each is run alone."""
        try:
            try:
                results = self.run_with_retries(group)
            except Exception as error:
                results = run_excluding(self, group, error)
        except Unreachable as error:
            for pending in group:
                pending.future.set_exception(error)
        except Exception as error:
            if len(group) == 1:
                log_bug(group[0].command, error)
                group[0].future.set_exception(error)
                return
            for pending in group:
                self.answer_group([pending])
        else:
            answer_all(group, results)

    def run_with_retries(self, group: list[PendingCommand]) -> list[Result]:
        """Runs a group, again while the database is busy or was away. Raises: nothing changed, but for Unresolved."""
        left = TRIES if len(group) == 1 and not self.lent else 2
        while True:
            left -= 1
            try:
                return self.run_once(group)
            except Unreachable:
                raise
            except Spoilt as spoilt:
                raise spoilt.__cause__ or spoilt from None
            except (StoreError, OutOfIds) as error:
                if self.lent and not isinstance(error, Taken | OutOfIds):
                    raise  # the caller must end its transaction first
                hopeless = len(group) == 1 and not isinstance(error, Contended | Unavailable | OutOfIds)
                if hopeless or not left:
                    raise explain(error) from error
                if isinstance(error, Unavailable):
                    log_trouble("database connection lost, reconnecting", error)
                    self.reconnect()

    def run_once(self, group: list[PendingCommand]) -> list[Result]:
        """Runs all commands of a group in one transaction."""
        commands = [pending.command for pending in group]
        if self.observers:
            notify(self.observers, "on_group", commands)
        tx = self.open_tx(commands)
        self.chosen = tx.state(Picks).picked
        try:
            others = commands if not tx.fast_path else [each for each in commands if not isinstance(each, READ_LATER)]
            if len(others) > 1:
                load_for_group(tx, others)
            results = [self.run_command(tx, command) for command in commands]
        except BaseException:
            self.connection.rollback()
            raise
        self.finish_tx(tx)
        self.fast_path = True
        return results

    def open_tx(self, commands: Sequence[Command[Any]]) -> UnitOfWork:
        """Opens a transaction with ids enough. The second try reads nothing ahead, because that may lock rows."""
        ids = sum(command.count_rows() * IDS_PER_ROW for command in commands if command.makes_rows)
        tenants = sorted({command.tenant for command in commands})
        fast, self.fast_path = self.fast_path, False  # until this run has come to its end
        reports = look_ahead(commands) if fast and not self.lent else {}
        for last in (False, True):
            try:
                self.ids.reserve(ids)
                saves = self.connection.many_writers and not (self.lent or last)  # a round trip
                ahead = declare_ahead(self.prefetches, self.cache, commands, reports) if saves else []
                tx = open_unit_of_work(
                    self.connection, self.lifecycles, self.ids, tenants, self.hooks, cache=self.cache, ahead=ahead
                )
                tx.fast_path, tx.state(PlainReports).by_command = fast, reports
                tx.keeps_facts = not (self.connection.many_writers or self.lent) and set(map(type, commands)) <= PLAIN
                if not tx.keeps_facts or tx.mark != self.cache.facts_mark:
                    self.cache.facts.clear()
                return tx
            except Contended as error:
                if last or self.lent:
                    why = f"others keep the database to themselves: {error}; nothing was changed"
                    raise Unreachable(why) from error
        raise AssertionError

    def run_command(self, tx: UnitOfWork, command: Command[Any]) -> Result:
        """Runs one command. A refusal that changed nothing is its answer."""
        tx.tenant = command.tenant
        before = tx.changes.count
        if not isinstance(command, Submit) and UnwrittenBirths in tx.states:
            write_alike_units(tx)
        if tx.changes.moves and needs_reactions(tx, command):
            run_reactions(tx)
            tx.tenant, before = command.tenant, tx.changes.count
        try:
            verb = self.verbs[type(command)]
            verb = verb if command.idempotency_key is None else partial(run_by_key, verb)
            run = partial(verb, tx, command)
            return time_call(self.observers, "on_command", command, call=run) if self.observers else run(), None
        except StoreError:
            raise
        except InterlockError as refusal:
            if tx.changes.count != before:
                raise Spoilt from refusal
            return None, refusal

    def finish_tx(self, tx: UnitOfWork) -> None:
        """Runs what follows from the commands, commits, and wakes whoever waits for what they did."""
        try:
            if UnwrittenBirths in tx.states:
                write_alike_units(tx)
            run_reactions(tx)
            if self.lent:
                self.wakeups.send_with_commit(tx)
                self.connection.commit()
                return
            wakeup = self.wakeups.collect(tx)
        except BaseException:
            self.connection.rollback()
            raise
        self.commit(tx)
        self.wakeups.send(wakeup)
        self.wakeups.notify_ends(tx)

    def commit(self, tx: UnitOfWork) -> None:
        """Commits. A transaction whose COMMIT got no answer is not run again before it is known to be lost."""
        commit = self.connection.commit
        try:
            time_call(self.observers, "on_commit", len(tx.changes.written), call=commit) if self.observers else commit()
        except LostCommit as lost:
            log_trouble("COMMIT got no answer, looking up whether it was committed", lost)
            if not was_committed(tx, self.reconnect, TRIES):
                raise Unavailable(f"the database went away in COMMIT: {lost}") from lost
        except BaseException:
            self.connection.rollback()
            raise
        else:
            self.cache.facts_mark = self.connection.mark if tx.keeps_facts and not tx.changes.flushed else ""
            if self.cache.held and (tx.rows.units or self.cache.held.units):
                tx.after_commit()

    def reconnect(self) -> None:
        self.connection.reconnect()
        self.cache.forget_lanes()
