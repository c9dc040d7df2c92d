"""The reasons why something waits: the first condition that holds, with its values."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from interlock.client.durations import format_rounded, format_time, format_time_relative
from interlock.client.pauses import describe_pause, name_options
from interlock.client.why.facts import Facts
from interlock.client.why.workers import describe_taken, explain_no_claim, explain_worker
from interlock.core.notes import CANCEL_REQUEST
from interlock.kernel.approvals import ballot
from interlock.kernel.commands import Resource
from interlock.kernel.ids import format_id, format_kind
from interlock.kernel.lifecycle import Category
from interlock.kernel.lifecycle_options import RollUp
from interlock.kernel.policy import LEASED
from interlock.kernel.rows import Note, PauseRow
from interlock.kernel.timing import present_deadline
from interlock.plugins.pauses.outages import read_detail
from interlock.plugins.pauses.queries import OUTAGE
from interlock.store.acts import WITHHELD
from interlock.store.queries.views import YET_TO_COME

TEXT_MAX = 200
LAST_ERROR = "last error: "


class Reason(msgspec.Struct, frozen=True):
    """A code for programs, a sentence for people, and details."""

    code: str
    answer: str
    details: tuple[str, ...] = ()


def find_reason(facts: Facts) -> Reason:
    """Returns the first explanation that holds."""
    for explain in EXPLANATIONS:
        if reason := explain(facts):
            return reason
    return Reason("resting", f"{facts.name} is {facts.unit.state}, and waits for nothing that this program knows")


def explain_end(facts: Facts) -> Reason | None:
    """The reason of what has ended: how, when, and by whom."""
    unit, last = facts.unit, facts.last
    if not facts.lifecycle.settled(unit.state) or last is None:
        return None
    when, by = f"at {format_time(last.at)}", f"by {last.actor}"
    if unit.outcome == Category.SUCCESS:
        took = f" after {format_rounded(last.at - facts.view.body.created_at)}"
        return Reason(Category.SUCCESS, f"{facts.name} succeeded {when}, attempt {unit.attempt},{took} in all")
    if unit.outcome == Category.DEAD:
        return explain_dead_letter(facts, msgspec.json.decode(last.payload), when)
    why = format_reason(last.reason, last.trigger)
    if unit.outcome == Category.CANCELLED:
        details = drop_empty(describe_cancel(msgspec.json.decode(last.payload)), describe_culprit(facts))
        return Reason(Category.CANCELLED, f"{facts.name} was cancelled {when} {by}{why}", details)
    if unit.outcome == Category.FAILURE:
        error = shorten(facts.view.body.error or "") or describe_culprit(facts) or last.reason
        return Reason(
            Category.FAILURE, f"{facts.name} failed {when}, attempt {unit.attempt}: {error}",
            drop_empty(suggest_again(facts)),
        )  # fmt: skip
    answer = f"{facts.name} is {unit.state} since {format_time(last.at)} {by}{why}"
    last_word = f"last heard at {format_time_relative(facts.worker.seen_at, facts.now)}" if facts.worker else ""
    return Reason(Category.CLOSED, answer, drop_empty(last_word, *describe_taken(facts)))


def suggest_again(facts: Facts) -> str:
    """Says how what failed is done again."""
    if not facts.lifecycle.leased:
        return ""
    if facts.parent is not None and facts.lifecycles[facts.parent.unit.lifecycle].options.roll_up is RollUp.CRITICAL:
        if facts.parent.unit.outcome is None and not facts.unit.decides:
            return f"retry it: interlock workstream retry {facts.name}"
        name = format_id(facts.parent.unit.lifecycle, facts.parent.unit.id)
        return f"rerun it: interlock workstream rerun {name} --failed"
    return f"requeue it: interlock dead-letters requeue {facts.name}"


def describe_culprit(facts: Facts) -> str:
    """Says which step or task ended a run, by its name in the run, and how that ended."""
    below = facts.culprit
    if below is None:
        return ""
    name = below.policy.step or below.view.body.task
    reason = find_reason(below)
    last_error = next((detail for detail in reason.details if detail.startswith(LAST_ERROR)), "")
    return f"{format_kind(below.unit.lifecycle)} '{name}': {reason.answer}{f'; {last_error}' if last_error else ''}"


def describe_cancel(payload: dict[str, Any]) -> str:
    """Says who had asked it to stop, and why."""
    request = payload.get(CANCEL_REQUEST)
    if not request:
        return ""
    by, why = request["by"], format_reason(request["reason"], "cancel")
    return f"asked to stop by {by} at {format_time(request['at'])}{why}"


def explain_dead_letter(facts: Facts, payload: dict[str, Any], when: str) -> Reason:
    """The reason of a dead letter: its code, its stage, its last error, and how to requeue it."""
    stage = f" in stage {payload['stage']}" if payload.get("stage") else ""
    code, tries = payload.get("reason_code", "unknown"), payload.get("attempts", facts.unit.attempt)
    details = drop_empty(
        f"{LAST_ERROR}{shorten(str(payload.get('last_error') or 'none'))}",
        f"last holder: {payload['last_owner']}" if payload.get("last_owner") else "",
        f"requeue it: interlock dead-letters requeue {facts.name}",
    )
    return Reason(
        Category.DEAD, f"{facts.name} is a dead letter since {when[3:]}: {code}{stage}, attempt {tries}", details
    )


def explain_withheld(facts: Facts) -> Reason | None:
    """The reason of what is withheld: what went wrong, and how to end it or bring it back."""
    if facts.unit.parked_on != WITHHELD:
        return None
    answer = f"{facts.name} is withheld: {describe_withholding(facts.notes)}"
    return Reason(WITHHELD, answer, (f"end it: interlock cancel {facts.name}", *suggest_force(facts.name)))


def describe_withholding(notes: Sequence[Note]) -> str:
    """Says what went wrong when it was picked last."""
    own = [note for note in notes if note.kind == WITHHELD]
    return str(msgspec.json.decode(own[-1].payload)["why"]) if own else "it could not be granted or moved"


def suggest_force(name: str) -> tuple[str, ...]:
    """The command that brings back what was withheld, once its fault is mended."""
    return (f"mend what is wrong, then bring it back: interlock force {name} STATE --reason WHY",)


def explain_cancel_request(facts: Facts) -> Reason | None:
    """The reason of what was asked to stop: by whom, and until when it may take."""
    unit = facts.unit
    if unit.asked_at is None:
        return None
    requests = [note for note in facts.notes if note.kind == "cancel_requested"]
    stamp = msgspec.json.decode(requests[-1].payload) if requests else {}
    by = f" by {stamp['actor']}" if stamp.get("actor") else ""
    if facts.held and unit.asked_by is not None:
        ends = (
            f"{facts.view.holder} has until {format_time_relative(unit.asked_by, facts.now)} to stop; then it is forced"
        )
    else:
        ends = f"{unit.state} does not allow a cancel; it is done as soon as it leaves that state"
    answer = f"{facts.name} was asked to stop at {format_time(unit.asked_at)}{by}: {ends}"
    return Reason("cancel_requested", answer, drop_empty(f"stop it immediately: interlock cancel {facts.name} --hard"))


def explain_follower(facts: Facts) -> Reason | None:
    """The reason of what does as its child does: that of the child."""
    if facts.child is None:
        return None
    below = find_reason(facts.child)
    return Reason(below.code, f"{facts.name} does as its attempt does: {below.answer}", below.details)


def explain_lease(facts: Facts) -> Reason | None:
    """The reason of what a worker holds: by which lease, and until when."""
    unit = facts.unit
    if not facts.held or unit.lease_until is None:
        return None
    if unit.lease_until <= facts.now:
        ended_at = format_time_relative(unit.lease_until, facts.now)
        answer = f"{facts.name}: the lease of {facts.view.holder} expired at {ended_at}"
        return Reason("lease_over", answer, drop_empty("the next tick gives it to another worker, or ends it"))
    does = "is run by" if facts.lifecycle.category(unit.state) is Category.ACTIVE else "is held, and not yet begun, by"
    until = format_time_relative(unit.lease_until, facts.now)
    answer = f"{facts.name} {does} {facts.view.holder} until {until}, unless renewed"
    since = f"begun at {format_time_relative(unit.started_at, facts.now)}" if unit.started_at else ""
    return Reason("leased", answer, drop_empty(since, describe_progress(facts)))


def describe_progress(facts: Facts) -> str:
    """The progress that the holder has reported last; empty if it has reported none."""
    notes = [note for note in facts.notes if note.kind == "progress" and note.fence == facts.unit.fence]
    if not notes:
        return ""
    try:
        step = msgspec.json.decode(notes[-1].payload)
        return f"progress: {step['done']:.0%} {step.get('text', '')}".rstrip()
    except (msgspec.MsgspecError, TypeError, KeyError, ValueError, AttributeError):
        return f"progress: {shorten(notes[-1].payload)}"


def explain_unheld(facts: Facts) -> Reason | None:
    """Only force brings a unit of work into such a state."""
    unit, lifecycle = facts.unit, facts.lifecycle
    if not lifecycle.leased or lifecycle.category(unit.state) not in LEASED or facts.held or facts.claimable:
        return None
    answer = f"{facts.name} is {unit.state}, but nobody holds it, so nobody will end it"
    return Reason("unheld", answer, drop_empty(f"put it right: interlock force {facts.name} STATE --reason WHY"))


def explain_worker_unit(facts: Facts) -> Reason | None:
    """How it is with a worker: since when it is silent, what it holds, and what was taken from it."""
    return None if facts.worker is None else Reason(*explain_worker(facts, facts.worker))


def explain_blocked(facts: Facts) -> Reason | None:
    """A task that can never begin, because of what has ended before it."""
    if not facts.blockers:
        return None
    first, *others = facts.blockers
    called = f"'{first.name or first.task}' ({format_id(first.lifecycle, first.unit)})"
    error = f": {shorten(first.error)}" if first.error else ""
    answer = f"{facts.name} is blocked: {called} is {first.state} since {format_time(first.changed_at)}{error}"
    more = ", ".join(f"'{blocker.name or blocker.task}' ({blocker.state})" for blocker in others)
    through = ", ".join(need.called for need in facts.needs if not need.is_met and need.outcome is None)
    return Reason(
        "blocked", answer, drop_empty(f"and by {more}" if more else "", f"it waits for {through}" if through else "")
    )


def explain_unmet_needs(facts: Facts) -> Reason | None:
    """The reason of what waits for others to succeed or end."""
    if not facts.unit.unmet:
        return None
    unmet = [need for need in facts.needs if not need.is_met]
    names = ", ".join(f"{need.called} ({need.state})" for need in unmet)
    never = [
        f"{need.called} has ended without success: this need will not be met by it"
        for need in unmet
        if need.outcome is not None and not need.by_end
    ]
    missing = [need.called for need in unmet if need.state == YET_TO_COME]
    add = [f"add {name} to its parent, or cancel {facts.name}" for name in missing[:1]]
    not_met = "have not ended" if all(need.by_end for need in unmet) else "have not succeeded"
    answer = f"{facts.name} needs {len(unmet)} of {len(facts.needs)} that {not_met}: {names}"
    return Reason("needs_unmet", answer, drop_empty(*never[:1], *add))


def explain_parent_plan(facts: Facts) -> Reason | None:
    """The reason of a task that waits for the plan of its parent."""
    above = facts.parent
    if above is None or not facts.lifecycles[above.unit.lifecycle].allows(above.unit.state, "plan"):
        return None
    name = format_id(above.unit.lifecycle, above.unit.id)
    return Reason("parent_plan", f"{facts.name} waits for the plan of {name}, which is {above.unit.state}")


def explain_signal(facts: Facts) -> Reason | None:
    """The reason of what waits for a signal: which, of whom, and until when."""
    unit = facts.unit
    kind, _, rest = (unit.parked_on or "").partition(":")
    if kind != "signal":
        return None
    source, _, name = rest.partition(":")
    until = f", until {format_time_relative(unit.due_at, facts.now)}" if unit.due_at else ""
    above = facts.parent if facts.parent is not None and facts.parent.unit.id == int(source) else facts.view
    whose = format_id(above.unit.lifecycle, int(source))
    word, _, child = name.partition(":")
    if word == "sleep":
        return Reason("signal", f"{facts.name} sleeps ('{child}'){until}")
    if word == "verdict":
        return Reason("signal", f"{facts.name} waits until its result is validated{until}")
    if word == "child":
        answer = f"{facts.name} waits until its child '{child}' has ended{until}"
        return Reason("signal", answer, tell_child(facts, child))
    names = " or ".join(f"'{each}'" for each in name.split("\n"))
    return Reason("signal", f"{facts.name} waits for the signal {names} of {whose}{until}")


def tell_child(facts: Facts, name: str) -> tuple[str, ...]:
    """Says which child of a handler that is, and how it stands."""
    made = [note.payload for note in facts.notes if note.kind == "child" and note.name == name]
    unit = msgspec.json.decode(made[-1])["unit"] if made else 0
    child = next((view for view in facts.children if view.unit.id == unit), None)
    return drop_empty(f"{format_id(child.unit.lifecycle, unit)} is {child.unit.state}" if child else "")


def explain_delay(facts: Facts) -> Reason | None:
    """The reason of what waits for its time: delayed, backing off, or snoozed."""
    unit, last = facts.unit, facts.last
    if unit.due_at is None or unit.due_at <= facts.now:
        return None
    due = f"due at {format_time_relative(unit.due_at, facts.now)}"
    if last is not None and last.trigger == "snooze":
        return Reason("snoozed", f"{facts.name} was snoozed by its handler, and is {due}")
    if last is not None and last.source is not None and last.trigger not in ("ready", "due"):
        error = msgspec.json.decode(last.payload).get("error") or last.reason
        tries = f"attempt {unit.attempt} of {facts.budget.attempts}"
        return Reason("backing_off", f"{facts.name} backs off: {tries} is {due}; the last error: {shorten(error)}")
    return Reason("delayed", f"{facts.name} is delayed: {due}")


def explain_pause(facts: Facts) -> Reason | None:
    """Why it does not start, or why nothing below it does: somebody has paused it."""
    whole = [(pause, name) for pause, name in facts.pauses if pause.unit == facts.unit.id]
    if not facts.pauses or not (facts.claimable or whole):
        return None
    pause, name = (whole or facts.pauses)[0]
    if pause.kind == OUTAGE:
        return explain_outage(facts, pause)
    goes_on = describe_begun(facts)
    end = f"let it go on: interlock unpause {name_options(pause, name)}"
    state = describe_pause(pause, facts.now)
    if whole:
        return Reason("paused", f"{facts.name} is {state}", drop_empty(goes_on, end))
    return Reason("paused", f"{facts.name} waits: {name} is {state}", drop_empty(end))


def describe_begun(facts: Facts) -> str:
    """Says how many of what is below it have begun, if any have."""
    if not (count := facts.unit.begun):
        return ""
    kinds = {child.unit.lifecycle for child in facts.children if child.unit.outcome is None}
    kind = format_kind(kinds.pop()) if len(kinds) == 1 else "step"
    return f"{count} of its {kind}s {'has begun, and goes on' if count == 1 else 'have begun, and go on'}"


def explain_outage(facts: Facts, outage: PauseRow) -> Reason | None:
    """What it depends on is away, as somebody has reported."""
    detail = read_detail(outage)
    if facts.unit.id in detail.wave:
        return None  # it is let through
    tries = f", after {detail.tries} that failed" if detail.tries else ""
    coming = (
        f"{len(detail.wave)} of those that wait are let through now, and more if all goes well"
        if detail.size
        else f"the next try is at {format_time_relative(outage.until or facts.now, facts.now)}{tries}"
    )
    report = f"reported by {outage.actor} at {format_time(outage.since)}: {shorten(outage.reason)}"
    end = f"end the outage: interlock unpause --outage {outage.name}"
    return Reason("outage", f"{facts.name} waits for '{outage.name}', which is away, {report}", (coming, end))


def explain_parking(facts: Facts) -> Reason | None:
    """The reason of what waits for a mutex, a limit, a rate or a resource, and who has it."""
    unit = facts.unit
    if unit.parked_on is None:
        return None
    kind, _, key = unit.parked_on.partition(":")
    taken, capacity = (facts.slot.taken, facts.slot.capacity) if facts.slot else (0, 0)
    holders = ", ".join(
        f"{format_id(view.unit.lifecycle, view.unit.id)} ({view.unit.state}{f', {view.holder}' if view.holder else ''})"
        for view in facts.seated[:5]
    )
    more = f" and {len(facts.seated) - 5} more" if len(facts.seated) > 5 else ""
    if kind == "pause":
        return Reason("paused", f"{facts.name} was paused, and goes on as soon as a tick has come to it")
    if kind == "resource":
        return explain_resource(facts, key, taken, capacity)
    if kind == "mutex":
        return Reason("mutex", f"{facts.name} waits for the mutex '{key}', which {holders or 'another'} has{more}")
    if kind == "rate":
        began = f"{facts.name} waits for the rate '{key}': {taken} of {capacity} have begun, or are about to"
        back = (
            f"the next may begin at {format_time_relative(facts.token_at, facts.now)}"
            if facts.token_at is not None
            else ""
        )
        return Reason(kind, began, drop_empty(back, f"about to begin: {holders}{more}" if holders else ""))
    answer = f"{facts.name} waits for the {kind} '{key}': {taken} of {capacity} are taken"
    return Reason(kind, answer, drop_empty(f"taken by {holders}{more}" if holders else ""))


def explain_resource(facts: Facts, key: str, taken: int, capacity: int) -> Reason:
    """It waits for a resource: somebody uses it, or too much of it is used."""
    kind, _, name = key.partition(":")
    uses = {"lock": "others use it", "count": f"{taken} of {capacity} are taken"}
    how = uses.get(kind, f"{taken} of {capacity} have begun, or are about to")
    own = [resource for resource in facts.policy.resources if resource.name == name]
    mode = f", which it needs {describe_use(own[0])}" if own else ""
    back = (
        f"the next may begin at {format_time_relative(facts.token_at, facts.now)}" if facts.token_at is not None else ""
    )
    return Reason("resource", f"{facts.name} waits for the resource '{name}'{mode}: {how}", drop_empty(back))


def describe_use(resource: Resource) -> str:
    """How a job needs a resource, in words."""
    uses = {"exclusive": "for itself alone", "shared": "shared with others", "counted": f"{resource.n} of"}
    return uses.get(resource.mode, "at its rate")


def explain_tenant_limit(facts: Facts) -> Reason | None:
    """The reason of what waits because its tenant has as much running as it may."""
    row, now = facts.tenant, facts.held_of_tenant
    if not facts.claimable or row is None or row.max_running is None or now < row.max_running:
        return None
    answer = f"{facts.name} waits for its tenant '{row.name}': {now} of its jobs are held, and {row.max_running} may be"
    holding = ", ".join(f"{worker.name} holds {worker.holding}" for worker, _ in facts.workers if worker.holding)
    by = f" by {row.changed_by}" if row.changed_by else ""
    set_at = f"the limit was set at {format_time(row.changed_at)}{by}"
    change = f"another: interlock tenant set {row.id} --max-running N"
    return Reason("tenant_limit", answer, drop_empty(holding, f"{set_at}; {change}"))


def explain_missing_worker(facts: Facts) -> Reason | None:
    """The reason of what could be claimed, and is not: which workers there are, and what they lack."""
    if not facts.claimable:
        return None
    return Reason(*explain_no_claim(facts))


def explain_gate(facts: Facts) -> Reason | None:
    """The reason of what waits for a person or a check: who may decide what."""
    unit, lifecycle = facts.unit, facts.lifecycle
    if lifecycle.category(unit.state) is not Category.GATE:
        return None
    if facts.children and any(child.unit.category == Category.GATE for child in facts.children):
        names = [
            format_id(child.unit.lifecycle, child.unit.id)
            for child in facts.children
            if child.unit.category == Category.GATE
        ]
        return Reason("gate", f"{facts.name} waits, as {', '.join(names)} does, for a verdict")
    if any(note.kind == "gate" and note.name == str(unit.version) for note in facts.notes):
        return explain_checks(facts)
    verdicts = [
        trigger for trigger in lifecycle.triggers(unit.state) if lifecycle.move(unit.state, trigger).owner in DECIDERS
    ]
    words = " or ".join(trigger for trigger in verdicts if trigger != "cancel")
    owner = lifecycle.move(unit.state, verdicts[0]).owner if verdicts else "person"
    votes = sum(note.kind == "vote" and ballot(note.payload).approve for note in facts.notes)
    quorum = f"{votes} of {facts.policy.quorum} votes are given" if facts.policy.quorum else ""
    approvers = f"it is for {', '.join(facts.policy.approvers)} to say" if facts.policy.approvers else ""
    until = describe_end(facts)
    return Reason("gate", f"{facts.name} waits for a {owner} to say {words}{until}", drop_empty(quorum, approvers))


DECIDERS = ("person", "validator", "reporter")


def describe_end(facts: Facts) -> str:
    """Says when the clock of a gate runs out, if it has one that goes."""
    deadline_at = present_deadline(facts.unit.deadline_at)
    return f", until {format_time_relative(deadline_at, facts.now)}" if deadline_at else ""


def explain_checks(facts: Facts) -> Reason:
    """Says which checks of its gate have not ended."""
    checks = [child for child in facts.children if child.unit.outcome is None and not child.unit.decides]
    names = ", ".join(
        f"{format_id(child.unit.lifecycle, child.unit.id)} ('{child.body.task}', {child.unit.state})"
        for child in checks[:5]
    )
    return Reason("gate", f"{facts.name} waits for {len(checks)} of its checks: {names}{describe_end(facts)}")


def explain_plan(facts: Facts) -> Reason | None:
    """The reason of what waits for its own plan."""
    if not facts.lifecycle.allows(facts.unit.state, "plan"):
        return None
    return Reason("plan", f"{facts.name} waits for its plan; it has {facts.unit.total} children so far")


def explain_children(facts: Facts) -> Reason | None:
    """The reason of what waits for what is below it."""
    unit = facts.unit
    if not unit.total:
        return None
    going = [
        format_id(child.unit.lifecycle, child.unit.id) for child in facts.children if child.unit.category in LEASED
    ][:5]
    counts = {
        "succeeded": unit.succeeded, "lost": unit.lost, "at a gate": unit.gates, "waiting for others": unit.blocked,
        "begun": unit.begun,
    }  # fmt: skip
    parts = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    answer = f"{facts.name} waits for its {unit.total} children{f': {parts}' if parts else ''}"
    return Reason("children", answer, drop_empty(f"now: {', '.join(going)}" if going else ""))


EXPLANATIONS: tuple[Callable[[Facts], Reason | None], ...] = (
    explain_end,
    explain_withheld,
    explain_cancel_request,
    explain_follower,
    explain_lease,
    explain_signal,
    explain_unheld,
    explain_worker_unit,
    explain_blocked,
    explain_unmet_needs,
    explain_parent_plan,
    explain_delay,
    explain_pause,
    explain_parking,
    explain_tenant_limit,
    explain_missing_worker,
    explain_gate,
    explain_plan,
    explain_children,
)


def format_reason(text: str, trigger: str) -> str:
    """Returns the reason of a move as the end of a sentence, if it says more than the trigger."""
    return f": {text}" if text and text != trigger else ""


def drop_empty(*texts: str) -> tuple[str, ...]:
    """Returns the texts that are not empty."""
    return tuple(text for text in texts if text)


def shorten(text: str) -> str:
    """Returns the first line of a text, cut if it is long."""
    first = text.strip().splitlines()[0] if text.strip() else ""
    return first if len(first) <= TEXT_MAX else first[: TEXT_MAX - 1] + "…"
