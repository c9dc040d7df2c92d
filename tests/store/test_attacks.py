"""Raw SQL against the record: every attack is refused, has no effect, or is found by `audit`."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from interlock.kernel.errors import StoreError
from interlock.lifecycles import shipped
from interlock.store import migrate, rights
from interlock.store.postgres import PostgresConnection
from interlock.store.seals import write_seal
from interlock.store.sqlite import SqliteConnection
from tests.store.attack_scene import DENIED, NEW, NOTHING, Attack, Expected, Found, Refused, Scene
from tests.store.attacks import everywhere
from tests.store.attacks_postgres import only_postgres
from tests.store.attacks_sqlite import only_sqlite
from tests.store.databases import Connection, alone, declare, fresh_postgres, swap
from tests.store.owners import OWNER, make_role, owned_database

APP, BESIDE, ALONE = "application role", "owner beside roles", "owner as the only role"
PLAIN, AS_PRODUCT = "plain connection", "connection with recursive triggers"
POSTGRES, SQLITE = (APP, BESIDE, ALONE), (PLAIN, AS_PRODUCT)
LEAST = 80  # attacks in each set-up


def expected(attack: Attack, setup: str) -> Expected:
    if setup in SQLITE:
        return attack.lite
    if setup == APP:
        return attack.app
    return attack.alone if setup == ALONE and attack.alone is not None else attack.owner


def attacks(setup: str) -> list[Attack]:
    known = everywhere() + (only_sqlite() if setup in SQLITE else only_postgres())
    return [attack for attack in known if expected(attack, setup) is not None]


CASES = [(setup, attack) for setup in (*POSTGRES, *SQLITE) for attack in attacks(setup)]


@contextmanager
def postgres_scene(server: str, setup: str) -> Iterator[tuple[Connection, Scene]]:
    """The attacker's connection, and what it finds."""
    if setup == ALONE:
        with owned_database(server, "attacked_alone", OWNER) as (url, _), closing(PostgresConnection(url)) as owner:
            take_roles_away(owner)
            yield owner, Scene(owner, owner)
        return
    name = "attacked_" + ("app" if setup == APP else "beside")
    with (
        fresh_postgres(server, name) as url,
        closing(PostgresConnection(swap(server, name))) as owner,
        closing(PostgresConnection(url)) as program,
    ):
        scene = Scene(program, owner)
        yield (program if setup == APP else owner), scene


def take_roles_away(owner: PostgresConnection) -> None:
    """As on a server that has no roles of ours: nobody but the owner may do anything."""
    tables = ", ".join((*rights.list_shipped_names("TABLE"), *rights.list_shipped_names("VIEW")))
    owner.script(f"REVOKE ALL ON {tables} FROM {', '.join(rights.PURPOSES)}")


@contextmanager
def sqlite_scene(file: Path) -> Iterator[tuple[Connection, Scene]]:
    with closing(SqliteConnection(str(file))) as connection:
        migrate.upgrade(connection, shipped().values())
        yield connection, Scene(connection, connection)


@pytest.fixture(scope="module")
def scenes(
    running_postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[Connection, Scene]]]:
    """One database for each set-up, made when it is first asked for; what an attack does to it is undone."""
    folder = tmp_path_factory.mktemp("attacked")
    with ExitStack() as stack:

        class Made(dict[str, tuple[Connection, Scene]]):
            def __missing__(self, setup: str) -> tuple[Connection, Scene]:
                on_sqlite = setup in SQLITE
                opened = sqlite_scene(folder / f"{setup}.db") if on_sqlite else postgres_scene(running_postgres, setup)
                self[setup] = stack.enter_context(opened)
                return self[setup]

        yield Made()


@contextmanager
def attacker(setup: str, scenes: dict[str, tuple[Connection, Scene]]) -> Iterator[Connection]:
    """A connection in a transaction that is undone. On SQLite it is the client's own, with what it sets for itself."""
    connection, scene = scenes[setup]
    if isinstance(connection, SqliteConnection):
        with closing(SqliteConnection(connection.path)) as own:
            own.rows(f"PRAGMA recursive_triggers = {'ON' if setup == AS_PRODUCT else 'OFF'}")
            own.rows("BEGIN IMMEDIATE")
            yield own
            own.rows("ROLLBACK")
        return
    connection.script("BEGIN")
    try:
        scene.declare(connection)
        yield connection
    finally:
        connection.script("ROLLBACK")


