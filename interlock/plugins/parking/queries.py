"""What parking reads: how the children of a handler stand, and whether anybody waits for what has come."""

from collections.abc import Iterable

import msgspec

from interlock.core.advance import SIGNAL
from interlock.kernel.commands import ChildStatus
from interlock.store.connection import Connection
from interlock.store.unit_of_work import UnitOfWork

WORK = "SELECT task, input FROM body WHERE unit = :unit"
STATUS = """
SELECT unit.id, unit.lifecycle, unit.state, unit.outcome, body.result, coalesce(body.error, (
    SELECT below_body.error FROM unit AS below JOIN body AS below_body ON below_body.unit = below.id
    WHERE below.parent = unit.id AND below.decides = 1 ORDER BY below.id DESC LIMIT 1)),
    hop.trigger, act.actor, act.reason
FROM unit JOIN body ON body.unit = unit.id JOIN act ON act.id = unit.act
JOIN transition_path AS path ON path.id = act.path
JOIN path_hop AS hop ON hop.path = path.id AND hop.place = path.hops
WHERE unit.id {ids} ORDER BY unit.id
"""
PARKED = f"SELECT id, parked_on, lease_id FROM unit WHERE parked_on LIKE '{SIGNAL}%' ORDER BY id"
NOTES = "SELECT unit, name, payload FROM note WHERE kind = :kind AND unit {ids}"
ENDED = "SELECT id FROM unit WHERE outcome IS NOT NULL AND id {ids}"


class ChildNote(msgspec.Struct, frozen=True):
    """What the note of a child says."""

    unit: int


def read_work(tx: UnitOfWork, unit: int) -> tuple[str, str] | None:
    """The task and the input of a unit."""
    rows = tx.connection.rows(WORK, {"unit": unit})
    return (rows[0][0], rows[0][1]) if rows else None


def read_children(tx: UnitOfWork, names: dict[int, tuple[int, str]]) -> dict[int, list[ChildStatus]]:
    """By parent: how these children stand. `names` has the parent of each, and its name there."""
    children: dict[int, list[ChildStatus]] = {}
    for unit, lifecycle, state, outcome, *ended in tx.connection.rows(STATUS, {"ids": sorted(names)}):
        parent, name = names[unit]
        status = ChildStatus(name, unit, lifecycle, state, outcome, *(ended if outcome is not None else ()))
        children.setdefault(parent, []).append(status)
    return children


def read_parked(connection: Connection) -> list[tuple[int, str, int | None]]:
    """Every unit that waits for signals, the key that it is parked on, and the lease that it has, which is none."""
    return [(unit, key, lease) for unit, key, lease in connection.rows(PARKED)]


def read_signals(connection: Connection, units: Iterable[int]) -> set[tuple[int, str]]:
    """The signals that these units got: each with the unit."""
    ids = sorted(set(units))
    rows = connection.rows(NOTES, {"kind": "signal", "ids": ids}) if ids else []
    return {(unit, name) for unit, name, _ in rows}


def read_ended_children(connection: Connection, units: Iterable[int]) -> set[tuple[int, str]]:
    """The children of these units that have ended: each by its parent and its name there."""
    ids = sorted(set(units))
    rows = connection.rows(NOTES, {"kind": "child", "ids": ids}) if ids else []
    children = {msgspec.json.decode(payload, type=ChildNote).unit: (unit, name) for unit, name, payload in rows}
    ended = connection.rows(ENDED, {"ids": sorted(children)}) if children else []
    return {children[child] for (child,) in ended}
