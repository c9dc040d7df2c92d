"""The worker's log lines: words to search for, facts as key=value and for JSON, and the reason."""

import asyncio
import logging
from typing import Any

import pytest

import interlock
from interlock.kernel.commands import Command, LeaseGrant, Tick
from interlock.kernel.errors import InterlockError
from interlock.worker.log_lines import log_event, log_job
from interlock.worker.ticker import WorkerTicker

GRANT = LeaseGrant(
    unit=1, task="mail", input="{}", attempt=2, fence=3, lease="secret", until=0, ttl_us=1, beat_us=0, correlation="",
    trace="",
)  # fmt: skip


def last(caplog: pytest.LogCaptureFixture) -> tuple[str, dict[str, Any]]:
    record = caplog.records[-1]
    return record.getMessage(), record.facts  # type: ignore[attr-defined]


def test_a_line_has_words_facts_and_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    log_event(logging.WARNING, "claim failed", "no such queue", worker="ann", queue="two words", empty="")
    assert last(caplog) == (
        'claim failed worker=ann queue="two words" empty="": no such queue',
        {"worker": "ann", "queue": "two words", "empty": "", "why": "no such queue"},
    )


def test_a_line_about_a_job_has_its_id_and_never_its_lease(caplog: pytest.LogCaptureFixture) -> None:
    log_job(logging.WARNING, "lease lost, handler stopped", GRANT, "LEASE_EXPIRED")
    text, facts = last(caplog)
    assert text == "lease lost, handler stopped id=job_1 task=mail attempt=2 fence=3: LEASE_EXPIRED"
    assert (facts["id"], facts["unit"], facts["run"], facts["attempt"], facts["fence"]) == ("job_1", 1, None, 2, 3)
    assert "secret" not in str((text, facts))


def test_a_line_below_the_level_costs_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.ERROR, "interlock.worker")
    monkeypatch.setattr("interlock.worker.log_lines.describe_job", None)
    log_job(logging.INFO, "job succeeded", GRANT)
    assert caplog.records == []


def test_a_tick_that_fails_is_called_so_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticked: list[int] = []

    class Client:
        async def send(self, command: Command[Any]) -> None:
            assert isinstance(command, Tick)
            ticked.append(command.tenant)
            if command.tenant == 1:
                raise InterlockError("its lifecycle is gone")
            if len(ticked) > 1:
                raise asyncio.CancelledError

    async def find_due_tenants() -> list[int]:
        return [1, 2]

    monkeypatch.setattr("interlock.worker.ticker.TICK_EVERY", 0)
    with interlock.open("sqlite://:memory:") as app:
        ticker = WorkerTicker(app, Client(), "ann")  # type: ignore[arg-type]
        monkeypatch.setattr(ticker, "find_due_tenants", find_due_tenants)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(ticker.run())
    assert ticked == [1, 2]
    assert last(caplog)[0] == "tick failed tenant=1: its lifecycle is gone"
