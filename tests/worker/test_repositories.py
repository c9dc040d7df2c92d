"""Workers with real repositories: worktrees, commits at the end, merges, conflicts, and what is left."""

import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

import interlock
from interlock.git import BranchMoved, Repository, Worktree
from interlock.kernel.commands import Decide, Rerun, Revoke, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.store.queries.views import Filter, listing, view
from interlock.worker.loop import Worker
from interlock.worker.shell import ShellSettings
from tests.git.repositories import commit_files, commit_on, git, write_files
from tests.worker.stage import opened, until, working
from tests.worker.test_shell import on_loop

MERGE = {"task": "git.merge", "input": '{"onto": "main"}'}


@pytest.fixture(autouse=True)
def git_is_installed() -> None:
    if not shutil.which("git"):
        pytest.skip("git is not installed, so nothing about it can be shown; install git 2.38 or newer")


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/work.db"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A checkout of `main` with two files."""
    Repository.create(tmp_path / "site", bare=False)
    commit_files(tmp_path / "site", {"a.txt": "one\ntwo\nthree\n", "b.txt": "b\n", ".gitignore": "*.log\n"}, "first")
    return tmp_path / "site"


def said(**members: Any) -> str:
    return msgspec.json.encode(members).decode()


def submit_stream(app: interlock.App, *tasks: dict[str, Any], merge: Any = MERGE, **own: Any) -> tuple[int, list[int]]:
    """A planned workstream on the repository, of tasks `edit` with these arguments."""
    options = said(repositories={"repo": "site", **own}, checks={"jobs": [merge] if merge else []})
    work = [Work(task="all", lifecycle="workstream", ref="all", options=options)]
    for number, task in enumerate(tasks):
        fields = {"task": "edit", "step": f"t{number}", "attempts": 1, **task}
        work.append(Work(lifecycle="task", parent="all", **fields))
    stream, *made = (answer.unit for answer in app.send(Submit(tenant=app.tenant, work=tuple(work))))
    app.send(Decide(tenant=app.tenant, unit=stream, trigger="plan"))
    return stream, made


def edit(**files: str) -> dict[str, Any]:
    """A task that writes files; `a.txt` is spelled `a`."""
    return {"input": said(files={f"{name}.txt": text for name, text in files.items()})}


def define_edit(app: interlock.App) -> None:
    @app.task
    def edit(files: dict[str, str], ctx: interlock.Context) -> dict[str, Any]:
        assert ctx.worktree
        write_files(Path(ctx.worktree), files)
        return {"worktree": ctx.worktree}


def state_of(app: interlock.App, unit: int) -> str:
    return app.read(view, unit).unit.state


def result_of(app: interlock.App, unit: int) -> Any:
    return msgspec.json.decode(app.read(view, unit).body.result or "null")


def error_of(app: interlock.App, unit: int) -> str:
    return app.read(view, unit).body.error or ""


async def settled(app: interlock.App, *units: int) -> None:
    await until(lambda: all(app.read(view, unit).unit.outcome is not None for unit in units))


def find_task(app: interlock.App, task: str) -> list[int]:
    """The jobs of a task."""
    return sorted(row.unit.id for row in app.read(listing, Filter(task=task), 100))


async def cleaned(app: interlock.App) -> dict[str, Any]:
    """What the job that cleans up came to."""
    await until(lambda: find_task(app, "git.clean"))
    (unit,) = find_task(app, "git.clean")
    await settled(app, unit)
    made: dict[str, Any] = result_of(app, unit)
    return made


def list_worktrees(site: Path) -> list[str]:
    return [line.split()[0] for line in git(site, "worktree", "list").splitlines()[1:]]


@pytest.mark.req("R3-27")
@on_loop
async def test_a_workstream_ends_on_its_target_branch(url: str, site: Path) -> None:
    with opened(url) as app:
        define_edit(app)
        async with working(app, repositories={"site": str(site)}):
            stream, tasks = submit_stream(app, edit(c="c\n"), {**edit(d="d\n"), "needs": ("t0",)})
            await settled(app, stream)
            assert (state_of(app, stream), error_of(app, stream)) == ("completed", "")
            name = format_id("workstream", stream)
            assert (await cleaned(app))["kept"] == []
        results = [result_of(app, task) for task in tasks]
    assert {path.name for path in site.glob("*.txt")} == {"a.txt", "b.txt", "c.txt", "d.txt"}
    assert git(site, "status", "--porcelain") == ""
    assert git(site, "rev-list", "--count", "--merges", "main") == "3"  # one for each task, and the last one
    assert git(site, "log", "-1", "--format=%s", "main") == f"Merge {name} onto main"
    assert f"Interlock-Unit: {name}" in git(site, "log", "-1", "--format=%(trailers)", "main")
    assert git(site, "rev-parse", f"interlock/{name}") == git(site, "rev-parse", "main^2")
    for result in results:
        assert str(result["worktree"]).startswith(f"{site}.interlock/{name}/task_")
        assert git(site, "merge-base", "main", result["commit"]) == result["commit"]
    assert list_worktrees(site) == []
    assert git(site, "for-each-ref", "refs/interlock/") == ""  # the branch has all of them
    assert not os.path.exists(f"{site}.interlock")


