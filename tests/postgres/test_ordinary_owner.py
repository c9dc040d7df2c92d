"""PostgreSQL for an owner that may not make roles: everything works, and a DBA is told what would be safer."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.kernel.commands import SetTenant, Tick
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import load, shipped
from interlock.store import doctor, migrate, rights
from interlock.store.postgres import PostgresConnection
from tests.cli.inside import inside
from tests.engine.world import World
from tests.lifecycles.sample import PARCEL
from tests.postgres.server import postgres as started_server
from tests.store.databases import LIFECYCLES, alone, declare
from tests.store.owners import OWNER, PROGRAM, empty_database, login, make_role
from tests.store.raw_acts import bear, unlisted, write_act
from tests.store.test_guard import refuses
from tests.worker.test_signals import MODULE, PATIENCE, numbered, started


@pytest.fixture(scope="module")
def bare_server() -> Iterator[str]:
    """A server that has none of our roles."""
    with started_server() as url:
        yield url


@pytest.fixture
def url(bare_server: str, tmp_path: Path) -> Iterator[str]:
    """A database without tables, of an owner that is no superuser and may not make roles."""
    with empty_database(bare_server, f"o{abs(hash(tmp_path))}", OWNER) as made:
        yield made
    alone(bare_server, "; ".join(f"DROP ROLE IF EXISTS {role}" for role in (*rights.PURPOSES, PROGRAM)))


@pytest.fixture
def owner(url: str) -> Iterator[PostgresConnection]:
    connection = PostgresConnection(url)
    migrate.upgrade(connection, LIFECYCLES.values())
    yield connection
    connection.close()


def test_an_empty_database_is_called_empty(url: str) -> None:
    done = inside(url)("db", "doctor")
    assert done.code == 1
    assert done.out.startswith("the database is empty: `interlock db upgrade")
    assert "Traceback" not in done.out + done.err


def test_an_upgrade_prints_the_lines_for_a_dba_until_the_roles_are_there(url: str, bare_server: str) -> None:
    ask = inside(url)
    first = ask("db", "upgrade")
    assert first.code == 0
    assert "CREATE ROLE interlock_app NOLOGIN;" in first.out
    assert "GRANT interlock_app TO your_program;" in first.out
    assert ask("db", "upgrade", "--json").json["for_dba"][0].startswith("CREATE ROLE interlock_app")

    make_role(bare_server, PROGRAM)
    lines = [line.strip() for line in first.out.splitlines() if line.startswith("  ")]
    alone(bare_server, "\n".join(lines).replace("your_program", PROGRAM))
    assert "DBA" not in ask("db", "upgrade").out
    assert ask("db", "upgrade", "--json").json["for_dba"] == []

    program = PostgresConnection(url.replace(OWNER, PROGRAM))
    declare(program, 1)
    bear(program, 1)
    with pytest.raises(Exception, match="permission denied"):
        program.rows("DELETE FROM edge")
    declare(program, 2)
    assert program.rows("SELECT count(*) FROM event") == [(0,)]
    program.close()


def test_a_role_for_all_tenants_that_comes_later_sees_them(
    url: str, owner: PostgresConnection, bare_server: str
) -> None:
    declare(owner, 1)
    bear(owner, 1)
    alone(bare_server, "CREATE ROLE interlock_system NOLOGIN")
    migrate.upgrade(owner, LIFECYCLES.values())
    system = PostgresConnection(login(bare_server, "postgres").rsplit("/", 1)[0] + "/" + url.rsplit("/", 1)[1])
    system.script("SET ROLE interlock_system")
    assert system.rows("SELECT count(*) FROM event") == [(1,)]
    system.close()


def test_the_owner_lives_a_whole_life_alone(owner: PostgresConnection) -> None:
    """Submits, claims, time and the audit of two tenants, with row-level security forced upon the owner too."""
    world = World(owner)
    done = world.submit()
    delayed = world.submit(delay_us=5_000_000)
    worker = world.worker()
    (grant,) = world.claim(worker, limit=1)
    world.start(grant)
    world.finish(grant)
    assert world.unit(done).outcome == "success"
    world.send(SetTenant(tenant=2, name="other"))
    world.pass_time(10)
    world.send(Tick(tenant=1))
    world.send(Tick(tenant=2))
    assert world.unit(delayed).available_at is not None
    declare(owner, 2)
    assert owner.rows("SELECT count(*) FROM unit") == [(0,)]
    declare(owner)
    assert owner.rows("SELECT count(*) FROM event") == [(0,)]


def test_the_guard_holds_for_the_owner(owner: PostgresConnection) -> None:
    declare(owner, 1)
    bear(owner, 1)
    with refuses("listed-hop"):
        write_act(owner, unlisted("queued", "complete", "succeeded"), 1)
    with refuses("append-only"):
        owner.rows("DELETE FROM act")
    with refuses("event-first"):
        owner.rows("UPDATE unit SET state = 'succeeded'")


def test_a_state_with_units_in_it_is_not_lost_although_the_owner_declares_no_tenant(
    owner: PostgresConnection, tmp_path: Path
) -> None:
    (tmp_path / "parcel.toml").write_text(PARCEL)
    parcel = load(tmp_path / "parcel.toml")
    migrate.upgrade(owner, [*shipped().values(), parcel])
    World(owner, {**shipped(), "parcel": parcel}).submit(lifecycle="parcel")
    owner.rows("SELECT set_config('app.tenants', '', false)")
    (tmp_path / "parcel.toml").write_text(PARCEL.replace("packed", "wrapped"))
    with pytest.raises(InterlockError, match="has no state 'packed' any more, but 1 units are in it"):
        migrate.upgrade(owner, [*shipped().values(), load(tmp_path / "parcel.toml")])


def test_the_commands_work_for_the_owner(url: str, owner: PostgresConnection, tmp_path: Path) -> None:
    (tmp_path / "mail.py").write_text(MODULE)
    ask = inside(url)
    with interlock.open(url) as app:
        app.task(name="quick", queue="mail")(numbered)
        job = app.tasks["quick"].submit(n=7)
        with started(tmp_path, "up", "mail:app", "--db", url) as process:
            assert job.wait(PATIENCE) == 7
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
    assert "HTTP API is at" in (tmp_path / "log").read_text()
    assert ask("list", "--json").json["units"][0]["outcome"] == "success"
    assert ask("audit", "--rebuild").code == 0


def test_the_doctor_says_which_promise_is_the_audits_alone(url: str, owner: PostgresConnection) -> None:
    told = "\n".join(doctor.diagnose(owner, shipped()))
    assert f"this role, {OWNER}, owns the tables" in told
    assert "kept by `interlock audit` alone" in told
    assert "no role interlock_app and no role interlock_system and no role interlock_operator" in told
    assert "CREATE ROLE interlock_app NOLOGIN;" in told


def test_a_schema_of_somebody_elses_needs_no_more_than_create(bare_server: str, url: str) -> None:
    """The owner of the tables need not own the database, nor the schema."""
    place = f"{bare_server.rsplit('/', 1)[0]}/{url.rsplit('/', 1)[1]}"
    alone(place, f"CREATE SCHEMA work; GRANT USAGE, CREATE ON SCHEMA work TO {OWNER}")
    alone(bare_server, "CREATE ROLE interlock_app NOLOGIN")
    there = f"{url}?options=-csearch_path%3Dwork"
    done = inside(there)("db", "upgrade")
    assert done.code == 0, done.err
    assert "GRANT USAGE ON SCHEMA work TO interlock_app;" in done.out
    connection = PostgresConnection(there)
    assert connection.rows("SELECT to_regclass('work.unit') IS NOT NULL") == [(True,)]
    connection.close()
