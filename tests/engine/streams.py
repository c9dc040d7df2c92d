"""Workstreams for stories: whole ones, whose tasks pass their gates at once."""

from typing import Any

import msgspec

from interlock.kernel.commands import LeaseGrant, Submit, Work
from tests.engine.world import World

NO_CHECKS = {"checks": {"jobs": []}}


def options(**own: Any) -> str:
    """Options of a workstream or a task, without checks."""
    return msgspec.json.encode({**NO_CHECKS, "workstreams": own}).decode()


def task(name: str, parent: int | str, **facts: Any) -> Work:
    return Work(
        task=facts.pop("task", name), lifecycle="task", parent=parent, step=name,
        options=facts.pop("options", options()), **facts,
    )  # fmt: skip


def stream(world: World, *tasks: Work, **own: Any) -> list[int]:
    """A workstream with tasks whose parent is "ws", made in one submit; the ids of all, the workstream's first."""
    work = Work(task="site", lifecycle="workstream", ref="ws", options=options(**own))
    return [made.unit for made in world.send(Submit(work=(work, *tasks)))]


def do(world: World, worker: int, name: str, **facts: Any) -> LeaseGrant:
    """The next task that a worker gets is this one, and it ends."""
    (grant,) = world.claim(worker)
    assert grant.task == name
    world.start(grant)
    assert world.finish(grant, **facts).accepted
    return grant


def fail(world: World, worker: int, name: str) -> LeaseGrant:
    """The next task that a worker gets is this one, and it fails for good."""
    return do(world, worker, name, ended="failure", error="no paper", error_class="PermanentError")


def named(world: World, parent: int, name: str) -> int:
    """The task that has a name in its workstream."""
    sql = "SELECT unit FROM place WHERE parent = :parent AND name = :name"
    return int(world.connection.rows(sql, {"parent": parent, "name": name})[0][0])


def states(world: World, parent: int) -> dict[str, str]:
    """By name, the states of the tasks of a workstream that count."""
    sql = "SELECT place.name, unit.state FROM place JOIN unit ON unit.id = place.unit WHERE place.parent = :parent"
    return dict(world.connection.rows(sql, {"parent": parent}))
