"""The stories of contracts: who may work under which, what is refused, and what fails before anything runs."""

from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import Decide, DefineContract, Fork, Record, Submit, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.plugins.agents.contracts import (
    CAPABILITY,
    Contract,
    ContractMismatch,
    ToolTerms,
    describe_difference,
    digest_lifecycles,
    digest_text,
    encode_contract,
)
from interlock.plugins.agents.governance import read_decision
from interlock.plugins.agents.queries import read_contract_of_run
from tests.engine.test_agents import begin, child_of, states
from tests.engine.world import World, held


def make_text(world: World, **fields: Any) -> str:
    lifecycle = digest_lifecycles(world.lifecycles, ("agent_run", "agent_job"))
    return encode_contract(Contract(agent="goal", lifecycle=lifecycle, **fields))


def submit_run(world: World, contract: dict[str, Any] | None = None, **own: Any) -> int:
    """A run with its job: the run. `contract` says its contract, `own` are other options of it."""
    given = {**own, **({} if contract is None else {"contract": contract})}
    options = msgspec.json.encode({"agents": given}).decode()
    run = Work(task="goal", lifecycle="agent_run", ref="run", options=options)
    return world.send(Submit(work=(run, Work(task="goal", lifecycle="agent_job", parent="run"))))[0].unit


def hire(world: World, *texts: str, name: str = "w") -> int:
    return world.worker(name, capabilities=tuple(CAPABILITY + digest_text(text) for text in texts))


def fail(world: World, worker: int, step: str = "plan") -> None:
    grant = begin(world, worker)
    world.send(Record(held=(held(grant),), kind="step", name=step, payload="1"))
    world.finish(grant, ended="failure", error_class="PermanentError")


def resume(world: World, run: int, **data: Any) -> Any:
    text = msgspec.json.encode(data).decode()
    return world.send(Decide(unit=run, trigger="resume", actor="ann", reason="again", data=text))


def read_digest(world: World, run: int) -> str | None:
    contract = read_contract_of_run(world.connection, 1, run)
    assert contract is not None
    return contract.digest


@pytest.mark.req("X-09")
def test_the_same_terms_have_the_same_digest_in_whatever_order_they_are_said(world: World) -> None:
    one = Contract(agent="goal", settings={"a": 1, "b": {"c": 2, "d": 3}}, tools=(ToolTerms("t", "s"),))
    two = Contract(tools=(ToolTerms("t", "s"),), settings={"b": {"d": 3, "c": 2}, "a": 1}, agent="goal")
    assert digest_text(encode_contract(one)) == digest_text(encode_contract(two))
    assert list(msgspec.json.decode(encode_contract(one))) == sorted(Contract.__struct_fields__)
    assert describe_difference(encode_contract(one), encode_contract(Contract(agent="goal", model="m"))) == [
        'model: "" is now "m"',
        'settings: {"a":1,"b":{"c":2,"d":3}} is now {}',
        'tools: [{"approval":null,"name":"t","schema":"s"}] is now []',
    ]
    (long,) = describe_difference('{"instructions":"%s old"}' % ("x" * 200), '{"instructions":"%s new"}' % ("x" * 200))
    assert (len(long) < 200, "old" in long, "new" in long) == (True, True, True)


@pytest.mark.req("X-09")
def test_a_run_is_offered_to_workers_that_have_its_contract_and_to_no_other(world: World) -> None:
    old, new = make_text(world, model="m"), make_text(world, model="n")
    run = submit_run(world, {"text": old})
    assert (read_digest(world, run), world.count("contract")) == (digest_text(old), 1)
    assert world.claim(hire(world, new, name="deployed")) == []
    assert world.claim(world.worker("without")) == []
    (grant,) = world.claim(hire(world, old, new, name="rolling"))
    assert (grant.contract, states(world, run)) == (digest_text(old), ["running"])
    other = submit_run(world, {"digest": digest_text(old)})
    assert (read_digest(world, other), world.count("contract")) == (digest_text(old), 1)  # it is stored once


