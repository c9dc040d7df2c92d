"""`interlock run` and `interlock rerun`: runs of workflows, without the program that defines them."""

from typing import Annotated

import typer

from interlock.cli.options import DEFAULT, Actor, Tenant, Url, Why, app_on, length, named, unit_of
from interlock.cli.output import Json, dump, on_terminal, say
from interlock.cli.submit import Arg, Input, Key, Label, Priority, arguments, packed, pairs
from interlock.client.app import App
from interlock.kernel.commands import Replay, Submit, Submitted, Work

RUN = "workflow_run"
ReclaimAfter = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="A step whose worker was lost is taken over once it is so old."),
]
WebhookUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Kept with the run and shown; nothing is sent to it yet.")
]
Version = Annotated[int | None, typer.Option("--version", help="Of the workflow; the newest one by default.")]


def run(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="The name of a workflow.")],
    arg: Arg = None,
    given: Input = None,
    key: Key = None,
    version: Version = None,
    priority: Priority = 0,
    label: Label = None,
    reclaim_after: ReclaimAfter = None,
    webhook_url: WebhookUrl = None,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Submit a run of a workflow; piped, only its id is printed."""
    with app_on(db, tenant) as app:
        work = Work(
            task=workflow, lifecycle=RUN, template=workflow, template_version=version, input=arguments(arg, given),
            key=key, priority=priority, labels=packed(pairs("label", label)), webhook_url=webhook_url,
            reclaim_after_us=None if reclaim_after is None else length("reclaim-after", reclaim_after),
        )  # fmt: skip
        (made,) = app.send(Submit(tenant=tenant, actor=named(actor), reason=reason, work=(work,)))
        tell(app, made, "submitted", json)


def rerun(
    unit: Annotated[str, typer.Argument(metavar="RUN", help="A run that has ended.")],
    first: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="What came before this step is taken over.")
    ] = None,
    actor: Actor = None,
    reason: Why = "",
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Run a workflow again as it was, whole or from a step on; piped, only the id of the new run is printed."""
    with app_on(db, tenant) as app:
        command = Replay(tenant=tenant, unit=unit_of(app, unit), step=first, actor=named(actor), reason=reason)
        tell(app, app.send(command), "made", json)


def tell(app: App, made: Submitted, was: str, json: bool) -> None:
    found = app.run(made.unit)
    if json:
        dump({"id": found.id, "created": made.created, "state": found.state})
    elif on_terminal():
        how = was if made.created else "there already, under its key"
        say(f"{found.id} was {how}; it is {found.state}. Look: interlock show {found.id}")
    else:
        say(found.id)
