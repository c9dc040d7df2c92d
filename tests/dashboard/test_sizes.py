"""However much there is, a page stays small: its lists go on on another page, and long values are behind a link."""

import json
from pathlib import Path

import pytest

from interlock.dashboard import site
from interlock.kernel.commands import Register, Submit, Tick, Vote, Work
from interlock.kernel.ids import format_id
from interlock.plugins import STANDARD
from tests.dashboard.visitor import Visitor
from tests.server.stage import Stage

PAGE_MOST, FILES_MOST = 60 * 1024, 70 * 1024  # bytes
LINES_MOST = 150  # of our own scripts
MANY = 60
LONG = "it broke, and tells of it at length: " * 12
INPUT = json.dumps({f"field {number}": "words " * 6 for number in range(60)})


def fill(stage: Stage) -> dict[str, str]:
    """Makes more of everything than a page shows, and returns the pages of what has most below it."""
    send = stage.app.send
    for number in range(MANY):
        send(Submit(work=(Work(task=f"task {number}", queue=f"queue {number}", key=f"key {number}", input=INPUT),)))
        send(Register(name=f"worker {number}", incarnation="i", capacity=2, capabilities=("gpu", "big")))
    for number in range(MANY):
        stage.job(task=f"dead {number}", queue="dead", attempts=1)
        stage.finish(stage.claim(queue="dead"), ended="failure", error=f"Error{number}: {LONG}")
    gates = tuple(Work(task=f"sign {number}", lifecycle="approval", parent="run", quorum=2, input=INPUT)
                  for number in range(MANY))  # fmt: skip
    top = send(Submit(work=(Work(task="release", lifecycle="workflow_run", ref="run"), *gates)))[0]
    for item in stage.app.inbox()[:30]:
        send(Vote(unit=item.unit, voter="ben", approve=True, reason=LONG))
    job = stage.job(queue="often", attempts=100, task="often")
    for _ in range(MANY):
        stage.finish(stage.claim(queue="often"), ended="failure", error=LONG, after_us=1)
        send(Tick(tenant=1))
    return {"/jobs/{id}": f"/jobs/{job}", "/runs/{id}": f"/runs/{format_id('workflow_run', top.unit)}"}


def test_every_page_keeps_to_its_size(visitor: Visitor, stage: Stage) -> None:
    known = fill(stage) | {"/lifecycles/{name}": "/lifecycles/ci_job", "/search": "/search?q=often",
                           "/start/form": "/start"}  # fmt: skip
    pages = [known.get(page.path, page.path) for page in site.collect_pages(STANDARD) if page.template]
    job, run = (
        known["/jobs/{id}"],
        known["/runs/{id}"],
    )  # whose graph is drawn when it is asked for, and as large as it is
    pages += [*(f"{job}?tab={tab}" for tab in ("attempts", "leases")), f"{job}?from=31", f"{job}?version=100",
              f"{run}?view=tree", "/queues?row=41", "/jobs?category=dead", "/?range=7d",
              "/dead-letters/requeue?reason_code=exhausted_retries", "/jobs/cancel?all=true&category=ready"]  # fmt: skip
    sizes = {path: len(visitor.get(f"/ui{path}").encode()) for path in pages}
    assert {path: size for path, size in sizes.items() if size > PAGE_MOST} == {}


def test_the_files_that_pages_load_are_small() -> None:
    files = [path for path in (Path(site.__file__).parent / "static").iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= FILES_MOST
    scripts = [path.read_text(encoding="utf-8").splitlines() for path in files if path.suffix == ".js"]
    assert sum(map(len, scripts)) <= LINES_MOST


def test_a_tab_goes_on_where_its_page_ends(visitor: Visitor, stage: Stage) -> None:
    job = stage.job(attempts=100)
    for _ in range(20):
        stage.finish(stage.claim(), ended="failure", error="no", after_us=1)
        stage.app.send(Tick(tenant=1))
    versions = stage.get(f"/v1/jobs/{job}")["version"]
    first = visitor.open(f"/ui/jobs/{job}")
    assert f"1 to 30 of {versions}" in first.text
    (more,) = {link for link in first.links if "from=31" in link}
    assert f"31 to 60 of {versions}" in visitor.open(f"/ui/jobs/{job}{more.partition('#')[0]}").text
    rest = visitor.open(f"/ui/jobs/{job}?from=61")
    assert f"61 to {versions} of {versions}" in rest.text
    assert "job_queued" in rest.text  # its birth, which is the last
    assert "allowed are 1 to" in visitor.open(f"/ui/jobs/{job}?from={versions + 1}", 400).text


@pytest.mark.parametrize("name", ["input", "result"])
def test_ten_megabytes_are_folded_and_whole_behind_a_link(visitor: Visitor, stage: Stage, name: str) -> None:
    text = json.dumps("<b>" + "x" * 10_000_000)
    if name == "input":
        job = format_id("job", stage.app.send(Submit(work=(Work(task="mail", input=text),)))[0].unit)
    else:
        job = stage.job()
        stage.finish(stage.claim(), result=text)
    page = visitor.open(f"/ui/jobs/{job}")
    assert len(visitor.get(f"/ui/jobs/{job}").encode()) <= PAGE_MOST
    assert f"/ui/jobs/{job}/{name}" in page.links
    assert "Folded, because it is long" in page.text
    answer = visitor.send("GET", f"/ui/jobs/{job}/{name}")
    assert answer.headers["content-type"].startswith("text/plain")
    assert json.loads(answer.text) == json.loads(text)
    assert len(visitor.get("/ui/jobs").encode()) <= PAGE_MOST