def test_without_a_contract_a_run_has_the_one_that_a_program_told_last_or_none(world: World) -> None:
    assert read_digest(world, submit_run(world)) is None
    old, new = make_text(world, model="m"), make_text(world, model="n", corrections=1, checks=("lint",))
    for text in (old, new, old, new):
        world.pass_time(1)
        world.send(DefineContract(text=text))
    run = submit_run(world)
    assert (read_digest(world, run), world.count("contract")) == (digest_text(new), 2)
    options = msgspec.json.decode(msgspec.json.decode(world.body(run).policy)["options"])
    assert (options["agents"]["corrections"], options["checks"]) == (1, {"jobs": ["lint"]})
    world.pass_time(1)
    world.send(DefineContract(text=old))  # an older program was brought back
    assert read_digest(world, submit_run(world)) == digest_text(old)


def test_wrong_contracts_are_refused_with_a_sentence_and_nothing_is_made(world: World) -> None:
    world.send(DefineContract(text=make_text(world, corrections=1)))
    before = world.count("unit")
    for contract, own, why in (
        ({"text": '{"agent":"goal","mood":"good"}'}, {}, "unknown field `mood`; allowed are agent, schema, version"),
        ({"text": "[]"}, {}, "the contract is not allowed: Expected `object`"),
        ({"text": '{"agent":"goal","validation":"some"}'}, {}, "validation = 'some' is not allowed; allowed are off"),
        ({"text": '{"agent":"other"}'}, {}, "the contract is that of 'other', and the run is one of 'goal'"),
        ({"digest": "0" * 64}, {}, "no contract '000000000000' is stored"),
        ({"text": '{"agent":"goal"}', "digest": "0" * 64}, {}, "and not to 000000000000"),
        (None, {"corrections": 2}, "corrections = 2 is not allowed; the contract of 'goal' says 1"),
        (None, {"validation": "some"}, "validation = 'some' is not allowed"),
        (
            {"text": '{"agent":"goal","tools":[{"name":"a","schema":"b"},{"name":"a","schema":"c"}]}'}, {},
            "the tool 'a' is there twice",
        ),
        ({"text": '{"agent":"goal","instructions":"%s"}' % ("x" * 2**20)}, {}, "the contract is too large"),
    ):  # fmt: skip
        with pytest.raises(InterlockError, match=why):
            submit_run(world, contract, **own)
    with pytest.raises(InterlockError, match="of a schema that is not known here"):
        world.send(DefineContract(text='{"schema":2}'))
    assert world.count("unit") == before


@pytest.mark.req("X-09")
@pytest.mark.req("R0-06")
def test_a_run_with_a_contract_of_another_kind_fails_when_it_is_made(world: World) -> None:
    run = submit_run(world, {"text": '{"schema":99,"agent":"goal"}'})
    assert world.path(run) == ["queued", "failed"]
    assert world.path(child_of(world, run)) == ["queued", "claimed", "failed"]
    error = world.body(child_of(world, run)).error or ""
    assert error.startswith("UNSUPPORTED_CONTRACT")
    decision = read_decision(world.connection, 1, run)
    assert decision is not None
    assert "UNSUPPORTED_CONTRACT" in decision.reasons


@pytest.mark.req("X-09")
@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("UPDATE contract SET text = replace(text, 'm', 'n')", "CONTRACT_MISMATCH"),
        ("DELETE FROM contract", "EXECUTION_CONTRACT_MISSING"),
    ],
)
def test_a_contract_that_was_tampered_with_fails_its_run_before_anything_of_it_runs(
    world: World, sql: str, reason: str
) -> None:
    text = make_text(world, model="m")
    run, untouched = submit_run(world, {"text": text}), world.submit(queue="other")
    world.connection.rows(sql)
    assert world.claim(hire(world, text)) == []
    assert (states(world, run), world.unit(child_of(world, run)).fence) == (["failed"], 0)
    assert (world.body(child_of(world, run)).error or "").startswith(reason)
    assert states(world, untouched) == ["queued"]
    resume(world, run)  # it is as it was, so it fails again at once
    assert world.claim(hire(world, text)) == []
    assert states(world, run) == ["failed"]


