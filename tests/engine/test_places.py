"""Names of children in their parents: each is one child's, added once, needed by name in any order, in no circle."""

import random

import pytest

from interlock.audit.laws import audit
from interlock.audit.laws.rows import NAMES
from interlock.kernel.commands import Decide, DefineTemplate, Submit, Submitted, Work
from interlock.kernel.errors import InterlockError, StoreError, Unknown
from interlock.store.queries.views import child_named, needs_of
from tests.engine.tamper import behind_the_guard
from tests.engine.test_archive import archive
from tests.engine.world import World
from tests.store.databases import declare

PAGES, PAGE = 20, 10


def task(parent: int, name: str, *needs: str, **own: object) -> Work:
    return Work(task="build", lifecycle="task", parent=parent, step=name, needs=needs, **own)  # type: ignore[arg-type]


def workstream(world: World) -> int:
    return world.submit("site", lifecycle="workstream")


def add(world: World, *works: Work) -> list[Submitted]:
    return world.send(Submit(work=works))


def drain(world: World) -> list[str]:
    """Everything that can be done is done; returns the names in the order in which they were claimed."""
    worker, done = world.worker(capacity=10_000), list[str]()
    while grants := world.claim(worker, limit=1_000):
        for grant in grants:
            done.append(world.body(grant.unit).policy)
            world.start(grant)
            world.finish(grant)
            if grant.lifecycle == "task":
                world.send(Decide(unit=grant.unit, trigger="valid"))
    return done


def test_adding_a_name_again_adds_nothing(world: World) -> None:
    parent = workstream(world)
    (first,) = add(world, task(parent, "a"))
    (again,) = add(world, task(parent, "a"))
    assert (again.unit, again.created) == (first.unit, False)
    both = add(world, task(parent, "b"), task(parent, "b"))
    assert [answer.created for answer in both] == [True, False]
    assert both[0].unit == both[1].unit
    assert world.unit(parent).total == 2
    (other,) = add(world, task(workstream(world), "a"))
    assert other.created, "a name is its parent's own"


def test_another_work_under_a_name_is_refused(world: World) -> None:
    parent = workstream(world)
    add(world, task(parent, "a"))
    with pytest.raises(InterlockError, match=r"NAME_TAKEN: workstream_\w+ has a child 'a' already, with another input"):
        add(world, task(parent, "b"), task(parent, "a", input="1"))
    with pytest.raises(InterlockError, match="has a child 'a' already, with task 'build'"):
        add(world, Work(task="test", lifecycle="task", parent=parent, step="a"))
    assert world.unit(parent).total == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b"])
def test_a_name_that_could_not_be_kept_is_refused(world: World, name: str) -> None:
    parent = workstream(world)
    with pytest.raises(InterlockError, match="1 to 200 characters, none NUL"):
        add(world, task(parent, "ok"), task(parent, name))
    with pytest.raises(InterlockError, match="1 to 200 characters, none NUL"):
        add(world, task(parent, "ok"), task(parent, "other", name))
    assert world.count("place") == 0


def test_a_child_is_needed_by_its_name_in_a_later_command(world: World) -> None:
    parent = workstream(world)
    (first,) = add(world, task(parent, "a"))
    (second,) = add(world, task(parent, "b", "a"))
    assert world.unit(second.unit).unmet == 1
    world.send(Decide(unit=parent, trigger="plan"))
    assert world.unit(first.unit).state == "queued"
    drain(world)
    assert [world.unit(unit).state for unit in (first.unit, second.unit)] == ["completed", "completed"]


def test_a_name_may_be_needed_before_its_child_comes(world: World) -> None:
    parent = workstream(world)
    (second,) = add(world, task(parent, "b", "a"))
    assert [(need.name, need.state) for need in needs_of(world.connection, 1, second.unit)] == [("a", "yet to come")]
    with pytest.raises(InterlockError, match="has children that need a, and no such child; add it before the plan"):
        world.send(Decide(unit=parent, trigger="plan"))
    (first,) = add(world, task(parent, "a"))
    assert [need.unit for need in needs_of(world.connection, 1, second.unit)] == [first.unit]
    world.send(Decide(unit=parent, trigger="plan"))
    drain(world)
    assert world.unit(second.unit).state == "completed"


