"""Commands and views of the engine over HTTP, for our own client, each under its scope."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from interlock.client import http_codec
from interlock.client.blobs import has_large_value, pack_apart
from interlock.client.remote_views import RemoteView, index_remote_views, strip_secrets
from interlock.client.selections import REQUEUE, is_requeue
from interlock.core.plugin import Registry
from interlock.kernel.commands import LOCAL, Command, CreateKey, Drain, LeaseStatus, RotateKey
from interlock.kernel.errors import Denied, InterlockError, StoreError, Unknown
from interlock.server.errors import OURS, STALE_LEASE, ApiError, make_api_error
from interlock.server.keys import check_scopes_given
from interlock.server.logs import write_log
from interlock.server.operations import Operation, Request
from interlock.store.commit_proof import Unresolved
from interlock.store.queries.views import find_cause

UNKNOWN_END = (
    "the database did not answer to COMMIT; this may have been carried out or not: look before you send it again"
)


class CommandResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one command: its answer, or why it was refused."""

    answer: Any = None
    refused: http_codec.CommandError | None = None
    code: str = ""  # STALE_LEASE, if one of the leases that it names is not the sender's any more


class CommandsResponse(msgspec.Struct, frozen=True):
    """The result of each command, in the same order."""

    answers: list[CommandResponse]


def make_body_type(scope: str, registry: Registry, *, first_names: bool = True) -> type[msgspec.Struct]:
    """The body of a request: commands that need this scope, if wanted also by the names that they had first."""
    known = http_codec.list_commands(scope, registry.commands, first_names=first_names)
    kinds: Any = reduce(or_, map(http_codec.make_wire_type, known))
    several = Annotated[tuple[kinds, ...], Meta(min_length=1, max_length=http_codec.COMMANDS_MAX)]
    doc = f"Commands that need the scope `{scope}`; one that is refused does not stop the others."
    return msgspec.defstruct(
        f"{scope.capitalize()}Commands", [("commands", several)], namespace={"__doc__": doc}, frozen=True,
        forbid_unknown_fields=True,
    )  # fmt: skip


async def run_commands(scope: str, request: Request) -> CommandsResponse:
    """Every command is answered; those of one request are put to the engine together."""
    cause = f"{request.caller.key} {request.request_id}"
    prepared = [await prepare_command(scope, request, sent_command, cause) for sent_command in request.body.commands]
    results = iter(await send_commands(request, [item for item in prepared if not isinstance(item, InterlockError)]))
    return CommandsResponse(
        [
            CommandResponse(refused=http_codec.encode_error(item))
            if isinstance(item, InterlockError)
            else next(results)
            for item in prepared
        ]
    )


async def prepare_command(
    scope: str, request: Request, sent_command: msgspec.Struct, cause: str
) -> Command[Any] | InterlockError:
    """A command as this caller's, or why it may not be asked with this key and this scope."""
    try:
        command = http_codec.decode_command(sent_command)
    except InterlockError as wrong:
        return wrong
    if denial := await deny(scope, request, command):
        return denial
    try:
        if isinstance(command, CreateKey | RotateKey):
            await check_scopes_given(request, command)
        own = request.sign_command(command, cause=cause)
        return msgspec.structs.replace(own, key_scope=REQUEUE) if is_requeue(command) else own
    except ApiError as denial:
        return Denied(str(denial))


async def deny(scope: str, request: Request, command: Command[Any]) -> Denied | None:
    """Why this scope is not enough for a command, if it is not."""
    if not isinstance(command, Drain) or scope != "worker":
        needed = http_codec.find_scope(command)
        return None if scope == needed else Denied(f"this needs the scope '{needed}'")
    born = await request.read(find_cause, command.worker) or ""
    if born.partition(" ")[0] == request.caller.key:
        return None
    return Denied("a worker may drain itself, and this one was registered with another key")


async def send_commands(request: Request, commands: Sequence[Command[Any]]) -> list[CommandResponse]:
    """Sends commands and returns the response to each."""
    if not commands:
        return []
    packed = [await pack_apart(request.app, command) if has_large_value(command) else command for command in commands]
    futures = map(asyncio.wrap_future, request.app.put_all(packed))
    return [make_command_response(item) for item in await asyncio.gather(*futures, return_exceptions=True)]


def make_command_response(result: Any) -> CommandResponse:
    """What a command result to; what is our own fault is told to the log in full."""
    match result:
        case Unresolved():
            return CommandResponse(refused=http_codec.CommandError("Unavailable", UNKNOWN_END))
        case StoreError():
            denial = make_api_error(result, by_id=False)
            if denial.status == 500:
                write_log(logging.ERROR, "command failed", result)
            return CommandResponse(
                refused=http_codec.CommandError(http_codec.find_error_class(result).__name__, str(denial))
            )
        case InterlockError():
            return CommandResponse(refused=http_codec.encode_error(result))
        case Exception():
            write_log(logging.ERROR, "command failed", result)
            return CommandResponse(refused=http_codec.CommandError("InterlockError", OURS))
        case BaseException():
            raise result
    return CommandResponse(
        answer=result, code=STALE_LEASE if any(map(is_stale_lease, result if isinstance(result, list) else ())) else ""
    )


def is_stale_lease(status: Any) -> bool:
    """Returns whether a message was rejected because its lease is over, or was never the sender's."""
    return isinstance(status, LeaseStatus) and not status.accepted and "LEASE" in status.why


async def read_view(view: RemoteView, request: Request) -> dict[str, Any]:
    """What a view says of this caller's tenant.

    Raises:
        ApiError: it is not there.
    """
    given = view.decode_request(request.body)
    if given.get("by") == LOCAL:
        given["by"] = request.caller.name
    if view.takes_lifecycles:
        given["lifecycles"] = request.app.lifecycles
    try:
        return {"answer": strip_secrets(await request.read(view.view, **given))}
    except Unknown as error:
        raise ApiError(404, str(error)) from None


def bind(call: Callable[[Any, Request], Awaitable[Any]], what: Any) -> Callable[[Request], Awaitable[Any]]:
    """Binds the first argument of a function that answers requests."""
    return partial(call, what)


def make_routes(registry: Registry) -> list[Operation]:
    """How programs send commands, those of plugins among them, and ask views."""
    sending = [
        Operation(
            method="POST", path=f"{http_codec.COMMANDS_PATH}/{scope}", scope=scope, keyed=False,
            counted=scope != "worker",
            summary=f"Send commands that need the scope {scope}", call=bind(run_commands, scope),
            body=make_body_type(scope, registry),
            openapi_body=make_body_type(scope, registry, first_names=False), response=CommandsResponse,
        )
        for scope in http_codec.SCOPES
    ]  # fmt: skip
    asking = [
        Operation(
            method="POST", path=item.path, scope="read", keyed=False, finds=True,
            summary=f"Read the view {item.name}", call=bind(read_view, item), body=item.request_type,
            response=item.response_type,
        )
        for item in index_remote_views(registry.queries).values()
    ]  # fmt: skip
    return sending + asking
