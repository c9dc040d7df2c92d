"""The state of a log check: lines, lifecycles, and each entity in about twenty bytes."""

import codecs
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial
from typing import Annotated, Any, BinaryIO

import msgspec
from msgspec import Meta

from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import SETTLED, Category, Hop, Lifecycle, Severity

# The descriptions end up in findings: "… is wanted".
Text = Annotated[str, Meta(description="a string")]
TextOrNull = Annotated[str | None, Meta(description="a string or null")]
Count = Annotated[int, Meta(ge=0, description="an integer of at least 0")]
Seconds = Annotated[float, Meta(ge=0, description="a number of at least 0")]


class Metadata(msgspec.Struct, gc=False):
    """What the checker reads of a line's metadata; -1 where a number is not given."""

    retry_count: Count = -1
    max_retries: Count = -1
    duration_seconds: Seconds = 0.0
    created_at: TextOrNull = None
    started_at: TextOrNull = None
    completed_at: TextOrNull = None
    worker_id: TextOrNull = None
    workstream_id: Text = ""
    retry_of: TextOrNull = None  # the task whose place it takes
    dependencies: Annotated[tuple[str, ...], Meta(description="a list of strings")] = ()
    critical: Annotated[bool, Meta(description="true or false")] = False
    task_count: Count = -1
    max_concurrent_tasks: Count = -1


class LogLine(msgspec.Struct, gc=False):
    """One event of document 003."""

    timestamp: Text
    event_type: Text
    severity: Annotated[Severity, Meta(description=f"one of {', '.join(Severity)}")]
    entity_id: Annotated[str, Meta(min_length=1, description="a string that is not empty")]
    from_state: Annotated[str | None, Meta(description="a string, or null for a creation,")]
    to_state: Text
    trigger: Text
    metadata: Annotated[Metadata, Meta(description="an object")]


class StrictLine(LogLine, gc=False, forbid_unknown_fields=True):
    """An event with the document's fields and no other."""


class LogFinding(msgspec.Struct, frozen=True):
    """One thing wrong with a log: where, which rule, what, and what would have been legal."""

    line: int
    rule: str
    entity: str
    message: str
    legal: list[str]


def quote_transition(line: LogLine) -> str:
    """The transition that a line tells of, as findings quote it."""
    return f"{line.from_state or 'nothing'} -> {line.to_state} by {quote_text(line.trigger)}"


LINE_MAX = 1 << 20  # bytes; a longer line is skipped
SHOWN_MAX = 80  # characters of a name in a finding
A_TIME = "a UTC time such as 2024-01-15T10:30:00.000Z"
TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})T(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]|23:59:60)(?:\.[0-9]{1,9})?Z"
)


def lines(stream: BinaryIO) -> Iterator[bytes]:
    """Every line of a stream; one that is longer than a line may be is cut one byte too late."""
    for number, raw in enumerate(iter(partial(stream.readline, LINE_MAX + 1), b"")):
        yield raw if number else raw.removeprefix(codecs.BOM_UTF8)
        while len(raw) > LINE_MAX and not raw.endswith(b"\n") and (raw := stream.readline(LINE_MAX + 1)):
            pass


def quote_text(text: str) -> str:
    """A text of the log as it may be printed: short, on one line, without escape sequences."""
    if len(text) <= SHOWN_MAX and text.isprintable():
        return text
    quoted = ascii(text[:SHOWN_MAX])
    return quoted if len(quoted) <= SHOWN_MAX else quoted[: SHOWN_MAX - 1] + "…"


