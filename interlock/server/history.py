"""History of a tenant's work over HTTP, for charts."""

from interlock.client.history import RANGES, History, read_history
from interlock.server.errors import ApiError
from interlock.server.metrics import SCRAPE_SECONDS, count_up
from interlock.server.operations import Operation, Request
from interlock.server.request_schemas import Strict


class HistoryQuery(Strict, frozen=True, kw_only=True):
    """How far to look back."""

    range: str = "1h"


async def show_history(request: Request) -> History:
    """How the work of the caller's tenant went in the last hour, day or week.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    name = request.query.range
    if name not in RANGES:
        raise ApiError(400, f"range = {name} is not allowed; allowed are {', '.join(RANGES)}")
    behind = await count_up(request)
    return await request.read(read_history, name, request.app.lifecycles, behind)


ROUTES = (
    Operation(
        method="GET", path="/v1/stats/history", scope="read", summary="Show the history of the work by time",
        call=show_history, query=HistoryQuery, response=History, question_seconds=SCRAPE_SECONDS,
    ),
)  # fmt: skip
