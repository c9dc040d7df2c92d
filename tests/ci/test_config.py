"""The config: what is wrong is told with its place, everything at once, and what is right is read as it is written."""

import re
from pathlib import Path

import pytest

from interlock.kernel.errors import InterlockError
from interlock.plugins.ci import yaml_nodes
from interlock.plugins.ci.config import CiConfig, CiJob, CiStep, parse_config
from interlock.plugins.ci.config_writer import STARTER, write_config
from interlock.plugins.ci.old_config import parse_old_config
from interlock.plugins.ci.yaml_nodes import ConfigError
from tests.docs.ci_reference import PAGE, render_page

BAD = [
    tuple(case.split("=>\n"))
    for case in Path(__file__).with_name("bad_configs.txt").read_text(encoding="utf-8").split("====\n")
]
WHOLE = """\
version: 1
on:
  push: {branches: [main, "release/*"], tags: ["v*"]}
  pull_request: {}
  schedule: [{cron: "0 3 * * *", timezone: Europe/Berlin}]
run: {timeout: 2h, queue_timeout: 30m, plan_timeout: 2m, supersede: pull_request, fail_fast: false}
env: {SPEED: on, VERSION: 3.10, EMPTY: ""}
jobs:
  build:
    steps: [pip install -e ., make build]
    inputs: [src/**, pyproject.toml, Makefile]
    artifacts: [{name: wheel, paths: [dist/*.whl], keep: 60d}]
  test:
    needs: [build]
    matrix: {python: [3.10, "3.12"], os: [linux, mac], include: [{python: "3.13", os: linux, allow_failure: true}], exclude: [{os: mac, python: 3.10}]}
    labels: [linux, "python-{python}"]
    env: {JSON: '{"a": {"b": 1}}', TEXT: "{{python}", NAME: "{job}"}
    steps:
      - {name: tests, run: pytest --junitxml=report.xml, timeout: 20m}
      - |
        cat <<EOF
        TABa tab in a block is text
        EOF
    after: [docker compose down]
    reports: {junit: report.xml}
    timeout: 90m
    cancel_within: 60s
    retries: {runner: 3, flaky: 1, exit: {137: 1}}
  lint: {steps: [make lint], allow_failure: true, inputs: ["**/*.py"]}
  ship: {gate: {approvers: [ops], quorum: 2, expires: 24h}, needs: [test]}
  deploy: {needs: [ship], when: {branch: main, event: [push, manual]}, secrets: [DEPLOY_KEY], network: true, steps: [make deploy], processes: 500, reuse: never}
""".replace("TAB", "\t")


def read_problems(text: str | bytes) -> list[str]:
    """What is wrong with a config."""
    with pytest.raises(ConfigError) as refused:
        parse_config(text.encode() if isinstance(text, str) else text, "ci.yaml")
    return str(refused.value).splitlines()


