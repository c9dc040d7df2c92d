"""Document 003 by its requirements, once over HTTP: everything is asked of a server, and told by one.

Beside the database the same promises are stories of `tests/engine/test_document_003.py`, on every database.
"""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.audit.laws import audit
from interlock.kernel.commands import PERMANENT, Claim, Decide, Heartbeat, LeaseGrant, SetTenant
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.plugins.state_files.cli import read_trees
from interlock.plugins.state_files.exporter import Exporter
from interlock.plugins.state_files.folder import open_folder
from tests.engine.test_state_files import find_problems, read_lines
from tests.engine.test_workstream_histories import ENDS
from tests.server.requests_003 import Clock, Requests, held
from tests.server.stage import Stage, staged

EXCLUSIVE = {"repo": "exclusive"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Clock]]:
    """One server for all stories, whose database breaks no law when they are over."""
    with staged(f"sqlite:///{tmp_path_factory.mktemp('server')}/work.db") as stage:
        yield stage, Clock(stage)
        app = stage.app
        assert app.engine.read(lambda connection: list(audit(connection, app.lifecycles, laws=app.registry.laws))) == []


@pytest.fixture
def web(shared: tuple[Stage, Clock]) -> Requests:
    return Requests(*shared)


# Tasks.


@pytest.mark.req("R3-02", "R3-03", "R3-04", "R3-20")
def test_a_task_is_queued_when_what_it_needs_has_completed_and_never_before(web: Requests) -> None:
    path, tasks = web.submit({"name": "build"}, {"name": "test", "needs": ["build"]})
    assert web.path(tasks["test"]) == ["pending"]
    grant = web.claim(worker := web.worker())[0]
    assert web.claim(worker) == []
    for unit in (grant.unit + 1, grant.unit - 1):
        with pytest.raises(InterlockError):
            web.send(Decide(unit=unit, trigger="ready"))
    assert (web.path(tasks["test"]), web.job(tasks["test"])["needs_unmet"]) == (["pending"], 1)
    web.finish(grant)
    assert web.path(tasks["test"]) == ["pending", "queued"]
    assert web.names(tasks["test"])[1:] == ["scheduler_assigned"]
    plan = [(task["name"], task["stage"], task["state"]) for task in web.get(f"{path}/plan")["tasks"]]
    assert plan == [("build", 1, "completed"), ("test", 2, "queued")]


@pytest.mark.req("R3-05", "R3-06", "R3-17", "R3-19")
def test_a_capable_worker_starts_a_task_and_only_a_running_task_has_a_worker(web: Requests) -> None:
    _, tasks = web.submit({"name": "build", "capabilities": ["node"], "timeout": 60, "attempts": 2})
    plain, node = web.worker("plain"), web.worker("node", capabilities=("node",))
    for _ in range(3):
        assert web.claim(plain) == []
        web.pass_time(10)
    shown = [web.job(tasks["build"])]
    (grant,) = web.claim(node)
    running = web.job(tasks["build"])
    shown.append(running)
    assert (running["state"], running["worker"], running["started_at"] is None) == ("running", "node", False)
    assert running["deadline_at"] > running["started_at"] > running["created_at"]
    assert "worker_started" in web.names(tasks["build"])
    web.pass_time(3)
    web.finish(grant, ended="failure", error="no")
    shown.append(web.job(tasks["build"]))
    web.pass_time(60)
    shown.append(web.job(tasks["build"]))
    assert web.do(node) == "build"
    shown.append(ended := web.job(tasks["build"]))
    assert [job["state"] for job in shown] == ["queued", "running", "retrying", "queued", "completed"]
    assert [job["worker"] for job in shown] == [None, "node", None, None, None]
    assert ended["created_at"] <= ended["started_at"] <= ended["changed_at"]


