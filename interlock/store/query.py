"""Query objects: written once, run by verbs, and matched as objects when they were prefetched."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from interlock.kernel.rows import Row, columns

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R", bound=Row)


class Query(Generic[T_co]):
    """A SELECT with named parameters, and what is made of each of its rows. `:now` is the transaction's own time."""

    def __init__(self, sql: str, make: Callable[..., T_co]) -> None:
        self.sql, self.make = sql, make

    def bind(self, **params: Any) -> "BoundQuery[T_co]":
        """The query with its parameters, in the order of their names; lists become tuples, so that it has a hash."""
        values = [(name, tuple(value) if isinstance(value, list) else value) for name, value in params.items()]
        return BoundQuery(self, tuple(sorted(values)))


class BoundQuery(NamedTuple, Generic[T_co]):
    """A query and its parameters: equal if it is the same query object with the same parameters."""

    query: Query[T_co]
    values: tuple[tuple[str, Any], ...]

    def params(self, now: int | None) -> Mapping[str, Any]:
        """The parameters as a connection takes them, in a transaction of that time."""
        return {**dict(self.values), "now": now}


def list_columns(kind: type[Row]) -> str:
    """The columns of a row's table, in order."""
    return ", ".join(f"{kind.table}.{name}" for name in columns(kind))


def select(kind: type[R], rest: str) -> Query[R]:
    """A query for rows of a table; `rest` is what follows FROM."""
    return Query(f"SELECT {list_columns(kind)} FROM {kind.table} {rest}", kind)


def list_placeholders(values: Sequence[object]) -> str:
    """Names of parameters for a list in a statement, as in `:u0, :u1`."""
    return ", ".join(f":u{place}" for place in range(len(values)))


def list_params(values: Sequence[T_co]) -> dict[str, T_co]:
    """The parameters that belong to `list_placeholders` of the same values."""
    return {f"u{place}": value for place, value in enumerate(values)}
