"""Check the laws after each commit, for what it wrote: as strict as checking everything, and much faster."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from interlock.audit.laws.rebuild import FoldedRow, Listed, apply_event
from interlock.audit.laws.rows import (
    COUNTING,
    KNOWN,
    NEEDING,
    OF_EVENTS,
    OF_ROWS,
    OWNED,
    Broken,
    keys_are_kept,
    name_law,
    verdicts_have_fallen,
    workers_hold_what_they_hold,
)
from interlock.core.reactions.roll_up import add, count_birth
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Event, Need, Unit
from interlock.store.change_capture import read_needs, read_units
from interlock.store.connection import Connection
from interlock.store.flush import COUNTED
from interlock.store.queries.snapshots import BEGINNING, Position, find_replaced, read_events_after

EVENTS_MAX = 1_000_000  # of one commit


class CommitReview(msgspec.Struct):
    """What one commit did, and which laws it broke."""

    events: list[Event] = []
    changed: list[tuple[Unit | None, Unit | None]] = []  # each as it was before (None: not there), and as it is now
    broken: list[Broken] = []


class IncrementalLaws:
    """Knows every unit as the last commit left it. Whoever writes must have been told to keep track."""

    def __init__(self, lifecycles: Mapping[str, Lifecycle]) -> None:
        self.lifecycles = lifecycles
        self.listed = {name: Listed(lifecycle, lifecycles["lease"]) for name, lifecycle in lifecycles.items()}
        self.units: dict[int, Unit] = {}
        self.folded: dict[int, FoldedRow] = {}
        self.held: Counter[int] = Counter()
        self.family_counts: dict[int, dict[str, int]] = {}  # by parent: what its children come to
        self.replaced: set[int] = set()  # children that count no more
        self.needs: dict[int, list[Need]] = {}
        self.archived: set[int] = set()
        self.needed_by: dict[int, list[int]] = {}
        self.position: Position = BEGINNING
        self.keyed = False  # whether there is a mutex, a limit or a rate

    def check_commit(self, connection: Connection, rows: Iterable[tuple[str, int]]) -> CommitReview:
        """What was committed since the last look, judged; `rows` are all that was written."""
        kinds: dict[str, list[int]] = {}
        for kind, unit_id in rows:
            kinds.setdefault(kind, []).append(unit_id)
        if not kinds:
            return CommitReview()
        review = CommitReview()
        leases = kinds.get("lease", ())  # one may be made longer by itself, and the row of many is that of all of them
        held = [unit.id for unit in self.units.values() if unit.lease_id is not None] if 0 in leases else []
        ids = dict.fromkeys([*kinds.get("unit", ()), *leases, *held])
        ids.pop(0, None)
        fresh = read_events_after(connection, self.position, EVENTS_MAX) if ids else []
        if fresh:
            self.position = fresh[-1][0]
        review.events = [event for _, event in fresh]
        review.broken += self.judge_events(review.events)
        now = {unit.id: unit for unit in read_units(connection, ids)}
        review.changed = [(self.units.get(unit_id), now.get(unit_id)) for unit_id in ids]
        for was, unit in review.changed:
            review.broken += self.replace(was, unit)
        self.forget_replaced(connection, [unit.id for was, unit in review.changed if was is None and unit is not None])
        if new := kinds.get("need"):
            self.needs |= {unit: [] for unit in new}
            for need in read_needs(connection, new):
                self.needs[need.unit].append(need)
                self.needed_by.setdefault(need.needs, []).append(need.unit)
        review.broken += self.judge_families(review.changed)
        if any(unit and unit.total for _, unit in review.changed):
            review.broken += verdicts_have_fallen(connection, self.lifecycles)
        if "worker" in kinds or any(holder(was) != holder(unit) for was, unit in review.changed):
            review.broken += workers_hold_what_they_hold(connection, self.held)
        self.keyed = self.keyed or "slot" in kinds
        if self.keyed and ("slot" in kinds or "token" in kinds or any(place(a) != place(b) for a, b in review.changed)):
            review.broken += keys_are_kept(connection)
        return review

    def judge_events(self, events: list[Event]) -> Iterator[Broken]:
        for event in events:
            listed = self.listed.get(event.lifecycle)
            if listed is None:
                yield Broken(KNOWN, event.unit, f"its lifecycle '{event.lifecycle}' is not")
                continue
            folded = self.folded.setdefault(event.unit, FoldedRow())
            for law in OF_EVENTS:
                for text in law(folded, event, listed):
                    yield Broken(name_law(law), event.unit, text)
            apply_event(folded, event, listed)

    def replace(self, was: Unit | None, unit: Unit | None) -> Iterator[Broken]:
        """One row is known as it is now, and judged."""
        if was is not None:
            self.count(was, -1)
        if unit is None:
            if was is not None:
                del self.units[was.id], self.folded[was.id]
                self.archived.add(was.id)
            return
        self.units[unit.id] = unit
        self.count(unit, 1)
        for law in OF_ROWS:
            for text in law(unit, self.folded.setdefault(unit.id, FoldedRow()), self.listed[unit.lifecycle]):
                yield Broken(name_law(law), unit.id, text)

    def count(self, unit: Unit, sign: int) -> None:
        if unit.holder is not None:
            self.held[unit.holder] += sign
        if unit.parent is not None and unit.id not in self.replaced:
            family = self.family_counts.setdefault(unit.parent, dict.fromkeys(COUNTED, 0))
            if sign > 0:
                count_birth(family, unit)
            else:
                family["total"] -= 1
                family["deciders"] -= unit.decides
            add(family, unit, sign)

    def forget_replaced(self, connection: Connection, born: list[int]) -> None:
        """Children whose place one of these units has taken count no more."""
        for unit in find_replaced(connection, born) if born else ():
            if unit not in self.replaced and unit in self.units:
                self.count(self.units[unit], -1)
                self.replaced.add(unit)

    def judge_families(self, changed: list[tuple[Unit | None, Unit | None]]) -> Iterator[Broken]:
        """Parents count their children, and needs are counted, wherever one of them changed."""
        rows = [unit for pair in changed for unit in pair if unit is not None]
        for unit_id in dict.fromkeys(unit.parent or unit.id for unit in rows):
            yield from self.judge_parent(unit_id)
        for unit_id in dict.fromkeys(unit.id for unit in rows if unit.total):
            yield from self.judge_parent(unit_id)
        waiting = dict.fromkeys(unit_id for unit in rows for unit_id in (unit.id, *self.needed_by.get(unit.id, ())))
        for unit_id in waiting:
            if (unit := self.units.get(unit_id)) and unit.outcome is None and unit_id in self.needs:
                unmet = sum(not self.is_met(need) for need in self.needs[unit_id])
                if unmet != unit.unmet:
                    yield Broken(NEEDING, unit_id, f"{unit.unmet} of its needs are said to be unmet, and {unmet} are")

    def is_met(self, need: Need) -> bool:
        unit = self.units.get(need.needs)
        if unit is None:
            return need.needs in self.archived  # it is not asked; else it is yet to come
        return unit.outcome == Category.SUCCESS or (need.by_end == 1 and unit.outcome is not None)

    def judge_parent(self, unit_id: int) -> Iterator[Broken]:
        unit, family_counts = self.units.get(unit_id), self.family_counts.get(unit_id)
        if unit is None:
            if family_counts and family_counts["total"]:
                yield Broken(COUNTING, unit_id, "it has children, and is not there")
            return
        counts = {name: getattr(unit, name) for name in COUNTED}
        if counts != (family_counts or dict.fromkeys(COUNTED, 0)):
            yield Broken(COUNTING, unit_id, f"it counts {counts}, and has {family_counts}")

    def orphans(self) -> Iterator[Broken]:
        for unit_id in self.folded.keys() - self.units.keys():
            yield Broken(OWNED, unit_id, "there are events of it, but no such unit")


def holder(unit: Unit | None) -> int | None:
    """The worker that holds a unit, by its unit; None if nobody does."""
    return unit.holder if unit else None


def place(unit: Unit | None) -> tuple[bool, int | None, str | None] | None:
    """What of a unit has to do with its keys."""
    return (unit.available_at is not None, unit.holder, unit.parked_on) if unit else None
