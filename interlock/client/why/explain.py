"""Why a unit is where it is: its state, what may move it on, and which condition keeps it."""

from collections.abc import Mapping

import msgspec

from interlock.client.durations import stated, told
from interlock.client.why.facts import Facts, gather
from interlock.client.why.reasons import Reason, lines, reason, shortened, withheld_why
from interlock.kernel.errors import Corrupt, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle, Move, Owner
from interlock.kernel.rows import Unit
from interlock.kernel.texts import make_plain
from interlock.store.acts import WITHHELD
from interlock.store.connection import Connection
from interlock.store.queries.views import notes_of, read_unit

TRIES_SHOWN = 3
BY = {
    Owner.ENGINE: "the engine", Owner.HOLDER: "its holder", Owner.PERSON: "a person", Owner.VALIDATOR: "a validator",
    Owner.REPORTER: "a reporter",
}  # fmt: skip


class Next(msgspec.Struct, frozen=True):
    """A move that the lifecycle lists here: who may fire it, what is asked first, and how it stands with it now."""

    trigger: str
    target: str
    by: str
    guard: str  # the names, joined by "and"
    note: str
    now: str  # what it waits for, with its values; empty: for nothing but whoever may fire it


class Clock(msgspec.Struct, frozen=True):
    """An instant at which time will look at the unit."""

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
    refused: tuple[str, ...]  # whose word was refused last
    moves: tuple[Next, ...]
    text: str
    traceback: str | None = None  # of the last attempt that failed, of a run that of its step


def explain(connection: Connection, tenant: int, lifecycles: Mapping[str, Lifecycle], unit: int) -> Why:
    """Why a unit is where it is. Raises Unknown."""
    row = read_unit(connection, tenant, unit)
    try:
        facts = gather(connection, tenant, lifecycles, unit)
        return answered(facts) if facts.unit.lifecycle in lifecycles else unlisted(facts)
    except Corrupt as error:
        return unreadable(connection, row, str(error))
    except Unknown:
        return unreadable(connection, row, "its body is missing")


def answered(facts: Facts) -> Why:
    found, unit = reason(facts), facts.unit
    why = Why(
        unit=facts.name, state=unit.state, category=unit.category, reason=found.code, answer=found.answer,
        details=found.details, attempt=unit.attempt, attempts=facts.budget.attempts, failures=unit.failures,
        losses=unit.losses, clocks=clocks(facts), tries=tries(facts), refused=refused(facts),
        moves=moves(facts, found), text="", traceback=traceback(facts),
    )  # fmt: skip
    return msgspec.structs.replace(why, text=text(why, facts))


def unlisted(facts: Facts) -> Why:
    """The answer for a unit whose lifecycle file is not known here."""
    unit = facts.unit
    answer = f"{facts.name} is {unit.state} ({unit.category}); the file of its lifecycle is not known here"
    return Why(
        unit=facts.name, state=unit.state, category=unit.category, reason=unit.category, answer=answer, details=(),
        attempt=unit.attempt, attempts=0, failures=unit.failures, losses=unit.losses, clocks=(), tries=(),
        refused=refused(facts), moves=(), text=answer,
    )  # fmt: skip


def traceback(facts: Facts) -> str | None:
    note = facts.traceback
    if note is None:
        return None
    try:
        return str(msgspec.json.decode(note.payload))
    except msgspec.MsgspecError:
        return note.payload  # somebody has damaged it


def unreadable(connection: Connection, unit: Unit, what: str) -> Why:
    """The answer for a unit of which a part is broken or gone."""
    name = format_id(unit.lifecycle, unit.id)
    answer, details = f"{name} is {unit.state}, and {what}", (f"end it: interlock cancel {name}",)
    if unit.parked_on == WITHHELD:
        answer = f"{name} is withheld: {withheld_why(notes_of(connection, unit.tenant, unit.id))}"
    return Why(
        unit=name, state=unit.state, category=unit.category, reason="unreadable", answer=answer, details=details,
        attempt=unit.attempt, attempts=0, failures=unit.failures, losses=unit.losses, clocks=(), tries=(), refused=(),
        moves=(), text="\n".join((answer, *(f"  {detail}" for detail in details))),
    )  # fmt: skip


