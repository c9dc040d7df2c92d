"""What is too large for a row, what a job logs and what it leaves: by the SDK, on every database and over HTTP."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import InterlockError
from interlock.kernel.blobs import LARGE, parse_reference
from interlock.kernel.commands import RECORDED_VALUES, Revoke
from interlock.kernel.errors import NoBlobs, Unknown
from interlock.store.queries.views import notes_of, view
from interlock.testing import Stage

BIG = "é" * LARGE  # twice as many bytes


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PostgreSQL keeps blobs; a SQLite file has them beside it."""
    monkeypatch.setenv("INTERLOCK_BLOBS", str(tmp_path / "blobs"))


def test_a_large_input_and_a_large_result_go_beside_the_database_and_come_back(stage: Stage) -> None:
    @stage.app.task
    def double(text: str, times: int = 2) -> str:
        return text * times

    job = double.submit(BIG)
    assert job.wait() == BIG * 2
    body = stage.app.read(view, job.unit).body
    given, result = parse_reference(body.input), parse_reference(body.result or "")
    assert given
    assert result
    assert (given.length > 2 * LARGE, result.length) == (True, len((BIG * 2).encode()) + 2)
    small = double.submit("ab")
    assert small.wait() == "abab"
    assert stage.app.read(view, small.unit).body.result == '"abab"'


def test_so_do_those_of_an_async_handler(stage: Stage) -> None:
    @stage.app.task
    async def double(text: str) -> str:
        return text * 2

    async def ask() -> Any:
        job = await double.submit.aio(BIG)
        return await job.wait.aio()

    assert asyncio.run(ask()) == BIG * 2


def test_large_results_of_recorded_steps_and_checkpoints_come_back_to_the_next_attempt(stage: Stage) -> None:
    calls: list[str] = []

    @stage.app.task(attempts=2, backoff="1ms")
    def work(ctx: interlock.Context) -> list[int]:
        def fetch() -> str:
            calls.append("fetch")
            return BIG

        text, paid = ctx.step("fetch", fetch), ctx.effect("pay", fetch)
        if ctx.attempt == 1:
            ctx.checkpoint({"text": BIG})
            raise interlock.TransientError("once more")
        return [len(text), len(paid), len(ctx.saved["text"])]

    job = work.submit()
    assert job.wait() == [len(BIG)] * 3
    assert calls == ["fetch"] * 2
    notes = [note for note in stage.app.read(notes_of, job.unit) if note.kind in RECORDED_VALUES]
    assert sorted(note.kind for note in notes) == ["checkpoint", "effect_result", "step"]
    blobs = [parse_reference(note.payload) for note in notes]
    assert all(blob and blob.length > 2 * LARGE for blob in blobs)


def test_so_do_those_of_an_async_handlers_steps(stage: Stage) -> None:
    @stage.app.task(attempts=2, backoff="1ms")
    async def work(ctx: interlock.Context) -> int:
        async def fetch() -> str:
            return BIG

        text = await ctx.step.aio("fetch", fetch)
        if ctx.attempt == 1:
            raise interlock.TransientError("once more")
        return len(text)

    job = work.submit()
    assert job.wait() == len(BIG)
    (note,) = [note for note in stage.app.read(notes_of, job.unit) if note.kind == "step"]
    assert parse_reference(note.payload)


def test_large_outputs_of_steps_reach_later_steps(stage: Stage) -> None:
    @stage.app.task
    def fetch(size: int) -> str:
        return "x" * size

    @stage.app.task
    def measure(fetch: str, ctx: interlock.Context) -> list[int]:
        return [len(fetch), len(ctx.outputs["fetch"])]

    flow = stage.app.workflow("flow", [fetch, measure])
    run = flow.submit(size=2 * LARGE)
    outputs = run.wait()
    assert outputs["measure"] == [2 * LARGE, 2 * LARGE]
    assert len(outputs["fetch"]) == 2 * LARGE


def test_the_same_key_with_the_same_large_input_is_the_same_job(stage: Stage) -> None:
    @stage.app.task
    def keep(text: str) -> None: ...

    first, again = keep.submit(BIG, key="k"), keep.submit(BIG, key="k")
    assert (first.unit, again.created) == (again.unit, False)
    with pytest.raises(InterlockError, match="IDEMPOTENCY_CONFLICT"):
        keep.submit(BIG + "!", key="k")


