"""One act moves many: what shares an act, in which order acts stand, what they cost, and what seals and leases keep."""

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from interlock.audit.laws.record import SEALS, judge_seals
from interlock.kernel.commands import Claim, Decide, Finish, Heartbeat, Outcome, Release, Start, Submit, Work
from interlock.kernel.rows import Act, Lease, Seal
from interlock.store.acts import digest_act
from interlock.store.queries.evidence import count_unsealed
from interlock.store.queries.snapshots import BEGINNING, LEASES_US, Position, read_events_after, read_rows, select_acts
from interlock.store.sqlite import SqliteConnection
from tests.engine.tamper import acts_of, behind_the_guard, write_again
from tests.engine.test_ci import started
from tests.engine.test_families import workflow
from tests.engine.test_rebuild import much_work
from tests.engine.world import SECOND, World, held
from tests.store.databases import Connection, declare


def acts_since(world: World, last: int) -> list[Act]:
    declare(world.connection, 1)
    return select_acts(world.connection, "WHERE id > :last ORDER BY id", last=last)


def last_act(world: World) -> int:
    declare(world.connection, 1)
    return int(world.connection.rows("SELECT coalesce(max(id), 0) FROM act")[0][0])


def submit_many(world: World, number: int, **facts: Any) -> list[int]:
    return [one.unit for one in world.send(Submit(work=tuple(Work(task="mail", **facts) for _ in range(number))))]


# What shares an act.


def test_all_that_move_alike_move_in_one_act(world: World) -> None:
    """Whatever else differs between them: priority, input, result, queue."""
    worker = world.worker()
    begin = last_act(world)
    work = tuple(Work(task="mail", priority=n, input=str(n), queue="ab"[n % 2]) for n in range(7))
    units = [one.unit for one in world.send(Submit(work=work))]
    grants = world.claim(worker, limit=7, queues=("a", "b"))
    world.send(Start(held=tuple(map(held, grants))))
    world.send(Finish(outcomes=tuple(Outcome(held=held(grant), result=str(grant.unit)) for grant in grants)))
    acts = [act for act in acts_since(world, begin) if act.units[0] in units]
    assert [act.units for act in acts] == [units] * 4
    assert [act.before for act in acts] == [[0] * 7, *([act.id] * 7 for act in acts[:-1])]
    assert [act.version for act in acts] == [0, 1, 2, 3]
    assert [act.leases for act in acts] == [None, None, [acts[1].id] * 7, [acts[1].id] * 7]
    assert {world.body(unit).result for unit in units} == set(map(str, units))


def test_those_of_another_version_or_another_end_move_in_acts_of_their_own(world: World) -> None:
    worker = world.worker()
    (again,) = submit_many(world, 1)
    world.release(*world.claim(worker))
    fresh = submit_many(world, 2)
    begin = last_act(world)
    grants = {grant.unit: grant for grant in world.claim(worker, limit=3)}
    claims = [act.units for act in acts_since(world, begin) if act.units[0] != worker]
    assert sorted(claims) == [[again], fresh]
    world.send(Start(held=tuple(held(grant) for grant in grants.values())))
    begin = last_act(world)
    ends = {fresh[0]: {"ended": "success"}, fresh[1]: {"ended": "failure", "error": "no"}}
    world.send(Finish(outcomes=tuple(Outcome(held=held(grants[one]), **facts) for one, facts in ends.items())))
    assert [act.units for act in acts_since(world, begin) if act.units[0] in fresh] == [[fresh[0]], [fresh[1]]]


def test_an_act_has_a_thousand_units_at_most(world: World) -> None:
    begin = last_act(world)
    world.engine.send(Submit(work=tuple(Work(task="mail") for _ in range(1_001))))
    assert [len(act.units) for act in acts_since(world, begin)] == [1_000, 1]


def test_errors_of_single_units_are_kept_beside_their_act(world: World) -> None:
    """They differ, and yet the units share an act, which has the digest of each."""
    worker = world.worker()
    units = submit_many(world, 3, attempts=1)
    grants = world.claim(worker, limit=3)
    world.send(Start(held=tuple(map(held, grants))))
    failures = (Outcome(held=held(grant), ended="failure", error=f"no {grant.unit}") for grant in grants)
    world.send(Finish(outcomes=tuple(failures)))
    assert len({world.unit(unit).act for unit in units}) == 1
    for unit in units:
        assert f"no {unit}" in world.events(unit)[-1].payload
    (act,) = select_acts(world.connection, "WHERE id = :id", id=world.unit(units[0]).act)
    assert act.payload == "{}"
    assert len(set(act.details or ())) == 3


