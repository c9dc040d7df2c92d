"""Lists of units, the newest first; they read little more than they show."""

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.paths import LISTED
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import decode_list
from interlock.store.queries.trees import RESTS, select_resting
from interlock.store.queries.views import FROM, OWN, Filter, View, list_conditions, select_views

CHUNK, LOOKED_MOST = 1_000, 10_000  # units that are looked at together at most, and for one page
COUNT_MOST = 10_000
ACTS_FEW = 8  # births that are read together at first
LAST = 2**62
REF = "unit.id, unit.lifecycle, unit.state, unit.outcome IS NOT NULL"
# Where a unit stands among births.
BIRTH = (
    "SELECT at, act, place FROM journal WHERE act = (SELECT born FROM unit WHERE id = :unit) AND unit = :unit "
    "AND version = 1"
)
BORN_BY = "SELECT born, id FROM unit WHERE id = :unit"  # the same among units of states that have an index
# The acts by which one kind is born, in the order of their index; one statement joins those of all kinds.
BORN = """
SELECT at, id, units, path FROM act WHERE tenant = :tenant AND path = :n{place}
AND at <= :at AND (at, id) <= (:at, :act) ORDER BY at DESC, id DESC LIMIT :limit
"""
# These units. PostgreSQL may believe that all rows of a tenant are fewer than a list of ids, and look at all of them
# for each list, if its tables have grown since they were analyzed. It is left one way: each id by the primary keys.
CHOSEN = {
    "sqlite": (FROM, ("unit.id {ids}",)),
    "postgres": (
        "FROM unnest(CAST(:ids AS bigint[])) AS chosen(id) "
        "JOIN LATERAL (SELECT * FROM unit WHERE unit.id = chosen.id OFFSET 0) AS unit ON true "
        "JOIN LATERAL (SELECT * FROM body WHERE body.unit = unit.id OFFSET 0) AS body ON true "
        "LEFT JOIN lane ON lane.id = unit.lane LEFT JOIN worker ON worker.unit = unit.holder",
        (),
    ),
}  # fmt: skip
# Few units fit these, and an index has them.
NARROW = {
    "parent": "unit.parent = :parent",
    "holder": "unit.id IN (SELECT lease.unit FROM live_lease AS lease JOIN worker ON worker.unit = lease.worker "
    "WHERE lease.tenant = :tenant AND worker.tenant = :tenant AND worker.name = :holder)",
    "correlation": "unit.id IN (SELECT unit FROM body WHERE tenant = :tenant AND correlation = :correlation)",
}


class Page(msgspec.Struct, frozen=True):
    """Units, and the id behind which to go on, if there may be more."""

    units: list[View]
    next: str | None
    looked_until: int | None = None  # when it was born that was looked at last, if that was far and little fits


class Amount(msgspec.Struct, frozen=True):
    """How many there are; `more` says that there are more than that."""

    count: int
    more: bool


class UnitRef(msgspec.Struct, frozen=True):
    """A unit, by all that whoever acts on many needs to know of each."""

    unit: int
    lifecycle: str
    state: str
    ended: bool


class UnitPage(msgspec.Struct, frozen=True):
    """Units, and the id behind which to go on, if there may be more."""

    units: list[UnitRef]
    next: int | None


class Birth(msgspec.Struct, frozen=True):
    """A path on which units of one kind come into being."""

    path: int
    lifecycle: str
    hops: int


def find_births(connection: Connection, lifecycles: Iterable[Lifecycle], wanted: Filter) -> list[Birth]:
    """How units come into being, for every kind of unit that a filter may mean."""
    workers = {
        lifecycle.name for lifecycle in lifecycles if lifecycle.birth.trigger != "submit"
    }  # told only to who asks for them
    rows = connection.rows("SELECT id, lifecycle, hops FROM transition_path WHERE source = '' ORDER BY id")
    listed = [Birth(*row) for row in rows]
    kinds = {
        birth.lifecycle for birth in listed if birth.lifecycle not in workers or birth.lifecycle == wanted.lifecycle
    }
    if wanted.lifecycle is not None:
        kinds &= {wanted.lifecycle}
    if wanted.lifecycles:
        kinds &= set(wanted.lifecycles)
    return [birth for birth in listed if birth.lifecycle in kinds]


