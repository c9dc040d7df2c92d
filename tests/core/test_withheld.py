"""One unit that cannot be granted, or that time cannot move, never stops its neighbours."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from interlock.audit.laws import audit
from interlock.client.why import explain
from interlock.kernel.commands import Cancel, Claim, DefineSchedule, Force, Register, Submit, Tick, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Event
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from interlock.store import migrate
from tests.engine.tamper import behind_the_guard
from tests.engine.world import SECOND, World
from tests.store.databases import declare, insert
from tests.store.raw_acts import move, owner_of


def change(world: World, server: str, sql: str, **given: int | str) -> None:
    with behind_the_guard(world.connection, server) as owner:
        owner.rows(sql, given)


def relived(world: World, **changed: Lifecycle) -> None:
    """The program begins again, and knows its lifecycles otherwise."""
    world.lifecycles = {**world.lifecycles, **changed}
    world.engine = make_engine(world.connection, world.lifecycles)


def no_way_out(world: World, server: str, unit: int) -> None:
    """It is in the claim index, and its state lists no claim."""
    job = world.lifecycles["job"]
    states = {**job.states, "held_back": replace(job.states["queued"], name="held_back")}
    relived(world, job=replace(job, states=states))
    change(world, server, "UPDATE unit SET state = 'held_back' WHERE id = :unit", unit=unit)


def without_lease(world: World, server: str, unit: int) -> None:
    """Its lifecycle file has no [lease] any more."""
    other = replace(world.lifecycles["job"], name="other", options=replace(world.lifecycles["job"].options, lease=None))
    relived(world, other=other)
    change(world, server, "UPDATE unit SET lifecycle = 'other' WHERE id = :unit", unit=unit)


def ahead_of_time(world: World, server: str, unit: int) -> None:
    """It was last moved at a time that has not come: no act can follow, and only the guard says so."""
    change(world, server, "UPDATE unit SET changed_at = :at WHERE id = :unit", unit=unit, at=4_000_000_000 * SECOND)


def unknown_claim(world: World, server: str, unit: int) -> None:
    """The record tells of a claim that the row knows nothing of."""
    with behind_the_guard(world.connection, server) as owner:
        act = move(owner, unit, "claim/grant")
        if not owner.many_writers:
            insert(owner, "member", unit=unit, version=1, act=act)


def no_body(world: World, server: str, unit: int) -> None:
    change(world, server, "DELETE FROM body WHERE unit = :unit", unit=unit)


def no_json(world: World, server: str, unit: int) -> None:
    change(world, server, "UPDATE body SET policy = '{\"ttl_us\":' WHERE unit = :unit", unit=unit)


Poison = Callable[[World, str, int], None]
POISONS: Mapping[str, tuple[Poison, str]] = {
    "no way out": (no_way_out, "job: no 'claim' from 'held_back'"),
    "no lease": (without_lease, "the lifecycle 'other' has no [lease]"),
    "ahead of time": (ahead_of_time, "an act is not later than the clock of the store"),
    "no body": (no_body, "its body is missing"),
    "no JSON": (no_json, "cannot be read"),
}


def neighbours(world: World, **work: int) -> tuple[int, int, int]:
    """Three jobs of one queue; the one in the middle is the bad one."""
    first, bad, last = (
        one.unit for one in world.send(Submit(work=tuple(Work(task=name, **work) for name in ("a", "bad", "z"))))
    )
    return first, bad, last


def claimed(world: World, worker: int, limit: int) -> list[int]:
    world.claims += 1
    claim = Claim(worker=worker, limit=limit, key=f"c{world.claims}", nonce=f"nonce-of-the-claim-{world.claims}")
    return sorted(grant.unit for grant in world.engine.send(claim))


def why(world: World, unit: int) -> str:
    declare(world.connection, 1)
    return explain(world.connection, 1, world.lifecycles, unit).text


def findings(world: World) -> list[tuple[str, int, str]]:
    declare(world.connection, 1, 2)
    return [(one.law, one.unit, one.text) for one in audit(world.connection, world.lifecycles)]


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("limit", [1, 10])
def test_a_unit_that_cannot_be_granted_is_withheld(
    world: World, server: str, poison: str, limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbours are granted by the same claim, and why, audit and the log tell of it."""
    spoil, reason = POISONS[poison]
    worker = world.worker()
    first, bad, last = neighbours(world)
    spoil(world, server, bad)
    with caplog.at_level(logging.ERROR, logger="interlock.core"):
        got = [one for _ in range(3) for one in claimed(world, worker, limit)]
    assert sorted(got) == [first, last]
    row = world.unit(bad)
    assert (row.available_at, row.wake_at, row.holder) == (None, None, None)
    name = format_id(row.lifecycle, bad)
    (said,) = [record.getMessage() for record in caplog.records if "withheld" in record.getMessage()]
    assert said.startswith(f"unit={name} is withheld: ")
    assert reason in said
    assert f"{name} is withheld: " in why(world, bad)
    assert reason in why(world, bad)
    assert [text for law, unit, text in findings(world) if (law, unit) == ("nothing is withheld", bad)] == [
        f"{name} could not be granted, or not be moved by time, and is withheld; interlock why {name} says why"
    ]


