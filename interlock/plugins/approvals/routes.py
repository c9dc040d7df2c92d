"""Approvals over HTTP: the inbox, votes and other decisions of people."""

from typing import Any

import msgspec

from interlock.client import json_views, responses
from interlock.client.http_codec import find_scope
from interlock.client.inbox import read_inbox_page, to_tuple
from interlock.kernel.commands import Decide, Vote
from interlock.server.auth import require_scope
from interlock.server.jobs import make_action_response
from interlock.server.operations import Operation, Request, parse_unit_id, with_short_paths
from interlock.server.request_schemas import Id, Name, Page, Strict, Text, Words, encode_json


class VoteRequest(Strict, frozen=True, kw_only=True):
    """The vote of the key's owner or, with the scope `vouch`, of a person that it names.

    In a run perhaps for one `step`.
    """

    by: Name | None = None
    roles: Words = ()
    comment: Text = ""
    step: Name | None = None


class ApproveRequest(VoteRequest, frozen=True, kw_only=True):
    """An approval. With `arguments`, these are approved instead of what was asked for."""

    arguments: Any = msgspec.UNSET


class DecideRequest(Strict, frozen=True, kw_only=True):
    """A decision other than approve or reject, as the inbox lists it."""

    word: Name
    by: Name | None = None
    comment: Text = ""
    data: Any = None  # that belongs to the decision, where it takes any


class InboxQuery(Strict, frozen=True, kw_only=True):
    """Only items that `by` or one of the roles may still decide; with `checks`, also what waits for a check."""

    by: Name | None = None
    role: tuple[Name, ...] = ()
    checks: bool = False
    limit: Page = 50
    after: Id | None = None


async def list_inbox(request: Request) -> responses.InboxResponse:
    """Lists what waits for a person."""
    query: InboxQuery = request.query
    after = 0 if query.after is None else parse_unit_id(query.after)
    roles = to_tuple(query.role)
    items = await request.read(
        read_inbox_page, request.app.lifecycles, query.by, roles, query.checks, query.limit + 1, after
    )
    page = items[: query.limit]
    return responses.InboxResponse(
        [json_views.make_inbox_item(item) for item in page], page[-1].id if len(items) > len(page) else None
    )


async def approve(request: Request) -> responses.ActionResponse:
    """Approves what waits at a job or below it."""
    return await vote(request, await request.find_unit(), approve=True)


async def reject(request: Request) -> responses.ActionResponse:
    """Rejects what waits at a job or below it."""
    return await vote(request, await request.find_unit(), approve=False)


async def approve_in_run(request: Request) -> responses.ActionResponse:
    """Approves what waits in a run."""
    return await vote(request, await request.find_run(), approve=True)


async def reject_in_run(request: Request) -> responses.ActionResponse:
    """Rejects what waits in a run."""
    return await vote(request, await request.find_run(), approve=False)


async def vote(request: Request, unit: int, *, approve: bool) -> responses.ActionResponse:
    """Sends a person's vote on what waits at a unit or below it. If nothing waits there, nothing has changed."""
    body: VoteRequest = request.body
    given = body.arguments if isinstance(body, ApproveRequest) else msgspec.UNSET
    command = Vote(
        unit=unit, voter=body.by or request.caller.name, roles=body.roles, approve=approve, step=body.step,
        reason=body.comment, arguments=None if given is msgspec.UNSET else encode_json(given),
    )  # fmt: skip
    return await make_action_response(request, await request.send(command))


async def decide(request: Request) -> responses.ActionResponse:
    """Sends a verdict. One on an approval needs the scope `approve`; every other one needs `operate`."""
    body: DecideRequest = request.body
    unit = await request.find_unit()
    command = Decide(
        unit=unit, trigger=body.word, actor=body.by or request.caller.name, reason=body.comment,
        data=encode_json(body.data),
    )  # fmt: skip
    require_scope(request.caller, find_scope(command))
    return await make_action_response(request, await request.send(command))


RUN, JOB, ITEM = "/v1/runs/{id}", "/v1/jobs/{id}", "/v1/inbox/{id}"
RUN_ROUTES = (
    Operation(
        method="POST", path=f"{RUN}/approve", scope="approve", summary="Approve what waits in a run",
        call=approve_in_run, body=ApproveRequest, response=responses.ActionResponse,
    ),
    Operation(
        method="POST", path=f"{RUN}/reject", scope="approve", summary="Reject what waits in a run",
        call=reject_in_run, body=VoteRequest, response=responses.ActionResponse,
    ),
)  # fmt: skip
ROUTES = (
    Operation(
        method="GET", path="/v1/inbox", scope="read", summary="List what waits for a person, the oldest first",
        call=list_inbox, query=InboxQuery, response=responses.InboxResponse,
    ),
    Operation(
        method="POST", path=f"{ITEM}/approve", scope="approve", summary="Approve what waits for a person",
        call=approve, body=ApproveRequest, response=responses.ActionResponse,
    ),
    Operation(
        method="POST", path=f"{ITEM}/reject", scope="approve", summary="Reject what waits for a person",
        call=reject, body=VoteRequest, response=responses.ActionResponse,
    ),
    Operation(
        method="POST", path=f"{ITEM}/decide", scope="operate", summary="Take another action on what waits for a person",
        call=decide, body=DecideRequest, response=responses.ActionResponse,
    ),
    Operation(
        method="POST", path=f"{JOB}/approve", scope="approve",
        summary="Approve what waits at a job or run, or below it",
        call=approve, body=ApproveRequest, response=responses.ActionResponse,
    ),
    Operation(
        method="POST", path=f"{JOB}/reject", scope="approve",
        summary="Reject what waits at a job or run, or below it",
        call=reject, body=VoteRequest, response=responses.ActionResponse,
    ),
    *with_short_paths(RUN_ROUTES),
)  # fmt: skip
