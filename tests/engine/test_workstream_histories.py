"""Random histories of workstreams: what is stored is what the document derives, and the log is one that it allows."""

import contextlib
import io
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from interlock.audit.laws import audit
from interlock.audit.log.checker import Checker
from interlock.kernel.commands import (
    PERMANENT,
    AddTasks,
    Command,
    LeaseGrant,
    ReassignTask,
    Rerun,
    RetryTask,
    SkipTask,
    Submit,
    Work,
)
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from tests.engine.streams import options, stream, task
from tests.engine.world import SECOND, World, held
from tests.store.databases import declare, fresh

A = TypeVar("A")
FORWARD = ("planned", "ready", "executing", "validating")
ENDS = ("completed", "failed", "cancelled")
COMMANDS = 60


class Trusting(World):
    """A world in which the laws are asked once, at the end."""

    def send(self, command: Command[A]) -> A:
        return self.engine.send(command)


class TaskRow(NamedTuple):
    """A task that counts, as it is stored."""

    id: int
    state: str
    critical: bool
    unmet: int


def derive(tasks: list[TaskRow]) -> str:
    """The state that the document's own code derives, with its order and its loop put right (A3-4 to A3-6)."""
    if not tasks:
        return "planned"
    if any(each.state == "failed" and each.critical for each in tasks):
        return "failed"
    if any(each.state == "running" for each in tasks):
        return "executing"
    if all(each.state == "completed" for each in tasks):
        return "validating"
    if all(each.state in ("pending", "queued") for each in tasks):
        return "ready"
    return "executing"


def expect(before: str, tasks: list[TaskRow], expects: int) -> str:
    """The state that is stored: the derived one may only move it forward, and an end stays (A3-3, A3-7)."""
    if before in ENDS or (before == "planned" and len(tasks) < expects):
        return before
    derived = derive(tasks)
    if derived == "validating":
        return "completed"  # there is nothing to check
    if derived == "failed" or any(each.state == "cancelled" and each.critical for each in tasks):
        return "failed"
    if not any(each.state not in ENDS and not each.unmet for each in tasks):
        return "failed"  # nothing can go on (A3-3)
    return max(before, derived, "ready", key=FORWARD.index)


