"""Needs: a unit waits until all units that it needs have succeeded."""

from interlock.core.advance import change
from interlock.core.ready import is_planned, make_ready
from interlock.kernel.lifecycle import Category
from interlock.kernel.rows import Unit
from interlock.store.flush import count_needs
from interlock.store.hooks import Moved
from interlock.store.unit_of_work import UnitOfWork


def meet_needs(tx: UnitOfWork, moved: list[Moved]) -> None:
    """Those that waited for nothing but what has just succeeded are ready."""
    met = count_needs(tx, succeeded(moved))
    tx.load_units(unit.parent for unit in met if unit.parent is not None)  # each is asked for its plan
    for unit in met:
        go_on(tx, tx.act_for(unit))


def succeeded(moved: list[Moved]) -> dict[int, int]:
    """Units that have just succeeded (1), and those that an operator took their success from (-1)."""
    won: dict[int, int] = {}
    for unit, was in moved:
        difference = (unit.outcome == Category.SUCCESS) - (was is not None and was.outcome == Category.SUCCESS)
        if difference:
            won[unit.id] = difference
    return won


def go_on(tx: UnitOfWork, unit: Unit) -> None:
    """The last need of a unit has succeeded: it is ready, or a gate opens. One that needs something again waits."""
    tx.touch(unit)
    if unit.unmet:
        change(tx, unit)
    elif is_planned(tx, unit):
        make_ready(tx, unit)
