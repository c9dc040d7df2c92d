"""How far a workstream is, and its plan, at each point of its life."""

from typing import Any

import msgspec
import pytest

from interlock.client.progress import Progress, make_plan_document, read_plan, read_progress
from interlock.kernel.commands import Decide, PauseWork, RetryTask, Submit, UnpauseWork, Work
from interlock.kernel.errors import InterlockError, Unknown
from tests.engine.world import World
from tests.store.databases import declare

GRAPH = {"fetch": (), "build": ("fetch",), "docs": ("fetch",), "pack": ("build", "docs"), "lint": ()}


def submit(world: World, graph: dict[str, tuple[str, ...]] = GRAPH, **facts: Any) -> dict[str, int]:
    """A planned workstream of tasks by name, each with one attempt, that pass their gates at once."""
    passes = '{"checks": {"jobs": []}}'
    work = [Work(task="site", lifecycle="workstream", ref="site", **facts)]
    for name, needs in graph.items():
        work.append(
            Work(
                task=name.partition("[")[0], lifecycle="task", parent="site", step=name, ref=name, needs=needs,
                decides=name != "docs", attempts=1, options=passes,
            )
        )  # fmt: skip
    units = [made.unit for made in world.send(Submit(work=tuple(work)))]
    world.send(Decide(unit=units[0], trigger="plan"))
    return dict(zip(["site", *graph], units, strict=True))


def progress(world: World, unit: int) -> Progress:
    declare(world.connection, 1)
    return read_progress(world.connection, 1, unit)


def run(world: World, worker: int, seconds: float, **facts: Any) -> str:
    """A worker runs the next task for so long."""
    (grant,) = world.claim(worker)
    world.pass_time(seconds)
    world.finish(grant, **facts)
    return grant.task


def counts(told: Progress) -> dict[str, int]:
    names = ("done", "failed", "running", "checking", "ready", "waiting", "blocked")
    counted = {name: getattr(told, name) for name in names}
    assert sum(counted.values()) == told.of
    return {name: number for name, number in counted.items() if number}


def test_progress_from_the_first_task_to_the_last(world: World) -> None:
    site = submit(world)["site"]
    before = progress(world, site)
    assert counts(before) == {"ready": 2, "waiting": 3}
    assert before.critical_path == ("fetch", "build", "pack")
    assert (before.started_at, before.elapsed_seconds, before.eta, before.left_seconds) == (None, 0.0, None, None)
    world.pass_time(1_000)  # nothing is counted before the first start
    worker = world.worker(concurrency=1)
    (fetch, lint) = world.claim(worker, 2)
    world.pass_time(20)
    world.finish(lint)
    after = progress(world, site)
    assert counts(after) == {"done": 1, "running": 1, "waiting": 3}
    assert (after.elapsed_seconds, after.left_seconds) == (20.0, 60.0)  # each as long as lint; fetch is about to end
    assert after.critical_path == ("fetch", "build", "pack")
    world.finish(fetch)
    assert run(world, worker, 5) == "build"
    assert run(world, worker, 5) == "docs"
    last = progress(world, site)
    assert counts(last) == {"done": 4, "ready": 1}
    assert (last.critical_path, last.left_seconds) == (("pack",), 12.5)
    run(world, worker, 5)
    world.pass_time(7)
    world.send(Decide(unit=site, trigger="valid"))
    world.pass_time(1_000)
    ended = progress(world, site)
    assert (counts(ended), ended.state, ended.critical_path) == ({"done": 5}, "completed", ())
    assert (ended.elapsed_seconds, ended.left_seconds, ended.eta) == (42.0, None, None)


def test_the_eta_is_shared_among_workers_and_limited_by_the_critical_path(world: World) -> None:
    graph: dict[str, tuple[str, ...]] = {f"part[{place}]": () for place in range(8)}
    site = submit(world, {**graph, "part[8]": ("part[0]",), "part[9]": ("part[8]",)})["site"]
    first = world.worker("a", concurrency=1)
    run(world, first, 10)
    assert progress(world, site).left_seconds == 90.0
    assert progress(world, site).eta == "2023-11-14T22:15:00.000Z"
    world.worker("b", concurrency=2)
    assert progress(world, site).left_seconds == 30.0
    world.worker("c", concurrency=100)
    assert progress(world, site).left_seconds == 20.0  # part[8], then part[9]
    world.send(PauseWork(unit=site, reason="freeze"))
    paused = progress(world, site)
    assert (paused.paused, paused.eta, paused.critical_path) == (True, None, ("part[8]", "part[9]"))
    world.send(UnpauseWork(unit=site))
    assert progress(world, site).left_seconds == 20.0


