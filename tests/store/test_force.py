"""A forged `force` makes no state: raw SQL needs what only an operator may write, and a state that there is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.databases import KINDS, Connection, fresh, insert
from tests.store.test_guard import event, move, refuses, unit

SIX = ("PENDING", "RUNNING", "WAITING_APPROVAL", "SUCCEEDED", "FAILED", "CANCELED")


@pytest.fixture(params=KINDS)
def program(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Connection]:
    """As the role for programs. Unit 1 is a job that is queued, unit 2 a run, unit 3 a step of it."""
    with fresh(request.param, tmp_path, server) as connection:
        yield filled(connection)


@pytest.fixture(params=KINDS)
def operator(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Connection]:
    """The same, as the role for operators."""
    with fresh(request.param, tmp_path, server, role="operator") as connection:
        yield filled(connection)


def filled(database: Connection) -> Connection:
    event(database, 1, None, "queued", "submit")
    unit(database, "queued", 1)
    for one, lifecycle in ((2, "workflow_run"), (3, "step")):
        event(database, 1, None, "PENDING", "submit", unit=one, lifecycle=lifecycle)
        unit(database, "PENDING", 1, id=one, lifecycle=lifecycle, parent=2 if one == 3 else None)
    return database


def permit(database: Connection, one: int, target: str, **changes: Any) -> None:
    row = {"unit": one, "version": 2, "tenant": 1, "target": target, "actor": "test", "reason": "why", "at": 2}
    insert(database, "forced_move", **{**row, **changes})


def counted(database: Connection) -> list[tuple[Any, ...]]:
    return database.rows("SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM forced_move)")


def test_a_lone_forged_event_is_refused(program: Connection) -> None:
    for reason in ("", "because"):
        with refuses("forced"):
            event(program, 2, "queued", "succeeded", "force", reason=reason)
    with refuses("forced"):  # nor beside a hop of its lease
        event(program, 2, "queued", "queued", "force", reason="because", lease_to="GRANTED")
    with refuses("forced"):  # nor as a birth
        event(program, 1, None, "succeeded", "force", reason="because", unit=9)
    assert counted(program) == [(3, 0)]


@pytest.mark.req("R1-11", "R1-12")
@pytest.mark.parametrize("trigger", ["submit", "start", "force"])
def test_a_seventh_status_is_refused_by_the_database(program: Connection, trigger: str) -> None:
    for one, lifecycle in ((2, "workflow_run"), (3, "step")):
        with pytest.raises(Exception, match=r"interlock guard \[(listed-hop|forced)\]"):
            event(program, 2, "PENDING", "PAUSED", trigger, unit=one, lifecycle=lifecycle, reason="why")
        with refuses("event-first"):
            program.rows("UPDATE unit SET state = 'PAUSED' WHERE id = :one", {"one": one})
        with refuses("event-first"):
            move(program, "PAUSED", 2, id=one)
        with pytest.raises(Exception, match=r"interlock guard \[(listed-hop|forced)\]"):
            event(program, 1, None, "PAUSED", trigger, unit=9, lifecycle=lifecycle, reason="why")
        with refuses("event-first"):
            unit(program, "PAUSED", 1, id=9, lifecycle=lifecycle)
    assert program.rows("SELECT DISTINCT state FROM unit WHERE id > 1") == [("PENDING",)]


@pytest.mark.req("R1-11", "R1-12")
def test_nor_may_an_operator_force_a_seventh(operator: Connection) -> None:
    for one, lifecycle in ((2, "workflow_run"), (3, "step")):
        for state in ("PAUSED", "", "queued"):
            with refuses("forced"):
                permit(operator, one, state)
            with refuses("forced"):
                event(operator, 2, "PENDING", state, "force", unit=one, lifecycle=lifecycle, reason="why")
    assert counted(operator) == [(3, 0)]


@pytest.mark.req("R1-11")
@pytest.mark.parametrize("state", SIX)
def test_an_operator_forces_each_of_the_six(operator: Connection, state: str) -> None:
    permit(operator, 2, state)
    event(operator, 2, "PENDING", state, "force", unit=2, lifecycle="workflow_run", reason="why")
    move(operator, state, 2, id=2)
    assert operator.rows("SELECT state FROM unit WHERE id = 2") == [(state,)]


def test_a_permit_is_for_one_move_only(operator: Connection) -> None:
    permit(operator, 1, "failed")
    for change in ({"target": "succeeded"}, {"actor": "another"}, {"reason": "another"}):
        with refuses("forced"):
            event(operator, 2, "queued", **{"target": "failed", "trigger": "force", "reason": "why", **change})
    event(operator, 2, "queued", "failed", "force", reason="why")
    move(operator, "failed", 2, outcome="failure")
    with refuses("forced"):
        event(operator, 3, "failed", "failed", "force", reason="why")


def test_a_permit_needs_a_reason_a_unit_and_a_version_that_is_to_come(operator: Connection) -> None:
    for change in ({"reason": ""}, {"unit": 9}, {"version": 1}, {"version": 0}):
        with refuses("forced"):
            permit(operator, **{"one": 1, "target": "failed", **change})
    assert counted(operator) == [(3, 0)]


def test_a_permit_stays_as_it_is(operator: Connection) -> None:
    permit(operator, 1, "failed")
    before = operator.rows("SELECT * FROM forced_move")
    with pytest.raises(Exception, match=r"append-only|permission denied"):
        operator.rows("UPDATE forced_move SET target = 'succeeded'")
    with refuses("append-only"):
        operator.rows("DELETE FROM forced_move")
    if not operator.many_writers:
        operator.rows("PRAGMA recursive_triggers = OFF")
        with refuses("append-only"):
            operator.rows("INSERT OR REPLACE INTO forced_move SELECT unit, version, tenant, 'succeeded', actor, "
                          "reason, at FROM forced_move")  # fmt: skip
    assert operator.rows("SELECT * FROM forced_move") == before


def test_the_role_for_programs_may_not_permit_itself(tmp_path: Path, server: str) -> None:
    with fresh("postgres", tmp_path, server) as connection:
        filled(connection)
        with pytest.raises(Exception, match="permission denied for table forced_move"):
            permit(connection, 1, "failed")
        with pytest.raises(Exception, match="permission denied to set role"):
            connection.rows("SET ROLE interlock_operator")
        assert counted(connection) == [(3, 0)]
