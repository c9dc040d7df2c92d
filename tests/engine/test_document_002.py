"""Document 002, sentence by sentence: what it says of a job is what the engine does."""

import msgspec
import pytest

from interlock.kernel.commands import (
    ERROR_CLASSES,
    REASONS,
    STAGES,
    Bury,
    Claim,
    Decide,
    Finish,
    Force,
    LeaseGrant,
    Outcome,
    Record,
    Requeue,
    Start,
    Submit,
    Work,
)
from interlock.kernel.errors import InterlockError, LeaseConflictError, Refused, Stale
from interlock.lifecycles import shipped
from interlock.store.queries.views import Filter, find_matching, listing
from tests.engine.world import World, held
from tests.store.databases import declare
from tests.store.raw_acts import path_of, write_act

SECOND = 1_000_000
SIX_FIELDS = {"reason_code", "last_error", "attempts", "last_owner", "last_lease_expires_at", "correlation_id"}


def claimed(world: World, **work: object) -> LeaseGrant:
    world.submit(**work)
    (grant,) = world.claim(world.worker())
    return grant


def running(world: World, **work: object) -> LeaseGrant:
    grant = claimed(world, **work)
    assert world.start(grant).accepted
    return grant


def letter(world: World, unit: int) -> dict[str, object]:
    """What the dead letter says of itself."""
    assert world.unit(unit).state == "dead_lettered"
    told: dict[str, object] = msgspec.json.decode(world.events(unit)[-1].payload)
    return told


@pytest.mark.req("R2-03", "R2-56")
def test_one_lifecycle_serves_every_kind_of_worker(world: World) -> None:
    kinds = ("indexing", "research", "execution", "qa")
    units = [world.submit(task=kind) for kind in kinds]
    worker = world.worker()
    for grant in world.claim(worker, limit=9):
        world.start(grant)
        unit = world.unit(grant.unit)
        assert (unit.state, unit.lease, unit.holder) == ("running", "ACTIVE", worker)
        world.finish(grant)
    assert {world.unit(unit).lifecycle for unit in units} == {"job"}
    assert {tuple(world.path(unit)) for unit in units} == {("queued", "assigned", "running", "succeeded")}


@pytest.mark.req("R2-04")
def test_what_is_queued_is_listed_whatever_it_waits_for(world: World) -> None:
    """Ready, delayed, behind a mutex, behind a need and backing off: all of them are queued, and are seen to be."""
    ready, delayed = world.submit(attempts=9), world.submit(delay_us=60 * SECOND)
    first, second = world.submit(mutex="m"), world.submit(mutex="m")
    blocked = world.send(Submit(work=(Work(task="a", ref="a"), Work(task="b", needs=("a",)))))
    all_of_them = [ready, delayed, first, second, *(one.unit for one in blocked)]

    def queued() -> list[int]:
        declare(world.connection, 1)
        seen = listing(world.connection, 1, Filter(states=("queued",)), 50)
        assert find_matching(world.connection, 1, Filter(states=("queued",))) == sorted(one.unit.id for one in seen)
        return sorted(one.unit.id for one in seen)

    assert queued() == all_of_them
    grants = world.claim(world.worker(), limit=9)
    taken = {grant.unit for grant in grants}
    assert taken == {ready, first, blocked[0].unit}  # and only what may run now is claimed
    assert queued() == [one for one in all_of_them if one not in taken]
    world.start(grants[0])
    assert world.finish(grants[0], ended="failure").state == "queued"
    assert ready in queued()  # it backs off (A2-5)


@pytest.mark.req("R2-05", "R2-11")
def test_assigned_means_claimed_and_not_begun(world: World) -> None:
    unit = world.unit(claimed(world).unit)
    assert (unit.state, unit.lease, unit.started_at) == ("assigned", "GRANTED", None)
    assert unit.holder is not None