def amount(number: int, noun: str) -> str:
    """A number with its noun, in the singular or the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def split_sound(
    fields: dict[str, Any], shape: type[msgspec.Struct], prefix: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """The fields that are what they must be, and what is wrong with the others."""
    sound: dict[str, Any] = {}
    faults: list[str] = []
    for field in msgspec.structs.fields(shape):
        name, value, wanted = field.name, fields.get(field.name), field.type.__metadata__[0].description
        if name == "metadata" and isinstance(value, dict):
            sound[name], more = split_sound(value, Metadata, "metadata.")
            faults += more
        elif name not in fields:
            faults += [f"{name} is missing; {wanted} is wanted"] if field.required else []
        else:
            try:
                msgspec.convert(value, field.type)
                sound[name] = value
            except (ValueError, OverflowError):
                text = quote_text(msgspec.json.encode(value).decode())
                faults.append(f"{prefix}{name} is {text}; {wanted} is wanted")
    return sound, faults


@lru_cache(maxsize=1024)
def is_day(text: str) -> bool:
    """Whether a text is a date."""
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def instant(text: str) -> str | None:
    """A UTC time in a form whose text order is the order in time; None if it is no such time."""
    parts = TIME.fullmatch(text)
    if not parts or not is_day(parts[1]):
        return None
    return text[:-1].rstrip("0").rstrip(".") if "." in text else text[:-1]


# A log may name millions of entities, so each is one 64-bit key and one 64-bit value. From the lowest bit up:
# its state; its last retry_count, the retries counted, and one more than its max_retries (0: not given), six
# bits each; whether it is critical; the number of its worker, and that of its workstream. A worker and a
# workstream carry their own number there.
STATE = SMALL = 63
RETRIES, SPENT, LIMIT, CRITICAL, WORKER, WORKSTREAM = 6, 12, 18, 24, 25, 43
WORKERS_MAX, WORKSTREAMS_MAX = (1 << WORKSTREAM - WORKER) - 1, (1 << 63 - WORKSTREAM) - 1
UNSEEN, UNBORN, LOST = 0, 62, 63  # no line of its own yet; before birth; its last line was broken
STATES_MAX = 61
FINISHED, UNFINISHED, UNHAPPY = 0, 1, 2  # what a task counts as in its workstream
NAME_MAX = 40
CAPACITY_MAX = 1 << 31
SEGMENT_BITS = 12
KEY = (1 << 64) - 1


def key(lifecycle: str, entity_id: str) -> int:
    """The 64 bits by which an entity is known.

    Two of five million share theirs in one log of a million, and would be taken for one. The hash is keyed
    anew for each process, so nobody can write a log in which two do.
    """
    return hash((lifecycle, entity_id)) & KEY


def pack_small(value: int, shift: int, number: int) -> int:
    """`value` with a six-bit number in it; 63 stands for every number from there on."""
    return value & ~(SMALL << shift) | min(number, SMALL) << shift


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStep:
    """One move of a machine, with its states as numbers."""

    source: int
    target: int
    was_active: bool
    is_active: bool
    readies: bool
    spends: bool  # one of the retries
    severities: frozenset[Severity]  # none: not a listed move
    outside: str  # why it is no move of the document
    gives_up: str  # what the same event of the document leads to while retries are left


class LogMachine:
    """A lifecycle as the checker uses it: states as small numbers, moves by the names that a log gives them."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        if len(lifecycle.states) > STATES_MAX:
            raise InterlockError(f"{lifecycle.name} has more than {STATES_MAX} states; its log cannot be checked")
        self.lifecycle = lifecycle
        self.numbers = {name: number for number, name in enumerate(lifecycle.states, 1)}
        self.names = ["", *lifecycle.states]
        self.categories: list[Category | None] = [None] * (STATE + 1)
        self.counts_as = [FINISHED] * (STATE + 1)
        for name, number in self.numbers.items():
            category = self.categories[number] = lifecycle.category(name)
            if category is not Category.SUCCESS:
                self.counts_as[number] = UNHAPPY if category in SETTLED else UNFINISHED
        self.initial = self.numbers[lifecycle.initial]
        self.birth = self.step(None, lifecycle.initial, outside="a creation writes no line there")
        self.steps = self.listed()

    def step(
        self,
        source: str | None,
        target: str,
        *,
        spends: bool = False,
        severities: Iterable[Severity] = (),
        outside: str = "",
        gives_up: str = "",
    ) -> LogStep:
        """The move between two states, whether it is listed or not; an unknown name is a lost state."""
        before = UNBORN if source is None else self.numbers.get(source, LOST)
        after = self.numbers.get(target, LOST)
        return LogStep(
            source=before,
            target=after,
            was_active=self.categories[before] is Category.ACTIVE,
            is_active=self.categories[after] is Category.ACTIVE,
            readies=self.categories[after] is Category.READY,
            spends=spends,
            severities=frozenset(severities),
            outside=outside,
            gives_up=gives_up,
        )

    def listed(self) -> dict[tuple[str | None, str, str], LogStep]:
        """Every listed move. One name may stand for several moves between the same two states."""
        same: dict[tuple[str | None, str, str], list[Hop]] = {}
        for hop in self.lifecycle.hops:
            if hop.source is not None:
                same.setdefault((hop.source, hop.target, hop.event), []).append(hop)
        again = {(hop.source, hop.event): hop.target for hop in self.lifecycle.hops if hop.trigger == "retry"}
        return {
            (source, target, event): self.step(
                source,
                target,
                gives_up="" if again.get((source, event)) == target else again.get((source, event), ""),
                spends=any(hop.trigger == "retry" for hop in hops),
                severities=(hop.severity for hop in hops),
                outside=(hops[0].why or "an extension") if all(hop.extension for hop in hops) else "",
            )
            for (source, target, event), hops in same.items()
        }

    def legal(self, source: str | None, strict: bool) -> list[str]:
        """The moves from a state, as `target by event`."""
        if source is None:
            return [] if strict else [self.lifecycle.initial]
        return [
            f"{target} by {event}"
            for (state, target, event), step in self.steps.items()
            if state == source and not (strict and step.outside)
        ]

    def named(self, category: Category) -> list[str]:
        """The states of a category."""
        return [state.name for state in self.lifecycle.states.values() if state.category is category]


