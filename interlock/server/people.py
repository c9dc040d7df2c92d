"""The inbox over the wire: what waits for a person, and the person's word."""

from interlock.client import answers, shape
from interlock.client.inbox import inbox_page, several
from interlock.client.wire import scope_of
from interlock.kernel.commands import Decide
from interlock.server.bodies import InboxMeant, VoteAsked, WordAsked
from interlock.server.jobs import stands
from interlock.server.keyring import refuse_scope
from interlock.server.operations import Asked, Operation, unit_of
from interlock.server.runs import vote


async def inbox(asked: Asked) -> answers.Items:
    query: InboxMeant = asked.query
    after = 0 if query.after is None else unit_of(query.after)
    roles = several(query.role)
    found = await asked.read(inbox_page, asked.app.lives, query.by, roles, query.checks, query.limit + 1, after)
    page = found[: query.limit]
    return answers.Items([shape.item(one) for one in page], page[-1].id if len(found) > len(page) else None)


async def approve(asked: Asked) -> answers.StandingTold:
    return await vote(asked, await asked.unit(), approve=True)


async def reject(asked: Asked) -> answers.StandingTold:
    return await vote(asked, await asked.unit(), approve=False)


async def decide(asked: Asked) -> answers.StandingTold:
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
        call=inbox, query=InboxMeant, answer=answers.Items,
    ),
    Operation(
        method="POST", path=f"{ITEM}/approve", scope="approve", summary="Approve what waits for a person",
        call=approve, body=VoteAsked, answer=answers.StandingTold,
    ),
    Operation(
        method="POST", path=f"{ITEM}/reject", scope="approve", summary="Reject what waits for a person",
        call=reject, body=VoteAsked, answer=answers.StandingTold,
    ),
    Operation(
        method="POST", path=f"{ITEM}/decide", scope="operate", summary="Give another verdict to what waits for one",
        call=decide, body=WordAsked, answer=answers.StandingTold,
    ),
)  # fmt: skip
