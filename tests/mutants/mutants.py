"""Planted faults: each a patch to a copy of the package, and what notices it.

Most are noticed by the simulation, within so many seeds. Those in `named` are out of its reach: each names the test
that fails with it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path(__file__).parent
NAMED = FOLDER / "named"
NOTICED_BY = re.compile(r"^Noticed by (tests/(?:\w+/)*\w+\.py::.+)$", re.MULTILINE)
HUNK = re.compile(r"^@@ .*? @@.*\n", re.MULTILINE)
PLAY = """
import sys
from interlock.testing import simulate
first, most = int(sys.argv[1]), int(sys.argv[2])
for count, seed in enumerate(range(first, first + most), start=1):
    violations = simulate(seed).violations
    if violations:
        print(count, violations[0][:200].replace(chr(10), " "))
        break
"""


def patches(folder: Path = FOLDER) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.patch"))}


def patched(patch: str, read: dict[str, str]) -> dict[str, str]:
    """The files that a patch changes, as it leaves them. Its hunks are found by what they hold, not by line."""
    files: dict[str, str] = {}
    _, *parts = re.split(r"^--- a/.*\n\+\+\+ b/(.*)\n", patch, flags=re.MULTILINE)
    for name, hunks in zip(parts[::2], parts[1::2], strict=True):
        text = read[name]
        for hunk in HUNK.split(hunks)[1:]:
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            new = "".join(line[1:] for line in lines if line[0] in " +")
            assert text.count(old) == 1, f"{name}: what is to be changed is there {text.count(old)} times"
            text = text.replace(old, new)
        files[name] = text
    return files


def patched_files(path: Path) -> dict[str, str]:
    """The text of every file that a patch changes, by name, with the fault in it."""
    patch = path.read_text(encoding="utf-8")
    names = re.findall(r"^--- a/(.*)$", patch, flags=re.MULTILINE)
    return patched(patch, {name: (ROOT / name).read_text(encoding="utf-8") for name in names})


def plant(path: Path, folder: Path) -> None:
    """Copies the package into the folder, with the fault in it."""
    shutil.copytree(ROOT / "interlock", folder / "interlock", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in patched_files(path).items():
        (folder / name).write_text(text, encoding="utf-8")


def seeds_until_caught(path: Path, folder: Path, most: int, first: int = 1) -> tuple[int, str]:
    """After how many seeds the fault is noticed, and how; 0 if it is not."""
    plant(path, folder)
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PLAY, str(first), str(most)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:  # it cannot even be begun
        return 1, done.stderr.strip().splitlines()[-1].replace(f"{folder}/", "")[:200]
    count, _, how = done.stdout.strip().partition(" ")
    return int(count or 0), how


def noticing_test(path: Path) -> str:
    """The test that a planted fault names, as pytest knows it."""
    (test,) = NOTICED_BY.findall(path.read_text(encoding="utf-8"))
    return str(test)


def run_planted(path: Path, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Its own test is run against a copy of the package with the fault in it."""
    plant(path, folder)
    for name in ("tests", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*command, noticing_test(path)], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
