"""Work with a repository: who gets it, where it begins, what is merged, and what the law says of it."""

from typing import Any

import msgspec
import pytest

from interlock.audit.laws import audit
from interlock.kernel.commands import Claim, Decide, Finish, LeaseGrant, Outcome, Rerun, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.plugins import STANDARD
from interlock.plugins.repositories.options import RepositoryOrder, read_order
from interlock.store.queries.views import artifacts_of
from tests.engine.tamper import behind_the_guard
from tests.engine.test_claim_order import together
from tests.engine.world import World, held
from tests.store.databases import declare

MERGE = {"task": "git.merge", "input": '{"onto": "main"}'}


def said(**members: Any) -> str:
    return msgspec.json.encode(members).decode()


def site(**more: Any) -> dict[str, Any]:
    return {"repo": "site", **more}


def stream_of(world: World, *tasks: dict[str, Any], own: str | None = None) -> tuple[int, list[int]]:
    """A planned workstream on a repository, with tasks of these names."""
    own = said(repositories=site(), checks={"jobs": [MERGE]}) if own is None else own
    work = [Work(task="all", lifecycle="workstream", ref="all", options=own)]
    work += [Work(lifecycle="task", parent="all", step=f"t{n}", **{"task": "edit", **t}) for n, t in enumerate(tasks)]
    stream, *made = (answer.unit for answer in world.send(Submit(work=tuple(work))))
    world.send(Decide(unit=stream, trigger="plan"))
    return stream, made


def claim(world: World, worker: int) -> tuple[LeaseGrant, RepositoryOrder]:
    (grant,) = world.claim(worker)
    world.start(grant)
    order = read_order(grant.options)
    assert order is not None
    return grant, order


def finish_next(world: World, worker: int, role: str, result: dict[str, Any], **facts: Any) -> RepositoryOrder:
    grant, order = claim(world, worker)
    assert order.role == role
    assert world.finish(grant, result=said(**result), **facts).accepted
    return order


def merge(commit: str, base: str, merged: str) -> dict[str, str]:
    return {"commit": commit, "base": base, "merged": merged}


def test_work_with_a_repository_goes_to_a_worker_that_has_it(world: World) -> None:
    job = world.submit("build", options=said(repositories=site(ref="v1")))
    assert world.claim(world.worker("plain"), limit=9) == []
    assert world.claim(world.worker("other", capabilities=("repo:shop",)), limit=9) == []
    (grant,) = world.claim(world.worker("site", capabilities=("repo:site",)))
    order = RepositoryOrder(repo="site", role="work", name=format_id("job", job), ref="v1")
    assert (grant.unit, read_order(grant.options)) == (job, order)


def test_a_task_begins_at_the_last_accepted_merge(world: World) -> None:
    stream, (first, _) = stream_of(world, {}, {"needs": ("t0",)})
    worker, name = world.worker("site", capabilities=("repo:site",)), format_id("workstream", stream)
    order = finish_next(world, worker, "work", {"commit": "c1"})
    assert (order.name, order.branch, order.head, order.ref) == (name, f"interlock/{name}", "", "")
    assert world.unit(first).state == "validating"
    finish_next(world, worker, "merge", merge("m1", "b", "c1"))
    assert world.unit(first).state == "completed"
    assert finish_next(world, worker, "work", {"commit": "c2"}).head == "m1"
    assert finish_next(world, worker, "merge", merge("m2", "m1", "c2")).head == "m1"
    final = finish_next(world, worker, "merge", {"commit": "main1"})
    assert (final.head, final.onto) == ("m2", "main")
    assert world.unit(stream).state == "completed"


def test_what_a_stale_worker_says_is_not_where_anything_begins(world: World) -> None:
    stream_of(world, {}, {"needs": ("t0",)})
    worker, late = (world.worker(name, capabilities=("repo:site",)) for name in ("site", "late"))
    finish_next(world, worker, "work", {"commit": "c1"})
    stale, _ = claim(world, late)
    world.pass_time(120)
    world.tick()
    finish_next(world, worker, "merge", merge("m1", "b", "c1"))
    assert not world.finish(stale, result=said(**merge("forged", "b", "c1"))).accepted
    assert finish_next(world, worker, "work", {"commit": "c2"}).head == "m1"


