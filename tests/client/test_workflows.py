"""Workflows as a program writes them: steps, gates, outputs, costs, conditions, reruns, signals, children and undoing."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

import interlock
from interlock import InterlockError
from interlock.store.queries.views import Filter as Which
from interlock.store.queries.views import children_of, events_of, listing, view
from interlock.testing import Stage

DONE, GATE, OPEN = "SUCCEEDED", "WAITING_APPROVAL", "PENDING"


class Shop:
    """Tasks that note what they did."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.app = stage, stage.app
        self.did: list[str] = []

    def task(self, name: str, result: Any = None, **rules: Any) -> interlock.Task[..., Any]:
        """A task without parameters that notes its name."""

        def handler() -> Any:
            self.did.append(name)
            if isinstance(result, Exception):
                raise result
            return result

        return self.app.task(name=name, **rules)(handler)

    def tasks(self, *names: str) -> list[interlock.Task[..., Any]]:
        return [self.task(name, name.upper()) for name in names]


@pytest.fixture
def shop(stage: Stage) -> Shop:
    return Shop(stage)


def release_of(stage: Stage) -> interlock.Workflow:
    @stage.app.task
    def build(version: str, ctx: interlock.Context) -> dict[str, Any]:
        ctx.cost(0.5)
        return {"image": f"app:{version}", "size": 3}

    @stage.app.task
    async def test(build: dict[str, Any], ctx: interlock.Context) -> bool:
        return bool(ctx.outputs["build"] == build)

    @stage.app.task
    def deploy(version: str, build: dict[str, Any], ship: dict[str, Any], dry: bool = False) -> Any:
        return interlock.Result(f"{build['image']} {dry} {'+'.join(ship['by'])}", cost=0.25)

    ship = interlock.approval("ship", approvers=["ops"], quorum=2, expires="24h")
    return stage.app.workflow("release", steps=[build, test, ship, deploy])


def test_a_run_from_submit_to_its_outputs(stage: Stage) -> None:
    release = release_of(stage)
    run = release.submit(version="1.2", key="rel-1.2")
    assert run.created
    assert run.id.startswith("workflow_run_")
    assert run.steps == {"build": OPEN, "test": OPEN, "ship": OPEN, "deploy": OPEN}
    stage.drain()
    assert (run.status, run.waiting_on, run.cost) == (GATE, ["ship"], 0.5)
    with pytest.raises(interlock.StillWaiting, match="waits, as approval_"):
        run.wait(timeout="1h")
    assert run.approve(by="ann", roles=["ops"], comment="looks good").applied
    assert asyncio.run(run.approve.aio(by="bob", roles=["ops"])).applied
    assert run.approve(by="cy", roles=["ops"]).applied is False
    outputs = run.wait(timeout="1h")
    assert outputs == run.outputs == {
        "build": {"image": "app:1.2", "size": 3}, "test": True, "ship": {"by": ["ann", "bob"], "comment": ""},
        "deploy": "app:1.2 False ann+bob",
    }  # fmt: skip
    assert run.cost == 0.75
    assert stage.transitions(run) == [OPEN, "RUNNING", GATE, "RUNNING", DONE]
    again = release.submit(version="1.2", key="rel-1.2")
    assert (again.created, again.unit) == (False, run.unit)
    with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT"):
        release.submit(version="1.3", key="rel-1.2")
    assert stage.app.run(run.id).outputs == outputs


def test_many_runs_are_made_at_once_or_none(shop: Shop) -> None:
    @shop.app.task
    def double(n: int) -> int:
        return 2 * n

    flow = shop.app.workflow("flow", steps=[double])
    runs = flow.submit_many([{"n": n} for n in range(200)], labels={"lot": "7"})
    assert [run.wait()["double"] for run in (runs[0], runs[-1])] == [0, 398]
    for calls, options, why in (([{"n": 1}, {"n": "x"}], {}, "argument 'n'"), ([], {"kye": "k"}, "no option 'kye'")):
        with pytest.raises(InterlockError, match=why):
            flow.submit_many(calls, **options)  # type: ignore[arg-type]
    assert len(shop.app.read(listing, Which(lifecycle="workflow_run"), 1_000)) == 200