@on_loop
async def test_a_plain_job_has_a_worktree_and_its_result_names_the_commit(file_url: str, site: Path) -> None:
    first = git(site, "rev-parse", "main")
    commit_files(site, {"a.txt": "newer\n"}, "second")
    with opened(file_url) as app:
        define_edit(app)
        async with working(app, repositories={"site": str(site)}):
            options = said(repositories={"repo": "site", "ref": first})
            work = Work(task="edit", input=said(files={"c.txt": "c\n"}), options=options)
            (made,) = app.send(Submit(work=(work,)))
            await settled(app, made.unit)
            result = result_of(app, made.unit)
    assert git(site, "rev-parse", f"{result['commit']}^") == first
    assert git(site, "show", f"{result['commit']}:c.txt") == "c"
    assert git(site, "for-each-ref", "--format=%(objectname)", "refs/interlock/") == result["commit"]
    assert git(site, "log", "-1", "--format=%s", "main") == "second"
    assert list_worktrees(site) == []


@on_loop
async def test_commands_and_their_checks_run_in_worktrees(file_url: str, site: Path, tmp_path: Path) -> None:
    shell = ShellSettings(directory=str(tmp_path), sandbox="none")
    command = said(shell={"command": "echo new > c.txt; echo noise > x.log; pwd"}, checks={"jobs": ["look"]})
    with opened(file_url) as app:

        @app.task
        def look(ctx: interlock.Context) -> str:
            assert ctx.worktree
            return (Path(ctx.worktree) / "c.txt").read_text()

        async with working(app, repositories={"site": str(site)}, shell=shell):
            fields = {"task": "shell", "capabilities": ("shell",), "options": command}
            stream, (task,) = submit_stream(app, fields)
            await settled(app, stream)
            assert error_of(app, stream) == ""
            result = result_of(app, task)
            (check,) = find_task(app, "look")
            assert result_of(app, check) == "new\n"
    assert result["output"].startswith(f"{site}.interlock/")
    assert git(site, "ls-tree", "--name-only", "main").split() == [".gitignore", "a.txt", "b.txt", "c.txt"]
    assert (site / "c.txt").read_text() == "new\n"


@on_loop
async def test_a_conflict_names_its_files_and_the_target_stays(file_url: str, site: Path) -> None:
    with opened(file_url) as app:
        define_edit(app)
        async with working(app, repositories={"site": str(site)}):
            first = git(site, "rev-parse", "main")
            later, _ = submit_stream(app, edit(a="ours\n"), ref=first)
            await settled(app, later)
            assert state_of(app, later) == "completed"
            last, _ = submit_stream(app, edit(a="third\n", c="c\n"), ref=first)
            await settled(app, last)
            assert state_of(app, last) == "failed"
            assert "it conflicts onto 'main' in a.txt" in error_of(app, last)
    assert (site / "a.txt").read_text() == "ours\n"
    assert not (site / "c.txt").exists()
    assert git(site, "show", f"interlock/{format_id('workstream', last)}:a.txt") == "third"  # for whoever mends it


@on_loop
async def test_tasks_side_by_side_that_conflict_fail_the_later_one(file_url: str, site: Path) -> None:
    with opened(file_url) as app:
        define_edit(app)
        async with working(app, repositories={"site": str(site)}):
            stream, tasks = submit_stream(app, edit(a="mine\n"), edit(a="yours\n"))
            await settled(app, stream)
            assert state_of(app, stream) == "failed"
            errors = [error_of(app, task) for task in tasks]
    why = f"it conflicts into 'interlock/{format_id('workstream', stream)}' in a.txt"
    assert [why in error for error in errors].count(True) == 1
    assert (site / "a.txt").read_text() == "one\ntwo\nthree\n"


