"""Cancel many jobs over HTTP: the first request is told how many a filter means, the second confirms exactly those.

Jobs move while somebody looks at the count. So the token holds the ids that were counted: the second request cancels
those of them that the filter still means, and never one that was not counted.
"""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from interlock.client import responses
from interlock.client.async_pairs import run_steps
from interlock.client.selections import OPEN, WHICH, CancelOutcome, cancel_steps, read_jobs_in_order
from interlock.kernel.commands import Cancel
from interlock.kernel.errors import InterlockError
from interlock.server.confirmations import Confirmation, check_confirmation, digest_filter, sign_confirmation
from interlock.server.jobs import make_job_filter
from interlock.server.operations import Operation, Request
from interlock.server.request_schemas import BulkCancelRequest
from interlock.store.queries.lists import UnitRef
from interlock.store.queries.views import Filter

BULK_MOST, TOGETHER, SHOWN_MOST = 10_000, 200, 1_000  # jobs of one request, in one page, and named in the response
VERB = "cancel"


async def cancel_many(request: Request) -> responses.BulkCancelResponse:
    """Counts the open jobs that a filter means, or cancels those that were counted and are confirmed.

    Raises:
        InterlockError: the filter is empty, and `every` is not said.
        ApiError: 409, because the token was not given for this.
    """
    body: BulkCancelRequest = request.body
    filters = make_cancel_filter(request, body)
    now = await request.read(lambda connection, tenant: connection.now())
    filter_digest = digest_filter(filters, body.hard, body.reason)
    confirmation = None
    if body.confirm is not None:
        confirmation = check_confirmation(request, body.confirm, VERB, filter_digest, now)
    units, more = await collect_units(request, filters, confirmation)
    if confirmation is None:
        ids = encode_ids([unit.unit for unit in units])
        shown = Confirmation(VERB, request.caller.tenant, filter_digest, now, ids)
        return responses.BulkCancelResponse(len(units), more, sign_confirmation(request.caller.seal, shown))
    outcomes = await cancel_all(request, units, hard=body.hard, reason=body.reason)
    done = [outcome.id for outcome in outcomes if outcome.refused is None]
    refused = len(outcomes) - len(done)
    return responses.BulkCancelResponse(len(units), more, None, len(done), refused, done[:SHOWN_MOST])


def make_cancel_filter(request: Request, body: BulkCancelRequest) -> Filter:
    """Returns the filter for what may be cancelled: submitted units that have not ended. Raises InterlockError."""
    filters = make_job_filter(request.app.lifecycles, body.filter)
    if filters.empty and not body.every:
        raise InterlockError(WHICH.replace("every=True", "every: true").replace("task=…", "task"))
    submitted = tuple(
        lifecycle.name for lifecycle in request.app.lifecycles.values() if lifecycle.birth.trigger == "submit"
    )
    return msgspec.structs.replace(filters, categories=filters.categories or OPEN, lifecycles=submitted)


async def collect_units(
    request: Request, filters: Filter, confirmation: Confirmation | None
) -> tuple[list[UnitRef], bool]:
    """Returns the units that the filter means (of those confirmed, if any are), and whether there are more."""
    confirmed = None if confirmation is None else decode_ids(confirmation.units)
    last = max(confirmed or (0,))
    units, after = list[UnitRef](), 0
    while True:
        page = await request.read(read_jobs_in_order, filters, None, TOGETHER, after)
        units += [unit for unit in page.units if confirmed is None or unit.unit in confirmed]
        if page.next is None:
            return units[:BULK_MOST], len(units) > BULK_MOST
        if confirmed is None and len(units) > BULK_MOST:
            return units[:BULK_MOST], True
        if confirmed is not None and page.next >= last:
            return units, True
        after = page.next


async def cancel_all(request: Request, units: Sequence[UnitRef], *, hard: bool, reason: str) -> list[CancelOutcome]:
    """Asks each unit to stop, some at a time, a parent before its children."""
    caller, outcomes = request.caller, list[CancelOutcome]()
    command = Cancel(
        unit=0, hard=hard, tenant=caller.tenant, actor=caller.name, cause=request.request_id, reason=reason
    )
    for start in range(0, len(units), TOGETHER):
        batch = units[start : start + TOGETHER]
        outcomes += await run_steps(cancel_steps(batch, command), request.read, request.server.send_all)
    return outcomes


def encode_ids(ids: Sequence[int]) -> str:
    """Returns ids, which are in order, as a short text."""
    steps = [later - earlier for earlier, later in zip([0, *ids], ids, strict=False)]
    return urlsafe_b64encode(zlib.compress(msgspec.json.encode(steps))).decode()


def decode_ids(text: str) -> set[int]:
    """Returns the ids of a text that `encode_ids` made."""
    return set(accumulate(msgspec.json.decode(zlib.decompress(urlsafe_b64decode(text)), type=list[int])))


ROUTES = (
    Operation(
        method="POST", path="/v1/jobs/cancel", scope="operate",
        summary="Stop all jobs that a filter means: first told how many, then confirmed", call=cancel_many,
        body=BulkCancelRequest, response=responses.BulkCancelResponse, keyed=False,
    ),
)  # fmt: skip
