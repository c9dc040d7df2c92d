"""The stories of transcripts and decisions: what they tell, in which order, and on what a decision stands."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import Decide, Fork, LeaseGrant, Record, Release, Signal, Submit, Vote, Work
from interlock.plugins.agents.governance import RunDecision, digest_decision, read_decision
from interlock.plugins.agents.transcripts import TranscriptEntry, read_transcript
from interlock.plugins.repositories.options import make_capability
from tests.engine.world import World, held

CONTRACT = '{"agent":"goal","schema":1}'
DIGEST = sha256(CONTRACT.encode()).hexdigest()
COMMIT = "ab" * 20


def start_run(world: World, job: dict[str, Any] | None = None, **own: Any) -> tuple[int, int]:
    options = msgspec.json.encode({"agents": own}).decode()
    of_job = None if job is None else msgspec.json.encode(job).decode()
    run = Work(task="goal", lifecycle="agent_run", ref="run", options=options)
    made = world.send(Submit(work=(run, Work(task="goal", lifecycle="agent_job", parent="run", options=of_job))))
    return made[0].unit, made[1].unit


def begin(world: World, worker: int) -> LeaseGrant:
    (grant,) = world.claim(worker)
    assert world.start(grant).accepted
    return grant


def record(world: World, grant: LeaseGrant, kind: str, name: str, payload: str = "1", **fields: Any) -> None:
    answer = world.send(Record(held=(held(grant),), kind=kind, name=name, payload=payload, **fields))[0]
    assert answer.accepted, answer.why


def tell(world: World, run: int, first: int = 0, limit: int | None = None) -> list[TranscriptEntry]:
    return read_transcript(world.connection, 1, run, first, limit)


def decide(world: World, run: int, strict: bool = False) -> RunDecision:
    decision = read_decision(world.connection, 1, run, strict)
    assert decision is not None
    assert decision.hash == digest_decision(decision)
    return decision


def short(entry: TranscriptEntry) -> tuple[str, str, str]:
    return entry.what, entry.name, entry.by


def child_of(world: World, parent: int) -> int:
    return int(world.connection.rows("SELECT max(id) FROM unit WHERE parent = :p", {"p": parent})[0][0])


def test_a_transcript_tells_everything_in_order_though_the_clock_stands(world: World) -> None:
    run, job = start_run(world)
    worker = world.worker("maker")
    grant = begin(world, worker)
    record(world, grant, "step", "plan", '{"a": 1}', usage={"tokens": 9, "usd": 0.5})
    record(world, grant, "phase", "1 correct", "null")
    record(world, grant, "usage", "mend, try 1", "null", usage={"tokens": 2})
    record(world, grant, "step", "mend", "2")
    record(world, grant, "phase", "2 run", "null")
    record(world, grant, "child", "delete?", '{"task": "ask", "lifecycle": "approval", "input": "7"}')
    world.send(Release(held=(held(grant),), signals=("child:delete?",)))
    world.send(Vote(unit=child_of(world, job), voter="bob", reason="go"))
    world.send(Signal(unit=job, name="go", payload="3"))
    again = begin(world, world.worker("other"))
    record(world, again, "effect", "charge", '{"state": "begun", "place": "1", "by": ""}')
    record(world, again, "effect_result", "charge", "7")
    world.finish(again, ended="failure", error_class="PermanentError", error="no")
    world.send(Decide(unit=run, trigger="resume", actor="ann", reason="once more"))
    world.finish(begin(world, worker))
    told = tell(world, run)
    assert [short(entry) for entry in told] == [
        ("moved", "queued", "local"),
        ("moved", "running", "engine"), ("attempt", "goal", "maker"), ("step", "plan", ""),
        ("moved", "correcting", "local"), ("usage", "mend, try 1", ""), ("step", "mend", ""),
        ("moved", "running", "local"), ("question", "delete?", "local"), ("vote", "delete?", "bob"),
        ("signal", "go", ""), ("answer", "delete?", "bob"),
        ("attempt", "goal", "other"), ("effect", "charge", ""), ("effect", "charge", ""),
        ("moved", "failed", "engine"), ("moved", "queued", "ann"),
        ("moved", "running", "engine"), ("attempt", "goal", "maker"), ("moved", "complete", "engine"),
    ]  # fmt: skip
    steps = {entry.name: entry for entry in told if entry.what == "step"}
    assert (steps["plan"].value, steps["plan"].usage) == ({"a": 1}, {"tokens": 9, "usd": 500_000})
    (question, vote, answer) = (each for each in told if each.what in ("question", "vote", "answer"))
    assert (question.value, vote.reason, vote.value, answer.reason) == (7, "approve", {"comment": "go"}, "approve")
    assert [entry.reason for entry in told if entry.what == "effect"] == ["begun", "done"]
    assert tell(world, run) == told
    assert tell(world, run, 2, 3) == told[2:5]
    assert (tell(world, job), tell(world, 10**12)) == ([], [])


def test_a_fork_tells_where_it_comes_from_and_what_was_replaced(world: World) -> None:
    run, _ = start_run(world)
    grant = begin(world, world.worker())
    record(world, grant, "step", "plan", "1")
    record(world, grant, "step", "act", "2")
    new = world.send(Fork(unit=run, at="act", replace={"act": "3"}, actor="ann", reason="try")).unit
    told = {entry.what: entry for entry in tell(world, new)}
    assert (told["forked"].by, told["forked"].reason, told["replaced"].value) == ("ann", "try", {"was": 2})
    copied = [
        (entry.name, entry.value, entry.copied, entry.usage) for entry in tell(world, new) if entry.what == "step"
    ]
    assert copied == [("plan", 1, True, None), ("act", 3, True, None)]
    assert decide(world, new, strict=True).doubts == ["the result of 'act' was replaced"]


@pytest.mark.req("X-11")
def test_a_decision_stands_on_the_record_alone(world: World) -> None:
    run, _ = start_run(world)
    give_contract(world, run, DIGEST)
    assert decide(world, run).reasons == ["RUN_NOT_COMPLETE", "RUN_NOT_VALIDATED", "EXECUTION_CONTRACT_MISSING"]
    keep_contract(world, DIGEST, CONTRACT)
    grant = begin(world, world.worker("maker"))
    record(world, grant, "step", "plan", "1", usage={"tokens": 9})
    record(world, grant, "phase", "1 check", "null")
    assert decide(world, run).reasons == ["RUN_NOT_COMPLETE", "RUN_NOT_VALIDATED"]
    world.send(Decide(unit=run, trigger="correct", actor="ann"))
    assert decide(world, run).reasons == ["RUN_NOT_COMPLETE", "RUN_VALIDATION_FAILED"]
    record(world, grant, "phase", "2 check", "null")
    world.send(Decide(unit=run, trigger="valid", actor="ann"))
    passed = decide(world, run)
    assert (passed.decision, passed.reasons, passed.state, passed.contract) == ("PASS", [], "complete", DIGEST)
    assert passed.validation is not None
    assert (passed.validation.verdict, passed.validation.by, passed.used["tokens"]) == ("valid", "ann", 9)
    world.pass_time(1_000)
    world.tick()
    assert decide(world, run) == passed
    assert decide(world, run, strict=True).reasons == ["RUN_V1_READY_UNPROVEN"]
    assert decide(world, run, strict=True).hash != passed.hash
    assert read_decision(world.connection, 1, 10**12) is None


@pytest.mark.parametrize(
    ("digest", "text", "reasons"),
    [
        (DIGEST, CONTRACT + " ", ["UNSUPPORTED_CONTRACT"]),
        (sha256(b'{"schema":2}').hexdigest(), '{"schema":2}', ["UNSUPPORTED_CONTRACT"]),
        (sha256(b"[]").hexdigest(), "[]", ["UNSUPPORTED_CONTRACT"]),
        ("", "", ["EXECUTION_CONTRACT_MISSING"]),
    ],
)
def test_a_contract_that_is_not_there_or_not_understood_is_a_reason(
    world: World, digest: str, text: str, reasons: list[str]
) -> None:
    run, _ = start_run(world)
    if digest:
        give_contract(world, run, digest)
        keep_contract(world, digest, text)
    grant = begin(world, world.worker("maker"))
    record(world, grant, "phase", "1 check", "null")
    world.send(Decide(unit=run, trigger="valid", actor="ann"))
    assert decide(world, run).reasons == reasons


def test_work_in_a_repository_names_its_commit_and_strictly_nothing_is_in_doubt(world: World) -> None:
    run, _ = start_run(world, {"repositories": {"repo": "site"}})
    grant = begin(world, world.worker("maker", capabilities=(make_capability("site"),)))
    record(world, grant, "effect", "charge", '{"state": "begun", "place": "1", "by": ""}')
    world.finish(grant, result='{"commit": "none"}')
    assert "RUN_COMMIT_UNPINNED" in decide(world, run).reasons
    assert decide(world, run, strict=True).doubts == ["the effect 'charge' is open"]


def test_a_commit_is_named_by_the_result(world: World) -> None:
    run, _ = start_run(world)
    world.finish(begin(world, world.worker("maker")), result=f'{{"commit": "{COMMIT}"}}')
    decision = decide(world, run, strict=True)
    assert (decision.commit, "RUN_V1_READY_UNPROVEN" in decision.reasons) == (COMMIT, False)


def give_contract(world: World, run: int, digest: str) -> None:
    """The run has this contract, as a resume under another one leaves it."""
    payload = msgspec.json.encode({"contract": {"digest": digest}}).decode()
    columns = "id, tenant, unit, kind, name, fence, at, expires, payload"
    sql = f"INSERT INTO note ({columns}) VALUES (:id, 1, :unit, 'contract', '', 0, 0, NULL, :payload)"
    world.connection.rows(sql, {"id": 10**15 + run, "unit": run, "payload": payload})


def keep_contract(world: World, digest: str, text: str) -> None:
    sql = "INSERT INTO contract (tenant, digest, agent, made_at, text) VALUES (1, :digest, 'goal', 0, :text)"
    world.connection.rows(sql, {"digest": digest, "text": text})