@on_loop
async def test_local_work_in_a_checkout_of_the_target_is_left(file_url: str, site: Path) -> None:
    write_files(site, {"a.txt": "not committed\n", "new.txt": "new\n"})
    before = git(site, "rev-parse", "main")
    with opened(file_url) as app:
        define_edit(app)
        async with working(app, repositories={"site": str(site)}):
            lost, _ = submit_stream(app, edit(a="theirs\n"))
            await settled(app, lost)
            assert "changes that would be lost (a.txt); commit or undo them" in error_of(app, lost)
            assert git(site, "rev-parse", "main") == before
            fine, _ = submit_stream(app, edit(b="theirs\n"))  # the changes are elsewhere
            await settled(app, fine)
            assert state_of(app, fine) == "completed"
    assert (site / "a.txt").read_text() == "not committed\n"
    assert (site / "b.txt").read_text() == "theirs\n"
    assert git(site, "status", "--porcelain").splitlines() == [" M a.txt", "?? new.txt"]


@on_loop
async def test_several_workstreams_onto_one_branch_lose_nothing(file_url: str, site: Path) -> None:
    with opened(file_url) as app:
        define_edit(app)
        async with working(app, repositories={"site": str(site)}):
            streams = [submit_stream(app, edit(**{f"f{n}": f"{n}\n"}))[0] for n in range(4)]
            person = commit_files(site, {"p.txt": "p\n"}, "by a person, meanwhile")
            await settled(app, *streams)
            assert [state_of(app, stream) for stream in streams] == ["completed"] * 4
    assert {path.name for path in site.glob("f?.txt")} == {f"f{n}.txt" for n in range(4)}
    assert git(site, "merge-base", "main", person) == person
    subjects = git(site, "log", "--first-parent", "--format=%s", "main").splitlines()
    merges = [line for line in subjects if line.startswith("Merge workstream")]
    assert sorted(merges) == sorted(f"Merge {format_id('workstream', stream)} onto main" for stream in streams)


@on_loop
async def test_changes_of_an_attempt_that_failed_are_kept_and_named(file_url: str, site: Path) -> None:
    with opened(file_url) as app:

        @app.task
        def edit(files: dict[str, str], ctx: interlock.Context) -> None:
            assert ctx.worktree
            write_files(Path(ctx.worktree), files)
            raise interlock.Reject("no")

        async with working(app, repositories={"site": str(site)}):
            clean, _ = submit_stream(app, {"input": said(files={})})
            await settled(app, clean)
            assert (await cleaned(app))["kept"] == []
            stream, (task,) = submit_stream(app, {"input": said(files={"c.txt": "half"})})
            await settled(app, stream)
            await until(lambda: len(find_task(app, "git.clean")) == 2)
            job = find_task(app, "git.clean")[-1]
            await settled(app, job)
            (kept,) = result_of(app, job)["kept"]
    assert (Path(kept) / "c.txt").read_text() == "half"
    assert os.path.basename(kept) == f"{format_id('task', task)}-1"
    assert list_worktrees(site) == [kept]


@on_loop
async def test_what_a_handler_commits_itself_is_merged_too(file_url: str, site: Path) -> None:
    with opened(file_url) as app:

        @app.task
        def edit(ctx: interlock.Context) -> int:
            assert ctx.worktree
            commit_files(Path(ctx.worktree), {"c.txt": "c\n"}, "by the handler")
            write_files(Path(ctx.worktree), {"d.txt": "d\n"})
            return 7

        async with working(app, repositories={"site": str(site)}):
            stream, (task,) = submit_stream(app, {"input": "{}"})
            await settled(app, stream)
            result = result_of(app, task)
    assert result["value"] == 7
    assert git(site, "log", "-1", "--format=%s", f"{result['commit']}^") == "by the handler"
    assert (site / "c.txt").exists()
    assert (site / "d.txt").exists()


