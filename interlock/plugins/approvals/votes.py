"""Verdicts of people: who may give one, and how many it takes."""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from interlock.core import validation
from interlock.core.advance import make_stamp
from interlock.core.cancel import make_standing
from interlock.core.decide import apply_verdict
from interlock.core.effective_policy import policy_of
from interlock.core.notes import note
from interlock.core.outcomes import keep_result
from interlock.core.reactions.roll_up import end_child
from interlock.core.validation import check_name, check_text
from interlock.kernel.approvals import VERDICTS
from interlock.kernel.commands import Command, Decide, Policy, Standing, Vote, Work, read_options
from interlock.kernel.errors import InterlockError, NotWanted, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.kernel.rows import Unit
from interlock.plugins.approvals.queries import find_top
from interlock.store.queries.for_verbs import find_submitter, has_note, load_open_children, read_notes
from interlock.store.queries.views import find_open_gates
from interlock.store.unit_of_work import UnitOfWork

NAMES_SHOWN = 5


class ApprovalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What work says of those who approve it."""

    quorum: int | None = None  # how many votes it takes, one by default
    on_reject: str | None = None  # "cancel" (the default) or "fail" its run
    approvers: tuple[str, ...] = ()  # who may vote, by name or role; anybody by default
    not_submitter: bool = False  # whoever submitted the run has no vote


class Voice(msgspec.Struct, frozen=True):
    """What the note of a vote says."""

    approve: bool
    comment: str = ""
    roles: tuple[str, ...] = ()
    vouched_by: str = ""  # the key that spoke for the voter
    arguments: str | UnsetType = UNSET  # JSON: what is approved, instead of what was asked for


def cast_verdict(tx: UnitOfWork, command: Decide) -> Standing | None:
    """A verdict is a vote where it takes several, or not everybody may give it; None where it is not."""
    if command.trigger in VERDICTS:
        load_open_children(tx, command.unit)
        unit = tx.unit(command.unit)
        own = policy_of(tx.body(unit))
        if own.quorum is not None or own.approvers or own.not_submitter:
            tx.lifecycle(unit).move(unit.state, command.trigger)
            voice = Voice(command.trigger == "approve", command.reason, vouched_by=command.vouched_by)
            return cast(tx, unit, own, command, command.actor, voice)
    return None


def reject_parent(tx: UnitOfWork, unit: Unit, command: Decide) -> None:
    """What was rejected takes its run with it: cancelled, unless the template says failed.

    What decides nothing about its parent, such as the question of a handler, is heard by that alone.
    """
    if command.trigger != "reject" or not unit.parent or not unit.decides:
        return
    if policy_of(tx.body(unit)).on_reject == "fail":
        return
    run, stamp = tx.unit(unit.parent), make_stamp(command)
    if tx.lifecycle(run).allows(run.state, "cancel"):
        end_child(tx, run, "cancel", msgspec.structs.replace(stamp, reason=stamp.reason or "rejected", cause=None))


def check_approval(lifecycles: Mapping[str, Lifecycle], work: Work) -> None:
    """Check what work says of those who approve it.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    options = read_options(work, ApprovalOptions)
    validation.check_choice("on_reject", options.on_reject or "cancel", ("cancel", "fail"))
    if options.quorum is not None:
        validation.check_range("quorum", options.quorum, 1)
    for approver in options.approvers:
        validation.check_name("an approver", approver)


def vote(tx: UnitOfWork, command: Vote) -> Standing:
    """A vote is remembered, one a voter; the one that makes the quorum approves. A vote against rejects.

    When nothing waits for one, nothing has changed.
    """
    check_name("voter", command.voter)
    check_text("reason", command.reason)
    if command.arguments is not None:
        validation.check_json("arguments", command.arguments)
        if not command.approve:
            raise InterlockError("arguments are not allowed for a rejection; an approval may have them")
    unit = find_voted(tx, command)
    if unit is None:
        return make_standing(tx.unit(command.unit), applied=False)
    given = UNSET if command.arguments is None else command.arguments
    voice = Voice(command.approve, command.reason, command.roles, command.vouched_by, given)
    return cast(tx, unit, policy_of(tx.body(unit)), command, command.voter, voice)


