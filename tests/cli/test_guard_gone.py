"""A guard that is gone, switched off, changed or widened is noticed: by the audit, by the doctor, and at every start."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import load, shipped
from interlock.plugins import STANDARD
from interlock.store import doctor, guard, inventory, migrate
from interlock.store.connection import Connection
from interlock.store.postgres import PostgresConnection
from interlock.store.sqlite import SqliteConnection
from tests.cli.inside import inside
from tests.conftest import Run
from tests.lifecycles.sample import PARCEL
from tests.store.databases import fresh_postgres
from tests.store.raw_acts import unlisted

# What somebody with the owner's rights does, and what is said of it.
FORGED_EDGE = "INSERT INTO edge VALUES ('job', 'succeeded', 'complete', 'queued', 'job_queued', 'info', 0, 'ready', 0);"
FORGED_PATH = unlisted("succeeded", "complete", "queued", name="job_queued")
LISTED_PATH = f"INSERT INTO transition_path (id, told, digest) VALUES ({FORGED_PATH.id}, '{FORGED_PATH.text}', "
LISTED_PATH += f"'{FORGED_PATH.digest}');"
LAW = ("edge", "path")
ON_POSTGRES = {
    "trigger dropped": ("DROP TRIGGER act_moves ON act", "trigger act_moves on act is missing"),
    "trigger disabled": ("ALTER TABLE unit DISABLE TRIGGER guard_unit", "guard_unit on unit is disabled"),
    "triggers disabled": ("ALTER TABLE act DISABLE TRIGGER ALL", "trigger act_moves on act is disabled"),
    "trigger for replicas": (
        "ALTER TABLE unit ENABLE REPLICA TRIGGER guard_birth", "guard_birth on unit fires for replicas only",
    ),
    "trigger changed": (
        "CREATE OR REPLACE TRIGGER guard_unit BEFORE UPDATE OF id ON unit FOR EACH STATEMENT "
        "EXECUTE FUNCTION guard_says_no('event-first', 'what an act writes changes only by an act')",
        "trigger guard_unit on unit differs",
    ),
    "trigger added": (
        "CREATE TRIGGER a_first BEFORE INSERT ON act FOR EACH ROW EXECUTE FUNCTION guard_says_no('a', 'b')",
        "trigger a_first on act was added",
    ),
    "security off": ("ALTER TABLE unit DISABLE ROW LEVEL SECURITY", "row-level security of unit is off"),
    "security not forced": ("ALTER TABLE unit NO FORCE ROW LEVEL SECURITY", "row-level security of unit is not forced"),
    "policy dropped": ("DROP POLICY declared ON act", "policy declared on act is missing"),
    "policy added": ("CREATE POLICY wide ON unit USING (true)", "policy wide on unit was added"),
    "policy changed": ("ALTER POLICY declared ON unit USING (true)", "policy declared on unit differs"),
    "policy of a role widened": ("ALTER POLICY everybody ON unit TO PUBLIC", "policy everybody on unit differs"),
    "function replaced": (
        "CREATE OR REPLACE FUNCTION guard_refuses(rule text, why text) RETURNS void LANGUAGE plpgsql AS "
        "$$ BEGIN END $$",
        "function guard_refuses(rule text, why text) differs",
    ),
    "function without its path": ("ALTER FUNCTION act_moves() RESET search_path", "function act_moves() differs"),
    "function no definer": ("ALTER FUNCTION act_moves() SECURITY INVOKER", "function act_moves() differs"),
    "function for everybody": ("GRANT EXECUTE ON FUNCTION act_moves() TO PUBLIC", "function act_moves() differs"),
    "function of somebody else": ("ALTER FUNCTION act_moves() OWNER TO ordinary", "function act_moves() differs"),
    "function added": (
        "CREATE FUNCTION guard_refuses(rule text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$",
        "function guard_refuses(rule text) was added",
    ),
    "rule added": ("CREATE RULE quiet AS ON DELETE TO act DO INSTEAD NOTHING", "rule quiet on act was added"),
    "right granted": ("GRANT INSERT ON edge TO interlock_app", "interlock_app may INSERT on edge"),
    "right in a column": ("GRANT UPDATE (target) ON edge TO interlock_app", "interlock_app may UPDATE(target) on edge"),
    "right in a column that acts write": (
        "GRANT UPDATE (state) ON unit TO interlock_app", "interlock_app may UPDATE(state) on unit",
    ),
    "right to truncate": ("GRANT TRUNCATE, TRIGGER ON act TO ordinary", "ordinary may TRIGGER, TRUNCATE on act"),
    "right of everybody": ("GRANT SELECT ON unit TO PUBLIC", "PUBLIC may SELECT on unit"),
    "programs made operators": (
        "GRANT interlock_operator TO interlock_app", "interlock_app is a member of interlock_operator",
    ),
    "programs see every tenant": (
        "GRANT interlock_system TO interlock_app", "interlock_app is a member of interlock_system",
    ),
    "table unlogged": (
        "ALTER TABLE note SET UNLOGGED", "table note is unlogged, so that a crash empties it",
    ),
    "view replaced": (
        "DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW job_event WITH (security_invoker = true) AS "
        "SELECT * FROM (' || rtrim(pg_get_viewdef('job_event'), ';') || ') AS all_of_them WHERE false'; END $$",
        "view job_event differs",
    ),
    "view of other tables": (
        "CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.event (LIKE event); DO $$ BEGIN EXECUTE "
        "'CREATE OR REPLACE VIEW job_event WITH (security_invoker = true) AS ' || "
        "replace(pg_get_viewdef('job_event'), 'FROM event', 'FROM elsewhere.event'); END $$",
        "view job_event differs",
    ),
    "view as its owner": ("ALTER VIEW job_event RESET (security_invoker)", "view job_event differs"),
    "the word for events": (
        "DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW event WITH (security_invoker = true) AS "
        "SELECT * FROM (' || rtrim(pg_get_viewdef('event'), ';') || ') AS all_of_them WHERE unit > 7'; END $$",
        "view event differs",
    ),
    "digest changed": (
        "DO $$ BEGIN EXECUTE replace(pg_get_functiondef('act_digest'::regproc), 'sha256(', 'sha224('); END $$",
        "function act_digest",
    ),
    "index dropped": ("DROP INDEX one_unit_a_key", "index one_unit_a_key is missing"),
    "constraint dropped": ("ALTER TABLE act DROP CONSTRAINT act_pkey", "constraint act_pkey on act is missing"),
    "column changed": ("ALTER TABLE unit ALTER COLUMN act DROP NOT NULL", "table unit differs"),
    "edge added": (FORGED_EDGE, "edge job: succeeded -> queued by 'complete' was added"),
    "path added": (FORGED_EDGE + LISTED_PATH, f"path job: succeeded -> queued ({FORGED_PATH.id}) was added"),
    "edge retired": (
        "UPDATE edge SET retired = 1 WHERE lifecycle = 'job' AND trigger = 'complete';",
        "edge job: running -> succeeded by 'complete' is missing",
    ),
    "path retired": (
        "UPDATE transition_path SET retired = 1 WHERE lifecycle = 'job' AND target = 'succeeded';",
        "path job: running -> succeeded",
    ),
    "edge deleted": (
        "ALTER TABLE edge DISABLE TRIGGER guard_edge_delete; "
        "DELETE FROM edge WHERE lifecycle = 'job' AND trigger = 'complete';",
        "edge job: running -> succeeded by 'complete' is missing",
    ),
    "edge opens an attempt": (
        "ALTER TABLE edge DISABLE TRIGGER guard_edge; "
        "UPDATE edge SET opens_attempt = 1 - opens_attempt WHERE lifecycle = 'job' AND trigger = 'complete'",
        "edge job: running -> succeeded by 'complete' is missing",
    ),
}  # fmt: skip
ON_SQLITE = {
    "trigger dropped": ("DROP TRIGGER act_moves", "trigger act_moves on act is missing"),
    "trigger changed": (
        "DROP TRIGGER guard_act; CREATE TRIGGER guard_act BEFORE UPDATE ON act BEGIN SELECT 1; END",
        "trigger guard_act on act differs",
    ),
    "trigger added": (
        "CREATE TRIGGER a_first BEFORE INSERT ON act BEGIN SELECT 1; END", "trigger a_first on act was added",
    ),
    "index dropped": ("DROP INDEX one_unit_a_key", "index one_unit_a_key is missing"),
    "column added": ("ALTER TABLE unit ADD COLUMN x TEXT", "table unit differs"),
    "view changed": ("DROP VIEW event; CREATE VIEW event AS SELECT * FROM journal", "view event differs"),
    "edge added": ON_POSTGRES["edge added"],
    "edge retired": ON_POSTGRES["edge retired"],
    "path added": ON_POSTGRES["path added"],
    "path retired": ON_POSTGRES["path retired"],
}  # fmt: skip


@pytest.fixture(scope="module")
def url(running_postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database whose guard nobody changes."""
    with fresh_postgres(running_postgres, "guard_gone") as made:
        yield made


