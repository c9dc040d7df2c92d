"""A job or run with all below it, now or at an earlier time: states, and what each waits for."""

from collections.abc import Mapping, Sequence

import msgspec

from interlock.audit.laws.rebuild import FoldedRow
from interlock.audit.time_travel import PastState, fold_until
from interlock.client.durations import format_time
from interlock.client.steps import get_step_name
from interlock.core.effective_policy import policy_of
from interlock.kernel.approvals import ballot, triggers_for
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle, Owner
from interlock.kernel.rows import Event, Need, Note
from interlock.store.connection import Connection
from interlock.store.queries.trees import Tree, read_events_in, read_notes_in, read_tree
from interlock.store.queries.views import View

LATER = 2**62  # later than every event
NAMED_MAX = 3  # needs that are named


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    """One job, run or step of a tree."""

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
    needs: tuple[int, ...]  # also those outside of the tree
    progress: tuple[float, str] | None = None  # from 0 to 1, and a text

    @property
    def settled(self) -> bool:
        return self.category in SETTLED

    @property
    def shown_category(self) -> str:
        """Returns the category that it is shown with: of what is closed, that in which it had ended."""
        return self.outcome or self.category if self.category == Category.CLOSED else self.category


class TreeSnapshot(msgspec.Struct, frozen=True):
    """A tree at an instant, a parent before its children and these by age."""

    at: int
    nodes: tuple[TreeNode, ...]
    cut: bool  # there is more than is shown

    def duration_us(self, node: TreeNode) -> int | None:
        """Returns for how long it ran, or has run so far, in microseconds; None if it has not begun."""
        return None if node.began_at is None else (node.ended_at or self.at) - node.began_at


class TreeRows(msgspec.Struct, frozen=True):
    """The rows of a tree, and the instant up to which they were read."""

    tree: Tree
    until: int
    past: bool  # of the past only events and votes are known
    now: int
    events: Mapping[int, Sequence[Event]]
    votes: Mapping[int, Sequence[Note]]
    progress: Mapping[int, Sequence[Note]]


def read_tree_snapshot(
    connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int, at: int | None = None
) -> TreeSnapshot:
    """Reads a unit and all below it, now or as they were at `at`, in microseconds UTC.

    Raises:
        Unknown: there is none.
    """
    return build_tree_snapshot(read_tree_rows(connection, tenant, unit, at), lifecycles)


def read_tree_rows(connection: Connection, tenant: int, unit: int, at: int | None) -> TreeRows:
    """Reads the rows of a tree, now or up to `at`, in microseconds UTC.

    Raises:
        Unknown: there is none.
    """
    tree, until = read_tree(connection, tenant, unit), LATER if at is None else at
    held = [] if at is not None else [view.unit.id for _, view in tree.units if view.unit.holder is not None]
    return TreeRows(
        tree, until, at is not None, connection.now(), read_events_in(connection, tenant, tree.ids, until),
        read_notes_in(connection, tenant, tree.ids, "vote"), read_notes_in(connection, tenant, held, "progress"),
    )  # fmt: skip


def build_tree_snapshot(rows: TreeRows, lifecycles: Mapping[str, Lifecycle]) -> TreeSnapshot:
    """Makes a snapshot of the rows of a tree."""
    stands = {unit: stand for unit in rows.tree.ids if (stand := find_stand(rows.events[unit], lifecycles, rows.until))}
    born = [(depth, view) for depth, view in rows.tree.units if view.unit.id in stands]
    costs, surroundings = sum_costs(born, stands), make_surroundings(rows, lifecycles, stands)
    nodes = []
    for depth, view in born:
        stand, unit = stands[view.unit.id], view.unit
        nodes.append(
            TreeNode(
                unit=unit.id, id=format_id(unit.lifecycle, unit.id), parent=unit.parent, depth=depth,
                task=get_step_name(view), lifecycle=unit.lifecycle, state=stand.folded.state or "",
                category=stand.folded.category, outcome=stand.folded.outcome, attempt=stand.folded.attempt,
                version=stand.folded.version, born_at=stand.born_at, began_at=stand.began_at, ended_at=stand.ended_at,
                cost=round(costs[unit.id], 6), worker=None if rows.past else view.holder,
                waits_for=describe_wait(surroundings, view),
                needs=tuple(need.needs for need in surroundings.needs.get(unit.id, ())),
                progress=parse_progress(rows.progress.get(unit.id, ())),
            )
        )  # fmt: skip
    return TreeSnapshot(rows.until if rows.past else rows.now, tuple(nodes), rows.tree.cut)


def find_stand(events: Sequence[Event], lifecycles: Mapping[str, Lifecycle], until: int) -> PastState | None:
    """Returns where a unit stood; of a lifecycle that is not known here, only its state."""
    if not events or events[0].lifecycle in lifecycles:
        return fold_until(events, lifecycles, until)
    last = events[-1]
    return PastState(FoldedRow(state=last.target, version=last.version, attempt=last.attempt), events[0].at)