def find_voted(tx: UnitOfWork, command: Vote) -> Unit | None:
    """What waits for this vote: the unit itself, or its gate of the step that is named, or the one gate below it.

    Of several gates of a run itself the first one is meant, so that a call opens one at most (A1-13).

    Raises:
        NotWanted: several wait further below the unit, and none of them is named.
    """
    named = command.unit
    # Children are locked before their parent, so they are asked first.
    if command.step is None and (not has_gate(tx, named) or tx.lifecycle(tx.unit(named)).leased):
        named = find_approval(tx, named)
    below = load_open_children(tx, named)
    unit = tx.unit(named)
    names = {child.id: policy_of(tx.body(child)).step or tx.body(child).task for child in (unit, *below)}
    if command.step is not None and command.step not in names.values():
        tasks = {child.id: tx.body(child).task for child in (unit, *below)}
        if command.step not in tasks.values():
            steps = ", ".join(names[child.id] for child in below) or "none"
            raise Unknown(f"{format_id(unit.lifecycle, unit.id)} has no open step '{command.step}'; it has {steps}")
        names = tasks
    trigger = VERDICTS[not command.approve]
    waiting = [child for child in (unit, *below) if tx.lifecycle(child).allows(child.state, trigger)]
    waiting = [child for child in waiting if child.category == Category.GATE]
    return next((child for child in waiting if command.step in (None, names[child.id])), None)


def has_gate(tx: UnitOfWork, unit: int) -> bool:
    """Whether a gate that takes votes is open directly below a unit."""
    children = load_open_children(tx, unit)
    return any(child.category == Category.GATE and takes_votes(tx.lifecycle(child)) for child in children)


def find_approval(tx: UnitOfWork, unit: int) -> int:
    """Returns the one approval at a unit or anywhere below it; the unit itself if none waits.

    Raises:
        NotWanted: nothing there waits for a vote, or several things do.
    """
    takers = {name for name, lifecycle in tx.lifecycles.items() if takes_votes(lifecycle)}
    gates = [gate for gate in find_open_gates(tx.connection, tx.tenant, unit) if gate[1] in takers]
    if len(gates) > 1:
        names = ", ".join(format_id(lifecycle, gate) for gate, lifecycle in gates[:NAMES_SHOWN])
        more = ", …" if len(gates) > NAMES_SHOWN else ""
        raise NotWanted(f"{len(gates)} approvals wait there: {names}{more}; name one of them")
    return gates[0][0] if gates else unit


def takes_votes(lifecycle: Lifecycle) -> bool:
    """Whether a state of a lifecycle waits for an approval."""
    gates = [name for name, state in lifecycle.states.items() if state.category == Category.GATE]
    return any(lifecycle.allows(gate, VERDICTS[0]) for gate in gates)


def cast(tx: UnitOfWork, unit: Unit, own: Policy, command: Command[Standing], voter: str, voice: Voice) -> Standing:
    """A vote counts, if this voter has one and has not cast it."""
    refuse_stranger(tx, unit, own, voter, voice.roles)
    if has_note(tx, unit.id, "vote", voter):
        return make_standing(unit, applied=False)
    refuse_other_arguments(tx, unit, voice)
    note(tx, unit.id, "vote", msgspec.json.encode(voice).decode(), name=voter)
    votes = [(note.name, msgspec.json.decode(note.payload, type=Voice)) for note in read_notes(tx, [unit.id], "vote")]
    given = [name for name, voice in votes if voice.approve]
    if voice.approve and len(given) < (own.quorum or 1):
        return make_standing(unit, applied=True)
    if voice.approve:
        result: dict[str, object] = {"by": given, "comment": voice.comment}
        if voice.arguments is not UNSET:
            result["arguments"] = msgspec.Raw(voice.arguments.encode())
        keep_result(tx, unit, msgspec.json.encode(result).decode())
    order = Decide(
        unit=unit.id, trigger=VERDICTS[not voice.approve], tenant=command.tenant, actor=voter, reason=voice.comment,
        cause=command.cause, vouched_by=command.vouched_by,
    )  # fmt: skip
    return apply_verdict(tx, order)


def refuse_other_arguments(tx: UnitOfWork, unit: Unit, voice: Voice) -> None:
    """Raises InterlockError if others have approved something else: a quorum is one for the same thing."""
    votes = [msgspec.json.decode(vote.payload, type=Voice) for vote in read_notes(tx, [unit.id], "vote")]
    other = next((vote for vote in votes if vote.approve), None)
    if voice.approve and other is not None and other.arguments != voice.arguments:
        approved = "what was asked for" if other.arguments is UNSET else other.arguments[:200]
        raise InterlockError(f"OTHER_ARGUMENTS: others have approved {approved}; approve the same, or reject it")


def refuse_stranger(tx: UnitOfWork, unit: Unit, own: Policy, voter: str, roles: tuple[str, ...]) -> None:
    """Raises InterlockError for somebody who has no vote here."""
    if own.approvers and not {voter, *roles} & set(own.approvers):
        raise InterlockError(f"NOT_AN_APPROVER: '{voter}' has no vote here; these have: {', '.join(own.approvers)}")
    if own.not_submitter and voter == find_submitter(tx, find_top(tx, unit)):
        raise InterlockError(f"NOT_AN_APPROVER: '{voter}' submitted this, so another one must decide")
