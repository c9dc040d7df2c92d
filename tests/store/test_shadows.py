"""A role for programs cannot put its own tables, views or casts before those that the guard reads."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from interlock.kernel.errors import Corrupt
from interlock.lifecycles import shipped
from interlock.store import doctor, migrate
from interlock.store.postgres import PostgresConnection
from tests.store.databases import declare, insert
from tests.store.owners import OWNER, PERSON, PROGRAM, owned_database
from tests.store.raw_acts import bear, finish, list_path, move, path_of, unlisted, write_act
from tests.store.test_guard import refuses


@pytest.fixture(params=[OWNER, "postgres"], ids=["ordinary owner", "superuser owner"])
def urls(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[tuple[str, str]]:
    with owned_database(server, f"s{abs(hash(tmp_path))}", request.param) as made:
        yield made


@pytest.fixture
def program(urls: tuple[str, str]) -> Iterator[PostgresConnection]:
    """A connection of the role for programs, in which a job has succeeded, and another one is queued."""
    connection = PostgresConnection(urls[1])
    declare(connection, 1)
    bear(connection, 1, 2)
    finish(connection, 1)
    yield connection
    connection.close()


AGAIN = unlisted("succeeded", "complete", "queued")
SHADOW_LAW = (
    "CREATE TEMP TABLE edge AS SELECT * FROM edge; CREATE TEMP TABLE transition_path AS SELECT * FROM transition_path; "
    "CREATE TEMP TABLE path_hop AS SELECT * FROM path_hop; "
    "GRANT ALL ON pg_temp.edge, pg_temp.transition_path, pg_temp.path_hop TO PUBLIC; "
    "INSERT INTO pg_temp.edge VALUES ('job', 'succeeded', 'complete', 'queued', 'x', 'info', 0, 'ready', 0)"
)
ARCHIVED = (
    "CREATE TEMP TABLE archived AS SELECT 1::bigint AS unit, 4 AS version; GRANT ALL ON pg_temp.archived TO PUBLIC"
)
DELETES = ("DELETE FROM act", "DELETE FROM unit WHERE id = 1", "DELETE FROM body WHERE unit = 1")


def test_a_shadow_table_is_not_read(program: PostgresConnection) -> None:
    program.script(SHADOW_LAW)
    list_path(program, AGAIN)  # in the shadow, which has no trigger
    program.script(
        "UPDATE pg_temp.transition_path SET lifecycle = 'job', source = 'succeeded', target = 'queued', hops = 1"
    )
    with refuses("listed-hop"):
        write_act(program, AGAIN, 1)
    program.script(ARCHIVED)
    for statement in DELETES:
        with pytest.raises(Exception, match="permission denied"):
            program.rows(statement)
    assert program.rows("SELECT count(*) FROM event WHERE unit = 1") == [(4,)]


def test_a_shadow_of_units_is_not_moved(program: PostgresConnection) -> None:
    """What the trigger of an act writes is the unit itself, and what it compares with is too."""
    program.script("CREATE TEMP TABLE unit AS SELECT * FROM unit; GRANT ALL ON pg_temp.unit TO PUBLIC")
    program.script("UPDATE pg_temp.unit SET state = 'running', version = 3, lease = 'ACTIVE', outcome = NULL")
    with refuses("chain"):
        write_act(program, path_of("job", "running", "ACTIVE", "complete/complete"), 1)
    assert program.rows("SELECT state, version FROM public.unit WHERE id = 1") == [("succeeded", 4)]


def test_nor_is_it_for_an_operator_who_may_delete_what_is_archived(
    urls: tuple[str, str], program: PostgresConnection
) -> None:
    operator = PostgresConnection(urls[1].replace(f"//{PROGRAM}@", f"//{PERSON}@"))
    declare(operator, 1)
    operator.script(ARCHIVED)
    for statement in DELETES:
        with refuses("append-only"):
            operator.rows(statement)
    assert operator.rows("SELECT count(*) FROM event WHERE unit = 1") == [(4,)]
    operator.close()


# What stands in for a table of ours, and what makes the guard read it.
SHADOWS = {
    "transition_path": ("SELECT * FROM public.transition_path", "INSERT"),
    "unit": ("SELECT * FROM public.unit", "INSERT"),
    "lease": ("SELECT * FROM public.lease", "INSERT"),
    "archived": ("SELECT 1::bigint AS unit, 4 AS version", "DELETE"),
}


@pytest.mark.parametrize("table", SHADOWS)
def test_a_shadow_view_runs_nothing_as_the_owner(
    urls: tuple[str, str], program: PostgresConnection, table: str
) -> None:
    shadow, verb = SHADOWS[table]
    definitions = (
        "CREATE TEMP TABLE trace (role text); GRANT ALL ON trace TO PUBLIC",
        "CREATE FUNCTION pg_temp.spy() RETURNS boolean LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO pg_temp.trace VALUES (current_user); RETURN true; END $$",
        f"CREATE TEMP VIEW {table} AS {shadow} WHERE pg_temp.spy(); GRANT ALL ON {table} TO PUBLIC",
    )
    for statement in definitions:
        program.script(statement)
    if verb == "INSERT":
        move(program, 2, "claim/grant")  # which looks at the unit itself, as the program
    else:
        operator = PostgresConnection(urls[1].replace(f"//{PROGRAM}@", f"//{PERSON}@"))
        declare(operator, 1)
        for statement in definitions:
            operator.script(statement)
        with suppress(Corrupt):
            operator.rows("DELETE FROM body WHERE unit = 1")
        assert operator.rows("SELECT role FROM trace") == []
        operator.close()
    assert program.rows("SELECT count(*) FROM event WHERE unit = 1") == [(4,)]
    assert program.rows("SELECT role FROM trace WHERE role <> current_user") == []


def test_nobody_becomes_a_superuser_by_a_shadow(urls: tuple[str, str], program: PostgresConnection) -> None:
    program.script(
        "CREATE FUNCTION pg_temp.rise() RETURNS boolean LANGUAGE plpgsql AS "
        f"$$ BEGIN EXECUTE 'ALTER ROLE {PROGRAM} SUPERUSER'; RETURN true; "
        "EXCEPTION WHEN insufficient_privilege THEN RETURN true; END $$"
    )
    for table in ("transition_path", "about", "unit", "lease"):
        program.script(f"CREATE TEMP VIEW {table} AS SELECT * FROM public.{table} WHERE pg_temp.rise()")
        program.script(f"GRANT ALL ON pg_temp.{table} TO PUBLIC")
    move(program, 2, "claim/grant")
    risen = program.rows(f"SELECT rolsuper FROM pg_roles WHERE rolname = '{PROGRAM}'")
    if risen != [(False,)]:  # other tests use this role too
        program.script(f"ALTER ROLE {PROGRAM} NOSUPERUSER")
    assert risen == [(False,)]


def test_a_guard_is_no_trigger_of_the_attackers_own_table(program: PostgresConnection) -> None:
    """A column of a type with an implicit cast would run that cast's function inside the guard, as its owner."""
    program.script("CREATE TEMP TABLE mine (unit bigint, tenant integer)")
    with pytest.raises(Exception, match=r"permission denied for function .*guard_tenant"):
        program.script(
            "CREATE TRIGGER mine AFTER INSERT ON mine REFERENCING NEW TABLE AS fresh "
            "FOR EACH STATEMENT EXECUTE FUNCTION public.guard_tenant()"
        )


