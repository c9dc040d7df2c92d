"""Translate an error into a status, a code for programs and a text for people, never a traceback."""

from typing import Any

from interlock.client.http_codec import ErrorBody, ErrorResponse
from interlock.kernel.errors import (
    Contended,
    Drained,
    Gone,
    InterlockError,
    LimitReached,
    NoBlobs,
    NotWanted,
    Refused,
    Stale,
    StoreError,
    TooSlow,
    Unavailable,
    Unknown,
)

TOO_SLOW = "TOO_SLOW"
STALE_LEASE = "STALE_LEASE"  # the one code for "too late"; `details.why` has the reason
RETRY_SOON = {"Retry-After": "1"}
NOT_FOUND = "there is nothing under this id"
OURS = "this should not have happened; the log of the server says more"
# Refusals whose text begins with their own code, and the status of each.
CODED = {"IDEMPOTENCY_CONFLICT": 409, "DUPLICATE_KEY": 409, "NAME_TAKEN": 409, "NOT_AN_APPROVER": 403}
CODES = {
    400: "INVALID_REQUEST", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED",
    409: "INVALID_STATE", 413: "TOO_LARGE", 415: "UNSUPPORTED_MEDIA_TYPE", 416: "NO_SUCH_RANGE", 429: "LIMIT_REACHED",
    500: "INTERNAL_ERROR", 503: "UNAVAILABLE",
}  # fmt: skip


class ApiError(Exception):
    """An answer that is no success, with its status and headers."""

    def __init__(
        self, status: int, message: str, *, code: str = "", headers: dict[str, str] | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.body = ErrorResponse(ErrorBody(code or CODES.get(status, "REFUSED"), message, details))


def make_api_error(error: Exception, *, by_id: bool) -> ApiError:
    """What is answered for an error; `by_id` says that the path named something, which may not be there."""
    match error:
        case ApiError():
            return error
        case Unknown() if by_id:
            return ApiError(404, NOT_FOUND)  # the same for what others have and for what nobody has
        case Refused():
            legal = list(error.legal)
            return ApiError(409, str(error), lifecycle=error.lifecycle, state=error.state, legal_next=legal)
        case NoBlobs():
            return ApiError(400, str(error), code="NO_BLOBS")
        case NotWanted():
            return ApiError(409, str(error), code="NOT_WANTED")
        case Stale():
            return ApiError(409, str(error), code=STALE_LEASE, why=str(error))
        case Gone() | Drained():
            return ApiError(409, str(error), code="WORKER_GONE")
        case LimitReached():
            return ApiError(429, str(error), headers=RETRY_SOON)
        case TooSlow():
            return ApiError(503, str(error), code=TOO_SLOW)
        case Contended() | Unavailable():
            return ApiError(503, "the database does not answer; ask again", headers=RETRY_SOON)
        case StoreError():
            return ApiError(500, OURS)
        case InterlockError():
            code = str(error).partition(":")[0]
            return ApiError(CODED.get(code, 400), str(error), code=code if code in CODED else "")
        case _:
            return ApiError(500, OURS)