def test_merges_into_one_workstream_exclude_each_other(world: World) -> None:
    stream_of(world, {}, {}, {})
    worker = world.worker("site", capabilities=("repo:site",))
    for grant in world.claim(worker, limit=9):
        world.start(grant)
        world.finish(grant, result=said(commit=f"c{grant.unit}"))
    heads = []
    for number in range(3):
        (grant,) = world.claim(worker, limit=9)  # one at a time
        order = read_order(grant.options)
        assert order is not None
        heads.append(order.head)
        world.start(grant)
        commit = msgspec.json.decode(dict(grant.outputs or ())["result"])["commit"]
        world.finish(grant, result=said(**merge(f"m{number}", order.head or "b", commit)))
    assert heads == ["", "m0", "m1"]


def test_a_merge_that_is_granted_as_another_is_accepted_begins_at_its_head(world: World) -> None:
    """The end of a merge and the next claim share a transaction: the mutex is free before the head was noted."""
    stream_of(world, {}, {})
    worker = world.worker("site", capabilities=("repo:site",))
    for grant in world.claim(worker, limit=9):
        world.start(grant)
        world.finish(grant, result=said(commit=f"c{grant.unit}"))
    grant, _ = claim(world, worker)
    commit = msgspec.json.decode(dict(grant.outputs or ())["result"])["commit"]
    end = Finish(outcomes=(Outcome(held=held(grant), result=said(**merge("m0", "b", commit))),))
    _, (following,) = together(world, end, Claim(worker=worker, key="next", nonce="n" * 16))
    order = read_order(following.options)
    assert order is not None
    assert (order.role, order.head) == ("merge", "m0")


def test_merges_of_several_workstreams_onto_one_branch_exclude_each_other(world: World) -> None:
    worker = world.worker("site", capabilities=("repo:site",))
    for _ in range(2):
        stream_of(world, {})
    for role, made in (("work", {"commit": "c"}), ("merge", merge("m", "b", "c"))):
        grants = world.claim(worker, limit=9)
        assert [getattr(read_order(grant.options), "role", "") for grant in grants] == [role, role]
        for grant in grants:
            world.start(grant)
            world.finish(grant, result=said(**made))
    (first,) = world.claim(worker, limit=9)
    world.start(first)
    assert world.claim(worker, limit=9) == []
    world.finish(first, result=said(commit="main1"))
    assert sorted(grant.task for grant in world.claim(worker, limit=9)) == ["git.clean", "git.merge"]


def test_the_merge_is_made_when_the_other_checks_have_passed(world: World) -> None:
    _, (task,) = stream_of(world, {"options": said(checks={"jobs": ["lint", "unit"]})})
    worker = world.worker("site", capabilities=("repo:site",))
    finish_next(world, worker, "work", {"commit": "c1"})
    grants = world.claim(worker, limit=9)
    assert {grant.task: getattr(read_order(grant.options), "role", "") for grant in grants} == {
        "lint": "check",
        "unit": "check",
    }
    for grant in grants:
        world.start(grant)
        world.finish(grant)
    finish_next(world, worker, "merge", merge("m1", "b", "c1"))
    assert world.unit(task).state == "completed"


def test_a_conflict_is_a_failed_validation_that_names_the_files(world: World) -> None:
    stream, (task,) = stream_of(world, {})
    worker = world.worker("site", capabilities=("repo:site",))
    finish_next(world, worker, "work", {"commit": "c1"})
    finish_next(
        world, worker, "merge", {}, ended="failure", error="it conflicts in a.txt", error_class="PermanentError"
    )
    assert world.unit(task).state == "failed"
    assert world.body(task).error == "check 'git.merge': it conflicts in a.txt"
    assert world.unit(stream).state == "failed"


def test_a_task_may_do_without_the_repository(world: World) -> None:
    _, (task,) = stream_of(world, {"options": said(repositories={"repo": ""}, checks={"jobs": []})})
    (grant,) = world.claim(world.worker("plain"))
    world.start(grant)
    world.finish(grant)
    assert world.unit(task).state == "completed"


