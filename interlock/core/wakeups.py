"""Wake-ups: after a commit, wake whoever waits for work, for the end of a unit, or for a call to a worker.

In this process a subscription is notified at once; other processes are told over the store's channel (NOTIFY on
PostgreSQL, a look at the file on SQLite). A wake-up is never a promise: it may come for nothing, and a lost one costs
whoever waits a poll.
"""

import logging
from collections.abc import Callable, Iterable
from threading import Condition, Event, Lock, Thread
from types import TracebackType
from typing import NamedTuple

from interlock.core.failures import log_trouble
from interlock.core.tx_state import WorkerCalls
from interlock.kernel.errors import StoreError
from interlock.store.connection import Queue, WakeupChannel
from interlock.store.queries.for_verbs import LaneState, find_lanes_with_work, load_lanes
from interlock.store.unit_of_work import UnitOfWork

LOOK = 0.25  # seconds after which the listener asks whether it is still wanted
LANES_MAX = 100_000  # remembered
BETWEEN = 0.005  # seconds between two messages to other processes: what is to be told meanwhile is told at once
RECONNECT = 1.0  # seconds before a broken channel is tried again
log = logging.getLogger("interlock.core")


class Subscription:
    """Somebody who waits for work in some queues. What comes between two waits is not lost."""

    def __init__(self, queues: Iterable[Queue], unsubscribe: "Callable[[Subscription], None]") -> None:
        self.queues, self.unsubscribe, self.event = frozenset(queues), unsubscribe, Event()
        self.callback: Callable[[], object] = lambda: None

    def notify(self) -> None:
        """One of the queues has got work. From any thread."""
        self.event.set()
        self.callback()

    def on_notify(self, callback: Callable[[], object]) -> None:
        """Calls this, in the notifier's thread, at every wake-up; at once if there was one before."""
        self.callback = callback
        if self.event.is_set():
            callback()

    def wait(self, timeout: float) -> bool:
        """Whether one of the queues has got work since the last wait, or did so within `timeout` seconds."""
        notified = self.event.wait(timeout)
        if notified:
            self.event.clear()  # what comes from here on is for the next wait
        return notified

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unsubscribe(self)


class Wakeup(NamedTuple):
    """Who is woken by a transaction, once it is committed."""

    lanes: dict[int, Queue]  # that it gave work to
    queues: set[Queue]  # those of the lanes, and the workers that are to look after what they hold
    sent: Callable[[], None] | None = None  # its commit tells other processes; called when it has come


