"""The planner: which jobs a change needs, why, and that equal inputs have equal plans."""

import subprocess
import sys
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from interlock.plugins.ci.config import CiConfig, CiGate, CiJob, CiStep, parse_config
from interlock.plugins.ci.globs import GlobSet, match_any
from interlock.plugins.ci.planner import CiPlan, PlanInput, PlanNeed, plan_jobs
from tests.conftest import ROOT

CONFIG = """\
env: {SHARED: "1"}
on: {push: {branches: [main, "release/*"], tags: ["v*"]}}
jobs:
  build: {steps: [make], inputs: [src/**, Makefile]}
  test:
    needs: [build]
    steps: [make test]
    inputs: [tests/**]
    matrix: {python: ["3.11", "3.12"], include: [{python: "3.13", allow_failure: true}]}
    labels: ["python-{python}"]
    env: {NAME: "{job}"}
  lint: {steps: [make lint], inputs: ["**/*.py"], allow_failure: true}
  docs: {steps: [make docs], inputs: ["docs/**/*.md"], needs: [lint]}
  all: {steps: [make all]}
  deploy: {steps: [make deploy], needs: [test], when: {branch: main}, secrets: [KEY]}
"""
TREE = {path: f"100644 {number:040x}" for number, path in enumerate(
    ["Makefile", "README", "src/a.c", "src/b.py", "tests/t.py", "docs/x/y.md", ".interlock/ci.yaml"]
)}  # fmt: skip


def plan(text: str = CONFIG, **facts: Any) -> CiPlan:
    """A plan for a change of a config."""
    return plan_jobs(
        PlanInput(**{"config": parse_config(text.encode()), "tree": TREE, "base": "b" * 40, "branch": "topic", **facts})
    )


def reasons(made: CiPlan) -> dict[str, str]:
    """Why jobs run."""
    return {job.name: job.reason for job in made.jobs}


def skips(made: CiPlan) -> dict[str, str]:
    """Why jobs are left out."""
    return {job.name: job.reason for job in made.skipped}


# Which jobs run, and why.


@pytest.mark.req("X-19")
def test_a_job_runs_if_its_inputs_a_need_or_one_that_needs_it_asks_for_it() -> None:
    made = plan(changed=("src/a.c",))
    assert reasons(made) == {
        "build": "'src/a.c' matches 'src/**'",
        "test:3.11": "the job 'build' runs, which it needs",
        "test:3.12": "the job 'build' runs, which it needs",
        "test:3.13": "the job 'build' runs, which it needs",
        "all": "'src/a.c' has changed, and the job names no inputs",
    }
    assert skips(made) == {
        "lint": "no changed path matches **/*.py",
        "docs": "no changed path matches docs/**/*.md",
        "deploy": "when.branch is main, and this is 'topic'",
    }
    made = plan(changed=("tests/t.c",))
    assert reasons(made)["build"] == "the job 'test' runs and needs it"
    assert "lint" not in reasons(made)
    made = plan(changed=("docs/x/y.md",))
    assert (reasons(made)["docs"], reasons(made)["lint"]) == (
        "'docs/x/y.md' matches 'docs/**/*.md'",
        "the job 'docs' runs and needs it",
    )
    assert "build" not in reasons(made)


def test_what_is_not_known_is_wide() -> None:
    made = plan(changed=None, unknown_because="there is no common ancestor", branch="main")
    assert set(reasons(made).values()) == {"there is no common ancestor"}
    assert not made.skipped
    assert made.changed is None
    made = plan(changed=(".interlock/ci.yaml", "src/a.c"), branch="main")
    assert set(reasons(made).values()) == {"the config '.interlock/ci.yaml' has changed"}
    misspelt = "jobs: {a: {steps: [make], inputs: [scr/**, 'lib/*.c']}, b: {steps: [make], inputs: [src/**, lib/**]}}"
    made = plan(misspelt, changed=("README",))
    assert reasons(made) == {"a": "no file matches scr/**, lib/*.c, so it is not known what it depends on"}
    made = plan("jobs: {a: {steps: [make], inputs: [gone/**]}}", changed=("gone/x",))
    assert reasons(made) == {"a": "'gone/x' matches 'gone/**'"}  # a file that was deleted


