"""Check linearizability: the answers that clients got must fit one order that respects time.

To its clients a unit is a versioned state and a fenced lease. What got no answer may have happened or not: an end of a
lease at any time after it was asked for, all else only as a version or a fence that nobody was told of.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from interlock.kernel.commands import (
    Claim,
    Command,
    Finish,
    LeaseGrant,
    LeaseRef,
    LeaseStatus,
    Release,
    Standing,
    Submit,
    Submitted,
)
from interlock.testing.simulation.net import Op

EXPIRED = "LEASE_EXPIRED"
OVER = (EXPIRED, "LEASE_ENDED", "LEASE_REVOKED")
NEVER = 2**62  # when an answer comes that does not come
SUPERSEDED, UNHEARD = "LEASE_SUPERSEDED", ("UNKNOWN_LEASE", "LEASE_CONFLICT")


class UnitKnowledge(NamedTuple):
    """All that an order of answers says of a unit so far."""

    version: int = 0
    state: str = ""
    fence: int = 0
    live: bool = False  # whether the last grant may still speak
    last: str = ""  # what ended it, if its holder did


class Observation(NamedTuple):
    """One answer about one unit, and between which instants it became true."""

    invoked: int
    returned: int
    kind: str  # saw, granted, spoke, over, superseded
    version: int = 0
    state: str = ""
    fence: int = 0
    end: str = ""  # what ends the lease, if it does


def after(known: UnitKnowledge, answer: Observation) -> UnitKnowledge | None:
    """What is known after an answer; None if it cannot come next."""
    if answer.kind == "saw":
        if answer.version < known.version or (answer.version == known.version and answer.state != known.state):
            return None
        return known._replace(version=answer.version, state=answer.state)
    if answer.kind == "granted":
        if answer.fence < known.fence or (answer.fence == known.fence and not known.live):
            return None
        return known._replace(fence=answer.fence, live=True, last="")
    if answer.kind == "superseded":
        fence = max(known.fence, answer.fence + 1)
        return known if fence == known.fence else known._replace(fence=fence, live=True, last="")
    if answer.kind == "over":
        if answer.fence < known.fence:
            return None
        same = answer.fence == known.fence
        return known._replace(fence=answer.fence, live=False, last=known.last if same else "")
    return apply_message(known, answer)


def apply_message(known: UnitKnowledge, answer: Observation) -> UnitKnowledge | None:
    """A holder was heard: it must be the last one, and may not have ended; but what it said last it may say again."""
    if answer.fence < known.fence:
        return None
    if answer.fence == known.fence and not known.live:
        return known if answer.end and answer.end == known.last else None
    return known._replace(fence=answer.fence, live=not answer.end, last=answer.end)


def linearizable(answers: list[Observation]) -> bool:
    """Whether there is an order in which every answer is possible, and none comes before one that it came after."""
    answers = sorted(answers)
    ends = [submitted.returned for submitted in answers]
    certain = sum(end < NEVER for end in ends)
    start: tuple[int, frozenset[int], UnitKnowledge, int] = (0, frozenset(), UnitKnowledge(), 0)
    trail, visited = [start], {start}
    while trail:
        first, done, known, answer = trail.pop()
        if answer == certain:
            return True
        for place in reversed(list(find_next(answers, ends, first, done))):
            if (then := after(known, answers[place])) is not None:
                begun, more = first, done | {place}
                while begun in more:
                    more -= {begun}
                    begun += 1
                state = (begun, more, then, answer + (ends[place] < NEVER))
                if state not in visited:
                    visited.add(state)
                    trail.append(state)
    return False


def find_next(answers: list[Observation], ends: list[int], first: int, done: frozenset[int]) -> list[int]:
    """Those that may come next: they were asked before any other one that is left had been answered."""
    bound, candidates = ends[first], []
    for place in range(first, len(answers)):
        if answers[place].invoked > bound:
            break
        if place not in done:
            candidates.append(place)
            bound = min(bound, ends[place])
    return sorted(
        (submitted for submitted in candidates if answers[submitted].invoked <= bound),
        key=lambda submitted: ends[submitted],
    )


def group_by_unit(history: Iterable[Op], steady: bool = True) -> dict[int, list[Observation]]:
    """What clients were told, unit by unit."""
    units: dict[int, list[Observation]] = {}
    for op in history:
        if op.returned is None:
            for held in list_leases(op.command) if isinstance(op.command, Finish | Release) else ():
                answer = Observation(op.invoked, NEVER, "spoke", fence=held.fence, end=end_of(op.command, held))
                units.setdefault(held.unit, []).append(answer)
        elif not isinstance(op.answer, BaseException):
            for unit, answer in list_answers(op, op.invoked, op.returned):
                if steady or answer.end != EXPIRED:
                    units.setdefault(unit, []).append(answer)
    return units


def list_answers(op: Op, invoked: int, returned: int) -> Iterator[tuple[int, Observation]]:
    """Lists what an answer says of each unit."""
    if isinstance(op.answer, Standing):
        yield op.answer.unit, Observation(invoked, returned, "saw", op.answer.version, op.answer.state)
    elif isinstance(op.command, Claim):
        for grant in op.answer:
            assert isinstance(grant, LeaseGrant)
            yield grant.unit, Observation(invoked, returned, "granted", fence=grant.fence)
    elif isinstance(op.answer, list) and op.answer and isinstance(op.answer[0], LeaseStatus):
        for held, status in zip(list_leases(op.command), op.answer, strict=True):
            if (answer := observe_status(op.command, held, status, invoked, returned)) is not None:
                yield held.unit, answer


def observe_status(
    command: Command[Any], held: LeaseRef, status: LeaseStatus, invoked: int, returned: int
) -> Observation | None:
    """Returns what the status of a lease says of its unit; None if nothing."""
    if status.why in UNHEARD:
        return None
    if status.why == SUPERSEDED:
        return Observation(invoked, returned, "superseded", fence=held.fence)
    if status.why in OVER:
        return Observation(invoked, returned, "over", fence=held.fence, end=status.why if status.why == EXPIRED else "")
    return Observation(
        invoked, returned, "spoke", fence=held.fence, end=end_of(command, held) if status.accepted else ""
    )


def end_of(command: Command[Any], held: LeaseRef) -> str:
    """How a holder says that it is done. To give back what was cancelled, and to say so, is the same."""
    if isinstance(command, Finish):
        return next(outcome.ended for outcome in command.outcomes if outcome.held == held)
    return "cancelled" if isinstance(command, Release) else ""


def list_leases(command: Any) -> tuple[LeaseRef, ...]:
    """Lists the leases that a command names."""
    if isinstance(command, Finish):
        return tuple(outcome.held for outcome in command.outcomes)
    held: tuple[LeaseRef, ...] = command.held
    return held


def find_broken_histories(history: list[Op], *, steady: bool = True) -> Iterator[str]:
    """What clients were told that cannot be true. A clock that is not steady may take an expiry back."""
    for unit, answers in sorted(group_by_unit(history, steady).items()):
        if not linearizable(answers):
            yield f"unit {unit}: what clients were told fits no order: {answers}"
    yield from find_broken_keys(history)


def find_broken_keys(history: list[Op]) -> Iterator[str]:
    """A key makes one unit, and a request that is sent again is answered as before."""
    made: dict[tuple[int, str, str], int] = {}
    answered: dict[tuple[str, str], Any] = {}
    for op in history:
        if op.returned is None or isinstance(op.answer, BaseException):
            continue
        key = op.command.idempotency_key
        if key is not None:
            before = answered.setdefault((type(op.command).__name__, key), op.answer)
            if before != op.answer:
                yield f"the key '{key}' was answered with {before}, and then with {op.answer}"
            continue
        if isinstance(op.command, Submit):
            yield from find_duplicates(op.command, op.answer, made)


def find_duplicates(command: Submit, answer: list[Submitted], made: dict[tuple[int, str, str], int]) -> Iterator[str]:
    """Finds keys under which more than one unit was made."""
    for work, submitted in zip(command.work, answer, strict=True):
        if work.key is not None and submitted.created and not submitted.replaced:
            first = made.setdefault((command.tenant, work.task, work.key), submitted.unit)
            if first != submitted.unit:
                yield f"the key '{work.key}' of task '{work.task}' made unit {first}, and then unit {submitted.unit}"
