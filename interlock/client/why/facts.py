"""The facts that an explanation needs, read from one snapshot of the database."""

from collections.abc import Mapping
from typing import Any

import msgspec

from interlock.core.effective_policy import budget_of, policy_of
from interlock.core.notes import TRACEBACK
from interlock.core.reactions.roll_up import BY_PARENT
from interlock.kernel.commands import Policy
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.lifecycle_options import Budget
from interlock.kernel.rows import Event, Note, PauseRow, Slot, Tenant, Unit, WorkerRow
from interlock.plugins.agents.contracts import CAPABILITY
from interlock.plugins.agents.queries import read_newest_contract
from interlock.plugins.pauses.queries import find_pauses_over
from interlock.store.connection import Connection
from interlock.store.queries import views
from interlock.store.queries.task_graphs import Blocker, find_blockers
from interlock.store.queries.tenants import count_held, read_tenant
from interlock.store.queries.views import (
    Needed,
    View,
    children_of,
    count_ahead,
    events_of,
    find_lost_children,
    find_next_token,
    find_slot_holders,
    last_event,
    needs_of,
    notes_of,
    read_slot,
    workers_seen,
)
from interlock.store.queries.workers import EndedLease, list_ended_leases, list_held, read_worker

NO_SUCCESS = (Category.FAILURE, Category.CANCELLED, Category.DEAD)
CULPRITS_MAX = 20  # children that are looked at for the one that ended its parent
HELD_MAX, LEASES_MAX = 5, 100  # units that a worker holds, and leases of it that have ended
BLOCKERS_MAX = 5
EVENTS_MAX = 200  # of the last ones that are looked at
COLUMNS = {"mutex": "mutex", "limit": "limit_key", "rate": "rate_key"}  # by what a parked unit is parked on


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One unit, and what stands around it."""

    now: int
    view: View
    lifecycles: Mapping[str, Lifecycle]
    events: list[Event]
    notes: list[Note]
    parent: View | None = None
    children: list[View] = []
    child: "Facts | None" = None  # whose moves it makes
    culprit: "Facts | None" = None  # the child whose end was its end
    needs: list[Needed] = []
    slot: Slot | None = None
    seated: list[View] = []
    token_at: int | None = None  # when the rate that it is parked on has a token again
    workers: list[tuple[WorkerRow, Unit]] = []
    ahead: int = 0
    tenant: Tenant | None = None  # if it has a limit of what is held
    held_of_tenant: int = 0
    worker: WorkerRow | None = None  # if it is a worker
    holds: list[tuple[int, str, str]] = []  # by it: units, each with its lifecycle and its state
    ended_leases: list[EndedLease] = []  # of it, the last one first
    blockers: list[Blocker] = []  # what it can never begin behind
    newest_contract: str = ""  # that a program has told of its agent last: the digest
    pauses: list[tuple[PauseRow, str]] = []  # that keep it or what is below it from starting, with what is paused

    @property
    def unit(self) -> Unit:
        return self.view.unit

    @property
    def name(self) -> str:
        return format_id(self.unit.lifecycle, self.unit.id)

    @property
    def lifecycle(self) -> Lifecycle:
        return self.lifecycles[self.unit.lifecycle]

    @property
    def held(self) -> bool:
        """Whether somebody has a live lease on it, as far as the record says."""
        lease = self.unit.lease
        return lease is not None and not self.lifecycles["lease"].settled(lease)

    @property
    def policy(self) -> Policy:
        return policy_of(self.view.body)

    @property
    def budget(self) -> Budget:
        return budget_of(self.lifecycle.options.budget, self.policy)

    @property
    def last(self) -> Event | None:
        """Its last move; a hop of its lease alone is none."""
        moves = [event for event in self.events if event.source != event.target or event.trigger != "self"]
        return moves[-1] if moves else None

    @property
    def traceback(self) -> Note | None:
        """That of its last failed attempt, or of the child whose end was its end; of a success there is none."""
        if self.unit.outcome == Category.SUCCESS:
            return None
        own = [note for note in self.notes if note.kind == TRACEBACK]
        below = self.culprit or self.child
        return own[-1] if own else below.traceback if below else None

    @property
    def claimable(self) -> bool:
        """Whether it waits for a worker, if for nothing else."""
        return self.lifecycle.allows(self.unit.state, "claim") or (
            self.lifecycle.allows(self.unit.state, "reclaim") and not self.held
        )


def gather(connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int) -> Facts:
    """All that bears on why a unit is where it is.

    Raises:
        Unknown: there is none.
    """
    view = views.view(connection, tenant, unit)
    events = events_of(connection, tenant, unit, max(0, view.unit.version - EVENTS_MAX))
    notes = notes_of(connection, tenant, unit)
    facts = Facts(now=connection.now(), view=view, lifecycles=lifecycles, events=events, notes=notes)
    if view.unit.lifecycle not in lifecycles:
        return facts
    if worker := read_worker(connection, tenant, unit) if view.unit.lane == 0 else None:
        holds = list_held(connection, tenant, unit, HELD_MAX)
        ended_leases = list_ended_leases(connection, tenant, unit, LEASES_MAX)
        return msgspec.structs.replace(facts, worker=worker, holds=holds, ended_leases=ended_leases)
    parent = views.view(connection, tenant, view.unit.parent) if view.unit.parent is not None else None
    children = children_of(connection, tenant, unit) if view.unit.total else []
    facts = msgspec.structs.replace(facts, parent=parent, children=children)
    if facts.lifecycle.settled(view.unit.state):
        ended = find_culprit(connection, tenant, unit) if view.unit.total and view.unit.outcome in NO_SUCCESS else None
        return msgspec.structs.replace(facts, culprit=gather(connection, tenant, lifecycles, ended)) if ended else facts
    if facts.lifecycle.options.follows and (still_open := [child for child in children if child.unit.outcome is None]):
        return msgspec.structs.replace(facts, child=gather(connection, tenant, lifecycles, still_open[-1].unit.id))
    return gather_surroundings(connection, tenant, facts)


def find_culprit(connection: Connection, tenant: int, parent: int) -> int | None:
    """The child whose end was the end of its parent: the first that ended without success, and not by its parent."""
    for child in find_lost_children(connection, tenant, parent, CULPRITS_MAX):
        last = last_event(connection, tenant, child)
        if last and last.reason not in BY_PARENT:
            return child
    return None


def gather_surroundings(connection: Connection, tenant: int, facts: Facts) -> Facts:
    """What an open unit may wait for: needs, keys and workers."""
    unit = facts.unit
    more: dict[str, Any] = {}
    if unit.unmet:
        more["needs"] = needs_of(connection, tenant, unit.id)
        more["blockers"] = find_blockers(connection, tenant, unit.id, BLOCKERS_MAX)
    if unit.parked_on:
        kind, _, key = unit.parked_on.partition(":")
        more["slot"] = read_slot(connection, tenant, unit.parked_on)
        more["seated"] = find_slot_holders(connection, tenant, COLUMNS[kind], key) if kind in COLUMNS else []
        more["token_at"] = find_next_token(connection, tenant, unit.parked_on) if kind in ("rate", "resource") else None
    if facts.claimable and not unit.parked_on:
        more["workers"] = workers_seen(connection, tenant)
        more["ahead"] = count_ahead(connection, tenant, unit) if unit.available_at is not None else 0
        if any(word.startswith(CAPABILITY) for word in facts.view.capabilities):
            newest = read_newest_contract(connection, tenant, facts.view.body.task)
            more["newest_contract"] = newest[0] if newest else ""
        row = read_tenant(connection, tenant)
        if row and row.max_running is not None:
            more |= {"tenant": row, "held_of_tenant": count_held(connection, tenant)}
    more["pauses"] = find_pauses_over(connection, facts.view, facts.now)
    return msgspec.structs.replace(facts, **more)