def refused(connection: Connection) -> str:
    with pytest.raises(InterlockError, match=r"the guard of the database (is not|does not know)") as caught:
        migrate.prepare(connection, shipped().values())
    return str(caught.value)


@pytest.mark.parametrize("change", ON_POSTGRES)
def test_a_change_of_the_guard_is_found_on_postgres(server: str, tmp_path: Path, change: str) -> None:
    statement, said = ON_POSTGRES[change]
    with fresh_postgres(server, f"gc{abs(hash(tmp_path))}") as made:
        owner = PostgresConnection(made.replace("//ordinary@", "//postgres@"))
        try:
            assert guard.find_differences(owner, shipped().values()) == []
            owner.script(statement)
            assert said in "\n".join(guard.find_differences(owner, shipped().values()))
            assert said in "\n".join(doctor.diagnose(owner, shipped()))
            told = refused(owner)
            assert "interlock db upgrade" in told
            assert said in told or " more; " in told
        finally:
            owner.script("REVOKE interlock_operator, interlock_system FROM interlock_app")  # roles are the server's
            owner.script("REASSIGN OWNED BY ordinary TO postgres")
            owner.close()


@pytest.mark.parametrize("change", ["trigger disabled", "edge added", "right granted"])
def test_commands_find_it_on_postgres(server: str, tmp_path: Path, change: str) -> None:
    statement, said = ON_POSTGRES[change]
    with fresh_postgres(server, f"gg{abs(hash(tmp_path))}") as made:
        ask = inside(made)
        assert ask("audit").code == 0
        owner = PostgresConnection(made.replace("//ordinary@", "//postgres@"))
        owner.script(statement)
        owner.close()
        audited = ask("audit")
        assert (audited.code, said in audited.out) == (1, True)
        looked = ask("db", "doctor")
        assert (looked.code, said in looked.out) == (1, True)
        started = ask("submit", "mail")
        assert (started.code, said in started.err) == (2, True)


