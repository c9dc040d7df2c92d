"""The overview: how it went, by minute; and a question that takes too long takes nothing else with it."""

from urllib.parse import urlencode

import pytest

from interlock.server import history
from interlock.server.limits import Limits
from interlock.store.connection import Connection
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) SELECT count(*) FROM n"


def read_forever(connection: Connection, tenant: int, *given: object) -> None:
    connection.rows(ENDLESS)


def test_the_overview_tells_what_ended_waits_and_failed(
    visitor: Visitor, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        stage.job(queue="letters")
        stage.finish(stage.claim(queue="letters"))
    stage.job(queue="letters", attempts=1)
    stage.finish(stage.claim(queue="letters"), ended="failure", error="no", error_class="PermanentError")
    stage.job(queue="later")
    page = visitor.open("/ui/")
    for words in (
        "Done 3", "Waiting 1 1 can start now", "Failed attempts 1", "Workers 1", "Finished per minute", "successes 3",
        "failures 1", "PermanentError 1", "later 1", "letters 0",
    ):  # fmt: skip
        assert words in page.text, words
    sparks = [own["aria-label"] for tag, own in page.tags if tag == "svg" and own.get("class") == "spark"]
    assert [str(label).partition(":")[0] for label in sparks] == ["Done", "Waiting", "Failed attempts", "Workers"]
    assert not [tag for tag, own in page.tags if "style" in own]
    for name, step in (("24h", "Finished per 15 minutes"), ("7d", "Finished per 2 hours")):
        wide = visitor.open(f"/ui/?range={name}")
        assert step in wide.text
        assert "Done 3" in wide.text
        assert [own["href"] for tag, own in wide.tags if tag == "a" and own.get("aria-current") == "true"] == [
            f"/ui/?range={name}"
        ]
    assert "allowed are 1h, 24h, 7d" in visitor.open("/ui/?range=1y", 400).text

    monkeypatch.setattr(history, "read_history", read_forever)
    monkeypatch.setattr(stage.client.app.state.server, "limits", Limits(question_seconds=0.3))
    text = visitor.get("/ui/")
    assert "are left out: how it went" in Forms(text).text
    assert "later 1" in Forms(text).text
    assert '<svg class="chart"' not in text


def test_each_error_leads_to_those_whose_last_error_begins_so(visitor: Visitor, stage: Stage) -> None:
    declined, lost = (stage.job(queue=name, attempts=1) for name in ("a", "b"))
    stage.finish(stage.claim(queue="a"), ended="failure", error="CardDeclined: do not honour: 7")
    stage.finish(stage.claim(queue="b"), ended="failure", error="100%_lost: no")
    page = visitor.open("/ui/")
    assert "/ui/jobs?error=CardDeclined" in page.links
    assert "/ui/jobs?error=TransientError" in page.links  # what names no exception is told by its class
    for error, job, other in (("CardDeclined", declined, lost), ("100%_", lost, declined)):
        text = visitor.get(f"/ui/jobs?{urlencode({'error': error})}")
        assert job in text
        assert other not in text
        assert f"--error={error}" in text  # the same as a command
    preview = visitor.open("/ui/jobs/requeue?all=true&error=CardDeclined")
    assert "Requeue 1 dead letters?" in preview.text  # all that match are those that are listed
