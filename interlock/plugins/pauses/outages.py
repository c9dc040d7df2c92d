"""Outages: what depends on something that is away waits for it, and comes back in growing waves.

A handler that finds an outside system away reports it when it gives its unit back. From then on claims park what
depends on that system. When it is time to try again, a tick lets one unit through. If that one reports the outage
again, the next try comes after twice as long; if it ends in any other way, two are let through, then four, and so on,
each wave when the one before it is over. When nothing waits any more, the outage is over.

Nobody promises that nothing starts after the report: a claim that is on its way may still grant. But whoever ends an
outage excludes claims, so that no unit is parked on one that nobody looks at.
"""

from typing import Any

import msgspec

from interlock.core.advance import change
from interlock.core.effective_policy import policy_at_end
from interlock.core.validation import check_name
from interlock.kernel.commands import Release, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import PauseRow, Unit
from interlock.plugins.pauses.queries import (
    OUTAGE,
    add_outage,
    end_pause,
    find_parked_on,
    forget_pause,
    lock_outage,
    peek_pauses,
    read_wave,
    try_to_change,
    write_detail,
)
from interlock.store.unit_of_work import UnitOfWork

DEPENDS_MAX = 10  # names that work may depend on
RETRY_MIN_US = 1_000_000
RETRY_MAX_US = 3_600_000_000  # between two tries, unless the report says more
WAVE_MAX = 1_000  # units that are let through at once
LOOK_US = 1_000_000  # between two looks at a wave
UNTAKEN_US = 60_000_000  # after so long others are let through instead of those that nobody takes


class OutageDetail(msgspec.Struct, omit_defaults=True):
    """How it stands with an outage. All times are in microseconds."""

    unit: int  # that reported it
    tries: int = 0  # waves that came to the same end
    size: int = 0  # of the wave that is let through; 0: it is away, and nobody is
    wave: dict[int, int] = {}  # the units that are let through, each with its fence before
    wave_at: int = 0


def read_detail(outage: PauseRow) -> OutageDetail:
    """How it stands with an outage, as its row says."""
    return msgspec.json.decode(outage.detail, type=OutageDetail, strict=False)


def keep_detail(tx: UnitOfWork, outage: PauseRow, detail: OutageDetail, look_at: int) -> None:
    """How it stands with an outage is kept, and time looks at it then."""
    outage.detail, outage.until = msgspec.json.encode(detail).decode(), look_at
    write_detail(tx, outage)


def check_depends(lifecycles: object, work: Work) -> None:
    """Check what work depends on.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    if len(work.depends) > DEPENDS_MAX:
        raise InterlockError(f"depends has {len(work.depends)} names; at most {DEPENDS_MAX} are allowed")
    for name in work.depends:
        check_name("depends", name)


def report_outage(
    tx: UnitOfWork, unit: Unit, command: Release, due_at: int | None
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """A holder gives a unit back because something is away: all that depends on it waits, and the unit first."""
    if command.outage is None:
        return None
    retry_us = max(command.snooze_us or 0, RETRY_MIN_US)
    outage = lock_outage(tx, command.outage)
    if outage is None:
        detail = OutageDetail(unit=unit.id)
        outage = PauseRow(
            id=tx.ids.take(), tenant=tx.tenant, kind=OUTAGE, name=command.outage, unit=None, since=tx.now,
            until=tx.now + retry_us, actor=command.actor, reason=command.reason,
            detail=msgspec.json.encode(detail).decode(),
        )  # fmt: skip
        for ended in [known for known in peek_pauses(tx) if known.key == outage.key]:
            forget_pause(tx, ended)  # what is parked on it is parked on the new one, which has the same name
        add_outage(tx, outage)
    elif (detail := read_detail(outage)).size:
        detail.tries += 1
        wait_us = min(retry_us * 2 ** min(detail.tries, 30), max(RETRY_MAX_US, retry_us))
        detail.size, detail.wave = 0, {}
        keep_detail(tx, outage, detail, tx.now + wait_us)
    return {"outage": command.outage}, {"due_at": None, "parked_on": outage.key}


def run_outages(tx: UnitOfWork, limit: int) -> int:
    """Lets units through whose time it is. Returns how many these are."""
    done = 0
    for known in peek_pauses(tx):
        if known.kind != OUTAGE or known.ended_at is not None:
            continue
        outage = lock_outage(tx, known.name)
        if outage is not None:
            done += run_outage(tx, outage)
    return done


def run_outage(tx: UnitOfWork, outage: PauseRow) -> int:
    """Lets jobs through to try whether what was away is back; returns how many."""
    detail = read_detail(outage)
    if outage.until is not None and outage.until > tx.now:
        return 0
    if detail.size == 0:
        return start_wave(tx, outage, detail, 1)
    waiting, held, answered = look_at_wave(tx, detail)
    if held or (waiting and tx.now < detail.wave_at + UNTAKEN_US):
        keep_detail(tx, outage, detail, tx.now + LOOK_US)
        return 0
    return start_wave(tx, outage, detail, min(detail.size * (2 if answered else 1), WAVE_MAX))


def look_at_wave(tx: UnitOfWork, detail: OutageDetail) -> tuple[int, int, int]:
    """Returns how many units of a wave wait for a worker, how many are held, and how many were finished by one."""
    waiting = held = answered = 0
    for unit in read_wave(tx, list(detail.wave)):
        waiting += unit.available_at is not None
        held += unit.holder is not None
        finished = unit.lease is not None and tx.lease_lifecycle.category(unit.lease) is Category.SUCCESS
        answered += finished and unit.fence > detail.wave[unit.id]
    return waiting, held, answered


def start_wave(tx: UnitOfWork, outage: PauseRow, detail: OutageDetail, size: int) -> int:
    """The most urgent units that wait are let through, at most `size`. If none waits, the outage is over."""
    parked, _ = find_parked_on(tx, outage.key, size)
    if not parked:
        end_outage(tx, outage)
        return 0
    units = parked[:size]
    detail.size, detail.wave, detail.wave_at = size, {unit.id: unit.fence for unit in units}, tx.now
    keep_detail(tx, outage, detail, tx.now + LOOK_US)
    for unit in units:
        change(tx, unit, parked_on=None)
    return len(units)


def end_outage(tx: UnitOfWork, outage: PauseRow) -> None:
    """An outage on which nothing is parked is over, unless a claim is on its way that may park something."""
    for known in try_to_change(tx):
        if known.id == outage.id:
            end_pause(tx, known, tx.now, "clock")  # ticks take from it what was parked meanwhile


def find_outage_key(tx: UnitOfWork, outages: dict[str, tuple[str, OutageDetail]], unit: Unit) -> str | None:
    """Returns the key that a unit is to be parked on because something is away that it depends on."""
    for name in policy_at_end(tx.body(unit)).depends:  # what cannot be read is withheld by the claim itself
        if name in outages and unit.id not in outages[name][1].wave:
            return outages[name][0]
    return None
