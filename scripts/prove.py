"""Runs the long forms of the tests and writes what came of it to docs/proof.md and docs/reliability.md.

`PARTS="engine,killed"` runs only those proofs whose title has one of these words. What the page says of the others is
kept, with its own date and commit. The pages are written whenever a proof has ended: one that is stopped loses little.
"""

import os
import re
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
KILLED, PLANTED = ["tests/chaos"], ["tests/mutants"]
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
        ("The long forms of the tests: processes that are killed", [*TESTS, *KILLED]),
        ("The long forms of the tests: planted faults", [*TESTS, *PLANTED]),
    ],
    [
        (
            "The long forms of the tests: the engine",
            [*TESTS, *(folder for folder in FOLDERS if folder not in (*AROUND, *KILLED, *PLANTED))],
        ),
        ("The long forms of the tests: what is around it", [*TESTS, *AROUND]),
    ],
]


KEPT = re.compile(r"^## (.+)\n\n`(.+)`: (holds|FAILED), (\d+) s\. (.+)\n\n```\n((?:.*\n)*?)```$", re.MULTILINE)


class Proved(NamedTuple):
    """What came of one proof, of which commit."""

    title: str
    command: str
    held: bool
    seconds: float
    origin: str
    output: str

    @property
    def section(self) -> str:
        """Its part of the page."""
        verdict, output = (
            "holds" if self.held else "FAILED",
            "\n".join(map(str.rstrip, self.output.strip().splitlines())),
        )
        head = f"## {self.title}\n\n`{self.command}`: {verdict}, {self.seconds:.0f} s. {self.origin}"
        return f"{head}\n\n```\n{output}\n```\n"


def read_kept() -> dict[str, Proved]:
    """What the page says, by title."""
    page = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    return {
        title: Proved(title, command, verdict == "holds", float(seconds), origin, output)
        for title, command, verdict, seconds, origin, output in KEPT.findall(page)
    }


def prove(title: str, command: list[str]) -> Proved | None:
    """Runs one proof; None if it is left out."""
    parts = [word for word in os.environ.get("PARTS", "").split(",") if word]
    if parts and not any(word in title for word in parts):
        return None
    print(f"--- {title}", flush=True)
    began = time.monotonic()
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "SECONDS": SECONDS},
    )  # fmt: skip
    print(done.stdout + done.stderr, end="", flush=True)
    held, took = done.returncode == 0, time.monotonic() - began
    return Proved(title, " ".join(command), held, took, origin(), done.stdout)


def main() -> int:
    known, titles = read_kept(), [title for together in PROOFS for title, _ in together]
    for together in PROOFS:
        with ThreadPoolExecutor(len(together)) as pool:
            known |= {proof.title: proof for proof in pool.map(lambda each: prove(*each), together) if proof}
        write_pages([known[title] for title in titles if title in known])
    return 0 if all(title in known and known[title].held for title in titles) else 1


def write_pages(proofs: list[Proved]) -> None:
    sections = [proof.section for proof in proofs]
    (ROOT / "docs" / "proof.md").write_text("\n".join([f"{TITLE}{origin()}\n", *sections]), encoding="utf-8")
    (ROOT / "docs" / "reliability.md").write_text(reliability(proofs), encoding="utf-8")


def reliability(proofs: list[Proved]) -> str:
    """What is promised, how it is tested, what came of it this time, and what is not covered."""
    record = "".join(f"{proof.output}\n" for proof in proofs)
    verdicts = {True: "holds", False: "**FAILED**"}
    lines = [f"- {proof.title}: {verdicts[proof.held]} ({proof.seconds:.0f} s). {proof.origin}" for proof in proofs]
    text = (ROOT / "scripts" / "reliability.md").read_text(encoding="utf-8")
    for name, part in {
        "head": f"{origin()}\n",
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


def origin() -> str:
    """When, of what, and where: without these a figure means nothing."""
    is_changed = git("status", "--porcelain", "-uno", "--", ":!docs")  # what it writes itself is there
    commit = git("rev-parse", "--short", "HEAD") + (" with changes" if is_changed else "")
    today = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"Date: {today}. Commit: {commit or 'unknown'}. Python {version}, {os.cpu_count()} cores."


def git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
