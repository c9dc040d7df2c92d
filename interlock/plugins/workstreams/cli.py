"""`interlock workstream`: submit the workstream of a file, add tasks, print a plan, import one; what operators do."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock.cli.here import check_folder, make_worker, run_here
from interlock.cli.options import (
    DEFAULT,
    Actor,
    Id,
    Tenant,
    Url,
    Why,
    find_unit,
    get_actor,
    open_app,
    open_app_in_memory,
)
from interlock.cli.output import Json, format_count, on_terminal, print_json, print_line, print_table
from interlock.cli.submit import (
    Arg,
    Correlation,
    Key,
    Label,
    OnDuplicate,
    Priority,
    parse_pairs,
    parse_value,
    print_submitted,
)
from interlock.client.app import App
from interlock.client.progress import PlannedTask
from interlock.client.repositories import find_repository
from interlock.client.workstream_files import (
    CheckSpec,
    WorkstreamSpec,
    make_options,
    make_task_part,
    make_workstream,
    read_spec,
    read_task_specs,
    read_text,
)
from interlock.client.workstream_imports import SLEEP, RecordedWorkstream
from interlock.client.workstream_runs import WorkstreamRun
from interlock.kernel.commands import ReassignTask, RetryTask, SkipTask, Standing
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.plan import make_plan
from interlock.kernel.wfformat import RecordedWorkflow, read_wfformat
from interlock.store.queries.views import read_summary

app = typer.Typer(
    name="workstream",
    help="Workstreams: submit one from a file, add tasks, print its plan, retry, skip or reassign a task.",
    no_args_is_help=True,
)
WORKSTREAM, TASK = "workstream", "task"
TaskId = Annotated[str, typer.Argument(metavar="TASK", help="A task, as in task_4r1, or WORKSTREAM/NAME.")]
KINDS = {".toml": "toml", ".json": "json"}  # of a file, by the end of its name
File = Annotated[str, typer.Argument(metavar="FILE", help="A TOML or JSON file; - is standard input.")]
Here = Annotated[
    bool, typer.Option("--here", help="Run its commands in this process until it has ended; exit with 1 if it fails.")
]
Sandbox = Annotated[
    str, typer.Option("--shell-sandbox", help="With --here, where commands run: auto, bubblewrap or none.")
]


def read_file(name: str) -> dict[str, Any]:
    """Return what a file says.

    Raises:
        InterlockError: the text names the file.
    """
    data, where = read_bytes(name)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InterlockError(f"{where} is no text in UTF-8") from None
    return read_text(text, where, kind=KINDS.get(Path(name).suffix.lower(), ""))


def read_bytes(name: str) -> tuple[bytes, str]:
    """Return a file, and how it is called in messages.

    Raises:
        InterlockError: the text names the file.
    """
    where = "standard input" if name == "-" else f"'{name}'"
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes(), where
    except OSError as error:
        raise InterlockError(f"{where} cannot be read: {error.strerror}") from None


@app.command("submit")
def submit_file(
    file: File,
    arg: Arg = None,
    key: Key = None,
    on_duplicate: OnDuplicate = "return",
    priority: Priority = 0,
    label: Label = None,
    correlation: Correlation = "",
    here: Here = False,
    shell_sandbox: Sandbox = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the file.")] = False,
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Submit a workstream from a file, with all its tasks. When piped, only its id is printed."""
    spec = read_spec(read_file(file))
    given = {
        "key": key, "on_duplicate": on_duplicate, "priority": priority, "labels": parse_pairs("label", label),
        "correlation": correlation,
    }  # fmt: skip
    options = {**make_options(spec), **{name: value for name, value in given.items() if value}}
    arguments = {**spec.arguments, **{name: parse_value(text) for name, text in parse_pairs("arg", arg).items()}}
    if here and spec.repo is not None:
        check_folder(arguments.get("ref") or spec.ref, list_targets(spec))
    if dry_run:
        with open_app_in_memory() as client:
            make_workstream(client, spec).arguments.encode(arguments)
        print_line(f"workstream '{spec.name}' with {format_count(len(spec.tasks), 'task')} can be submitted")
        return
    with open_app(db, tenant, make=True) as client:
        workstream = make_workstream(client, spec)
        worker = make_worker(client, shell_sandbox, spec.repo) if here else None
        stream = workstream.submit(**arguments, **options, by=get_actor(actor))
        print_made(stream, len(spec.tasks), json)
        if worker is not None:
            run_here(worker, stream)


