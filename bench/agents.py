"""What agent runs cost: a recorded step, runs whose worker is killed every second, runs that wait for people.

Each part prints its figures, and where there is a must, whether it is met. `QUICK=1` makes all of it small. A part can
be run alone: `python -m bench.agents steps kills waits pages answers streams`.
"""

import asyncio
import multiprocessing
import os
import re
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import interlock
from bench.over_http import serving, whole
from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.kernel.commands import Claim, CreateKey, LeaseGrant, LeaseRef, ReadSteps, Record, Register, Start
from interlock.plugins.agents.contracts import CAPABILITY
from interlock.worker.loop import Worker

QUICK = bool(os.environ.get("QUICK"))
STEPS, SIDE_BY_SIDE = (500, 100) if QUICK else (5_000, 100)
ROUNDS = 2 if QUICK else 5
RUNS, STEPS_OF_RUN, AT_ONCE = (40, 20, 20) if QUICK else (1_000, 20, 50)
WAITING = 300 if QUICK else 10_000
PAGES = 1_000 if QUICK else 10_000  # steps of one job
ANSWERS, CALLERS = (200, 32) if QUICK else (3_000, 32)
CHUNKS = 20 if QUICK else 200
MUST_ALONE, MUST_SIDE_BY_SIDE, MUST_MEGABYTES = 0.6, 0.1, 10.0
HURRY = 20  # leases of killed workers are over that much sooner
PATIENCE = 60.0
LISTENS = "0A"  # as /proc/net/tcp has it
ANSWER = '{"text":"an answer of a model"}'


def judge(text: str, value: float, must: float, unit: str) -> None:
    print(f"{text}: {value:.3f} {unit}; must be at most {must:g}{'' if value <= must else ': ABOVE'}", flush=True)


@contextmanager
def open_database() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/work.db"


async def work_until(app: App, done: Any, concurrency: int = 100) -> None:
    """Lets a worker run in this process until something has happened."""
    worker = Worker(app, {"default": concurrency})
    working = asyncio.create_task(worker.run())
    while not done():
        await asyncio.sleep(0.01)
    worker.stop()
    await working


# A recorded step.


def measure_steps() -> None:
    """Processor time of this whole process (worker and engine, fsync included) for each recorded step."""
    for width, must in ((1, MUST_ALONE), (SIDE_BY_SIDE, MUST_SIDE_BY_SIDE)):
        took, walls = [], []
        for _ in range(ROUNDS):
            cpu, wall = run_steps(width)
            took.append(cpu)
            walls.append(wall)
        judge(f"a recorded step, {width} side by side, processor", min(took), must, "ms")
        print(f"  and {statistics.median(walls):.2f} ms by the clock")


def run_steps(width: int) -> tuple[float, float]:
    """Milliseconds of processor time, and by the clock, that a step costs."""
    spent: list[tuple[float, float]] = []
    with open_database() as url, interlock.open(url) as app:

        async def answer() -> dict[str, str]:
            return {"text": "an answer of a model"}

        @app.agent
        async def many(ctx: interlock.AgentContext) -> None:
            await ctx.step("first", answer)
            began = time.process_time(), time.perf_counter()
            for start in range(0, STEPS, width):
                await asyncio.gather(*(ctx.step(f"step {start + place}", answer) for place in range(width)))
            spent.append((time.process_time() - began[0], time.perf_counter() - began[1]))

        many.submit()
        asyncio.run(work_until(app, lambda: spent))
    ((cpu, wall),) = spent
    return cpu / STEPS * 1_000, wall / STEPS * 1_000


# A worker that is killed every second.


def define_killed(app: App, calls: Path) -> Any:
    """An agent of many short steps, each of which writes down that it was called, under a number of its own."""

    @app.agent(attempts=1_000)
    async def killed(number: int, ctx: interlock.AgentContext) -> None:
        async def call(step: int) -> str:
            nonce = os.urandom(8).hex()
            with calls.open("a") as file:
                file.write(f"{number} {step} {nonce}\n")
            await asyncio.sleep(0.01)
            return nonce

        for step in range(STEPS_OF_RUN):
            await ctx.step(f"step {step}", lambda step=step: call(step))

    return killed


def run_killed_worker(url: str, calls: str) -> None:
    """The worker that is killed; started in a process of its own."""
    app = interlock.open(url, hurry=HURRY)
    define_killed(app, Path(calls))
    asyncio.run(Worker(app, {"default": AT_ONCE}).run())


