"""Make a unit ready: it waits for nothing any more and can be claimed or decided."""

from interlock.core.advance import Stamp, advance, change
from interlock.kernel.rows import Unit
from interlock.store.queries.for_verbs import load_open_children
from interlock.store.unit_of_work import UnitOfWork

ENGINE = Stamp("engine")


def make_ready(tx: UnitOfWork, unit: Unit) -> None:
    """A unit that waits for nothing any more is ready; one that follows another says so to it.

    Plugins are asked first: one may have another end for it, or make what belongs to it.
    """
    if any(hook(tx, unit) for hook in tx.hooks.before_ready):
        return
    child = next(iter(load_open_children(tx, unit.id)), None) if tx.lifecycle(unit).options.follows else None
    if child is not None:
        make_ready(tx, child)
    elif tx.lifecycle(unit).allows(unit.state, "ready"):
        advance(tx, unit, "ready", ENGINE)
    else:
        change(tx, unit)


def is_planned(tx: UnitOfWork, unit: Unit) -> bool:
    """Whether a unit may go on: the children of one that still waits for its plan may not."""
    parent = tx.unit(unit.parent) if unit.parent is not None else None
    return parent is None or not tx.lifecycle(parent).allows(parent.state, "plan")