@pytest.mark.req("R3-07", "R3-12", "R3-13")
def test_a_task_completes_if_every_check_passes_and_fails_without_another_try_if_one_does_not(web: Requests) -> None:
    build = {"name": "build", "checks": ["lint", "unit"], "attempts": 4, "critical": False, "resources": EXCLUSIVE}
    tasks = [build, {**build, "name": "again"}, {"name": "ship", "needs": ["build"]}]
    _, tasks = web.submit(*tasks, {"name": "stop", "needs": ["again"], "critical": False})
    worker = web.worker()
    (first,) = web.claim(worker, 2)  # the other one has no resource
    web.finish(first)
    assert (web.job(tasks["build"])["state"], web.names(tasks["build"])[-1]) == ("validating", "execution_completed")
    grants = {grant.task: grant for grant in web.claim(worker, 3)}  # the resource is free again
    assert sorted(grants) == ["again", "lint", "unit"]
    web.finish(grants["lint"])
    assert web.job(tasks["build"])["state"] == "validating"
    web.finish(grants["unit"])
    assert (web.job(tasks["build"])["state"], web.names(tasks["build"])[-1]) == ("completed", "validation_passed")
    assert web.job(tasks["ship"])["state"] == "queued"
    web.finish(grants["again"])
    for grant in web.claim(worker, 3):
        wrong = {"ended": "failure", "error": "2 of 9", "error_class": PERMANENT} if grant.task == "unit" else {}
        web.finish(grant, **wrong)
    again, event = web.job(tasks["again"]), web.events(tasks["again"])[-1]
    assert (again["state"], again["error"], again["failures"]) == ("failed", "check 'unit': 2 of 9", 0)
    assert (event["name"], event["severity"]) == ("validation_failed", "error")
    assert web.job(tasks["stop"])["needs_unmet"] == 1


@pytest.mark.req("R3-08", "R3-09", "R3-11", "R3-18", "R3-31")
def test_a_task_is_retried_as_often_as_it_may_and_then_blocks_what_needs_it(web: Requests) -> None:
    docs = {"name": "docs", "attempts": 3, "critical": False, "priority": 1}
    path, tasks = web.submit(docs, {"name": "map", "needs": ["docs"], "critical": False}, {"name": "lint"})
    worker = web.worker()
    for failures in (1, 2):
        assert web.do(worker, ended="failure", error="exit code 1") == "docs"
        job, event = web.job(tasks["docs"]), web.events(tasks["docs"])[-1]
        assert (job["state"], job["failures"], job["worker"]) == ("retrying", failures, None)
        assert (event["name"], event["severity"]) == ("execution_failed", "warning")
        (lint,) = web.claim(worker, 9)  # docs waits
        assert lint.task == "lint"
        assert web.report("release", lint).status_code == 200
        web.pass_time(60)
        assert (web.job(tasks["docs"])["state"], web.names(tasks["docs"])[-1]) == ("queued", "retry_delay_elapsed")
    assert web.do(worker, ended="failure", error="exit code 2") == "docs"
    job, event = web.job(tasks["docs"]), web.events(tasks["docs"])[-1]
    assert (job["state"], job["failures"], job["error"], job["worker"]) == ("failed", 3, "exit code 2", None)
    assert (event["name"], event["severity"]) == ("execution_failed", "error")
    (blocked,) = web.get(f"{path}/progress")["blocked_tasks"]
    assert (blocked["name"], blocked["by"], web.job(tasks["map"])["state"]) == ("map", ["docs"], "pending")
    assert (web.look(path), web.do(worker), web.job(tasks["lint"])["state"]) == ("executing", "lint", "completed")


