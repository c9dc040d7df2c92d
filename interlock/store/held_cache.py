"""Cache of held units, so that whoever ends one need not read it again."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from interlock.kernel.rows import Body, Unit, copied
from interlock.store.connection import Connection
from interlock.store.query import BoundQuery, Query

UNITS_MAX = 50_000
XID_RANGE = 2**32


class Writer(NamedTuple):
    """A unit, which is locked, and the transaction that wrote its row, without its epoch."""

    unit: int
    xid: str


WRITERS = Query("SELECT id, xmin::text FROM unit WHERE id {ids} ORDER BY id {lock}", Writer)


class HeldCache:
    """What is cached is never believed: the database says first that nobody has touched it since."""

    def __init__(self) -> None:
        # With the mark of the transaction that wrote it, and with its body if that was read.
        self.units: dict[int, tuple[str, Unit, Body | None]] = {}
        self.ended = ""  # one writer: the mark with which the last transaction of ours ended
        self.changing = Lock()

    def recall(
        self, connection: Connection, ids: Sequence[int], run: Callable[[BoundQuery[Writer]], list[Writer]]
    ) -> list[tuple[Unit, Body | None]]:
        """Of these units, those that are cached as the database has them; it has locked them then (`run` asks it)."""
        with self.changing:
            if not connection.many_writers and connection.mark != self.ended:
                self.units.clear()  # somebody else has written since
            cached = {unit_id: self.units[unit_id] for unit_id in ids if unit_id in self.units}
        if not cached:
            return []
        if connection.many_writers:
            cached = {
                unit_id: cached[unit_id] for unit_id, xid in run(WRITERS.bind(ids=list(ids)))
                if unit_id in cached and int(cached[unit_id][0]) % XID_RANGE == int(xid)
            }  # fmt: skip
        recalled = []
        for mark, unit, body in cached.values():
            own: Unit = copied(unit)
            own.xid = mark
            recalled.append((own, copied(body) if body else None))
        return recalled

    def after_commit(
        self, connection: Connection, mark: str, units: Iterable[Unit], written: Container[int],
        bodies: Mapping[int, Body],
    ) -> None:  # fmt: skip
        """The transaction of this mark is committed: what it had locked is cached while somebody holds it."""
        with self.changing:
            if len(self.units) > UNITS_MAX:
                self.units.clear()
            if not connection.many_writers:
                if mark != self.ended:
                    self.units.clear()
                self.ended = connection.mark
            for unit in units:
                by = mark if unit.id in written else unit.xid
                if unit.holder is not None and (by or not connection.many_writers):
                    self.units[unit.id] = by, unit, bodies.get(unit.id)
                else:
                    self.units.pop(unit.id, None)

    def forget(self, units: Iterable[int]) -> None:
        """These units have been written in a way that leaves nothing to cache."""
        with self.changing:
            for number in units:
                self.units.pop(number, None)