def test_the_arguments_of_a_run_are_checked_when_it_is_submitted(stage: Stage) -> None:
    release = release_of(stage)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "argument 'version' is missing: step 'build' needs it; it takes version, dry"),
        ({"version": 1}, "argument 'version': expected `str`, got `int`"),
        ({"version": "1", "dry": "no"}, "argument 'dry': expected `bool`"),
        ({"version": "1", "verison": "1"}, "it has no argument 'verison'"),
        ({"version": object()}, "argument 'version'"),
        ({"version": "1", "priority": "high"}, "priority = 'high' is not allowed"),
    ]
    for given, why in wrong:
        with pytest.raises(InterlockError, match=why):
            release.submit(**given)
    assert release.submit(version="1", dry=True).created


def test_a_workflow_that_cannot_be_is_refused_where_it_is_written(shop: Shop) -> None:
    a, b = shop.tasks("a", "b")

    @shop.app.task
    def early(b: str) -> None: ...

    @shop.app.task
    def reserved(by: str = "") -> None: ...

    cases: list[tuple[list[Any], str]] = [
        ([], "has 0 steps; allowed are 1 to 1000"),
        ([a, a], "two steps are called 'a'; give one of them another name"),
        ([a, 7], "7 is no step; a step is a task"),
        ([early, b], "step 'early' takes 'b', which is a step, but none before it"),
        ([interlock.parallel(early, b)], "step 'early' takes 'b', which is a step, but none before it"),
        ([interlock.approval("ship", on_reject="explode")], "step 'ship': on_reject = 'explode' is not allowed"),
        ([interlock.approval("ship", quorum=0)], "quorum = 0 is not allowed"),
        ([interlock.step(a, when="__import__('os')")], "is more than a condition"),
        ([reserved], "takes 'by', which must have another name; submit uses key, on_duplicate"),
        ([interlock.step(a, when="1 +")], "invalid syntax"),
    ]
    for steps, why in cases:
        with pytest.raises(InterlockError, match=why):
            shop.app.workflow("odd", steps=steps)
    shop.app.workflow("fine", steps=[a, b])
    with pytest.raises(InterlockError, match="has a workflow 'fine' already"):
        shop.app.workflow("fine", steps=[a])


def test_a_task_may_be_a_step_twice_and_be_named_only(shop: Shop) -> None:
    shop.task("smoke", 1)
    flow = shop.app.workflow("twice", steps=["smoke", interlock.step("smoke", name="smoke again")])
    assert flow.submit(anything=7).wait() == {"smoke": 1, "smoke again": 1}


def test_a_run_keeps_its_version(shop: Shop, interlock_app: Callable[..., Stage]) -> None:
    a, b, c = shop.tasks("a", "b", "c")
    first = shop.app.workflow("flow", steps=[a, b])
    old = first.submit()
    del shop.app.workflows["flow"]  # as the next version of the program has it
    second = shop.app.workflow("flow", steps=[a, c])
    new = second.submit()
    third = first.submit()  # a program of the old version still runs
    assert [list(run.wait()) for run in (old, new, third)] == [["a", "b"], ["a", "c"], ["a", "b"]]
    version = [shop.app.read(view, run.unit).body.policy for run in (old, new, third)]
    assert [text.split('"template_version":')[1][0] for text in version] == ["1", "2", "1"]


def test_steps_in_parallel_are_waited_for_together(shop: Shop) -> None:
    a, b, c, d = shop.tasks("a", "b", "c", "d")
    run = shop.app.workflow("flow", steps=[a, interlock.parallel(b, c, interlock.approval("ok")), d]).submit()
    shop.stage.drain()
    assert run.steps == {"a": DONE, "b": DONE, "c": DONE, "ok": GATE, "d": OPEN}
    assert run.status == GATE
    run.approve(by="ann")
    assert list(run.wait()) == ["a", "b", "c", "ok", "d"]
    assert shop.did[0] == "a"
    assert shop.did[-1] == "d"


