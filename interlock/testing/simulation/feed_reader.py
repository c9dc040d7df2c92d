"""A reader of the event feed in a simulation: pages of any size, sometimes again from an old cursor."""

import random
from typing import TYPE_CHECKING

from interlock.audit.laws.incremental import CommitReview
from interlock.kernel.rows import Event
from interlock.store.queries.feed import EVERYTHING, read_feed_page
from interlock.store.queries.snapshots import read_rows

if TYPE_CHECKING:
    from interlock.testing.simulation.world import World

TENANT = 1
LIMITS = (1, 2, 7, 100)
READS, KEEPS, FALLS = 0.5, 0.3, 0.05  # how likely each is after a commit


class FeedReader:
    """What it has read in the end is the record: every event once, and those of a unit in their order."""

    def __init__(self, world: "World") -> None:
        self.world, self.random = world, random.Random(f"feed reader {world.seed}")
        self.events: list[tuple[int, int]] = []  # unit and version
        self.cursor: str | None = None
        self.kept: tuple[str | None, int] = (None, 0)  # the cursor that it would go on from, and the events before it

    def watch(self, review: CommitReview) -> None:
        """Something was committed: it reads on, or falls and goes on from what it kept."""
        if self.random.random() < READS:
            self.read(self.random.choice(LIMITS))
        if self.random.random() < KEEPS:
            self.kept = (self.cursor, len(self.events))
        if self.random.random() < FALLS:
            self.cursor, known = self.kept
            del self.events[known:]

    def read(self, limit: int) -> bool:
        """Returns whether there is more to read."""
        page = read_feed_page(self.world.eye, TENANT, EVERYTHING, limit, self.cursor)
        self.events += [(item.event.unit, item.event.version) for item in page.events]
        self.cursor = page.next
        return page.more

    def judge(self) -> None:
        """Reads the rest, and compares all of it with the record."""
        while self.read(self.random.choice(LIMITS)):
            pass
        rows = read_rows(self.world.eye, Event, "WHERE tenant = :tenant ORDER BY unit, version", tenant=TENANT)
        record = [(event.unit, event.version) for event in rows]
        if sorted(self.events) != record:
            missing, doubled = set(record) - set(self.events), len(self.events) - len(set(self.events))
            self.world.add_violation(f"the feed left out {len(missing)} events, and told {doubled} twice")
        versions: dict[int, int] = {}
        for unit, version in self.events:
            if version != versions.get(unit, 0) + 1:
                self.world.add_violation(f"the feed told event {version} of unit {unit} behind {versions.get(unit, 0)}")
            versions[unit] = version
