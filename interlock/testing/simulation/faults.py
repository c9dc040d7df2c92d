"""Faults of a simulation: which kinds a seed switches on, and when they happen."""

import random
from collections import Counter

KINDS = {
    "delay": "a message is on its way for seconds",
    "loss": "a message, or the answer to it, is lost",
    "duplicate": "a message arrives twice",
    "reorder": "messages overtake each other",
    "crash_await": "a process ends at one of its awaits, and starts again with an empty memory",
    "crash_commit": "a process ends right before or right after a commit",
    "pause": "a process stands still for longer than its leases",
    "clock": "the clock of the store steps forward or back",
    "store": "the database refuses a statement, or cannot be reached",
    "deadlock": "a transaction is chosen as the victim of a deadlock",
    "lost_commit": "a commit is applied, or not, and its answer is lost",
    "cancel": "whatever moves is cancelled right after it",
    "poison": "handlers get what they cannot read, raise what nobody expects, and return what cannot be kept",
    "slow_beats": "beats arrive late",
}
ON = 0.3  # of all kinds, in a seed
CALM = 10  # one seed of so many has no faults: whatever goes wrong there has no excuse


class Faults:
    """The kinds that this seed switches on, and how often each of them struck."""

    def __init__(self, seed: int, kinds: tuple[str, ...] | None = None) -> None:
        self.random = random.Random(f"faults {seed}")
        drawn = tuple(kind for kind in KINDS if self.random.random() < ON and seed % CALM)
        self.on = frozenset(drawn if kinds is None else kinds)
        self.rate = {kind: self.random.choice((0.5, 1.0, 2.0)) for kind in KINDS}
        self.struck: Counter[str] = Counter()
        self.healed = False

    @property
    def armed(self) -> tuple[str, ...]:
        """The kinds that may strike now."""
        return () if self.healed else tuple(kind for kind in KINDS if kind in self.on)

    def strikes(self, kind: str, chance: float) -> bool:
        """Whether this is one of the times when it goes wrong."""
        if self.healed or kind not in self.on or self.random.random() >= chance * self.rate[kind]:
            return False
        self.struck[kind] += 1
        return True
