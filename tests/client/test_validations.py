"""`ctx.validate` as a program uses it: work is judged, mended and judged again, and nobody works meanwhile."""

from typing import Any

import pytest

import interlock
from interlock.audit.laws import audit
from interlock.kernel.commands import Decide, Finish, LeaseRef, Outcome, Record
from interlock.plugins.agents.transcripts import read_transcript
from interlock.testing import Stage
from tests.store.databases import declare


def define_checks(stage: Stage, verdicts: list[str]) -> list[Any]:
    """Two checks; each of `verdicts` is what the first says of one validation, and empty: it passes."""

    @stage.app.task
    def tests(result: Any) -> str:
        error = verdicts.pop(0) if verdicts else ""
        if error:
            raise interlock.Reject(f"{error} in {result}")
        return "ok"

    @stage.app.task
    def lint(goal: str) -> None:
        """Finds nothing."""

    return [tests, lint]


def define_fix(stage: Stage, calls: list[str], checks: list[Any] | None, **terms: Any) -> Any:
    @stage.app.agent(checks=checks, **terms)
    async def fix(goal: str, ctx: interlock.AgentContext) -> dict[str, Any]:
        done = await ctx.step("do", lambda: calls.append("do") or "first")
        while findings := await ctx.validate({"done": done}):
            name = f"mend-{ctx.corrections}"
            done = await ctx.step(name, lambda name=name: calls.append(name) or name, of=findings)
        return {"done": done, "corrections": ctx.corrections}

    return fix


def test_what_checks_find_is_mended_until_nothing_is_found(stage: Stage) -> None:
    calls, verdicts = list[str](), ["bug one", "bug two", ""]
    fix = define_fix(stage, calls, define_checks(stage, verdicts), corrections=2, validation="enforce")
    run = fix.submit("x")
    assert run.wait() == {"done": "mend-2", "corrections": 2}
    assert calls == ["do", "mend-1", "mend-2"]
    assert stage.transitions(run) == [
        "queued", "running", "validating", "running", "correcting", "validating", "running", "correcting",
        "validating", "running", "complete",
    ]  # fmt: skip
    job = run.read_job()
    assert job is not None
    assert job.unit.state == "complete"


def test_without_a_correction_left_the_run_fails_and_a_resume_asks_again(stage: Stage) -> None:
    calls, verdicts = list[str](), ["bug one", "bug two", ""]
    fix = define_fix(stage, calls, define_checks(stage, verdicts), corrections=1)
    run = fix.submit("x")
    with pytest.raises(interlock.Failed):
        run.wait()
    assert (stage.transitions(run)[-2:], calls) == (["validating", "failed"], ["do", "mend-1"])
    assert "bug two in {'done': 'mend-1'}" in stage.app.why(run.id)
    run.resume(by="ann", reason="the test was wrong")
    assert run.wait() == {"done": "mend-1", "corrections": 1}
    assert calls == ["do", "mend-1"]  # nothing was paid for again


def test_nobody_works_while_a_person_validates_and_a_lost_worker_changes_nothing(stage: Stage) -> None:
    calls = list[str]()
    fix = define_fix(stage, calls, ["person"], corrections=2)
    run = fix.submit("x")
    stage.lose_worker(after_step="do")
    stage.advance("2m")
    stage.drain()
    (question,) = stage.app.inbox()
    job = run.read_job()
    assert job is not None
    assert (run.state, job.holder, stage.drain(), run.spent["active"] < 180) == ("validating", None, 0, True)
    stage.advance("3h")
    declare(stage.engine.reader, 1)  # type: ignore[arg-type]
    assert list(audit(stage.engine.reader, stage.app.lifecycles)) == []  # what is judged is a result as any other
    question.reject(by="ann", comment="it is red")
    assert stage.transitions(run)[-2:] == ["running", "correcting"]
    assert "it is CANCELED by ann: it is red" in str(stage.app.read(read_transcript, run.unit)[-1])
    stage.drain()
    (question,) = stage.app.inbox()
    assert (run.state, calls) == ("validating", ["do", "mend-1"])
    question.approve(by="ann")
    assert run.wait() == {"done": "mend-1", "corrections": 1}


