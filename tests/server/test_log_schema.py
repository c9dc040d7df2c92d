"""The log as programs read it: every line is of one shape, and who speaks of a job says which, of which run and lease."""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec
import pytest
from msgspec import Meta

from interlock.client.app import App
from interlock.store.connection import Connection
from tests.conftest import COMMAND

PATIENCE = 30.0
HEX16 = Meta(pattern="^[0-9a-f]{16}$")
MODULE = """
import interlock
app = interlock.open("sqlite:///work.db")

@app.task
async def good(ctx: interlock.Context) -> str:
    ctx.log.info("a word of the handler's own")
    return "done"

@app.task
async def bad() -> None:
    raise interlock.PermanentError("no route")

@app.task(process=True)
def apart(ctx: interlock.Context) -> int:
    ctx.log.warning("a word from another process")
    return 7
"""


class Line(msgspec.Struct, kw_only=True):
    """What every line has."""

    at: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")]
    level: Annotated[str, Meta(pattern="^(debug|info|warning|error|critical)$")]
    logger: Annotated[str, Meta(pattern=r"^[a-z_.]+$")]
    text: str


class OfJob(Line, kw_only=True, forbid_unknown_fields=True):
    """A line that speaks of a job, or of a step of a run."""

    id: Annotated[str, Meta(pattern="^[a-z_]+_[0-9a-hjkmnp-tv-z]+$")]
    unit: int
    run: int | None  # the unit of the run, if it is a step of one
    task: str
    attempt: int
    fence: int
    lease_hash: Annotated[str, HEX16]
    ended: str | None = None
    state: str | None = None
    why: str | None = None
    traceback: str | None = None


class OfRequest(Line, kw_only=True, forbid_unknown_fields=True):
    """A line of the server about a request."""

    method: str
    route: str
    status: int
    took_ms: float
    tenant: int | None
    key: str | None
    request: str
    unit: int | None = None  # the job or run that the path names


def until(true: Callable[[], object], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)


def kind_of(line: dict[str, Any]) -> type[Line]:
    if "route" in line:
        return OfRequest
    return OfJob if "unit" in line else Line


def leases(connection: Connection, tenant: int) -> dict[int, tuple[str, int | None]]:
    """By unit: the hash of its last lease, which the act that granted it tells, and its parent."""
    rows = connection.rows(
        "SELECT unit.id, units, secrets, parent FROM unit JOIN member ON member.unit = unit.id JOIN act ON act.id = member.act "
        "WHERE unit.tenant = :tenant AND secrets IS NOT NULL ORDER BY act.id",
        {"tenant": tenant},
    )
    return {unit: (json.loads(secrets)[json.loads(units).index(unit)], parent) for unit, units, secrets, parent in rows}


@pytest.mark.req("X-22")
def test_every_line_of_the_log_is_of_one_shape(tmp_path: Path) -> None:
    """Of a server and a worker that run jobs and a run: by success, by failure and in a process of their own."""
    (tmp_path / "mail.py").write_text(MODULE)
    log = tmp_path / "log"
    command = [str(COMMAND), "up", "mail:app", "--port", "0", "--log-format", "json"]
    with (
        log.open("w") as out,
        subprocess.Popen(
            command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=out, text=True
        ) as process,
    ):
        try:
            assert process.stdout
            said = ""
            while "Ctrl-C stops it" not in said:
                line = process.stdout.readline()
                assert line, log.read_text()
                said += line
            base = re.findall(r"http://127\.0\.0\.1:\d+", said)[0]
            key = re.findall(r"Bearer (\S+?)'", said)[0]
            units = made(base, key)
            until(lambda: all(f'"{one}"' in log.read_text() for one in units), log)
            process.terminate()
            assert process.wait(PATIENCE) == 0, log.read_text()
        finally:
            process.kill()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    read = [msgspec.convert(line, kind_of(line)) for line in lines]
    told = [line for line in read if isinstance(line, OfJob)]
    assert {line.task for line in told} == {"good", "bad", "apart"}
    own = {line.text for line in told if line.logger == "interlock.job"}
    assert own == {"a word of the handler's own", "a word from another process"}
    with App(f"sqlite:///{tmp_path}/work.db") as app:
        known = app.read(leases)
    for line in told:
        lease, run = known[line.unit]
        assert (lease[:16], run) == (line.lease_hash, line.run), line
    assert {line.run for line in told} > {None}  # there were steps of a run, too
    asked = [line for line in read if isinstance(line, OfRequest) and line.route.endswith("/{id}")]
    assert {line.unit for line in asked} == {one for _, one in known.values() if one is not None}


def made(base: str, key: str) -> list[str]:
    """Jobs of each kind, and a run of two steps; the ids of all that a worker does."""
    with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
        ids = [
            client.post("/v1/jobs", json={"task": task, "input": {}}).json()["id"] for task in ("good", "bad", "apart")
        ]
        steps = [{"task": "good", "input": {}}, {"task": "good", "input": {}}]
        run = client.post("/v1/runs", json={"task": "release", "steps": steps}).json()["id"]
        client.get(f"/v1/runs/{run}")
        return [*ids, *(one["id"] for one in client.get(f"/v1/runs/{run}/steps").json()["steps"])]
