"""What checks read: what they check, and the gates that were entered."""

from collections.abc import Iterable

import msgspec

from interlock.kernel.ids import format_id
from interlock.store.connection import Connection
from interlock.store.unit_of_work import UnitOfWork

CHECKED = "SELECT unit.id, lifecycle, result FROM unit JOIN body ON body.unit = unit.id WHERE unit.id {ids}"
GATES = """
SELECT note.unit, note.name, note.payload, unit.version, unit.category, unit.outcome FROM note
JOIN unit ON unit.id = note.unit WHERE note.kind = 'gate' ORDER BY note.id
"""
ENDED = "SELECT unit, name, payload FROM note WHERE kind = 'checked' AND unit {ids} ORDER BY id"
END = "SELECT actor, reason FROM event WHERE unit = :unit ORDER BY version DESC LIMIT 1"


class GateNote(msgspec.Struct, frozen=True):
    """What the note of an entered gate says."""

    checks: int
    in_order: bool = False
    last: int = 0  # how many more are made when these have succeeded, one after another

    def is_over(self, ended: int, failed: bool) -> bool:
        """Whether so many checks that have ended, with a failure among them or without, are all that there will be."""
        if failed:
            return self.in_order or ended >= self.checks
        return ended == self.checks + self.last


class CheckNote(msgspec.Struct, frozen=True):
    """What the note of a check that has ended says."""

    unit: int
    task: str
    passed: bool
    error: str = ""


class EnteredGate(msgspec.Struct, frozen=True):
    """A gate that a unit has entered, and how the unit stands now."""

    unit: int
    entry: int  # the version that the unit had there
    note: GateNote
    version: int
    category: str
    outcome: str | None


def read_checked(tx: UnitOfWork, units: Iterable[int]) -> dict[int, tuple[str, str]]:
    """By unit that is checked: the id that users see, and its result."""
    rows = tx.connection.rows(CHECKED, {"ids": sorted(set(units))})
    return {unit: (format_id(lifecycle, unit), result or "null") for unit, lifecycle, result in rows}


def read_end(tx: UnitOfWork, unit: int) -> tuple[str, str]:
    """Who ended a check, and why."""
    rows = tx.connection.rows(END, {"unit": unit})
    return (rows[0][0], rows[0][1]) if rows else ("", "")


def read_gates(connection: Connection) -> list[EnteredGate]:
    """Every gate with checks that was ever entered."""
    return [
        EnteredGate(unit, int(name), msgspec.json.decode(payload, type=GateNote), *now)
        for unit, name, payload, *now in connection.rows(GATES)
    ]


def read_ended_checks(connection: Connection, units: Iterable[int]) -> dict[tuple[int, int], list[CheckNote]]:
    """By unit and entry of its gate: the checks that have ended."""
    ended: dict[tuple[int, int], list[CheckNote]] = {}
    for unit, name, payload in connection.rows(ENDED, {"ids": sorted(set(units))}):
        entry = int(name.partition(".")[0])
        ended.setdefault((unit, entry), []).append(msgspec.json.decode(payload, type=CheckNote))
    return ended