def test_a_plan_without_work_has_a_job_that_says_why() -> None:
    made = plan(
        "jobs: {a: {steps: [make], inputs: [src/**]}, b: {steps: [make], when: {tag: 'v*'}}}", changed=("README",)
    )
    assert reasons(made) == {
        "nothing": "every job is left out: a: no changed path matches src/**; b: when.tag is v*, and this is no tag"
    }
    assert (
        plan(changed=())
        .jobs[0]
        .reason.startswith("every job is left out: build: nothing has changed since bbbbbbbbbbbb;")
    )


def test_where_a_job_may_run_is_decided_before() -> None:
    everything: dict[str, Any] = {"changed": None, "unknown_because": "all"}
    assert "deploy" in reasons(plan(**everything, branch="main"))
    assert skips(plan(**everything, branch=None))["deploy"] == "when.branch is main, and this is no branch"
    pushed = plan(**everything, event="push", branch="topic")
    assert set(skips(pushed).values()) == {"the branch 'topic' matches none of main, release/*"}
    assert [job.name for job in pushed.jobs] == ["nothing"]
    assert "build" in reasons(plan(**everything, event="push", branch="release/2"))
    assert "build" in reasons(plan(**everything, event="push", branch=None, tag="v1"))
    assert set(skips(plan(**everything, event="push", branch=None, tag="x")).values()) == {"the tag 'x' starts no run"}
    assert set(skips(plan(**everything, event="pull_request")).values()) == {"'on' does not name pull_request"}
    assert set(skips(plan(**everything, event="schedule")).values()) == {"'on' names no schedule"}
    chain = "jobs: {a: {steps: [x], when: {event: push}}, b: {steps: [x], needs: [a]}}"
    assert skips(plan(chain, **everything)) == {
        "a": "when.event is push, and this is manual",
        "b": "it needs 'a', which is left out",
    }
    assert "a" in reasons(plan(chain, **everything, event="push"))
    assert skips(plan(chain, **everything, event="schedule"))["a"] == "'on' names no schedule"


# Jobs as they are run.


def test_a_matrix_is_jobs_with_their_values_in_place() -> None:
    made = {job.name: job for job in plan(changed=None, branch="main").jobs}
    job = made["test:3.12"]
    assert job.spec["labels"] == ["python-3.12"]
    assert job.spec["env"] == {"SHARED": "1", "NAME": "test:3.12", "MATRIX_PYTHON": "3.12"}
    assert job.spec["steps"] == ({"run": "make test"},)
    assert (job.required, made["test:3.13"].required) == (True, False)
    assert made["deploy"].needs == (
        PlanNeed("test:3.11", "success"), PlanNeed("test:3.12", "success"), PlanNeed("test:3.13", "end"),
    )  # fmt: skip
    assert made["docs"].needs == (PlanNeed("lint", "end"),)
    names = list(made)
    assert all(names.index(need.job) < names.index(job.name) for job in made.values() for need in job.needs)


