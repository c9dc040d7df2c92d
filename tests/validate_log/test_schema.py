"""Every fault in the shape of a line is reported, and the rest of the log is still checked."""

import io
import json
from random import Random
from typing import Any

import pytest

from interlock.audit.log.checker import Checker
from tests.validate_log.logs import (
    AGAIN,
    CREATED,
    FINISH,
    LIFECYCLES,
    PASS,
    QUEUE,
    REGISTER,
    RETRY,
    START,
    check,
    check_bytes,
    line,
    text,
    told,
)

FIELDS = ["timestamp", "event_type", "severity", "entity_id", "from_state", "to_state", "trigger", "metadata"]
GOOD = json.dumps(line(0, "t1", QUEUE)).encode() + b"\n"


@pytest.mark.req("R3-55")
@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_the_only_finding(field: str) -> None:
    lines = [line(at, "t1", move) for at, move in enumerate([QUEUE, START, FINISH, PASS])]
    assert check(*lines) == []
    del lines[1][field]
    findings = [finding for finding in check(*lines) if finding.line == 2]
    assert [(finding.rule, finding.message.split(";")[0]) for finding in findings] == [
        ("schema", f"{field} is missing")
    ]
    # Without its type or its name nobody can say whom a line moved, so the next one seems to jump.
    later = [finding for finding in check(*lines) if finding.line != 2]
    assert bool(later) == (field in ("event_type", "entity_id"))


def test_a_line_without_a_type_is_reported_once() -> None:
    raw = line(0, "t1", QUEUE)
    del raw["event_type"]
    assert told(check(raw)) == [(1, "schema", "event_type is missing; a string is wanted")]


@pytest.mark.req("R3-55")
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("timestamp", 5, "timestamp is 5; a string is wanted"),
        ("event_type", None, "event_type is null; a string is wanted"),
        ("severity", "fatal", 'severity is "fatal"; one of info, warning, error, critical is wanted'),
        ("severity", ["info"], 'severity is ["info"]; one of info, warning, error, critical is wanted'),
        ("entity_id", "", 'entity_id is ""; a string that is not empty is wanted'),
        ("entity_id", 7, "entity_id is 7; a string that is not empty is wanted"),
        ("from_state", 7, "from_state is 7; a string, or null for a creation, is wanted"),
        ("to_state", None, "to_state is null; a string is wanted"),
        ("trigger", {}, "trigger is {}; a string is wanted"),
        ("metadata", [], "metadata is []; an object is wanted"),
        ("metadata", None, "metadata is null; an object is wanted"),
    ],
)
def test_a_field_of_the_wrong_kind(field: str, value: Any, message: str) -> None:
    assert told(check(line(0, "t1", QUEUE) | {field: value})) == [(1, "schema", message)]


COUNT = "an integer of at least 0 is wanted"


@pytest.mark.req("R3-55")
@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("retry_count", -1, f"is -1; {COUNT}"),
        ("retry_count", 1.5, f"is 1.5; {COUNT}"),
        ("retry_count", True, f"is true; {COUNT}"),
        ("retry_count", None, f"is null; {COUNT}"),
        ("max_retries", "3", f'is "3"; {COUNT}'),
        ("task_count", -2, f"is -2; {COUNT}"),
        ("max_concurrent_tasks", [], f"is []; {COUNT}"),
        ("duration_seconds", -0.5, "is -0.5; a number of at least 0 is wanted"),
        ("duration_seconds", "4", 'is "4"; a number of at least 0 is wanted'),
        ("created_at", 4, "is 4; a string or null is wanted"),
        ("started_at", {}, "is {}; a string or null is wanted"),
        ("completed_at", False, "is false; a string or null is wanted"),
        ("worker_id", 4, "is 4; a string or null is wanted"),
        ("workstream_id", None, "is null; a string is wanted"),
        ("dependencies", "t1", 'is "t1"; a list of strings is wanted'),
        ("dependencies", ["t1", 2], 'is ["t1",2]; a list of strings is wanted'),
        ("critical", "yes", 'is "yes"; true or false is wanted'),
    ],
)
def test_metadata_of_the_wrong_kind(field: str, value: Any, message: str) -> None:
    assert told(check(line(0, "t1", QUEUE, **{field: value}))) == [(1, "schema", f"metadata.{field} {message}")]


def test_metadata_of_any_other_name_is_free() -> None:
    assert check(line(0, "t1", QUEUE, note=None, seq=[1, {"a": -1}], worker_id=None, created_at=None)) == []


def test_every_fault_of_a_line_is_reported() -> None:
    raw = line(0, "t1", QUEUE, retry_count=-1, critical=1) | {"severity": "loud"}
    del raw["trigger"]
    assert [finding.message.split(" is ")[0] for finding in check(raw)] == [
        "severity",
        "trigger",
        "metadata.retry_count",
        "metadata.critical",
    ]


def test_a_line_of_a_wrong_shape_is_still_held_against_the_rules() -> None:
    findings = check(line(0, "t1", ("running", "completed", "execution_completed"), retry_count=-1))
    assert [finding.rule for finding in findings] == ["schema", "legality"]


