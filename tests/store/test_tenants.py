"""On PostgreSQL a transaction sees and writes only the rows of the tenants that it declared."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.store.postgres import PostgresConnection
from tests.store.databases import Connection, declare, fresh, insert
from tests.store.raw_acts import bear, move, path_of, write_act
from tests.store.test_guard import refuses


@pytest.fixture
def database(tmp_path: Path, server: str) -> Iterator[Connection]:
    with fresh("postgres", tmp_path, server) as connection:
        yield connection


def test_the_tests_do_not_run_as_a_superuser(database: Connection) -> None:
    assert database.rows("SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user") == [(False, False)]


def test_a_row_outside_the_declared_tenants_is_refused(database: Connection) -> None:
    with pytest.raises(Exception, match="row-level security"):
        bear(database, 1, tenant=2)
    for table, row in {
        "lane": {"id": 1, "queue": "q", "capabilities": ""},
        "slot": {"key": "k", "capacity": 1, "taken": 0},
        "token": {"unit": 1, "fence": 1, "key": "k", "back_at": 0},
        "schedule": {
            "name": "s",
            "timing": "",
            "timezone": "",
            "overlap": "",
            "missed": "",
            "work": "",
            "digest": "",
            "defined_at": 0,
        },
        "skipped": {
            "id": 1,
            "schedule": "s",
            "first_at": 0,
            "last_at": 0,
            "count": 1,
            "reason": "",
            "at": 0,
            "expires": 0,
        },
        "pause": {
            "id": 1,
            "kind": "queue",
            "name": "q",
            "since": 0,
            "actor": "",
            "reason": "",
            "live": 1,
            "detail": "",
        },
        "asked": {"minute": 1, "count": 1},
        "key": {"id": 1, "name": "k", "digest": "", "scopes": "", "created_at": 0, "created_by": ""},
        "answer": {"scope": "local", "key": "k", "request": "", "answer": "", "expires": 0},
    }.items():
        with pytest.raises(Exception, match="row-level security"):
            insert(database, table, tenant=2, **row)


def test_rows_of_others_are_not_there(database: Connection) -> None:
    bear(database, 1)
    declare(database, 2)
    assert database.rows("SELECT count(*) FROM unit") == [(0,)]
    database.rows("UPDATE unit SET failures = 9 WHERE id = 1")
    declare(database)
    assert database.rows("SELECT count(*) FROM event") == [(0,)]
    declare(database, 1, 2)
    assert database.rows("SELECT failures FROM unit") == [(0,)]


def test_an_act_moves_no_unit_of_another_tenant(database: Connection) -> None:
    """The trigger runs as the owner and declares the act's tenant; it compares tenants itself."""
    declare(database, 1, 2)
    bear(database, 1)
    bear(database, 2, tenant=2)
    before = database.rows("SELECT id, act, version FROM unit ORDER BY id")
    born = {row[0]: row[1] for row in before}
    declare(database, 1)
    path = path_of("job", "queued", None, "cancel")
    claim = {"version": 1, "attempt": 1, "fence": 0, "at": 9}
    with refuses("chain"):
        write_act(database, path, 2, tenant=1, before=[born[2]], **claim)
    with refuses("chain"):
        write_act(database, path, 1, 2, tenant=1, before=[born[1], born[2]], **claim)
    with pytest.raises(Exception, match=r"row-level security|interlock guard"):
        write_act(database, path, 2, tenant=2, before=[born[2]], **claim)
    declare(database, 1, 2)
    assert database.rows("SELECT id, act, version FROM unit ORDER BY id") == before


def test_a_lease_of_another_tenant_is_not_renewed(database: Connection) -> None:
    bear(database, 1)
    move(database, 1, "claim/grant")
    before = database.rows("SELECT id, unit, until FROM lease")
    longer = "SELECT renew_leases(ARRAY[:id]::bigint[], ARRAY[:unit]::bigint[], ARRAY[:until]::bigint[])"
    given = {"id": before[0][0], "unit": 1, "until": before[0][2] + 1}
    declare(database, 2)
    database.rows(longer, given)
    declare(database, 1)
    assert database.rows("SELECT id, unit, until FROM lease") == before
    database.rows(longer, given)
    assert database.rows("SELECT until FROM lease") == [(given["until"],)]


def test_the_law_itself_is_not_the_applications_to_change(database: Connection) -> None:
    with pytest.raises(Exception, match="permission denied"):
        database.rows("DELETE FROM edge")
    with pytest.raises(Exception, match="permission denied"):
        insert(
            database, "edge", lifecycle="job", source="running", trigger="x", target="queued", name="x", severity="info",
            opens_attempt=0, category="ready",
        )  # fmt: skip
    for table in ("transition_path", "path_hop", "command_path"):
        with pytest.raises(Exception, match="permission denied"):
            database.rows(f"DELETE FROM {table}")


def test_no_tenant_is_hidden_from_audits_and_ticks(database: Connection, server: str) -> None:
    """They find the work of all tenants by the rows of `tenant`."""
    assert isinstance(database, PostgresConnection)
    with pytest.raises(Exception, match="permission denied"):
        database.rows("DELETE FROM tenant WHERE id = 1")
    with pytest.raises(Exception, match=r"interlock guard \[identity\]"):
        database.rows("UPDATE tenant SET id = 9 WHERE id = 1")
    owner = PostgresConnection(server.rsplit("/", 1)[0] + "/" + database.raw.info.dbname)
    for statement in ("DELETE FROM tenant WHERE id = 1", "TRUNCATE tenant"):
        with pytest.raises(Exception, match=r"interlock guard \[append-only\]"):
            owner.script(statement)
    owner.close()
    assert database.rows("SELECT id FROM tenant") == [(1,)]


def test_a_role_for_all_tenants_sees_them_without_bypassing_the_policies(database: Connection, server: str) -> None:
    bear(database, 1)
    assert isinstance(database, PostgresConnection)
    owner = PostgresConnection(server.rsplit("/", 1)[0] + "/" + database.raw.info.dbname)
    owner.script("GRANT interlock_system TO postgres; SET ROLE interlock_system")
    assert owner.rows("SELECT count(*) FROM event") == [(1,)]
    assert owner.rows("SELECT rolbypassrls FROM pg_roles WHERE rolname = 'interlock_system'") == [(False,)]
    owner.close()