def list_targets(spec: WorkstreamSpec) -> list[str]:
    """Return the branches onto which the checks of a workstream merge."""
    return [check.merge for check in spec.checks if isinstance(check, CheckSpec) and check.merge is not None]


def print_made(stream: WorkstreamRun, count: int, json: bool) -> None:
    """Print the workstream that a submit made, or found under its key."""
    if json:
        print_json({"id": stream.id, "created": stream.created, "state": stream.state, "tasks": count})
    elif on_terminal():
        was = "submitted" if stream.created else "there already, under its key"
        print_line(f"{stream.id} was {was}, with {format_count(count, 'task')}; it is {stream.state}")
    else:
        print_line(stream.id)
    sys.stdout.flush()


@app.command("add")
def add_from_file(
    unit: Id, file: File, actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False
) -> None:
    """Add the tasks of a file to a workstream that has not ended; those that are there already stay as they are."""
    specs = read_task_specs(read_file(file))
    with open_app(db, tenant) as client:
        stream = find_workstream(client, unit)
        jobs = stream.add_many([make_task_part(client, spec) for spec in specs], by=get_actor(actor))
        made = [
            {"id": job.id, "name": spec.name, "created": job.created} for job, spec in zip(jobs, specs, strict=True)
        ]
        state = stream.state
    if json:
        print_json({"id": stream.id, "state": state, "tasks": made})
        return
    for item in made:
        print_line(f"{item['id']}\t{item['name']}\t{'added' if item['created'] else 'there already'}")


