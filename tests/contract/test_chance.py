"""Random commands: both databases agree on every answer and every row, every law holds, every move is taken."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import Tick
from interlock.kernel.errors import InterlockError
from interlock.kernel.rows import ROWS
from interlock.lifecycles import shipped
from interlock.store.session import listed
from interlock.testing.simulation.chance import Chance
from tests.contract.world import World
from tests.store.databases import Connection, declare, fresh


def ask(world: World, command: Any) -> Any:
    try:
        return world.engine.send(command)
    except InterlockError as refusal:
        return refusal


def plain(answer: Any) -> Any:
    return str(answer) if isinstance(answer, Exception) else msgspec.to_builtins(answer)


def everything(connection: Connection) -> dict[str, Any]:
    declare(connection, 1)
    orders = {
        "unit": "id",
        "note": "id",
        "event": "unit, version",
        "need": "unit, needs",
        "artifact": "unit, attempt, name",
        "slot": "tenant, key",
        "token": "unit, fence",
        "schedule": "tenant, name",
        "skipped": "id",
        "answer": "tenant, scope, key",
        "tenant": "id",
    }
    return {
        row.table: connection.rows(f"SELECT {listed(row)} FROM {row.table} ORDER BY {orders.get(row.table, 'unit')}")
        for row in ROWS
    }


def play(worlds: list[World], seed: int, commands: int, laws_every: int) -> None:
    """The same random commands in every world: the same answers, and in the end the same rows."""
    chance = Chance(seed)
    for number, (command, wait) in enumerate(chance.commands(commands)):
        for world in worlds:
            world.pass_time(wait)
        answers = [ask(world, command) for world in worlds]
        assert all(plain(answer) == plain(answers[0]) for answer in answers), (seed, number, command)
        assert not (isinstance(command, Tick) and isinstance(answers[0], Exception)), (seed, number, answers[0])
        chance.heard(command, answers[0])
        if number % laws_every == 0:
            for world in worlds:
                declare(world.connection, 1)
                assert list(audit(world.connection, shipped())) == [], (seed, number, command)
    for world in worlds:
        declare(world.connection, 1)
        assert list(audit(world.connection, shipped())) == [], seed
        assert everything(world.connection) == everything(worlds[0].connection)


@pytest.mark.parametrize("seed", range(4))
def test_sqlite_and_postgresql_are_equal(seed: int, tmp_path: Path, server: str) -> None:
    with fresh("sqlite memory", tmp_path, server) as one, fresh("postgres", tmp_path, server) as two:
        play([World(one), World(two)], seed, commands=400, laws_every=100)


@pytest.mark.proof
def test_sqlite_and_postgresql_are_equal_over_fifty_thousand_commands(tmp_path: Path, server: str) -> None:
    for seed in range(1_000, 1_050):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with fresh("sqlite memory", folder, server) as one, fresh("postgres", folder, server) as two:
            play([World(one), World(two)], seed, commands=1_000, laws_every=250)


@pytest.mark.parametrize("seed", range(100, 112))
def test_every_law_holds_after_every_command(seed: int, tmp_path: Path, server: str) -> None:
    with fresh("sqlite memory", tmp_path, server) as connection:
        play([World(connection)], seed, commands=120, laws_every=1)
