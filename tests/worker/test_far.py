"""A worker that has a server and no database: it does all that a worker does, with a key that lets it do nothing else."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli.server_options import check_server, read_key
from interlock.kernel.commands import Drain, Register
from interlock.kernel.errors import Denied, InterlockError
from interlock.store.queries.views import artifacts_of, events_of, notes_of, view, workers_seen
from tests.conftest import COMMAND, Run
from tests.server.house import House, housed
from tests.worker.stage import PATIENCE, lawful, working
from tests.worker.stage import until as wait_until

HURRY = 40  # a lease of a second or so
MODULE = """
import asyncio, os, pathlib, time
import interlock
app = interlock.open("sqlite:///none.db")

@app.task
def order(ctx: interlock.Context) -> str:
    done = ctx.step("charge", lambda: "charged")
    ctx.progress(0.5, "half")
    ctx.artifact("bill", {"sum": 3})
    return f"{done}, attempt {ctx.attempt}"

@app.task(process=True)
def apart(ctx: interlock.Context) -> list:
    return [ctx.step("who", os.getpid), app.job(ctx.unit).state]

@app.task
async def lasting(ctx: interlock.Context) -> str:
    pathlib.Path(f"began{ctx.attempt}").touch()
    while not pathlib.Path("go").exists():
        await asyncio.sleep(0.01)
    return f"attempt {ctx.attempt}"

@app.task
def obedient(ctx: interlock.Context) -> None:
    pathlib.Path("obeys").touch()
    while not ctx.cancelled:
        time.sleep(0.01)
    raise interlock.Cancelled("as asked")

@app.task
def parent() -> list:
    return [order.submit().id, order.submit_many([{}, {}])[0].id]

