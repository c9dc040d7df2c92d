"""Transcripts: what became of an agent run, in order, made of what is recorded and of nothing else.

It tells the moves of the run (so its phases), which attempts worked on it, steps with what they asked for and used,
effects, questions with votes and answers, other work below it, and results that people replaced. Nothing is written for
it: the record is the transcript, and it is the same however often somebody asks. What must not be in it is taken out
before it is recorded, by `redact` of the agent.

Events and notes have ids of their own kind, so what happened at one instant is put in order by the leases: what a
holder noted comes behind the grant of its lease, and before what ends it.
"""

from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from interlock.kernel.commands import AskedFor
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.plugins.agents.options import JOB, RUN
from interlock.plugins.agents.phases import PHASE, PHASES
from interlock.plugins.agents.queries import RunMove, RunNote, WorkBelow, read_moves_of, read_notes_of, read_work_below
from interlock.store.connection import Connection
from interlock.store.queries.recorded_steps import EFFECT_REQUEST, REQUEST, STEP
from interlock.store.queries.views import read_summary

APPROVAL, CHILD, USAGE = "approval", "child", "usage"
GRANTS, BEGIN = ("claim", "reclaim"), "begin"
OWN_SIGNALS = ("child:", "sleep:", "verdict:")  # what the engine itself says to a job
FIRST, MIDDLE, LAST = range(3)  # of what happened under one lease


class TranscriptEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of a transcript: what happened in a run, and who did it."""

    at: int  # microseconds
    # moved, attempt, step, usage, effect, question, vote, answer, child, signal, validation, contract, forked, replaced
    what: str
    name: str = ""
    unit: str = ""  # the run, its job, or what is below it
    by: str = ""
    fence: int = 0  # of a job: under which lease
    reason: str = ""
    value: Any = None  # a result, what was asked or said; one over 256 KiB names a blob
    request: Any = None  # what a step or an effect asked for, as far as it is kept
    usage: dict[str, int] | None = None  # in the parts that count: millionths of money and of seconds
    copied: bool = False  # it was recorded by the run that this one was forked from


class PlacedEntry(NamedTuple):
    """An entry, and the move or the note that it tells."""

    entry: TranscriptEntry | None  # None: it only helps to put others in order
    of: RunMove | RunNote
    job: int = 0  # that was granted, or whose holder noted it


def read_transcript(
    connection: Connection, tenant: int, unit: int, first: int = 0, limit: int | None = None
) -> list[TranscriptEntry]:
    """What became of an agent run, from a place on, in order; nothing of what is no agent run."""
    try:
        if read_summary(connection, tenant, unit).lifecycle != RUN:
            return []
    except Unknown:
        return []
    entries = put_in_order(list(tell_run(connection, tenant, unit)))
    return entries[first : None if limit is None else first + limit]


# What is told.


def tell_run(connection: Connection, tenant: int, unit: int) -> Iterator[PlacedEntry]:
    """Everything of a run and of what is below it, in no order."""
    run, notes = format_id(RUN, unit), read_notes_of(connection, tenant, unit)
    usage = {kept.name: msgspec.json.decode(kept.payload) for kept in notes if kept.kind == USAGE}
    below = read_work_below(connection, tenant, unit)
    steps = set[str]()
    for move in read_moves_of(connection, tenant, unit):
        facts = msgspec.json.decode(move.payload) or {}
        fence = facts.pop("fence", 0)  # of the lease under which its holder entered a phase
        value = facts or None
        yield PlacedEntry(
            TranscriptEntry(move.at, "moved", move.target, run, move.actor, fence, move.reason, value), move
        )
    for place, job in enumerate(work for work in below if work.lifecycle == JOB):
        of_job = read_notes_of(connection, tenant, job.id)
        steps |= {kept.name for kept in of_job if kept.kind == STEP}
        yield from tell_job(connection, tenant, job, of_job if place == 0 else drop_copies(of_job), usage)
    for work in below:
        if work.lifecycle != JOB:
            yield from tell_below(connection, tenant, work, work.task, None)
    for kept in notes:
        if kept.kind == USAGE and kept.name not in steps:
            yield PlacedEntry(TranscriptEntry(kept.at, USAGE, kept.name, run, usage=usage[kept.name]), kept)
        elif kept.kind in ("forked", "replaced", "contract", "unvalidated"):
            yield PlacedEntry(tell_origin(kept, run), kept)


def drop_copies(notes: Iterable[RunNote]) -> list[RunNote]:
    """What a job noted under its own leases, and not what the job before it handed over."""
    return [kept for kept in notes if kept.fence]


def tell_job(
    connection: Connection, tenant: int, job: WorkBelow, notes: list[RunNote], usage: dict[str, dict[str, int]]
) -> Iterator[PlacedEntry]:
    """Who worked on a job of a run, and what was noted."""
    name = format_id(job.lifecycle, job.id)
    for move in read_moves_of(connection, tenant, job.id):
        if move.trigger in GRANTS:
            worker = msgspec.json.decode(move.payload).get("worker", move.actor)
            yield PlacedEntry(TranscriptEntry(move.at, "attempt", job.task, name, worker, move.fence), move, job.id)
    requests = {(kept.kind, kept.name): kept.payload for kept in notes if kept.kind in (REQUEST, EFFECT_REQUEST)}
    below = {work.id: work for work in read_work_below(connection, tenant, job.id)}
    for kept in notes:
        if kept.kind == CHILD:
            child = below.get(msgspec.json.decode(kept.payload)["unit"])
            yield from (
                ()
                if child is None
                else tell_below(connection, tenant, child, kept.name, PlacedEntry(None, kept, job.id))
            )
        else:
            yield PlacedEntry(tell_note(kept, name, requests, usage), kept, job.id)


def tell_note(
    kept: RunNote, job: str, requests: dict[tuple[str, str], str], usage: dict[str, dict[str, int]]
) -> TranscriptEntry | None:
    """What a job noted: a step, an effect or a signal. None if it is told otherwise."""
    copied = not kept.fence
    entry = TranscriptEntry(kept.at, kept.kind, kept.name, job, fence=kept.fence, copied=copied)
    value, change = msgspec.json.decode(kept.payload), msgspec.structs.replace
    match kept.kind:
        case "step":
            used = None if copied else usage.get(kept.name)
            return change(entry, value=value, request=read_request(requests.get((REQUEST, kept.name))), usage=used)
        case "effect":
            wanted = read_request(requests.get((EFFECT_REQUEST, kept.name)))
            return change(entry, by=value.get("by", ""), reason=value["state"], request=wanted)
        case "effect_result":
            return change(entry, what="effect", reason="done", value=value)
        case "validate":
            return change(entry, what="validation", reason="asked", copied=False)
        case "validated":
            return change(entry, what="validation", reason="not passed" if value else "passed", value=value or None)
        case "signal" if not kept.name.startswith(OWN_SIGNALS):
            return change(entry, value=value, copied=False)
    return None


def tell_below(
    connection: Connection, tenant: int, work: WorkBelow, name: str, noted: PlacedEntry | None
) -> Iterator[PlacedEntry]:
    """A question with its votes and how it was answered, or other work below a run and how it ended."""
    unit, is_question = format_id(work.lifecycle, work.id), work.lifecycle == APPROVAL
    moves = read_moves_of(connection, tenant, work.id)
    question = TranscriptEntry(
        moves[0].at, "question" if is_question else CHILD, name, unit, moves[0].actor,
        value=decode_text(work.input) if is_question else work.task,
    )  # fmt: skip
    yield PlacedEntry(question, moves[0]) if noted is None else noted._replace(entry=question)
    for kept in read_notes_of(connection, tenant, work.id) if is_question else ():
        if kept.kind == "vote":
            yield PlacedEntry(tell_vote(kept, name, unit), kept)
    if work.outcome is not None:
        end, value = moves[-1], work.error or decode_text(work.result)
        what = "answer" if is_question else CHILD
        yield PlacedEntry(TranscriptEntry(end.at, what, name, unit, end.actor, reason=end.trigger, value=value), end)


def tell_vote(kept: RunNote, name: str, unit: str) -> TranscriptEntry:
    """Who voice_facts what about a question."""
    voice = msgspec.json.decode(kept.payload)
    voice_facts = {"comment": voice.get("comment", ""), "arguments": decode_text(voice.get("arguments"))}
    given = {word: value for word, value in voice_facts.items() if value not in ("", None)} or None
    word = "approve" if voice["approve"] else "reject"
    return TranscriptEntry(kept.at, "vote", name, unit, kept.name, reason=word, value=given)


def tell_origin(kept: RunNote, run: str) -> TranscriptEntry:
    """Where a forked run comes from, which result was replaced, under which contract it goes on; by whom."""
    origin = msgspec.json.decode(kept.payload)
    if kept.kind == "contract":
        name, before = origin["contract"]["digest"], {"was": origin.get("was")}
        return TranscriptEntry(kept.at, kept.kind, name, run, origin.get("by", ""), value=before)
    if kept.kind == "unvalidated":
        return TranscriptEntry(kept.at, "validation", "", run, reason="missing")
    if kept.kind == "replaced":
        return TranscriptEntry(kept.at, kept.kind, kept.name, run, origin["by"], value={"was": origin["was"]})
    value = {"run": format_id(RUN, origin["run"]), "at": origin["at"]}
    return TranscriptEntry(kept.at, kept.kind, origin["at"], run, origin["by"], reason=origin["reason"], value=value)


def read_request(text: str | None) -> Any:
    """What a step or an effect asked for, from the note that has it."""
    return None if text is None else decode_text(msgspec.json.decode(text, type=AskedFor).text)


def decode_text(text: str | None) -> Any:
    """The value of a JSON text; one that was cut stands for itself."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text


