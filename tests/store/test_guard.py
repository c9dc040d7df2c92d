"""An illegal move is impossible, even by raw SQL: the database refuses it and names the rule."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.kernel.paths import SELF
from tests.store.databases import KINDS, Connection, declare, fresh, insert
from tests.store.raw_acts import (
    archive,
    bear,
    finish,
    forced_path,
    forget,
    history,
    list_path,
    move,
    newborn,
    owner_of,
    path_of,
    place_of,
    transaction,
    unlisted,
    write_act,
    write_body,
    write_units,
)


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Connection]:
    """As an operator, who may do the most: what the guard refuses here it refuses everybody who is not the owner."""
    with fresh(request.param, tmp_path, server, role="operator") as connection:
        yield connection


@pytest.fixture
def job(database: Connection) -> Connection:
    """A job that was claimed and started."""
    bear(database, 1)
    move(database, 1, "claim/grant")
    move(database, 1, "start/activate")
    return database


@pytest.fixture
def done(job: Connection) -> Connection:
    """The job has succeeded."""
    move(job, 1, "complete/complete")
    return job


def refuses(*rules: str) -> Any:
    return pytest.raises(Exception, match=rf"interlock guard \[({'|'.join(rules)})\]")


def lacks_right() -> Any:
    """Which right is missing depends on the role; on SQLite there are none."""
    return pytest.raises(Exception, match=r"permission denied|interlock guard \[|cannot modify|cannot (update|delete)")


def unchanged(database: Connection, *, state: str = "running", version: int = 3) -> bool:
    """Unit 1 is where it was, and so is its history."""
    place = place_of(database, 1)
    return (place["state"], place["version"]) == (state, version) and len(history(database)) == version


def test_what_the_product_writes_is_accepted(done: Connection) -> None:
    assert history(done)[-1] == (4, "running", "succeeded")
    assert done.rows("SELECT state, version, outcome, fence, lease, lease_id FROM unit") == [
        ("succeeded", 4, "success", 1, "COMPLETED", None)
    ]


# Paths that no lifecycle lists, each with the rule that the owner hears who lists it nevertheless.
FORGED = {
    "a hop that is not listed": (unlisted("running", "claim", "assigned"), "listed-hop"),
    "the trigger of another hop": (unlisted("running", "fail", "succeeded"), "listed-hop"),
    "another name of the event": (unlisted("running", "complete", "succeeded", name="job_lost"), "listed-hop"),
    "a hop of the lease that is not listed": (
        unlisted("running", SELF, "running", category=None, outcome=2, lease_from="EXPIRED", lease_to="COMPLETED"),
        "listed-lease-hop",
    ),
    "in place, and the lease makes no hop": (
        unlisted("running", SELF, "running", category=None, outcome=2),
        "path",
    ),
    "a grant that no fence counts": (
        unlisted("running", SELF, "running", category=None, outcome=2, lease_to="GRANTED"),
        "path",
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_path_that_is_not_listed(job: Connection, server: str, forged: str) -> None:
    """Nobody takes it; nor does anybody list it, and be it the owner."""
    path, rule = FORGED[forged]
    with refuses("listed-hop"):
        write_act(job, path, 1)
    with owner_of(job, server) as owner, refuses(rule):
        list_path(owner, path)
    assert unchanged(job)
    assert job.rows("SELECT 1 FROM transition_path WHERE id = :id", {"id": path.id}) == []


def test_an_act_of_a_listed_path_under_another_digest(job: Connection) -> None:
    with refuses("listed-hop"):
        move(job, 1, "complete/complete", path_digest="0" * 64)
    assert unchanged(job)


def test_a_path_that_is_retired(job: Connection, server: str) -> None:
    path = path_of("job", "running", "ACTIVE", "complete/complete")
    with owner_of(job, server) as owner:
        owner.rows("UPDATE transition_path SET retired = 1 WHERE id = :id", {"id": path.id})
    with refuses("listed-hop"):
        write_act(job, path, 1)
    assert unchanged(job)


def test_a_hop_of_the_lease_alone(job: Connection) -> None:
    move(job, 1, "self/expire")
    assert history(job)[-1] == (4, "running", "running")
    assert job.rows("SELECT lease, lease_id FROM unit") == [("EXPIRED", None)]


ACTS_WRITE = (
    "state = 'succeeded'", "category = 'success'", "outcome = 'failure'", "version = 4", "act = 9", "born = 9",
    "changed_at = 9", "started_at = 9", "attempt = 0", "fence = 0", "lease = 'ACTIVE'", "lease_id = NULL",
    "holder = 8", "rests_in = 'x'", "dead_at = 9", "id = 2", "tenant = 2", "lifecycle = 'step'", "parent = 1",
)  # fmt: skip


def test_what_an_act_writes_nobody_else_does(job: Connection, server: str) -> None:
    """A role has no right in these columns; the owner hears the guard."""
    before = job.rows("SELECT * FROM unit")
    for change in ACTS_WRITE:
        with lacks_right():
            job.rows(f"UPDATE unit SET {change} WHERE id = 1")
        with owner_of(job, server) as owner, refuses("event-first"):
            owner.rows(f"UPDATE unit SET {change} WHERE id = 1")
    assert job.rows("SELECT * FROM unit") == before


def test_a_unit_without_its_birth(database: Connection) -> None:
    path = path_of("job", "", None, "submit")
    with refuses("event-first"):
        write_units(database, [newborn(path, 1, 1, 1, 1)])
    assert database.rows("SELECT * FROM unit") == []


def test_a_unit_that_another_act_has_borne(job: Connection) -> None:
    born = place_of(job, 1)["act"]
    with refuses("event-first"):
        write_units(job, [newborn(path_of("job", "", None, "submit"), 2, 1, born, 1)])
    assert job.rows("SELECT id FROM unit") == [(1,)]


def test_a_state_that_its_birth_does_not_lead_to(database: Connection) -> None:
    for change in (
        {"state": "succeeded"}, {"category": "success"}, {"version": 2}, {"fence": 1}, {"attempt": 2}, {"lease": "ACTIVE"},
        {"holder": 7}, {"outcome": "success"}, {"changed_at": 9}, {"started_at": 1}, {"dead_at": 1}, {"rests_in": "x"},
    ):  # fmt: skip
        with refuses("event-first"):
            bear(database, 1, row=change)
    assert database.rows("SELECT id FROM unit") == []
    assert database.rows("SELECT id FROM act") == []


def test_a_birth_of_nobody(database: Connection) -> None:
    """An act that says that a unit was born, which is not there in the end."""
    with refuses("event-first", "chain"):
        write_act(database, path_of("job", "", None, "submit"), 1)
    assert database.rows("SELECT id FROM act") == []


def test_a_gap(job: Connection) -> None:
    for version in (4, 2, 0):
        with refuses("chain", "event-first"):
            move(job, 1, "complete/complete", version=version)
    assert unchanged(job)


@pytest.mark.parametrize(
    "change",
    [{"attempt": 2}, {"fence": 0}, {"before": [0]}, {"before": [1]}, {"leases": None}, {"leases": [1]}],
    ids=str,
)
def test_an_act_that_does_not_begin_where_its_unit_is(job: Connection, change: dict[str, Any]) -> None:
    with refuses("chain"):
        move(job, 1, "complete/complete", **change)
    assert unchanged(job)


def test_a_broken_chain(job: Connection) -> None:
    with refuses("chain"):
        write_act(job, path_of("job", "queued", None, "cancel"), 1)
    with refuses("chain"):
        write_act(job, path_of("step", "RUNNING", "ACTIVE", "complete/complete"), 1)
    assert unchanged(job)


def test_an_act_of_units_of_which_one_is_elsewhere(job: Connection) -> None:
    """All of them move, or none."""
    bear(job, 2)
    with refuses("chain"):
        write_act(job, path_of("job", "running", "ACTIVE", "complete/complete"), 1, 2)
    with refuses("chain"):
        write_act(job, path_of("job", "running", "ACTIVE", "complete/complete"), 1, 3)
    with refuses("chain", "act"):
        write_act(job, path_of("job", "running", "ACTIVE", "complete/complete"), 1, 1)
    assert unchanged(job)


def test_an_act_of_nobody_and_one_of_too_many(job: Connection) -> None:
    path = path_of("job", "running", "ACTIVE", "complete/complete")
    many = list(range(1, 1_002))
    for change in (
        {"units": [], "before": [], "leases": []}, {"before": []}, {"leases": [None, None]}, {"details": []},
        {"units": many, "before": many, "leases": many},
    ):  # fmt: skip
        with refuses("act", "chain"):
            write_act(job, path, 1, **change)
    assert unchanged(job)


def test_a_second_birth(job: Connection) -> None:
    path = path_of("job", "", None, "submit")
    with refuses("chain", "event-first"):
        write_act(job, path, 1, version=0, attempt=1, fence=0, before=[0], leases=None)
    with pytest.raises(Exception, match=r"interlock guard \[(append-only|act|chain)\]|unit_pkey"):
        bear(job, 1, with_body=False)
    assert unchanged(job)


def test_a_time_that_has_not_come_and_one_that_is_over(job: Connection) -> None:
    with refuses("time"):
        move(job, 1, "complete/complete", at=4_000_000_000_000_000)
    with refuses("chain"):
        move(job, 1, "complete/complete", at=1)
    assert unchanged(job)


def test_an_act_of_another_transaction(job: Connection) -> None:
    """An act stands behind all that readers have seen."""
    last = place_of(job, 1)["act"]
    others = [1, 2**62, last - 1] if job.many_writers else [-1, 0, last - 1]
    for other in others:
        with pytest.raises(Exception, match=r"interlock guard \[(position|append-only)\]"):
            move(job, 1, "complete/complete", id=other)
    assert unchanged(job)


def test_a_grant_of_nothing_to_nobody(database: Connection) -> None:
    bear(database, 1)
    for missing in ("worker", "ttl", "beat", "until", "secrets"):
        with refuses("act"):
            move(database, 1, "claim/grant", **{missing: None})
    assert database.rows("SELECT 1 FROM lease") == []
    assert unchanged(database, state="queued", version=1)


def test_a_lease_by_hand(job: Connection, server: str) -> None:
    """A role has no right to write one; the owner hears the guard."""
    before = job.rows("SELECT * FROM lease")
    copied = "INSERT INTO lease SELECT {}, unit, tenant, 8, secret, until, ttl, beat, NULL, units FROM lease"
    for statement in (
        copied.format(9), "UPDATE lease SET secret = 'mine'", "UPDATE lease SET until = until - 1",
        "UPDATE lease SET ended_at = 1", "UPDATE lease SET worker = 8", "UPDATE lease SET units = 0", "DELETE FROM lease",
    ):  # fmt: skip
        with lacks_right():
            job.rows(statement)
        with owner_of(job, server) as owner, refuses("lease"):
            owner.rows(statement)
    assert job.rows("SELECT * FROM lease") == before


def test_an_edited_event(done: Connection, server: str) -> None:
    with lacks_right():
        done.rows("UPDATE event SET actor = 'somebody else' WHERE unit = 1")
    with lacks_right():
        done.rows("UPDATE act SET actor = 'somebody else'")
    with owner_of(done, server) as owner, refuses("append-only"):
        owner.rows("UPDATE act SET actor = 'somebody else'")
    assert done.rows("SELECT DISTINCT actor FROM event") == [("test",)]


def test_a_deleted_event(done: Connection, server: str) -> None:
    with lacks_right():
        done.rows("DELETE FROM event WHERE unit = 1 AND version = 4")
    last = {"id": place_of(done, 1)["act"]}
    with refuses("append-only"):
        done.rows("DELETE FROM act WHERE id = :id", last)
    with refuses("append-only"):
        done.rows("DELETE FROM unit WHERE id = 1")
    with transaction(done), refuses("append-only"):
        done.rows("INSERT INTO act_gone SELECT id, tenant, digest FROM act WHERE id = :id", last)
        done.rows("DELETE FROM act WHERE id = :id", last)
    assert len(history(done)) == 4


def test_a_digest_that_no_act_has_left(done: Connection) -> None:
    with refuses("append-only"):
        insert(done, "act_gone", id=9, tenant=1, digest="d")
    with refuses("append-only"):
        insert(done, "act_gone", id=place_of(done, 1)["act"], tenant=1, digest="d")


def test_what_is_archived_may_be_deleted(done: Connection) -> None:
    with refuses("archived"):
        archive(done, 1, version=3)
    with refuses("archived"):
        archive(done, 1, head="d")
    archive(done, 1)
    forget(done, 1)
    assert history(done) == []
    assert done.rows("SELECT count(*) FROM act_gone") == [(4,)]


def test_an_outcome_changes_only_by_opening_an_attempt(database: Connection) -> None:
    bear(database, 1, lifecycle="agent_run")
    move(database, 1, "fail")
    assert database.rows("SELECT outcome FROM unit") == [("failure",)]
    move(database, 1, "resume")
    assert database.rows("SELECT state, outcome, attempt FROM unit") == [("queued", None, 2)]


def test_a_closed_unit_keeps_its_outcome(database: Connection) -> None:
    bear(database, 1, lifecycle="ci_run")
    move(database, 1, "fail")
    assert database.rows("SELECT state, outcome FROM unit") == [("FAILED", "failure")]
    move(database, 1, "report")
    assert database.rows("SELECT state, outcome FROM unit") == [("REPORTED", "failure")]


def test_a_second_unit_under_one_key(job: Connection) -> None:
    bear(job, 2, 3, with_body=False)
    write_body(job, 2)
    with pytest.raises(Exception, match=r"one.unit.a.key"):
        write_body(job, 3)
    write_body(job, 3, task="another")
    with pytest.raises(Exception, match=r"interlock guard \[identity\]|permission denied"):
        job.rows("UPDATE body SET key = 'other' WHERE unit = 2")


def test_rows_of_another_tenant(job: Connection) -> None:
    """The transaction may speak for both tenants; the rows still may not mix."""
    declare(job, 1, 2)
    with refuses("chain"):
        move(job, 1, "complete/complete", tenant=2)
    with refuses("event-first", "chain", "tenant"):
        bear(job, 2, tenant=2, row={"tenant": 1}, with_body=False)
    with refuses("tenant"):
        bear(job, 2, tenant=2, row={"parent": 1}, with_body=False)
    bear(job, 2, tenant=2)
    with refuses("tenant"):
        insert(job, "need", unit=2, needs=1, tenant=2)
    bear(job, 3, with_body=False)
    with refuses("tenant"):
        write_body(job, 3, tenant=2)
    with refuses("tenant"):
        insert(job, "artifact", unit=1, attempt=1, name="a", tenant=2, fence=1, at=0, digest="", data="")
    with refuses("chain"):
        write_act(job, path_of("job", "queued", None, "cancel"), 2, 3)
    assert unchanged(job)


def test_an_artifact_is_never_changed(job: Connection) -> None:
    insert(job, "artifact", unit=1, attempt=1, name="a", tenant=1, fence=1, at=0, digest="d", data="x")
    with refuses("append-only"):
        job.rows("UPDATE artifact SET data = 'y'")
    with pytest.raises(Exception, match=r"(?i)unique"):
        insert(job, "artifact", unit=1, attempt=1, name="a", tenant=1, fence=1, at=0, digest="d", data="y")


def test_force_is_the_one_door_and_leaves_its_mark(job: Connection) -> None:
    path = forced_path(job, 1, "queued")
    listed = "SELECT list_forced_path(:id, :told, :digest)"
    if job.many_writers:
        job.rows(listed, {"id": path.id, "told": path.text, "digest": path.digest})
    else:
        list_path(job, path)
    with refuses("act"):
        write_act(job, path, 1)
    with refuses("forced"):
        write_act(job, path, 1, reason="the worker was unplugged")
    allowed = {"unit": 1, "version": 4, "tenant": 1, "target": "queued", "actor": "test", "at": 4}
    insert(job, "forced_move", reason="the worker was unplugged", **allowed)
    write_act(job, path, 1, reason="the worker was unplugged")
    assert job.rows("SELECT state, lease, lease_id FROM unit") == [("queued", "REVOKED", None)]


@pytest.mark.parametrize("again", ["the last", "another"])
@pytest.mark.parametrize("table", ["act", "member", "lease", "transition_path", "path_hop"])
def test_a_replaced_row_of_the_record(done: Connection, table: str, again: str) -> None:
    """A connection to SQLite may switch off that REPLACE fires the triggers of what it deletes."""
    if done.many_writers:
        pytest.skip("PostgreSQL has no REPLACE")
    bear(done, 2)
    move(done, 2, "claim/grant")
    done.rows("PRAGMA recursive_triggers = OFF")
    before = done.rows(f"SELECT * FROM {table}")
    other = {"act": "actor", "member": "act", "lease": "worker", "transition_path": "told", "path_hop": "name"}
    names = [name for _, name, *_ in done.rows(f"PRAGMA table_info({table})")]
    picked = ", ".join("1234" if name == other[table] else name for name in names)
    order = "DESC" if again == "the last" else "ASC"
    with pytest.raises(Exception, match=r"interlock guard \["):
        done.rows(
            f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) SELECT {picked} FROM {table} "
            f"ORDER BY {names[0]} {order} LIMIT 1"
        )
    assert done.rows(f"SELECT * FROM {table}") == before


def test_finished_work_is_told_event_by_event(database: Connection) -> None:
    """Of each unit of an act, and of each hop of its path."""
    bear(database, 1, 2, 3)
    finish(database, 2)
    assert [len(history(database, unit)) for unit in (1, 2, 3)] == [1, 4, 1]
    assert database.rows("SELECT count(*) FROM journal") == [(6,)]
    assert database.rows("SELECT unit, place FROM journal ORDER BY act, place") == [
        (1, 1), (2, 2), (3, 3), (2, 1), (2, 1), (2, 1),
    ]  # fmt: skip
