"""Commands, views and waiting over the wire: leases stay secret, a stale one changes nothing, and no wake-up is lost."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from interlock.kernel.commands import Revoke, SetTenant, Submit, Work
from interlock.kernel.ids import format_id, parse_id
from interlock.store.queries.views import events_of, view
from tests.server.stage import Stage
from tests.server.test_matrix import ENTRIES, Entry, described, nothing

PATIENCE = 60.0
HOUR_US = 3_600_000_000


def work(stage: Stage, *commands: dict[str, Any], key: str | None = None, scope: str = "worker") -> list[Any]:
    told = stage.post(f"/v1/commands/{scope}", {"commands": list(commands)}, key=key)
    return list(told["answers"])


def hired(stage: Stage, key: str | None = None, name: str = "w") -> int:
    return int(
        work(stage, {"command": "Register", "name": name, "incarnation": "1", "capacity": 9}, key=key)[0]["answer"]
    )


def granted(stage: Stage, worker: int, key: str | None = None, word: str = "c1") -> dict[str, Any]:
    claim = {"command": "Claim", "worker": worker, "nonce": f"secret nonce of {word}", "key": word}
    return dict(work(stage, claim, key=key)[0]["answer"][0])


def held(grant: dict[str, Any]) -> dict[str, Any]:
    return {name: grant[name] for name in ("unit", "fence", "lease")}


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.01)


@pytest.mark.req("X-02")
def test_a_lease_is_told_to_its_holder_alone(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Everything that can be read, the log, and every other answer are searched for the lease and its makings."""
    caplog.set_level(logging.DEBUG)
    key = stage.key("worker")
    run = stage.run()
    job = parse_id(stage.job())
    grant = granted(stage, hired(stage, key), key)
    assert grant["unit"] == job
    assert len(bytes.fromhex(grant["lease"])) * 8 >= 122
    other = {**held(grant), "lease": "0" * 64}
    answers = [
        work(stage, {"command": "Start", "held": [held(grant), other]}, key=key),
        work(stage, {"command": "Heartbeat", "held": [held(grant)]}, key=key),
        work(stage, {"command": "Record", "held": [held(grant)], "kind": "log", "payload": '"a"'}, key=key),
        work(stage, {"command": "Enter", "held": [held(grant)], "phase": "none"}, key=key),
    ]
    for path, method, one in described(stage):
        if one.get("x-scope", "read") != "read":
            continue
        _, _, body = ENTRIES.get(one["operationId"], Entry(nothing())).prepare(stage)
        words = {**(body or {}), "unit": job, "units": [job]}
        asked = {name: words[name] for name in body} if body else body
        where = path.replace("{id}", run if "runs" in path else str(format_id("job", job))).replace("{name}", "job")
        where = where.replace("{digest}", "0" * 64)
        answer = stage.ask(method, where, asked)
        assert answer.status_code in (200, 404, 409), (where, answer.text)
        answers.append(answer.text)
    done = {"command": "Finish", "outcomes": [{"held": held(grant)}]}
    answers += [work(stage, done, key=key), work(stage, done, key=key), stage.get(f"/v1/jobs/{job}")]
    text = msgspec.json.encode(answers).decode() + caplog.text + "".join(str(vars(one)) for one in caplog.records)
    unit = stage.app.read(view, job).unit
    for secret in (grant["lease"], "secret nonce of", unit.lease_hash or "no hash is left"):
        assert secret not in text
    assert '"accepted":true' in text, "the search has seen the answers"


def test_a_stale_worker_is_refused_and_nothing_changes(stage: Stage) -> None:
    key = stage.key("worker")
    stage.job()
    worker = hired(stage, key)
    first = granted(stage, worker, key)
    work(stage, {"command": "Start", "held": [held(first)]}, key=key)
    stage.app.send(Revoke(unit=first["unit"]))
    second = granted(stage, hired(stage, key, "v"), key, "c2")
    assert (second["unit"], second["fence"]) == (first["unit"], first["fence"] + 1)
    before = stage.app.read(view, first["unit"]), stage.app.read(events_of, first["unit"])
    verbs: list[dict[str, Any]] = [
        {"command": "Start", "held": [held(first)]},
        {"command": "Heartbeat", "held": [held(first)]},
        {"command": "Record", "held": [held(first)], "kind": "step", "name": "a"},
        {"command": "Release", "held": [held(first)]},
        {"command": "Finish", "outcomes": [{"held": held(first), "result": '"mine"'}]},
        {"command": "Finish", "outcomes": [{"held": {**held(second), "lease": first["lease"]}}]},
    ]
    for verb in verbs:
        (told,) = work(stage, verb, key=key)
        assert (told["answer"][0]["accepted"], told["code"]) == (False, "STALE_LEASE"), verb
    assert (stage.app.read(view, first["unit"]), stage.app.read(events_of, first["unit"])) == before
    live = {"command": "Start", "held": [held(second)]}, {"command": "Finish", "outcomes": [{"held": held(second)}]}
    for told in work(stage, *live, key=key):
        assert told["answer"][0]["accepted"]
        assert "code" not in told


