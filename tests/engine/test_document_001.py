"""Document 001, rule by rule: runs of templates, steps, approvals, retries, reclaims and tenants, by their own commands."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import Cancel, Claim, Decide, DefineTemplate, Finish, Force, Outcome, Submit, Vote, Work
from interlock.kernel.errors import InterlockError, Refused, Unknown
from interlock.lifecycles import shipped
from interlock.plugins import open_engine
from interlock.store.queries.views import Filter, listing, read_summary
from tests.engine.world import SECOND, World, held
from tests.store.databases import fresh_postgres

RELEASE = ("build", "ship", "deploy")
DONE, GATE, OPEN = "SUCCEEDED", "WAITING_APPROVAL", "PENDING"


def defined(world: World, *names: str, name: str = "release", **facts: Any) -> int:
    """A template whose steps follow each other; names that begin with `ship` are approvals. Answers its version."""
    steps: list[Work] = []
    for one in names:
        gate = one.startswith("ship")
        own = {key: value for key, value in facts.items() if (key in GATE_FACTS) == gate}
        before = (steps[-1].ref,) if steps else ()
        steps.append(Work(task=one, lifecycle="approval" if gate else "step", ref=one, needs=before, **own))
    return world.send(DefineTemplate(name=name, steps=tuple(steps))).version


GATE_FACTS = ("quorum", "expires_us", "on_reject", "approvers", "not_submitter")


def begun(world: World, name: str = "release", **facts: Any) -> int:
    return world.submit(name, lifecycle="workflow_run", template=name, **facts)


def steps(world: World, run: int) -> list[int]:
    rows = world.connection.rows("SELECT id FROM unit WHERE parent = :run ORDER BY id", {"run": run})
    return [one for (one,) in rows]


def states(world: World, run: int) -> list[str]:
    """The state of a run, and then of its steps."""
    return [world.unit(one).state for one in (run, *steps(world, run))]


def started(world: World, *names: str, **facts: Any) -> tuple[int, list[int], int]:
    """A run of a fresh template, its steps and a worker."""
    defined(world, *(names or RELEASE), **facts)
    run = begun(world)
    return run, steps(world, run), world.worker()


def do(world: World, worker: int, **outcome: Any) -> int:
    (grant,) = world.claim(worker)
    assert world.finish(grant, **outcome).accepted
    return grant.unit


@pytest.mark.req("R1-01", "R1-06", "R1-21")
def test_the_first_claim_begins_the_run(world: World) -> None:
    run, (build, *_), worker = started(world)
    assert world.path(run) == [OPEN]
    assert world.unit(build).fence == 0
    do(world, worker)
    assert world.path(run)[:2] == [OPEN, "RUNNING"]
    assert [event.trigger for event in world.events(run)].count("begin") == 1
    assert world.path(build) == [OPEN, "RUNNING", DONE]
    assert world.unit(build).fence == 1  # attempts: claims


@pytest.mark.req("R1-02", "R1-10", "R1-13", "R1-25")
def test_the_gate_opens_with_the_end_of_what_is_before_it(world: World) -> None:
    run, (_, ship, _), worker = started(world)
    (grant,) = world.claim(worker)
    assert world.unit(ship).state == OPEN
    world.finish(grant)  # one command: no worker polls for the gate
    assert states(world, run) == [GATE, DONE, GATE, OPEN]
    world.send(Vote(unit=ship, voter="ann"))
    assert states(world, run) == ["RUNNING", DONE, DONE, OPEN]
    assert world.path(ship) == [OPEN, GATE, DONE]


@pytest.mark.req("R1-03", "R1-14", "R1-33")
def test_a_run_succeeds_when_all_its_steps_have(world: World) -> None:
    run, order, worker = started(world, "a", "b", "c")
    assert [world.body(one).task for one in order] == ["a", "b", "c"]
    for one in order:
        assert world.unit(run).state in (OPEN, "RUNNING")
        assert do(world, worker) == one
    assert states(world, run) == [DONE] * 4
    ends = [event for one in (run, *order) for event in world.events(one) if event.target == DONE]
    last = max(event.at for event in ends)
    assert world.events(run)[-1].at == last


@pytest.mark.req("R1-15", "R1-32")
def test_the_last_gate_ends_the_run_and_no_worker_is_needed(world: World) -> None:
    defined(world, "ship", "ship again")
    run = begun(world)
    assert world.path(run) == [OPEN, "RUNNING", GATE]
    assert world.send(Vote(unit=run, voter="ann")).applied
    assert states(world, run) == [GATE, DONE, GATE]  # one at a time (A1-13)
    assert world.send(Vote(unit=run, voter="ann")).applied
    assert states(world, run) == [DONE] * 3
    assert world.count("worker") == 0


@pytest.mark.req("R1-07", "R1-23", "R1-37", "R1-38", "R1-39")
def test_a_retry_waits_exactly_two_to_the_attempts_times_the_base(world: World) -> None:
    run, (build,), worker = started(world, "build", backoff_us=3 * SECOND, attempts=4)
    for attempts in (1, 2, 3):
        (grant,) = world.claim(worker)
        world.finish(grant, ended="failure")
        unit, failed_at = world.unit(build), world.events(build)[-1].at
        assert (unit.state, unit.due_at) == (OPEN, failed_at + 2**attempts * 3 * SECOND)
        world.pass_time(2**attempts * 3 - 0.000001)
        assert world.claim(worker) == []
        world.pass_time(0.000001)
    do(world, worker)
    assert world.unit(run).state == DONE


@pytest.mark.req("R1-08", "R1-16", "R1-24", "R1-40")
def test_exhaustion_fails_the_step_and_the_run_at_once(world: World) -> None:
    run, (build, deploy), worker = started(world, "build", "deploy", attempts=2)
    do(world, worker, ended="failure")
    world.pass_time(10)
    do(world, worker, ended="failure")
    assert states(world, run) == ["FAILED", "FAILED", "CANCELED"]  # A1-16: nothing claimable is left
    ends = [world.events(one)[-1].at for one in (run, build, deploy)]
    assert len(set(ends)) == 1  # the time of a transaction is one
    world.pass_time(1000)
    assert world.claim(worker, limit=9) == []


@pytest.mark.req("R1-04", "R1-16")
def test_a_permanent_error_fails_at_once_and_failed_is_an_end(world: World) -> None:
    run, (build, *_), worker = started(world)
    do(world, worker, ended="failure", error_class="PermanentError")
    assert world.unit(build).failures == 1
    assert world.unit(run).state == "FAILED"
    for trigger in ("approve", "resume", "plan"):
        with pytest.raises(Refused):
            world.send(Decide(unit=run, trigger=trigger))
    with pytest.raises(Refused):
        world.cancel(run)  # A1-17


@pytest.mark.parametrize("how", ["expires", "rejected", "a parallel step fails", "a later step fails"])
def test_a_run_that_waits_for_approval_may_fail(world: World, how: str) -> None:
    if how == "a parallel step fails":
        both = (Work(task="ship", lifecycle="approval", ref="ship"), Work(task="build", lifecycle="step", ref="build"))
        world.send(DefineTemplate(name="release", steps=both))
        run, worker = begun(world), world.worker()
        do(world, worker, ended="failure")  # it backs off: it is still to run
        assert world.unit(run).state == "RUNNING"
        world.pass_time(100)
        do(world, worker, ended="failure", error_class="PermanentError")
    else:
        run, (ship, _), worker = started(world, "ship", "deploy", expires_us=60 * SECOND, on_reject="fail")
        if how == "expires":
            world.pass_time(60)
            world.tick()
        elif how == "rejected":
            world.send(Vote(unit=ship, voter="ann", approve=False, reason="not today"))
            assert world.events(ship)[-1].reason == "not today"
        else:
            world.send(Vote(unit=ship, voter="ann"))
            do(world, worker, ended="failure", error_class="PermanentError")
    assert states(world, run)[0] == "FAILED"
    if how in ("expires", "rejected"):
        assert states(world, run)[1:] == ["CANCELED", "CANCELED"]
        assert world.path(run)[-2:] == [GATE, "FAILED"]


@pytest.mark.req("R1-05", "R1-09", "R1-18", "R1-27", "R1-46")
@pytest.mark.parametrize("at", [OPEN, "RUNNING", GATE])
def test_a_cancel_ends_everything_at_every_point(world: World, at: str) -> None:
    run, order, worker = started(world)
    late = world.claim(worker) if at == "RUNNING" else []
    if at == GATE:
        do(world, worker)
    before = [world.unit(one) for one in order]
    assert world.unit(run).state == at
    assert world.send(Cancel(unit=run, actor="ann")).applied
    succeeded = [unit for unit in before if unit.state == DONE]
    assert states(world, run) == ["CANCELED", *[DONE] * len(succeeded), *["CANCELED"] * (3 - len(succeeded))]
    assert len({world.events(one)[-1].at for one in (run, *order[len(succeeded) :])}) == 1
    assert [world.unit(one.id).version for one in succeeded] == [one.version for one in succeeded]
    for grant in late:
        assert world.finish(grant, result='"late"').why == "LEASE_REVOKED"
        assert world.body(grant.unit).result is None
    assert world.send(Cancel(unit=run)).applied is False  # A1-17
    assert world.claim(worker, limit=9) == []


@pytest.mark.req("R1-26")
def test_no_worker_ever_gets_an_approval(world: World) -> None:
    run, (_, ship, _), worker = started(world)
    do(world, worker)
    for poll in range(100):
        word = f"poll {poll}"
        assert world.engine.send(Claim(worker=worker, key=word, nonce=f"{word:0>16}")) == []
    lie = held(forged(world, worker, ship))
    (heard,) = world.send(Finish(outcomes=(Outcome(held=lie),)))
    assert (heard.accepted, heard.why) == (False, "UNKNOWN_LEASE")
    assert world.unit(ship).state == GATE
    assert world.count("event", "lifecycle = 'approval' AND lease_to IS NOT NULL") == 0
    assert world.count("unit", "lifecycle = 'approval' AND (fence > 0 OR holder IS NOT NULL)") == 0
    assert world.unit(run).state == GATE


def forged(world: World, worker: int, unit: int) -> Any:
    """A grant that nobody gave."""
    job = world.submit("other")
    (grant,) = world.claim(worker)
    assert grant.unit == job
    return msgspec.structs.replace(grant, unit=unit)


@pytest.mark.req("R1-22")
def test_output_and_cost_are_stored_and_the_runs_total_counts_failures(world: World) -> None:
    run, (build, deploy), worker = started(world, "build", "deploy")
    do(world, worker, ended="failure", cost=0.25)
    world.pass_time(2)
    do(world, worker, result='{"image": 7}', cost=1.5)
    assert world.body(build).result == '{"image": 7}'
    assert [world.unit(one).cost for one in (run, build, deploy)] == [1_750_000, 1_750_000, 0]
    (grant,) = world.claim(worker)
    assert dict(grant.outputs or ()) == {"build": '{"image": 7}'}
    world.finish(grant, cost=0.000001)
    assert world.unit(run).cost == 1_750_001
    costs = [msgspec.json.decode(event.payload).get("cost") for event in world.events(build)]
    assert [cost for cost in costs if cost] == [0.25, 1.5]


@pytest.mark.parametrize("cost", [-1, float("nan"), 1e30])
def test_what_is_no_cost_is_refused(world: World, cost: float) -> None:
    _, _, worker = started(world)
    (grant,) = world.claim(worker)
    with pytest.raises(InterlockError, match=r"cost = .* is not allowed"):
        world.finish(grant, cost=cost)


@pytest.mark.req("R1-28", "R1-21", "R1-46")
def test_a_stale_step_is_reclaimed_when_it_is_old_enough_and_its_lease_is_over(world: World) -> None:
    run, (build,), one = started(world, "build", reclaim_after_us=300 * SECOND, ttl_us=60 * SECOND)
    two = world.worker("two")
    (grant,) = world.claim(one)
    world.pass_time(100)
    world.tick()  # its lease is over, but it is not old enough
    assert world.claim(two) == []
    world.pass_time(199.999999)
    assert world.claim(two) == []
    world.pass_time(0.000001)
    (again,) = world.claim(two)
    assert (again.unit, again.fence, again.attempt) == (build, 2, 2)
    assert world.unit(build).losses == 1
    assert world.path(build) == [OPEN, "RUNNING"]
    assert world.finish(grant, result='"old"').why == "LEASE_SUPERSEDED"
    assert world.body(build).result is None
    assert world.finish(again, result='"new"').accepted
    assert (world.body(build).result, world.unit(run).state) == ('"new"', DONE)


def test_a_healthy_long_step_is_not_stolen(world: World) -> None:
    _, _, one = started(world, "build", reclaim_after_us=60 * SECOND)
    (grant,) = world.claim(one)
    two = world.worker("two")
    for _ in range(20):
        world.pass_time(15)
        assert world.beat(grant).accepted
        assert world.claim(two) == []
    assert world.finish(grant).accepted


@pytest.mark.req("R1-28", "R1-40")
def test_a_step_that_is_lost_too_often_fails(world: World) -> None:
    run, _, worker = started(world, "build", attempts=2, silent=True, ttl_us=10 * SECOND)
    for _ in range(2):
        assert len(world.claim(worker)) == 1
        world.pass_time(10)
        world.tick()
    assert states(world, run) == ["FAILED", "FAILED"]


@pytest.mark.req("R1-29", "R1-30")
def test_approving_when_nothing_waits_changes_nothing_and_says_so(world: World) -> None:
    run, order, worker = started(world)
    world.claim(worker)
    before = [world.unit(one) for one in (run, *order)]
    for one in (run, *order):
        answer = world.send(Vote(unit=one, voter="ann"))
        assert (answer.applied, answer.version) == (False, world.unit(one).version)
    assert [world.unit(one) for one in (run, *order)] == before
    assert world.count("note", "kind = 'vote'") == 0


@pytest.mark.req("R1-30", "R1-13")
def test_a_vote_is_counted_once_and_says_who_gave_it(world: World) -> None:
    run, (_, ship, _), worker = started(world, quorum=2, approvers=("ops", "ann"))
    do(world, worker)
    for stranger in ({"voter": "eve"}, {"voter": "eve", "roles": ("dev",)}):
        with pytest.raises(InterlockError, match="NOT_AN_APPROVER: 'eve' has no vote here; these have: ops, ann"):
            world.send(Vote(unit=run, **stranger))  # type: ignore[arg-type]
    assert world.send(Vote(unit=run, voter="ann", reason="fine")).applied
    assert world.send(Vote(unit=run, voter="ann")).applied is False
    with pytest.raises(InterlockError, match="NOT_AN_APPROVER"):
        world.send(Decide(unit=ship, trigger="approve", actor="eve"))  # no way round
    assert world.unit(ship).state == GATE
    assert world.send(Vote(unit=run, voter="bob", roles=("ops",))).applied
    assert world.send(Vote(unit=run, voter="cy", roles=("ops",))).applied is False
    assert states(world, run) == ["RUNNING", DONE, DONE, OPEN]
    told = [(note.name, msgspec.json.decode(note.payload)) for note in world.notes(ship, "vote")]
    assert told == [
        ("ann", {"approve": True, "comment": "fine", "roles": [], "vouched_by": ""}),
        ("bob", {"approve": True, "comment": "", "roles": ["ops"], "vouched_by": ""}),
    ]
    assert msgspec.json.decode(world.body(ship).result or "") == {"by": ["ann", "bob"], "comment": ""}


def test_the_submitter_may_not_approve_where_the_template_says_so(world: World) -> None:
    defined(world, "ship", not_submitter=True)
    order = Submit(work=(Work(task="release", lifecycle="workflow_run", template="release"),), actor="ann")
    run = world.send(order)[0].unit
    with pytest.raises(InterlockError, match="'ann' submitted this"):
        world.send(Vote(unit=run, voter="ann"))
    assert world.send(Vote(unit=run, voter="bob")).applied
    assert world.unit(run).state == DONE


def test_a_vote_may_name_its_step(world: World) -> None:
    gates = tuple(Work(task=name, lifecycle="approval", ref=name) for name in ("legal", "ops"))
    world.send(DefineTemplate(name="release", steps=gates))
    run = begun(world)
    assert world.send(Vote(unit=run, voter="ann", step="ops")).applied
    assert states(world, run) == [GATE, GATE, DONE]
    with pytest.raises(Unknown, match="no open step 'ops'; it has legal"):
        world.send(Vote(unit=run, voter="bob", step="ops"))


@pytest.mark.req("R1-30", "R1-42")
def test_fifty_approvals_and_sixty_four_submits_at_once(server: str, tmp_path: Path) -> None:
    """Through the whole engine, with its threads and connections, on both databases."""
    with fresh_postgres(server, f"a{abs(hash(tmp_path))}") as url:
        for place in (url, f"sqlite:///{tmp_path}/work.db"):
            at_once(place)


def at_once(url: str) -> None:
    steps = (
        Work(task="ship", lifecycle="approval", ref="ship"),
        Work(task="x", lifecycle="step", ref="x", needs=("ship",)),
    )
    order = Submit(work=(Work(task="r", lifecycle="workflow_run", template="r", key="one", input='{"a": 1}'),))
    with open_engine(url, shipped()) as one, open_engine(url, shipped()) as two, ThreadPoolExecutor(32) as pool:
        one.send(DefineTemplate(name="r", steps=steps))
        made = list(pool.map(lambda n: (one, two)[n % 2].send(order)[0], range(64)))
        assert sum(answer.created for answer in made) == 1
        (run,) = {answer.unit for answer in made}
        votes = [Vote(unit=run, voter=f"v{n}") for n in range(50)]
        answers = list(pool.map(lambda n: (one, two)[n % 2].send(votes[n]), range(50)))
        assert sum(answer.applied for answer in answers) == 1
        assert one.read(lambda connection: read_summary(connection, 1, run)).state == "RUNNING"
        approved = one.read(lambda connection: connection.rows("SELECT count(*) FROM event WHERE trigger = 'approve'"))
        assert approved == [(1,)]
        assert one.read(lambda connection: connection.rows("SELECT count(*) FROM unit")) == [(3,)]


@pytest.mark.req("R1-34", "R1-35")
def test_steps_of_a_run_never_overlap_nor_change_their_order(world: World) -> None:
    defined(world, "a", "b", "c")
    runs = [begun(world) for _ in range(5)]
    workers = [world.worker(f"w{n}") for n in range(3)]
    while any(world.unit(run).outcome is None for run in runs):
        grants = [grant for worker in workers for grant in world.claim(worker, limit=2)]
        assert len({world.unit(grant.unit).parent for grant in grants}) == len(grants)
        for grant in grants:
            world.finish(grant)
    for run in runs:
        in_order(world, run)


def in_order(world: World, run: int) -> None:
    order = steps(world, run)
    begins = {one: next(e.at for e in world.events(one) if e.target == "RUNNING") for one in order}
    ends = {one: next(e.at for e in world.events(one) if e.target == DONE) for one in order}
    assert all(ends[first] <= begins[second] for first, second in itertools.pairwise(order))


def test_a_claim_that_began_before_the_end_it_saw_is_told_as_later(world: World) -> None:
    _, (first, second), worker = started(world, "a", "b")
    assert do(world, worker) == first
    world.pass_time(-0.005)  # its transaction looked at the clock, and then waited for the end of the first step
    assert do(world, worker) == second
    ended, began = world.events(first)[-1], next(event for event in world.events(second) if event.lease_to)
    assert ended.at <= began.at


@pytest.mark.req("R1-11", "R1-12")
def test_there_are_six_states_and_the_database_knows_no_seventh(world: World) -> None:
    names = {OPEN, "RUNNING", GATE, DONE, "FAILED", "CANCELED"}
    assert set(world.lifecycles["workflow_run"].states) == names
    assert set(world.lifecycles["step"].states) | set(world.lifecycles["approval"].states) == names
    run, (build, *_), _ = started(world)
    for unit in (run, build):
        with pytest.raises(Unknown, match="has no state 'PAUSED'"):
            world.send(Force(unit=unit, state="PAUSED", reason="try"))


@pytest.mark.req("R1-19")
def test_the_wait_is_durable(server: str, tmp_path: Path) -> None:
    with fresh_postgres(server, f"d{abs(hash(tmp_path))}") as url:
        for place in (url, f"sqlite:///{tmp_path}/work.db"):
            steps = (Work(task="ship", lifecycle="approval", ref="ship"),)
            order = Submit(work=(Work(task="r", lifecycle="workflow_run", template="r"),))
            with open_engine(place, shipped()) as engine:
                engine.send(DefineTemplate(name="r", steps=steps))
                run = engine.send(order)[0].unit
            with open_engine(place, shipped()) as engine:
                assert engine.read(lambda connection, one=run: read_summary(connection, 1, one)).state == GATE  # type: ignore[misc]
                assert engine.send(Vote(unit=run, voter="ann")).applied
                assert engine.read(lambda connection, one=run: read_summary(connection, 1, one)).state == DONE  # type: ignore[misc]


@pytest.mark.req("R1-41", "R1-42", "R1-43")
def test_a_key_stands_for_one_run_of_its_tenant(world: World) -> None:
    defined(world, *RELEASE)
    theirs = DefineTemplate(tenant=2, name="release", steps=(Work(task="x", lifecycle="step", ref="x"),))
    world.send(theirs)
    facts = {"lifecycle": "workflow_run", "template": "release", "key": "k"}
    work = Work(task="release", input='{"v": 1}', **facts)  # type: ignore[arg-type]
    first, again = (world.send(Submit(work=(work,)))[0] for _ in range(2))
    assert (first.created, again.created, first.unit == again.unit) == (True, False, True)
    with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT"):
        world.send(Submit(work=(msgspec.structs.replace(work, input='{"v": 2}'),)))
    other = world.send(Submit(tenant=2, work=(work,)))[0]
    assert other.created
    assert world.count("unit", "lifecycle = 'workflow_run'") == 2
    keyed = Submit(work=(msgspec.structs.replace(work, key=None),), idempotency_key="request")
    assert world.send(keyed) == world.send(keyed)
    assert world.count("unit", "lifecycle = 'workflow_run'") == 3


@pytest.mark.req("R1-44", "R1-45")
def test_another_tenant_finds_no_run(world: World) -> None:
    run, (_, ship, _), worker = started(world)
    do(world, worker)
    theirs = 2
    for unit in (run, ship):
        refusals = []
        for one in (unit, 987_654):
            for command in (Cancel(unit=one, tenant=theirs), Vote(unit=one, tenant=theirs, voter="eve")):
                with pytest.raises(Unknown) as refused:
                    world.send(command)  # type: ignore[arg-type]
                refusals.append(str(refused.value).replace(str(one), "ID"))
        assert len(set(refusals)) == 1  # nothing tells one that is there from one that is not
    assert world.engine.read(lambda connection: listing(connection, theirs, Filter(), 10), theirs) == []
    with pytest.raises(Unknown):
        world.engine.read(lambda connection: read_summary(connection, theirs, run), theirs)
    with pytest.raises(Unknown, match="no template 'release'"):
        world.send(Submit(tenant=theirs, work=(Work(task="r", lifecycle="workflow_run", template="release"),)))
    assert states(world, run) == [GATE, DONE, GATE, OPEN]
