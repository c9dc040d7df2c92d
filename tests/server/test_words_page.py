"""Every word of documents 001 and 002 has its rows in docs/documents/words.md, and every place there answers."""

import re
from typing import Any, NamedTuple

import pytest

from interlock.kernel.commands import REASONS, STAGES, Bury, Finish, Heartbeat, LeaseRef, Outcome, Record, Start
from interlock.kernel.ids import parse_id
from tests.cli.inside import Ask, inside
from tests.server.stage import Stage
from tests.server.test_words import claim_when_due
from tests.spec.documents import FOLDER, text

ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| `([^`]+)` \| (?:`([^`]+)`)? ?\|$", re.MULTILINE)


class Row(NamedTuple):
    word: str
    document: str
    place: str
    field: str


def listed() -> list[Row]:
    page = (FOLDER / "words.md").read_text(encoding="utf-8")
    rows = [Row(*found) for found in ROW.findall(page)]
    assert len(rows) == page.count("\n| `"), "a row cannot be read"
    return rows


def words_of_001() -> set[str]:
    """States, endpoints and fields: whatever stands in code, and what a success stores."""
    whole = text("001")
    spans = [one for one in re.findall(r"`([^`\n]+)`", whole) if not one.isdecimal()]
    routes = {one for one in spans if "/" in one}
    names = {name for one in spans if "/" not in one for name in re.findall(r"[A-Za-z][A-Za-z_-]{2,}", one)} - {"now"}
    stored = re.findall(r"Stores (\w+) and (\w+)", whole)[0]
    return routes | names | {*stored} | {*re.findall(r"^### (\w+Status)$", whole, re.MULTILINE)}


def words_of_002() -> set[str]:
    """States, events and their fields, reasons, fields of a dead letter, metrics, stages and classes of errors."""
    whole = text("002")
    found = set(re.findall(r"\b[a-zA-Z]+(?:_[a-zA-Z]+)+\b", whole)) | set(re.findall(r"\b\w+Error\b", whole))
    for part in re.findall(r"^States\n((?:- \w+: .*\n)+)", whole, re.MULTILINE):
        found |= set(re.findall(r"^- (\w+):", part, re.MULTILINE))
    for line in (r"Minimal event schema: \{(.*)\}", r"transition records: (.*)\.", r"Staged reasons: (.*)\."):
        found |= set(re.findall(r"\w+", re.findall(line, whole)[0]))
    found |= set(re.findall(r"\w+", re.findall(r"reason \((\w+(?:/\w+)+)\)", whole)[0]))
    metrics = re.findall(r"- Metrics: (.*) per job type", whole)[0]
    return (
        found
        | set(re.findall(r"\w+", metrics))
        | set(re.findall(r"\w+", re.findall(r"Required fields: (.*)\.", whole)[0]))
    )


@pytest.mark.parametrize(("document", "words"), [("001", words_of_001()), ("002", words_of_002())])
def test_every_word_of_a_document_has_a_row(document: str, words: set[str]) -> None:
    assert len(words) > 15
    assert words - {row.word for row in listed() if row.document == document} == set()


def test_a_row_is_about_a_word_of_its_document() -> None:
    for row in listed():
        if row.document in ("001", "002"):
            assert row.word in text(row.document), row


def held(grant: Any) -> tuple[LeaseRef]:
    return (LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease),)


def told(stage: Stage) -> dict[str, str]:
    """A story in which everything happens that the page tells of; the ids that it calls by name."""
    steps = [
        {"task": "build", "attempts": 3, "base_delay": 0.01},
        {"task": "APPROVAL", "lifecycle": "approval"},
        {"task": "ship"},
    ]
    more = {"reclaim_after": 300, "webhook_url": "https://ci.example/hook"}
    run = stage.post("/runs", {"task": "release", "steps": steps, **more}, status=201)["id"]
    stage.finish(stage.claim(), ended="failure", error="no")
    stage.finish(claim_when_due(stage), result='{"tag": 1}', cost=0.5)
    job = stage.job(queue="q", lease_ttl_sec=60, correlation_id="c", trace_id="t")
    grant = stage.claim(queue="q")
    stage.app.send(Start(held=held(grant)))
    stage.app.send(Heartbeat(held=held(grant)))
    stage.app.send(Record(held=held(grant), kind="compensation", name="pay", payload='{"task": "refund"}'))
    failed = Outcome(held=held(grant)[0], ended="failure", error="no", error_class="PermanentError")
    stage.app.send(Finish(outcomes=(failed,)))
    done = stage.job(queue="d")
    stage.finish(stage.claim(queue="q"))
    stage.finish(stage.claim(queue="d"))
    cancelled = stage.job(queue="c")
    stage.post(f"/v1/jobs/{cancelled}/cancel", {"hard": True})
    for code in REASONS:
        stage.app.send(Bury(unit=parse_id(stage.job(queue="b")), reason=code))
    for place in STAGES:
        dead = stage.job(queue=place, attempts=1)
        stage.finish(stage.claim(queue=place), ended="failure", error="no", stage=place)
    return {"run": run, "job": job, "done": done, "cancelled": cancelled, "dead": dead}