@app.command("import")
def import_recorded(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file in WfFormat 1.3 to 1.6; - is standard input.")],
    scale: Annotated[
        float, typer.Option("--scale", help="Factor for the recorded times; with 0, tasks take no time.")
    ] = 1.0,
    task: Annotated[
        str, typer.Option("--task", help="Task that runs each of them; its argument seconds is the recorded time.")
    ] = SLEEP,
    key: Key = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only read the file, and print its plan.")] = False,
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Submit a recorded workflow (WfFormat JSON) as a workstream. Its tasks only wait as long as they once took."""
    data, where = read_bytes(file)
    try:
        recorded = read_wfformat(data, scale)
    except InterlockError as error:
        raise InterlockError(f"{where}: {error}") from None
    if dry_run:
        print_recorded(recorded, json)
        return
    with open_app(db, tenant, make=True) as client:
        stream = RecordedWorkstream(client, recorded, task).submit(key=key, by=get_actor(actor))
        print_made(stream, len(recorded.tasks), json)


def print_recorded(recorded: RecordedWorkflow, json: bool) -> None:
    """Print the plan of a recorded workflow."""
    plan = make_plan(
        {task.name: task.needs for task in recorded.tasks}, {task.name: task.lasted_us for task in recorded.tasks}
    )
    seconds = plan.length_us / 1_000_000
    if json:
        print_json({
            "name": recorded.name, "version": recorded.version, "tasks": len(recorded.tasks),
            "stages": len(plan.stages), "width": plan.width, "critical_path": plan.critical_path,
            "length_seconds": seconds,
        })  # fmt: skip
        return
    count = format_count(len(recorded.tasks), "task")
    print_line(f"'{recorded.name}' (WfFormat {recorded.version}): {count} in {format_count(len(plan.stages), 'stage')}")
    print_line(f"at most {plan.width} at the same time; the critical path has {len(plan.critical_path)}, {seconds:g} s")


@app.command("plan")
def print_plan(unit: Id, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False) -> None:
    """Print the execution plan of a workstream: its tasks by stage, and those on the critical path."""
    with open_app(db, tenant) as client:
        plan = find_workstream(client, unit).plan
    if json:
        print_json(plan)
        return
    heads = ("STAGE", "TASK", "STATE", "NEEDS", "SECONDS", "CRITICAL PATH")
    print_table(heads, [make_plan_row(task) for task in plan.tasks])


def make_plan_row(task: PlannedTask) -> list[str]:
    """Make a row of an execution plan."""
    seconds = "" if task.seconds is None else f"{task.seconds:.1f}"
    needs, path = ", ".join(task.needs), "yes" if task.on_critical_path else ""
    return [str(task.stage), task.name, task.state, needs, seconds, path]


@app.command("retry")
def retry_task(
    unit: TaskId, reason: Why = "", actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False
) -> None:
    """Retry a failed or cancelled task while its workstream goes on: a new task takes its place."""
    with open_app(db, tenant) as client:
        print_submitted(client, ask_of_task(client, RetryTask, unit, actor, reason), "name", json)


@app.command("skip")
def skip_task(
    unit: TaskId, reason: Why = "", actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False
) -> None:
    """Complete a task without running it. It must not have started, and what it needs must be completed."""
    with open_app(db, tenant) as client:
        print_standing(ask_of_task(client, SkipTask, unit, actor, reason), "skipped", json)


@app.command("reassign")
def reassign_task(
    unit: TaskId, reason: Why = "", actor: Actor = None, tenant: Tenant = 1, db: Url = DEFAULT, json: Json = False
) -> None:
    """Take a running task from its worker and let another one run it; no attempt is used up."""
    with open_app(db, tenant) as client:
        print_standing(ask_of_task(client, ReassignTask, unit, actor, reason), "reassigned", json)


def ask_of_task(client: App, kind: type[Any], unit: str, actor: str | None, reason: str) -> Any:
    """Send a command about one task, and return the answer.

    Raises:
        InterlockError: it was refused.
    """
    return client.send(kind(tenant=client.tenant, unit=find_unit(client, unit), actor=get_actor(actor), reason=reason))


def print_standing(standing: Standing, word: str, json: bool) -> None:
    """Print where a task stands after a command."""
    name = format_id(TASK, standing.unit)
    if json:
        print_json({"id": name, "state": standing.state, "applied": standing.applied})
    else:
        print_line(f"{name} was {word}; it is {standing.state}")


@app.command("rerun")
def rerun_workstream(
    unit: Id,
    failed: Annotated[bool, typer.Option("--failed", help="Keep what was completed; rerun only the rest.")] = False,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="TASK", help="Rerun only this task and those that come after it."),
    ] = None,
    here: Here = False,
    shell_sandbox: Sandbox = "auto",
    reason: Why = "",
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Rerun a workstream that has ended, as a new one. When piped, only its id is printed."""
    with open_app(db, tenant) as client:
        stream = find_workstream(client, unit)
        worker = make_worker(client, shell_sandbox, find_repository(client, stream.unit)) if here else None
        again: WorkstreamRun = stream.rerun(failed=failed, from_=first, by=get_actor(actor), reason=reason)
        print_made(again, len(again.tasks), json)
        if worker is not None:
            run_here(worker, again)


def find_workstream(client: App, text: str) -> WorkstreamRun:
    """Return the workstream that an id names.

    Raises:
        Unknown: there is none.
    """
    unit = find_unit(client, text)
    lifecycle = client.read(read_summary, unit).lifecycle
    if lifecycle != WORKSTREAM:
        raise Unknown(f"'{text}' is no workstream; it is a {lifecycle}")
    return WorkstreamRun(client, unit, lifecycle=lifecycle)
