"""The record of acts: what a cursor reads of them, what seals know of them, and what stays when they are gone."""

from contextlib import closing
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import Finish, Outcome, Start, Submit, Tick, Work
from interlock.kernel.rows import Event
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store import seals as sealing
from interlock.store.caller_transaction import join_transaction
from interlock.store.postgres import PostgresConnection
from interlock.store.queries.snapshots import read_events_after
from interlock.store.seals import write_seal
from tests.engine.test_archive import archive
from tests.engine.test_ci import started
from tests.engine.world import World, held
from tests.store.databases import declare, fresh, fresh_postgres
from tests.store.raw_acts import bear, newborn, owner_of, path_of, transaction, write_units

ATTEMPTS = "SELECT id FROM unit WHERE parent = :job ORDER BY id"


def submit(world: World, count: int) -> list[int]:
    return [one.unit for one in world.send(Submit(work=(Work(task="mail"),) * count))]


def journal(world: World, page: int) -> list[Event]:
    """Everything that a reader gets who takes so many events at a time."""
    declare(world.connection, 1)
    after, seen = (0, 0), list[Event]()
    while found := read_events_after(world.connection, after, page):
        after = found[-1][0]
        seen += [event for _, event in found]
    return seen


@pytest.mark.parametrize("page", [1, 2, 3, 1_000])
def test_a_cursor_rests_inside_an_act_and_goes_on_there(world: World, page: int) -> None:
    """Units that moved alike share an act, of which a reader need not take all at once."""
    units = submit(world, 5)
    for grant in world.claim(world.worker(), 5):
        world.start(grant)
    assert world.count("act", "version = 0") == 2  # the births of the jobs, and that of the worker
    told = [(event.unit, event.version) for event in journal(world, page)]
    wanted = [(one, version) for one in units for version in range(1, world.unit(one).version + 1)]
    assert sorted(pair for pair in told if pair[0] in units) == wanted
    assert len(told) == len(set(told)) == world.count("event")


def test_at_a_cursor_no_effect_stands_before_its_cause(world: World) -> None:
    """Attempts of two CI jobs fail together: each job follows its attempt, and its next attempt is born by that.

    One of the jobs has failed before, so that it moves by another act than the other one.
    """
    jobs = started(world, ("build", True, ()), ("test", True, ()), attempts=3)[1:]
    worker = world.worker()
    first, second = world.claim(worker, 2)
    for grant in (first, second):
        world.start(grant)
    world.finish(second, ended="failure")
    (third,) = world.claim(worker)
    world.start(third)
    failed = tuple(Outcome(held=held(grant), ended="failure") for grant in (first, third))
    world.send(Finish(outcomes=failed))
    places = {(event.unit, event.version): place for place, event in enumerate(journal(world, 1_000))}
    of_job = {job: [unit for (unit,) in world.connection.rows(ATTEMPTS, {"job": job})] for job in jobs}
    assert [len(attempts) for attempts in of_job.values()] == [2, 3]
    for job, attempts in of_job.items():
        moved = {event.attempt: places[job, event.version] for event in reversed(world.events(job))}
        for number, (before, after) in enumerate(pairwise(attempts), start=2):
            ended = max(places[before, event.version] for event in world.events(before))
            assert ended < moved[number] < places[after, 1], (job, number)


def test_each_hop_of_an_act_has_its_own_attempt_and_fence(world: World) -> None:
    """A start and a failure that are told together are one act, whose second hop opens an attempt."""
    job = world.submit()
    (grant,) = world.claim(world.worker())
    committer = world.engine.committer
    committer.put(Start(held=(held(grant),)))
    committer.put(Finish(outcomes=(Outcome(held=held(grant), ended="failure", error="no route"),)))
    while committer.step():
        pass
    events = world.events(job)
    assert [(event.trigger, event.attempt, event.fence) for event in events] == [
        ("submit", 1, 0), ("claim", 1, 1), ("start", 1, 1), ("retry", 2, 1),
    ]  # fmt: skip
    assert events[2].hash == events[3].hash != events[1].hash
    assert (world.unit(job).attempt, world.unit(job).fence) == (2, 1)


# Seals.