def test_a_fingerprint_is_all_that_a_result_depends_on() -> None:
    def prints(text: str = CONFIG, **facts: Any) -> dict[str, str]:
        return {job.name: job.fingerprint for job in plan(text, **{"changed": None, "branch": "main", **facts}).jobs}

    before = prints()
    assert before == prints(changed=("README", "src/a.c", "docs/x/y.md"), base="c" * 40) | {"lint": before["lint"]}

    def changed(after: dict[str, str]) -> set[str]:
        return {name for name in before if before[name] != after[name]}

    tests = {"test:3.11", "test:3.12", "test:3.13"}
    assert changed(prints(tree={**TREE, "src/a.c": "100644 f"})) == {"build", "all", "deploy", *tests}
    assert changed(prints(tree={**TREE, "src/a.c": TREE["src/a.c"].replace("100644", "100755")})) >= {"build"}
    assert changed(prints(tree={**TREE, "docs/new.md": "100644 f"})) == {"docs", "all", "deploy"}
    assert changed(prints(CONFIG.replace("[make test]", "[make tests]"))) == {"deploy", *tests}
    assert changed(prints(CONFIG.replace('SHARED: "1"', 'SHARED: "2"'))) == set(before)
    assert changed(prints(platform="other")) == set(before)
    assert changed(prints(CONFIG.replace("allow_failure: true}\n", "allow_failure: false}\n"))) == set()


def test_what_is_not_reused_says_why() -> None:
    step = (CiStep(run="x"),)
    jobs = {
        "plain": CiJob(steps=step), "secret": CiJob(steps=step, secrets=("A",)), "net": CiJob(steps=step, network=True),
        "gate": CiJob(gate=CiGate(approvers=("ann",))), "never": CiJob(steps=step, reuse="never"),
        "always": CiJob(steps=step, network=True, reuse="always"),
    }  # fmt: skip

    def find(event: str) -> dict[str, str]:
        return {job.name: job.not_reused for job in plan_jobs(PlanInput(config=CiConfig(jobs=jobs), event=event)).jobs}

    assert find("manual") == {
        "plain": "", "secret": "it has secrets", "net": "it has the network", "gate": "it has a gate",
        "never": "reuse is never", "always": "",
    }  # fmt: skip
    assert find("push")["plain"] == ""


# Equal inputs, equal plans.

SEGMENTS = st.sampled_from(["a", "b", "src", "docs", "x.py", "y.md", "Makefile"])
PATHS = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)
GLOBS = st.lists(st.sampled_from(["**", "*", "a", "src", "*.py", "?", "docs", "*.md"]), min_size=1, max_size=3).map(
    "/".join
)


@st.composite
def configs(draw: st.DrawFn) -> CiConfig:
    """A config of a few jobs that need earlier ones."""
    jobs: dict[str, CiJob] = {}
    for number in range(draw(st.integers(1, 5))):
        needs = draw(st.lists(st.sampled_from(sorted(jobs)), unique=True, max_size=2)) if jobs else []
        jobs[f"j{number}"] = CiJob(
            steps=(CiStep(run=draw(st.sampled_from(["make", "true"]))),), needs=tuple(needs),
            inputs=tuple(draw(st.lists(GLOBS, unique=True, max_size=2))), allow_failure=draw(st.booleans()),
        )  # fmt: skip
    return CiConfig(jobs=jobs)


@pytest.mark.req("X-19")
@settings(max_examples=150, deadline=None)
@given(configs(), st.lists(PATHS, unique=True, max_size=6), st.lists(PATHS, unique=True, max_size=4), st.data(),
       st.sampled_from(["config", "discovered"]))  # fmt: skip
def test_equal_inputs_have_equal_plans_and_more_changes_never_plan_less(
    config: CiConfig, tree: list[str], changed: list[str], data: st.DataObject, source: str
) -> None:
    def make(paths: list[str] | None, files: list[str] = tree) -> CiPlan:
        ids = {path: f"100644 {path}" for path in files}
        return plan_jobs(
            PlanInput(config=config, changed=None if paths is None else tuple(paths), tree=ids, source=source)
        )

    made = make(changed)
    again = make(data.draw(st.permutations(changed)), data.draw(st.permutations(tree)))
    assert again.hash == made.hash
    assert again == made
    assert all(job.reason for job in (*made.jobs, *made.skipped))
    names = {job.name for job in made.jobs} - {"nothing"}
    assert names | {job.name for job in made.skipped} == set(config.jobs)
    more = make([*changed, *data.draw(st.lists(PATHS, max_size=3))])
    assert names <= {job.name for job in more.jobs}
    assert {job.name for job in make(None).jobs} == set(config.jobs)


