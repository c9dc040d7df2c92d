"""The explanation: the state, the transitions that may come, and the condition that keeps it."""

from collections.abc import Mapping

import msgspec

from interlock.client.durations import format_time, format_time_relative
from interlock.client.why.facts import Facts, gather
from interlock.client.why.reasons import Reason, describe_withholding, drop_empty, find_reason, shorten
from interlock.kernel.errors import Corrupt, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle, Move, Owner
from interlock.kernel.rows import Unit
from interlock.kernel.texts import make_plain
from interlock.kernel.timing import present_deadline
from interlock.store.acts import WITHHELD
from interlock.store.connection import Connection
from interlock.store.queries.views import notes_of, read_unit

TRIES_SHOWN = 3
BY = {
    Owner.ENGINE: "the engine", Owner.HOLDER: "its holder", Owner.PERSON: "a person", Owner.VALIDATOR: "a validator",
    Owner.REPORTER: "a reporter",
}  # fmt: skip


class NextMove(msgspec.Struct, frozen=True):
    """A transition that the lifecycle lists here: who may make it, what is checked first, and what it waits for now."""

    trigger: str
    target: str
    by: str
    guard: str  # the names, joined by "and"
    note: str
    now: str  # what it waits for, with its values; empty: only for whoever may make it


class Clock(msgspec.Struct, frozen=True):
    """A time at which something happens to the unit by itself."""

    at: str
    what: str


class Why(msgspec.Struct, frozen=True):
    """The answer, for programs and for people."""

    unit: str
    state: str
    category: str
    reason: str
    answer: str
    details: tuple[str, ...]
    attempt: int
    attempts: int
    failures: int
    losses: int
    clocks: tuple[Clock, ...]  # the next one first
    tries: tuple[str, ...]  # how the last attempts ended
    refused: tuple[str, ...]  # what was rejected last: from whom, and why
    moves: tuple[NextMove, ...]
    text: str
    traceback: str | None = None  # of the last attempt that failed, of a run that of its step


def explain(connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int) -> Why:
    """Explains why a job, run or step is where it is.

    Raises:
        Unknown: there is none.
    """
    row = read_unit(connection, tenant, unit)
    try:
        facts = gather(connection, tenant, lifecycles, unit)
        return make_answer(facts) if facts.unit.lifecycle in lifecycles else answer_unlisted(facts)
    except Corrupt as error:
        return answer_unreadable(connection, row, str(error))
    except Unknown:
        return answer_unreadable(connection, row, "its body is missing")


def make_answer(facts: Facts) -> Why:
    """Makes the answer: the reason, what would move the unit on, and its clocks."""
    reason, unit = find_reason(facts), facts.unit
    why = Why(
        unit=facts.name, state=unit.state, category=unit.category, reason=reason.code, answer=reason.answer,
        details=reason.details, attempt=unit.attempt, attempts=facts.budget.attempts, failures=unit.failures,
        losses=unit.losses, clocks=list_clocks(facts), tries=list_attempts(facts), refused=list_refusals(facts),
        moves=list_moves(facts, reason), text="", traceback=read_traceback(facts),
    )  # fmt: skip
    return msgspec.structs.replace(why, text=format_text(why, facts))


def answer_unlisted(facts: Facts) -> Why:
    """Answers for a job whose lifecycle file is not known here."""
    unit = facts.unit
    answer = f"{facts.name} is {unit.state} ({unit.category}); the file of its lifecycle is not known here"
    return Why(
        unit=facts.name, state=unit.state, category=unit.category, reason=unit.category, answer=answer, details=(),
        attempt=unit.attempt, attempts=0, failures=unit.failures, losses=unit.losses, clocks=(), tries=(),
        refused=list_refusals(facts), moves=(), text=answer,
    )  # fmt: skip


def read_traceback(facts: Facts) -> str | None:
    """Returns the last traceback among the facts; None if there is none that can be read."""
    note = facts.traceback
    if note is None:
        return None
    try:
        return str(msgspec.json.decode(note.payload))
    except msgspec.MsgspecError:
        return note.payload  # somebody has damaged it


def answer_unreadable(connection: Connection, unit: Unit, what: str) -> Why:
    """Answers for a job of which a part is broken or gone."""
    name = format_id(unit.lifecycle, unit.id)
    answer, details = f"{name} is {unit.state}, and {what}", (f"end it: interlock cancel {name}",)
    if unit.parked_on == WITHHELD:
        answer = f"{name} is withheld: {describe_withholding(notes_of(connection, unit.tenant, unit.id))}"
    return Why(
        unit=name, state=unit.state, category=unit.category, reason="unreadable", answer=answer, details=details,
        attempt=unit.attempt, attempts=0, failures=unit.failures, losses=unit.losses, clocks=(), tries=(), refused=(),
        moves=(), text="\n".join((answer, *(f"  {detail}" for detail in details))),
    )  # fmt: skip


