"""The stories of budgets: what is counted where, what ends a run, who is asked, and what is kept all the same."""

from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import Decide, LeaseGrant, LeaseStatus, Record, Release, Signal, Submit, Vote, Work
from interlock.kernel.errors import InterlockError
from interlock.plugins.agents.queries import forget_rows, read_rows_to_archive, restore_rows
from interlock.store.ids import Ids
from interlock.store.unit_of_work import open_unit_of_work
from tests.engine.world import World, held

CHILD = msgspec.json.encode({"agents": {}}).decode()


def start_run(world: World, budget: dict[str, Any], **own: Any) -> tuple[int, int]:
    options = msgspec.json.encode({"agents": {"budget": budget, **own}}).decode()
    run = Work(task="goal", lifecycle="agent_run", ref="run", options=options)
    made = world.send(Submit(work=(run, Work(task="goal", lifecycle="agent_job", parent="run", step="agent"))))
    return made[0].unit, made[1].unit


def begin(world: World, worker: int) -> LeaseGrant:
    (grant,) = world.claim(worker)
    assert world.start(grant).accepted
    return grant


def step(world: World, grant: LeaseGrant, name: str, kind: str = "step", **fields: Any) -> LeaseStatus:
    usage = {unit: fields.pop(unit) for unit in ("usd", "tokens", "pages") if unit in fields} or None
    return world.send(Record(held=(held(grant),), kind=kind, name=name, payload="1", usage=usage, **fields))[0]


def used(world: World, run: int) -> dict[str, int]:
    rows = world.connection.rows("SELECT name, used FROM meter WHERE unit = :run", {"run": run})
    return {name: amount for name, amount in rows if name != "active"}


def resume(world: World, run: int, **budget: Any) -> None:
    data = msgspec.json.encode({"budget": budget}).decode() if budget else "null"
    world.send(Decide(unit=run, trigger="resume", actor="ann", reason="raised", data=data))


def states(world: World, *units: int) -> list[str]:
    return [world.unit(unit).state for unit in units]


def child_of(world: World, parent: int) -> int:
    return int(world.connection.rows("SELECT max(id) FROM unit WHERE parent = :p", {"p": parent})[0][0])


def test_a_run_that_has_used_too_much_ends_with_the_step_and_goes_on_when_its_cap_is_raised(world: World) -> None:
    run, job = start_run(world, {"tokens": {"hard": 400_000}, "usd": {"hard": 5_000_000}})
    worker = world.worker()
    grant = begin(world, worker)
    assert {meter.name: (meter.used, meter.hard) for meter in grant.meters if meter.name != "active"} == {
        "tokens": (0, 400_000), "usd": (0, 5_000_000),
    }  # fmt: skip
    assert step(world, grant, "a", tokens=400_000, usd=0.1).accepted  # all of it, and not more
    assert step(world, grant, "a", tokens=400_000).accepted  # the same message again is counted once
    assert states(world, run, job) == ["running", "running"]
    over = step(world, grant, "b", tokens=2_113)
    assert (over.accepted, over.state, states(world, run, job)) == (True, "failed", ["failed", "failed"])
    assert world.body(job).error == "BUDGET_EXHAUSTED tokens 402,113 of 400,000"
    assert used(world, run) == {"tokens": 402_113, "usd": 100_000, "steps": 2}
    late = step(world, grant, "c", tokens=7)  # it was under way
    assert (late.accepted, used(world, run)["tokens"]) == (False, 402_120)
    assert (step(world, grant, "c", tokens=7).accepted, used(world, run)["tokens"]) == (False, 402_120)
    world.pass_time(301)
    assert (step(world, grant, "d", tokens=7).accepted, used(world, run)["steps"]) == (False, 3)
    resume(world, run)  # over its cap, it fails again at once (A0-12)
    assert states(world, run) == ["failed"]
    with pytest.raises(InterlockError, match="the budget tokens = 400,001 is not allowed; 402,120 are used already"):
        resume(world, run, tokens=400_001)
    resume(world, run, tokens=500_000)
    again = begin(world, worker)
    assert [name for name, _ in again.steps] == ["a", "b", "c"]  # what came late is not paid for again
    assert {meter.name: meter.used for meter in again.meters}["tokens"] == 402_120
    world.finish(again)
    assert states(world, run) == ["complete"]


