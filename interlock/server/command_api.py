"""What programs ask in their own words: commands and views as the client has them, each under its scope."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, reduce
from operator import or_
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from interlock.client import http_codec
from interlock.client.remote_views import Question, bare, questions
from interlock.client.selections import REQUEUE, is_requeue
from interlock.core.committer import Unresolved
from interlock.core.plugin import Registry
from interlock.kernel.commands import LOCAL, Command, CreateKey, Drain, LeaseStatus, RotateKey
from interlock.kernel.errors import Denied, InterlockError, StoreError, Unknown
from interlock.server.errors import OURS, Refusal, refusal
from interlock.server.keys import refuse_wider
from interlock.server.operations import Operation, Request
from interlock.store.queries.views import find_cause

log = logging.getLogger("interlock.server")
STALE = "STALE_LEASE"
UNKNOWN_END = (
    "the database did not answer to COMMIT; this may have been carried out or not: look before you send it again"
)


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of one command: its answer, or why it was not carried out."""

    answer: Any = None
    refused: http_codec.Trouble | None = None
    code: str = ""  # STALE_LEASE, if one of the leases that it names is not the sender's any more


class AllTold(msgspec.Struct, frozen=True):
    """What came of each command, in the same order."""

    answers: list[Told]


def asked_for(scope: str, registry: Registry, *, first_names: bool = True) -> type[msgspec.Struct]:
    """The body of a request: commands that need this scope, if wanted also by the names that they had first."""
    known = http_codec.commands_for(scope, registry.commands, first_names=first_names)
    kinds: Any = reduce(or_, map(http_codec.twin, known))
    several = Annotated[tuple[kinds, ...], Meta(min_length=1, max_length=http_codec.TOGETHER)]
    doc = f"Commands that need the scope `{scope}`; one that is refused does not stop the others."
    return msgspec.defstruct(
        f"{scope.capitalize()}Commands", [("commands", several)], namespace={"__doc__": doc}, frozen=True,
        forbid_unknown_fields=True,
    )  # fmt: skip


async def carry_out(scope: str, request: Request) -> AllTold:
    """Every command is answered; those of one request are put to the engine together."""
    cause = f"{request.caller.key} {request.request_id}"
    judged = [await judge(scope, request, said, cause) for said in request.body.commands]
    came = iter(await answers_to(request, [one for one in judged if not isinstance(one, InterlockError)]))
    return AllTold(
        [Told(refused=http_codec.trouble_of(one)) if isinstance(one, InterlockError) else next(came) for one in judged]
    )


async def judge(scope: str, request: Request, said: msgspec.Struct, cause: str) -> Command[Any] | InterlockError:
    """A command as this caller's, or why it may not be asked with this key and this scope."""
    try:
        command = http_codec.received(said)
    except InterlockError as wrong:
        return wrong
    if no := await denied(scope, request, command):
        return no
    try:
        if isinstance(command, CreateKey | RotateKey):
            await refuse_wider(request, command)
        own = request.owned(command, cause=cause)
        return msgspec.structs.replace(own, key_scope=REQUEUE) if is_requeue(command) else own
    except Refusal as no:
        return Denied(str(no))


async def denied(scope: str, request: Request, command: Command[Any]) -> Denied | None:
    """Why this scope is not enough for a command, if it is not."""
    if not isinstance(command, Drain) or scope != "worker":
        needed = http_codec.scope_of(command)
        return None if scope == needed else Denied(f"this needs the scope '{needed}'")
    born = await request.read(find_cause, command.worker) or ""
    if born.partition(" ")[0] == request.caller.key:
        return None
    return Denied("a worker may drain itself, and this one was registered with another key")


async def answers_to(request: Request, commands: Sequence[Command[Any]]) -> list[Told]:
    if not commands:
        return []
    futures = map(asyncio.wrap_future, request.app.put_all(commands))
    return [told(one) for one in await asyncio.gather(*futures, return_exceptions=True)]


def told(came: Any) -> Told:
    """What a command came to; what is our own fault is told to the log in full."""
    match came:
        case Unresolved():
            return Told(refused=http_codec.Trouble("Unavailable", UNKNOWN_END))
        case StoreError():
            no = refusal(came, by_id=False)
            if no.status == 500:
                log.error("a command failed", exc_info=came)
            return Told(refused=http_codec.Trouble(http_codec.class_of(came).__name__, str(no)))
        case InterlockError():
            return Told(refused=http_codec.trouble_of(came))
        case Exception():
            log.error("a command failed", exc_info=came)
            return Told(refused=http_codec.Trouble("InterlockError", OURS))
        case BaseException():
            raise came
    return Told(answer=came, code=STALE if any(map(is_stale, came if isinstance(came, list) else ())) else "")


def is_stale(heard: Any) -> bool:
    return isinstance(heard, LeaseStatus) and not heard.accepted and "LEASE" in heard.why


async def see(question: Question, request: Request) -> dict[str, Any]:
    """What a view says of this caller's tenant. Raises Refusal for what is not there."""
    given = question.given(request.body)
    if given.get("by") == LOCAL:
        given["by"] = request.caller.name
    if question.with_lives:
        given["lives"] = request.app.lifecycles
    try:
        return {"answer": bare(await request.read(question.view, **given))}
    except Unknown as error:
        raise Refusal(404, str(error)) from None


def calling(call: Callable[[Any, Request], Awaitable[Any]], what: Any) -> Callable[[Request], Awaitable[Any]]:
    return partial(call, what)


def program_operations(registry: Registry) -> list[Operation]:
    """How programs send commands, those of plugins among them, and ask views."""
    sending = [
        Operation(
            method="POST", path=f"{http_codec.PROGRAMS}/{scope}", scope=scope, keyed=False, counted=scope != "worker",
            summary=f"Send commands that need the scope {scope}", call=calling(carry_out, scope),
            body=asked_for(scope, registry), documented=asked_for(scope, registry, first_names=False), answer=AllTold,
        )
        for scope in http_codec.SCOPES
    ]  # fmt: skip
    asking = [
        Operation(
            method="POST", path=one.path, scope="read", keyed=False, finds=True,
            summary=f"Ask the view {one.name}", call=calling(see, one), body=one.takes, answer=one.tells,
        )
        for one in questions(registry.queries).values()
    ]  # fmt: skip
    return sending + asking
