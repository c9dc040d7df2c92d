"""Short scripted scenarios that together take every listed transition, one per line.

Before the colon stand the kind of work, its children and their facts. A child after `>` needs the one before it; a
child is `task`, `extra` (a task that is not critical), `risky` (one that may fail) or `each` (a map over the first
task), `build` or `lint` (a job that is not required), `step` or `ship` (an approval); `run.` before a fact means the
parent. After the colon stand verbs. They speak of the first child, or of a job; `run.` before a verb means the parent,
`2.` the second child. A number lets seconds pass.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from interlock.kernel.commands import Work
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.paths import SELF
from interlock.kernel.rows import Event

SECOND = 1_000_000
Move = tuple[str, str | None, str]  # lifecycle, source, trigger
LIFECYCLES = {
    "job": "job", "flow": "workflow_run", "step": "step", "ship": "approval", "stream": "workstream", "task": "task",
    "extra": "task", "risky": "task", "each": "task",
    "agent": "agent_run", "work": "agent_job", "ci": "ci_run", "build": "ci_job", "lint": "ci_job",
}  # fmt: skip
PHASES = ("run", "correct", "optimize", "check", "upload")
OPTIONS = {
    "risky": '{"workstreams": {"allow_failure": true}}',
    "each": '{"workstreams": {"map": {"over": "c1"}}}',
}
LIGHT = ("extra", "lint")  # do not decide their parent's fate

STORIES = """
job: claim start complete
job: cancel
job: bury
job queue_timeout=60s: 60 tick
job: claim release
job: claim fail
job: claim lose
job attempts=1: claim lose
job: claim break
job: claim cancel
job: claim start break
job: claim start fail
job: claim start release
job: claim start snooze
job: claim start lose
job attempts=1: claim start fail
job attempts=1 timeout=5s: claim start 5 tick
job: claim start bury
job: claim start hard
job: claim start cancel stop

flow step: claim complete
flow step when=false: tick
flow step: cancel
flow step: claim fail
flow step: claim break
flow step attempts=1: claim fail
flow step attempts=1 timeout=5s: claim 5 tick
flow step: claim lose claim
flow step: claim release
flow step: claim snooze
flow step: claim cancel
flow step: run.cancel
flow step: claim run.cancel
flow ship: approve
flow ship: reject
flow ship: cancel
flow ship: run.cancel
flow step > ship: 2.cancel
flow step > ship: claim complete 2.approve
flow ship > step: approve 2.cancel
flow ship on_reject=fail: reject
flow ship expires=60s: 60 tick

stream task: plan claim complete valid run.valid
stream task: plan claim complete valid run.invalid
stream task: cancel
stream task: run.cancel
stream task: plan cancel
stream task: plan run.cancel
stream task > task: plan claim break
stream task task: plan claim break
stream task task: plan claim claim break
stream task task: plan claim fail claim break
stream task task: plan claim complete claim break
stream task attempts=1: plan claim fail
stream task attempts=1 timeout=5s: plan claim 5 tick
stream task: plan claim lose
stream task: plan claim release
stream task: plan claim snooze
stream task: plan claim cancel
stream task: plan claim run.cancel
stream task: plan claim fail 60 tick
stream task: plan claim fail cancel
stream task: plan claim fail run.cancel
stream task: plan claim complete invalid
stream task: plan claim complete cancel
stream task: plan claim complete run.cancel
stream task expires=60s: plan claim complete 60 tick
stream task run.expires=60s: plan claim complete valid 60 tick
stream extra: plan cancel
stream extra: plan claim break
stream task run.timeout=5s: plan claim 5 tick
stream risky: plan claim break
stream task: plan skip
stream task > each: plan claim complete valid
stream task > each: plan claim list valid
stream task > task: plan claim complete valid 2.cancel run.again

agent work: cancel
agent work run.queue_timeout=60s: 60 tick
agent work: run.cancel run.resume
agent work: claim complete
agent work: claim break run.resume
agent work: claim lose claim
agent work attempts=1: claim lose
agent work: claim run.cancel
agent work run.timeout=5s: claim 5 tick
agent work: claim start complete
agent work: claim start break
agent work: claim start lose claim
agent work attempts=1: claim start lose
agent work: claim start run.cancel
agent work: claim correct run optimize run check run.run
agent work: claim correct complete
agent work: claim correct check complete
agent work: claim correct break
agent work: claim correct run.cancel
agent work run.timeout=5s: claim correct 5 tick
agent work: claim optimize complete
agent work: claim optimize check break
agent work: claim optimize break
agent work: claim optimize run.cancel
agent work run.timeout=5s: claim optimize 5 tick
agent work: claim check run.correct
agent work: claim check run.optimize
agent work: claim check run.valid
agent work: claim check run.invalid
agent work: claim check run.cancel
agent work run.expires=5s: claim check 5 tick