def test_what_was_under_way_when_a_run_ended_is_kept_and_counted_also_once_it_is_resumed(world: World) -> None:
    run, _ = start_run(world, {"tokens": {"hard": 10}})
    worker = world.worker()
    grant = begin(world, worker)
    assert step(world, grant, "a", tokens=11).state == "failed"
    resume(world, run, tokens=100)
    for _ in range(2):  # the same message again is counted once
        assert not step(world, grant, "b", tokens=3).accepted
    again = begin(world, worker)
    assert [name for name, _ in again.steps] == ["a", "b"]
    for _ in range(2):
        assert not step(world, grant, "c", tokens=5).accepted  # somebody may do it once more by now: it is counted only
    assert (used(world, run), states(world, run)) == ({"tokens": 19, "steps": 2}, ["running"])
    assert step(world, again, "c", tokens=5).accepted
    assert used(world, run) == {"tokens": 24, "steps": 3}
    assert not step(world, grant, "d", tokens=90).accepted  # it may be what ends the run again
    assert states(world, run, again.unit) == ["failed", "failed"]
    assert world.body(again.unit).error == "BUDGET_EXHAUSTED tokens 114 of 100"
    assert not step(world, grant, "e", tokens=1).accepted
    assert sorted(note.name for note in world.notes(again.unit, "step")) == ["a", "b", "c", "e"]


def test_at_a_soft_cap_somebody_is_asked_and_yes_goes_on_and_no_fails(world: World) -> None:
    worker = world.worker()
    answers: list[tuple[dict[str, Any], list[str]]] = [
        ({"arguments": '{"hard": 9, "soft": 6}'}, ["running", "running"]),
        ({"arguments": '{"hard": 1}'}, ["running", "running"]),  # below what is used: a plain yes
        ({}, ["running", "running"]),
        ({"approve": False}, ["failed", "failed"]),
    ]
    for answer, after in answers:
        run, job = start_run(world, {"usd": {"soft": 4_000_000, "hard": 5_000_000}})
        grant = begin(world, worker)
        step(world, grant, "a", usd=4)
        assert world.unit(job).total == 0
        step(world, grant, "b", usd=0.5)
        step(world, grant, "c", usd=0.1)  # asked once
        assert world.unit(job).total == 1
        question = child_of(world, job)
        assert world.body(question).task == "budget usd 4"
        assert msgspec.json.decode(world.body(question).input) == {
            "meter": "usd", "used": "4.5", "soft": "4", "hard": "5",
        }  # fmt: skip
        assert world.send(Release(held=(held(grant),), signals=("child:budget usd 4",)))[0].accepted
        assert world.claim(worker) == []
        world.send(Vote(unit=question, voter="ann", **answer))
        assert states(world, run, job) == after
        if after[0] == "running":
            again = begin(world, worker)
            caps = {meter.name: (meter.soft, meter.hard) for meter in again.meters}["usd"]
            assert caps == ((6_000_000, 9_000_000) if '"hard": 9' in str(answer) else (None, 5_000_000))
            world.finish(again)


def test_what_a_run_below_uses_counts_above_and_ends_what_is_above(world: World) -> None:
    run, job = start_run(world, {"usd": {"hard": 1_000_000}})
    worker = world.worker()
    grant = begin(world, worker)
    below = world.submit("sub", lifecycle="agent_run", parent=job, decides=False, options=CHILD)
    below_job = world.submit("sub", lifecycle="agent_job", parent=below)
    inner = begin(world, worker)
    assert inner.unit == below_job
    step(world, inner, "x", usd=0.4)
    step(world, grant, "y", usd=0.4)
    assert (used(world, run), used(world, below)) == (
        {"usd": 800_000, "steps": 2}, {"usd": 400_000, "steps": 1},
    )  # fmt: skip
    step(world, inner, "z", usd=0.4)
    assert states(world, run, job, below, below_job) == ["failed", "failed", "cancelled", "failed"]
    assert world.body(job).error == "BUDGET_EXHAUSTED usd 1.2 of 1"


def test_active_time_counts_while_somebody_holds_the_job_and_ends_the_run(world: World) -> None:
    run, job = start_run(world, {"active": {"hard": 60_000_000}})
    worker = world.worker()
    grant = begin(world, worker)
    world.pass_time(20)
    world.send(Release(held=(held(grant),), signals=("go",)))
    world.pass_time(1_000)
    world.tick()
    assert world.connection.rows("SELECT used FROM meter WHERE unit = :u AND name = 'active'", {"u": run}) == [
        (20_000_000,)
    ]
    world.send(Signal(unit=run, name="go"))
    again = begin(world, world.worker("later"))
    world.pass_time(39)
    world.beat(again)
    world.tick()
    assert states(world, run) == ["running"]
    world.pass_time(2)
    world.tick()
    assert states(world, run, job) == ["failed", "failed"]
    assert world.body(job).error == "BUDGET_EXHAUSTED active 1m 1s of 1m"


