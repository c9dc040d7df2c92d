"""What a worker's app knows of its tasks counts for every job of them, whoever submits it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import interlock
from interlock.core.effective_policy import policy_of
from interlock.kernel.commands import Submit, Work
from interlock.kernel.ids import parse_id
from interlock.store.queries.views import view
from tests.cli.inside import inside
from tests.server.house import housed
from tests.store.databases import fresh_postgres
from tests.worker.stage import PATIENCE, opened, unit, until, working


def test_a_worker_claims_no_task_that_it_does_not_know(url: str) -> None:
    """It would fail for want of a handler, and so spend the attempts that another worker needs."""

    async def story(app: interlock.App) -> None:
        @app.task
        async def known() -> str:
            return "done"

        (strange,) = await app.asend(Submit(tenant=app.tenant, work=(Work(task="strange", attempts=1),)))
        job = known.submit()
        async with working(app):
            assert await job.wait.aio(PATIENCE) == "done"
        other = unit(app.job(strange.unit))
        assert (other.fence, other.failures, other.outcome) == (0, 0, None)

    with opened(url) as app:
        asyncio.run(story(app))


@pytest.fixture(params=["sqlite file", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[str]:
    if request.param == "postgres":
        with fresh_postgres(server, f"known{abs(hash(tmp_path))}") as url:
            yield url
    else:
        yield f"sqlite:///{tmp_path}/work.db"


def app_with_rules(url: str) -> interlock.App:
    """An app whose task has rules, and whose worker has been there: the database could know them."""
    app = interlock.open(url)

    @app.task(queue="post", attempts=7, timeout="3m", priority=5, capabilities=["printer"])
    async def mail() -> None: ...

    async def story() -> None:
        async with working(app) as worker:
            async with asyncio.timeout(PATIENCE):
                while not worker.claims:
                    await asyncio.sleep(0.01)

    asyncio.run(story())
    return app


def rules(app: interlock.App, job: str) -> dict[str, Any]:
    """By which rules a job is done."""
    seen = app.read(view, parse_id(job))
    own = msgspec.to_builtins(policy_of(seen.body))
    return {
        "queue": seen.queue, "priority": seen.unit.priority, "capabilities": list(seen.capabilities),
        "attempts": own.get("attempts"), "timeout_us": own.get("timeout_us"),
    }  # fmt: skip


def test_a_job_that_its_app_submits_has_the_rules_of_its_task(database: str) -> None:
    with app_with_rules(database) as app:
        assert rules(app, app.tasks["mail"].submit().id) == {
            "queue": "post", "priority": 5, "capabilities": ["printer"], "attempts": 7, "timeout_us": 180_000_000,
        }  # fmt: skip


def test_a_job_that_comes_by_the_command_line_has_the_rules_of_its_task(database: str) -> None:
    with app_with_rules(database) as app:
        made = inside(database)("submit", "mail", "--json")
        assert rules(app, made.json["id"]) == rules(app, app.tasks["mail"].submit().id)


def test_a_job_that_comes_by_http_has_the_rules_of_its_task(database: str) -> None:
    with app_with_rules(database) as app, housed() as house, house.hosts(app) as key:
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "k"}
        made = httpx.post(f"{house.base}/v1/jobs", json={"task": "mail"}, headers=headers)
        assert rules(app, made.raise_for_status().json()["id"]) == rules(app, app.tasks["mail"].submit().id)


def test_a_program_that_names_no_rules_takes_the_stored_ones(database: str) -> None:
    """As a web server does that submits jobs, and leaves it to the workers how they are done."""
    with app_with_rules(database) as app, interlock.open(database) as other:

        @other.task
        async def mail() -> None: ...

        expected = rules(app, app.tasks["mail"].submit().id)
        assert rules(app, mail.submit().id) == expected
        assert rules(app, asyncio.run(submit_async(mail)).id) == expected
        assert rules(app, mail.submit(queue="default", priority=0).id) == {
            **expected, "queue": "default", "priority": 0,
        }  # fmt: skip


async def submit_async(task: Any) -> Any:
    return await task.submit.aio()


def test_a_program_of_another_day_is_told_the_right_arguments(database: str) -> None:
    with app_with_rules(database), interlock.open(database) as other:

        @other.task
        async def mail(to: str) -> None: ...

        with pytest.raises(interlock.InterlockError, match="it has no argument 'to'; it takes no arguments"):
            mail.submit("ann")
        assert other.jobs().count().count == 0


def test_tasks_are_read_over_http(database: str) -> None:
    with app_with_rules(database) as app, housed() as house, house.hosts(app) as key:
        headers = {"Authorization": f"Bearer {key}"}
        (listed,) = httpx.get(f"{house.base}/v1/tasks", headers=headers).raise_for_status().json()["tasks"]
        assert (listed["name"], listed["version"], listed["parameters"]) == ("mail", 1, [])
        assert listed["rules"] == {
            "queue": "post", "priority": 5, "capabilities": ["printer"], "attempts": 7, "timeout": "3m",
        }  # fmt: skip
        app.tasks["mail"].submit()
        shown = httpx.get(f"{house.base}/v1/tasks/mail", headers=headers).raise_for_status().json()
        assert (shown["waiting"], shown["running"]) == (1, 0)
        assert httpx.get(f"{house.base}/v1/tasks/strange", headers=headers).status_code == 404
        assert httpx.get(f"{house.base}/v1/tasks/mail?version=9", headers=headers).status_code == 404
        wrong = httpx.post(
            f"{house.base}/v1/jobs", json={"task": "mail", "input": {"a": 1}},
            headers={**headers, "Idempotency-Key": "w"},
        )  # fmt: skip
        assert wrong.status_code in (400, 422)
        assert "it has no argument 'a'" in wrong.text


def test_a_worker_says_at_its_start_what_it_does_not_understand(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(app: interlock.App) -> None:
        @app.task
        async def known(n: int) -> None: ...

        works = (Work(task="strange"), Work(task="elsewhere", queue="other"), Work(task="known", input='{"m": 1}'))
        await app.asend(Submit(tenant=app.tenant, work=works))
        async with working(app):
            await until(lambda: lines().count("not understood by this program") > 0)

    def lines() -> str:
        return "\n".join(record.getMessage() for record in caplog.records)

    with caplog.at_level("INFO", logger="interlock.worker"), opened(url) as app:
        asyncio.run(story(app))
    assert (
        "not understood by this program waiting=1 running=0: task 'strange': this program does not know it" in lines()
    )
    assert "elsewhere" not in lines()
