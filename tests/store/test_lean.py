"""Statements that go past the driver's cursors: what comes of them, and what is left after an error."""

from collections.abc import Iterator

import psycopg
import pytest

from interlock.store import lean
from interlock.store.driver import opened
from interlock.store.lean import Lean, numbered


@pytest.fixture
def line(server: str) -> Iterator[Lean]:
    line = Lean(opened(server))
    yield line
    line.raw.close()


def prepared(line: Lean) -> int:
    return int(line.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()[0][0])


def together(line: Lean, *statements: str) -> None:
    with line.pipeline():
        for sql in statements:
            line.execute(sql, {"n": 1})


def test_a_statement_is_numbered() -> None:
    text, names = numbered("SELECT %(b)s, %(a)s, %(b)s, 5 %% 2, 'x'::text")
    assert text == b"SELECT $1, $2, $1, 5 % 2, 'x'::text"
    assert names == ("b", "a")


def test_values_come_back_as_they_went(line: Lean) -> None:
    sql = "SELECT %(none)s::text, %(text)s::text, %(small)s, %(large)s, %(ids)s::bigint[]"
    given = {"none": None, "text": 'Zoë\'s "%" \\ $1', "small": -7, "large": 2**40, "ids": "{1,2}"}
    assert line.execute(sql, given).fetchall() == [(None, given["text"], -7, 2**40, [1, 2])]


def test_what_is_sent_together_is_answered_at_the_end(line: Lean) -> None:
    with line.pipeline():
        answers = [line.execute("SELECT %(n)s", {"n": n}) for n in range(10)]
        assert all(answer.fetchall() == [] for answer in answers)
    assert [answer.fetchall() for answer in answers] == [[(n,)] for n in range(10)]


def test_more_than_fits_into_the_line_goes_both_ways(line: Lean) -> None:
    text = "x" * 3_000_000
    with line.pipeline():
        answers = [line.execute("SELECT %(text)s::text", {"text": text}) for _ in range(8)]
    assert all(answer.fetchall() == [(text,)] for answer in answers)


def test_the_first_error_is_told_and_the_line_is_sound(line: Lean) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        together(line, "BEGIN", "SELECT 1 / 0", "SELECT nothing FROM nowhere")
    line.execute("ROLLBACK")
    assert line.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_of_the_commit_itself_is_told(line: Lean) -> None:
    """A statement by itself is committed when the pipeline ends, after it was answered."""
    line.raw.execute("CREATE TEMP TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        line.execute("INSERT INTO once VALUES (%(n)s), (%(n)s)", {"n": 1})
    assert line.execute("SELECT count(*) FROM once").fetchall() == [(0,)]


def test_what_is_said_often_is_prepared_and_what_failed_is_not(line: Lean) -> None:
    for n in range(lean.PREPARE_AFTER):
        line.execute("SELECT 1 / %(n)s", {"n": n + 1})
    assert prepared(line) == 0
    with pytest.raises(psycopg.errors.DivisionByZero):
        together(line, "SELECT 1 / 0", "SELECT 1 / %(n)s")  # it would be prepared here, but is not even looked at
    assert prepared(line) == 0
    assert line.execute("SELECT 1 / %(n)s", {"n": 1}).fetchall() == [(1,)]
    assert prepared(line) == 1


def test_a_line_that_has_prepared_too_much_begins_anew(line: Lean, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lean, "PREPARED_MAX", 5)
    for n in range(12):
        for _ in range(lean.PREPARE_AFTER + 2):
            assert line.execute(f"SELECT {n} + %(n)s", {"n": 1}).fetchall() == [(n + 1,)]
    assert prepared(line) <= 5


def test_nul_is_refused(line: Lean) -> None:
    with pytest.raises(psycopg.DataError):
        line.execute("SELECT %(text)s::text", {"text": "a\0b"})
    assert line.execute("SELECT 1").fetchall() == [(1,)]


def test_a_connection_that_was_killed_is_closed(line: Lean, server: str) -> None:
    with opened(server) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (line.raw.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        line.execute("SELECT 1")
    assert line.closed


def test_an_interrupted_wait_closes_the_connection(line: Lean, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(line, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        line.execute("SELECT 1")
    assert line.closed