@pytest.mark.req("X-12")
def test_tries_that_came_to_nothing_are_counted_and_stale_ticks_are_skipped(world: World) -> None:
    run, _ = start_run(world, {"steps": {"hard": 2}})
    grant = begin(world, world.worker())
    for _ in range(2):
        assert step(world, grant, "plan try 1.1", "usage", tokens=9, pages=2).accepted
    assert step(world, grant, "plan", tokens=5, expects=0).accepted
    stale = step(world, grant, "act", expects=0)
    assert (stale.accepted, stale.why) == (
        False, "STALE_TICK: 1 steps are recorded, and 0 were expected; it is skipped",
    )  # fmt: skip
    assert used(world, run) == {"tokens": 14, "pages": 2, "steps": 1}
    assert step(world, grant, "act", expects=1).accepted
    assert step(world, grant, "more").state == "failed"


@pytest.mark.parametrize(
    ("usage", "why"),
    [
        ({"usd": -1}, "usd = -1 is not allowed; allowed is a number from 0 to 1000000000"),
        ({"usd": 1e300}, "usd = 1e.300 is not allowed"),
        ({"tokens": 0.5}, "tokens = 0.5 is not allowed; .*, without a fraction"),
        ({"steps": 1}, "steps is not allowed; Interlock counts it by itself"),
        ({"a b": 1}, "usage called 'a b' is not allowed"),
        ({f"u{n}": 1 for n in range(21)}, "21 kinds of usage are not allowed; at most 20 are"),
    ],
)
def test_usage_that_cannot_be_changes_nothing(world: World, usage: dict[str, float], why: str) -> None:
    run, _ = start_run(world, {})
    grant = begin(world, world.worker())
    (status,) = world.send(Record(held=(held(grant),), kind="step", name="a", payload="1", usage=usage))
    assert not status.accepted
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(status.why)
    assert (used(world, run), world.notes(grant.unit, "step")) == ({}, [])


def test_large_steps_and_usage_of_plain_jobs_are_refused(world: World) -> None:
    start_run(world, {})
    world.submit()
    agent, plain = world.claim(world.worker(), limit=2)
    big = Record(held=(held(agent),), kind="step", name="a", payload=f'"{"x" * 1_048_576}"')
    assert "is too large: 1,048,578 characters, and 1,048,576 are allowed" in world.send(big)[0].why
    assert "usage is not allowed here" in step(world, plain, "a", tokens=1).why


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ({"usd": {"hard": -1}}, "the budget usd = -1 is not allowed; allowed is 0 to"),
        ({"usd": {"hard": 1, "soft": 2}}, "the budget usd: soft = 0.000002 is not allowed; allowed is at most hard"),
        ({"": {"hard": 1}}, "usage called '' is not allowed"),
        ({"usd": {"most": 1}}, "most"),
    ],
)
def test_budgets_that_cannot_be_are_refused(world: World, budget: dict[str, Any], why: str) -> None:
    with pytest.raises(InterlockError, match=why):
        start_run(world, budget)
    assert world.count("unit") == 0


@pytest.mark.parametrize("data", ["[]", '{"budget": {"usd": "much"}}', '{"cap": 1}', "{", '{"budget": {"usd": -1}}'])
def test_a_resume_on_terms_that_cannot_be_is_refused(world: World, data: str) -> None:
    run, _ = start_run(world, {})
    world.cancel(run)
    with pytest.raises(InterlockError):
        world.send(Decide(unit=run, trigger="resume", actor="ann", reason="why", data=data))
    assert states(world, run) == ["cancelled"]


def test_meters_leave_with_their_run_and_come_back_with_it(world: World) -> None:
    run, _ = start_run(world, {"usd": {"hard": 5_000_000, "soft": 4_000_000}})
    step(world, begin(world, world.worker()), "a", usd=0.5)
    tx = open_unit_of_work(world.connection, world.lifecycles, Ids(world.connection), [1], world.registry.hooks)
    rows = [{"table": table, **row} for table, row in read_rows_to_archive(tx, [run])]
    kept = {row["name"]: (row["used"], row["soft"], row["hard"]) for row in rows if row["name"] != "active"}
    assert kept == {"steps": (1, None, None), "usd": (500_000, 4_000_000, 5_000_000)}
    forget_rows(tx, [run])
    assert list(read_rows_to_archive(tx, [run])) == []
    for stranger in ({"unit": run + 1}, {"tenant": 2}):
        with pytest.raises(InterlockError, match="a line of meter is of no run of this tree"):
            restore_rows(tx, [run], [{**rows[0], **stranger}])
    restore_rows(tx, [run], [*rows, {"table": "other"}])
    assert [{"table": table, **row} for table, row in read_rows_to_archive(tx, [run])] == rows
    world.connection.rollback()
