"""What crosses the network between a client and a server: commands and refusals, each by its name."""

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

BODY_MAX = 1 << 20  # bytes of a request
TOGETHER = 256  # commands of a request
NUMBER_MAX = 2**63 - 1
NUMBER = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]  # one that a database can keep
SERVER_SAYS = ("tenant", "cause", "key_scope", "key_lasts", "vouched_by")  # whatever a client says
PROGRAMS = "/v1/commands"

PUBLIC = tuple(kind for kind in vars(commands).values() if getattr(kind, "public", False))
SCOPES = ("submit", "operate", "approve", "worker", "admin")


def scope_of(command: Command[Any], own_workers: Collection[int] = ()) -> str:
    """The scope that a command needs; `own_workers` are those of whoever asks. Raises InterlockError."""
    if not command.public:
        raise InterlockError(f"{type(command).__name__} cannot be asked over HTTP; ask it beside the database")
    return command.needed_scope(own_workers)


def public_commands(of_plugins: Iterable[type[Command[Any]]] = ()) -> list[type[Command[Any]]]:
    """The commands that can be sent over HTTP: those that Interlock ships, and those of further plugins."""
    return list(dict.fromkeys((*PUBLIC, *(kind for kind in of_plugins if kind.public))))


def commands_for(
    scope: str, of_plugins: Iterable[type[Command[Any]]] = (), *, first_names: bool = True
) -> list[type[Command[Any]]]:
    """What may be sent under a scope, if wanted also by its first name."""
    kinds = [kind for kind in public_commands(of_plugins) if scope in (kind.scope, kind.other_scope)]
    return kinds + [first for first in FIRST_NAMES if first_names and set(first.stands_for) & set(kinds)]


@cache
def strict(kind: Any) -> Any:
    """The same type, in which no field is unknown and every number is one that a database can keep."""
    if kind is int:
        return NUMBER
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return twin(kind)
    parts = tuple(part if part is ... else strict(part) for part in get_args(kind))
    if not parts:
        return kind
    origin: Any = get_origin(kind)
    return Union[parts] if origin in (Union, UnionType) else origin[parts]  # noqa: UP007


@cache
def twin(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A struct as it crosses the network: short, and with nothing that the server says itself. Commands have a tag."""
    tagged = issubclass(kind, Command)
    fields = [
        field_of(one.name, strict(one.type), one)
        for one in msgspec.structs.fields(kind)
        if not tagged or one.name not in SERVER_SAYS
    ]
    tag: dict[str, Any] = {"tag_field": "command", "tag": kind.__name__} if tagged else {}
    return msgspec.defstruct(
        kind.__name__, fields, namespace={"__doc__": kind.__doc__, "twin_of": kind}, frozen=True, kw_only=True,
        omit_defaults=True, forbid_unknown_fields=True, **tag,
    )  # fmt: skip


def field_of(name: str, kind: Any, one: msgspec.structs.FieldInfo) -> Any:
    if one.default is not NODEFAULT:
        return name, kind, one.default
    if one.default_factory is not NODEFAULT:
        return name, kind, msgspec.field(default_factory=one.default_factory)
    return name, kind


def sent(command: Command[Any]) -> bytes:
    """A command as it is sent. Raises InterlockError for one that no server would take."""
    try:
        return msgspec.json.encode(msgspec.convert(command, twin(type(command)), from_attributes=True))
    except msgspec.ValidationError as error:
        raise InterlockError(f"{type(command).__name__} cannot be sent: {error}") from None


def received(said: msgspec.Struct) -> Command[Any]:
    """The command that was sent, for nobody yet. Raises InterlockError for a first name that means none."""
    kind: type[Command[Any]] = type(said).twin_of  # type: ignore[attr-defined]
    command = msgspec.convert(said, kind, from_attributes=True)
    return command.present() if isinstance(command, Renamed) else command


# Refusals.


class Trouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a command was not carried out: the name of the error's class, its text, and of a refused move its parts."""

    name: str
    text: str
    lifecycle: str = ""
    state: str | None = None
    trigger: str = ""
    legal: tuple[str, ...] = ()


class Came(msgspec.Struct, frozen=True):
    """What came of one command: its answer, or why it was not carried out."""

    answer: msgspec.Raw = msgspec.Raw(b"null")
    refused: Trouble | None = None


class AllCame(msgspec.Struct, frozen=True):
    """What came of each command, in the same order."""

    answers: list[Came]


def class_of(error: Exception) -> type[InterlockError]:
    """The nearest class that both sides know."""
    for kind in type(error).__mro__:
        known: type[InterlockError] | None = getattr(errors, kind.__name__, None)
        if known is kind:
            return known
    return InterlockError


def trouble_of(error: InterlockError) -> Trouble:
    name = class_of(error).__name__
    if isinstance(error, Refused):
        return Trouble(name, str(error), error.lifecycle, error.state, error.trigger, error.legal)
    return Trouble(name, str(error))


def error_of(trouble: Trouble) -> InterlockError:
    """The error that was sent: the same class, the same text."""
    kind = getattr(errors, trouble.name, InterlockError)
    error: InterlockError = kind.__new__(kind, trouble.text)
    if isinstance(error, Refused):
        error.lifecycle, error.state = trouble.lifecycle, trouble.state
        error.trigger, error.legal = trouble.trigger, trouble.legal
    return error


class Fault(msgspec.Struct, frozen=True):
    """What was wrong; `details` has what helps to do better: state, legal_next, needs."""

    code: str
    message: str
    details: dict[str, Any]


class Faulty(msgspec.Struct, frozen=True):
    """Every answer that is no success."""

    error: Fault
