"""The inbox of an app: what waits for a person, for whom, and how it is answered, once and for all."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import interlock
from interlock.kernel.commands import Claim, Finish, LeaseRef, Outcome, Register, Start, Submit, Work
from interlock.kernel.errors import NotWanted, Unknown
from interlock.store.queries.views import view


@pytest.fixture
def app(url: str) -> Iterator[interlock.App]:
    with interlock.open(url) as app:
        yield app


def release(app: interlock.App, *approvals: str, tenant: int = 1, chained: bool = True, **facts: Any) -> list[int]:
    """A run of approvals, one after the other or all at once, submitted by sue."""
    work = [Work(task="release", lifecycle="workflow_run", ref="run")]
    for place, name in enumerate(approvals):
        needs = (approvals[place - 1],) if place and chained else ()
        own = {"input": '{"version":"1.2"}', **facts}
        work.append(Work(task=name, lifecycle="approval", parent="run", ref=name, needs=needs, **own))
    return [one.unit for one in app.send(Submit(work=tuple(work), actor="sue", tenant=tenant))]


def asked(app: interlock.App, **who: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [(item.task, item.words) for item in app.inbox(**who)]


def test_whatever_waits_for_a_person_is_in_one_list(app: interlock.App) -> None:
    release(app, "ship", "announce")
    app.send(Submit(work=(Work(task="stream", lifecycle="workstream"), Work(task="ci", lifecycle="ci_run"))))
    app.send(Submit(work=(Work(task="mail"), Work(task="goal", lifecycle="agent_run"))))
    assert asked(app) == [("ship", ("approve", "reject")), ("stream", ("plan",)), ("ci", ("plan",))]
    app.inbox.approve(app.inbox()[0].unit)
    assert [item.task for item in app.inbox()] == ["announce", "stream", "ci"]


def test_a_check_is_no_person_unless_somebody_asks(app: interlock.App) -> None:
    work = (Work(task="s", lifecycle="workstream", ref="s"), Work(task="t", lifecycle="task", parent="s"))
    stream, task = (one.unit for one in app.send(Submit(work=work)))
    app.inbox()[0].decide("plan", by="ann")
    worker = app.send(Register(name="w", incarnation="1"))
    (grant,) = app.send(Claim(worker=worker, nonce="n" * 16, key="k"))
    held = LeaseRef(unit=task, fence=grant.fence, lease=grant.lease)
    app.send(Start(held=(held,)))
    app.send(Finish(outcomes=(Outcome(held=held),)))
    assert asked(app) == []
    ((name, words),) = asked(app, checks=True)
    assert (name, "valid" in words) == ("t", True)
    app.inbox.find(stream, "valid").decide("valid", by="ann")
    assert [item.unit for item in app.inbox(checks=True)] == [stream]  # the whole is checked after its parts


def test_an_item_says_what_is_asked_of_whom_and_what_was_said(app: interlock.App) -> None:
    run, ship = release(app, "ship", approvers=("ann", "ops"), quorum=3, expires_us=3600_000_000, not_submitter=True)
    app.inbox.approve(run, comment="fine", by="bob", role="ops")
    (item,) = app.inbox()
    assert (item.unit, item.task, item.run, item.run_task) == (ship, "ship", app.job(run).id, "release")
    assert (item.approvers, item.quorum, item.given, item.submitter) == (("ann", "ops"), 3, 1, "sue")
    assert [(vote.voter, vote.roles, vote.comment, vote.approve) for vote in item.votes] == [
        ("bob", ("ops",), "fine", True)
    ]
    assert item.expires_at is not None
    assert item.expires_at - item.since == 3600_000_000
    assert item.input == {"version": "1.2"}
    assert repr(item) == f"<{item.id} ship: approve or reject>"


def test_everybody_sees_what_is_theirs(app: interlock.App) -> None:
    release(app, "a", approvers=("ann",), quorum=2)
    release(app, "o", approvers=("ops", "ann"), quorum=2)
    release(app, "any", quorum=2)
    release(app, "not sue", not_submitter=True)

    def tasks(**who: Any) -> list[str]:
        return [item.task for item in app.inbox(**who)]

    assert tasks() == ["a", "o", "any", "not sue"]
    assert tasks(by="ann") == ["a", "o", "any", "not sue"]
    assert tasks(by="bob") == ["any", "not sue"]
    assert tasks(by="bob", role="ops") == ["o", "any", "not sue"]
    assert tasks(role=["ops", "dev"]) == ["o", "any", "not sue"]
    assert tasks(by="sue") == ["any"]
    app.inbox(by="bob", role="ops")[0].approve(by="bob", role="ops")
    assert tasks(by="bob", role="ops") == ["any", "not sue"]


def test_pages_miss_nothing_and_repeat_nothing(app: interlock.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.client.inbox.PAGE", 4)
    runs = [release(app, "ship", approvers=("ann",) if place % 3 else ())[1] for place in range(23)]
    seen: list[int] = []
    while page := app.inbox(limit=5, after=seen[-1] if seen else None):
        seen += [item.unit for item in page]
    assert seen == runs
    assert [item.unit for item in app.inbox(by="bob", limit=5)] == runs[::3][:5]


def test_a_run_or_a_step_can_be_named(app: interlock.App) -> None:
    run, first, second = release(app, "first", "second")
    assert app.inbox.approve(app.job(run).id, by="ann").unit == first
    assert app.inbox.approve(run, by="ann").unit == second
    assert app.job(run).state == "SUCCEEDED"


def test_with_two_that_wait_one_must_be_named(app: interlock.App) -> None:
    run, first, second = release(app, "first", "second", chained=False)
    with pytest.raises(
        NotWanted, match=r"2 jobs or steps there wait for it; name one: approval_\w+ \(first\), approval_"
    ):
        app.inbox.approve(run)
    assert (app.job(first).state, app.job(second).state) == ("WAITING_APPROVAL", "WAITING_APPROVAL")
    assert app.inbox.approve(second).state == "SUCCEEDED"


def test_approving_where_nothing_waits_changes_nothing_and_says_so(app: interlock.App) -> None:
    work = (
        Work(task="release", lifecycle="workflow_run", ref="run"),
        Work(task="build", lifecycle="step", parent="run", ref="build"),
        Work(task="ship", lifecycle="approval", parent="run", needs=("build",)),
    )
    units = [one.unit for one in app.send(Submit(work=work))]
    before = [app.job(one).look() for one in units]
    for one in units:
        with pytest.raises(NotWanted, match="nothing there waits for 'approve'"):
            app.inbox.approve(one)
    assert [app.job(one).look() for one in units] == before
    (stream,) = (one.unit for one in app.send(Submit(work=(Work(task="s", lifecycle="workstream"),))))
    with pytest.raises(NotWanted, match=r"workstream_\w+ \(s\) waits for plan"):
        app.inbox.approve(stream)
    with pytest.raises(Unknown):
        app.inbox.approve(10**9)


def test_the_same_answer_again_changes_nothing(app: interlock.App) -> None:
    run, ship = release(app, "ship")
    item = app.inbox()[0]
    assert item.approve(by="ann").applied
    assert item.approve(by="ann").applied is False
    assert app.inbox.approve(ship, by="ann").applied is False
    assert item.approve(by="bob").applied is False
    with pytest.raises(NotWanted):
        app.inbox.reject(run, by="bob")
    assert app.job(run).state == "SUCCEEDED"


def test_fifty_at_once_make_one_transition(app: interlock.App) -> None:
    run, ship = release(app, "ship")
    before = app.read(view, ship).unit.version

    def answer(number: int) -> bool:
        try:
            return app.inbox.approve(run, by=f"p{number}").applied
        except NotWanted:
            return False

    with ThreadPoolExecutor(10) as pool:
        applied = list(pool.map(answer, range(50)))
    assert sum(applied) == 1
    assert app.read(view, ship).unit.version == before + 1
    assert app.job(run).state == "SUCCEEDED"


def test_another_tenant_sees_nothing(app: interlock.App, neighbour: Callable[[interlock.App], interlock.App]) -> None:
    _, ship = release(app, "ship")
    other = neighbour(app)
    assert other.inbox() == []
    with pytest.raises(Unknown):
        other.inbox.approve(ship)


def test_an_answer_can_be_awaited(app: interlock.App) -> None:
    run, _ = release(app, "ship", on_reject="fail")
    standing = asyncio.run(app.inbox()[0].reject.aio(comment="no", by="ann"))
    assert (standing.state, app.job(run).state) == ("CANCELED", "FAILED")
