"""Contracts as a program uses them: a deployed prompt fails no run that waits, and nothing runs under another one."""

from typing import Any

import msgspec
import pytest

import interlock
from interlock import InterlockError
from interlock.client.agents import Agent
from interlock.plugins.agents.contracts import ContractMismatch
from interlock.plugins.agents.queries import read_contract_of_run
from interlock.testing import Stage


def search(query: str, limit: int = 10) -> list[str]:
    """Searches."""
    return [query] * limit


def delete_branch(branch: str) -> str:
    """Deletes a branch."""
    return branch


def deploy(stage: Stage, calls: list[str], **terms: Any) -> Agent:
    """A program with an agent is deployed: the one before is gone, and another worker takes its place."""
    stage.app.tasks.pop("fix", None)

    @stage.app.agent(name="fix", **terms)
    def fix(goal: str, ctx: interlock.AgentContext) -> str:
        calls.append(str(terms.get("instructions")))
        ctx.step("plan", lambda: goal)
        if goal == "break":
            raise interlock.PermanentError("broken")
        ctx.wait_signal("go")
        return goal

    stage.defined = 0
    stage.worker = stage.make_worker()
    agent: Agent = fix
    return agent


@pytest.mark.req("X-09")
@pytest.mark.req("X-10")
def test_a_deployed_prompt_fails_no_run_that_waits_and_why_says_how_it_goes_on(stage: Stage) -> None:
    app, calls = stage.app, list[str]()
    old = deploy(stage, calls, instructions="be kind", tools=[search])
    waiting, failed = old.submit("x"), old.submit("break")
    stage.drain()
    new = deploy(stage, calls, instructions="be quick", tools=[search])
    calls.clear()
    stage.advance("2m")  # the workers of the old program are gone
    waiting.signal("go")
    stage.drain()
    assert (waiting.state, calls) == ("running", [])  # it is not offered to the new program
    job = waiting.read_job()
    assert job is not None
    why = app.why(job.unit.id)
    for part in (old.digest[:12], new.digest[:12], "resume", "--override", "interlock agent fork", "start a worker"):
        assert part in why, why
    with pytest.raises(InterlockError, match=r"instructions: .*kind.* is now .*quick"):
        failed.resume(by="ann", reason="again", contract=new)
    failed.resume(by="ann", reason="again")
    stage.drain()
    assert (failed.state, calls) == ("queued", [])  # it kept its contract
    again = waiting.fork(at="plan", by="ann")
    again.signal("go")
    assert (again.wait(), calls) == ("x", ["be quick"])
    waiting.cancel()
    waiting.resume(by="ann", reason="another prompt", override=True)
    assert (waiting.wait(), calls) == ("x", ["be quick"] * 2)
    deploy(stage, calls, instructions="be kind", tools=[search])
    with pytest.raises(interlock.Failed, match="broken"):
        failed.wait()
    assert calls[-1] == "be kind"


def test_a_contract_has_what_the_program_says_and_what_its_environment_does(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_AGENT_MODEL", "from-env")
    monkeypatch.setenv("INTERLOCK_AGENT_CORRECTIONS", "3")
    calls = list[str]()
    agent = deploy(
        stage, calls, version="3", settings={"top_p": 0.5}, instructions="be kind", optimizations=0,
        validation="warn",
        tools=[interlock.tool(delete_branch, approvers="ops", expires="8h"), search, {"name": "raw", "input_schema": {}}],
    )  # fmt: skip
    contract = agent.contract
    assert (contract.model, contract.corrections, contract.optimizations, contract.version) == ("from-env", 3, 0, "3")
    assert [tool.name for tool in contract.tools] == ["delete_branch", "raw", "search"]
    assert contract.tools[0].approval == {"approvers": ["ops"], "expires_us": 8 * 3600 * 10**6}
    run = agent.submit("x")
    stored = stage.app.read(read_contract_of_run, run.unit)
    assert stored is not None
    assert (stored.digest, stored.contract["model"]) == (agent.digest, "from-env")
    assert sorted(stored.environment) == ["corrections", "model"]
    monkeypatch.setenv("INTERLOCK_AGENT_MODEL", "another")
    assert deploy(stage, calls, instructions="be kind").digest != agent.digest
    stage.drain()
    kept = stage.app.read(read_contract_of_run, run.unit)
    assert (kept, calls) == (stored, [])  # what is persisted stays
    assert deploy(stage, calls, model="m").contract.model == "m"  # a program that says it has not got it from there
    monkeypatch.setenv("INTERLOCK_AGENT_CORRECTIONS", "many")
    with pytest.raises(InterlockError, match="INTERLOCK_AGENT_CORRECTIONS = 'many' is not allowed"):
        deploy(stage, calls)


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"validation": "some"}, "agent 'fix': validation = 'some' is not allowed; allowed are off, warn, enforce"),
        ({"model": 3}, "model = 3 is not allowed; allowed is text"),
        ({"settings": 3}, "settings = 3 is not allowed"),
        ({"settings": {"a": object()}}, "the contract cannot be kept as JSON"),
        ({"tools": [3]}, "tools: 3 is not allowed; allowed is a function"),
        ({"tools": "search"}, "tools = 'search' is not allowed; allowed is a list"),
        ({"tools": [search, search]}, "the tool 'search' is there twice"),
        ({"corrections": True}, "corrections = True is not allowed"),
        ({"checks": "tests"}, "checks = 'tests' is not allowed; allowed is a list"),
    ],
)
def test_agents_with_terms_that_cannot_be_are_refused(stage: Stage, terms: dict[str, Any], why: str) -> None:
    with pytest.raises(InterlockError, match=why):
        deploy(stage, [], **terms)
    assert "fix" not in stage.app.tasks


def test_tools_that_take_something_else_are_another_contract(stage: Stage) -> None:
    def search(query: str, limit: int = 20) -> list[str]:
        """Searches."""
        return [query] * limit

    one = deploy(stage, [], tools=[globals()["search"], delete_branch]).digest
    assert deploy(stage, [], tools=[delete_branch, globals()["search"]]).digest == one
    assert deploy(stage, [], tools=[search, delete_branch]).digest != one
    assert msgspec.json.decode(deploy(stage, [], tools=[search]).text)["lifecycle"]
    assert interlock.tool(delete_branch)("old") == "old"
    with pytest.raises(InterlockError, match="allowed is a function"):
        interlock.tool(3)  # type: ignore[arg-type]
    assert issubclass(ContractMismatch, InterlockError)
