"""The events of a job as document 002 lists them, heartbeats and renewals included.

The view `job_event` says the same of all jobs. It would read every beat of every worker for one job: a beat is one note
of a worker for all that it holds. Here only those workers are asked that held the job, and only about that time.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import islice

import msgspec

from interlock.store.connection import Connection
from interlock.store.query import list_params, list_placeholders

JOB = "job"
HEARTBEAT, RENEWED, COMPENSATED = "job_heartbeat", "job_lease_renewed", "job_compensated"
MOVE, NOTE = 0, 1  # what comes first of what happened at one instant
VERSION_MAX = 2**31 - 1
CHUNK = 500
MOVES = """
SELECT version, name, at, actor, correlation, cause, payload FROM event
WHERE unit = :unit AND tenant = :tenant AND (at, version) > (:at, :version) ORDER BY at, version LIMIT :limit
"""
UNDONE = """
SELECT id, at, payload FROM note
WHERE unit = :unit AND tenant = :tenant AND kind = 'compensated' AND (at, id) >= (:at, :id) ORDER BY at, id LIMIT :limit
"""
GRANTS = """
SELECT at, payload FROM event
WHERE unit = :unit AND tenant = :tenant AND lease_from IS NULL AND lease_to IS NOT NULL ORDER BY version
"""
BEATS = """
SELECT note.id, note.at, worker.name, note.payload FROM worker JOIN note ON note.unit = worker.unit
WHERE worker.tenant = :tenant AND note.tenant = :tenant AND worker.name IN ({names}) AND note.kind = 'beat'
  AND (note.at, note.id) >= (:at, :id) AND note.at <= :until ORDER BY note.at, note.id LIMIT :limit
"""
OF_JOB = """
SELECT unit.outcome, unit.changed_at, body.correlation FROM unit JOIN body ON body.unit = unit.id
WHERE unit.id = :unit AND unit.tenant = :tenant
"""


class Place(msgspec.Struct, frozen=True, order=True):
    """Where an event of a job stands among all of them; its text is a cursor."""

    at: int = 0
    kind: int = MOVE
    number: int = 0  # the version of a move; of a note twice its id, and one more for a renewal

    def __str__(self) -> str:
        return f"{self.at}.{self.kind}.{self.number}"


class JobEvent(msgspec.Struct, frozen=True):
    """One event in document 002's shape; a note moves nothing, and has the version 0."""

    place: Place
    id: str
    job_id: int
    type: str
    ts: int
    actor: str
    correlation_id: str
    cause: str | None
    payload: str
    version: int


def place_of(cursor: str) -> Place:
    """The place that a cursor names, which is made of three numbers."""
    at, kind, number = map(int, cursor.split("."))
    return Place(at, kind, number)


def read_job_events(connection: Connection, tenant: int, unit: int, after: Place, limit: int) -> list[JobEvent]:
    """What happened to a job behind a place, the oldest first, at most `limit` of it."""
    ((outcome, changed_at, correlation),) = connection.rows(OF_JOB, {"unit": unit, "tenant": tenant})
    until = connection.now() if outcome is None else changed_at
    sources = (
        read_moves(connection, tenant, unit, after, limit),
        read_compensation_events(connection, tenant, unit, after, limit, correlation),
        read_beats(connection, tenant, unit, after, until, correlation),
    )
    return list(islice(merge(*sources, key=lambda event: event.place), limit))


def read_moves(connection: Connection, tenant: int, unit: int, after: Place, limit: int) -> Iterator[JobEvent]:
    """Reads the transitions of a job behind a place."""
    version = after.number if after.kind == MOVE else VERSION_MAX
    given = {"unit": unit, "tenant": tenant, "at": after.at, "version": version, "limit": limit}
    for number, name, at, actor, correlation, cause, payload in connection.rows(MOVES, given):
        place = Place(at, MOVE, number)
        yield JobEvent(place, f"{unit}.{number}", unit, name, at, actor, correlation, cause, payload, number)


def read_compensation_events(
    connection: Connection, tenant: int, unit: int, after: Place, limit: int, correlation: str
) -> Iterator[JobEvent]:
    """Reads the compensations of a job behind a place."""
    given = {"unit": unit, "tenant": tenant, "at": after.at, "id": first_note(after), "limit": limit + 1}
    for note, at, payload in connection.rows(UNDONE, given):
        place = Place(at, NOTE, 2 * note)
        if place > after:
            yield JobEvent(place, f"n{note}", unit, COMPENSATED, at, "engine", correlation, None, payload, 0)


def first_note(after: Place) -> int:
    """Returns the note behind which to read."""
    return after.number // 2 if after.kind == NOTE else 0


def read_beats(
    connection: Connection, tenant: int, unit: int, after: Place, until: int, correlation: str
) -> Iterator[JobEvent]:
    """The beats for a job, and the renewals that they were, read as far as somebody wants them."""
    grants = connection.rows(GRANTS, {"unit": unit, "tenant": tenant})
    names = sorted({name for _, payload in grants if (name := msgspec.json.decode(payload).get("worker"))})
    if not names:
        return
    at, note = max((after.at, first_note(after)), (grants[0][0], 0))
    sql = BEATS.format(names=list_placeholders(names))
    while True:
        given = {"tenant": tenant, "at": at, "id": note, "until": until, "limit": CHUNK, **list_params(names)}
        rows = connection.rows(sql, given)
        for number, told_at, worker, payload in rows:
            events = read_beat_events(number, told_at, worker, payload, unit, correlation)
            yield from (event for event in events if event.place > after)
        if len(rows) < CHUNK:
            return
        at, note = rows[-1][1], rows[-1][0] + 1


def read_beat_events(note: int, at: int, worker: str, payload: str, unit: int, correlation: str) -> Iterator[JobEvent]:
    """What one beat of a worker says of a job."""
    for held, _, longer in msgspec.json.decode(payload, type=list[tuple[int, int, bool]]):
        if held == unit:
            for kind in (HEARTBEAT, RENEWED)[: 1 + longer]:
                place = Place(at, NOTE, 2 * note + (kind == RENEWED))
                name = f"n{note}.{unit}.{kind}"
                yield JobEvent(place, name, unit, kind, at, worker, correlation, None, "{}", 0)
