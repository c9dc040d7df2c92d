"""What comes before what: names of the same request, ids of units that are there, in any order and in no circle."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from interlock.kernel.commands import DefineTemplate, Submit, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.graph import arrange
from interlock.kernel.ids import parse_id
from tests.engine.world import World

MANY = 10_000


def run_of(*steps: Work) -> tuple[Work, ...]:
    return (Work(task="run", lifecycle="workflow_run", ref="run"), *steps)


def step(name: str, *needs: str, **own: int) -> Work:
    return Work(task=name, lifecycle="step", ref=name, needs=needs, parent="run", **own)


def test_a_name_is_never_taken_for_the_id_of_a_stranger(world: World) -> None:
    strangers = [world.submit() for _ in range(12)]
    assert parse_id("b") in strangers
    with pytest.raises(Unknown, match="nothing in this request has the ref 'b'; there are a"):
        world.send(Submit(work=(Work(task="a", ref="a", needs=("b",)),)))
    with pytest.raises(InterlockError, match="it takes refs of the same request; ids go to after"):
        world.send(Submit(work=(Work(task="a", needs=(strangers[0],)),)))  # type: ignore[arg-type]
    assert world.count("unit") == len(strangers)


def test_a_need_may_be_named_before_it_comes(world: World) -> None:
    work = run_of(step("c", "b"), step("b", "a"), step("a"))
    run, third, second, first = (one.unit for one in world.send(Submit(work=work)))
    assert [world.body(one).task for one in (run, third, second, first)] == ["run", "c", "b", "a"]
    assert [world.unit(one).unmet for one in (first, second, third)] == [0, 1, 1]
    (grant,) = world.claim(world.worker(), limit=9)
    assert grant.unit == first
    world.start(grant)
    world.finish(grant)
    assert [world.unit(one).unmet for one in (second, third)] == [0, 1]


def test_a_parent_may_be_named_before_it_comes(world: World) -> None:
    child, parent = world.send(Submit(work=(step("a"), *run_of())))
    assert world.unit(child.unit).parent == parent.unit


def test_after_takes_units_that_are_there(world: World) -> None:
    first = world.submit()
    second = world.submit(after=(first,))
    assert (world.unit(second).unmet, world.unit(second).available_at) == (1, None)
    with pytest.raises(Unknown, match="after names 999: no such job, run or step"):
        world.submit(after=(first, 999))


def test_after_takes_no_unit_of_another_tenant(world: World) -> None:
    foreign = world.send(Submit(tenant=2, work=(Work(task="a"),)))[0].unit
    with pytest.raises(Unknown, match="no such job, run or step"):
        world.submit(after=(foreign,))


def test_a_circle_is_named_with_all_its_members_in_order(world: World) -> None:
    work = run_of(step("x"), step("a", "c"), step("b", "a"), step("c", "b", "x"))
    with pytest.raises(InterlockError, match="a circle of needs: a needs c needs b needs a; none of them could"):
        world.send(Submit(work=work))
    with pytest.raises(InterlockError, match="a circle of needs: a needs a;"):
        world.send(Submit(work=run_of(step("a", "a"))))
    with pytest.raises(InterlockError, match="two steps are called 'a'; give one of them another name"):
        world.send(Submit(work=run_of(step("a"), step("a"))))
    assert world.count("unit") == 0


def test_the_steps_of_a_template_may_come_in_any_order(world: World) -> None:
    parts = (
        Work(task="c", lifecycle="step", ref="c", needs=("b",)),
        Work(task="a", lifecycle="step", ref="a"),
        Work(task="b", lifecycle="step", ref="b", needs=("a",)),
    )
    world.send(DefineTemplate(name="t", steps=parts))
    with pytest.raises(InterlockError, match="template 't': a circle of needs: c needs b needs c"):
        world.send(DefineTemplate(name="t", steps=(parts[0], Work(task="b", lifecycle="step", ref="b", needs=("c",)))))
    world.submit("t", lifecycle="workflow_run", template="t")
    worker = world.worker()
    done = []
    for _ in parts:
        (grant,) = world.claim(worker, limit=9)
        world.start(grant)
        world.finish(grant)
        done.append(grant.task)
    assert done == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["step", "ci_job"])
def test_ten_thousand_steps_in_any_order(world: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that is shuffled: ten times as many need no more questions to the database."""
    top = {"step": "workflow_run", "ci_job": "ci_run"}[kind]

    def chain(count: int) -> tuple[Work, ...]:
        steps = [
            Work(task="t", lifecycle=kind, ref=f"s{n}", needs=(f"s{n - 1}",) if n else (), parent="run")
            for n in range(count)
        ]
        random.Random(count).shuffle(steps)
        return (*steps, Work(task="run", lifecycle=top, ref="run"))

    asked, rows = list[int](), world.connection.rows

    def counting(sql: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        asked[-1] += 1
        return rows(sql, params)

    monkeypatch.setattr(world.connection, "rows", counting)
    for count in (MANY // 10, MANY):
        asked.append(0)
        made = world.engine.send(Submit(work=chain(count)))
        assert len(made) == count + 1
    assert world.count("need") == MANY + MANY // 10 - 2
    assert world.count("unit", f"unmet = 0 AND lifecycle = '{kind}'") == 2
    assert asked[1] <= asked[0] + 10, asked


def test_arranged_places_come_behind_what_they_name() -> None:
    dice = random.Random(1)
    for _ in range(200):
        count = dice.randint(1, 12)
        rank = dice.sample(range(count), count)
        before = [
            [one for one in range(count) if rank[one] < rank[place] and dice.random() < 0.3] for place in range(count)
        ]
        found = arrange(before)
        assert sorted(found) == list(range(count))
        assert all(found.index(one) < found.index(place) for place in range(count) for one in before[place])
    assert arrange([[], [], []]) == [0, 1, 2]
    assert arrange([[1], [0], []]) == [2]