@pytest.mark.req("X-19")
def test_two_processes_have_the_same_hash() -> None:
    program = (
        "from interlock.plugins.ci.config import parse_config\n"
        "from interlock.plugins.ci.planner import PlanInput, plan_jobs\nimport sys\n"
        "config = parse_config(sys.stdin.buffer.read())\n"
        "print(plan_jobs(PlanInput(config=config, changed=('src/a.c', 'docs/b.md'), tree={'src/a.c': '1', 'x': '2'})).hash)\n"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, input=CONFIG.encode(), capture_output=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(hashes) == 1
    changed = ("docs/b.md", "src/a.c")
    here = plan_jobs(PlanInput(config=parse_config(CONFIG.encode()), changed=changed, tree={"x": "2", "src/a.c": "1"}))
    assert hashes == {f"{here.hash}\n".encode()}


# Globs.


@settings(max_examples=200, deadline=None)
@given(
    st.text("ab*?", min_size=1, max_size=8).filter(lambda glob: "**" not in glob),
    st.lists(st.text("ab", min_size=1, max_size=8), min_size=1),
)
@example("*ab", ["aab", "bba", "ab"])
@example("a?b*?*b", ["aabbb", "abbab", "aabb"])
def test_a_pattern_matches_names_as_the_shell_does(glob: str, names: list[str]) -> None:
    for others in ([], [f"c{number}" for number in range(40)]):  # among many, those that may match are looked up
        paths = [*names, *others]
        assert GlobSet([glob]).match_all(paths).get(glob, []) == [path for path in paths if fnmatchcase(path, glob)]


def test_stars_stay_in_their_folder_and_two_go_deeper() -> None:
    globs = GlobSet(["**", "*.py", "**/*.py", "src/**", "src/**/test_?.py", "a/b", "**/x/**/y", "**/**/z"])
    assert {path: globs.match(path) for path in ("a.py", "src", "src/q/test_1.py", "a/b", "a/b/c", "x/y", "p/x/q/r/y", "z")} == {
        "a.py": ["**", "*.py", "**/*.py"],
        "src": ["**"],
        "src/q/test_1.py": ["**", "**/*.py", "src/**", "src/**/test_?.py"],
        "a/b": ["**", "a/b"],
        "a/b/c": ["**"],
        "x/y": ["**", "**/x/**/y"],
        "p/x/q/r/y": ["**", "**/x/**/y"],
        "z": ["**", "**/**/z"],
    }  # fmt: skip
    assert match_any(["release/*"], "release/2")
    assert not match_any(["release/*"], "release/2/x")


@pytest.mark.parametrize(
    ("glob", "name"),
    [("*a" * 30 + "*b", "a"), ("*a?" * 20 + "*b", "a"), ("?" * 20 + "*" + "?" * 20 + "b", "a"), ("**/*a*a*a*a/" * 9 + "*b*", "a/")],
)  # fmt: skip
def test_the_worst_globs_take_time_in_proportion_to_the_path(glob: str, name: str) -> None:
    """Counted in comparisons: a path of twice the length takes at most a little more than twice as many."""

    def count(length: int) -> int:
        globs = GlobSet([glob])
        globs.match((name * length).strip("/"))
        return globs.steps

    assert count(2_000) <= 2.2 * count(1_000)
    assert count(2_000) <= len(glob) * 2_000 * 3


def test_many_globs_over_many_paths_share_their_work() -> None:
    """What is common to paths and globs is compared once: 200 jobs over 4,000 paths are far from 800,000 comparisons."""
    globs = GlobSet(f"src/package{number}/**/*.py" for number in range(200))
    paths = [f"src/package{number % 200}/folder{number % 5}/file{number}.py" for number in range(4_000)]
    matched = globs.match_all(paths)
    assert sum(map(len, matched.values())) == 4_000
    assert globs.steps < 20 * len(paths)
