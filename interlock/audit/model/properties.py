"""The properties that `interlock lifecycle check` proves."""

from collections.abc import Callable

from interlock.audit.model.machine import WORKERS, Core, Machine, ModelStep
from interlock.kernel.graph import ranks
from interlock.kernel.lifecycle import Category, Lifecycle, Move, Owner
from interlock.kernel.policy import LIVE

PROMISES = {
    "one-owner": "at most one worker may report on a job, none after its lease has expired, and no two leases are live",
    "stale-stays": "a worker that may not report any more never may again, and changes nothing by trying",
    "listed-moves": "no transition that the lifecycle does not list",
    "settled-stays": "a settled result changes only by a transition that opens an attempt",
    "forward": "attempts and fencing tokens only grow, and within an attempt nothing happens twice",
    "budget": "failures and losses stay within their budget, and what is left of it is used",
    "cancel-holds": "no attempt opens after a cancel was requested, and nobody answers a cancel that was not",
    "answered": "whatever the engine must do, the lifecycle lists a transition for it",
    "can-end": "from every state an end can be reached without a cancel",
    "lease-law": "a lease moves as its own lifecycle lists, is active exactly where the job may be completed, "
    "and ends by what happened: completed by an outcome, canceled by an answer, expired by time, else revoked",
    "follows": "a job that follows another one is in the state of the same name, if it has one",
    "no-dead-moves": "every listed transition can be taken (checked from 3 attempts on)",
}
Broke = Callable[[str, str], None]  # promise, what happened