def read_newest_units(
    connection: Connection,
    tenant: int,
    lifecycles: Iterable[Lifecycle],
    wanted: Filter,
    limit: int,
    after: int | None = None,
) -> Page:
    """Units that are meant, the newest first, behind one of them.

    Of a filter that fits few, no more than `LOOKED_MOST` are looked at: a page may be short, and have more behind it.
    """
    if any(getattr(wanted, name) is not None for name in NARROW):
        return read_narrow_list(connection, tenant, wanted, limit, after)
    kinds = find_births(connection, lifecycles, wanted)
    states = find_listed_states(lifecycles, {kind.lifecycle for kind in kinds}, wanted)
    if not kinds or states == []:
        return Page([], None)
    # Where the last unit stands that was looked at.
    place: Sequence[int] = (LAST, LAST, LAST) if states is None else (LAST, LAST)
    if after is not None:
        place = place_of(connection, tenant, after, BIRTH if states is None else BORN_BY)
    units: list[View] = []
    only_kinds = msgspec.structs.replace(wanted, lifecycle=None, lifecycles=()).empty
    looked, size = 0, limit + 1 if only_kinds else max(limit + 1, 100)
    last, kind = 0, ""
    births = iterate_births(connection, tenant, kinds, place)
    while looked < LOOKED_MOST:
        if states is None:
            chunk: list[Any] = list(islice(births, size))
        else:
            chunk = read_listed(connection, tenant, states, place, size)
        fits = filter_units(connection, tenant, wanted, [unit for unit, *_ in chunk])
        for unit in [birth[0] for birth in chunk if birth[0] in fits]:
            if len(units) == limit:
                return Page(units, format_view_id(units[-1]))
            units.append(fits[unit])
        if len(chunk) < size:
            return Page(units, None)
        last, kind, *place = chunk[-1]
        looked, size = looked + size, min(size * 4, CHUNK)
    born = connection.rows("SELECT created_at FROM body WHERE unit = :unit", {"unit": last})
    return Page(units, format_id(kind, last), born[0][0] if born else None)


def find_listed_states(
    lifecycles: Iterable[Lifecycle], kinds: Container[str], wanted: Filter
) -> list[tuple[str, str]] | None:
    """The states that a filter means, each with its lifecycle, if all of them have an index; else None."""
    if not wanted.states and not wanted.categories:
        return None
    states = []
    for lifecycle in lifecycles:
        for state in lifecycle.states if lifecycle.name in kinds else ():
            category = lifecycle.category(state)
            if (wanted.states and state not in wanted.states) or (
                wanted.categories and category not in wanted.categories
            ):
                continue
            if category not in LISTED:
                return None
            states.append((lifecycle.name, state))
    return states


def read_listed(
    connection: Connection, tenant: int, states: Sequence[tuple[str, str]], before: Sequence[int], limit: int
) -> list[Any]:
    """Units of states that have an index, by their births, the last one first: each with its kind, and its place."""
    sql, given = select_resting(states, "(born, id) < (:born, :before) ORDER BY born DESC, id DESC")
    given |= {"tenant": tenant, "born": before[0], "before": before[1], "limit": limit}
    rows = connection.rows(f"{sql} ORDER BY 1 DESC, 2 DESC LIMIT :limit", given)
    return [(unit, lifecycle, born, unit) for born, unit, lifecycle in rows]


def format_view_id(view: View) -> str:
    """The id of the unit of a view, as people see it."""
    return format_id(view.unit.lifecycle, view.unit.id)


def place_of(connection: Connection, tenant: int, unit: int, sql: str) -> tuple[int, ...]:
    """Where a unit stands in a list.

    Raises:
        InterlockError: the job is not there any more.
    """
    rows = connection.rows(f"{sql} AND tenant = :tenant", {"unit": unit, "tenant": tenant})
    if not rows:
        raise InterlockError("the job behind which to go on is not there any more; begin with the first page")
    return tuple(rows[0])