@pytest.mark.parametrize("change", ON_SQLITE)
def test_a_change_of_the_guard_is_found_on_sqlite(tmp_path: Path, change: str) -> None:
    statement, said = ON_SQLITE[change]
    ask = inside(f"sqlite:///{tmp_path}/work.db")
    assert ask("db", "upgrade").code == 0
    assert ask("audit").code == 0
    connection = SqliteConnection(f"{tmp_path}/work.db")
    connection.raw.executescript(statement)
    audited = ask("audit", "--json")
    assert audited.code == 1
    assert said in json.dumps(audited.json["findings"])
    looked = ask("db", "doctor")
    assert (looked.code, said in looked.out) == (1, True)
    assert ("edges were added or taken away" if change.startswith(LAW) else said) in refused(connection)
    connection.close()
    assert ask("submit", "mail").code == 2
    with pytest.raises(InterlockError, match="is not what this program ships"), interlock.open(ask_url(tmp_path)):
        pass


def ask_url(folder: Path) -> str:
    return f"sqlite:///{folder}/work.db"


def test_an_upgrade_mends_edges_and_rights(server: str, tmp_path: Path) -> None:
    with fresh_postgres(server, f"gm{abs(hash(tmp_path))}") as made:
        owner = PostgresConnection(made.replace("//ordinary@", "//postgres@"))
        changes = ("path added", "edge retired", "path retired", "right granted", "right in a column",
                   "right in a column that acts write", "function without its path")  # fmt: skip
        for change in changes:
            owner.script(ON_POSTGRES[change][0])
        owner.script("REVOKE ALL ON unit FROM interlock_app")
        assert "role interlock_app lacks rights on unit" in "\n".join(doctor.diagnose(owner, shipped()))
        migrate.upgrade(owner, shipped().values())
        assert guard.find_differences(owner, shipped().values()) == []
        assert "lacks rights" not in "\n".join(doctor.diagnose(owner, shipped()))
        owner.close()