@pytest.mark.parametrize(
    ("when", "wanted"),
    [
        ("a.ok", True), ("not a.ok", False), ("a.size > 3", False), ("a['size'] >= 3 and mode == 'full'", True),
        ("a.missing.deep", False), ("mode in ['full', 'half']", True), ("a.size < 'text'", False), ("null == a.none", True),
        ("1 < a.size < 5", True), ("a.size == -3", False),
    ],
)  # fmt: skip
def test_a_step_that_is_not_wanted_is_skipped(shop: Shop, when: str, wanted: bool) -> None:
    a, b = shop.task("a", {"ok": True, "size": 3}), shop.task("b", "B")

    @shop.app.task
    def end(b: Any, mode: str) -> Any:
        return [b, mode]

    flow = shop.app.workflow("flow", steps=[a, interlock.step(b, when=when), end])
    run = flow.submit(mode="full")
    assert run.wait()["end"] == (["B", "full"] if wanted else [None, "full"])
    assert shop.did == (["a", "b"] if wanted else ["a"])
    unit = shop.app.read(children_of, run.unit)[1].unit.id
    events = [event for event in shop.app.read(events_of, unit) if event.source != event.target]
    assert [event.target for event in events] == [OPEN, "RUNNING", DONE]
    assert (events[-1].reason, events[-1].actor == "engine") == (("complete", False) if wanted else ("skipped", True))


def test_gates_first_steps_and_all_steps_may_be_skipped(shop: Shop) -> None:
    a, b = shop.tasks("a", "b")
    inner = shop.app.workflow("inner", steps=[a])
    gate = interlock.approval("ok", when="big")
    flow = shop.app.workflow(
        "flow", steps=[gate, interlock.step(inner, when="big"), interlock.step(b, when="big", undo="nobody")]
    )

    assert flow.submit(big=False).wait() == {"ok": None, "inner": None, "b": None}
    run = flow.submit(big=True)
    assert run.waiting_on == ["ok"]
    run.approve(by="ann")
    assert run.wait() == {"ok": {"by": ["ann"], "comment": ""}, "inner": {"a": "A"}, "b": "B"}


def test_an_approval_expires_and_a_rejection_cancels_or_fails(shop: Shop) -> None:
    (a,) = shop.tasks("a")
    flow = shop.app.workflow("flow", steps=[interlock.approval("ship", expires="24h"), a])
    late, refused = flow.submit(), flow.submit()
    assert refused.reject(by="ann", comment="no").applied
    assert (refused.status, refused.steps) == ("CANCELED", {"ship": "CANCELED", "a": "CANCELED"})
    shop.stage.advance("23h")
    assert late.status == GATE
    shop.stage.advance("1h")
    assert (late.status, late.steps) == ("FAILED", {"ship": "CANCELED", "a": "CANCELED"})
    strict = shop.app.workflow(
        "strict", steps=[interlock.approval("ship", on_reject="fail"), interlock.step(a, name="b")]
    )
    run = strict.submit()
    run.reject(by="ann")
    with pytest.raises(interlock.Failed, match="is FAILED: step 'ship' is CANCELED: reject"):
        run.wait()
    with pytest.raises(interlock.Failed, match="is FAILED: step 'ship' is CANCELED: the deadline has passed"):
        late.wait()


def test_whoever_submits_may_not_approve_if_so_said(shop: Shop) -> None:
    flow = shop.app.workflow("flow", steps=[interlock.approval("ship", not_submitter=True)])
    run = flow.submit(by="ann")
    with pytest.raises(InterlockError, match="'ann' submitted this"):
        run.approve(by="ann")
    assert run.approve(by="bob").applied
    assert run.status == DONE


