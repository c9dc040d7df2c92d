"""Guess which field a caller meant by one that does not exist."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from msgspec import inspect

UNKNOWN = "Object contains unknown field `"
PLACE = "` - at `$"
NAMED_MAX = 20  # fields that are listed where none is like it


def guess_field(kind: Any, error: str) -> str:
    """Returns how msgspec's error about a body of this type goes on: which field is most like the unknown one.

    It is empty for every other error, and where several types could stand in that place.
    """
    if not error.startswith(UNKNOWN):
        return ""
    name, _, path = error[len(UNKNOWN) :].removesuffix("`").partition(PLACE)
    structs = [part for part in find_types(inspect.type_info(kind), path) if isinstance(part, inspect.StructType)]
    if len(structs) != 1:
        return ""
    known = [field.encode_name for field in structs[0].fields]
    near = get_close_matches(name[:200], known, 1)
    more = ", …" if len(known) > NAMED_MAX else ""
    return f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(known[:NAMED_MAX]) or 'none'}{more}"


def find_types(top: inspect.Type, path: str) -> list[inspect.Type]:
    """Returns the types that may stand in a place of a body, as in `.tasks[...].checks[...]`."""
    types = list(flatten(top))
    for part in path.replace("[...]", "[]").replace("[", ".[").split(".")[1:]:
        types = [inner for each in types for inner in step_into(each, part)]
    return types


def step_into(outer: inspect.Type, part: str) -> Iterator[inspect.Type]:
    """Yields the types of a field of a struct, or of the elements of a list or a table."""
    if isinstance(outer, inspect.StructType):
        for field in outer.fields:
            if field.encode_name == part:
                yield from flatten(field.type)
    elif isinstance(outer, inspect.DictType):
        yield from flatten(outer.value_type)
    elif isinstance(outer, inspect.VarTupleType | inspect.ListType):
        yield from flatten(outer.item_type)


def flatten(outer: inspect.Type) -> Iterator[inspect.Type]:
    """Yields the types of a union, or the type itself; bounds and descriptions are taken off."""
    while isinstance(outer, inspect.Metadata):
        outer = outer.type
    if isinstance(outer, inspect.UnionType):
        for inner in outer.types:
            yield from flatten(inner)
    else:
        yield outer
