"""Dead letters over the wire: looked at, and done again in bulk once somebody has confirmed what they saw."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

import msgspec

from interlock.client import json_views, responses
from interlock.client.async_pairs import run_steps
from interlock.client.selections import RequeueOutcome, make_letters, requeue_steps
from interlock.kernel.commands import Replay
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.server.errors import Refusal
from interlock.server.operations import Operation, Request, unit_of
from interlock.server.request_schemas import BulkAsked, LettersAsked, LettersMeant
from interlock.store.connection import Connection
from interlock.store.queries.dead_letters import END, Letter, Letters, Place, find_place, read_newest
from interlock.store.queries.lists import UnitRef
from interlock.store.queries.views import read_last_tracebacks, views_of

BULK_MOST, TOGETHER, SHOWN_MOST = 10_000, 200, 1_000  # letters of one order, at a time, and told by id
GOOD_FOR_US = 600_000_000
AGAIN = "ask again without `confirm`, look at the count, and send the new token"


class Seen(msgspec.Struct, frozen=True):
    """What somebody was shown, and may confirm: signed, so that nobody makes one up."""

    verb: str
    tenant: int
    filter: str  # digest
    at: int  # letters that died later are not meant
    units: str  # digest


def meant_by(request: Request, wanted: LettersAsked) -> Letters:
    """The letters that are meant. Raises InterlockError."""
    words = {name: getattr(wanted, name) for name in LettersAsked.__struct_fields__}
    return make_letters(request.app.lifecycles, **words)


async def letters(request: Request) -> responses.LetterList:
    query: LettersMeant = request.query
    page, last = await request.read(page_of, meant_by(request, query), query)
    return responses.LetterList(page, None if last is None else format_id(last.lifecycle, last.unit))


def page_of(
    connection: Connection, tenant: int, wanted: Letters, query: LettersMeant
) -> tuple[list[responses.LetterTold], Letter | None]:
    before = END if query.after is None else find_place(connection, tenant, unit_of(query.after))
    if before is None:
        raise InterlockError(f"'{query.after}' is no dead letter any more; begin with the first page")
    found, last = read_newest(connection, tenant, wanted, query.limit, before)
    views = views_of(connection, tenant, [one.unit for one in found])
    tracebacks = read_last_tracebacks(connection, tenant, [one.unit for one in found])
    return [json_views.letter(views[one.unit], one, tracebacks.get(one.unit)) for one in found], last


async def requeue(request: Request) -> responses.Bulk:
    """The dead letters that somebody saw and confirms are done again, each once, or their number is told first."""
    body: BulkAsked = request.body
    wanted, now = meant_by(request, body.filter), await request.read(lambda connection, tenant: connection.now())
    filter_digest = sha256(msgspec.json.encode((wanted, body.reason))).hexdigest()
    seen = None if body.confirm is None else opened(request.caller.seal, body.confirm)
    if body.confirm is not None:
        refuse_other(seen, request.caller.tenant, filter_digest, now)
    at = seen.at if seen else now
    found, more = await gathered(request, wanted, at)
    units = sha256(",".join(str(one.unit) for one in found).encode()).hexdigest()
    if seen is None:
        token = sealed(request.caller.seal, Seen("requeue", request.caller.tenant, filter_digest, at, units))
        return responses.Bulk(len(found), more, token)
    if seen.units != units:
        raise Refusal(409, f"there are other letters now than when this was shown; {AGAIN}", code="CONFIRM_MISMATCH")
    return await done_again(request, found, more, body.reason)


async def gathered(request: Request, wanted: Letters, at: int) -> tuple[list[Letter], bool]:
    """Letters that died by then and were not done again by then, at most so many, and whether there are more.

    Those that were done again later are among them: so an order that comes twice means the same ones twice.
    """
    found: list[Letter] = []
    before: Place = (at, 2**62)
    while len(found) < BULK_MOST:
        some, last = await request.read(read_newest, wanted, TOGETHER * 5, before)
        found += [one for one in some if one.again_at is None or one.again_at > at]
        if last is None:
            return found[:BULK_MOST], len(found) > BULK_MOST
        before = last.place
    return found[:BULK_MOST], True


async def done_again(request: Request, found: list[Letter], more: bool, reason: str) -> responses.Bulk:
    """Each letter is done again, some at a time; whoever does so twice gets the same units twice."""
    caller, came = request.caller, list[RequeueOutcome]()
    order = Replay(unit=0, tenant=caller.tenant, actor=caller.name, cause=request.request_id, reason=reason)
    for start in range(0, len(found), TOGETHER):
        some = [UnitRef(one.unit, one.lifecycle, "", True) for one in found[start : start + TOGETHER]]
        came += await run_steps(requeue_steps(some, order), request.read, request.hall.send_all)
    units = [one.new for one in came if one.new is not None]
    return responses.Bulk(len(found), more, None, len(units), len(found) - len(units), units[:SHOWN_MOST])


def sealed(seal: str, seen: Seen) -> str:
    """What was seen, as a token that only this key's holder can send back."""
    text = urlsafe_b64encode(msgspec.json.encode(seen)).rstrip(b"=")
    return f"{text.decode()}.{hmac.new(seal.encode(), text, sha256).hexdigest()}"


def opened(seal: str, token: str) -> Seen | None:
    """What a token says, if it is one of ours."""
    text, _, mark = token.partition(".")
    if not hmac.compare_digest(hmac.new(seal.encode(), text.encode(), sha256).hexdigest(), mark):
        return None
    return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Seen)


def refuse_other(seen: Seen | None, tenant: int, filter_digest: str, now: int) -> None:
    """A token is good for the key, the verb and the filter that it was given for, and for ten minutes."""
    why = ""
    if seen is None or seen.tenant != tenant or seen.verb != "requeue":
        why = "this token was not given to this key for this"
    elif seen.filter != filter_digest:
        why = "this token was given for another filter or reason"
    elif now - seen.at > GOOD_FOR_US:
        why = "this token was given more than ten minutes ago"
    if why:
        raise Refusal(409, f"{why}; {AGAIN}", code="CONFIRM_MISMATCH")


ROUTES = (
    Operation(
        method="GET", path="/v1/dead-letters", scope="read", summary="List dead letters, the last one first",
        call=letters, query=LettersMeant, answer=responses.LetterList,
    ),
    Operation(
        method="POST", path="/v1/dead-letters/requeue", scope="operate",
        summary="Do dead letters again, each as a new unit: first told how many, then confirmed", call=requeue,
        body=BulkAsked, answer=responses.Bulk, keyed=False,
    ),
)  # fmt: skip