def test_a_unit_that_cannot_be_granted_stops_no_other_queue(world: World, server: str) -> None:
    """Workers that serve its queue among others are granted the others, and what is behind it."""
    worker = world.worker()
    bad, behind = (world.submit("bad"), world.submit("mail"))
    other = world.submit("mail", queue="other")
    POISONS["no JSON"][0](world, server, bad)
    claim = Claim(worker=worker, limit=3, queues=("default", "other"), key="c", nonce="n" * 16)
    assert sorted(grant.unit for grant in world.engine.send(claim)) == sorted([behind, other])


def test_a_claim_that_no_row_knows_of_stops_nobody(world: World, server: str) -> None:
    """SQLite finds it when the unit is to move; on PostgreSQL the audit does, since nobody looks acts up by units."""
    worker = world.worker()
    first, bad, last = neighbours(world)
    unknown_claim(world, server, bad)
    many_writers = world.connection.many_writers
    assert claimed(world, worker, 3) == ([first, bad, last] if many_writers else [first, last])
    laws = {law for law, unit, _ in findings(world) if unit == bad}
    assert laws >= {"acts list the units that they moved"}
    if not many_writers:
        assert "nothing is withheld" in laws
        assert "only an act moves" in why(world, bad)


def test_a_row_that_nothing_tells_of_withholds_its_unit(world: World, server: str) -> None:
    """A token is away that no grant of it has spent."""
    worker = world.worker()
    first, bad, last = (world.submit(rate_key="api", rate=9, rate_per_us=SECOND) for _ in range(3))
    stray = "INSERT INTO token (unit, fence, tenant, key, back_at) VALUES (:unit, 1, 1, :key, :at)"
    change(world, server, stray, unit=bad, key="rate:api", at=world.now_us + SECOND)
    assert claimed(world, worker, 3) == [first, last]
    assert "the database is damaged" in why(world, bad)


def test_a_claim_leaves_out_many_at_once(world: World, server: str) -> None:
    worker = world.worker()
    units = [world.submit() for _ in range(40)]
    bad = units[::3]
    for unit in bad[:5]:
        no_json(world, server, unit)
    for unit in bad[5:8]:
        ahead_of_time(world, server, unit)
    wanted = sorted(set(units) - set(bad[:8]))
    assert claimed(world, worker, 40) == wanted
    assert claimed(world, worker, 40) == []


@pytest.mark.parametrize("poison", ["no body", "no JSON"])
def test_a_withheld_unit_can_be_cancelled(world: World, server: str, poison: str) -> None:
    worker = world.worker()
    _, bad, _ = neighbours(world)
    POISONS[poison][0](world, server, bad)
    claimed(world, worker, 3)
    assert world.unit(bad).parked_on == "withheld"
    assert world.engine.send(Cancel(unit=bad, actor="ann", reason="broken")).state == "cancelled"
    assert world.unit(bad).parked_on is None


def test_a_withheld_unit_that_was_mended_is_brought_back_by_force(world: World, server: str) -> None:
    worker = world.worker()
    _, bad, _ = neighbours(world)
    no_json(world, server, bad)
    claimed(world, worker, 3)
    change(world, server, "UPDATE body SET policy = '{}' WHERE unit = :unit", unit=bad)
    world.carry_out(Force(unit=bad, state="queued", actor="ann", reason="mended"))
    assert claimed(world, worker, 3) == [bad]
    assert [one for one in findings(world) if one[1] == bad] == []


def test_a_withheld_unit_gives_its_mutex_to_the_next(world: World, server: str) -> None:
    worker = world.worker()
    bad, other = world.submit(mutex="m"), world.submit(mutex="m")
    no_json(world, server, bad)
    assert claimed(world, worker, 2) == [other]


@pytest.mark.parametrize("poison", ["ahead of time", "no JSON"])
def test_a_unit_that_time_cannot_move_is_withheld(world: World, server: str, poison: str) -> None:
    """What is due beside it is done by the same tick."""
    first, bad, last = neighbours(world, queue_timeout_us=10 * SECOND)
    POISONS[poison][0](world, server, bad)
    world.pass_time(11)
    assert world.engine.send(Tick()) == 2
    assert [world.unit(one).state for one in (first, last)] == ["dead_lettered", "dead_lettered"]
    assert (world.unit(bad).wake_at, world.unit(bad).parked_on) == (world.now_us + 60 * SECOND, "withheld")
    assert "is withheld: " in why(world, bad)


