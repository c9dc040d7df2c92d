"""Which jobs are found in repositories without a config."""

import json

import pytest

from interlock.plugins.ci.config import parse_config
from interlock.plugins.ci.config_writer import write_config
from interlock.plugins.ci.discovery import READ_FILES, SHELL_FILES, discover
from interlock.plugins.ci.planner import PlanInput, plan_jobs

PYTHON = {
    "pyproject.toml": "[project]\nname = 'x'\n[tool.ruff]\nline-length = 100\n[tool.pytest.ini_options]\n",
    "src/x.py": "", "tests/test_x.py": "",
}  # fmt: skip
NODE = {
    "package.json": json.dumps({"scripts": {"build": "tsc", "test": "vitest", "lint": "eslint ."}}),
    "package-lock.json": "{}", "index.ts": "",
}  # fmt: skip
MAKE = {"Makefile": "VALUE := x\n.PHONY: build test\nbuild:\n\tcc a.c\ntest lint: build\n\t./a.out\n", "a.c": ""}
VENV = ["python3 -m venv .venv", ".venv/bin/pip install ."]
CASES = {
    "python": (PYTHON, {
        "build": [*VENV, "python3 -m compileall -q -x '/\\.venv/' ."],
        "test": [*VENV, ".venv/bin/pip install pytest", ".venv/bin/python -m pytest"],
        "lint": ["python3 -m venv .venv", ".venv/bin/pip install ruff", ".venv/bin/python -m ruff check ."],
    }),
    "python without packages": ({"app.py": "", "test_app.py": ""}, {
        "build": ["python3 -m compileall -q ."], "test": ["python3 -m unittest discover"],
    }),
    "python with tests in folders": (
        {"app.py": "", "tests/test_app.py": "", "pkg/__init__.py": "", "pkg/test_in.py": "", "more/app_test.py": ""}, {
        "build": ["python3 -m compileall -q ."],
        "test": ["python3 -m unittest discover", "python3 -m unittest discover -s more -p '*_test.py'",
                 "python3 -m unittest discover -s tests"],
    }),
    "node": (NODE, {
        "build": ["npm ci", "npm run build"], "test": ["npm ci", "npm run test"], "lint": ["npm ci", "npm run lint"],
    }),
    "node without tests": ({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'}, {
        "build": ["npm install --no-save"],
    }),
    "a package that is no json": ({"package.json": "{", "yarn.lock": ""}, {"build": ["yarn install --frozen-lockfile"]}),
    "make": (MAKE, {"build": ["make build"], "test": ["make test"], "lint": ["make lint"]}),
    "make all": ({"Makefile": "all: a\na:\n\ttrue\n"}, {"build": ["make all"]}),
    "make check": ({"makefile": "check:\n\ttrue\n"}, {"test": ["make check"]}),
    "make comes first": ({**MAKE, **PYTHON}, {"build": ["make build"], "test": ["make test"], "lint": ["make lint"]}),
    "a variable is no target": ({"Makefile": "test := x\nbuild ::= y\n"}, {}),
    "go": ({"go.mod": "", "a.go": ""}, {"build": ["go build ./..."], "test": ["go test ./..."], "lint": ["go vet ./..."]}),
    "rust": ({"Cargo.toml": ""}, {"build": ["cargo build"], "test": ["cargo test"], "lint": ["cargo clippy"]}),
    "shell": ({"bin/a.sh": ""}, {"lint": [SHELL_FILES]}),
    "two kinds": ({"go.mod": "", "a.sh": ""}, {
        "build": ["go build ./..."], "test": ["go test ./..."],
        "lint": [SHELL_FILES, "go vet ./..."],
    }),
    "nothing": ({"README.md": "", "docs/a.md": ""}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("files", "stages"), CASES.values(), ids=CASES)
def test_jobs_are_found_by_files(files: dict[str, str], stages: dict[str, list[str]]) -> None:
    config = discover(files.keys(), {name: text for name, text in files.items() if name in READ_FILES})
    jobs = config.jobs if config else {}
    assert {name: [step.run for step in job.steps] for name, job in jobs.items()} == stages
    for name, job in jobs.items():
        assert job.allow_failure == (name == "lint" and len(jobs) > 1)  # what is alone decides
        assert job.needs == (("build",) if name != "build" and "build" in jobs else ())
        assert job.network == any(
            word in step.run for step in job.steps for word in ("pip ", "npm ", "yarn ", "go ", "cargo ")
        )
    if config:
        assert parse_config(write_config(config).encode()) == config


def test_if_only_docs_have_changed_only_the_build_runs() -> None:
    config = discover(MAKE.keys(), MAKE)
    assert config is not None

    def plan(*changed: str, source: str = "discovered") -> tuple[dict[str, str], dict[str, str]]:
        made = plan_jobs(PlanInput(config=config, source=source, changed=changed, tree=dict.fromkeys(MAKE, "1")))
        return {job.name: job.reason for job in made.jobs}, {job.name: job.reason for job in made.skipped}

    assert plan("README.md", "docs/a.png") == (
        {"build": "'README.md' has changed; only docs have, so nothing but the build runs"},
        {"test": "only docs have changed, such as 'README.md'", "lint": "only docs have changed, such as 'README.md'"},
    )
    assert plan("README.md", "a.c")[0].keys() == {"build", "test", "lint"}
    assert plan("README.md", source="config")[0].keys() == {"build", "test", "lint"}
