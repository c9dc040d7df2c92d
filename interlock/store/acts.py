"""Acts: moves of units, grouped so that one row records all that moved alike.

`advance` records a move for each unit, with the round in which it happened: a consequence is in a later round than its
cause, and a unit's second move in a later round than its first. A flush makes acts of each round and writes the rounds
one after the other, so that at a cursor no effect stands before its cause.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from struct import pack
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from interlock.kernel.paths import BORN, OUTCOME, Path
from interlock.kernel.rows import Act, ActDetail, Body, Event, Unit, copied

if TYPE_CHECKING:
    from interlock.store.unit_of_work import UnitOfWork

INT8, TEXT = 20, 25  # PostgreSQL's numbers of types
NO_ELEMENT = pack(">i", -1)  # of an array
UNITS_MAX = 1_000  # of an act
ACT_BITS = 18  # of its id on PostgreSQL: the number of the act in its transaction
NOTHING = "{}"  # the payload of a move of which there is no more to tell
WITHHELD = "withheld"  # what a unit is parked on that could not be moved: whoever moves it brings it back
APART = ('"error"', '"last_error"')  # what is told of one unit alone, and may have to be erased


class LeaseTerms(NamedTuple):
    """On what a lease is granted."""

    worker: int
    ttl: int
    beat: int
    until: int
    secret: str  # hashed


class RecordedMove(msgspec.Struct, gc=False):
    """One path that one unit took, and where it began."""

    unit: Unit
    path: Path
    round: int
    version: int
    attempt: int
    fence: int
    at: int
    actor: str
    reason: str
    cause: str | None
    payload: str
    terms: LeaseTerms | None = None  # of the lease that it grants
    until: int | None = None  # when the lease that it ends would have ended
    born_as: Unit | None = None  # of a birth that was not the last move: the row as it was then
    like: "RecordedMove | None" = None  # of a birth: that of the first unit which was born so


def record_move(tx: "UnitOfWork", move: RecordedMove) -> None:
    """The move is part of the next flush. A start and what it came to are one move where a path lists both."""
    last, soonest = tx.changes.last_moves.get(move.unit.id), get_soonest_round(tx, move.unit)
    if last is not None:
        both = tx.paths.join_paths(last.path, move.path)
        if (
            both is not None
            and soonest <= last.round + 1
            and last.round >= tx.changes.round
            and last.payload == NOTHING
            and (last.at, last.actor, last.reason, last.cause) == (move.at, move.actor, move.reason, move.cause)
        ):
            last.path, last.payload, last.until = both, move.payload, move.until
            return
    move.round = soonest
    tx.changes.last_moves[move.unit.id] = move
    if move.unit.parent is not None:
        tx.changes.child_rounds[move.unit.parent] = max(soonest, tx.changes.child_rounds.get(move.unit.parent, 0))
    tx.changes.moves.append(move)


def repeat_birth(tx: "UnitOfWork", first: Unit, unit: Unit) -> None:
    """The unit is born as the first one was, by the same act if nothing else happens to either of them."""
    like = tx.changes.last_moves[first.id]
    move: RecordedMove = copied(like)
    move.unit, move.like = unit, like
    tx.changes.last_moves[unit.id] = move
    tx.changes.moves.append(move)


def get_soonest_round(tx: "UnitOfWork", unit: Unit) -> int:
    """The first round in which a unit can move: behind its own last move, and those of its parent and its children."""
    soonest = tx.changes.round
    if (last := tx.changes.last_moves.get(unit.id)) is not None:
        soonest = max(soonest, last.round + 1)
    if unit.parent is not None and (last := tx.changes.last_moves.get(unit.parent)) is not None:
        soonest = max(soonest, last.round + 1)
    return max(soonest, tx.changes.child_rounds.get(unit.id, -1) + 1)


def copy_birth(tx: "UnitOfWork", unit: Unit) -> None:
    """Whoever moves on in the transaction in which it is born is written as it was born first."""
    last = tx.changes.last_moves.get(unit.id)
    if last is not None and last.path.source == BORN and last.born_as is None:
        last.born_as = copied(unit)
        last.born_as.holder = last.born_as.lease_until = last.born_as.lease_hash = None


def group_by_round(moves: Iterable[RecordedMove]) -> list[list[RecordedMove]]:
    """Moves by their rounds, in order."""
    rounds: dict[int, list[RecordedMove]] = {}
    for move in moves:
        rounds.setdefault(move.round, []).append(move)
    return [rounds[number] for number in sorted(rounds)]


def make_acts(tx: "UnitOfWork", moves: list[RecordedMove]) -> tuple[list[Act], list[ActDetail]]:
    """The acts of one round, in the order in which the first of each group moved; units know what moved them."""
    groups: dict[Any, list[RecordedMove]] = {}
    alike: dict[int, Any] = {}  # by the first of those that were born alike
    for move in moves:
        if move.like is not None and is_alike(tx, move, move.like):
            groups[alike[id(move.like)]].append(move)
        else:
            group = alike[id(move)] = get_group(tx, move)
            groups.setdefault(group, []).append(move)
    acts: list[Act] = []
    details: list[ActDetail] = []
    for group in groups.values():
        group.sort(key=lambda move: move.unit.id)
        for start in range(0, len(group), UNITS_MAX):
            act, some = make_act(tx, group[start : start + UNITS_MAX])
            acts.append(act)
            details += some
    return acts, details


def is_alike(tx: "UnitOfWork", move: RecordedMove, like: RecordedMove) -> bool:
    """Whether nothing has happened since to either of two units that were born alike."""
    last = tx.changes.last_moves
    untouched = last[move.unit.id] is move and last[like.unit.id] is like
    return untouched and move.unit.available_at == like.unit.available_at


def get_group(tx: "UnitOfWork", move: RecordedMove) -> Any:
    """What all units of an act have in common."""
    unit, path = move.unit, move.path
    last = tx.changes.last_moves[unit.id] is move
    terms = move.terms[:4] if move.terms else move.until
    payload = None if is_apart(move.payload) else move.payload
    return (
        path.id, unit.tenant, move.version, move.attempt, move.fence, move.at, move.actor, move.reason, move.cause,
        payload, last and unit.available_at is not None, terms,
    )  # fmt: skip


def is_apart(payload: str) -> bool:
    """Whether a payload has what is kept apart from its act, for each unit by itself."""
    return any(word in payload for word in APART)


def make_act(tx: "UnitOfWork", group: list[RecordedMove]) -> tuple[Act, list[ActDetail]]:
    """Makes the act of moves that are alike, with what is kept apart of it."""
    first, path = group[0], group[0].path
    units = [move.unit for move in group]
    leases = [unit.lease_id for unit in units]
    apart = is_apart(first.payload)
    worker, ttl, beat, until = first.terms[:4] if first.terms else (None, None, None, first.until)
    act = Act(
        id=next_act_id(tx), tenant=first.unit.tenant, path=path.id, path_digest=path.digest, version=first.version,
        attempt=first.attempt, fence=first.fence, at=first.at, actor=first.actor, reason=first.reason,
        cause=first.cause, payload=NOTHING if apart else first.payload,
        available=int(tx.changes.last_moves[first.unit.id] is first and first.unit.available_at is not None),
        worker=worker, ttl=ttl, beat=beat, until=until,
        units=[unit.id for unit in units], before=[unit.act for unit in units],
        leases=leases if any(lease is not None for lease in leases) else None,
        secrets=[move.terms.secret for move in group if move.terms] or None,
        details=digest_details(tx, group, apart),
    )  # fmt: skip
    details = [ActDetail(act.id, move.unit.id, act.tenant, move.payload) for move in group] if apart else []
    for unit in units:
        unit.act = act.id
        if path.source == BORN:
            unit.born = act.id
        if path.lease_ends:
            unit.lease_id = None
        elif path.grants:
            unit.lease_id = act.id
    return act, details


def next_act_id(tx: "UnitOfWork") -> int:
    """Returns the id of the next act of this transaction."""
    tx.changes.acts += 1
    return tx.connection.act_id(tx.changes.acts)


def digest_details(tx: "UnitOfWork", group: list[RecordedMove], apart: bool) -> list[str | None] | None:
    """Digests of what is kept apart from an act: payloads of single units, results, and where the newborn belong."""
    if apart:
        return [sha256(move.payload.encode()).hexdigest() for move in group]
    if group[0].path.source != BORN:
        return digest_results(tx, group) if tx.changes.results else None
    digests = [None if move.like else digest_correlation(tx.body(move.unit)) for move in group]
    return digests if any(digests) else None


def digest_results(tx: "UnitOfWork", group: list[RecordedMove]) -> list[str | None] | None:
    """Digests of the results that units were given by the last move that this transaction made with them."""
    given = [
        tx.changes.results.get(move.unit.id) if tx.changes.last_moves[move.unit.id] is move else None for move in group
    ]
    digests = [None if result is None else digest_result(result) for result in given]
    return digests if any(digests) else None


def digest_result(result: str) -> str:
    """What an act knows of a result; it is the digest of nothing else."""
    return sha256(b"result " + result.encode()).hexdigest()


def digest_correlation(body: Body) -> str | None:
    """The digest of a unit's correlation and trace; None if it has none but its own id."""
    if body.correlation == str(body.unit) and not body.trace:
        return None
    return sha256(msgspec.json.encode([body.correlation, body.trace])).hexdigest()


