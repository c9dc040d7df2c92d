"""The one door: every command comes in here, and leaves with its answer or with a reason."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from interlock.engine import leases, tick, units, workers
from interlock.kernel import commands
from interlock.kernel.commands import Command
from interlock.kernel.lifecycle import Lifecycle
from interlock.store.session import Session
from interlock.store.tx import Ids, Tx

A = TypeVar("A")
VERBS: dict[type[Command[Any]], Callable[[Tx, Any], Any]] = {
    commands.Submit: units.submit,
    commands.Cancel: units.cancel,
    commands.Register: workers.register,
    commands.Drain: workers.drain,
    commands.Claim: leases.claim,
    commands.Start: leases.start,
    commands.Heartbeat: leases.heartbeat,
    commands.Finish: leases.finish,
    commands.Release: leases.release,
    commands.Tick: tick.tick,
}


class Engine:
    """Carries commands out, each in a transaction of its own."""

    def __init__(self, session: Session, lives: Mapping[str, Lifecycle]) -> None:
        self.session, self.lives = session, lives
        self.ids = Ids(session)

    def send(self, command: Command[A]) -> A:
        """The command is carried out whole and its answer given, or nothing has changed and the reason is raised."""
        self.ids.reserve()
        self.session.begin()
        try:
            tx = Tx(self.session, self.lives, self.ids, command.tenant)
            answer: A = VERBS[type(command)](tx, command)
            tx.flush()
            self.session.commit()
        except BaseException:
            self.session.rollback()
            raise
        return answer