ci build: plan claim start beat upload complete run.report
ci build: cancel
ci build: plan cancel run.report
ci lint: plan cancel
ci build run.queue_timeout=5s: 5 tick
ci build run.queue_timeout=5s: run.cancel 5 tick
ci build run.queue_timeout=60s: plan 60 tick
ci build: plan run.cancel run.report
ci build run.timeout=5s: plan claim 5 tick run.report
ci build: plan claim release
ci build: plan claim cancel
ci build: plan claim lose claim lose claim lose
ci build: plan claim start run break
ci build: plan claim start complete
ci build: plan claim start break
ci build: plan claim start release
ci build ttl=40s: plan claim start lose claim start lose claim start lose
ci build: plan claim start cancel stop
ci build: plan claim start beat complete
ci build ttl=40s: plan claim start beat release claim start beat lose
ci build: plan claim start beat cancel complete
ci build ttl=40s losses=1: plan claim start beat lose
ci build timeout=60s: plan claim start beat endure
ci build: plan claim start beat run.cancel break
ci build: plan claim start beat upload break
ci build ttl=40s: plan claim start beat upload release claim start beat upload lose
ci build ttl=40s losses=1: plan claim start beat upload lose
ci build timeout=60s: plan claim start beat upload endure
ci build: plan claim start beat upload cancel 30 tick
ci build: plan claim start beat upload run.cancel 30 tick
ci build: plan claim start cancel 30 tick
ci build attempts=2: plan claim start fail
ci build attempts=2 timeout=60s: plan claim start beat endure

job: claim start complete drain
job: claim drain start complete
job: 180 tick
agent work ttl=600s: claim 90 tick claim
agent work ttl=600s: claim 90 tick 180 tick
"""


def lines() -> list[str]:
    """The stories, one per line."""
    return [line for line in STORIES.splitlines() if line]


def fact(word: str) -> tuple[str, str, Any]:
    """Whose fact it is, its name and its value: `5s` is a time, `5` a number, all else a word."""
    name, _, value = word.partition("=")
    whose, _, name = name.rpartition(".")
    if not value.removesuffix("s").isdigit():
        return whose, name, value
    return (whose, f"{name}_us", int(value[:-1]) * SECOND) if value.endswith("s") else (whose, name, int(value))


def works(words: list[str], queue: str) -> Iterator[Work]:
    """The first word is the parent, or a job by itself; each child has the facts that stand at the end."""
    facts: dict[str, dict[str, Any]] = {"run": {}, "": {}}
    for whose, name, value in map(fact, filter(lambda word: "=" in word, words)):
        facts[whose][name] = value
    kinds = [word for word in words if "=" not in word]
    alone = len(kinds) == 1
    yield Work(task="t", lifecycle=LIFECYCLES[kinds[0]], queue=queue, ref="run", **facts["" if alone else "run"])
    for place, kind in enumerate(kinds[1:], start=1):
        if kind != ">":
            needs = (f"c{place - 2}",) if kinds[place - 1] == ">" else ()
            is_named = "each" in kinds  # a map says by name what it goes over
            yield Work(
                task="t", lifecycle=LIFECYCLES[kind], queue=queue, parent="run", ref=f"c{place}", needs=needs,
                decides=kind not in LIGHT, step=f"c{place}" if is_named else None, options=OPTIONS.get(kind),
                **facts[""],
            )  # fmt: skip


def list_moves(lifecycles: Mapping[str, Lifecycle]) -> set[Move]:
    """Lists every move of these lifecycles."""
    return {
        (lifecycle.name, source, trigger) for lifecycle in lifecycles.values() for source, trigger in lifecycle.moves
    }


def list_taken_moves(lifecycles: Mapping[str, Lifecycle], events: list[Event]) -> set[Move]:
    """The moves that a unit's events tell of, each by its whole path, and those of its leases."""
    moves: set[Move] = set()
    by_hop = {(move.source, move.path[-1]): move.trigger for move in lifecycles["lease"].moves.values()}
    place = 0
    while place < len(events):
        event = events[place]
        if event.trigger == SELF:
            place += 1
            continue
        move = lifecycles[event.lifecycle].move(event.source, event.trigger)
        walked = [(event.trigger, event.target) for event in events[place : place + len(move.path)]]
        assert walked == [(move.trigger, target) for target in move.path], (event.unit, event.version)
        moves.add((event.lifecycle, move.source, move.trigger))
        place += len(move.path)
    for event in events:
        if event.lease_to:
            moves.add(("lease", event.lease_from, by_hop[event.lease_from, event.lease_to]))
    return moves
