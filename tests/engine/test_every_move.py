"""Every move that a lifecycle lists is taken by some journey: one that no test can take is deleted."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import Command
from interlock.kernel.lifecycle import Lifecycle
from interlock.lifecycles import shipped
from interlock.testing.simulation.scenarios import Move, lines, list_moves, list_taken_moves
from tests.engine.journeys import Journey
from tests.engine.world import World
from tests.store.databases import declare, fresh

A = TypeVar("A")


class Trusting(World):
    """A world in which the laws are asked once, at the end."""

    def send(self, command: Command[A]) -> A:
        return self.engine.send(command)


def moves_of(world: World) -> set[Move]:
    declare(world.connection, 1)
    units = world.connection.rows("SELECT id FROM unit ORDER BY id")
    return {move for (unit,) in units for move in list_taken_moves(shipped(), world.events(unit))}


def missing(lifecycles: Mapping[str, Lifecycle], seen: set[Move]) -> str:
    """The listed moves that were not taken, in words; empty if there is none."""
    left = sorted(list_moves(lifecycles) - seen, key=str)
    return ", ".join(f"{lifecycle}: '{trigger}' from {source or 'birth'}" for lifecycle, source, trigger in left)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> set[Move]:
    """What all journeys take, each in a fresh world in which every law is asked after every command."""
    moves: set[Move] = set()
    for line in lines():
        with fresh("sqlite memory", tmp_path_factory.getbasetemp(), "") as connection:
            world = World(connection)
            Journey(world, "here").play(line)
            moves |= moves_of(world)
    return moves


def test_every_listed_move_is_taken(seen: set[Move]) -> None:
    assert missing(shipped(), seen) == ""
    assert len(shipped()) == 13
    assert seen <= list_moves(shipped())


@pytest.mark.parametrize("name", shipped())
def test_a_move_that_nobody_takes_is_named(name: str, seen: set[Move]) -> None:
    lifecycle = shipped()[name]
    source, state = list(lifecycle.states)[:2]
    odd = replace(lifecycle.birth, source=source, trigger="escape", path=(state,))
    more = {**shipped(), name: replace(lifecycle, moves={**lifecycle.moves, (source, "escape"): odd})}
    assert missing(more, seen) == f"{name}: 'escape' from {source}"


def test_a_move_is_taken_by_its_whole_path_only(tmp_path: Path) -> None:
    """A hop on the way from one state is not the move that another state lists under the same trigger."""
    with fresh("sqlite memory", tmp_path, "") as connection:
        world = World(connection)
        Journey(world, "here").play("ci build: plan claim start complete")
        moves = {move for move in moves_of(world) if move[2] == "complete"}
    assert moves == {
        ("ci_attempt", "STARTING", "complete"),
        ("ci_job", "STARTING", "complete"),
        ("lease", "ACTIVE", "complete"),
    }


def test_every_listed_move_is_taken_on_postgresql(tmp_path: Path, server: str) -> None:
    with fresh("postgres", tmp_path, server) as connection:
        world = Trusting(connection)
        for place, line in enumerate(lines()):
            Journey(world, f"q{place}").play(line)
        assert missing(shipped(), moves_of(world)) == ""
        declare(connection, 1)
        assert list(audit(connection, shipped())) == []
