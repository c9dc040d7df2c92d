"""An agent that fixes a failing test: in a git worktree of its own, under a budget, and with one approval.

The model follows a script here; put a call of your own in its place. Run it in an empty folder: `python bug_fixer.py`.
It makes a repository `shop` with a failing test, works on a branch in `shop-fix`, asks you, and merges. Kill it
whenever you like and start it again: nothing that the model was paid for is asked again.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import interlock
from interlock.testing.scripted_model import ScriptedModel, usage_of
from interlock.worker.loop import Worker

REPOSITORY, FOLDER, BRANCH = Path("shop"), Path("shop-fix"), "fix-total"
FILES = {
    "prices.py": "def total(prices):\n    return 0\n",
    "test_prices.py": "from prices import total\n\nassert total([1, 2]) == 3, total([1, 2])\n",
}
SCRIPT = {
    "try 1": "def total(prices):\n    return max(prices)\n",  # models err
    "try 2": "def total(prices):\n    return sum(prices)\n",
}
TRIES = 5
model = ScriptedModel(SCRIPT, tokens=800, usd=0.02, calls="calls.txt")

app = interlock.open("sqlite:///fixer.db")


@app.agent(budget=interlock.budget(usd=1, tokens=10_000, steps=40), attempts=5)
async def fix(goal: str, ctx: interlock.AgentContext) -> dict[str, Any]:
    await ctx.step("worktree", make_worktree)
    for number in range(1, TRIES + 1):
        failure = await ctx.step(f"test {number}", run_test)
        if not failure:
            break
        await improve(number, f"{goal}, try {number}\n{failure}", ctx)
    else:
        raise interlock.PermanentError(f"the test fails after {TRIES} tries")
    commit = await ctx.step("commit", make_commit)
    await ctx.ask("merge?", {"commit": commit, "diff": git("diff", "main", BRANCH), "spent": ctx.spent})
    merged = await ctx.effect("merge", merge, check=find_merged)
    return {"commit": merged, "left": ctx.left("usd")}


async def improve(number: int, prompt: str, ctx: interlock.AgentContext) -> None:
    """Asks the model for another file, and writes it."""
    answer = await ctx.step(f"model {number}", lambda: model(prompt), of={"prompt": prompt}, usage=usage_of)
    ctx.emit(f"try {number}:\n{answer['answer']}")
    await ctx.step(f"write {number}", lambda: write(answer["answer"]))


def git(*words: str, folder: Path = REPOSITORY) -> str:
    person = ["-c", "user.name=Agent", "-c", "user.email=agent@example.org"]
    return subprocess.check_output(["git", *person, *words], cwd=folder, text=True).strip()


def make_worktree() -> str:
    if not FOLDER.exists():
        git("worktree", "add", "--quiet", "-B", BRANCH, str(FOLDER.resolve()), "main")
    return str(FOLDER)


def run_test() -> str:
    """Returns the last line of what the test says; nothing if it passes."""
    run = subprocess.run([sys.executable, "-B", "test_prices.py"], cwd=FOLDER, capture_output=True, text=True)
    return run.stderr.strip().rpartition("\n")[2] if run.returncode else ""


def write(text: str) -> int:
    return (FOLDER / "prices.py").write_text(text, encoding="utf-8")


def make_commit() -> str:
    if git("status", "--porcelain", folder=FOLDER):
        git("commit", "--quiet", "--all", "--message", "Fix total", folder=FOLDER)
    return git("rev-parse", "HEAD", folder=FOLDER)


def merge() -> str:
    git("merge", "--quiet", "--ff-only", BRANCH)
    return git("rev-parse", "HEAD")


def find_merged() -> str | None:
    """The commit if it was merged, although nobody was told so."""
    head = git("rev-parse", BRANCH)
    return head if git("rev-parse", "main") == head else None


def make_repository() -> None:
    """Makes the repository that the agent works on."""
    REPOSITORY.mkdir(exist_ok=True)
    for name, text in FILES.items():
        (REPOSITORY / name).write_text(text, encoding="utf-8")
    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "--message", "first")


async def main() -> None:
    """Lets the agent work, asks on the terminal, and shows what came of it."""
    if not REPOSITORY.exists():
        make_repository()
    worker = Worker(app, {"default": 1})
    working = asyncio.create_task(worker.run())
    run = await fix.submit.aio("make the test pass", key="fix")
    while run.outcome is None:
        await asyncio.sleep(0.1)
        for question in app.inbox():
            print(question.input["diff"])
            answer = await asyncio.to_thread(input, f"{question.task} [y/n] ")
            question.approve(by="you") if answer == "y" else question.reject(by="you")
    worker.stop()
    await working
    print(run.state, run.spent.get("usd"), "USD")
    print((REPOSITORY / "prices.py").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    asyncio.run(main())
