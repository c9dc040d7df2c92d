"""The invariants of document 003: each broken once, each kept once."""

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.audit.log import checker
from tests.conftest import Run
from tests.validate_log.logs import (
    AGAIN,
    ASSIGN,
    BEGIN,
    CANCEL,
    CREATED,
    DOOM,
    DRAIN,
    FAIL,
    FINISH,
    FREE,
    GATHER,
    LEAVE,
    MERGE,
    PASS,
    QUEUE,
    RECOVER,
    REGISTER,
    RETRY,
    SILENT,
    START,
    check,
    line,
    told,
)

Lines = list[dict[str, Any]]


def lifecycle(entity: str, *moves: tuple[str, str, str], at: int = 0, **metadata: Any) -> Lines:
    return [line(at + step, entity, move, **metadata) for step, move in enumerate(moves)]


# One state at a time, and an end is an end.


@pytest.mark.req("R3-54")
def test_a_move_begins_where_the_last_one_ended() -> None:
    (finding,) = check(*lifecycle("t1", QUEUE, START, PASS))
    assert (finding.line, finding.rule, finding.entity) == (3, "invariant", "t1")
    assert finding.message.startswith("from_state is validating, but it is running; legal now: validating by")
    assert finding.legal[:2] == ["validating by execution_completed", "retrying by execution_failed"]


def test_one_jump_is_one_finding() -> None:
    assert [finding.line for finding in check(*lifecycle("t1", QUEUE, FINISH, PASS))] == [2]


def test_entities_of_one_name_and_two_kinds_are_two() -> None:
    worker = line(1, "w1", REGISTER) | {"entity_id": "t1"}
    assert check(line(0, "t1", QUEUE), worker, line(2, "t1", START)) == []


@pytest.mark.req("R3-54")
@pytest.mark.parametrize("end", [[FINISH, PASS], [FAIL], [CANCEL]])
def test_nothing_follows_an_end(end: list[tuple[str, str, str]]) -> None:
    (finding,) = check(*lifecycle("t1", QUEUE, START, *end, QUEUE))
    assert finding.rule == "invariant"
    assert finding.message == f"it is {end[-1][1]}, which is an end; no move is legal"
    assert finding.legal == []


def test_a_life_may_have_begun_before_the_log_unless_it_is_whole() -> None:
    lines = lifecycle("t1", START, FINISH)
    assert check(*lines) == []
    assert told(check(*lines, from_birth=True)) == [
        (1, "invariant", "its first line leaves queued; a life begins in pending")
    ]


def test_a_duplicated_line_is_reported() -> None:
    lines = lifecycle("t1", QUEUE, START)
    assert [finding.line for finding in check(lines[0], lines[0], lines[1])] == [2]


# Retries.


def tries(number: int, **metadata: Any) -> Lines:
    """A task that fails `number` times and is started again each time."""
    return lifecycle("t1", QUEUE, START, *[RETRY, AGAIN, START] * number, **metadata)


@pytest.mark.req("R3-54")
def test_retry_count_is_at_most_max_retries() -> None:
    assert check(*lifecycle("t1", RETRY, retry_count=2, max_retries=2)) == []
    (finding,) = check(*lifecycle("t1", RETRY, retry_count=3, max_retries=2))
    assert (finding.rule, finding.message) == ("invariant", "retry_count is 3, above max_retries 2")
    assert finding.legal == ["at most 2"]


def test_max_retries_is_remembered() -> None:
    lines = [line(0, "t1", START, max_retries=1), line(1, "t1", RETRY, retry_count=2)]
    assert told(check(*lines, max_retries=9)) == [(2, "invariant", "retry_count is 2, above max_retries 1")]


def test_max_retries_of_zero_is_not_nothing() -> None:
    lines = [line(0, "t1", START, max_retries=0), line(1, "t1", RETRY)]
    assert told(check(*lines)) == [(2, "invariant", "this is its retry number 1, above max_retries 0")]


def test_without_max_retries_the_default_counts_and_is_named() -> None:
    text = "retry_count is 4, above 3, the default (the log gives no max_retries for it)"
    assert told(check(line(0, "t1", RETRY, retry_count=4))) == [(1, "invariant", text)]
    assert check(line(0, "t1", RETRY, retry_count=3)) == []


