"""Timestamps never go back, over the whole file, compared as instants."""

import pytest

from tests.validate_log.logs import QUEUE, START, check, line, told


def at(*times: str) -> list[tuple[int, str, str]]:
    """What is wrong with a log of lines at these times of one day, each of another task."""
    lines = [line(0, f"t{n}", QUEUE) | {"timestamp": f"2024-01-15T{time}Z"} for n, time in enumerate(times)]
    return told(check(*lines))


@pytest.mark.req("R3-56")
def test_two_swapped_lines_are_reported() -> None:
    first, second, third = line(0, "t1", QUEUE), line(1, "t2", QUEUE), line(2, "t1", START)
    assert check(first, second, third) == []
    (finding,) = check(second, first, third)
    assert (finding.line, finding.rule, finding.entity) == (2, "timestamps", "t1")
    assert finding.message == (
        "2024-01-15T10:30:00.000Z is before 2024-01-15T10:30:00.001Z, the time of the line before it"
    )
    assert finding.legal == ["2024-01-15T10:30:00.001Z or later"]


@pytest.mark.req("R3-56")
@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("10:30:00", "10:30:00.1"),
        ("10:30:00.9", "10:30:01"),
        ("10:30:00.09", "10:30:00.1"),
        ("10:30:00.123456788", "10:30:00.123456789"),
        ("10:30:00.5", "10:30:00.50001"),
        ("23:59:59.999", "23:59:60"),
        ("09:59:59", "10:00:00"),
    ],
)
def test_times_are_compared_as_instants(earlier: str, later: str) -> None:
    assert at(earlier, later) == []
    assert [(number, rule) for number, rule, _ in at(later, earlier)] == [(2, "timestamps")]


@pytest.mark.parametrize(
    "same", [("10:30:00", "10:30:00.000"), ("10:30:00.5", "10:30:00.500"), ("10:30:00", "10:30:00")]
)
def test_the_same_instant_may_be_written_differently(same: tuple[str, str]) -> None:
    assert at(*same) == at(*reversed(same)) == []


def test_one_step_back_is_one_finding() -> None:
    assert [number for number, *_ in at("10:00:00", "09:00:00", "09:00:01", "09:00:02")] == [2]
    assert [number for number, *_ in at("10:00:00", "23:00:00", "10:00:01", "10:00:02")] == [3]


def test_a_time_that_is_none_is_passed_over() -> None:
    assert [(number, rule) for number, rule, _ in at("10:00:00", "25:00:00", "10:00:00", "09:00:00")] == [
        (2, "schema"),
        (4, "timestamps"),
    ]


def test_a_broken_line_has_its_time_too() -> None:
    broken = line(5, "t1", QUEUE) | {"trigger": None}
    assert [(finding.line, finding.rule) for finding in check(broken, line(4, "t2", QUEUE))] == [
        (1, "schema"),
        (2, "timestamps"),
    ]
