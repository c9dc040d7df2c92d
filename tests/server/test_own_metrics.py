"""The server tells what its own process does: commands, commits and statements, as an observer of its engine saw them."""

import re

from interlock.kernel.errors import InterlockError, Unavailable
from interlock.server.own_metrics import BOUNDS, Histogram, MetricsObserver, name_outcome
from tests.server.stage import Stage

SAMPLE = re.compile(r"^(interlock_server_\w+)(?:\{(.*)\})? (\S+)$", re.M)


def scrape(stage: Stage, key: str | None = None) -> dict[str, float]:
    answer = stage.ask("GET", "/metrics/server", key=key)
    assert answer.status_code == 200, answer.text
    return {f"{name}{{{labels}}}": float(value) for name, labels, value in SAMPLE.findall(answer.text)}


def count(samples: dict[str, float], command: str, outcome: str) -> float:
    return samples.get(f'interlock_server_command_seconds_count{{command="{command}",outcome="{outcome}"}}', 0)


def test_commands_commits_and_statements_are_counted(inside: Stage) -> None:
    stage, before = inside, scrape(inside)
    for _ in range(3):
        stage.job()
    stage.post("/v1/jobs/job_zzzzzz/cancel", status=404)
    stage.post("/v1/schedules/none/pause", status=404)
    after = scrape(stage)
    assert count(after, "Submit", "ok") - count(before, "Submit", "ok") == 3
    assert count(after, "PauseSchedule", "refused") - count(before, "PauseSchedule", "refused") == 1
    for name in ("commit_seconds_count{}", "units_total{}", 'statement_seconds_count{kind="INSERT"}'):
        name = f"interlock_server_{name}"
        assert after[name] - before.get(name, 0) >= 3, name
    assert after["interlock_server_failed_commits_total{}"] == 0


def test_a_tenant_is_shown_its_own_commands_alone(inside: Stage) -> None:
    stage = inside
    stage.job(key=stage.foreign)
    assert count(scrape(stage), "Submit", "ok") == 0
    assert count(scrape(stage, key=stage.foreign), "Submit", "ok") == 1


def test_a_duration_is_in_the_bucket_that_it_fits() -> None:
    histogram = Histogram()
    for seconds in (0.0, BOUNDS[0], BOUNDS[-1] + 1):
        histogram.add(seconds)
    assert [number for _, number in histogram.list_buckets()] == [2.0] * len(BOUNDS) + [3.0]


def test_a_refusal_is_no_failure() -> None:
    outcomes = [name_outcome(error) for error in (None, InterlockError("no"), Unavailable("away"), ValueError("bug"))]
    assert outcomes == ["ok", "refused", "error", "error"]
    observer = MetricsObserver()
    observer.on_commit(2, 0.1, Unavailable("away"))
    assert (observer.failed_commits, observer.units) == (1, 0)
