"""Bulk statements of SQLite: shared values are bound once, the rest row by row."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

# Rows of one statement: few texts, so that the driver finds them prepared. A statement for each row would keep a copy
# of every page that it touches, because the guard may refuse it, and would wait for the interpreter's lock as often.
SIZES = (500, 100, 20, 4, 1)
Names = tuple[str, ...]
Places = tuple[int, ...]


def build_statements(
    text: Callable[[str, Names, Places, int], str], table: str, names: Names, rows: Iterable[tuple[Any, ...]], key: int
) -> Iterator[tuple[str, list[Any]]]:
    """Statements and their parameters, after which a table has these rows (`insert_text`), in this order.

    Or after which its columns have these values in the rows that the last of them names (`update_text`). `key` is the
    place of a column in which rows differ.
    """
    columns, start = list(zip(*rows, strict=True)), 0
    while left := len(columns[key]) - start:
        size = next(size for size in SIZES if size <= left)
        if size == 1:
            yield text(table, names, (), 1), [column[start] for column in columns]
            start += 1
            continue
        some = [column[start : start + size] for column in columns]
        own = tuple(place for place, column in enumerate(some) if place == key or not are_alike(column))
        shared = [column[0] for place, column in enumerate(some) if place not in own]
        given = [None] * (size * len(own))
        for number, place in enumerate(own):
            given[number :: len(own)] = some[place]
        yield text(table, names, own, size), [*shared, *given]
        start += size


def are_alike(column: tuple[Any, ...]) -> bool:
    """Whether all values of a column are the same."""
    return column[0] == column[-1] and column.count(column[0]) == len(column)


@lru_cache(maxsize=512)
def insert_text(table: str, names: Names, own: Places, size: int) -> str:
    """Returns the text of an INSERT; of one row, if it has nothing of its own."""
    if not own:
        return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values(names, own))} {source(own, size)}"


@lru_cache(maxsize=512)
def update_text(table: str, names: Names, own: Places, size: int) -> str:
    """Returns the text of an UPDATE; of one row, if it has nothing of its own."""
    if not own:
        *changed, key = names
        return f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in changed)} WHERE {key} = ?"
    *sets, (key, value) = zip(names, values(names, own), strict=True)
    changes = ", ".join(f"{name} = {new}" for name, new in sets)
    # The plus keeps the planner from looking for what is given instead of for the row.
    return f"UPDATE {table} SET {changes} {source(own, size)} WHERE {table}.{key} = +{value}"


def values(names: Names, own: Places) -> list[str]:
    """What each column gets: its own of what is given, or a parameter that is the same for all."""
    return [f"given.column{own.index(place) + 1}" if place in own else "?" for place in range(len(names))]


def source(own: Places, size: int) -> str:
    """Returns the part of a statement that has the rows."""
    row = f"({', '.join('?' * len(own))})"
    return f"FROM (VALUES {', '.join([row] * size)}) AS given"
