"""Which condition keeps a unit where it is: the first that holds, with its values."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from interlock.client.durations import roughly, stated, told
from interlock.client.why.facts import Facts
from interlock.client.why.workers import for_a_worker
from interlock.core.advance import ASKED
from interlock.kernel.approvals import ballot
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.policy import LEASED
from interlock.kernel.rows import Note
from interlock.store.acts import WITHHELD

TEXT_MAX = 200
LAST_ERROR = "last error: "


class Reason(msgspec.Struct, frozen=True):
    """A word for programs, a sentence for people, and what else is to be said."""

    code: str
    answer: str
    details: tuple[str, ...] = ()


def reason(facts: Facts) -> Reason:
    """Why a unit is where it is."""
    for look in LOOKS:
        if found := look(facts):
            return found
    return Reason("resting", f"{facts.name} is {facts.unit.state}, and nothing keeps it there but its table")


def ended(facts: Facts) -> Reason | None:
    unit, last = facts.unit, facts.last
    if not facts.lifecycle.settled(unit.state) or last is None:
        return None
    when, by = f"at {stated(last.at)}", f"by {last.actor}"
    if unit.outcome == Category.SUCCESS:
        took = f" after {roughly(last.at - facts.seen.body.created_at)}"
        return Reason(Category.SUCCESS, f"{facts.name} succeeded {when}, attempt {unit.attempt},{took} in all")
    if unit.outcome == Category.DEAD:
        return dead(facts, msgspec.json.decode(last.payload), when)
    said = because(last.reason, last.trigger)
    if unit.outcome == Category.CANCELLED:
        details = lines(wish(msgspec.json.decode(last.payload)), because_of_child(facts))
        return Reason(Category.CANCELLED, f"{facts.name} was cancelled {when} {by}{said}", details)
    if unit.outcome == Category.FAILURE:
        error = shortened(facts.seen.body.error or "") or because_of_child(facts) or last.reason
        again = f"do it again: interlock dead requeue {facts.name}" if facts.lifecycle.leased else ""
        return Reason(Category.FAILURE, f"{facts.name} failed {when}, attempt {unit.attempt}: {error}", lines(again))
    return Reason(Category.CLOSED, f"{facts.name} is {unit.state} since {stated(last.at)} {by}{said}")


def because_of_child(facts: Facts) -> str:
    """Which child ended it, by the name that its run has for it, and what became of that one."""
    below = facts.culprit
    if below is None:
        return ""
    name = below.policy.step or below.seen.body.task
    found = reason(below)
    last_error = next((one for one in found.details if one.startswith(LAST_ERROR)), "")
    return f"step '{name}': {found.answer}{f'; {last_error}' if last_error else ''}"


def wish(payload: dict[str, Any]) -> str:
    """Who had asked a unit to stop, and why."""
    asked = payload.get(ASKED)
    if not asked:
        return ""
    return f"asked to stop by {asked['by']} at {stated(asked['at'])}{because(asked['reason'], 'cancel')}"


def dead(facts: Facts, letter: dict[str, Any], when: str) -> Reason:
    stage = f" in stage {letter['stage']}" if letter.get("stage") else ""
    code, tries = letter.get("reason_code", "unknown"), letter.get("attempts", facts.unit.attempt)
    details = lines(
        f"{LAST_ERROR}{shortened(str(letter.get('last_error') or 'none'))}",
        f"last holder: {letter['last_owner']}" if letter.get("last_owner") else "",
        f"do it again: interlock dead requeue {facts.name}",
    )
    return Reason(
        Category.DEAD, f"{facts.name} is a dead letter since {when[3:]}: {code}{stage}, attempt {tries}", details
    )


def withheld(facts: Facts) -> Reason | None:
    if facts.unit.parked_on != WITHHELD:
        return None
    answer = f"{facts.name} is withheld: {withheld_why(facts.notes)}"
    return Reason(WITHHELD, answer, (f"end it: interlock cancel {facts.name}", *again(facts.name)))


def withheld_why(notes: Sequence[Note]) -> str:
    """What went wrong when a unit was picked last."""
    said = [note for note in notes if note.kind == WITHHELD]
    return str(msgspec.json.decode(said[-1].payload)["why"]) if said else "it could not be granted or moved"


def again(name: str) -> tuple[str, ...]:
    return (f"mend what is wrong, then bring it back: interlock force {name} STATE --reason WHY",)


def asked_to_stop(facts: Facts) -> Reason | None:
    unit = facts.unit
    if unit.asked_at is None:
        return None
    wishes = [note for note in facts.notes if note.kind == "cancel_requested"]
    stamp = msgspec.json.decode(wishes[-1].payload) if wishes else {}
    by = f" by {stamp['actor']}" if stamp.get("actor") else ""
    if facts.held and unit.asked_by is not None:
        ends = f"{facts.seen.holder} has until {told(unit.asked_by, facts.now)} to stop; then it is forced"
    else:
        ends = f"{unit.state} does not allow a cancel; it is done as soon as it leaves that state"
    answer = f"{facts.name} was asked to stop at {stated(unit.asked_at)}{by}: {ends}"
    return Reason("cancel_requested", answer, lines(f"stop it at once: interlock cancel {facts.name} --hard"))


def follows(facts: Facts) -> Reason | None:
    if facts.child is None:
        return None
    below = reason(facts.child)
    return Reason(below.code, f"{facts.name} does as its attempt does: {below.answer}", below.details)


def leased(facts: Facts) -> Reason | None:
    unit = facts.unit
    if not facts.held or unit.lease_until is None:
        return None
    if unit.lease_until <= facts.now:
        answer = f"{facts.name}: the lease of {facts.seen.holder} ended at {told(unit.lease_until, facts.now)}"
        return Reason("lease_over", answer, lines("the next tick gives it to another worker, or ends it"))
    does = "is run by" if facts.lifecycle.category(unit.state) is Category.ACTIVE else "is held, and not yet begun, by"
    answer = f"{facts.name} {does} {facts.seen.holder} until {told(unit.lease_until, facts.now)}, unless renewed"
    since = f"begun at {told(unit.started_at, facts.now)}" if unit.started_at else ""
    return Reason("leased", answer, lines(since, progress(facts)))


def progress(facts: Facts) -> str:
    said = [note for note in facts.notes if note.kind == "progress" and note.fence == facts.unit.fence]
    if not said:
        return ""
    try:
        step = msgspec.json.decode(said[-1].payload)
        return f"progress: {step['done']:.0%} {step.get('text', '')}".rstrip()
    except (msgspec.MsgspecError, TypeError, KeyError, ValueError, AttributeError):
        return f"progress: {shortened(said[-1].payload)}"


def unheld(facts: Facts) -> Reason | None:
    """Only force brings a unit of work into such a state."""
    unit, lifecycle = facts.unit, facts.lifecycle
    if not lifecycle.leased or lifecycle.category(unit.state) not in LEASED or facts.held or facts.claimable:
        return None
    answer = f"{facts.name} is {unit.state}, but nobody holds it, so nobody will end it"
    return Reason("unheld", answer, lines(f"put it right: interlock force {facts.name} STATE --reason WHY"))


def a_worker(facts: Facts) -> Reason | None:
    if facts.lifecycle.birth.trigger != "register":
        return None
    return Reason("worker", f"{facts.name} is a worker, and {facts.unit.state}")


def unmet_needs(facts: Facts) -> Reason | None:
    if not facts.unit.unmet:
        return None
    unmet = [need for need in facts.needs if need.outcome != Category.SUCCESS]
    lost = [need for need in unmet if need.outcome is not None]
    names = ", ".join(f"{format_id(need.lifecycle, need.unit)} ({need.state})" for need in unmet)
    never = [
        f"{format_id(need.lifecycle, need.unit)} has ended without success: this need will not be met by it"
        for need in lost
    ]
    answer = f"{facts.name} needs {len(unmet)} of {len(facts.needs)} that have not succeeded: {names}"
    return Reason("needs_unmet", answer, lines(*never[:1]))


def parents_plan(facts: Facts) -> Reason | None:
    above = facts.parent
    if above is None or not facts.lifecycles[above.unit.lifecycle].allows(above.unit.state, "plan"):
        return None
    name = format_id(above.unit.lifecycle, above.unit.id)
    return Reason("parent_plan", f"{facts.name} waits for the plan of {name}, which is {above.unit.state}")


def no_signal(facts: Facts) -> Reason | None:
    unit = facts.unit
    kind, _, rest = (unit.parked_on or "").partition(":")
    if kind != "signal":
        return None
    source, _, name = rest.partition(":")
    until = f", until {told(unit.due_at, facts.now)}" if unit.due_at else ""
    above = facts.parent if facts.parent is not None and facts.parent.unit.id == int(source) else facts.seen
    whose = format_id(above.unit.lifecycle, int(source))
    return Reason("signal", f"{facts.name} waits for the signal '{name}' of {whose}{until}")


def not_yet(facts: Facts) -> Reason | None:
    unit, last = facts.unit, facts.last
    if unit.due_at is None or unit.due_at <= facts.now:
        return None
    due = f"due at {told(unit.due_at, facts.now)}"
    if last is not None and last.trigger == "snooze":
        return Reason("snoozed", f"{facts.name} was snoozed by its handler, and is {due}")
    if last is not None and last.source is not None and last.trigger not in ("ready", "due"):
        error = msgspec.json.decode(last.payload).get("error") or last.reason
        tries = f"attempt {unit.attempt} of {facts.budget.attempts}"
        return Reason("backing_off", f"{facts.name} backs off: {tries} is {due}; the last error: {shortened(error)}")
    return Reason("delayed", f"{facts.name} is delayed: {due}")


def parked(facts: Facts) -> Reason | None:
    unit = facts.unit
    if unit.parked_on is None:
        return None
    kind, _, key = unit.parked_on.partition(":")
    taken, capacity = (facts.slot.taken, facts.slot.capacity) if facts.slot else (0, 0)
    holders = ", ".join(
        f"{format_id(one.unit.lifecycle, one.unit.id)} ({one.unit.state}{f', {one.holder}' if one.holder else ''})"
        for one in facts.seated[:5]
    )
    more = f" and {len(facts.seated) - 5} more" if len(facts.seated) > 5 else ""
    if kind == "mutex":
        return Reason("mutex", f"{facts.name} waits for the mutex '{key}', which {holders or 'another'} has{more}")
    if kind == "rate":
        began = f"{facts.name} waits for the rate '{key}': {taken} of {capacity} have begun, or are about to"
        back = f"the next may begin at {told(facts.token_at, facts.now)}" if facts.token_at is not None else ""
        return Reason(kind, began, lines(back, f"about to begin: {holders}{more}" if holders else ""))
    answer = f"{facts.name} waits for the {kind} '{key}': {taken} of {capacity} are taken"
    return Reason(kind, answer, lines(f"taken by {holders}{more}" if holders else ""))


def tenant_limit(facts: Facts) -> Reason | None:
    row, now = facts.tenant, facts.held_of_tenant
    if not facts.claimable or row is None or row.max_running is None or now < row.max_running:
        return None
    answer = (
        f"{facts.name} waits for its tenant '{row.name}': {now} of its units are held, and {row.max_running} may be"
    )
    holding = ", ".join(f"{worker.name} holds {worker.holding}" for worker, _ in facts.workers if worker.holding)
    by = f" by {row.changed_by}" if row.changed_by else ""
    said = f"the limit was set at {stated(row.changed_at)}{by}; another: interlock tenant set {row.id} --max-running N"
    return Reason("tenant_limit", answer, lines(holding, said))


def worker_wanted(facts: Facts) -> Reason | None:
    if not facts.claimable:
        return None
    return Reason(*for_a_worker(facts))


def gate(facts: Facts) -> Reason | None:
    unit, lifecycle = facts.unit, facts.lifecycle
    if lifecycle.category(unit.state) is not Category.GATE:
        return None
    if facts.children and any(one.unit.category == Category.GATE for one in facts.children):
        names = [
            format_id(one.unit.lifecycle, one.unit.id) for one in facts.children if one.unit.category == Category.GATE
        ]
        return Reason("gate", f"{facts.name} waits, as {', '.join(names)} does, for a verdict")
    verdicts = [
        trigger for trigger in lifecycle.triggers(unit.state) if lifecycle.move(unit.state, trigger).owner in DECIDERS
    ]
    words = " or ".join(trigger for trigger in verdicts if trigger != "cancel")
    owner = lifecycle.move(unit.state, verdicts[0]).owner if verdicts else "person"
    votes = sum(note.kind == "vote" and ballot(note.payload).approve for note in facts.notes)
    quorum = f"{votes} of {facts.policy.quorum} votes are given" if facts.policy.quorum else ""
    approvers = f"it is for {', '.join(facts.policy.approvers)} to say" if facts.policy.approvers else ""
    until = f", until {told(unit.deadline_at, facts.now)}" if unit.deadline_at else ""
    return Reason("gate", f"{facts.name} waits for a {owner} to say {words}{until}", lines(quorum, approvers))


DECIDERS = ("person", "validator", "reporter")


def own_plan(facts: Facts) -> Reason | None:
    if not facts.lifecycle.allows(facts.unit.state, "plan"):
        return None
    return Reason("plan", f"{facts.name} waits for its plan; it has {facts.unit.total} children so far")


def family(facts: Facts) -> Reason | None:
    unit = facts.unit
    if not unit.total:
        return None
    going = [format_id(one.unit.lifecycle, one.unit.id) for one in facts.children if one.unit.category in LEASED][:5]
    counts = {
        "succeeded": unit.succeeded, "lost": unit.lost, "at a gate": unit.gates, "blocked": unit.blocked,
        "begun": unit.begun,
    }  # fmt: skip
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    answer = f"{facts.name} waits for its {unit.total} children{f': {said}' if said else ''}"
    return Reason("children", answer, lines(f"now: {', '.join(going)}" if going else ""))


LOOKS: tuple[Callable[[Facts], Reason | None], ...] = (
    ended, withheld, asked_to_stop, follows, leased, unheld, a_worker, unmet_needs, parents_plan, no_signal, not_yet,
    parked, tenant_limit, worker_wanted, gate, own_plan, family,
)  # fmt: skip


def because(text: str, trigger: str) -> str:
    """What somebody said when they moved it, if it says more than the trigger."""
    return f": {text}" if text and text != trigger else ""


def lines(*texts: str) -> tuple[str, ...]:
    return tuple(text for text in texts if text)


def shortened(text: str) -> str:
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first if len(first) <= TEXT_MAX else first[: TEXT_MAX - 1] + "…"
