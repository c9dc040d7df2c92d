"""The lifecycles are the documents': every state and every edge, and nothing else that is not marked."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.audit.docs.render import render_page, render_section
from interlock.kernel.graph import ranks
from interlock.lifecycles import shipped
from tests.conftest import ROOT, Run
from tests.spec import documents as doc

RUN_000 = doc.part("000", "## Agent Lifecycle Run")
JOB_000 = doc.part("000", "## Durable Run Job")
RUN_004 = doc.part("004", "## Run State Machine")
JOB_004 = doc.part("004", "## Job State Machine")
LEASE_004 = doc.part("004", "## Lease State Machine")
STATES_001 = ["PENDING", "RUNNING", "WAITING_APPROVAL", "SUCCEEDED", "FAILED", "CANCELED"]


def joined(edges: dict[int, doc.Edges], leave: tuple[int, ...] = ()) -> doc.Edges:
    return {edge for number, some in edges.items() if number not in leave for edge in some}


@pytest.fixture(scope="session")
def exported(interlock: Run) -> dict[str, Any]:
    """Every lifecycle as `export --json` prints it, extensions included."""
    lifecycles = json.loads(interlock("lifecycle", "export", "--json").stdout)["lifecycles"]
    return {lifecycle["name"]: lifecycle for lifecycle in lifecycles}


@pytest.fixture(scope="session")
def documented(interlock: Run) -> dict[str, doc.Edges]:
    """The edges that `export --documents` claims, births left out."""
    lifecycles = json.loads(interlock("lifecycle", "export", "--documents", "--json").stdout)["lifecycles"]
    return {
        lifecycle["name"]: {(m["from"], m["to"]) for m in lifecycle["moves"] if m["from"]} for lifecycle in lifecycles
    }


def exits(lifecycle: dict[str, Any], state: str) -> set[str]:
    """Where a state leads, self-hops left out: they are no transitions."""
    return {move["to"] for move in lifecycle["moves"] if move["from"] == state} - {state}


EXPECTED = [
    pytest.param("agent_run", lambda: set(doc.mermaid(RUN_000)), marks=pytest.mark.req("R0-01")),
    pytest.param("agent_job", lambda: set(doc.mermaid(JOB_000)), marks=pytest.mark.req("R0-01")),
    pytest.param("workflow_run", lambda: doc.from_to(doc.part("001", "## Run transitions"))),
    pytest.param("job", lambda: doc.arrows(doc.text("002")), marks=pytest.mark.req("R2-16")),
    pytest.param(
        "task", lambda: set(doc.mermaid(doc.part("003", "## Task Lifecycle"))), marks=pytest.mark.req("R3-01")
    ),
    pytest.param(
        "workstream",
        lambda: set(doc.mermaid(doc.part("003", "## Workstream Lifecycle"))),
        marks=pytest.mark.req("R3-01"),
    ),
    pytest.param(
        "worker", lambda: set(doc.mermaid(doc.part("003", "## Worker State"))), marks=pytest.mark.req("R3-01")
    ),
    pytest.param("ci_run", lambda: joined(doc.numbered(RUN_004)), marks=pytest.mark.req("R4-01")),
    pytest.param("ci_job", lambda: joined(doc.numbered(JOB_004)), marks=pytest.mark.req("R4-01")),
    pytest.param("ci_attempt", lambda: joined(doc.numbered(JOB_004), (7, 11)), marks=pytest.mark.req("R4-01")),
    pytest.param("lease", lambda: joined(doc.numbered(LEASE_004)), marks=pytest.mark.req("R4-01")),
]


@pytest.mark.parametrize(("name", "expected"), EXPECTED)
def test_edges_equal_the_document(
    name: str, expected: Callable[[], doc.Edges], documented: dict[str, doc.Edges]
) -> None:
    assert documented[name] == expected()


def test_the_parsers_read_what_the_documents_hold() -> None:
    """Guards the comparison itself: a parser that reads nothing would agree with nothing."""
    counts = {
        "000 run": len(doc.mermaid(RUN_000)),
        "000 job": len(doc.mermaid(JOB_000)),
        "001 run": len(doc.from_to(doc.part("001", "## Run transitions"))),
        "001 step": len(doc.from_to(doc.part("001", "## Step transitions"))),
        "002": len(doc.arrows(doc.text("002"))),
        "003 task": len(doc.mermaid(doc.part("003", "## Task Lifecycle"))),
        "003 workstream": len(doc.mermaid(doc.part("003", "## Workstream Lifecycle"))),
        "003 worker": len(doc.mermaid(doc.part("003", "## Worker State"))),
        "004 run": len(joined(doc.numbered(RUN_004))),
        "004 job": len(joined(doc.numbered(JOB_004))),
        "004 lease": len(joined(doc.numbered(LEASE_004))),
    }
    assert counts == {
        "000 run": 25, "000 job": 7, "001 run": 10, "001 step": 10, "002": 10, "003 task": 9,
        "003 workstream": 9, "003 worker": 8, "004 run": 15, "004 job": 18, "004 lease": 7,
    }  # fmt: skip


def test_the_table_of_document_000_equals_its_diagram(documented: dict[str, doc.Edges]) -> None:
    assert doc.table(RUN_000) == documented["agent_run"]
    assert doc.table(JOB_000) == documented["agent_job"]


def test_steps_and_approvals_together_are_document_001(documented: dict[str, doc.Edges]) -> None:
    assert documented["step"] | documented["approval"] == doc.from_to(doc.part("001", "## Step transitions"))


@pytest.mark.parametrize(
    ("name", "heading"),
    [("task", "## Task Lifecycle"), ("workstream", "## Workstream Lifecycle"), ("worker", "## Worker State")],
)
@pytest.mark.req("R3-01")
def test_events_of_document_003_are_its_triggers(name: str, heading: str, exported: dict[str, Any]) -> None:
    moves = exported[name]["moves"]
    named = {(m["from"], m["to"], m["event"]) for m in moves if m["from"] and not m["extension"]}
    assert named == {(a, b, label) for (a, b), label in doc.mermaid(doc.part("003", heading)).items()}


@pytest.mark.req("R4-01")
def test_every_edge_beyond_the_documents_is_marked_and_says_why(exported: dict[str, Any]) -> None:
    extensions = [move for lifecycle in exported.values() for move in lifecycle["moves"] if move["extension"]]
    assert extensions
    assert all(move["why"] for move in extensions)


@pytest.mark.req("R4-01")
def test_the_logical_job_opens_an_attempt_by_edges_7_and_11(exported: dict[str, Any]) -> None:
    numbered = doc.numbered(JOB_004)
    moves = [m for m in exported["ci_job"]["moves"] if (m["from"], m["to"]) in numbered[7] | numbered[11]]
    assert {(m["from"], m["to"]) for m in moves if m["opens_attempt"]} == numbered[7] | numbered[11]
    assert all(m["opens_attempt"] for m in moves)


# Document 000: which states follow which.

RUN_EXITS = [
    pytest.param("queued", {"cancelled", "failed", "running"}, marks=pytest.mark.req("R0-08")),
    pytest.param("correcting", {"cancelled", "failed", "running", "validating"}, marks=pytest.mark.req("R0-16")),
    pytest.param(
        "optimizing", {"cancelled", "complete", "failed", "running", "validating"}, marks=pytest.mark.req("R0-17")
    ),
    pytest.param(
        "validating", {"cancelled", "complete", "failed", "optimizing", "running"}, marks=pytest.mark.req("R0-18")
    ),
    pytest.param("complete", set(), marks=pytest.mark.req("R0-19")),
    pytest.param("failed", {"queued"}, marks=pytest.mark.req("R0-20")),
    pytest.param("cancelled", {"queued"}, marks=pytest.mark.req("R0-21")),
]


@pytest.mark.parametrize(("state", "targets"), RUN_EXITS)
def test_a_run_leaves_a_state_only_for_these(state: str, targets: set[str], exported: dict[str, Any]) -> None:
    assert exits(exported["agent_run"], state) == targets


@pytest.mark.parametrize(
    ("target", "trigger"),
    [
        pytest.param("cancelled", "cancel", marks=pytest.mark.req("R0-09")),
        pytest.param("complete", "succeed", marks=pytest.mark.req("R0-10")),
        pytest.param("correcting", "correct", marks=pytest.mark.req("R0-11")),
        pytest.param("failed", "fail", marks=pytest.mark.req("R0-12")),
        pytest.param("optimizing", "optimize", marks=pytest.mark.req("R0-13")),
        pytest.param("validating", "check", marks=pytest.mark.req("R0-14")),
    ],
)
def test_a_running_run_may_become(target: str, trigger: str) -> None:
    assert shipped()["agent_run"].move("running", trigger).path == (target,)


@pytest.mark.req("R0-15")
def test_a_running_run_never_goes_back_to_queued(exported: dict[str, Any]) -> None:
    assert "queued" not in exits(exported["agent_run"], "running")


@pytest.mark.req("R0-22")
def test_resume_is_explicit(exported: dict[str, Any]) -> None:
    back = [m for m in exported["agent_run"]["moves"] if m["from"] in ("failed", "cancelled")]
    assert {(m["trigger"], m["owner"], m["opens_attempt"]) for m in back} == {("resume", "person", True)}


@pytest.mark.req("R0-23")
def test_only_failed_and_cancelled_return_to_queued(exported: dict[str, Any]) -> None:
    moves = exported["agent_run"]["moves"]
    assert {m["from"] for m in moves if m["to"] == "queued" and m["from"]} == {"failed", "cancelled"}
    lifecycle = shipped()["agent_run"]
    assert {state for state in lifecycle.states if lifecycle.allows(state, "resume")} == {"failed", "cancelled"}


@pytest.mark.req("R0-24")
def test_the_ends_of_a_run(exported: dict[str, Any]) -> None:
    states = exported["agent_run"]["states"]
    assert {s["name"] for s in states if s["settled"]} == {"complete", "failed", "cancelled"}
    assert {s["name"] for s in states if s["final"]} == {"complete"}


# Ends and enumerations of the other documents.

ENDS = [
    pytest.param("workflow_run", {"FAILED"}, marks=pytest.mark.req("R1-04")),
    pytest.param("workflow_run", {"CANCELED"}, marks=pytest.mark.req("R1-05")),
    pytest.param("job", {"succeeded", "failed", "cancelled", "dead_lettered"}, marks=pytest.mark.req("R2-16")),
    pytest.param("task", {"completed", "failed", "cancelled"}, marks=pytest.mark.req("R3-14")),
    pytest.param("workstream", {"completed", "failed", "cancelled"}, marks=pytest.mark.req("R3-58")),
    pytest.param("ci_run", {"REPORTED"}, marks=pytest.mark.req("R4-15")),
    pytest.param("ci_attempt", {"SUCCEEDED", "FAILED", "CANCELED"}, marks=pytest.mark.req("R4-30")),
    pytest.param("worker", {"shutdown"}),
    pytest.param("agent_job", {"complete", "failed"}),
]


@pytest.mark.parametrize(("name", "ends"), ENDS)
def test_nothing_leaves_an_end(name: str, ends: set[str], exported: dict[str, Any]) -> None:
    lifecycle = exported[name]
    assert all(exits(lifecycle, state) == set() for state in ends)
    assert ends <= {state["name"] for state in lifecycle["states"] if state["final"]}


def test_the_ends_of_an_attempt_are_five(exported: dict[str, Any]) -> None:
    final = {state["name"] for state in exported["ci_attempt"]["states"] if state["final"]}
    assert final == {"SUCCEEDED", "FAILED", "CANCELED", "TIMED_OUT", "STALE"}


@pytest.mark.req("R1-11")
def test_run_status_has_exactly_six_values(exported: dict[str, Any]) -> None:
    assert doc.bullets(doc.part("001", "### RunStatus", "###")) == STATES_001
    assert [state["name"] for state in exported["workflow_run"]["states"]] == STATES_001


@pytest.mark.req("R1-12")
def test_step_status_has_exactly_six_values(exported: dict[str, Any]) -> None:
    names = {state["name"] for name in ("step", "approval") for state in exported[name]["states"]}
    assert doc.bullets(doc.part("001", "### StepStatus")) == STATES_001
    assert names == set(STATES_001)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("ci_run", lambda: doc.bullets(RUN_004)),
        ("ci_attempt", lambda: doc.bullets(JOB_004)),
        ("lease", lambda: doc.bullets(LEASE_004)),
    ],
)
def test_the_states_of_document_004(name: str, listed: Callable[[], list[str]], exported: dict[str, Any]) -> None:
    assert [state["name"] for state in exported[name]["states"]] == listed()


def test_the_logical_job_has_every_state_but_stale(exported: dict[str, Any]) -> None:
    wanted = [name for name in doc.bullets(JOB_004) if name != "STALE"]
    assert [state["name"] for state in exported["ci_job"]["states"]] == wanted


@pytest.mark.parametrize("name", ["job", "step", "task", "agent_job", "ci_attempt"])
@pytest.mark.req("R2-18")
def test_within_an_attempt_nothing_goes_back(name: str) -> None:
    lifecycle = shipped()[name]
    inside = [(hop.source, hop.target) for hop in lifecycle.hops if hop.source and not hop.opens_attempt]
    rank = ranks(lifecycle.states, inside)
    assert all(rank[target] > rank[source] for source, target in inside)


@pytest.mark.req("R2-18")
def test_a_running_job_is_queued_again_only_by_opening_an_attempt(exported: dict[str, Any]) -> None:
    back = [m for m in exported["job"]["moves"] if m["to"] == "queued" and m["from"]]
    assert back
    assert all(m["opens_attempt"] and m["extension"] for m in back)


# The generated text.


@pytest.mark.req("R0-02")
@pytest.mark.parametrize("name", ["agent_run", "agent_job"])
def test_document_000_is_reproduced_line_for_line(name: str) -> None:
    drawn = render_section(shipped()[name])
    assert drawn in doc.text("000")
    assert drawn in (ROOT / "docs" / "lifecycles" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.req("R0-02")
def test_document_000_has_nothing_that_the_renderer_does_not_draw() -> None:
    preamble = doc.text("000").split("\n## ", 1)[0]
    drawn = "\n\n".join([preamble.rstrip(), *(render_section(shipped()[name]) for name in ("agent_run", "agent_job"))])
    assert doc.text("000").rstrip() == drawn


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project's docs, to be spoilt."""
    shutil.copytree(ROOT / "docs" / "lifecycles", tmp_path / "docs" / "lifecycles")
    return tmp_path


