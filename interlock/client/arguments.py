"""The arguments of a task: checked when they are submitted, so that a wrong one never reaches a worker."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from interlock.client.context import Context
from interlock.kernel.errors import InterlockError


class Arguments:
    """The parameters of one handler."""

    def __init__(self, name: str, handler: Callable[..., Any], reserved: tuple[str, ...]) -> None:
        self.name = name
        self.signature = inspect.signature(handler)
        hints = get_type_hints(handler)
        self.context = next((one for one, hint in hints.items() if is_context(hint) and one != "return"), None)
        fields = [self.field(one, hints, reserved) for one in self.signature.parameters if one != self.context]
        self.kind = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)

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
        names = [one for one in self.signature.parameters if one != self.context]
        if len(args) > len(names):
            raise InterlockError(f"task '{self.name}' takes {len(names)} arguments, and {len(args)} were given")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        try:
            text = msgspec.json.encode(given)
            msgspec.json.decode(text, type=self.kind)
        except (msgspec.MsgspecError, TypeError) as error:
            raise InterlockError(f"task '{self.name}': {told(str(error))}; it takes {self.spelled()}") from None
        return text.decode()

    def unpacked(self, text: str) -> dict[str, Any]:
        """The arguments that JSON holds. Raises msgspec.MsgspecError."""
        held = msgspec.json.decode(text, type=self.kind)
        return {one: getattr(held, one) for one in self.kind.__struct_fields__}

    def spelled(self) -> str:
        words = [str(parameter) for one, parameter in self.signature.parameters.items() if one != self.context]
        return ", ".join(words) or "no arguments"


def is_context(hint: Any) -> bool:
    return isinstance(hint, type) and Context in hint.__mro__


def told(text: str) -> str:
    """What msgspec says, in the words of a caller: the argument first."""
    said, _, place = text.partition(" - at `$.")
    return f"argument '{place.rstrip('`')}': {said[0].lower()}{said[1:]}" if place else said[0].lower() + said[1:]
