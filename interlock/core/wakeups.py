"""Waking those who wait for work: at once in this process, over the store's wire in others."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Event, Lock, Thread
from types import TracebackType
from typing import NamedTuple

from interlock.kernel.errors import StoreError
from interlock.store.connection import Queue, WakeupChannel
from interlock.store.queries.for_verbs import LaneState, find_lanes_with_work, load_lanes
from interlock.store.unit_of_work import UnitOfWork

LOOK = 0.25  # seconds after which a listener asks whether it is still wanted
LANES_MAX = 100_000  # remembered
MEND = 1.0  # seconds before a lost wire is tried again


class Subscription:
    """Somebody who waits for work in some queues. What is rung between two waits is not lost."""

    def __init__(self, queues: Iterable[Queue], leave: "Callable[[Subscription], None]") -> None:
        self.queues, self.leave, self.rung = frozenset(queues), leave, Event()
        self.called: Callable[[], object] = lambda: None

    def ring(self) -> None:
        """One of the queues has got work. From any thread."""
        self.rung.set()
        self.called()

    def call(self, called: Callable[[], object]) -> None:
        """Whoever rings calls this, in a thread of its own; so does what was rung before."""
        self.called = called
        if self.rung.is_set():
            called()

    def wait(self, timeout: float) -> bool:
        """Whether one of the queues has got work since the last wait, or did so within `timeout` seconds."""
        heard = self.rung.wait(timeout)
        if heard:
            self.rung.clear()  # what is rung from here on is for the next wait
        return heard

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.leave(self)


class Wakeup(NamedTuple):
    """Who is woken by a transaction, once it is committed."""

    lanes: dict[int, Queue]  # that it gave work to
    queues: set[Queue]  # those of the lanes, and workers that it calls
    told: Callable[[], None] | None = None  # its commit tells other processes; called when it has come


@dataclass
class WorkerCalls:
    """Workers that a transaction calls: each is to ask how it stands with what it holds."""

    queues: set[Queue] = field(default_factory=set)


class WakeupHub:
    """Knows who waits. A ring is never a promise: it may come for nothing, and a lost one costs a poll."""

    def __init__(self, wire: WakeupChannel | None = None) -> None:
        self.wire, self.changed, self.joining, self.ending = wire, Condition(), Lock(), False
        self.watches: frozenset[Subscription] = frozenset()
        self.ends: dict[int, list[Subscription]] = {}  # by unit: who waits here for its end
        self.lanes: dict[int, Queue] = {}  # of committed lanes
        self.untold: set[Queue] = set()
        self.limited: set[int] = set()  # tenants that may have so much held and no more, as far as is known here
        self.deaf = False  # the wire must be mended before it can be listened to
        self.threads: dict[str, Thread] = {}
        if wire and wire.tells:
            self.start("teller", self.tell, wire)

    def watch(self, queues: Iterable[Queue]) -> Subscription:
        """From now on these queues are watched for whoever asks."""
        watch = Subscription(queues, self.leave)
        with self.joining:
            fresh = watch.queues - self.watched()
            with self.changed:
                self.watches |= {watch}
                self.changed.notify_all()
            if self.wire:
                try:
                    self.wire.listen(fresh)
                except StoreError:
                    self.deaf = True
            if self.wire and "listener" not in self.threads:
                self.start("listener", self.listen, self.wire)
        return watch

    def leave(self, watch: Subscription) -> None:
        with self.changed:
            self.watches -= {watch}

    def watch_end(self, unit: int) -> Subscription:
        """Rung when a committer of this process has ended the unit; of others' commits it hears nothing."""
        watch = Subscription((), lambda watch: self.leave_end(unit, watch))
        with self.changed:
            self.ends.setdefault(unit, []).append(watch)
        return watch

    def leave_end(self, unit: int, watch: Subscription) -> None:
        with self.changed:
            self.ends[unit].remove(watch)
            if not self.ends[unit]:
                del self.ends[unit]

    def ring_ends(self, tx: UnitOfWork) -> None:
        """Whoever waits here for a unit that a committed transaction has ended is woken."""
        if not self.ends:
            return
        with self.changed:
            written = [tx.rows.units[one] for one in self.ends.keys() & tx.changes.written if one in tx.rows.units]
            watches = [watch for unit in written if unit.outcome is not None for watch in self.ends[unit.id]]
        for watch in watches:
            watch.ring()

    def watched(self) -> set[Queue]:
        return {queue for watch in self.watches for queue in watch.queues}

    def ring_of(self, tx: UnitOfWork) -> Wakeup:
        """Who will be woken by a transaction that is about to be committed."""
        lanes = self.lanes_of(tx)
        queues = {*lanes.values(), *tx.state(WorkerCalls).queues}
        return Wakeup(lanes, queues, self.wire.tell_within(tx.connection, queues) if self.wire and queues else None)

    def tell_with(self, tx: UnitOfWork) -> None:
        """Whoever waits, here or elsewhere, hears of a transaction when somebody else commits it, and never before."""
        queues = {*self.lanes_of(tx).values(), *tx.state(WorkerCalls).queues}
        if self.wire and queues:
            self.wire.tell_with(tx.connection, queues)

    def lanes_of(self, tx: UnitOfWork) -> dict[int, Queue]:
        """The lanes that a transaction gives work to, and their queues, if anybody wants to know."""
        limits = tx.state(LaneState).limits
        limited = self.limited | {tenant for tenant, (running, _) in limits.items() if running is not None}
        self.limited = limited - {tenant for tenant, (running, _) in limits.items() if running is None}
        if not self.watches and not (self.wire and self.wire.tells):
            return {}
        lanes = find_lanes_with_work(tx, self.lanes) if tx.changes.made_available else {}
        for tenant in tx.changes.freed_tenants & limited:  # whoever was kept from its work by a limit may claim again
            lanes |= {lane.id: (tenant, lane.queue) for lane in load_lanes(tx, tenant).lanes}
        return lanes

    def ring(self, ring: Wakeup) -> None:
        """Whoever waits here is woken, and other processes will be told. Its lanes will never be another queue's."""
        if not ring.queues:
            return
        if len(self.lanes) > LANES_MAX:
            self.lanes = {}
        self.lanes |= ring.lanes
        for watch in self.watches:
            if watch.queues & ring.queues:
                watch.ring()
        if ring.told:
            ring.told()
        elif self.wire and self.wire.tells:
            with self.changed:
                self.untold |= ring.queues
                self.changed.notify_all()

    def tell(self, wire: WakeupChannel) -> None:
        """Other processes are told, all queues that gather meanwhile at once."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.untold or self.ending)
                queues, self.untold = self.untold, set()
            if not queues:
                return
            with suppress(StoreError):  # it costs the others a poll
                wire.tell(queues)

    def listen(self, wire: WakeupChannel) -> None:
        """What other processes tell is rung here."""
        while not self.ending:
            with self.changed:
                # A wire that others speak on must be emptied also while nobody waits.
                self.changed.wait_for(lambda: self.watches or self.ending or wire.tells)
            try:
                if self.deaf:
                    wire.listen(self.watched())
                    self.deaf, heard = False, self.watched()
                else:
                    heard = wire.heard(self.watched, LOOK)
            except StoreError:
                self.deaf = True
                with self.changed:
                    self.changed.wait_for(lambda: self.ending, MEND)
                continue
            for watch in self.watches:
                if watch.queues & heard:
                    watch.ring()

    def start(self, name: str, run: Callable[[WakeupChannel], None], wire: WakeupChannel) -> None:
        self.threads[name] = Thread(target=run, args=(wire,), name=f"interlock {name}", daemon=True)
        self.threads[name].start()

    def close(self) -> None:
        """What was rung has been told, and the threads have ended."""
        with self.changed:
            self.ending = True
            self.changed.notify_all()
        for thread in self.threads.values():
            thread.join()
        if self.wire:
            self.wire.close()
