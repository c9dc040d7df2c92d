"""Workstreams in files: TOML and JSON of one shape, and what is said of a file that is wrong."""

from typing import Any

import msgspec
import pytest

import interlock
from interlock import InterlockError
from interlock.client.workstream_files import (
    make_options,
    make_task_part,
    make_workstream,
    read_spec,
    read_task_specs,
    read_text,
)
from interlock.core.effective_policy import policy_of
from interlock.store.queries.views import View, children_of, needs_of, view

WHOLE = """
name = "site"
key = "site-1"
timeout = "2h"
labels = {team = "web"}
arguments = {ref = "v1"}
checks = ["smoke", {run = "make smoke", timeout = 60, attempts = 2}, {approval = "ship", approvers = ["ops"], quorum = 2}]

[tasks.fetch]
run = "make fetch"
environment = {CI = "1"}
directory = "src"
limits = {open_files = 64}

[tasks.build]
needs = ["fetch"]
capabilities = ["node"]
attempts = 3
timeout = "20m"
takes = "5m"
critical = false
priority = 5
labels = {a = "b"}
resources = {repo = "exclusive", gpu = {mode = "counted", n = 2, of = 8}}
checks = [{task = "lint", arguments = {deep = true}}]

[tasks."docs of all"]
task = "docs"
needs = ["build"]
arguments = {ref = "own"}
"""


@pytest.fixture
def app() -> Any:
    with interlock.open("sqlite://:memory:") as made:
        yield made


def submit(app: interlock.App, text: str) -> tuple[interlock.WorkstreamRun, dict[str | None, View]]:
    spec = read_spec(read_text(text, "the file"))
    stream = make_workstream(app, spec).submit(**spec.arguments, **make_options(spec))
    return stream, {policy_of(row.body).step: row for row in app.read(children_of, stream.unit)}


def test_a_file_says_what_a_program_says(app: interlock.App) -> None:
    stream, rows = submit(app, WHOLE)
    top = app.read(view, stream.unit).body
    own = policy_of(top)
    assert (top.key, top.input, own.timeout_us) == ("site-1", '{"ref":"v1"}', 7_200_000_000)
    checks = msgspec.json.decode(own.options or "")["checks"]["jobs"]
    assert checks[0] == "smoke"
    assert (checks[1]["timeout_us"], checks[1]["attempts"]) == (60_000_000, 2)
    assert (checks[2]["task"], checks[2]["lifecycle"], checks[2]["quorum"]) == ("ship", "approval", 2)
    shell = msgspec.json.decode(policy_of(rows["fetch"].body).options or "")["shell"]
    wanted = {"environment": {"CI": "1"}, "directory": "src", "limits": {"open_files": 64}}
    assert shell == {"command": "make fetch", **wanted}
    build = policy_of(rows["build"].body)
    assert (build.attempts, build.timeout_us, rows["build"].unit.priority) == (3, 1_200_000_000, 5)
    assert ([each.name for each in build.resources], bool(rows["build"].unit.decides)) == (["repo", "gpu"], False)
    assert [need.unit for need in app.read(needs_of, rows["build"].unit.id)] == [rows["fetch"].unit.id]
    assert msgspec.json.decode(build.options or "")["workstreams"] == {"takes_us": 300_000_000}
    (lint,) = msgspec.json.decode(build.options or "")["checks"]["jobs"]
    assert (lint["task"], lint["input"]) == ("lint", '{"deep":true}')
    assert (rows["docs of all"].body.task, rows["docs of all"].body.input) == ("docs", '{"ref":"own"}')
    assert stream.state == "ready"


def test_json_says_the_same_with_a_list_or_a_table(app: interlock.App) -> None:
    table = '{"name": "a", "tasks": {"x": {"run": "true"}, "y": {"task": "docs", "needs": ["x"]}}}'
    listed = '{"name": "b", "tasks": [{"name": "y", "task": "docs", "needs": ["x"]}, {"name": "x", "run": "true"}]}'
    for text in (table, listed):
        _, rows = submit(app, text)
        assert {name: rows[name].body.task for name in rows} == {"x": "shell", "y": "docs"}
        assert len(app.read(needs_of, rows["y"].unit.id)) == 1


