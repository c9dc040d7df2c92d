"""Clocks of what is paused stand still.

A gate, an approval, a workstream with a time limit: while such a unit or one above it is paused, its clock stands, and
goes on for the rest of its time afterwards. What a worker holds goes on, and so does its clock; a pause of a queue or a
task stops no clock.

A pause costs nothing when it begins. If a deadline passes meanwhile, the unit is set aside: its deadline is put off by
`STANDS_US`, which is longer than any time limit, so that nobody looks at it again. When the pause ends, every deadline
below it is moved by the time for which it stood. Of two pauses that overlap, the one that ends first counts for the
time that they share.
"""

from collections.abc import Iterator, Sequence

from interlock.core.advance import change
from interlock.core.effective_policy import find_deadline
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import PauseRow, Unit
from interlock.kernel.timing import STANDS_US
from interlock.plugins.pauses.queries import (
    UNIT,
    find_clocked_below,
    load_parents,
    peek_pauses,
    read_ended_pauses,
    read_for_claim,
)
from interlock.store.unit_of_work import UnitOfWork


def watch_pauses(tx: UnitOfWork, limit: int) -> int:
    """Whoever lets time pass has read the pauses before it locks a unit, so that none begins or ends meanwhile."""
    read_for_claim(tx)
    return 0


def find_stood(tx: UnitOfWork, unit: Unit) -> int | None:
    """For how long the clock of a unit has stood by now, in microseconds; None if it goes.

    It stands while the unit, or one above it, is paused, and no worker holds it. Pauses that have ended are in its
    deadline already.
    """
    live = [pause for pause in peek_pauses(tx) if pause.kind == UNIT and pause.ended_at is None]
    if not live or unit.holder is not None:
        return None
    line = set(find_line(tx, unit))
    over = [pause for pause in live if pause.unit in line]
    if not over:
        return None
    ended = read_ended_pauses(tx, min(pause.since for pause in over))
    spans = [(pause.since, end_of(pause)) for pause in ended if pause.unit in line]
    stood_us = 0
    for pause in over:
        span = max(pause.since, unit.changed_at), min(tx.now, pause.until or tx.now)
        stood_us += measure(*span, spans)
        spans.append(span)
    return stood_us


def find_line(tx: UnitOfWork, unit: Unit) -> Iterator[int]:
    """Yields a unit and those above it, the nearest first."""
    parents = load_parents(tx, [unit])
    above: int | None = unit.id
    while above is not None:
        yield above
        above = unit.parent if above == unit.id else parents.get(above)


def move_clocks(tx: UnitOfWork, pause: PauseRow) -> None:
    """The clocks of what was paused go on: each deadline is moved by the time for which it stood."""
    if pause.unit is None or pause.ended_at is None:
        return
    others = [other for other in read_ended_pauses(tx, pause.since) if other.id != pause.id]
    for unit in find_clocked_below(tx, pause.unit):
        line = set(find_line(tx, unit)) if others else set()
        counted = [(other.since, end_of(other)) for other in others if other.unit in line]
        stood_us = measure(max(pause.since, unit.changed_at), end_of(pause), counted)
        at = unit.deadline_at or 0
        at = at - STANDS_US if at >= STANDS_US else at
        change(tx, unit, deadline_at=max(at, min(at + stood_us, find_latest_deadline(tx, unit, end_of(pause)))))


def find_latest_deadline(tx: UnitOfWork, unit: Unit, end: int) -> int:
    """The latest time to which a clock that stood until then may run: all of its time is left at most.

    What waited for a signal has a clock that starts anew when it comes, without a transition. If that was during the
    pause, the clock has stood since then only.
    """
    restarts = unit.category in (Category.READY, Category.WAITING)
    return (find_deadline(tx, unit, end) if restarts else None) or 2 * STANDS_US


def measure(since: int, until: int, others: Sequence[tuple[int, int]]) -> int:
    """How long it is from one instant to another, without what was counted otherwise, in microseconds."""
    stood_us = 0
    for start, end in sorted(others):
        if start < until and end > since:
            stood_us += max(0, start - since)
            since = max(since, end)
    return stood_us + max(0, until - since)


def end_of(pause: PauseRow) -> int:
    """When a pause that has ended was over: a tick may have come later than its time."""
    ended_at = pause.ended_at or 0
    return min(ended_at, pause.until or ended_at)