@pytest.mark.req("R3-10", "R3-15", "R3-16")
def test_a_task_is_in_one_state_after_the_other_and_stays_in_its_end(web: Requests) -> None:
    path, tasks = web.submit({"name": "build"}, {"name": "docs", "critical": False})
    build, docs = sorted(web.claim(web.worker(), 2), key=lambda grant: grant.task)
    assert web.post(f"/v1/jobs/{tasks['docs']}/cancel")["state"] == "cancelled"
    assert web.names(tasks["docs"])[-1] == "user_cancelled"
    assert web.report("finish", docs).status_code == 409
    web.finish(build)
    for job in (*tasks.values(), path.rpartition("/")[2]):
        hops = [(event["from"], event["to"]) for event in web.events(job)]
        assert hops[0][0] is None
        assert all(before[1] == after[0] for before, after in pairwise(hops))
    ended = [web.job(task) for task in tasks.values()]
    for grant in (build, docs):
        for verb in ("start", "heartbeat", "release"):
            assert web.report(verb, grant).status_code == 409
        for trigger in ("ready", "claim", "retry", "due", "valid"):
            with pytest.raises(InterlockError):
                web.send(Decide(unit=grant.unit, trigger=trigger))
    assert [web.job(task) for task in tasks.values()] == ended


# Workstreams.


@pytest.mark.req("R3-24", "R3-25", "R3-27", "R3-28")
def test_a_workstream_executes_with_its_first_task_and_its_last_check_decides_how_it_ends(web: Requests) -> None:
    for passes in (True, False):
        path, _ = web.submit({"name": "a"}, {"name": "b", "needs": ["a"]}, checks=["smoke"], name=f"site {passes}")
        site, worker = path.rpartition("/")[2], web.worker()
        web.pass_time(100)
        assert (web.look(path), web.get(path)["started_at"]) == ("ready", None)
        (a,) = web.claim(worker)
        assert (web.look(path), web.names(site)[-1]) == ("executing", "first_task_started")
        web.pass_time(7)
        web.finish(a)
        assert web.get(f"{path}/progress")["elapsed_seconds"] == 7.0  # from the first task's start
        assert (web.look(path), web.do(worker), web.look(path)) == ("executing", "b", "validating")
        assert web.names(site)[-1] == "all_tasks_completed"
        end = {} if passes else {"ended": "failure", "error": "no page", "error_class": PERMANENT}
        assert web.do(worker, **end) == "smoke"
        shown, event = web.get(path), web.events(site)[-1]
        told = event["name"], event["severity"], shown["error"]
        assert (web.look(path), *told) == (
            ("completed", "validation_passed", "info", None) if passes
            else ("failed", "validation_failed", "critical", "check 'smoke': no page")
        )  # fmt: skip


@pytest.mark.req("R3-26", "R3-34")
def test_a_critical_failure_cancels_what_is_left_in_the_same_commit(web: Requests) -> None:
    names = ("retried", "gated", "held", "bad", "queued")
    more: dict[str, dict[str, Any]] = {"retried": {"attempts": 2}, "gated": {"checks": [{"approval": "look"}]}}
    tasks = [{"name": name, "priority": 9 - place, **more.get(name, {})} for place, name in enumerate(names)]
    path, ids = web.submit(*tasks, {"name": "pending", "needs": ["queued"]})
    retried, gated, _, bad = web.claim(web.worker(), 4)
    web.finish(retried, ended="failure")
    web.finish(gated)
    assert {name: web.job(task)["state"] for name, task in ids.items()} == {
        "retried": "retrying", "gated": "validating", "held": "running", "bad": "running", "queued": "queued",
        "pending": "pending",
    }  # fmt: skip
    web.finish(bad, ended="failure", error="exit code 1")
    assert web.look(path) == "failed"
    last = {name: web.events(task)[-1] for name, task in ids.items()}
    assert {name: event["to"] for name, event in last.items() if event["to"] != "cancelled"} == {"bad": "failed"}
    site = web.events(path.rpartition("/")[2])[-1]
    assert {event["at"] for event in last.values()} == {site["at"]}
    assert (site["name"], site["severity"], web.job(ids["bad"])["error"]) == (
        "critical_task_failed", "critical", "exit code 1",
    )  # fmt: skip


