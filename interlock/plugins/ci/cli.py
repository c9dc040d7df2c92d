"""`interlock ci`: write a config, check one, and say which jobs a change needs and why. No server is needed."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli import ci_again, ci_kept, ci_look
from interlock.cli.ci_local import clean_up, find_reused_jobs, open_local
from interlock.cli.ci_options import HERE, AtOnce, Folder, Sandbox
from interlock.cli.ci_run import LocalOptions, run_locally, snapshot_tree
from interlock.cli.output import FINDING, Json, format_count, print_json, print_line, print_table, write_file
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.plugins.ci.checkout import (
    discover_jobs,
    find_branch,
    find_checkout,
    read_request,
    take_snapshot,
)
from interlock.plugins.ci.config import CONFIG_FILE, EVENTS, parse_config, to_plain
from interlock.plugins.ci.config_writer import STARTER, write_config
from interlock.plugins.ci.old_config import OLD_FILE, parse_old_config
from interlock.plugins.ci.options import JOB
from interlock.plugins.ci.orders import PlanOrder, Reuse
from interlock.plugins.ci.planner import CiPlan
from interlock.plugins.ci.requests import make_plan
from interlock.plugins.ci.yaml_nodes import BYTES_MAX, ConfigError

app = typer.Typer(
    name="ci", help="CI on this machine: plan what a change needs, run it, and look at runs.", no_args_is_help=True
)
app.command("list")(ci_look.list_runs)
app.command("show")(ci_look.show_run)
app.command("log")(ci_kept.print_logs)
app.command("artifacts")(ci_kept.show_artifacts)
app.command("tests")(ci_look.list_tests)
app.command("flaky")(ci_look.list_flaky)
app.command("why")(ci_look.explain_job)
app.command("rerun")(ci_again.rerun)
app.command("retry")(ci_again.retry_job)
app.command("cancel")(ci_again.cancel)
BaseRevision = Annotated[
    str | None, typer.Option("--base", metavar="REV", help="Compare with this (default: the main branch).")
]
Event = Annotated[str, typer.Option("--event", help=f"Plan for this event: {', '.join(EVENTS)}.")]
Branch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Plan for this branch.")]
Tracked = Annotated[bool, typer.Option("--tracked", help="Leave out files that git does not track.")]
Tag = Annotated[str | None, typer.Option("--tag", metavar="NAME", help="Plan for this tag.")]


@app.command("init")
def write_first_config(
    folder: Folder = HERE,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the config that is there.")] = False,
    json: Json = False,
) -> None:
    """Write a config that fits the files of the repository."""
    checkout = find_checkout(folder)
    clean_up(checkout)
    path = Path(checkout.root, CONFIG_FILE)
    if os.path.lexists(path) and not force:
        raise InterlockError(f"there is a {CONFIG_FILE}; --force writes it anew")
    config = discover_jobs(checkout, take_snapshot(checkout))
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise InterlockError(f"'{path.parent}' cannot be made: {error.strerror}") from None
    write_file(path, write_config(config or STARTER))
    if json:
        print_json({"file": CONFIG_FILE, "discovered": config is not None, "jobs": list((config or STARTER).jobs)})
    elif config is None:
        print_line(
            f"{CONFIG_FILE} was written; nothing was found to build or test, so say there what checks this repository"
        )
    else:
        print_line(f"{CONFIG_FILE} was written, with the jobs {', '.join(config.jobs)}")


@app.command("lint")
def check_config_file(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help=f"A config (default: {CONFIG_FILE} of the repository).")
    ] = None,
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """Check a config, and print every problem with its line and column."""
    path, name = (file, str(file)) if file is not None else find_config_file(folder)
    data = read_config_file(path)
    problems: list[str] = []
    jobs = 0
    try:
        jobs = len((parse_old_config if path.name == OLD_FILE else parse_config)(data, name).jobs)
    except ConfigError as error:
        problems = str(error).splitlines()
    if json:
        print_json({"file": name, "ok": not problems, "problems": problems, "jobs": jobs})
    else:
        for problem in problems:
            print_line(problem)
        words = format_count(len(problems), "problem") if problems else f"{format_count(jobs, 'job')}, no problems"
        print_line(f"{name}: {words}")
    if problems:
        raise typer.Exit(FINDING)


def find_config_file(folder: Path) -> tuple[Path, str]:
    """Returns the config of a repository, and its name in messages.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    checkout = find_checkout(folder)
    clean_up(checkout)
    root = checkout.root
    names = [name for name in (CONFIG_FILE, OLD_FILE) if os.path.lexists(os.path.join(root, name))]
    if len(names) > 1:
        raise InterlockError(f"there are two configs, {CONFIG_FILE} and {OLD_FILE}; keep one of them")
    if not names:
        raise InterlockError(f"there is no {CONFIG_FILE} in '{root}'; `interlock ci init` writes one")
    path = Path(root, names[0])
    if path.is_symlink() or not path.is_file():
        raise InterlockError(f"{names[0]} is {'a link' if path.is_symlink() else 'a folder'}; a config is a file")
    return path, names[0]


