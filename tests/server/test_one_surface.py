"""One surface for every kind of work: the same verbs take any id, and answer in the same shape.

A new kind of work adds a line to `KINDS`. Everything else is the same for all: the same verbs over HTTP (by `/v1/jobs`,
and of runs by `/v1/runs` too), the commands of the command line, and the handle of the SDK.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import pytest

from interlock.kernel.commands import LeaseRef, Record
from interlock.kernel.ids import parse_id
from interlock.lifecycles import shipped
from tests.cli.inside import inside
from tests.server.stage import Stage


class Kind(NamedTuple):
    """How a unit of a kind is made, whether it is a run, whether it can be done again by itself, and what it shows more."""

    make: Callable[[Stage], str]
    is_run: bool = False
    again: bool = False
    shows: frozenset[str] = frozenset()


def run_of(lifecycle: str) -> Callable[[Stage], str]:
    def make(stage: Stage) -> str:
        body = {"task": "whole", "lifecycle": lifecycle, "steps": [{"task": "part"}]}
        return str(stage.post("/v1/runs", body, status=201)["id"])

    return make


def below(make: Callable[[Stage], str], place: int = 0) -> Callable[[Stage], str]:
    """What is below a run, by its place in the tree."""
    return lambda stage: str(stage.get(f"/v1/runs/{make(stage)}/steps")["steps"][place]["id"])


def make_workstream(stage: Stage) -> str:
    body = {"name": "whole", "tasks": [{"name": "part", "task": "part"}]}
    return str(stage.post("/v1/workstreams", body, status=201)["id"])


WORKSTREAM, AGENT_RUN, CI_RUN = make_workstream, run_of("agent_run"), run_of("ci_run")
KINDS = {
    "job": Kind(Stage.job, again=True),
    "workflow_run": Kind(Stage.run, is_run=True),
    "approval": Kind(below(Stage.run)),
    "step": Kind(below(Stage.run, 1), again=True),
    "workstream": Kind(WORKSTREAM, is_run=True, again=True, shows=frozenset({"progress"})),
    "task": Kind(below(WORKSTREAM), again=True),
    "agent_run": Kind(AGENT_RUN, is_run=True, again=True),
    "agent_job": Kind(below(AGENT_RUN), again=True),
    "ci_run": Kind(CI_RUN, is_run=True),
    "ci_job": Kind(below(CI_RUN)),
}
NOT_WORK = {"worker", "lease", "ci_attempt"}  # a worker is no work; an attempt is what its job says
FREE = (
    "details",
    "payload",
    "policy",
    "labels",
    "input",
    "result",
    "output",
)  # what these hold is the user's, or the kind's
LOOKS, ACTS = ("", "/why", "/events", "/steps"), ("/pause", "/unpause", "/cancel", "/rerun")
HANDLE = ("id", "state", "outcome", "wait", "cancel", "why", "events", "log", "children", "outputs", "cost")
NOTHING: Any = object()


def shape(value: Any) -> Any:
    """The fields of an answer, whatever they hold: objects by name, lists by what all their items have."""
    if isinstance(value, dict):
        return {name: None if name in FREE else shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [reduce(merge, map(shape, value), NOTHING)]
    return None


def merge(one: Any, other: Any) -> Any:
    """What two shapes have in common; nothing is known of an empty list, or of what is null in one of them."""
    if one in (NOTHING, None) or other in (NOTHING, None):
        return other if one in (NOTHING, None) else one
    if isinstance(one, list):
        return [merge(one[0], other[0])]
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return {name: merge(part, other[name]) for name, part in one.items()}


def ask_all(stage: Stage, kind: Kind, root: str) -> dict[str, Any]:
    """What a fresh unit of a kind is answered under a path, verb by verb, with the status of each."""
    unit = kind.make(stage)
    answers = {verb: stage.ask("GET", f"{root}/{unit}{verb}") for verb in LOOKS}
    assert (stage.ask("GET", f"{root}/{unit}/log").status_code, stage.ask("GET", f"{root}/{unit}/log").text) == (
        200,
        "",
    )
    answers |= {verb: stage.ask("POST", f"{root}/{unit}{verb}", {}) for verb in ACTS}
    return {verb: (answer.status_code, answer.json()) for verb, answer in answers.items()}


def ask_below(make: Callable[[Stage], str]) -> Callable[[Stage], str]:
    """A unit whose handler has asked people, as `ctx.ask` does."""

    def ask(stage: Stage) -> str:
        unit, grant = make(stage), stage.claim()
        held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
        question = '{"task": "ok?", "lifecycle": "approval"}'
        (answer,) = stage.app.send(Record(held=(held,), kind="child", name="ok?", payload=question))
        assert answer.accepted
        return unit

    return ask


def finish_before_people(stage: Stage) -> str:
    """A workstream whose task is done, and waits for a person among its checks."""
    body = {"name": "whole", "tasks": [{"name": "part", "task": "part", "checks": ["person"]}]}
    unit = str(stage.post("/v1/workstreams", body, status=201)["id"])
    stage.finish(stage.claim())
    return unit


# What waits for one person, below a unit of each kind that may.
WAITING: dict[str, Callable[[Stage], str]] = {
    "job": ask_below(Stage.job), "workflow_run": Stage.run, "workstream": finish_before_people,
    "agent_run": ask_below(AGENT_RUN),
}  # fmt: skip


def test_every_kind_of_work_is_here() -> None:
    assert KINDS.keys() | NOT_WORK == shipped().keys()


def test_the_same_verbs_over_http_answer_alike_for_every_kind(stage: Stage) -> None:
    known: dict[str, Any] = {}
    for name, kind in KINDS.items():
        for root in ("/v1/jobs", "/v1/runs") if kind.is_run else ("/v1/jobs",):
            for verb, (status, answer) in ask_all(stage, kind, root).items():
                allowed = verb != "/rerun" or kind.again
                wanted = (201,) if verb == "/rerun" else (200,)
                assert status in (wanted if allowed else (400, 409)), (name, verb, answer)
                topic = verb if allowed else "refused"
                try:
                    known[topic] = merge(known.get(topic, NOTHING), shape(answer))
                except AssertionError as difference:
                    raise AssertionError(f"{verb} of a {name} has other fields than that of others") from difference
    assert known.keys() == {*LOOKS, *ACTS, "refused"}


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if not kind.is_run])
def test_what_is_no_run_is_not_found_among_runs(stage: Stage, name: str) -> None:
    unit = KINDS[name].make(stage)
    for verb in LOOKS:
        assert stage.ask("GET", f"/v1/runs/{unit}{verb}").status_code == 404
    for verb in ACTS:
        assert stage.ask("POST", f"/v1/runs/{unit}{verb}", {}).status_code == 404


def test_the_command_line_takes_any_id_and_answers_alike(stage: Stage) -> None:
    ask = inside(stage.app.url)
    known: dict[str, Any] = {}
    for name, kind in KINDS.items():
        unit = kind.make(stage)
        graph = ask("graph", unit)
        assert (graph.code, graph.out.startswith("flowchart")) == (0, True), (name, graph.out)
        assert (ask("log", unit).code, ask("log", unit).out) == (0, ""), name
        for verb in ("pause", "show", "why", "unpause", "events", "cancel"):
            done = ask(verb, unit, "--json")
            assert done.code == 0, (name, verb, done.err)
            told = {field: part for field, part in done.json.items() if field not in kind.shows}
            assert verb != "show" or done.json.keys() - told.keys() == kind.shows, name
            known[verb] = merge(known.get(verb, NOTHING), shape(told))
        assert ask("watch", unit, "--for", "1ms").code == 1, "it has ended without success"
        done = ask("rerun", unit, "--json")
        assert done.code == (0 if kind.again else 2), (name, done.err)
        if kind.again:
            known["rerun"] = merge(known.get("rerun", NOTHING), shape(done.json))
    assert known.keys() == {"pause", "show", "why", "unpause", "events", "cancel", "rerun"}


def test_a_workstream_has_its_own_members_besides(stage: Stage) -> None:
    unit = make_workstream(stage)
    handle = stage.app.run(unit)
    own = ("tasks", "task", "progress", "plan", "add", "pause", "unpause", "retry", "skip", "reassign", "rerun")
    assert [member for member in own if not hasattr(handle, member)] == []
    whole, alone = (shape(stage.get(f"/v1/{root}/{unit}")) for root in ("jobs", "workstreams"))
    assert merge(whole, alone) == whole
    listed = stage.get("/v1/workstreams")["workstreams"]
    assert [shape(one) for one in listed] == [shape(one) for one in stage.get("/v1/runs")["runs"]]


def test_an_agent_run_and_a_ci_run_have_their_own_members_besides(stage: Stage) -> None:
    agent = stage.app.run(AGENT_RUN(stage))
    own = ("steps", "spent", "left", "transcript", "resume", "fork", "decision")
    assert [member for member in own if not hasattr(agent, member)] == []
    ci = stage.app.run(CI_RUN(stage))
    assert [member for member in ("plan", "jobs", "artifacts", "tests", "rerun") if not hasattr(ci, member)] == []
    assert (ci.plan, ci.jobs, ci.artifacts, ci.tests) == (None, {}, [], []), "it was never planned"


def test_every_handle_of_the_sdk_has_the_same_members(stage: Stage) -> None:
    for name, kind in KINDS.items():
        unit = kind.make(stage)
        handles = [stage.app.job(unit), *([stage.app.run(unit)] if kind.is_run else ())]
        for handle in handles:
            assert [member for member in HANDLE if not hasattr(handle, member)] == []
            assert (handle.id, handle.state, handle.outcome) == (unit, stage.get(f"/v1/jobs/{unit}")["state"], None)
            assert handle.why() == stage.get(f"/v1/jobs/{unit}/why")["text"]
            assert [event.version for event in handle.events()] == [
                event["version"] for event in stage.get(f"/v1/jobs/{unit}/events")["events"]
            ]
            steps = [step for step in stage.get(f"/v1/jobs/{unit}/steps")["steps"] if step["depth"] == 1]
            assert {child.id for child in handle.children} == {step["id"] for step in steps}
            assert (handle.cost, handle.outputs, handle.log()) == (0.0, {}, ""), name
        handles[0].cancel()
        assert handles[-1].outcome == stage.get(f"/v1/jobs/{unit}")["outcome"], name
        assert [event.unit for event in stage.app.events(job=parse_id(unit))] == [unit] * len(handles[0].events())


def test_what_waits_for_a_person_is_listed_and_decided_alike_below_every_kind(stage: Stage) -> None:
    """By its own id, by that of what it waits in, on the command line, and in a program."""
    ask, items, answers, lines = inside(stage.app.url), NOTHING, NOTHING, NOTHING
    for name, make in WAITING.items():
        for verb in ("approve", "reject"):
            roots = ["jobs", "inbox", "cli", "sdk", *(["runs"] if KINDS[name].is_run else [])]
            for root in roots:
                unit = make(stage)
                (item,) = [each for each in stage.get("/v1/inbox")["items"] if "approve" in each["words"]]
                items = merge(items, shape(item))
                if root == "cli":
                    done = ask(verb, unit, "--json")
                    assert done.code == 0, (name, verb, done.err)
                    lines = merge(lines, shape(done.json))
                elif root == "sdk":
                    getattr(stage.app.inbox, verb)(parse_id(unit), by="ann")
                else:
                    named = item["id"] if root == "inbox" else unit
                    answer = stage.post(f"/v1/{root}/{named}/{verb}", {"by": "ann"})
                    assert answer["applied"], (name, verb, root, answer)
                    answers = merge(answers, shape(answer))
                wanted = "success" if verb == "approve" else "cancelled"
                assert stage.get(f"/v1/jobs/{item['id']}")["outcome"] == wanted, (name, verb, root)
                stage.ask("POST", f"/v1/jobs/{unit}/cancel", {})
    assert NOTHING not in (items, answers, lines)
