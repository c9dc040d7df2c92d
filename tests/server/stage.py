"""A server inside the test's own process, two tenants, and a key for every purpose."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from litestar.testing import TestClient

from interlock.cli.logs import JsonFormatter
from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.kernel.commands import (
    Archive,
    Claim,
    CreateKey,
    DefineSchedule,
    Finish,
    LeaseGrant,
    LeaseRef,
    Outcome,
    Register,
    SetTenant,
    Start,
    Work,
)
from interlock.server.limits import Limits
from tests.server.served import serve

OWN, FOREIGN = 1, 2
MANY = Limits(wrong_keys=1_000_000)  # most stories show wrong keys, and ask what each is told


class Stage:
    """What a story plays on: the client of a server, its app, and keys."""

    def __init__(self, app: App, client: Any, beside: "Stage | None" = None) -> None:
        self.app, self.client, self.claims = app, client, 0
        self.secrets: set[str] = set()  # keys and leases that were given out
        if beside:  # another server of the same database
            self.own, self.foreign = beside.own, beside.foreign
        else:
            self.app.send(SetTenant(tenant=FOREIGN, name="other"))
            self.own, self.foreign = self.key(), self.key(tenant=FOREIGN)

    def key(self, *scopes: str, tenant: int = OWN, **facts: Any) -> str:
        order = CreateKey(name="ci", scopes=scopes or ("admin", "vouch", "shell"), tenant=tenant, **facts)
        made = issue_key(self.app, order).text
        self.secrets |= {made, made.rpartition("_")[2]}
        return made

    def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """A request; with the key of an administrator unless another is given, and none if that is empty."""
        key = self.own if key is None else key
        sent = {**({"Authorization": f"Bearer {key}"} if key else {}), **(headers or {})}
        more = {} if body is None else {"json": body}
        return self.client.request(method, path, headers=sent, **more)

    def get(self, path: str, **facts: Any) -> Any:
        answer = self.ask("GET", path, **facts)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, *, status: int = 200, **facts: Any) -> Any:
        answer = self.ask("POST", path, {} if body is None else body, **facts)
        assert answer.status_code == status, answer.text
        return answer.json()

    def job(self, key: str | None = None, **facts: Any) -> str:
        return str(self.post("/v1/jobs", {"task": "mail", **facts}, status=201, key=key)["id"])

    def run(self, key: str | None = None) -> str:
        """A run that waits for an approval."""
        steps = [{"task": "sign", "lifecycle": "approval"}, {"task": "ship"}]
        return str(self.post("/v1/runs", {"task": "release", "steps": steps}, status=201, key=key)["id"])

    def archive(self, command: Archive) -> int:
        """As an operator: programs, and so servers, may not."""
        with App(self.app.url.replace("//ordinary@", "//operator@")) as app:
            return app.send(command)

    def claim(self, tenant: int = OWN, name: str = "w", queue: str = "default") -> LeaseGrant:
        """A worker takes the next unit."""
        self.claims += 1
        key = f"c{self.claims}"
        worker = self.app.send(Register(name=name, incarnation=key, capacity=100, tenant=tenant))
        grant = self.app.send(Claim(worker=worker, key=key, nonce=f"{key:0>16}", tenant=tenant, queues=(queue,)))[0]
        self.secrets.add(grant.lease)
        return grant

    def finish(self, grant: LeaseGrant, tenant: int = OWN, **facts: Any) -> None:
        held = LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)
        self.app.send(Start(held=(held,), tenant=tenant))
        (heard,) = self.app.send(Finish(outcomes=(Outcome(held=held, **facts),), tenant=tenant))
        assert heard.accepted

    def schedule(self, tenant: int = OWN) -> None:
        self.app.send(DefineSchedule(name="nightly", timing="0 3 * * *", work=Work(task="mail"), tenant=tenant))

    def dead(self) -> str:
        """A dead letter."""
        job = self.job(attempts=1, queue=f"q{self.claims}")
        self.finish(self.claim(queue=f"q{self.claims}"), ended="failure", error="it broke")
        return job


@contextmanager
def staged(url: str, beside: Stage | None = None, limits: Limits = MANY) -> Iterator[Stage]:
    """A server; whatever the story was, its log has a line a request and no secret."""
    app, log = App(url), Log()
    logging.getLogger().addHandler(log)
    try:
        with serve(app, limits) as asgi, TestClient(asgi) as client:
            stage = Stage(app, client, beside)
            yield stage
    finally:
        logging.getLogger().removeHandler(log)
    told = "\n".join(log.lines)
    assert not [one for one in stage.secrets if one in told]


class Log(logging.Handler):
    """What is logged, as it is written for programs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