class WakeupHub:
    """Knows who waits, and wakes them."""

    def __init__(self, channel: WakeupChannel | None = None) -> None:
        self.channel, self.changed, self.joining, self.ending = channel, Condition(), Lock(), False
        self.subscriptions: frozenset[Subscription] = frozenset()
        self.ends: dict[int, list[Subscription]] = {}  # by unit: who waits here for its end
        self.lanes: dict[int, Queue] = {}  # of committed lanes
        self.unsent: set[Queue] = set()
        self.limited: set[int] = set()  # tenants that may have so much held and no more, as far as is known here
        self.broken = False  # the channel must be opened again before it can be listened to
        self.threads: dict[str, Thread] = {}
        if channel and channel.tells:
            self.start("wake-up sender", self.run_sender, channel)

    # Subscribing.

    def watch(self, queues: Iterable[Queue]) -> Subscription:
        """From now on these queues are watched for whoever asks."""
        subscription = Subscription(queues, self.unsubscribe)
        with self.joining:
            fresh = subscription.queues - self.list_watched_queues()
            with self.changed:
                self.subscriptions |= {subscription}
                self.changed.notify_all()
            if self.channel:
                try:
                    self.channel.listen(fresh)
                except StoreError as error:
                    log_trouble("wake-up channel failed, falling back to polling", error)
                    self.broken = True
            if self.channel and "wake-up listener" not in self.threads:
                self.start("wake-up listener", self.run_listener, self.channel)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        with self.changed:
            self.subscriptions -= {subscription}

    def watch_end(self, unit: int) -> Subscription:
        """Notified when a committer of this process has ended the unit; other processes' commits do not reach it."""
        subscription = Subscription((), lambda leaving: self.unsubscribe_end(unit, leaving))
        with self.changed:
            self.ends.setdefault(unit, []).append(subscription)
        return subscription

    def unsubscribe_end(self, unit: int, subscription: Subscription) -> None:
        with self.changed:
            self.ends[unit].remove(subscription)
            if not self.ends[unit]:
                del self.ends[unit]

    def list_watched_queues(self) -> set[Queue]:
        return {queue for subscription in self.subscriptions for queue in subscription.queues}

    # Waking.

    def collect(self, tx: UnitOfWork) -> Wakeup:
        """Returns who will be woken by a transaction that is about to be committed."""
        lanes = self.find_lanes(tx)
        queues = {*lanes.values(), *(tx.state(WorkerCalls).queues if WorkerCalls in tx.states else ())}
        tells = self.channel if queues and self.channel and self.channel.tells else None
        sent = tells.tell_within(tx.connection, queues) if tells else None
        return Wakeup(lanes, queues, sent)

    def send_with_commit(self, tx: UnitOfWork) -> None:
        """Whoever waits, here or elsewhere, is woken when the caller commits its transaction, and never before."""
        queues = {*self.find_lanes(tx).values(), *tx.state(WorkerCalls).queues}
        if self.channel and queues:
            self.channel.tell_with(tx.connection, queues)

    def find_lanes(self, tx: UnitOfWork) -> dict[int, Queue]:
        """The lanes that a transaction gives work to, and their queues, if anybody wants to know."""
        limits = tx.state(LaneState).limits
        limited = self.limited | {tenant for tenant, (running, _) in limits.items() if running is not None}
        self.limited = limited - {tenant for tenant, (running, _) in limits.items() if running is None}
        if not self.subscriptions and not (self.channel and self.channel.tells):
            return {}
        has_work = tx.changes.made_available or tx.changes.lanes_with_work
        lanes = find_lanes_with_work(tx, self.lanes) if has_work else {}
        for tenant in tx.changes.freed_tenants & limited:  # whoever was kept from its work by a limit may claim again
            lanes |= {lane.id: (tenant, lane.queue) for lane in load_lanes(tx, tenant).lanes}
        return lanes

    def send(self, wakeup: Wakeup) -> None:
        """Wakes whoever waits here, and other processes. A lane never becomes another queue's, so it is remembered."""
        if not wakeup.queues:
            return
        if len(self.lanes) > LANES_MAX:
            self.lanes = {}
        self.lanes |= wakeup.lanes
        self.notify(wakeup.queues)
        if wakeup.sent:
            wakeup.sent()
        elif self.channel and self.channel.tells:
            with self.changed:
                self.unsent |= wakeup.queues
                self.changed.notify_all()

    def notify(self, queues: set[Queue]) -> None:
        """Wakes whoever waits here for one of these queues."""
        for subscription in self.subscriptions:
            if subscription.queues & queues:
                subscription.notify()

    def notify_ends(self, tx: UnitOfWork) -> None:
        """Wakes whoever waits here for a unit that a committed transaction has ended."""
        if not self.ends:
            return
        with self.changed:
            units, ended = tx.rows.units, self.ends.keys() & tx.changes.ended
            written = [units[unit] for unit in self.ends.keys() & tx.changes.written if unit in units]
            ended |= {unit.id for unit in written if unit.outcome is not None}
            woken = [watch for unit in ended for watch in self.ends[unit]]
        for subscription in woken:
            subscription.notify()

    # The channel to other processes.

    def run_sender(self, channel: WakeupChannel) -> None:
        """Tells other processes, all queues that gather meanwhile at once."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.unsent or self.ending)
                queues, self.unsent = self.unsent, set()
            if not queues:
                return
            try:
                channel.tell(queues)
            except StoreError as error:  # it costs the others a poll
                facts = {"queues": len(queues), "error": str(error)}
                text = "wake-up not sent to other processes: queues=%d error=%s"
                log.warning(text, len(queues), error, extra={"facts": facts})
            with self.changed:
                self.changed.wait_for(lambda: self.ending, BETWEEN)

    def run_listener(self, channel: WakeupChannel) -> None:
        """Wakes whoever waits here for what other processes tell."""
        while not self.ending:
            with self.changed:
                # A channel that others speak on must be emptied also while nobody waits.
                self.changed.wait_for(lambda: self.subscriptions or self.ending or channel.tells)
            try:
                if self.broken:
                    channel.listen(self.list_watched_queues())
                    self.broken, queues = False, self.list_watched_queues()
                    log.info("wake-up channel open again")
                else:
                    queues = channel.receive(self.list_watched_queues, LOOK)
            except StoreError as error:
                if not self.broken:
                    log_trouble("wake-up channel failed, falling back to polling", error)
                self.broken = True
                with self.changed:
                    self.changed.wait_for(lambda: self.ending, RECONNECT)
                continue
            self.notify(queues)

    def start(self, name: str, run: Callable[[WakeupChannel], None], channel: WakeupChannel) -> None:
        self.threads[name] = Thread(target=run, args=(channel,), name=f"interlock {name}", daemon=True)
        self.threads[name].start()

    def close(self) -> None:
        """Returns when what was to be sent is sent and the threads have ended."""
        with self.changed:
            self.ending = True
            self.changed.notify_all()
        for thread in self.threads.values():
            thread.join()
        if self.channel:
            self.channel.close()
