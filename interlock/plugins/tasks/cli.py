"""`interlock task` and `interlock deploy`: what the database knows of tasks, and whether a program understands it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from interlock.cli.app_loader import find_app
from interlock.cli.options import DEFAULT, Tenant, Url, check_exists, open_app, open_connection, split_commas
from interlock.cli.output import FINDING, Json, format_count, print_json, print_line, print_table
from interlock.client.app import App
from interlock.client.deploy import DeployProblem, Read, check_deploy
from interlock.client.responses import TaskResponse
from interlock.client.task_views import make_task
from interlock.kernel.errors import Unknown
from interlock.plugins.tasks.queries import OpenTask, count_open_tasks, read_task, read_tasks
from interlock.store.queries.snapshots import snapshot

app = typer.Typer()  # without a name: its groups stand beside those of the core
tasks = typer.Typer(help="Tasks: list them, show what one takes, store those of a program.", no_args_is_help=True)
deploys = typer.Typer(help="Check a program against what waits and runs.", no_args_is_help=True)
app.add_typer(tasks, name="task")
app.add_typer(deploys, name="deploy")
Place = Annotated[str, typer.Argument(metavar="MODULE:APP", envvar="INTERLOCK_APP", help="Such as mail:app.")]
Database = Annotated[str | None, typer.Option("--db", metavar="URL", help="Database to use, instead of the app's own.")]
Version = Annotated[int, typer.Option("--version", min=0, help="Version of the task (default: the newest).")]
Queues = Annotated[
    list[str] | None, typer.Option("-q", "--queue", metavar="NAME,…", help="Only what waits and runs in these queues.")
]


@tasks.command("list")
def list_tasks(db: Url = DEFAULT, tenant: Tenant = 1, json: Json = False) -> None:
    """List tasks: the newest version of each, what it takes, and how many of its jobs wait and run."""
    with open_app(db, tenant) as client:
        rows = [make_task(row) for row in client.read(read_tasks)]
        counts = client.read(count_open_tasks)
    add_counts(rows, counts)
    if json:
        print_json({"tasks": rows})
    elif not rows:
        print_line("no task is stored; a worker stores those of its program when it starts")
    else:
        print_table(
            ("NAME", "VERSION", "TAKES", "WAIT", "RUN", "RULES"),
            [
                (row.name, str(row.version), describe_parameters(row), str(row.waiting), str(row.running),
                 describe_rules(row)) for row in rows
            ],
        )  # fmt: skip


def add_counts(rows: Iterable[TaskResponse], counts: Sequence[OpenTask]) -> None:
    """Set how many jobs of each task wait and run."""
    for row in rows:
        row.waiting = sum(count.waiting for count in counts if count.task == row.name)
        row.running = sum(count.running for count in counts if count.task == row.name)


@tasks.command("show")
def show_task(
    name: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")],
    version: Version = 0,
    db: Url = DEFAULT,
    tenant: Tenant = 1,
    json: Json = False,
) -> None:
    """Show a task: its parameters, its rules, who defined it and when."""
    with open_app(db, tenant) as client:
        row = client.read(read_task, name, version)
        if row is None:
            names = ", ".join(known.name for known in client.read(read_tasks)) or "none"
            which = f" version {version}" if version else ""
            raise Unknown(f"there is no task '{name}'{which}; stored are {names}")
        task = make_task(row)
        add_counts([task], client.read(count_open_tasks))
    if json:
        print_json(task)
        return
    print_line(f"{task.name} version {task.version}, defined at {task.defined_at} by {task.defined_by}")
    print_line(f"takes     {describe_parameters(task)}")
    for rule, value in task.rules.items():
        print_line(f"{rule:<9} {format_rule(value)}")


def describe_parameters(task: TaskResponse) -> str:
    """Say what a task takes."""
    if task.parameters is None:
        return "anything"
    return ", ".join(parameter.describe() for parameter in task.parameters) or "no arguments"


def describe_rules(task: TaskResponse) -> str:
    """Say which rules a task has."""
    return " ".join(f"{rule}={format_rule(value)}" for rule, value in task.rules.items()) or "-"


def format_rule(value: Any) -> str:
    """Return the value of a rule: labels and capabilities with commas between them."""
    if isinstance(value, dict):
        return ",".join(f"{name}={text}" for name, text in value.items())
    return ",".join(value) if isinstance(value, list) else str(value)


@tasks.command("define")
def define_tasks(place: Place, db: Database = None, json: Json = False) -> None:
    """Store the tasks, workflows and schedules of a program, as its workers do when they start."""
    with find_app(place, db) as client:
        done = client.store_definitions()
    if json:
        print_json({"definitions": done})
        return
    for planned in done:
        print_line(f"{planned.name}: {'stored' if planned.changed else 'as it was'}")


@deploys.command("check")
def check_program(place: Place, queue: Queues = None, db: Database = None, json: Json = False) -> None:
    """Check whether a program understands what waits and runs; exits with 1 if it does not. Nothing is changed."""
    program = find_app(place, db)
    wanted = split_commas(queue)
    with open_reader(program) as read:
        report = check_deploy(program, read, wanted or None)
    if json:
        print_json(report)
    else:
        for problem in report.problems:
            print_line(describe_problem(problem))
        jobs = f"{format_count(report.waiting, 'job')} that wait and {report.running} that run"
        problems = format_count(len(report.problems), "problem")
        print_line(f"{place} understands the {jobs}" if report.ok else f"{problems} with {place}, of {jobs}")
    if not report.ok:
        raise typer.Exit(FINDING)


def describe_problem(problem: DeployProblem) -> str:
    """Return a problem as a line, with how much it concerns."""
    jobs = f", {format_count(problem.jobs, 'job')} such as {problem.example}" if problem.example else ""
    return f"{problem.text} ({problem.waiting} wait, {problem.running} run{jobs})"


@contextmanager
def open_reader(program: App) -> Iterator[Read]:
    """Open what the database of a program is read by; it is not opened as a program opens it, which upgrades a file."""
    if program.far:
        with program:
            yield program.read
        return
    check_exists(program.url)
    with open_connection(program.url) as connection, snapshot(connection, [program.tenant]):

        def read(query: Any, *args: Any) -> Any:
            return query(connection, program.tenant, *args)

        yield read
