"""The SDK as a program uses it: tasks, submits and their options, arguments, outcomes, and what a handler may ask."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import msgspec
import pytest

import interlock
from interlock import InterlockError
from interlock.client.tasks import OPTIONS
from interlock.kernel.commands import Work
from interlock.store.queries.views import Filter as Which
from interlock.store.queries.views import artifacts_of, listing, notes_of, view
from interlock.testing import Stage

ONCE = ["queued", "assigned", "running"]


class Address(msgspec.Struct):
    street: str
    number: int = 1


def noop(stage: Stage, **rules: Any) -> interlock.Task[..., None]:
    @stage.app.task(**rules)
    def nothing() -> None: ...

    return nothing


def order_of_running(stage: Stage) -> tuple[interlock.Task[..., None], list[str]]:
    ran: list[str] = []

    @stage.app.task
    def note(name: str) -> None:
        ran.append(name)

    return note, ran


# Submitting.


def test_a_job_is_there_once_submit_returns(stage: Stage) -> None:
    @stage.app.task(queue="mail", attempts=5, timeout="2m")
    async def send(to: str, ctx: interlock.Context) -> str:
        return f"sent to {to}, attempt {ctx.attempt}"

    job = send.submit(to="a@b.c", key="welcome-42")
    assert job.created
    assert job.state == "queued"
    assert job.id.startswith("job_")
    assert repr(job) == f"<{job.id} queued>"
    seen = stage.app.read(view, job.unit)
    assert (seen.queue, seen.body.task, seen.body.key) == ("mail", "send", "welcome-42")
    assert stage.app.job(job.id).unit == job.unit == stage.app.job(job.unit).unit
    assert job.wait(timeout=30) == "sent to a@b.c, attempt 1"


def test_submit_many_makes_all_or_none(stage: Stage) -> None:
    note, ran = order_of_running(stage)
    jobs = note.submit_many([{"name": "a"}, {"name": "b"}, {"name": "c"}], queue="bulk", priority=2)
    assert [job.state for job in jobs] == ["queued"] * 3
    assert note.submit_many([]) == []
    with pytest.raises(InterlockError, match="argument 'name': expected `str`, got `int`"):
        note.submit_many([{"name": "d"}, {"name": 7}])
    with pytest.raises(InterlockError, match="no option 'queu'; it has key, on_duplicate, delay"):
        note.submit_many([{"name": "d"}], queu="x")  # type: ignore[call-arg]
    stage.drain()
    assert ran == ["a", "b", "c"]


def test_delay_and_at_hold_a_job_back(stage: Stage) -> None:
    note, ran = order_of_running(stage)
    note.submit("delayed", delay=timedelta(minutes=1))
    note.submit("text", delay="90s")
    note.submit("seconds", delay=120)
    note.submit("at", at=stage.now + timedelta(minutes=3))
    note.submit("long ago", at=datetime(2001, 1, 1, tzinfo=UTC))
    for expected in (["long ago"], ["delayed"], ["text"], ["seconds"], [], ["at"]):
        stage.drain()
        assert ran == expected
        ran.clear()
        stage.advance(seconds=30 if expected in (["delayed"], ["text"], ["seconds"]) else 60 if expected else 30)


def test_priority_comes_first_and_the_older_of_two(stage: Stage) -> None:
    note, ran = order_of_running(stage)
    for name, priority in (("low", -1), ("first", 0), ("second", 0), ("urgent", 9)):
        note.submit(name, priority=priority)
    stage.drain()
    assert ran == ["urgent", "first", "second", "low"]


def test_a_mutex_and_a_limit_are_kept(stage: Stage) -> None:
    at_once: list[int] = []
    depth = 0

    @stage.app.task
    def nested(n: int) -> None:
        nonlocal depth
        depth += 1
        at_once.append(depth)
        stage.drain()  # another worker's thread, so to speak: whatever may run beside this one does
        depth -= 1

    for n in range(3):
        nested.submit(n, mutex="account-7")
    stage.drain()
    assert at_once == [1, 1, 1]
    at_once.clear()
    for n in range(5):
        nested.submit(n, limit=interlock.limit("api", 2))
    stage.drain()
    assert max(at_once) == 2
    assert len(at_once) == 5


def test_only_a_worker_with_the_capabilities_gets_a_job(stage: Stage) -> None:
    job = noop(stage).submit(capabilities=["gpu", "big"])
    assert stage.drain() == 0
    stage.worker.capabilities = ("big", "fast", "gpu")
    stage.worker.register()
    assert stage.drain() == 1
    assert job.state == "succeeded"


def test_labels_of_task_and_submit_are_joined(stage: Stage) -> None:
    job = noop(stage, labels={"team": "a", "tier": "1"}).submit(labels={"tier": "2"}, correlation="order-9", trace="t1")
    body = stage.app.read(view, job.unit).body
    assert msgspec.json.decode(body.labels) == {"team": "a", "tier": "2"}
    assert (body.correlation, body.trace) == ("order-9", "t1")


def test_a_key_stands_for_one_job(stage: Stage) -> None:
    note, ran = order_of_running(stage)
    first = note.submit("a", key="k")
    again = note.submit("a", key="k")
    assert (first.created, again.created, again.unit) == (True, False, first.unit)
    with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT: key 'k' of task 'note'"):
        note.submit("b", key="k")
    with pytest.raises(InterlockError, match="DUPLICATE_KEY"):
        note.submit("a", key="k", on_duplicate="reject")
    replaced = note.submit("b", key="k", on_duplicate="replace")
    assert replaced.created
    assert first.state == "cancelled"
    stage.drain()
    assert ran == ["b"]
    assert note.submit("c", key="k", on_duplicate="replace").unit == replaced.unit, "it has been started"
    with pytest.raises(InterlockError, match="on_duplicate = 'ignore' is not allowed; allowed are return, reject"):
        note.submit("a", key="k", on_duplicate="ignore")


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"delay": "soon"}, "delay: 'soon' is not a duration.*'500ms'"),
    ({"delay": -1}, "delay"),
    ({"delay": float("nan")}, "delay: nan is no length of time"),
    ({"delay": None}, "delay: None is no length of time"),
    ({"at": datetime(2030, 1, 1)}, "at = .*allowed is a datetime with a time zone"),
    ({"at": "tomorrow"}, "at = 'tomorrow'.*datetime with a time zone"),
    ({"priority": "high"}, "priority = 'high' is not allowed; allowed is a whole number"),
    ({"priority": 2**40}, "priority = "),
    ({"queue": ""}, "queue = ''"),
    ({"queue": 7}, "queue = 7 is not allowed; allowed is text"),
    ({"key": 42}, "key = 42 is not allowed; allowed is text"),
    ({"key": ""}, "key = ''"),
    ({"mutex": 3}, "mutex = 3 is not allowed; allowed is text"),
    ({"limit": 3}, r"limit = 3 is not allowed; allowed is interlock.limit\(key, n\)"),
    ({"limit": interlock.limit("k", 0)}, "limit = 0"),
    ({"rate": "fast"}, r"rate = 'fast' is not allowed; allowed is interlock.rate\(key, n, per\)"),
    ({"capabilities": "gpu"}, r"capabilities = 'gpu' is not allowed; allowed is a list of words"),
    ({"capabilities": ["a,b"]}, "comma"),
    ({"labels": ["a"]}, "labels = .* is not allowed; allowed is a mapping of text to text"),
    ({"labels": {"a": 1}}, "labels = .* is not allowed; allowed is a mapping of text to text"),
    ({"correlation": 1}, "correlation = 1 is not allowed; allowed is text"),
]


def test_a_wrong_option_is_told_what_is_allowed(stage: Stage) -> None:
    task = noop(stage)
    for options, text in WRONG_OPTIONS:
        with pytest.raises(InterlockError, match=text):
            task.submit(**options)
    assert stage.app.read(listing, Which(task="nothing"), 10) == []


# Defining.


@pytest.mark.parametrize("name", OPTIONS)
def test_a_parameter_may_not_be_called_like_an_option(interlock_app: Any, name: str) -> None:
    app = interlock.open("sqlite://:memory:")
    spoilt: dict[str, Any] = {}
    exec(f"def handler({name}): ...", spoilt)
    with pytest.raises(InterlockError, match=f"parameter '{name}' must have another name; submit uses key"):
        app.task(spoilt["handler"])


def test_a_wrong_definition_is_told_where_it_is_written() -> None:
    app = interlock.open("sqlite://:memory:")
    for wrong, text in (
        ({"queu": "x"}, "there is no rule 'queu'; there are queue, priority"),
        ({"timeout": "long"}, "timeout: 'long' is not a duration"),
        ({"attempts": 0}, "attempts = 0 is not allowed; allowed is at least 1"),
        ({"attempts": "3"}, "attempts = '3' is not allowed; allowed is a whole number"),
        ({"queue": ""}, "queue = ''"),
        ({"exhausted": "explode"}, "exhausted = 'explode' is not allowed; allowed are exhaust, fail"),
        ({"lease": "1s"}, "task 't': lease = 1s is not allowed; 30s to 2m is"),
        ({"capabilities": "gpu"}, "allowed is a list of words"),
    ):
        with pytest.raises(InterlockError, match=text):
            app.task(name="t", **wrong)(lambda: None)

    @app.task
    def once() -> None: ...

    for made, text in (
        (lambda: interlock.limit("k", "2"), "limit.n = '2' is not allowed; allowed is a whole number"),  # type: ignore[arg-type]
        (lambda: interlock.rate(7, 2, "1s"), "rate.key = 7 is not allowed; allowed is text"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InterlockError, match=text):
            made()
    with pytest.raises(InterlockError, match="has a task 'once' already"):
        app.task(name="once")(lambda: None)
    with pytest.raises(InterlockError, match="must be a plain parameter"):
        app.task(name="star")(lambda *a: None)
    with pytest.raises(InterlockError, match="must be a plain parameter"):
        app.task(name="stars")(lambda **a: None)
    with pytest.raises(InterlockError, match="no task 'twice'; it has once"):
        app.find_task("twice")

    def unknown(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InterlockError, match=r"task 'unknown': .*Nowhere"):
        app.task(unknown)


def test_a_task_is_still_the_function_that_it_was() -> None:
    app = interlock.open("sqlite:///never/opened.db")

    @app.task
    def add(a: int, b: int = 2) -> int:
        """The sum."""
        return a + b

    assert add(1) == 3
    assert (add.__name__, add.__doc__, add.name) == ("add", "The sum.", "add")
    app.close()
    app.close()


# Arguments.


def test_arguments_keep_their_types_on_the_way(stage: Stage) -> None:
    seen: list[Any] = []

    @stage.app.task
    def rich(
        who: Address, day: date, tags: list[str], kind: Literal["a", "b"] = "a", ratio: float | None = None, *,
        ctx: interlock.Context, extra: dict[str, int] = {"n": 1},  # noqa: B006
    ) -> Address:  # fmt: skip
        seen.append((who, day, tags, kind, ratio, extra, ctx.attempt))
        return who

    job = rich.submit(Address("Main", 3), date(2030, 1, 2), ["x"], ratio=0.5)
    assert job.wait() == {"street": "Main", "number": 3}
    assert seen == [(Address("Main", 3), date(2030, 1, 2), ["x"], "a", 0.5, {"n": 1}, 1)]
    rich.submit(who={"street": "Side"}, day="2030-01-03", tags=[]).wait()
    assert seen[1][:3] == (Address("Side", 1), date(2030, 1, 3), [])


WRONG_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"to": 5, "n": 1}, "argument 'to': expected `str`, got `int`"),
    ({"to": "x", "n": "1"}, "argument 'n': expected `int`, got `str`"),
    ({"to": "x", "n": 1, "box": {"street": 4}}, r"argument 'box.street': expected `str`, got `int`"),
    ({"n": 1}, "required field `to`|argument 'to' is missing"),
    ({"to": "x", "n": 1, "too": 1}, "unknown field `too`|no argument 'too'"),
    ({"to": "x", "n": object()}, "argument|object"),
    ({"to": "x", "n": float("inf")}, "argument 'n'"),
]


def test_a_wrong_argument_is_named_at_submit(stage: Stage) -> None:
    @stage.app.task
    def typed(to: str, n: int, box: Address | None = None) -> None: ...

    for given, text in WRONG_ARGUMENTS:
        with pytest.raises(InterlockError, match=text) as told:
            typed.submit(**given)
        assert "it takes to: str, n: int" in str(told.value)
    with pytest.raises(InterlockError, match="takes 3 arguments, and 4 were given"):
        typed.submit("x", 1, None, 4)
    with pytest.raises(InterlockError, match="argument 'to' is given twice"):
        typed.submit("x", 1, to="y")
    assert stage.drain() == 0


def test_code_that_has_changed_refuses_the_arguments_of_yesterday(stage: Stage) -> None:
    stage.app.task(name="t")(lambda old: None)
    job = stage.app.tasks["t"].submit(old=1)
    del stage.app.tasks["t"]

    @stage.app.task(name="t")
    def renamed(new: int) -> None: ...

    stage.drain()
    with pytest.raises(interlock.Failed, match="arguments cannot be read"):
        job.wait()


# Outcomes.


def test_what_a_handler_raises_decides_what_becomes_of_its_job(stage: Stage) -> None:
    def raises(error: BaseException) -> interlock.Job:
        @stage.app.task(name=f"raises {error!r}", attempts=2)
        def handler() -> None:
            raise error

        return handler.submit()

    jobs = {
        kind: raises(error)
        for kind, error in {
            "plain": ValueError("no"), "reject": interlock.Reject("never"), "permanent": interlock.PermanentError("p"),
            "invalid": interlock.ValidationError("v"), "transient": interlock.TransientError("t"),
            "retry": interlock.Retry("again", after="1h"), "snooze": interlock.Snooze("1h"),
        }.items()
    }  # fmt: skip
    stage.drain()
    assert {kind: job.state for kind, job in jobs.items()} == {
        "plain": "queued", "reject": "failed", "permanent": "failed", "invalid": "failed", "transient": "queued",
        "retry": "queued", "snooze": "queued",
    }  # fmt: skip
    with pytest.raises(interlock.Failed, match="is failed: Reject: never") as told:
        jobs["reject"].wait()
    assert (told.value.state, told.value.error, told.value.job) == ("failed", "Reject: never", jobs["reject"].id)
    stage.advance(minutes=59)
    stage.drain()
    assert jobs["plain"].state == "dead_lettered"
    assert len(stage.transitions(jobs["retry"])) == len(stage.transitions(jobs["snooze"])) == 4
    stage.advance(minutes=1)
    stage.drain()
    assert jobs["retry"].state == "dead_lettered"
    assert jobs["snooze"].state == "queued", "a snooze spends no attempt"


def test_a_handler_that_stops_when_it_is_asked_to_is_cancelled(stage: Stage) -> None:
    @stage.app.task
    def patient(ctx: interlock.Context) -> None:
        stage.app.job(ctx.unit).cancel(reason="changed my mind")
        if ctx.cancelled:
            raise interlock.Cancelled

    job = patient.submit()
    stage.drain()
    assert stage.transitions(job) == [*ONCE, "cancelled"]
    with pytest.raises(interlock.Failed, match="is cancelled"):
        job.wait()


def test_cancelled_without_having_been_asked_is_no_cancel(stage: Stage) -> None:
    @stage.app.task(attempts=1)
    def moody() -> None:
        raise interlock.Cancelled

    job = moody.submit()
    stage.drain()
    assert job.state != "cancelled"


def test_a_job_that_has_not_begun_is_cancelled_at_once(stage: Stage) -> None:
    task = noop(stage)
    job, other = task.submit(), task.submit()
    assert job.cancel(hard=True).applied
    assert asyncio.run(other.cancel.aio()).applied
    assert stage.drain() == 0
    assert job.state == other.state == "cancelled"


def test_results_come_back(stage: Stage) -> None:
    values = [None, 0, "ä\u2028", [1, {"a": [None]}], {"n": 1.5}, True, "x" * 100_000]
    given = list(values)
    stage.app.task(name="give")(lambda: given.pop(0))
    jobs = [stage.app.tasks["give"].submit() for _ in values]
    assert [job.wait() for job in jobs] == values


def test_a_result_that_is_no_json_fails_for_good(stage: Stage) -> None:
    stage.app.task(name="give")(lambda: object())
    with pytest.raises(interlock.Failed, match="the result cannot be kept as JSON"):
        stage.app.tasks["give"].submit().wait()


def test_waiting_tells_why(stage: Stage) -> None:
    job = noop(stage).submit(delay="1h")
    with pytest.raises(interlock.StillWaiting, match=f"{job.id} is delayed: due at"):
        job.wait(timeout=0)
    with pytest.raises(InterlockError, match="timeout"):
        job.wait(timeout="soon")
    with pytest.raises(InterlockError, match="no job, run or step"):
        stage.app.job(2**40).wait(timeout=0)
    with pytest.raises(InterlockError, match="'nonsense!' is no id; one looks like job_4r1"):
        stage.app.job("nonsense!")


# What a handler may ask.


def test_a_checkpoint_is_found_by_the_next_attempt(stage: Stage) -> None:
    found: list[Any] = []

    @stage.app.task(attempts=3)
    def walk(ctx: interlock.Context) -> int:
        found.append(ctx.saved)
        begin = ctx.saved["page"] if ctx.saved else 0
        ctx.checkpoint({"page": begin + 1})
        ctx.checkpoint({"page": begin + 10})
        if ctx.attempt < 3:
            raise OSError
        return begin

    assert walk.submit().wait() == 20
    assert found == [None, {"page": 10}, {"page": 20}]


def test_progress_and_artifacts_are_kept(stage: Stage) -> None:
    @stage.app.task
    async def report(ctx: interlock.Context) -> None:
        ctx.progress(0.4, "half way, nearly")
        ctx.artifact("rows.csv", "a,b\n1,2\n")
        await ctx.artifact.aio("numbers", [1, 2])
        ctx.log.info("written")
        with pytest.raises(InterlockError, match="has an artifact 'numbers' already"):
            ctx.artifact("numbers", [3])

    job = report.submit()
    job.wait()
    notes = stage.app.read(notes_of, job.unit)
    assert [msgspec.json.decode(n.payload) for n in notes if n.kind == "progress"] == [
        {"done": 0.4, "text": "half way, nearly"}
    ]
    kept = stage.app.read(artifacts_of, job.unit)
    assert {one.name: msgspec.json.decode(one.data) for one in kept} == {"rows.csv": "a,b\n1,2\n", "numbers": [1, 2]}


def test_fences_grow_and_attempts_count(stage: Stage) -> None:
    seen: list[tuple[int, int]] = []

    @stage.app.task(attempts=3)
    def work(ctx: interlock.Context) -> None:
        seen.append((ctx.attempt, ctx.fence))
        if len(seen) == 1:
            raise interlock.Snooze("1s")
        if len(seen) == 2:
            raise OSError

    work.submit().wait()
    assert seen == [(1, 1), (2, 2), (3, 3)]


def test_a_context_is_found_by_its_annotation_alone(stage: Stage) -> None:
    @stage.app.task
    def by_annotation(n: int, whatever: "interlock.Context") -> int:
        return whatever.attempt + n

    @stage.app.task
    def none_wanted(ctx: int) -> int:
        return ctx

    assert by_annotation.submit(1).wait() == 2
    assert none_wanted.submit(ctx=7).wait() == 7


def test_every_rule_and_option_reaches_the_work() -> None:
    """What the SDK can say, and what a unit of work can hold, are the same."""
    app = interlock.open("sqlite://:memory:")
    task = app.task(
        queue="q", priority=1, attempts=4, timeout="1m", queue_timeout="2m", backoff="3s", backoff_cap="4m",
        cancel_timeout="6s", losses=7, depends="d",
        resources=[interlock.exclusive("r")], exhausted="fail", lease="60s", beat="15s", sla="5m", capabilities=["c"], mutex="m",
        limit=interlock.limit("l", 2), rate=interlock.rate("r", 3, "1s"), labels={"a": "b"},
    )(order_free)  # fmt: skip
    work = task.make_work("null", {"key": "k", "delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC), "trace": "t"})
    unsaid = {name for name in Work.__struct_fields__ if getattr(work, name) == getattr(Work(task="x"), name)}
    assert unsaid == {
        "lifecycle", "input", "on_duplicate", "correlation", "parent", "needs", "ref", "decides", "expires_us", "silent",
        "quorum", "on_reject", "approvers", "not_submitter", "reclaim_after_us", "step", "when", "undo", "template", "options",
        "template_version", "webhook_url", "after", "needs_end", "after_end", "cause", "plan_timeout_us", "settle", "retry_of",
        "keep_us", "explicit",
    }  # fmt: skip


def order_free() -> None:
    """A handler of no consequence."""
