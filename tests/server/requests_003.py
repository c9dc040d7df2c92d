"""A client of document 003 that only makes requests: it submits workstreams, works on their tasks, and looks at them."""

from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

import httpx
import msgspec

from interlock.client.http_codec import COMMANDS_PATH, RawCommandsResponse, decode_error, encode_command, find_scope
from interlock.client.remote_views import find_remote_view
from interlock.core.idempotency import answer_type
from interlock.kernel.commands import Claim, Command, LeaseGrant, LeaseRef, Register, SetTenant, Tick
from interlock.kernel.ids import format_id
from interlock.plugins import STANDARD
from tests.engine.test_workstream_histories import ENDS, FORWARD, TaskRow, derive
from tests.server.stage import Stage

A = TypeVar("A")
SECOND = 1_000_000
TENANTS = count(10)


class Clock:
    """The time of a server's database, which stands still until it is moved."""

    def __init__(self, stage: Stage) -> None:
        self.now_us = 1_700_000_000 * SECOND
        for connection in (*stage.app.engine.sessions, *stage.app.engine.readers.sessions):  # type: ignore[attr-defined]
            connection.keep_time(lambda: self.now_us)


class Requests:
    """What a program does with a key of its own, in a tenant of its own; time passes beside it."""

    def __init__(self, stage: Stage, clock: Clock) -> None:
        self.stage, self.clock, self.tenant, self.claims = stage, clock, next(TENANTS), 0
        stage.app.send(SetTenant(tenant=self.tenant, name=f"tenant {self.tenant}"))
        self.key = stage.key(tenant=self.tenant)

    def get(self, path: str) -> Any:
        return self.stage.get(path, key=self.key)

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        return self.stage.post(path, body, status=status, key=self.key)

    def ask(self, path: str, body: Any = None) -> httpx.Response:
        return self.stage.ask("POST", path, {} if body is None else body, key=self.key)

    def send(self, command: Command[A]) -> A:
        """Sends a command as the remote client does. Raises InterlockError if it is refused."""
        body = msgspec.Raw(encode_command(command))
        answer = self.ask(f"{COMMANDS_PATH}/{find_scope(command)}", {"commands": [msgspec.json.decode(body)]})
        assert answer.status_code == 200, answer.text
        (response,) = msgspec.json.decode(answer.content, type=RawCommandsResponse).answers
        if response.refused:
            raise decode_error(response.refused)
        sent: A = msgspec.json.decode(response.answer, type=answer_type(type(command)))
        return sent

    def read(self, query: Callable[..., Any], *args: Any) -> Any:
        """Asks a query as the remote client does."""
        view = find_remote_view(query, STANDARD.queries)
        body = msgspec.json.decode(view.encode_request(args, {}))
        answer = self.ask(view.path, body)
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=view.response_type).answer  # type: ignore[attr-defined]

    def pass_time(self, seconds: float) -> None:
        self.clock.now_us += round(seconds * SECOND)
        self.stage.app.send(Tick(tenant=self.tenant))

    # Workstreams and tasks.

    def submit(self, *tasks: dict[str, Any], **facts: Any) -> tuple[str, dict[str, str]]:
        """Returns the path of a new workstream, and its tasks by name; a task has one attempt unless it says more."""
        body = {"name": "site", "tasks": [{"attempts": 1, **task} for task in tasks], **facts}
        path = f"/v1/workstreams/{self.post('/v1/workstreams', body, 201)['id']}"
        return path, {task["name"]: task["id"] for task in self.get(f"{path}/tasks")["tasks"]}

    def job(self, job: str) -> Any:
        return self.get(f"/v1/jobs/{job}")

    def events(self, job: str) -> list[Any]:
        """Returns the events of a job, a run or a worker from the feed."""
        return list(self.get(f"/v1/events?limit=1000&job={job}")["events"])

    def names(self, job: str) -> list[str]:
        return [event["name"] for event in self.events(job)]

    def path(self, job: str) -> list[str]:
        return [event["to"] for event in self.events(job) if event["from"] != event["to"]]

    def look(self, path: str) -> str:
        """Returns the state of a workstream, which fits those of its tasks (R3-30, R3-32 to R3-34)."""
        state = str(self.get(path)["state"])
        counted = {task["name"]: task for task in reversed(self.get(f"{path}/tasks")["tasks"])}  # the newest of a name
        rows = [TaskRow(0, task["state"], task["critical"], 0) for task in counted.values()]
        derived = derive(rows)
        if state in FORWARD[1:]:
            assert FORWARD.index(derived) <= FORWARD.index(state), (state, rows)
            assert state != "validating" or derived == state
        assert state != "completed" or derived == "validating", rows
        assert derived != "failed" or state == "failed", rows
        assert state not in ENDS or all(row.state in ENDS for row in rows) or derived == "failed", rows
        return state

    # Workers.

    def worker(self, name: str = "w", **facts: Any) -> int:
        return self.send(Register(name=name, incarnation="1", **{"capacity": 100, **facts}))

    def show_worker(self, worker: int) -> Any:
        workers = self.get("/v1/workers?ended=true")["workers"]
        return {row["id"]: row for row in workers}[format_id("worker", worker)]

    def claim(self, worker: int, limit: int = 1) -> list[LeaseGrant]:
        self.claims += 1
        return self.send(Claim(worker=worker, key=f"c{self.claims}", nonce=f"{self.claims:0>16}", limit=limit))

    def report(self, verb: str, grant: LeaseGrant, **facts: Any) -> httpx.Response:
        """Says something of a task or a job that is held: start, heartbeat, finish or release."""
        name = format_id(grant.lifecycle, grant.unit)
        return self.ask(f"/v1/jobs/{name}/{verb}", {"fence": grant.fence, "lease": grant.lease, **facts})

    def finish(self, grant: LeaseGrant, **facts: Any) -> None:
        if grant.lifecycle == "job":
            assert self.report("start", grant).status_code == 200
        answer = self.report("finish", grant, **facts)
        assert answer.status_code == 200, answer.text

    def do(self, worker: int, **facts: Any) -> str:
        """A worker takes the next task, or a check, and ends it."""
        (grant,) = self.claim(worker)
        self.finish(grant, **facts)
        return grant.task


def held(grant: LeaseGrant) -> LeaseRef:
    return LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
