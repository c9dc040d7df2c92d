"""Effects as their holder records them: begun before the call, with a result after it, or not done after all.

What is known of an effect are three counts: how often it was begun, how often it was said not to have been done, and
whether it has a result. Each is a note of the unit, written under its lease, so the counts are right under its lock:

- it may be begun if it has no result and was said not to have been done as often as it was begun;
- it is *open* while it was begun once more than that: nobody knows what came of the last call. Only a result, or the
  word that it was not done, ends that. The word is the handler's own (its `check` has looked, or the call said so) or a
  person's, who was asked in the inbox.

So no call is ever made twice in silence, whatever a handler or a worker does.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from interlock.core import validation
from interlock.core.decide import apply_verdict
from interlock.core.notes import note
from interlock.core.outcomes import keep_result
from interlock.kernel.commands import AskedFor, Decide, EffectStatus, Record, Standing
from interlock.kernel.errors import InterlockError, NotWanted
from interlock.kernel.rows import Note, Unit
from interlock.plugins.effects.queries import read_all_effects
from interlock.store.connection import Connection
from interlock.store.queries.for_verbs import load_open_children, read_notes
from interlock.store.queries.recorded_steps import EFFECT_REQUEST
from interlock.store.unit_of_work import UnitOfWork

MARK, RESULT = "effect", "effect_result"  # kinds of notes
LIFECYCLE = "effect"
HAPPENED, NOT_DONE, STOP = ANSWERS = "happened", "not_done", "stop"


class EffectNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was said of an effect. `place` tells apart what one attempt says of it; the same twice is one message."""

    state: Literal["begun", "not_done"]
    place: str = ""
    by: str = ""  # who said that it was not done, if it was a person


class Question(msgspec.Struct, frozen=True):
    """The input of a question to people: the effect that it is about."""

    effect: str


def record_effect(tx: UnitOfWork, unit: Unit, command: Record) -> bool:
    """What a holder says of an effect is kept if it fits what is known.

    Raises:
        NotWanted: it does not.
    """
    if command.kind not in (MARK, RESULT):
        return False
    validation.check_name("name", command.name)
    notes = [kept for kept in read_effects(tx, [unit.id]) if kept.name == command.name]
    status = next(iter(count_effects(notes)), None)
    is_open = status is not None and status.is_open
    if command.kind == RESULT:
        if status is None or not (is_open or status.result is not None):
            raise NotWanted(f"the effect '{command.name}' was not begun, so it has no result")
        return status.result is not None  # the first one is kept
    mark = decode_mark(command)
    if any(kept.payload == encode_mark(mark) for kept in notes):
        return True  # the same message again
    if status is not None and status.result is not None:
        raise NotWanted(f"the effect '{command.name}' has a result already")
    if mark.state == "begun" and is_open:
        raise NotWanted(f"the effect '{command.name}' was begun before, and nobody has said what came of it")
    if mark.state == NOT_DONE and not is_open:
        raise NotWanted(f"the effect '{command.name}' was not begun")
    if command.of is not None:
        keep_request(tx, unit, command.name, command.of)
    note(tx, unit.id, MARK, encode_mark(mark), name=command.name, fence=unit.fence)
    return True


def keep_request(tx: UnitOfWork, unit: Unit, name: str, of: AskedFor) -> None:
    """What an effect asks for is kept with its first call.

    Raises:
        NotWanted: another one asked for something else.
    """
    validation.check_asked(of)
    before = next((kept for kept in read_notes(tx, [unit.id], EFFECT_REQUEST) if kept.name == name), None)
    if before is None:
        note(tx, unit.id, EFFECT_REQUEST, msgspec.json.encode(of).decode(), name=name, fence=unit.fence)
    elif msgspec.json.decode(before.payload, type=AskedFor).digest != of.digest:
        raise NotWanted(f"the effect '{name}' was begun before, and asked for something else; take another name")


def decode_mark(command: Record) -> EffectNote:
    """Raises InterlockError for what is no word about an effect."""
    try:
        return msgspec.json.decode(command.payload, type=EffectNote)
    except msgspec.MsgspecError as error:
        raise InterlockError(f'an effect is {{"state": "begun"}} or {{"state": "not_done"}}: {error}') from None


def read_effects(tx: UnitOfWork, units: list[int]) -> list[Note]:
    """Reads what was recorded of effects."""
    return [*read_notes(tx, units, MARK), *read_notes(tx, units, RESULT)]


