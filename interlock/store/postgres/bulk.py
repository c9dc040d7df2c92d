"""Bulk statements of PostgreSQL: shared values are sent once, the rest as arrays.

Rows of one batch differ in an id and a hash, and in a few words that go together. Reading and writing the same words a
thousand times would cost more than everything else about them.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, get_type_hints

from interlock.kernel.rows import Row, columns

PATTERNS_MAX = 16  # a batch with more of them has none
FEW = 2 * PATTERNS_MAX  # rows that are not worth a pattern
TEXTS_MAX = 2_048  # remembered
Value = int | str | None


@cache
def types(kind: type[Row]) -> dict[str, str]:
    """The type that each column of a row is sent as."""
    return {name: type_of(str(hint)) for name, hint in get_type_hints(kind).items()}


@cache
def list_names(kind: type[Row]) -> frozenset[str]:
    """The columns of a row that are lists."""
    return frozenset(name for name, type_ in types(kind).items() if type_.endswith("[]"))


def type_of(hint: str) -> str:
    """Returns the type of PostgreSQL for a field."""
    element = "text" if "str" in hint else "bigint"
    return f"{element}[]" if "list" in hint else element


class Shape(NamedTuple):
    """Which columns are given in which way: all that the text of a statement depends on."""

    kind: type[Row]
    shared: tuple[str, ...]
    few: tuple[str, ...]
    own: tuple[str, ...]

    def value(self, name: str) -> str:
        """How a statement names this column of what is given."""
        type_ = types(self.kind)[name]
        if name in self.own:
            return f"given.{name}::{type_}" if type_.endswith("[]") else f"given.{name}"
        if type_.endswith("[]") and name in self.few:
            return f"(%({name})s::text[])[given.pattern]::{type_}"
        return f"%({name})s::{type_}" if name in self.shared else f"(%({name})s::{type_}[])[given.pattern]"

    @property
    def source(self) -> str:
        """What a statement reads the rows from; empty if one row is all of them."""
        if not self.own:
            return ""
        # A list of lists has to be square, so each of them is sent as text.
        sent = {name: types(self.kind).get(name, "bigint") for name in self.own}
        arrays = ", ".join(f"%({name})s::{'text' if kind.endswith('[]') else kind}[]" for name, kind in sent.items())
        return f"FROM unnest({arrays}) AS given ({', '.join(self.own)})"


@lru_cache(maxsize=TEXTS_MAX)
def build_insert(shape: Shape) -> str:
    """Returns the INSERT statement for rows of this shape. Columns that it does not have are NULL."""
    given = {*shape.shared, *shape.few, *shape.own}
    table, names = shape.kind.table, [name for name in columns(shape.kind) if name in given]
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(map(shape.value, names))} {shape.source}"


@lru_cache(maxsize=TEXTS_MAX)
def build_update(shape: Shape, columns: tuple[str, ...], key: str) -> str:
    """Returns the UPDATE statement of these columns for rows of this shape, which are found by `key`."""
    table, sets = shape.kind.table, ", ".join(f"{column} = {shape.value(column)}" for column in columns)
    return f"UPDATE {table} SET {sets} {shape.source} WHERE {table}.{key} = {shape.value(key)}"


class Given:
    """The values of rows, as parameters of a statement and as the names by which it finds them again."""

    def __init__(self, kind: type[Row], names: Sequence[str], rows: Sequence[tuple[Value, ...]]) -> None:
        self.kind = kind
        self.shared: dict[str, Value] = {}  # the same in all rows
        self.few: dict[str, Sequence[Value]] = {}  # one of a few patterns, by the number of the pattern
        self.own: dict[str, Sequence[Value]] = {}  # different in most
        lists = list_names(kind)
        if len(rows) == 1:
            for name, value in zip(names, rows[0], strict=True):
                self.shared[name] = encode_array_literal(value) if isinstance(value, list) else value
            return
        for name, column in zip(names, zip(*rows, strict=True), strict=True):
            if name in lists:
                column = tuple(None if values is None else encode_array_literal(values) for values in column)
            if column.count(column[0]) == len(column):
                self.shared[name] = column[0]
            elif len(column) > FEW and len(set(column)) <= PATTERNS_MAX:
                self.few[name] = column
            else:
                self.own[name] = column
        self.find_patterns()

    def find_patterns(self) -> None:
        """Words that go together are one pattern."""
        together = list(zip(*self.few.values(), strict=True))
        numbers = {pattern: number for number, pattern in enumerate(dict.fromkeys(together), start=1)}
        if 0 < len(numbers) <= PATTERNS_MAX:
            self.own["pattern"] = [numbers[pattern] for pattern in together]
            self.few = dict(zip(self.few, zip(*numbers, strict=True), strict=True))
        else:
            self.own |= self.few
            self.few = {}

    def leave_nulls(self) -> "Given":
        """The same without what is NULL in all rows: an insert need not say so."""
        self.shared = {name: value for name, value in self.shared.items() if value is not None}
        return self

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, tuple(self.shared), tuple(self.few), tuple(self.own))

    @property
    def params(self) -> dict[str, Value]:
        return {**self.shared, **{name: encode_array_literal(column) for name, column in (self.own | self.few).items()}}


def encode_array_literal(column: Sequence[Any]) -> str:
    """Values of one column as PostgreSQL writes an array."""
    try:
        text = '","'.join(column)
    except TypeError:  # not all of them are text
        if None not in column and isinstance(column[0], int):
            return f"{{{str(list(column))[1:-1]}}}"
        return "{" + ",".join(map(element, column)) + "}"
    if "\\" in text or text.count('"') > 2 * (len(column) - 1):
        return "{" + ",".join(map(element, column)) + "}"
    return f'{{"{text}"}}' if column else "{}"


def element(value: Value) -> str:
    """Formats an element of an array."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "NULL" if value is None else str(value)
