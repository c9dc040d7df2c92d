"""Timeline of a job, made from its events, and the bars of its drawing.

When it waited, was held, ran, and rested for a person. Pure: nothing here reads a clock or a database.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle
from interlock.kernel.rows import Event, Note

WIDTH = 1_000  # of a drawing of time, in units of its own
CUT = 16.0  # width of idle time that is cut out
CUTS_MAX = 300.0  # width of all of it together
STEP = "step"  # the kind of note that a durable step leaves behind
# What a job does in a state, by what the state means. Ends last no time.
KINDS = {
    Category.WAITING: "waits", Category.READY: "waits", Category.HELD: "held", Category.ACTIVE: "runs",
    Category.GATE: "person", Category.CLOSING: "stops",
}  # fmt: skip
BUSY = frozenset({"held", "runs", "done", "broke", "stops"})


class Span(NamedTuple):
    """A time in which a job did one thing; instants in microseconds UTC."""

    kind: str  # waits, backoff, held, runs, done, broke, person or stops
    state: str
    attempt: int
    begin: int
    end: int


class Attempt(msgspec.Struct):
    """One attempt: when it was there, who had it, and what ended it."""

    number: int
    began_at: int
    started_at: int | None = None
    ended_at: int | None = None
    end: str = ""  # the name of the event that ended it
    worker: str = ""
    fence: int = 0
    error: str = ""
    error_class: str = ""
    cost: float = 0.0


class LeaseSpan(msgspec.Struct):
    """One lease: whose it was, and how it ended."""

    fence: int
    worker: str
    granted_at: int
    attempt: int
    state: str
    ended_at: int | None = None


class StepSpan(NamedTuple):
    """One durable step of a handler: from what was there before it until it was remembered."""

    name: str
    fence: int
    begin: int
    end: int


def list_spans(events: Sequence[Event], lifecycle: Lifecycle | None, until: int) -> list[Span]:
    """Lists what a job did until an instant. A time that ended as soon as it began is left out, unless it ran."""
    spans = []
    for place, event in enumerate(events):
        state = lifecycle.states.get(event.target) if lifecycle else None
        if state is None or state.category in SETTLED:
            continue
        after = events[place + 1] if place + 1 < len(events) else None
        end = max(event.at, after.at if after else until)
        kind = KINDS[state.category]
        if kind == "waits" and event.attempt > 1 and is_new_attempt(events, place):
            kind = "backoff"
        if kind == "runs" and after is not None and lifecycle is not None:
            kind = describe_end(event, after, lifecycle)
        if end > event.at or kind in BUSY:
            spans.append(Span(kind, event.target, event.attempt, event.at, end))
    return join_spans(spans)


def is_new_attempt(events: Sequence[Event], place: int) -> bool:
    """Returns whether nobody has held the job since its attempt began."""
    attempt = events[place].attempt
    while place >= 0 and events[place].attempt == attempt:
        if events[place].lease_from is None and events[place].lease_to is not None:
            return False
        place -= 1
    return True


def describe_end(event: Event, after: Event, lifecycle: Lifecycle) -> str:
    """Says how a time in which a job ran ended: done, broke, or it only went on."""
    state = lifecycle.states.get(after.target)
    if state is not None and state.category is Category.SUCCESS:
        return "done"
    failed = after.attempt > event.attempt or (
        state is not None and state.category in (Category.FAILURE, Category.DEAD)
    )
    return "broke" if failed else "runs"


def join_spans(spans: Iterable[Span]) -> list[Span]:
    """Makes one span of those that follow each other and are the same."""
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last and (last.kind, last.state, last.attempt, last.end) == (
            span.kind,
            span.state,
            span.attempt,
            span.begin,
        ):
            joined[-1] = last._replace(end=span.end)
        else:
            joined.append(span)
    return joined


def list_attempts(events: Sequence[Event], lifecycle: Lifecycle | None) -> list[Attempt]:
    """Lists the attempts of a job; the event that opens one ends the one before it."""
    attempts: list[Attempt] = []
    for event in events:
        payload = decode_payload(event)
        if attempts and (event.attempt > attempts[-1].number or is_end(event, lifecycle)):
            last = attempts[-1]
            last.ended_at, last.end = event.at, event.name
            last.error, last.error_class = str(payload.get("error") or ""), str(payload.get("error_class") or "")
            last.cost += to_number(payload.get("cost"))
        if not attempts or event.attempt > attempts[-1].number:
            attempts.append(Attempt(event.attempt, event.at))
        last = attempts[-1]
        if event.lease_from is None and event.lease_to is not None:
            last.worker, last.fence = str(payload.get("worker") or event.actor), event.fence
        state = lifecycle.states.get(event.target) if lifecycle else None
        if last.started_at is None and state is not None and state.category is Category.ACTIVE:
            last.started_at = event.at
    return attempts


def is_end(event: Event, lifecycle: Lifecycle | None) -> bool:
    """Whether an event has ended its unit."""
    state = lifecycle.states.get(event.target) if lifecycle else None
    return state is not None and state.category in SETTLED


def list_leases(events: Sequence[Event], live: Iterable[str]) -> list[LeaseSpan]:
    """Lists the leases of a job; `live` are the states of a lease that has not ended."""
    leases: list[LeaseSpan] = []
    open_states = frozenset(live)
    for event in events:
        if event.lease_to is None:
            continue
        if event.lease_from is None or not leases:
            worker = str(decode_payload(event).get("worker") or event.actor)
            leases.append(LeaseSpan(event.fence, worker, event.at, event.attempt, event.lease_to))
        leases[-1].state = event.lease_to
        if event.lease_to not in open_states:
            leases[-1].ended_at = event.at
    return leases


def list_step_spans(notes: Sequence[Note], events: Sequence[Event]) -> list[StepSpan]:
    """Lists the durable steps of a job: each began when its lease did, or when the step before it was remembered."""
    last_at: dict[int, int] = {}
    for event in events:
        if event.lease_to is not None:
            last_at.setdefault(event.fence, event.at)
        if event.trigger == "start":
            last_at[event.fence] = event.at
    spans = []
    for note in notes:
        if note.kind == STEP:
            begin = min(last_at.get(note.fence, note.at), note.at)
            spans.append(StepSpan(note.name, note.fence, begin, note.at))
            last_at[note.fence] = note.at
    return spans


def decode_payload(event: Event) -> Mapping[str, Any]:
    """Returns what an event says beside its transition; what cannot be read says nothing."""
    try:
        payload = {} if event.payload == "{}" else msgspec.json.decode(event.payload)
    except msgspec.MsgspecError:
        return {}
    return payload if isinstance(payload, dict) else {}


def to_number(value: Any) -> float:
    """Returns a number of a payload; anything else counts as 0."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