def read_config_file(path: Path) -> bytes:
    """Returns what a file holds, at most a little more than is allowed.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    try:
        with path.open("rb") as stream:
            return stream.read(BYTES_MAX + 1)
    except OSError as error:
        raise InterlockError(f"'{path}' cannot be read: {error.strerror}") from None


@app.command("plan")
def plan_change(
    explain: Annotated[bool, typer.Option("--explain", help="Say why each job runs or is left out.")] = False,
    base: BaseRevision = None,
    event: Event = "manual",
    branch: Branch = None,
    tag: Tag = None,
    tracked: Tracked = False,
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """Print which jobs the working tree needs, uncommitted files included. Nothing runs, and nothing is changed."""
    check_event(event, branch, tag)
    checkout = find_checkout(folder)
    branch = find_branch(checkout, branch, tag)
    plan = make_plan(
        read_request(checkout, take_snapshot(checkout, tracked=tracked), base=base, event=event, branch=branch, tag=tag)
    )
    reused = find_reused_jobs(checkout, plan)
    if json:
        print_json({**to_plain(plan), "reused": sorted(reused)})
    else:
        print_plan(plan, explain, reused)


@app.command("run")
def run_jobs(
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB]…", help="Only these, and those that they need.")
    ] = None,
    base: BaseRevision = None,
    event: Event = "manual",
    branch: Branch = None,
    tag: Tag = None,
    no_reuse: Annotated[
        bool, typer.Option("--no-reuse", help="Also run jobs whose result an earlier run has.")
    ] = False,
    tracked: Tracked = False,
    sandbox: Sandbox = False,
    at_once: AtOnce = None,
    folder: Folder = HERE,
    json: Json = False,
) -> None:
    """Run the jobs that the working tree needs on this machine, uncommitted files included.

    Exits with 0 if the run is green, 1 if it is red, 2 if there is no valid plan, 130 if it was cancelled.
    """
    check_event(event, branch, tag)
    with open_local(folder) as local:
        branch = find_branch(local.checkout, branch, tag)
        commit, terms, labels = snapshot_tree(local, branch=branch, event=event, tracked=tracked, quiet=json)
        order = PlanOrder(
            run=0, commit=commit, base=base, event=event, branch=branch, tag=tag, only=tuple(jobs or ()),
            sandbox=sandbox, reuse=not no_reuse,
        )  # fmt: skip
        options = LocalOptions(
            order=order, terms=terms, labels=labels, sandbox=sandbox, json=json, at_once=at_once or os.cpu_count() or 1
        )
        if code := run_locally(local, options):
            raise typer.Exit(code)


def check_event(event: str, branch: str | None, tag: str | None) -> None:
    """Raises InterlockError for an event that there is not, and for a branch and a tag at once."""
    if event not in EVENTS:
        raise InterlockError(f"--event {event!r} is not allowed; allowed are {', '.join(EVENTS)}")
    if branch is not None and tag is not None:
        raise InterlockError("give --branch or --tag, not both")


def print_plan(plan: CiPlan, explain: bool, reused: Mapping[str, Reuse]) -> None:
    """Prints a plan for people."""
    source = "the config" if plan.source == "config" else f"what was found, as there is no {CONFIG_FILE}"
    changed = "everything" if plan.changed is None else format_count(plan.changed, "changed path")
    print_line(f"plan {plan.hash[:12]} from {source}: {changed}" + (f" since {plan.base[:12]}" if plan.changed else ""))
    will = {name: f"reuses {format_id(JOB, reuse.job)}" for name, reuse in reused.items()}
    rows = [
        [job.name, will.get(job.name, "runs"), ", ".join(need.job for need in job.needs) or "-", job.reason]
        for job in plan.jobs
    ]
    rows += [[job.name, "left out", "-", job.reason] for job in plan.skipped]
    heads = ("JOB", "WILL", "NEEDS", "WHY")
    print_table(heads if explain else heads[:3], rows if explain else [row[:3] for row in rows])