@pytest.mark.req("R0-03", "X-27")
def test_docs_that_equal_their_lifecycles_pass(copy: Path, interlock: Run) -> None:
    done = interlock("lifecycle", "docs", "--check", cwd=copy)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.req("R0-03", "X-27")
@pytest.mark.parametrize("name", [*shipped(), "README"])
def test_one_changed_character_in_a_page_fails_the_check(name: str, copy: Path, interlock: Run) -> None:
    path = copy / "docs" / "lifecycles" / f"{name}.md"
    path.write_text(path.read_text(encoding="utf-8").replace("e", "E", 1), encoding="utf-8")
    done = interlock("lifecycle", "docs", "--check", cwd=copy)
    assert done.returncode == 1
    assert f"{name}.md: differs from its lifecycle" in done.stdout


@pytest.mark.req("R0-03")
def test_one_changed_edge_in_the_data_fails_the_check(copy: Path, interlock: Run) -> None:
    source = (ROOT / "interlock" / "lifecycles" / "agent_run.toml").read_text(encoding="utf-8")
    changed = source.replace(
        'optimize = { to = "optimizing", owner = "holder"', 'optimize = { to = "correcting", owner = "holder"'
    )
    assert changed != source
    (copy / "agent_run.toml").write_text(changed, encoding="utf-8")
    done = interlock("lifecycle", "docs", "agent_run.toml", "--check", cwd=copy)
    assert done.returncode == 1
    assert "-  running --> optimizing" in done.stdout


@pytest.mark.req("X-27")
def test_a_missing_page_and_a_page_too_many_fail_the_check(copy: Path, interlock: Run) -> None:
    folder = copy / "docs" / "lifecycles"
    (folder / "job.md").rename(folder / "jobs.md")
    done = interlock("lifecycle", "docs", "--check", cwd=copy)
    assert done.returncode == 1
    assert "job.md: missing" in done.stdout
    assert "jobs.md: there is no such lifecycle" in done.stdout


@pytest.mark.req("X-27")
@pytest.mark.parametrize("name", list(shipped()))
def test_every_lifecycle_has_a_page_of_its_own(name: str) -> None:
    assert (ROOT / "docs" / "lifecycles" / f"{name}.md").read_text(encoding="utf-8") == render_page(shipped()[name])


@pytest.mark.req("X-27")
def test_the_drift_check_is_part_of_make_check() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    check = makefile.split("\ncheck:", 1)[1].split("\n\n", 1)[0]
    drift = makefile.split("\ndrift:", 1)[1].split("\n\n", 1)[0]
    assert " drift" in check
    assert "lifecycle docs --check" in drift