def count_effects(notes: Iterable[Note]) -> list[EffectStatus]:
    """What is known of the effects of one unit, by name."""
    names: dict[str, list[Note]] = {}
    for kept in notes:
        names.setdefault(kept.name, []).append(kept)
    return [count_effect(name, [(kept.kind, kept.payload) for kept in some]) for name, some in names.items()]


def count_effect(name: str, words: Iterable[tuple[str, str]]) -> EffectStatus:
    """What is known of one effect: the kinds of its notes, and what they say."""
    begun = undone = 0
    result = None
    for kind, payload in words:
        if kind == RESULT:
            result = payload
        elif msgspec.json.decode(payload, type=EffectNote).state == "begun":
            begun += 1
        else:
            undone += 1
    return EffectStatus(name, begun, undone, result)


def hand_over_effects(tx: UnitOfWork, units: list[Unit]) -> dict[int, dict[str, Any]]:
    """What a worker is told of units that were granted before: their effects, and what is known of each."""
    by_unit: dict[int, list[Note]] = {}
    for kept in read_effects(tx, [unit.id for unit in units]):
        by_unit.setdefault(kept.unit, []).append(kept)
    digests = {
        (kept.unit, kept.name): msgspec.json.decode(kept.payload, type=AskedFor).digest
        for kept in (read_notes(tx, sorted(by_unit), EFFECT_REQUEST) if by_unit else ())
    }
    return {unit: {"effects": tuple(add_digests(unit, notes, digests))} for unit, notes in by_unit.items()}


def add_digests(unit: int, notes: list[Note], digests: Mapping[tuple[int, str], str]) -> Iterator[EffectStatus]:
    """What is known of the effects of a unit, with the digests of what they asked for."""
    for status in count_effects(notes):
        digest = digests.get((unit, status.name))
        yield status if digest is None else msgspec.structs.replace(status, of=digest)


# A person says what came of it.


def answer_question(tx: UnitOfWork, command: Decide) -> Standing | None:
    """A person says what came of a call: it happened, with this result; it did not; or nothing more is to be done."""
    if command.trigger not in ANSWERS:
        return None
    load_open_children(tx, command.unit)  # children are locked before their parent
    question = tx.unit(command.unit)
    if question.lifecycle != LIFECYCLE:
        return None
    validation.check_json("data", command.data)
    if command.trigger != HAPPENED and command.data != "null":
        raise InterlockError(f"data are not allowed with '{command.trigger}'; with '{HAPPENED}' they are the result")
    tx.lifecycle(question).move(question.state, command.trigger)
    if command.trigger == HAPPENED:
        keep_result(tx, question, command.data)
    standing = apply_verdict(tx, msgspec.structs.replace(command, data="null"))
    if question.parent is not None and command.trigger in (HAPPENED, NOT_DONE):
        tell_effect(tx, tx.unit(question.parent), tx.body(question).input, command)
    return standing


def tell_effect(tx: UnitOfWork, unit: Unit, text: str, command: Decide) -> None:
    """The answer is what is known of the effect from now on, if it is still open."""
    name = msgspec.json.decode(text, type=Question).effect
    notes = [kept for kept in read_effects(tx, [unit.id]) if kept.name == name]
    if not any(status.is_open for status in count_effects(notes)):
        return
    if command.trigger == HAPPENED:
        note(tx, unit.id, RESULT, command.data, name=name)
    else:
        mark = EffectNote("not_done", place=f"question {command.unit}", by=command.actor)
        note(tx, unit.id, MARK, encode_mark(mark), name=name)


# The law.


def find_silent_calls(connection: Connection) -> Iterator[tuple[int, str]]:
    """Effects that were begun again before anybody said what came of the last call, or that ended without one."""
    for (unit, name), marks in read_all_effects(connection).items():
        status = count_effect(name, marks)
        results = sum(kind == RESULT for kind, _ in marks)
        if status.begun - status.undone not in (0, 1):
            yield unit, f"the effect '{name}' was begun {status.begun} times, and {status.undone} were not done"
        if results > 1 or (results and status.begun != status.undone + 1):
            yield unit, f"the effect '{name}' has {results} results of {status.begun - status.undone} calls"


def encode_mark(mark: EffectNote) -> str:
    """Encodes what is recorded of an effect."""
    return msgspec.json.encode(mark).decode()