class History:
    """One workstream, and somebody who does anything to it."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.dice = world, random.Random(seed)
        self.worker, self.grants = world.worker(), list[LeaseGrant]()
        self.expects, self.made = self.dice.randrange(1, 6), 0
        (self.stream,) = stream(world, expects=self.expects, at_once=self.dice.choice((None, 3)))
        self.state = "planned"

    def play(self, commands: int) -> None:
        verbs: list[Callable[[], Any]] = [
            self.add, self.add, *[self.claim] * 4, *[self.end] * 6, *[self.retry] * 6, self.skip, self.skip,
            self.reassign, self.cancel, self.wait,
        ]  # fmt: skip
        for _ in range(commands):
            with contextlib.suppress(InterlockError):
                self.dice.choice(verbs)()
            tasks = self.tasks()
            wanted = expect(self.state, tasks, self.expects)
            self.state = self.world.unit(self.stream).state
            assert self.state == wanted, (self.state, wanted, tasks)

    def tasks(self) -> list[TaskRow]:
        sql = (
            "SELECT unit.id, unit.state, unit.decides, unit.unmet FROM place JOIN unit ON unit.id = place.unit "
            "WHERE place.parent = :parent ORDER BY unit.id"
        )
        rows = self.world.connection.rows(sql, {"parent": self.stream})
        return [TaskRow(unit, state, bool(decides), unmet) for unit, state, decides, unmet in rows]

    def any_task(self) -> int:
        tasks = self.tasks()
        return self.dice.choice(tasks).id if tasks else 0

    def new_task(self) -> Work:
        self.made += 1
        names = [f"t{number}" for number in range(1, self.made)]
        return task(
            f"t{self.made}", self.stream, task="t", needs=tuple(self.dice.sample(names, min(len(names), 1))),
            decides=self.dice.random() < 0.1, attempts=self.dice.choice((1, 2)), backoff_us=1,
            options=options(allow_failure=self.dice.random() < 0.2),
        )  # fmt: skip

    def add(self) -> None:
        if self.made > 12:
            return
        if self.grants and self.dice.random() < 0.5:
            self.world.send(AddTasks(lease=held(self.dice.choice(self.grants)), work=(self.new_task(),)))
        else:
            self.world.send(Submit(work=(self.new_task(),)))

    def claim(self) -> None:
        for grant in self.world.claim(self.worker, limit=2):
            self.world.start(grant)
            self.grants.append(grant)

    def end(self) -> None:
        if self.grants:
            grant = self.grants.pop(self.dice.randrange(len(self.grants)))
            how = self.dice.choice(
                ({}, {}, {}, {}, {"ended": "failure"}, {"ended": "failure", "error_class": PERMANENT})
            )
            self.world.finish(grant, **how)

    def retry(self) -> None:
        self.world.send(RetryTask(unit=self.any_task()))

    def skip(self) -> None:
        self.world.send(SkipTask(unit=self.any_task()))

    def reassign(self) -> None:
        self.world.send(ReassignTask(unit=self.any_task()))

    def cancel(self) -> None:
        self.world.cancel(self.any_task())

    def wait(self) -> None:
        self.world.pass_time(self.dice.choice((1, 100)))  # a lease may be over then
        self.world.tick()


def write_log(world: World) -> str:
    """Everything that happened to tasks and workstreams, as document 003 writes it."""
    lines = []
    sql = "SELECT id FROM unit WHERE lifecycle IN ('task', 'workstream') ORDER BY id"
    for (unit,) in world.connection.rows(sql):
        row, body = world.unit(unit), world.body(unit)
        needs = world.connection.rows("SELECT needs FROM need WHERE unit = :unit", {"unit": unit})
        meta = {
            "workstream_id": str(row.parent or ""), "critical": bool(row.decides), "max_retries": 3,
            "dependencies": [str(need) for (need,) in needs],
        }  # fmt: skip
        if body.retry_of and world.body(body.retry_of).replaced_by == unit:
            meta["retry_of"] = str(body.retry_of)
        for event in world.events(unit):
            if event.source is not None and event.source != event.target:
                at = datetime.fromtimestamp(event.at / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
                line = {
                    "timestamp": f"{at}Z", "event_type": f"{event.lifecycle}_state_transition", "entity_id": str(unit),
                    "severity": event.severity, "from_state": event.source, "to_state": event.target,
                    "trigger": event.name, "metadata": meta,
                }  # fmt: skip
                lines.append((event.at, unit, event.version, json.dumps(line)))
    return "\n".join(text for *_, text in sorted(lines)) + "\n"


def check_log(text: str, **how: bool) -> list[str]:
    checker = Checker([shipped()[name] for name in ("task", "workstream", "worker")], **how)
    return [f"{found.line} {found.entity}: {found.message}" for found in checker.findings(io.BytesIO(text.encode()))]


@pytest.mark.req("R3-30", "R3-32", "R3-34")
@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("store", ["sqlite memory", "postgres"])
def test_the_stored_state_is_the_derived_one_and_the_log_is_allowed(
    store: str, seed: int, tmp_path: Path, server: str
) -> None:
    with fresh(store, tmp_path, server) as connection:
        world = Trusting(connection)
        history = History(world, seed)
        history.play(COMMANDS)
        if history.state in ENDS:
            again = world.send(Rerun(unit=history.stream, failed=True)).unit
            assert world.unit(again).state in (*FORWARD, *ENDS)
        declare(connection, 1)
        assert list(audit(connection, world.lifecycles, laws=world.registry.laws, rebuild=True)) == []
        assert check_log(write_log(world), from_birth=True) == []


def test_a_retried_task_counts_no_more_in_a_log_either(tmp_path: Path) -> None:
    with fresh("sqlite memory", tmp_path, "") as connection:
        world = Trusting(connection)
        ws, docs, _ = stream(world, task("docs", "ws", decides=False, priority=9), task("build", "ws"))
        worker = world.worker()
        (grant,) = world.claim(worker)
        world.finish(grant, ended="failure", error_class=PERMANENT)
        world.pass_time(1)
        world.send(RetryTask(unit=docs))
        for _ in range(2):
            world.pass_time(1)
            (grant,) = world.claim(worker)
            world.finish(grant)
        assert world.unit(ws).state == "completed"
        text = write_log(world)
        assert check_log(text, from_birth=True) == []
        forgotten = check_log(text.replace('"retry_of"', '"forgotten"'), from_birth=True)
        assert any("of its tasks 0 did not end and 1 did not succeed" in each for each in forgotten)


def test_a_strict_check_finds_a_failure_that_was_allowed(tmp_path: Path) -> None:
    with fresh("sqlite memory", tmp_path, "") as connection:
        world = Trusting(connection)
        stream(world, task("a", "ws", options=options(allow_failure=True)))
        (grant,) = world.claim(world.worker())
        world.finish(grant, ended="failure", error_class=PERMANENT)
        text = write_log(world)
        assert check_log(text, from_birth=True) == []
        (found,) = check_log(text, strict=True)
        assert "running -> validating by failure_allowed is not in document 003" in found