# Waiting.


def is_woken(stage: Stage, key: str, seconds: float = 0, **said: Any) -> bool:
    asked = {"ear": "e", "seconds": seconds, **({} if "worker" in said else {"queues": ["default"]}), **said}
    return bool(stage.post("/v1/wait", asked, key=key)["rung"])


def test_a_wake_up_between_two_polls_is_not_lost(stage: Stage) -> None:
    key, other = stage.key("worker"), stage.key("worker")
    assert not is_woken(stage, key)
    assert not is_woken(stage, other)
    stage.job()
    until(lambda: is_woken(stage, key))
    until(lambda: is_woken(stage, other))


@pytest.mark.usefixtures("inside")
def test_who_waits_is_woken_at_once_and_who_is_called_too(stage: Stage) -> None:
    key = stage.key("worker")
    stage.job()
    grant = granted(stage, hired(stage, key), key)
    with ThreadPoolExecutor(2) as pool:
        queue = pool.submit(is_woken, stage, key, 30)
        calls = pool.submit(is_woken, stage, key, 30, ear="c", worker="w")
        until(lambda: len(stage.client.app.state.server.waiters.known) == 2)
        stage.app.send(Submit(work=(Work(task="mail"),)))
        assert queue.result(PATIENCE)
        stage.app.job(grant["unit"]).cancel()
        assert calls.result(PATIENCE)