class EntityStates:
    """All entities of a log, and what workers and workstreams must know of their tasks.

    Keys lie sorted in segments: a search is a bisection, and growth never copies more than one segment.
    """

    def __init__(self) -> None:
        self.keys = [array("Q") for _ in range(1 << SEGMENT_BITS)]
        self.values = [array("Q") for _ in range(1 << SEGMENT_BITS)]
        self.not_followed = 0
        # By the number of a worker; number 0 is nobody.
        self.worker_names = [""]
        self.worker_states = bytearray(1)
        self.running, self.capacity = array("q", [0]), array("q", [-1])
        # By the number of a workstream: its state, and its tasks by what they count as.
        self.workstream_states = bytearray(1)
        self.tasks = (array("i", [0]), array("i", [0]), array("i", [0]))

    def get(self, entity: int) -> int:
        """What is known of an entity; 0 is nothing."""
        segment = entity >> 64 - SEGMENT_BITS
        keys = self.keys[segment]
        place = bisect_left(keys, entity)
        return self.values[segment][place] if place < len(keys) and keys[place] == entity else 0

    def put(self, entity: int, value: int) -> None:
        """`value` is what is known of an entity."""
        segment = entity >> 64 - SEGMENT_BITS
        keys = self.keys[segment]
        place = bisect_left(keys, entity)
        if place < len(keys) and keys[place] == entity:
            self.values[segment][place] = value
        else:
            keys.insert(place, entity)
            self.values[segment].insert(place, value)

    def worker(self, entity: int, name: str) -> int:
        """The number of a worker that a task names."""
        known = self.get(entity)
        value = self.with_worker_number(known, name)
        if value != known:
            self.put(entity, value)
        return value >> WORKER

    def with_worker_number(self, value: int, name: str) -> int:
        """What is known of a worker, with its number in it. Past the last number it is not followed."""
        if value >> WORKER:
            return value
        number = len(self.worker_names)
        if number > WORKERS_MAX:
            self.not_followed += 1
            return value
        self.worker_names.append(name[:NAME_MAX])
        self.worker_states.append(value & STATE)
        self.running.append(0)
        self.capacity.append(-1)
        return value | number << WORKER

    def limit_worker(self, number: int, capacity: int) -> None:
        """A worker holds at most so many tasks at once, if a line says how many."""
        if capacity >= 0:
            self.capacity[number] = min(capacity, CAPACITY_MAX)

    def workstream(self, entity: int) -> int:
        """The number of a workstream that a task names. Past the last number it is not followed."""
        value = self.get(entity)
        if value >> WORKSTREAM:
            return value >> WORKSTREAM
        number = len(self.workstream_states)
        if number > WORKSTREAMS_MAX:
            self.not_followed += 1
            return 0
        self.workstream_states.append(value & STATE)
        for tally in self.tasks:
            tally.append(0)
        self.put(entity, value | number << WORKSTREAM)
        return number
