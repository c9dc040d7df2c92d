"""A unit and all below it as people look at it, now or at an instant: where each stands, and what it waits for."""

from collections.abc import Mapping, Sequence

import msgspec

from interlock.audit.laws.rebuild import Told
from interlock.audit.time_travel import Stand, stood
from interlock.client.durations import stated
from interlock.core.effective_policy import policy_of
from interlock.kernel.approvals import asked, ballot
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle, Owner
from interlock.kernel.rows import Event, Note
from interlock.store.connection import Connection
from interlock.store.queries.trees import Tree, events_in, notes_in, tree_of
from interlock.store.queries.views import View

LATER = 2**62  # later than every event
NAMED_MAX = 3  # needs that are told by name


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One unit of a tree."""

    unit: int
    id: str
    parent: int | None
    depth: int
    task: str
    lifecycle: str
    state: str
    category: str
    outcome: str | None
    attempt: int
    version: int
    born_at: int
    began_at: int | None
    ended_at: int | None
    cost: float  # with all below it
    worker: str | None  # who holds it now
    waits_for: str
    needs: tuple[int, ...]  # units that it needs, also those outside of the tree
    progress: tuple[float, str] | None = None  # how far it says that it is

    @property
    def settled(self) -> bool:
        return self.category in SETTLED


class Picture(msgspec.Struct, frozen=True):
    """A tree at an instant, a parent before its children and these by age."""

    at: int
    nodes: tuple[Node, ...]
    cut: bool  # there is more than is shown

    def took(self, node: Node) -> int | None:
        """For how long somebody was at it, or is; None: nobody was yet."""
        return None if node.began_at is None else (node.ended_at or self.at) - node.began_at


class Seen(msgspec.Struct, frozen=True):
    """What was read of a tree, for the instant up to which it was read."""

    tree: Tree
    until: int
    past: bool  # only what events and votes tell is known of the past
    now: int
    events: Mapping[int, Sequence[Event]]
    votes: Mapping[int, Sequence[Note]]
    progress: Mapping[int, Sequence[Note]]


def picture(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int, at: int | None = None
) -> Picture:
    """A unit and all below it, now or as they were; nothing of what was not born yet. Raises Unknown."""
    return pictured(see(connection, tenant, unit, at), lifecycles)


def see(connection: Connection, tenant: int, unit: int, at: int | None) -> Seen:
    tree, until = tree_of(connection, tenant, unit), LATER if at is None else at
    held = [] if at is not None else [one.unit.id for _, one in tree.units if one.unit.holder is not None]
    return Seen(
        tree, until, at is not None, connection.now(), events_in(connection, tenant, tree.ids, until),
        notes_in(connection, tenant, tree.ids, "vote"), notes_in(connection, tenant, held, "progress"),
    )  # fmt: skip


def pictured(seen: Seen, lifecycles: Mapping[str, Lifecycle]) -> Picture:
    """What was read, as a picture."""
    stands = {one: stand for one in seen.tree.ids if (stand := stand_of(seen.events[one], lifecycles, seen.until))}
    there = [(depth, one) for depth, one in seen.tree.units if one.unit.id in stands]
    costs, around = summed(there, stands), surroundings(seen, lifecycles, stands)
    nodes = []
    for depth, one in there:
        stand = stands[one.unit.id]
        nodes.append(
            Node(
                unit=one.unit.id, id=format_id(one.unit.lifecycle, one.unit.id), parent=one.unit.parent, depth=depth,
                task=name_of(one), lifecycle=one.unit.lifecycle, state=stand.told.state or "",
                category=stand.told.category, outcome=stand.told.outcome, attempt=stand.told.attempt,
                version=stand.told.version, born_at=stand.born_at, began_at=stand.began_at, ended_at=stand.ended_at,
                cost=round(costs[one.unit.id], 6), worker=None if seen.past else one.holder,
                waits_for=waits(around, one), needs=around.needs.get(one.unit.id, ()),
                progress=how_far(seen.progress.get(one.unit.id, ())),
            )
        )  # fmt: skip
    return Picture(seen.until if seen.past else seen.now, tuple(nodes), seen.tree.cut)


def stand_of(events: Sequence[Event], lifecycles: Mapping[str, Lifecycle], until: int) -> Stand | None:
    """Where a unit stood; of a lifecycle that is not known here, only its state."""
    if not events or events[0].lifecycle in lifecycles:
        return stood(events, lifecycles, until)
    last = events[-1]
    return Stand(Told(state=last.target, version=last.version, attempt=last.attempt), events[0].at)


def summed(there: Sequence[tuple[int, View]], stands: Mapping[int, Stand]) -> dict[int, float]:
    """What each unit has cost, with all below it."""
    costs = {one.unit.id: stands[one.unit.id].cost for _, one in there}
    for _, one in reversed(there):
        if one.unit.parent in costs:
            costs[one.unit.parent] += costs[one.unit.id]
    return costs


def how_far(notes: Sequence[Note]) -> tuple[float, str] | None:
    """How far a unit said last that it is."""
    try:
        said = msgspec.json.decode(notes[-1].payload) if notes else None
    except msgspec.MsgspecError:
        return None
    if not isinstance(said, dict) or not isinstance(said.get("done"), int | float):
        return None
    return min(1.0, max(0.0, float(said["done"]))), str(said.get("text", ""))


# What a unit waits for: the first that holds.


class Around(msgspec.Struct, frozen=True):
    """What stands around the units of a tree."""

    seen: Seen
    lifecycles: Mapping[str, Lifecycle]
    stands: Mapping[int, Stand]
    tasks: Mapping[int, str]
    needs: Mapping[int, tuple[int, ...]]
    children: Mapping[int, Sequence[Stand]]


def surroundings(seen: Seen, lifecycles: Mapping[str, Lifecycle], stands: Mapping[int, Stand]) -> Around:
    needs: dict[int, tuple[int, ...]] = {}
    children: dict[int, list[Stand]] = {}
    for need in seen.tree.needs:
        needs[need.unit] = (*needs.get(need.unit, ()), need.needs)
    for _, one in seen.tree.units:
        if one.unit.parent is not None and one.unit.id in stands:
            children.setdefault(one.unit.parent, []).append(stands[one.unit.id])
    return Around(seen, lifecycles, stands, {one.unit.id: name_of(one) for _, one in seen.tree.units}, needs, children)


def waits(around: Around, one: View) -> str:
    """What keeps a unit where it is, in a few words; nothing if it is worked on, or has ended."""
    told, seen = around.stands[one.unit.id].told, around.seen
    lifecycle = around.lifecycles.get(one.unit.lifecycle)
    if lifecycle is None or told.state is None or told.category in SETTLED:
        return ""
    return (
        for_needs(around, one.unit.id)
        or for_somebody(lifecycle, told.state, one, [note for note in seen.votes[one.unit.id] if note.at <= seen.until])
        or ("" if seen.past else for_a_time_or_a_key(one, seen.now))
        or for_children(around.children.get(one.unit.id, ()))
        or for_a_plan(around, one)
        or {Category.READY: "a worker", Category.HELD: "its worker to begin"}.get(Category(told.category), "")
    )


def for_needs(around: Around, unit: int) -> str:
    known = [(need, around.stands[need].told) for need in around.needs.get(unit, ()) if need in around.stands]
    unmet = [around.tasks[need] for need, told in known if told.outcome != Category.SUCCESS]
    more = f" and {len(unmet) - NAMED_MAX} more" if len(unmet) > NAMED_MAX else ""
    return f"{', '.join(unmet[:NAMED_MAX])}{more}" if unmet else ""


def name_of(one: View) -> str:
    """What people call a unit: as its workflow does, or by its task."""
    return policy_of(one.body).step or one.body.task


def for_somebody(lifecycle: Lifecycle, state: str, one: View, votes: Sequence[Note]) -> str:
    own = policy_of(one.body)
    if words := asked(lifecycle, state, (Owner.PERSON,)):
        who = ", ".join(own.approvers) or "a person"
        given = sum(ballot(note.payload).approve for note in votes)
        count = f" ({given} of {own.quorum} votes)" if own.quorum else ""
        return f"{who} to say {' or '.join(words)}{count}"
    words = asked(lifecycle, state, (Owner.VALIDATOR,))
    return f"a check to say {' or '.join(words)}" if words else ""


def for_a_time_or_a_key(one: View, now: int) -> str:
    kind, _, key = (one.unit.parked_on or "").partition(":")
    if kind == "signal":
        return f"the signal '{key.partition(':')[2]}'"
    if one.unit.due_at is not None and one.unit.due_at > now:
        return stated(one.unit.due_at)
    return f"the {kind} '{key}'" if kind else ""


def for_children(children: Sequence[Stand]) -> str:
    left = sum(child.told.outcome is None for child in children)
    return f"{left} of {len(children)} children" if left else ""


def for_a_plan(around: Around, one: View) -> str:
    above = around.stands.get(one.unit.parent or 0)
    lifecycle = around.lifecycles.get(above.told.lifecycle) if above else None
    return "the plan of its run" if above and lifecycle and lifecycle.allows(above.told.state, "plan") else ""
