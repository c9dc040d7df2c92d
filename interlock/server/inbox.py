"""The inbox over the wire: what waits for a person, and the person's word."""

from interlock.client import json_views, responses
from interlock.client.http_codec import scope_of
from interlock.client.inbox import inbox_page, several
from interlock.kernel.commands import Decide
from interlock.server.auth import refuse_scope
from interlock.server.jobs import stands
from interlock.server.operations import Asked, Operation, unit_of
from interlock.server.request_schemas import InboxMeant, VoteAsked, WordAsked
from interlock.server.runs import vote


async def inbox(asked: Asked) -> responses.Items:
    query: InboxMeant = asked.query
    after = 0 if query.after is None else unit_of(query.after)
    roles = several(query.role)
    found = await asked.read(inbox_page, asked.app.lifecycles, query.by, roles, query.checks, query.limit + 1, after)
    page = found[: query.limit]
    return responses.Items([json_views.item(one) for one in page], page[-1].id if len(found) > len(page) else None)


async def approve(asked: Asked) -> responses.StandingTold:
    return await vote(asked, await asked.unit(), approve=True)


async def reject(asked: Asked) -> responses.StandingTold:
    return await vote(asked, await asked.unit(), approve=False)


async def decide(asked: Asked) -> responses.StandingTold:
    """A verdict of an approval is an approver's; every other word is an operator's."""
    said: WordAsked = asked.body
    unit = await asked.unit()
    order = Decide(unit=unit, trigger=said.word, actor=said.by or asked.caller.name, reason=said.comment)
    refuse_scope(asked.caller, scope_of(order))
    return await stands(asked, await asked.send(order))


ITEM = "/v1/inbox/{id}"
INBOX = (
    Operation(
        method="GET", path="/v1/inbox", scope="read", summary="List what waits for a person, the oldest first",
        call=inbox, query=InboxMeant, answer=responses.Items,
    ),
    Operation(
        method="POST", path=f"{ITEM}/approve", scope="approve", summary="Approve what waits for a person",
        call=approve, body=VoteAsked, answer=responses.StandingTold,
    ),
    Operation(
        method="POST", path=f"{ITEM}/reject", scope="approve", summary="Reject what waits for a person",
        call=reject, body=VoteAsked, answer=responses.StandingTold,
    ),
    Operation(
        method="POST", path=f"{ITEM}/decide", scope="operate", summary="Give another verdict to what waits for one",
        call=decide, body=WordAsked, answer=responses.StandingTold,
    ),
)  # fmt: skip
