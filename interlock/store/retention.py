"""Delete archived rows, in an order that the guard allows."""

from collections.abc import Container, Iterator, Sequence

from interlock.kernel.rows import Act, Artifact, Body, Event, ForcedMove, NamedPlace, Need, Note, Row, Unit, WorkerRow
from interlock.store.queries.snapshots import select_acts
from interlock.store.query import select
from interlock.store.unit_of_work import UnitOfWork

SOME = 5_000  # ids in one statement
# Tables, with the column that names the unit and what orders its rows.
KEPT: tuple[tuple[type[Row], str, str], ...] = (
    (Unit, "id", "id"),
    (Body, "unit", "unit"),
    (Event, "unit", "unit, version"),
    (Note, "unit", "unit, id"),
    (Need, "unit", "unit, needs"),
    (NamedPlace, "parent", "parent, name"),
    (Artifact, "unit", "unit, attempt, name"),
    (WorkerRow, "unit", "unit"),
    (ForcedMove, "unit", "unit, version"),
)
KEPT_ROWS = [select(kind, f"WHERE {column} {{ids}} ORDER BY {order}") for kind, column, order in KEPT]
CHILDREN = select(Unit, "WHERE parent {ids} ORDER BY id {lock}")


def load_tree(tx: UnitOfWork, root: Unit) -> list[Unit]:
    """A unit and all below it, locked, in the order of their ids."""
    units, level = [root], [root.id]
    while level:
        below: list[Unit] = []
        for part in split_ids(level):
            below += tx.merge_units(tx.run(CHILDREN.bind(ids=part)))
        units += below
        level = [unit.id for unit in below]
    return sorted(units, key=lambda unit: unit.id)


def find_needing(tx: UnitOfWork, ids: Sequence[int]) -> list[int]:
    """Units outside that have not ended and need one of these."""
    inside, needing = set(ids), set()
    for part in split_ids(ids):
        needy = "SELECT need.unit FROM need JOIN unit ON unit.id = need.unit WHERE needs {ids}"
        needing |= {unit for (unit,) in tx.connection.rows(f"{needy} AND unit.outcome IS NULL", {"ids": part})}
    return sorted(needing - inside)


def read_kept_rows(tx: UnitOfWork, ids: Sequence[int]) -> Iterator[Row]:
    """Everything that the database holds of these units, a table at a time."""
    for query in KEPT_ROWS:
        for part in split_ids(ids):
            yield from tx.run(query.bind(ids=part))


def read_head_digests(tx: UnitOfWork, units: Sequence[Unit]) -> dict[int, str]:
    """The digests of the acts that moved these units last."""
    digests: dict[int, str] = {}
    for part in split_ids(sorted({unit.act for unit in units})):
        digests |= dict(tx.connection.rows("SELECT id, digest FROM act WHERE id {ids}", {"ids": part}))
    return digests


def forget(tx: UnitOfWork, ids: Sequence[int]) -> None:
    """These units are gone, only because `archived` knows them. An act goes with the last of its units."""
    acts = list_acts(tx, ids)
    stored = [(kind.table, column) for kind, column, _ in reversed(KEPT) if kind is not Event]
    tables = [("need", "needs"), *stored, ("log", "unit"), ("lease", "unit"), ("act_detail", "unit")]
    for table, column in tables:
        for part in split_ids(ids):
            tx.connection.rows(f"DELETE FROM {table} WHERE {column} {{ids}}", {"ids": part})
    for part in split_ids(acts):
        recorded = "SELECT 1 FROM journal_unit JOIN unit ON unit.id = journal_unit.unit WHERE journal_unit.act = act.id"
        left = f"NOT EXISTS ({recorded})"
        bare = f"FROM act WHERE id {{ids}} AND {left}"
        gone = [act for (act,) in tx.connection.rows(f"SELECT id {bare}", {"ids": part})]
        if gone:
            tx.connection.rows(
                "INSERT INTO act_gone (id, tenant, digest) SELECT id, tenant, digest FROM act WHERE id {ids}",
                {"ids": gone},
            )
            members = tx.connection.rows("SELECT DISTINCT unit FROM journal_unit WHERE act {ids}", {"ids": gone})
            tx.connection.rows("DELETE FROM act WHERE id {ids}", {"ids": gone})
            forget_members(tx, [unit for (unit,) in members])
    for hook in tx.hooks.on_forget:
        hook(tx, ids)
    for unit_id in ids:
        tx.rows.forget(unit_id)


def forget_members(tx: UnitOfWork, ids: Sequence[int]) -> None:
    """SQLite lists the units of each act apart; of acts that are gone it lists none."""
    bare = "DELETE FROM member WHERE unit {ids} AND NOT EXISTS (SELECT 1 FROM act WHERE act.id = member.act)"
    for part in split_ids(ids) if tx.connection.name == "sqlite" else ():
        tx.connection.rows(bare, {"ids": part})


def list_acts(tx: UnitOfWork, ids: Sequence[int]) -> list[int]:
    """The acts that tell of these units."""
    acts: set[int] = set()
    for part in split_ids(ids):
        acts |= {act for (act,) in tx.connection.rows("SELECT DISTINCT act FROM event WHERE unit {ids}", {"ids": part})}
    return sorted(acts)


def find_acts(tx: UnitOfWork, ids: Sequence[int], but: Container[int]) -> Iterator[Act]:
    """The acts that tell of these units, but for some."""
    for part in split_ids([act for act in list_acts(tx, ids) if act not in but]):
        yield from select_acts(tx.connection, "WHERE id {ids} ORDER BY id", ids=part)


def split_ids(ids: Sequence[int]) -> Iterator[list[int]]:
    """Ids in parts that one statement takes."""
    for start in range(0, len(ids), SOME):
        yield list(ids[start : start + SOME])