app.workflow("flow", steps=["order"])
"""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[interlock.App]:
    """The app beside the database, seen from outside; nothing of it is in the folder of a worker."""
    app = interlock.open(f"sqlite:///{tmp_path}/work.db", hurry=HURRY)
    for name in ("order", "apart", "lasting", "obedient", "parent"):
        app.task(name=name)(lambda: None)
    yield app
    app.close()


@pytest.fixture
def house(there: interlock.App) -> Iterator[House]:
    with housed() as made, made.hosts(there):
        yield made
        lawful(there)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "far.py").write_text(MODULE)
    return tmp_path / "w"


@contextmanager
def worker(folder: Path, house: House, key: str, *more: str) -> "Iterator[subprocess.Popen[str]]":
    command = [str(COMMAND), "worker", "far:app", "--server", house.base, "--log-level", "debug", *more]
    env = {**os.environ, "INTERLOCK_KEY": key}
    with (folder / "log").open("a") as log:
        one = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield one
        finally:
            if one.poll() is None:
                one.kill()
            one.wait(PATIENCE)


def until(true: Callable[[], object], folder: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.01)


def test_a_worker_without_a_database_does_all_that_a_worker_does(
    house: House, there: interlock.App, folder: Path
) -> None:
    key_file = folder / "key"
    key_file.write_text(house.key("worker", "read", "submit"))
    key_file.chmod(0o600)
    with worker(folder, house, "", "--key-file", str(key_file)) as one:
        job = there.tasks["order"].submit()
        assert job.wait(PATIENCE) == "charged, attempt 1"
        assert [note.name for note in there.read(notes_of, job.unit) if note.kind == "step"] == ["charge"]
        assert [one.name for one in there.read(artifacts_of, job.unit)] == ["bill"]
        pid, state = there.tasks["apart"].submit().wait(PATIENCE)
        assert pid != one.pid
        assert there.lifecycles["job"].category(state) == "active", "a process of its own asks the same server"
        made = there.tasks["parent"].submit().wait(PATIENCE)
        assert all(there.job(child).wait(PATIENCE) for child in made)
        stopped, cut = there.tasks["obedient"].submit(), there.tasks["lasting"].submit()
        until(lambda: (folder / "obeys").exists() and (folder / "began1").exists(), folder)
        stopped.cancel(reason="enough")
        until(lambda: stopped.look().category == "cancelled", folder)
        one.send_signal(signal.SIGTERM)
        (folder / "go").touch()
        assert one.wait(PATIENCE) == 0, (folder / "log").read_text()
        assert cut.wait(PATIENCE) == "attempt 1"
    assert there.read(workers_seen) == [], "it has left"
    assert not (folder / "none.db").exists()
    log = (folder / "log").read_text()
    assert key_file.read_text() not in log
    assert "order" in log
    assert "HTTP" not in log, "its requests are nobody's business"


def test_a_worker_that_is_killed_over_http_is_replaced_by_another(
    house: House, there: interlock.App, folder: Path
) -> None:
    key = house.key("worker")
    job = there.tasks["lasting"].submit()
    with worker(folder, house, key, "--name", "first") as first:
        until(lambda: (folder / "began1").exists(), folder)
        until(lambda: there.lifecycles["job"].category(job.state) == "active", folder)
        with worker(folder, house, key, "--name", "second"):
            first.kill()
            until(lambda: (folder / "began2").exists(), folder)
            (folder / "go").touch()
            assert job.wait(PATIENCE) == "attempt 2"
    told = [(event.trigger, event.attempt) for event in there.read(events_of, job.unit) if event.trigger != "self"]
    assert [attempt for trigger, attempt in told if trigger == "claim"] == [1, 2]
    assert "lost" in [trigger for trigger, _ in told]
    assert there.read(view, job.unit).unit.losses == 1
    assert (
        "definition not sent, the stored one stays name=flow: this key lacks the scope 'submit'"
        in (folder / "log").read_text()
    )


def test_a_worker_whose_server_is_away_waits_for_it_and_nothing_is_done_twice(tmp_path: Path) -> None:
    ran: list[int] = []
    there = interlock.open(f"sqlite:///{tmp_path}/work.db")
    there.task(name="order")(lambda: None)
    with (
        housed() as house,
        house.hosts(there),
        interlock.open(house.base, key=house.key("worker")) as app,
    ):

        @app.task
        async def order(ctx: interlock.Context) -> int:
            ran.append(ctx.attempt)
            house.guest = away  # before it could say that it began
            return ctx.attempt

        async def played() -> None:
            async with working(app) as one:
                job = there.tasks["order"].submit()
                await wait_until(lambda: ran and one.client.database_away)
                house.guest = server
                await wait_until(lambda: job.look().outcome is not None)
                assert (job.look().outcome, ran) == ("success", [1])
                await wait_until(lambda: not one.client.database_away)

        server = house.guest
        asyncio.run(played())


async def away(scope: Any, receive: Any, send: Any) -> None:
    """What a proxy says whose server is gone."""
    await send({"type": "http.response.start", "status": 502, "headers": []})
    await send({"type": "http.response.body", "body": b"<html>Bad Gateway</html>"})


def test_a_worker_may_drain_itself_and_no_other(house: House) -> None:
    with (
        interlock.open(house.base, key=house.key("worker")) as one,
        interlock.open(house.base, key=house.key("worker")) as other,
    ):
        mine = one.send(Register(name="one", incarnation="1"))
        theirs = other.send(Register(name="other", incarnation="1"))
        with pytest.raises(Denied, match="this key lacks the scope 'operate'"):
            one.send(Drain(worker=theirs))
        one.engine.own_workers.add(theirs)  # type: ignore[attr-defined]
        with pytest.raises(Denied, match="a worker may drain itself, and this one was registered with another key"):
            one.send(Drain(worker=theirs))
        assert one.send(Drain(worker=mine)).applied
        assert other.send(Drain(worker=theirs)).applied


def test_what_cannot_work_is_told_in_a_sentence(folder: Path, interlock: Run) -> None:
    with pytest.raises(InterlockError, match="is not allowed; allowed are http://host:port"):
        check_server("sqlite:///x.db")
    for name, mode in (("open", 0o644), ("key", 0o600)):
        (folder / name).write_text(f"ilk_1_4_{'0' * 64}\n")
        (folder / name).chmod(mode)
    assert read_key(folder / "key") == f"ilk_1_4_{'0' * 64}"
    with pytest.raises(InterlockError, match=r"the group or others can read or write '.*open': chmod 600 it"):
        read_key(folder / "open")
    with pytest.raises(InterlockError, match=r"the key file '.*none' cannot be read"):
        read_key(folder / "none")
    done = interlock("worker", "far:app", "--server", "http://127.0.0.1:9", "--key-file", "key", cwd=folder)
    assert done.returncode != 0
    assert "there is no server at http://127.0.0.1:9" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