def test_costs_of_failed_attempts_and_of_what_is_below_are_counted(shop: Shop) -> None:
    tries: list[int] = []

    @shop.app.task(attempts=3)
    def costly(ctx: interlock.Context) -> str:
        ctx.cost(0.1)
        tries.append(ctx.attempt)
        if len(tries) < 3:
            raise ValueError("not yet")
        return "done"

    inner = shop.app.workflow("inner", steps=[costly])
    run = shop.app.workflow("outer", steps=[inner]).submit()
    assert run.wait() == {"inner": {"costly": "done"}}
    assert run.cost == 0.3
    for amount in (-1, "1", float("nan"), True):
        with pytest.raises(InterlockError, match="is not allowed"):
            interlock.Result(None, cost=amount)  # type: ignore[arg-type]


# Again.


def test_a_rerun_goes_on_with_what_came_before(shop: Shop) -> None:
    broken = [True]
    a, b = shop.tasks("a", "b")

    @shop.app.task(attempts=1)
    def c(a: str, b: str, word: str) -> str:
        shop.did.append("c")
        if broken:
            raise ValueError("broken")
        return a + b + word

    flow = shop.app.workflow("flow", steps=[a, b, c])
    run = flow.submit(word="!")
    shop.stage.drain()
    assert run.status == "FAILED"
    broken.clear()
    again = run.rerun(from_="c", by="ann", reason="mended")
    assert again.steps == {"c": OPEN}
    assert again.wait() == {"a": "A", "b": "B", "c": "AB!"}
    assert shop.app.read(view, again.unit).body.retry_of == run.unit
    assert shop.did == ["a", "b", "c", "c"]
    third = shop.app.rerun(again.id, from_="b")  # through the rerun of a run
    assert third.wait() == {"a": "A", "b": "B", "c": "AB!"}
    assert third.steps == {"b": DONE, "c": DONE}
    assert list(asyncio.run(run.rerun.aio()).wait()) == ["a", "b", "c"]
    assert run.status == "FAILED"


def test_a_rerun_that_cannot_be_is_refused(shop: Shop) -> None:
    a, b, c = shop.task("a"), shop.task("b", interlock.Reject("no")), shop.task("c")
    flow = shop.app.workflow("flow", steps=[a, b, c])
    run = flow.submit()
    with pytest.raises(InterlockError, match="no 'rerun' from 'PENDING'"):
        run.rerun()
    shop.stage.drain()
    with pytest.raises(InterlockError, match="'b' has not succeeded; begin there"):
        run.rerun(from_="c")
    with pytest.raises(InterlockError, match="has no step 'x'; it has a, b, c"):
        run.rerun(from_="x")
    job = a.submit()
    job.wait()
    with pytest.raises(InterlockError, match="is rerun as a whole"):
        shop.app.rerun(job.unit, from_="a")


def test_a_rerun_of_what_failed_begins_at_the_first_step_that_has_not_succeeded(shop: Shop) -> None:
    a, c = shop.tasks("a", "c")

    @shop.app.task(attempts=1)
    def b() -> str:
        if len(shop.did) == 1:
            shop.did.append("failed")
            raise interlock.Reject("no")
        return "B"

    run = shop.app.workflow("flow", steps=[a, b, c]).submit()
    with pytest.raises(interlock.Failed):
        run.wait()
    again = shop.app.rerun(run.id, failed=True)
    assert again.wait() == {"a": "A", "b": "B", "c": "C"}
    assert list(again.steps) == ["b", "c"]
    with pytest.raises(InterlockError, match="has no step that has not succeeded; leave failed out"):
        again.rerun(failed=True)


def test_a_rerun_of_one_branch_leaves_the_other(shop: Shop) -> None:
    a, b, c, d = shop.tasks("a", "b", "c", "d")
    run = shop.app.workflow("flow", steps=[a, interlock.parallel(b, c), d]).submit()
    run.wait()
    again = run.rerun(from_="b")
    assert again.wait() == {"a": "A", "b": "B", "c": "C", "d": "D"}
    assert again.steps == {"b": DONE, "d": DONE}


# Signals.


