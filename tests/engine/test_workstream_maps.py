"""Maps: a task for each element of a list, made when the list is there."""

from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import Rerun, RetryTask, SkipTask, Submit
from interlock.kernel.errors import InterlockError
from tests.engine.streams import do, fail, named, options, states, stream, task
from tests.engine.world import World


def gallery(world: World, result: str, **own: Any) -> tuple[int, int]:
    """A workstream that fetches images, resizes each and bundles them; `fetch` has this result. And a worker."""
    given = {"over": "fetch.images", **own.pop("map", {})}
    ws, *_ = stream(
        world,
        task("fetch", "ws"),
        task("resize", "ws", needs=("fetch",), options=options(map=given, **own), input='{"width": 50}'),
        task("bundle", "ws", needs=("resize",)),
    )
    worker = world.worker()
    do(world, worker, "fetch", result=result)
    return ws, worker


def test_a_map_makes_a_task_for_each_element_and_has_their_outputs_in_order(world: World) -> None:
    ws, worker = gallery(world, '{"images": ["a", "b", "c"]}')
    resize = named(world, ws, "resize")
    assert states(world, ws) == {
        "fetch": "completed", "resize": "pending", "bundle": "pending",
        "resize[0]": "queued", "resize[1]": "queued", "resize[2]": "queued",
    }  # fmt: skip
    fetched = world.events(named(world, ws, "fetch"))[-1].at
    assert {world.events(named(world, ws, f"resize[{number}]"))[0].at for number in range(3)} == {fetched}
    grants = world.claim(worker, limit=9)
    assert [msgspec.json.decode(grant.input) for grant in grants] == [{"width": 50, "item": letter} for letter in "abc"]
    for grant in reversed(grants):
        world.start(grant)
        world.finish(grant, result=msgspec.json.encode(f"small {msgspec.json.decode(grant.input)['item']}").decode())
    assert (world.unit(resize).state, world.names(resize)[-1]) == ("completed", "map_gathered")
    assert world.unit(resize).fence == 0  # it ran nothing itself
    (grant,) = world.claim(worker)
    assert dict(grant.needed) == {"resize": '["small a","small b","small c"]'}
    world.start(grant)
    world.finish(grant)
    assert (world.unit(ws).state, world.unit(ws).total) == ("completed", 6)


def test_a_map_over_nothing_is_completed_at_once(world: World) -> None:
    ws, worker = gallery(world, '{"images": []}')
    assert (world.body(named(world, ws, "resize")).result, world.unit(ws).total) == ("[]", 3)
    do(world, worker, "bundle")
    assert world.unit(ws).state == "completed"


def test_so_many_tasks_of_a_map_run_at_a_time(world: World) -> None:
    ws, worker = gallery(world, '{"images": [1, 2, 3, 4, 5]}', map={"at_once": 2, "argument": "image"})
    for _ in range(3):
        grants = world.claim(worker, limit=9)
        assert len(grants) <= 2
        for grant in grants:
            assert set(msgspec.json.decode(grant.input)) == {"width", "image"}
            world.start(grant)
            world.finish(grant)
    do(world, worker, "bundle")
    assert world.unit(ws).state == "completed"


@pytest.mark.parametrize(
    ("result", "wrong"),
    [
        ('{"images": {"a": 1}}', "map: 'fetch.images' is no list; allowed is a list of up to 10,000 elements"),
        ('{"pages": []}', "map: 'fetch.images' is no list"),
        ("null", "map: 'fetch.images' is no list"),
        (
            msgspec.json.encode({"images": [0] * 10_001}).decode(),
            "map: 'fetch.images' has 10,001 elements; allowed are up to 10,000",
        ),
    ],
)
def test_what_is_no_list_fails_the_map_and_says_so(world: World, result: str, wrong: str) -> None:
    ws, _ = gallery(world, result)
    resize = named(world, ws, "resize")
    assert (world.unit(resize).state, world.unit(ws).state) == ("failed", "failed")
    assert wrong in (world.body(resize).error or "")
    assert world.names(resize)[-1] == "map_refused"


def test_a_map_that_may_fail_is_completed_with_what_is_wrong(world: World) -> None:
    ws, worker = gallery(world, "null", allow_failure=True)
    assert states(world, ws)["resize"] == "completed"
    (grant,) = world.claim(worker)
    (need,) = grant.needed
    assert need[0] == "resize"
    assert msgspec.json.decode(need[1]) == {
        "failed": "map: 'fetch.images' is no list; allowed is a list of up to 10,000 elements"
    }


def test_a_map_does_not_take_another_task_for_one_of_its_own(world: World) -> None:
    given = {"over": "fetch.images"}
    ws, *_ = stream(
        world,
        task("fetch", "ws"),
        task("resize", "ws", needs=("fetch",), options=options(map=given), decides=False),
        task("resize[1]", "ws", needs=("fetch",)),
    )  # fmt: skip
    do(world, world.worker(), "fetch", result='{"images": ["a", "b"]}')
    resize = named(world, ws, "resize")
    assert world.unit(resize).state == "failed"
    assert "map: another task is called 'resize[1]', as an element of 'resize' is" in (world.body(resize).error or "")
    assert world.count("unit", "lifecycle = 'task'") == 3  # none was made


def test_a_map_goes_over_what_it_needs(world: World) -> None:
    for work in (
        task("m", "ws", needs=("a",), options=options(map={"over": "b.list"})),
        task("m", "ws", options=options(map={"over": "b"})),
        task("m", "ws", needs=("a",), options=options(map={"over": "a", "at_once": 0})),
    ):
        with pytest.raises(InterlockError, match=r"map: over = 'b|at_once = 0 is not allowed"):
            stream(world, task("a", "ws"), work)
    given = options(map={"over": "a"})
    first, other = task("m", "ws", needs=("a",), options=given), task("n", "ws", options=given)
    other = msgspec.structs.replace(other, task=first.task)
    with pytest.raises(InterlockError, match="it needs nothing"):  # though one that says the same is allowed
        stream(world, task("a", "ws"), first, other)
    assert world.count("unit") == 0


