"""Three coding agents on one repository: each works in a worktree of its own, is checked, and is merged.

The agents are plain scripts here; put your own in their place. Run it in an empty folder: `python coding_agents.py`. It
makes a repository `site` with a failing test, lets three agents work on it side by side, and ends with their work on
`main`, if everything together passes. Your checkout is never touched while they work.
"""

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path

import interlock
from interlock.worker.loop import Worker
from interlock.worker.shell import ShellSettings

PYTHON = shlex.quote(sys.executable)
FILES = {
    "prices.py": "def total(prices):\n    return 0\n",
    "test_prices.py": "from prices import total\n\nassert total([1, 2]) == 3\n",
    "README.md": "# Prices\n",
    # An agent is a program that changes files in the folder where it is started. These are given their answers.
    "agents/fixer.sh": "printf 'def total(prices):\\n    return sum(prices)\\n' > prices.py\n",
    "agents/writer.sh": "printf '\\n`total(prices)` adds up a list.\\n' >> README.md\n",
    "agents/typist.sh": "printf 'def total(prices: list) -> int: ...\\n' > prices.pyi\n",
}

app = interlock.open()
check = interlock.shell("test", f"{PYTHON} test_prices.py")
site = app.workstream(
    "improve prices",
    repo="site",
    tasks=[
        interlock.shell("fixer", "sh agents/fixer.sh", checks=[check]),  # its own work must pass
        interlock.shell("writer", "sh agents/writer.sh"),
        interlock.shell("typist", "sh agents/typist.sh", needs=["fixer"]),  # begins with what the fixer did
    ],
    checks=[check, interlock.merge(onto="main")],  # and everything together, before `main` moves
)


def make_repository(folder: Path) -> None:
    """Makes the repository that the agents work on."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    person = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "--quiet", "--initial-branch=main"], ["add", "--all"], [*person, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


async def main() -> None:
    """Lets the agents work, and shows what came of it."""
    make_repository(Path("site"))
    shell = ShellSettings(sandbox="none")  # `interlock worker --shell --repo site=site` does the same
    worker = Worker(app, {"default": 3}, shell=shell, repositories={"site": "site"})
    working = asyncio.create_task(worker.run())
    run = await site.submit.aio()
    await run.wait.aio(timeout="5m")
    worker.stop()
    await working
    log = ["git", "log", "--first-parent", "--format=%s", "main"]
    print(await asyncio.to_thread(subprocess.check_output, log, cwd="site", text=True), end="")
    print(Path("site/prices.py").read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    asyncio.run(main())
