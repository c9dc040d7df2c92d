"""Text of strangers is shown as text: in every field of every page, in HTML and in drawings; none runs, none breaks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.dashboard.job_pages import TABS
from interlock.dashboard.site import collect_pages
from interlock.kernel.commands import (
    PERMANENT,
    Bury,
    Cancel,
    Claim,
    CreateKey,
    DefineSchedule,
    DefineTask,
    DefineTemplate,
    Finish,
    LeaseRef,
    Outcome,
    PauseWork,
    Record,
    Register,
    Start,
    Submit,
    Vote,
    Work,
)
from interlock.kernel.ids import format_id
from interlock.kernel.parameters import Parameter
from interlock.plugins import STANDARD
from tests.dashboard.browsing import NEEDS_CHROMIUM, Site, browsing

pytestmark = NEEDS_CHROMIUM
HOSTILE = (
    "\"'><img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>",
    "javascript:alert(4) \u202egnp.exe \u2066x\u2069 \ufeff\u200b\x07\x1b[31m\u2028",
    "{{ 7 * 7 }}{% raw %}&lt;b&gt;</title></textarea></pre><style>*{display:none}</style>",
    "W" * 150 + "\U0001f4a3\u0301\u0301\u0301 ünïcödé",
)
LAW = """
name = "stranger"
title = {text}
about = {text}
[states]
open = {{ category = "gate", deadline = "none", cancel = "refused", cancel_why = {text}, deadline_why = {text}, about = {text} }}
done = {{ category = "success", about = {text} }}
[birth]
submit = {{ to = "open" }}
[moves.open]
finish = {{ to = "done", owner = "person", note = {text} }}
"""


def plant(app: App, text: str) -> dict[str, str]:
    """Puts a text into every field that strangers write. Returns the ids of what has them, by page."""
    name = text.replace(",", ";").replace("\0", "")[:190]
    given = msgspec.json.encode({text: [text, {text: text}]}).decode()
    facts: dict[str, Any] = {
        "task": name, "queue": name, "correlation": name, "input": given, "limit_key": name, "limit": 9,
        "labels": msgspec.json.encode({name[:60]: name}).decode(),
    }  # fmt: skip
    who = {"actor": name}
    app.send(DefineTask(work=Work(task=f"{name[:180]} form"), parameters=(Parameter("x", ("text",), text=text),)))
    app.send(DefineTemplate(name=name, steps=(Work(task=name, ref=name[:100]),)))
    app.send(DefineSchedule(name=name[:150], timing="0 3 * * *", work=Work(task=name), **who))
    job = app.send(Submit(work=(Work(**facts, key=name, attempts=1),), **who))[0].unit
    gate = {"task": name, "lifecycle": "approval", "parent": "run", "approvers": (name, "other"), "quorum": 2}
    steps = (
        Work(**facts, lifecycle="workflow_run", ref="run"), Work(**facts, lifecycle="step", parent="run", step=name),
        Work(**gate, step=f"2{name}"[:190], input=given),
    )  # fmt: skip
    run = app.send(Submit(work=steps, **who))[0].unit
    worker = app.send(Register(name=name, incarnation="i", capacity=9, capabilities=(name,)))
    for number in range(2):
        (grant,) = app.send(Claim(worker=worker, key=f"c{number}", nonce="n" * 16, queues=(name,), limit=1))
        held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
        app.send(Start(held=(held,)))
        for kind in ("step", "progress"):
            app.send(Record(held=(held,), kind=kind, name=name, payload=given))
        failed = Outcome(held=held, ended="failure", error=text, error_class=PERMANENT, traceback=text)
        app.send(Finish(outcomes=(failed if number == 0 else Outcome(held=held, result=given),)))
    (item,) = [item for item in app.inbox() if item.lifecycle == "approval"]
    app.send(Vote(unit=item.unit, voter=name, approve=True, actor=name, reason=text))
    own = app.send(Submit(work=(Work(task=name, lifecycle="stranger", input=given),)))[0].unit
    ended, dead = (app.send(Submit(work=(Work(**facts),)))[0].unit for _ in range(2))
    app.send(Cancel(unit=ended, reason=text, **who))
    app.send(Bury(unit=dead, reason="timeout", **who))
    app.send(PauseWork(queue=name, reason=text, **who))
    app.send(Submit(work=(Work(**facts),)))
    return {
        "job": format_id("job", job), "run": format_id("workflow_run", run), "gate": item.id,
        "ended": format_id("job", ended), "own": format_id("stranger", own), "name": name,
    }  # fmt: skip


def list_pages(made: dict[str, str]) -> list[str]:
    """The path of each page, and of each tab and view."""
    job, run, name = made["job"], made["run"], quote(made["name"], safe="")
    form = quote(f"{made['name'][:180]} form", safe="")
    known = {
        "/jobs/{id}": f"/jobs/{job}", "/runs/{id}": f"/runs/{run}", "/lifecycles/{name}": "/lifecycles/stranger",
        "/search": f"/search?q={name}", "/start/form": f"/start/form?task={form}",
        "/jobs/cancel": f"/jobs/cancel?all=true&queue={name}&reason={name}",
        "/jobs/requeue": f"/jobs/requeue?all=true&task={name}", "/dead-letters/requeue": f"/dead-letters/requeue?task={name}",
    }  # fmt: skip
    paths = [known.get(page.path, page.path) for page in collect_pages(STANDARD) if page.template]
    paths += [f"/jobs/{made[each]}" for each in ("gate", "ended", "own")]
    paths += [f"/jobs/{job}?tab={tab}" for tab in TABS] + [f"/jobs/{job}?version=2", f"/runs/{run}?view=tree"]
    paths += [
        f"/start/form?workflow={name}",
        f"/start/form?task={form}&again={job}",
        f"/start/form?task={form}&sent=1&arg.x={name}",
    ]
    return [*paths, f"/jobs?task={name}&state={name}", f"/jobs?task={name}&queue={name}"]


@pytest.fixture(params=range(len(HOSTILE)))
def planted(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[tuple[Site, list[str]]]:
    text = HOSTILE[request.param]
    law = tmp_path / "stranger.toml"
    law.write_text(LAW.format(text=msgspec.json.encode(text).decode().replace("\x7f", "")), encoding="utf-8")
    with App(f"sqlite:///{tmp_path}/work.db", lifecycles=[law]) as app, browsing(app, browser) as site:
        paths = list_pages(plant(app, text))
        site.key = issue_key(app, CreateKey(name=text.replace("\0", "")[:190], scopes=("admin",), roles=("r",))).text
        yield site, paths


def test_text_of_strangers_runs_nothing_and_breaks_no_page(planted: tuple[Site, list[str]]) -> None:
    site, paths = planted
    page, alerts = site.open(), list[str]()
    page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    for path in paths:
        answer = page.goto(f"{site.base}/ui{path}")
        assert answer.status == 200, (path, answer.status)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        assert page.locator("main h1").count() == 1, path
        assert page.locator("img, main script, main style, [onload], [onerror], [href^='javascript:']").count() == 0, (
            path
        )
        text = answer.text()
        assert not [char for char in text if not (char.isprintable() or char in "\n\t")], path
        assert page.title().endswith("· Interlock"), path
    assert alerts == []