@pytest.mark.req("R2-06", "R2-22")
def test_who_does_not_renew_has_lost_it(world: World) -> None:
    grant = claimed(world)
    world.pass_time(40)
    assert world.start(grant).why == "LEASE_EXPIRED"
    assert world.beat(grant).why == "LEASE_EXPIRED"
    assert world.finish(grant).why == "LEASE_EXPIRED"
    assert world.unit(grant.unit).state == "assigned"


def test_artifacts_are_there_when_success_is(world: World) -> None:
    grant = running(world)
    committer = world.engine.committer
    kept = committer.put(Record(held=(held(grant),), kind="artifact", name="report", payload='"pages"'))
    done = committer.put(Finish(outcomes=(Outcome(held=held(grant)),)))
    committer.step()  # one transaction
    assert kept.result()[0].accepted
    assert done.result()[0].state == "succeeded"
    assert world.count("artifact", f"unit = {grant.unit}") == 1


@pytest.mark.req("R2-08")
@pytest.mark.parametrize(
    ("work", "kind"), [({}, "PermanentError"), ({"attempts": 1, "exhausted": "fail"}, "TransientError")]
)
def test_failed_is_for_good(world: World, work: dict[str, object], kind: str) -> None:
    grant = running(world, **work)
    assert world.finish(grant, ended="failure", error_class=kind).state == "failed"
    world.pass_time(10_000)
    world.tick()
    assert world.claim(world.worker("other"), limit=9) == []


@pytest.mark.req("R2-09", "R2-15")
def test_cancelled_comes_before_completion(world: World) -> None:
    for grant in (None, claimed(world), running(world)):
        unit = grant.unit if grant else world.submit()
        assert world.cancel(unit, hard=True).state == "cancelled"
    done = running(world)
    world.finish(done)
    with pytest.raises(Refused, match="no 'cancel' from 'succeeded'"):
        world.cancel(done.unit)


@pytest.mark.req("R2-10", "R2-14")
def test_a_dead_letter_comes_from_every_open_state(world: World) -> None:
    for unit, code in (
        (claimed(world).unit, "validation_failed"),
        (running(world).unit, "infrastructure_failure"),
        (world.submit(), "policy_violation"),
    ):
        world.send(Bury(unit=unit, reason=code))
        assert letter(world, unit)["reason_code"] == code
    assert world.count("event", "payload LIKE '%reason_code%'") == world.count("unit", "state = 'dead_lettered'") == 3


@pytest.mark.req("R2-12")
def test_running_begins_by_start_by_a_first_beat_or_not_at_all(world: World) -> None:
    assert running(world, key="a")
    first = claimed(world)
    assert world.beat(first, running=False).state == "assigned"
    assert world.beat(first).state == "running"
    for kind, state in (("TransientError", "queued"), ("ValidationError", "dead_lettered")):
        failing = claimed(world)
        assert world.finish(failing, ended="failure", error_class=kind, stage="input").state == state


def test_running_leads_to_three_ends(world: World) -> None:
    ends = {"success": "succeeded", "failure": "failed", "cancelled": "cancelled"}
    for ended, state in ends.items():
        grant = running(world)
        if ended == "cancelled":
            world.cancel(grant.unit)
        assert world.finish(grant, ended=ended, error_class="PermanentError").state == state


@pytest.mark.req("R2-17")
def test_there_is_room_for_one_lease_only(world: World) -> None:
    """A lease is columns of the unit's row: a second one has no place to be."""
    grant = running(world)
    worker = world.worker("other")
    assert world.claim(worker, limit=9) == []
    assert world.unit(grant.unit).fence == grant.fence


@pytest.mark.req("R2-18")
def test_nothing_goes_back_within_an_attempt(world: World) -> None:
    grant = running(world)
    world.release(grant)
    (again,) = world.claim(world.worker("other"))
    world.start(again)
    with pytest.raises(Refused):
        world.send(Decide(unit=again.unit, trigger="release"))
    world.finish(again)
    ranks = {"queued": 0, "assigned": 1, "running": 2, "succeeded": 3}
    seen: dict[int, int] = {}
    for event in world.events(again.unit):
        assert ranks[event.target] > seen.get(event.attempt, -1)
        seen[event.attempt] = ranks[event.target]
    assert sorted(seen) == [1, 2]


