"""The model: one unit, its lease and the rules of the engine as a state machine.

`Core` is what the database would hold. Every action asks `policy` and the lifecycle, as the engine does;
where the engine must act and the table lists no move, `Refused` is raised.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from interlock.kernel import families, policy
from interlock.kernel.errors import Refused
from interlock.kernel.lifecycle import Lifecycle, Move, Owner
from interlock.kernel.lifecycle_options import Budget

WORKERS = ("A", "B")
OUTCOMES = ("complete", "fail", "error", "stop", "release", "snooze")
# Triggers that a verb, a clock or a lease fires; every other one is fired from outside, whenever it is listed.
DRIVEN = frozenset(
    [
        "claim",
        "reclaim",
        "start",
        "beat",
        "complete",
        "fail",
        "retry",
        "exhaust",
        "lost",
        "release",
        "snooze",
        "stopped",
        "time_out",
        "cancel",
        "overdue",
    ]
)


class Core(NamedTuple):
    """The unit's row, as far as its lifecycle is concerned. Time is one bit: the lease is over or not."""

    state: str
    attempt: int = 1
    failures: int = 0
    losses: int = 0
    fence: int = 0
    owner: str = ""
    lease: str = ""
    over: bool = False
    cancelling: bool = False
    followed: str = ""  # the state of the unit that follows this one


class ModelStep(NamedTuple):
    """What an action did: the core after it, and the moves that led there."""

    core: Core
    moves: tuple[Move, ...] = ()
    followed: tuple[Move, ...] = ()


