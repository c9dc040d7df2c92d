"""`interlock inbox`, `approve`, `reject` and `decide`: what waits for a person, and what the person says."""

from typing import Annotated, Any

import typer

from interlock.cli.options import DEFAULT, LIMIT_MAX, Tenant, Url, app_on, named, unit_of
from interlock.cli.output import FINDING, Cell, Json, counted, dump, on_terminal, say, table
from interlock.client import json_views
from interlock.client.app import App
from interlock.client.durations import format_time
from interlock.client.inbox import InboxItem
from interlock.kernel.commands import Standing
from interlock.kernel.errors import InterlockError, StoreError
from interlock.kernel.ids import format_id
from interlock.store.queries.views import glimpse

HEADS = ("ID", "TASK", "RUN", "ASKS FOR", "OF", "VOTES", "SINCE", "EXPIRES AT")
Which = Annotated[str, typer.Argument(metavar="ID", help="What waits, as in approval_4r1, or the run of it.")]
By = Annotated[
    str | None, typer.Option(envvar="INTERLOCK_ACTOR", help="Who says so; by default the user of the operating system.")
]
Role = Annotated[list[str] | None, typer.Option(help="As which role; several are allowed.")]
Comment = Annotated[str, typer.Option(help="Why; it is kept with the vote.")]


def inbox(
    mine: Annotated[bool, typer.Option("--mine", help="Only what you may still answer.")] = False,
    role: Annotated[list[str] | None, typer.Option(help="Only what this role may answer; several are allowed.")] = None,
    by: By = None,
    checks: Annotated[bool, typer.Option("--checks", help="Also what waits for the verdict of a check.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="So many at most.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="The next page: what is younger than this, the last one seen.")
    ] = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """List everything that waits for a person, the oldest first."""
    who = named(by) if mine else None
    with app_on(db, tenant) as app:
        found = app.inbox(by=who, role=role or (), checks=checks, limit=limit + 1, after=after)
    page, more = found[:limit], len(found) > limit
    if json:
        dump({"items": [json_views.make_inbox_item(one) for one in page], "more": more})
        return
    table(HEADS, [row(one) for one in page])
    if on_terminal():
        say(f"\nThere are more: --after {page[-1].id}" if more else f"\n{counted(len(page), 'item')}")


def row(one: InboxItem) -> list[Cell]:
    votes = f"{one.given} of {one.quorum}" if "approve" in one.words else ""
    return [
        one.id, one.task, f"{one.run} ({one.run_task})" if one.run else "", " or ".join(one.words),
        ", ".join(one.approvers), votes, format_time(one.since),
        format_time(one.expires_at) or "",
    ]  # fmt: skip


def approve(
    unit: Which,
    comment: Comment = "",
    by: By = None,
    role: Role = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Approve what waits for a person. With nothing that waits, nothing changes and the exit code is 1."""
    with app_on(db, tenant) as app:
        answer(app, unit, "approve", {"comment": comment, "by": named(by), "role": role or ()}, json)


def reject(
    unit: Which,
    comment: Comment = "",
    by: By = None,
    role: Role = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Reject what waits for a person. With nothing that waits, nothing changes and the exit code is 1."""
    with app_on(db, tenant) as app:
        answer(app, unit, "reject", {"comment": comment, "by": named(by), "role": role or ()}, json)


def decide(
    unit: Which,
    word: Annotated[str, typer.Argument(metavar="WORD", help="What is asked for, as the inbox says it: plan, valid …")],
    comment: Comment = "",
    by: By = None,
    tenant: Tenant = 1,
    db: Url = DEFAULT,
    json: Json = False,
) -> None:
    """Give another verdict than approve or reject to what waits for one."""
    with app_on(db, tenant) as app:
        answer(app, unit, word, {"comment": comment, "by": named(by)}, json)


def answer(app: App, unit: str, word: str, said: dict[str, Any], json: bool) -> None:
    """A person's word is given and told, or why it was not wanted."""
    number = unit_of(app, unit)
    try:
        item = app.inbox.find(number, word, said["by"])
        verbs = {"approve": item.approve, "reject": item.reject}
        standing = verbs[word](**said) if word in verbs else item.decide(word, **said)
    except StoreError:
        raise
    except InterlockError as no:
        seen = app.read(glimpse, number)
        name = format_id(seen.lifecycle, number)
        dump({"id": name, "state": seen.state, "applied": False, "refused": str(no)}) if json else say(f"{name}: {no}")
        raise typer.Exit(FINDING) from None
    if json:
        dump({"id": item.id, "state": standing.state, "applied": standing.applied, "refused": None})
    else:
        say(f"{item.id}: {outcome(item, word, said['by'], standing)}")


def outcome(item: InboxItem, word: str, by: str, standing: Standing) -> str:
    """What came of a word."""
    if not standing.applied:
        return f"{by} has said so before; nothing changed, it is {standing.state}"
    if standing.state == item.state:
        return f"{item.given + 1} of {item.quorum} votes are given; it is {standing.state}"
    return f"{word} by {by}; it is {standing.state}"
