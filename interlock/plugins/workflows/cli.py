"""`interlock run`, `rerun` and `signal`: runs of workflows, without the program that defines them."""

from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, Why, find_unit, get_actor, open_app, parse_length
from interlock.cli.output import Json, on_terminal, print_json, print_line
from interlock.cli.submit import Arg, Input, Key, Label, Priority, Settle, encode, parse_input, parse_pairs
from interlock.client.app import App
from interlock.core import validation
from interlock.kernel.commands import Rerun, Signal, Submit, Submitted, Work
from interlock.kernel.ids import format_id
from interlock.store.queries.views import read_summary

app = typer.Typer()  # without a name: its commands stand beside those of the core
RUN = "workflow_run"
ReclaimAfter = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="How old a step must be before another worker takes it over from a lost one."
    ),
]
WebhookUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Kept with the run and shown; nothing is sent to it yet.")
]
Version = Annotated[int | None, typer.Option("--version", help="Version of the workflow (default: the newest).")]


@app.command("run")
def submit_run(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="The name of a workflow.")],
    arg: Arg = None,
    given: Input = None,
    key: Key = None,
    version: Version = None,
    priority: Priority = 0,
    label: Label = None,
    reclaim_after: ReclaimAfter = None,
    settle: Settle = None,
    webhook_url: WebhookUrl = None,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Submit a run of a workflow. When piped, only its id is printed."""
    with open_app(db, tenant) as client:
        work = Work(
            task=workflow, lifecycle=RUN, template=workflow, template_version=version, input=parse_input(arg, given),
            key=key, priority=priority, labels=encode(parse_pairs("label", label)), webhook_url=webhook_url,
            reclaim_after_us=None if reclaim_after is None else parse_length("reclaim-after", reclaim_after),
            settle=settle,
        )  # fmt: skip
        (submitted,) = client.send(Submit(tenant=tenant, actor=get_actor(actor), reason=reason, work=(work,)))
        print_run(client, submitted, json)


@app.command("rerun")
def rerun_workflow(
    unit: Annotated[str, typer.Argument(metavar="ID", help="A run, or a job, that has ended.")],
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="STEP", help="Rerun from this step (or task) on; what was done before is kept."),
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Keep what has succeeded; rerun only the rest.")] = False,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Rerun a run or a job as it was; a run also from a step on. When piped, only the new id is printed."""
    with open_app(db, tenant) as client:
        command = Rerun(
            tenant=tenant, unit=find_unit(client, unit), step=first, failed=failed, actor=get_actor(actor),
            reason=reason,
        )  # fmt: skip
        print_run(client, client.send(command), json)


def print_run(client: App, submitted: Submitted, json: bool) -> None:
    """Print a run that was submitted."""
    run = client.run(submitted.unit)
    if json:
        print_json({"id": run.id, "created": submitted.created, "state": run.state})
    elif on_terminal():
        how = "submitted" if submitted.created else "there already, under its key"
        print_line(f"{run.id} was {how}; it is {run.state}. Look: interlock show {run.id}")
    else:
        print_line(run.id)


@app.command("signal")
def send_signal(
    unit: Annotated[str, typer.Argument(metavar="ID", help="A job, a step, or its run.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal, as in ctx.wait_signal(NAME).")],
    data: Annotated[str, typer.Argument(metavar="[JSON]", help="Data of the signal.")] = "null",
    actor: Actor = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Send a signal to a job that waits for it. An early signal is kept; of several with one name, the first counts."""
    validation.check_json("the data of the signal", data)
    with open_app(db, tenant) as client:
        command = Signal(unit=find_unit(client, unit), name=name, payload=data, tenant=tenant, actor=get_actor(actor))
        standing = client.send(command)
        whose = format_id(client.read(read_summary, standing.unit).lifecycle, standing.unit)
    if json:
        print_json({"id": whose, "name": name, "state": standing.state, "applied": standing.applied})
    elif standing.applied:
        print_line(f"{whose} has the signal '{name}'; it is {standing.state}")
    else:
        print_line(f"{whose} had the signal '{name}' before, and the first one counts; it is {standing.state}")
