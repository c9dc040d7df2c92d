"""The steps of every request: key, scope, rate, query and body, the call, the response, the log line."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from litestar import Request as LitestarRequest
from litestar import Response
from litestar.exceptions import HTTPException
from litestar.response import Stream

from interlock.kernel.commands import Admit
from interlock.kernel.errors import TooSlow, Unknown
from interlock.kernel.ids import parse_id
from interlock.server.auth import Caller, InvalidKey, KeyCache, read_loop_time, require_scope
from interlock.server.errors import TOO_SLOW, ApiError, make_api_error
from interlock.server.guesses import guess_field
from interlock.server.limits import InvalidKeyLimiter
from interlock.server.logs import write_log
from interlock.server.operations import (
    BytesReply,
    CheckAccess,
    NoQuery,
    Operation,
    Reply,
    Request,
    ServerState,
    make_request_id,
)
from interlock.server.sse import EventStream

BODY_MAX, DEPTH_MAX, KEY_MAX = 1 << 20, 64, 200
NUL = b"\\u0000"  # the one way in which JSON can hold it
CONTAINERS = (msgspec.Struct, dict, list, tuple)
UNIT_PATHS = ("/jobs/{id}", "/runs/{id}")
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
EVENTS = "text/event-stream"
HttpRequest = LitestarRequest[Any, Any, Any]


class RequestPipeline:
    """Answers requests, each by its operation."""

    def __init__(self, server: ServerState) -> None:
        self.server, self.keys = server, KeyCache(server.read)
        self.invalid_keys = InvalidKeyLimiter(server.limits.wrong_keys)

    async def answer(self, operation: Operation, http_request: HttpRequest) -> Response[Any] | Stream:
        """Returns the response, whatever happens, and writes it to the log."""
        began, caller, headers, request_id = read_loop_time(), None, dict[str, str](), make_request_id()
        response: Response[Any] | Stream
        try:
            address = http_request.client.host if http_request.client else ""
            header = http_request.headers.get("authorization", "")
            check_access = partial(self.authorize, operation, header, address)
            caller = await check_access()
            if caller and caller.limited and operation.counted:
                headers = await self.count_request(caller)
            request = await self.parse_request(operation, http_request, caller, check_access)
            request.request_id = request_id
            response = make_response(operation, await operation.call(request))
        except Exception as error:
            response = make_error_response(error, operation, request_id)
        response.headers.update({**headers, "X-Request-Id": request_id})
        unit = find_unit_in_path(operation, http_request)
        log_request(operation.method, operation.path, response.status_code, began, request_id, caller, unit)
        return response

    async def count_request(self, caller: Caller) -> dict[str, str]:
        """Counts a request of a tenant that has a limit per minute, and returns the headers that tell of it.

        Raises:
            ApiError: 429, because the limit is reached.
        """
        admitted = await self.server.send(Admit(tenant=caller.tenant, actor=caller.name))
        if admitted is None:
            return {}
        seconds = str(-(-admitted.until_us // 1_000_000))
        headers = {
            "X-RateLimit-Limit": str(admitted.limit), "X-RateLimit-Remaining": str(admitted.left),
            "X-RateLimit-Reset": seconds,
        }  # fmt: skip
        if not admitted.allowed:
            text = f"this tenant may send {admitted.limit} requests per minute"
            raise ApiError(429, text, code="RATE_LIMITED", headers={**headers, "Retry-After": seconds})
        return headers

    async def authorize(self, operation: Operation, header: str, address: str) -> Caller | None:
        """Returns the caller, or None for an operation that needs no key.

        Raises:
            ApiError: one who may not.
        """
        if operation.scope is None:
            return None
        try:
            caller = await self.keys.find_caller(header)
        except InvalidKey:
            self.invalid_keys.count(address, read_loop_time())
            raise
        require_scope(caller, operation.scope)
        return caller

    async def parse_request(
        self, operation: Operation, http_request: HttpRequest, caller: Caller | None, check_access: CheckAccess
    ) -> Request:
        """Returns the request, with every word of it checked.

        Raises:
            ApiError: it is not allowed; the text says what is.
        """
        path = {name: str(value) for name, value in http_request.path_params.items()}
        key = http_request.headers.get("idempotency-key") if operation.takes_key else None
        if key is not None and not (0 < len(key) <= KEY_MAX and key.isascii() and key.isprintable()):
            raise ApiError(400, f"Idempotency-Key is not allowed; allowed are 1 to {KEY_MAX} printable characters")
        request = Request(self.server, caller, path, http_request.headers, check_access)
        request.idempotency_key = key
        request.question_seconds = max(request.question_seconds, operation.question_seconds)
        request.query = parse_query(operation.query or NoQuery, http_request.scope["query_string"])
        if operation.takes_bytes:
            request.pieces = http_request.stream()
        if operation.body is not None:
            media = http_request.headers.get("content-type", "")
            request.body = parse_body(operation.body, media, await http_request.body())
        return request


def find_unit_in_path(operation: Operation, http_request: HttpRequest) -> int | None:
    """Returns the job or run that a path names, as the worker's log has it; never the text that was sent."""
    if any(path in operation.path for path in UNIT_PATHS):
        with suppress(Unknown):
            return parse_id(str(http_request.path_params["id"]))
    return None