def test_the_option_beats_the_default() -> None:
    assert check(line(0, "t1", RETRY, retry_count=9), max_retries=9) == []
    text = "retry_count is 1, above --max-retries 0"
    assert told(check(line(0, "t1", RETRY, retry_count=1), max_retries=0)) == [(1, "invariant", text)]


@pytest.mark.req("R3-54")
def test_the_retries_in_the_log_are_counted() -> None:
    assert check(*tries(3)) == []
    (finding,) = check(*tries(4))
    assert finding.line == 12
    assert finding.message.startswith("this is its retry number 4, above 3, the default")
    assert finding.legal == ["at most 3"]


def test_an_overflow_is_told_once_a_line() -> None:
    lines = tries(2, max_retries=1)
    lines[5]["metadata"]["retry_count"] = 2
    assert [finding.line for finding in check(*lines)] == [6]


def test_a_release_and_a_snooze_spend_no_retry() -> None:
    for event in ("worker_released", "execution_snoozed"):
        again = ("running", "retrying", event)
        assert check(*lifecycle("t1", QUEUE, START, *[again, AGAIN, START] * 9)) == []


def test_very_many_retries_are_fine_where_the_log_allows_them() -> None:
    lines = tries(70)
    lines[0]["metadata"]["max_retries"] = 100
    for count, each in enumerate(each for each in lines if each["to_state"] == "retrying"):
        each["metadata"]["retry_count"] = count + 1
    assert check(*lines) == []


@pytest.mark.req("R3-54")
def test_retry_count_never_falls() -> None:
    lines = [line(0, "t1", RETRY, retry_count=2), line(1, "t1", AGAIN), line(2, "t1", START, retry_count=1)]
    (finding,) = check(*lines)
    assert (finding.line, finding.message) == (3, "retry_count falls from 2 to 1")
    assert finding.legal == ["at least 2"]


def test_retry_count_does_not_fall_to_zero_either() -> None:
    lines = [line(0, "t1", RETRY, retry_count=1), line(1, "t1", AGAIN, retry_count=0)]
    assert [finding.line for finding in check(*lines)] == [2]


def test_a_retry_without_a_count_forgets_none() -> None:
    lines = [*lifecycle("t1", START, RETRY, retry_count=2), *lifecycle("t1", AGAIN, START, RETRY, at=2)]
    lines.append(line(9, "t1", AGAIN, retry_count=1))
    assert [finding.line for finding in check(*lines)] == [6]


def test_a_count_that_fell_is_told_once() -> None:
    lines = [line(0, "t1", RETRY, retry_count=2), *lifecycle("t1", AGAIN, START, at=1, retry_count=0)]
    assert [finding.line for finding in check(*lines)] == [2]


def test_no_retry_at_all_may_be_allowed_on_the_line_itself() -> None:
    text = "retry_count is 1, above max_retries 0"
    assert told(check(line(0, "t1", RETRY, retry_count=1, max_retries=0))) == [(1, "invariant", text)]


def test_an_illegal_move_is_not_a_retry() -> None:
    (finding,) = check(line(0, "t1", ("queued", "retrying", "execution_failed"), max_retries=0))
    assert finding.rule == "legality"


# The worker of a task.


@pytest.mark.req("R3-54")
def test_a_second_worker_is_reported() -> None:
    lines = [line(0, "t1", QUEUE), line(1, "t1", START, worker_id="w1")]
    assert check(*lines, line(2, "t1", FINISH, worker_id="w1")) == []
    assert check(*lines, line(2, "t1", FINISH)) == []
    (finding,) = check(*lines, line(2, "t1", FINISH, worker_id="w2"))
    assert (finding.line, finding.rule) == (3, "invariant")
    assert finding.message == "w2 is a second worker: it was assigned to w1"
    assert finding.legal == ["w1"]


@pytest.mark.req("R3-54")
def test_a_second_start_names_the_worker_that_has_the_task() -> None:
    lines = [line(0, "t1", START, worker_id="w1"), line(1, "t1", START, worker_id="w2")]
    (finding,) = check(*lines)
    assert finding.message.startswith("from_state is queued, but it is running on worker w1; legal now: ")


