"""Handlers that run in processes of their own, and do what their arguments say."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import interlock

app = interlock.open(os.environ.get("CHORES_URL", "sqlite://:memory:"), hurry=int(os.environ.get("CHORES_HURRY", "1")))
leftovers: list[threading.Thread] = []
go_on = threading.Event()
mark = "as imported"  # a fork would see what the test wrote here


@app.task(process=True)
def who() -> dict[str, Any]:
    group = os.getpgid(0)
    return {"pid": os.getpid(), "group": group, "session": os.getsid(0), "parent": os.getppid(), "mark": mark}


@app.task(process=True)
async def who_awaits() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@app.task(process=True)
def speak() -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)


@app.task(process=True)
def stream(go: str, ctx: interlock.Context) -> None:
    ctx.emit("a word ")
    while not Path(go).exists():
        time.sleep(0.01)
    ctx.emit("and another")


@app.task(process=True)
def start_programs(ctx: interlock.Context) -> None:
    """Prints, logs, and starts programs that print, in this order."""
    print("printed first")
    subprocess.run(["sh", "-c", "echo by a program; echo its error >&2"], check=True)
    ctx.log("logged after it")
    sys.stdout.buffer.write(b"as bytes \xff\n")
    subprocess.run(["echo", "given its output"], stdout=sys.stdout, check=True)
    os.write(1, b"past python\n")
    print("printed last", end="")


@app.task(process=True)
def leave_program(folder: str) -> int:
    """Leaves a program behind, which prints once more when it is told to."""
    script = "while [ ! -e go ]; do sleep 0.02; done; echo late; touch done; exec sleep 60"
    return subprocess.Popen(["sh", "-c", script], cwd=folder).pid


@app.task(process=True)
def look_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


@app.task(process=True)
def add(numbers: list[int], ctx: interlock.Context) -> dict[str, Any]:
    """Everything that a plain handler may ask."""
    ctx.progress(0.5, "half")
    ctx.checkpoint({"at": 1})
    ctx.log.warning("adding %d numbers", len(numbers))
    ctx.log.debug("not worth saying")
    done = ctx.step("sum", lambda: sum(numbers))
    ctx.artifact("sum.txt", str(done))
    facts = {"fence": ctx.fence, "attempt": ctx.attempt, "saved": ctx.saved, "cancelled": ctx.cancelled}
    return {"sum": done, "unit": ctx.unit, "secret": ctx.held.lease, **facts}


@app.task(process=True)
def leave(ctx: interlock.Context) -> None:
    ctx.artifact("a.bin", b"\x00\x01")


@app.task(process=True)
async def add_awaits(numbers: list[int], ctx: interlock.Context) -> int:
    async def total() -> int:
        return sum(numbers)

    done = await ctx.step.aio("sum", total)
    await ctx.artifact.aio("sum.txt", done)
    return done


@app.task(process=True)
def until_cancelled(ctx: interlock.Context) -> None:
    ctx.progress(0)
    while not ctx.cancelled:
        time.sleep(0.01)
    raise interlock.Cancelled("as asked")


class NoSuchUser(interlock.PermanentError):
    pass


ERRORS = {
    "retry": lambda: interlock.Retry("later", after=7),
    "retry soon": lambda: interlock.Retry(),
    "snooze": lambda: interlock.Snooze(after=9),
    "reject": lambda: interlock.Reject("never"),
    "cancelled": lambda: interlock.Cancelled("stopped"),
    "awaiting cancelled": lambda: asyncio.CancelledError(),
    "permanent": lambda: interlock.PermanentError("no"),
    "validation": lambda: interlock.ValidationError("no"),
    "transient": lambda: interlock.TransientError("no"),
    "stale": lambda: interlock.LeaseConflictError("gone"),
    "own": lambda: NoSuchUser("bob"),
    "strange": lambda: ValueError("no"),
    "silent": lambda: KeyError(),
    "surrogate": lambda: ValueError("a\ud800b"),
    "long": lambda: ValueError("x" * 10_000_000),
}


@app.task(process=True)
def fail(how: str) -> None:
    raise ERRORS[how]()


@app.task(process=True)
def echo(text: str) -> str:
    return text


@app.task(process=True)
def sow(text: str) -> int:
    """Uses the app of its own process."""
    return echo.submit(text=text).unit


@app.task(process=True)
def large(size: int) -> str:
    return "x" * size


@app.task(process=True)
def no_json(how: str) -> Any:
    return {"object": object(), "surrogate": "\ud800", "function": who}[how]


@app.task(process=True)
def die(how: str) -> None:
    if how.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[how])
        time.sleep(600)
    elif how == "exit":
        sys.exit(3)
    os._exit(0)


@app.task(process=True)
def hang(folder: str, how: str) -> None:
    """Never ends by itself; a file says when it is there, and names it and its own child."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    neat = (
        "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2),"
        "pathlib.Path(sys.argv[1], 'grandchild tidied').touch(), sys.exit())); print(flush=True); time.sleep(600)"
    )
    words = [sys.executable, "-c", neat if how == "neat" else deaf, folder]
    grandchild = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert grandchild.stdout
    grandchild.stdout.readline()
    if how == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if how == "neat":
        signal.signal(signal.SIGTERM, lambda *_: (Path(folder, "tidied").touch(), os._exit(0)))
    there = Path(folder, "there.new")
    there.write_text(f"{os.getpid()} {grandchild.pid}")
    there.rename(Path(folder, "there"))
    if how == "blocked":
        ctypes.PyDLL(None).sleep(600)  # and no other thread of this process runs
    time.sleep(600)


