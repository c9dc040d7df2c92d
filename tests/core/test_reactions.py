"""What follows from a transition: reactions see what they serve, in a fixed order, until nothing more follows."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.core.plugin import Plugin, Registry
from interlock.kernel.commands import Submit, Work
from interlock.plugins import STANDARD
from interlock.store.hooks import Hooks, Moved, MoveKind, Reaction
from interlock.store.unit_of_work import UnitOfWork
from tests.engine.world import World
from tests.store.databases import KINDS, fresh

Seen = list[tuple[str, list[str]]]


@pytest.fixture(params=KINDS)
def spied(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[tuple[World, Seen]]:
    """A world with two reactions more, and what they have seen: their names, and the states of parents that ended."""
    seen: Seen = []

    def note_parents(name: str) -> Reaction:
        def run(tx: UnitOfWork, moved: list[Moved]) -> None:
            seen.append((name, [tx.unit(unit.parent).state for unit, _ in moved if unit.parent is not None]))

        return Reaction(name, lambda kind: kind.has_ended and kind.lifecycle == "step", run)

    hooks = Hooks(reactions=(note_parents("first"), note_parents("second")))
    with fresh(request.param, tmp_path, server) as connection:
        yield World(connection, registry=Registry((*STANDARD.plugins, Plugin(name="spy", hooks=hooks)))), seen


def test_plugins_react_in_their_order_and_before_parents_do(spied: tuple[World, Seen]) -> None:
    world, seen = spied
    works = (Work(task="run", lifecycle="workflow_run", ref="r"), Work(task="a", lifecycle="step", parent="r"))
    run = world.send(Submit(work=works))[0].unit
    (grant,) = world.claim(world.worker())
    world.start(grant)
    assert seen == []
    world.finish(grant)
    assert seen == [("first", ["RUNNING"]), ("second", ["RUNNING"])], "the run had not heard of its step yet"
    assert world.unit(run).state == "SUCCEEDED"


def test_what_a_reaction_does_not_serve_it_does_not_see(spied: tuple[World, Seen]) -> None:
    world, seen = spied
    world.submit()
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant)
    assert seen == []


def test_a_reaction_is_asked_once_for_each_kind_of_move(tmp_path: Path) -> None:
    kinds: list[MoveKind] = []
    served: list[str] = []

    def serves(kind: MoveKind) -> bool:
        kinds.append(kind)
        return kind.is_birth

    def run(tx: UnitOfWork, moved: list[Moved]) -> None:
        served.extend(unit.lifecycle for unit, was in moved if was is None)

    plugin = Plugin(name="spy", hooks=Hooks(reactions=(Reaction("spy", serves, run),)))
    with fresh("sqlite memory", tmp_path, "") as connection:
        world = World(connection, registry=Registry((*STANDARD.plugins, plugin)))
        for _ in range(3):
            world.submit()
        worker = world.worker()
        for grant in world.claim(worker, limit=3):
            world.start(grant)
            world.finish(grant)
    assert served == ["job", "job", "job", "worker"]
    assert len(kinds) == len(set(kinds))
    ended = [kind for kind in kinds if kind.lifecycle == "job" and kind.has_ended]
    assert ended == [MoveKind("job", "success", "success", False, True, True, False, False, True)]
