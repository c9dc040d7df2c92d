"""Encode and decode commands and errors that are sent between a client and a server."""

from collections.abc import Collection, Iterable
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta

from interlock.client.first_names import FIRST_NAMES, Renamed
from interlock.kernel import commands, errors
from interlock.kernel.commands import Command
from interlock.kernel.errors import InterlockError, Refused

BODY_MAX = 1 << 20  # bytes per request
COMMANDS_MAX = 256  # per request
NUMBER_MAX = 2**63 - 1
NUMBER = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]  # one that a database can store
SERVER_FIELDS = ("tenant", "cause", "key_scope", "key_lasts", "vouched_by")  # the server sets them, not the client
COMMANDS_PATH = "/v1/commands"

PUBLIC = tuple(kind for kind in vars(commands).values() if getattr(kind, "public", False))
SCOPES = ("submit", "operate", "approve", "worker", "admin")


def find_scope(command: Command[Any], own_workers: Collection[int] = ()) -> str:
    """Returns the scope that a command needs; `own_workers` are the workers that the caller registered.

    Raises:
        InterlockError: the command is not public.
    """
    if not command.public:
        raise InterlockError(f"{type(command).__name__} cannot be sent over HTTP; send it beside the database")
    return command.needed_scope(own_workers)


def list_public_commands(of_plugins: Iterable[type[Command[Any]]] = ()) -> list[type[Command[Any]]]:
    """Returns the commands that can be sent over HTTP: those that Interlock ships, and those of further plugins."""
    return list(dict.fromkeys((*PUBLIC, *(kind for kind in of_plugins if kind.public))))


def list_commands(
    scope: str, of_plugins: Iterable[type[Command[Any]]] = (), *, first_names: bool = True
) -> list[type[Command[Any]]]:
    """Returns the commands that a scope allows, with `first_names` also by the names that they had first."""
    kinds = [kind for kind in list_public_commands(of_plugins) if scope in (kind.scope, kind.other_scope)]
    return kinds + [first for first in FIRST_NAMES if first_names and set(first.stands_for) & set(kinds)]


@cache
def make_strict(kind: Any) -> Any:
    """Returns the same type, but one that allows no unknown field and no number that a database cannot store."""
    if kind is int:
        return NUMBER
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return make_wire_type(kind)
    parts = tuple(part if part is ... else make_strict(part) for part in get_args(kind))
    if not parts:
        return kind
    origin: Any = get_origin(kind)
    return Union[parts] if origin in (Union, UnionType) else origin[parts]  # noqa: UP007


@cache
def make_wire_type(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Returns the struct that is sent for another one: without defaults and without what the server sets itself.

    The type of a command is sent as the field `command`.
    """
    tagged = issubclass(kind, Command)
    fields = [
        make_field(info.name, make_strict(info.type), info)
        for info in msgspec.structs.fields(kind)
        if not tagged or info.name not in SERVER_FIELDS
    ]
    tag: dict[str, Any] = (
        {"tag_field": "command", "tag": getattr(kind, "sent_as", "") or kind.__name__} if tagged else {}
    )
    return msgspec.defstruct(
        kind.__name__, fields, namespace={"__doc__": kind.__doc__, "command_type": kind}, frozen=True, kw_only=True,
        omit_defaults=True, forbid_unknown_fields=True, **tag,
    )  # fmt: skip


def make_field(name: str, kind: Any, info: msgspec.structs.FieldInfo) -> Any:
    """Makes a field of a struct that is sent, with its default."""
    if info.default is not NODEFAULT:
        return name, kind, info.default
    if info.default_factory is not NODEFAULT:
        return name, kind, msgspec.field(default_factory=info.default_factory)
    return name, kind


def encode_command(command: Command[Any]) -> bytes:
    """Encodes a command as it is sent.

    Raises:
        InterlockError: no server would take it.
    """
    try:
        return msgspec.json.encode(msgspec.convert(command, make_wire_type(type(command)), from_attributes=True))
    except msgspec.ValidationError as error:
        raise InterlockError(f"{type(command).__name__} cannot be sent: {error}") from None


def decode_command(message: msgspec.Struct) -> Command[Any]:
    """Returns the command that a message stands for, without a tenant yet.

    Raises:
        InterlockError: it has a first name that stands for no command.
    """
    kind: type[Command[Any]] = type(message).command_type  # type: ignore[attr-defined]
    command = msgspec.convert(message, kind, from_attributes=True)
    return command.translate() if isinstance(command, Renamed) else command


# Errors.


class CommandError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a command was refused: the class of the error, its text, and the details of a refused transition."""

    name: str
    text: str
    lifecycle: str = ""
    state: str | None = None
    trigger: str = ""
    legal: tuple[str, ...] = ()


class RawCommandResponse(msgspec.Struct, frozen=True):
    """The answer to one command, not decoded yet, or why it was not carried out."""

    answer: msgspec.Raw = msgspec.Raw(b"null")
    refused: CommandError | None = None


class RawCommandsResponse(msgspec.Struct, frozen=True):
    """The response to each command of a request, in the same order."""

    answers: list[RawCommandResponse]


def find_error_class(error: Exception) -> type[InterlockError]:
    """Returns the nearest class that client and server both know."""
    for kind in type(error).__mro__:
        known: type[InterlockError] | None = getattr(errors, kind.__name__, None)
        if known is kind:
            return known
    return InterlockError


def encode_error(error: InterlockError) -> CommandError:
    """Returns an error as it is sent."""
    name = find_error_class(error).__name__
    if isinstance(error, Refused):
        return CommandError(name, str(error), error.lifecycle, error.state, error.trigger, error.legal)
    return CommandError(name, str(error))


def decode_error(sent: CommandError) -> InterlockError:
    """Returns the error that was sent: the same class, the same text."""
    kind = getattr(errors, sent.name, InterlockError)
    error: InterlockError = kind.__new__(kind, sent.text)
    if isinstance(error, Refused):
        error.lifecycle, error.state = sent.lifecycle, sent.state
        error.trigger, error.legal = sent.trigger, sent.legal
    return error


class ErrorBody(msgspec.Struct, frozen=True):
    """The error; `details` has facts that help to correct the request: state, legal_next, needs."""

    code: str
    message: str
    details: dict[str, Any]


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of every response that is an error."""

    error: ErrorBody
