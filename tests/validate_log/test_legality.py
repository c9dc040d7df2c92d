"""A move is legal if, and only if, the lifecycle lists it under the name that the log gives."""

from itertools import product

import pytest

from interlock.kernel.lifecycle import Lifecycle
from interlock.lifecycles.loader import parse
from tests.lifecycles.sample import PARCEL
from tests.validate_log.logs import (
    CANCEL,
    DOOM,
    EXTENSION,
    FAIL,
    FINISH,
    LIFECYCLES,
    PASS,
    QUEUE,
    RETRY,
    SILENT,
    START,
    check,
    line,
    told,
)

FIRST_LETTERS = {"task": "t", "workstream": "s", "worker": "w"}
SAMPLE = {
    "timestamp": "2024-01-15T10:30:00.000Z",
    "event_type": "task_state_transition",
    "severity": "info",
    "entity_id": "task-ulid-001",
    "from_state": "running",
    "to_state": "completed",
    "trigger": "execution_completed",
    "metadata": {"duration_seconds": 45, "retry_count": 0},
}


@pytest.mark.req("R3-53")
def test_the_documents_own_sample_is_illegal() -> None:
    (finding,) = check(SAMPLE)
    assert (finding.line, finding.rule, finding.entity) == (1, "legality", "task-ulid-001")
    assert finding.message.startswith(
        "running -> completed by execution_completed is not a listed move; "
        "legal from running: validating by execution_completed, retrying by execution_failed"
    )
    assert finding.legal[0] == "validating by execution_completed"
    assert not any(legal.startswith("completed") for legal in finding.legal)


@pytest.mark.req("R3-53")
@pytest.mark.parametrize("lifecycle", LIFECYCLES, ids=lambda lifecycle: lifecycle.name)
@pytest.mark.parametrize("strict", [False, True], ids=["with extensions", "strict"])
def test_a_move_is_legal_if_and_only_if_it_is_listed(lifecycle: Lifecycle, strict: bool) -> None:
    hops = [hop for hop in lifecycle.hops if hop.source is not None and not (strict and hop.extension)]
    listed = {(hop.source, hop.target, hop.event) for hop in hops}
    severities = {(hop.source, hop.target, hop.event): hop.severity for hop in hops}
    events = sorted({hop.event for hop in lifecycle.hops} | {"made_up"})
    moves = list(product(lifecycle.states, lifecycle.states, events))
    assert len(moves) == len(lifecycle.states) ** 2 * len(events)
    lines = [line(0, f"{FIRST_LETTERS[lifecycle.name]}{place}", move) for place, move in enumerate(moves)]
    for raw, move in zip(lines, moves, strict=True):
        raw["severity"] = severities.get(move, "info")
    illegal = {moves[finding.line - 1] for finding in check(*lines, strict=strict) if finding.rule == "legality"}
    assert illegal == set(moves) - listed


def test_no_move_to_itself_is_legal() -> None:
    (finding,) = check(line(0, "t1", ("queued", "queued", "scheduler_assigned")))
    assert finding.rule == "legality"


def test_an_end_has_no_legal_move() -> None:
    (finding,) = check(line(0, "t1", ("completed", "queued", "scheduler_assigned")))
    assert finding.message.endswith("legal from completed: no move")
    assert finding.legal == []


def test_the_right_states_with_a_wrong_trigger_are_illegal() -> None:
    (finding,) = check(line(0, "t1", ("pending", "queued", "worker_started")))
    assert "pending -> queued by worker_started is not a listed move" in finding.message
    assert "queued by scheduler_assigned" in finding.legal


def test_unknown_states_are_named_with_the_known_ones() -> None:
    first, second = check(line(0, "t1", ("pendign", "qeued", "scheduler_assigned")))
    assert first.message.startswith("'pendign' is not a state of a task; there are pending, queued, running")
    assert second.message.startswith("'qeued' is not a state of a task")
    assert first.legal == [*LIFECYCLES[0].states]


def test_an_unknown_event_type_is_named_with_the_known_ones() -> None:
    raw = line(0, "t1", QUEUE) | {"event_type": "job_state_transition"}
    (finding,) = check(raw)
    assert finding.rule == "schema"
    assert finding.message.startswith("event_type is job_state_transition; one of task_state_transition, ")
    assert finding.legal == ["task_state_transition", "worker_state_transition", "workstream_state_transition"]


def test_extensions_are_legal_unless_strict() -> None:
    lines = [line(0, "t1", QUEUE), line(1, "t1", EXTENSION)]
    assert check(*lines) == []
    (finding,) = check(*lines, strict=True)
    assert finding.line == 2
    assert finding.message.startswith("queued -> cancelled by user_cancelled is not in document 003: A planned or")
    assert finding.legal == ["running by worker_started"]


def test_strict_lists_no_extension_as_legal() -> None:
    wrong = line(0, "t1", ("queued", "completed", "validation_passed"))
    assert "cancelled by user_cancelled" in check(wrong)[0].legal
    assert check(wrong, strict=True)[0].legal == ["running by worker_started"]


@pytest.mark.parametrize(
    ("entity", "move", "right"),
    [
        ("t1", RETRY, "warning"),
        ("t1", FAIL, "error"),
        ("w1", SILENT, "error"),
        ("s1", DOOM, "critical"),
        ("t1", CANCEL, "info"),
    ],
)
def test_strict_wants_the_severity_of_the_move(entity: str, move: tuple[str, str, str], right: str) -> None:
    for severity in ("info", "warning", "error", "critical"):
        raw = line(0, entity, move) | {"severity": severity}
        assert check(raw) == []
        wrong = [(1, "schema", f"severity is {severity}; for this move it is {right}")]
        assert told(check(raw, strict=True)) == ([] if severity == right else wrong)


def test_a_creation_is_legal_unless_strict() -> None:
    born = line(0, "t1", (None, "pending", "task_created"))
    assert check(born, line(1, "t1", QUEUE), from_birth=True) == []
    (finding,) = check(born, strict=True)
    assert (
        finding.message == "nothing -> pending by task_created is not in document 003: a creation writes no line there"
    )


def test_a_creation_leads_to_the_initial_state() -> None:
    (finding,) = check(line(0, "t1", (None, "queued", "task_created")))
    assert finding.message == "nothing -> queued by task_created is not a listed move; legal from nothing: pending"


def test_nothing_is_created_twice() -> None:
    twice = [line(0, "t1", (None, "pending", "task_created")), line(1, "t1", (None, "pending", "task_created"))]
    (finding,) = check(*twice)
    assert (finding.line, finding.rule) == (2, "invariant")
    assert finding.message.startswith("from_state is null, but it is pending; legal now: queued by scheduler_assigned")


def test_a_lifecycle_of_ones_own_is_checked() -> None:
    parcel = parse(PARCEL, "parcel.toml")
    hop = next(hop for hop in parcel.hops if hop.source is not None)
    raw = line(0, "t1", (hop.source, hop.target, hop.event)) | {"event_type": "parcel_state_transition"}
    assert len(check(raw)) == 1
    assert check(raw, lifecycles=[*LIFECYCLES, parcel]) == []
    (finding,) = check(raw | {"to_state": hop.source}, lifecycles=[*LIFECYCLES, parcel])
    assert f"{hop.target} by {hop.event}" in finding.legal


def test_whole_lives_are_legal() -> None:
    path = [QUEUE, START, FINISH, PASS]
    assert check(*(line(at, "t1", move) for at, move in enumerate(path)), from_birth=True) == []