def list_clocks(facts: Facts) -> tuple[Clock, ...]:
    """Lists what time will do if nobody else does anything, the next thing first."""
    unit, lifecycle = facts.unit, facts.lifecycle
    if lifecycle.settled(unit.state):
        return ()
    known = {
        "it is due": unit.due_at if unit.due_at and unit.due_at > facts.now else None,
        "its lease ends": unit.lease_until if facts.held else None,
        "its cancel is forced": unit.asked_by if facts.held else None,
        f"its time is over ({lifecycle.states[unit.state].deadline})": present_deadline(unit.deadline_at),
    }
    in_order = sorted((at, what) for what, at in known.items() if at is not None)
    return tuple(Clock(format_time_relative(at, facts.now), what) for at, what in in_order)


def list_attempts(facts: Facts) -> tuple[str, ...]:
    """Lists how the last attempts ended."""
    ends = []
    for event in facts.events:
        move = facts.lifecycle.moves.get((event.source, event.trigger))
        if move and move.opens_attempt:
            error = msgspec.json.decode(event.payload).get("error") or event.reason
            why = f": {shorten(error)}" if error != event.trigger else ""
            ends.append(f"attempt {event.attempt - 1} ended at {format_time(event.at)} by {event.trigger}{why}")
    return tuple(ends[-TRIES_SHOWN:])


def list_refusals(facts: Facts) -> tuple[str, ...]:
    """Lists what was rejected last: from whom, and why."""
    refusals = []
    for note in facts.notes:
        if note.kind == "refused":
            payload = msgspec.json.decode(note.payload)
            sender = f"{payload['verb']} of {payload['by']} under fence {note.fence}"
            refusals.append(f"{sender} at {format_time(note.at)}: {payload['why']}")
    return tuple(refusals[-TRIES_SHOWN:])


def list_moves(facts: Facts, reason: Reason) -> tuple[NextMove, ...]:
    """Lists every move that its lifecycle has here."""
    listed = [move for (source, _), move in facts.lifecycle.moves.items() if source == facts.unit.state]
    return tuple(
        NextMove(
            move.trigger,
            " → ".join(move.path),
            BY[move.owner],
            " and ".join(move.guards),
            move.note,
            describe_condition(facts, move, reason),
        )
        for move in listed
    )


def describe_condition(facts: Facts, move: Move, reason: Reason) -> str:
    """Says what a move waits for now, with its values; empty if only for whoever may make it."""
    unit, trigger = facts.unit, move.trigger
    if trigger in ("claim", "reclaim"):
        return "" if reason.code == "ready" else reason.code.replace("_", " ")
    if trigger == "due":
        return f"due at {format_time(unit.due_at)}" if unit.due_at else "nothing is due"
    if trigger == "lost":
        return (
            f"its lease ends at {format_time(unit.lease_until)}"
            if facts.held and unit.lease_until
            else "nobody holds it"
        )
    if trigger == facts.lifecycle.states[unit.state].deadline:
        return explain_deadline(unit.deadline_at)
    if trigger == "stopped" and unit.asked_at is None:
        return "nobody has asked it to stop"
    if move.owner is Owner.HOLDER:
        return "" if facts.held else "nobody holds it"
    if trigger in ("retry", "exhaust"):
        return f"of {facts.budget.attempts} attempts {unit.failures} failed and {unit.losses} were lost"
    return ""


def explain_deadline(deadline_at: int | None) -> str:
    """Says when the time of a state is over, or that its clock stands."""
    if deadline_at is None:
        return "no time limit is set"
    known_at = present_deadline(deadline_at)
    return f"its time is over at {format_time(known_at)}" if known_at else "its clock stands while it is paused"


def format_text(why: Why, facts: Facts) -> str:
    """Formats the answer for people: first what keeps it, then the rest."""
    unit = facts.unit
    spent = f", {why.failures} failed, {why.losses} lost, of {why.attempts}" if facts.lifecycle.leased else ""
    about = f"{why.state} ({why.category}) since {format_time(unit.changed_at)}, attempt {why.attempt}{spent}"
    rows = [
        why.answer,
        *(f"  {detail}" for detail in why.details),
        f"state     {about}",
        *(f"next      {clock.what} at {clock.at}" for clock in why.clocks[:1]),
        *(f"then      {clock.what} at {clock.at}" for clock in why.clocks[1:]),
        *(f"before    {attempt}" for attempt in why.tries),
        *(f"refused   {refusal}" for refusal in why.refused),
        *(f"{'moves' if not place else '     '}     {format_move(move)}" for place, move in enumerate(why.moves)),
    ]
    if why.traceback is not None:
        rows += ["traceback", *(f"  {line}" for line in make_plain(why.traceback).split("\n"))]
    return "\n".join(rows)


def format_move(move: NextMove) -> str:
    """Formats a transition that is possible now, with who may make it and under which condition."""
    parts = drop_empty(f"if {move.guard}" if move.guard else "", move.note, f"now: {move.now}" if move.now else "")
    return "; ".join((f"{move.trigger} → {move.target}, by {move.by}", *parts))
