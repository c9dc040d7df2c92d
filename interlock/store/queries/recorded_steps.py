"""Queries of what earlier attempts recorded: the last checkpoint, and steps, page by page.

A unit may have thousands of steps. Whoever is granted it gets a page of them, and reads the others when it needs them.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from interlock.kernel.commands import AskedFor, KeptStep, StepsPage
from interlock.kernel.rows import Note
from interlock.store.query import Query
from interlock.store.unit_of_work import UnitOfWork

PAGE_SIZE = 64 * 1024  # characters of names and results
STEP, REQUEST, CHECKPOINT = "step", "step_request", "checkpoint"  # kinds of notes
EFFECT_REQUEST = "effect_request"
DIGEST_PLACE = len('{"digest":"') + 1  # of the digest in the note of what was asked for, as SQL counts
DIGEST_SIZE = 64


class RememberedNote(NamedTuple):
    """A note that a page holds, and how many of its kind the unit has."""

    unit: int
    kind: str
    name: str
    payload: str
    digest: str | None
    total: int


@dataclass
class Remembered:
    """What a unit's earlier attempts left: the last checkpoint, the first page of steps, and how many there are."""

    checkpoint: str | None = None
    steps: list[KeptStep] = field(default_factory=list)
    total: int = 0
    size: int = 0  # of the page


# What a step asked for is in a note beside it, which begins with the digest.
OF_STEP = (
    f"(SELECT substr(asked.payload, {DIGEST_PLACE}, {DIGEST_SIZE}) FROM note AS asked "
    f"WHERE asked.unit = own.unit AND asked.kind = '{REQUEST}' AND asked.name = own.name)"
)
REMEMBERED = Query(
    f"""
SELECT unit, kind, name, payload, CASE kind WHEN '{STEP}' THEN {OF_STEP} END, total FROM (
    SELECT unit, kind, name, payload, at, id, count(*) OVER (PARTITION BY unit, kind) AS total,
        row_number() OVER (PARTITION BY unit, kind ORDER BY at, id) AS place,
        sum(length(name) + length(payload) + {DIGEST_SIZE}) OVER (PARTITION BY unit, kind ORDER BY at, id) AS size
    FROM note WHERE unit {{ids}} AND kind IN ('{STEP}', '{CHECKPOINT}')
) AS own WHERE (kind = '{STEP}' AND size <= :most) OR (kind = '{CHECKPOINT}' AND place = total) ORDER BY at, id
""",
    RememberedNote,
)
# A page that begins with a step, which is in it however large it is.
PAGE_FROM = Query(
    f"""
SELECT name, payload, {OF_STEP} FROM (
    SELECT step.unit, step.name, step.payload, step.at, step.id,
        sum(length(step.name) + length(step.payload) + {DIGEST_SIZE}) OVER (ORDER BY step.at, step.id) AS size,
        row_number() OVER (ORDER BY step.at, step.id) AS place
    FROM note AS first JOIN note AS step ON step.unit = first.unit AND step.kind = first.kind
        AND (step.at > first.at OR (step.at = first.at AND step.id >= first.id))
    WHERE first.unit = :unit AND first.kind = '{STEP}' AND first.name = :name
) AS own WHERE size <= :most OR place = 1 ORDER BY at, id
""",
    KeptStep,
)
REQUESTS = Query("SELECT payload FROM note WHERE unit = :unit AND kind = :kind AND name = :name ORDER BY id", str)


def read_remembered(tx: UnitOfWork, units: list[int]) -> dict[int, Remembered]:
    """What earlier attempts of these units left for later ones, this transaction's notes included."""
    by_unit: dict[int, Remembered] = {}
    for note in tx.run(REMEMBERED.bind(ids=units, most=PAGE_SIZE)) if units else ():
        known = by_unit.setdefault(note.unit, Remembered())
        if note.kind == CHECKPOINT:
            known.checkpoint = note.payload
        else:
            known.steps.append(KeptStep(note.name, note.payload, note.digest))
            known.total, known.size = note.total, known.size + measure_step(note.name, note.payload)
    for row in tx.changes.inserts:
        if isinstance(row, Note) and row.unit in units and row.kind in (STEP, CHECKPOINT):
            add_unwritten(tx, by_unit.setdefault(row.unit, Remembered()), row)
    return by_unit


def add_unwritten(tx: UnitOfWork, known: Remembered, row: Note) -> None:
    """A note that this transaction has made, and the database has not seen."""
    if row.kind == CHECKPOINT:
        known.checkpoint = row.payload
        return
    known.total += 1
    known.size += measure_step(row.name, row.payload)
    if known.size <= PAGE_SIZE and len(known.steps) == known.total - 1:
        known.steps.append(KeptStep(row.name, row.payload, find_unwritten_digest(tx, row)))


def find_unwritten_digest(tx: UnitOfWork, step: Note) -> str | None:
    """The digest of what a step asked for, of which this transaction has made the note too."""
    notes = [row for row in tx.changes.inserts if isinstance(row, Note) and row.kind == REQUEST]
    request = next((row for row in notes if (row.unit, row.name) == (step.unit, step.name)), None)
    return None if request is None else msgspec.json.decode(request.payload, type=AskedFor).digest


def measure_step(name: str, result: str) -> int:
    """Returns how much of a page a step takes."""
    return len(name) + len(result) + DIGEST_SIZE


def read_steps_from(tx: UnitOfWork, unit: int, name: str) -> StepsPage:
    """A page of recorded steps from this one on, and what it asked for; empty if there is none of that name."""
    steps = tx.run(PAGE_FROM.bind(unit=unit, name=name, most=PAGE_SIZE))
    return StepsPage(tuple(steps), read_asked(tx, unit, REQUEST, name) if steps else None)


def read_asked(tx: UnitOfWork, unit: int, kind: str, name: str) -> str | None:
    """What a step or an effect asked for, as far as it is kept; None if nobody said."""
    rows = tx.run(REQUESTS.bind(unit=unit, kind=kind, name=name))
    return msgspec.json.decode(rows[0], type=AskedFor).text if rows else None
