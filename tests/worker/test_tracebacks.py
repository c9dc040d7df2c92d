"""The traceback of a failed attempt: kept, bounded, without secrets, and logged once with the id that users see."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

import interlock
from interlock.client.why import explain
from interlock.core.notes import TRACEBACK
from interlock.kernel.commands import TRACEBACK_MAX
from interlock.store.queries.views import notes_of
from interlock.worker.context import JobContext
from interlock.worker.process import InProcess
from interlock.worker.tracebacks import format_traceback
from tests.worker import chores
from tests.worker.note_receiver import NoteReceiver, carry_out
from tests.worker.stage import PATIENCE, error, opened, until, working

KEY = f"ilk_1_4r1_{'ab' * 32}"


def tracebacks(job: interlock.Job) -> list[tuple[str, str]]:
    """For each failed attempt its number and its traceback."""
    notes = [note for note in job.app.read(notes_of, job.unit) if note.kind == TRACEBACK]
    return [(note.name, json.loads(note.payload)) for note in notes]


def failing(url: str, raises: Callable[[interlock.Context], Any], **options: Any) -> tuple[str, str, str]:
    """What is kept of the one attempt of a handler: its error, its traceback, and what `why` says."""

    async def story(app: interlock.App) -> tuple[str, str, str]:
        @app.task(attempts=1)
        async def fails(ctx: interlock.Context) -> None:
            raises(ctx)

        job = fails.submit()
        async with working(app):
            with pytest.raises(interlock.Failed):
                await job.wait.aio(PATIENCE)
        ((attempt, text),) = tracebacks(job)
        assert attempt == "1"
        return error(job), text, app.why(job.unit)

    with opened(url) as app:
        app.redact = options.get("redact")
        return asyncio.run(story(app))


def test_every_failed_attempt_keeps_its_traceback(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "interlock.worker")

    async def story(app: interlock.App) -> None:
        def look_up(place: str) -> NoReturn:
            raise LookupError(f"nothing at {place}")

        @app.task(attempts=2, backoff="1ms")
        async def on_loop(place: str) -> None:
            look_up(place)

        @app.task(attempts=2, backoff="1ms")
        def in_thread(place: str) -> None:
            look_up(place)

        jobs = [on_loop.submit("home"), in_thread.submit("home")]
        async with working(app):
            await until(lambda: all(job.look().outcome for job in jobs))
        for job, handler in zip(jobs, ("on_loop", "in_thread"), strict=True):
            kept = tracebacks(job)
            assert [attempt for attempt, _ in kept] == ["1", "2"]
            for _, text in kept:
                head, *lines, last = text.splitlines()
                assert head == "Traceback (most recent call last):"
                assert f"in {handler}" in lines[0], "it begins with the handler"
                assert any("in look_up" in line for line in lines)
                assert last == "LookupError: nothing at home"
            assert app.read(explain, app.lifecycles, job.unit).traceback == kept[-1][1]
            logged = [record for record in caplog.records if job.id in record.getMessage()]
            told = [record for record in logged if "in look_up" in record.getMessage()]
            assert [record.facts["attempt"] for record in told] == [1, 2]  # type: ignore[attr-defined]
            assert {record.facts["id"] for record in told} == {job.id}  # type: ignore[attr-defined]
            assert job.id.startswith("job_")

    with opened(url) as app:
        asyncio.run(story(app))


def test_the_traceback_of_another_process_is_the_handlers(desk_run: Callable[[Any], BaseException]) -> None:
    text = format_traceback(desk_run(chores.fail_deeply))
    assert text.splitlines()[-1] == "ArithmeticError: too deep"
    assert "in deeper" in text
    assert "chores.py" in text
    assert "interlock/worker" not in text


@pytest.fixture
def desk_run() -> Callable[[Any], BaseException]:
    """Runs a task in a process of its own, and gives what it raised."""

    def run(task: Any) -> BaseException:
        async def story() -> BaseException:
            pool = InProcess(1)
            try:
                await carry_out(pool, task, NoteReceiver().context())
            except Exception as raised:
                return raised
            finally:
                await pool.close()
            raise AssertionError("it should have failed")

        return asyncio.run(story())

    return run


def test_an_exception_that_cannot_say_what_it_is_passes_between_processes(
    desk_run: Callable[[Any], BaseException],
) -> None:
    raised = desk_run(chores.fail_without_words)
    assert type(raised).__name__ == "Mute"
    assert "it cannot say what it is" in str(raised)


def test_a_long_traceback_keeps_its_head_and_its_tail(url: str) -> None:
    def raises(ctx: interlock.Context) -> None:
        raise ValueError("€" * 100_000 + "the end")

    said, text, _ = failing(url, raises)
    assert said.startswith("ValueError: €")
    assert len(text.encode()) <= TRACEBACK_MAX
    assert text.startswith("Traceback (most recent call last):")
    assert text.endswith("the end")
    assert "bytes were cut here" in text


@pytest.mark.parametrize("kind", ["mute", "surrogate", "zero"])
def test_no_exception_breaks_its_report(url: str, kind: str) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

        __repr__ = __str__

    def raises(ctx: interlock.Context) -> None:
        raise {"mute": Mute(), "surrogate": ValueError("half \ud800"), "zero": ValueError("a\0b")}[kind]

    said, text, _ = failing(url, raises)
    wanted = {
        "mute": ("Mute: it cannot say what it is", "Mute: <exception str() failed>"),
        "surrogate": ("ValueError: half ?", "ValueError: half ?"),
        "zero": ("ValueError: a\N{REPLACEMENT CHARACTER}b", "ValueError: a\N{REPLACEMENT CHARACTER}b"),
    }[kind]
    assert said == wanted[0]
    assert text.splitlines()[-1].endswith(wanted[1])


def test_keys_and_leases_are_taken_out(url: str, caplog: pytest.LogCaptureFixture) -> None:
    leases: list[str] = []

    def raises(ctx: interlock.Context) -> None:
        assert isinstance(ctx, JobContext)
        leases.append(ctx.held.lease)
        raise ValueError(f"{KEY} and {ctx.held.lease}")

    told = failing(url, raises)
    for text in (*told, caplog.text):
        assert KEY not in text
        assert leases[0] not in text
    assert "ilk_1_4r1_…" in told[0]


def test_the_apps_own_function_has_the_last_word(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def raises(ctx: interlock.Context) -> None:
        raise ValueError("the card 4111-1111 was refused")

    told = failing(url, raises, redact=lambda text: text.replace("4111-1111", "[card]"))
    assert all("[card]" in text for text in told)
    for text in (*told, caplog.text):
        assert "4111" not in text


@pytest.mark.parametrize("broken", [lambda text: 1 / 0, lambda text: None], ids=["raises", "no text"])
def test_a_function_that_fails_costs_the_texts(
    url: str, broken: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    def raises(ctx: interlock.Context) -> None:
        raise ValueError("secret")

    told = failing(url, raises, redact=broken)
    assert told[:2] == ("hidden: the redact function of this app failed",) * 2
    assert "secret" not in told[2] + caplog.text


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(interlock.InterlockError, match="a function of text that returns text"):
        interlock.open("sqlite://:memory:", redact="x")  # type: ignore[arg-type]
