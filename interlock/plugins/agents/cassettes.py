"""Cassettes: what an agent run has recorded, as a file that a test replays it from, a line of JSON for each thing.

The first line says which agent was called with what, and how that ended; each other line is a step, an effect, a child
(a question among them), a signal, a wait that is over or a phase. Large values are in it, not the names of blobs.
"""

from typing import Any

import msgspec

from interlock.blobs.store import read_value
from interlock.kernel.commands import AskedFor
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.plugins.agents.options import JOB, RUN
from interlock.plugins.agents.queries import RunNote, read_moves_of, read_notes_of, read_work_below
from interlock.store.connection import Connection
from interlock.store.queries.recorded_steps import EFFECT_REQUEST, REQUEST
from interlock.store.queries.views import view

SCHEMA = 1
KINDS = ("step", "effect", "child", "signal", "wait", "phase", "validation")  # what a line may be, beside the first one
OWN_SIGNALS = ("child:", "sleep:", "verdict:")  # what the engine itself says to a job


class CassetteHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which agent was called with what, and how that ended."""

    cassette: int  # the schema of the file
    run: str
    agent: str
    arguments: Any
    fence: int
    outcome: str | None  # success, failure, cancelled; None: it had not ended
    result: Any = None
    error: str | None = None


class CassetteLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that the run has recorded."""

    what: str  # one of KINDS
    name: str
    result: Any = None  # of a step, an effect or a child; what came with a signal
    request: AskedFor | None = None  # of a step or an effect, if its handler said it
    done: bool = True  # of an effect: whether its outcome is known; of a child: whether it has ended
    lifecycle: str = ""  # the rest is of a child
    state: str = ""
    outcome: str | None = None
    error: str | None = None
    trigger: str = ""
    by: str = ""
    reason: str = ""


class Cassette(msgspec.Struct, frozen=True):
    """A run as it was recorded."""

    head: CassetteHead
    lines: list[CassetteLine]


def read_cassette(connection: Connection, tenant: int, unit: int) -> Cassette | None:
    """What an agent run has recorded, with which its handler can be replayed; None for what is no agent run."""
    try:
        run = view(connection, tenant, unit)
    except Unknown:
        return None
    jobs = [work for work in read_work_below(connection, tenant, unit) if work.lifecycle == JOB]
    if run.unit.lifecycle != RUN or not jobs:
        return None
    job = view(connection, tenant, jobs[-1].id)

    def decode(text: str | None) -> Any:
        return None if text is None else msgspec.json.decode(read_value(connection.blobs, tenant, text))

    head = CassetteHead(
        SCHEMA, format_id(RUN, unit), run.body.task, decode(job.body.input), max(job.unit.fence, 1), run.unit.outcome,
        decode(job.body.result), job.body.error,
    )  # fmt: skip
    notes = read_notes_of(connection, tenant, job.unit.id)
    requests = {(kept.kind, kept.name): kept.payload for kept in notes if kept.kind in (REQUEST, EFFECT_REQUEST)}
    lines: list[CassetteLine] = []
    effects: dict[str, CassetteLine] = {}
    for kept in notes:
        if kept.kind == "effect":
            effects[kept.name] = CassetteLine(
                kept.kind, kept.name, None, read_asked_for(requests.get((EFFECT_REQUEST, kept.name))), done=False
            )
        elif kept.kind == "effect_result":
            before = effects.get(kept.name) or CassetteLine("effect", kept.name)
            effects[kept.name] = msgspec.structs.replace(before, result=decode(kept.payload), done=True)
        elif kept.kind == "child":
            lines.append(read_child(connection, tenant, kept))
        elif kept.kind == "step":
            request = read_asked_for(requests.get((REQUEST, kept.name)))
            lines.append(CassetteLine(kept.kind, kept.name, decode(kept.payload), request))
        elif kept.kind == "signal" and not kept.name.startswith(OWN_SIGNALS):
            lines.append(CassetteLine(kept.kind, kept.name, decode(kept.payload)))
        elif kept.kind == "validated":
            lines.append(CassetteLine("validation", kept.name, decode(kept.payload)))
        elif kept.kind in ("wait", "phase"):
            lines.append(CassetteLine(kept.kind, kept.name))
    return Cassette(head, [*lines, *effects.values()])


def read_child(connection: Connection, tenant: int, kept: RunNote) -> CassetteLine:
    """A child of the job, and what came of it."""
    child = view(connection, tenant, msgspec.json.decode(kept.payload)["unit"])
    unit, body = child.unit, child.body
    last = read_moves_of(connection, tenant, unit.id)[-1]
    result = None if body.result is None else msgspec.json.decode(read_value(connection.blobs, tenant, body.result))
    jobs = [work.error for work in read_work_below(connection, tenant, unit.id) if work.lifecycle == JOB]
    line = CassetteLine(
        "child", kept.name, result, done=unit.outcome is not None, lifecycle=unit.lifecycle, state=unit.state,
        outcome=unit.outcome, error=body.error or (jobs[-1] if jobs else None),
    )  # fmt: skip
    if not line.done:
        return line
    return msgspec.structs.replace(line, trigger=last.trigger, by=last.actor, reason=last.reason)


def read_asked_for(text: str | None) -> AskedFor | None:
    """Decodes what a step has asked for."""
    return None if text is None else msgspec.json.decode(text, type=AskedFor)


# Files.


def encode_cassette(cassette: Cassette) -> str:
    """The text of a file: a line of JSON for each thing."""
    return "".join(f"{msgspec.json.encode(each).decode()}\n" for each in (cassette.head, *cassette.lines))


def decode_cassette(text: str) -> Cassette:
    """Reads the text of a file.

    Raises:
        InterlockError: the line that is wrong.
    """
    lines = text.splitlines()
    decoded: list[CassetteLine] = []
    try:
        head = msgspec.json.decode(lines[0] if lines else "", type=CassetteHead)
    except msgspec.MsgspecError as error:
        raise InterlockError(f"line 1 is not the first one of a cassette: {error}") from None
    if head.cassette != SCHEMA:
        raise InterlockError(f"line 1: cassette = {head.cassette} is not allowed; allowed is {SCHEMA}")
    for number, line in enumerate(lines[1:], 2):
        try:
            decoded.append(msgspec.json.decode(line, type=CassetteLine))
        except msgspec.MsgspecError as error:
            raise InterlockError(f"line {number} is none of a cassette: {error}") from None
        if decoded[-1].what not in KINDS:
            what = decoded[-1].what
            raise InterlockError(f"line {number}: what = {what!r} is not allowed; allowed are {', '.join(KINDS)}")
    return Cassette(head, decoded)
