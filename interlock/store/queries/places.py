"""Queries of names in a parent, of needs, and of the results of what a unit needs."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from interlock.kernel.rows import NamedPlace
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_pages
from interlock.store.unit_of_work import UnitOfWork

AT_ONCE = 500  # names in one question
PLACES = (
    "SELECT place.parent, place.name, place.unit, place.tenant, unit.id FROM place "
    "LEFT JOIN unit ON unit.id = place.unit WHERE place.parent = :parent AND place.name {ids}"
)
# Every need of the open units that can be reached from some, along what they need.
NEEDS_BELOW = """
WITH RECURSIVE below (unit, needs) AS (
    SELECT need.unit, need.needs FROM need WHERE need.unit {ids}
    UNION
    SELECT need.unit, need.needs FROM below JOIN need ON need.unit = below.needs
    JOIN unit ON unit.id = need.unit WHERE unit.outcome IS NULL AND unit.unmet > 0
)
SELECT unit, needs FROM below
"""
# One value per row and table: a join may be planned from its other end, which reads all units that ever succeeded.
RESULTS_OF_NEEDS = """
SELECT need.unit, need.needs, (SELECT name FROM place WHERE place.unit = need.needs),
       (SELECT lifecycle FROM unit WHERE unit.id = need.needs AND unit.outcome = 'success'),
       (SELECT coalesce(length(result), 4) FROM body WHERE body.unit = need.needs)
  FROM need WHERE need.unit {ids} ORDER BY need.unit, need.needs
