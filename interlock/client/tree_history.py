"""Replay the history of a tree: its state after each event."""

from collections.abc import Mapping, Sequence

import msgspec

from interlock.client.trees import LATER, TreeRows, TreeSnapshot, build_tree_snapshot
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Event
from interlock.store.connection import Connection
from interlock.store.queries.trees import read_notes_in, read_ordered_events, read_tree


class TreeHistory(msgspec.Struct, frozen=True):
    """The rows of a tree as they are now, and its events, a cause before its effect."""

    rows: TreeRows
    events: Sequence[Event]

    @property
    def top(self) -> int:
        return self.rows.tree.top.unit.id

    @property
    def first(self) -> int:
        """How many events there must be for the topmost to be there."""
        return next((place for place, event in enumerate(self.events, 1) if event.unit == self.top), 1)


def read_tree_history(connection: Connection, tenant: int, unit: int) -> TreeHistory:
    """Reads a unit and all below it with all that happened to them.

    Raises:
        Unknown: there is none.
    """
    tree = read_tree(connection, tenant, unit)
    held = [view.unit.id for _, view in tree.units if view.unit.holder is not None]
    events = read_ordered_events(connection, tenant, tree.ids)
    rows = TreeRows(
        tree, LATER, False, connection.now(), group_by_unit(tree.ids, events),
        read_notes_in(connection, tenant, tree.ids, "vote"), read_notes_in(connection, tenant, held, "progress"),
    )  # fmt: skip
    return TreeHistory(rows, events)


def group_by_unit(units: Sequence[int], events: Sequence[Event]) -> dict[int, list[Event]]:
    """Groups events by their unit, those without events included."""
    by_unit: dict[int, list[Event]] = {unit: [] for unit in units}
    for event in events:
        by_unit[event.unit].append(event)
    return by_unit


def cut_history(history: TreeHistory, count: int) -> TreeRows:
    """The rows of a tree as they were after so many of its events; after all of them, as they are now."""
    if count >= len(history.events):
        return history.rows
    events = history.events[:count]
    return msgspec.structs.replace(
        history.rows, until=max(event.at for event in events), past=True,
        events=group_by_unit(history.rows.tree.ids, events), progress={},
    )  # fmt: skip


def build_past_tree(history: TreeHistory, count: int, lifecycles: Mapping[str, Lifecycle]) -> TreeSnapshot:
    """The tree as it was after so many of its events."""
    return build_tree_snapshot(cut_history(history, count), lifecycles)
