"""Idempotency: keep the answer of a command under its key, so that it is carried out once."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from interlock.core.notes import DAY_US
from interlock.kernel.commands import Command, FireSchedule, Requeue, Rerun, Submit
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import Answer
from interlock.store.queries.for_verbs import KeptAnswers, find_answer, forget_answer
from interlock.store.unit_of_work import UnitOfWork

MAKES_UNITS = (Submit, Requeue, Rerun, FireSchedule)
NEVER = 2**62  # microseconds; no clock gets there


class Nothing:
    """There is no such answer; None may be one."""


def run_by_key(verb: Callable[[UnitOfWork, Any], Any], tx: UnitOfWork, command: Command[Any]) -> Any:
    """The answer of a command under an idempotency key; if that is known, the answer that it got the first time."""
    answer = find_kept_answer(tx, command)
    if answer is Nothing:
        answer = verb(tx, command)
        keep_answer(tx, command, answer)
    return answer


def find_kept_answer(tx: UnitOfWork, command: Command[Any]) -> Any:
    """What the same command under the same key was answered, or Nothing. Another command under it is refused."""
    assert command.idempotency_key is not None
    if not command.takes_key:
        raise InterlockError(f"a {name(command)} needs no idempotency_key: its lease and its own key decide")
    row = find_answer(tx, command.tenant, scope(command), command.idempotency_key)
    if row is None or row.expires <= tx.now:
        return Nothing
    if row.request != digest(command):
        raise InterlockError(f"IDEMPOTENCY_CONFLICT: the key '{command.idempotency_key}' stands for another request")
    return msgspec.json.decode(row.answer, type=answer_type(type(command)))


def keep_answer(tx: UnitOfWork, command: Command[Any], answer: Any) -> None:
    """Keeps the answer of a command that came with an idempotency key."""
    assert command.idempotency_key is not None
    kept = Answer(
        tenant=command.tenant, scope=scope(command), key=command.idempotency_key, request=digest(command),
        answer=msgspec.json.encode(answer).decode(), unit=getattr(answer, "unit", None), expires=expiry(tx, command),
    )  # fmt: skip
    if old := tx.state(KeptAnswers).answers.get((kept.tenant, kept.scope, kept.key)):
        forget_answer(tx, old)
    tx.state(KeptAnswers).answers[kept.tenant, kept.scope, kept.key] = kept
    tx.add(kept)


def expiry(tx: UnitOfWork, command: Command[Any]) -> int:
    """A request that made a unit stands for that unit as long as anybody remembers it; another one for a day."""
    return NEVER if command.key_lasts and isinstance(command, MAKES_UNITS) else tx.now + DAY_US


def name(command: Command[Any]) -> str:
    """Returns the name of a command."""
    return type(command).__name__


def scope(command: Command[Any]) -> str:
    """Under which keys are told apart: the caller's scope and the kind of command."""
    return f"{command.key_scope}:{name(command)}"


def digest(command: Command[Any]) -> str:
    """What a command asks for, whoever carries it."""
    bare = msgspec.structs.replace(command, actor="", cause=None, key_lasts=False)
    return sha256(msgspec.json.encode(bare)).hexdigest()


def answer_type(kind: type[Command[Any]]) -> Any:
    """The type of the answer that commands of this kind get."""
    return kind.__orig_bases__[0].__args__[0]  # type: ignore[attr-defined]
