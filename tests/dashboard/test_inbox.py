"""The inbox: in order over all its items, narrowed to one's own, and honest about who may vote."""

import time
from typing import Any

import pytest

from interlock.client.keys import issue_key
from interlock.dashboard import work_pages
from interlock.kernel.commands import CreateKey
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage


def ask(stage: Stage, task: str, **facts: Any) -> str:
    """Something that waits for a person; returns its id."""
    steps = [{"task": task, "lifecycle": "approval", **facts}]
    run = stage.post("/v1/runs", {"task": "release", "steps": steps}, status=201)["id"]
    return str(stage.get(f"/v1/runs/{run}/steps")["steps"][0]["id"])


def make_key(stage: Stage, *scopes: str) -> str:
    return issue_key(stage.app, CreateKey(name="ben", scopes=scopes, roles=("managers",))).text


def list_tasks(page: Forms) -> list[str]:
    """The tasks of the items, from top to bottom."""
    ids = [str(own["id"]) for tag, own in page.tags if tag == "article"]
    return [page.text[page.text.index(each.removeprefix("item-")) :].split()[0] for each in ids]


def test_the_order_is_one_over_all_pages(
    visitor: Visitor, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    ids = [ask(stage, f"t{place}", **({"expires_seconds": 3600 - place} if place % 2 else {})) for place in range(6)]
    monkeypatch.setattr(work_pages, "INBOX_ROWS", 4)
    wanted = [ids[place] for place in (5, 3, 1, 0, 2, 4)]
    first = visitor.open("/ui/inbox")
    assert list_tasks(first) == wanted[:4]
    assert "6 wait for a person" in first.text
    assert "Inbox (6)" in first.text
    (more,) = [link for link in first.links if "row=" in link]
    assert list_tasks(visitor.open(f"/ui/inbox{more}")) == wanted[4:]
    assert "allowed are 1 to 6" in visitor.open("/ui/inbox?row=7", 400).text
    assert visitor.send("GET", "/ui/inbox?checks=perhaps").status_code == 400
    monkeypatch.setattr(work_pages, "INBOX_MAX", 3)
    assert "more than 3 wait" in visitor.open("/ui/inbox").text


def test_a_vote_that_would_be_refused_is_greyed_with_the_reason(stage: Stage) -> None:
    ben = Visitor(stage).sign_in(make_key(stage, "read", "approve", "operate"))
    reasons = {
        ask(stage, "others", approvers=["cleo"]): "cleo may vote on it, and this key is 'ben'",
        ask(stage, "own", approvers=["managers"], quorum=2): "",
    }
    page = ben.open("/ui/inbox")
    for item, reason in reasons.items():
        action = f"/ui/inbox/{item}/approve"
        form = page.find(action)
        assert form["disabled"] == bool(reason)
        assert reason in page.text
        assert ben.open(f"/ui/jobs/{item}").find(f"/ui/jobs/{item}/approve")["disabled"] == bool(reason)
        if reason:
            answer = ben.send("POST", action, data=form["fields"])
            refused = stage.ask("POST", f"/v1/inbox/{item}/approve", {"by": "ben", "roles": ["managers"]})
            assert answer.status_code == refused.status_code == 403
            assert refused.json()["error"]["message"] in Forms(answer.text).text
    assert "whoever asked for it may not vote" not in page.text
    (own,) = [item for item, reason in reasons.items() if not reason]
    ben.press("/ui/inbox", f"/ui/inbox/{own}/approve", comment="fine")
    after = ben.open("/ui/inbox")
    assert "✓ ben approved (“fine”)" in after.text
    assert "you have voted on it" in after.text
    mine = [link for link in after.links if "by=ben" in link]
    assert list_tasks(ben.open(f"/ui/inbox{mine[0]}")) == []

    run = ben.stage.post(
        "/v1/runs", {"task": "release", "steps": [{"task": "four eyes", "lifecycle": "approval", "not_submitter": True}]},
        status=201, key=make_key(stage, "submit"),
    )["id"]  # fmt: skip
    assert run
    assert "whoever asked for it may not vote on it" in ben.open("/ui/inbox").text


def test_the_menu_has_the_numbers_that_the_counters_have(visitor: Visitor, stage: Stage) -> None:
    assert "Inbox Dead" in visitor.open("/ui/me").text
    for _ in range(2):
        ask(stage, "sign")
    stage.dead()
    until = time.monotonic() + 30
    while "Inbox 2 Dead letters 1 Start" not in visitor.open("/ui/me").text:  # they are kept for a second
        assert time.monotonic() < until
    stranger = Visitor(stage).sign_in(stage.foreign)
    assert "Inbox Dead letters Start" in stranger.open("/ui/me").text


def test_enter_in_the_comment_decides_nothing(visitor: Visitor, stage: Stage) -> None:
    ask(stage, "sign")
    page = visitor.open("/ui/inbox")
    place = page.tags.index(
        next((tag, own) for tag, own in page.tags if tag == "form" and "/inbox/" in str(own.get("action")))
    )
    first = next(own for tag, own in page.tags[place:] if tag == "button")
    assert {"disabled", "hidden"} <= first.keys()  # the button that a browser presses for Enter


def test_texts_of_several_lines_are_shown_as_they_are_and_long_inputs_share_the_page(
    visitor: Visitor, stage: Stage
) -> None:
    diff = "--- a\n+++ b\n-<old>\n+new"
    ask(stage, "merge", input={"diff": diff, "commit": "c0ffee"})
    text = visitor.get("/ui/inbox")
    assert "-&lt;old&gt;\n+new" in text
    assert "c0ffee" in text
    assert "\\n" not in text
    assert work_pages.cut_input("x" * 500, 200) == work_pages.CutInput(None, '"' + "x" * 199, [], True, 200)
    assert work_pages.cut_input(None, 200) == work_pages.CutInput(None, "", [], False, 0)
    cut = work_pages.cut_input({"a": "1\n" * 400, "b": 1}, 300)
    assert (cut.rest, cut.is_cut, [name for name, _ in cut.texts]) == ({"b": 1}, True, ["a"])
    assert len(cut.texts[0][1]) < 300