def paid(shop: Shop, timeout: str | None = None) -> interlock.Task[..., Any]:
    @shop.app.task
    def order(ctx: interlock.Context) -> Any:
        ctx.cost(1)
        number = ctx.step("number", lambda: shop.did.append("numbered") or 7)
        try:
            return [number, ctx.wait_signal("paid", timeout=timeout)]
        except interlock.NoSignal as late:
            return str(late)

    return order


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("of_a_run", [True, False])
def test_a_signal_is_waited_for_and_kept_if_it_is_early(shop: Shop, early: bool, of_a_run: bool) -> None:
    order = paid(shop)
    job: interlock.Job = shop.app.workflow("flow", steps=[order]).submit() if of_a_run else order.submit()
    unit = shop.app.read(children_of, job.unit)[0].unit.id if of_a_run else job.unit
    if not early:
        shop.stage.drain()
        assert shop.app.read(view, unit).unit.parked_on == f"signal:{job.unit}:paid"
        assert "waits for the signal 'paid' of" in shop.app.why(unit)
        shop.stage.advance(days=30)
        assert shop.stage.drain() == 0  # nobody works for it meanwhile
    assert job.signal("paid", {"sum": 9}).applied
    assert job.signal("paid", {"sum": 10}).applied is False
    result = job.wait()
    assert (result["order"] if of_a_run else result) == [7, {"sum": 9}]
    assert shop.did == ["numbered"]
    seen = shop.app.read(view, job.unit).unit
    assert (seen.cost, seen.snoozes) == (2_000_000, 0)
    with pytest.raises(InterlockError, match="has ended"):
        job.signal("paid")


def test_a_signal_that_does_not_come_is_given_up(shop: Shop) -> None:
    job = paid(shop, "1h").submit()
    shop.stage.drain()
    shop.stage.lose_worker()
    shop.stage.advance("59m")
    assert shop.stage.drain() == 0
    shop.stage.advance("1m")
    assert job.wait() == "the signal 'paid' has not come in time"


def test_a_run_that_waits_for_a_signal_can_be_cancelled(shop: Shop) -> None:
    run = shop.app.workflow("flow", steps=[paid(shop)]).submit()
    shop.stage.drain()
    assert run.cancel().applied
    assert run.steps == {"order": "CANCELED"}
    assert shop.app.read(children_of, run.unit)[0].unit.parked_on is None


def test_a_signal_and_a_mutex_do_not_disturb_each_other(shop: Shop) -> None:
    @shop.app.task(mutex="till")
    def pay(ctx: interlock.Context) -> Any:
        return ctx.wait_signal("paid")

    one, two = pay.submit(), pay.submit()
    shop.stage.drain()  # the first one waits without the mutex, so the second one could run
    assert [shop.app.read(view, job.unit).unit.parked_on for job in (one, two)] == [
        f"signal:{job.unit}:paid" for job in (one, two)
    ]
    two.signal("paid", 2)
    assert two.wait() == 2
    one.signal("paid", 1)
    assert one.wait() == 1


# Below and back.


def test_a_workflow_may_be_a_step(shop: Shop) -> None:
    @shop.app.task
    def pack(item: str, check: bool) -> str:
        return f"{item} {check}"

    inner = shop.app.workflow("inner", steps=[pack, interlock.approval("seal")])
    check = shop.task("check", True)

    @shop.app.task
    def send(inner: dict[str, Any]) -> str:
        return f"sent {inner['pack']}"

    outer = shop.app.workflow("outer", steps=[check, inner, send])
    run = outer.submit(item="book")
    shop.stage.drain()
    (below,) = [one for one in shop.app.read(children_of, run.unit) if one.body.task == "inner"]
    child = shop.app.run(below.unit.id)
    assert (run.status, run.waiting_on, child.waiting_on) == (GATE, ["inner"], ["seal"])
    assert run.approve(by="ann").applied, "whose gate is its child's"
    assert child.approve(by="ann").applied is False
    assert run.wait()["send"] == "sent book True"
    other = outer.submit(item="pen")
    shop.stage.drain()
    assert other.cancel().applied
    (below,) = [one for one in shop.app.read(children_of, other.unit) if one.body.task == "inner"]
    assert shop.app.run(below.unit.id).steps == {"pack": DONE, "seal": "CANCELED"}
    with pytest.raises(InterlockError, match="is a step of run"):
        shop.app.rerun(below.unit.id)


