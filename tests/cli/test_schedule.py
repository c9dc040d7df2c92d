"""`interlock schedule` as an operator runs it."""

import json
from pathlib import Path

import pytest

from interlock.kernel.commands import DefineSchedule, Tick, Work
from interlock.lifecycles import shipped
from interlock.store import migrate
from interlock.store.sqlite import SqliteConnection
from tests.conftest import Run
from tests.engine.test_schedules import us
from tests.engine.world import World


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A database with two schedules; the first has made one unit, and skipped one instant."""
    path = tmp_path / "work.db"
    url = f"sqlite:///{path}"
    connection = SqliteConnection(str(path))
    migrate.upgrade(connection, shipped().values())
    world = World(connection)
    world.now_us = us(2026, 6, 1, 12, 0)
    world.send(DefineSchedule(name="hourly", timing="0 * * * *", timezone="Europe/Berlin", work=Work(task="report")))
    world.send(DefineSchedule(name="often", timing="every 5m", work=Work(task="look"), overlap="allow"))
    for _ in range(2):
        world.pass_time(3600)
        world.send(Tick())
    connection.close()
    return url


def listed(interlock: Run, db: str) -> dict[str, dict[str, object]]:
    told = json.loads(interlock("schedule", "list", "--db", db, "--json").stdout)
    return {row["name"]: row for row in told["schedules"]}


def test_a_list_shows_the_next_instants_in_their_time_zone(db: str, interlock: Run) -> None:
    lines = interlock("schedule", "list", "--db", db).stdout.splitlines()
    assert lines[0].split() == ["NAME", "TIMING", "TIMEZONE", "OVERLAP", "MISSED", "LAST", "NEXT"]
    assert lines[1].split("\t")[:4] == ["hourly", "0 * * * *", "Europe/Berlin", "skip"]
    assert lines[1].endswith("2026-06-01T17:00:00+02:00, 2026-06-01T18:00:00+02:00, 2026-06-01T19:00:00+02:00")
    assert lines[2].endswith("2026-06-01T14:05:00Z, 2026-06-01T14:10:00Z, 2026-06-01T14:15:00Z")
    hourly = listed(interlock, db)["hourly"]
    assert str(hourly["last"]).startswith("job_")


def test_pause_and_resume(db: str, interlock: Run) -> None:
    paused = ("schedule", "pause", "hourly", "--db", db, "--actor", "ann", "--reason", "holidays")
    assert interlock(*paused).stdout == "schedule hourly is paused\n"
    assert interlock(*paused).stdout == "schedule hourly is paused; it was so before\n"
    row = listed(interlock, db)["hourly"]
    assert str(row["paused"]).startswith("schedule hourly was paused by ann at ")
    assert str(row["paused"]).endswith(": holidays; it goes on with `interlock schedule unpause hourly`")
    assert row["next"] == []
    resumed = interlock("schedule", "resume", "hourly", "--db", db, "--json")
    told = json.loads(resumed.stdout)
    assert (told["name"], told["paused"], told["changed"]) == ("hourly", False, True)


def test_remove(db: str, interlock: Run) -> None:
    removed = ("schedule", "remove", "often", "--db", db, "--actor", "ann", "--reason", "too often")
    assert interlock(*removed).stdout == "schedule often is removed\n"
    assert interlock(*removed).stdout == "schedule often is removed; it was so before\n"
    assert list(listed(interlock, db)) == ["hourly"]
    told = json.loads(interlock("why", "often", "--db", db, "--json").stdout)
    assert told["reason"] == "removed"
    assert ": too often; a worker whose app still defines it brings it back" in told["answer"]
    assert "missed: nobody looked until" in interlock("schedule", "skipped", "often", "--db", db).stdout


def test_a_trigger_says_which_unit_it_made(db: str, interlock: Run) -> None:
    told = json.loads(interlock("schedule", "trigger", "often", "--db", db, "--json").stdout)
    assert told["unit"].startswith("job_")
    assert str(listed(interlock, db)["often"]["last"]) == f"{told['unit']} {told['state']}"


def test_what_was_skipped_is_told_with_the_reason(db: str, interlock: Run) -> None:
    told = json.loads(interlock("schedule", "skipped", "hourly", "--db", db, "--json").stdout)
    (row,) = told["skipped"]
    assert (row["count"], row["first"]) == (1, "2026-06-01T16:00:00+02:00")
    assert row["reason"].endswith("of the instant before has not ended")
    assert "missed: nobody looked until" in interlock("schedule", "skipped", "often", "--db", db).stdout


def test_flags_may_come_from_the_environment(db: str, interlock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_DB", db)
    monkeypatch.setenv("INTERLOCK_ACTOR", "bob")
    monkeypatch.setenv("INTERLOCK_REASON", "because")
    monkeypatch.setenv("INTERLOCK_NEXT", "1")
    interlock("schedule", "pause", "often")
    found = listed(interlock, db)
    assert "paused by bob" in str(found["often"]["paused"])
    assert ": because;" in str(found["often"]["paused"])
    assert found["hourly"]["next"] == ["2026-06-01T17:00:00+02:00"]


def test_an_empty_list_says_how_to_make_one(tmp_path: Path, interlock: Run) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    connection = SqliteConnection(str(tmp_path / "new.db"))
    migrate.upgrade(connection, shipped().values())
    connection.close()
    assert interlock("schedule", "list", "--db", url).stdout.startswith("there is no schedule; `@app.every(…)`")


def test_an_unknown_schedule_is_a_sentence(db: str, interlock: Run) -> None:
    for verb in ("pause", "skipped"):
        done = interlock("schedule", verb, "none", "--db", db)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("interlock: there is no schedule 'none'")


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path, interlock: Run) -> None:
    done = interlock("schedule", "list", "--db", f"sqlite:///{tmp_path / 'none.db'}")
    assert done.returncode == 2
    assert not (tmp_path / "none.db").exists()
