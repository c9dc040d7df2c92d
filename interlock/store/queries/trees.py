"""Queries of many units: those in given states, and a unit with all below it."""

from collections.abc import Sequence

import msgspec

from interlock.kernel.errors import Unknown
from interlock.kernel.rows import Event, Need, Note
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_rows
from interlock.store.queries.views import View, select_views
from interlock.store.query import list_params, list_placeholders

TREE_MAX = 1_000  # units of a tree that are looked at
# The same words as in the index: else SQLite does not see that it serves.
RESTS = "unit.rests_in IS NOT NULL"


def find_resting(
    connection: Connection, tenant: int, states: Sequence[tuple[str, str]], limit: int, after: int = 0
) -> list[View]:
    """Units that rest in one of these states, each named with its lifecycle: the oldest first, from `after` on."""
    if not states:
        return []
    born = connection.rows("SELECT born FROM unit WHERE id = :unit", {"unit": after})
    sql, given = select_resting(states, "(born, id) > (:born, :after) ORDER BY born, id")
    given |= {"born": born[0][0] if born else 0, "after": after}
    first = f"unit.id IN (SELECT id FROM ({sql}) AS each_state ORDER BY born, id LIMIT :limit)"
    return select_views(connection, tenant, [first], given, limit, "unit.born, unit.id")


def select_resting(states: Sequence[tuple[str, str]], rest: str) -> tuple[str, dict[str, object]]:
    """The births, ids and lifecycles of units that rest in these states, as SQL with its parameters.

    Of each state at most `:limit` are read, by the index: those that `rest` means, in its order.
    """
    of_state = (
        f"SELECT born, id, lifecycle FROM unit WHERE tenant = :tenant AND {RESTS} AND lifecycle = :life{{0}} "
        f"AND rests_in = :state{{0}} AND {rest} LIMIT :limit"
    )
    each = " UNION ALL ".join(f"SELECT * FROM ({of_state.format(n)}) AS part{n}" for n in range(len(states)))
    given: dict[str, object] = {f"life{n}": lifecycle for n, (lifecycle, _) in enumerate(states)}
    return each, given | {f"state{n}": state for n, (_, state) in enumerate(states)}


class Tree(msgspec.Struct, frozen=True):
    """A unit and all below it, each with its depth, a parent before its children and these by age."""

    units: list[tuple[int, View]]
    cut: bool  # there is more than was looked at
    needs: list[Need]  # of these units, on whichever

    @property
    def top(self) -> View:
        return self.units[0][1]

    @property
    def ids(self) -> list[int]:
        return [row.unit.id for _, row in self.units]


def read_tree(connection: Connection, tenant: int, unit: int, limit: int = TREE_MAX) -> Tree:
    """A unit and all below it, by one question; of a larger tree its upper part.

    Raises:
        Unknown: there is none.
    """
    below = (
        "WITH RECURSIVE tree (id) AS (SELECT id FROM unit WHERE id = :top AND tenant = :tenant UNION ALL "
        "SELECT unit.id FROM tree JOIN unit ON unit.parent = tree.id) SELECT id FROM tree LIMIT :limit"
    )
    rows = select_views(
        connection, tenant, [f"unit.id IN (SELECT id FROM ({below}) AS part)"], {"top": unit}, limit + 1
    )
    if not rows:
        raise Unknown(f"no job, run or step {unit}")
    cut = len(rows) > limit
    ordered = arrange_tree(rows, unit)[:limit]
    return Tree(ordered, cut, read_needs_in(connection, tenant, [row.unit.id for _, row in ordered]))


def arrange_tree(rows: Sequence[View], top: int) -> list[tuple[int, View]]:
    """These units as a tree: each with its depth, a parent before its children and these by age."""
    below: dict[int | None, list[View]] = {}
    for row in sorted(rows, key=lambda row: row.unit.id, reverse=True):
        below.setdefault(None if row.unit.id == top else row.unit.parent, []).append(row)
    left, ordered = [(0, row) for row in below[None]], []
    while left:
        depth, row = left.pop()
        ordered.append((depth, row))
        left += [(depth + 1, child) for child in below.get(row.unit.id, ())]
    return ordered


def read_needs_in(connection: Connection, tenant: int, units: Sequence[int]) -> list[Need]:
    """What these units need."""
    rest = f"WHERE tenant = :tenant AND unit IN ({list_placeholders(units)}) ORDER BY unit, needs"
    return read_rows(connection, Need, rest, tenant=tenant, **list_params(units)) if units else []


def read_notes_in(connection: Connection, tenant: int, units: Sequence[int], kind: str) -> dict[int, list[Note]]:
    """The notes of one kind that these units have, by unit, the oldest first."""
    by_unit: dict[int, list[Note]] = {unit: [] for unit in units}
    rest = f"WHERE tenant = :tenant AND unit IN ({list_placeholders(units)}) AND kind = :named ORDER BY id"
    for note in read_rows(connection, Note, rest, tenant=tenant, named=kind, **list_params(units)) if units else ():
        by_unit[note.unit].append(note)
    return by_unit


def read_births(connection: Connection, tenant: int, units: Sequence[int]) -> dict[int, str]:
    """Who made each of these units."""
    sql = "SELECT unit.id, act.actor FROM unit JOIN act ON act.id = unit.born WHERE unit.tenant = :tenant"
    sql = f"{sql} AND unit.id IN ({list_placeholders(units)})"
    return dict(connection.rows(sql, {"tenant": tenant, **list_params(units)})) if units else {}


def read_events_in(connection: Connection, tenant: int, units: Sequence[int], until: int) -> dict[int, list[Event]]:
    """What had happened to these units up to an instant, by unit, in order."""
    by_unit: dict[int, list[Event]] = {unit: [] for unit in units}
    rest = f"WHERE tenant = :tenant AND unit IN ({list_placeholders(units)}) AND at <= :until ORDER BY unit, version"
    for event in read_rows(connection, Event, rest, tenant=tenant, until=until, **list_params(units)) if units else ():
        by_unit[event.unit].append(event)
    return by_unit


def read_ordered_events(connection: Connection, tenant: int, units: Sequence[int]) -> list[Event]:
    """What has happened to these units, in the order of the feed: a cause before its effect."""
    rest = f"WHERE tenant = :tenant AND unit IN ({list_placeholders(units)}) ORDER BY act, unit, version"
    return read_rows(connection, Event, rest, tenant=tenant, **list_params(units)) if units else []
