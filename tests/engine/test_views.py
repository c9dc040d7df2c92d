"""What people see is one tenant's, on a file as well as behind row-level security."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from interlock.kernel.commands import Claim, Record, Register, Start, Submit, Work
from interlock.kernel.errors import Unknown
from interlock.store.connection import Connection
from interlock.store.queries import lists, trees, views
from tests.engine.world import World, held
from tests.store.databases import declare

VIEWS = [
    function
    for module in (views, trees)
    for _, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and "connection" in inspect.signature(function).parameters
]


def test_every_view_asks_for_its_tenant() -> None:
    assert len(VIEWS) > 10
    for function in VIEWS:
        assert list(inspect.signature(function).parameters)[:2] == ["connection", "tenant"], function.__name__


def family(world: World, tenant: int) -> dict[str, int]:
    """Of one tenant: a run with two steps, one held and with notes, and a worker, all under the same names."""
    work = (
        Work(task="flow", lifecycle="workflow_run", ref="run", key="k", correlation="c"),
        Work(task="a", lifecycle="step", parent="run", ref="a", mutex="m"),
        Work(task="b", lifecycle="step", parent="run", needs=("a",)),
    )
    run, first, second = (made.unit for made in world.send(Submit(tenant=tenant, work=work)))
    worker = world.send(Register(tenant=tenant, name="w", incarnation="1", capacity=9))
    (grant,) = world.send(Claim(tenant=tenant, worker=worker, nonce=f"{tenant:0>16}", key="c"))
    world.send(Start(tenant=tenant, held=(held(grant),)))
    for kind in ("artifact", "checkpoint"):
        world.send(Record(tenant=tenant, held=(held(grant),), kind=kind, name="x"))
    stream = world.send(Submit(tenant=tenant, work=(Work(task="s", lifecycle="workstream"),)))[0].unit
    return {"run": run, "first": first, "second": second, "worker": worker, "stream": stream}


def tree_ids(connection: Connection, tenant: int, unit: int) -> list[int]:
    try:
        return trees.read_tree(connection, tenant, unit).ids
    except Unknown:
        return []


QUESTIONS: dict[str, Callable[[Connection, int, dict[str, int]], Any]] = {
    "listing": lambda connection, tenant, its: [one.unit.id for one in views.listing(connection, tenant, views.Filter(), 100)],
    "by name": lambda connection, tenant, its: [
        one.unit.id
        for wanted in (views.Filter(key="k"), views.Filter(correlation="c"), views.Filter(holder="w"), views.Filter(task="b"))
        for one in views.listing(connection, tenant, wanted, 100)
    ],
    "matching": lambda connection, tenant, its: views.find_matching(connection, tenant, views.Filter()),
    "in order": lambda connection, tenant, its: [one.unit for one in lists.read_oldest_units(connection, tenant, views.Filter(), 100).units],
    "of ids": lambda connection, tenant, its: [one.unit for one in lists.refs_of(connection, tenant, [*its.values()])],
    "events": lambda connection, tenant, its: [one.unit for one in views.events_of(connection, tenant, its["first"])],
    "last event": lambda connection, tenant, its: [one.unit for one in [views.last_event(connection, tenant, its["first"])] if one],
    "notes": lambda connection, tenant, its: [one.unit for one in views.notes_of(connection, tenant, its["first"])],
    "artifacts": lambda connection, tenant, its: [one.unit for one in views.artifacts_of(connection, tenant, its["first"])],
    "children": lambda connection, tenant, its: [one.unit.id for one in views.children_of(connection, tenant, its["run"])],
    "needs": lambda connection, tenant, its: [one.unit for one in views.needs_of(connection, tenant, its["second"])],
    "seated": lambda connection, tenant, its: [one.unit.id for one in views.find_slot_holders(connection, tenant, "mutex", "m")],
    "resting": lambda connection, tenant, its: [
        one.unit.id for one in trees.find_resting(connection, tenant, [("workstream", "planned")], 100)
    ],
    "tree": lambda connection, tenant, its: tree_ids(connection, tenant, its["run"]),
    "notes of many": lambda connection, tenant, its: [
        note.unit for some in trees.read_notes_in(connection, tenant, [*its.values()], "checkpoint").values() for note in some
    ],
    "births": lambda connection, tenant, its: [*trees.read_births(connection, tenant, [*its.values()])],
    "events of many": lambda connection, tenant, its: [
        event.unit for some in trees.read_events_in(connection, tenant, [*its.values()], 2**62).values() for event in some
    ],
    "needs of many": lambda connection, tenant, its: [
        need.unit for need in trees.read_needs_in(connection, tenant, [*its.values()])
    ],
    "by ids": lambda connection, tenant, its: [*views.views_of(connection, tenant, [*its.values()])],
    "workers": lambda connection, tenant, its: [one.unit for one, _ in views.workers_seen(connection, tenant)],
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_view_shows_what_its_tenant_has_and_nothing_else(question: str, world: World) -> None:
    units = {tenant: family(world, tenant) for tenant in (1, 2)}
    declare(world.connection, 1, 2)  # only the view's own filter is left
    for tenant, other in ((1, 2), (2, 1)):
        seen = QUESTIONS[question](world.connection, tenant, units[tenant])
        assert seen
        assert set(seen) <= set(units[tenant].values())
        assert set(QUESTIONS[question](world.connection, tenant, units[other])) <= set(units[tenant].values())


def test_a_unit_of_another_tenant_does_not_exist(world: World) -> None:
    theirs = family(world, 2)
    declare(world.connection, 1, 2)
    for look in (views.view, views.read_summary):
        with pytest.raises(Unknown, match=f"no job, run or step {theirs['run']}"):
            look(world.connection, 1, theirs["run"])
    assert views.read_slot(world.connection, 1, "mutex:m") is None
    assert views.count_by(world.connection, 1) == []
    assert views.find_archive(world.connection, 1, theirs["run"]) is None


def test_how_many_are_ahead_is_counted_in_the_order_of_the_claim(world: World) -> None:
    jobs = [world.submit(), world.submit(priority=5), world.submit(), world.submit(queue="other")]
    declare(world.connection, 1)
    assert [views.count_ahead(world.connection, 1, world.unit(job)) for job in jobs] == [1, 0, 2, 0]