@pytest.mark.req("R3-25")
def test_a_workstream_that_enters_its_gate_gets_a_merge_plan(world: World) -> None:
    own = said(repositories=site(ref="v1", branch="release"), checks={"jobs": ["smoke", MERGE]})
    stream, (task,) = stream_of(world, {}, own=own)
    worker = world.worker("site", capabilities=("repo:site",))
    finish_next(world, worker, "work", {"commit": "c1"})
    assert artifacts_of(world.connection, 1, stream) == []
    finish_next(world, worker, "merge", merge("m1", "b", "c1"))
    (artifact,) = artifacts_of(world.connection, 1, stream)
    assert artifact.name == "merge_plan"
    assert msgspec.json.decode(artifact.data) == {
        "workstream": format_id("workstream", stream), "repo": "site", "ref": "v1", "branch": "release",
        "head": "m1", "onto": ["main"],
        "merges": [{"task": "t0", "id": format_id("task", task), "commit": "c1", "head": "m1"}],
    }  # fmt: skip
    assert finish_next(world, worker, "check", {}).head == "m1"
    assert finish_next(world, worker, "merge", {"commit": "main1"}).onto == "main"  # after the other checks


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_a_workstream_that_has_ended_is_cleaned_up_after(world: World, end: str) -> None:
    stream, _ = stream_of(world, {})
    worker = world.worker("site", capabilities=("repo:site",))
    grant, _ = claim(world, worker)
    if end == "cancelled":
        world.cancel(stream)
    elif end == "failed":
        world.finish(grant, ended="failure", error_class="PermanentError")
    else:
        world.finish(grant, result=said(commit="c1"))
        finish_next(world, worker, "merge", merge("m1", "b", "c1"))
        finish_next(world, worker, "merge", {"commit": "main1"})
    assert world.unit(stream).state == end
    order = finish_next(world, worker, "clean", {"removed": 1, "kept": []})
    assert order.name == format_id("workstream", stream)
    assert world.claim(worker) == []


def test_a_workstream_that_never_began_has_nothing_to_clean_up(world: World) -> None:
    stream, _ = stream_of(world, {})
    world.cancel(stream)
    assert world.claim(world.worker("site", capabilities=("repo:site",)), limit=9) == []


def test_a_workstream_without_changes_has_no_head(world: World) -> None:
    stream_of(world, {})
    worker = world.worker("site", capabilities=("repo:site",))
    finish_next(world, worker, "work", {"commit": "b"})
    finish_next(world, worker, "merge", {**merge("b", "b", "b"), "already": True})
    assert finish_next(world, worker, "merge", {"already": True}).head == ""


def finish_all(world: World, worker: int, tag: str) -> dict[str, str]:
    """Everything is worked on; merges are called after their tasks. Returns where each task began."""
    began: dict[str, str] = {}
    while grants := world.claim(worker):
        (grant,) = grants
        world.start(grant)
        order = read_order(grant.options)
        assert order is not None
        if order.role == "work":
            began[grant.task] = order.head
            result: dict[str, Any] = {"commit": f"c{grant.task}"}
        elif order.role == "merge" and not order.onto:
            commit = msgspec.json.decode(dict(grant.outputs or ())["result"])["commit"]
            result = merge(f"{tag}{commit[1:]}", order.head or "b", commit)
        else:
            began[order.onto or order.role] = order.head
            result = {"commit": "x"}
        world.finish(grant, result=said(**result))
    return began


def test_a_rerun_from_a_task_on_begins_before_its_commit(world: World) -> None:
    """What was merged after it is done again too: it stands on what is left out. So it is in a rerun of a rerun."""
    needs = {"t0": (), "t1": ("t0",), "t2": ("t0",), "t3": ("t2",)}
    stream, _ = stream_of(world, *({"task": name, "needs": some} for name, some in needs.items()))
    worker = world.worker("site", capabilities=("repo:site",))
    began = finish_all(world, worker, "m")
    assert (began["t0"], began["t1"], began["main"]) == ("", "mt0", "mt3")

    def rerun(old: int, tag: str, **facts: Any) -> tuple[int, dict[str, str]]:
        fresh = world.send(Rerun(unit=old, **facts)).unit
        return fresh, finish_all(world, worker, tag)

    again, began = rerun(stream, "n", from_task="t2")
    assert (sorted(began), began["t2"], began["main"]) == (["clean", "main", "t2", "t3"], "mt1", "nt3")
    assert rerun(stream, "o", from_task="t3")[1]["t3"] == "mt2"
    began = rerun(stream, "p", from_task="t1")[1]
    assert (sorted(began), began["t1"]) == (["clean", "main", "t1", "t2", "t3"], "mt0")
    began = rerun(stream, "q", from_task="t0")[1]
    assert (len(began), began["t0"]) == (6, "")
    assert rerun(stream, "r", failed=True)[1]["main"] == "mt3"
    assert rerun(stream, "s")[1]["t0"] == ""
    began = rerun(again, "u", from_task="t3")[1]
    assert (sorted(began), began["t3"]) == (["clean", "main", "t3"], "nt2")
    began = rerun(again, "v", from_task="t1")[1]
    assert (sorted(began), began["t1"]) == (["clean", "main", "t1", "t2", "t3"], "mt0")


