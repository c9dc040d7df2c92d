"""Queries of the units that wait for a unit: for its success, or for its end."""

from collections.abc import Sequence

import msgspec

from interlock.store.connection import Connection

FOLLOWERS_MAX = 1_000
FOLLOWERS = f"""
SELECT need.needs, need.unit, coalesce(place.name, body.task), unit.unmet, need.by_end = 1 FROM need
JOIN unit ON unit.id = need.unit JOIN body ON body.unit = need.unit LEFT JOIN place ON place.unit = need.unit
WHERE need.needs {{ids}} AND need.tenant = :tenant AND unit.outcome IS NULL ORDER BY need.unit LIMIT {FOLLOWERS_MAX}
"""


class Follower(msgspec.Struct, frozen=True):
    """A unit that waits for another one, its name or task, and how many it waits for in all."""

    needs: int
    unit: int
    name: str
    unmet: int
    by_end: bool  # the other one's end is enough


def read_followers(connection: Connection, tenant: int, units: Sequence[int]) -> list[Follower]:
    """Those that have not ended and need one of these, the oldest first."""
    if not units:
        return []
    rows = connection.rows(FOLLOWERS, {"ids": list(units), "tenant": tenant})
    return [Follower(*(*row[:-1], bool(row[-1]))) for row in rows]