def test_an_upgrade_mends_the_edges_of_a_file(tmp_path: Path) -> None:
    ask = inside(ask_url(tmp_path))
    ask("db", "upgrade")
    connection = SqliteConnection(f"{tmp_path}/work.db")
    for change in ("path added", "edge retired", "path retired"):
        connection.raw.executescript(ON_SQLITE[change][0])
    connection.close()
    assert ask("db", "upgrade").code == 0
    assert (ask("audit").code, ask("submit", "mail").code) == (0, 0)


def test_a_lifecycle_that_changed_is_no_tampering(tmp_path: Path) -> None:
    """A program brings a file to its own lifecycles; the file it finds has the edges of the last program."""
    file = tmp_path / "parcel.toml"
    for text in (PARCEL, PARCEL.replace("packed", "wrapped")):
        file.write_text(text)
        with interlock.open(ask_url(tmp_path), lifecycles=[file]):
            pass
        connection = SqliteConnection(f"{tmp_path}/work.db")
        known = STANDARD.lifecycles(shipped())
        assert guard.find_differences(connection, [*known.values(), load(file)]) == []
        unknown = doctor.diagnose(connection, known)
        assert unknown == ["the guard knows lifecycles that this program does not: parcel; if they are yours, name their "
                           "files (--lifecycles FILE)"]  # fmt: skip
        connection.close()
    assert inside(ask_url(tmp_path))("audit").code == 0


def test_a_connection_whose_triggers_do_not_fire_is_refused(url: str) -> None:
    owner = PostgresConnection(url.replace("//ordinary@", "//postgres@"))
    owner.script("SET session_replication_role = replica")
    assert "no trigger fires" in refused(owner)
    owner.close()


def test_what_owners_have_of_their_own_is_no_finding(server: str, tmp_path: Path) -> None:
    with fresh_postgres(server, f"go{abs(hash(tmp_path))}") as made:
        owner = PostgresConnection(made.replace("//ordinary@", "//postgres@"))
        owner.script("CREATE INDEX mine ON unit (state); CREATE TABLE shop (id int); GRANT SELECT ON unit TO ordinary")
        owner.script("CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        assert guard.find_differences(owner, shipped().values()) == []
        owner.close()


def test_the_manifest_is_what_a_fresh_database_has(url: str) -> None:
    connection = PostgresConnection(url)
    there = {name: item.digest for name, item in inventory.read_items(connection).items()}
    connection.close()
    assert there == inventory.read_manifest(), "run `python scripts/manifest.py`"
    assert {name.partition(" ")[0] for name in there} >= {
        "table", "view", "trigger", "policy", "function", "index", "constraint", "row-level",
    }  # fmt: skip


def damaged(file: Path, *, page: int) -> None:
    """The middle of a page is written over."""
    size = int.from_bytes(file.read_bytes()[16:18], "big")
    with file.open("r+b") as raw:
        raw.seek((page - 1) * size)
        raw.write(b"\xaa" * size)


@pytest.mark.parametrize("what", ["unit", "act_path"], ids=["a table", "an index that the laws do not read"])
def test_an_audit_fails_on_a_damaged_page(tmp_path: Path, started: Run, what: str) -> None:
    url = ask_url(tmp_path)
    assert started("submit", "mail", "--db", url).returncode == 0
    connection = SqliteConnection(f"{tmp_path}/work.db")
    connection.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    ((page,),) = connection.rows("SELECT rootpage FROM sqlite_master WHERE name = :what", {"what": what})
    connection.close()
    damaged(tmp_path / "work.db", page=page)
    done = started("audit", "--db", url)
    assert done.returncode != 0
    assert "the database file is damaged" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