def log_request(
    method: str, route: str, status: int | None, began: float, request_id: str, caller: Caller | None = None,
    unit: int | None = None,
) -> None:  # fmt: skip
    """Writes one line to the log: the route and the unit, but nothing else that was sent; the key's id, not the key.

    Parameters:
        began: seconds by the clock of the event loop.
    """
    facts = {
        "method": method, "route": route, "status": status, "took_ms": round((read_loop_time() - began) * 1_000, 3),
        "tenant": caller.tenant if caller else None, "key": caller.key if caller else None, "request": request_id,
        **({} if unit is None else {"unit": unit}),
    }  # fmt: skip
    write_log(logging.INFO, "request", **facts)


def parse_query(kind: Any, text: bytes) -> Any:
    """Returns the query string as a struct.

    Raises:
        ApiError: a name that is unknown, or a value not of its kind.
    """
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except (ValueError, UnicodeError):
        raise ApiError(400, "the query cannot be read; it is name=value, joined by &") from None
    lists = [name for name, hint in get_type_hints(kind).items() if str(hint).startswith("tuple")]
    given: dict[str, Any] = {}
    for name, value in pairs:
        if "\0" in value:
            raise ApiError(400, f"'{name}' has a NUL character, which is not allowed")
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise ApiError(400, f"'{name}' is given twice")
        else:
            given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"the query is wrong: {error}{guess_field(kind, str(error))}") from None


def parse_body(kind: Any, media: str, text: bytes) -> Any:
    """Returns the body as a struct.

    Raises:
        ApiError: a field that is unknown, or a value not of its kind.
    """
    if text and media.partition(";")[0].strip().lower() not in ("application/json", ""):
        raise ApiError(415, "the body must be JSON: send it with `Content-Type: application/json`")
    try:
        body = msgspec.json.decode(text or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ApiError(400, f"the body is wrong: {error}{guess_field(kind, str(error))}") from None
    check_depth_and_nul(body, text)
    return body


def check_depth_and_nul(body: Any, text: bytes) -> None:
    """Raises ApiError for a body that is nested too deeply for whoever reads it later, or has a NUL character.

    No database could keep a NUL. The value is walked level by level, and only where the text leaves room for either:
    so the work grows with the length of the body, and most bodies need none.
    """
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX and NUL not in text:
        return
    level = [body]
    for _ in range(DEPTH_MAX):
        level = [part for value in level for part in list_parts(value)]
        if any(isinstance(value, str) and "\0" in value for value in level):
            raise ApiError(400, "the body has a NUL character, which is not allowed")
        if not level:
            return
    if any(isinstance(value, CONTAINERS) for value in level):
        raise ApiError(400, f"the body is nested more than {DEPTH_MAX} deep")


def list_parts(value: Any) -> Iterable[Any]:
    """Returns what a decoded value holds, one level down; the keys of an object too."""
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list | tuple) else ()


def make_response(operation: Operation, result: Any) -> Response[Any] | Stream:
    """Makes the response of what an operation has returned."""
    if isinstance(result, EventStream):
        return Stream(result.pieces, media_type=EVENTS, headers=dict(HEADERS))
    if isinstance(result, BytesReply):
        headers = {**HEADERS, **result.headers}
        return Stream(result.pieces, media_type=result.media, headers=headers, status_code=result.status)
    reply = result if isinstance(result, Reply) else Reply(result, operation.status)
    content = reply.body.encode() if isinstance(reply.body, str) else msgspec.json.encode(reply.body)
    return Response(content, status_code=reply.status, media_type=operation.media, headers=dict(HEADERS))


def make_error_response(error: Exception, operation: Operation | None = None, request_id: str = "") -> Response[bytes]:
    """Returns the response for an error. A bug is answered with 500 and written to the log with its traceback."""
    if isinstance(error, HTTPException) and error.status_code < 500:
        answer = ApiError(error.status_code, error.detail, headers=dict(error.headers or {}))
    elif isinstance(error, TooSlow) and operation is not None:
        text = f"{operation.method} {operation.path}: {error}; {operation.advice}"
        answer = ApiError(503, text, code=TOO_SLOW)
    else:
        answer = make_api_error(error, by_id=operation is not None and operation.has_parameter)
    if answer.status == 500:
        name = operation.name if operation else None
        write_log(logging.ERROR, "request failed", error, operation=name, request=request_id or None)
    content = msgspec.json.encode(answer.body)
    headers = {**HEADERS, **answer.headers}
    return Response(content, status_code=answer.status, media_type="application/json", headers=headers)