@pytest.mark.parametrize(("text", "messages"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_is_told_with_its_place_and_what_is_allowed(text: str, messages: str) -> None:
    assert read_problems(text) == messages.splitlines()
    for message in messages.splitlines():
        assert re.fullmatch(r"ci\.yaml:\d+:\d+: .+; .+", message)


def test_there_are_enough_bad_configs() -> None:
    assert len(BAD) >= 40


def test_bounds_are_kept() -> None:
    job = "{steps: [make]}"
    many = "jobs:\n" + "".join(f"  j{number}: {job}\n" for number in range(501))
    assert read_problems(many) == ["ci.yaml:2:3: a map of 501; allowed are 1 to 500"]
    wide = ", ".join(f"v{number}" for number in range(17))
    matrix = f"jobs:\n  a: {{steps: [make], matrix: {{x: [{wide}], y: [{wide}]}}}}\n"
    assert read_problems(matrix) == ["ci.yaml:2:30: a matrix of 289 combinations; allowed are 256"]
    allowed = ", ".join(f"v{number}" for number in range(16))
    twice = "jobs:\n" + "".join(
        f"  {name}: {{steps: [make], matrix: {{x: [{allowed}], y: [{allowed}]}}}}\n" for name in "ab"
    )
    assert read_problems(twice) == ["ci.yaml:2:3: with their matrices these are 512 jobs; allowed are 500"]
    assert len(parse_config(twice[: twice.index("  b")].encode()).jobs) == 1
    assert read_problems(b"#" * ((1 << 20) + 1)) == [
        "ci.yaml:1:1: the file has more than 1,048,576 bytes; allowed are no more"
    ]
    long = f"jobs: {{a: {{steps: [{'x' * 65_537}]}}}}"
    assert read_problems(long) == ["ci.yaml:1:20: this text has 65,537 characters; allowed are 65,536"]
    deep = "jobs: " + "[" * 500_000
    assert read_problems(deep) == ["ci.yaml:1:26: more than 20 levels; a config has at most 8"]


def test_what_is_no_text_is_refused() -> None:
    assert read_problems(b"jobs: {}\n# \xff") == ["ci.yaml:2:3: this is no UTF-8; allowed is text in UTF-8"]
    assert read_problems("jobs: \x07") == [
        "ci.yaml:1:7: the character '\\x07'; allowed are letters, signs and line ends"
    ]
    assert read_problems("") == ["ci.yaml:1:1: the file is empty; allowed is a map with the key jobs"]
    assert read_problems("# nothing\n") == ["ci.yaml:1:1: the file is empty; allowed is a map with the key jobs"]
    assert read_problems('jobs: {a: {steps: ["a\\0b"]}}') == [
        "ci.yaml:1:20: 'a\\x00b' is not allowed here; allowed is a shell command"
    ]


def test_a_flood_of_problems_is_cut() -> None:
    problems = read_problems("jobs:\n" + "".join(f"  j{number}: {{stepz: []}}\n" for number in range(200)))
    assert len(problems) == 101
    assert problems[-1] == "ci.yaml: and 300 more problems"  # an unknown key and no steps, for each


def test_a_config_is_read_as_it_is_written() -> None:
    config = parse_config(WHOLE.encode())
    assert config.env == {"SPEED": "on", "VERSION": "3.10", "EMPTY": ""}
    test = config.jobs["test"]
    assert test.matrix is not None
    assert test.matrix.values == {"python": ("3.10", "3.12"), "os": ("linux", "mac")}
    assert test.matrix.exclude == ({"os": "mac", "python": "3.10"},)
    assert (test.timeout, test.cancel_within, test.retries.exit) == ("1h 30m", "1m", {"137": 1})
    assert test.steps[1].run == "cat <<EOF\n\ta tab in a block is text\nEOF\n"
    assert config.jobs["deploy"].when.event == ("push", "manual")
    assert config.on is not None
    assert config.on.pull_request is not None
    assert config.jobs["lint"] == CiJob(steps=(CiStep(run="make lint"),), allow_failure=True, inputs=("**/*.py",))


@pytest.mark.parametrize("config", [parse_config(WHOLE.encode()), STARTER], ids=["whole", "starter"])
def test_a_config_that_is_written_reads_back(config: CiConfig) -> None:
    assert parse_config(write_config(config).encode()) == config


def test_without_pyyaml_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(yaml_nodes, "import_module", fail)
    with pytest.raises(InterlockError, match=re.escape("pip install 'interlock[ci]'")):
        parse_config(b"jobs: {}")


OLD = """\
version: 1
jobs:
  build:
    workdir: .
    steps: [make]
    artifacts: [dist/**]
    policy: {required: false, retries: 2, timeout_seconds: 600}
  test:
    steps: [make test]
    policy: {required: true, allow_failure: true}
policies: {runs: {cancel_superseded: true, max_runtime_seconds: 5400}}
"""
BAD_OLD = """\
version: 1
jobs:
  a: {image: x, workdir: sub, steps: [make], stepz: [], caches: [], policy: {retries: many, timeout_seconds: 0, required: no}}
  b: {policy: {}}
policies: {runs: {max_concurrency: 3}}
limits: {cpu: 2}
on: push
"""


def test_the_older_format_is_read_by_a_table() -> None:
    config = parse_old_config(OLD.encode())
    build, test = config.jobs["build"], config.jobs["test"]
    assert (build.allow_failure, build.retries.runner, build.retries.flaky, build.timeout) == (True, 2, 2, "10m")
    assert [(artifact.name, artifact.paths) for artifact in build.artifacts] == [("files", ("dist/**",))]
    assert (test.allow_failure, test.steps) == (True, (CiStep(run="make test"),))
    assert (config.run.supersede, config.run.timeout) == ("always", "1h 30m")


def test_what_is_wrong_with_the_older_format_is_told_with_its_place() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_old_config(BAD_OLD.encode())
    lines = [line.partition("; ")[0].removeprefix("ci.ai.yaml:") for line in str(refused.value).splitlines()]
    assert lines == [
        "3:7: the key 'image' cannot be served by this version",
        "3:26: this 'workdir' cannot be served by this version",
        "3:46: there is no key 'stepz' (did you mean 'steps'?)",
        "3:57: the key 'caches' cannot be served by this version",
        "3:87: 'many' is not allowed here",
        "3:110: '0s' is not allowed here",
        "3:123: 'no' is read in two ways",
        "4:3: the job 'b' has no steps",
        "5:19: the key 'max_concurrency' cannot be served by this version",
        "6:10: the key 'cpu' cannot be served by this version",
        "7:1: there is no key 'on'",
    ]


def test_the_reference_in_the_docs_is_rendered_from_the_structs() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "run python -m tests.docs.ci_reference"
