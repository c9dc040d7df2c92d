"""The order in which transactions of a database with many writers can have happened.

The feed has transactions in the order in which they began. One that began first may have been committed last, and may
have followed from what one that began later had done. A log in which it stands first tells of a task that starts before
it is queued. `put_in_order` lets it stand behind what it followed, and nothing else change its place.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from interlock.kernel.rows import Event
from interlock.store.acts import ACT_BITS
from interlock.store.queries.snapshots import Position

Placed = tuple[Position, Event]
Followed = tuple[int, int]  # a transaction, and one that began later and was committed before it


class Ordered(NamedTuple):
    """Events in their order, and up to where they go.

    If transactions have changed places, they are all of the events: a reader goes on in front of all, or behind all.
    """

    events: list[Placed]
    end: Position
    changed_places: bool = False


def get_transaction(position: Position) -> int:
    """Returns the transaction of an event: the id of an act begins with it."""
    return position[0] >> ACT_BITS


def put_in_order(
    followed: Collection[Followed], start: Position, events: Sequence[Placed], end: Position, ahead: Sequence[Placed],
    horizon: int,
) -> Ordered:  # fmt: skip
    """Returns the first of some events, so that no transaction stands before one that it followed.

    Parameters:
        start, end: the positions between which `events` were read.
        ahead: events behind them that are committed, as far as anybody may have followed one of them.
        horizon: the act below which none can come any more.
    """
    late = {transaction for transaction, _ in followed}.intersection(get_transaction(place) for place, _ in events)
    if not late:
        return Ordered(list(events), end)
    first = min(late)
    if early := [placed for placed in events if get_transaction(placed[0]) < first]:
        return Ordered(early, (first << ACT_BITS, 0))
    last = first
    while (furthest := max(source for transaction, source in followed if transaction <= last)) > last:
        last = furthest
    beyond: Position = ((last + 1) << ACT_BITS, 0)
    if beyond[0] > horizon:
        return Ordered([], start)  # somebody may still come in before the last of them
    whole = [placed for placed in (*events, *ahead) if placed[0] < beyond]
    return Ordered(sort_transactions(whole, followed), beyond, changed_places=True)


def sort_transactions(events: Sequence[Placed], followed: Collection[Followed]) -> list[Placed]:
    """Returns events by their transactions, each as early as it can stand behind those that it followed."""
    by_transaction: dict[int, list[Placed]] = {}
    for placed in events:
        by_transaction.setdefault(get_transaction(placed[0]), []).append(placed)
    behind: dict[int, set[int]] = {transaction: set() for transaction in by_transaction}
    for transaction, source in followed:
        if transaction in behind and source in behind:
            behind[transaction].add(source)
    ordered, waiting = list[Placed](), sorted(behind)
    while waiting:
        following = next((free for free in waiting if not behind[free].intersection(waiting)), waiting[0])
        waiting.remove(following)
        ordered += by_transaction[following]
    return ordered