def test_every_act_is_under_one_seal_and_roots_go_on(world: World) -> None:
    """Recomputed here by hand: a root is the digest of the root before and an act's digest, act by act."""
    for _ in range(3):
        submit(world, 2)
        world.pass_time(1)
        world.tick()
    declare(world.connection, 1)
    acts = world.connection.rows("SELECT id, digest FROM act ORDER BY id")
    seals = world.connection.rows("SELECT number, first_act, last_act, acts, root FROM seal ORDER BY number")
    assert len(seals) >= 2
    root, done = sha256(b"interlock").hexdigest(), 0
    for place, (number, first, last, count, told) in enumerate(seals, start=1):
        some = acts[done : done + count]
        for _, digest in some:
            root = sha256(f"{root}{digest}".encode()).hexdigest()
        assert (number, first, last, told) == (place, some[0][0], some[-1][0], root)
        done += count
    assert done == len(acts)


def test_no_act_comes_below_a_seal(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that is open while others are sealed writes acts that stand before theirs."""
    monkeypatch.setattr(sealing, "EVERY_US", 0)
    with fresh_postgres(server, "below_a_seal") as url, open_engine(url, shipped()) as engine:
        engine.send(Submit(work=(Work(task="first"),)))
        with psycopg.connect(url) as slow:
            engine.send_within(join_transaction(slow), Submit(work=(Work(task="late"),)))
            engine.send(Submit(work=(Work(task="quick"),)))
            engine.send(Tick())
            assert engine.read(lambda connection: connection.rows("SELECT sum(acts) FROM seal")) == [(1,)]
        engine.send(Tick())
        assert engine.read(lambda connection: connection.rows("SELECT sum(acts) FROM seal")) == [(3,)]
        assert engine.read(lambda connection: list(audit(connection, shipped()))) == []


def test_of_two_who_tick_one_seals_and_the_other_does_not_wait(server: str) -> None:
    with fresh_postgres(server, "two_who_seal") as url, open_engine(url, shipped()) as engine:
        engine.send(Submit(work=(Work(task="first"),)))
        with closing(PostgresConnection(url)) as one, closing(PostgresConnection(url)) as two:
            for connection in (one, two):
                connection.begin([1])
                connection.rows("SELECT set_config('lock_timeout', '100ms', true)")
                write_seal(connection, 1, 1)
                write_seal(connection, 1, 1)
            for connection in (one, two):
                connection.commit()
        assert engine.read(lambda connection: connection.rows("SELECT number, acts FROM seal")) == [(1, 1)]


def test_what_retention_takes_leaves_its_digest_under_its_seal(tmp_path: Path, server: str) -> None:
    with fresh("sqlite memory", tmp_path, server) as connection:
        world = World(connection)
        leaves, stays = submit(world, 1)[0], submit(world, 1)[0]
        world.cancel(leaves)
        world.tick()
        digests = connection.rows("SELECT id, digest FROM act ORDER BY id")
        archive(world, leaves)  # every law is asked behind it, the seals' among them
        left = connection.rows("SELECT id, digest FROM act UNION ALL SELECT id, digest FROM act_gone ORDER BY id")
        assert left[: len(digests)] == digests
        assert world.count("act_gone") == 2
        assert world.unit(stays).state == "queued"


# By hand.


def test_a_unit_that_the_act_of_its_birth_does_not_name(tmp_path: Path, server: str) -> None:
    """The act bears one unit, and the same transaction says that it has borne two."""
    path = path_of("job", "", None, "submit")
    with fresh("postgres", tmp_path, server) as database:
        with transaction(database):
            act = bear(database, 1)
            with pytest.raises(Exception, match=r"interlock guard \[event-first\]"), transaction(database):
                write_units(database, [newborn(path, 2, 1, act, 1)])
            database.rollback()
        assert database.rows("SELECT id FROM unit") == []


def test_an_edge_is_never_renamed(world: World, server: str) -> None:
    """What happened under a name keeps it, even against the owner."""
    job = world.submit()
    before = world.names(job)
    for change in ("name = 'renamed'", "severity = 'error'", "target = 'queued'", "opens_attempt = 1 - opens_attempt"):
        with (
            owner_of(world.connection, server) as owner,
            pytest.raises(Exception, match=r"interlock guard \[append-only\]"),
        ):
            owner.rows(f"UPDATE edge SET {change} WHERE lifecycle = 'job'")
    assert world.names(job) == before