def test_a_child_of_a_run_that_goes_on_may_need_what_is_yet_to_come(world: World) -> None:
    run, _ = world.send(
        Submit(
            work=(
                Work(task="run", lifecycle="workflow_run", ref="run"),
                Work(task="first", lifecycle="step", parent="run", ref="first"),
            )
        )
    )
    add(world, Work(task="last", lifecycle="step", parent=run.unit, step="last", needs=("middle",)))
    assert drain(world) == ['{"step":"first"}']
    assert world.unit(run.unit).state == "RUNNING", "it waits for what is yet to come"
    add(world, Work(task="middle", lifecycle="step", parent=run.unit, step="middle", needs=("first",)))
    assert drain(world) == ['{"step":"middle"}', '{"step":"last"}']
    assert world.unit(run.unit).state == "SUCCEEDED"


def test_a_name_that_is_nobodys_is_refused_where_it_could_never_come(world: World) -> None:
    with pytest.raises(Unknown, match="nothing in this request has the ref 'b'"):
        add(world, Work(task="a", needs=("b",)))
    with pytest.raises(Unknown, match="nothing in this request has the ref 'b'"):
        world.send(
            Submit(
                work=(
                    Work(task="run", lifecycle="workflow_run", ref="run"),
                    Work(task="a", lifecycle="step", parent="run", ref="a", needs=("b",)),
                )
            )
        )
    parent = workstream(world)
    world.cancel(parent)
    with pytest.raises(InterlockError, match="has ended"):
        add(world, task(parent, "a", "b"))
    assert world.count("place") == 0


def test_a_child_cannot_need_its_parent(world: World) -> None:
    parent = workstream(world)
    with pytest.raises(InterlockError, match="cannot need it: it does not end before its children"):
        add(world, task(parent, "a", after_end=(parent,)))
    assert world.unit(parent).total == 0


def test_a_circle_that_comes_in_pieces_is_refused_and_named(world: World) -> None:
    parent = workstream(world)
    add(world, task(parent, "a", "b"))
    add(world, task(parent, "b", "c"), task(parent, "x"))
    with pytest.raises(InterlockError, match="a circle of needs: c needs a needs b needs c; none of them could ever"):
        add(world, task(parent, "y"), task(parent, "c", "x", "a"))
    with pytest.raises(InterlockError, match="a circle of needs: d needs d;"):
        add(world, task(parent, "d", "d"))
    with pytest.raises(InterlockError, match="a circle of needs: e needs f needs e;"):
        add(world, task(parent, "e", "f"), task(parent, "f", "e"))
    assert world.unit(parent).total == 3
    add(world, task(parent, "c", "x"))
    world.send(Decide(unit=parent, trigger="plan"))
    drain(world)
    assert world.unit(parent).state == "validating"


def test_a_circle_of_commands_that_share_a_transaction_is_refused(world: World) -> None:
    parent = workstream(world)
    pages = [Submit(work=(task(parent, "a", "b"),)), Submit(work=(task(parent, "b", "c"), task(parent, "c", "a")))]
    committer = world.engine.committer
    futures = [committer.put(page) for page in pages]
    while committer.step():
        pass
    errors = [str(future.exception()) for future in futures]
    assert errors == ["None", "a circle of needs: b needs c needs a needs b; none of them could ever begin"]
    assert world.unit(parent).total == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_graph_may_come_in_any_order_in_pages_and_each_page_twice(world: World, seed: int) -> None:
    dice = random.Random(seed)
    parent = workstream(world)
    count = PAGES * PAGE
    works = [
        task(parent, f"t{n}", *{f"t{dice.randrange(n)}" for _ in range(dice.randrange(3))}) if n else task(parent, "t0")
        for n in range(count)
    ]
    dice.shuffle(works)
    for start in range(0, count, PAGE):
        page = works[start : start + PAGE]
        first = world.engine.send(Submit(work=tuple(page)))
        again = world.engine.send(Submit(work=tuple(page)))
        assert [answer.unit for answer in again] == [answer.unit for answer in first]
        assert not any(answer.created for answer in again)
    assert world.unit(parent).total == count
    declare(world.connection, 1)
    assert list(audit(world.connection, world.lifecycles)) == []
    for work in works:
        unit = child_named(world.connection, 1, parent, work.step or "").unit
        assert {need.name for need in needs_of(world.connection, 1, unit)} == set(work.needs)