def test_another_worker_after_a_retry_is_fine() -> None:
    first, second = lifecycle("t1", START, RETRY, worker_id="w1"), lifecycle("t1", START, FINISH, at=3, worker_id="w2")
    assert check(*first, line(2, "t1", AGAIN), *second) == []


@pytest.mark.parametrize("move", [QUEUE, PASS, AGAIN])
def test_only_an_active_task_has_a_worker(move: tuple[str, str, str]) -> None:
    (finding,) = check(line(0, "t1", move, worker_id="w1"))
    assert (finding.rule, finding.message) == (
        "invariant",
        "it names worker w1, but only an active task has one",
    )
    assert check(line(0, "t1", move, worker_id=None)) == []


# Times.


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ((2, 1, None), "started_at 2024-01-01T00:00:01Z is before created_at 2024-01-01T00:00:02Z"),
        ((None, 2, 1), "completed_at 2024-01-01T00:00:01Z is before started_at 2024-01-01T00:00:02Z"),
        ((2, None, 1), "completed_at 2024-01-01T00:00:01Z is before created_at 2024-01-01T00:00:02Z"),
        ((1, 1, 1), ""),
        ((1, None, 2), ""),
        ((None, None, 2), ""),
    ],
)
def test_created_started_completed(times: tuple[int | None, ...], message: str) -> None:
    names = ("created_at", "started_at", "completed_at")
    given = {name: time and f"2024-01-01T00:00:0{time}Z" for name, time in zip(names, times, strict=True)}
    assert told(check(line(0, "t1", PASS, **given))) == ([(1, "invariant", message)] if message else [])


# Dependencies.


DONE = [QUEUE, START, FINISH, PASS]


@pytest.mark.req("R3-54")
@pytest.mark.parametrize("moves", [[QUEUE], [QUEUE, START], [QUEUE, START, FAIL], [QUEUE, START, CANCEL]])
def test_a_dependency_must_have_succeeded(moves: list[tuple[str, str, str]]) -> None:
    (finding,) = check(*lifecycle("t1", *moves), line(9, "t2", QUEUE, dependencies=["t1"]))
    assert (finding.line, finding.rule, finding.entity) == (len(moves) + 1, "invariant", "t2")
    assert finding.message == f"its dependency t1 is {moves[-1][1]}; it must be completed"
    assert finding.legal == ["completed"]


def test_a_dependency_that_has_succeeded_is_fine() -> None:
    assert check(*lifecycle("t1", *DONE), line(9, "t2", QUEUE, dependencies=["t1"]), from_birth=True) == []


def test_an_unseen_dependency_is_fine_unless_the_log_is_whole() -> None:
    raw = line(0, "t2", QUEUE, dependencies=["t0"])
    assert check(raw) == []
    text = "its dependency t0 has no line; it must be completed"
    assert told(check(raw, from_birth=True)) == [(1, "invariant", text)]


def test_dependencies_are_asked_for_on_the_way_to_a_worker_only() -> None:
    assert check(line(0, "t1", QUEUE), line(1, "t2", START, dependencies=["t1"])) == []


def test_a_dependency_may_complete_in_the_same_instant() -> None:
    passing, queueing = line(5, "t1", PASS), line(5, "t2", QUEUE, dependencies=["t1"])
    before = lifecycle("t1", QUEUE, START, FINISH)
    assert check(*before, queueing, passing) == []
    assert check(*before, passing, queueing) == []
    later = line(6, "t1", PASS)
    assert [finding.line for finding in check(*before, queueing, later)] == [4]


def test_a_dependency_whose_last_line_was_broken_may_be_anywhere() -> None:
    broken = line(0, "t1", QUEUE) | {"to_state": 5}
    assert [finding.line for finding in check(broken, line(1, "t2", QUEUE, dependencies=["t1"]))] == [1]


def test_the_instant_of_the_last_line_is_judged_as_well() -> None:
    assert len(check(line(0, "t1", QUEUE), line(0, "t2", QUEUE, dependencies=["t1"]))) == 1