@pytest.mark.parametrize(("setup", "attack"), [pytest.param(*case, id=f"{case[0]}: {case[1].name}") for case in CASES])
def test_attack(setup: str, attack: Attack, scenes: dict[str, tuple[Connection, Scene]]) -> None:
    scene, outcome = scenes[setup][1], expected(attack, setup)
    with attacker(setup, scenes) as connection:
        refusal = carry_out(attack, scene, connection)
        scene.declare(connection)
        if isinstance(outcome, Refused):
            assert refusal is not None, "it went through"
            assert re.search(outcome.words, refusal), refusal
        else:
            assert refusal is None, refusal
        if isinstance(outcome, Found):
            assert outcome.law in scene.broken(connection)
        else:
            assert outcome == NOTHING or isinstance(outcome, Refused)
            assert scene.fingerprint(connection) == scene.rows


def carry_out(attack: Attack, scene: Scene, connection: Connection) -> str | None:
    """What the database says against it; what it refused is undone."""
    send = connection.rows if isinstance(connection, SqliteConnection) else connection.script
    send("SAVEPOINT attack")
    try:
        for step in attack.make(scene):
            if isinstance(step, str):
                send(step)
            else:
                step(connection)
        if scene.pg:
            send("SET CONSTRAINTS ALL IMMEDIATE")  # as COMMIT would
    except (StoreError, sqlite3.Error) as error:
        send("ROLLBACK TO SAVEPOINT attack")
        return str(error)
    return None


@pytest.mark.parametrize("setup", [*POSTGRES, *SQLITE])
def test_there_are_enough_of_them(setup: str) -> None:
    names = [attack.name for attack in attacks(setup)]
    assert len(names) >= LEAST
    assert len(set(names)) == len(names)


def test_a_role_that_sees_all_tenants_and_declares_none(server: str) -> None:
    """Under an owner who is no superuser the guard declares the tenants of the rows that it judges, and forgets them."""
    with owned_database(server, "attacked_by_clerk", OWNER) as (url, program_url), ExitStack() as stack:
        make_role(server, "clerk")
        alone(server, f"GRANT {rights.SYSTEM} TO clerk")
        owner, program, clerk = (
            stack.enter_context(closing(PostgresConnection(one)))
            for one in (url, program_url, url.replace(f"//{OWNER}@", "//clerk@"))
        )
        declare(owner, 1, 2)
        scene = Scene(program, owner)
        assert clerk.rows("SELECT count(DISTINCT tenant) FROM unit") == [(2,)], "it sees them all"
        born = NEW + 100
        clerk.script("BEGIN")
        for name in ("free", "alien"):
            number = 1 + (name == "alien")
            clerk.script(scene.act(scene.path(name, "cancel"), name, number=number))
        clerk.script(scene.birth(born, tenant=2, number=3))
        clerk.script(scene.born(born, number=3, tenant=2))
        clerk.script(
            "INSERT INTO body (unit, tenant, task, created_at, input, labels, policy, correlation, trace) "
            f"VALUES ({born}, 2, 'mail', 1, '{{}}', '{{}}', '{{}}', '{born}', '')"
        )
        clerk.script("SET CONSTRAINTS ALL IMMEDIATE")
        write_seal(clerk, 1, scene["now"] + 5_000_000)
        assert clerk.rows("SELECT max(number) FROM seal WHERE tenant = 1") == [(scene["sealed"] + 1,)]
        assert clerk.rows("SELECT count(*) FROM unit WHERE state = 'cancelled'") == [(3,)]
        assert clerk.rows("SELECT coalesce(current_setting('app.tenants', true), '')") == [("",)]
        clerk.script("COMMIT")
        for attack in everywhere():
            if attack.app != DENIED and isinstance(attack.app, Refused) and "another tenant" in attack.name:
                clerk.script("BEGIN")
                refusal = carry_out(attack, scene, clerk)
                clerk.script("ROLLBACK")
                assert refusal, attack.name
                assert re.search(attack.app.words, refusal), (attack.name, refusal)
        declare(owner, 1, 2)
        assert scene.broken(owner) == ["available means claimable"], "whom it bore nobody may claim yet"
