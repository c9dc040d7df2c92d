"""Many jobs at once: a selection finds what its filter means, acts on that, and leaves everything else untouched."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from interlock.client.app import App
from interlock.client.jobs import Job
from interlock.client.selections import PAGE, Selection
from interlock.kernel.commands import Bury
from interlock.kernel.errors import InterlockError, Unknown
from interlock.store.queries.lists import Amount
from interlock.testing import Stage

SYNC, AIO = "sync", "aio"
BOTH = pytest.mark.parametrize("way", [SYNC, AIO])


def call(way: str, verb, *args, **words):  # type: ignore[no-untyped-def]
    return verb(*args, **words) if way == SYNC else asyncio.run(verb.aio(*args, **words))


def listed(way: str, selection: Selection) -> list[int]:
    """The units that a selection iterates over."""

    async def gather() -> list[int]:
        return [job.unit async for job in selection]

    return [job.unit for job in selection] if way == SYNC else asyncio.run(gather())


@pytest.fixture
def app(stage: Stage) -> App:
    """Tasks that succeed, and one that gives up at once."""

    @stage.app.task
    def mail(to: int) -> int:
        return to

    @stage.app.task(queue="slow")
    def report() -> None: ...

    @stage.app.task(attempts=1)
    def broken(to: int) -> None:
        raise ValueError("no address")

    return stage.app


def mails(app: App, number: int) -> list[Job]:
    return [app.tasks["mail"].submit(to=one) for one in range(number)]


@BOTH
def test_a_cancel_by_filter_touches_what_fits_and_nothing_else(
    app: App, way: str, neighbour: Callable[[App], App]
) -> None:
    other = neighbour(app)
    strange = other.task(name="mail")(lambda: None).submit()
    meant, kept = mails(app, 3), app.tasks["report"].submit()
    elsewhere = app.tasks["mail"].submit(to=9, queue="later")
    told = call(way, app.jobs(task="mail", queue="default", state="queued").cancel, reason="not today")
    assert [one.id for one in told] == [job.id for job in meant]
    assert {(one.state, one.applied, one.refused) for one in told} == {("cancelled", True, None)}
    assert [job.state for job in meant] == ["cancelled"] * 3
    untouched = {job: job.look() for job in (kept, elsewhere)}
    assert all(seen.outcome is None for seen in untouched.values())
    assert strange.look().outcome is None
    assert call(way, app.jobs(task="mail", queue="default", state="queued").cancel) == []
    assert {job: job.look() for job in (kept, elsewhere)} == untouched
    assert call(way, app.jobs(queue="slow").cancel)[0].id == kept.id
    assert elsewhere.look().outcome is None


@BOTH
@pytest.mark.parametrize(
    ("words", "fits"),
    [
        ({"task": "mail"}, {"mail", "later"}),
        ({"queue": "slow"}, {"report"}),
        ({"key": "one"}, {"keyed"}),
        ({"correlation": "c1"}, {"later"}),
        ({"state": ["queued"], "lifecycle": "job"}, {"mail", "later", "report", "keyed"}),
        ({"state": "running"}, set()),
        ({"category": "waiting"}, set()),
        ({"category": ["waiting", "ready"], "task": "mail"}, {"mail", "later"}),
        ({"worker": "nobody"}, set()),
        ({"lifecycle": "worker"}, set()),
    ],
)
def test_each_word_of_a_filter_is_heard(app: App, way: str, words: dict[str, object], fits: set[str]) -> None:
    jobs = {
        "mail": app.tasks["mail"].submit(to=1),
        "later": app.tasks["mail"].submit(to=2, delay="1h", correlation="c1"),
        "report": app.tasks["report"].submit(),
        "keyed": app.tasks["broken"].submit(to=3, key="one"),
    }
    selection = app.jobs(**words)  # type: ignore[arg-type]
    assert set(listed(way, selection)) == {jobs[name].unit for name in fits}
    assert call(way, selection.count).count == len(fits)
    told = call(way, selection.cancel, dry_run=True)
    assert ({one.id for one in told}, {one.applied for one in told} - {False}) == (
        {jobs[one].id for one in fits},
        set(),
    )
    assert all(job.look().outcome is None for job in jobs.values())
    call(way, selection.cancel)
    assert {name for name, job in jobs.items() if job.look().outcome} == fits


@BOTH
def test_pages_hold_all_once_the_newest_first(app: App, way: str) -> None:
    jobs = [job.unit for job in mails(app, 7)]
    app.tasks["report"].submit()
    selection, seen, after = app.jobs(task="mail"), list[int](), None
    while True:
        page = call(way, selection.page, 3, after)
        assert len(page.jobs) <= 3
        seen += [job.unit for job in page.jobs]
        after = page.next
        if after is None:
            break
    assert seen == listed(way, selection) == jobs[::-1]
    assert [job.id for job in page.jobs] == [app.job(job.unit).id for job in page.jobs]
    assert call(way, selection.count) == Amount(7, False)


@BOTH
def test_more_than_a_page_is_cancelled_whole(app: App, way: str) -> None:
    several = app.tasks["mail"].submit_many([{"to": one} for one in range(PAGE + 5)])
    kept = app.tasks["report"].submit()
    told = call(way, app.jobs(task="mail").cancel)
    assert [one.id for one in told] == sorted((job.id for job in several), key=lambda one: (len(one), one))
    assert call(way, app.jobs(task="mail", category="cancelled").count).count == PAGE + 5
    assert kept.look().outcome is None


@BOTH
def test_ids_mean_these_jobs_and_no_others(app: App, way: str) -> None:
    first, second, third = mails(app, 3)
    told = call(way, app.jobs(second.id, first.unit).cancel, reason="by id")
    assert [one.id for one in told] == [second.id, first.id]
    assert third.look().outcome is None
    again = call(way, app.jobs(first.id, third.id).cancel)
    assert [(one.applied, one.state) for one in again] == [(False, "cancelled"), (True, "cancelled")]
    with pytest.raises(Unknown, match="no job, run or step 'unit_zzz'"):
        call(way, app.jobs(third.id, "job_zzz").cancel)
    assert listed(way, app.jobs(third.id, first.id)) == [third.unit, first.unit]
    assert [job.unit for job in call(way, app.jobs(third.id, first.id).page, 1).jobs] == [third.unit]


@BOTH
def test_dead_letters_are_done_again_once_and_only_those_that_fit(stage: Stage, app: App, way: str) -> None:
    jobs = [app.tasks["broken"].submit(to=one) for one in range(4)]
    for job in jobs[1::2]:
        app.send(Bury(unit=job.unit, reason="policy_violation"))
    fine = app.tasks["mail"].submit(to=1)
    stage.drain()
    assert {job.look().category for job in jobs} == {"dead"}
    codes = {job.unit: code_of(app, job) for job in jobs}
    code = codes[jobs[1].unit]
    fits = [job for job in jobs if codes[job.unit] == code]
    assert 0 < len(fits) < len(jobs)
    selection = app.jobs(task="broken", reason_code=code)
    assert set(listed(way, selection)) == {job.unit for job in fits}
    assert call(way, selection.count).count == len(fits)
    assert [one.new for one in call(way, selection.requeue, dry_run=True)] == [None] * len(fits)
    told = call(way, selection.requeue, reason="mended")
    assert [(one.id, one.created, one.refused) for one in told] == [(job.id, True, None) for job in fits]
    new = {app.job(one.new).unit for one in told}
    assert new == set(listed(way, app.jobs(task="broken", category=["ready"])))
    repeated = call(way, selection.requeue)
    assert [(one.new, one.created) for one in repeated] == [(one.new, False) for one in told]
    assert call(way, app.jobs(task="mail").requeue) == []  # it has not died
    assert fine.look().category == "success"
    rest = call(way, app.jobs(task="broken").requeue)
    assert [one.id for one in rest if one.created] == [job.id for job in jobs if job not in fits]
    once_more = call(way, selection.requeue, again=True)
    assert {one.created for one in once_more} == {True}
    assert call(way, app.jobs(fine.id).requeue)[0].created  # by its id any job that has ended


def code_of(app: App, job: Job) -> str:
    for code in ("exhausted_retries", "policy_violation"):
        if job.unit in [one.unit for one in app.jobs(reason_code=code)]:
            return code
    raise AssertionError


@BOTH
def test_since_is_when_a_job_died(stage: Stage, app: App, way: str) -> None:
    job = app.tasks["broken"].submit(to=1)
    stage.drain()
    died = stage.now
    assert call(way, app.jobs(since=died - timedelta(hours=1)).count).count == 1
    assert call(way, app.jobs(since=died + timedelta(hours=1)).requeue) == []
    assert call(way, app.jobs(error_class="PermanentError").requeue) == []
    assert [one.id for one in call(way, app.jobs(error_class="TransientError").requeue)] == [job.id]


@BOTH
def test_nothing_is_done_to_everything_by_mistake(app: App, way: str) -> None:
    jobs = mails(app, 2)
    for selection in (app.jobs(), app.jobs(task=None, state=[])):
        for verb in (selection.cancel, selection.requeue):
            with pytest.raises(InterlockError, match="which jobs"):
                call(way, verb)
    assert all(job.look().outcome is None for job in jobs)
    assert len(call(way, app.jobs().cancel, every=True)) == 2


def test_a_wrong_word_is_told_what_the_right_ones_are(app: App) -> None:
    for words, told in (
        ({"state": "quued"}, "there is no state 'quued'; there are .*queued"),
        ({"lifecycle": "jobb"}, "there is no lifecycle 'jobb'; there are .*job"),
        ({"lifecycle": "job", "state": "awaiting_approval"}, "there is no state 'awaiting_approval'"),
        ({"category": "done"}, "there is no category 'done'; there are waiting"),
        ({"reason_code": "bad luck"}, "there is no reason code 'bad luck'"),
        ({"error_class": "OSError"}, "there is no error class 'OSError'"),
        ({"name": "mail"}, "there is no filter 'name'; there are state"),
    ):
        with pytest.raises(InterlockError, match=told):
            app.jobs(**words)  # type: ignore[arg-type]
    with pytest.raises(InterlockError, match="not both"):
        app.jobs("job_4r1", task="mail")


@BOTH
def test_children_that_end_with_their_parent_are_not_refused(app: App, way: str) -> None:
    run = app.workflow("ship", [app.tasks["mail"], app.tasks["report"]]).submit(to=1)
    told = call(way, app.jobs(category=["waiting", "ready", "active", "gate"]).cancel, hard=True)
    assert [one.refused for one in told] == [None] * len(told)
    assert len(told) > 1
    assert app.run(run.unit).look().outcome == "cancelled"