def apply_moves(unit: Unit, was: Unit, moves: list[RecordedMove]) -> Unit:
    """A unit's row as its acts leave it: what else differs from it is written beside them."""
    image: Unit = copied(was)
    for move in moves:
        image.available_at = None
        if image.parked_on == WITHHELD:
            image.parked_on = None
        if move.path.outcome == OUTCOME:
            image.wake_at = image.due_at = image.deadline_at = image.parked_on = None
            image.asked_at = image.asked_by = None
    if moves and unit.available_at is not None:
        image.available_at = moves[-1].at
    return image


def digest_act(act: Act) -> str:
    """What an act is known by; PostgreSQL computes the same (`act_digest`).

    Every field that may be missing has a mark and its length before it. A list is as PostgreSQL sends an array of its
    type: a head, then each element with its length.
    """
    digest = act.path_digest.encode()
    parts = [
        pack(">qi", act.id, act.tenant), b"\1", pack(">i", len(digest)), digest,
        pack(">iiiq", act.version, act.attempt, act.fence, act.at),
    ]  # fmt: skip
    for text in (act.actor, act.reason, act.cause, act.payload):
        if text is None:
            parts.append(b"\0")
        else:
            value = text.encode()
            parts += (b"\1", pack(">i", len(value)), value)
    parts.append(pack(">i", act.available))
    for number in (act.worker, act.ttl, act.beat, act.until):
        parts.append(b"\0" if number is None else pack(">ciq", b"\1", 8, number))
    lists = ((act.units, INT8), (act.before, INT8), (act.leases, INT8), (act.secrets, TEXT), (act.details, TEXT))
    for values, kind in lists:
        if values is None:
            parts.append(b"\0")
            continue
        elements = [pack(">iiIii", 1, int(None in values), kind, len(values), 1)]
        for element in values:
            if element is None:
                elements.append(NO_ELEMENT)
            elif isinstance(element, int):
                elements.append(pack(">iq", 8, element))
            else:
                value = element.encode()
                elements += (pack(">i", len(value)), value)
        array = b"".join(elements)
        parts += (b"\1", pack(">i", len(array)), array)
    return sha256(b"".join(parts)).hexdigest()


def read_unflushed_events(tx: "UnitOfWork", unit: int) -> Iterator[Event]:
    """What this transaction did to a unit and the database has not seen, event by event."""
    for move in tx.changes.moves:
        if move.unit.id == unit:
            yield from unfold_move(move, tx.body(move.unit))


def unfold_move(move: RecordedMove, body: Body) -> Iterator[Event]:
    """The events of a move, one for each hop."""
    attempt, fence = move.attempt, move.fence
    for place, hop in enumerate(move.path.hops, start=1):
        attempt += hop.attempt
        fence += hop.fence
        yield Event(
            move.unit.id, move.version + place, move.unit.tenant, move.path.lifecycle, hop.trigger, hop.source or None,
            hop.target, hop.lease_from, hop.lease_to, attempt, fence, hop.name, hop.severity, move.at, move.actor,
            move.reason or hop.trigger, move.cause, body.correlation, body.trace,
            move.payload if place == move.path.payload_hop else NOTHING,
        )  # fmt: skip
