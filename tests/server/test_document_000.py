"""Document 000 by its requirements, once over HTTP: everything is asked of a server, and told by one.

Beside the database the same promises are stories of `tests/engine/test_document_000.py`, on every database.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import PERMANENT, LeaseGrant
from interlock.kernel.ids import format_id
from tests.server.requests_003 import Clock, Requests
from tests.server.stage import Stage, staged

FAILS = {"ended": "failure", "error": "no", "error_class": PERMANENT}
RUN_EXITS = {  # the document's table, word for word
    "queued": "cancelled failed running",
    "running": "cancelled complete correcting failed optimizing validating",
    "correcting": "cancelled failed running validating",
    "optimizing": "cancelled complete failed running validating",
    "validating": "cancelled complete failed optimizing running",
    "complete": "",
    "failed": "queued",
    "cancelled": "queued",
}
JOB_EXITS = {
    "queued": "claimed",
    "claimed": "complete failed running",
    "running": "claimed complete failed",
    "complete": "",
    "failed": "",
}
TRIGGERS = (
    "begin", "fail", "time_out", "cancel", "correct", "optimize", "check", "succeed", "run", "valid", "invalid",
    "resume", "claim", "start", "complete", "reclaim", "exhaust",
)  # fmt: skip


class AgentRequests(Requests):
    """What a program does with agent runs."""

    def submit_run(self, **facts: object) -> str:
        return str(self.post("/v1/agent-runs", {"agent": "goal", **facts}, 201)["id"])

    def state(self, unit: str) -> str:
        return str(self.job(unit)["state"])

    def job_of(self, run: str) -> str:
        """The job that works for a run, or was the last to do so."""
        steps = self.get(f"/v1/runs/{run}/steps")["steps"]
        return str([step["id"] for step in steps if step["lifecycle"] == "agent_job"][-1])

    def begin(self, worker: int) -> LeaseGrant:
        (grant,) = self.claim(worker)
        assert self.report("start", grant).status_code == 200
        return grant

    def end(self, grant: LeaseGrant, **facts: object) -> None:
        answer = self.report("finish", grant, **facts)
        assert answer.status_code == 200, answer.text

    def enter(self, grant: LeaseGrant, phase: str) -> bool:
        """Whether the holder may enter a phase of its run."""
        one = {"unit": grant.unit, "fence": grant.fence, "lease": grant.lease}
        command = {"command": "Enter", "held": [one], "phase": phase}
        answer = self.ask("/v1/commands/worker", {"commands": [command]}).json()["answers"][0]
        return "answer" in answer and bool(answer["answer"][0]["accepted"])

    def decide(self, run: str, word: str) -> int:
        return self.ask(f"/v1/inbox/{run}/decide", {"word": word}).status_code

    def resume(self, run: str) -> int:
        return self.ask(f"/v1/runs/{run}/resume", {"reason": "again"}).status_code


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Clock]]:
    """One server for all stories, whose database breaks no law when they are over."""
    with staged(f"sqlite:///{tmp_path_factory.mktemp('server')}/work.db") as stage:
        yield stage, Clock(stage)
        app = stage.app
        assert app.engine.read(lambda connection: list(audit(connection, app.lifecycles, laws=app.registry.laws))) == []


@pytest.fixture
def web(shared: tuple[Stage, Clock]) -> AgentRequests:
    return AgentRequests(*shared)


def reach(web: AgentRequests, state: str) -> tuple[str, LeaseGrant | None]:
    """A run in this state, and the lease of its holder if it has one."""
    run = web.submit_run()
    if state == "queued":
        return run, None
    if state == "cancelled":
        web.post(f"/v1/runs/{run}/cancel")
        return run, None
    grant = web.begin(web.worker())
    if state in ("complete", "failed"):
        web.end(grant, **(FAILS if state == "failed" else {}))
    elif state != "running":
        assert web.enter(grant, {"correcting": "correct", "optimizing": "optimize", "validating": "check"}[state])
    assert web.state(run) == state
    return run, grant


@pytest.mark.req("R0-04", "R0-25")
def test_a_run_and_its_job_start_queued(web: AgentRequests) -> None:
    run = web.submit_run()
    assert (web.state(run), web.state(web.job_of(run))) == ("queued", "queued")
    assert (web.path(run), web.path(web.job_of(run))) == (["queued"], ["queued"])


@pytest.mark.req("R0-05", "R0-21", "R0-26")
def test_a_queued_run_is_cancelled_and_no_worker_ever_sees_its_job(web: AgentRequests) -> None:
    run = web.submit_run()
    job = web.job_of(run)
    assert web.post(f"/v1/runs/{run}/cancel")["applied"]
    assert (web.path(run), web.path(job)) == (["queued", "cancelled"], ["queued", "claimed", "failed"])
    assert {event["actor"] for event in web.events(job)[1:]} == {"engine"}
    assert web.claim(web.worker()) == []
    assert (web.resume(run), web.state(run)) == (202, "queued")


@pytest.mark.req("R0-06")
def test_a_queued_run_fails_for_a_reason(web: AgentRequests) -> None:
    run = web.submit_run(budget={"steps": 0})
    grant = web.begin(web.worker())
    one = {"unit": grant.unit, "fence": grant.fence, "lease": grant.lease}
    step = {"command": "Record", "kind": "step", "name": "plan", "payload": "1", "held": [one]}
    web.ask("/v1/commands/worker", {"commands": [step]})
    assert web.resume(run) == 202  # over its cap, it fails again at once (A0-12)
    assert web.path(run) == ["queued", "running", "failed", "queued", "failed"]
    assert web.job(web.job_of(run))["error"] == "BUDGET_EXHAUSTED steps 1 of 0"


@pytest.mark.req("R0-07", "R0-10", "R0-29", "R0-31")
def test_a_claim_lets_a_run_begin_and_its_job_completes_it(web: AgentRequests) -> None:
    run = web.submit_run()
    (grant,) = web.claim(web.worker())
    job = format_id("agent_job", grant.unit)
    assert (web.state(run), web.state(job)) == ("running", "claimed")
    assert web.report("start", grant).status_code == 200
    assert web.state(job) == "running"
    web.end(grant)
    assert (web.path(run), web.path(job)) == (
        ["queued", "running", "complete"], ["queued", "claimed", "running", "complete"],
    )  # fmt: skip


@pytest.mark.req("R0-27", "R0-28", "R0-32", "R0-12")
@pytest.mark.parametrize(("started", "ended"), [(False, {}), (False, FAILS), (True, FAILS)])
def test_a_job_ends_before_and_after_its_start(web: AgentRequests, started: bool, ended: dict[str, str]) -> None:
    run = web.submit_run()
    (grant,) = web.claim(web.worker())
    if started:
        web.report("start", grant)
    web.end(grant, **ended)
    end = "failed" if ended else "complete"
    assert (web.path(run)[-1], web.path(format_id("agent_job", grant.unit))[1:]) == (
        end, ["claimed", *(["running"] if started else []), end],
    )  # fmt: skip


@pytest.mark.req("R0-30", "R0-34")
def test_a_lost_holder_is_replaced_in_place_and_has_no_say_any_more(web: AgentRequests) -> None:
    run = web.submit_run()
    first, other = web.begin(web.worker("a")), web.worker("b")
    assert web.claim(other) == []  # before the lease is over
    web.pass_time(61)
    (second,) = web.claim(other)
    assert (second.unit, second.fence, web.state(run)) == (first.unit, 2, "running")
    job = format_id("agent_job", first.unit)
    assert web.path(job) == ["queued", "claimed", "running", "claimed"]
    for verb, facts in (("heartbeat", {}), ("finish", {}), ("finish", FAILS), ("release", {})):
        late = web.report(verb, first, **facts)
        assert (late.status_code, late.json()["error"]["code"]) == (409, "STALE_LEASE")
    assert (web.state(run), web.state(job)) == ("running", "claimed")


@pytest.mark.req("R0-33")
@pytest.mark.parametrize("ended", [{}, FAILS])
def test_an_ended_job_has_no_more_moves(web: AgentRequests, ended: dict[str, str]) -> None:
    web.submit_run()
    grant = web.begin(web.worker())
    web.end(grant, **ended)
    job = format_id("agent_job", grant.unit)
    before = web.job(job)
    for verb in ("start", "heartbeat", "release"):
        assert web.report(verb, grant).status_code == 409
    assert web.report("finish", grant, result=2).status_code in (400, 409)
    assert web.ask(f"/v1/jobs/{job}/cancel").status_code == 409
    assert web.job(job) == before


@pytest.mark.req("R0-35")
def test_two_resumes_at_once_make_one_job(web: AgentRequests) -> None:
    run, _ = reach(web, "cancelled")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: web.resume(run), range(4)))
    assert sorted(answers) == [202, 409, 409, 409]
    jobs = [step for step in web.get(f"/v1/runs/{run}/steps")["steps"] if step["lifecycle"] == "agent_job"]
    assert [job["state"] for job in jobs] == ["failed", "queued"]


@pytest.mark.req("R0-09", "R0-16", "R0-17", "R0-18")
@pytest.mark.parametrize("state", ["running", "correcting", "optimizing", "validating"])
def test_a_run_is_cancelled_in_every_phase_and_its_holder_has_lost_it(web: AgentRequests, state: str) -> None:
    run, grant = reach(web, state)
    assert grant is not None
    assert web.post(f"/v1/runs/{run}/cancel")["applied"]
    assert (web.state(run), web.state(format_id("agent_job", grant.unit))) == ("cancelled", "failed")
    assert web.report("finish", grant).status_code == 409


@pytest.mark.req("R0-11", "R0-13", "R0-14")
def test_a_holder_enters_the_phases_that_are_listed_and_no_others(web: AgentRequests) -> None:
    words = {"running": "run", "correcting": "correct", "optimizing": "optimize", "validating": "check"}
    for state in ("running", "correcting", "optimizing"):
        for target, word in words.items():
            run, grant = reach(web, state)
            assert grant is not None
            allowed = target in RUN_EXITS[state].split()
            assert web.enter(grant, word) == allowed, (state, target)
            assert web.state(run) == (target if allowed else state)
            web.post(f"/v1/runs/{run}/cancel")


@pytest.mark.req("R0-08", "R0-15", "R0-19", "R0-20", "R0-21")
@pytest.mark.parametrize("state", list(RUN_EXITS))
def test_only_what_the_document_lists_leaves_a_state(web: AgentRequests, state: str) -> None:
    lifecycle = web.get("/v1/lifecycles/agent_run")
    exits = {move["to"] for move in lifecycle["moves"] if move["from"] == state}
    assert exits == set(RUN_EXITS[state].split())
    run, _ = reach(web, state)
    for trigger in TRIGGERS:
        if trigger in ("resume", "valid", "invalid", "correct", "optimize", "run"):
            continue  # they are asked for where they are allowed
        assert web.decide(run, trigger) in (400, 403, 404, 409), trigger
        assert web.state(run) == state, trigger
    assert web.resume(run) == (202 if state in ("failed", "cancelled") else 409)
    assert web.state(run) == ("queued" if state in ("failed", "cancelled") else state)


@pytest.mark.req("R0-18", "R0-10")
@pytest.mark.parametrize(
    ("word", "path"),
    [
        ("valid", ["complete"]), ("invalid", ["failed"]), ("run", ["running"]), ("optimize", ["optimizing"]),
        ("correct", ["running", "correcting"]),
    ],
)  # fmt: skip
def test_a_verdict_moves_a_run_that_is_validated(web: AgentRequests, word: str, path: list[str]) -> None:
    run, grant = reach(web, "validating")
    assert grant is not None
    if word in ("valid", "invalid"):
        assert not web.enter(grant, word)  # its holder gives none
    assert web.decide(run, word) == 200
    assert web.path(run)[3:] == path


@pytest.mark.req("R0-26", "R0-33")
@pytest.mark.parametrize("state", list(JOB_EXITS))
def test_only_what_the_document_lists_leaves_a_state_of_a_job(web: AgentRequests, state: str) -> None:
    lifecycle = web.get("/v1/lifecycles/agent_job")
    exits = {move["to"] for move in lifecycle["moves"] if move["from"] == state}
    assert exits - {state} == set(JOB_EXITS[state].split())  # another owner is no other state (A0-7)


@pytest.mark.req("R0-22", "R0-24")
@pytest.mark.parametrize("state", ["failed", "cancelled", "complete"])
def test_an_end_is_an_end_until_somebody_resumes_it(web: AgentRequests, state: str) -> None:
    lifecycle = web.get("/v1/lifecycles/agent_run")
    ends = {each["name"] for each in lifecycle["states"] if each["category"] in ("success", "failure", "cancelled")}
    assert ends == {"complete", "failed", "cancelled"}
    run, _ = reach(web, state)
    before = web.job(run)
    assert before["outcome"] is not None
    for seconds in (61, 3_601, 400 * 86_400):
        web.pass_time(seconds)
        assert web.claim(web.worker(f"w{seconds}")) == []
    assert web.job(run) == before
    if state != "complete":
        assert web.resume(run) == 202
        (event,) = (event for event in web.events(run) if event["to"] == "queued" and event["from"] is not None)
        assert (event["actor"], event["reason"]) == ("ci", "again")
        assert web.job(run)["outcome"] is None
