"""Followers: a unit that follows its child (a CI job its attempts) makes the same transitions."""

import msgspec

from interlock.core.advance import Stamp, advance, make_unit
from interlock.core.effective_policy import attempts_used, follower
from interlock.core.ready import make_ready
from interlock.core.tx_state import CancelRequests, ToFollow
from interlock.kernel import families
from interlock.kernel.rows import Unit
from interlock.store.unit_of_work import UnitOfWork

ENGINE = Stamp("engine")


def follow(tx: UnitOfWork, child: Unit, trigger: str) -> None:
    """A unit that follows its child makes the same move, and opens the next attempt where its table says so."""
    parent = follower(tx, child)
    if parent is None or trigger == "submit":
        return
    lifecycle, attempt = tx.lifecycle(parent), parent.attempt
    if lifecycle.settled(parent.state):
        return  # an operator has put it there: it follows nobody any more
    requests = tx.state(CancelRequests).by_unit
    if child.id in requests:
        requests.setdefault(parent.id, requests[child.id])
    if move := families.follow_trigger(lifecycle, parent.state, trigger, child.state):
        advance(tx, parent, move, ENGINE)
    if child.id in tx.state(ToFollow).retryable:
        tx.state(ToFollow).retryable.discard(child.id)
        if again := families.after_attempt(lifecycle, parent.state, attempts_used(tx, child), retryable=True):
            advance(tx, parent, again, ENGINE)
    if parent.attempt > attempt:
        make_ready(tx, make_next_attempt(tx, parent, ENGINE, child))


def make_next_attempt(tx: UnitOfWork, parent: Unit | None, stamp: Stamp, last: Unit) -> Unit:
    """A new unit that does the same work as the last one, and names it."""
    unit = Unit(
        id=tx.ids.take(), tenant=last.tenant, lane=last.lane, lifecycle=last.lifecycle,
        parent=parent.id if parent else None, priority=last.priority,
    )  # fmt: skip
    fresh = {"unit": unit.id, "key": None, "created_at": tx.now, "result": None, "error": None, "retry_of": last.id}
    return make_unit(tx, unit, msgspec.structs.replace(tx.body(last), **fresh), stamp)