@on_loop
async def test_the_program_of_the_issue_runs_as_it_is_written(file_url: str, site: Path) -> None:
    """Issue 20 begins with it: needs, capabilities, checks, a map, a command with a resource, and what people do."""
    commit_files(site, {"Makefile": "bundle:\n\techo bundle > bundle.txt\n"}, "a way to bundle")
    git(site, "tag", "v1.2")
    attempts: list[str] = []
    with opened(file_url) as app:

        @app.task
        def fetch(ref: str) -> dict[str, Any]:
            return {"ref": ref, "images": ["a", "b", "c"]}

        @app.task
        def build(fetch: dict[str, Any]) -> str:
            return f"build of {fetch['ref']}"

        @app.task
        def resize(image: str) -> str:
            return f"small {image}"

        @app.task(attempts=1)
        def docs() -> str:
            attempts.append("docs")
            if len(attempts) == 1:
                raise interlock.Reject("nobody wrote any")
            return "docs"

        @app.task
        def hotfix(build: str) -> str:
            return f"fix of {build}"

        @app.task
        def unit(result: str) -> None:
            if result != "build of v1.2":
                raise interlock.Reject(f"not {result!r}")

        lint, smoke = (app.task(name=name)(lambda: None) for name in ("lint", "smoke"))
        pages = app.workstream(
            "site",
            repo="site",
            tasks=[
                fetch,
                interlock.task(
                    build, needs=[fetch], capabilities=["node"], checks=[lint, unit], attempts=3, timeout="20m"
                ),
                interlock.map(resize, over="fetch.images", needs=[fetch], at_once=50),
                interlock.task(docs, critical=False),
                interlock.shell("bundle", "make bundle", needs=["build", "resize"], resources={"repo": "exclusive"}),
            ],
            checks=[smoke, interlock.merge(onto="main")],
            at_once=5,
        )
        ws = await pages.submit.aio(ref="v1.2", key="site-1.2")
        assert (await pages.submit.aio(ref="v1.2", key="site-1.2")).id == ws.id
        assert (ws.progress.of, ws.progress.done) == (5, 0)
        ws.add(hotfix, needs=["build"])
        paused = ws.pause(reason="freeze", until="18:00")
        assert (paused.paused, ws.progress.paused, "freeze" in ws.why()) == (True, True, True)
        shell = ShellSettings(sandbox="none")
        async with working(app, repositories={"site": str(site)}, shell=shell, capabilities=("node",)):
            ws.unpause()
            await until(lambda: ws.tasks["docs"] == "failed")
            ws.retry("docs")
            outputs = await ws.wait.aio(timeout="60s")
            assert outputs["hotfix"]["value"] == "fix of build of v1.2"
            assert [image["value"] for image in outputs["resize"]] == ["small a", "small b", "small c"]
            again = ws.rerun(failed=True)
            assert again.id != ws.id
            elements = {name for name in outputs if name.startswith("resize[")}  # the map is taken over as a whole
            assert await again.wait.aio(timeout="60s") == {name: outputs[name] for name in outputs.keys() - elements}
    assert git(site, "log", "-1", "--first-parent", "--format=%s") == f"Merge {ws.id} onto main"
    assert (site / "bundle.txt").read_text() == "bundle\n"
    assert git(site, "status", "--porcelain") == ""


@on_loop
async def test_a_parameter_gets_what_a_handler_returned_without_its_commit(file_url: str, site: Path) -> None:
    """As anywhere else: the commit is in the outputs, and no handler has to know of it."""
    with opened(file_url) as app:

        @app.task
        def fetch(ref: str) -> list[str]:
            return [f"{ref}.a", f"{ref}.b"]

        @app.task
        def resize(image: str, fetch: list[str]) -> str:
            return f"{image} of {len(fetch)}"

        @app.task
        def index(resize: list[str], fetch: list[str]) -> dict[str, Any]:
            return {"value": resize}

        @app.task
        def publish(index: dict[str, list[str]], ctx: interlock.Context) -> str:
            return f"{index['value'][1]} {len(ctx.outputs['index']['commit'])}"

        @app.task
        def count(result: str) -> None:
            if result != "main.b of 2 40":
                raise interlock.Reject(f"not {result!r}")

        pictures = app.workstream(
            "pictures",
            repo="site",
            tasks=[
                fetch,
                interlock.map(resize, over="fetch"),
                interlock.task(index, needs=[fetch, resize]),
                interlock.task(publish, needs=[index], checks=[count]),
            ],
            checks=[interlock.merge(onto="main")],
        )
        async with working(app, repositories={"site": str(site)}):
            run = await pictures.submit.aio(ref="main")
            outputs = await run.wait.aio(timeout="60s")
    assert outputs["publish"]["value"] == "main.b of 2 40"


