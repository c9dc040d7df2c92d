"""Replay recorded steps without clients, workers or network, to reproduce a fault of the engine."""

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.audit.laws import audit
from interlock.audit.laws.incremental import IncrementalLaws
from interlock.core.engine import Engine
from interlock.kernel.commands import Claim, Command, LeaseGrant, LeaseRef, Outcome, Submitted, Work
from interlock.kernel.errors import Corrupt, InterlockError, StoreError
from interlock.plugins import make_engine
from interlock.store.change_capture import start_capture, take_written
from interlock.testing.simulation.faulty_store import LIFECYCLES, Crash, Disk, FaultyConnection
from interlock.testing.simulation.promises import find_broken_promises
from interlock.testing.simulation.record import RecordedStep


class Names:
    """What the units, workers and leases of a record are called this time."""

    def __init__(self) -> None:
        self.units: dict[int, int] = {}
        self.leases: dict[tuple[int, int], LeaseRef] = {}

    def unit(self, unit_id: int) -> int:
        return self.units.get(unit_id, unit_id)

    def held(self, held: LeaseRef) -> LeaseRef:
        plain = msgspec.structs.replace(held, unit=self.unit(held.unit))
        return self.leases.get((held.unit, held.fence), plain)

    def work(self, work: Work) -> Work:
        parent = self.unit(work.parent) if isinstance(work.parent, int) else work.parent
        return msgspec.structs.replace(work, parent=parent, after=tuple(map(self.unit, work.after)))

    def outcome(self, outcome: Outcome) -> Outcome:
        return msgspec.structs.replace(outcome, held=self.held(outcome.held))

    def translate(self, command: Any) -> Command[Any]:
        """The same command about what it is about."""
        changes: dict[str, Any] = {}
        for name in command.__struct_fields__:
            value = getattr(command, name)
            if name in ("unit", "worker"):
                changes[name] = self.unit(value)
            elif name == "held":
                changes[name] = self.held(value) if isinstance(value, LeaseRef) else tuple(map(self.held, value))
            elif name == "outcomes":
                changes[name] = tuple(map(self.outcome, value))
            elif name == "work" and isinstance(value, tuple):
                changes[name] = tuple(map(self.work, value))
        made: Command[Any] = msgspec.structs.replace(command, **changes)
        return made

    def learn(self, command: Command[Any], then: Any, now: Any) -> None:
        """What a command was answered then, and what it was answered now, are called the same."""
        if isinstance(then, int) and isinstance(now, int):
            self.units[then] = now
        elif isinstance(then, Submitted) and isinstance(now, Submitted):
            self.units[then.unit] = now.unit
        elif isinstance(command, Claim) and isinstance(then, list) and isinstance(now, list):
            self.learn_grants(then, now)
        elif isinstance(then, list) and isinstance(now, list):
            for old, new in zip(then, now, strict=False):
                if isinstance(old, Submitted):
                    self.learn(command, old, new)

    def learn_grants(self, then: list[LeaseGrant], now: list[LeaseGrant]) -> None:
        left = list(now)
        for old in then:
            same = [new for new in left if new.unit == self.units.get(old.unit)] or left[:1]
            for new in same[:1]:
                left.remove(new)
                self.units[old.unit] = new.unit
                self.leases[old.unit, old.fence] = LeaseRef(unit=new.unit, fence=new.fence, lease=new.lease)


class ReplayedStore:
    """A store and engines that do only what the steps say."""

    def __init__(self) -> None:
        self.at, self.faults = 0, list[str]()
        self.disk, self.laws, self.names = Disk(), IncrementalLaws(LIFECYCLES), Names()
        self.engines: dict[str, Engine] = {}
        self.connection = self.open_connection()
        start_capture(self.connection)
        self.problems: list[str] = []
        self.replayed: list[RecordedStep] = []  # the steps as they were lived

    def open_connection(self) -> FaultyConnection:
        return self.disk.connection(lambda: self.at, lambda place: self.faults.pop(0) if self.faults else "")

    def live(self, step: RecordedStep) -> None:
        self.at, self.faults = step.at, list(step.faults)
        if step.fresh or step.server not in self.engines:
            self.engines[step.server] = make_engine(self.open_connection(), LIFECYCLES)
        committer = self.engines[step.server].committer
        commands = tuple(map(self.names.translate, step.commands))
        self.replayed.append(RecordedStep(step.at, step.server, commands, faults=step.faults, fresh=step.fresh))
        futures = [committer.put(command) for command in commands]
        try:
            while committer.step():
                pass
        except Crash:
            committer.queue.clear()
        self.faults = []
        self.connection.rollback()
        answers = [future.exception() or future.result() for future in futures if future.done()]
        for command, then, now in zip(step.commands, step.answers, answers, strict=False):
            self.names.learn(command, then, now)
        for command, answer in zip(commands, answers, strict=False):
            if isinstance(answer, BaseException) and is_strange(answer, bool(step.faults)):
                self.problems.append(f"{command} was answered with {answer!r}")
        self.look()

    def look(self) -> None:
        review = self.laws.check_commit(self.connection, take_written(self.connection))
        self.problems += [f"unit {unit_id.unit}: {unit_id.law}: {unit_id.text}" for unit_id in review.broken]
        self.problems += find_broken_promises(LIFECYCLES, review, self.laws.units, self.connection)

    def close(self) -> None:
        self.problems += [
            f"in the end: unit {unit_id.unit}: {unit_id.law}: {unit_id.text}"
            for unit_id in audit(self.connection, LIFECYCLES)
        ]
        self.disk.close()


def is_strange(error: BaseException, faulty: bool) -> bool:
    """Whether no client should be told so."""
    if isinstance(error, Corrupt) or not isinstance(error, InterlockError):
        return True
    return isinstance(error, StoreError) and not faulty


def replay_steps(steps: Sequence[RecordedStep]) -> ReplayedStore:
    """A stand on which these steps have happened, up to the first that broke something."""
    stand = ReplayedStore()
    try:
        for step in steps:
            stand.live(step)
            if stand.problems:
                break
    finally:
        stand.close()
    return stand


def replay(steps: Sequence[RecordedStep]) -> list[str]:
    """What is broken when these steps happen on a fresh store: nothing, if the fault was mended."""
    return replay_steps(steps).problems
