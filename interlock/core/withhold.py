"""Withhold units that cannot be granted or moved, so that their neighbours are not held up.

A claim and a tick pick units that nobody named. If one of them fails, the command as a whole would fail, and the next
one would pick the same unit again: one bad row would stop its queue for ever. So the command is undone, the bad unit is
found and withheld in a transaction of its own, and the command is carried out again without it.

How the bad units are found is said in `exclude.py`.

A withheld unit is parked on a key that nobody gives back, so it is not in the claim index. Its own clocks go on; where
it is time that failed, time tries again a minute later. Every move ends the withholding, so an operator who cancels the
unit, or forces it into a state, has it back.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from interlock.core.advance import withhold_unit
from interlock.core.failures import find_bug, format_reason, is_passing
from interlock.core.notes import note
from interlock.kernel.errors import UnknownLifecycle
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Unit
from interlock.store.acts import WITHHELD
from interlock.store.unit_of_work import UnitOfWork

T = TypeVar("T")
PASS_OVER_US = 60_000_000  # for so long time leaves a unit alone that it could not move
log = logging.getLogger("interlock.core")


class CannotProceed(Exception):
    """Units that a claim or a tick picked and that cannot be moved, each with what went wrong."""

    def __init__(self, failures: Mapping[int, Exception]) -> None:
        super().__init__("; ".join(f"unit {unit}: {error}" for unit, error in failures.items()))
        self.failures = dict(failures)


def ask_each(units: Iterable[Unit], question: Callable[[Unit], T]) -> list[T]:
    """What each unit says to a question that changes nothing.

    Raises:
        CannotProceed: it has every unit that fails.
    """
    answers: list[T] = []
    failures: dict[int, Exception] = {}
    for unit in units:
        try:
            answers.append(question(unit))
        except Exception as error:
            if is_passing(error):
                raise
            failures[unit.id] = error
    if failures:
        raise CannotProceed(failures)
    return answers


def move_each(units: Iterable[Unit], move: Callable[[Unit], None]) -> None:
    """Each unit has moved.

    Raises:
        CannotProceed: it has the first that fails: others may fail because of it.
    """
    for unit in units:
        try:
            move(unit)
        except Exception as error:
            if is_passing(error):
                raise
            raise CannotProceed({unit.id: error}) from error


def withhold(tx: UnitOfWork, failures: Mapping[int, Exception]) -> None:
    """Units that failed are picked no more; those that others have moved meanwhile are left as they are."""
    for unit in tx.lock_units(sorted(failures)):
        overdue = unit.wake_at is not None and unit.wake_at <= tx.now
        if unit.available_at is None and not overdue:
            continue
        withhold_unit(tx, unit, tx.now + PASS_OVER_US if overdue else None)
        why = msgspec.json.encode({"why": format_reason(failures[unit.id])}).decode()
        note(tx, unit.id, WITHHELD, why, fence=unit.fence)
        name, error = format_id(unit.lifecycle, unit.id), failures[unit.id]
        text = "unit=%s is withheld: %s; see interlock why %s"
        facts = describe_failure(unit, error)
        log.error(text, name, format_reason(error), name, exc_info=find_bug(error), extra={"facts": facts})


def pass_over(tx: UnitOfWork, failures: Mapping[int, Exception]) -> None:
    """Units that failed here, and may be sound elsewhere, are not picked here for a while."""
    stuck = tx.cache.passed_over
    for unit_id in [unit_id for unit_id, until in stuck.items() if until <= tx.now]:
        del stuck[unit_id]
    stuck.update(dict.fromkeys(failures, tx.now + PASS_OVER_US))
    for unit in [tx.rows.units[unit_id] for unit_id in failures if unit_id in tx.rows.units]:
        facts = describe_failure(unit, failures[unit.id])
        text = "unit=%s is skipped by this process for one minute: %s"
        log.warning(text, facts["id"], facts["error"], extra={"facts": facts})


def describe_failure(unit: Unit, error: Exception) -> dict[str, str | int]:
    """Returns what a line of JSON says of a unit that could not be moved."""
    return {"id": format_id(unit.lifecycle, unit.id), "unit": unit.id, "error": format_reason(error)}


def find_unknown(tx: UnitOfWork, failures: Mapping[int, Exception]) -> dict[int, Exception]:
    """Those that failed only because this program does not know their lifecycle, or a state of it."""
    known = {unit.id: tx.lifecycles.get(unit.lifecycle) for unit in tx.lock_units(sorted(failures))}
    states = {unit_id: lifecycle.states if lifecycle else () for unit_id, lifecycle in known.items()}
    return {
        unit_id: error
        for unit_id, error in failures.items()
        if isinstance(error, UnknownLifecycle)
        or (unit_id in known and tx.rows.units[unit_id].state not in states[unit_id])
    }
