"""`interlock inbox`, `approve`, `reject` and `decide`: what waits for a person, and the person's decision."""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from interlock.cli.options import DEFAULT, Limit, Tenant, Url, find_unit, get_actor, open_app
from interlock.cli.output import FINDING, Cell, Json, format_count, on_terminal, print_json, print_line, print_table
from interlock.client import json_views
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.client.inbox import InboxItem
from interlock.core import validation
from interlock.kernel.commands import Standing
from interlock.kernel.errors import InterlockError, StoreError
from interlock.kernel.ids import format_id
from interlock.store.queries.views import read_summary

app = typer.Typer()  # without a name: its commands stand beside those of the core
HEADS = ("ID", "TASK", "RUN", "ACTION", "APPROVERS", "VOTES", "SINCE", "EXPIRES")
Which = Annotated[str, typer.Argument(metavar="ID", help="What waits, as in approval_4r1, or its run.")]
By = Annotated[str | None, typer.Option(envvar="INTERLOCK_ACTOR", help="Who decides (default: your OS user).")]
Role = Annotated[list[str] | None, typer.Option(help="Role in which you decide; several are allowed.")]
Arguments = Annotated[
    str | None, typer.Option(metavar="JSON", help="Approve this instead of what was asked for with ctx.ask.")
]
Comment = Annotated[str, typer.Option(help="Why; kept with the vote.")]


@app.command("inbox")
def list_inbox(
    mine: Annotated[bool, typer.Option("--mine", help="Only what you may still decide.")] = False,
    role: Annotated[list[str] | None, typer.Option(help="Only what this role may decide; several are allowed.")] = None,
    by: By = None,
    checks: Annotated[bool, typer.Option("--checks", help="Also what waits for the result of a check.")] = False,
    limit: Limit = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Next page: only those newer than this id.")] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List everything that waits for a person, the oldest first."""
    who = get_actor(by) if mine else None
    with open_app(db, tenant) as client:
        items = client.inbox(by=who, role=role or (), checks=checks, limit=limit + 1, after=after)
    page, more = items[:limit], len(items) > limit
    if json:
        print_json({"items": [json_views.make_inbox_item(item) for item in page], "more": more})
        return
    print_table(HEADS, [make_row(item) for item in page])
    if on_terminal():
        print_line(f"\nThere are more: --after {page[-1].id}" if more else f"\n{format_count(len(page), 'item')}")


def make_row(item: InboxItem) -> list[Cell]:
    """Make a row of the inbox."""
    votes = f"{item.given} of {item.quorum}" if "approve" in item.words else ""
    return [
        item.id, item.task, f"{item.run} ({item.run_task})" if item.run else "", " or ".join(item.words),
        ", ".join(item.approvers), votes, format_time(item.since), format_time(item.expires_at) or "",
    ]  # fmt: skip


@app.command()
def approve(
    unit: Which,
    comment: Comment = "",
    by: By = None,
    role: Role = None,
    arguments: Arguments = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Approve what waits for a person. If nothing waits, nothing changes and the exit code is 1."""
    vote: dict[str, Any] = {"comment": comment, "by": get_actor(by), "role": role or ()}
    if arguments is not None:
        validation.check_json("arguments", arguments)
        vote["arguments"] = msgspec.Raw(arguments.encode())
    with open_app(db, tenant) as client:
        send_decision(client, unit, "approve", vote, json)


@app.command()
def reject(
    unit: Which,
    comment: Comment = "",
    by: By = None,
    role: Role = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Reject what waits for a person. If nothing waits, nothing changes and the exit code is 1."""
    with open_app(db, tenant) as client:
        send_decision(client, unit, "reject", {"comment": comment, "by": get_actor(by), "role": role or ()}, json)


@app.command()
def decide(
    unit: Which,
    word: Annotated[
        str, typer.Argument(metavar="ACTION", help="One of the actions that the inbox lists: plan, valid …")
    ],
    comment: Comment = "",
    data: Annotated[str, typer.Option(metavar="JSON", help="Data of the decision, if its action takes any.")] = "",
    by: By = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Take an action other than approve or reject on what waits for a person."""
    decision: dict[str, Any] = {"comment": comment, "by": get_actor(by)}
    if data:
        validation.check_json("data", data)
        decision["data"] = msgspec.Raw(data.encode())
    with open_app(db, tenant) as client:
        send_decision(client, unit, word, decision, json)


def send_decision(client: App, unit: str, word: str, vote: dict[str, Any], json: bool) -> None:
    """Send a decision, and print what came of it, or why it was refused."""
    number = find_unit(client, unit)
    try:
        item = client.inbox.find(number, word, vote["by"])
        verbs: dict[str, Callable[..., Standing]] = {"approve": item.approve, "reject": item.reject}
        standing = verbs[word](**vote) if word in verbs else item.decide(word, **vote)
    except StoreError:
        raise
    except InterlockError as refusal:
        job = client.read(read_summary, number)
        name = format_id(job.lifecycle, number)
        if json:
            print_json({"id": name, "state": job.state, "applied": False, "refused": str(refusal)})
        else:
            print_line(f"{name}: {refusal}")
        raise typer.Exit(FINDING) from None
    if json:
        print_json({"id": item.id, "state": standing.state, "applied": standing.applied, "refused": None})
    else:
        print_line(f"{item.id}: {describe_outcome(item, word, vote['by'], standing)}")


def describe_outcome(item: InboxItem, word: str, by: str, standing: Standing) -> str:
    """Return what came of a decision."""
    if not standing.applied:
        return f"{by} has decided so before; nothing changed, it is {standing.state}"
    if standing.state == item.state:
        return f"{item.given + 1} of {item.quorum} votes are given; it is {standing.state}"
    return f"{word} by {by}; it is {standing.state}"