def test_a_task_of_the_program_brings_its_rules(app: interlock.App) -> None:
    @app.task(attempts=9)
    def build(ref: str) -> None: ...

    spec = read_spec({"name": "a", "tasks": [{"name": "build"}]})
    with pytest.raises(InterlockError, match="argument 'ref' is missing: task 'build' needs it"):
        make_workstream(app, spec).submit()
    stream = make_workstream(app, spec).submit(ref="v1")
    assert policy_of(app.read(view, stream.task("build").unit).body).attempts == 9


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = ", "the file is no TOML: Invalid value"),
        ("{", "the file is no JSON: Expecting property name"),
        ('{"name": "a", "name": "b"}', "the file is no JSON: 'name' is there twice"),
        ('{"name": "a", "tasks": {"x": {"run": "a"}, "x": {"run": "b"}}}', "'x' is there twice"),
        ('name = "a"\n[tasks.x]\nrun="a"\n[tasks.x]\nrun="b"', "the file is no TOML: Cannot declare"),
        ('nmae = "a"', "nmae: there is no such key; did you mean 'name'?"),
        ('name = "a"\nzzz = 1', "zzz: there is no such key; there are name, tasks, expects"),
        ('name = "a"\n[tasks.x]\ntakes = "soon"', "task 'x': takes: 'soon'"),
        ('name = "a"\n[tasks.x]\nneed = ["y"]', "tasks.x.need: there is no such key; did you mean 'needs'?"),
        ('{"name": "a", "tasks": [{"rnu": "true"}]}', r"tasks\[0\].rnu: there is no such key; did you mean 'run'?"),
        ('name = "a"\nchecks = [{rum = "a"}]\n', r"checks\[0\].rum: there is no such key; did you mean 'run'?"),
        ('name = "a"\n[tasks.x]\nchecks = [{aproval = "a"}]\n', r"tasks.x.checks\[0\].aproval: .*'approval'?"),
        ('name = "a"\n[tasks.x]\nattempts = "3"', "tasks.x.attempts: expected `int"),
        ('name = "a"\n[tasks.x]\nneeds = "y"', "tasks.x.needs: expected `array`, got `str`"),
        ('name = "a"\n[tasks.x]\nneeds = [1]', r"tasks.x.needs\[0\]: expected `str`, got `int`"),
        ('name = "a"\n[tasks]\nx = 1', "tasks.x = 1 is not allowed; allowed is a table"),
        ('name = "a"\ntasks = [1]', r"tasks\[0\] = 1 is not allowed; allowed is a table"),
        ('name = "a"\ntasks = "x"', "tasks = 'x' is not allowed; allowed is a table by name, or a list"),
        ('name = "a"\n[tasks.x]\nname = "y"', "tasks.x.name is not allowed; its name is that of its table"),
        ('name = 7', "name: expected `str`, got `int`"),
        ('[tasks.x]\nrun = "a"', "the file: object missing required field `name`"),
        ('{"name": "a", "tasks": [{"run": "a"}]}', r"tasks\[0\]: object missing required field `name`"),
        ('name = "a"', "workstream 'a' has no tasks; it takes at least one"),
        ('name = "a"\n[tasks.x]\nrun = "a"\ntask = "b"', "task 'x': task and run are not allowed together"),
        ('name = "a"\n[tasks.x]\nenvironment = {A = "1"}', "task 'x': environment is not allowed for a task of a"),
        ('name = "a"\n[tasks.x]\nrun = "a"\nenvironment = {"A B" = "1"}', "task 'x': environment: the name 'A B'"),
        ('name = "a"\n[tasks.x]\nrun = "a"\nlimits = {seconds = 1}', "task 'x': limits: there is no limit 'seconds'"),
        ('name = "a"\n[tasks.x]\nrun = "a"\ntimeout = "soon"', "task 'x': timeout: 'soon'"),
        ('name = "a"\n[tasks.x]\nchecks = [{}]', "task 'x': a check says one of task, run, merge and approval, and"),
        ('name = "a"\nchecks = [{run = "a", approval = "b"}]\n[tasks.x]', "this one says run and approval"),
        ('name = "a"\nchecks = [{run = "a", quorum = 2}]\n[tasks.x]', "quorum is not allowed for this check"),
        ('name = "a"\n[tasks.x]\nneeds = ["y"]\n[tasks.y]\nneeds = ["x"]', "a circle of needs: [xy] needs [xy] needs"),
        ('name = "a"\n[tasks.x]\nneeds = ["z"]', "task 'x' needs 'z', which is no task of it; there are x"),
        ('name = "a"\n[tasks.x]\nresources = {gpu = {mode = "counted", n = 9, of = 8}}', "task 'x': resource"),
        ('name = "a"\n[tasks.x]\nresources = {gpu = {mode = "counted"}}', "task 'x': resource"),
        ('name = "a"\n[tasks.x]\nresources = {gpu = "all"}', "'all'; allowed are exclusive, shared, counted, rated"),
        ('name = "a"\nexpects = 1\n[tasks.x]\n[tasks.y]', "expects = 1 is not allowed; there are 2 tasks already"),
        ('name = "a"\nexpects = 0\n[tasks.x]', "expects: expected"),
        ('name = "a"\n[tasks.x]\nresources = {gpu = {mode = "rated", n = 1}}', "task 'x': resource"),
        ('name = "a"\n[tasks.x]\nresources = {gpu = "half"}', "tasks.x.resources"),
        ('name = "a\\u0000"\n[tasks.x]', "name: expected `str` matching regex|the file is no TOML"),
        ('["a"]', "a: there is no such key; there are name"),
        ("{" * 2 + "}", "the file is no JSON"),
        ('{"name":' + "[" * 100_000, "the file is no JSON"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_path_of_what_is_wrong(app: interlock.App, text: str, why: str) -> None:
    with pytest.raises(InterlockError, match=why):
        submit(app, text)
    assert list(app.jobs()) == []


def test_a_file_that_expects_more_tasks_waits_for_them(app: interlock.App) -> None:
    stream, _ = submit(app, 'name = "a"\nexpects = 3\n[tasks.x]\nneeds = ["y"]')
    assert stream.state == "planned"
    with pytest.raises(InterlockError, match="expects 3 tasks and has 1: 3 more are too many, and none was added"):
        stream.add_many(["y", "z", "more"])
    assert sorted(stream.tasks) == ["x"]
    stream.add_many(["y", "z"])
    assert (stream.state, stream.tasks["x"], stream.tasks["y"]) == ("ready", "pending", "queued")


def test_tasks_of_a_file_are_added(app: interlock.App) -> None:
    stream, _ = submit(app, WHOLE)
    specs = read_task_specs(read_text('[tasks.more]\nrun = "make more"\nneeds = ["fetch"]', "the file"))
    (job,) = stream.add_many([make_task_part(app, spec) for spec in specs])
    assert (job.created, job.state, app.read(view, job.unit).body.input) == (True, "pending", '{"ref":"v1"}')
    with pytest.raises(InterlockError, match=r"tasks\.more\.rnu: there is no such key"):
        read_task_specs({"tasks": {"more": {"rnu": "a"}}})
