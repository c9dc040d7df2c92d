"""Bulk cancel and requeue over HTTP: the first request returns a count, the second confirms it.

Jobs move while somebody looks at the count. So the token holds the ids that were counted: the second request cancels
those of them that the filter still means, and never one that was not counted. Of requeue likewise, with dead letters.
"""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from interlock.client import responses
from interlock.client.async_pairs import run_steps
from interlock.client.bulk_responses import LeftOutResponse
from interlock.client.selections import OPEN, REQUEUE, WHICH, CancelOutcome, cancel_steps, read_jobs_in_order
from interlock.kernel.commands import Cancel
from interlock.kernel.errors import InterlockError
from interlock.kernel.lifecycle import Category
from interlock.server.bulk_previews import (
    REQUEUED_BEFORE,
    collect_dead,
    count_left_out,
    describe_dead_letters,
    describe_units,
    list_left_out,
    refuse_both,
)
from interlock.server.confirmations import ADVICE, Confirmation, check_confirmation, digest_filter, sign_confirmation
from interlock.server.dead_letters import requeue_all
from interlock.server.errors import ApiError
from interlock.server.jobs import make_job_filter
from interlock.server.operations import Operation, Request, parse_unit_id
from interlock.server.request_schemas import BulkCancelRequest, BulkJobsRequest
from interlock.store.queries.lists import UnitRef, refs_of
from interlock.store.queries.views import Filter

BULK_MOST, TOGETHER, SHOWN_MOST = 10_000, 200, 1_000  # jobs of one request, in one page, and named in the response
VERB = "cancel"
HAS_ENDED = "has ended"
IS_NOT_DEAD = "is no dead letter"
BEYOND = f"comes behind the first {BULK_MOST:,}"
NO_JOB = "is no job, run or step that is there"
NOTHING = ("none",)  # categories that no unit has


async def cancel_many(request: Request) -> responses.BulkCancelResponse:
    """Counts the open jobs that a filter means, or cancels those that were counted and are confirmed.

    Raises:
        InterlockError: the filter is empty, and `every` is not said.
        ApiError: 409, because the token was not given for this.
    """
    body: BulkCancelRequest = request.body
    filters = make_cancel_filter(request, body)
    now = await request.read(lambda connection, tenant: connection.now())
    filter_digest = digest_filter(filters, body.ids, body.hard, body.reason)
    if body.confirm is None:
        units, more, left_out = await count_units(request, body, filters)
        ids = encode_ids([unit.unit for unit in units])
        shown = Confirmation(VERB, request.caller.tenant, filter_digest, now, ids)
        return responses.BulkCancelResponse(
            len(units), more, sign_confirmation(request.caller.seal, shown),
            groups=await describe_units(request, units), left_out=left_out,
        )  # fmt: skip
    confirmation = check_confirmation(request, body.confirm, VERB, filter_digest, now)
    units, more = await collect_confirmed(request, body, filters, confirmation)
    outcomes = await cancel_all(request, units, hard=body.hard, reason=body.reason)
    done = [outcome.id for outcome in outcomes if outcome.refused is None]
    refused = len(outcomes) - len(done)
    return responses.BulkCancelResponse(len(units), more, None, len(done), refused, done[:SHOWN_MOST])


def make_cancel_filter(request: Request, body: BulkJobsRequest, categories: tuple[Category, ...] = OPEN) -> Filter:
    """Returns the filter for what may be changed: submitted units of some categories, by default those that are open.

    Raises:
        InterlockError: the filter is empty, and `every` is not said; or ids are given beside a filter.
    """
    filters = make_job_filter(request.app.lifecycles, body.filter)
    refuse_both(body.ids, filters)
    if msgspec.structs.replace(filters, top=False).empty and not body.ids and not body.every:
        raise InterlockError(WHICH.replace("every=True", "every: true").replace("task=…", "task"))
    submitted = tuple(
        lifecycle.name for lifecycle in request.app.lifecycles.values() if lifecycle.birth.trigger == "submit"
    )
    named: tuple[str, ...] = categories
    if filters.categories:
        named = tuple(category for category in categories if category in filters.categories) or NOTHING
    return msgspec.structs.replace(filters, categories=named, lifecycles=submitted)


