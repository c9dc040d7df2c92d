"""Workstreams as a program writes them: a graph of tasks with needs, checks and rules, and the handle of one."""

import asyncio
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import interlock
from interlock import InterlockError
from interlock.client import workstream_works
from interlock.client.workstream_works import encode_options, split_pages
from interlock.core.effective_policy import policy_of
from interlock.kernel.commands import Submit, Work
from interlock.kernel.errors import Unknown
from interlock.store.queries.views import Filter, children_of, listing, needs_of, view
from interlock.testing import Stage


class Site:
    """The tasks of a site, which note what they did."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.app, self.did = stage, stage.app, list[str]()
        self.fails: set[str] = set()

        @self.app.task
        def fetch(ref: str) -> dict[str, Any]:
            self.note("fetch")
            return {"ref": ref, "images": ["a", "b"]}

        @self.app.task(attempts=4, timeout="1h")
        def build(fetch: dict[str, Any], ref: str, fast: bool = False) -> str:
            self.note("build")
            return f"{fetch['ref']} {ref} {fast}"

        @self.app.task
        def docs(ctx: interlock.Context) -> list[str]:
            self.note("docs")
            return sorted(ctx.outputs)

        @self.app.task
        def lint(result: Any, ref: str) -> None:
            self.note(f"lint {result}")

        @self.app.task
        def smoke(ref: str) -> None:
            self.note(f"smoke {ref}")

        self.fetch, self.build, self.docs, self.lint, self.smoke = fetch, build, docs, lint, smoke

    def note(self, name: str) -> None:
        self.did.append(name)
        if name.split()[0] in self.fails:
            raise interlock.Reject(f"{name} does not work")

    def whole(self) -> interlock.Workstream:
        return self.app.workstream(
            "site",
            tasks=[
                interlock.task(self.docs, needs=[self.build], critical=False),
                interlock.task(self.build, needs=[self.fetch], attempts=2, checks=[self.lint], labels={"a": "b"}),
                self.fetch,
            ],
            checks=[self.smoke],
        )


@pytest.fixture
def site(stage: Stage) -> Site:
    return Site(stage)


def test_a_workstream_from_submit_to_its_outputs(site: Site) -> None:
    stream = site.whole().submit(ref="v1", key="site-1", by="ann")
    assert stream.created
    assert stream.id.startswith("workstream_")
    assert (stream.state, stream.outcome) == ("ready", None)
    assert stream.tasks == {"docs": "pending", "build": "pending", "fetch": "queued"}
    outputs = stream.wait("1d")
    assert outputs == stream.outputs == {
        "docs": ["build"], "build": "v1 v1 False", "fetch": {"ref": "v1", "images": ["a", "b"]},
    }  # fmt: skip
    assert site.did == ["fetch", "build", "lint v1 v1 False", "docs", "smoke v1"]
    assert stream.tasks == dict.fromkeys(("docs", "build", "fetch"), "completed")
    assert site.stage.transitions(stream) == ["planned", "ready", "executing", "validating", "completed"]
    assert site.stage.transitions(stream.task("build"))[-2:] == ["validating", "completed"]
    with pytest.raises(Unknown, match="has no child 'biuld'"):
        stream.task("biuld")
    same = site.app.run(stream.id)
    assert isinstance(same, interlock.WorkstreamRun)
    assert (same.outputs, same.outcome, same.cost) == (outputs, "success", 0.0)
    assert "succeeded" in stream.why()
    assert [event.actor for event in stream.events()][:2] == ["ann", "engine"]


def test_a_key_is_one_workstream(site: Site) -> None:
    whole = site.whole()
    first = whole.submit(ref="v1", key="k")
    again = asyncio.run(whole.submit.aio(ref="v1", key="k"))
    assert (again.unit, again.created) == (first.unit, False)
    first.wait("1d")
    assert whole.submit(ref="v1", key="k").unit == first.unit, "also when it has ended"
    with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT"):
        whole.submit(ref="v2", key="k")
    with pytest.raises(InterlockError, match="DUPLICATE_KEY"):
        whole.submit(ref="v1", key="k", on_duplicate="reject")
    del site.app.workstreams["site"]
    other = site.app.workstream("site", tasks=[site.fetch, interlock.task(site.fetch, name="more")])
    assert other.submit(ref="v1", key="k").unit == first.unit
    assert "more" not in first.tasks, "a key adds nothing to what is there"
    assert whole.submit(ref="v1").unit != first.unit
    assert len(site.app.read(listing, Filter(lifecycle="workstream"), 10)) == 2


def test_rules_needs_and_checks_reach_the_database(site: Site) -> None:
    stream = site.whole().submit(ref="v1", priority=7, labels={"team": "web"})
    rows = {policy_of(row.body).step: row for row in site.app.read(children_of, stream.unit)}
    assert (rows["build"].body.task, policy_of(rows["build"].body).attempts) == ("build", 2)
    assert policy_of(rows["build"].body).timeout_us == 3_600_000_000, "what the use does not say, the task says"
    assert {rows[name].unit.priority for name in rows} == {7}
    assert [bool(rows[name].unit.decides) for name in ("fetch", "docs")] == [True, False]
    assert [need.unit for need in site.app.read(needs_of, rows["build"].unit.id)] == [rows["fetch"].unit.id]
    assert {rows[name].body.input for name in rows} == {'{"ref":"v1"}'}
    top = site.app.read(view, stream.unit).body
    assert (top.input, msgspec.json.decode(top.labels)) == ('{"ref":"v1"}', {"team": "web"})


def test_a_check_that_fails_fails_its_task_and_the_workstream(site: Site) -> None:
    site.fails = {"lint"}
    stream = site.whole().submit(ref="v1")
    with pytest.raises(interlock.Failed, match="is failed: task 'build' is failed: check 'lint': Reject: lint v1"):
        stream.wait("1d")
    assert stream.tasks == {"docs": "cancelled", "build": "failed", "fetch": "completed"}
    site.fails = {"smoke"}
    late = site.app.workstream("late", tasks=[site.fetch], checks=["smoke"]).submit(ref="v1")
    with pytest.raises(interlock.Failed, match="check 'smoke': Reject: smoke v1 does not work"):
        late.wait("1d")
    assert late.tasks == {"fetch": "completed"}


def test_a_failure_that_is_not_critical_stops_only_what_needs_it(site: Site) -> None:
    site.fails = {"build"}
    tasks = [site.fetch, interlock.task(site.build, needs=["fetch"], critical=False), interlock.task(site.docs)]
    stream = site.app.workstream("site", tasks=tasks).submit(ref="v1")
    with pytest.raises(interlock.Failed):
        stream.wait("1d")
    assert stream.tasks == {"fetch": "completed", "build": "failed", "docs": "completed"}


def test_people_and_commands_check_too(site: Site) -> None:
    ship = interlock.approval("ship", approvers=["ops"], quorum=2, expires="2h")
    command = interlock.shell("lint", "make lint", timeout="5m", environment={"CI": "1"})
    tasks = [interlock.task(site.fetch, checks=[ship]), interlock.task(site.docs, checks=[command, "lint"])]
    stream = site.app.workstream("site", tasks=tasks).submit(ref="v1")
    site.stage.drain()
    rows = {policy_of(row.body).step: row for row in site.app.read(children_of, stream.unit)}
    (gate,) = site.app.read(children_of, rows["fetch"].unit.id)
    own = policy_of(gate.body)
    assert (gate.unit.lifecycle, own.approvers, own.quorum, own.expires_us) == ("approval", ("ops",), 2, 7_200_000_000)
    shell, _ = site.app.read(children_of, rows["docs"].unit.id)
    options = msgspec.json.decode(policy_of(shell.body).options or "")
    assert (shell.body.task, options["shell"]) == ("shell", {"command": "make lint", "environment": {"CI": "1"}})
    assert policy_of(shell.body).timeout_us == 300_000_000
    for voter in ("ann", "bob"):
        assert stream.task("fetch").state == "validating"
        site.app.run(gate.unit.id).approve(by=voter, roles=["ops"])
    assert stream.task("fetch").state == "completed"
    assert stream.waiting_on == ["docs"]
    whole = site.app.workstream("whole", tasks=[site.docs], checks=[ship]).submit()
    site.stage.drain()
    assert whole.waiting_on == ["ship"]


def test_commands_are_tasks_with_needs_and_resources(site: Site) -> None:
    bundle = interlock.shell(
        "bundle", "make bundle", needs=[site.build], resources={"repo": "exclusive"}, arguments={"deep": True},
        checks=["lint"], critical=False, attempts=2,
    )  # fmt: skip
    tasks = [site.fetch, interlock.task(site.build, needs=[site.fetch]), bundle]
    stream = site.app.workstream("site", tasks=tasks).submit(ref="v1", fast=True)
    row = site.app.read(view, stream.task("bundle").unit)
    own = policy_of(row.body)
    options = msgspec.json.decode(own.options or "")
    assert (row.body.task, options) == ("shell", {"shell": {"command": "make bundle"}, "checks": {"jobs": ["lint"]}})
    assert msgspec.json.decode(row.body.input) == {"ref": "v1", "fast": True, "deep": True}
    assert (own.attempts, bool(row.unit.decides), [each.name for each in own.resources]) == (2, False, ["repo"])
    with pytest.raises(InterlockError, match="needs, arguments, critical and checks are for workstreams"):
        site.app.workflow("flow", steps=[bundle])
    with pytest.raises(InterlockError, match="when, undo and reclaim_after are for steps of a workflow"):
        site.app.workstream("odd", tasks=[interlock.shell("a", "true", when="x")])


def test_arguments_are_checked_when_it_is_submitted(site: Site) -> None:
    whole = site.whole()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "workstream 'site': argument 'ref' is missing: task 'build' needs it; it takes ref, fast"),
        ({"ref": 1}, "argument 'ref': expected `str`, got `int`"),
        ({"ref": "v1", "rfe": "v1"}, "it has no argument 'rfe'"),
        ({"ref": "v1", "priority": "high"}, "priority = 'high' is not allowed"),
        ({"ref": "v1", "by": 5}, "by = 5 is not allowed"),
    ]
    for given, why in wrong:
        with pytest.raises(InterlockError, match=why):
            whole.submit(**given)
    assert site.app.read(listing, Filter(lifecycle="workstream"), 10) == []
    own = interlock.task(site.fetch, arguments={"ref": "mine"})
    stream = site.app.workstream("own", tasks=[own]).submit()
    assert stream.wait("1d")["fetch"]["ref"] == "mine"


def test_what_could_never_be_is_refused_where_it_is_written(site: Site) -> None:
    def task(name: str, *needs: str, **more: Any) -> Any:
        return interlock.task(site.docs, name=name, needs=needs, **more)

    cases: list[tuple[Any, str]] = [
        ([], "has no tasks; it takes at least one"),
        ("docs", "tasks = 'docs' is not allowed; allowed is a list"),
        ({"a": 1}, "is not allowed; allowed is a list"),
        ([site.docs, site.docs], "two tasks are called 'docs'; give one of them another name"),
        ([7], "workstream 'odd': 7 is no task; a task is one of an app, the name of one, interlock.task"),
        ([task("a", "b"), task("b", "c"), task("c", "a")], "a circle of needs: "),
        ([task("a", "a")], "a circle of needs: a needs a; none of them could ever begin"),
        ([task("build"), task("b", "biuld")], "task 'b' needs 'biuld', which is no task of it; did you mean 'build'"),
        ([task("a"), task("b", "zzz")], "needs 'zzz', which is no task of it; there are a, b"),
        ([site.build, site.fetch], "task 'build' takes 'fetch', which is a task, but none that it needs"),
        ([task("a", attempts=0)], "workstream 'odd', task 'a': attempts = 0 is not allowed"),
        ([task("a", checks=[interlock.shell("x", "true", needs=["b"])])], "check 'x': a check has no needs"),
        ([task("a", checks=[7])], "7 is no task"),
        ([task("n" * 201)], "step = 'n+' is not allowed"),
        ([task("a", checks=[interlock.task("lint", attempts=0)])], "task 'a': 'lint': attempts = 0 is not allowed"),
        ([task("a", checks=[interlock.approval("ops", quorum=0)])], "'ops': quorum = 0 is not allowed; allowed is at"),
        ([interlock.merge(onto="main")], "'git.merge' is a check and no task; it belongs into checks="),
        ([interlock.approval("ops")], "'ops' is a check and no task; it belongs into checks="),
        (
            [site.fetch, interlock.map("each", over="fetch.images"), task("each[0]")],
            r"a task is called 'each\[0\]', as an element of the map 'each' is; give it another name",
        ),
    ]  # fmt: skip
    for tasks, why in cases:
        with pytest.raises(InterlockError, match=why):
            site.app.workstream("odd", tasks=tasks)
    with pytest.raises(InterlockError) as circle:
        site.app.workstream("odd", tasks=[task("a", "b"), task("b", "c"), task("c", "a")])
    names = str(circle.value).partition("needs: ")[2].partition(";")[0].split(" needs ")
    assert (names[0], sorted(names[1:])) == (names[-1], ["a", "b", "c"])
    assert all(need == {"a": "b", "b": "c", "c": "a"}[name] for name, need in pairwise(names))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"needs": "a"}, "needs = 'a' is not allowed; allowed is a list"),
        ({"needs": [7]}, "allowed is a list of tasks or of their names"),
        ({"critical": "no"}, "critical = 'no' is not allowed; allowed are True and False"),
        ({"arguments": [1]}, "allowed is a mapping of names to values"),
        ({"retires": 2}, "interlock.task has no option 'retires'; it has"),
        (
            {"resources": {"repo": "half"}},
            "resources: 'repo' = 'half' is not allowed; allowed are exclusive and shared",
        ),
        ({"name": ""}, "name = '' is not allowed"),
        ({"arguments": {"ref": object()}}, "task 'docs': argument 'ref': encoding objects of type object is unsup"),
    ]
    for options, why in wrong:
        with pytest.raises(InterlockError, match=why):
            interlock.task(site.docs, **options)
    with pytest.raises(InterlockError, match="task 'fetch': argument 'ref': expected `str`, got `int`; it takes ref: "):
        interlock.task(site.fetch, arguments={"ref": 1})
    for part in (interlock.task(site.docs), interlock.shell("docs", "true")):
        with pytest.raises(InterlockError, match="'docs' says what it is in the workstream already"):
            interlock.task(part, needs=["a"])  # type: ignore[arg-type]
    for make in (site.app.workstream, site.app.workflow):
        with pytest.raises(InterlockError, match="name = None is not allowed; allowed is text"):
            make(None, [site.docs])  # type: ignore[arg-type]
    with pytest.raises(InterlockError, match="expects = '2' is not allowed; allowed is a whole number"):
        site.app.workstream("odd", tasks=[site.docs], expects="2")
    site.app.workstream("fine", tasks=[site.docs])
    with pytest.raises(InterlockError, match="has a workstream 'fine' already"):
        site.app.workstream("fine", tasks=[site.docs])


def test_many_tasks_come_in_pages_and_go_on_under_their_key(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workstream_works, "PAGE", 4)
    names = [f"t{number}" for number in range(10)]
    tasks = [interlock.task(site.docs, name=name, needs=names[place - 1 : place]) for place, name in enumerate(names)]
    chain = site.app.workstream("chain", tasks=tasks)
    top, works = chain.make_works({}, {"key": "k"})
    assert [len(page) for page in split_pages(works)] == [3, 3, 3, 1]
    (made, *_) = site.app.send(Submit(work=(top, *works[:3])))  # a program that was killed after its first page
    assert site.app.run(made.unit).state == "planned"
    stream = chain.submit(key="k")
    assert (stream.unit, stream.state, len(stream.tasks)) == (made.unit, "ready", 10)
    assert stream.wait("1d")["t9"] == ["t8"]


def test_progress_and_plan_are_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = site.whole().submit(ref="v1")
    progress, plan = stream.progress, stream.plan
    assert (progress.of, progress.done, progress.ready, progress.waiting) == (3, 0, 1, 2)
    assert progress.critical_path == ("fetch", "build", "docs")
    assert [(task.name, task.stage, task.needs) for task in plan.tasks] == [
        ("fetch", 1, ()), ("build", 2, ("fetch",)), ("docs", 3, ("build",)),
    ]  # fmt: skip
    stream.wait("1d")
    assert (stream.progress.done, stream.progress.state, stream.progress.critical_path) == (3, "completed", ())
    wide = [interlock.task(site.docs, name=f"t{number}") for number in range(1_005)]
    assert len(site.app.workstream("wide", tasks=wide).submit().plan.tasks) == 1_005


def test_more_tasks_than_a_page_are_added_in_any_order(site: Site) -> None:
    stream = site.whole().submit(ref="v1")
    names = [f"t{number}" for number in range(1_005)]
    last = [interlock.task("other", name=name, needs=names[:place][-1:]) for place, name in enumerate(names)]
    made = stream.add_many(reversed(last))
    tasks = stream.tasks
    assert ([job.created for job in made], made[-1].state) == ([True] * 1_005, "queued")
    assert {tasks[name] for name in names[1:]} == {"pending"}
    with pytest.raises(InterlockError, match="has no task 'none'; what is added to it needs tasks that are there"):
        stream.add("other", name="lost", needs=["none"])


def test_tasks_are_added_while_it_runs_and_not_after(site: Site) -> None:
    stream = site.whole().submit(ref="v1")
    added = stream.add(site.build, name="hotfix", needs=["fetch"], attempts=1)
    assert (added.created, added.state) == (True, "pending")
    assert asyncio.run(stream.add.aio(site.build, name="hotfix", needs=["fetch"])).unit == added.unit
    assert not stream.add(site.build, name="hotfix", needs=["fetch"]).created
    with pytest.raises(InterlockError, match=rf"{stream.id}: two tasks are called 'x'; give one of them another name"):
        stream.add_many([interlock.task(site.docs, name=name) for name in ("x", "y", "x")])
    more = [interlock.task(site.fetch, name=name, arguments={"ref": name}) for name in ("x", "y")]
    assert [job.created for job in stream.add_many(more)] == [True, True]
    outputs = stream.wait("1d")
    assert (outputs["hotfix"], outputs["x"]["ref"]) == ("v1 v1 False", "x"), "it takes what the others take"
    with pytest.raises(InterlockError, match="has ended"):
        stream.add(site.fetch, name="late")
    for part, options, why in (
        (7, {}, "7 is no task"),
        (site.fetch, {"needs": "a"}, "allowed is a list"),
        (site.fetch, {"attempts": 0}, "task 'fetch': attempts = 0 is not allowed"),
    ):
        with pytest.raises(InterlockError, match=why):
            stream.add(part, **options)


def test_pages_are_not_larger_than_a_server_takes() -> None:
    works = [Work(task="a", input="x" * 250_000) for _ in range(5)]
    assert [len(page) for page in split_pages(works)] == [2, 2, 1]
    assert encode_options({}) is None


def test_the_holder_of_a_task_adds_others_once(site: Site) -> None:
    added: list[tuple[bool, str]] = []

    @site.app.task(attempts=2, backoff="1s")
    def triage(ref: str, ctx: interlock.Context) -> str:
        job = ctx.add(site.fetch, name="found", needs=["docs"], arguments={"ref": "own"})
        ctx.add(interlock.task(site.docs, name="more"))
        added.append((job.created, job.id))
        if ctx.attempt == 1:
            raise interlock.Retry(after="1s")
        with pytest.raises(InterlockError, match="7 is no task"):
            ctx.add(7)
        with pytest.raises(InterlockError, match="NAME_TAKEN"):
            ctx.add(site.fetch, name="found", arguments={"ref": "other"})
        return "done"

    @site.app.task
    async def alone(ctx: interlock.Context) -> None:
        await ctx.add.aio(site.docs, name="x")

    stream = site.app.workstream("site", tasks=[triage, site.docs]).submit(ref="v1")
    outputs = stream.wait("1d")
    assert (outputs["found"]["ref"], sorted(outputs)) == ("own", ["docs", "found", "more", "triage"])
    assert [created for created, _ in added] == [True, False]
    assert added[0][1] == added[1][1] == stream.task("found").id
    job = alone.submit()
    with pytest.raises(interlock.Failed, match="is no task of a workstream"):
        job.wait("1d")
    assert site.app.workstream("async", tasks=[alone]).submit().wait("1d").keys() == {"alone", "x"}


def test_a_map_is_done_for_each_element(site: Site) -> None:
    @site.app.task
    def resize(image: str, ref: str) -> str:
        return f"{image} {ref}"

    @site.app.task
    def join(resize: list[str]) -> str:
        return "+".join(resize)

    tasks = [site.fetch, interlock.map(resize, over="fetch.images", at_once=1), interlock.task(join, needs=[resize])]
    stream = site.app.workstream("site", tasks=tasks, at_once=2).submit(ref="v1")
    assert stream.task("resize").state == "pending"
    assert stream.wait("1d")["join"] == "a v1+b v1"
    with pytest.raises(InterlockError, match="map 'build': argument = 'fetch' is the name of a need"):
        interlock.map(site.build, over="fetch.images", argument="fetch")

    @site.app.task
    def frame(fetch: dict[str, Any], image: str, docs: list[str]) -> str:
        return f"{image} of {len(fetch['images'])} {docs}"

    each = interlock.map(frame, over="fetch.images", needs=["docs"], takes="5m")
    assert each.takes_us == interlock.shell("x", "true", takes=300).in_workstream.takes_us == 300_000_000  # type: ignore[union-attr]
    with pytest.raises(InterlockError, match="takes: 'soon'"):
        interlock.task(site.docs, takes="soon")
    framed = site.app.workstream("frames", tasks=[site.fetch, site.docs, each]).submit(ref="v1").wait("1d")
    assert framed["frame"] == [f"a of 2 {framed['docs']}", f"b of 2 {framed['docs']}"]
    own = interlock.map(site.fetch, name="each", over="fetch.images", argument="ref", critical=False)
    stream = site.app.workstream("own", tasks=[site.fetch, own, interlock.task(site.docs, needs=["each"])]).submit(
        ref="v"
    )
    outputs = stream.wait("1d")
    assert [output["ref"] for output in outputs["each"]] == ["a", "b"]
    assert stream.tasks["each[1]"] == "completed"
    for wrong, why in (
        ({"over": 7}, "over = 7 is not allowed"),
        ({"over": "fetch", "at_once": 0}, "at_once = 0 is not allowed"),
        ({"over": "fetch", "argument": 7}, "argument = 7 is not allowed"),
    ):
        with pytest.raises(InterlockError, match=why):
            interlock.map(site.docs, **wrong)
    command = interlock.map(interlock.shell("each", "true"), over="fetch.images")
    assert (command.needs, command.map) == (("fetch",), {"over": "fetch.images", "argument": "item"})
    with pytest.raises(InterlockError, match=r"map 'build': its task takes no 'img', beside .*; it takes fetch: "):
        interlock.map(site.build, over="fetch.images", argument="img")
    with pytest.raises(InterlockError, match="map 'docs': its task takes nothing for the element, beside"):
        interlock.map(site.docs, over="fetch.images")
    with pytest.raises(InterlockError, match="at_once = 'x' is not allowed"):
        site.app.workstream("odd", tasks=[site.docs], at_once="x")


def test_a_failure_that_is_allowed_counts_as_completed(site: Site) -> None:
    site.fails = {"docs"}
    tasks = [interlock.task(site.docs, allow_failure=True), interlock.task(site.fetch, needs=["docs"])]
    stream = site.app.workstream("site", tasks=tasks).submit(ref="v1")
    assert "failed" in stream.wait("1d")["docs"]


def test_an_operator_retries_skips_reruns_and_reassigns(site: Site) -> None:
    site.fails = {"build"}
    tasks = [
        site.fetch,
        interlock.task(site.build, needs=["fetch"], critical=False),
        interlock.task(site.docs, needs=["build"], critical=False),
        interlock.task(site.fetch, name="held", capabilities=["rare"]),
    ]
    stream = site.app.workstream("site", tasks=tasks).submit(ref="v1")
    site.stage.drain()
    assert stream.tasks == {"fetch": "completed", "build": "failed", "docs": "pending", "held": "queued"}
    with pytest.raises(InterlockError, match="waits for 'build'; retry or skip that first"):
        stream.skip("docs", by="ann", reason="not now")
    with pytest.raises(InterlockError, match="nobody holds it"):
        stream.reassign("held")
    with pytest.raises(InterlockError, match="name = 7 is not allowed; allowed is text"):
        stream.retry(7)
    with pytest.raises(InterlockError, match="reason"):
        stream.pause(reason=7)
    with pytest.raises(Unknown, match="has no child 'nothing'"):
        stream.retry("nothing")
    site.fails = set()
    again = stream.retry("build", by="ann", reason="a mirror was down")
    assert again.created
    assert again.events()[0].actor == "ann"
    site.stage.drain()
    assert stream.tasks == {"fetch": "completed", "build": "completed", "docs": "completed", "held": "queued"}
    assert asyncio.run(stream.skip.aio("held", by="ann", reason="not wanted")).state == "completed"
    assert stream.state == "completed"
    site.fails = {"docs"}
    lost = site.app.workstream("lost", tasks=[site.fetch, interlock.task(site.docs, needs=["fetch"])]).submit(ref="v1")
    with pytest.raises(interlock.Failed):
        lost.wait("1d")
    site.fails, site.did = set(), []
    rerun = lost.rerun(failed=True, by="ann")
    assert isinstance(rerun, interlock.WorkstreamRun)
    assert (sorted(rerun.wait("1d")), site.did) == (["docs", "fetch"], ["docs"])
    site.did = []
    assert rerun.rerun(from_="fetch").wait("1d")["docs"] == ["fetch"]
    assert site.did == ["fetch", "docs"]