def measure_kills() -> None:
    """No recorded step is called again: of each step, the last call is the recorded one."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        url, calls = f"sqlite:///{folder}/work.db", Path(folder) / "calls.txt"
        with interlock.open(url, hurry=HURRY) as app:
            agent = define_killed(app, calls)
            runs = [agent.submit(number) for number in range(RUNS)]
            began, kills = time.perf_counter(), 0
            while count_open(app, "agent_run"):
                worker = context.Process(target=run_killed_worker, args=(url, str(calls)))
                worker.start()
                worker.join(1.0 + (1.0 if kills == 0 else 0.5))  # a second of work, after what a start takes
                if worker.is_alive():
                    assert worker.pid
                    os.kill(worker.pid, signal.SIGKILL)
                    worker.join()
                    kills += 1
            seconds = time.perf_counter() - began
            made: dict[tuple[int, int], list[str]] = defaultdict(list)
            for line in calls.read_text().splitlines():
                number, step, nonce = line.split()
                made[int(number), int(step)].append(nonce)
            recorded = {
                (number, int(name.split()[1])): nonce
                for number, run in enumerate(runs)
                for name, nonce in run.steps.items()
            }
    again = sum(made[place][-1] != nonce for place, nonce in recorded.items())
    more = sum(map(len, made.values())) - len(recorded)
    assert not again, f"{again} recorded steps were called again"
    assert more <= kills * AT_ONCE, f"{more} calls more, with {kills} kills of at most {AT_ONCE} in flight"
    print(
        f"{RUNS:,} runs of {STEPS_OF_RUN} steps, {kills} kills, {seconds:.0f} s: no recorded step again; "
        f"{more} calls were in flight at a kill, at most {kills * AT_ONCE} can be",
        flush=True,
    )


def count_open(app: App, lifecycle: str) -> int:
    """How many units of a lifecycle have not ended."""
    sql = "SELECT count(*) FROM unit WHERE lifecycle = :lifecycle AND outcome IS NULL"
    return int(app.engine.read(lambda connection: connection.rows(sql, {"lifecycle": lifecycle}))[0][0])


# Runs that wait for people.


def define_waiting(app: App) -> Any:
    @app.agent
    async def wait(number: int, ctx: interlock.AgentContext) -> Any:
        return await ctx.ask("go on?", {"number": number})

    return wait


def run_worker(url: str) -> None:
    app = interlock.open(url)
    define_waiting(app)
    asyncio.run(Worker(app, {"default": 100}).run())


def read_megabytes(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]


def measure_waits() -> None:
    """How much memory of the worker and the server grows by, from a few runs that wait to many."""
    context = multiprocessing.get_context("spawn")
    with open_database() as url, interlock.open(url) as app, serving(url) as (port, _):
        agent = define_waiting(app)
        server = find_listener(port)
        worker = context.Process(target=run_worker, args=(url,))
        worker.start()
        assert worker.pid
        try:
            wait_until_asked(app, agent, WAITING // 5)
            before = {name: read_megabytes(pid) for name, pid in (("worker", worker.pid), ("server", server))}
            began = time.perf_counter()
            wait_until_asked(app, agent, WAITING)
            seconds = time.perf_counter() - began
            time.sleep(1)
            for name, pid in (("worker", worker.pid), ("server", server)):
                more = read_megabytes(pid) - before[name]
                judge(f"{WAITING:,} more runs that wait, memory of the {name}", more, MUST_MEGABYTES, "MB")
            print(f"  {WAITING / seconds:,.0f} runs per second come to their question", flush=True)
        finally:
            worker.terminate()
            worker.join()


def wait_until_asked(app: App, agent: Any, more: int) -> None:
    """Submits so many runs, and returns when all of them wait."""
    there = count_open(app, "approval")
    for number in range(more):
        agent.submit(number)
    end = time.monotonic() + 20 * PATIENCE
    while count_open(app, "approval") < there + more:
        assert time.monotonic() < end
        time.sleep(0.05)


def find_listener(port: int) -> int:
    """The process that listens on a port of this machine, among our children."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == LISTENS}
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            if any(f"socket:[{inode}]" == os.readlink(link) for link in folder.iterdir() for inode in inodes):
                return int(folder.parent.name)
    raise AssertionError(f"nobody listens on {port}")


# A job of many steps.