def sum_costs(born: Sequence[tuple[int, View]], stands: Mapping[int, PastState]) -> dict[int, float]:
    """Returns the cost of each unit, with all below it."""
    costs = {view.unit.id: stands[view.unit.id].cost for _, view in born}
    for _, view in reversed(born):
        if view.unit.parent in costs:
            costs[view.unit.parent] += costs[view.unit.id]
    return costs


def parse_progress(notes: Sequence[Note]) -> tuple[float, str] | None:
    """Returns the last progress that a handler reported: from 0 to 1, and its text."""
    try:
        progress = msgspec.json.decode(notes[-1].payload) if notes else None
    except msgspec.MsgspecError:
        return None
    if not isinstance(progress, dict) or not isinstance(progress.get("done"), int | float):
        return None
    return min(1.0, max(0.0, float(progress["done"]))), str(progress.get("text", ""))


# What a unit waits for: the first that holds.


class Surroundings(msgspec.Struct, frozen=True):
    """What stands around the units of a tree."""

    rows: TreeRows
    lifecycles: Mapping[str, Lifecycle]
    stands: Mapping[int, PastState]
    names: Mapping[int, str]
    needs: Mapping[int, Sequence[Need]]
    children: Mapping[int, Sequence[PastState]]


def make_surroundings(
    rows: TreeRows, lifecycles: Mapping[str, Lifecycle], stands: Mapping[int, PastState]
) -> Surroundings:
    """Makes what the nodes of a tree must know of each other: needs, children, names, states."""
    needs: dict[int, list[Need]] = {}
    children: dict[int, list[PastState]] = {}
    for need in rows.tree.needs:
        needs.setdefault(need.unit, []).append(need)
    for _, view in rows.tree.units:
        if view.unit.parent is not None and view.unit.id in stands:
            children.setdefault(view.unit.parent, []).append(stands[view.unit.id])
    names = {view.unit.id: get_step_name(view) for _, view in rows.tree.units}
    return Surroundings(rows, lifecycles, stands, names, needs, children)


def describe_wait(around: Surroundings, view: View) -> str:
    """Says in a few words what keeps a unit where it is; empty if it is worked on, or has ended."""
    stand, rows = around.stands[view.unit.id].folded, around.rows
    lifecycle = around.lifecycles.get(view.unit.lifecycle)
    if lifecycle is None or stand.state is None or stand.category in SETTLED:
        return ""
    votes = [note for note in rows.votes[view.unit.id] if note.at <= rows.until]
    return (
        describe_needs(around, view.unit.id)
        or describe_decision(lifecycle, stand.state, view, votes)
        or ("" if rows.past else describe_parking(view, rows.now))
        or describe_children(around.children.get(view.unit.id, ()))
        or describe_plan(around, view)
        or {Category.READY: "a worker", Category.HELD: "its worker to begin"}.get(Category(stand.category), "")
    )


def is_met(need: Need, outcome: str | None) -> bool:
    """Whether a need is met by how the needed one has ended."""
    return outcome == Category.SUCCESS or (need.by_end == 1 and outcome is not None)


def describe_needs(around: Surroundings, unit: int) -> str:
    """Says what a unit of a tree waits for among others; empty if for nothing."""
    known = [need for need in around.needs.get(unit, ()) if need.needs in around.stands]
    unmet = [around.names[need.needs] for need in known if not is_met(need, around.stands[need.needs].folded.outcome)]
    more = f" and {len(unmet) - NAMED_MAX} more" if len(unmet) > NAMED_MAX else ""
    return f"{', '.join(unmet[:NAMED_MAX])}{more}" if unmet else ""


def describe_decision(lifecycle: Lifecycle, state: str, view: View, votes: Sequence[Note]) -> str:
    """Says who may decide on a unit that waits for a person, and how many have approved."""
    policy = policy_of(view.body)
    if words := triggers_for(lifecycle, state, (Owner.PERSON,)):
        who = ", ".join(policy.approvers) or "a person"
        approvals = sum(ballot(note.payload).approve for note in votes)
        count = f" ({approvals} of {policy.quorum} votes)" if policy.quorum else ""
        return f"{who} to say {' or '.join(words)}{count}"
    words = triggers_for(lifecycle, state, (Owner.VALIDATOR,))
    return f"a check to say {' or '.join(words)}" if words else ""


def describe_parking(view: View, now: int) -> str:
    """Says for which signal, time, mutex, limit or rate it waits."""
    kind, _, key = (view.unit.parked_on or "").partition(":")
    if kind == "signal":
        return f"the signal '{key.partition(':')[2]}'"
    if view.unit.due_at is not None and view.unit.due_at > now:
        return format_time(view.unit.due_at)
    if kind == "pause":
        return "the end of a pause"
    return f"the {kind} '{key}'" if kind else ""


def describe_children(children: Sequence[PastState]) -> str:
    """Says how many children are left; empty if none is."""
    left = sum(child.folded.outcome is None for child in children)
    return f"{left} of {len(children)} children" if left else ""


def describe_plan(around: Surroundings, view: View) -> str:
    """Says whether a unit waits for the plan of its parent."""
    above = around.stands.get(view.unit.parent or 0)
    lifecycle = around.lifecycles.get(above.folded.lifecycle) if above else None
    return "the plan of its run" if above and lifecycle and lifecycle.allows(above.folded.state, "plan") else ""