@pytest.mark.req("X-01")
@pytest.mark.parametrize("days", [-1, 1])
def test_what_a_worker_believes_the_time_to_be_changes_no_lease(stage: Stage, days: int) -> None:
    """The store's clock decides: a worker whose own is a day off says so in vain, and can say it nowhere else."""
    key, job = stage.key("worker"), parse_id(stage.job())
    theirs = datetime.now(UTC) + timedelta(days=days)
    worker, said = hired(stage, key), {"Date": format_datetime(theirs, usegmt=True)}

    def tell(**command: Any) -> Any:
        path = "/v1/commands/worker"
        return stage.ask("POST", path, {"commands": [command]}, key=key, headers=said).json()

    (grant,) = tell(command="Claim", worker=worker, nonce="n" * 16, key="c1")["answers"][0]["answer"]
    assert abs(grant["until"] - grant["ttl_us"] - time.time_ns() // 1_000) < HOUR_US
    (heard,) = tell(command="Heartbeat", held=[held(grant)])["answers"][0]["answer"]
    assert heard["accepted"]
    assert abs(heard["until"] - grant["until"]) < HOUR_US
    refused = tell(command="Heartbeat", held=[held(grant)], now=round(theirs.timestamp() * 1e6))
    assert "now" in refused["error"]["message"]
    assert stage.app.read(view, job).unit.lease_until == heard["until"]


def test_time_passes_while_a_worker_waits(stage: Stage) -> None:
    """Nobody else lets it pass here: a delay is over, and a lease that nobody serves is lost."""
    key = stage.key("worker")
    job = stage.job(delay_seconds=0.3)
    due = stage.get(f"/v1/jobs/{job}")["wake_at"]
    assert due
    until(lambda: is_woken(stage, key, 0.2) or stage.get(f"/v1/jobs/{job}")["available_at"])
    assert stage.get(f"/v1/jobs/{job}")["available_at"]


@pytest.mark.usefixtures("inside")
def test_a_server_that_ends_lets_nobody_wait(stage: Stage) -> None:
    server = stage.client.app.state.server
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(is_woken, stage, stage.key("worker"), 30)
        until(lambda: server.waiters.known)
        server.closing = True
        assert waits.result(5) is False


def test_who_does_not_ask_any_more_is_forgotten(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    key = stage.key("worker")
    is_woken(stage, key)
    is_woken(stage, key, ear="another")
    assert len(stage.app.engine.wakeups.subscriptions) == 2
    monkeypatch.setattr("interlock.server.subscriptions.KEPT_SECONDS", -1.0)
    is_woken(stage, key, ear="third")
    assert len(stage.app.engine.wakeups.subscriptions) == 1
    monkeypatch.setattr("interlock.server.subscriptions.WAITERS_MAX", 0)
    answer = stage.ask("POST", "/v1/wait", {"ear": "fourth", "queues": ["default"]}, key=key)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


# Limits.


def test_workers_are_not_counted_among_the_requests_of_a_minute(stage: Stage) -> None:
    """A beat that was refused for being one too many would cost a lease."""
    stage.app.send(SetTenant(max_requests=1))
    key = stage.key("worker", "read")
    worker = hired(stage, key)
    told = [stage.ask("POST", "/v1/views/schedules_of", {}, key=key).status_code for _ in range(2)]
    assert told == [200, 429]
    assert (
        work(stage, {"command": "Claim", "worker": worker, "nonce": "n" * 16, "key": "k"}, key=key)[0]["answer"] == []
    )
    assert not is_woken(stage, key)


UNKNOWN: list[tuple[str, Any, str]] = [
    ("submit", {"command": "Cancel", "unit": 1}, "Invalid value 'Cancel'"),
    ("submit", {"command": "Submit", "work": [{"task": "a", "colour": 1}]}, "unknown field `colour`"),
    ("submit", {"command": "Submit", "work": [], "tenant": 2}, "unknown field `tenant`"),
    ("submit", {"command": "Submit", "work": [{"task": "a", "priority": 2**70}]}, "Expected `int` <="),
    ("worker", {"command": "Tick"}, "Invalid value 'Tick'"),
    ("admin", {"command": "SetTenant", "max_running": None}, "Invalid value 'SetTenant'"),
]


def test_what_a_route_does_not_know_is_refused(stage: Stage) -> None:
    for scope, command, says in UNKNOWN:
        answer = stage.ask("POST", f"/v1/commands/{scope}", {"commands": [command]})
        assert answer.status_code == 400
        assert says in answer.json()["error"]["message"]


def test_a_schedule_is_no_template(stage: Stage) -> None:
    """What needs only `submit` defines the steps of a run; what is done by the clock needs `operate`."""
    key = stage.key("submit")
    template = {"command": "Define", "name": "t", "steps": [{"task": "a", "ref": "a", "lifecycle": "step"}]}
    schedule = {"command": "Define", "name": "s", "timing": "every 1h", "work": {"task": "a"}}
    first, second = work(stage, template, schedule, key=key, scope="submit")
    assert first["answer"]["version"] == 1
    assert (second["refused"]["name"], second["refused"]["text"]) == ("Denied", "this needs the scope 'operate'")
    assert [one["name"] for one in stage.get("/v1/schedules")["schedules"]] == []


def test_commands_are_also_known_by_their_first_names(stage: Stage) -> None:
    """What a program sent before some commands were renamed means the same, and is done once under one key."""
    template = {"command": "Define", "name": "t", "steps": [{"task": "a", "ref": "a", "lifecycle": "step"}]}
    assert work(stage, template, scope="submit")[0]["answer"]["version"] == 1
    schedule = {"command": "Define", "name": "s", "timing": "every 1h", "work": {"task": "a"}}
    orders = [{"command": name, "name": "s"} for name in ("Pause", "Pause", "Resume", "Trigger", "Remove")]
    defined, paused, again, resumed, fired, removed = work(stage, schedule, *orders, scope="operate")
    assert [one["answer"]["changed"] for one in (defined, paused, again, resumed, removed)] == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert (paused["answer"]["paused"], resumed["answer"]["paused"]) == (True, False)
    assert fired["answer"]["created"]
    assert removed["answer"]["removed"]

    create = {"command": "Key", "order": "create", "digest": "0" * 64, "name": "ci", "scopes": ["read"]}
    made, same = work(stage, *[{**create, "idempotency_key": "k"}] * 2, scope="admin")
    assert made["answer"] == same["answer"]
    key = made["answer"]["key"]
    orders = [{"command": "Key", "order": order, "key": key, "digest": "1" * 64} for order in ("rotate", "revoke")]
    rotated, revoked = work(stage, *orders, scope="admin")
    assert (rotated["answer"]["revoked"], revoked["answer"]["revoked"]) == (False, True)

    both, strange, none = work(
        stage, {**schedule, "steps": template["steps"]}, {"command": "Pause", "name": "none"}, schedule, scope="operate"
    )
    assert both["refused"]["text"].startswith("a definition is of a schedule, with timing and work, or of a template")
    assert strange["refused"]["name"] == "Unknown"
    assert "answer" in none, "one that is refused does not stop the others"
    (odd,) = work(stage, {**create, "order": "lose"}, scope="admin")
    assert odd["refused"]["text"] == "order = 'lose' is not allowed; allowed are create, rotate, revoke"
