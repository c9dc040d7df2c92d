"""Rows come back as they were sent, whatever they say and however few parameters they were sent as."""

import random
from pathlib import Path

import pytest

from interlock.kernel.rows import Skipped
from interlock.store.postgres.bulk import FEW, PATTERNS_MAX, Given, encode_array_literal
from tests.store.databases import fresh

WORDS = (
    "",
    "NULL",
    "null",
    '"',
    "\\",
    '\\"',
    "{}",
    "{a,b}",
    "a,b",
    "'",
    "%s",
    "%(x)s",
    " ",
    "\n",
    "\t",
    "ä€𝄞",
    "a" * 300,
)


def skipped(number: int, chance: random.Random, words: tuple[str, ...]) -> Skipped:
    return Skipped(
        id=number, tenant=1, schedule=chance.choice(words), first_at=chance.randrange(-9, 9), last_at=number * 3,
        count=chance.choice((1, 2)), reason=chance.choice(words), at=2**62, expires=5,
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, FEW + 1, 400])
@pytest.mark.parametrize("words", [WORDS, WORDS[:3], ("same",)])
def test_rows_come_back_as_they_were_sent(tmp_path: Path, server: str, count: int, words: tuple[str, ...]) -> None:
    chance = random.Random(count)
    rows = [skipped(number, chance, words) for number in range(count)]
    with fresh("postgres", tmp_path, server) as connection:
        connection.begin([1])
        connection.insert(rows)
        for row in rows:
            row.reason, row.count = chance.choice(words), row.count + 1
        connection.update(rows, ("reason", "count"), "id")
        found = connection.rows("SELECT id, schedule, first_at, count, reason FROM skipped ORDER BY id")
        connection.rollback()
    assert found == [(row.id, row.schedule, row.first_at, row.count, row.reason) for row in rows]


def test_what_rows_share_is_sent_once() -> None:
    rows = [(number, 1, "ab"[number % 2], "cd"[number % 2]) for number in range(FEW + 1)]
    given = Given(Skipped, ("id", "tenant", "schedule", "reason"), rows)
    assert given.shared == {"tenant": 1}
    assert given.few == {"schedule": ("a", "b"), "reason": ("c", "d")}
    assert list(given.own) == ["id", "pattern"]


def test_words_that_do_not_go_together_are_sent_one_by_one() -> None:
    chance = random.Random(1)
    rows = [(n, chance.randrange(PATTERNS_MAX), chance.randrange(PATTERNS_MAX)) for n in range(500)]
    given = Given(Skipped, ("id", "count", "first_at"), rows)
    assert not given.few
    assert list(given.own) == ["id", "count", "first_at"]


def test_an_array_is_written_as_postgresql_reads_it() -> None:
    assert encode_array_literal([]) == "{}"
    assert encode_array_literal([1, None, -3]) == "{1,NULL,-3}"
    assert encode_array_literal(["a", None, 'b"\\']) == '{"a",NULL,"b\\"\\\\"}'
    assert encode_array_literal(["NULL", ""]) == '{"NULL",""}'
