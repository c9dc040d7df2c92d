"""What a worker tells: what has begun, what was noted and what has ended, many of them in one transaction."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from interlock.client.outcomes import Snooze
from interlock.kernel.commands import PERMANENT, Command, Finish, Heard, Heartbeat, Outcome, Record, Release, Start
from interlock.kernel.errors import InterlockError
from interlock.kernel.names import shown
from interlock.worker.asking import Asking, wait_for
from interlock.worker.holds import GiveBack, Hold, Holds
from interlock.worker.log_facts import facts_of
from interlock.worker.verdicts import given_back

log = logging.getLogger("interlock.worker")
REPORT_AFTER = 0.05  # seconds; what has ended by then is started and finished in one transaction
CHUNK = 500  # outcomes in one command
AT_ONCE, WORTH = 2, 100  # reports on their way, and how many ends make another one worth its transaction
NO_ENDS = (Start, Record)  # what is told before an end
Part = tuple[Command[Any], list[Hold]]


class Reports:
    """Tells the engine, in the order in which things happened to each unit."""

    def __init__(self, asking: Asking, holds: Holds, tenant: int, actor: str) -> None:
        self.asking, self.holds, self.tenant, self.actor = asking, holds, tenant, actor
        self.starts: list[Hold] = []
        self.ends: list[Hold] = []
        self.notes: dict[tuple[int, int, str, str], Record] = {}
        self.noted: float | None = None  # when the oldest note came
        self.wake, self.quiet = asyncio.Event(), asyncio.Event()
        self.telling = 0  # reports on their way
        self.quiet.set()
        self.told = {"success": 0, "failure": 0, "cancelled": 0, "given back": 0, "refused": 0}
        self.on_lost: Callable[[Hold, str], None] = lambda hold, why: None
        self.on_end: Callable[[], None] = lambda: None

    # What happens.

    def begin(self, hold: Hold, now: float) -> None:
        hold.begun = now
        self.starts.append(hold)
        self.wake.set()

    def note(self, note: Record, now: float) -> None:
        """Of notes of one kind and name, the last one counts."""
        held = note.held[0]
        self.notes[held.unit, held.fence, note.kind, note.name] = note
        self.noted = self.noted or now
        self.wake.set()

    def end(self, hold: Hold) -> None:
        if not hold.ended:
            hold.ended = True
            self.ends.append(hold)
            self.wake.set()

    # Telling.

    async def run(self) -> None:
        """Whatever happens is told: an end at once, the rest within REPORT_AFTER."""
        now, reports = asyncio.get_running_loop().time, set[asyncio.Task[None]]()
        try:
            while True:
                self.wake.clear()
                for done in [one for one in reports if one.done()]:
                    reports.remove(done)
                    done.result()  # raises what broke it
                due = None if self.telling else self.due_at()
                left = None if due is None else due - now()
                if self.worth_telling() or (left is not None and left <= 0):
                    parts = self.taken(now())
                    one = asyncio.create_task(self.tell(parts))
                    reports.add(one)
                    one.add_done_callback(partial(self.over, parts))
                else:
                    await wait_for(self.wake, left)
        finally:
            for one in reports:
                one.cancel()
            await asyncio.gather(*reports, return_exceptions=True)

    def worth_telling(self) -> bool:
        """Whether ends are told now: at once if nothing is being told, else if there are many that are not asked."""
        if not self.telling:
            return bool(self.ends)
        return self.telling < AT_ONCE and len(self.ends) >= WORTH <= sum(not hold.asked for hold in self.ends)

    def due_at(self) -> float | None:
        times = [hold.begun for hold in self.starts[:1]] + [self.noted]
        return min((time + REPORT_AFTER for time in times if time is not None), default=None)

    async def report(self) -> None:
        """What has ended, was noted or has run for a while is known to the engine."""
        await self.quiet.wait()
        parts = self.taken(asyncio.get_running_loop().time())
        try:
            await self.tell(parts)
        finally:
            self.over(parts)

    def taken(self, now: float) -> list[Part]:
        """The commands that are due. Until they are answered, nothing else is told of the holds that they speak for."""
        parts = list(self.parts(now))
        for _, holds in parts:
            for hold in holds:
                hold.asked = True
        self.telling += 1
        self.quiet.clear()
        return parts

    def over(self, parts: list[Part], _: object = None) -> None:
        """A report was answered, or broke."""
        for _, holds in parts:
            for hold in holds:
                hold.asked = False
        self.telling -= 1
        if not self.telling:
            self.quiet.set()
        self.wake.set()

    def parts(self, now: float) -> Iterator[Part]:
        """The commands that are due, each with the holds that it speaks for."""
        ends = [hold for hold in self.ends if hold in self.holds and not hold.asked]
        starts = [hold for hold in self.starts if hold in self.holds and not hold.told]
        due = [hold for hold in starts if start_due(hold, now)]
        notes, self.notes, self.noted = self.notes, {}, None
        self.starts = [hold for hold in starts if not start_due(hold, now)]
        self.ends = [hold for hold in self.ends if hold.asked]
        for some in chunks(due):
            yield Start(tenant=self.tenant, actor=self.actor, held=tuple(hold.held for hold in some)), some
        for (unit, fence, _, _), note in notes.items():
            hold = self.holds.find(unit, fence)
            if hold and hold.asked:
                self.note(note, now)
            elif hold:
                yield note, [hold]
        for some in chunks([hold for hold in ends if isinstance(hold.end, Outcome)]):
            outcomes = tuple(hold.end for hold in some if isinstance(hold.end, Outcome))
            yield Finish(tenant=self.tenant, actor=self.actor, outcomes=outcomes), some
        for hold in ends:
            if isinstance(hold.end, Snooze):
                says = {"tenant": self.tenant, "actor": self.actor, "reason": str(hold.end)}
                yield given_back(hold.end, hold.held, **says), [hold]
            elif hold.end is None:
                self.holds.drop(hold)
        for some in chunks([hold for hold in ends if isinstance(hold.end, GiveBack)]):
            held = tuple(hold.held for hold in some)
            yield Release(tenant=self.tenant, actor=self.actor, held=held, reason="its worker cannot finish it"), some

    def beats(self, holds: Sequence[Hold]) -> Iterator[tuple[Heartbeat, list[Hold]]]:
        """One heartbeat for all of these. What the engine does not know to run is only held until a report tells it."""
        for running in (True, False):
            if some := [hold for hold in holds if hold.told is running]:
                held = tuple(hold.held for hold in some)
                yield Heartbeat(tenant=self.tenant, actor=self.actor, held=held, running=running), some

    async def tell(self, parts: list[Part]) -> None:
        answers = await self.asking.all([command for command, _ in parts]) if parts else []
        refused: list[Part] = []
        for (command, holds), answer in zip(parts, answers, strict=True):
            if not isinstance(answer, InterlockError):
                for hold, heard in zip(holds, answer, strict=True):
                    self.hear(command, hold, heard)
            elif len(holds) > 1:
                refused += alone(command, holds)  # one of them spoils it for the others
            else:
                self.spoilt(command, holds[0], answer)
        if refused:
            await self.tell(refused)
        self.on_end()

    # Hearing.

    def hear(self, command: Command[Any], hold: Hold, heard: Heard) -> None:
        if isinstance(command, NO_ENDS):
            self.mind(hold, heard)
            hold.told |= isinstance(command, Start) and heard.accepted
        elif heard.accepted or not may_be_refused(hold):
            self.settled(hold, heard)
        else:
            self.say_otherwise(hold, heard.why)

    def mind(self, hold: Hold, heard: Heard) -> None:
        """What an answer asks for is done: a handler that is to stop is told so, one whose lease is lost is stopped."""
        if heard.accepted and heard.cancel:
            hold.context.stopping.set()
        if not heard.accepted and hold in self.holds and not hold.ended:
            self.on_lost(hold, heard.why)

    def spoilt(self, command: Command[Any], hold: Hold, refusal: InterlockError) -> None:
        """A command that the engine cannot carry out at all."""
        if not isinstance(command, Finish | Release):
            log.error("%s: not recorded: %s", titled(hold), refusal, extra={"facts": facts_of(hold.grant)})
        elif hold.again:
            self.settled(hold, Heard(unit=hold.grant.unit, accepted=False, why=str(refusal)))
        else:
            self.say_otherwise(hold, str(refusal))

    def say_otherwise(self, hold: Hold, why: str) -> None:
        """An end that may not be is told once more as a failure, so that nobody waits for its lease to end."""
        hold.again, hold.ended = True, False
        hold.end = Outcome(held=hold.held, ended="failure", error=f"its end was refused: {why}", error_class=PERMANENT)
        self.end(hold)

    def settled(self, hold: Hold, heard: Heard) -> None:
        """The hold is over, and its end is in the log."""
        self.holds.drop(hold)
        end = hold.end
        word = end.ended if isinstance(end, Outcome) else "given back"
        if not heard.accepted:
            word = "refused"
        self.told[word] += 1
        level = logging.INFO if word in ("success", "given back") else logging.WARNING
        if log.isEnabledFor(level):
            why = heard.why if word == "refused" else end.error if isinstance(end, Outcome) else ""
            text = f"{titled(hold)}: {word}" + (f": {why}" if why else "")
            facts = facts_of(hold.grant)
            if isinstance(end, Outcome) and end.traceback:
                text, facts["traceback"] = f"{text}\n{end.traceback}", end.traceback
            log.log(level, text, extra={"facts": {**facts, "ended": word, "state": heard.state, "why": why}})


def start_due(hold: Hold, now: float) -> bool:
    """Whether its start is told now: it has ended, or runs for so long that it will not end with its start."""
    return hold.ended or (hold.begun or 0) + REPORT_AFTER <= now


def chunks(holds: list[Hold]) -> Iterator[list[Hold]]:
    return (holds[place : place + CHUNK] for place in range(0, len(holds), CHUNK))


def alone(command: Command[Any], holds: list[Hold]) -> list[Part]:
    """The same command for each hold by itself."""
    if isinstance(command, Finish):
        return [
            (msgspec.structs.replace(command, outcomes=(outcome,)), [hold])
            for hold, outcome in zip(holds, command.outcomes, strict=True)
        ]
    return [(msgspec.structs.replace(command, held=(hold.held,)), [hold]) for hold in holds]


def may_be_refused(hold: Hold) -> bool:
    """Whether an end can be refused under a sound lease: snoozes are counted, and a cancel must be asked for."""
    return not hold.again and (
        isinstance(hold.end, Snooze) or (isinstance(hold.end, Outcome) and hold.end.ended == "cancelled")
    )


def titled(hold: Hold) -> str:
    return f"{hold.grant.task} {name_of(hold)}"


def name_of(hold: Hold) -> str:
    """The id of its unit, as users see it."""
    return shown(hold.grant.lifecycle, hold.grant.unit)