def test_a_misshapen_fact_is_left_out() -> None:
    assert len(check(line(0, "t1", QUEUE), line(1, "t1", START, retry_count="9", worker_id="w1"))) == 1


@pytest.mark.parametrize("field", ["to_state", "trigger", "from_state"])
def test_one_broken_line_gives_one_finding(field: str) -> None:
    """The entity is where the broken line says, or anywhere if it does not say."""
    lines = [line(at, "t1", move) for at, move in enumerate([QUEUE, START, FINISH])]
    lines[1][field] = 5
    assert [finding.line for finding in check(*lines)] == [2]


def test_a_broken_line_still_moves_its_entity() -> None:
    lines = [line(at, "t1", move) for at, move in enumerate([QUEUE, START, PASS])]
    del lines[1]["trigger"]
    assert [(finding.line, finding.rule) for finding in check(*lines)] == [(2, "schema"), (3, "invariant")]


def test_unknown_fields_are_free_unless_strict() -> None:
    raw = line(0, "t1", QUEUE) | {"seq": 1, "a\x1b": 2}
    assert check(raw) == []
    assert told(check(raw, strict=True)) == [
        (1, "schema", "'a\\x1b' is not a field of the document"),
        (1, "schema", "seq is not a field of the document"),
    ]


def test_strict_goes_on_after_an_unknown_field() -> None:
    raw = line(0, "t1", ("queued", "cancelled", "user_cancelled")) | {"seq": 1}
    assert [finding.rule for finding in check(raw, strict=True)] == ["schema", "legality"]
    raw = line(0, "t1", RETRY) | {"severity": "loud"}
    assert [finding.message[:16] for finding in check(raw, strict=True)] == ['severity is "lou']


TIME = "a UTC time such as 2024-01-15T10:30:00.000Z is wanted"
BAD_TIMES = [
    "2024-01-15T10:30:00",
    "2024-01-15 10:30:00Z",
    "2024-01-15T10:30:00+00:00",
    "2024-01-15T10:30:00z",
    "2024-02-30T10:30:00Z",
    "2023-02-29T10:30:00Z",
    "2024-13-01T10:30:00Z",
    "0000-01-01T10:30:00Z",
    "2024-01-15T24:00:00Z",
    "2024-01-15T10:60:00Z",
    "2024-01-15T10:30:60Z",
    "2024-01-15T10:30Z",
    "2024-01-15T10:30:00.Z",
    "2024-01-15T10:30:00.1234567890Z",
    "٢٠٢٤-01-15T10:30:00Z",
    "2024-01-15T10:30:00.000Z ",
    "2024-01-15T10:30:00.000Z\n",
    "20240115T103000Z",
    "now",
    "",
]
GOOD_TIMES = [
    "2024-01-15T10:30:00Z",
    "2024-02-29T10:30:00.1Z",
    "2024-01-15T10:30:00.123456789Z",
    "2016-12-31T23:59:60Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999Z",
]


@pytest.mark.req("R3-55")
@pytest.mark.parametrize("time", BAD_TIMES)
@pytest.mark.parametrize("field", ["timestamp", "created_at", "started_at", "completed_at"])
def test_what_is_no_time(field: str, time: str) -> None:
    raw = line(0, "t1", QUEUE) | ({"timestamp": time} if field == "timestamp" else {"metadata": {field: time}})
    (finding,) = check(raw)
    assert finding.rule == "schema"
    assert finding.message.startswith(f"{'metadata.' * (field != 'timestamp')}{field} is ")
    assert finding.message.endswith(TIME)


@pytest.mark.parametrize("time", GOOD_TIMES)
def test_what_is_a_time(time: str) -> None:
    assert check(line(0, "t1", QUEUE, created_at=time) | {"timestamp": time}) == []


@pytest.mark.req("R3-55")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{\n", "it is not JSON that can be read: "),
        (b"nonsense\n", "it is not JSON that can be read: "),
        (b"\xef\xbb\xbf{}\n", "it is not JSON that can be read: "),
        (GOOD.strip() + GOOD, "it is not JSON that can be read: "),
        (b'{"a": NaN}\n', "it is not JSON that can be read: "),
        (b'{"entity_id": "\\ud800"}\n', "it is not JSON that can be read: "),
        (b'{"a":' * 5000 + b"\n", "it is not JSON that can be read: "),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "it is not JSON that can be read: "),
        (b"\xff\xfe{\x00}\x00\n", "it is not UTF-8 text"),
        (GOOD.replace(b'{"timestamp"', b'{"note": "\xff", "timestamp"'), "it is not UTF-8 text"),
        (b"[1, 2]\n", "it is [1, 2]; an object is wanted"),
        (b"null\n", "it is null; an object is wanted"),
        (b'"text"\n', 'it is "text"; an object is wanted'),
        (b"\x00\x00\x00\n", "it is not JSON that can be read: "),
        (b'{"a":"' + b"x" * (1 << 20) + b'"}\n', "it is longer than 1048576 bytes and was skipped"),
        (GOOD.strip() + b" " * (3 << 20) + b"\n", "it is longer than 1048576 bytes and was skipped"),
    ],
)
def test_what_is_no_line_at_all(raw: bytes, message: str) -> None:
    log = GOOD + raw + text([line(1, "t1", START), line(2, "t1", ("running", "completed", "x"))]).encode()
    first, second = check_bytes(log)
    assert (first.line, first.rule, first.entity) == (2, "schema", "")
    assert first.message.startswith(message)
    assert (second.line, second.rule) == (4, "legality")


