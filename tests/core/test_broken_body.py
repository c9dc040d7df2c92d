"""A unit whose policy or body is broken: everybody who looks is told so, nobody sees a traceback, and audits find it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import interlock as product
from interlock.audit.laws.rows import BODIES, POLICIES, audit
from interlock.client.why import explain
from interlock.kernel.ids import format_id
from interlock.store.sqlite import SqliteConnection
from tests.conftest import Run
from tests.engine.tamper import behind_the_guard
from tests.engine.world import World
from tests.server.stage import staged
from tests.store.databases import Connection, declare

Break = Callable[[Connection, int], object]


def set_policy(owner: Connection, unit: int, text: str) -> None:
    owner.rows("UPDATE body SET policy = :text WHERE unit = :unit", {"text": text, "unit": unit})


BROKEN: dict[str, tuple[Break, str, str]] = {
    "no JSON": (lambda owner, unit: set_policy(owner, unit, "no json"), POLICIES, "cannot be read"),
    "no policy": (lambda owner, unit: set_policy(owner, unit, '{"attempts": "many"}'), POLICIES, "cannot be read"),
    "no body": (lambda owner, unit: owner.rows("DELETE FROM body WHERE unit = :unit", {"unit": unit}), BODIES, "body"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_why_says_so_and_the_audit_finds_it(world: World, server: str, how: str) -> None:
    break_it, law, said = BROKEN[how]
    unit, sound = world.submit(), world.submit()
    with behind_the_guard(world.connection, server) as owner:
        break_it(owner, unit)
    declare(world.connection, 1)
    why = explain(world.connection, 1, world.lifecycles, unit)
    assert said in why.text
    assert format_id("job", unit) in why.text
    assert explain(world.connection, 1, world.lifecycles, sound).reason == "no_workers"
    assert [(one.law, one.unit) for one in audit(world.connection, world.lifecycles)] == [(law, unit)]


@contextmanager
def broken_file(path: Path, how: str) -> Iterator[str]:
    """The id of a unit in this file that is broken so."""
    with product.open(f"sqlite:///{path}") as app:
        app.task(name="mail")(lambda: None)
        job = app.tasks["mail"].submit()
    connection = SqliteConnection(str(path))
    with behind_the_guard(connection, "") as owner:
        BROKEN[how][0](owner, job.unit)
    connection.close()
    yield job.id


@pytest.mark.parametrize("how", BROKEN)
def test_the_commands_say_so_without_a_traceback(tmp_path: Path, interlock: Run, how: str) -> None:
    url = f"sqlite:///{tmp_path}/work.db"
    with broken_file(tmp_path / "work.db", how) as job:
        why = interlock("why", job, "--db", url)
        assert (why.returncode, BROKEN[how][2] in why.stdout) == (0, True), why.stderr
        for command in ("show", "events"):
            done = interlock(command, job, "--db", url)
            assert "Traceback" not in done.stderr
            assert "no job, run or step" not in done.stderr
        found = json.loads(interlock("audit", "--db", url, "--json").stdout)["findings"]
        assert [one["law"] for one in found] == [BROKEN[how][1]]


@pytest.mark.parametrize("how", BROKEN)
def test_over_http_too(tmp_path: Path, how: str) -> None:
    path = tmp_path / "work.db"
    with broken_file(path, how) as job, staged(f"sqlite:///{path}") as stage:
        answer = stage.ask("GET", f"/v1/jobs/{job}/why")
        assert answer.status_code == 200, answer.text
        assert BROKEN[how][2] in answer.json()["text"]
        assert "Traceback" not in stage.ask("GET", f"/v1/jobs/{job}").text
