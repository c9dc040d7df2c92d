"""`interlock shell`: a job that runs a shell command."""

from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, Why, get_actor, open_app
from interlock.cli.output import Json, on_terminal, print_json, print_line
from interlock.cli.submit import (
    Attempts,
    Cap,
    Correlation,
    Delay,
    Key,
    Label,
    Mutex,
    OnDuplicate,
    Priority,
    Queue,
    Timeout,
    parse_pairs,
    parse_value,
)
from interlock.client.shell import make_shell_submit
from interlock.plugins.shell.options import LIMITS

app = typer.Typer()  # without a name: its command stands beside those of the core


@app.command("shell")
def submit_shell(
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="What sh runs; quote it.")],
    environment: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Environment variable for the command.")
    ] = None,
    directory: Annotated[str, typer.Option(metavar="FOLDER", help="Where it runs, below its worker's folder.")] = "",
    limit: Annotated[
        list[str] | None, typer.Option("--limit", metavar="NAME=NUMBER", help=f"Limit: {', '.join(LIMITS)}.")
    ] = None,
    queue: Queue = "default",
    key: Key = None,
    on_duplicate: OnDuplicate = "return",
    delay: Delay = "0s",
    priority: Priority = 0,
    cap: Cap = None,
    mutex: Mutex = None,
    label: Label = None,
    correlation: Correlation = "",
    attempts: Attempts = None,
    timeout: Timeout = None,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Submit a job that runs a shell command on a worker started with --shell. When piped, only its id is printed."""
    with open_app(db, tenant, make=True) as client:
        submit = make_shell_submit(
            client, command,
            {
                "environment": parse_pairs("env", environment), "directory": directory,
                "limits": {name: parse_value(text) for name, text in parse_pairs("limit", limit).items()},
                "queue": queue, "key": key, "on_duplicate": on_duplicate, "delay": delay, "priority": priority,
                "capabilities": list(cap or ()), "mutex": mutex, "labels": parse_pairs("label", label),
                "correlation": correlation, "attempts": attempts, "timeout": timeout,
            },
            actor=get_actor(actor), reason=reason,
        )  # fmt: skip
        (submitted,) = client.send(submit)
        job = client.job(submitted.unit)
        name, state = job.id, job.state
    if json:
        print_json({"id": name, "created": submitted.created, "replaced": submitted.replaced, "state": state})
    elif on_terminal():
        was = "submitted" if submitted.created else "there already, under its key"
        print_line(f"{name} was {was}; it is {state}. Look: interlock why {name}")
    else:
        print_line(name)