def test_deep_values_never_stop_the_checker() -> None:
    for depth in range(900, 1010):
        nested = b'{"metadata": {"retry_count": ' + b"[" * depth + b"]" * depth + b"}}\n"
        assert {finding.rule for finding in check_bytes(nested)} == {"schema"}


def test_huge_numbers_never_stop_the_checker() -> None:
    assert check_bytes(GOOD.replace(b"{}", b'{"duration_seconds": 1e999}'))[0].rule == "schema"
    assert check_bytes(GOOD.replace(b"{}", b'{"duration_seconds": %s}' % (b"9" * 400)))[0].rule == "schema"
    assert check_bytes(GOOD.replace(b"{}", b'{"duration_seconds": %s}' % (b"9" * 30))) == []
    huge = check_bytes(GOOD.replace(b"{}", b'{"retry_count": %s}' % (b"9" * 4000)))
    assert [finding.rule for finding in huge] == ["invariant"]
    assert len(huge[0].message) < 300
    limits = b'{"max_retries": %s, "max_concurrent_tasks": %s, "worker_id": "w1"}' % ((b"9" * 4000,) * 2)
    start = json.dumps(line(0, "t1", START)).encode() + b"\n"
    assert check_bytes(start.replace(b"{}", limits)) == []


def test_a_line_of_exactly_the_longest_length_is_read() -> None:
    padded = GOOD.strip() + b" " * ((1 << 20) - len(GOOD)) + b"\n"
    assert len(padded) == 1 << 20
    assert check_bytes(padded) == []
    assert len(check_bytes(b" " + padded)) == 1


def test_names_are_shown_short_and_without_escape_sequences() -> None:
    (finding,) = check(line(0, "t\x1b[31m\n", ("running", "completed", "\x07" * 500)))
    assert finding.entity == "'t\\x1b[31m\\n'"
    assert "\x07" not in finding.message
    assert len(finding.message) < 600
    (finding,) = check(line(0, "t" * 5000, ("running", "completed", "x")))
    assert len(finding.entity) == 80
    (finding,) = check(line(0, "täsk-ü", ("running", "completed", "x")))
    assert finding.entity == "täsk-ü"
    (finding,) = check(line(0, "t" * 300, QUEUE), line(0, "t2", QUEUE, dependencies=["t" * 300] * 2))
    assert finding.message == f"its dependency '{'t' * 78}… is queued; it must be completed"
    (finding, *_) = check(line(0, "t\u202eksat", ("", "completed", "x")))
    assert finding.entity == "'t\\u202eksat'"
    assert finding.message.startswith("'' is not a state of a task")


def test_blank_lines_are_skipped_but_numbered_and_the_last_needs_no_newline() -> None:
    raw = json.dumps(line(0, "t1", ("running", "completed", "x"))).encode()
    assert [finding.line for finding in check_bytes(b"\n  \r\n\t\n" + raw)] == [4]
    assert check_bytes(b"") == check_bytes(b"\n\n") == []
    assert check_bytes(GOOD.replace(b"\n", b"\r\n")) == []


def test_each_machine_has_its_own_names() -> None:
    assert check(line(0, "s1", CREATED), line(0, "w1", REGISTER), line(0, "t1", AGAIN)) == []
    assert len(check(line(0, "s1", QUEUE))) == 2


def test_no_spoilt_log_stops_the_checker() -> None:
    """Whatever bytes a log is made of, it is read to its end; the same seeds every time."""
    good = bytearray(
        text(
            [
                line(0, "s1", CREATED, workstream_id="s1"),
                line(1, "w1", REGISTER, max_concurrent_tasks=1, task_count=1),
                line(2, "t1", QUEUE, dependencies=["t0"], retry_count=1, max_retries=2, workstream_id="s1"),
                line(3, "t1", START, worker_id="w1", critical=True, created_at="2024-01-15T10:30:00Z"),
                line(4, "t1", RETRY, worker_id="w1", duration_seconds=1.5, note={"a": [1, None]}),
            ]
        ).encode()
    )
    for seed in range(400):
        random, spoilt = Random(seed), bytearray(good)
        for _ in range(random.randint(1, 6)):
            place = random.randrange(len(spoilt))
            spoilt[place : place + random.randint(0, 3)] = random.choice(
                [b"", b'"', b"}", b"[", b"\xff", b"\n", b"9", b"null"]
            )
        checker = Checker(LIFECYCLES, strict=seed % 2 == 0, from_birth=seed % 3 == 0)
        findings = list(checker.findings(io.BytesIO(spoilt)))
        assert checker.number == spoilt.count(b"\n") + (not spoilt.endswith(b"\n"))
        assert all(1 <= finding.line <= checker.number for finding in findings)
