"""An engine on a fresh database under a virtual clock, and short ways to say what a story needs."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any, TypeVar

from interlock.audit.laws import audit
from interlock.core.engine import Engine
from interlock.core.plugin import Registry
from interlock.kernel.commands import (
    Archive,
    Cancel,
    Claim,
    Command,
    Finish,
    Force,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    LeaseStatus,
    Outcome,
    Register,
    Release,
    RestoreTree,
    Standing,
    Start,
    Submit,
    Tick,
    Work,
)
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Body, Event, Note, Unit
from interlock.lifecycles import shipped
from interlock.plugins import STANDARD
from interlock.store.postgres import PostgresConnection
from interlock.store.queries.snapshots import read_leases, read_rows
from interlock.store.query import list_columns
from tests.store.databases import Connection, declare

SECOND = 1_000_000
A = TypeVar("A")


class World:
    """What a story plays in. Every step leaves the unit equal to the sum of its events."""

    def __init__(
        self, connection: Connection, lifecycles: Mapping[str, Lifecycle] | None = None, registry: Registry = STANDARD
    ) -> None:
        self.lifecycles, self.registry = registry.lifecycles(lifecycles or shipped()), registry
        self.connection = connection
        self.now_us = 1_700_000_000 * SECOND
        connection.clock = lambda: self.now_us
        self.engine = Engine(connection, self.lifecycles, registry=registry)
        self.claims = 0
        self.paths = 0  # that were there when they were last audited

    def send(self, command: Command[A]) -> A:
        """Carries a command out, and asks every law of everything that it left; of paths only if there are new ones."""
        try:
            return self.carry_out(command)
        finally:
            declare(self.connection, 1, 2)
            before, self.paths = self.paths, self.count("transition_path")
            laws, new_paths = self.registry.laws, self.paths != before
            assert list(audit(self.connection, self.lifecycles, laws=laws, paths=new_paths)) == []

    def carry_out(self, command: Command[A]) -> A:
        """By a connection that may: where there are roles, programs neither force nor archive, and operators do."""
        if not isinstance(self.connection, PostgresConnection) or not isinstance(
            command, Force | Archive | RestoreTree
        ):
            return self.engine.send(command)
        info = self.connection.raw.info
        url = f"postgresql://operator@{info.host}:{info.port}/{info.dbname}"
        with closing(PostgresConnection(url, lambda: self.now_us)) as operator:
            return Engine(operator, self.lifecycles, registry=self.registry).send(command)

    def pass_time(self, seconds: float) -> None:
        self.now_us += round(seconds * SECOND)

    def submit(self, task: str = "mail", **work: Any) -> int:
        return self.send(Submit(work=(Work(task=task, **work),)))[0].unit

    def worker(self, name: str = "w", **facts: Any) -> int:
        facts = {"incarnation": "1", "capacity": 100, **facts}
        return self.send(Register(name=name, **facts))

    def claim(self, worker: int, limit: int = 1, **facts: Any) -> list[LeaseGrant]:
        self.claims += 1
        facts = {"key": f"c{self.claims}", **facts}
        facts = {"nonce": f"{facts['key']:0>16}", **facts}
        return self.send(Claim(worker=worker, limit=limit, **facts))

    def start(self, grant: LeaseGrant) -> LeaseStatus:
        return self.send(Start(held=(held(grant),)))[0]

    def beat(self, grant: LeaseGrant, running: bool = True) -> LeaseStatus:
        return self.send(Heartbeat(held=(held(grant),), running=running))[0]

    def finish(self, grant: LeaseGrant, **facts: Any) -> LeaseStatus:
        return self.send(Finish(outcomes=(Outcome(held=held(grant), **facts),)))[0]

    def release(self, grant: LeaseGrant, **facts: Any) -> LeaseStatus:
        return self.send(Release(held=(held(grant),), **facts))[0]

    def cancel(self, unit: int, **facts: Any) -> Standing:
        return self.send(Cancel(unit=unit, **facts))

    def tick(self) -> int:
        return self.send(Tick())

    def unit(self, one: int) -> Unit:
        declare(self.connection, 1)
        (unit,) = read_rows(self.connection, Unit, "WHERE id = :id", id=one)
        read_leases(self.connection, [unit])
        return unit

    def body(self, one: int) -> Body:
        declare(self.connection, 1)
        (row,) = self.connection.rows(f"SELECT {list_columns(Body)} FROM body WHERE unit = :id", {"id": one})
        return Body(*row)

    def notes(self, one: int, kind: str) -> list[Note]:
        declare(self.connection, 1)
        sql = f"SELECT {list_columns(Note)} FROM note WHERE unit = :id AND kind = :kind ORDER BY id"
        rows = self.connection.rows(sql, {"id": one, "kind": kind})
        return [Note(**dict(zip(Note.__struct_fields__, row, strict=True))) for row in rows]

    def count(self, table: str, where: str = "1 = 1") -> int:
        declare(self.connection, 1, 2)
        return int(self.connection.rows(f"SELECT count(*) FROM {table} WHERE {where}")[0][0])

    def events(self, one: int) -> list[Event]:
        declare(self.connection, 1)
        rows = self.connection.rows(
            f"SELECT {list_columns(Event)} FROM event WHERE unit = :id ORDER BY version", {"id": one}
        )
        return [Event(*row) for row in rows]

    def path(self, one: int) -> list[str]:
        """The states that a unit went through, self-hops left out."""
        return [event.target for event in self.events(one) if event.source != event.target]

    def names(self, one: int) -> list[str]:
        return [event.name for event in self.events(one)]


def held(grant: LeaseGrant) -> LeaseRef:
    return LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