def test_without_a_folder_a_large_value_stays_in_its_row_or_is_refused(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a database a row holds it, as ever; a request holds a mebibyte, and then it is said what to do."""

    def find_none(self: object, *, worker: bool = False) -> Any:
        raise NoBlobs("this database keeps no blobs: name a folder … INTERLOCK_BLOBS=…")

    monkeypatch.setattr("interlock.core.engine.Engine.find_blobs", find_none)

    @stage.app.task
    def measure(text: str) -> int:
        return len(text)

    job = measure.submit("x" * (LARGE + 1))
    assert job.wait() == LARGE + 1
    assert parse_reference(stage.app.read(view, job.unit).body.input) is None
    if stage.app.engine.far:
        with pytest.raises(NoBlobs, match="INTERLOCK_BLOBS"):
            measure.submit("x" * 2_000_000)
    else:
        assert measure.submit("x" * 2_000_000).wait() == 2_000_000


def test_a_job_logs_and_its_log_is_read(stage: Stage) -> None:
    @stage.app.task(attempts=2)
    def work(ctx: interlock.Context) -> None:
        ctx.log("attempt", ctx.attempt)
        ctx.log.info("a line of level %s", "info")
        ctx.log.debug("not worth keeping")
        ctx.log(b"\xff bytes as they are\n")
        ctx.log("no end", end="")
        if ctx.attempt == 1:
            raise OSError

    job = work.submit()
    job.wait()
    text = "attempt {}\nINFO a line of level info\n\\xff bytes as they are\nno end"
    assert (job.log(), job.log(attempt=1), job.log(2)) == (text.format(2), text.format(1), text.format(2))
    assert asyncio.run(job.log.aio(1)) == text.format(1)
    assert "".join(job.log.follow()) == text.format(1) + text.format(2)
    assert "".join(job.log.follow(attempt=2)) == text.format(2)
    with pytest.raises(Unknown, match="there is no attempt 3; there are 1 to 2"):
        job.log(3)


def test_a_job_that_logs_nothing_has_an_empty_log(stage: Stage) -> None:
    @stage.app.task
    def quiet() -> None: ...

    job = quiet.submit()
    assert job.log() == ""
    job.wait()
    assert (job.log(), list(job.log.follow()), job.artifacts) == ("", [], [])


def test_artifacts_are_bytes_files_or_small_values(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_bytes(b"<p>" * 500_000)

    @stage.app.task
    def make(ctx: interlock.Context) -> None:
        ctx.artifact("a.txt", b"bytes")
        ctx.artifact("report.html", tmp_path / "report.html")
        ctx.artifact("odd", bytearray(b"\x00\xff"), media="image/x-odd")
        ctx.artifact("numbers", [1, 2])
        with pytest.raises(InterlockError, match=r"'a.txt' already"):
            ctx.artifact("a.txt", b"others")
        with pytest.raises(InterlockError, match="without a slash"):
            ctx.artifact("../a.txt", b"others")
        with pytest.raises(InterlockError, match="cannot be read: No such file"):
            ctx.artifact("none", tmp_path / "none")

    @stage.app.task
    async def make_async(ctx: interlock.Context) -> None:
        await ctx.artifact.aio("b.txt", b"more bytes")

    job, other = make.submit(), make_async.submit()
    job.wait()
    other.wait()
    assert [(row.name, row.attempt, row.length, row.media) for row in job.artifacts] == [
        ("a.txt", 1, 5, "text/plain"), ("numbers", 1, 5, "application/json"), ("odd", 1, 2, "image/x-odd"),
        ("report.html", 1, 1_500_000, "text/html"),
    ]  # fmt: skip
    assert job.read_artifact("a.txt") == b"bytes"
    assert job.read_artifact("report.html") == b"<p>" * 500_000
    assert job.read_artifact("numbers") == b"[1,2]"
    assert asyncio.run(other.read_artifact.aio("b.txt")) == b"more bytes"
    with pytest.raises(Unknown, match=r"there is no artifact 'c'; there are a.txt, numbers, odd, report.html"):
        job.read_artifact("c")


def test_a_handler_that_has_lost_its_job_leaves_late_evidence_and_is_told(stage: Stage) -> None:
    @stage.app.task(attempts=2)
    def work(ctx: interlock.Context) -> int:
        if ctx.attempt == 1:
            ctx.log("in time")
            stage.app.send(Revoke(unit=ctx.unit, reason="an operator"))
            ctx.log("late")
            with pytest.raises(interlock.LeaseConflictError, match="the artifact was kept, and is marked as late"):
                ctx.artifact("core", b"dump")
        return ctx.attempt

    job = work.submit()
    assert job.wait() == 2
    assert job.log(1) == "in time\nlate\n"
    assert [(row.name, row.attempt, row.late) for row in job.artifacts] == [("core", 1, True)]