@pytest.mark.req("R3-14")
def test_a_task_that_has_ended_stays_as_it_is_and_its_lifecycle_says_so(web: Requests) -> None:
    lifecycle = web.get("/v1/lifecycles/task")
    final = {state["name"] for state in lifecycle["states"] if state["final"]}
    assert final == {"completed", "failed", "cancelled"}
    assert [move for move in lifecycle["moves"] if move["from"] in final] == []
    tasks = (
        {"name": name, "critical": False, "priority": 9 - place} for place, name in enumerate(("a", "b", "c", "d"))
    )
    _, ids = web.submit(*tasks)
    worker = web.worker()
    web.finish(web.claim(worker)[0])
    web.finish(web.claim(worker)[0], ended="failure", error="no", error_class=PERMANENT)
    web.post(f"/v1/jobs/{ids['c']}/cancel")
    ended = {name: web.job(ids[name]) for name in ("a", "b", "c")}
    assert [job["state"] for job in ended.values()] == ["completed", "failed", "cancelled"]
    for name in ended:
        answer = web.ask(f"/v1/jobs/{ids[name]}/cancel")
        if name == "c":  # as it was asked for
            assert (answer.status_code, answer.json()["applied"]) == (200, False)
        else:
            assert (answer.status_code, answer.json()["error"]["details"]["legal_next"]) == (409, [])
        for verb in ("skip", "reassign"):
            assert web.ask(f"/v1/tasks/{ids[name]}/{verb}").status_code == 409
    assert {name: web.job(ids[name]) for name in ended} == ended


@pytest.mark.req("R3-29")
def test_a_workstream_is_cancelled_in_three_states_and_not_while_it_is_validated(web: Requests) -> None:
    worker = web.worker()
    for state in ("planned", "ready", "executing", "validating"):
        path, tasks = web.submit(
            {"name": "a"}, name=state, expects=2 if state == "planned" else None, checks=[{"approval": "ship"}]
        )
        if state == "executing":
            web.claim(worker)
        elif state == "validating":
            web.do(worker)
        assert web.look(path) == state
        answer = web.ask(f"/v1/runs/{path.rpartition('/')[2]}/cancel")
        if state == "validating":
            assert (answer.status_code, web.look(path)) == (409, state)
        else:
            assert (web.look(path), web.names(path.rpartition("/")[2])[-1]) == ("cancelled", "user_cancelled")
            assert web.job(tasks["a"])["state"] == "cancelled"


@pytest.mark.req("R3-21", "R3-30", "R3-32", "R3-33")
@pytest.mark.parametrize("seed", range(3))
def test_what_a_workstream_is_follows_from_its_tasks_after_every_request(web: Requests, seed: int) -> None:
    """`look` compares what is told of a workstream with what is told of its tasks."""
    dice, worker, grants = random.Random(seed), web.worker(), list[LeaseGrant]()
    path, _ = web.submit({"name": "t0", "critical": False, "attempts": 2}, expects=3)
    assert web.look(path) == "planned"
    for number in range(1, 40):
        tasks = {task["name"]: task for task in web.get(f"{path}/tasks")["tasks"]}
        match dice.choice(("add", "claim", "claim", "finish", "finish", "fail", "cancel", "skip", "retry", "wait")):
            case "add" if len(tasks) < 6:
                needs = dice.sample(sorted(tasks), min(1, len(tasks)))
                new = {"name": f"t{number}", "needs": needs, "attempts": 2, "critical": dice.random() < 0.2}
                web.ask(f"{path}/tasks", {"tasks": [new]})
            case "claim":
                grants += web.claim(worker)
            case "finish" | "fail" as how if grants:
                ended = {"ended": "failure", "error": "no"} if how == "fail" else {}
                web.report("finish", grants.pop(dice.randrange(len(grants))), **ended)
            case "cancel":
                web.ask(f"/v1/jobs/{dice.choice(list(tasks.values()))['id']}/cancel")
            case "skip" | "retry" as verb:
                web.ask(f"/v1/tasks/{dice.choice(list(tasks.values()))['id']}/{verb}")
            case "wait":
                web.pass_time(5)
        if web.look(path) in ENDS:
            break
    late = web.ask(f"{path}/tasks", {"tasks": [{"name": "late"}]})
    assert late.status_code == (409 if web.look(path) in ENDS else 201), late.text


