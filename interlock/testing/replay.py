"""Replay an agent's handler on a recorded run, without calling models or tools.

Every step, effect, question and child is answered from the record. What the record has not, or has otherwise, is a
difference: it fails the test before any of it is called. So is a result that is another one, or something recorded that
the handler does not ask for any more.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.app import App
from interlock.client.exceptions import Await
from interlock.kernel.commands import (
    AppendLog,
    ChildStatus,
    Command,
    EffectStatus,
    KeptStep,
    LeaseGrant,
    LeaseStatus,
    ReadSteps,
    Record,
    StepsPage,
)
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import parse_id
from interlock.kernel.lifecycle import Category
from interlock.plugins.agents.budgets import EXHAUSTED
from interlock.plugins.agents.cassettes import Cassette, CassetteLine, decode_cassette, read_cassette
from interlock.plugins.agents.options import JOB
from interlock.testing.worker import call_here
from interlock.worker.context import JobContext
from interlock.worker.effects import EffectRecorder
from interlock.worker.steps import StepRecorder, Usage
from interlock.worker.waiting import Steps, encode_settled

if TYPE_CHECKING:
    from interlock.client.agents import AgentRun

UNTIL = 2**62
FREE = ("progress", "checkpoint", "usage", "artifact")  # kinds of records that may come and go
LINES_MAX = 20  # of differences that are shown


class ReplayDiffers(AssertionError):
    """The handler did something else than it did when its run was recorded."""


class ReplaySender:
    """What a handler sends to: it is answered from the record, and what is not in it is a difference."""

    def __init__(self, cassette: Cassette) -> None:
        self.cassette = cassette
        self.requests = {(line.what, line.name): line.request for line in cassette.lines}
        self.phases = [line.name for line in cassette.lines if line.what == "phase"]
        self.met: set[tuple[str, str]] = set()
        self.differences: list[str] = []

    def send(self, command: Command[Any]) -> Any:
        match command:
            case ReadSteps():
                request = self.requests.get(("effect" if command.effect else "step", command.name))
                return StepsPage((KeptStep(command.name, "null"),), None if request is None else request.text)
            case Record(kind="phase") if command.name in self.phases:
                self.met.add(("phase", command.name))
                return [LeaseStatus(unit=1, accepted=True)]
            case Record() if command.kind in FREE:
                return [LeaseStatus(unit=1, accepted=True)]
            case AppendLog():
                return []
            case Record():
                raise self.differ(f"{command.kind} '{command.name}' is new")
            case _:
                raise self.differ(f"{type(command).__name__} is not answered by a record")

    async def asend(self, command: Command[Any]) -> Any:
        return self.send(command)

    def differ(self, text: str) -> ReplayDiffers:
        """Notes a difference, which fails the test even if the handler catches what is raised."""
        self.differences.append(text)
        return ReplayDiffers(text)


class ReplaySteps(StepRecorder):
    """Steps from the record alone: the function of another one is not called."""

    def perform(self, name: str, fn: Callable[[], Any], of: Any, usage: Usage, retry: int) -> Steps[Any]:
        sender = self.context.sender
        assert isinstance(sender, ReplaySender)
        if name not in self.done:
            raise sender.differ(f"step '{name}' is new; recorded are {', '.join(map(repr, self.done)) or 'none'}")
        sender.met.add(("step", name))
        return (yield from super().perform(name, fn, of, usage, retry))


class ReplayEffects(EffectRecorder):
    """Effects from the record alone."""

    def perform(self, name: str, call: Any, check: Any, of: Any) -> Steps[Any]:
        sender = self.context.sender
        assert isinstance(sender, ReplaySender)
        sender.met.add(("effect", name))
        return (yield from super().perform(name, call, check, of))


class ReplayChildren(dict[str, ChildStatus]):
    """Children by name, which remember that they were asked for."""

    def __init__(self, known: Iterable[ChildStatus], met: set[tuple[str, str]]) -> None:
        super().__init__({child.name: child for child in known})
        self.met = met

    def __contains__(self, name: object) -> bool:
        self.met.add(("child", str(name)))
        return super().__contains__(name)


class ReplayContext(JobContext):
    """The context of a handler that is replayed."""

    def __init__(self, app: App, sender: ReplaySender, grant: LeaseGrant) -> None:
        super().__init__(sender, grant, app.tenant, lambda note: None)
        self.step = ReplaySteps(self)
        self.effect = ReplayEffects(self)
        self.children = ReplayChildren(grant.children, sender.met)


def replay(app: App, source: "AgentRun | Cassette | Path | str") -> Any:
    """Runs the handler of an agent on the record of a run, and returns what it returns, as `run.wait()` does.

    Parameters:
        source: a run of this app, a file that `interlock agent capture` has written, or the id of a run.

    Raises:
        ReplayDiffers: it did something else than was recorded; the text says what.
        InterlockError: the app has no such agent, or there is no such run.
    """
    cassette = load_cassette(app, source)
    task = app.find_task(cassette.head.agent)
    sender = ReplaySender(cassette)
    context = ReplayContext(app, sender, make_grant(cassette))
    context.use_task(task)
    try:
        arguments = task.arguments.decode(context.grant, context)
    except msgspec.MsgspecError as error:
        raise ReplayDiffers(f"{cassette.head.run}: the handler takes other arguments: {error}") from None
    ended, result = call_to_end(task, arguments)
    unmet = list_unmet(cassette, sender.met)
    if is_cut(cassette) and sender.differences and not unmet:
        return None  # the record ends here
    differences = [*sender.differences, *compare_end(cassette, ended, result), *unmet]
    if differences:
        shown = [*differences[:LINES_MAX], *(["…"] if len(differences) > LINES_MAX else [])]
        raise ReplayDiffers(f"{cassette.head.run} goes otherwise than it was recorded:\n  " + "\n  ".join(shown))
    return result


def call_to_end(task: Any, arguments: dict[str, Any]) -> tuple[BaseException | None, Any]:
    """What a handler raises, or else returns, as it is kept: a child in it stands for what it came to."""
    try:
        return None, msgspec.json.decode(encode_settled("the result", call_here(task, arguments)))
    except Exception as error:
        return error, None


def load_cassette(app: App, source: Any) -> Cassette:
    """The record that is meant.

    Raises:
        InterlockError: it cannot be read, or there is none.
    """
    if isinstance(source, Cassette):
        return source
    if isinstance(source, Path):
        try:
            return decode_cassette(source.read_text(encoding="utf-8"))
        except OSError as error:
            raise InterlockError(f"'{source}' cannot be read: {error.strerror}") from None
        except InterlockError as error:
            raise InterlockError(f"'{source}': {error}") from None
    unit = parse_id(source) if isinstance(source, str) else source.unit
    read = app if isinstance(source, str) else source.app
    cassette: Cassette | None = read.read(read_cassette, unit)
    if cassette is None:
        raise InterlockError(f"there is no agent run {source!r} to replay")
    return cassette


def make_grant(cassette: Cassette) -> LeaseGrant:
    """What a worker would be told that is granted the job again, with all that is recorded."""
    lines: dict[str, list[CassetteLine]] = {}
    for line in cassette.lines:
        lines.setdefault(line.what, []).append(line)
    steps = lines.get("step", [])
    return LeaseGrant(
        unit=1, task=cassette.head.agent, input=encode_value(cassette.head.arguments), attempt=1,
        fence=cassette.head.fence,
        lease="", until=UNTIL, ttl_us=UNTIL, beat_us=0, correlation="", trace="", lifecycle=JOB,
        steps=tuple((step.name, encode_value(step.result)) for step in steps),
        requests=tuple((step.name, step.request.digest) for step in steps if step.request is not None),
        signals=tuple((signal.name, encode_value(signal.result)) for signal in lines.get("signal", [])),
        waited=tuple(wait.name for wait in lines.get("wait", [])),
        effects=tuple(map(make_effect, lines.get("effect", []))),
        children=tuple(map(make_child, lines.get("child", []))),
        validations=tuple((each.name, encode_value(each.result)) for each in lines.get("validation", [])),
    )  # fmt: skip


def make_effect(line: CassetteLine) -> EffectStatus:
    """An effect as a grant tells it: done, or begun and open."""
    result = encode_value(line.result) if line.done else None
    return EffectStatus(line.name, 1, 0, result, "" if line.request is None else line.request.digest)


def make_child(line: CassetteLine) -> ChildStatus:
    """A child as a grant tells it."""
    result = None if line.result is None else encode_value(line.result)
    return ChildStatus(
        line.name, 1, line.lifecycle, line.state, line.outcome, result, line.error, line.trigger, line.by, line.reason
    )


def is_cut(cassette: Cassette) -> bool:
    """Whether the record ends somewhere in the handler: its run is open, was cancelled, or used more than it may."""
    head = cassette.head
    return head.outcome in (None, Category.CANCELLED) or (head.error or "").startswith(EXHAUSTED)


def compare_end(cassette: Cassette, ended: BaseException | None, result: Any) -> list[str]:
    """How its end differs from the recorded one: what it returned, raised, or waits for."""
    head = cassette.head
    if isinstance(ended, ReplayDiffers):
        return []
    if is_cut(cassette):
        return [] if isinstance(ended, Await) else [f"it ended, and what was recorded goes on: {ended or result!r}"]
    if isinstance(ended, Await):
        return [f"it waits for {', '.join(ended.signals)}, which is not recorded"]
    if head.outcome == Category.SUCCESS:
        if ended is not None:
            return [f"it raised {ended!r}, and what was recorded succeeded"]
        return [] if result == head.result else [f"it returned {result!r}, and recorded is {head.result!r}"]
    return [] if ended is not None else [f"it returned {result!r}, and what was recorded ended in {head.outcome}"]


def list_unmet(cassette: Cassette, met: set[tuple[str, str]]) -> list[str]:
    """What is recorded, and was not asked for; signals and waits are the record's own, and so are budget questions."""
    return [
        f"{line.what} '{line.name}' is recorded, and was not asked for"
        for line in cassette.lines
        if line.what in ("step", "effect", "child", "phase")
        and (line.what, line.name) not in met
        and not line.name.startswith(("budget ", "effect "))
    ]


def encode_value(value: Any) -> str:
    """Encodes a value as JSON text."""
    return msgspec.json.encode(value).decode()
