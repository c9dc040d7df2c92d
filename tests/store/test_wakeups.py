"""A commit may tell that there is work, but so seldom that commits which tell are never in each other's way."""

from typing import Any

import pytest

from interlock.store.postgres.wakeups import CHANNEL, QUIET, SHARE, Notify

QUEUES = [(1, "default")]


class Clock:
    """A wire that tells with commits, and a time that passes when it is told to."""

    def __init__(self) -> None:
        self.now, self.sent = 1_000.0, list[Any]()
        self.wire = Notify("postgresql://nowhere", lambda: self.now)

    def many(self, sql: str, rows: list[dict[str, Any]]) -> None:
        self.sent += rows

    def tells(self, took: float = 0.0) -> bool:
        """Whether a transaction tells by its commit, which takes so long."""
        told = self.wire.tell_within(self, QUEUES)  # type: ignore[arg-type]
        self.now += took
        if told:
            told()
        return told is not None


def test_what_follows_at_once_is_told_otherwise() -> None:
    clock = Clock()
    assert clock.tells()
    for _ in range(10):  # it is not quiet as long as they go on
        clock.now += QUIET * 0.9
        assert not clock.tells()
    clock.now += QUIET
    assert clock.tells()
    assert clock.sent == [{"channel": CHANNEL, "text": '[[1,"default"]]'}] * 2


@pytest.mark.parametrize("took", [0.0, 0.001, 0.1, 5.0])
def test_commits_that_tell_take_a_small_share_of_the_time(took: float) -> None:
    clock = Clock()
    began, told = clock.now, 0
    while clock.now - began < 100 * max(took, QUIET):
        told += clock.tells(took)
        clock.now += QUIET
    assert told >= 1
    assert told * took <= (clock.now - began) / SHARE + took


def test_a_commit_that_never_came_is_no_reason_to_be_silent() -> None:
    clock = Clock()
    assert clock.wire.tell_within(clock, QUEUES)  # type: ignore[arg-type]
    clock.now += QUIET
    assert clock.tells()