# In which order.


def put_in_order(collected: Iterable[PlacedEntry]) -> list[TranscriptEntry]:
    """Entries as they happened: by their time, then by lease, and then by their ids."""
    moves: list[tuple[RunMove, PlacedEntry]] = []
    notes: list[tuple[RunNote, PlacedEntry]] = []
    for each in collected:
        if isinstance(each.of, RunMove):
            moves.append((each.of, each))
        else:
            notes.append((each.of, each))
    moves.sort(key=lambda pair: (pair[0].at, pair[0].act, pair[0].version))
    notes.sort(key=lambda pair: (pair[0].at, pair[0].id))
    leases = {(each.job, move.fence): number for number, (move, each) in enumerate(find_grants(moves), 1)}
    phases: dict[tuple[int, str], tuple[int, int]] = {}  # by time and word: the lease and the note
    placed: list[tuple[tuple[int, ...], TranscriptEntry | None]] = []
    lease = 0
    for note, each in notes:
        lease = leases.get((each.job, note.fence), lease)
        placed.append(((note.at, lease, MIDDLE, note.id, 0), each.entry))
        if note.kind == PHASE:
            phases[note.at, note.name.partition(" ")[2]] = lease, note.id
    placed += place_moves(moves, leases, phases)
    return [entry for _, entry in sorted(placed, key=itemgetter(0)) if entry is not None]


def place_moves(
    moves: list[tuple[RunMove, PlacedEntry]],
    leases: dict[tuple[int, int], int],
    phases: dict[tuple[int, str], tuple[int, int]],
) -> Iterator[tuple[tuple[int, ...], TranscriptEntry | None]]:
    """Moves with their places: a run begins with the first lease of a job, and a phase where its holder noted it."""
    first: dict[int, int] = {}  # by job: the first of its leases
    for (job, _), number in leases.items():
        first.setdefault(job, number)
    firsts = iter(first.values())
    grants = find_grants(moves)
    for move, each in moves:
        noted = phases.get((move.at, move.trigger)) or phases.get((move.at, move.target))
        if each.job:
            yield (move.at, leases[each.job, move.fence], FIRST, 1, 0), each.entry
        elif move.trigger == BEGIN:
            yield (move.at, next(firsts, 0), FIRST, 0, 0), each.entry
        elif move.trigger in PHASES and noted:
            yield (move.at, noted[0], MIDDLE, noted[1], 1), each.entry
        else:
            passed = sum((grant.at, grant.act) < (move.at, move.act) for grant, _ in grants)
            yield (move.at, passed, LAST, move.act, move.version), each.entry


def find_grants(moves: list[tuple[RunMove, PlacedEntry]]) -> list[tuple[RunMove, PlacedEntry]]:
    """The moves by which a job was granted."""
    return [pair for pair in moves if pair[1].job]
