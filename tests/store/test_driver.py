"""Statements that go past the driver's cursors: what comes of them, and what is left after an error."""

from collections.abc import Iterator

import psycopg
import pytest

from interlock.store.postgres import driver
from interlock.store.postgres.driver import PipelineConnection, number_parameters, open_raw


@pytest.fixture
def pipeline(server: str) -> Iterator[PipelineConnection]:
    pipeline = PipelineConnection(open_raw(server))
    yield pipeline
    pipeline.psycopg.close()


def prepared(pipeline: PipelineConnection) -> int:
    return int(pipeline.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()[0][0])


def together(pipeline: PipelineConnection, *statements: str) -> None:
    with pipeline.pipeline():
        for sql in statements:
            pipeline.execute(sql, {"n": 1})


def test_a_statement_is_numbered() -> None:
    text, names = number_parameters("SELECT %(b)s, %(a)s, %(b)s, 5 %% 2, 'x'::text")
    assert text == b"SELECT $1, $2, $1, 5 % 2, 'x'::text"
    assert names == ("b", "a")


def test_values_come_back_as_they_went(pipeline: PipelineConnection) -> None:
    sql = "SELECT %(none)s::text, %(text)s::text, %(small)s, %(large)s, %(ids)s::bigint[]"
    given = {"none": None, "text": 'Zoë\'s "%" \\ $1', "small": -7, "large": 2**40, "ids": "{1,2}"}
    assert pipeline.execute(sql, given).fetchall() == [(None, given["text"], -7, 2**40, [1, 2])]


def test_what_is_sent_together_is_answered_at_the_end(pipeline: PipelineConnection) -> None:
    with pipeline.pipeline():
        answers = [pipeline.execute("SELECT %(n)s", {"n": n}) for n in range(10)]
        assert all(answer.fetchall() == [] for answer in answers)
    assert [answer.fetchall() for answer in answers] == [[(n,)] for n in range(10)]


def test_more_than_fits_into_the_line_goes_both_ways(pipeline: PipelineConnection) -> None:
    text = "x" * 3_000_000
    with pipeline.pipeline():
        answers = [pipeline.execute("SELECT %(text)s::text", {"text": text}) for _ in range(8)]
    assert all(answer.fetchall() == [(text,)] for answer in answers)


def test_the_first_error_is_told_and_the_line_is_sound(pipeline: PipelineConnection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        together(pipeline, "BEGIN", "SELECT 1 / 0", "SELECT nothing FROM nowhere")
    pipeline.execute("ROLLBACK")
    assert pipeline.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_of_the_commit_itself_is_told(pipeline: PipelineConnection) -> None:
    """A statement by itself is committed when the pipeline ends, after it was answered."""
    pipeline.psycopg.execute("CREATE TEMP TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        pipeline.execute("INSERT INTO once VALUES (%(n)s), (%(n)s)", {"n": 1})
    assert pipeline.execute("SELECT count(*) FROM once").fetchall() == [(0,)]


def test_what_is_said_often_is_prepared_and_what_failed_is_not(pipeline: PipelineConnection) -> None:
    for n in range(driver.PREPARE_AFTER):
        pipeline.execute("SELECT 1 / %(n)s", {"n": n + 1})
    assert prepared(pipeline) == 0
    with pytest.raises(psycopg.errors.DivisionByZero):
        together(pipeline, "SELECT 1 / 0", "SELECT 1 / %(n)s")  # it would be prepared here, but is not even looked at
    assert prepared(pipeline) == 0
    assert pipeline.execute("SELECT 1 / %(n)s", {"n": 1}).fetchall() == [(1,)]
    assert prepared(pipeline) == 1


def test_a_line_that_has_prepared_too_much_begins_anew(
    pipeline: PipelineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "PREPARED_MAX", 5)
    for n in range(12):
        for _ in range(driver.PREPARE_AFTER + 2):
            assert pipeline.execute(f"SELECT {n} + %(n)s", {"n": 1}).fetchall() == [(n + 1,)]
    assert prepared(pipeline) <= 5


def test_nul_is_refused(pipeline: PipelineConnection) -> None:
    with pytest.raises(psycopg.DataError):
        pipeline.execute("SELECT %(text)s::text", {"text": "a\0b"})
    assert pipeline.execute("SELECT 1").fetchall() == [(1,)]


def test_a_connection_that_was_killed_is_closed(pipeline: PipelineConnection, server: str) -> None:
    with open_raw(server) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (pipeline.psycopg.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        pipeline.execute("SELECT 1")
    assert pipeline.closed


def test_an_interrupted_wait_closes_the_connection(
    pipeline: PipelineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "next_result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pipeline.execute("SELECT 1")
    assert pipeline.closed