def test_a_task_is_expected_to_take_what_it_says_and_so_many_run_at_once(world: World) -> None:
    says = '{"checks": {"jobs": []}, "workstreams": {"takes_us": 30000000}}'
    own = '{"checks": {"jobs": []}, "workstreams": {"expects": 5, "at_once": 2}}'
    site = world.submit("site", lifecycle="workstream", options=own)
    world.worker("w", concurrency=50)
    for name in "abcd":
        world.submit(name, lifecycle="task", parent=site, step=name, options=says)
    told = progress(world, site)
    assert (told.of, told.waiting, told.left_seconds) == (5, 4, 60.0)  # one of five is yet to come
    with pytest.raises(InterlockError, match="takes_us"):
        world.submit("e", lifecycle="task", parent=site, step="e", options=says.replace("30000000", "-1"))


def test_a_task_that_was_retried_counts_once(world: World) -> None:
    units = submit(world, {"docs": (), "pages": ("docs",), "lint": ()})
    worker = world.worker(concurrency=1)
    assert run(world, worker, 3, ended="failure") == "docs"
    assert counts(progress(world, units["site"])) == {"failed": 1, "blocked": 1, "ready": 1}
    world.send(RetryTask(unit=units["docs"], reason="mended"))
    told = progress(world, units["site"])
    assert (counts(told), told.critical_path) == ({"ready": 2, "waiting": 1}, ("docs", "pages"))


def test_blocked_tasks_are_named_with_what_blocks_them(world: World) -> None:
    units = submit(world, {"docs": (), "pages": ("docs",), "publish": ("pages",), "lint": ()})
    worker = world.worker(concurrency=1)
    assert run(world, worker, 3, ended="failure") == "docs"
    told = progress(world, units["site"])
    assert counts(told) == {"failed": 1, "blocked": 2, "ready": 1}
    assert [(task.name, task.by) for task in told.blocked_tasks] == [("pages", ("docs",)), ("publish", ("pages",))]
    assert told.critical_path == ("lint",)
    assert told.eta is None  # nothing has succeeded yet


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_the_plan_is_in_stages_and_comes_in_pages(world: World, limit: int) -> None:
    units = submit(world)
    declare(world.connection, 1)
    tasks, first = [], 0
    while first is not None:
        plan = read_plan(world.connection, 1, units["site"], first, limit)
        assert len(plan.tasks) <= limit
        tasks += plan.tasks
        first = plan.next
    assert [(task.stage, task.name) for task in tasks] == [
        (1, "fetch"), (1, "lint"), (2, "build"), (2, "docs"), (3, "pack"),
    ]  # fmt: skip
    assert (plan.count, plan.stages, plan.width, plan.critical_path) == (5, 3, 2, ("fetch", "build", "pack"))
    assert [task.name for task in tasks if task.on_critical_path] == ["fetch", "build", "pack"]
    assert [task.name for task in tasks if not task.critical] == ["docs"]
    assert tasks[-1].needs == ("build", "docs")
    assert {task.seconds for task in tasks} == {plan.length_seconds} == {None}


def test_the_document_of_a_plan(world: World) -> None:
    units = submit(world, {"a": (), "b": ("a",)})
    run(world, world.worker(), 4)
    declare(world.connection, 1)
    document = make_plan_document(read_plan(world.connection, 1, units["site"]))
    assert msgspec.json.decode(msgspec.json.encode(document)) == document
    assert [(stage["stage"], [task["name"] for task in stage["tasks"]]) for stage in document["stages"]] == [
        (1, ["a"]), (2, ["b"]),
    ]  # fmt: skip
    assert document["stages"][0]["tasks"][0] | {"id": ""} == {
        "id": "", "name": "a", "state": "completed", "needs": [], "critical": True, "on_critical_path": True,
        "seconds": 4.0,
    }  # fmt: skip
    assert (document["tasks"], document["critical_path"], document["length_seconds"]) == (2, ["a", "b"], 8.0)


def test_a_need_that_is_yet_to_come_is_named(world: World) -> None:
    parent = world.submit("site", lifecycle="workstream")
    world.submit("b", lifecycle="task", parent=parent, step="b", needs=("a",))
    declare(world.connection, 1)
    (task,) = read_plan(world.connection, 1, parent).tasks
    assert (task.stage, task.needs) == (1, ("a",))
    assert counts(progress(world, parent)) == {"waiting": 1}


def test_only_a_workstream_has_a_plan(world: World) -> None:
    job = world.submit("mail")
    with pytest.raises(Unknown, match=r"^job_\w+ is no workstream, and only these have a plan$"):
        progress(world, job)
    with pytest.raises(Unknown):
        progress(world, 987_654)