@pytest.mark.req("R2-20", "R2-36")
def test_every_event_is_whole_and_in_order(world: World) -> None:
    grant = running(world, correlation="c", trace="t")
    world.beat(grant)
    world.finish(grant, ended="failure")
    events = world.events(grant.unit)
    assert [event.version for event in events] == [1, 2, 3, 4]
    assert [event.source for event in events] == [None, *(event.target for event in events[:-1])]
    columns = "id, job_id, type, ts, actor, correlation_id, cause, payload, version"
    for row in world.connection.rows(f"SELECT {columns} FROM job_event"):
        told = dict(zip(columns.split(", "), row, strict=True))
        assert all(told[name] is not None for name in told if name != "cause"), told
        assert told["job_id"] == grant.unit
        assert told["correlation_id"] == "c"
    assert all(event.at and event.actor and event.reason and event.correlation for event in events)


@pytest.mark.req("R2-21", "R2-39")
def test_a_message_that_comes_twice_is_answered_twice_and_done_once(world: World) -> None:
    world.submit()
    world.submit()
    worker = world.worker()
    (grant,) = world.claim(worker, key="once", nonce="n" * 16)
    assert world.claim(worker, key="once", nonce="n" * 16) == [grant]
    for _ in range(2):
        assert world.start(grant).state == "running"
    for _ in range(2):
        assert world.finish(grant, result="7").state == "succeeded"
    assert world.finish(grant, result="8").why == "LEASE_ENDED"
    assert world.names(grant.unit) == ["job_queued", "job_claimed", "job_started", "job_succeeded"]


@pytest.mark.req("R2-21")
@pytest.mark.parametrize("say", ["failure", "release", "cancelled"])
def test_an_end_that_is_said_twice_is_one_end(world: World, say: str) -> None:
    grant = running(world)
    if say == "cancelled":
        world.cancel(grant.unit)
    first, again = [
        world.release(grant) if say == "release" else world.finish(grant, ended=say, error="no route") for _ in range(2)
    ]
    assert first.accepted
    assert (again.accepted, again.state) == (True, first.state)
    assert len(world.events(grant.unit)) == 4
    assert not world.finish(grant, ended="failure", error="another").accepted


@pytest.mark.req("R2-23", "R2-25")
def test_lease_and_beat_are_the_types_own_within_bounds(world: World) -> None:
    assert (claimed(world).ttl_us, claimed(world).beat_us) == (60 * SECOND, 20 * SECOND)
    own = claimed(world, ttl_us=90 * SECOND, beat_us=15 * SECOND)
    assert (own.ttl_us, own.beat_us) == (90 * SECOND, 15 * SECOND)
    refused = (
        ({"ttl_us": 29 * SECOND}, "ttl_us = 29s is not allowed; 30s to 2m is"),
        ({"ttl_us": 121 * SECOND}, "ttl_us = 2m 1s is not allowed"),
        ({"beat_us": 9 * SECOND}, "beat_us = 9s is not allowed; 10s to 30s is"),
        ({"beat_us": 31 * SECOND}, "beat_us = 31s is not allowed"),
        ({"ttl_us": 30 * SECOND, "beat_us": 20 * SECOND}, "at least two heartbeats of 20s"),
    )
    for work, said in refused:
        with pytest.raises(InterlockError) as error:
            world.submit(**work)
        assert said in str(error.value)


@pytest.mark.req("R2-50")
def test_work_that_cannot_beat_is_leased_for_as_long_as_it_takes(world: World) -> None:
    grant = claimed(world, silent=True, ttl_us=600 * SECOND, sla_us=600 * SECOND)
    world.start(grant)
    assert (grant.ttl_us, grant.beat_us) == (600 * SECOND, 0)
    world.pass_time(599)
    world.tick()
    assert world.finish(grant).accepted
    for work, said in (
        ({"silent": True, "ttl_us": 100 * SECOND, "sla_us": 101 * SECOND}, "below the sla_us"),
        ({"silent": True, "ttl_us": 601 * SECOND}, "ttl_us = 10m 1s is not allowed"),
    ):
        with pytest.raises(InterlockError, match=said):
            world.submit(**work)
    with pytest.raises(InterlockError, match="silent work is not allowed here"):
        world.submit(lifecycle="ci_attempt", silent=True)


