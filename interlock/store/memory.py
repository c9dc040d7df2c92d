"""Held units as this engine left them, so that whoever ends one need not read it again."""

from collections.abc import Iterable
from threading import Lock

from interlock.kernel.rows import Body, Unit, copied

KEPT_MAX = 50_000


class Memory:
    """What is remembered is never believed: the database says first that nobody has touched it since."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[str, Unit, Body]] = {}  # with the mark of the transaction that wrote it
        self.changing = Lock()

    def marks(self, ids: Iterable[int]) -> dict[int, str]:
        """Which of these units are remembered, and the transaction that wrote each."""
        with self.changing:
            return {one: self.kept[one][0] for one in ids if one in self.kept}

    def recall(self, one: int, mark: str) -> tuple[Unit, Body] | None:
        """A unit and its body, as that transaction left them."""
        with self.changing:
            known, unit, body = self.kept.get(one, ("", None, None))
        return (copied(unit), copied(body)) if unit and body and known == mark else None

    def learn(self, mark: str, written: Iterable[Unit], bodies: dict[int, Body]) -> None:
        """A transaction is committed: what it wrote is remembered while somebody holds it."""
        with self.changing:
            if len(self.kept) > KEPT_MAX:
                self.kept.clear()
            for unit in written:
                if unit.holder is not None and unit.id in bodies:
                    self.kept[unit.id] = mark, unit, bodies[unit.id]
                else:
                    self.kept.pop(unit.id, None)
