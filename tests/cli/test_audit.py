"""`interlock audit` with its anchors and `interlock force`, as an operator runs them."""

import getpass
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.cli.audit import CHECKS as CORE_CHECKS
from interlock.kernel.commands import LeaseGrant
from interlock.kernel.ids import format_id
from interlock.plugins import STANDARD
from interlock.store.postgres import PostgresConnection
from tests.conftest import Run
from tests.engine.tamper import behind_the_guard, rewrite
from tests.engine.test_rebuild import much_work
from tests.engine.world import World
from tests.store.databases import Connection, fresh

CHECKS = len(CORE_CHECKS) + len(STANDARD.laws)


class Place:
    """A world, and the URL of its database."""

    def __init__(self, connection: Connection, folder: Path, server: str) -> None:
        self.connection, self.server, self.folder = connection, server, folder
        self.world = World(connection)
        self.url = f"sqlite:///{folder}/test.db"
        if isinstance(connection, PostgresConnection):
            info = connection.raw.info
            self.url = f"postgresql://operator@{info.host}:{info.port}/{info.dbname}"


@pytest.fixture(params=["sqlite file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Place]:
    with fresh(request.param, tmp_path, server) as connection:
        yield Place(connection, tmp_path, server)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Place]:
    with fresh("sqlite file", tmp_path, "") as connection:
        yield Place(connection, tmp_path, "")


@pytest.mark.req("X-28")
def test_one_command_audits_the_whole_database(place: Place, started: Run) -> None:
    first, second, third = (place.folder / name for name in ("first", "second", "third"))
    job = place.world.submit()
    much_work(place.world)
    done = started("audit", "--rebuild", "--anchor", first, "--db", place.url, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told.pop("anchor")["digest"] == json.loads(first.read_text().splitlines()[-1])["digest"]
    assert told.pop("unsealed")["acts"] >= 0
    assert told == {"laws": CHECKS + 1, "found": 0, "findings": [], "ok": True, "forced": []}

    much_work(place.world, seed=8, commands=50)
    done = started("audit", "--since", first, "--anchor", second, "--db", place.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{CHECKS + 1} checks run, no problems found\n" in done.stdout
    assert " anchored, digest " in done.stdout

    with behind_the_guard(place.connection, place.server) as owner:
        rewrite(owner, job, actor="nobody")
    assert started("audit", "--rebuild", "--db", place.url).returncode == 0
    done = started("audit", "--since", first, "--anchor", third, "--db", place.url)
    assert done.returncode == 1
    assert "are not those that were anchored" in done.stdout
    assert "[what was anchored is still there]\n" in done.stdout
    assert done.stdout.endswith(f"\n{CHECKS + 1} checks run, 1 problem found\n")
    assert not third.exists()

    with behind_the_guard(place.connection, place.server) as owner:
        owner.rows("UPDATE unit SET changed_at = changed_at + 1")
    done = started("audit", "--rebuild", "--db", place.url, "--json")
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["found"] == len(told["findings"]) > 1
    assert {finding["law"] for finding in told["findings"]} == {"rows are rebuilt from events"}


def test_an_anchor_that_cannot_be_used_is_told(small: Place, interlock: Run) -> None:
    anchor, other = small.folder / "anchor", f"sqlite:///{small.folder}/other.db"
    interlock("audit", "--anchor", anchor, "--db", small.url)
    interlock("db", "upgrade", "--db", other)
    kept = anchor.read_bytes()
    (small.folder / "half").write_bytes(kept[:-1])
    for args, said in (
        (("--since", small.folder / "half", "--db", small.url), "is no anchor, or is damaged (line 2): it is cut off"),
        (("--since", anchor, "--db", other), "is an anchor of another database: its epoch is "),
        (("--since", small.folder / "none", "--db", small.url), "cannot be read: No such file"),
        (("--since", small.folder, "--db", small.url), "cannot be read: Is a directory"),
        (("--anchor", anchor, "--db", small.url), "exists; an anchor is not written over: name another file"),
        (("--anchor", small.folder / "no" / "folder", "--db", small.url), "does not exist"),
    ):
        done = interlock("audit", *args)
        assert (done.returncode, done.stdout) == (2, ""), args
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert anchor.read_bytes() == kept


def test_since_reads_the_file_of_what_was_archived(place: Place, interlock: Run) -> None:
    world, anchor, file = place.world, place.folder / "anchor", place.folder / "old.jsonl"
    world.finish(started(world, world.submit()))
    assert interlock("audit", "--anchor", anchor, "--db", place.url).returncode == 0
    assert interlock("archive", "--all", "--out", file, "--db", place.url).returncode == 0
    check = ("audit", "--since", anchor, "--db", place.url)
    assert interlock(*check).returncode == 0
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    moved = file.rename(elsewhere / file.name)
    lost = interlock(*check)
    assert (lost.returncode, "which cannot be read (No such file or directory)" in lost.stdout) == (1, True)
    assert interlock(*check, "--archives", elsewhere).returncode == 0
    moved.unlink()
    assert interlock(*check, "--archives", elsewhere).returncode == 1


def started(world: World, job: int) -> LeaseGrant:
    """The grant of a job that runs."""
    (grant,) = world.claim(world.worker())
    assert grant.unit == job
    world.start(grant)
    return grant


@pytest.mark.req("X-18")
def test_force_leaves_an_event_that_bears_its_mark(place: Place, interlock: Run) -> None:
    job, why = place.world.submit(), "[INC-7] the machine burnt down"  # no list, although it begins like one
    place.world.claim(place.world.worker())
    done = interlock("force", str(job), "failed", "--reason", why, "--actor", "ann", "--db", place.url)
    version = place.world.unit(job).version
    assert (done.returncode, done.stderr) == (0, "")
    name = format_id("job", job)
    assert done.stdout == f"{name} is failed (version {version}), forced by ann\n"
    event = place.world.events(job)[-1]
    assert (event.trigger, event.name, event.severity) == ("force", "forced", "warning")
    assert (event.actor, event.reason, event.source, event.target) == ("ann", why, "assigned", "failed")
    again = interlock("force", name, "queued", "--reason", "it was saved", "--db", place.url, "--json")
    assert json.loads(again.stdout) == {"unit": name, "state": "queued", "version": version + 1, "applied": True}
    assert place.world.events(job)[-1].actor == getpass.getuser()
    assert interlock("audit", "--rebuild", "--db", place.url).returncode == 0


@pytest.mark.req("X-18")
def test_a_force_that_cannot_be_changes_nothing(small: Place, interlock: Run) -> None:
    job = small.world.submit()
    before, given = small.world.unit(job), str(job)
    for args, said in (
        ((given, "failed"), "Missing option '--reason'"),
        ((given, "failed", "--reason", " "), "force needs a reason"),
        ((given, "failed", "--reason", "x", "--actor", " "), "nobody is named who does this; give --actor"),
        ((given, "paused", "--reason", "x"), "a job has no state 'paused'; it has queued, "),
        (("999", "failed", "--reason", "x"), "no job, run or step 999"),
        ((given, "failed", "--reason", "x", "--tenant", "2"), f"no job, run or step {given}"),
        (("J1", "failed", "--reason", "x"), "no job, run or step 577"),
        (("9" * 30, "failed", "--reason", "x"), f"'{'9' * 30}' is no id; one looks like job_4r1"),
        ((given, "failed", "--reason", "x", "--db", f"sqlite:///{small.folder}/none.db"), "there is no database"),
    ):
        done = interlock("force", "--db", small.url, *args)
        assert (done.returncode, done.stdout) == (2, ""), args
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert small.world.unit(job) == before
    assert len(small.world.events(job)) == before.version
