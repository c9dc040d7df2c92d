"""A database that came back from a backup: what was granted before it is void, and the record goes on behind it."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from interlock.audit import anchors
from interlock.audit.laws import audit
from interlock.kernel.commands import Claim, Heartbeat, Register, Submit, Work
from interlock.kernel.errors import InterlockError, StoreError
from interlock.lifecycles import load, shipped
from interlock.plugins import open_engine
from interlock.store import migrate, rights
from interlock.store.postgres import PostgresConnection
from interlock.store.queries.snapshots import BEGINNING, read_epoch, read_events_after, snapshot
from interlock.store.restore import REASON
from interlock.store.sqlite import SqliteConnection
from tests.cli.inside import Done, inside
from tests.engine.world import World, held
from tests.lifecycles.sample import PARCEL
from tests.postgres.server import INSTALL
from tests.postgres.server import postgres as started_server
from tests.store.databases import Connection, alone, declare, fresh, swap
from tests.store.owners import PROGRAM, make_role

KINDS = ("sqlite file", "postgres")
SUBMIT = Submit(work=(Work(task="mail"),))


class Place:
    """A world in which one job is done and two are held, one of them for the last time; and a way to its owner."""

    def __init__(self, world: World, url: str) -> None:
        self.world, self.url = world, url
        done = world.submit()
        self.worker = world.worker()
        (grant,) = world.claim(self.worker)
        world.start(grant)
        world.finish(grant)
        self.done, self.again, self.last = done, world.submit(), world.submit(attempts=1)
        self.leases = world.claim(self.worker, limit=2)
        assert [lease.unit for lease in self.leases] == [self.again, self.last]

    def restored(self, *more: str) -> Done:
        self.world.connection.rollback()
        return inside(self.url)("db", "restored", *more)

    def acts(self) -> list[int]:
        return self.acts_of(self.world.connection)

    @staticmethod
    def acts_of(connection: Connection) -> list[int]:
        declare(connection, 1)
        return [one for (one,) in connection.rows("SELECT id FROM act ORDER BY id")]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[Place]:
    with fresh(request.param, tmp_path, server) as connection:
        name = connection.raw.info.dbname if isinstance(connection, PostgresConnection) else ""
        yield Place(World(connection), swap(server, name) if name else f"sqlite:///{tmp_path / 'test.db'}")


def test_every_live_lease_is_void_and_the_record_tells_why(place: Place) -> None:
    told = place.restored("--while-connected", "--json")
    assert told.code == 0
    world = place.world
    assert told.json["void"] == 2
    assert (told.json["generation"], told.json["left"]) == (1, [])
    for lease in place.leases:
        event = world.events(lease.unit)[-1]
        assert (event.actor, event.reason) == ("ann", REASON)
        heard = world.beat(lease)
        assert (heard.accepted, heard.why) == (False, "LEASE_REVOKED")
    assert [world.unit(one).state for one in (place.done, place.again, place.last)] == [
        "succeeded", "queued", "dead_lettered",
    ]  # fmt: skip
    (grant,) = world.claim(place.worker)
    assert (grant.unit, grant.fence) == (place.again, 2)
    world.finish(grant)


def test_new_acts_come_behind_old_ones_and_audits_are_clean(place: Place) -> None:
    before = place.acts()
    place.restored("--while-connected")
    place.world.submit()
    after = place.acts()
    assert after[: len(before)] == before
    assert len(after) > len(before)
    if place.world.connection.many_writers:
        assert [one >> 54 for one in after] == [0] * len(before) + [1] * (len(after) - len(before))
    with snapshot(place.world.connection):
        assert list(audit(place.world.connection, shipped(), rebuild=True)) == []


def test_an_anchor_from_before_is_refused_and_says_so(place: Place, tmp_path: Path) -> None:
    connection, file = place.world.connection, tmp_path / "anchor"
    with snapshot(connection):
        anchors.write(connection, file)
    old = read_epoch(connection)
    told = place.restored("--while-connected", "--json").json
    assert read_epoch(connection) == told["epoch"] != old
    refused = inside(place.url)("audit", "--since", str(file))
    assert refused.code == 2
    assert f"is an anchor of this database before it was restored: its epoch, {old}, ended at 20" in refused.err
    assert inside(place.url)("audit", "--anchor", str(tmp_path / "next")).code == 0
    assert inside(place.url)("audit", "--since", str(tmp_path / "next")).code == 0


def test_what_was_counted_still_counts(place: Place) -> None:
    connection = place.world.connection
    given = {"epoch": read_epoch(connection)}
    declare(connection, 1)
    connection.rows("INSERT INTO tallied (tenant, epoch, act, place) VALUES (1, :epoch, 3, 4)", given)
    told = place.restored("--while-connected", "--json").json
    declare(connection, 1)
    assert connection.rows("SELECT epoch, act, place FROM tallied") == [(told["epoch"], 3, 4)]


def test_leases_of_every_tenant_are_void(place: Place) -> None:
    world = place.world
    (made,) = world.send(Submit(work=(Work(task="mail"),), tenant=2))
    worker = world.send(Register(name="w", incarnation="1", capacity=1, tenant=2))
    (grant,) = world.send(Claim(worker=worker, limit=1, key="c", nonce="0" * 16, tenant=2))
    assert grant.unit == made.unit
    assert place.restored("--while-connected", "--json").json["void"] == 3
    (heard,) = world.send(Heartbeat(held=(held(grant),), running=True, tenant=2))
    assert heard.why == "LEASE_REVOKED"


def test_it_can_be_said_twice(place: Place) -> None:
    assert place.restored("--while-connected", "--json").json["void"] == 2
    again = place.restored("--while-connected", "--json").json
    assert (again["generation"], again["void"]) == (2, 0)
    place.world.submit()


def test_a_program_that_stayed_connected_goes_on(place: Place) -> None:
    """It may have one command refused, whose act begins as acts began before; the next one begins as they do now."""
    assert place.restored("--while-connected").code == 0
    with suppress(StoreError):
        place.world.engine.send(SUBMIT)
    place.world.send(SUBMIT)


def test_a_lease_that_cannot_be_voided_is_named(tmp_path: Path) -> None:
    """A lifecycle of one's own is known by its file, as for every other command."""
    file = tmp_path / "parcel.toml"
    file.write_text(PARCEL)
    parcel = load(file)
    with fresh("sqlite file", tmp_path, "", parcel) as connection:
        world = World(connection, {**shipped(), parcel.name: parcel})
        unit = world.submit(lifecycle=parcel.name)
        world.claim(world.worker())
    ask = inside(f"sqlite:///{tmp_path / 'test.db'}")
    told = ask("db", "restored", "--json")
    assert told.code == 1
    assert [one["unit"] for one in told.json["left"]] == [unit]
    assert ask("--lifecycles", str(file), "db", "restored", "--json").json["void"] == 1