# Workers.


@pytest.mark.req("R3-36", "R3-37", "R3-38", "R3-45")
def test_a_worker_is_busy_from_its_first_task_to_its_last_and_never_holds_too_much(web: Requests) -> None:
    web.submit(*({"name": f"t{number}", "critical": False} for number in range(12)))
    worker = web.worker(capabilities=("node", "gpu"), capacity=3)
    name, shown = format_id("worker", worker), web.show_worker(worker)
    assert (shown["state"], shown["capabilities"], shown["holding"]) == ("idle", ["gpu", "node"], 0)
    assert web.names(name) == ["worker_created", "registration_complete"]

    def claim(number: int) -> list[LeaseGrant]:
        return web.send(Claim(worker=worker, key=f"k{number}", nonce=f"{number:0>16}", limit=2))

    with ThreadPoolExecutor(8) as pool:
        grants = [grant for granted in pool.map(claim, range(64)) for grant in granted]
    assert len({grant.unit for grant in grants}) == len(grants) == 3
    shown = web.show_worker(worker)
    assert (shown["state"], shown["holding"], web.names(name)[-1]) == ("busy", 3, "task_assigned")
    assert 'interlock_worker_utilization{worker="w"} 1' in web.stage.ask("GET", "/metrics", key=web.key).text
    for grant, end in zip(grants, ("failure", "success", "success"), strict=True):
        assert web.show_worker(worker)["state"] == "busy"
        web.finish(grant, ended=end)
    assert (web.show_worker(worker)["state"], web.names(name)[-1]) == ("idle", "task_completed")
    assert 'interlock_worker_completions_total{worker="w"} 3' in web.stage.ask("GET", "/metrics", key=web.key).text


@pytest.mark.req("R3-39", "R3-40", "R3-48")
def test_a_silent_worker_loses_everything_and_comes_back_empty(web: Requests) -> None:
    _, tasks = web.submit({"name": "build", "attempts": 2, "resources": EXCLUSIVE})
    silent, other = web.worker("silent"), web.worker("other")
    (old,) = web.claim(silent)
    web.pass_time(61)
    name, event = format_id("worker", silent), web.events(format_id("worker", silent))[-1]
    assert (event["to"], event["name"], event["severity"]) == ("unresponsive", "health_check_timeout", "error")
    web.pass_time(60)
    assert [grant.task for grant in web.claim(other, 2)] == ["build"]  # and the resource with it
    assert web.job(tasks["build"])["worker"] == "other"
    assert web.report("finish", old).status_code == 409
    web.submit({"name": "late"})
    assert [grant.task for grant in web.claim(silent)] == ["late"]  # its claim is the recovery
    assert web.names(name)[-2:] == ["health_check_recovered", "task_assigned"]
    assert web.report("finish", old).status_code == 409


@pytest.mark.req("R3-41", "R3-44", "R3-46")
def test_a_worker_that_stays_silent_is_shut_down_for_good(web: Requests) -> None:
    web.submit({"name": "build", "attempts": 2})
    worker = web.worker()
    (grant,) = web.claim(worker)
    web.pass_time(61)
    assert web.show_worker(worker)["state"] == "unresponsive"
    web.pass_time(181)
    name = format_id("worker", worker)
    assert (web.show_worker(worker)["state"], web.names(name)[-1]) == ("shutdown", "max_timeout_exceeded")
    events = web.events(name)
    with pytest.raises(InterlockError, match="has shut down"):
        web.claim(worker)
    assert not web.send(Heartbeat(held=(held(grant),), running=True))[0].accepted
    with pytest.raises(InterlockError):  # and one that never registered is nobody
        web.claim(987_654)
    assert web.events(name) == events


