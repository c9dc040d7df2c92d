"""Which jobs a repository has that says nothing: from the files at its root, and what a few of them hold.

Every kind of project gives commands for three jobs: build, test and lint. A target of a Makefile comes first, since it
is what the project itself calls so. Test and lint need the build. Lint may fail, unless it is all that there is: then a
run that cannot fail would say nothing.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from interlock.plugins.ci.config import CiConfig, CiJob, CiStep

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
LOCKS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "package-lock.json": "npm", "npm-shrinkwrap.json": "npm"}
INSTALLS = {
    "npm": "npm ci", "pnpm": "pnpm install --frozen-lockfile", "yarn": "yarn install --frozen-lockfile",
}  # fmt: skip
# The files whose text decides; all of them stand at the root.
READ_FILES = (*MAKEFILES, "pyproject.toml", "setup.cfg", "tox.ini", "requirements.txt", "requirements-dev.txt",
              "package.json")  # fmt: skip
TARGET = re.compile(r"^([A-Za-z0-9_.-]+(?:[ \t]+[A-Za-z0-9_.-]+)*)[ \t]*::?(?![:=])", re.MULTILINE)
TEST_FILE = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
STAGES = ("build", "test", "lint")
# Whether scripts can be read: by the shell that runs the step, without a repository, which a sandbox has not.
SHELL_FILES = """find . -name '*.sh' -type f -print0 | xargs -0 -n 1 "${BASH:-sh}" -n"""
Commands = dict[str, list[str]]  # of a stage


def discover(paths: Collection[str], texts: Mapping[str, str]) -> CiConfig | None:
    """Returns the jobs of a repository without a config; None if nothing is known of it.

    Parameters:
        paths: all its files.
        texts: what those of `READ_FILES` hold that are there.
    """
    kinds: tuple[Callable[[Collection[str], Mapping[str, str]], Commands], ...] = (
        find_shell, find_make, find_python, find_node, find_go, find_rust,  # scripts first: others bring some of theirs
    )  # fmt: skip
    by_make = find_make(paths, texts)
    stages: Commands = {}
    for find in kinds:
        for stage, commands in find(paths, texts).items():
            if find is find_make or stage not in by_make:
                stages.setdefault(stage, []).extend(commands)
    if not stages:
        return None
    return CiConfig(jobs={stage: make_job(stage, stages) for stage in STAGES if stage in stages})


def make_job(stage: str, stages: Commands) -> CiJob:
    """Returns the job of a stage."""
    commands = stages[stage]
    network = any(re.search(r"\b(pip|npm|pnpm|yarn|go|cargo) ", command) for command in commands)
    return CiJob(
        steps=tuple(CiStep(run=command) for command in commands),
        needs=("build",) if stage != "build" and "build" in stages else (),
        allow_failure=stage == "lint" and len(stages) > 1, network=network,
    )  # fmt: skip


def find_make(paths: Collection[str], texts: Mapping[str, str]) -> Commands:
    """Returns the targets of a Makefile that are called like a stage."""
    text = next((texts[name] for name in MAKEFILES if name in texts), "")
    targets = {word for line in TARGET.findall(text) for word in line.split()}
    stages = {stage: [f"make {stage}"] for stage in STAGES if stage in targets}
    for stage, other in (("build", "all"), ("test", "check")):
        if other in targets:
            stages.setdefault(stage, [f"make {other}"])
    return stages


def find_python(paths: Collection[str], texts: Mapping[str, str]) -> Commands:
    """Returns how a Python project is built, tested and linted: in an environment of its own."""
    project = read_toml(texts.get("pyproject.toml", ""))
    is_package = "pyproject.toml" in texts and ("project" in project or "build-system" in project)
    is_package = is_package or "setup.py" in paths
    modules = [path for path in paths if path.endswith(".py")]
    if not is_package and "requirements.txt" not in paths and not any("/" not in path for path in modules):
        return {}
    every = "\n".join(texts.values())
    tests = [path for path in modules if TEST_FILE.search(path)]
    by_pytest = bool(re.search(r"\bpytest\b", every)) or "conftest.py" in paths or "tests/conftest.py" in paths
    linter = next(
        (
            name
            for name, marks in (("ruff", ("ruff.toml", ".ruff.toml")), ("flake8", (".flake8",)))
            if any(mark in paths for mark in marks) or re.search(rf"^\[+(tool\.)?{name}\b", every, re.MULTILINE)
        ),
        None,
    )
    install = ["requirements.txt", "requirements-dev.txt"]
    wanted = [f"-r {name}" for name in install if name in paths] + ["."] * is_package
    setup = ["python3 -m venv .venv"] if wanted or (tests and by_pytest) or linter else []
    setup += [f".venv/bin/pip install {' '.join(wanted)}"] if wanted else []
    stages: Commands = {"build": [*setup, "python3 -m compileall -q -x '/\\.venv/' ."] if setup else
                        ["python3 -m compileall -q ."]}  # fmt: skip
    if tests and by_pytest:
        stages["test"] = [*setup, ".venv/bin/pip install pytest", ".venv/bin/python -m pytest"]
    elif tests:
        python = ".venv/bin/python" if setup else "python3"
        stages["test"] = [*setup, *(f"{python} -m unittest discover{words}" for words in find_unittests(paths, tests))]
    if linter:
        words = "ruff check ." if linter == "ruff" else "flake8 --exclude .venv"
        stages["lint"] = ["python3 -m venv .venv", f".venv/bin/pip install {linter}", f".venv/bin/python -m {words}"]
    return stages


def find_unittests(paths: Collection[str], tests: Collection[str]) -> list[str]:
    """Returns with which words `unittest discover` finds tests: it looks into packages only, and for one pattern."""
    starts: set[tuple[str, str]] = set()
    for path in tests:
        folder, _, name = path.rpartition("/")
        while folder and f"{folder}/__init__.py" in paths:
            folder = folder.rpartition("/")[0]
        pattern = "" if name.startswith("test") else " -p '*_test.py'"
        starts.add((f" -s {shlex.quote(folder)}" if folder else "", pattern))
    return sorted(start + pattern for start, pattern in starts)


def find_node(paths: Collection[str], texts: Mapping[str, str]) -> Commands:
    """Returns the scripts of a Node project that are called like a stage."""
    if "package.json" not in texts:
        return {}
    try:
        package = json.loads(texts["package.json"])
    except ValueError:
        package = {}
    scripts = package.get("scripts") if isinstance(package, dict) else None
    manager = next((name for file, name in LOCKS.items() if file in paths), "npm")
    locked = any(file in paths for file in LOCKS)
    install = INSTALLS[manager] if locked else "npm install --no-save"
    stages: Commands = {"build": [install]}
    for stage in STAGES:
        script = scripts.get(stage) if isinstance(scripts, dict) else None
        if isinstance(script, str) and "no test specified" not in script:
            stages[stage] = [install, f"{manager} run {stage}"]
    return stages


def find_go(paths: Collection[str], texts: Mapping[str, str]) -> Commands:
    """Returns how a Go module is built, tested and linted."""
    commands = {"build": ["go build ./..."], "test": ["go test ./..."], "lint": ["go vet ./..."]}
    return commands if "go.mod" in paths else {}


def find_rust(paths: Collection[str], texts: Mapping[str, str]) -> Commands:
    """Returns how a Rust crate is built, tested and linted."""
    commands = {"build": ["cargo build"], "test": ["cargo test"], "lint": ["cargo clippy"]}
    return commands if "Cargo.toml" in paths else {}


def find_shell(paths: Collection[str], texts: Mapping[str, str]) -> Commands:
    """Returns how shell scripts are checked: whether they can be read."""
    return {"lint": [SHELL_FILES]} if any(path.endswith(".sh") for path in paths) else {}


def read_toml(text: str) -> dict[str, Any]:
    """Returns what a TOML file holds; nothing if it is none."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