def test_the_steps_of_a_template_have_their_names(world: World) -> None:
    steps = tuple(Work(task=name, lifecycle="step", ref=name) for name in ("a", "b"))
    world.send(DefineTemplate(name="t", steps=steps))
    run = world.submit("t", lifecycle="workflow_run", template="t")
    declare(world.connection, 1)
    assert world.body(child_named(world.connection, 1, run, "b").unit).task == "b"
    with pytest.raises(Unknown, match="has no child 'c'; it has 'a', 'b'"):
        child_named(world.connection, 1, run, "c")
    with pytest.raises(Unknown, match="no job, run or step 999"):
        child_named(world.connection, 1, 999, "a")
    with pytest.raises(Unknown, match="has no child"):
        child_named(world.connection, 1, run, "a\0")


def test_steps_that_nobody_named_are_called_like_their_task_and_the_first_keeps_the_name(world: World) -> None:
    run, first, second = world.send(
        Submit(
            work=(
                Work(task="run", lifecycle="workflow_run", ref="run"),
                Work(task="same", lifecycle="step", parent="run"),
                Work(task="same", lifecycle="step", parent="run"),
            )
        )
    )
    assert first.unit != second.unit
    declare(world.connection, 1)
    assert child_named(world.connection, 1, run.unit, "same").unit == first.unit


def test_a_child_with_a_name_is_not_replaced(world: World) -> None:
    parent = workstream(world)
    add(world, task(parent, "a", key="k"))
    with pytest.raises(InterlockError, match="'replace' is not allowed for a child with a name"):
        add(world, task(parent, "a", key="k", on_duplicate="replace"))
    (again,) = add(world, task(parent, "a", key="k"))
    assert not again.created


def test_names_leave_with_their_parents(world: World) -> None:
    parent = workstream(world)
    add(world, task(parent, "a", "b"))
    world.cancel(parent)
    assert world.count("place") == 2
    archive(world, parent)
    assert (world.count("place"), world.count("need")) == (0, 0)


PLANTED = (
    ("UPDATE body SET policy = '{}' WHERE unit = :unit", "it is the child 'a' of unit"),
    ("DELETE FROM place WHERE unit = :unit", "it is called 'a', and its parent knows no such child"),
    ("DELETE FROM place WHERE unit <> :unit", "which is not there, and no place is kept for it"),
)


@pytest.mark.parametrize(("sql", "text"), PLANTED, ids=["another name", "no place", "needs nothing"])
def test_the_audit_finds_a_name_that_is_wrong(world: World, server: str, sql: str, text: str) -> None:
    (child,) = add(world, task(workstream(world), "a", "b"))
    with behind_the_guard(world.connection, server) as database:
        database.rows(sql, {"unit": child.unit})
        texts = [broken.text for broken in audit(database, world.lifecycles) if broken.law == NAMES]
    assert any(text in each for each in texts), texts


def test_a_place_is_fixed_and_is_a_childs(world: World) -> None:
    parent = workstream(world)
    (child,) = add(world, task(parent, "a"))
    stranger = world.submit()
    wrong = {
        "UPDATE place SET name = 'b'": "identity",
        f"INSERT INTO place (parent, name, unit, tenant) VALUES ({parent}, 'b', {stranger}, 1)": "tenant",
        "INSERT INTO place (parent, name, unit, tenant) VALUES (999999, 'b', 999998, 1)": "tenant",
        f"INSERT INTO place (parent, name, unit, tenant) VALUES ({parent}, 'a', 999998, 1)": "",
        f"INSERT INTO place (parent, name, unit, tenant) VALUES ({parent}, 'b', {child.unit}, 1)": "",
    }
    for sql, law in wrong.items():
        declare(world.connection, 1)
        with pytest.raises(StoreError, match=law or "."):
            world.connection.rows(sql)
