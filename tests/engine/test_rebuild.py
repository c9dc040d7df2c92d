"""Rows can be rebuilt from events; every law finds what breaks it; an audit is one picture, read in pages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.audit.laws import audit, record
from interlock.audit.laws.rebuild import FoldedRow, Listed, fold, rebuild_row
from interlock.audit.laws.rows import LAWS, REBUILT
from interlock.kernel.commands import Force, Submit, Work
from interlock.kernel.minute_metrics import MINUTE_US
from interlock.kernel.rows import Unit
from interlock.lifecycles import shipped
from interlock.store import seals
from interlock.store.postgres import PostgresConnection
from interlock.store.queries import snapshots
from interlock.store.queries.snapshots import read_histories, read_rows, snapshot
from interlock.store.sqlite import SqliteConnection
from interlock.testing.simulation.random_commands import Chance
from tests.engine.tamper import acts_of, behind_the_guard
from tests.engine.test_random_commands import ask
from tests.engine.world import World
from tests.store.databases import Connection, declare, fresh

DETERMINED = tuple(FoldedRow.__struct_fields__)
LIFECYCLES = shipped()
LATER = 4_000_000_000 * 1_000_000  # a minute that is kept


def much_work(world: World, seed: int = 7, commands: int = 300) -> None:
    chance = Chance(seed)
    for command, wait in chance.commands(commands):
        world.pass_time(wait)
        chance.learn(command, ask(world, command))
    declare(world.connection, 1)


def units(database: Connection) -> list[Unit]:
    return read_rows(database, Unit, "ORDER BY id")


def broken(database: Connection) -> set[str]:
    return {one.law for one in audit(database, LIFECYCLES, rebuild=True)}


@pytest.mark.req("X-16")
def test_rows_are_thrown_away_and_built_again_from_their_events(world: World, server: str) -> None:
    much_work(world)
    reopened, closed = world.submit(), world.submit(lifecycle="ci_run")
    for unit, state in ((reopened, "failed"), (reopened, "queued"), (closed, "FAILED"), (closed, "REPORTED")):
        world.send(Force(unit=unit, state=state, reason="a story"))
    assert (world.unit(reopened).outcome, world.unit(closed).outcome) == (None, "failure")
    before = units(world.connection)
    assert len(before) > 30
    assert broken(world.connection) == set()
    with behind_the_guard(world.connection, server) as owner:
        owner.rows(
            "UPDATE unit SET state = '', category = '', outcome = NULL, version = 0, act = 0, born = 0, changed_at = 0, "
            "attempt = 0, fence = 0, lease = NULL"
        )
        assert {one.unit for one in audit(owner, LIFECYCLES, rebuild=True) if one.law == REBUILT} == {
            unit.id for unit in before
        }
        for column, which in (("act", "max"), ("born", "min")):  # acts say which of them a unit comes from
            acts = f"SELECT {which}(act) FROM journal_unit WHERE journal_unit.unit = unit.id"
            owner.rows(f"UPDATE unit SET {column} = ({acts})")
        lease = LIFECYCLES["lease"]
        again = [
            rebuild_row(unit, fold(events, Listed(LIFECYCLES[unit.lifecycle], lease)))
            for unit, events in read_histories(owner)
        ]
        owner.update(again, DETERMINED, "id")
    assert units(world.connection) == before
    assert broken(world.connection) == set()


@pytest.mark.req("X-16")
@pytest.mark.parametrize("column", [*DETERMINED, "holder"])
def test_a_row_that_an_operator_has_edited_is_found(column: str, world: World, server: str) -> None:
    job = world.submit()
    world.claim(world.worker())
    value: Any = "waiting" if isinstance(getattr(world.unit(job), column), str | None) else 77
    with behind_the_guard(world.connection, server) as owner:
        owner.rows(
            f"UPDATE unit SET {column} = :value WHERE id = :id",
            {"value": None if column == "holder" else value, "id": job},
        )
        if column == "lifecycle":  # a lifecycle that exists
            owner.rows("UPDATE unit SET lifecycle = 'task' WHERE id = :id", {"id": job})
        texts = [one.text for one in audit(owner, LIFECYCLES, rebuild=True) if (one.law, one.unit) == (REBUILT, job)]
    assert any(text.startswith(f"its {column} is ") for text in texts), texts


def lose_step(world: World, worker: int) -> int:
    """A run that the loss of a step has ended, and with it another step."""
    steps = [Work(task=name, lifecycle="step", parent="run", queue=name, attempts=1) for name in ("lost", "open")]
    run = Work(task="run", lifecycle="workflow_run", ref="run")
    (made, *_) = world.send(Submit(work=(run, *steps)))
    (grant,) = world.claim(worker, queues=("lost",))
    world.start(grant)
    world.finish(grant, ended="failure", error="no")
    return made.unit


def lived_in(world: World) -> dict[str, int]:
    """A database with a unit in every place that the cases of tampering speak of, and seals over some of it."""
    worker = world.worker()
    done, held, free = (world.submit() for _ in range(3))
    first, _ = world.claim(worker, limit=2)
    world.start(first)
    world.finish(first, result="42")
    world.tick()
    failed = world.submit(queue="other", attempts=1)
    (last,) = world.claim(worker, queues=("other",))
    world.start(last)
    world.finish(last, ended="failure", error="no", traceback="at line 1")
    taken = world.submit(queue="third")
    (given_back,) = world.claim(worker, queues=("third",))
    world.release(given_back)
    world.cancel(taken)
    run = Work(task="run", lifecycle="workflow_run", ref="run")
    steps = (
        Work(task="a", lifecycle="step", parent="run", ref="a"),
        Work(task="b", lifecycle="step", parent="run", needs=("a",)),
    )
    family = [one.unit for one in world.send(Submit(work=(run, *steps)))]
    gate = world.submit(lifecycle="approval")
    lost_run = lose_step(world, worker)
    limited = world.submit(losses=1)
    world.pass_time(1)
    world.tick()
    for _ in range(2):
        world.submit(mutex="printer")
    names = {"done": done, "held": held, "free": free, "run": family[0], "needy": family[2], "worker": worker}
    claimed, started, ended = acts_of(world.connection, done)[1:]
    acts = {"claimed": claimed.id, "started": started.id, "ended": ended.id, "birth": world.unit(free).born}
    paths = {"claim_path": claimed.path, "start_path": started.path}
    return {
        **names,
        **acts,
        **paths,
        "failed": failed,
        "lost_run": lost_run,
        "limited": limited,
        "taken": taken,
        "gate": gate,
        "failure": world.unit(failed).act,
    }


CASES = [
    ("no gap", "DELETE FROM act WHERE id = {claimed}"),
    ("no gap", "UPDATE act SET version = version + 1 WHERE id = {started}"),
    ("every hop is listed", "UPDATE path_hop SET trigger = 'cancel' WHERE path = {claim_path}"),
    ("forced moves were allowed", "UPDATE path_hop SET trigger = 'force' WHERE path = {claim_path}"),
    ("each event begins where the last ended", "UPDATE path_hop SET source = 'running' WHERE path = {claim_path}"),
    ("each event begins where the last ended", "UPDATE act SET at = 1 WHERE id = {started}"),
    ("each event begins where the last ended", "UPDATE act SET tenant = 2 WHERE id = {started}"),
    ("attempts and fences are counted", "UPDATE act SET attempt = 2 WHERE id = {started}"),
    ("attempts and fences are counted", "UPDATE act SET fence = 0 WHERE id = {started}"),
    ("attempts and fences are counted", "UPDATE path_hop SET fence = 2 WHERE path = {claim_path}"),
    ("acts are what their digests say", "UPDATE act SET actor = 'somebody else' WHERE id = {claimed}"),
    ("acts are what their digests say", "UPDATE act SET path = {start_path} WHERE id = {claimed}"),
    ("acts are what their digests say", "UPDATE act SET payload = 'true' WHERE id = {ended}"),
    ("acts are what their digests say", "UPDATE act SET at = at + 1 WHERE id = {ended}"),
    ("acts are what their digests say", "UPDATE act SET digest = 'no digest' WHERE id = {ended}"),
    ("acts are what their digests say", "UPDATE act_detail SET payload = '[]' WHERE unit = {failed}"),
    ("acts are what their digests say", "UPDATE body SET correlation = 'another' WHERE unit = {free}"),
    ("paths are what their digests say", "UPDATE path_hop SET name = 'renamed' WHERE path = {claim_path}"),
    ("paths are what their digests say", "UPDATE path_hop SET severity = 'error' WHERE path = {claim_path}"),
    ("paths are what their digests say", "UPDATE transition_path SET told = 'no json' WHERE id = {claim_path}"),
    ("clocks are looked at", "UPDATE unit SET wake_at = 1 WHERE id = {free}"),
    ("acts list the units that they moved", "UPDATE unit SET act = {birth} WHERE id = {done}"),
    ("acts list the units that they moved", "UPDATE unit SET act = {claimed} WHERE id = {done}"),
    ("acts list the units that they moved", "UPDATE unit SET act = 0 WHERE id = {done}"),
    ("acts list the units that they moved", "UPDATE unit SET born = {claimed} WHERE id = {done}"),
    ("acts list the units that they moved", "DELETE FROM act WHERE id = {birth}"),
    ("leases are what acts have granted", "DELETE FROM lease WHERE id = (SELECT lease_id FROM unit WHERE id = {held})"),
    (
        "leases are what acts have granted",
        "UPDATE lease SET secret = 'mine' WHERE id = (SELECT lease_id FROM unit WHERE id = {held})",
    ),
    (
        "leases are what acts have granted",
        "UPDATE lease SET worker = 9 WHERE id = (SELECT lease_id FROM unit WHERE id = {held})",
    ),
    (
        "leases are what acts have granted",
        "UPDATE lease SET until = 1 WHERE id = (SELECT lease_id FROM unit WHERE id = {held})",
    ),
    (
        "leases are what acts have granted",
        "UPDATE lease SET ended_at = 1 WHERE id = (SELECT lease_id FROM unit WHERE id = {held})",
    ),
    ("leases are what acts have granted", "UPDATE lease SET ended_at = NULL WHERE unit = {taken}"),
    (
        "leases are what acts have granted",
        "UPDATE lease SET id = id + 1 WHERE id = (SELECT lease_id FROM unit WHERE id = {held})",
    ),
    ("leases are what acts have granted", "UPDATE unit SET lease_hash = 'mine' WHERE id = {held}"),
    ("leases are what acts have granted", "UPDATE lease SET units = units + 1 WHERE unit = 0"),
    ("leases are what acts have granted", "UPDATE lease SET units = units - 1 WHERE unit = 0"),
    (
        "leases are what acts have granted",
        "INSERT INTO lease SELECT id, {held}, tenant, worker, 'mine', until, ttl, beat, NULL, 1 FROM lease WHERE unit = 0",
    ),
    ("seals are those of the acts below them", "UPDATE seal SET root = 'no root' WHERE number = 1"),
    ("seals are those of the acts below them", "UPDATE seal SET acts = acts + 1 WHERE number = 2"),
    ("seals are those of the acts below them", "UPDATE seal SET first_act = first_act - 1 WHERE number = 2"),
    ("seals are those of the acts below them", "DELETE FROM seal WHERE number = 1"),
    ("seals are those of the acts below them", "DELETE FROM act WHERE id = {claimed}"),
    ("seals are those of the acts below them", "UPDATE act SET digest = 'no digest' WHERE id = {failure}"),
    ("leases move as listed", "UPDATE path_hop SET lease_from = 'EXPIRED' WHERE path = {start_path}"),
    ("no grant beside a live lease", "UPDATE path_hop SET lease_from = NULL WHERE path = {start_path}"),
    ("settled results stay", "UPDATE path_hop SET source = 'succeeded' WHERE path = {start_path}"),
    ("state is the fold of events", "UPDATE unit SET state = 'failed', category = 'failure' WHERE id = {done}"),
    ("state is the fold of events", "DELETE FROM act WHERE id = {birth}"),
    ("one live lease at most", "UPDATE unit SET holder = NULL WHERE id = {held}"),
    ("one live lease at most", "UPDATE unit SET lease_id = NULL WHERE id = {held}"),
    ("one live lease at most", "UPDATE unit SET lease = 'REVOKED' WHERE id = {held}"),
    ("what is settled rests", "UPDATE unit SET outcome = NULL WHERE id = {done}"),
    ("what is settled rests", "UPDATE unit SET wake_at = 1 WHERE id = {done}"),
    ("available means claimable", "UPDATE unit SET available_at = NULL WHERE id = {free}"),
    ("available means claimable", "UPDATE unit SET available_at = 1 WHERE id = {needy}"),
    ("nothing is withheld", "UPDATE unit SET available_at = NULL, parked_on = 'withheld' WHERE id = {free}"),
    ("columns follow the state", "UPDATE unit SET fence = 7 WHERE id = {held}"),
    ("columns follow the state", "UPDATE unit SET category = 'gate' WHERE id = {held}"),
    ("columns follow the state", "UPDATE unit SET rests_in = 'queued' WHERE id = {free}"),
    ("columns follow the state", "UPDATE unit SET rests_in = NULL WHERE id = {gate}"),
    ("columns follow the state", "UPDATE unit SET dead_at = 1 WHERE id = {done}"),
    ("columns follow the state", "UPDATE unit SET dead_at = NULL WHERE id = {failed}"),
    ("every lifecycle is known", "UPDATE unit SET lifecycle = 'daydream' WHERE id = {done}"),
    ("every event has its unit", "DELETE FROM unit WHERE id = {done}"),
    ("workers hold what they hold", "UPDATE worker SET holding = 0"),
    ("workers hold what they hold", "UPDATE worker SET capacity = 0"),
    ("parents count their children", "UPDATE unit SET total = 9 WHERE id = {run}"),
    ("costs add up", "UPDATE unit SET cost = 9 WHERE id = {run}"),
    ("parents count their children", "DELETE FROM unit WHERE id = {needy}"),
    ("needs are counted", "UPDATE unit SET unmet = 0 WHERE id = {needy}"),
    ("nobody waits for what is lost", "UPDATE need SET needs = {failed} WHERE unit = {needy}"),
    ("terms are kept", "UPDATE unit SET lost = 1, decided = 1 WHERE id = {run}"),
    ("terms are kept", 'UPDATE body SET policy = \'{{"settle":"all"}}\' WHERE unit = {lost_run}'),
    ("terms are kept", "UPDATE unit SET losses = 2 WHERE id = {limited}"),
    ("terms are kept", "UPDATE body SET retry_of = unit WHERE unit = {free}"),
    ("terms are kept", "UPDATE body SET retry_of = {run} WHERE unit = {free}"),
    ("a name in a parent is one child", "UPDATE place SET name = 'other' WHERE unit = {needy}"),
    ("a name in a parent is one child", "UPDATE place SET parent = {free} WHERE unit = {needy}"),
    ("a name in a parent is one child", "DELETE FROM place WHERE unit = {needy}"),
    ("a name in a parent is one child", "UPDATE need SET needs = 999999 WHERE unit = {needy}"),
    ("nothing follows from what is plain", "UPDATE unit SET plain = 1 WHERE id = {needy}"),
    ("every unit has its body", "DELETE FROM body WHERE unit = {done}"),
    ("policies can be read", "UPDATE body SET policy = 'no json' WHERE unit = {done}"),
    ("results and errors are those that acts tell of", "UPDATE body SET result = '7' WHERE unit = {done}"),
    ("results and errors are those that acts tell of", "UPDATE body SET result = '7' WHERE unit = {free}"),
    ("results and errors are those that acts tell of", "UPDATE body SET error = 'another' WHERE unit = {failed}"),
    ("results and errors are those that acts tell of", "UPDATE note SET payload = '\"x\"' WHERE kind = 'traceback'"),
    ("keys are kept", "UPDATE slot SET taken = 0"),
    ("keys are kept", "UPDATE slot SET capacity = 2"),
    (
        "minutes add up to hours",
        f"INSERT INTO metric_minute VALUES (1, {MINUTE_US}, 'run', {LATER}, 'q', 3, 1, {LATER})",
    ),
    (REBUILT, "UPDATE unit SET changed_at = changed_at - 1 WHERE id = {done}"),
    (REBUILT, "UPDATE unit SET outcome = 'failure' WHERE id = {done}"),
]


def test_every_law_has_a_case() -> None:
    assert {law for law, _ in CASES} == {*LAWS, REBUILT}


@pytest.mark.req("X-28")
def test_every_kind_of_tampering_is_found_by_its_law(world: World, server: str) -> None:
    names = lived_in(world)
    assert broken(world.connection) == set()
    with behind_the_guard(world.connection, server) as owner:
        if owner.many_writers:  # there the digest is the database's own word, until its owner takes it back
            owner.rows("ALTER TABLE act ALTER digest DROP EXPRESSION")
        for law, statement in CASES:
            owner.rows("SAVEPOINT before")
            owner.rows(statement.format(**names))
            assert law in broken(owner), statement
            owner.rows("ROLLBACK TO before")
    assert broken(world.connection) == set()


class Counting:
    """A session that remembers how many rows it ever gave at once, and lets others work before each statement."""

    def __init__(self, inner: Connection, world: World | None = None) -> None:
        self.inner, self.world, self.most, self.works = inner, world, 0, 30

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def rows(self, sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        if self.world and "FROM" in sql and self.works:
            self.works -= 1  # without a snapshot there would be no end of new pages
            self.world.submit()
        found = self.inner.rows(sql, params)
        law = ("FROM transition_path", "FROM path_hop", "FROM edge")
        if not any(table in sql for table in law):  # what is listed does not grow with work
            self.most = max(self.most, len(found))
        return found


def test_an_audit_reads_a_page_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = world.worker()
    for _ in range(6):  # the worker alone has more events than a page
        world.submit()
        (grant,) = world.claim(worker)
        world.start(grant)
        world.finish(grant)
    assert world.unit(worker).version > 10
    world.tick()
    for module in (snapshots, record):
        monkeypatch.setattr(module, "PAGE", 3)
    for module, name in ((snapshots, "EVENTS_PAGE"), (seals, "SEALED_MOST")):
        monkeypatch.setattr(module, name, 3)
    connection = Counting(world.connection)
    assert list(audit(connection, LIFECYCLES, rebuild=True)) == []
    assert connection.most == 3
    assert (
        sum(len(list(events)) for _, events in read_histories(connection))
        == world.connection.rows("SELECT count(*) FROM event")[0][0]
    )


@pytest.mark.parametrize("kind", ["sqlite file", "postgres"])
def test_an_audit_is_one_picture_while_others_work(
    kind: str, tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "PAGE", 2)
    with fresh(kind, tmp_path, server) as connection:
        world = World(connection)
        for _ in range(5):
            world.submit()
        second: Connection = (
            PostgresConnection(connection.raw.info.dsn + " user=ordinary")
            if isinstance(connection, PostgresConnection)
            else SqliteConnection(str(tmp_path / "test.db"))
        )
        busy = Counting(second, world)
        with snapshot(busy):
            before = len(units(second))
            assert list(audit(busy, LIFECYCLES, rebuild=True)) == []
            assert len(units(second)) == before
        second.close()
        assert len(units(connection)) > before + 5


def test_an_event_of_a_state_that_does_not_exist_is_a_finding_and_no_fault(world: World, server: str) -> None:
    job = world.submit()
    with behind_the_guard(world.connection, server) as owner:
        (born,) = acts_of(owner, job)
        owner.rows("UPDATE path_hop SET target = 'nowhere' WHERE path = :path", {"path": born.path})
        owner.rows("UPDATE unit SET state = 'nowhere' WHERE id = :job", {"job": job})
        found = broken(owner)
    assert {"every hop is listed", "columns follow the state"} <= found


def test_what_is_determined_are_columns_of_the_row() -> None:
    assert set(DETERMINED) <= set(Unit.__struct_fields__)
    assert msgspec.structs.asdict(fold([], Listed(LIFECYCLES["job"], LIFECYCLES["lease"])))["version"] == 0
