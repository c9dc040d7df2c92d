"""Work that differs only in its input is born by one decision; it comes to what it comes to one by one."""

from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import DefineTemplate, Submit, Work
from interlock.kernel.rows import Body, Event, Unit
from tests.engine.world import World

# What is a unit's own, and which act bears it.
OWN: dict[str, Any] = {"id": 0, "unit": 0, "act": 0, "born": 0, "parent": None, "correlation": "", "hash": ""}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "delayed": {"delay_us": 5_000_000, "priority": 3},
    "mutex": {"mutex": "m"},
    "limit": {"limit_key": "l", "limit": 2},
    "rate": {"rate_key": "r", "rate": 9, "rate_per_us": 5_000_000},
    "correlation": {"correlation": "order 7", "trace": "t"},
    "needs a worker that can": {"capabilities": ("gpu",)},
    "that follows its attempts": {"lifecycle": "ci_job"},
    "run of a template": {"lifecycle": "workflow_run", "template": "steps"},
    "step": {"lifecycle": "step"},
    "limited in time": {"queue_timeout_us": 60_000_000, "attempts": 2},
}


def anonymous(row: Unit | Body | Event) -> Any:
    own = {name: value for name, value in OWN.items() if name in row.__struct_fields__}
    return msgspec.structs.replace(row, **own)


def story(world: World, units: list[int]) -> list[Any]:
    found: list[Any] = []
    for one in units:
        found += [anonymous(world.unit(one)), anonymous(world.body(one)), list(map(anonymous, world.events(one)))]
        found.append(world.count("unit", f"parent = {one}"))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_what_its_parts_are_one_by_one(world: World, kind: str) -> None:
    world.send(DefineTemplate(name="steps", steps=(Work(task="a", ref="a"), Work(task="b", ref="b", needs=("a",)))))
    works = [Work(task="mail", input=str(number), **KINDS[kind]) for number in range(4)]
    apart = [world.send(Submit(work=(work,)))[0].unit for work in works]
    seen = story(world, apart)
    for one in apart:  # what they took of a limit is free again
        world.cancel(one)
    assert story(world, [one.unit for one in world.send(Submit(work=tuple(works)))]) == seen
