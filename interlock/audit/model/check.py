"""Explore everything that can happen to one unit between two workers, and check every step."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from interlock.audit.model.machine import WORKERS, Core, Machine, ModelStep
from interlock.audit.model.properties import Judge
from interlock.kernel.errors import Refused, Unknown
from interlock.kernel.graph import reaching
from interlock.kernel.lifecycle import Lifecycle

# Somebody outside ends the unit early: never needed for an end, so no proof that one can be reached.
CUTS_SHORT = ("cancel", "bury", "parent_cancelled", "parent_failed")

ATTEMPTS_FOR_ALL = 3  # with fewer, what happens only to a second attempt may not be seen

# A world is (core, what A believes, what B believes, messages in flight), all as numbers, because there are
# very many. What a worker believes is 3 × fence + how far it has told: 0 nothing, 1 it began, 2 how it ended.
# The messages in flight are a set of bits.
World = tuple[int, int, int, int]


@dataclass(frozen=True)
class Bounds:
    """How far to look: attempts of the unit, and messages under way at once."""

    attempts: int = 3
    messages: int = 3


@dataclass
class Finding:
    """A promise that does not hold, and the shortest way to where it breaks."""

    promise: str
    text: str
    trace: list[str]


@dataclass
class CheckReport:
    """What was explored of a lifecycle, and of the one that follows it."""

    lifecycle: str
    followed_by: str
    bounds: Bounds
    states: int = 0  # of the whole world: the unit, what workers believe, what is under way
    rows: int = 0  # of the unit alone
    steps: int = 0
    moves_listed: int = 0
    moves_taken: int = 0
    moves_not_taken: list[str] = field(default_factory=list)
    lease_moves_taken: list[tuple[str, str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass
class ModelNode:
    """A core, and what can happen to it; worked out once, when a world first has it."""

    core: Core
    actions: list[tuple[str, int]] = field(default_factory=list)
    claims: list[int | None] = field(default_factory=list)
    accepted: int | None = None  # the messages that would be heard
    deliveries: dict[int, int] = field(default_factory=dict)


def check(lifecycle: Lifecycle, known: dict[str, Lifecycle], bounds: Bounds) -> CheckReport:
    """Explore `lifecycle` within `bounds`; `known` holds the lease's lifecycle and whatever follows this one.

    A lifecycle that follows another is explored together with it.
    """
    parent = next((other for other in known.values() if other.options.follows == lifecycle.name), None)
    if lifecycle.options.follows:
        if lifecycle.options.follows not in known:
            raise Unknown(
                f"{lifecycle.name} follows '{lifecycle.options.follows}', which is not known; name its file too"
            )
        parent, lifecycle = lifecycle, known[lifecycle.options.follows]
    return Explorer(Machine(lifecycle, known["lease"], parent, bounds.attempts), bounds).explore()


class Explorer:
    """A breadth-first search over worlds."""

    def __init__(self, machine: Machine, bounds: Bounds) -> None:
        self.machine, self.bounds = machine, bounds
        self.report = CheckReport(machine.lifecycle.name, machine.parent.name if machine.parent else "", bounds)
        self.judge = Judge(machine, self.broke)
        self.kinds = (*machine.messages, *machine.outcomes) if machine.lifecycle.leased else ()
        self.nodes: list[ModelNode] = []
        self.numbers: dict[Core, int] = {}
        self.came: dict[World, tuple[World, str] | None] = {}
        self.here: World | None = None
        self.helping: set[tuple[int, int]] = set()
        self.known: set[tuple[str, str]] = set()
        self.sound = True

    def explore(self) -> CheckReport:
        start: World = (self.number(self.machine.born()), 0, 0, 0)
        self.came[start] = None
        frontier = deque([start])
        while frontier:
            world = self.here = frontier.popleft()
            for label, after in self.successors(world):
                self.report.steps += 1
                if after not in self.came:
                    self.came[after] = (world, label)
                    frontier.append(after)
        self.report.states, self.report.rows = len(self.came), len(self.nodes)
        self.report.lease_moves_taken = sorted(self.judge.lease_hops)
        self.ends()
        self.budgets()
        self.coverage()
        return self.report

    # What can happen next.

    def successors(self, world: World) -> Iterator[tuple[str, World]]:
        number, a, b, flight = world
        node = self.node(number)
        for label, after in node.actions:
            yield label, (after, a, b, self.late(after, flight))
        if not self.kinds:
            return
        for place, after_claim in enumerate(node.claims):
            if after_claim is not None:
                fence = self.nodes[after_claim].core.fence
                a2, b2 = (3 * fence, b) if place == 0 else (a, 3 * fence)
                yield (
                    f"{WORKERS[place]} claims (fence {fence})",
                    (after_claim, a2, b2, self.late(after_claim, flight)),
                )
        if a:
            yield "A crashes", (number, 0, b, flight)
        if b:
            yield "B crashes", (number, a, 0, flight)
        if flight.bit_count() < self.bounds.messages:
            for bit, belief in self.sends(0, a):
                if not flight & bit:
                    yield self.name(bit, "is sent"), (number, belief, b, self.late(number, flight | bit))
            for bit, belief in self.sends(1, b):
                if not flight & bit:
                    yield self.name(bit, "is sent"), (number, a, belief, self.late(number, flight | bit))
        yield from self.arrivals(world, node)

    def sends(self, place: int, local: int) -> Iterator[tuple[int, int]]:
        """What a worker may say next, and what it believes afterwards. It tells one outcome a lease."""
        fence, belief = divmod(local, 3)
        if fence and belief < 2:
            begun = len(self.machine.messages)
            for kind in range(len(self.kinds)):
                yield self.bit(kind, place, fence), 3 * fence + (1 if kind < begun else 2)

    def arrivals(self, world: World, node: ModelNode) -> Iterator[tuple[str, World]]:
        """Each message under way is lost, arrives, or arrives while a copy is still under way."""
        number, a, b, flight = world
        rest = flight
        while rest:
            bit = rest & -rest
            rest ^= bit
            yield self.name(bit, "is lost"), (number, a, b, flight ^ bit)
            after = node.deliveries.get(bit)
            if after is None:
                after = node.deliveries[bit] = self.deliver(number, bit)
            if after != number:
                yield self.name(bit, "arrives"), (after, a, b, self.late(after, flight ^ bit))
                yield (
                    self.name(bit, "arrives, with a copy under way"),
                    (after, a, b, self.late(after, flight)),
                )

    def late(self, number: int, flight: int) -> int:
        """The messages in flight, of the late ones only the newest.

        A stale message stays stale and changes nothing, which is asked of every core for every message there
        can be; so one is enough to see what late messages do to a world.
        """
        accepted = self.nodes[number].accepted
        stale = flight & ~(self.accepted_messages(number) if accepted is None else accepted)
        return flight ^ stale ^ (1 << stale.bit_length() - 1) if stale else flight

    def bit(self, kind: int, place: int, fence: int) -> int:
        return 1 << ((fence * 2 + place) * len(self.kinds) + kind)

    def message(self, bit: int) -> tuple[str, str, int]:
        """What is said, by whom, under which fence."""
        who, kind = divmod(bit.bit_length() - 1, len(self.kinds))
        return self.kinds[kind], WORKERS[who % 2], who // 2

    def name(self, bit: int, what: str) -> str:
        message, worker, fence = self.message(bit)
        return f"{message} from {worker} (fence {fence}) {what}"

    # What happens to a core.

    def number(self, core: Core) -> int:
        if core not in self.numbers:
            self.numbers[core] = len(self.nodes)
            self.nodes.append(ModelNode(core))
        return self.numbers[core]

    def node(self, number: int) -> ModelNode:
        node = self.nodes[number]
        if not node.claims:
            node.claims = [self.claim(number, worker) for worker in WORKERS]
            node.actions = list(self.actions(number))
            self.judge.core(node.core)
        return node

    def accepted_messages(self, number: int) -> int:
        """The messages that would be heard in a core."""
        node = self.nodes[number]
        node.accepted = sum(
            self.bit(kind, place, fence)
            for fence in range(1, node.core.fence + 1)
            for place, worker in enumerate(WORKERS)
            if self.machine.speaks(node.core, worker, fence)
            for kind in range(len(self.kinds))
        )
        return node.accepted

    def actions(self, number: int) -> Iterator[tuple[str, int]]:
        """What time and people can do."""
        machine, core = self.machine, self.nodes[number].core
        state = machine.lifecycle.states[core.state]
        surely = (
            state.within_us is not None or state.deadline == "due"
        )  # a limit that only some units have ends nothing
        acts: list[tuple[str, str, Callable[[], ModelStep | None], bool]] = [
            ("the lease runs out", "", lambda: machine.run_out(core), True),
            ("the tick finds the lease over", "expire", lambda: machine.expire(core), True),
            (f"the clock of {state.name} runs out", state.deadline, lambda: machine.deadline(core), surely),
            ("the cancel deadline passes", "", lambda: machine.overdue(core), True),
            ("a person cancels", "", lambda: machine.cancel(core, hard=False), False),
            ("a person cancels hard", "cancel hard", lambda: machine.cancel(core, hard=True), False),
        ]
        acts += [
            (f"'{trigger}' is fired", "", partial(machine.fire, core, trigger), trigger not in CUTS_SHORT)
            for trigger in machine.free(core.state)
        ]
        for label, message, act, helps in acts:
            after = self.take(number, label, act, helps=helps, message=message)
            if after is not None and after != number:
                yield label, after

    def claim(self, number: int, worker: str) -> int | None:
        core, label = self.nodes[number].core, f"{worker} claims"
        after = self.take(number, label, lambda: self.machine.claim(core, worker), helps=True)
        if after is not None:
            self.judge.grant(core, label)
        return after

    def deliver(self, number: int, bit: int) -> int:
        core, message = self.nodes[number].core, self.message(bit)
        helps = message[0] in ("complete", *self.machine.messages)
        label = self.name(bit, "arrives")
        after = self.take(number, label, lambda: self.machine.deliver(core, *message), helps=helps, message=message[0])
        return number if after is None else after

    def take(
        self, number: int, label: str, act: Callable[[], ModelStep | None], *, helps: bool, message: str = ""
    ) -> int | None:
        """Does something to a core and has it judged; None if it cannot be done here.

        Nothing is explored behind a broken promise: without its budget a unit would go on for ever.
        """
        try:
            step = act()
        except Refused as refused:
            self.broke("answered", f"{label}, and the table has no answer: {refused}")
            return None
        if step is None:
            return None
        after, self.sound = self.number(step.core), True
        if after != number:
            self.judge.step(self.nodes[number].core, label, step, message)
            if helps:
                self.helping.add((number, after))
        return after if self.sound else None

    # What is said at the end.

    def ends(self) -> None:
        """Every core that was reached can reach an end by helping steps alone."""
        ends = [number for number, node in enumerate(self.nodes) if self.machine.settled(node.core)]
        ending = reaching(ends, self.helping)
        first = {world[0]: world for world in reversed(self.came)}
        for number, world in first.items():
            if number not in ending:
                self.here = world
                core = self.nodes[number].core
                self.broke("can-end", f"from {core.state} in attempt {core.attempt} no end can be reached")

    def budgets(self) -> None:
        """What a budget allows is reached by some unit that is still open."""
        cores = [node.core for node in self.nodes if not self.machine.settled(node.core)]
        self.here = None
        self.judge.used_up(max((core.failures + core.losses for core in cores), default=0))

    def coverage(self) -> None:
        """Which of the listed moves some step took."""
        for lifecycle in filter(None, (self.machine.lifecycle, self.machine.parent)):
            listed = [(lifecycle.name, *key) for key in lifecycle.moves if key[0] is not None]
            missed = [move for move in listed if move not in self.judge.taken]
            self.report.moves_listed += len(listed)
            self.report.moves_taken += len(listed) - len(missed)
            self.report.moves_not_taken += [f"{name}: '{trigger}' in {state}" for name, state, trigger in missed]
        if self.bounds.attempts >= ATTEMPTS_FOR_ALL:
            self.here = None
            for move in self.report.moves_not_taken:
                self.broke("no-dead-moves", f"{move} is listed, and nothing can ever fire it")

    def broke(self, promise: str, text: str) -> None:
        """Notes a broken promise once, with the shortest way to it."""
        self.sound = False
        if (promise, text) not in self.known:
            self.known.add((promise, text))
            self.report.findings.append(Finding(promise, text, self.trace()))

    def trace(self) -> list[str]:
        labels: list[str] = []
        came = self.came.get(self.here) if self.here else None
        while came:
            world, label = came
            labels.append(label)
            came = self.came.get(world)
        return labels[::-1]
