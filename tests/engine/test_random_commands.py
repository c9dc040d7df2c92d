"""Random commands: both databases agree on every answer and every row, every law holds, every move is taken."""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from interlock.audit.laws import audit
from interlock.kernel.commands import Tick
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import ROWS, Act, ActGone, Event, Seal, columns
from interlock.kernel.workflow_graph import Template
from interlock.lifecycles import shipped
from interlock.store.queries.snapshots import select_acts
from interlock.testing.simulation.random_commands import Chance
from tests.engine.world import World
from tests.store.databases import Connection, declare, fresh


def ask(world: World, command: Any) -> Any:
    try:
        return world.engine.send(command)
    except InterlockError as refusal:
        return refusal


def ask_together(world: World, commands: list[Any]) -> list[Any]:
    """The answers to commands that share a transaction, if nothing speaks against it."""
    committer = world.engine.committer
    futures = [committer.put(command) for command in commands]
    while committer.step():
        pass
    return [future.exception() or future.result() for future in futures]


def plain(answer: Any) -> Any:
    return str(answer) if isinstance(answer, Exception) else msgspec.to_builtins(answer)


def everything(connection: Connection) -> dict[str, Any]:
    """All rows, but for what the ids of acts are in them: each database counts acts in its own way.

    What follows from one cause, a worker and the parent of what it was given, may be told in another order.
    """
    declare(connection, 1)
    orders = {
        "unit": "id",
        "note": "id",
        "event": "unit, version",
        "act_detail": "unit, act",
        "lease": "unit, id",
        "need": "unit, needs",
        "place": "parent, name",
        "artifact": "unit, attempt, name",
        "slot": "tenant, key",
        "token": "unit, fence",
        "schedule": "tenant, name",
        "skipped": "id",
        "answer": "tenant, scope, key",
        "tenant": "id",
        "key": "id",
        "template": "tenant, name, version",
    }
    of_acts = {"unit": ("act", "born", "lease_id"), "event": ("hash",), "lease": ("id",), "act_detail": ("act",)}
    found: dict[str, Any] = {"act": sorted(map(told_by, select_acts(connection, "")), key=repr)}
    for row in (*(kind for kind in ROWS if kind not in (Act, ActGone, Seal)), Event, Template):
        names = [name for name in columns(row) if name not in of_acts.get(row.table, ())]
        order = orders.get(row.table, "unit")
        found[row.table] = connection.rows(f"SELECT {', '.join(names)} FROM {row.table} ORDER BY {order}")
    terms = "unit, tenant, worker, secret, until, ttl, beat"
    found["live_lease"] = connection.rows(f"SELECT {terms} FROM live_lease ORDER BY unit")
    found["taken_lease"] = connection.rows(
        f"SELECT {terms}, ended_at FROM lease WHERE unit > 0 AND ended_at IS NOT NULL ORDER BY unit, id"
    )
    return found


def told_by(act: Act) -> dict[str, Any]:
    """What an act says that names no other act."""
    return {name: value for name, value in asdict(act).items() if name not in ("id", "before", "leases", "digest")}


def grouped(chance: Chance, commands: int, group_max: int) -> Iterator[tuple[list[Any], float]]:
    """Random commands in groups of random sizes, each with the seconds that pass before it."""
    left = chance.commands(commands)
    size = random.Random(chance.tag)
    while group := list(islice(left, size.randint(1, group_max))):
        yield [command for command, _ in group], group[0][1]


def share_hints(worlds: list[World]) -> None:
    """What an engine has cached of its workers decides whether a claim is told to them at once or last.

    It is no promise, and a prefetch may see it earlier; so all worlds have the hints of the first, and do the same.
    """
    for world in worlds[1:]:
        world.engine.committer.cache.workers = dict(worlds[0].engine.committer.cache.workers)


def play(worlds: list[World], seed: int, commands: int, laws_every: int, group_max: int = 1) -> None:
    """The same random commands in every world: the same answers, and in the end the same rows."""
    chance, asked = Chance(seed, tag=f"{seed}."), 0
    for group, wait in grouped(chance, commands, group_max):
        for world in worlds:
            world.pass_time(wait)
        share_hints(worlds)
        answers = [ask_together(world, group) for world in worlds]
        for number, command in enumerate(group):
            told = [plain(answer[number]) for answer in answers]
            assert all(one == told[0] for one in told), (seed, asked, command, told)
            first = answers[0][number]
            assert not isinstance(first, Exception) or isinstance(first, InterlockError), (seed, command, first)
            assert not (isinstance(command, Tick) and isinstance(first, Exception)), (seed, asked, first)
            chance.learn(command, first)
        due, asked = asked // laws_every != (asked + len(group)) // laws_every, asked + len(group)
        for world in worlds if due else []:
            declare(world.connection, 1)
            assert list(audit(world.connection, shipped(), paths=False)) == [], (seed, asked, group)
    for world in worlds:
        declare(world.connection, 1)
        assert list(audit(world.connection, shipped())) == [], seed
        assert everything(world.connection) == everything(worlds[0].connection)


@pytest.mark.parametrize("seed", range(5))
def test_sqlite_and_postgresql_are_equal_over_five_thousand_commands(seed: int, tmp_path: Path, server: str) -> None:
    with fresh("sqlite memory", tmp_path, server) as one, fresh("postgres", tmp_path, server) as two:
        play([World(one), World(two)], seed, commands=1_000, laws_every=250, group_max=1 + 3 * seed)


@pytest.mark.proof
def test_sqlite_and_postgresql_are_equal_over_fifty_thousand_commands(tmp_path: Path, server: str) -> None:
    for seed in range(1_000, 1_050):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with fresh("sqlite memory", folder, server) as one, fresh("postgres", folder, server) as two:
            play([World(one), World(two)], seed, commands=1_000, laws_every=250, group_max=1 + seed % 20)


@pytest.mark.parametrize("seed", range(100, 112))
def test_every_law_holds_after_every_command(seed: int, tmp_path: Path, server: str) -> None:
    with fresh("sqlite memory", tmp_path, server) as connection:
        play([World(connection)], seed, commands=120, laws_every=1)