def test_a_unit_ahead_of_the_clock_moves_in_an_act_of_its_own(world: World) -> None:
    """Its time does not go back, and the others' does not go forth with it."""
    worker = world.worker()
    world.pass_time(10)
    ahead = world.submit()
    world.pass_time(-10)
    behind = submit_many(world, 2)
    begin = last_act(world)
    world.claim(worker, limit=3)
    acts = {tuple(act.units): act.at for act in acts_since(world, begin) if act.units[0] != worker}
    assert acts == {(ahead,): world.now_us + 10 * SECOND, tuple(behind): world.now_us}


def test_a_start_and_its_end_are_one_act_and_two_events(world: World) -> None:
    worker = world.worker()
    units = submit_many(world, 3)
    grants = world.claim(worker, limit=3)
    begin = last_act(world)
    committer = world.engine.committer
    futures = [
        committer.put(Start(held=tuple(map(held, grants)))),
        committer.put(Finish(outcomes=tuple(Outcome(held=held(grant), cost=0.5) for grant in grants))),
    ]
    committer.step()
    assert all(one.accepted for future in futures for one in future.result())
    assert [act.units for act in acts_since(world, begin) if act.units[0] in units] == [units]
    for unit in units:
        first, second = world.events(unit)[-2:]
        assert (first.name, first.payload, first.lease_to) == ("job_started", "{}", "ACTIVE")
        assert (second.name, second.payload, second.lease_to) == ("job_succeeded", '{"cost":0.5}', "COMPLETED")
        assert first.hash == second.hash


def test_a_payload_goes_with_the_last_hop_of_the_unit_itself(world: World) -> None:
    """The claim of a step grants its lease and makes it active: that hop is the lease's own, and tells nothing more."""
    _, build = workflow(world, "build")
    world.claim(world.worker())
    _, claimed, active = world.events(build)
    assert (claimed.trigger, claimed.payload, claimed.lease_to) == ("claim", '{"worker":"w"}', "GRANTED")
    assert (active.trigger, active.payload, active.lease_to) == ("self", "{}", "ACTIVE")
    assert claimed.hash == active.hash


def test_an_acts_digest_is_the_same_on_every_database(world: World) -> None:
    """PostgreSQL computes it by itself."""
    much_work(world, commands=120)
    declare(world.connection, 1, 2)
    acts = select_acts(world.connection, "ORDER BY id")
    assert len(acts) > 20
    assert [act.id for act in acts if digest_act(act) != act.digest] == []


# Rounds.


def order(world: World, begin: int) -> list[tuple[tuple[int, ...], str]]:
    """Who moved since, act by act, and by which trigger."""
    sql = "SELECT trigger FROM path_hop WHERE path = :path AND place = 1"
    acts = acts_since(world, begin)
    return [(tuple(act.units), world.connection.rows(sql, {"path": act.path})[0][0]) for act in acts]


def test_a_need_that_is_met_and_a_parent_that_follows_come_in_later_rounds(world: World) -> None:
    """Two workflows, whose first steps end together: equal moves of one round share an act, and no round another's."""
    (run, build, ship), (other_run, other_build, other_ship) = (workflow(world, "build", "ship") for _ in range(2))
    worker = world.worker()
    grants = world.claim(worker, limit=2)
    begin = last_act(world)
    world.send(Finish(outcomes=tuple(Outcome(held=held(grant)) for grant in grants)))
    moved = [units for units, _ in order(world, begin) if worker not in units]
    assert moved == [(build, other_build), (ship, other_ship), (run, other_run)]
    begin = last_act(world)
    for unit in (ship, other_ship):
        world.send(Decide(unit=unit, trigger="approve"))
    assert [units for units, _ in order(world, begin)] == [(ship,), (run,), (other_ship,), (other_run,)]


def test_a_follower_comes_behind_whom_it_follows_and_its_parent_behind_both(world: World) -> None:
    run, build = started(world, ("build", True, ()))
    declare(world.connection, 1)
    ((attempt,),) = world.connection.rows("SELECT id FROM unit WHERE parent = :build", {"build": build})
    worker = world.worker()
    begin = last_act(world)
    (grant,) = world.claim(worker)
    world.start(grant)
    world.beat(grant)
    at = {(units[0], trigger): place for place, (units, trigger) in enumerate(order(world, begin))}
    moved = [one for one in at if one[0] == attempt]
    assert len(moved) >= 3
    for one, trigger in moved:
        assert at[one, trigger] < at[build, trigger]
    first = {unit: min(place for (one, _), place in at.items() if one == unit) for unit in (attempt, build, run)}
    assert first[attempt] < first[build] < first[run]


