"""An illegal move is impossible, even by raw SQL: the database refuses it and names the rule."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.store.databases import KINDS, Connection, declare, fresh, insert

COUNTERS = dict.fromkeys(
    [
        "priority",
        "failures",
        "losses",
        "snoozes",
        "decides",
        "unmet",
        "total",
        "succeeded",
        "lost",
        "decided",
        "deciders",
        "won",
        "gates",
        "blocked",
        "begun",
    ],
    0,
)


def event(database: Connection, version: int, source: str | None, target: str, trigger: str, **changes: Any) -> None:
    row = {
        "unit": 1, "version": version, "tenant": 1, "lifecycle": "job", "trigger": trigger, "source": source,
        "target": target, "attempt": 1, "fence": 0, "name": "x", "severity": "info", "at": version, "actor": "test",
        "reason": "", "correlation": "", "trace": "", "payload": "{}", "hash": f"h{version}",
    }  # fmt: skip
    insert(database, "event", **{**row, **changes})


def unit(database: Connection, state: str, version: int, **changes: Any) -> None:
    row = {
        "id": 1, "tenant": 1, "lane": 1, "lifecycle": "job", "state": state, "category": "ready", "version": version,
        "head": f"h{version}", "changed_at": version, "attempt": 1, "fence": 0, **COUNTERS,
    }  # fmt: skip
    insert(database, "unit", **{**row, **changes})


def move(database: Connection, state: str, version: int, **changes: Any) -> None:
    row = {"id": 1, "state": state, "version": version, "head": f"h{version}", **changes}
    sets = ", ".join(f"{column} = :{column}" for column in row if column != "id")
    database.rows(f"UPDATE unit SET {sets} WHERE id = :id", row)


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Connection]:
    """As an operator, who may do the most: what the guard refuses here it refuses everybody who is not the owner."""
    with fresh(request.param, tmp_path, server, role="operator") as connection:
        yield connection


@pytest.fixture
def job(database: Connection) -> Connection:
    """A job that was claimed and started, written as the product writes: events first."""
    event(database, 1, None, "queued", "submit")
    unit(database, "queued", 1)
    event(database, 2, "queued", "assigned", "claim", lease_to="GRANTED")
    event(database, 3, "assigned", "running", "start", lease_from="GRANTED", lease_to="ACTIVE")
    move(database, "running", 3, fence=1)
    return database


@pytest.fixture
def done(job: Connection) -> Connection:
    """The job has succeeded."""
    event(job, 4, "running", "succeeded", "complete", lease_from="ACTIVE", lease_to="COMPLETED")
    move(job, "succeeded", 4, outcome="success")
    return job


def refuses(rule: str) -> Any:
    return pytest.raises(Exception, match=rf"interlock guard \[{rule}\]")


def history(database: Connection) -> list[tuple[Any, ...]]:
    return database.rows("SELECT version, source, target FROM event WHERE unit = 1 ORDER BY version")


def test_what_the_product_writes_is_accepted(done: Connection) -> None:
    assert history(done)[-1] == (4, "running", "succeeded")
    assert done.rows("SELECT state, version FROM unit") == [("succeeded", 4)]


def test_an_unlisted_hop(job: Connection) -> None:
    with refuses("listed-hop"):
        event(job, 4, "running", "assigned", "claim")
    assert len(history(job)) == 3


def test_a_listed_edge_under_a_trigger_that_is_not_its_own(job: Connection) -> None:
    with refuses("listed-hop"):
        event(job, 4, "running", "succeeded", "fail")


def test_an_unlisted_hop_of_the_lease(job: Connection) -> None:
    with refuses("listed-lease-hop"):
        event(job, 4, "running", "succeeded", "complete", lease_from="EXPIRED", lease_to="COMPLETED")


def test_a_self_hop_is_allowed_only_with_a_hop_of_the_lease(job: Connection) -> None:
    with refuses("listed-hop"):
        event(job, 4, "running", "running", "expire")
    event(job, 4, "running", "running", "expire", lease_from="ACTIVE", lease_to="EXPIRED")


def test_a_state_without_its_event(job: Connection) -> None:
    with refuses("event-first"):
        job.rows("UPDATE unit SET state = 'succeeded' WHERE id = 1")
    with refuses("event-first"):
        move(job, "succeeded", 4)
    assert job.rows("SELECT state FROM unit") == [("running",)]


def test_a_unit_without_its_birth(database: Connection) -> None:
    with refuses("event-first"):
        unit(database, "queued", 1)


def test_a_state_that_its_event_does_not_lead_to(job: Connection) -> None:
    event(job, 4, "running", "succeeded", "complete", lease_from="ACTIVE", lease_to="COMPLETED")
    with refuses("event-first"):
        move(job, "failed", 4)


def test_a_gap(job: Connection) -> None:
    with refuses("no-gap"):
        event(job, 5, "running", "succeeded", "complete")


def test_a_broken_chain(job: Connection) -> None:
    with refuses("chain"):
        event(job, 4, "queued", "cancelled", "cancel")


def test_a_second_birth(job: Connection) -> None:
    with refuses("chain"):
        event(job, 4, None, "queued", "submit")


def test_an_edited_event(done: Connection) -> None:
    with refuses("append-only"):
        done.rows("UPDATE event SET actor = 'somebody else' WHERE unit = 1")


def test_a_deleted_event(done: Connection) -> None:
    with refuses("append-only"):
        done.rows("DELETE FROM event WHERE unit = 1 AND version = 4")
    with refuses("append-only"):
        done.rows("DELETE FROM unit WHERE id = 1")
    assert len(history(done)) == 4


def test_what_is_archived_may_be_deleted(done: Connection) -> None:
    insert(done, "archived", unit=1, tenant=1, version=4, head="h4", file="a.jsonl", digest="d", at=9)
    done.rows("DELETE FROM event WHERE unit = 1")
    done.rows("DELETE FROM unit WHERE id = 1")
    assert history(done) == []


def test_a_changed_outcome(done: Connection) -> None:
    with refuses("event-first"):
        done.rows("UPDATE unit SET outcome = 'failure' WHERE id = 1")


def test_an_outcome_changes_only_by_opening_an_attempt(database: Connection) -> None:
    event(database, 1, None, "queued", "submit", lifecycle="agent_run")
    event(database, 2, "queued", "failed", "fail", lifecycle="agent_run")
    unit(database, "failed", 2, lifecycle="agent_run", outcome="failure")
    event(database, 3, "failed", "queued", "resume", lifecycle="agent_run")
    move(database, "queued", 3, outcome=None, attempt=2)
    assert database.rows("SELECT state, outcome FROM unit") == [("queued", None)]


def test_a_closed_unit_keeps_its_outcome(database: Connection) -> None:
    path = [(None, "CREATED", "submit"), ("CREATED", "PLANNING", "submit"), ("PLANNING", "PLAN_FAILED", "fail")]
    for version, (source, target, trigger) in enumerate([*path, ("PLAN_FAILED", "FAILED", "fail")], 1):
        event(database, version, source, target, trigger, lifecycle="ci_run")
    unit(database, "FAILED", 4, lifecycle="ci_run", outcome="failure")
    event(database, 5, "FAILED", "REPORTED", "report", lifecycle="ci_run")
    with refuses("outcome"):
        move(database, "REPORTED", 5, outcome="success")
    move(database, "REPORTED", 5)
    assert database.rows("SELECT outcome FROM unit") == [("failure",)]


def test_fences_and_attempts_only_grow(job: Connection) -> None:
    with refuses("fence"):
        job.rows("UPDATE unit SET fence = 0 WHERE id = 1")
    with refuses("fence"):
        job.rows("UPDATE unit SET attempt = 0 WHERE id = 1")


def test_what_a_unit_is_never_changes(job: Connection) -> None:
    for change in ("id = 2", "lifecycle = 'step'", "parent = 1"):
        with refuses("identity"):
            job.rows(f"UPDATE unit SET {change} WHERE id = 1")


def body(database: Connection, **changes: Any) -> None:
    row = {"unit": 1, "tenant": 1, "task": "mail", "key": "k", "created_at": 0, "input": "{}", "labels": "{}",
           "policy": "{}", "correlation": "", "trace": ""}  # fmt: skip
    insert(database, "body", **{**row, **changes})


def test_a_second_unit_under_one_key(job: Connection) -> None:
    event(job, 1, None, "queued", "submit", unit=2)
    unit(job, "queued", 1, id=2)
    body(job)
    with pytest.raises(Exception, match=r"one.unit.a.key"):
        body(job, unit=2)
    body(job, unit=2, task="another")
    with refuses("identity"):
        job.rows("UPDATE body SET key = 'other' WHERE unit = 1")


def test_rows_of_another_tenant(job: Connection) -> None:
    """The transaction may speak for both tenants; the rows still may not mix."""
    declare(job, 1, 2)
    with refuses("tenant"):
        event(job, 4, "running", "succeeded", "complete", tenant=2)
    event(job, 1, None, "queued", "submit", unit=2, tenant=2)
    with refuses("tenant"):
        unit(job, "queued", 1, id=2, tenant=1)
    with refuses("tenant"):
        unit(job, "queued", 1, id=2, tenant=2, parent=1)
    unit(job, "queued", 1, id=2, tenant=2)
    with refuses("tenant"):
        insert(job, "need", unit=2, needs=1, tenant=2)
    with refuses("tenant"):
        body(job, tenant=2)
    with refuses("tenant"):
        insert(job, "artifact", unit=1, attempt=1, name="a", tenant=2, fence=1, at=0, digest="", data="")


def test_an_artifact_is_never_changed(job: Connection) -> None:
    insert(job, "artifact", unit=1, attempt=1, name="a", tenant=1, fence=1, at=0, digest="d", data="x")
    with refuses("append-only"):
        job.rows("UPDATE artifact SET data = 'y'")
    with pytest.raises(Exception, match=r"(?i)unique"):
        insert(job, "artifact", unit=1, attempt=1, name="a", tenant=1, fence=1, at=0, digest="d", data="y")


def test_force_is_the_one_door_and_leaves_its_mark(job: Connection) -> None:
    with refuses("forced"):
        event(job, 4, "running", "queued", "force")
    with refuses("forced"):
        event(job, 4, "running", "queued", "force", reason="the worker was unplugged")
    allowed = {"unit": 1, "version": 4, "tenant": 1, "target": "queued", "actor": "test", "at": 4}
    insert(job, "forced_move", reason="the worker was unplugged", **allowed)
    event(job, 4, "running", "queued", "force", reason="the worker was unplugged")
    move(job, "queued", 4)
    assert job.rows("SELECT state FROM unit") == [("queued",)]


@pytest.mark.parametrize("where", ["unit = 1 AND version = 4", "unit = 1 AND version = 2"], ids=["the last", "another"])
@pytest.mark.parametrize("again", ["pos", "unit"], ids=["by its position", "by its version"])
def test_a_replaced_event(done: Connection, where: str, again: str) -> None:
    """A connection to SQLite may switch off that REPLACE fires the triggers of what it deletes."""
    if done.many_writers:
        pytest.skip("PostgreSQL has no REPLACE")
    done.rows("PRAGMA recursive_triggers = OFF")
    before = done.rows("SELECT * FROM event ORDER BY pos")
    names = [name for _, name, *_ in done.rows("PRAGMA table_info(event)")]
    values = {"pos": "pos" if again == "pos" else "NULL", "actor": "'somebody else'"}
    if again == "pos":
        values |= {"unit": "7", "version": "1", "source": "NULL", "target": "'queued'", "trigger": "'submit'"}
    picked = ", ".join(values.get(name, name) for name in names)
    with refuses("append-only"):
        done.rows(f"INSERT OR REPLACE INTO event ({', '.join(names)}) SELECT {picked} FROM event WHERE {where}")
    assert done.rows("SELECT * FROM event ORDER BY pos") == before
