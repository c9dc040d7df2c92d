"""The golden answers of `why`: for each reason one story, and the whole text that people are told."""

from pathlib import Path

import pytest

from interlock.client.schedules import explain_schedule
from interlock.client.why import Why, explain
from interlock.kernel.commands import (
    PERMANENT,
    Bury,
    Decide,
    DefineSchedule,
    Drain,
    Force,
    PauseSchedule,
    Record,
    Revoke,
    SetTenant,
    Submit,
    Vote,
    Work,
)
from interlock.kernel.errors import Unknown
from interlock.lifecycles import shipped
from tests.engine.test_families import workflow, workstream
from tests.engine.world import SECOND, World, held
from tests.store.databases import declare

GOLDEN = Path(__file__).with_name("why.txt")
BOTH = pytest.mark.parametrize("world", ["sqlite memory", "postgres"], indirect=True)


def why(world: World, unit: int) -> Why:
    declare(world.connection, 1)
    return explain(world.connection, 1, world.lifecycles, unit)


class Stories:
    """Each leads to a unit that somebody may wonder about."""

    @staticmethod
    def delayed(world: World) -> int:
        return world.submit(delay_us=90 * SECOND)

    @staticmethod
    def backing_off(world: World) -> int:
        job = world.submit()
        (grant,) = world.claim(world.worker())
        world.start(grant)
        world.finish(grant, ended="failure", error="the mail server said no\nTraceback …")
        return job

    @staticmethod
    def snoozed(world: World) -> int:
        job = world.submit()
        (grant,) = world.claim(world.worker())
        world.start(grant)
        world.release(grant, snooze_us=3600 * SECOND)
        return job

    @staticmethod
    def mutex(world: World) -> int:
        world.submit(mutex="billing")
        job = world.submit(mutex="billing")
        world.claim(world.worker("ann"))
        return job

    @staticmethod
    def limit(world: World) -> int:
        for _ in range(2):
            world.submit(limit_key="api", limit=2)
        job = world.submit(limit_key="api", limit=2)
        world.claim(world.worker("ann"))
        return job

    @staticmethod
    def rate(world: World) -> int:
        for _ in range(3):
            job = world.submit(rate_key="api", rate=2, rate_per_us=60 * SECOND)
        world.claim(world.worker("ann"))
        world.pass_time(20)
        return job

    @staticmethod
    def tenant_limit(world: World) -> int:
        for _ in range(3):
            job = world.submit()
        world.send(SetTenant(name="acme", max_running=2, actor="eve"))
        world.claim(world.worker("ann"), limit=3)
        return job

    @staticmethod
    def no_workers(world: World) -> int:
        return world.submit(queue="mail")

    @staticmethod
    def queue_without_workers(world: World) -> int:
        worker, _ = world.worker("ann"), world.worker("bob")
        world.claim(worker, queues=("web", "default"))
        return world.submit(queue="mail")

    @staticmethod
    def no_capable_worker(world: World) -> int:
        for name, capabilities in (("ann", ("eu",)), ("bob", ("eu", "gpu")), ("cid", ())):
            world.claim(world.worker(name, capabilities=capabilities))
        return world.submit(capabilities=("big", "eu", "gpu"))

    @staticmethod
    def workers_full(world: World) -> int:
        world.submit()
        job = world.submit()
        world.claim(world.worker("ann", capacity=1))
        return job

    @staticmethod
    def workers_draining(world: World) -> int:
        world.submit()
        worker = world.worker("ann")
        world.claim(worker)
        world.send(Drain(worker=worker))
        return world.submit()

    @staticmethod
    def workers_silent(world: World) -> int:
        world.submit()
        world.claim(world.worker("ann"))
        world.pass_time(91)
        world.tick()
        world.pass_time(9)
        return world.submit()

    @staticmethod
    def ready(world: World) -> int:
        worker = world.worker("ann")
        world.claim(worker)
        world.submit(priority=1)
        return world.submit()

    @staticmethod
    def needs_unmet(world: World) -> int:
        first, second, third = world.submit(), world.submit(), world.submit()
        (grant,) = world.claim(world.worker("ann"))
        world.start(grant)
        world.finish(grant)
        return world.submit(after=(first, second), after_end=(third,))

    @staticmethod
    def need_lost(world: World) -> int:
        first = world.submit()
        job = world.submit(after=(first,))
        world.cancel(first)
        return job

    @staticmethod
    def task_blocked(world: World) -> int:
        parent = world.submit("site", lifecycle="workstream")
        first = world.submit("build", lifecycle="task", parent=parent, step="build", decides=False)
        task = world.submit("test", lifecycle="task", parent=parent, step="test", needs=("build",))
        world.submit("other", lifecycle="task", parent=parent)
        world.send(Decide(unit=parent, trigger="plan"))
        world.cancel(first)
        return task

    @staticmethod
    def name_yet_to_come(world: World) -> int:
        parent = world.submit("flow", lifecycle="workflow_run")
        return world.submit("ship", lifecycle="step", parent=parent, step="ship", needs=("build",))

    @staticmethod
    def waiting_for_approval(world: World) -> int:
        _, ship = workflow(world, "ship", expires_us=3600 * SECOND, quorum=2)
        world.send(Vote(unit=ship, voter="ann"))
        return ship

    @staticmethod
    def waiting_as_a_run(world: World) -> int:
        run, _ = workflow(world, "ship")
        return run

    @staticmethod
    def waiting_for_a_plan(world: World) -> int:
        work = (Work(task="s", lifecycle="workstream", ref="s"), Work(task="t", lifecycle="task", parent="s"))
        return world.send(Submit(work=work))[1].unit

    @staticmethod
    def its_own_plan(world: World) -> int:
        return world.submit(lifecycle="workstream")

    @staticmethod
    def children(world: World) -> int:
        run, *_ = workflow(world, "build", "deploy")
        world.claim(world.worker("ann"))
        return run

    @staticmethod
    def held_not_begun(world: World) -> int:
        job = world.submit()
        world.claim(world.worker("ann"))
        return job

    @staticmethod
    def running(world: World) -> int:
        job = world.submit(timeout_us=30 * SECOND)
        (grant,) = world.claim(world.worker("ann"))
        world.start(grant)
        world.pass_time(5)
        world.send(Record(held=(held(grant),), kind="progress", payload='{"done":0.25,"text":"page 3"}'))
        return job

    @staticmethod
    def lease_over(world: World) -> int:
        job = world.submit()
        world.claim(world.worker("ann"))
        world.pass_time(100)
        return job

    @staticmethod
    def cancel_requested(world: World) -> int:
        job = world.submit()
        (grant,) = world.claim(world.worker("ann"))
        world.start(grant)
        world.cancel(job, actor="eve", reason="wrong address")
        world.pass_time(12)
        return job

    @staticmethod
    def dead(world: World) -> int:
        job = world.submit(attempts=1)
        (grant,) = world.claim(world.worker("ann"))
        world.start(grant)
        world.finish(grant, ended="failure", error="no such host", stage="fetch")
        return job

    @staticmethod
    def buried(world: World) -> int:
        job = world.submit()
        world.send(Bury(unit=job, reason="parse_error", actor="eve"))
        return job

    @staticmethod
    def failed(world: World) -> int:
        job = world.submit()
        (grant,) = world.claim(world.worker("ann"))
        world.start(grant)
        world.finish(grant, ended="failure", error="bad address", error_class=PERMANENT)
        return job

    @staticmethod
    def succeeded(world: World) -> int:
        job = world.submit()
        world.pass_time(3)
        (grant,) = world.claim(world.worker("ann"))
        world.start(grant)
        world.pass_time(4)
        world.finish(grant)
        return job

    @staticmethod
    def cancelled(world: World) -> int:
        job = world.submit()
        world.cancel(job, actor="eve", reason="not wanted any more")
        return job

    @staticmethod
    def an_attempt_that_is_followed(world: World) -> int:
        work = (Work(task="run", lifecycle="ci_run", ref="run"), Work(task="build", lifecycle="ci_job", parent="run"))
        run, build = (made.unit for made in world.send(Submit(work=work)))
        world.send(Decide(unit=run, trigger="plan"))
        return build

    @staticmethod
    def taken_over_in_place(world: World) -> int:
        _, step = workflow(world, "build")
        world.claim(world.worker("ann"))
        world.pass_time(61)
        world.tick()
        return step

    @staticmethod
    def a_worker(world: World) -> int:
        return world.worker("ann")

    @staticmethod
    def a_silent_worker(world: World) -> int:
        """It has finished, released and snoozed jobs, and lost two: one by its silence, one to an operator."""
        worker = world.worker("ann", capacity=4)
        for _ in range(5):
            world.submit()
        done, freed, snoozed, revoked = world.claim(worker, 4)
        for grant in (done, freed, snoozed, revoked):
            world.start(grant)
        world.finish(done)
        world.release(freed)
        world.release(snoozed, snooze_us=3600 * SECOND)
        world.send(Revoke(unit=revoked.unit, reason="it hangs", actor="eve"))
        world.claim(worker)
        world.pass_time(91)
        world.tick()
        world.pass_time(9)
        return worker

    @staticmethod
    def a_worker_that_was_given_up(world: World) -> int:
        worker = world.worker("ann")
        world.submit()
        world.claim(worker)
        for seconds in (91, 181):
            world.pass_time(seconds)
            world.tick()
        return worker

    @staticmethod
    def a_worker_that_is_busy(world: World) -> int:
        worker = world.worker("ann")
        for _ in range(7):
            world.submit()
        world.claim(worker, 7)
        world.pass_time(3)
        return worker

    @staticmethod
    def a_blocked_task(world: World) -> int:
        _, docs, _, publish = workstream(
            world, ("docs", False, ()), ("pages", False, ("docs",)), ("publish", False, ("pages",))
        )
        world.submit("lint", lifecycle="task", parent=world.unit(docs).parent)
        (grant,) = world.claim(world.worker("ann"))
        world.finish(grant, ended="failure", error="no such page")
        return publish

    @staticmethod
    def forced(world: World) -> int:
        job = world.submit()
        world.send(Force(unit=job, state="running", reason="it was started by hand", actor="eve"))
        return job