"""
PARENTS = "SELECT DISTINCT parent FROM unit WHERE id {ids}"
LOOK_ALONE = "SELECT pg_advisory_xact_lock(7327, (:tenant)::integer)"
WAITING_FOR = (
    "SELECT (SELECT id FROM unit WHERE unit.id = need.unit AND unit.outcome IS NULL), need.needs FROM need "
    "WHERE need.needs {ids} AND need.by_end = 0"
)


def read_places(tx: UnitOfWork, parent: int, names: Sequence[str]) -> Iterator[tuple[NamedPlace, bool]]:
    """The places of these names in a parent, each with whether its child has come."""
    for start in range(0, len(names), AT_ONCE):
        rows = tx.connection.rows(PLACES, {"parent": parent, "ids": list(names[start : start + AT_ONCE])})
        for *place, unit in rows:
            yield NamedPlace(*place), unit is not None


def read_names(tx: UnitOfWork, units: Sequence[int]) -> dict[int, str]:
    """The names that these units have in their parents; those without one are left out."""
    return dict(tx.connection.rows("SELECT unit, name FROM place WHERE unit {ids}", {"ids": list(units)}))


def find_missing_places(tx: UnitOfWork, parent: int) -> list[tuple[str, int]]:
    """The names in a parent that an open unit needs and that no child has yet, each with the id that it will have."""
    sql = (
        "SELECT DISTINCT place.name, place.unit FROM place LEFT JOIN unit ON unit.id = place.unit "
        "JOIN need ON need.needs = place.unit JOIN unit AS waiting ON waiting.id = need.unit "
        "WHERE place.parent = :parent AND unit.id IS NULL AND waiting.outcome IS NULL ORDER BY place.name LIMIT :limit"
    )
    rows = tx.connection.rows(sql, {"parent": parent, "limit": AT_ONCE})
    return [(name, unit) for name, unit in rows]


def read_needs_below(tx: UnitOfWork, units: Sequence[int]) -> list[tuple[int, int]]:
    """What these units need and have not got, what that needs, and so on: pairs of a unit and its need."""
    return [(unit, needs) for unit, needs in tx.connection.rows(NEEDS_BELOW, {"ids": list(units)})]


def read_parents(tx: UnitOfWork, units: Sequence[int]) -> set[int | None]:
    """The parents of these units, None among them if one has none; empty on SQLite, where nobody else writes."""
    if tx.connection.name == "sqlite":
        return set()
    return {parent for (parent,) in tx.connection.rows(PARENTS, {"ids": sorted(set(units))})}


def look_for_circles_alone(tx: UnitOfWork) -> bool:
    """Until it ends, this transaction alone looks for circles through several parents of its tenant. Returns True."""
    tx.connection.rows(LOOK_ALONE, {"tenant": tx.tenant})
    return True


def find_waiting_for(tx: UnitOfWork, units: Sequence[int]) -> list[tuple[int, int]]:
    """The open units that need the success of these, each with the one that it needs."""
    rows = tx.connection.rows(WAITING_FOR, {"ids": list(units)})
    return [(unit, needs) for unit, needs in rows if unit is not None]


# Results of what units need.


class ResultOfNeed(NamedTuple):
    """A need that has succeeded: what it is called in its parent, and how many characters its result has."""

    needs: int
    name: str | None
    lifecycle: str
    length: int


def list_results_of_needs(tx: UnitOfWork, units: Sequence[int]) -> dict[int, list[ResultOfNeed]]:
    """By unit: what it needs and has succeeded, the oldest first. The results themselves are not read."""
    results: dict[int, list[ResultOfNeed]] = {}
    for unit, needs, name, lifecycle, length in tx.connection.rows(RESULTS_OF_NEEDS, {"ids": list(units)}):
        if lifecycle is not None:
            results.setdefault(unit, []).append(ResultOfNeed(needs, name, lifecycle, length))
    return results


def read_results_of(tx: UnitOfWork, units: Sequence[int], following: Sequence[int]) -> dict[int, str]:
    """The results of units, as JSON text; those that have none are left out.

    Units that follow their attempts (`following`) have the result of the one that succeeded.
    """
    own = "SELECT unit, result FROM body WHERE unit {ids} AND result IS NOT NULL"
    below = (
        "SELECT unit.parent, body.result FROM unit JOIN body ON body.unit = unit.id "
        "WHERE unit.parent {ids} AND unit.outcome = 'success' AND body.result IS NOT NULL"
    )
    results: dict[int, str] = dict(tx.connection.rows(below, {"ids": list(following)})) if following else {}
    return {**results, **dict(tx.connection.rows(own, {"ids": list(units)}))} if units else results


# What laws ask.


class LostNeed(NamedTuple):
    """An open unit that nobody stops or holds, and a need of it that has ended without success."""

    unit: int
    needs: int
    needed_lifecycle: str
    needed_state: str
    parent_lifecycle: str | None


class NamedChild(NamedTuple):
    """A unit that has a name, or a place, and what its place says: the parent and the name there."""

    unit: int
    lifecycle: str
    parent: int | None
    parent_lifecycle: str | None
    policy: str
    place: tuple[int, str] | None


def read_lost_needs(connection: Connection) -> Iterator[LostNeed]:
    """The open units that wait for the success of something that has ended without it."""
    sql = (
        "SELECT need.unit, need.needs, needed.lifecycle, needed.state, parent.lifecycle FROM need "
        "JOIN unit ON unit.id = need.unit JOIN unit AS needed ON needed.id = need.needs "
        "LEFT JOIN unit AS parent ON parent.id = unit.parent "
        "WHERE need.by_end = 0 AND unit.outcome IS NULL AND needed.outcome <> 'success' AND unit.holder IS NULL "
        "AND unit.asked_at IS NULL AND unit.category <> 'closing' "
        "AND (parent.id IS NULL OR (parent.outcome IS NULL AND parent.category <> 'closing')) ORDER BY 1, 2"
    )
    yield from (LostNeed(*row) for row in connection.rows(sql))


def read_named_children(connection: Connection) -> Iterator[NamedChild]:
    """Every unit that says that it has a name in its parent, or that has a place."""
    sql = (
        "SELECT unit.id, unit.lifecycle, unit.parent, parent.lifecycle, body.policy, place.parent, place.name "
        "FROM unit JOIN body ON body.unit = unit.id LEFT JOIN place ON place.unit = unit.id "
        "LEFT JOIN unit AS parent ON parent.id = unit.parent "
        "WHERE unit.id > :last AND (place.unit IS NOT NULL OR (unit.parent IS NOT NULL AND body.policy LIKE :named)) "
        "ORDER BY unit.id LIMIT :page"
    )
    for unit, lifecycle, parent, above, policy, place, name in read_pages(connection, sql, named='%"step":%'):
        yield NamedChild(unit, lifecycle, parent, above, policy, None if name is None else (place, name))


def has_place(connection: Connection, parent: int, name: str) -> bool:
    """Whether a parent has a place of that name, whoever is in it."""
    sql = "SELECT 1 FROM place WHERE parent = :parent AND name = :name"
    return bool(connection.rows(sql, {"parent": parent, "name": name}))


def read_needs_of_nothing(connection: Connection) -> list[tuple[int, int]]:
    """Units, each with a need of it that names neither a unit nor a place."""
    sql = (
        "SELECT need.unit, need.needs FROM need LEFT JOIN unit ON unit.id = need.needs "
        "LEFT JOIN place ON place.unit = need.needs WHERE unit.id IS NULL AND place.unit IS NULL ORDER BY 1, 2"
    )
    return [(unit, needs) for unit, needs in connection.rows(sql)]