def test_a_job_that_was_lost_under_a_contract_that_was_tampered_with_is_not_taken_over(world: World) -> None:
    text = make_text(world, model="m")
    run = submit_run(world, {"text": text})
    begin(world, hire(world, text))
    world.connection.rows("UPDATE contract SET text = replace(text, 'm', 'n')")
    world.pass_time(120)
    assert world.claim(hire(world, text, name="second")) == []
    assert (states(world, run), world.path(child_of(world, run))[-1]) == (["failed"], "failed")


@pytest.mark.req("X-10")
def test_a_resume_keeps_the_contract_unless_another_one_overrides_it(world: World) -> None:
    old, new = make_text(world, model="m"), make_text(world, model="n", corrections=0)
    run, first = submit_run(world, {"text": old}), hire(world, old)
    fail(world, first)
    with pytest.raises(Unknown, match="no contract '123456789012' is stored"):
        resume(world, run, contract="123456789012")
    with pytest.raises(InterlockError, match="no program has told a contract of 'goal'"):
        resume(world, run, override=True)
    world.send(DefineContract(text=new))
    with pytest.raises(ContractMismatch, match=r'model: "m" is now "n"\); override it, or fork the run') as refused:
        resume(world, run, contract=digest_text(new))
    assert refused.value.difference == ["corrections: null is now 0", 'model: "m" is now "n"']
    assert (states(world, run), world.notes(run, "contract")) == (["failed"], [])
    resume(world, run, contract=digest_text(old))  # its own
    fail(world, first, "act")
    resume(world, run)  # it keeps it
    assert world.claim(hire(world, new, name="deployed")) == []
    fail(world, first, "write")
    resume(world, run, override=True)
    assert (read_digest(world, run), world.claim(first)) == (digest_text(new), [])
    (grant,) = world.claim(hire(world, new, name="deployed"))
    assert ([name for name, _ in grant.steps], grant.contract) == (["plan", "act", "write"], digest_text(new))
    world.start(grant)
    refusal = world.send(Record(held=(held(grant),), kind="phase", name="1 correct"))[0].why
    assert refusal.endswith("has used 0 of its 0 corrections")
    contract = read_contract_of_run(world.connection, 1, run)
    assert contract is not None
    assert (contract.overridden_by, contract.contract["model"]) == ("ann", "n")
    world.finish(grant, ended="failure", error_class="PermanentError")
    resume(world, run)
    assert world.claim(hire(world, new, name="deployed"))[0].contract == digest_text(
        new
    )  # the jobs after it have it too


def test_a_fork_goes_on_under_the_newest_contract_or_the_one_that_is_named(world: World) -> None:
    old, new = make_text(world, model="m"), make_text(world, model="n")
    run = submit_run(world, {"text": old})
    fail(world, hire(world, old))
    same = world.send(Fork(unit=run, at="plan")).unit
    world.send(DefineContract(text=new))
    forked = world.send(Fork(unit=run, at="plan")).unit
    named = world.send(Fork(unit=run, at="plan", contract=digest_text(old))).unit
    digests = [read_digest(world, each) for each in (run, same, forked, named)]
    assert digests == [digest_text(old), digest_text(old), digest_text(new), digest_text(old)]
    assert [grant.contract for grant in world.claim(hire(world, new, name="deployed"), 9)] == [digest_text(new)]
    with pytest.raises(Unknown, match="is stored; allowed is the digest of one that is"):
        world.send(Fork(unit=run, at="plan", contract="0"))