def test_one_endless_instant_is_judged_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "LATER_MAX", 3)
    lines = [line(0, "t0", QUEUE)] + [line(0, f"t{n}", QUEUE, dependencies=["t0"]) for n in range(1, 9)]
    findings = check(*lines)
    assert [(finding.line, finding.entity) for finding in findings] == [(n + 1, f"t{n}") for n in range(1, 9)]


# Workers and their tasks.


def busy(*tasks: str, at: int = 0, **metadata: Any) -> Lines:
    return [line(at + step, task, START, worker_id="w1", **metadata) for step, task in enumerate(tasks)]


@pytest.mark.req("R3-54")
def test_a_worker_has_no_more_tasks_than_it_may() -> None:
    known = line(0, "w1", REGISTER, max_concurrent_tasks=2)
    assert check(known, *busy("t1", "t2", at=1)) == []
    (finding,) = check(known, *busy("t1", "t2", "t3", at=1))
    assert (finding.line, finding.entity) == (4, "t3")
    assert finding.message == "worker w1 has 3 tasks, above max_concurrent_tasks 2"
    assert finding.legal == ["at most 2"]


def test_a_task_may_tell_the_capacity_of_its_worker() -> None:
    assert len(check(*busy("t1", "t2", max_concurrent_tasks=1))) == 1
    assert check(*busy("t1", "t2")) == []


@pytest.mark.parametrize("move", [FINISH, RETRY, FAIL, CANCEL])
def test_every_way_out_frees_the_worker(move: tuple[str, str, str]) -> None:
    first, second = busy("t1", "t2", max_concurrent_tasks=1)
    second["timestamp"] = line(9, "t2", START)["timestamp"]
    assert check(first, line(1, "t1", move), second) == []


def test_a_worker_may_change_tasks_within_one_instant() -> None:
    first, second = busy("t1", "t2", max_concurrent_tasks=1)
    out = line(1, "t1", FINISH)
    assert check(first, second, out) == []
    assert check(first, out, second) == []


def test_one_lost_line_is_one_finding() -> None:
    """A task whose end was never written does not count for ever."""
    starts = busy("t1", "t2", max_concurrent_tasks=1)
    more = [line(2, "t2", FINISH), *busy("t3", at=3), line(4, "t3", FINISH), *busy("t4", at=5)]
    assert [finding.line for finding in check(*starts, *more)] == [2]


def test_each_task_too_many_is_a_finding() -> None:
    assert [finding.line for finding in check(*busy("t1", "t2", "t3", max_concurrent_tasks=1))] == [2, 3]


def test_a_broken_line_frees_the_worker_too() -> None:
    starts = busy("t1", "t2", max_concurrent_tasks=1)
    starts[1]["timestamp"] = line(9, "t2", START)["timestamp"]
    broken = line(1, "t1", FINISH) | {"trigger": None}
    assert [finding.line for finding in check(starts[0], broken, starts[1])] == [2]


@pytest.mark.req("R3-54")
@pytest.mark.parametrize(
    ("before", "move", "state"),
    [([], FREE, "idle"), ([SILENT], RECOVER, "idle"), ([], LEAVE, "shutdown")],
)
def test_a_worker_rests_without_tasks(
    before: list[tuple[str, str, str]], move: tuple[str, str, str], state: str
) -> None:
    rest = lifecycle("w1", ASSIGN, *before, move, at=1)
    (finding,) = check(*busy("t1"), *rest)
    assert (finding.line, finding.entity) == (1 + len(rest), "w1")
    assert finding.message == f"it is {state}, but 1 task on it did not end"
    out = line(0, "t1", FINISH)
    assert check(*busy("t1"), out, *rest) == []


def test_a_worker_that_falls_silent_keeps_its_tasks() -> None:
    assert check(*busy("t1"), *lifecycle("w1", ASSIGN, SILENT, at=1)) == []


def test_a_worker_and_its_last_task_may_stop_in_the_same_instant() -> None:
    begin = [*busy("t1"), line(1, "w1", ASSIGN)]
    free, out = line(2, "w1", FREE), line(2, "t1", FINISH)
    assert check(*begin, free, out) == check(*begin, out, free) == []