# PostgreSQL alone: others may be connected, roles may not be enough, and another server counts anew.


@pytest.fixture
def of_server(tmp_path: Path, server: str) -> Iterator[Place]:
    with fresh("postgres", tmp_path, server) as connection:
        assert isinstance(connection, PostgresConnection)
        yield Place(World(connection), swap(server, connection.raw.info.dbname))


def test_it_is_refused_while_others_are_connected(of_server: Place) -> None:
    refused = of_server.restored()
    assert refused.code == 2
    assert "others are connected to this database: " in refused.err
    assert "(ordinary" in refused.err
    assert "--while-connected" in refused.err
    assert all(of_server.world.beat(lease).accepted for lease in of_server.leases)


def test_only_the_owner_says_so(of_server: Place) -> None:
    url = of_server.url.replace("//postgres@", "//operator@")
    refused = inside(url)("db", "restored", "--while-connected")
    assert (refused.code, "connect as its owner" in refused.err) == (2, True)


def test_a_dump_goes_on_in_another_server(of_server: Place, tmp_path: Path) -> None:
    """Its transactions are counted anew, and new acts would come first: programs are refused until it is said."""
    before = of_server.acts()
    alone(of_server.url, "DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$")
    late = of_server.world.submit()
    dump = tmp_path / "dump"
    client("pg_dump", "-d", of_server.url, "-Fc", "-f", dump)
    with started_server() as another:
        for role in (*rights.PURPOSES, PROGRAM):
            make_role(another, role)
        alone(another, f"GRANT {rights.APP} TO {PROGRAM}")
        client("pg_restore", "-d", another, "--exit-on-error", dump)
        program = another.replace("//postgres@", f"//{PROGRAM}@")
        with pytest.raises(InterlockError, match=r"`interlock db restored --db URL`"):
            open_engine(program, shipped())
        ask = inside(another)
        assert "counts transactions anew" in ask("db", "doctor").out
        assert ask("db", "restored", "--json").json["void"] == 2
        with closing(PostgresConnection(program, lambda: of_server.world.now_us)) as connection:
            world = World(connection)
            migrate.prepare(connection, shipped().values())
            for lease in of_server.leases:
                assert world.beat(lease).why == "LEASE_REVOKED"
            fresh_unit = world.submit()
            there = Place.acts_of(connection)
            assert set(before) < set(there)
            assert world.unit(fresh_unit).born == max(there) > world.unit(late).born
            declare(connection, 1)
            read = [event.unit for _, event in read_events_after(connection, BEGINNING, 1_000)]
            assert read[-1] == fresh_unit
        assert ask("audit", "--rebuild").code == 0


def client(program: str, *args: object) -> None:
    """One of PostgreSQL's own programs has done its work."""
    done = subprocess.run([INSTALL / "bin" / program, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_file_that_was_copied_back_is_told_so(tmp_path: Path) -> None:
    """What was done since the copy is gone, and whoever did it is refused."""
    with fresh("sqlite file", tmp_path, "") as connection:
        world = World(connection)
        unit, worker = world.submit(), world.worker()
        connection.rows("VACUUM INTO :copy", {"copy": str(tmp_path / "copy.db")})
        (grant,) = world.claim(worker)
    with closing(SqliteConnection(str(tmp_path / "copy.db"), lambda: world.now_us)) as connection:
        assert inside(f"sqlite:///{tmp_path / 'copy.db'}")("db", "restored", "--json").json["void"] == 0
        again = World(connection)
        assert again.beat(grant).why == "UNKNOWN_LEASE"
        (anew,) = again.claim(worker, key="another")
        assert anew.unit == unit
        assert (again.beat(grant).accepted, again.beat(anew).accepted) == (False, True)
