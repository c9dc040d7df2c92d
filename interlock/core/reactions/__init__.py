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

Rounds are repeated until one moves nothing. A reaction says which kinds of transitions it serves, and is asked once for
each kind; a plain job, which has no parent, no children and no rules of a plugin, costs one look into a table.
"""

from interlock.core.reactions.follow import follow
from interlock.core.reactions.needs import meet_needs, stop_waiting
from interlock.core.reactions.roll_up import END_CHILDREN, ROLL_UP
from interlock.core.served import find_serving
from interlock.core.tx_state import ToFollow, WorkerChanges
from interlock.core.workers import free_workers
from interlock.store.flush import add_costs, flush
from interlock.store.hooks import Moved, MoveKind
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