@on_loop
async def test_the_commit_of_a_stale_attempt_stays_on_its_own_reference(file_url: str, site: Path) -> None:
    """The first holder loses its lease while it works, and ends all the same: what it commits is nowhere else."""
    with opened(file_url) as app:
        ends = asyncio.Event()

        @app.task
        async def edit(ctx: interlock.Context) -> None:
            assert ctx.worktree
            write_files(Path(ctx.worktree), {"c.txt": f"{ctx.fence}\n"})
            if ctx.fence == 1:
                try:
                    await ends.wait()
                except asyncio.CancelledError:  # it does not care
                    await ends.wait()

        async with working(app, repositories={"site": str(site)}) as worker:
            stream, (task,) = submit_stream(app, {"input": "{}", "attempts": 3})
            await until(lambda: worker.executions.find(task) is not None)
            execution = worker.executions.find(task)
            assert execution
            await until(lambda: execution.context.worktree and os.path.exists(f"{execution.context.worktree}/c.txt"))
            app.send(Revoke(unit=task))
            await settled(app, stream)
            ends.set()
            await until(lambda: execution.asyncio_task is None or execution.asyncio_task.done())
            assert (state_of(app, stream), error_of(app, stream)) == ("completed", "")
            await cleaned(app)
    name = format_id("workstream", stream)
    stale = f"refs/interlock/{name}/{format_id('task', task)}-1"
    assert git(site, "show", f"{stale}:c.txt") == "1"
    assert (site / "c.txt").read_text() == "2\n"
    assert git(site, "for-each-ref", "--contains", stale, "--format=%(refname)") == stale


def test_a_worker_is_refused_what_is_no_repository(file_url: str, tmp_path: Path, site: Path) -> None:
    with opened(file_url) as app:
        with pytest.raises(InterlockError, match="there is no folder"):
            Worker(app, {"default": 1}, repositories={"site": str(tmp_path / "none")})
        with pytest.raises(InterlockError, match="not a git repository"):
            Worker(app, {"default": 1}, repositories={"site": "/"})
        with pytest.raises(InterlockError, match="the repository 'a b' is not allowed"):
            Worker(app, {"default": 1}, repositories={"a b": str(site)})
        with pytest.raises(InterlockError, match="'repo:site' is not given by name"):
            Worker(app, {"default": 1}, capabilities=("repo:site",))


@on_loop
async def test_a_branch_or_a_revision_that_is_not_there_is_named(file_url: str, site: Path) -> None:
    with opened(file_url) as app:
        define_edit(app)
        async with working(app, repositories={"site": str(site)}):
            stream, _ = submit_stream(app, edit(c="c\n"), merge={**MERGE, "input": '{"onto": "none"}'})
            other, (task,) = submit_stream(app, edit(c="c\n"), ref="none")
            await settled(app, stream, other)
            assert "there is no branch 'none' in the repository 'site'" in error_of(app, stream)
            assert "there is no revision 'none'" in error_of(app, task)


@on_loop
async def test_what_somebody_puts_on_the_branch_of_a_workstream_is_not_merged(file_url: str, site: Path) -> None:
    """Only commits that an accepted result names are merged, whatever the branch points to."""
    with opened(file_url) as app:
        define_edit(app)

        @app.task
        def smoke(checked: str) -> None:
            rogue = commit_on(site, "rogue", {"rogue.txt": "rogue\n"})
            git(site, "update-ref", f"refs/heads/interlock/{checked}", rogue)

        async with working(app, repositories={"site": str(site)}):
            own = said(repositories={"repo": "site"}, checks={"jobs": [MERGE, "smoke"]})
            work = (
                Work(task="all", lifecycle="workstream", ref="all", options=own),
                Work(task="edit", lifecycle="task", parent="all", step="t0", **edit(c="c\n")),
            )
            stream = app.send(Submit(work=work))[0].unit
            app.send(Decide(unit=stream, trigger="plan"))
            await settled(app, stream)
            assert (state_of(app, stream), error_of(app, stream)) == ("completed", "")
    assert git(site, "ls-tree", "--name-only", "main").split() == [".gitignore", "a.txt", "b.txt", "c.txt"]