@pytest.mark.req("R3-42", "R3-43", "R3-47")
def test_a_worker_that_is_asked_to_leave_completes_what_it_holds(web: Requests) -> None:
    _, tasks = web.submit({"name": "build"}, {"name": "docs"})
    idle, busy = web.worker("idle"), web.worker("busy")
    web.post(f"/v1/workers/{format_id('worker', idle)}/drain")
    assert web.show_worker(idle)["state"] == "shutdown"
    (grant,) = web.claim(busy)
    web.post(f"/v1/workers/{format_id('worker', busy)}/drain")
    assert (web.show_worker(busy)["state"], web.show_worker(busy)["draining"]) == ("busy", True)
    assert web.claim(busy) == []
    web.finish(grant)
    assert (web.show_worker(busy)["state"], web.names(format_id("worker", busy))[-1]) == (
        "shutdown", "shutdown_requested",
    )  # fmt: skip
    assert web.job(tasks[grant.task])["state"] == "completed"


# Files.


@pytest.mark.req("R3-35")
@pytest.mark.parametrize("outcome", ENDS)
def test_a_workstream_is_archived_however_it_ended_and_can_be_brought_back(
    web: Requests, tmp_path: Path, outcome: str
) -> None:
    path, tasks = web.submit({"name": "build"}, name=f"kept {outcome}", checks=["smoke"])
    worker, site = web.worker(), path.rpartition("/")[2]
    answer = web.stage.ask("GET", f"{path}/archive", key=web.key)
    assert (answer.status_code, "only what has ended is archived" in answer.text) == (409, True)
    if outcome == "cancelled":
        web.ask(f"/v1/runs/{site}/cancel")
    else:
        web.do(worker)
        web.do(worker, **({} if outcome == "completed" else {"ended": "failure", "error_class": PERMANENT}))
    assert web.look(path) == outcome
    answer = web.stage.ask("GET", f"{path}/archive", key=web.key)
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "application/x-ndjson")
    (tmp_path / "kept.jsonl").write_bytes(answer.content)
    ((name, command),) = read_trees(tmp_path / "kept.jsonl", web.tenant)
    with interlock.open(f"sqlite:///{tmp_path}/other.db", tenant=web.tenant) as other:
        other.engine.committer.connection.keep_time(lambda: web.clock.now_us)
        other.send(SetTenant(tenant=web.tenant, name="other"))
        assert (name, other.send(command)) == (site, 2 if outcome == "cancelled" else 3)
        again = other.run(site)
        assert (again.state, again.tasks) == (outcome, {"build": web.job(tasks["build"])["state"]})
        assert [event.name for event in again.events()] == web.names(site)


@pytest.mark.req("R3-49", "R3-50", "R3-51")
def test_every_transition_is_a_line_of_a_file_that_is_written_over_http(web: Requests, tmp_path: Path) -> None:
    path, tasks = web.submit({"name": "build", "attempts": 2}, {"name": "ship", "needs": ["build"]})
    worker = web.worker()
    web.do(worker, ended="failure", error="no")
    web.pass_time(60)
    for _ in tasks:
        (grant,) = web.claim(worker)
        web.pass_time(3)
        web.finish(grant)
    for part in range(2):  # the second one finds all of it
        with open_folder(tmp_path, 1 << 20) as folder:
            Exporter(folder, web.read, page=5).run(follow=False)
        lines = read_lines(tmp_path)
        units = [*tasks.values(), path.rpartition("/")[2], format_id("worker", worker)]
        moved = [event for unit in units for event in web.events(unit) if event["from"] not in (None, event["to"])]
        assert len(lines) == len({line["metadata"]["event_id"] for line in lines}) == len(moved), part
    assert find_problems(tmp_path) == []
    ended = [line["metadata"] for line in lines if line["to_state"] == "completed" and "task" in line["event_type"]]
    assert [(facts["duration_seconds"], facts["retry_count"]) for facts in ended] == [(3.0, 1), (3.0, 0)]
