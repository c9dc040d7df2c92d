"""Observers are told of groups, commands, commits and statements, and a bug is told to the log, once and in full."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.logs import JsonFormatter
from interlock.core import timers
from interlock.core.engine import Engine
from interlock.kernel.commands import Cancel, Command, Revoke, Submit, Tick, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Unit
from interlock.lifecycles import shipped
from interlock.store.observer import Observer
from interlock.store.unit_of_work import UnitOfWork
from tests.engine.world import World


class Notebook(Observer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.errors: list[Exception | None] = []

    def on_group(self, commands: Sequence[Command[Any]]) -> None:
        self.told.append(("group", [type(one).__name__ for one in commands]))

    def on_command(self, command: Command[Any], seconds: float, error: Exception | None) -> None:
        assert seconds >= 0
        self.told.append(("command", type(command).__name__))
        self.errors.append(error)

    def on_commit(self, units: int, seconds: float, error: Exception | None) -> None:
        assert seconds >= 0
        self.told.append(("commit", units))

    def on_statement(self, sql: str, seconds: float, error: Exception | None) -> None:
        assert seconds >= 0
        self.told.append(("statement", sql))

    def of(self, *kinds: str) -> list[tuple[str, Any]]:
        return [one for one in self.told if one[0] in kinds]


def test_an_observer_is_told_of_groups_commands_commits_and_statements(world: World) -> None:
    notebook = Notebook()
    world.engine.observe(notebook)
    committer = world.engine.committer
    futures = [committer.put(Submit(work=(Work(task="a"),))), committer.put(Cancel(unit=77))]
    committer.step()
    assert futures[0].result()[0].created
    assert isinstance(futures[1].exception(), Unknown)
    assert notebook.of("group", "command", "commit") == [
        ("group", ["Submit", "Cancel"]), ("command", "Submit"), ("command", "Cancel"), ("commit", 1),
    ]  # fmt: skip
    assert notebook.errors[0] is None
    assert isinstance(notebook.errors[1], Unknown), "a refusal is told too"
    texts = [sql for _, sql in notebook.of("statement")]
    assert any(sql.startswith("BEGIN") for sql in texts)
    assert any("INSERT INTO" in sql for sql in texts)
    assert texts[-1] == "COMMIT"


def test_whoever_comes_later_is_told_beside_the_first_and_also_on_a_new_connection(tmp_path: Path) -> None:
    with Engine.open(f"sqlite:///{tmp_path / 'a.db'}", shipped()) as engine:
        first, second = Notebook(), Notebook()
        engine.observe(first)
        engine.observe(second)
        engine.sessions[0].reconnect()
        engine.send(Submit(work=(Work(task="a"),)))
        engine.read(lambda connection: connection.rows("SELECT 7"))
    assert first.told == second.told
    assert ("statement", "SELECT 7") in first.told
    assert len(first.of("group")) == 1


class Clumsy(Observer):
    """Fails at everything."""

    def on_group(self, commands: Sequence[Command[Any]]) -> None:
        raise ValueError("group")

    def on_statement(self, sql: str, seconds: float, error: Exception | None) -> None:
        raise ValueError("statement")


def test_a_bug_of_an_observer_changes_nothing_and_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.engine.observe(Clumsy())
    with caplog.at_level(logging.ERROR, "interlock.core"):
        assert world.submit() > 0
    assert {one.getMessage() for one in caplog.records} == {
        "observer Clumsy failed in on_group", "observer Clumsy failed in on_statement",
    }  # fmt: skip


def test_while_nobody_observes_the_driver_is_spoken_to_directly(world: World) -> None:
    world.submit()
    assert world.engine.committer.observers == ()
    assert not hasattr(world.connection.raw, "raw_driver")


# Bugs.


def fail(tx: object, command: object) -> None:
    raise KeyError("a verb's bug")


def test_a_verbs_bug_is_logged_once_with_its_traceback_and_its_caller_gets_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    unit = world.submit()
    committer = world.engine.committer
    committer.verbs = {**committer.verbs, Revoke: fail}
    futures = [committer.put(Submit(work=(Work(task="b"),))), committer.put(Revoke(unit=unit))]
    with caplog.at_level(logging.DEBUG, "interlock.core"):
        committer.step()
    assert futures[0].result()[0].created, "it is nobody else's fault"
    with pytest.raises(KeyError, match="a verb's bug"):
        futures[1].result()
    (record,) = [one for one in caplog.records if one.name == "interlock.core"]
    assert record.getMessage() == f'command=Revoke unit={unit} tenant=1 failed: KeyError("a verb\'s bug")'
    assert record.exc_info is not None
    assert "raise KeyError" in caplog.text


def test_a_refusal_is_no_bug(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "interlock.core"), pytest.raises(InterlockError):
        world.send(Cancel(unit=77))
    assert not caplog.records


def test_a_bug_that_time_meets_names_the_unit(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick goes on without the unit; the log has the traceback and says which one it was."""
    unit, sound = world.submit(delay_us=1), world.submit(delay_us=1)
    world.pass_time(1)
    spoil(monkeypatch, unit)
    with caplog.at_level(logging.ERROR, "interlock.core"):
        world.engine.send(Tick())
    assert world.unit(sound).state == "queued"
    (record,) = caplog.records
    assert record.getMessage().startswith(f"unit={format_id('job', unit)} is withheld: KeyError")
    assert "raise KeyError" in caplog.text


def test_an_expired_lease_is_logged_with_its_unit(world: World, caplog: pytest.LogCaptureFixture) -> None:
    unit = world.submit()
    worker = world.worker()
    (grant,) = world.claim(worker)
    world.pass_time(3600)
    with caplog.at_level(logging.INFO, "interlock.core"):
        world.engine.send(Tick())
    (record,) = [record for record in caplog.records if "lease expired" in record.getMessage()]
    name = format_id("job", unit)
    assert record.getMessage() == f"lease expired: unit={name} attempt=1 fence={grant.fence} worker={worker}"
    line = json.loads(JsonFormatter().format(record))
    facts = {"id": name, "unit": unit, "attempt": 1, "fence": grant.fence, "worker": worker}
    assert {key: line[key] for key in facts} == facts


def spoil(monkeypatch: pytest.MonkeyPatch, unit: int) -> None:
    honest = timers.fire_timer

    def fail(tx: UnitOfWork, row: Unit) -> None:
        if row.id == unit:
            raise KeyError("a verb's bug")
        honest(tx, row)

    monkeypatch.setattr(timers, "fire_timer", fail)