def test_what_only_the_engine_says_is_not_taken_from_others(world: World) -> None:
    forged = {"repo": "site", "role": "merge", "stream": 7, "onto": "main"}
    world.submit("build", options=said(repositories=forged))
    (grant,) = world.claim(world.worker("site", capabilities=("repo:site",)))
    order = read_order(grant.options)
    assert order is not None
    assert (order.role, order.onto, order.branch) == ("work", "", "")


@pytest.mark.parametrize(
    ("work", "why"),
    [
        ({"options": said(repositories={"repo": "a b"})}, "the repository 'a b' is not allowed; allowed are"),
        ({"options": said(repositories={"repo": "a,b"})}, "the repository 'a,b' is not allowed"),
        ({"options": said(repositories=site(ref="-x"))}, "the revision '-x' is not allowed"),
        ({"options": said(repositories=site(branch="a b")), "lifecycle": "workstream"}, "the branch 'a b' is not"),
        ({"options": said(repositories=site(branch="b"))}, "branch is not allowed for a job; a workstream has one"),
        ({"options": said(repositories={"repos": "x"})}, "option 'repositories': .*`repos`"),
        ({"options": said(repositories="site")}, "option 'repositories'"),
        ({"task": "git.merge"}, "'git.merge' cannot be submitted by itself"),
        ({"task": "git.clean"}, "'git.clean' cannot be submitted by itself"),
        ({"options": said(checks={"jobs": [MERGE]}), "lifecycle": "workstream"}, "a workstream that has a repository"),
        (
            {"options": said(repositories=site(), checks={"jobs": ["git.merge"]}), "lifecycle": "workstream"},
            r"names the branch that it moves, as in interlock.merge\(onto='main'\)",
        ),
        (
            {
                "options": said(repositories=site(), checks={"last": [{**MERGE, "input": '{"onto": "a b"}'}]}),
                "lifecycle": "workstream",
            },
            "the branch 'a b' is not allowed",
        ),
    ],
)
def test_what_is_wrong_is_refused(world: World, work: dict[str, Any], why: str) -> None:
    with pytest.raises(InterlockError, match=why):
        world.submit(**{"task": "build", **work})
    assert world.count("unit") == 0


def test_laws_notice_a_merge_that_no_result_names(world: World, server: str) -> None:
    stream, _ = stream_of(world, {}, {"needs": ("t0",)})
    worker = world.worker("site", capabilities=("repo:site",))
    for number, base in ((1, "b"), (2, "m1")):
        finish_next(world, worker, "work", {"commit": f"c{number}"})
        finish_next(world, worker, "merge", merge(f"m{number}", base, f"c{number}"))
    assert list(audit(world.connection, world.lifecycles, laws=STANDARD.laws)) == []
    with behind_the_guard(world.connection, server) as owner:
        declare(owner, 1)
        owner.rows(
            "UPDATE note SET payload = REPLACE(REPLACE(payload, '\"c2\"', '\"x2\"'), '\"m1\"', '\"x1\"') "
            "WHERE kind = 'merged' AND unit = :unit",
            {"unit": stream},
        )
    declare(world.connection, 1)
    broken = str(list(audit(world.connection, world.lifecycles, laws=STANDARD.laws)))
    assert "x2 was merged, which is not the result of task" in broken
    assert "x1 is its head, which is not the result of job" in broken