def test_a_worker_may_rest_and_begin_again_in_the_same_instant() -> None:
    begin = [line(0, "w1", ASSIGN), *busy("t1"), line(1, "t1", FINISH), line(1, "w1", FREE)]
    assert check(*begin, line(1, "w1", ASSIGN), *busy("t2", at=1)) == []


def test_a_rest_that_is_none_is_told_once() -> None:
    lines = [*busy("t1"), *lifecycle("w1", ASSIGN, FREE, ASSIGN, FREE, at=1)]
    assert [finding.line for finding in check(*lines)] == [3]


def test_a_task_that_was_written_off_counts_no_more_when_it_ends() -> None:
    written_off = [*busy("t1"), *lifecycle("w1", ASSIGN, FREE, ASSIGN, at=1), line(4, "t1", FINISH)]
    starts = busy("t2", "t3", at=5, max_concurrent_tasks=1)
    assert [finding.line for finding in check(*written_off, *starts)] == [3, 7]


@pytest.mark.req("R3-54")
def test_no_task_starts_on_a_worker_that_has_shut_down() -> None:
    (finding,) = check(line(0, "w1", DRAIN), *busy("t1", at=1))
    assert (finding.line, finding.entity) == (2, "t1")
    assert finding.message == "it is assigned to worker w1, which is shutdown"


def test_task_count_is_at_most_max_concurrent_tasks() -> None:
    assert check(line(0, "w1", ASSIGN, task_count=2, max_concurrent_tasks=2)) == []
    (finding,) = check(line(0, "w1", ASSIGN, task_count=3, max_concurrent_tasks=2))
    assert finding.message == "task_count is 3, above max_concurrent_tasks 2"
    assert finding.legal == ["at most 2"]


def test_a_worker_may_have_room_for_no_task_at_all() -> None:
    assert len(check(line(0, "w1", ASSIGN, task_count=1, max_concurrent_tasks=0))) == 1


def test_the_capacity_of_a_worker_is_remembered() -> None:
    lines = [line(0, "w1", REGISTER, max_concurrent_tasks=1), line(1, "w1", ASSIGN, task_count=2)]
    assert [finding.line for finding in check(*lines)] == [2]


def test_workers_beyond_the_last_number_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker.bits, "WORKERS_MAX", 1)
    starts = [line(at, f"t{at}", START, worker_id=f"w{at}", max_concurrent_tasks=0) for at in range(3)]
    assert [finding.line for finding in check(*starts)] == [1]


# Workstreams and their tasks.


def stream(*lines: dict[str, Any]) -> Lines:
    """A workstream that executes, and these lines of its tasks."""
    return [*lifecycle("s1", CREATED, BEGIN), *lines]


def of_s1(entity: str, *moves: tuple[str, str, str], at: int = 10, **metadata: Any) -> Lines:
    return lifecycle(entity, *moves, at=at, workstream_id="s1", **metadata)


@pytest.mark.req("R3-54")
@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ([QUEUE, START, FINISH], "it is validating, but of its tasks 1 did not end and 0 did not succeed"),
        ([QUEUE, START, FAIL], "it is validating, but of its tasks 0 did not end and 1 did not succeed"),
        ([QUEUE, START, CANCEL], "it is validating, but of its tasks 0 did not end and 1 did not succeed"),
        (DONE, ""),
    ],
)
def test_a_workstream_is_validated_when_its_tasks_have_succeeded(
    moves: list[tuple[str, str, str]], message: str
) -> None:
    tasks = [*of_s1("t1", *DONE), *of_s1("t2", *moves, at=20)]
    findings = check(*stream(*tasks), line(30, "s1", GATHER))
    assert [finding.message for finding in findings] == ([message] if message else [])
    assert all(finding.entity == "s1" for finding in findings)


def test_a_workstream_succeeds_when_its_tasks_have_succeeded() -> None:
    lines = [*stream(*of_s1("t1", *DONE)), line(20, "s1", GATHER), *of_s1("t2", QUEUE, at=21), line(22, "s1", MERGE)]
    assert told(check(*lines)) == [
        (9, "invariant", "it is completed, but of its tasks 1 did not end and 0 did not succeed")
    ]


