"""Stored parameters of a task: names, and the kinds of JSON that each takes. Pure.

A program checks arguments against the types of its handler. Who submits without the program knows only what is stored,
so what is checked there is coarser: every name is known, none is missing, and each value is of a kind that the
parameter takes. The rest is checked where the handler runs.
"""

import re
from collections.abc import Iterable, Sequence
from keyword import iskeyword
from typing import Any, Literal

import msgspec
from msgspec import inspect

from interlock.kernel.errors import InterlockError

MISSING_FIELD = re.compile(r"Object missing required field `(.*)`")
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`")
NO_ARGUMENTS = "{}"
Kind = Literal["any", "null", "boolean", "integer", "number", "text", "list", "object"]
TYPES: dict[str, Any] = {
    "any": Any, "null": None, "boolean": bool, "integer": int, "number": float, "text": str, "list": list[Any],
    "object": dict[str, Any],
}  # fmt: skip
BY_TYPE: tuple[tuple[tuple[type, ...], tuple[Kind, ...]], ...] = (
    ((inspect.NoneType,), ("null",)),
    ((inspect.BoolType,), ("boolean",)),
    ((inspect.IntType,), ("integer",)),
    ((inspect.FloatType,), ("number",)),
    ((inspect.StrType, inspect.BytesType, inspect.ByteArrayType, inspect.UUIDType), ("text",)),
    ((inspect.DateType, inspect.TimeType), ("text",)),
    ((inspect.DateTimeType, inspect.TimeDeltaType, inspect.DecimalType), ("text", "number")),
    ((inspect.CollectionType, inspect.TupleType, inspect.NamedTupleType), ("list",)),
    ((inspect.DictType, inspect.TypedDictType, inspect.DataclassType), ("object",)),
)


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One parameter of a task."""

    name: str
    kinds: tuple[Kind, ...] = ("any",)  # of JSON, that it takes
    required: bool = True
    text: str = ""  # as its program writes it, such as `to: str`

    def describe(self) -> str:
        """Returns the parameter as people read it."""
        return self.text or f"{self.name}: {' or '.join(self.kinds)}{'' if self.required else ' = …'}"


def list_kinds(hint: Any) -> tuple[Kind, ...]:
    """Returns the kinds of JSON that an annotation takes; `any` for one whose kinds cannot be told."""
    try:
        return tuple(dict.fromkeys(find_kinds(inspect.type_info(hint))))
    except (TypeError, ValueError, NotImplementedError):
        return ("any",)


def find_kinds(info: inspect.Type) -> Iterable[Kind]:
    """Finds the kinds of JSON that a type takes."""
    if isinstance(info, inspect.UnionType):
        kinds = [kind for part in info.types for kind in find_kinds(part)]
        return ("any",) if "any" in kinds else kinds
    if isinstance(info, inspect.LiteralType):
        return [kind for value in info.values for kind in find_kinds(inspect.type_info(type(value)))]
    if isinstance(info, inspect.EnumType):
        return [kind for value in info.cls for kind in find_kinds(inspect.type_info(type(value.value)))]
    if isinstance(info, inspect.StructType):
        return ("list",) if info.array_like else ("object",)
    if isinstance(info, inspect.Metadata):
        return find_kinds(info.type)
    return next((kinds for types, kinds in BY_TYPE if isinstance(info, types)), ("any",))


def check_parameters(task: str, parameters: Sequence[Parameter]) -> None:
    """Raises InterlockError for parameters that no task could have."""
    names = [parameter.name for parameter in parameters]
    for name in names:
        if not name.isidentifier() or iskeyword(name) or names.count(name) > 1:
            raise InterlockError(
                f"task '{task}': the parameter {name[:40]!r} is not allowed; allowed is a name as Python has them, once"
            )
    for parameter in parameters:
        if not parameter.kinds:
            raise InterlockError(f"task '{task}': parameter '{parameter.name}' takes nothing; allowed are some kinds")


class ArgumentChecker:
    """Checks arguments against stored parameters."""

    def __init__(self, task: str, parameters: Sequence[Parameter]) -> None:
        self.task, self.parameters = task, parameters
        self.decoder = msgspec.json.Decoder(
            msgspec.defstruct(
                "StoredArguments", [make_field(parameter) for parameter in parameters], forbid_unknown_fields=True,
                kw_only=True,
            )
        )  # fmt: skip

    def check(self, text: str) -> None:
        """Checks the arguments of a job, a JSON object by name, or null if there are none.

        Raises:
            InterlockError: they are wrong; the text names the right ones.
        """
        try:
            self.decoder.decode(NO_ARGUMENTS if text == "null" else text)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            takes = ", ".join(parameter.describe() for parameter in self.parameters) or "no arguments"
            raise InterlockError(
                f"task '{self.task}': {describe_wrong_argument(str(error))}; it takes {takes}"
            ) from None


def make_field(parameter: Parameter) -> Any:
    """Makes the field that checks a parameter."""
    kind: Any = Any
    if "any" not in parameter.kinds:
        kind, *others = (TYPES[name] for name in parameter.kinds)
        for other in others:
            kind = kind | other
    return (parameter.name, kind) if parameter.required else (parameter.name, kind, None)


def describe_wrong_argument(text: str) -> str:
    """Returns what msgspec says of an argument in a caller's words: the argument first."""
    problem, _, place = text.partition(" - at `$.")
    if place:
        return f"argument '{place.rstrip('`')}': {problem[0].lower()}{problem[1:]}"
    if missing := MISSING_FIELD.fullmatch(problem):
        return f"argument '{missing[1]}' is missing"
    if unknown := UNKNOWN_FIELD.fullmatch(problem):
        return f"it has no argument '{unknown[1]}'"
    return problem[0].lower() + problem[1:]