@pytest.mark.req("R2-26", "R2-27")
def test_two_missed_beats_are_the_end_of_a_lease(world: World) -> None:
    grant = running(world, attempts=2)
    other = world.worker("other")
    world.pass_time(39)
    assert world.claim(other) == []
    world.pass_time(1)
    (again,) = world.claim(other)
    assert (again.unit, again.attempt, again.fence) == (grant.unit, 2, 2)
    world.pass_time(41)
    world.tick()
    assert letter(world, grant.unit)["reason_code"] == "exhausted_retries"


@pytest.mark.req("R2-28", "R2-29")
@pytest.mark.parametrize("cap", [None, 3])
def test_backoff_doubles_spreads_and_is_capped(world: World, cap: int | None) -> None:
    work = Work(task="mail", attempts=9, backoff_cap_us=cap * SECOND if cap else None)
    world.send(Submit(work=(work,) * 200))
    worker = world.worker(capacity=500)
    for tries in range(1, 5):
        grants = world.claim(worker, limit=200)
        world.send(Start(held=tuple(map(held, grants))))
        failed = tuple(Outcome(held=held(grant), ended="failure") for grant in grants)
        assert {one.state for one in world.send(Finish(outcomes=failed))} == {"queued"}
        waits = [row[0] - world.now_us for row in world.connection.rows("SELECT due_at FROM unit WHERE due_at > 0")]
        expected = min((cap or 60) * SECOND, SECOND // 2 * 2**tries)
        assert len(waits) == 200
        assert all(0.5 * expected <= wait <= 1.5 * expected for wait in waits)
        assert max(waits) <= (cap or 60) * SECOND  # S-4
        assert len(set(waits)) > 150
        world.pass_time(100)


@pytest.mark.req("R2-30")
def test_attempts_and_what_follows_them_are_the_types_own(world: World) -> None:
    for work, tries, state in (
        ({"attempts": 2}, 2, "dead_lettered"),
        ({"attempts": 3, "exhausted": "fail"}, 3, "failed"),
    ):
        unit, worker = world.submit(**work), world.worker()
        for _ in range(tries):
            (grant,) = world.claim(worker)
            world.start(grant)
            heard = world.finish(grant, ended="failure")
            world.pass_time(100)
        assert heard.state == state
        assert world.unit(unit).failures == tries


def test_a_soft_cancel_is_told_and_answered(world: World) -> None:
    grant = running(world)
    assert world.cancel(grant.unit).state == "running"
    assert world.beat(grant).cancel
    world.send(Record(held=(held(grant),), kind="checkpoint", payload='{"page": 7}'))
    assert world.finish(grant, ended="cancelled").state == "cancelled"
    assert [note.payload for note in world.notes(grant.unit, "checkpoint")] == ['{"page": 7}']
    assert len(world.notes(grant.unit, "cancel_requested")) == 1


@pytest.mark.req("R2-32")
def test_a_hard_cancel_is_immediate(world: World) -> None:
    grant = running(world)
    assert world.cancel(grant.unit, hard=True).state == "cancelled"
    assert world.finish(grant).why == "LEASE_REVOKED"


@pytest.mark.req("R2-34", "R2-52")
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("code", REASONS)
def test_every_reason_and_every_stage_is_told_with_six_fields(world: World, code: str, stage: str) -> None:
    grant = claimed(world, correlation="c-1")
    world.finish(grant, ended="failure", error_class="PermanentError", error="it broke", reason_code=code, stage=stage)
    told = letter(world, grant.unit)
    assert told.keys() >= SIX_FIELDS
    assert (told["reason_code"], told["stage"]) == (code, stage)
    assert (told["last_error"], told["attempts"], told["last_owner"]) == ("it broke", 1, "w")
    assert (told["last_lease_expires_at"], told["correlation_id"]) == (grant.until, "c-1")


def test_other_words_are_refused(world: World) -> None:
    grant = claimed(world)
    for words in (
        {"reason_code": "bad luck"},
        {"stage": "lunch"},
        {"ended": "maybe"},
        {"error_class": "OSError"},
    ):
        with pytest.raises(InterlockError, match="is not allowed; allowed are"):
            world.finish(grant, **{"ended": "failure", **words})
    assert world.unit(grant.unit).state == "assigned"


@pytest.mark.req("R2-34")
def test_reasons_that_nobody_gives_are_known(world: World) -> None:
    late = world.submit(queue_timeout_us=5 * SECOND)
    world.pass_time(6)
    world.tick()
    assert letter(world, late)["reason_code"] == "timeout"
    assert (letter(world, late)["last_owner"], letter(world, late)["last_lease_expires_at"]) == (None, None)
    slow = running(world, timeout_us=5 * SECOND, attempts=1)
    world.pass_time(6)
    world.tick()
    assert letter(world, slow.unit)["reason_code"] == "timeout"
    wrong = claimed(world)
    world.finish(wrong, ended="failure", error_class="ValidationError")
    assert letter(world, wrong.unit)["reason_code"] == "validation_failed"


@pytest.mark.req("R2-34")
def test_a_dead_letter_knows_its_last_owner_also_when_it_waits(world: World) -> None:
    grant = running(world)
    world.finish(grant, ended="failure", error="no route")
    world.send(Bury(unit=grant.unit, reason="dependency_unavailable"))
    told = letter(world, grant.unit)
    assert (told["last_owner"], told["last_error"], told["last_lease_expires_at"]) == ("w", "no route", grant.until)


@pytest.mark.req("R2-35", "R2-38")
def test_heartbeats_are_remembered_for_a_while(world: World) -> None:
    grant = running(world)
    world.pass_time(10)
    world.beat(grant)
    world.finish(grant)

    def kinds() -> list[str]:
        rows = world.connection.rows(
            "SELECT type FROM job_event WHERE job_id = :job ORDER BY ts, id", {"job": grant.unit}
        )
        return sorted(kind for (kind,) in rows)

    moves = ["job_claimed", "job_queued", "job_started", "job_succeeded"]
    assert kinds() == sorted([*moves, "job_heartbeat", "job_lease_renewed"])
    world.pass_time(2 * 86_400)
    world.tick()
    assert kinds() == moves


@pytest.mark.req("R2-43")
def test_trace_and_correlation_go_where_the_work_goes(world: World) -> None:
    grant = running(world, correlation="c-9", trace="t-9", attempts=1)
    assert (grant.correlation, grant.trace) == ("c-9", "t-9")
    child = world.submit(parent=grant.unit)
    assert (world.body(child).correlation, world.body(child).trace) == ("c-9", "t-9")
    world.finish(grant, ended="failure")
    assert {(event.correlation, event.trace) for event in world.events(grant.unit)} == {("c-9", "t-9")}
    assert letter(world, grant.unit)["correlation_id"] == "c-9"


@pytest.mark.req("R2-47")
def test_what_has_ended_never_runs_again(world: World) -> None:
    grant = running(world)
    world.finish(grant)
    with pytest.raises(Exception, match=r"interlock guard \[chain\]"):
        write_act(world.connection, path_of("job", "assigned", "GRANTED", "start/activate"), grant.unit)
    # On PostgreSQL the role for programs has not even the right; what the guard says to others is in tests/store.
    for table, change in (
        ("act", "UPDATE act SET actor = 'me'"),
        ("unit", "UPDATE unit SET state = 'running'"),
        ("act", "DELETE FROM act"),
    ):
        denied = f"permission denied for table {table}" if world.connection.many_writers else r"interlock guard \["
        with pytest.raises(Exception, match=denied):
            world.connection.rows(change)


def test_two_workers_with_one_claim_key_have_one_lease(world: World) -> None:
    world.submit()
    one, two = world.worker("one"), world.worker("two")
    grants = [world.send(Claim(worker=worker, key="k", nonce="n" * 16)) for worker in (one, two)]
    assert [len(granted) for granted in grants] == [1, 0]


@pytest.mark.req("R2-51")
def test_a_worker_that_comes_back_changes_nothing(world: World) -> None:
    zombie = running(world)
    world.pass_time(41)
    (grant,) = world.claim(world.worker("other"))
    world.start(grant)
    said = [
        world.finish(zombie),
        world.beat(zombie),
        world.send(Record(held=(held(zombie),), kind="artifact", name="a"))[0],
    ]
    assert [heard.why for heard in said] == ["LEASE_SUPERSEDED"] * 3
    world.send(Record(held=(held(grant),), kind="artifact", name="a"))
    world.finish(grant)
    assert world.count("artifact") == 1


@pytest.mark.req("R2-54")
def test_an_error_class_decides_what_follows(world: World) -> None:
    assert LeaseConflictError is Stale
    states = {"TransientError": "queued", "PermanentError": "failed", "ValidationError": "failed"}
    assert states.keys() | {"LeaseConflictError"} == ERROR_CLASSES.keys()
    for kind, state in states.items():
        grant = running(world)
        assert world.finish(grant, ended="failure", error_class=kind).state == state
    grant = running(world)
    heard = world.finish(grant, ended="failure", error_class="LeaseConflictError")
    assert (heard.accepted, heard.why) == (False, "LEASE_CONFLICT")
    assert (world.unit(grant.unit).state, world.unit(grant.unit).failures) == ("running", 0)


@pytest.mark.req("X-15")
def test_a_dead_letter_is_requeued_as_a_new_job_that_names_it(world: World) -> None:
    grant = running(world, attempts=1)
    world.finish(grant, ended="failure")
    assert world.count("unit", "category = 'dead'") == 1
    new = world.send(Requeue(unit=grant.unit)).unit
    assert (world.body(new).retry_of, world.unit(new).state) == (grant.unit, "queued")
    assert world.unit(grant.unit).state == "dead_lettered"


@pytest.mark.req("X-07")
def test_the_most_urgent_is_claimed_first_and_then_the_oldest(world: World) -> None:
    units = []
    for priority in (0, 5, 0, 5, 9):
        units.append(world.submit(priority=priority))
        world.pass_time(1)
    order = [grant.unit for grant in world.claim(world.worker(), limit=9)]
    assert order == [units[4], units[1], units[3], units[0], units[2]]


@pytest.mark.req("X-08")
@pytest.mark.parametrize("asked", [(), ("gpu",), ("gpu", "linux")])
@pytest.mark.parametrize("has", [(), ("gpu",), ("linux",), ("gpu", "linux", "ssd")])
def test_a_worker_gets_what_it_can_do(world: World, asked: tuple[str, ...], has: tuple[str, ...]) -> None:
    world.submit(capabilities=asked)
    assert len(world.claim(world.worker(capabilities=has))) == (set(asked) <= set(has))


@pytest.mark.req("X-23")
def test_an_artifact_is_written_once_an_attempt(world: World) -> None:
    grant = running(world)
    keep = Record(held=(held(grant),), kind="artifact", name="log", payload='"one"')
    assert world.send(keep)[0].accepted
    with pytest.raises(InterlockError, match="has an artifact 'log' already"):
        world.send(msgspec.structs.replace(keep, payload='"two"'))
    assert world.connection.rows("SELECT data, attempt FROM artifact") == [('"one"', 1)]


def test_force_is_listed_nowhere_and_still_told(world: World) -> None:
    unit = world.submit()
    world.send(Force(unit=unit, state="succeeded", reason="done by hand", actor="ann"))
    assert not shipped()["job"].allows("queued", "force")
    assert (world.events(unit)[-1].actor, world.events(unit)[-1].reason) == ("ann", "done by hand")