def test_the_clocks_of_a_withheld_unit_go_on(world: World, server: str) -> None:
    worker = world.worker()
    unit = world.submit(queue_timeout_us=10 * SECOND)
    without_lease(world, server, unit)
    guard_knows_another_job(world, server)
    assert claimed(world, worker, 1) == []
    assert world.unit(unit).parked_on == "withheld"
    world.pass_time(11)
    assert world.engine.send(Tick()) == 1
    assert (world.unit(unit).state, world.unit(unit).parked_on) == ("dead_lettered", None)


def test_a_claim_goes_on_although_time_cannot_move_a_unit(world: World, server: str) -> None:
    worker = world.worker()
    _, bad, _ = neighbours(world, queue_timeout_us=10 * SECOND)
    ahead_of_time(world, server, bad)
    world.pass_time(11)
    fresh = world.engine.send(Submit(work=(Work(task="fresh"),)))[0].unit
    assert claimed(world, worker, 10) == [fresh]


def test_a_unit_of_a_lifecycle_that_is_not_known_here_is_left_to_others(world: World, server: str) -> None:
    """It is passed over, and nothing is written of it: another program may know its file."""
    other = replace(world.lifecycles["job"], name="other")
    worker = world.worker()
    known = world.lifecycles
    guard_knows_another_job(world, server)
    relived(world, other=other)
    foreign = world.engine.send(Submit(work=(Work(task="a", lifecycle="other"),)))[0].unit
    mine = world.engine.send(Submit(work=(Work(task="b"),)))[0].unit
    world.lifecycles = known
    world.engine = make_engine(world.connection, known)
    assert claimed(world, worker, 1) == [mine]
    assert world.unit(foreign).available_at is not None
    relived(world, other=other)
    world.pass_time(61)
    assert claimed(world, worker, 1) == [foreign]


def guard_knows_another_job(world: World, server: str) -> None:
    """As if a lifecycle `other`, like that of a job, had been installed."""
    other = replace(world.lifecycles["job"], name="other")
    with owner_of(world.connection, server) as owner:
        migrate.upgrade(owner, [*shipped().values(), other])


def test_lease_rules_are_checked_against_what_will_be_leased(world: World) -> None:
    """A ci_job is not leased itself: its attempts are, and a lease on them must beat."""
    with pytest.raises(InterlockError, match="silent work is not allowed here"):
        world.submit(lifecycle="ci_job", silent=True)
    with pytest.raises(InterlockError, match="is not allowed; 15s to 10m is"):
        world.submit(lifecycle="ci_job", ttl_us=10_000 * SECOND)
    assert world.count("unit") == 0


def test_rules_that_were_tightened_are_clamped_at_the_grant(world: World) -> None:
    worker = world.worker()
    unit = world.submit(ttl_us=120 * SECOND, beat_us=30 * SECOND)
    silent = world.submit(ttl_us=600 * SECOND, silent=True)
    job = world.lifecycles["job"]
    lease = job.options.lease
    assert lease
    tight = replace(lease, ttl_us=40 * SECOND, ttl_max_us=40 * SECOND, silent_max_us=None, ttl_min_us=20 * SECOND)
    relived(world, job=replace(job, options=replace(job.options, lease=tight)))
    assert claimed(world, worker, 2) == [unit, silent]
    assert [(row.lease_ttl, row.lease_beat) for row in map(world.unit, (unit, silent))] == [
        (40 * SECOND, 20 * SECOND),
        (40 * SECOND, 20 * SECOND),
    ]


def test_the_events_of_neighbours_are_whole(world: World, server: str) -> None:
    worker = world.worker()
    first, bad, _ = neighbours(world)
    ahead_of_time(world, server, bad)
    claimed(world, worker, 3)
    rows: list[Event] = world.events(first)
    assert [event.trigger for event in rows] == ["submit", "claim"]
    assert {unit for law, unit, _ in findings(world)} == {bad}


def test_a_child_whose_policy_cannot_be_read_is_cancelled_with_its_parent(world: World, server: str) -> None:
    step = Work(task="a", lifecycle="step", parent="run")
    run, child = (
        one.unit for one in world.send(Submit(work=(Work(task="r", lifecycle="workflow_run", ref="run"), step)))
    )
    no_json(world, server, child)
    claimed(world, world.engine.send(Register(name="w", incarnation="1", capacity=1)), 1)
    assert world.unit(child).parked_on == "withheld"
    world.engine.send(Cancel(unit=run))
    assert (world.unit(run).outcome, world.unit(child).outcome) == ("cancelled", "cancelled")


def test_a_schedule_whose_work_cannot_be_read_does_not_stop_the_time(world: World, server: str) -> None:
    for name in ("bad", "good"):
        world.send(DefineSchedule(name=name, timing="every 60s", work=Work(task=name)))
    change(world, server, "UPDATE schedule SET work = '{' WHERE name = 'bad'")
    world.pass_time(61)
    assert world.engine.send(Tick()) == 1
    assert world.count("body", "task = 'good'") == 1
