"""Runs the long forms of the tests and writes what came of it to docs/proof.md."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
# Each proof: what it shows, and the command that shows it.
PROOFS = [
    (
        "Every lifecycle keeps its promises within 4 attempts and 3 messages in flight",
        ["interlock", "lifecycle", "check", "--attempts", "4"],
    ),
    ("The long forms of the tests", ["python", "-m", "pytest", "-v", "-s", "--no-header", "-m", "proof", "tests"]),
]


def main() -> int:
    sections, failed = [], 0
    for title, command in PROOFS:
        print(f"--- {title}", flush=True)
        began = time.monotonic()
        done = subprocess.run(
            [str(BIN / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        failed += done.returncode != 0
        print(done.stdout + done.stderr, end="", flush=True)
        verdict = "holds" if done.returncode == 0 else f"FAILED (exit {done.returncode})"
        said = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())
        sections.append(f"## {title}\n\n`{' '.join(command)}`: {verdict}, {seconds:.0f} s.\n\n```\n{said}\n```\n")
    (ROOT / "docs" / "proof.md").write_text("\n".join([head(), *sections]), encoding="utf-8")
    return 1 if failed else 0


def head() -> str:
    """When, of what, and where: without these a figure means nothing."""
    commit = git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain", "-uno") else "")
    today = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        "# The last proof\n\nWritten by `make proof`, which runs the long forms of the tests.\n\n"
        f"Date: {today}. Commit: {commit or 'unknown'}. Python {version}, {os.cpu_count()} cores.\n"
    )


def git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
