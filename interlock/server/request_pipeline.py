"""What every request goes through: the key, the scope, the words, the call and the answer."""

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
from interlock.server.auth import Caller, Keyring, WrongKey, moment, refuse_scope
from interlock.server.errors import TOO_SLOW, Refusal, refusal
from interlock.server.limits import WrongKeys
from interlock.server.operations import Again, Nothing, Operation, Reply, Request, ServerState, make_request_id
from interlock.server.sse import Flow

log = logging.getLogger("interlock.server")
BODY_MAX, DEPTH_MAX, KEY_MAX = 1 << 20, 64, 200
NUL = b"\\u0000"  # the one way in which JSON can hold it
CONTAINERS = (msgspec.Struct, dict, list, tuple)
UNIT_PATHS = ("/jobs/{id}", "/runs/{id}")
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
EVENTS = "text/event-stream"
HttpRequest = LitestarRequest[Any, Any, Any]


class RequestPipeline:
    """Answers requests, each by its operation."""

    def __init__(self, hall: ServerState) -> None:
        self.hall, self.keyring, self.wrong_keys = hall, Keyring(hall.look), WrongKeys(hall.limits.wrong_keys)

    async def answer(self, operation: Operation, http_request: HttpRequest) -> Response[Any] | Stream:
        """The answer, whatever happens."""
        began, caller, more, named = moment(), None, dict[str, str](), make_request_id()
        answer: Response[Any] | Stream
        try:
            address = http_request.client.host if http_request.client else ""
            again = partial(self.allowed, operation, http_request.headers.get("authorization", ""), address)
            caller = await again()
            if caller and caller.limited and operation.counted:
                more = await self.admitted(caller)
            request = await self.request(operation, http_request, caller, again)
            request.request_id = named
            answer = answered(operation, await operation.call(request))
        except Exception as error:
            answer = refused(error, operation)
        answer.headers.update({**more, "X-Request-Id": named})
        told(
            operation.method, operation.path, answer.status_code, began, named, caller, unit_in(operation, http_request)
        )
        return answer

    async def admitted(self, caller: Caller) -> dict[str, str]:
        """What a tenant that may ask only so often is told of it. Raises Refusal if it was too often."""
        found = await self.hall.send(Admit(tenant=caller.tenant, actor=caller.name))
        if found is None:
            return {}
        seconds = str(-(-found.until_us // 1_000_000))
        told = {"X-RateLimit-Limit": str(found.limit), "X-RateLimit-Remaining": str(found.left)}
        told["X-RateLimit-Reset"] = seconds
        if not found.allowed:
            often = f"this tenant may ask {found.limit} times a minute"
            raise Refusal(429, often, code="RATE_LIMITED", headers={**told, "Retry-After": seconds})
        return told

    async def allowed(self, operation: Operation, header: str, address: str) -> Caller | None:
        """Who asks, if an operation is not open to all. Raises Refusal for somebody who may not."""
        if operation.scope is None:
            return None
        try:
            caller = await self.keyring.caller(header)
        except WrongKey:
            self.wrong_keys.count(address, moment())
            raise
        refuse_scope(caller, operation.scope)
        return caller

    async def request(
        self, operation: Operation, http_request: HttpRequest, caller: Caller | None, again: Again
    ) -> Request:
        """What is asked, every word of it checked. Raises Refusal."""
        path = {name: str(value) for name, value in http_request.path_params.items()}
        key = http_request.headers.get("idempotency-key") if operation.takes_key else None
        if key is not None and not (0 < len(key) <= KEY_MAX and key.isascii() and key.isprintable()):
            raise Refusal(400, f"Idempotency-Key is not allowed; allowed are 1 to {KEY_MAX} printable characters")
        request = Request(self.hall, caller, path, http_request.headers, again)
        request.idempotency_key = key
        request.question_seconds = max(request.question_seconds, operation.question_seconds)
        request.query = query_of(operation.query or Nothing, http_request.scope["query_string"])
        if operation.body is not None:
            request.body = body_of(
                operation.body, http_request.headers.get("content-type", ""), await http_request.body()
            )
        return request


def unit_in(operation: Operation, http_request: HttpRequest) -> int | None:
    """The job or run that a path names, as the worker's log has it; never the text that was sent."""
    if any(path in operation.path for path in UNIT_PATHS):
        with suppress(Unknown):
            return parse_id(str(http_request.path_params["id"]))
    return None


def told(
    method: str, route: str, status: int | None, began: float, named: str, caller: Caller | None = None,
    unit: int | None = None,
) -> None:  # fmt: skip
    """One line of the log: which route and which unit, never what else was asked; whose key, never the key."""
    facts = {
        "method": method, "route": route, "status": status, "took_ms": round((moment() - began) * 1_000, 3),
        "tenant": caller.tenant if caller else None, "key": caller.key if caller else None, "request": named,
        **({} if unit is None else {"unit": unit}),
    }  # fmt: skip
    log.info("%s %s %s", method, route, status, extra={"facts": facts})


def query_of(kind: Any, text: bytes) -> Any:
    """The words behind the question mark. Raises Refusal for one that is not known, or not of its kind."""
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except (ValueError, UnicodeError):
        raise Refusal(400, "the query cannot be read; it is name=value, joined by &") from None
    lists = [name for name, hint in get_type_hints(kind).items() if str(hint).startswith("tuple")]
    given: dict[str, Any] = {}
    for name, value in pairs:
        if "\0" in value:
            raise Refusal(400, f"'{name}' has a NUL character, which is not allowed")
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Refusal(400, f"'{name}' is given twice")
        else:
            given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(400, f"the query is wrong: {error}") from None


def body_of(kind: Any, media: str, text: bytes) -> Any:
    """What the body says. Raises Refusal for a word that is not known, or not of its kind."""
    if text and media.partition(";")[0].strip().lower() not in ("application/json", ""):
        raise Refusal(415, "the body must be JSON: send it with `Content-Type: application/json`")
    try:
        found = msgspec.json.decode(text or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Refusal(400, f"the body is wrong: {error}") from None
    refuse_unkeepable(found, text)
    return found


def refuse_unkeepable(found: Any, text: bytes) -> None:
    """What is nested too deeply would break whoever reads it later, and no database could keep a NUL.

    The value is walked level by level, and only where the text leaves room for either: so the work grows with the
    length of the body, and most bodies need none.
    """
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX and NUL not in text:
        return
    level = [found]
    for _ in range(DEPTH_MAX):
        level = [part for value in level for part in parts_of(value)]
        if any(isinstance(value, str) and "\0" in value for value in level):
            raise Refusal(400, "the body has a NUL character, which is not allowed")
        if not level:
            return
    if any(isinstance(value, CONTAINERS) for value in level):
        raise Refusal(400, f"the body is nested more than {DEPTH_MAX} deep")


def parts_of(value: Any) -> Iterable[Any]:
    """What a decoded value holds, one level down; keys of an object too."""
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list | tuple) else ()


def answered(operation: Operation, found: Any) -> Response[Any] | Stream:
    if isinstance(found, Flow):
        return Stream(found.pieces, media_type=EVENTS, headers=dict(HEADERS))
    reply = found if isinstance(found, Reply) else Reply(found, operation.status)
    content = reply.body.encode() if isinstance(reply.body, str) else msgspec.json.encode(reply.body)
    return Response(content, status_code=reply.status, media_type=operation.media, headers=dict(HEADERS))


def refused(error: Exception, operation: Operation | None = None) -> Response[bytes]:
    """An error as it is told outside; what is our own fault is told to the log in full."""
    if isinstance(error, HTTPException) and error.status_code < 500:
        no = Refusal(error.status_code, error.detail, headers=dict(error.headers or {}))
    elif isinstance(error, TooSlow) and operation is not None:
        text = f"{operation.method} {operation.path}: {error}; {operation.narrower}"
        no = Refusal(503, text, code=TOO_SLOW)
    else:
        no = refusal(error, by_id=operation is not None and operation.by_id)
    if no.status == 500:
        log.error("%s failed", operation.name if operation else "a request", exc_info=error)
    content = msgspec.json.encode(no.body)
    return Response(content, status_code=no.status, media_type="application/json", headers={**HEADERS, **no.headers})