def test_a_cursor_that_rests_anywhere_skips_nothing_and_repeats_nothing(world: World) -> None:
    """Whoever goes on from the position of any event, inside an act or behind it, gets exactly the others."""
    worker = world.worker()
    submit_many(world, 4)
    grants = world.claim(worker, limit=4)
    committer = world.engine.committer
    committer.put(Start(held=tuple(map(held, grants))))
    committer.put(Finish(outcomes=tuple(Outcome(held=held(grant)) for grant in grants)))
    committer.step()  # one act of four units and two events each
    declare(world.connection, 1)
    whole = read_events_after(world.connection, BEGINNING, 1_000)
    positions: list[Position] = [position for position, _ in whole]
    assert all(before < after for before, after in pairwise(positions))
    assert max(Counter(act for act, _ in positions).values()) == 8
    assert {(event.unit, event.version) for _, event in whole} == {
        (unit, version)
        for unit, last in world.connection.rows("SELECT id, version FROM unit")
        for version in range(1, last + 1)
    }
    for place, position in enumerate(positions, 1):
        for limit in (1, 3):
            assert read_events_after(world.connection, position, limit) == whole[place : place + limit]


# What a move costs.


class Meter:
    """Counts statements and the rows that they read."""

    def __init__(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self.connection, self.statements, self.answered, self.steps = connection, 0, 0, 0
        real = connection.rows

        def rows(sql: str, params: Any = None) -> list[tuple[Any, ...]]:
            found = real(sql, params)
            self.statements += 1
            self.answered += len(found)
            return found

        monkeypatch.setattr(connection, "rows", rows)
        if isinstance(connection, SqliteConnection):
            connection.raw.set_progress_handler(self.step, 100)

    def step(self) -> None:
        self.steps += 1

    def read(self) -> int:
        """What the database has read so far: steps of its machine on SQLite, rows of the hot tables on PostgreSQL."""
        if isinstance(self.connection, SqliteConnection):
            return self.steps
        self.connection.rows("SELECT pg_stat_force_next_flush()")
        sql = (
            "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables "
            "WHERE relname IN ('act', 'unit', 'lease', 'act_detail', 'body')"
        )
        return int(self.connection.rows(sql)[0][0])

    def cost(self, world: World, unit: int, worker: int) -> tuple[int, int, int]:
        """Of a claim and a release: statements, rows that were answered, and what the database read."""
        self.statements = self.answered = 0
        before = self.read()
        said = self.statements, self.answered
        go_round(world, unit, worker)
        return self.statements - said[0], self.answered - said[1], self.read() - before


def go_round(world: World, unit: int, worker: int) -> None:
    """A job is taken and given back, which costs it nothing but two acts."""
    world.claims += 1
    key = f"round {world.claims:020}"
    facts = {"worker": worker, "key": key, "nonce": key, "limit": 1}
    (grant,) = world.engine.send(Claim(**facts))
    assert grant.unit == unit
    assert world.engine.send(Release(held=(held(grant),)))[0].accepted


def test_a_move_does_not_cost_more_with_a_longer_history(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit names its last act, and the act where each unit comes from: nobody reads what was before."""
    unit, worker = world.submit(), world.worker()
    for _ in range(5):
        go_round(world, unit, worker)
    meter = Meter(world.connection, monkeypatch)
    young = meter.cost(world, unit, worker)
    for _ in range(150):
        go_round(world, unit, worker)
    assert world.unit(unit).version > 300
    old = meter.cost(world, unit, worker)
    assert old[:2] == young[:2]
    assert old[2] <= young[2] * 1.2 + 10, (young, old)


# Seals.


def sealed(world: World) -> list[Seal]:
    declare(world.connection, 1)
    return read_rows(world.connection, Seal, "WHERE tenant = 1 ORDER BY number")


def faults(world: World, from_seal: int = 1) -> list[str]:
    declare(world.connection, 1, 2)
    found = list(judge_seals(world.connection, from_seal))
    assert {fault.law for fault in found} <= {SEALS}
    return [fault.text for fault in found]


def test_what_is_committed_is_sealed_by_a_tick_and_the_rest_is_counted(world: World) -> None:
    submit_many(world, 3)
    world.submit()
    declare(world.connection, 1)
    assert (sealed(world), count_unsealed(world.connection).acts) == ([], 2)
    world.tick()
    assert [(seal.number, seal.acts) for seal in sealed(world)] == [(1, 2)]
    assert count_unsealed(world.connection).acts == 0
    world.submit()
    declare(world.connection, 1)
    assert count_unsealed(world.connection).acts == 1
    world.tick()
    assert len(sealed(world)) == 1  # there is no more than one a second
    world.pass_time(1)
    world.tick()
    world.pass_time(1)
    world.tick()  # nothing happened since
    first, second = sealed(world)
    assert (second.number, second.acts, first.last_act < second.first_act) == (2, 1, True)


def test_an_audit_may_begin_behind_any_seal(world: World, server: str) -> None:
    units = []
    for _ in range(4):
        units += submit_many(world, 2)
        world.tick()
        world.pass_time(1)
    assert [faults(world, number) for number in range(1, 6)] == [[]] * 5
    with behind_the_guard(world.connection, server) as owner:
        (act,) = acts_of(owner, units[2])
        act.actor = "somebody else"
        write_again(owner, act)
    assert [len(faults(world, number)) for number in range(1, 6)] == [1, 1, 0, 0, 0]
    assert faults(world)[0].startswith("seal 2 of tenant 1 is not that of the acts up to ")


def test_an_act_that_its_seal_does_not_know_is_found(world: World, server: str) -> None:
    """It was another tenant's: no number of an act is missing, and none is new."""
    submit_many(world, 2)
    theirs = world.send(Submit(tenant=2, work=(Work(task="a"),)))[0].unit
    submit_many(world, 2)
    world.tick()
    assert faults(world) == []
    with behind_the_guard(world.connection, server) as owner:
        (act,) = acts_of(owner, theirs)
        act.tenant = 1
        write_again(owner, act)
    assert len(faults(world)) == 1
    assert "was changed, added, removed or reordered" in faults(world)[0]


def test_each_tenant_has_a_chain_of_its_own(world: World) -> None:
    world.submit()
    world.send(Submit(tenant=2, work=(Work(task="a"),)))
    world.tick()
    declare(world.connection, 1, 2)
    assert world.connection.rows("SELECT tenant, acts FROM seal") == [(1, 1)]
    assert count_unsealed(world.connection).acts == 1  # nobody has ticked for the other one


# Leases.


LIVE = "SELECT id, unit, tenant, worker, secret, until, ttl, beat FROM live_lease ORDER BY id, unit"


def live_leases(world: World) -> list[Lease]:
    declare(world.connection, 1)
    return [Lease(*row) for row in world.connection.rows(LIVE)]


def rows_of_leases(world: World) -> list[Lease]:
    declare(world.connection, 1)
    return read_rows(world.connection, Lease, "ORDER BY id, unit")


def test_a_unit_has_one_live_lease_and_its_row_names_it(world: World) -> None:
    worker, units = world.worker(), submit_many(world, 2)
    for fence in (1, 2):
        grants = world.claim(worker, limit=2)
        live = live_leases(world)
        assert [(lease.unit, lease.worker) for lease in live] == [(unit, worker) for unit in units]
        assert [world.unit(unit).lease_id for unit in units] == [lease.id for lease in live]
        assert [world.unit(unit).fence for unit in units] == [fence] * 2
        for grant in grants:
            world.release(grant)
    assert live_leases(world) == []
    assert len(rows_of_leases(world)) == 4
    assert [world.unit(unit).lease_id for unit in units] == [None, None]


def test_a_heartbeat_makes_the_lease_longer_and_nothing_else(world: World) -> None:
    worker, unit = world.worker(), world.submit()
    (grant,) = world.claim(worker)
    world.start(grant)
    begin, (before,) = last_act(world), live_leases(world)
    world.pass_time(5)
    assert world.send(Heartbeat(held=(held(grant),)))[0].accepted
    (after,) = live_leases(world)
    assert (after.until - before.until, after.secret, last_act(world)) == (5 * SECOND, before.secret, begin)
    assert world.unit(unit).lease_until == after.until


def test_leases_that_are_over_leave_after_a_day_and_live_ones_stay(world: World) -> None:
    """Until then whoever held one is told that it is over; then nobody knows of it."""
    worker, unit = world.worker(), world.submit()
    (old,) = world.claim(worker)
    world.release(old)
    world.cancel(unit)
    world.now_us += LEASES_US - SECOND
    world.submit()
    (live,) = world.claim(worker)
    world.tick()
    assert [lease.unit for lease in rows_of_leases(world)] == [unit, 0]
    assert [lease.unit for lease in live_leases(world)] == [live.unit]
    assert world.beat(old).why == "LEASE_REVOKED"
    world.pass_time(1)
    world.tick()
    assert [lease.unit for lease in rows_of_leases(world)] == [0]
    assert world.beat(old).why == "UNKNOWN_LEASE"
    assert world.beat(live).accepted


@pytest.mark.parametrize("which", ["held", "done"])
def test_what_is_held_or_has_ended_is_never_in_the_claim_index(world: World, server: str, which: str) -> None:
    """Not even who passes the guard puts it there: the table itself refuses."""
    worker, unit = world.worker(), world.submit()
    (grant,) = world.claim(worker)
    if which == "done":
        world.start(grant)
        world.finish(grant)
    with (
        pytest.raises(Exception, match=r"(?i)check constraint"),
        behind_the_guard(world.connection, server) as owner,
    ):
        owner.rows("UPDATE unit SET available_at = 1 WHERE id = :unit", {"unit": unit})
    world.connection.rollback()
    assert world.unit(unit).available_at is None
    assert world.claim(worker) == []
