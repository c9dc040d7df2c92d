"""Queries of dead letters, in the order in which they died."""

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.store.connection import Connection

CHUNK, LOOKED_MOST = 1_000, 10_000  # letters that are read together at most, and that are looked at for one page
# What is asked of a letter is looked up by its key, a letter at a time, whatever else there is.
DEAD_LETTERS = """
SELECT unit.id, unit.lifecycle, unit.dead_at,
       (SELECT task FROM body WHERE body.unit = unit.id),
       (SELECT queue FROM lane WHERE lane.id = unit.lane),
       (SELECT coalesce(detail.payload, act.payload) FROM act
        LEFT JOIN act_detail AS detail ON detail.act = act.id AND detail.unit = unit.id WHERE act.id = unit.act),
       (SELECT min(again.created_at) FROM body AS again WHERE again.tenant = :tenant AND again.retry_of = unit.id)
FROM unit WHERE unit.tenant = :tenant AND unit.dead_at IS NOT NULL
"""
BEFORE = """
AND (unit.dead_at, unit.id) < (:at, :id) AND unit.dead_at >= :since
ORDER BY unit.dead_at DESC, unit.id DESC LIMIT :limit
"""
Place = tuple[int, int]  # when a letter died, and its unit
END: Place = (2**62, 0)  # behind all of them


class DeadLetter(msgspec.Struct, frozen=True):
    """A unit that was given up, and the six fields of its end."""

    unit: int
    lifecycle: str
    at: int
    task: str
    queue: str
    payload: str
    again_at: int | None  # when it was done again first

    @property
    def place(self) -> Place:
        return self.at, self.unit

    @property
    def details(self) -> dict[str, Any]:
        payload: dict[str, Any] = msgspec.json.decode(self.payload)
        return payload


class DeadLetterConditions(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of dead letters; without fields it selects all."""

    lifecycle: str | None = None
    task: str | None = None
    queue: str | None = None
    error_class: str | None = None
    error: str | None = None  # with which the last error begins
    reason_code: str | None = None
    since: int = 0  # microseconds

    def fits(self, dead_letter: DeadLetter) -> bool:
        details = dead_letter.details
        pairs = (
            (self.lifecycle, dead_letter.lifecycle), (self.task, dead_letter.task), (self.queue, dead_letter.queue),
            (self.error_class, details.get("error_class")), (self.reason_code, details.get("reason_code")),
        )  # fmt: skip
        if dead_letter.at < self.since or not str(details.get("last_error") or "").startswith(self.error or ""):
            return False
        return all(wanted is None or wanted == value for wanted, value in pairs)


def find_place(connection: Connection, tenant: int, unit: int) -> Place | None:
    """Where a unit stands among the dead letters; None if it is none."""
    sql = "SELECT dead_at, id FROM unit WHERE id = :unit AND tenant = :tenant AND dead_at IS NOT NULL"
    rows = connection.rows(sql, {"unit": unit, "tenant": tenant})
    return tuple(rows[0]) if rows else None


def read_dead_letters(connection: Connection, tenant: int, units: Sequence[int]) -> dict[int, DeadLetter]:
    """Those of these units that are dead letters, by unit."""
    rows = connection.rows(f"{DEAD_LETTERS} AND unit.id {{ids}}", {"tenant": tenant, "ids": list(units)})
    return {row[0]: DeadLetter(*row) for row in rows}


def read_newest(
    connection: Connection, tenant: int, wanted: DeadLetterConditions, limit: int, before: Place
) -> tuple[list[DeadLetter], DeadLetter | None]:
    """Letters that are meant and died before a place, the last one first; and the one behind which to go on, if any.

    No more are looked at than `LOOKED_MOST`, so there may be fewer than `limit`, and more to come all the same.
    """
    dead_letters: list[DeadLetter] = []
    looked, chunk_size = 0, limit
    while looked < LOOKED_MOST:
        given = {"tenant": tenant, "at": before[0], "id": before[1], "since": wanted.since, "limit": chunk_size}
        chunk = [DeadLetter(*row) for row in connection.rows(f"{DEAD_LETTERS} {BEFORE}", given)]
        for place, dead_letter in enumerate(chunk):
            if wanted.fits(dead_letter):
                dead_letters.append(dead_letter)
                if len(dead_letters) == limit:
                    last = place == len(chunk) - 1 and len(chunk) < chunk_size
                    return dead_letters, None if last else dead_letter
        if len(chunk) < chunk_size:
            return dead_letters, None
        looked, before, chunk_size = looked + len(chunk), chunk[-1].place, min(chunk_size * 4, CHUNK)
    return dead_letters, chunk[-1]