def test_a_child_that_fails_fails_the_run(shop: Shop) -> None:
    inner = shop.app.workflow("inner", steps=[shop.task("a", interlock.Reject("no"))])
    run = shop.app.workflow("outer", steps=[inner, shop.task("b")]).submit()
    shop.stage.drain()
    assert (run.status, run.steps) == ("FAILED", {"inner": "FAILED", "b": "CANCELED"})


def test_what_was_done_is_undone_the_last_first(shop: Shop) -> None:
    def undo(name: str) -> interlock.Task[..., Any]:
        def handler(order: int, flight: str, ctx: interlock.Context) -> None:
            shop.did.append(f"{name} of {order} {flight} {sorted(ctx.outputs)}")

        return shop.app.task(name=name, queue="back")(handler)

    @shop.app.task(queue="there")
    def flight(order: int) -> str:
        return f"F{order}"

    hotel, pay = shop.task("hotel", "H"), shop.task("pay", interlock.Reject("no money"))
    flow = shop.app.workflow(
        "trip",
        steps=[
            interlock.step(flight, undo=undo("drop flight")),
            interlock.step(hotel, undo=undo("drop hotel")),
            interlock.step(hotel, name="spare", undo="drop hotel", when="order > 100"),
            pay,
        ],
    )
    run = flow.submit(order=4)
    shop.stage.drain()
    assert run.status == "FAILED"
    seen = "['flight', 'hotel', 'spare']"
    assert shop.did == ["hotel", "pay", f"drop hotel of 4 F4 {seen}", f"drop flight of 4 F4 {seen}"]
    assert list(run.steps) == ["flight", "hotel", "spare", "pay"]


# With the caller's own transaction, and in processes of their own.


def test_a_run_is_there_exactly_if_the_caller_commits(shop: Shop, url: str) -> None:
    if "memory" in url:
        return
    flow = shop.app.workflow("flow", steps=shop.tasks("a"))
    if url.startswith("http"):  # there is no transaction across a network
        with closing(sqlite3.connect(":memory:")) as mine, pytest.raises(InterlockError, match="tx: a server cannot"):
            flow.submit(tx=mine)
        return
    connection = connected(url)
    flow.submit(tx=connection)
    connection.rollback()
    assert shop.stage.drain() == 0
    run = flow.submit(tx=connection)
    connection.commit()
    connection.close()
    assert run.wait() == {"a": "A"}


def connected(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    return psycopg.connect(url)


def test_the_documents_name_of_a_gate_is_a_gate(shop: Shop) -> None:
    """Document 001: no worker executes the step APPROVAL, not even one that has a task of that name."""
    for name, gate in (("plain", "APPROVAL"), ("said", interlock.step("APPROVAL")), ("task", shop.task("APPROVAL"))):
        flow = shop.app.workflow(name, steps=[*shop.tasks(f"{name} build"), gate, *shop.tasks(f"{name} ship")])
        run = flow.submit()
        shop.stage.drain()
        assert (run.status, run.waiting_on) == (GATE, ["APPROVAL"])
        assert run.approve(by="ann").applied
        shop.stage.drain()
        assert run.status == DONE
    assert "APPROVAL" not in shop.did


def test_an_approval_says_what_is_wrong_with_it() -> None:
    assert interlock.approval("ship", approvers="ops").approvers == ("ops",)
    for wrong, word in (({"approvers": 5}, "approvers"), ({"quorum": "two"}, "quorum"), ({"quorum": True}, "quorum")):
        with pytest.raises(InterlockError, match=f"{word} = .* is not allowed; allowed is"):
            interlock.approval("ship", **wrong)  # type: ignore[arg-type]
    with pytest.raises(InterlockError, match="name = '' is not allowed"):
        interlock.approval("")
