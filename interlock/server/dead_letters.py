"""Dead letters over HTTP: list, show, and requeue in bulk after a confirmation."""

from hashlib import sha256

from interlock.client import json_views, responses
from interlock.client.async_pairs import run_steps
from interlock.client.selections import RequeueOutcome, make_ends_filter, requeue_steps
from interlock.kernel.commands import Requeue
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.server.bulk_previews import REQUEUED_BEFORE, describe_dead_letters, list_left_out
from interlock.server.confirmations import (
    ADVICE,
    Confirmation,
    check_confirmation,
    digest_filter,
    sign_confirmation,
)
from interlock.server.errors import ApiError
from interlock.server.operations import Operation, Request, parse_unit_id
from interlock.server.request_schemas import BulkRequeueRequest, DeadLetterFilter, DeadLettersQuery
from interlock.store.connection import Connection
from interlock.store.queries.dead_letters import END, DeadLetter, DeadLetterConditions, Place, find_place, read_newest
from interlock.store.queries.lists import UnitRef
from interlock.store.queries.views import read_last_tracebacks, views_of

BULK_MOST, TOGETHER, SHOWN_MOST = 10_000, 200, 1_000  # letters of one order, at a time, and told by id


def make_dead_letter_filter(request: Request, filters: DeadLetterFilter) -> DeadLetterConditions:
    """The letters that are meant.

    Raises:
        InterlockError: it is not allowed; the text says what is.
    """
    words = {name: getattr(filters, name) for name in DeadLetterFilter.__struct_fields__}
    return make_ends_filter(request.app.lifecycles, **words)


async def list_dead_letters(request: Request) -> responses.DeadLettersResponse:
    """Lists dead letters, the newest first."""
    query: DeadLettersQuery = request.query
    page, last = await request.read(read_page, make_dead_letter_filter(request, query), query)
    return responses.DeadLettersResponse(page, None if last is None else format_id(last.lifecycle, last.unit))


def read_page(
    connection: Connection, tenant: int, filters: DeadLetterConditions, query: DeadLettersQuery
) -> tuple[list[responses.DeadLetterResponse], DeadLetter | None]:
    """Reads a page of dead letters, and the last of them if there are more."""
    before = END if query.after is None else find_place(connection, tenant, parse_unit_id(query.after))
    if before is None:
        raise InterlockError(f"'{query.after}' is no dead letter any more; begin with the first page")
    dead_letters, last = read_newest(connection, tenant, filters, query.limit, before)
    views = views_of(connection, tenant, [dead_letter.unit for dead_letter in dead_letters])
    tracebacks = read_last_tracebacks(connection, tenant, [dead_letter.unit for dead_letter in dead_letters])
    shown = [json_views.make_dead_letter(views[row.unit], row, tracebacks.get(row.unit)) for row in dead_letters]
    return shown, last


async def requeue(request: Request) -> responses.BulkRequeueResponse:
    """The dead letters that somebody saw and confirms are done again, each once, or their number is told first."""
    body: BulkRequeueRequest = request.body
    filters = make_dead_letter_filter(request, body.filter)
    now = await request.read(lambda connection, tenant: connection.now())
    filter_digest = digest_filter(filters, body.reason)
    confirmation = None
    if body.confirm is not None:
        confirmation = check_confirmation(request, body.confirm, "requeue", filter_digest, now)
    at = confirmation.at if confirmation else now
    dead_letters, more, before = await collect_dead_letters(request, filters, at)
    units = sha256(",".join(str(dead_letter.unit) for dead_letter in dead_letters).encode()).hexdigest()
    if confirmation is None:
        shown = Confirmation("requeue", request.caller.tenant, filter_digest, at, units)
        return responses.BulkRequeueResponse(
            len(dead_letters), more, sign_confirmation(request.caller.seal, shown),
            groups=describe_dead_letters(request, dead_letters), left_out=list_left_out({REQUEUED_BEFORE: before}),
        )  # fmt: skip
    if confirmation.units != units:
        raise ApiError(409, f"other dead letters match now than when this was shown; {ADVICE}", code="CONFIRM_MISMATCH")
    return await requeue_all(request, dead_letters, more, body.reason)


async def collect_dead_letters(
    request: Request, filters: DeadLetterConditions, at: int
) -> tuple[list[DeadLetter], bool, int]:
    """Letters that died by then and were not done again by then, at most so many, and whether there are more.

    Those that were done again by then are counted.

    Those that were done again later are among them: so an order that comes twice means the same ones twice.
    """
    dead_letters: list[DeadLetter] = []
    before: Place = (at, 2**62)
    looked = 0
    while len(dead_letters) < BULK_MOST:
        batch, last = await request.read(read_newest, filters, TOGETHER * 5, before)
        dead_letters += [row for row in batch if row.again_at is None or row.again_at > at]
        looked += len(batch)
        if last is None:
            return dead_letters[:BULK_MOST], len(dead_letters) > BULK_MOST, looked - len(dead_letters)
        before = last.place
    return dead_letters[:BULK_MOST], True, looked - len(dead_letters)


async def requeue_all(
    request: Request, dead_letters: list[DeadLetter], more: bool, reason: str
) -> responses.BulkRequeueResponse:
    """Each letter is done again, some at a time; whoever does so twice gets the same units twice."""
    caller, outcomes = request.caller, list[RequeueOutcome]()
    command = Requeue(unit=0, tenant=caller.tenant, actor=caller.name, cause=request.request_id, reason=reason)
    for start in range(0, len(dead_letters), TOGETHER):
        batch = [UnitRef(row.unit, row.lifecycle, "", True) for row in dead_letters[start : start + TOGETHER]]
        outcomes += await run_steps(requeue_steps(batch, command), request.read, request.server.send_all)
    units = [outcome.new for outcome in outcomes if outcome.new is not None]
    return responses.BulkRequeueResponse(
        len(dead_letters), more, None, len(units), len(dead_letters) - len(units), units[:SHOWN_MOST]
    )


ROUTES = (
    Operation(
        method="GET", path="/v1/dead-letters", scope="read", summary="List dead letters, the newest first",
        call=list_dead_letters, query=DeadLettersQuery, response=responses.DeadLettersResponse,
    ),
    Operation(
        method="POST", path="/v1/dead-letters/requeue", scope="operate",
        summary="Requeue dead letters, each as a new job: the first request counts them, the second confirms",
        call=requeue, body=BulkRequeueRequest, response=responses.BulkRequeueResponse, keyed=False,
    ),
)  # fmt: skip