class Judge:
    """Asks the promises about one machine; `broke` is told of each that does not hold."""

    def __init__(self, machine: Machine, broke: Broke) -> None:
        self.machine, self.lifecycle, self.broke = machine, machine.lifecycle, broke
        self.taken: set[tuple[str, str | None, str]] = set()
        inside = [
            (hop.source, hop.target)
            for hop in self.lifecycle.hops
            if hop.source is not None and not hop.opens_attempt and not self.lifecycle.settled(hop.source)
        ]
        self.rank = ranks(self.lifecycle.states, inside) if self.lifecycle.options.monotonic else {}
        lifecycles = filter(None, (machine.lifecycle, machine.parent))
        terms = self.lifecycle.options.lease
        self.acknowledged = terms is not None and terms.ack_us is not None
        self.lease_hops: set[tuple[str, str]] = set()
        self.listed = {
            (lifecycle.name, h.source, h.trigger, h.target) for lifecycle in lifecycles for h in lifecycle.hops
        }

    def step(self, core: Core, label: str, step: ModelStep, message: str) -> None:
        """Judges one step from `core`; `said` is the message that caused it, or what else did."""
        after = step.core
        for move in step.moves:
            self.move(self.lifecycle, label, move)
        for move in step.followed:
            assert self.machine.parent
            self.move(self.machine.parent, label, move)
        if after.attempt < core.attempt or after.fence < core.fence:
            numbers = f"attempt {core.attempt} -> {after.attempt}, fence {core.fence} -> {after.fence}"
            self.broke("forward", f"{label}: {numbers}")
        if after.attempt > core.attempt and core.cancelling:
            self.broke("cancel-holds", f"{label} opens attempt {after.attempt}, although a cancel was asked for")
        if not core.cancelling and any(move.trigger == "stopped" and move.owner is Owner.HOLDER for move in step.moves):
            self.broke("cancel-holds", f"{label}: the holder answers a cancel that nobody asked for")
        if self.lifecycle.leased:
            self.budget(label, after)
            self.retry(core, label, after, message)
            self.staleness(core, label, after)
            self.lease(core, label, after, message)
        self.cancel(core, label, step, message)
        if self.machine.parent and after.state != self.lifecycle.initial:
            self.follower(label, after)

    def cancel(self, core: Core, label: str, step: ModelStep, message: str) -> None:
        """A wish that was deferred comes true where it can; a hard one, and one whose holder is gone, at once."""
        after, state = step.core, self.lifecycle.states[core.state]
        if core.cancelling and state.cancel == "deferred" and self.lifecycle.allows(after.state, "cancel"):
            self.broke(
                "cancel-holds", f"{label}: a cancel was asked for and {after.state} lists one, but nothing came of it"
            )
        if message == "cancel hard" and not step.moves and state.cancel != "deferred":
            self.broke("cancel-holds", f"{label} in {core.state}, and nothing moves")
        if (
            message == "fail"
            and core.cancelling
            and self.lifecycle.allows(core.state, "stopped")
            and not self.cancelled(after)
        ):
            self.broke("cancel-holds", f"{label} while a cancel is asked for, and the unit becomes {after.state}")
        if message == "expire" and core.cancelling and self.lifecycle.category(after.state) is not Category.CANCELLED:
            self.broke("cancel-holds", f"{label} while a cancel is asked for, and the unit becomes {after.state}")

    def cancelled(self, core: Core) -> bool:
        return self.lifecycle.category(core.state) is Category.CANCELLED

    def lease(self, core: Core, label: str, after: Core, message: str) -> None:
        """Judges what became of the lease, by the categories of its own lifecycle."""
        lease = self.machine.lease
        was, now = lease.states.get(core.lease), lease.states[after.lease] if after.lease else None
        active = was is not None and was.category is Category.ACTIVE
        if message in ("complete", "stop") and not active:
            self.broke("lease-law", f"{label} and is heard under a lease that is {core.lease}, not active")
        if message == "beat" and after.state != core.state and not active and self.acknowledged:
            self.broke("lease-law", f"{label} and moves the unit before its lease was acknowledged")
        if (
            now
            and now.category in LIVE
            and self.lifecycle.allows(after.state, "complete") != (now.category is Category.ACTIVE)
        ):
            self.broke("lease-law", f"{label}: in {after.state} the lease is {after.lease}")
        if after.fence > core.fence or core.lease == after.lease:
            return
        self.lease_hops.add((core.lease, after.lease))
        if (core.lease, after.lease) not in {(hop.source, hop.target) for hop in lease.hops}:
            self.broke("lease-law", f"{label}: the lease goes from {core.lease} to {after.lease}")
        expected = {
            "complete": Category.SUCCESS,
            "fail": Category.SUCCESS,
            "error": Category.SUCCESS,
            "expire": Category.FAILURE,
        }
        wanted = expected.get(message, Category.CANCELLED) if active or message == "expire" else Category.CANCELLED
        if now and now.category not in LIVE and now.category is not wanted:
            self.broke("lease-law", f"{label}: the lease ends {after.lease}, which is {now.category} and not {wanted}")

    def follower(self, label: str, after: Core) -> None:
        assert self.machine.parent
        if after.state in self.machine.parent.states and after.followed != after.state:
            self.broke("follows", f"{label}: it is {after.state}, and the unit that follows it {after.followed}")

    def grant(self, core: Core, label: str) -> None:
        """Judges the grant of a lease."""
        if self.machine.held(core):
            self.broke("one-owner", f"{label} in {core.state} while {core.owner} holds a live lease")

    def move(self, lifecycle: Lifecycle, label: str, move: Move) -> None:
        self.taken.add((lifecycle.name, move.source, move.trigger))
        for hop in move.hops:
            if (lifecycle.name, hop.source, hop.trigger, hop.target) not in self.listed:
                text = f"{label}: {hop.source} -> {hop.target} by '{hop.trigger}' is not listed"
                self.broke("listed-moves", text)
        source, target = move.source, move.path[-1]
        if source is None or not {source, target} <= lifecycle.states.keys():
            return
        closes = lifecycle.category(target) is Category.CLOSED
        if lifecycle.settled(source) and not move.opens_attempt and not closes:
            self.broke("settled-stays", f"{label}: the settled {source} becomes {target}")
        elif lifecycle is self.lifecycle and self.goes_back(move, source):
            self.broke("forward", f"{label}: {source} -> {target} goes back within an attempt")

    def goes_back(self, move: Move, source: str) -> bool:
        inside = bool(self.rank) and not move.opens_attempt and not self.lifecycle.settled(source)
        return inside and self.rank[move.path[-1]] <= self.rank[source]

    def budget(self, label: str, after: Core) -> None:
        budget = self.machine.budget
        if budget.losses is None:
            over = after.failures + after.losses > budget.attempts
        else:
            over = after.failures > budget.attempts or after.losses > budget.losses
        if max(after.attempt, after.fence) > self.machine.grants_max:
            self.broke("budget", f"{label}: attempt {after.attempt} with fence {after.fence} goes beyond every budget")
        if over:
            used = f"{after.failures} failures and {after.losses} losses of {budget.attempts} attempts"
            self.broke("budget", f"{label}: {used}")

    def retry(self, core: Core, label: str, after: Core, message: str) -> None:
        """A failure that may be tried again, and running too long, end nothing while attempts are left."""
        left = core.failures + core.losses + 1 < self.machine.budget.attempts and not core.cancelling
        if (
            message in ("fail", "time_out")
            and left
            and self.lifecycle.allows(core.state, "retry")
            and self.lifecycle.settled(after.state)
        ):
            self.broke("budget", f"{label}: the unit becomes {after.state}, although attempts are left")

    def used_up(self, most: int) -> None:
        """`most` is how many tries an open unit has ever used: all but the last of what its budgets allow."""
        budget = self.machine.budget
        allowed = budget.attempts - 1 + (budget.losses - 1 if budget.losses is not None else 0)
        if self.lifecycle.leased and most < allowed:
            self.broke("budget", f"no unit gets to use more than {most} of {allowed} tries before its last")

    def staleness(self, core: Core, label: str, after: Core) -> None:
        for worker, fence in tokens(core):
            if fence > core.fence:
                continue  # not granted yet; it may be by this very step
            if self.machine.speaks(after, worker, fence) and not self.machine.speaks(core, worker, fence):
                text = f"{label}: {worker} with fence {fence} was stale and may speak again in {after.state}"
                self.broke("stale-stays", text)

    def core(self, core: Core) -> None:
        """Judges what a unit's row says: whoever ever got a fence tries to speak."""
        if not self.lifecycle.leased:
            return
        holders = [(w, f) for w, f in tokens(core) if self.machine.speaks(core, w, f)]
        if len(holders) > 1:
            names = ", ".join(f"{worker} with fence {fence}" for worker, fence in holders)
            self.broke("one-owner", f"in {core.state} these may all speak: {names}")
        if holders and self.lifecycle.settled(core.state):
            self.broke("one-owner", f"{core.state} is settled, and {holders[0][0]} may still speak")
        if holders and core.over:
            self.broke("one-owner", f"in {core.state} the lease is over, and {holders[0][0]} may still speak")
        for worker, fence in tokens(core):
            if (worker, fence) not in holders:
                self.late(core, worker, fence)

    def late(self, core: Core, worker: str, fence: int) -> None:
        """Every kind of message that is late changes nothing."""
        for message in (*self.machine.messages, *self.machine.outcomes):
            if self.machine.deliver(core, message, worker, fence).core != core:
                text = f"a late {message} from {worker} (fence {fence}) changes {core.state}"
                self.broke("stale-stays", text)


def tokens(core: Core) -> list[tuple[str, int]]:
    """Everything that a worker could claim to hold: each worker with each fence so far, and with one made up."""
    return [(worker, fence) for fence in range(1, core.fence + 2) for worker in WORKERS]
