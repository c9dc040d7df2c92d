"""The ledger remembers what it was told, for any number of entities, and says what it does not follow."""

import dataclasses
import io
from random import Random

import pytest

from interlock.audit.log import state
from interlock.audit.log.checker import Checker
from interlock.audit.log.state import EntityStates, LogMachine, key
from interlock.kernel.errors import InterlockError
from tests.validate_log.logs import LIFECYCLES, QUEUE, START, line, text


def test_it_remembers_the_last_value_of_each_entity() -> None:
    random, book = Random(7), EntityStates()
    told: dict[int, int] = {}
    for _ in range(50_000):
        entity = key("task", f"task-{random.randrange(20_000)}")
        assert book.get(entity) == told.get(entity, 0)
        told[entity] = random.getrandbits(63)
        book.put(entity, told[entity])
    assert sum(map(len, book.keys)) == sum(map(len, book.values)) == len(told)
    assert all(book.get(entity) == value for entity, value in told.items())


def test_neighbours_in_one_segment_are_told_apart() -> None:
    book = EntityStates()
    for entity in (5, 3, 9, 1):
        book.put(entity, entity * 10)
    book.put(3, 33)
    assert [book.get(entity) for entity in (1, 2, 3, 5, 9, 10)] == [10, 0, 33, 50, 90, 0]


def test_entities_spread_over_all_segments() -> None:
    book = EntityStates()
    for number in range(40_960):
        book.put(key("task", f"task-{number}"), 1)
    assert max(map(len, book.keys)) < 60


def test_what_is_not_followed_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "WORKERS_MAX", 1)
    monkeypatch.setattr(state, "WORKSTREAMS_MAX", 1)
    checker = Checker(LIFECYCLES)
    lines = [line(n, f"t{n}", START, worker_id=f"w{n}", workstream_id=f"s{n}") for n in range(3)]
    assert list(checker.findings(io.BytesIO(text(lines).encode()))) == []
    assert checker.ledger.not_followed == 4


def test_what_was_seen_is_counted() -> None:
    checker = Checker(LIFECYCLES)
    lines = [line(0, "t1", QUEUE), line(1, "t1", START), line(2, "t2", START, worker_id="w1", workstream_id="s1")]
    assert list(checker.findings(io.BytesIO(text(lines).encode()))) == []
    assert (checker.lines, checker.entities, checker.mid_life) == (3, 2, 1)


def test_a_lifecycle_of_too_many_states_is_refused() -> None:
    lifecycle = LIFECYCLES[0]
    some = next(iter(lifecycle.states.values()))
    states = {**lifecycle.states, **{f"extra{n}": some for n in range(61 - len(lifecycle.states))}}
    assert LogMachine(dataclasses.replace(lifecycle, states=states))
    with pytest.raises(InterlockError, match="has more than 61 states"):
        LogMachine(dataclasses.replace(lifecycle, states={**states, "last": some}))