@on_loop
async def test_of_two_mergers_that_race_one_moves_the_branch(
    file_url: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is stopped right before it moves the branch, loses its lease to another one, and goes on then."""
    held, goes_on, plain = threading.Event(), threading.Event(), Repository.follow
    moves: list[str] = []

    def follow(repository: Repository, checkout: Worktree, branch: str, commit: str, old: str) -> None:
        is_first = branch == "main" and not held.is_set()
        if is_first:
            held.set()
            assert goes_on.wait(60)
        try:
            plain(repository, checkout, branch, commit, old)
        except BranchMoved:
            moves.append("late" if is_first else "refused")
            raise
        moves.append("moved")

    monkeypatch.setattr(Repository, "follow", follow)
    with opened(file_url) as app:
        define_edit(app)
        async with working(app, repositories={"site": str(site)}):
            stream, _ = submit_stream(app, edit(c="c\n"))
            await until(held.is_set)
            merge = find_task(app, "git.merge")[-1]
            app.send(Revoke(unit=merge))
            await settled(app, stream)
            assert state_of(app, stream) == "completed"
            goes_on.set()
            await until(lambda: len(moves) == 2)
    assert moves == ["moved", "late"]
    assert git(site, "log", "--first-parent", "--merges", "--format=%s", "main").count("onto main") == 1
    assert git(site, "status", "--porcelain") == ""


@on_loop
async def test_a_program_declares_a_workstream_on_a_repository(file_url: str, site: Path, tmp_path: Path) -> None:
    first = git(site, "rev-parse", "main")
    commit_files(site, {"b.txt": "newer\n"}, "second")
    with opened(file_url) as app:
        define_edit(app)
        shell = ShellSettings(directory=str(tmp_path), sandbox="none")
        stream = app.workstream(
            "site", repo="site", checks=[interlock.merge(onto="main")],
            tasks=[
                interlock.task(app.tasks["edit"], arguments={"files": {"c.txt": "c\n"}}),
                interlock.shell("count", "cat b.txt; ls *.txt | wc -l > count", needs=["edit"]),
            ],
        )  # fmt: skip
        async with working(app, repositories={"site": str(site)}, shell=shell):
            run = await stream.submit.aio(ref=first, key="one")
            await settled(app, run.unit)
            assert (state_of(app, run.unit), error_of(app, run.unit)) == ("completed", "")
            assert (await stream.submit.aio(ref=first, key="one")).unit == run.unit
        with pytest.raises(InterlockError, match="the revision '-x' is not allowed"):
            stream.submit(ref="-x")
        with pytest.raises(InterlockError, match="the repository 'a b' is not allowed"):
            app.workstream("other", repo="a b", tasks=[app.tasks["edit"]])
        with pytest.raises(InterlockError, match="the branch 'a b' is not allowed"):
            interlock.merge(onto="a b")
    assert (site / "count").read_text().strip() == "3"  # it began at the first commit, with what `edit` added
    assert (site / "b.txt").read_text() == "newer\n"


@on_loop
async def test_work_for_a_repository_that_no_worker_has_says_which(file_url: str, site: Path) -> None:
    with opened(file_url) as app:
        define_edit(app)
        async with working(app, name="here", repositories={"site": str(site)}):
            options = said(repositories={"repo": "shop"})
            (made,) = app.send(Submit(work=(Work(task="edit", input=said(files={}), options=options),)))
            await until(lambda: "comes closest" in app.why(made.unit))
            why = app.why(made.unit)
    assert "needs a worker with repo:shop, and no worker of queue 'default' has it all" in why
    assert "here comes closest: it lacks repo:shop" in why
    assert "--repo shop=FOLDER" in why


@on_loop
async def test_a_workstream_that_is_done_again_goes_on_with_what_was_merged(file_url: str, site: Path) -> None:
    with opened(file_url) as app:
        define_edit(app)
        broken = [True]

        @app.task
        def mend(ctx: interlock.Context) -> None:
            assert ctx.worktree
            write_files(Path(ctx.worktree), {"d.txt": (Path(ctx.worktree) / "c.txt").read_text()})
            if broken:
                raise interlock.Reject("not yet")

        async with working(app, repositories={"site": str(site)}):
            late = {"task": "mend", "input": "{}", "needs": ("t0",)}
            stream, _ = submit_stream(app, edit(c="c\n"), late)
            await settled(app, stream)
            assert state_of(app, stream) == "failed"
            broken.clear()
            again = app.send(Rerun(unit=stream, failed=True)).unit
            await settled(app, again)
            assert (state_of(app, again), error_of(app, again)) == ("completed", "")
            whole = app.send(Rerun(unit=again)).unit
            await settled(app, whole)
            assert (state_of(app, whole), error_of(app, whole)) == ("completed", "")
    names = git(site, "log", "--first-parent", "--format=%(trailers:key=Interlock-Unit,valueonly)", "main").split()
    assert names == [format_id("workstream", again)]  # done again as a whole, it changed nothing any more
    assert (site / "d.txt").read_text() == "c\n"