def walked(value: Any, path: str) -> list[Any]:
    """All that lies at a path such as `types[].run.p50`; empty if nothing does."""
    found = [value]
    for part in path.split("."):
        name = part.removesuffix("[]")
        found = [one[name] for one in found if isinstance(one, dict) and name in one]
        if part.endswith("[]"):
            found = [each for one in found for each in one]
    return found


class Asker:
    """Asks a server and the command line for what a row says."""

    def __init__(self, stage: Stage, ask: Ask, ids: dict[str, str]) -> None:
        self.stage, self.ask, self.ids = stage, ask, ids
        self.api = stage.ask("GET", "/openapi.json", key="").json()
        self.kept: dict[str, Any] = {}

    def holds(self, row: Row) -> bool:
        if row.place.startswith("interlock "):
            return self.told(self.run(row.place), row.field)
        method, path = row.place.split()
        paths = [path, f"/v1{path}"] if path.startswith("/runs") else [path]
        return all(self.answers(method, one, row.field) for one in paths)

    def answers(self, method: str, path: str, field: str) -> bool:
        operation = self.operation(method, path)
        if operation is None:
            return False
        if field.startswith("body."):
            return field.removeprefix("body.") in self.taken(operation)
        if field.startswith(("query ", "header ")):
            return self.is_parameter(operation, field)
        if method == "POST":
            return self.is_done(path)
        return self.told(self.got(path), field)

    def operation(self, method: str, path: str) -> Any:
        """How the API describes it; ids are parameters there."""
        plain = re.sub(r"\{\w+\}", "{id}", path.partition("?")[0])
        plain = re.sub(r"^(/v1/lifecycles)/\w+$", r"\1/{name}", plain)
        return self.api["paths"].get(plain, {}).get(method.lower())

    def taken(self, operation: Any) -> Any:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        return self.api["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]

    def is_parameter(self, operation: Any, field: str) -> bool:
        kind, name, *value = field.replace(" =", "").split()
        found = [one for one in operation["parameters"] if (one["in"], one["name"]) == (kind, name)]
        return bool(found) and all(word in str(found[0]["schema"]) for word in value)

    def is_done(self, path: str) -> bool:
        """The order is carried out, on a run of its own."""
        body = {"task": "release", "steps": [{"task": "a"}]} if path.endswith("/runs") else {}
        answer = self.stage.ask("POST", path.replace("{run}", self.stage.run()), body)
        return answer.status_code in (200, 201) and answer.json().get("applied", True)

    def got(self, path: str) -> Any:
        if path not in self.kept:
            answer = self.stage.ask("GET", path.format(**self.ids))
            assert answer.status_code == 200, (path, answer.text)
            plain = answer.headers["content-type"].startswith("text/plain")
            self.kept[path] = answer.text if plain else answer.json()
        return self.kept[path]

    def run(self, command: str) -> Any:
        if command not in self.kept:
            self.kept[command] = self.ask(*command.format(**self.ids).split()[1:]).json
        return self.kept[command]

    def told(self, answer: Any, field: str) -> bool:
        if isinstance(answer, str):
            return f"# TYPE {field} " in answer
        path, _, value = field.partition(" = ")
        found = walked(answer, path)
        return value in found if value else bool(found)


def test_every_place_answers(stage: Stage, url: str) -> None:
    asker = Asker(stage, inside(url), told(stage))
    assert [row for row in listed() if not asker.holds(row)] == []


def test_a_place_that_does_not_answer_is_noticed(stage: Stage, url: str) -> None:
    asker = Asker(stage, inside(url), {"run": stage.run(), "job": stage.job()})
    for place, field in (
        ("GET /runs/{run}", "mood"),
        ("GET /nowhere", "status"),
        ("POST /runs/{run}/praise", ""),
        ("POST /runs", "body.mood"),
        ("POST /runs", "header Mood"),
        ("GET /metrics", "interlock_moods_total"),
        ("GET /v1/lifecycles/job", "states[].name = happy"),
        ("interlock show {job} --json", "mood"),
    ):
        assert not asker.holds(Row("word", "001", place, field)), place