STORIES = {name: story for name, story in vars(Stories).items() if isinstance(story, staticmethod)}


def answers() -> dict[str, tuple[str, str]]:
    """By story: the reason for programs, and the text for people."""
    found = {}
    for section in GOLDEN.read_text(encoding="utf-8").removeprefix("## ").split("\n\n## "):
        head, _, text = section.partition("\n")
        name, _, reason = head.partition(": ")
        found[name] = (reason, text.rstrip("\n"))
    return found


def test_every_story_has_its_answer_and_most_reasons_a_story() -> None:
    assert answers().keys() == STORIES.keys()
    assert len({reason for reason, _ in answers().values()}) >= 20


@BOTH
@pytest.mark.parametrize("name", STORIES)
def test_why_says_what_keeps_a_unit(name: str, world: World) -> None:
    found = why(world, STORIES[name].__func__(world))
    assert (found.reason, found.text) == answers()[name]
    assert found.text.startswith(found.answer)
    assert {move.trigger for move in found.moves} == set(
        world.lifecycles[found.unit.rpartition("_")[0]].triggers(found.state)
    )


@BOTH
def test_an_unknown_unit_is_told(world: World) -> None:
    with pytest.raises(Unknown, match="no job, run or step 99"):
        why(world, 99)


def test_a_unit_whose_lifecycle_file_is_not_here_is_still_shown(world: World) -> None:
    job = world.submit()
    declare(world.connection, 1)
    others = {name: lifecycle for name, lifecycle in shipped().items() if name != "job"}
    found = explain(world.connection, 1, others, job)
    assert found.text == "job_1 is queued (ready); the file of its lifecycle is not known here"
    assert found.moves == ()


