"""What is read of workstreams with a repository, and of what was merged into them."""

from collections.abc import Iterable

import msgspec

from interlock.store.connection import Connection
from interlock.store.queries.for_verbs import read_notes
from interlock.store.unit_of_work import UnitOfWork

BEGINS = "begins"  # the kind of note of a workstream that does another again: the commit at which it begins
MERGED = "merged"  # the kind of note of a workstream: a task's commit was merged into its branch
STREAMS = "SELECT unit, policy, retry_of FROM body WHERE unit {ids}"
NEWEST = """
SELECT name, payload FROM note WHERE unit = :unit AND kind = 'merged' ORDER BY name DESC LIMIT 1
"""
DONE_AGAIN = """
SELECT body.retry_of, unit.id FROM unit JOIN body ON body.unit = unit.id
WHERE unit.parent = :unit AND body.retry_of IS NOT NULL
"""
MERGES = "SELECT payload FROM note WHERE unit = :unit AND kind = 'merged' ORDER BY name LIMIT :limit"
ALL_BEGINNINGS = "SELECT unit, payload FROM note WHERE kind = 'begins'"
ALL_MERGES = "SELECT unit, name, payload FROM note WHERE kind = 'merged' ORDER BY unit, name"
RESULTS = """
SELECT body.unit, lifecycle, outcome, result FROM body JOIN unit ON unit.id = body.unit WHERE body.unit {ids}
"""
NEEDING = """SELECT body.unit, body.policy, lane.capabilities FROM body
    JOIN unit ON unit.id = body.unit JOIN lane ON lane.id = unit.lane
    WHERE body.policy LIKE '%repositories%' AND unit.fence > 0"""
DIGITS = 9  # of a number, so that names are in order


class MergeNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A commit that was merged into the branch of a workstream."""

    task: int  # whose commit it is
    name: str  # of the task in the workstream
    job: int  # that merged it
    fence: int  # of that job
    commit: str  # that was merged
    base: str  # the head of the workstream before
    head: str  # the commit of the merge: from there the workstream goes on


def read_streams(tx: UnitOfWork, units: Iterable[int]) -> dict[int, tuple[str, int | None]]:
    """By workstream: its policy, and the one that it does again."""
    rows = tx.connection.rows(STREAMS, {"ids": sorted(set(units))})
    return {unit: (policy, retry_of) for unit, policy, retry_of in rows}


def read_newest_merge(tx: UnitOfWork, stream: int) -> tuple[int, MergeNote | None]:
    """How many commits were merged into a workstream, and the last of them."""
    rows = tx.connection.rows(NEWEST, {"unit": stream})
    return (int(rows[0][0]), msgspec.json.decode(rows[0][1], type=MergeNote)) if rows else (0, None)


def read_beginning(tx: UnitOfWork, stream: int) -> str:
    """The commit at which a workstream begins that takes tasks over from another one; "" if it says none."""
    notes = read_notes(tx, [stream], BEGINS)
    return str(msgspec.json.decode(notes[-1].payload)) if notes else ""


def read_beginnings(connection: Connection) -> dict[int, str]:
    """By workstream that does another again: the commit at which it begins, if it says one."""
    rows = [(unit, msgspec.json.decode(payload)) for unit, payload in connection.rows(ALL_BEGINNINGS)]
    return {unit: head for unit, head in rows if head}


def read_done_again(tx: UnitOfWork, stream: int) -> dict[int, int]:
    """By task that another one below a workstream does again: that one."""
    return dict(tx.connection.rows(DONE_AGAIN, {"unit": stream}))


def read_merges(connection: Connection, stream: int, limit: int) -> list[MergeNote]:
    """What was merged into a workstream, the first ones first."""
    rows = connection.rows(MERGES, {"unit": stream, "limit": limit})
    return [msgspec.json.decode(payload, type=MergeNote) for (payload,) in rows]


def read_all_merges(connection: Connection) -> list[tuple[int, int, MergeNote]]:
    """All merges into workstreams: the workstream, its number there, and what was merged."""
    return [
        (unit, int(name), msgspec.json.decode(payload, type=MergeNote))
        for unit, name, payload in connection.rows(ALL_MERGES)
    ]


def read_results(connection: Connection, units: Iterable[int]) -> dict[int, tuple[str, str | None, str | None]]:
    """By unit: its lifecycle, its outcome and its result."""
    rows = connection.rows(RESULTS, {"ids": sorted(set(units))})
    return {unit: (lifecycle, outcome, result) for unit, lifecycle, outcome, result in rows}


def read_needing(connection: Connection) -> list[tuple[int, str, str]]:
    """Work that may have a repository and was granted: its policy, and the capabilities that its lane asks for."""
    return [(unit, policy, capabilities) for unit, policy, capabilities in connection.rows(NEEDING)]
