"""Reactions: what follows from a transition for other units, run until nothing more follows.

A verb moves the units that it was asked about, and no others. What that means to the rest is the business of reactions:
functions over what has moved, in a fixed order, in files of their own. A round is

1. followers: a unit that follows its child makes the same move (`follow.py`);
2. a flush: what changed is in the database, acts first;
3. needs: those whose last need was just met are ready (`needs.py`), and workers hold no longer what was given
   back. All of this is repeated until nothing is pending, because a parent must not hear half of it;
4. the end of a family: the open children of a unit that has ended are stopped (`roll_up.py`);
5. the reactions of plugins, in the order in which the plugins are listed (`Hooks.reactions`);
6. the roll-up: parents count their children and do what these say (`roll_up.py`). It is last because counters are
   written by adding, and children of one parent wait for each other no longer than that. Then those are cancelled
   that need what can never succeed any more, unless their parents see to them (`needs.py`).

They run behind all commands of a group, and also before one that must not be ahead of them (`needs_reactions`): where a
critical task has failed, its workstream fails before a command cancels it; and where a workstream was cancelled, its
tasks are stopped before a holder says that one has failed.

Rounds are repeated until one moves nothing. A reaction says which kinds of transitions it serves, and is asked once for
each kind; a plain job, which has no parent, no children and no rules of a plugin, costs one look into a table.
"""

from typing import Any

from interlock.core.reactions.follow import follow
from interlock.core.reactions.needs import meet_needs, stop_waiting
from interlock.core.reactions.roll_up import END_CHILDREN, ROLL_UP
from interlock.core.served import find_serving
from interlock.core.tx_state import ToFollow, WorkerChanges
from interlock.core.workers import free_workers
from interlock.kernel.commands import Cancel, Command, Submit
from interlock.store.flush import add_costs, flush
from interlock.store.hooks import Moved, MoveKind
from interlock.store.queries.for_verbs import find_parents
from interlock.store.queries.metrics import write_metrics
from interlock.store.unit_of_work import UnitOfWork


def run_reactions(tx: UnitOfWork) -> None:
    """Everything that follows from what this transaction did is done, and all of it is in the database.

    What the fast path did is written already, and nothing follows from it but what its workers hold.
    """
    if not tx.changes.pending:
        free_workers(tx)
        if not (tx.changes.pending or tx.counters.costs or tx.counters.metrics):
            return
    reactions, known = (END_CHILDREN, *tx.hooks.reactions, ROLL_UP), tx.cache.state(ServedKinds).places
    while moved := write_round(tx):
        served: dict[int, list[Moved]] = {}
        for move in moved:
            kind = move.kind
            if kind not in known:
                first, last = (0,) if END_CHILDREN.serves(kind) else (), len(reactions) - 1
                known[kind] = (*first, *(place + 1 for place in find_serving(tx, kind)))
                known[kind] += (last,) if ROLL_UP.serves(kind) else ()
            for place in known[kind]:
                served.setdefault(place, []).append(move)
        for place in sorted(served):
            reactions[place].run(tx, served[place])
        stop_waiting(tx)
    if tx.counters.costs:
        add_costs(tx)
    if tx.counters.metrics:
        write_metrics(tx)


def needs_reactions(tx: UnitOfWork, command: Command[Any]) -> bool:
    """Whether a command must wait for what earlier ones of its group have led to.

    So it is when children of a unit are to be stopped, whatever else happens to them (a cancel may come first, and no
    submit gives an ended unit more children); and when a command is about a unit below which others have moved.
    """
    if tx.changes.leaves_children and not isinstance(command, Submit | Cancel):
        return True
    return bool(tx.changes.child_rounds) and is_above_moves(tx, getattr(command, "unit", None))


def is_above_moves(tx: UnitOfWork, unit: int | None) -> bool:
    """Whether units below this one have moved, and their parents have not been told."""
    known, above = tx.state(KnownParents).by_unit, set(tx.changes.child_rounds)
    while above and unit is not None and unit not in above:
        known |= find_parents(tx, [each for each in above if each not in known and each not in tx.rows.units])
        parents = {known[each] if each in known else tx.rows.units[each].parent for each in above}
        above = {parent for parent in parents if parent is not None}
    return unit in above


class KnownParents:
    """Parents of units that a transaction has not read itself."""

    def __init__(self) -> None:
        self.by_unit: dict[int, int | None] = {}


class ServedKinds:
    """The places of the reactions that serve a kind of transition, for the kinds that an engine has met."""

    def __init__(self) -> None:
        self.places: dict[MoveKind, tuple[int, ...]] = {}


def write_round(tx: UnitOfWork) -> list[Moved]:
    """What changed is in the database, and what became ready by it too: a parent must not hear half of it."""
    moved: list[Moved] = []
    workers, follow_next = tx.state(WorkerChanges), tx.state(ToFollow).moves
    while tx.changes.pending or workers.given_back or workers.claims:
        while follow_next:
            child, trigger, happened = follow_next.popleft()
            tx.changes.round = happened + 1
            follow(tx, tx.act_for(child), trigger)
        written = flush(tx)
        meet_needs(tx, written)
        moved += written
        free_workers(tx)
    return moved
