"""Check a transition log in one pass: format, legality, invariants and order in time."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

import msgspec

from interlock.audit.log import state as bits
from interlock.audit.log.state import (
    A_TIME,
    LINE_MAX,
    SHOWN_MAX,
    EntityStates,
    LogFinding,
    LogLine,
    LogMachine,
    LogStep,
    Metadata,
    StrictLine,
    amount,
    instant,
    key,
    lines,
    quote_text,
    quote_transition,
    split_sound,
)
from interlock.kernel.lifecycle import SETTLED, Category, Lifecycle, Severity

TASK, WORKSTREAM, WORKER = "task", "workstream", "worker"
EVENT = "{}_state_transition"
RESTING = SETTLED | {Category.WAITING}  # a worker without tasks
LATER_MAX = 1 << 15  # questions that wait for the end of their instant
FIRST_TIME = "0001-01-01T00:00:00Z"
NO_LINE: dict[str, Any] = {"event_type": "", "severity": Severity.INFO, "entity_id": "?", "from_state": None}
NO_LINE |= {"to_state": "", "trigger": "", "metadata": {}}
NEEDED = {"event_type", "entity_id", "from_state", "to_state", "trigger"}  # to judge a move at all


class Checker:
    """Reads a log once, from its first line to its last, and yields what is wrong with it."""

    def __init__(
        self,
        lifecycles: Iterable[Lifecycle],
        *,
        strict: bool = False,
        from_birth: bool = False,
        max_retries: int | None = None,
    ) -> None:
        self.strict, self.from_birth, self.max_retries = strict, from_birth, max_retries
        self.machines = {EVENT.format(lifecycle.name): LogMachine(lifecycle) for lifecycle in lifecycles}
        self.also = {TASK: self.task, WORKSTREAM: self.workstream, WORKER: self.worker}
        self.decode: Callable[[bytes], LogLine] = msgspec.json.Decoder(StrictLine if strict else LogLine).decode
        self.ledger = EntityStates()
        self.lines = self.entities = self.mid_life = 0
        self.waiting: list[LogFinding] = []
        self.number, self.entity = 0, ""
        self.timestamp, self.now = FIRST_TIME, FIRST_TIME[:-1]
        # One transaction writes several lines with one timestamp, in any order. What concerns two entities
        # is therefore asked when the time moves on: (question, line, entity, number or key, name).
        self.later: deque[tuple[Callable[[int, str], None], int, str, int, str]] = deque()

    def findings(self, stream: BinaryIO) -> Iterator[LogFinding]:
        """Everything that is wrong, as soon as it is known."""
        for self.number, raw in enumerate(lines(stream), 1):
            if not raw.isspace():
                self.lines += 1
                self.line(raw)
            if self.waiting:
                yield from self.waiting
                self.waiting.clear()
        self.answer(until=0)
        yield from self.waiting
        self.waiting.clear()

    def find(self, rule: str, message: str, legal: Iterable[str] = ()) -> None:
        self.waiting.append(LogFinding(self.number, rule, quote_text(self.entity), message, list(legal)))

    def line(self, raw: bytes) -> None:
        """Check one line, and remember where it leaves its entity, whatever is wrong with it."""
        self.entity = ""
        if len(raw) > LINE_MAX:
            return self.find("schema", f"it is longer than {LINE_MAX} bytes and was skipped")
        try:
            line = self.decode(raw)
            if not raw.isascii():
                raw.decode()  # the decoder looks only into the fields that it knows
        except (ValueError, RecursionError) as error:
            return self.broken(raw, error)
        self.entity = line.entity_id
        return self.check(line, self.strict)

    def broken(self, raw: bytes, error: Exception) -> None:
        """Find every fault in the shape of a line, and check what is left of it as far as it goes."""
        try:
            fields = msgspec.json.decode(raw.decode())
            if not isinstance(fields, dict):
                return self.find("schema", f"it is {quote_text(raw.decode().strip())}; an object is wanted")
            sound, faults = split_sound(fields, LogLine)
        except UnicodeDecodeError:
            return self.find("schema", "it is not UTF-8 text")
        except (ValueError, RecursionError) as reason:
            return self.find("schema", f"it is not JSON that can be read: {reason}")
        self.entity = sound.get("entity_id", "")
        if self.strict:
            strangers = sorted(fields.keys() - set(LogLine.__struct_fields__))
            faults += [f"{quote_text(name)} is not a field of the document" for name in strangers]
        for fault in faults or [str(error)]:
            self.find("schema", fault)
        line = msgspec.convert(NO_LINE | {"timestamp": self.timestamp} | sound, LogLine)
        if sound.keys() >= NEEDED:
            return self.check(line, self.strict and "severity" in sound)
        return self.guess(line)

    def guess(self, line: LogLine) -> None:
        """A line that cannot be judged has moved its entity to the state that it names, or to an unknown one."""
        if line.timestamp != self.timestamp:
            self.clock(line.timestamp)
        machine = self.machines.get(line.event_type)
        if machine and self.entity:
            self.move(machine, line, machine.step("", line.to_state))

    def check(self, line: LogLine, strict: bool) -> None:
        """Find what is wrong with a line of the right shape."""
        if line.timestamp != self.timestamp:
            self.clock(line.timestamp)
        machine = self.machines.get(line.event_type)
        if machine is None:
            known = ", ".join(self.machines)
            text = f"event_type is {quote_text(line.event_type)}; one of {known} is wanted"
            return self.find("schema", text, self.machines)
        step = machine.steps.get((line.from_state, line.to_state, line.trigger)) or self.unlisted(machine, line)
        if strict:
            self.compare(machine, line, step)
        return self.move(machine, line, step)

    def clock(self, timestamp: str) -> None:
        """It is the time that the line says, and what waited for the end of the last instant is answered."""
        now = instant(timestamp)
        if now is None:
            return self.find("schema", f"timestamp is {quote_text(timestamp)}; {A_TIME} is wanted")
        if now != self.now and self.later:
            self.answer(until=0)
        if now < self.now:
            text = f"{timestamp} is before {self.timestamp}, the time of the line before it"
            self.find("timestamps", text, [f"{self.timestamp} or later"])
        self.timestamp, self.now = timestamp, now
        return None

    def unlisted(self, machine: LogMachine, line: LogLine) -> LogStep:
        """A move that is not in the table: a creation, or a finding."""
        lifecycle, source, target = machine.lifecycle, line.from_state, line.to_state
        if source is None and target == lifecycle.initial:
            return machine.birth
        strangers = [state for state in (source, target) if state is not None and state not in lifecycle.states]
        for state in dict.fromkeys(strangers):
            text = (
                f"'{quote_text(state)}' is not a state of a {lifecycle.name}; there are {', '.join(lifecycle.states)}"
            )
            self.find("legality", text, lifecycle.states)
        if not strangers:
            legal = machine.legal(source, self.strict)
            listed = f"legal from {source or 'nothing'}: {', '.join(legal) or 'no move'}"
            self.find("legality", f"{quote_transition(line)} is not a listed move; {listed}", legal)
        return machine.step(source, target)

    def compare(self, machine: LogMachine, line: LogLine, step: LogStep) -> None:
        """Find what the document does not have: extensions, creations, other severities."""
        if step.outside:
            text = f"{quote_transition(line)} is not in document {machine.lifecycle.document}: {step.outside}"
            self.find("legality", text, machine.legal(line.from_state, strict=True))
        elif step.severities and line.severity not in step.severities:
            wanted = sorted(step.severities)
            self.find("schema", f"severity is {line.severity}; for this move it is {' or '.join(wanted)}", wanted)
        meta = line.metadata
        if step.gives_up and 0 <= meta.retry_count < meta.max_retries:
            text = f"it gives up at retry_count {meta.retry_count}, below max_retries {meta.max_retries}"
            self.find("invariant", f"{text}; document {machine.lifecycle.document} tries again", [step.gives_up])

    def move(self, machine: LogMachine, line: LogLine, step: LogStep) -> None:
        """Hold a move against what is known of its entity, and remember it."""
        name, meta = machine.lifecycle.name, line.metadata
        entity = key(name, line.entity_id)
        value = self.ledger.get(entity)
        if value & bits.STATE != step.source:
            self.chain(machine, line, step, value)
        if meta.created_at is not None or meta.started_at is not None or meta.completed_at is not None:
            self.lifetime(meta)
        if also := self.also.get(name):
            value = also(machine, line, step, value)
        self.ledger.put(entity, value & ~bits.STATE | step.target)

    def chain(self, machine: LogMachine, line: LogLine, step: LogStep, value: int) -> None:
        """A move must begin where the last one ended; a life may have begun before the log did."""
        lifecycle, state = machine.lifecycle, value & bits.STATE
        if state == bits.UNSEEN:
            self.entities += 1
            if step.source not in (bits.UNBORN, bits.LOST, machine.initial):
                self.mid_life += 1
                if self.from_birth:
                    text = f"its first line leaves {line.from_state}; a life begins in {lifecycle.initial}"
                    self.find("invariant", text, [lifecycle.initial])
        elif bits.LOST in (state, step.source):
            pass
        elif is_final(lifecycle, machine.names[state]):
            self.find("invariant", f"it is {machine.names[state]}, which is an end; no move is legal")
        else:
            legal = machine.legal(machine.names[state], self.strict)
            worker = self.ledger.worker_names[value >> bits.WORKER & bits.WORKERS_MAX] if lifecycle.name == TASK else ""
            where = machine.names[state] + (f" on worker {quote_text(worker)}" if worker else "")
            text = f"from_state is {line.from_state or 'null'}, but it is {where}"
            self.find("invariant", f"{text}; legal now: {', '.join(legal)}", legal)

    def lifetime(self, meta: Metadata) -> None:
        """created_at <= started_at <= completed_at, where they are given."""
        before, since = "", ""
        for name in ("created_at", "started_at", "completed_at"):
            text = getattr(meta, name)
            if text is None:
                continue
            now = instant(text)
            if now is None:
                self.find("schema", f"metadata.{name} is {quote_text(text)}; {A_TIME} is wanted")
                continue
            if now < since:
                self.find("invariant", f"{name} {text} is before {before}", [f"{before} or later"])
            before, since = f"{name} {text}", now

    def task(self, machine: LogMachine, line: LogLine, step: LogStep, value: int) -> int:
        """Hold a task's move against its invariants; the answer is what to remember of it."""
        meta = line.metadata
        if step.spends or meta.retry_count > 0 or meta.max_retries >= 0 or value >> bits.RETRIES & bits.SMALL:
            value = self.retries(machine, meta, step, value)
        if meta.worker_id or value >> bits.WORKER & bits.WORKERS_MAX:
            value = self.assignment(meta, step, value)
        if meta.critical:
            value |= 1 << bits.CRITICAL
        if meta.retry_of:
            self.forget(machine, key(TASK, meta.retry_of))
        if meta.workstream_id or value >> bits.WORKSTREAM:
            value = self.membership(machine, meta, step, value)
        if step.readies:
            for needed in dict.fromkeys(meta.dependencies):
                self.ask(self.dependency, key(TASK, needed), needed)
        return value

    def retries(self, machine: LogMachine, meta: Metadata, step: LogStep, value: int) -> int:
        """retry_count never falls; neither it nor the retries in the log exceed max_retries."""
        if meta.max_retries >= 0:
            value = bits.pack_small(value, bits.LIMIT, meta.max_retries + 1)
        spent = (value >> bits.SPENT & bits.SMALL) + step.spends
        last, count = value >> bits.RETRIES & bits.SMALL, meta.retry_count
        limit, whose = self.limit(machine, meta, value >> bits.LIMIT & bits.SMALL)
        if count > limit:
            self.find("invariant", f"retry_count is {quote_text(str(count))}, above {whose}", [f"at most {limit}"])
        elif step.spends and spent > limit:
            self.find("invariant", f"this is its retry number {spent}, above {whose}", [f"at most {limit}"])
        if 0 <= count < last:
            self.find("invariant", f"retry_count falls from {last} to {count}", [f"at least {last}"])
        value = bits.pack_small(value, bits.SPENT, spent)
        return bits.pack_small(value, bits.RETRIES, last if count < 0 else count)

    def limit(self, machine: LogMachine, meta: Metadata, known: int) -> tuple[int, str]:
        """The max_retries of a task, and who says so."""
        if meta.max_retries >= 0 or known:
            exact = known < bits.SMALL
            limit = meta.max_retries if meta.max_retries >= 0 else known - 1 if exact else sys.maxsize
            return limit, f"max_retries {limit}"
        if self.max_retries is not None:
            return self.max_retries, f"--max-retries {self.max_retries}"
        limit = machine.lifecycle.options.budget.attempts - 1
        return limit, f"{limit}, the default (the log gives no max_retries for it)"

    def assignment(self, meta: Metadata, step: LogStep, value: int) -> int:
        """Only an active task has a worker, and only one."""
        ledger, name = self.ledger, meta.worker_id or ""
        number = ledger.worker(key(WORKER, name), name) if name else 0
        held = value >> bits.WORKER & bits.WORKERS_MAX
        if name and not (step.was_active or step.is_active):
            self.find("invariant", f"it names worker {quote_text(name)}, but only an active task has one", ["null"])
        if number and held and number != held and step.was_active:
            own = quote_text(ledger.worker_names[held])
            self.find("invariant", f"{quote_text(name)} is a second worker: it was assigned to {own}", [own])
        ledger.running[held] -= ledger.running[held] > 0
        value &= ~(bits.WORKERS_MAX << bits.WORKER)
        if number and step.is_active:
            value |= number << bits.WORKER
            ledger.running[number] += 1
            ledger.limit_worker(number, meta.max_concurrent_tasks)
            self.ask(self.overload, number, name)
        return value

    def membership(self, machine: LogMachine, meta: Metadata, step: LogStep, value: int) -> int:
        """A workstream knows how its tasks stand, and fails with a critical one."""
        number, tasks = value >> bits.WORKSTREAM, self.ledger.tasks
        before, after = machine.counts_as[value & bits.STATE], machine.counts_as[step.target]
        if number and before == after:
            return value
        if number:
            tasks[before][number] -= 1
        else:
            number = self.ledger.workstream(key(WORKSTREAM, meta.workstream_id))
        tasks[after][number] += 1
        if machine.categories[step.target] is Category.FAILURE and value >> bits.CRITICAL & 1:
            self.ask(self.doomed, number, meta.workstream_id)
        return value | number << bits.WORKSTREAM

    def forget(self, machine: LogMachine, entity: int) -> None:
        """A task whose place another one took counts no more in its workstream."""
        value = self.ledger.get(entity)
        if number := value >> bits.WORKSTREAM:
            self.ledger.tasks[machine.counts_as[value & bits.STATE]][number] -= 1
            self.ledger.put(entity, value & ((1 << bits.WORKSTREAM) - 1))

    def workstream(self, machine: LogMachine, line: LogLine, step: LogStep, value: int) -> int:
        """Hold a workstream's move against its tasks, once they have moved as well."""
        if number := value >> bits.WORKSTREAM:
            self.ledger.workstream_states[number] = step.target
            if machine.categories[step.target] in (Category.GATE, Category.SUCCESS):
                self.ask(self.incomplete, number, line.to_state)
        return value

    def worker(self, machine: LogMachine, line: LogLine, step: LogStep, value: int) -> int:
        """Hold a worker's move against its capacity, and against its tasks once they have moved as well."""
        ledger, meta = self.ledger, line.metadata
        if meta.max_concurrent_tasks >= 0:
            value = ledger.with_worker_number(value, line.entity_id)
        if number := value >> bits.WORKER:
            ledger.worker_states[number] = step.target
            ledger.limit_worker(number, meta.max_concurrent_tasks)
            if machine.categories[step.target] in RESTING:
                self.ask(self.rested, number, line.to_state)
            if 0 <= ledger.capacity[number] < meta.task_count:
                limit = ledger.capacity[number]
                text = f"task_count is {meta.task_count}, above max_concurrent_tasks {limit}"
                self.find("invariant", text, [f"at most {limit}"])
        return value

    def ask(self, question: Callable[[int, str], None], about: int, name: str) -> None:
        """Answer a question when the time moves on, or when too many wait."""
        # Names are cut, for a log may hold long ones and many; no more of them is shown.
        self.later.append((question, self.number, self.entity[: SHOWN_MAX + 1], about, name[: SHOWN_MAX + 1]))
        if len(self.later) > LATER_MAX:
            self.answer(until=LATER_MAX)

    def answer(self, until: int) -> None:
        """At most `until` questions wait. A finding carries the line that raised its question."""
        here = self.number, self.entity
        while len(self.later) > until:
            question, self.number, self.entity, about, name = self.later.popleft()
            question(about, name)
        self.number, self.entity = here

    def dependency(self, entity: int, name: str) -> None:
        """A task is ready when those that it needs have succeeded."""
        machine = self.machines[EVENT.format(TASK)]
        state = self.ledger.get(entity) & bits.STATE
        if machine.categories[state] is Category.SUCCESS or state == bits.LOST:
            return
        if state != bits.UNSEEN or self.from_birth:
            stands = f"is {machine.names[state]}" if state else "has no line"
            wanted = machine.named(Category.SUCCESS)
            self.find(
                "invariant", f"its dependency {quote_text(name)} {stands}; it must be {' or '.join(wanted)}", wanted
            )

    def overload(self, worker: int, name: str) -> None:
        """A worker runs no more tasks than it may, and none after its end. One fault is told once.

        A task may be assigned, end, and let its worker shut down, all in one instant.
        """
        ledger, state = self.ledger, self.ledger.worker_states[worker]
        number, limit = ledger.running[worker], ledger.capacity[worker]
        machine = self.machines.get(EVENT.format(WORKER))
        if machine and number and machine.categories[state] in SETTLED:
            self.find("invariant", f"it is assigned to worker {quote_text(name)}, which is {machine.names[state]}")
        elif 0 <= limit < number:
            text = f"worker {quote_text(name)} has {amount(number, 'task')}, above max_concurrent_tasks {limit}"
            self.find("invariant", text, [f"at most {limit}"])
            ledger.running[worker] = limit

    def rested(self, worker: int, state: str) -> None:
        """A worker that rests has no task. One fault is told once."""
        number, machine = self.ledger.running[worker], self.machines[EVENT.format(WORKER)]
        if number and machine.categories[self.ledger.worker_states[worker]] in RESTING:
            self.find("invariant", f"it is {state}, but {amount(number, 'task')} on it did not end", ["no task"])
            self.ledger.running[worker] = 0

    def incomplete(self, workstream: int, state: str) -> None:
        """A workstream is validated and succeeds when all its tasks have succeeded."""
        unfinished, unhappy = (self.ledger.tasks[kind][workstream] for kind in (bits.UNFINISHED, bits.UNHAPPY))
        if unfinished or unhappy:
            text = f"it is {state}, but of its tasks {unfinished} did not end and {unhappy} did not succeed"
            self.find("invariant", text, ["every task has succeeded"])

    def doomed(self, workstream: int, name: str) -> None:
        """A critical task that fails takes its workstream with it."""
        state, machine = self.ledger.workstream_states[workstream], self.machines.get(EVENT.format(WORKSTREAM))
        if machine and 0 < state < bits.LOST and machine.categories[state] is not Category.FAILURE:
            wanted = machine.named(Category.FAILURE)
            stands = f"its workstream {quote_text(name)} is {machine.names[state]}"
            text = f"it is critical, but {stands}, not {' or '.join(wanted)}"
            self.find("invariant", text, wanted)


def is_final(lifecycle: Lifecycle, state: str) -> bool:
    """Whether no move leaves a settled state."""
    return lifecycle.settled(state) and not any(hop.source == state for hop in lifecycle.hops)