def clocks(facts: Facts) -> tuple[Clock, ...]:
    """What time will do to an open unit if nobody else does anything, the next thing first."""
    unit, lifecycle = facts.unit, facts.lifecycle
    if lifecycle.settled(unit.state):
        return ()
    known = {
        "it is due": unit.due_at if unit.due_at and unit.due_at > facts.now else None,
        "its lease ends": unit.lease_until if facts.held else None,
        "its cancel is forced": unit.asked_by if facts.held else None,
        f"its time is over ({lifecycle.states[unit.state].deadline})": unit.deadline_at,
    }
    found = sorted((at, what) for what, at in known.items() if at is not None)
    return tuple(Clock(told(at, facts.now), what) for at, what in found)


def tries(facts: Facts) -> tuple[str, ...]:
    """How the last attempts ended."""
    ends = []
    for event in facts.events:
        move = facts.lifecycle.moves.get((event.source, event.trigger))
        if move and move.opens_attempt:
            error = msgspec.json.decode(event.payload).get("error") or event.reason
            said = f": {shortened(error)}" if error != event.trigger else ""
            ends.append(f"attempt {event.attempt - 1} ended at {stated(event.at)} by {event.trigger}{said}")
    return tuple(ends[-TRIES_SHOWN:])


def refused(facts: Facts) -> tuple[str, ...]:
    """Whose word was refused last, and why."""
    words = []
    for note in facts.notes:
        if note.kind == "refused":
            said = msgspec.json.decode(note.payload)
            words.append(f"{said['verb']} of {said['by']} under fence {note.fence} at {stated(note.at)}: {said['why']}")
    return tuple(words[-TRIES_SHOWN:])


def moves(facts: Facts, found: Reason) -> tuple[Next, ...]:
    """Every move that its lifecycle lists here."""
    listed = [move for (source, _), move in facts.lifecycle.moves.items() if source == facts.unit.state]
    return tuple(
        Next(
            move.trigger,
            " → ".join(move.path),
            BY[move.owner],
            " and ".join(move.guards),
            move.note,
            condition(facts, move, found),
        )
        for move in listed
    )


def condition(facts: Facts, move: Move, found: Reason) -> str:
    """What a move waits for now, with its values; empty if for nothing but whoever may fire it."""
    unit, trigger = facts.unit, move.trigger
    if trigger in ("claim", "reclaim"):
        return "" if found.code == "ready" else found.code.replace("_", " ")
    if trigger == "due":
        return f"due at {stated(unit.due_at)}" if unit.due_at else "nothing is due"
    if trigger == "lost":
        return f"its lease ends at {stated(unit.lease_until)}" if facts.held and unit.lease_until else "nobody holds it"
    if trigger == facts.lifecycle.states[unit.state].deadline:
        return f"its time is over at {stated(unit.deadline_at)}" if unit.deadline_at else "no time limit is set"
    if trigger == "stopped" and unit.asked_at is None:
        return "nobody has asked it to stop"
    if move.owner is Owner.HOLDER:
        return "" if facts.held else "nobody holds it"
    if trigger in ("retry", "exhaust"):
        return f"of {facts.budget.attempts} attempts {unit.failures} failed and {unit.losses} were lost"
    return ""


def text(why: Why, facts: Facts) -> str:
    """The answer for people: first what keeps it, then the rest."""
    unit = facts.unit
    spent = f", {why.failures} failed, {why.losses} lost, of {why.attempts}" if facts.lifecycle.leased else ""
    about = f"{why.state} ({why.category}) since {stated(unit.changed_at)}, attempt {why.attempt}{spent}"
    rows = [
        why.answer,
        *(f"  {detail}" for detail in why.details),
        f"state     {about}",
        *(f"next      {clock.what} at {clock.at}" for clock in why.clocks[:1]),
        *(f"then      {clock.what} at {clock.at}" for clock in why.clocks[1:]),
        *(f"before    {one}" for one in why.tries),
        *(f"refused   {one}" for one in why.refused),
        *(f"{'moves' if not place else '     '}     {spelled(move)}" for place, move in enumerate(why.moves)),
    ]
    if why.traceback is not None:
        rows += ["traceback", *(f"  {line}" for line in make_plain(why.traceback).split("\n"))]
    return "\n".join(rows)


def spelled(move: Next) -> str:
    parts = lines(f"if {move.guard}" if move.guard else "", move.note, f"now: {move.now}" if move.now else "")
    return "; ".join((f"{move.trigger} → {move.target}, by {move.by}", *parts))
