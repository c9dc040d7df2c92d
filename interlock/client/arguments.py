"""The arguments of a task: checked when they are submitted, so that a wrong one never reaches a worker."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from interlock.client.context import Context
from interlock.kernel.commands import LeaseGrant
from interlock.kernel.errors import InterlockError

MISSING, STRANGE = (
    re.compile(r"Object missing required field `(.*)`"),
    re.compile(r"Object contains unknown field `(.*)`"),
)


class Arguments:
    """The parameters of one handler."""

    def __init__(self, name: str, handler: Callable[..., Any], reserved: tuple[str, ...]) -> None:
        self.name = name
        self.signature = inspect.signature(handler)
        hints = annotations_of(name, handler)
        self.context = next((one for one, hint in hints.items() if is_context(hint) and one != "return"), None)
        fields = [self.field(one, hints, reserved) for one in self.signature.parameters if one != self.context]
        self.kind = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
        try:
            self.decoder = msgspec.json.Decoder(self.kind)
        except TypeError as error:
            raise InterlockError(f"task '{name}': its arguments cannot be kept as JSON: {error}") from None

    def field(self, one: str, hints: dict[str, Any], reserved: tuple[str, ...]) -> Any:
        """A parameter as the checker knows it. Raises InterlockError for one that cannot be given later."""
        parameter = self.signature.parameters[one]
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InterlockError(f"task '{self.name}': '{parameter}' must be a plain parameter with a name of its own")
        if one in reserved:
            names = ", ".join(reserved)
            raise InterlockError(f"task '{self.name}': parameter '{one}' must have another name; submit uses {names}")
        if parameter.default is parameter.empty:
            return one, hints.get(one, Any)

        def default() -> Any:
            return parameter.default

        return one, hints.get(one, Any), msgspec.field(default_factory=default)

    def packed(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The arguments as JSON. Raises InterlockError, which names the one that is wrong."""
        try:
            text = encoded({**self.by_name(args, kwargs), **kwargs} if args else kwargs)
            self.decoder.decode(text)
        except (msgspec.MsgspecError, TypeError, UnicodeError) as error:
            raise InterlockError(f"task '{self.name}': {told(str(error))}; it takes {self.spelled()}") from None
        return text.decode()

    def by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments that were given by their place. Raises InterlockError for one too many."""
        names = [one for one in self.signature.parameters if one != self.context]
        if len(args) > len(names):
            raise InterlockError(f"task '{self.name}' takes {len(names)} arguments, and {len(args)} were given")
        named = dict(zip(names, args, strict=False))
        twice = [one for one in named if one in kwargs]
        if twice:
            raise InterlockError(f"task '{self.name}': argument '{twice[0]}' is given twice")
        return named

    def unpacked(self, text: str) -> dict[str, Any]:
        """The arguments that JSON holds. Raises msgspec.MsgspecError."""
        return msgspec.structs.asdict(self.decoder.decode(text))

    def of(self, grant: LeaseGrant) -> dict[str, Any]:
        """The arguments of a grant; a step takes those of its run, and outputs of earlier steps, that it names.

        Raises msgspec.MsgspecError.
        """
        if grant.outputs is None:
            return self.unpacked(grant.input)
        held = msgspec.json.decode(grant.input, type=dict[str, msgspec.Raw] | None) or {}
        held |= {name: msgspec.Raw(output.encode()) for name, output in grant.outputs}
        taken = {one: held[one] for one in self.kind.__struct_fields__ if one in held}
        return self.unpacked(msgspec.json.encode(taken).decode())

    def spelled(self) -> str:
        words = [str(parameter) for one, parameter in self.signature.parameters.items() if one != self.context]
        return ", ".join(words) or "no arguments"


def is_context(hint: Any) -> bool:
    return isinstance(hint, type) and Context in hint.__mro__


def annotations_of(name: str, handler: Callable[..., Any]) -> dict[str, Any]:
    """The types of a handler's parameters. Raises InterlockError for one that is not known where it is defined."""
    try:
        return get_type_hints(handler)
    except (NameError, TypeError, SyntaxError) as error:
        raise InterlockError(f"task '{name}': its annotations cannot be read: {error}") from None


def encoded(given: Mapping[str, Any]) -> bytes:
    """Arguments as JSON. Raises TypeError, which names the one that cannot be."""
    try:
        return msgspec.json.encode(given)
    except (TypeError, UnicodeError) as whole:
        for one, value in given.items():
            try:
                msgspec.json.encode(value)
            except (TypeError, UnicodeError) as error:
                raise TypeError(f"{error} - at `$.{one}`") from None
        raise TypeError(str(whole)) from None


def told(text: str) -> str:
    """What msgspec says, in the words of a caller: the argument first."""
    said, _, place = text.partition(" - at `$.")
    if place:
        return f"argument '{place.rstrip('`')}': {said[0].lower()}{said[1:]}"
    missing = MISSING.fullmatch(said)
    strange = STRANGE.fullmatch(said)
    if missing or strange:
        return f"argument '{missing[1]}' is missing" if missing else f"it has no argument '{strange[1]}'"  # type: ignore[index]
    return said[0].lower() + said[1:]