def iterate_births(
    connection: Connection, tenant: int, kinds: Sequence[Birth], before: Sequence[int]
) -> Iterator[tuple[int, str, int, int, int]]:
    """Yields units by their births, the last one first: each with its kind, and its place.

    An act is the birth of one unit or of a thousand, so few acts are read at first, and more of them while few come.
    """
    each = " UNION ALL ".join(f"SELECT * FROM ({BORN.format(place=place)}) AS b{place}" for place in range(len(kinds)))
    sql = f"{each} ORDER BY 1 DESC, 2 DESC LIMIT :limit"
    given: dict[str, Any] = {"tenant": tenant, **{f"n{number}": kind.path for number, kind in enumerate(kinds)}}
    by_path, acts = {kind.path: kind for kind in kinds}, ACTS_FEW
    while True:
        rows = connection.rows(sql, {**given, "at": before[0], "act": before[1], "limit": acts})
        for at, act, units, path in rows:
            kind, ids = by_path[path], decode_list(units) if connection.name == "sqlite" else units
            # Of the act that holds the unit behind which to go on, only those before that unit.
            end = min(len(ids), -((1 - before[2]) // kind.hops)) if (at, act) == (before[0], before[1]) else len(ids)
            for number in range(end - 1, -1, -1):
                yield ids[number], kind.lifecycle, at, act, number * kind.hops + 1
        if len(rows) < acts:
            return
        before, acts = (*rows[-1][:2], 1), acts * 4


def filter_units(connection: Connection, tenant: int, wanted: Filter, units: Sequence[int]) -> dict[int, View]:
    """Those of these units that a filter means."""
    where, params = list_conditions(wanted)
    source, chosen = CHOSEN[connection.name]
    rows = select_views(
        connection,
        tenant,
        [*chosen, *where],
        {**params, "ids": list(units)},
        max(len(units), 1),
        source=source,
    )
    return {row.unit.id: row for row in rows}


def read_narrow_list(connection: Connection, tenant: int, wanted: Filter, limit: int, after: int | None) -> Page:
    """The same for a filter that an index knows: all that fits is sorted."""
    where, params = list_conditions(wanted)
    where = [*where, *(sql for name, sql in NARROW.items() if getattr(wanted, name) is not None)]
    if after is not None:
        at, _ = place_of(connection, tenant, after, "SELECT created_at, unit FROM body WHERE unit = :unit")
        where, params = [*where, "(body.created_at, unit.id) < (:at, :after)"], {**params, "at": at, "after": after}
    rows = select_views(connection, tenant, where, params, limit + 1, "body.created_at DESC, unit.id DESC")
    return Page(rows[:limit], format_view_id(rows[limit - 1]) if len(rows) > limit else None)


def read_oldest_units(connection: Connection, tenant: int, wanted: Filter, limit: int, after: int = 0) -> UnitPage:
    """Units that are meant, the lowest id first, behind an id: a parent comes before its children.

    Of a filter that fits few, no more than `LOOKED_MOST` are looked at: a page may be short, and have more behind it.
    """
    where, params = list_conditions(wanted)
    narrowing = [sql for name, sql in NARROW.items() if getattr(wanted, name) is not None]
    given: dict[str, Any] = {**params, "tenant": tenant, "after": after, "limit": limit}
    where, bound = ["unit.id > :after", *where, *narrowing], None
    if not narrowing:
        sql = "SELECT id FROM unit WHERE tenant = :tenant AND id > :after ORDER BY id LIMIT 1 OFFSET :most"
        beyond = connection.rows(sql, {"tenant": tenant, "after": after, "most": LOOKED_MOST})
        if beyond:
            bound = beyond[0][0]
            where.append("unit.id < :bound")
            given["bound"] = bound
    sql = f"SELECT {REF} {FROM} WHERE {' AND '.join([OWN, *where])} ORDER BY unit.id LIMIT :limit"
    refs = [make_ref(row) for row in connection.rows(sql, given)]
    if len(refs) == limit:
        return UnitPage(refs, refs[-1].unit)
    return UnitPage(refs, None if bound is None else bound - 1)


def refs_of(connection: Connection, tenant: int, units: Sequence[int]) -> list[UnitRef]:
    """These units, the lowest id first; those that do not exist are left out."""
    sql = f"SELECT {REF} FROM unit WHERE {OWN} AND unit.id {{ids}} ORDER BY unit.id"
    return [make_ref(row) for row in connection.rows(sql, {"tenant": tenant, "ids": list(units)})]


def read_unit_facts(connection: Connection, tenant: int, units: Sequence[int]) -> list[tuple[Any, ...]]:
    """What tells groups of units apart: id, lifecycle, state, task, queue, the beginning of the error, and birth."""
    sql = (
        "SELECT unit.id, unit.lifecycle, unit.state, body.task, coalesce(lane.queue, ''), substr(body.error, 1, 1000), "
        f"body.created_at FROM unit JOIN body ON body.unit = unit.id LEFT JOIN lane ON lane.id = unit.lane "
        f"WHERE {OWN} AND unit.id {{ids}} ORDER BY unit.id"
    )
    return [tuple(row) for row in connection.rows(sql, {"tenant": tenant, "ids": list(units)})]


def make_ref(row: Sequence[Any]) -> UnitRef:
    """Makes the reference to a unit of a list."""
    unit, lifecycle, state, ended = row
    return UnitRef(unit, lifecycle, state, bool(ended))


def amount(connection: Connection, tenant: int, wanted: Filter) -> Amount:
    """How many units a filter means, exactly up to `COUNT_MOST`."""
    where, params = list_conditions(wanted)
    where = [*where, *(sql for name, sql in NARROW.items() if getattr(wanted, name) is not None)]
    if wanted.categories and LISTED.issuperset(wanted.categories):
        where.append(RESTS)  # in the words of the index
    some = f"SELECT 1 {FROM} WHERE {' AND '.join([OWN, *where])} LIMIT :limit"
    given = {**params, "tenant": tenant, "limit": COUNT_MOST + 1}
    count = connection.rows(f"SELECT count(*) FROM ({some}) AS part", given)[0][0]
    return Amount(min(count, COUNT_MOST), count > COUNT_MOST)
