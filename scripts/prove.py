"""Runs the long forms of the tests and writes what came of it to docs/proof.md and docs/reliability.md."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TITLE = "# The last proof\n\nWritten by `make proof`, which runs the long forms of the tests.\n\n"
BIN = Path(sys.executable).parent
SECONDS = os.environ.get("SECONDS") or "600"  # of random lives
TESTS = ["python", "-m", "pytest", "-v", "-s", "--no-header", "-m", "proof"]
FOLDERS = sorted(f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if list(path.glob("test_*.py")))
AROUND = [folder for folder in FOLDERS if folder.removeprefix("tests/") in ("client", "server", "store", "worker")]
# Each proof: what it shows, and the command that shows it. Those of one line are run beside each other.
PROOFS = [
    [
        (
            "Every lifecycle keeps its promises within 4 attempts and 3 messages in flight",
            ["interlock", "lifecycle", "check", "--attempts", "4"],
        )
    ],
    [("Random lives of the whole system", ["python", "scripts/soak.py"])],
    [
        ("The long forms of the tests: the engine", [*TESTS, *(one for one in FOLDERS if one not in AROUND)]),
        ("The long forms of the tests: what is around it", [*TESTS, *AROUND]),
    ],
]


class Proved(NamedTuple):
    """What came of one proof."""

    title: str
    command: list[str]
    held: bool
    seconds: float
    said: str

    @property
    def section(self) -> str:
        verdict, said = "holds" if self.held else "FAILED", "\n".join(map(str.rstrip, self.said.strip().splitlines()))
        head = f"## {self.title}\n\n`{' '.join(self.command)}`: {verdict}, {self.seconds:.0f} s."
        return f"{head}\n\n```\n{said}\n```\n"


def proved(title: str, command: list[str]) -> Proved:
    print(f"--- {title}", flush=True)
    began = time.monotonic()
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "SECONDS": SECONDS},
    )  # fmt: skip
    print(done.stdout + done.stderr, end="", flush=True)
    return Proved(title, command, done.returncode == 0, time.monotonic() - began, done.stdout)


def main() -> int:
    found: list[Proved] = []
    for some in PROOFS:
        with ThreadPoolExecutor(len(some)) as pool:
            found += pool.map(lambda one: proved(*one), some)
    sections, record = [one.section for one in found], "".join(one.said for one in found)
    verdicts = [(one.title, one.held, one.seconds) for one in found]
    (ROOT / "docs" / "proof.md").write_text("\n".join([head(TITLE), *sections]), encoding="utf-8")
    (ROOT / "docs" / "reliability.md").write_text(reliability(verdicts, record), encoding="utf-8")
    return 0 if all(held for _, held, _ in verdicts) else 1


def reliability(verdicts: list[tuple[str, bool, float]], record: str) -> str:
    """What is promised, how it is tested, what came of it this time, and what is not covered."""
    lines = [f"- {title}: {'holds' if held else '**FAILED**'} ({seconds:.0f} s)" for title, held, seconds in verdicts]
    text = (ROOT / "scripts" / "reliability.md").read_text(encoding="utf-8")
    for name, part in {
        "head": head(""),
        "verdicts": "\n".join(lines),
        "figures": between(record, "in all", "gaps in the table"),
        "planted": between(record, "planted fault", "PASSED"),
    }.items():
        text = text.replace("{" + name + "}", part)
    return text


def between(text: str, first: str, last: str) -> str:
    """The lines from one that begins with `first` to one that holds `last`."""
    lines = text.splitlines()
    begin = next((place for place, line in enumerate(lines) if line.strip().startswith(first)), len(lines))
    end = next((place for place, line in enumerate(lines) if place > begin and last in line), len(lines))
    return "\n".join(line.rstrip() for line in lines[begin : end + 1] if line != "PASSED") or "(not run)"


def head(title: str) -> str:
    """When, of what, and where: without these a figure means nothing."""
    commit = git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain", "-uno") else "")
    today = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"{title}Date: {today}. Commit: {commit or 'unknown'}. Python {version}, {os.cpu_count()} cores.\n"


def git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