def test_tasks_of_a_map_are_retried_and_skipped_like_any_other(world: World) -> None:
    ws, *_ = stream(
        world,
        task("fetch", "ws", priority=9),
        task("each", "ws", needs=("fetch",), options=options(map={"over": "fetch"}), decides=False, priority=5),
        task("slow", "ws"),
    )
    worker = world.worker()
    do(world, worker, "fetch", result="[1, 2, 3]")
    fail(world, worker, "each")
    world.send(SkipTask(unit=named(world, ws, "each[1]")))
    do(world, worker, "each", result="3")
    assert states(world, ws)["each"] == "pending"
    world.send(RetryTask(unit=named(world, ws, "each[0]")))
    do(world, worker, "each", result="1")
    assert world.body(named(world, ws, "each")).result == "[1,null,3]"
    do(world, worker, "slow")
    assert world.unit(ws).state == "completed"


def test_a_map_whose_need_was_met_before_it_came_makes_its_tasks_at_once(world: World) -> None:
    ws, *_ = stream(world, task("fetch", "ws"), task("hold", "ws"))
    worker = world.worker()
    do(world, worker, "fetch", result="[1, 2]")
    world.send(Submit(work=(task("each", ws, needs=("fetch",), options=options(map={"over": "fetch"})),)))
    assert states(world, ws)["each[1]"] == "queued"
    for name in ("hold", "each", "each"):
        do(world, worker, name)
    assert world.unit(ws).state == "completed"


def test_a_rerun_takes_a_completed_map_over_and_makes_another_anew(world: World) -> None:
    ws, worker = gallery(world, '{"images": [1, 2]}')
    for _ in range(2):
        do(world, worker, "resize", result="7")
    fail(world, worker, "bundle")
    kept = world.send(Rerun(unit=ws, failed=True)).unit
    assert states(world, kept) == {"fetch": "completed", "resize": "completed", "bundle": "queued"}
    world.cancel(kept)
    anew = world.send(Rerun(unit=ws, from_task="resize")).unit
    assert states(world, anew) == {
        "fetch": "completed", "resize": "pending", "bundle": "pending", "resize[0]": "queued", "resize[1]": "queued",
    }  # fmt: skip
    for name in ("resize", "resize", "bundle"):
        do(world, worker, name)
    assert world.unit(anew).state == "completed"


def test_a_rerun_takes_over_the_completed_tasks_of_a_map_that_failed(world: World) -> None:
    ws, worker = gallery(world, '{"images": [1, 2, 3]}')
    do(world, worker, "resize", result="10")
    fail(world, worker, "resize")
    assert world.unit(ws).state == "failed"
    again = world.send(Rerun(unit=ws, failed=True)).unit
    done = {name: state for name, state in states(world, again).items() if name.startswith("resize")}
    assert done == {"resize": "pending", "resize[0]": "completed", "resize[1]": "queued", "resize[2]": "queued"}
    assert world.body(named(world, again, "resize[0]")).retry_of == named(world, ws, "resize[0]")
    for result in ("20", "30"):
        do(world, worker, "resize", result=result)
    assert world.body(named(world, again, "resize")).result == "[10,20,30]"
    do(world, worker, "bundle")
    assert world.unit(again).state == "completed"
    anew = world.send(Rerun(unit=ws, from_task="fetch")).unit
    do(world, worker, "fetch", result='{"images": [1]}')
    assert states(world, anew)["resize[0]"] == "queued"


def test_a_rerun_of_a_rerun_takes_over_what_that_took_over(world: World) -> None:
    ws, *_ = stream(
        world,
        task("fetch", "ws", priority=9),
        task("each", "ws", needs=("fetch",), options=options(map={"over": "fetch"}), decides=False, priority=5),
        task("other", "ws", priority=1),
    )
    worker = world.worker()
    do(world, worker, "fetch", result="[1, 2]")
    do(world, worker, "each", result="10")
    fail(world, worker, "each")
    fail(world, worker, "other")
    part = world.send(Rerun(unit=ws, failed=True)).unit
    assert states(world, part)["each[0]"] == "completed"
    world.cancel(part)
    anew = world.send(Rerun(unit=part, failed=True)).unit
    assert states(world, anew)["each[0]"] == "completed"
    other = world.send(Rerun(unit=ws, from_task="other")).unit
    assert states(world, other)["each[0]"] == "completed"
    for unit in (anew, other):
        world.cancel(unit)
    changed = world.send(Rerun(unit=ws)).unit
    do(world, worker, "fetch", result="[7, 2]")
    assert states(world, changed)["each[0]"] == "queued"


def test_a_map_that_was_cancelled_is_retried_without_new_tasks(world: World) -> None:
    ws, *_ = stream(
        world,
        task("fetch", "ws", priority=9),
        task("each", "ws", needs=("fetch",), options=options(map={"over": "fetch"}), decides=False, priority=5),
        task("slow", "ws"),
    )
    worker = world.worker()
    do(world, worker, "fetch", result="[1, 2]")
    do(world, worker, "each", result="10")
    world.cancel(named(world, ws, "each"))
    again = world.send(RetryTask(unit=named(world, ws, "each"))).unit
    assert world.unit(ws).total == 5
    do(world, worker, "each", result="20")
    assert (world.unit(again).state, world.body(again).result) == ("completed", "[10,20]")
    do(world, worker, "slow")
    assert world.unit(ws).state == "completed"