def test_a_worker_is_known_by_the_queues_that_it_claims_from(world: World) -> None:
    worker = world.worker()
    for queues in (("b",), ("a", "b")):
        world.claim(worker, queues=queues)
    assert world.connection.rows("SELECT queues FROM worker") == [('["a","b"]',)]


@BOTH
def test_a_schedule_that_is_paused_says_by_whom_and_how_it_goes_on(world: World) -> None:
    world.send(DefineSchedule(name="nightly", timing="0 2 * * *", timezone="UTC", work=Work(task="report")))
    declare(world.connection, 1)
    waits = "schedule nightly waits for its next instant, "
    assert explain_schedule(world.connection, 1, "nightly").startswith(waits)
    world.send(PauseSchedule(name="nightly", actor="ann", reason="the disk is full"))
    declare(world.connection, 1)
    assert explain_schedule(world.connection, 1, "nightly") == (
        "schedule nightly was paused by ann at 2023-11-14T22:13:20Z: the disk is full; "
        "it goes on with `interlock schedule unpause nightly`"
    )


@BOTH
def test_whose_word_was_refused_is_told_once(world: World) -> None:
    job = world.submit()
    (late,) = world.claim(world.worker("ann"), actor="ann")
    world.start(late)
    world.pass_time(41)
    world.claim(world.worker("bob"), actor="bob")
    version = world.unit(job).version
    for _ in range(3):
        assert not world.finish(late).accepted
    assert world.unit(job).version == version
    assert why(world, job).refused == ("Finish of local under fence 1 at 2023-11-14T22:14:01.000Z: LEASE_SUPERSEDED",)
    assert "\nrefused   Finish of local" in why(world, job).text
