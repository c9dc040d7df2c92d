"""A forged `force` makes no state: raw SQL needs what only an operator may write, and a state that there is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.databases import KINDS, Connection, fresh, insert
from tests.store.raw_acts import (
    bear,
    forced_path,
    list_path,
    newborn,
    owner_of,
    path_of,
    unlisted,
    write_act,
    write_units,
)
from tests.store.test_guard import lacks_right, refuses

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
    bear(database, 1)
    bear(database, 2, lifecycle="workflow_run")
    bear(database, 3, lifecycle="step", row={"parent": 2})
    return database


def permit(database: Connection, one: int, target: str, **changes: Any) -> None:
    row = {"unit": one, "version": 2, "tenant": 1, "target": target, "actor": "test", "reason": "why", "at": 2}
    insert(database, "forced_move", **{**row, **changes})


def list_forced(database: Connection, one: int, target: str) -> None:
    """The path on which an operator puts a unit into a state is listed, as far as there is such a state."""
    path = forced_path(database, one, target)
    if database.many_writers:
        row = {"id": path.id, "told": path.text, "digest": path.digest}
        database.rows("SELECT list_forced_path(:id, :told, :digest)", row)
    elif not database.rows("SELECT 1 FROM transition_path WHERE id = :id", {"id": path.id}):
        list_path(database, path)


def force(database: Connection, one: int, target: str, **changes: Any) -> None:
    write_act(database, forced_path(database, one, target), one, **{"reason": "why", **changes})


def counted(database: Connection) -> list[tuple[Any, ...]]:
    return database.rows("SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM forced_move)")


def test_a_lone_forged_act_is_refused(program: Connection, server: str) -> None:
    """Whether its path is listed already or not."""
    with refuses("listed-hop"):
        force(program, 1, "succeeded")
    for target in ("succeeded", "queued"):
        with owner_of(program, server) as owner:
            path = forced_path(program, 1, target)
            list_path(owner, path)
        with refuses("act"):
            force(program, 1, target, reason="")
        with refuses("forced"):
            force(program, 1, target)
    born = unlisted("", "force", "succeeded", name="forced", severity="warning", forced=True)
    with refuses("listed-hop"):  # nor as a birth
        write_act(program, born, 9, reason="because")
    assert counted(program) == [(3, 0)]


def test_the_role_for_programs_lists_no_forced_path(tmp_path: Path, server: str) -> None:
    with fresh("postgres", tmp_path, server) as connection:
        filled(connection)
        with pytest.raises(Exception, match="permission denied for function list_forced_path"):
            list_forced(connection, 1, "failed")


def test_nor_does_an_operator_list_one_that_is_not_forced(tmp_path: Path, server: str) -> None:
    with fresh("postgres", tmp_path, server, role="operator") as connection:
        path = unlisted("queued", "complete", "succeeded")
        row = {"id": path.id, "told": path.text, "digest": path.digest}
        with refuses("path"):
            connection.rows("SELECT list_forced_path(:id, :told, :digest)", row)


@pytest.mark.req("R1-11", "R1-12")
@pytest.mark.parametrize("trigger", ["submit", "start", "force"])
def test_a_seventh_status_is_refused_by_the_database(program: Connection, server: str, trigger: str) -> None:
    for one, lifecycle in ((2, "workflow_run"), (3, "step")):
        for source, forced in (("PENDING", False), ("PENDING", True), ("", False), ("", True)):
            path = unlisted(source, trigger, "PAUSED", lifecycle=lifecycle, forced=forced)
            with refuses("listed-hop"):
                write_act(program, path, one if source else 9, reason="why")
            with owner_of(program, server) as owner, refuses("listed-hop", "path"):
                list_path(owner, path)
        with lacks_right():
            program.rows("UPDATE unit SET state = 'PAUSED' WHERE id = :one", {"one": one})
        with owner_of(program, server) as owner, refuses("event-first"):
            owner.rows("UPDATE unit SET state = 'PAUSED' WHERE id = :one", {"one": one})
        with refuses("event-first"):
            unit = newborn(path_of(lifecycle, "", None, "submit"), 9, 1, 1, 1)
            unit.state = "PAUSED"
            write_units(program, [unit])
        with refuses("event-first"):
            bear(program, 9, lifecycle=lifecycle, row={"state": "PAUSED"})
    assert program.rows("SELECT DISTINCT state FROM unit WHERE id > 1") == [("PENDING",)]


@pytest.mark.req("R1-11", "R1-12")
def test_nor_may_an_operator_force_a_seventh(operator: Connection) -> None:
    for one in (2, 3):
        for state in ("PAUSED", "", "queued"):
            with refuses("forced"):
                permit(operator, one, state)
            with refuses("path"):
                list_forced(operator, one, state)
            with refuses("listed-hop"):
                force(operator, one, state)
    assert counted(operator) == [(3, 0)]


@pytest.mark.req("R1-11")
@pytest.mark.parametrize("state", SIX)
def test_an_operator_forces_each_of_the_six(operator: Connection, state: str) -> None:
    permit(operator, 2, state)
    list_forced(operator, 2, state)
    force(operator, 2, state)
    assert operator.rows("SELECT state FROM unit WHERE id = 2") == [(state,)]


def test_a_permit_is_for_one_move_only(operator: Connection) -> None:
    permit(operator, 1, "failed")
    list_forced(operator, 1, "failed")
    list_forced(operator, 1, "succeeded")
    for target, change in (("succeeded", {}), ("failed", {"actor": "another"}), ("failed", {"reason": "another"})):
        with refuses("forced"):
            force(operator, 1, target, **change)
    bear(operator, 4)
    with refuses("forced"):  # nor for another unit beside it
        write_act(operator, forced_path(operator, 1, "failed"), 1, 4, reason="why")
    force(operator, 1, "failed")
    assert operator.rows("SELECT state, outcome FROM unit WHERE id = 1") == [("failed", "failure")]
    list_forced(operator, 1, "failed")
    with refuses("forced"):
        force(operator, 1, "failed")


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
