"""The id of what was submitted is known without a question, beside the database and across the network."""

import pytest

from interlock.kernel.ids import format_id
from interlock.testing import Stage


def test_the_id_of_what_was_submitted_needs_no_read(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    app = stage.app

    @app.task
    def mail(order: int) -> int:
        return order

    flow = app.workflow("flow", [mail])
    made = [mail.submit(order=1), *mail.submit_many([{"order": 2}, {"order": 3}]), flow.submit(order=4)]
    with monkeypatch.context() as patch:
        patch.setattr(app, "read", None)
        ids = [one.id for one in made]
    assert ids == [
        format_id(lifecycle, one.unit) for lifecycle, one in zip(["job"] * 3 + ["workflow_run"], made, strict=True)
    ]
    stage.drain()
    again = made[3].rerun(by="ann")  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(app, "read", None)
        assert again.id == format_id("workflow_run", again.unit)


def test_the_id_of_another_job_is_read_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    @stage.app.task
    def mail() -> None: ...

    made = mail.submit()
    found = stage.app.job(made.unit)
    assert found.id == made.id
    with monkeypatch.context() as patch:
        patch.setattr(stage.app, "read", None)
        assert found.id == made.id