hang_briefly = app.task(process=True, name="hang_briefly", timeout="2s", attempts=1)(hang.handler)


@app.task(process=True, backoff="1ms")
def second_try(folder: str, ctx: interlock.Context) -> dict[str, Any]:
    """Dies in its first attempt, and finds in the second what it had done."""
    step = ctx.step("once", lambda: f"made in attempt {ctx.attempt}")
    ctx.checkpoint({"reached": ctx.attempt})
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"attempt": ctx.attempt, "saved": ctx.saved, "step": step}


@app.task(process=True)
def leave_behind(folder: str) -> int:
    """Returns, and leaves a process of its own running."""
    grandchild = subprocess.Popen(["sleep", "600"])
    Path(folder, "there").write_text(f"{os.getpid()} {grandchild.pid}")
    return grandchild.pid


@app.task(process=True)
def talk_on(ctx: interlock.Context) -> None:
    """Returns, and goes on talking in a thread."""

    def talk() -> None:
        go_on.wait()
        ctx.progress(1, "too late")
        try:
            ctx.step("late", lambda: 1)
        except interlock.LeaseConflictError as error:
            refusals.append(str(error))

    go_on.clear()
    leftovers.append(threading.Thread(target=talk))
    leftovers[-1].start()


refusals: list[str] = []


@app.task(process=True)
def hear_out() -> list[str]:
    """What the thread that was left was told."""
    go_on.set()
    leftovers.pop().join()
    return refusals


def hidden() -> Any:
    """A task whose app no name leads to."""
    own = interlock.open("sqlite://:memory:")

    @own.task(process=True)
    def nowhere() -> None: ...

    return nowhere


def gone_in_the_child() -> Any:
    """A task that only the process that asked for it has."""

    @app.task(process=True)
    def made_up() -> None: ...

    return made_up


@app.task(process=True)
def fail_deeply() -> None:
    def deeper() -> None:
        raise ArithmeticError("too deep")

    deeper()


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@app.task(process=True)
def fail_without_words() -> None:
    raise Mute


@app.task
def begotten() -> None:
    """Made by another handler."""


@app.task(process=True)
def begets(ctx: interlock.Context) -> dict[str, Any]:
    return {"correlation": ctx.correlation, "trace": ctx.trace, "made": begotten.submit().id}


@app.task(process=True)
async def begets_awaits(ctx: interlock.Context) -> dict[str, Any]:
    return {"correlation": ctx.correlation, "trace": ctx.trace, "made": (await begotten.submit.aio()).id}


@app.task(process=True)
def read_needs(names: list[str], ctx: interlock.Context) -> dict[str, Any]:
    """What needs came to, read by name, and how many were handed over."""
    results = [ctx.output(name)["sum"] for name in names]
    try:
        ctx.output("nobody")
    except interlock.InterlockError as error:
        return {"handed": len(ctx.outputs), "results": results, "other": str(error)}
    return {}


@app.task(process=True, attempts=2, backoff="1ms")
def read_steps(ctx: interlock.Context) -> list[Any]:
    """Steps beyond the page of its grant, and one that asks for something else."""
    drift = ""
    if ctx.attempt == 2:
        try:
            ctx.step("s40001", lambda: None, of="another")
        except interlock.Drift as error:
            drift = str(error)
    texts = [ctx.step(f"s{n}", lambda n=n: f"{ctx.attempt}" + n * "x", of=n) for n in (40_000, 40_001)]
    if ctx.attempt == 1:
        raise OSError
    return [len(texts[1]), texts[1][0], "another" in drift]


@app.task(process=True)
def add_tasks(ctx: interlock.Context) -> list[Any]:
    """Adds a task to its workstream, twice."""
    made = [ctx.add(add, name="more", arguments={"numbers": [3, 4]}) for _ in range(2)]
    return [(job.id, job.created) for job in made]


@app.agent(process=True, validation="enforce", checks=[])
def judged(ctx: interlock.AgentContext, how: str) -> str:
    """Returns with a validation that has found nothing, or without one."""
    if how == "asked":
        ctx.validate(how)
    return how


def pick(branch: str) -> str:
    """A tool."""
    return f"{branch} by {os.getpid()}"


@app.agent(process=True, tools=[pick])
def use_tools(ctx: interlock.AgentContext) -> list[Any]:
    """Calls a tool of its contract, and one that is not in it."""
    picked = ctx.tool("pick", branch="old")
    try:
        ctx.tool("drop", branch="old")
    except interlock.PermanentError as error:
        return [picked == f"old by {os.getpid()}", str(error)]
    return []