def test_a_refusal_is_found_whatever_the_path_of_the_session_is(
    urls: tuple[str, str], program: PostgresConnection
) -> None:
    """Somebody's own function of that name, earlier in the path, would refuse nothing."""
    owner = PostgresConnection(urls[0])
    owner.script(f"CREATE SCHEMA other AUTHORIZATION {PROGRAM}" if "postgres@" in urls[0] else "CREATE SCHEMA other")
    owner.script(
        "GRANT ALL ON SCHEMA other TO PUBLIC; CREATE FUNCTION other.guard_refuses(rule text, why text) RETURNS void "
        "LANGUAGE plpgsql AS $$ BEGIN END $$"
    )
    owner.close()
    insert(program, "artifact", unit=1, attempt=1, name="a", tenant=1, fence=1, at=0, digest="d", data="x")
    program.script("SET search_path = other, public")
    with refuses("append-only"):
        program.rows("UPDATE artifact SET data = 'y'")


def test_every_function_of_ours_has_a_path_that_ends_with_pg_temp(urls: tuple[str, str]) -> None:
    owner = PostgresConnection(urls[0])
    found = owner.rows(
        "SELECT proname, proconfig, prosecdef, has_function_privilege('public', pg_proc.oid, 'EXECUTE') FROM pg_proc "
        "JOIN pg_language ON pg_language.oid = prolang "
        "WHERE pronamespace = 'public'::regnamespace AND (prosecdef OR lanname = 'plpgsql')"
    )
    assert {name for name, _, definer, _ in found if definer} >= {
        "act_moves",
        "guard_birth",
        "guard_born",
        "guard_tenant",
    }
    for name, config, definer, public in found:
        assert "search_path=pg_catalog, public, pg_temp" in config, name
        assert not (definer and public), name
    owner.close()


def test_a_schema_of_any_name_is_in_the_path(server: str, tmp_path: Path) -> None:
    with owned_database(server, f"n{abs(hash(tmp_path))}", OWNER) as (url, _):
        owner = PostgresConnection(url)
        owner.script('CREATE SCHEMA "Odd, ""one"; SET search_path = "Odd, ""one"')
        migrate.upgrade(owner, shipped().values())
        declare(owner, 1)
        bear(owner, 1)
        with refuses("listed-hop"):
            write_act(owner, unlisted("queued", "complete", "succeeded"), 1)
        assert owner.rows("SELECT count(*) FROM event") == [(1,)]
        owner.close()


def test_the_doctor_names_what_makes_such_attacks_worse(urls: tuple[str, str]) -> None:
    owner = PostgresConnection(urls[0])
    told = "\n".join(doctor.diagnose(owner, shipped()))
    assert ("owned by the superuser postgres" in told) == ("postgres@" in urls[0])
    assert "PUBLIC may create temporary objects" in told
    assert "search_path" not in told
    owner.script("ALTER FUNCTION act_moves() RESET search_path")
    assert "function act_moves" in "\n".join(doctor.diagnose(owner, shipped()))
    database = owner.rows("SELECT current_database()")[0][0]
    owner.script(f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC")
    assert "PUBLIC may create temporary objects" not in "\n".join(doctor.diagnose(owner, shipped()))
    owner.close()