class Machine:
    """The actions on one unit of `lifecycle`, and on the unit that follows it if there is one."""

    def __init__(self, lifecycle: Lifecycle, lease: Lifecycle, parent: Lifecycle | None, attempts: int) -> None:
        self.lifecycle, self.lease, self.parent = lifecycle, lease, parent
        limits = (parent or lifecycle).options.budget
        # Two budgets of one less come to as many attempts as one shared budget.
        each = attempts if limits.losses is None else attempts - 1
        self.budget: Budget = replace(limits, attempts=each, losses=None if limits.losses is None else each)
        self.attempts = attempts
        self.grants_max = 2 * attempts + 1  # more than every budget and the one spare attempt come to
        named = {move.trigger for move in lifecycle.moves.values()}
        self.phases = tuple(sorted(
            trigger for trigger in named - DRIVEN
            if any(move.trigger == trigger and move.owner is Owner.HOLDER for move in lifecycle.moves.values())
        )) if lifecycle.leased else ()  # fmt: skip
        self.outcomes = tuple(
            message
            for message in OUTCOMES
            if message in ("fail", "error") or {"stop": "stopped"}.get(message, message) in named
        )
        self.messages = ("start", "beat", *self.phases) if "start" in named else ("beat", *self.phases)

    def born(self) -> Core:
        return Core(state=self.lifecycle.birth.path[-1], followed=self.parent.birth.path[-1] if self.parent else "")

    def settled(self, core: Core) -> bool:
        """Whether all is over: the unit, and the one that follows it."""
        return self.lifecycle.settled(core.state) and (not self.parent or self.parent.settled(core.followed))

    def held(self, core: Core) -> bool:
        return bool(core.lease) and self.lease.category(core.lease) in policy.LIVE

    def speaks(self, core: Core, worker: str, fence: int) -> bool:
        """Whether a message from `worker` under `fence` would be heard now."""
        return bool(core.lease) and not policy.why_stale(
            self.lease,
            core.lease,
            fence=core.fence,
            owner=core.owner,
            until=0 if core.over else 1,
            by=worker,
            sent=fence,
            now=0,
        )

    def tally(self, core: Core) -> policy.AttemptsUsed:
        return policy.AttemptsUsed(self.budget, core.failures, core.losses, core.cancelling)

    # What workers do.

    def claim(self, core: Core, worker: str) -> ModelStep | None:
        trigger = policy.claim_trigger(self.lifecycle, core.state, held=self.held(core))
        if not trigger or (core.fence == 0 and worker != WORKERS[0]):
            return None  # whoever is first is called A
        claimed = core._replace(
            fence=policy.next_fence(core.fence),
            owner=worker,
            lease=self.lease.birth.path[-1],
            over=False,
            cancelling=False,
        )
        return self.apply(claimed, trigger)

    def deliver(self, core: Core, message: str, worker: str, fence: int) -> ModelStep:
        """A message arrives. One that is stale or not listed is refused and changes nothing."""
        if not self.speaks(core, worker, fence):
            return ModelStep(core)
        try:
            return self.receive(core, message)
        except Refused as refused:
            if refused.lifecycle != self.lifecycle.name:
                raise  # the unit moved, and the one that follows it had no answer
            return ModelStep(core)

    def receive(self, core: Core, message: str) -> ModelStep:
        state = core.state
        if message == "beat":
            trigger = policy.beat_trigger(self.lifecycle, state)
            return self.apply(core, trigger) if trigger else ModelStep(core)
        if message in ("fail", "error"):
            failed = core._replace(failures=core.failures + 1)
            trigger = policy.after_failure(self.lifecycle, state, self.tally(failed), retryable=message == "fail")
            return self.apply(failed, trigger, "finish", retryable=message == "fail")
        if message == "stop":
            return self.apply(core, policy.after_stop(self.lifecycle, state, cancel_requested=core.cancelling), "stop")
        if message in ("release", "snooze"):
            if core.attempt > 1 + core.failures + core.losses:
                return ModelStep(core)  # they spend no budget: once is enough here, or they would go on for ever
            return self.apply(core, policy.after_release(self.lifecycle, state, self.tally(core), message), "force")
        return self.apply(core, policy.choose(self.lifecycle, state, message), "finish")

    # What time and people do.

    def run_out(self, core: Core) -> ModelStep | None:
        """The end of the lease passes; nobody has looked yet."""
        return ModelStep(core._replace(over=True)) if self.held(core) and not core.over else None

    def expire(self, core: Core) -> ModelStep | None:
        """The tick, or the next claim, finds a lease that is over."""
        if not self.held(core) or not core.over:
            return None
        lost = core._replace(losses=core.losses + 1)
        trigger = policy.after_loss(self.lifecycle, core.state, self.tally(lost))
        return self.apply(lost, trigger, "lose") if trigger else ModelStep(self.end_lease(lost, "lose"))

    def deadline(self, core: Core) -> ModelStep | None:
        """The clock of the state runs out."""
        trigger = self.lifecycle.states[core.state].deadline
        if not self.lifecycle.allows(core.state, trigger) or trigger in ("lost", "reclaim", "overdue"):
            return None
        if trigger != "time_out":
            return self.apply(core, trigger)
        late = core._replace(failures=core.failures + 1)
        trigger = policy.after_timeout(self.lifecycle, core.state, self.tally(late))
        return self.apply(late, trigger, "force", retryable=True)

    def cancel(self, core: Core, *, hard: bool) -> ModelStep | None:
        try:
            answer = policy.cancel_action(self.lifecycle, core.state, hard=hard, held=self.held(core))
        except Refused:
            return None
        cancelling = core._replace(cancelling=True)
        return self.apply(cancelling, answer, "force") if answer == "cancel" else ModelStep(cancelling)

    def overdue(self, core: Core) -> ModelStep | None:
        """The deadline of a cancel passes while the holder is silent."""
        if (
            not core.cancelling
            or self.lifecycle.settled(core.state)
            or not policy.keeps_lease(self.lifecycle, core.state)
        ):
            return None
        return self.apply(core, policy.after_cancel_deadline(self.lifecycle, core.state), "force")

    def fire(self, core: Core, trigger: str) -> ModelStep | None:
        """Somebody outside fires a listed trigger: a verdict, a plan, a need that is met."""
        opens = self.lifecycle.move(core.state, trigger).opens_attempt
        return None if opens and core.attempt >= self.attempts else self.apply(core, trigger, "force")

    def free(self, state: str) -> Iterator[str]:
        """The triggers of a state that are fired from outside."""
        for trigger in self.lifecycle.triggers(state):
            if trigger not in self.phases and (trigger not in DRIVEN or not self.lifecycle.leased):
                yield trigger

    # What every action comes to.

    def apply(self, core: Core, trigger: str, cause: str = "", *, retryable: bool = False) -> ModelStep:
        """Makes the move, with what it means for the lease and for the unit that follows."""
        move = self.lifecycle.move(core.state, trigger)
        moved = core._replace(state=move.path[-1], attempt=core.attempt + move.opens_attempt)
        if self.lifecycle.settled(moved.state):
            moved = moved._replace(cancelling=False)
        if self.held(core) and not policy.keeps_lease(self.lifecycle, moved.state):
            moved = self.end_lease(moved, cause or "force")
        elif self.held(moved) and policy.activates(self.lifecycle, moved.state):
            moved = self.activate(moved)
        step = (
            self.follow(moved, move, self.tally(core), retryable=retryable)
            if self.parent
            else ModelStep(moved, (move,))
        )
        if core.cancelling and policy.is_cancel_resumed(self.lifecycle, core.state, step.core.state):
            further = self.apply(step.core, "cancel", "force")
            return ModelStep(further.core, step.moves + further.moves, step.followed + further.followed)
        return step

    def activate(self, core: Core) -> Core:
        if not self.lease.allows(core.lease, "activate"):
            return core
        return core._replace(lease=self.lease.move(core.lease, "activate").path[-1])

    def end_lease(self, core: Core, cause: str) -> Core:
        ended = self.lease.move(core.lease, policy.lease_end_trigger(self.lease, core.lease, cause))
        return core._replace(lease=ended.path[-1], over=False, cancelling=False)

    def follow(self, core: Core, move: Move, tally: policy.AttemptsUsed, *, retryable: bool) -> ModelStep:
        """The following unit makes the same move, and opens the next attempt where its table says so."""
        assert self.parent
        moves: list[Move] = []
        state = core.followed
        if trigger := families.follow_trigger(self.parent, state, move.trigger, core.state):
            moves.append(self.parent.move(state, trigger))
            state = moves[-1].path[-1]
        if again := families.after_attempt(self.parent, state, tally, retryable=retryable):
            moves.append(self.parent.move(state, again))
            state = moves[-1].path[-1]
        opened = sum(made.opens_attempt for made in moves)
        after = core._replace(followed=state, attempt=core.attempt + opened)
        if opened:
            after = after._replace(state=self.lifecycle.birth.path[-1])
        return ModelStep(after, (move,), tuple(moves))
