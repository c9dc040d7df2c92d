"""What leaves the database, and in which order, so that the guard agrees."""

from collections.abc import Iterator, Sequence

from interlock.kernel.rows import Artifact, Body, Event, ForcedMove, Need, Note, Row, Unit, Worker
from interlock.store.tx import Tx

SOME = 5_000  # ids in one statement
# Tables, with the column that names the unit and what orders its rows.
KEPT: tuple[tuple[type[Row], str, str], ...] = (
    (Unit, "id", "id"),
    (Body, "unit", "unit"),
    (Event, "unit", "unit, version"),
    (Note, "unit", "unit, id"),
    (Need, "unit", "unit, needs"),
    (Artifact, "unit", "unit, attempt, name"),
    (Worker, "unit", "unit"),
    (ForcedMove, "unit", "unit, version"),
)


def tree(tx: Tx, root: Unit) -> list[Unit]:
    """A unit and all below it, locked, in the order of their ids."""
    found, level = [root], [root.id]
    while level:
        below: list[Unit] = []
        for some in parts(level):
            below += tx.known(tx.select(Unit, "WHERE parent {ids} ORDER BY id {lock}", ids=some))
        found += below
        level = [unit.id for unit in below]
    return sorted(found, key=lambda unit: unit.id)


def still_needed(tx: Tx, ids: Sequence[int]) -> list[int]:
    """Units outside that have not ended and need one of these."""
    inside, found = set(ids), set()
    for some in parts(ids):
        needy = "SELECT need.unit FROM need JOIN unit ON unit.id = need.unit WHERE needs {ids}"
        found |= {one for (one,) in tx.session.rows(f"{needy} AND unit.outcome IS NULL", {"ids": some})}
    return sorted(found - inside)


def kept_rows(tx: Tx, ids: Sequence[int]) -> Iterator[Row]:
    """Everything that the database holds of these units, a table at a time."""
    for kind, column, order in KEPT:
        for some in parts(ids):
            yield from tx.select(kind, f"WHERE {column} {{ids}} ORDER BY {order}", ids=some)


def forget(tx: Tx, ids: Sequence[int]) -> None:
    """These units are gone; their events go first, and only because `archived` knows them."""
    tables = [("need", "needs"), *((kind.table, column) for kind, column, _ in reversed(KEPT)), ("log", "unit")]
    for table, column in tables:
        for some in parts(ids):
            tx.session.rows(f"DELETE FROM {table} WHERE {column} {{ids}}", {"ids": some})
    for one in ids:
        tx.forget(one)


def parts(ids: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), SOME):
        yield list(ids[start : start + SOME])
