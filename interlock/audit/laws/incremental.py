"""The laws, asked after every commit of what it wrote: as strict as asking all of everything, and many times faster."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from interlock.audit.laws.rebuild import Listed, Told, hear
from interlock.audit.laws.rows import (
    CHILDREN,
    COUNTING,
    KNOWN,
    NEEDING,
    OF_EVENTS,
    OF_ROWS,
    OWNED,
    Broken,
    keys_are_kept,
    named,
    workers_hold_what_they_hold,
)
from interlock.core.reactions.roll_up import add, count_birth
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Event, Unit
from interlock.store.change_capture import needs_of, units
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import BEGINNING, Position, read_events_after

EVENTS_MAX = 1_000_000  # of one commit


class Seen(msgspec.Struct):
    """What one commit did, and which laws it broke."""

    events: list[Event] = []
    changed: list[tuple[Unit | None, Unit | None]] = []  # each as it was before (None: not there), and as it is now
    broken: list[Broken] = []


class Vigil:
    """Knows every unit as the last commit left it. Whoever writes must have been told to keep track."""

    def __init__(self, lifecycles: Mapping[str, Lifecycle]) -> None:
        self.listed = {name: Listed(lifecycle, lifecycles["lease"]) for name, lifecycle in lifecycles.items()}
        self.units: dict[int, Unit] = {}
        self.told: dict[int, Told] = {}
        self.held: Counter[int] = Counter()
        self.found: dict[int, dict[str, int]] = {}  # by parent: what its children come to
        self.needs: dict[int, list[int]] = {}
        self.needed_by: dict[int, list[int]] = {}
        self.position: Position = BEGINNING
        self.keyed = False  # whether there is a mutex, a limit or a rate

    def look(self, connection: Connection, rows: Iterable[tuple[str, int]]) -> Seen:
        """What was committed since the last look, judged; `rows` are all that was written."""
        kinds: dict[str, list[int]] = {}
        for kind, one in rows:
            kinds.setdefault(kind, []).append(one)
        if not kinds:
            return Seen()
        seen = Seen()
        ids = dict.fromkeys([*kinds.get("unit", ()), *kinds.get("lease", ())])  # a lease may be made longer by itself
        fresh = read_events_after(connection, self.position, EVENTS_MAX) if ids else []
        if fresh:
            self.position = fresh[-1][0]
        seen.events = [event for _, event in fresh]
        seen.broken += self.judge_events(seen.events)
        now = {unit.id: unit for unit in units(connection, ids)}
        seen.changed = [(self.units.get(one), now.get(one)) for one in ids]
        for was, unit in seen.changed:
            seen.broken += self.replace(was, unit)
        if new := kinds.get("need"):
            for need in needs_of(connection, new):
                self.needs.setdefault(need.unit, []).append(need.needs)
                self.needed_by.setdefault(need.needs, []).append(need.unit)
        seen.broken += self.judge_families(seen.changed)
        if "worker" in kinds or any(holder(was) != holder(unit) for was, unit in seen.changed):
            seen.broken += workers_hold_what_they_hold(connection, self.held)
        self.keyed = self.keyed or "slot" in kinds
        if self.keyed and ("slot" in kinds or "token" in kinds or any(place(a) != place(b) for a, b in seen.changed)):
            seen.broken += keys_are_kept(connection)
        return seen

    def judge_events(self, events: list[Event]) -> Iterator[Broken]:
        for event in events:
            listed = self.listed.get(event.lifecycle)
            if listed is None:
                yield Broken(KNOWN, event.unit, f"its lifecycle '{event.lifecycle}' is not")
                continue
            told = self.told.setdefault(event.unit, Told())
            for law in OF_EVENTS:
                for text in law(told, event, listed):
                    yield Broken(named(law), event.unit, text)
            hear(told, event, listed)

    def replace(self, was: Unit | None, unit: Unit | None) -> Iterator[Broken]:
        """One row is known as it is now, and judged."""
        if was is not None:
            self.count(was, -1)
        if unit is None:
            if was is not None:
                del self.units[was.id], self.told[was.id]
            return
        self.units[unit.id] = unit
        self.count(unit, 1)
        for law in OF_ROWS:
            for text in law(unit, self.told.setdefault(unit.id, Told()), self.listed[unit.lifecycle]):
                yield Broken(named(law), unit.id, text)

    def count(self, unit: Unit, sign: int) -> None:
        if unit.holder is not None:
            self.held[unit.holder] += sign
        if unit.parent is not None:
            family = self.found.setdefault(unit.parent, dict.fromkeys(CHILDREN, 0))
            if sign > 0:
                count_birth(family, unit)
            else:
                family["total"] -= 1
                family["deciders"] -= unit.decides
            add(family, unit, sign)

    def judge_families(self, changed: list[tuple[Unit | None, Unit | None]]) -> Iterator[Broken]:
        """Parents count their children, and needs are counted, wherever one of them changed."""
        rows = [unit for pair in changed for unit in pair if unit is not None]
        for one in dict.fromkeys(unit.parent or unit.id for unit in rows):
            yield from self.judge_parent(one)
        for one in dict.fromkeys(unit.id for unit in rows if unit.total):
            yield from self.judge_parent(one)
        waiting = dict.fromkeys(one for unit in rows for one in (unit.id, *self.needed_by.get(unit.id, ())))
        for one in waiting:
            if (unit := self.units.get(one)) and unit.outcome is None and one in self.needs:
                unmet = sum(not self.won(needed) for needed in self.needs[one])
                if unmet != unit.unmet:
                    yield Broken(NEEDING, one, f"{unit.unmet} of its needs are said to be unmet, and {unmet} are")

    def won(self, one: int) -> bool:
        unit = self.units.get(one)
        return unit is None or unit.outcome == Category.SUCCESS  # what was archived is not asked

    def judge_parent(self, one: int) -> Iterator[Broken]:
        unit, found = self.units.get(one), self.found.get(one)
        if unit is None:
            if found and found["total"]:
                yield Broken(COUNTING, one, "it has children, and is not there")
            return
        said = {name: getattr(unit, name) for name in CHILDREN}
        if said != (found or dict.fromkeys(CHILDREN, 0)):
            yield Broken(COUNTING, one, f"it counts {said}, and has {found}")

    def orphans(self) -> Iterator[Broken]:
        for one in self.told.keys() - self.units.keys():
            yield Broken(OWNED, one, "there are events of it, but no such unit")


def holder(unit: Unit | None) -> int | None:
    return unit.holder if unit else None


def place(unit: Unit | None) -> tuple[bool, int | None, str | None] | None:
    """What of a unit has to do with its keys."""
    return (unit.available_at is not None, unit.holder, unit.parked_on) if unit else None