def test_a_verdict_from_outside_is_the_answer(stage: Stage) -> None:
    calls = list[str]()
    fix = define_fix(stage, calls, None, corrections=1)
    run = fix.submit("x")
    stage.drain()
    assert run.state == "validating"
    with pytest.raises(interlock.InterlockError, match="'worker-1' holds it, or has held it"):
        decide(stage, run, "valid", "worker-1")
    decide(stage, run, "invalid", "ann")
    stage.drain()
    assert (calls, run.state) == (["do", "mend-1"], "validating")
    decide(stage, run, "valid", "ann")
    assert run.wait() == {"done": "mend-1", "corrections": 1}


def decide(stage: Stage, run: Any, trigger: str, by: str) -> None:
    stage.app.send(Decide(tenant=stage.app.tenant, unit=run.unit, trigger=trigger, actor=by, reason="seen"))


@pytest.mark.parametrize(("mode", "state"), [("off", "complete"), ("warn", "complete"), ("enforce", "failed")])
def test_a_return_without_a_validation_is_guarded(stage: Stage, mode: str, state: str) -> None:
    @stage.app.agent(validation=mode)
    def quick(ctx: interlock.AgentContext) -> str:
        return "done"

    run = quick.submit()
    stage.drain()
    assert run.state == state
    if mode == "enforce":
        assert "VALIDATION_REQUIRED" in stage.app.why(run.id)


def test_a_plain_handler_validates_too_and_others_cannot(stage: Stage) -> None:
    define_checks(stage, [])

    @stage.app.agent(checks=[])
    def quick(ctx: interlock.AgentContext) -> Any:
        return [ctx.validate("x"), ctx.validate("y")]

    assert quick.submit().wait() == [[], []]

    def other(ctx: interlock.AgentContext) -> None:
        ctx.validate(1)

    with pytest.raises(interlock.Failed, match="is no job of an agent run, and nothing of it is validated"):
        stage.app.task(other).submit().wait()

    @stage.app.agent(checks=[], name="wrong")
    def wrong(ctx: interlock.AgentContext) -> None:
        ctx.validate(object())

    with pytest.raises(interlock.Failed, match="validation 1 cannot be kept as JSON"):
        wrong.submit().wait()


def test_a_validation_is_replayed(stage: Stage) -> None:
    calls, verdicts = list[str](), ["bug one", ""]
    fix = define_fix(stage, calls, define_checks(stage, verdicts), corrections=2)
    run = fix.submit("x")
    ended = run.wait()
    assert (stage.replay(run), calls) == (ended, ["do", "mend-1"])


def test_an_enforced_validation_is_asked_of_every_worker(stage: Stage) -> None:
    @stage.app.agent(validation="enforce", name="quick")
    def quick(ctx: interlock.AgentContext) -> str:
        return "done"

    run = quick.submit()
    stage.define()
    (grant,) = stage.worker.claim(["default"])  # as a worker that speaks HTTP, and knows of no validation
    held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
    (answer,) = stage.app.send(Finish(tenant=stage.app.tenant, outcomes=(Outcome(held=held, result="1"),)))
    assert (answer.accepted, answer.why.partition(":")[0]) == (False, "VALIDATION_REQUIRED")
    assert run.state in ("running", "queued")
    (kept,) = stage.app.send(Record(tenant=stage.app.tenant, held=(held,), kind="validate", name="first"))
    assert kept.why.endswith("'first' is no number of a validation; allowed is one as in '1'")
    (kept,) = stage.app.send(Record(tenant=stage.app.tenant, held=(held,), kind="validate", name="1", payload="1"))
    assert (kept.accepted, run.state) == (True, "validating")
    decide(stage, run, "valid", "ann")
    (answer,) = stage.app.send(Finish(tenant=stage.app.tenant, outcomes=(Outcome(held=held, result="1"),)))
    assert (answer.accepted, run.state) == (True, "complete")