def measure_pages() -> None:
    """What a claim, a read of all steps, and a fork cost, of a job that has recorded many."""
    with open_database() as url, interlock.open(url) as app:

        @app.agent
        def many(ctx: interlock.AgentContext) -> None: ...

        run = many.submit()
        grant = claim(app, many, "first")
        held = LeaseRef(grant.unit, grant.fence, grant.lease)
        app.send(Start(held=(held,)))
        for number in range(PAGES):
            (status,) = app.send(Record(held=(held,), kind="step", name=f"step {number}", payload=ANSWER))
            assert status.accepted, status.why
        began = time.perf_counter()
        run.fork(at=f"step {PAGES - 1}", by="ann")
        print(f"{PAGES:,} steps: a fork takes {(time.perf_counter() - began) * 1_000:,.0f} ms", flush=True)
        began = time.perf_counter()
        again = claim(app, many, "second")  # of the fork, which has the steps of the other run
        took = (time.perf_counter() - began) * 1_000
        print(f"{PAGES:,} steps: a claim takes {took:,.1f} ms and brings {len(again.steps):,}", flush=True)
        began, left, reads = time.perf_counter(), again.steps_left, 0
        name = f"step {len(again.steps)}"
        while left > 0:
            page = app.send(ReadSteps(held=LeaseRef(again.unit, again.fence, again.lease), name=name))
            if not page.steps:
                break
            left, reads = left - len(page.steps), reads + 1
            name = f"step {int(page.steps[-1].name.split()[1]) + 1}"
        print(
            f"{PAGES:,} steps: reading the rest takes {(time.perf_counter() - began) * 1_000:,.0f} ms in {reads} reads",
            flush=True,
        )


def claim(app: App, agent: Any, name: str) -> LeaseGrant:
    contract = f"{CAPABILITY}{agent.digest}"
    worker = app.send(Register(name=name, incarnation="1", capacity=1, capabilities=(contract,)))
    (grant,) = app.send(Claim(worker=worker, key=name, nonce=f"{name:0>16}", limit=1))
    return grant


# Answers over HTTP.


def measure_answers() -> None:
    """Answers a second of callers, each of which sends its next one when it has been told of the last."""
    context = multiprocessing.get_context("spawn")
    with open_database() as url, interlock.open(url) as app, serving(url) as (port, _):
        agent = define_waiting(app)
        worker = context.Process(target=run_worker, args=(url,))
        worker.start()
        try:
            wait_until_asked(app, agent, ANSWERS)
        finally:
            worker.terminate()
            worker.join()
        key = issue_key(app, CreateKey(name="ann", scopes=("approve", "operate", "read"))).text
        ids = [item.id for item in list_questions(app)]
        turns = [ids[place::CALLERS] for place in range(CALLERS)]
        callers = [threading.Thread(target=answer_all, args=(port, key, own)) for own in turns]
        began = time.perf_counter()
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        seconds = time.perf_counter() - began
        assert count_open(app, "approval") == 0
    print(f"{CALLERS} callers over HTTP: {len(ids) / seconds:,.0f} answers a second", flush=True)


def list_questions(app: App) -> list[Any]:
    items: list[Any] = []
    while page := app.inbox(limit=500, after=items[-1].id if items else None):
        items += page
    return items


def answer_all(port: int, key: str, ids: list[str]) -> None:
    body = b'{"by": "ann"}'
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in ids:
            connection.sendall(
                f"POST /v1/inbox/{number}/approve HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            answer = bytearray()
            while not whole(answer):
                answer.extend(connection.recv(65_536))
            assert answer.startswith(b"HTTP/1.1 200"), bytes(answer)


# Streams.


def measure_streams() -> None:
    """How long it takes until a follower over HTTP has what a handler emitted."""
    context = multiprocessing.get_context("spawn")
    with open_database() as url, interlock.open(url) as app, serving(url) as (port, _):
        run = define_stream(app).submit()
        key = issue_key(app, CreateKey(name="ann", scopes=("read",))).text
        worker = context.Process(target=run_stream_worker, args=(url,))
        worker.start()
        late = []
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(
                f"GET /v1/runs/{run.id}/log HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
                "Accept: text/event-stream\r\n\r\n".encode()
            )
            received = ""
            while "event: end" not in received:
                text = connection.recv(65_536).decode()
                now, received = time.time(), received + text
                late += [now - float(sent) for sent in re.findall(r"@(\d+\.\d+)", text)]
        worker.terminate()
        worker.join()
    print(
        f"a chunk is with its follower over HTTP after {statistics.median(late) * 1_000:.0f} ms (median of {len(late)})"
    )


def define_stream(app: App) -> Any:
    @app.agent
    async def stream(ctx: interlock.AgentContext) -> None:
        for _ in range(CHUNKS):
            ctx.emit(f"@{time.time():.6f} ")
            await asyncio.sleep(0.037)

    return stream


def run_stream_worker(url: str) -> None:
    app = interlock.open(url)
    define_stream(app)
    asyncio.run(Worker(app, {"default": 1}).run())


PARTS = {
    "steps": measure_steps, "kills": measure_kills, "waits": measure_waits, "pages": measure_pages,
    "answers": measure_answers, "streams": measure_streams,
}  # fmt: skip


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