def test_the_last_task_may_complete_in_the_same_instant() -> None:
    before = stream(*of_s1("t1", QUEUE, START, FINISH))
    passing, gather = line(20, "t1", PASS, workstream_id="s1"), line(20, "s1", GATHER)
    assert check(*before, gather, passing) == check(*before, passing, gather) == []


def test_a_task_need_name_its_workstream_only_once() -> None:
    tasks = [*of_s1("t1", QUEUE), *lifecycle("t1", START, FINISH, PASS, at=11)]
    assert check(*stream(*tasks), line(20, "s1", GATHER)) == []


def test_a_line_that_lost_its_task_does_not_hold_its_workstream() -> None:
    broken = line(11, "t1", START) | {"to_state": None}
    findings = check(*stream(*of_s1("t1", QUEUE)), broken, line(20, "s1", GATHER))
    assert [finding.rule for finding in findings] == ["schema"]


@pytest.mark.req("R3-54")
def test_a_critical_failure_takes_the_workstream_with_it() -> None:
    tasks = stream(*of_s1("t1", QUEUE, START, critical=True))
    failing = line(20, "t1", FAIL, workstream_id="s1")
    assert check(*tasks, failing, line(20, "s1", DOOM)) == []
    assert check(*tasks, line(20, "s1", DOOM), failing) == []
    (finding,) = check(*tasks, failing, line(21, "s1", DOOM))
    assert (finding.line, finding.entity) == (5, "t1")
    assert finding.message == "it is critical, but its workstream s1 is executing, not failed"
    assert finding.legal == ["failed"]


def test_a_failure_that_is_not_critical_goes_on() -> None:
    assert check(*stream(*of_s1("t1", QUEUE, START, FAIL))) == []


def test_a_workstream_without_lines_is_not_judged() -> None:
    assert check(*of_s1("t1", QUEUE, START, FAIL, critical=True)) == []


def test_a_workstream_first_named_by_a_task_is_known_by_its_lines() -> None:
    tasks = of_s1("t1", QUEUE, START, at=0, critical=True)
    lines = [*tasks, *lifecycle("s1", CREATED, BEGIN, at=5), line(20, "t1", FAIL)]
    assert [finding.line for finding in check(*lines)] == [5]
    assert [finding.line for finding in check(*tasks, *lifecycle("s1", CREATED, BEGIN, GATHER, at=5))] == [5]


def test_a_workstream_whose_last_line_was_broken_may_be_anywhere() -> None:
    tasks = of_s1("t1", QUEUE, START, critical=True)
    broken = line(15, "s1", DOOM) | {"to_state": None}
    assert [finding.rule for finding in check(*stream(*tasks), broken, line(20, "t1", FAIL))] == ["schema"]


def test_workstreams_beyond_the_last_number_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker.bits, "WORKSTREAMS_MAX", 1)
    lines = [line(n, f"t{n}", QUEUE, workstream_id=f"s{n}") for n in (1, 2)]
    lines += [line(9, f"s{n}", GATHER) for n in (1, 2)]
    assert [finding.line for finding in check(*lines)] == [3]


@pytest.mark.req("R3-54")
@pytest.mark.parametrize(("retry_count", "found"), [(0, True), (2, True), (3, False)])
def test_a_task_that_gives_up_too_early_is_found_by_the_letter(
    retry_count: int, found: bool, tmp_path: Path, interlock: Run
) -> None:
    """Without --strict a failure that is not retryable is legal; the document knows no such thing."""
    line = {
        "timestamp": "2024-01-15T10:30:00.000Z", "event_type": "task_state_transition", "severity": "error",
        "entity_id": "t", "from_state": "running", "to_state": "failed", "trigger": "execution_failed",
        "metadata": {"retry_count": retry_count, "max_retries": 3},
    }  # fmt: skip
    (tmp_path / "log").write_text(json.dumps(line) + "\n")
    assert interlock("validate-log", tmp_path / "log").returncode == 0
    done = interlock("validate-log", "--strict", tmp_path / "log")
    assert (done.returncode, "it gives up at retry_count" in done.stdout) == (int(found), found)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path, interlock: Run) -> None:
    (tmp_path / "log").write_bytes(b"\xef\xbb\xbf\n")
    assert interlock("validate-log", tmp_path / "log").returncode == 0
