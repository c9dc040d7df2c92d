"""What a unit needs is handed to its holder: by name, as much as fits, and the rest when it asks."""

import msgspec
import pytest

from interlock.kernel.commands import Decide, LeaseGrant, ReadOutput, Submit, Work
from interlock.kernel.errors import InterlockError, Stale, Unknown
from interlock.kernel.ids import format_id
from interlock.plugins.graphs import outputs
from tests.engine.world import World, held


def text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()


def finish_all(world: World, worker: int, **results: str) -> None:
    """Whatever can be claimed is done; each has the result that its task is given."""
    for grant in world.claim(worker, limit=100):
        world.start(grant)
        world.finish(grant, result=results.get(grant.task, "null"))


def claim_one(world: World, worker: int) -> LeaseGrant:
    (grant,) = world.claim(worker, limit=100)
    return grant


def test_a_job_gets_the_results_of_what_it_comes_after_by_their_ids(world: World) -> None:
    worker, first, other = world.worker(), world.submit("first"), world.submit("other")
    world.submit("last", after=(first,), after_end=(other,))
    finish_all(world, worker, first='{"n":1}')
    assert dict(claim_one(world, worker).needed) == {
        f"{format_id('job', first)}": '{"n":1}',
        f"{format_id('job', other)}": "null",
    }


def test_children_get_the_results_of_their_direct_needs_by_name_and_no_others(world: World) -> None:
    parent, worker = world.submit("site", lifecycle="workstream"), world.worker()
    needs: dict[str, tuple[str, ...]] = {"a": (), "b": (), "c": ("a",), "d": ("c",)}
    works = [Work(task=n, lifecycle="task", parent=parent, step=n, needs=some) for n, some in needs.items()]
    units = [answer.unit for answer in world.send(Submit(work=tuple(works)))]
    world.send(Decide(unit=parent, trigger="plan"))
    finish_all(world, worker, a='"of a"', b='"of b"')
    for unit in units[:2]:
        world.send(Decide(unit=unit, trigger="valid"))
    grant = claim_one(world, worker)
    assert (grant.needed, grant.outputs) == ((("a", '"of a"'),), None)
    world.start(grant)
    world.finish(grant, result='"of c"')
    world.send(Decide(unit=units[2], trigger="valid"))
    assert claim_one(world, worker).needed == (("c", '"of c"'),)


def test_the_attempt_of_a_ci_job_gets_what_its_job_needs(world: World) -> None:
    worker = world.worker()
    work = (
        Work(task="ci", lifecycle="ci_run", ref="run"),
        Work(task="lint", lifecycle="ci_job", parent="run", ref="lint", step="lint"),
        Work(task="test", lifecycle="ci_job", parent="run", ref="test", step="test", needs=("lint",)),
    )
    run = world.send(Submit(work=work))[0].unit
    world.send(Decide(unit=run, trigger="plan"))
    grant = claim_one(world, worker)
    world.start(grant)
    world.beat(grant)
    world.finish(grant, result='"clean"')
    grant = claim_one(world, worker)
    assert (grant.task, grant.needed) == ("test", (("lint", '"clean"'),))
    assert world.send(ReadOutput(held=held(grant), name="lint")) == '"clean"'


def test_the_steps_of_a_run_get_all_that_came_before(world: World) -> None:
    worker = world.worker()
    work = [Work(task="run", lifecycle="workflow_run", ref="run")]
    work += [
        Work(task=name, lifecycle="step", parent="run", ref=name, needs=needs)
        for name, needs in (("a", ()), ("b", ("a",)), ("c", ("b",)))
    ]
    world.send(Submit(work=tuple(work)))
    finish_all(world, worker, a="1")
    finish_all(world, worker, b="2")
    grant = claim_one(world, worker)
    assert (dict(grant.outputs or ()), grant.needed) == ({"a": "1", "b": "2"}, ())


def test_a_job_without_needs_gets_nothing(world: World) -> None:
    world.submit()
    grant = claim_one(world, world.worker())
    assert (grant.needed, grant.outputs) == ((), None)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "OUTPUTS_MAX", 3)
    monkeypatch.setattr(outputs, "BYTES_MAX", 40)


@pytest.mark.usefixtures("small")
def test_no_more_is_handed_over_than_fits_and_the_rest_is_read_when_asked_for(world: World) -> None:
    worker = world.worker()
    firsts = [world.submit(f"t{n}") for n in range(5)]
    world.submit("last", after=tuple(firsts))
    results = {"t0": "0", "t1": text_of("x" * 50), "t2": text_of("é" * 17), "t3": "3", "t4": "4"}
    finish_all(world, worker, **results)
    grant = claim_one(world, worker)
    assert [name for name, _ in grant.needed] == [
        f"{format_id('job', firsts[0])}",
        f"{format_id('job', firsts[2])}",
        f"{format_id('job', firsts[3])}",
    ]
    assert sum(len(text.encode()) for _, text in grant.needed) <= 40
    for place, unit in enumerate(firsts):
        assert world.send(ReadOutput(held=held(grant), name=f"{format_id('job', unit)}")) == results[f"t{place}"]


def test_what_is_no_need_or_has_no_holder_is_not_read(world: World) -> None:
    worker, first, stranger = world.worker(), world.submit("first"), world.submit("stranger")
    world.submit("last", after=(first,))
    finish_all(world, worker, first="1", stranger="2")
    grant = claim_one(world, worker)
    with pytest.raises(Unknown, match=f"this job needs no '{format_id('job', stranger)}' that has succeeded"):
        world.send(ReadOutput(held=held(grant), name=f"{format_id('job', stranger)}"))
    with pytest.raises(InterlockError, match="1 to 200 characters"):
        world.send(ReadOutput(held=held(grant), name=""))
    world.start(grant)
    world.finish(grant)
    with pytest.raises(Stale):
        world.send(ReadOutput(held=held(grant), name=f"{format_id('job', first)}"))


def test_two_needs_of_one_name_are_told_apart(world: World) -> None:
    worker, units = world.worker(), list[int]()
    for _ in range(2):
        parent = world.submit("top")
        units.append(world.submit("same", parent=parent, step="same"))
    world.submit("last", after=tuple(units), priority=-1)
    for grant in sorted(world.claim(worker, limit=100), key=lambda grant: grant.task):  # children before their parents
        world.start(grant)
        world.finish(grant, result=str(grant.unit))
    assert dict(claim_one(world, worker).needed) == {
        "same": str(units[0]),
        f"{format_id('job', units[1])}": str(units[1]),
    }
