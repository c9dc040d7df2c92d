"""`interlock db` and `interlock audit` as an operator runs them; a dozen kinds of tampering are found."""

import json
import re
from pathlib import Path
from shutil import copy

import pytest

from interlock.cli.audit import CHECKS as CORE_CHECKS
from interlock.cli.output import format_count
from interlock.kernel.commands import Tick
from interlock.plugins import STANDARD
from interlock.store.migrate import numbers
from interlock.store.sqlite import SqliteConnection
from tests.cli.inside import inside
from tests.conftest import Run
from tests.engine.world import World

CHECKS = len(CORE_CHECKS) + len(STANDARD.laws)

PRESENT = f"schema {numbers()[-1]}"
GUARDS = ("act", "act_delete", "path_hop_update", "seal_update", "unit")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, interlock: Run) -> Path:
    """A database in which two jobs have lived."""
    path = tmp_path_factory.mktemp("database") / "work.db"
    upgrade = interlock("db", "upgrade", "--db", f"sqlite:///{path}")
    assert upgrade.stdout == f"{PRESENT}, {format_count(len(numbers()), 'migration')} run\n"
    connection = SqliteConnection(str(path))
    world = World(connection)
    for _ in range(2):
        world.submit()
    worker = world.worker()
    done, _ = world.claim(worker, limit=2)
    world.start(done)
    world.finish(done)
    world.send(Tick())
    connection.close()
    return path


@pytest.fixture
def file(made: Path, tmp_path: Path) -> Path:
    """A copy of it, which a test may spoil."""
    return Path(copy(made, tmp_path))


def test_an_upgrade_is_run_once(file: Path, interlock: Run) -> None:
    assert interlock("db", "upgrade", "--db", f"sqlite:///{file}").stdout == f"{PRESENT}, nothing to do\n"
    told = interlock("db", "status", "--db", f"sqlite:///{file}", "--json")
    assert json.loads(told.stdout) == {"schema": numbers()[-1], "newest": numbers()[-1], "ok": True}


def test_the_sql_is_printed(interlock: Run) -> None:
    text = interlock("db", "sql").stdout
    assert "CREATE TABLE unit" in text
    assert "CREATE TRIGGER guard_act" in text


def test_a_healthy_database_has_no_findings(file: Path, interlock: Run) -> None:
    assert interlock("db", "doctor", "--db", f"sqlite:///{file}").stdout == "database checked, no problems found\n"
    done = interlock("audit", "--db", f"sqlite:///{file}")
    assert (done.returncode, done.stdout) == (0, f"{CHECKS} checks run, no problems found\n")


def test_an_audit_says_how_much_is_not_sealed_yet(file: Path, interlock: Run) -> None:
    told = json.loads(interlock("audit", "--db", f"sqlite:///{file}", "--json").stdout)
    assert told["unsealed"] == {"acts": 0, "since": None}
    interlock("submit", "mail", "--db", f"sqlite:///{file}")
    done = interlock("audit", "--db", f"sqlite:///{file}")
    assert done.returncode == 0
    assert re.match(r"not sealed yet, no problem: 1 change since 20\d\d-.*; the next tick seals them\n", done.stdout)
    told = json.loads(interlock("audit", "--db", f"sqlite:///{file}", "--from-seal", "2", "--json").stdout)
    assert (told["unsealed"]["acts"], told["ok"]) == (1, True)


TAMPERING = [
    ("UPDATE unit SET state = 'failed', category = 'failure' WHERE state = 'succeeded'", "state is the fold of events"),
    ("UPDATE act SET actor = 'somebody else' WHERE version = 1", "acts are what their digests say"),
    ("DELETE FROM act WHERE version = 1 AND worker IS NOT NULL", "no gap"),
    ("UPDATE path_hop SET source = 'queued' WHERE source = 'assigned' AND trigger = 'start'", "every hop is listed"),
    ("UPDATE path_hop SET name = 'job_lost' WHERE name = 'job_claimed'", "paths are what their digests say"),
    ("UPDATE seal SET acts = acts + 1", "seals are those of the acts below them"),
    (
        "UPDATE unit SET state = 'queued', category = 'ready', version = 1, fence = 0, lease = NULL, lease_id = NULL, "
        "holder = NULL, act = born, available_at = changed_at WHERE state = 'assigned'",
        "acts list the units that they moved",
    ),
    ("UPDATE unit SET outcome = NULL WHERE state = 'succeeded'", "what is settled rests"),
    ("UPDATE unit SET wake_at = 1 WHERE state = 'succeeded'", "what is settled rests"),
    ("UPDATE unit SET fence = 7 WHERE state = 'assigned'", "columns follow the state"),
    ("UPDATE unit SET holder = NULL WHERE state = 'assigned'", "one live lease at most"),
    ("UPDATE worker SET holding = 5", "workers hold what they hold"),
]


@pytest.mark.req("X-28")
@pytest.mark.parametrize(("statement", "law"), TAMPERING)
def test_tampering_behind_the_guard_is_found(statement: str, law: str, file: Path) -> None:
    tamper(file, statement)
    done = inside(f"sqlite:///{file}")("audit", "--json")
    told = json.loads(done.out)
    assert (done.code, told["ok"]) == (1, False)
    assert law in {finding["law"] for finding in told["findings"]}


def test_a_person_is_told_of_tampering_line_by_line(file: Path, interlock: Run) -> None:
    statement, law = TAMPERING[0]
    tamper(file, statement)
    done = interlock("audit", "--db", f"sqlite:///{file}")
    assert done.returncode == 1
    assert f"[{law}]" in done.stdout


def tamper(file: Path, statement: str) -> None:
    """As whoever owns the file could do it: the guard stood in the way."""
    connection = SqliteConnection(str(file))
    for guard in GUARDS:
        connection.rows(f"DROP TRIGGER guard_{guard}")
    connection.rows(statement)
    connection.close()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("audit", "--db", "sqlite:///none.db"), "there is no database 'none.db'"),
        (
            ("db", "status", "--db", "mysql://x"),
            "'mysql://x' is no database that Interlock knows; allowed are sqlite:///",
        ),
        (("db", "upgrade", "--db", "sqlite://"), "names no file"),
        (("db", "upgrade", "--db", "sqlite:////no/such/folder/x.db"), "does not exist"),
        (("db", "status", "--db", "postgresql://nobody@127.0.0.1:1/x"), "PostgreSQL cannot be reached"),
        (("db", "upgrade", "--db", "sqlite:///README.md"), "cannot be opened as a SQLite database"),
    ],
)
def test_a_database_that_cannot_be_used_is_told_in_a_sentence(args: tuple[str, ...], said: str, interlock: Run) -> None:
    done = interlock(*args)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_an_old_schema_is_named_with_its_cure(tmp_path: Path, interlock: Run) -> None:
    SqliteConnection(str(tmp_path / "empty.db")).close()
    url = f"sqlite:///{tmp_path}/empty.db"
    done = interlock("db", "status", "--db", url)
    assert (done.returncode, done.stdout) == (
        1,
        f"schema 0 of {numbers()[-1]}; run `interlock db upgrade --db {url}`\n",
    )
    assert "run `interlock db upgrade" in interlock("audit", "--db", url).stderr


def test_an_empty_database_is_called_empty(tmp_path: Path, interlock: Run) -> None:
    SqliteConnection(str(tmp_path / "empty.db")).close()
    done = interlock("db", "doctor", "--db", f"sqlite:///{tmp_path}/empty.db")
    assert done.returncode == 1
    assert done.stdout.startswith("the database is empty: `interlock db upgrade` makes its tables")
