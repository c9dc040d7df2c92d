"""Load a lifecycle file; a faulty one is refused with all its faults at once."""

import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from interlock.kernel.durations import microseconds
from interlock.kernel.errors import BadLifecycle, Unknown
from interlock.kernel.guards import BY_HOLDER
from interlock.kernel.lifecycle import Category, Lifecycle, Move, Owner, Severity, State
from interlock.kernel.lifecycle_options import Backoff, Budget, CancelMode, LeaseRules, Options, RollUp
from interlock.kernel.lint import Fault, at, faults

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T", bound="Table")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
WORDS_OF_DEADLINES = ("parent", "none")


class Table(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of the tables of a lifecycle file: a misspelt key is an error."""


class StateTable(Table):
    """A state, as a lifecycle file has it."""

    category: str
    about: str = ""
    cancel: str = ""
    cancel_why: str = ""
    deadline: str = ""
    deadline_why: str = ""
    within: str | None = None


class MoveTable(Table):
    """A move, as a lifecycle file has it."""

    to: str | list[str]
    owner: str = ""
    event: str | list[str] = []
    severity: str | list[str] = []
    opens_attempt: bool = False
    extension: bool = False
    why: str = ""
    guard: str | list[str] = []
    note: str = ""


class OptionsTable(Table):
    """The options of a lifecycle file."""

    roll_up: str = "none"
    follows: str = ""
    cancel_mode: str = "immediate"
    cancel_within: str | None = None
    monotonic: bool = True
    monotonic_why: str = ""


class BudgetTable(Table):
    """The budgets of a lifecycle file."""

    attempts: int = 3
    losses: int | None = None
    snoozes: int = 100
    exhausted: str = "exhaust"


class BackoffTable(Table):
    """The backoff of a lifecycle file."""

    base: str
    factor: int = 2
    cap: str | None = None
    jitter: float = 0.0


class LeaseTable(Table):
    """The lease rules of a lifecycle file."""

    ttl: str
    beat: str
    ttl_min: str | None = None
    ttl_max: str | None = None
    silent_max: str | None = None
    beat_min: str | None = None
    beat_max: str | None = None
    missed_beats: int = 0
    ack: str | None = None


class FileTable(Table):
    """A whole lifecycle file."""

    name: str
    states: dict[str, dict[str, Any]]
    birth: dict[str, Any]
    moves: dict[str, dict[str, Any]]
    document: str = ""
    title: str = ""
    about: str = ""
    notes: list[str] = []
    options: OptionsTable = msgspec.field(default_factory=OptionsTable)
    budget: BudgetTable = msgspec.field(default_factory=BudgetTable)
    backoff: BackoffTable | None = None
    lease: LeaseTable | None = None


def load(path: Path) -> Lifecycle:
    """The lifecycle in a file.

    Raises:
        BadLifecycle: it has faults; the text lists all of them, each with the file.
        Unknown: there is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Unknown(f"{str(path)[:200]}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadLifecycle([f"{path}: it is not UTF-8 text [format]"]) from None
    return parse(text, str(path))


def parse(text: str, file: str) -> Lifecycle:
    """The lifecycle that `text` holds; `file` is how messages call it."""
    try:
        table = msgspec.convert(tomllib.loads(text), FileTable)
    except tomllib.TOMLDecodeError as error:
        raise BadLifecycle([f"{file}: {describe_syntax_fault(text, error)}"]) from None
    except (RecursionError, ValueError) as error:
        if not isinstance(error, msgspec.ValidationError):  # nested too deeply, or a number beyond all bounds
            raise BadLifecycle([f"{file}: it cannot be read: {error} [format]"]) from None
        fault = describe_shape_fault(error, FileTable, "the file")
        raise BadLifecycle([f"{file}: {fault}"]) from None
    reader = Reader()
    lifecycle = reader.lifecycle(table)
    if broken := reader.faults or faults(lifecycle):
        raise BadLifecycle([f"{file}: {fault}" for fault in dict.fromkeys(broken)])
    return lifecycle


class Reader:
    """Turns checked tables into a lifecycle, and collects every word that it does not know."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def lifecycle(self, table: FileTable) -> Lifecycle:
        if not NAME.fullmatch(table.name):
            self.fault("name", f"{table.name!r} is not a name; letters, digits and _ are allowed, a letter first")
        if len(table.birth) != 1:
            self.fault("birth", f"it lists {len(table.birth)} triggers; one is wanted, as in submit = 'queued'")
        moves = [
            self.move(table.name, source, trigger, row)
            for source, rows in [(None, table.birth), *table.moves.items()]
            for trigger, row in rows.items()
        ]
        return Lifecycle(
            name=table.name,
            document=table.document,
            title=table.title or f"{table.name} state machine",
            about=table.about,
            notes=tuple(table.notes),
            states={name: self.state(name, row) for name, row in table.states.items()},
            moves={(move.source, move.trigger): move for move in moves},
            options=self.options(table),
        )

    def state(self, name: str, raw: dict[str, Any]) -> State:
        place = at(name)
        row = self.table(StateTable, raw, StateTable(category="waiting"), place)
        if not NAME.fullmatch(name):
            self.fault(place, "a state's name has letters, digits and _, a letter first")
        return State(
            name=name,
            category=self.word(Category, row.category, place, "category"),
            about=row.about,
            cancel=row.cancel,
            cancel_why=row.cancel_why,
            deadline=row.deadline,
            deadline_why=row.deadline_why,
            within_us=self.length(row.within, place, "within"),
        )

    def move(self, lifecycle: str, source: str | None, trigger: str, raw: Any) -> Move:
        place = f"{at(source)}: '{trigger}'"
        row = self.table(MoveTable, raw if isinstance(raw, dict) else {"to": raw}, MoveTable(to=""), place)
        path = (row.to,) if isinstance(row.to, str) else tuple(row.to)
        if not path:
            self.fault(place, "to = [] leads nowhere; name at least one state")
        if trigger in WORDS_OF_DEADLINES or not NAME.fullmatch(trigger):
            self.fault(place, "a trigger's name has letters, digits and _, and is neither 'parent' nor 'none'")
        named = [f"{lifecycle}_{target.lower()}" for target in path]
        if source is None:
            named[:1] = [f"{lifecycle}_created"]
        severities = self.each_hop(row.severity, ["info"] * len(path), place, "severity")
        return Move(
            source=source,
            trigger=trigger,
            path=path,
            owner=self.word(Owner, row.owner or choose_owner(trigger), place, "owner"),
            events=tuple(self.each_hop(row.event, named, place, "event")),
            severities=tuple(self.word(Severity, word, place, "severity") for word in severities),
            opens_attempt=row.opens_attempt,
            extension=row.extension,
            why=row.why,
            guards=(row.guard,) if isinstance(row.guard, str) else tuple(row.guard),
            note=row.note,
        )

    def options(self, table: FileTable) -> Options:
        row = table.options
        return Options(
            roll_up=self.word(RollUp, row.roll_up, "options", "roll_up"),
            follows=row.follows,
            cancel_mode=self.word(CancelMode, row.cancel_mode, "options", "cancel_mode"),
            cancel_within_us=self.length(row.cancel_within, "options", "cancel_within"),
            monotonic=row.monotonic,
            monotonic_why=row.monotonic_why,
            budget=self.budget(table.budget),
            backoff=self.backoff(table.backoff) if table.backoff else None,
            lease=self.lease(table.lease) if table.lease else None,
        )

    def budget(self, row: BudgetTable) -> Budget:
        if row.attempts < 1 or (row.losses is not None and row.losses < 0) or row.snoozes < 0:
            self.fault("budget", "attempts must be at least 1, losses and snoozes at least 0")
        if row.exhausted not in ("exhaust", "fail"):
            self.fault("budget", f"exhausted = {row.exhausted!r}; allowed are 'exhaust' and 'fail'")
        return Budget(attempts=row.attempts, losses=row.losses, snoozes=row.snoozes, exhausted=row.exhausted)

    def backoff(self, row: BackoffTable) -> Backoff:
        if row.factor < 1 or not 0 <= row.jitter < 1:
            self.fault("backoff", "factor must be at least 1, and jitter at least 0 and below 1")
        return Backoff(
            base_us=self.length(row.base, "backoff", "base") or 0,
            factor=row.factor,
            cap_us=self.length(row.cap, "backoff", "cap"),
            jitter=row.jitter,
        )

    def lease(self, row: LeaseTable) -> LeaseRules:
        def length(key: str, otherwise: str) -> int:
            return self.length(getattr(row, key) or getattr(row, otherwise), "lease", key) or 0

        return LeaseRules(
            ttl_us=length("ttl", "ttl"),
            ttl_min_us=length("ttl_min", "ttl"),
            ttl_max_us=length("ttl_max", "ttl"),
            silent_max_us=self.length(row.silent_max, "lease", "silent_max"),
            beat_us=length("beat", "beat"),
            beat_min_us=length("beat_min", "beat"),
            beat_max_us=length("beat_max", "beat"),
            missed_beats=row.missed_beats,
            ack_us=self.length(row.ack, "lease", "ack"),
        )

    def table(self, kind: type[T], raw: dict[str, Any], otherwise: T, place: str) -> T:
        try:
            return msgspec.convert(raw, kind)
        except msgspec.ValidationError as error:
            self.faults.append(describe_shape_fault(error, kind, place))
            return otherwise

    def each_hop(self, given: str | list[str], default: list[str], place: str, key: str) -> list[str]:
        """One word for each hop of a path: a single word does for a single hop."""
        words = [given] if isinstance(given, str) else given
        if words and len(words) != len(default):
            self.fault(
                place,
                f"{key} names {len(words)} hops, and the path has {len(default)}; give a list with one for each",
            )
            return default
        return words or default

    def word(self, kind: type[E], value: str, place: str, key: str) -> E:
        try:
            return kind(value)
        except ValueError:
            self.fault(place, f"{key} = {value!r} is not allowed; allowed are {', '.join(kind)}")
            return next(iter(kind))

    def length(self, value: str | None, place: str, key: str) -> int | None:
        try:
            length_us = None if value is None else microseconds(value)
        except ValueError as error:
            self.fault(place, f"{key} = {error}")
            return None
        if length_us == 0:
            self.fault(place, f"{key} = {value!r} is no time at all")
        return length_us

    def fault(self, place: str, text: str) -> None:
        self.faults.append(Fault(place, "format", text))


def choose_owner(trigger: str) -> Owner:
    """Who fires a trigger whose move does not say so."""
    return Owner.HOLDER if trigger in BY_HOLDER else Owner.ENGINE


def describe_syntax_fault(text: str, error: tomllib.TOMLDecodeError) -> Fault:
    """What a broken file says wrong. TOML itself refuses a key twice: that is two answers to one trigger."""
    message = str(error)
    where = re.search(r"line (\d+)", message)
    number = int(where.group(1)) if where else 1
    lines = text.splitlines()[:number]
    line = lines[-1] if lines else ""
    header = next((match.group(1) for row in reversed(lines) if (match := re.match(r"\s*\[([^\]]+)\]", row))), "")
    key = line.split("=")[0].strip()
    source = re.fullmatch(r'moves\.\s*"?([^"]+?)"?', header.strip())
    if "overwrite" not in message and "twice" not in message:
        return Fault(f"line {number}", "format", f"it is not TOML: {message}")
    if not source:
        return Fault(f"line {number}", "format", f"'{key}' is listed twice in [{header}]")
    if key.startswith("["):
        return Fault(at(source.group(1)), "one-answer", f"[{header}] is listed twice (line {number})")
    return Fault(at(source.group(1)), "one-answer", f"the trigger '{key}' is listed twice (line {number}); keep one")


def describe_shape_fault(error: msgspec.ValidationError, kind: type[Table], place: str) -> Fault:
    """A table of the wrong shape, in the words of the file instead of the decoder's."""
    what, _, path = str(error).partition(" - at `")
    key = path.strip("`").removeprefix("$").replace("[...]", "").strip(".")
    where = f"{place}: {key}" if key else place
    allowed = f"; allowed are {', '.join(kind.__struct_fields__)}" if "unknown field" in what else ""
    if "got `int`" in what and "`str" in what:
        allowed = "; write it as text in quotes, a duration with its unit, as in '60s'"
    text = what.replace("Object missing", "the table lacks the").replace("Object", "the table").replace("`", "'")
    return Fault(where, "format", text + allowed)