# From instants to places.


class Scale(msgspec.Struct, frozen=True):
    """Where each instant stands in a drawing of time; between two of its points it is a straight line."""

    instants: tuple[int, ...]
    places: tuple[float, ...]
    cuts: tuple[tuple[float, int], ...] = ()  # where idle time was cut out, and how much of it, in microseconds

    def place(self, instant: int) -> float:
        """Returns where an instant stands, from 0 to WIDTH."""
        if instant <= self.instants[0]:
            return self.places[0]
        if instant >= self.instants[-1]:
            return self.places[-1]
        after = bisect_right(self.instants, instant)
        begin, end = self.instants[after - 1], self.instants[after]
        share = (instant - begin) / (end - begin)
        return self.places[after - 1] + share * (self.places[after] - self.places[after - 1])


def make_scale(first: int, last: int, busy: Iterable[tuple[int, int]] | None = None) -> Scale:
    """Makes the scale of a time. With `busy`, what lies between these times is cut to a small width if it is long."""
    last = max(last, first + 1)
    if busy is None:
        return Scale((first, last), (0.0, float(WIDTH)))
    gaps = list_gaps(first, last, busy)
    worked = (last - first) - sum(end - begin for begin, end in gaps)
    long = [gap for gap in gaps if (gap[1] - gap[0]) * WIDTH > CUT * max(worked, 1)]
    room = min(CUT, CUTS_MAX / len(long)) if long else 0.0
    shown = (last - first) - sum(end - begin for begin, end in long)
    per_us = (WIDTH - room * len(long)) / shown if shown > 0 else 0.0
    if not long or (shown <= 0 and len(long) == 1):
        return Scale((first, last), (0.0, float(WIDTH)))
    instants, places, cuts, at, place = [first], [0.0], [], first, 0.0
    for begin, end in long:
        if begin > at:
            place += (begin - at) * per_us
            instants.append(begin)
            places.append(place)
        cuts.append((place + room / 2, end - begin))
        place += room
        instants.append(end)
        places.append(place)
        at = end
    if at < last:
        instants.append(last)
        places.append(place + (last - at) * per_us)
    places[-1] = float(WIDTH)
    return Scale(tuple(instants), tuple(places), tuple(cuts))


def list_gaps(first: int, last: int, busy: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Lists the times between two instants in which nothing is busy."""
    gaps, at = [], first
    for begin, end in sorted(busy):
        if begin > at:
            gaps.append((at, min(begin, last)))
        at = max(at, end)
        if at >= last:
            return gaps
    return [*gaps, (at, last)] if at < last else gaps
