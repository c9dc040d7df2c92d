"""The one door: every command comes in here, shares a transaction with others, and leaves with its answer."""

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Condition, Thread
from typing import Any, TypeVar

from interlock.engine import archive, leases, operate, records, submit, tick, units, workers
from interlock.engine.answers import Nothing, keep_answer, kept_answer
from interlock.engine.family import carry_on
from interlock.kernel import commands
from interlock.kernel.commands import Command
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Lifecycle
from interlock.store.session import Session
from interlock.store.tx import Ids, Tx

A = TypeVar("A")
GROUP_MAX = 256
VERBS: dict[type[Command[Any]], Callable[[Tx, Any], Any]] = {
    commands.Submit: submit.submit,
    commands.Cancel: units.cancel,
    commands.Decide: units.decide,
    commands.Enter: leases.enter,
    commands.Record: records.record,
    commands.Bury: operate.bury,
    commands.Revoke: operate.revoke,
    commands.Replay: operate.replay,
    commands.Vote: operate.vote,
    commands.Force: operate.force,
    commands.Register: workers.register,
    commands.Drain: workers.drain,
    commands.Claim: leases.claim,
    commands.Start: leases.start,
    commands.Heartbeat: leases.heartbeat,
    commands.Finish: leases.finish,
    commands.Release: leases.release,
    commands.Archive: archive.archive,
    commands.Tick: tick.tick,
}


class Ask:
    """A command on its way, and where its answer is waited for."""

    __slots__ = ("command", "future")

    def __init__(self, command: Command[Any]) -> None:
        self.command = command
        self.future: Future[Any] = Future()


class Spoilt(Exception):
    """A command was refused after it had changed something: the others must be redone without it."""


class Committer:
    """Carries commands out in groups, a transaction each. It has no thread: whoever has one calls `step`."""

    def __init__(self, session: Session, lives: Mapping[str, Lifecycle]) -> None:
        self.session, self.lives, self.ids = session, lives, Ids(session)
        self.queue: deque[Ask] = deque()

    def put(self, command: Command[A]) -> "Future[A]":
        ask = Ask(command)
        self.queue.append(ask)
        return ask.future

    def step(self) -> int:
        """What waits, at most a group, is carried out and answered; answers how many commands that were."""
        group = [self.queue.popleft() for _ in range(min(len(self.queue), GROUP_MAX))]
        if not group:
            return 0
        try:
            answers = self.attempt(group)
        except Exception as error:
            self.redo(group, error)
        else:
            for ask, (answer, refusal) in zip(group, answers, strict=True):
                ask.future.set_exception(refusal) if refusal else ask.future.set_result(answer)
        return len(group)

    def attempt(self, group: list[Ask]) -> list[tuple[Any, InterlockError | None]]:
        """All commands of a group in one transaction; a refusal that changed nothing is that command's answer."""
        self.ids.reserve()
        self.session.begin()
        try:
            tx = Tx(self.session, self.lives, self.ids, sorted({ask.command.tenant for ask in group}))
            answers = [self.carry_out(tx, ask.command) for ask in group]
            carry_on(tx)
            self.session.commit()
        except BaseException:
            self.session.rollback()
            raise
        return answers

    @staticmethod
    def carry_out(tx: Tx, command: Command[Any]) -> tuple[Any, InterlockError | None]:
        tx.tenant = command.tenant
        before = tx.changes
        try:
            answer = kept_answer(tx, command)
            if answer is Nothing:
                answer = VERBS[type(command)](tx, command)
                keep_answer(tx, command, answer)
            return answer, None
        except InterlockError as refusal:
            if tx.changes != before:
                raise Spoilt from refusal
            return None, refusal

    def redo(self, group: list[Ask], error: Exception) -> None:
        """Each command alone, so that only the one that cannot be carried out gets the error."""
        if len(group) == 1:
            cause = error.__cause__ if isinstance(error, Spoilt) else error
            group[0].future.set_exception(cause or error)
            return
        for ask in group:
            try:
                ((answer, refusal),) = self.attempt([ask])
            except Exception as alone:
                self.redo([ask], alone)
            else:
                ask.future.set_exception(refusal) if refusal else ask.future.set_result(answer)


class Engine:
    """What clients speak to. Without a runner, a command is carried out by whoever sends it."""

    def __init__(self, session: Session, lives: Mapping[str, Lifecycle]) -> None:
        self.committer = Committer(session, lives)
        self.runner: Runner | None = None

    def send(self, command: Command[A]) -> A:
        """The command is carried out whole and its answer given, or nothing has changed and the reason is raised."""
        if self.runner:
            return self.runner.put(command).result()
        future = self.committer.put(command)
        self.committer.step()
        return future.result()


class Runner:
    """A thread that calls `step` whenever there is something to do; commands that come meanwhile share the next one."""

    def __init__(self, engine: Engine) -> None:
        self.committer, self.wanted, self.ending = engine.committer, Condition(), False
        self.thread = Thread(target=self.run, name="interlock committer", daemon=True)
        engine.runner = self
        self.thread.start()

    def put(self, command: Command[A]) -> "Future[A]":
        with self.wanted:
            future = self.committer.put(command)
            self.wanted.notify()
        return future

    def run(self) -> None:
        while True:
            with self.wanted:
                self.wanted.wait_for(lambda: self.committer.queue or self.ending)
                if not self.committer.queue:
                    return
            self.committer.step()

    def stop(self) -> None:
        """What was sent is answered, and the thread has ended."""
        with self.wanted:
            self.ending = True
            self.wanted.notify()
        self.thread.join()