async def count_units(
    request: Request, body: BulkJobsRequest, filters: Filter, why: str = HAS_ENDED
) -> tuple[list[UnitRef], bool, list[LeftOutResponse]]:
    """Returns the units that are meant, whether there are more, and what fits but is left out.

    Parameters:
        why: what is the matter with those that the filter names, but that are in other categories.
    """
    if body.ids:
        return await pick_units(request, body.ids, filters, why)
    units, more = await collect_units(request, filters, None)
    whole = make_job_filter(request.app.lifecycles, body.filter)
    others = tuple(
        category for category in whole.categories or tuple(Category) if category not in filters.categories
    )  # fmt: skip
    left_out = [LeftOutResponse(BEYOND, None)] if more else []
    if others:
        rest = msgspec.structs.replace(whole, categories=others, lifecycles=filters.lifecycles)
        left_out += await count_left_out(request, why, rest)
    return units, more, left_out


async def pick_units(
    request: Request, ids: Sequence[str], filters: Filter, why: str
) -> tuple[list[UnitRef], bool, list[LeftOutResponse]]:
    """Returns the units that ids name and that may be changed, and how many are left out and why."""
    wanted = sorted({parse_unit_id(name) for name in ids})
    there = await request.read(refs_of, wanted)
    lifecycles = request.app.lifecycles
    fit = [
        ref for ref in there
        if ref.lifecycle in filters.lifecycles and lifecycles[ref.lifecycle].category(ref.state) in filters.categories
    ]  # fmt: skip
    return fit, False, list_left_out({why: len(there) - len(fit), NO_JOB: len(wanted) - len(there)})


async def collect_confirmed(
    request: Request, body: BulkJobsRequest, filters: Filter, confirmation: Confirmation
) -> tuple[list[UnitRef], bool]:
    """Returns those of the units that were counted that are still meant, and whether there may be more.

    Raises:
        ApiError: 409, because some are not meant any more, and they should be `unchanged`.
    """
    counted = decode_ids(confirmation.units)
    if body.ids:
        there, more, _ = await pick_units(request, body.ids, filters, HAS_ENDED)
        units = [unit for unit in there if unit.unit in counted]
    else:
        units, more = await collect_units(request, filters, counted)
    if body.unchanged and len(units) < len(counted):
        gone = len(counted) - len(units)
        raise ApiError(
            409, f"{gone} of the {len(counted)} that were counted no longer match{'es' if gone == 1 else ''}, "
            f"and nothing was done; {ADVICE}", code="CONFIRM_MISMATCH",
        )  # fmt: skip
    return units, more


async def collect_units(request: Request, filters: Filter, confirmed: set[int] | None) -> tuple[list[UnitRef], bool]:
    """Returns the units that the filter means (of those confirmed, if any are), and whether there are more."""
    if filters.categories == NOTHING:
        return [], False
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


async def requeue_many(request: Request) -> responses.BulkRequeueResponse:
    """Counts the dead letters that a filter of jobs means, or does those again that were counted and are confirmed.

    Raises:
        InterlockError: the filter is empty, and `every` is not said.
        ApiError: 409, because the token was not given for this.
    """
    body: BulkJobsRequest = request.body
    filters = make_cancel_filter(request, body, (Category.DEAD,))
    now = await request.read(lambda connection, tenant: connection.now())
    filter_digest = digest_filter(filters, body.ids, body.reason)
    if body.confirm is None:
        units, more, left_out = await count_units(request, body, filters, IS_NOT_DEAD)
        dead_letters = await collect_dead(request, units)
        fresh = [row for row in dead_letters if row.again_at is None]
        left_out += list_left_out({REQUEUED_BEFORE: len(dead_letters) - len(fresh)})
        shown = Confirmation(
            REQUEUE, request.caller.tenant, filter_digest, now, encode_ids([row.unit for row in fresh])
        )  # fmt: skip
        return responses.BulkRequeueResponse(
            len(fresh), more, sign_confirmation(request.caller.seal, shown),
            groups=describe_dead_letters(request, fresh), left_out=left_out,
        )  # fmt: skip
    confirmation = check_confirmation(request, body.confirm, REQUEUE, filter_digest, now)
    units, more = await collect_confirmed(request, body, filters, confirmation)
    return await requeue_all(request, await collect_dead(request, units), more, body.reason)


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
        summary="Cancel all jobs that match a filter: the first request counts them, the second confirms",
        call=cancel_many, body=BulkCancelRequest, response=responses.BulkCancelResponse, keyed=False,
    ),
    Operation(
        method="POST", path="/v1/jobs/requeue", scope="operate",
        summary="Requeue all dead letters that a filter matches: the first request counts them, the second confirms",
        call=requeue_many, body=BulkJobsRequest, response=responses.BulkRequeueResponse, keyed=False,
    ),
)  # fmt: skip
