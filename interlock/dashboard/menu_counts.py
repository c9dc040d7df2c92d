"""Counts in the menu: approvals that wait, and dead letters. They are read from counters.

They are read once a second for all who look at a tenant. What has happened since is counted before, as far as one step
of that goes; while more is left there are no numbers, because they would be wrong.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from interlock.client.stats import list_states
from interlock.kernel.approvals import waiting
from interlock.kernel.errors import StoreError
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.server.auth import read_loop_time
from interlock.store.connection import Connection
from interlock.store.queries.metrics import read_moves, read_next_counts

if TYPE_CHECKING:
    from interlock.dashboard.pages import PageRequest

KEPT_SECONDS = 1.0
INBOX, DEAD_LETTERS = "/inbox", "/dead-letters"  # pages that have a number
Counts = Mapping[str, int]


class MenuCounts:
    """The numbers of each tenant, and until when they are good."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[float, asyncio.Future[Counts]]] = {}

    async def find(self, request: "PageRequest") -> Counts:
        """Returns the numbers of the tenant that looks, by the path of the page; none that are not known."""
        if not request.may("read"):
            return {}
        until, counts = self.known.get(request.caller.tenant, (0.0, None))
        if counts is None or read_loop_time() > until:
            counts = asyncio.ensure_future(count_for_menu(request))
            self.known[request.caller.tenant] = read_loop_time() + KEPT_SECONDS, counts
        return await asyncio.shield(counts)


async def count_for_menu(request: "PageRequest") -> Counts:
    """Counts what happened last, in one step, and returns the numbers; none if more is left or the database is slow."""
    server, lifecycles = request.site.server, request.site.server.app.lifecycles
    try:
        async with server.counting(request.caller.tenant):
            counted, is_behind = await request.read(read_next_counts, lifecycles)
            if counted:
                await request.send(counted)
        return {} if is_behind else await request.read(read_menu_counts, lifecycles)
    except StoreError:
        return {}  # the page itself says what is wrong


def read_menu_counts(connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle]) -> Counts:
    """Reads how many wait for a person, and how many are dead letters."""
    of_people, inbox, dead = set(waiting(lifecycles)), 0, 0
    for each in list_states(read_moves(connection, tenant)):
        inbox += each.units if (each.lifecycle, each.state) in of_people else 0
        if each.lifecycle in lifecycles and each.state in lifecycles[each.lifecycle].states:
            dead += each.units if lifecycles[each.lifecycle].category(each.state) is Category.DEAD else 0
    return {INBOX: inbox, DEAD_LETTERS: dead}
