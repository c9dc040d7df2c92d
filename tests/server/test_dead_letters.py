"""Dead letters over the wire: found by what they say, and done again once, after somebody has confirmed it."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from interlock.client import json_views, responses
from interlock.kernel.commands import Bury, Claim, Finish, LeaseRef, Outcome, Register, Start, Submit, Work
from interlock.server import confirmations, dead_letters
from interlock.store.queries import dead_letters as stored
from interlock.store.queries.views import Filter, find_matching
from tests.server.stage import FOREIGN, OWN, Stage
from tests.server.test_jobs import exactly
from tests.server.test_metrics import SECOND, Clock

REQUEUE = "/v1/dead-letters/requeue"


def dead(on: Stage, *tasks: str, tenant: int = OWN, **facts: Any) -> None:
    """Each of these was tried once, and given up."""
    work = tuple(Work(task=task, attempts=1, queue="dead") for task in tasks)
    on.app.send(Submit(work=work, tenant=tenant))
    on.claims += 1
    key = f"c{on.claims}"
    worker = on.app.send(Register(name="w", incarnation=key, capacity=1_000, tenant=tenant))
    claim = Claim(worker=worker, key=key, nonce=f"{key:0>16}", limit=1_000, queues=("dead",), tenant=tenant)
    held = [LeaseRef(unit=one.unit, fence=one.fence, lease=one.lease) for one in on.app.send(claim)]
    on.app.send(Start(held=tuple(held), tenant=tenant))
    outcomes = tuple(Outcome(held=one, ended="failure", error="it broke", **facts) for one in held)
    assert all(heard.accepted for heard in on.app.send(Finish(outcomes=outcomes, tenant=tenant)))


def count(stage: Stage) -> int:
    return len(stage.app.read(find_matching, Filter()))


def preview(stage: Stage, **wanted: Any) -> Any:
    return stage.post(REQUEUE, {"filter": wanted})


def confirmed(stage: Stage, token: str, key: str | None = None, **wanted: Any) -> httpx.Response:
    return stage.ask("POST", REQUEUE, {"filter": wanted, "confirm": token}, key=key)


def test_dead_letters_are_found_by_what_they_say(stage: Stage) -> None:
    clock = Clock(stage)
    dead(stage, "mail", reason_code="parse_error", stage="input")
    clock.now += 10 * SECOND
    dead(stage, "ship")
    clock.now += 10 * SECOND
    stage.app.send(Bury(unit=stage.app.job(stage.job(task="mail", queue="q")).unit, reason="policy_violation"))
    page = stage.get("/v1/dead-letters")
    exactly(page, responses.DeadLettersResponse)
    assert [(one["task"], one["reason_code"]) for one in page["letters"]] == [
        ("mail", "policy_violation"), ("ship", "exhausted_retries"), ("mail", "parse_error"),
    ]  # fmt: skip
    assert page["letters"][2]["stage"] == "input"
    for query, wanted in {
        "task=ship": 1, "task=mail": 2, "queue=dead": 2, "error_class=TransientError": 2,
        "reason_code=parse_error": 1, "since=2023-11-14T22:13:30Z": 2, "lifecycle=step": 0,
    }.items():  # fmt: skip
        assert len(stage.get(f"/v1/dead-letters?{query}")["letters"]) == wanted, query
    assert stage.get("/v1/dead-letters", key=stage.foreign)["letters"] == []


def test_dead_letters_are_paged_the_newest_first(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    dead(stage, *(f"t{n % 5}" for n in range(23)))
    monkeypatch.setattr(stored, "CHUNK", 4)
    monkeypatch.setattr(stored, "LOOKED_MOST", 8)
    for query, wanted in {"limit=4": 23, "limit=2&task=t1": 5, "limit=50&task=none": 0}.items():
        found, after = list[str](), ""
        while after is not None:
            page = stage.get(f"/v1/dead-letters?{query}{f'&after={after}' if after else ''}")
            found += [one["id"] for one in page["letters"]]
            after = page["next"]
        assert len(found) == len(set(found)) == wanted
    assert stage.ask("GET", f"/v1/dead-letters?after={stage.job()}").status_code == 400


def test_a_confirmed_order_is_carried_out_once(stage: Stage) -> None:
    dead(stage, "mail", "mail", "ship")
    dead(stage, "mail", tenant=FOREIGN)
    seen = preview(stage, task="mail")
    exactly(seen, responses.BulkRequeueResponse)
    assert (seen["count"], seen["more"], seen["done"], count(stage)) == (2, False, 0, 3)
    dead(stage, "mail")  # after it was shown: it is not meant
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda _: confirmed(stage, seen["confirm"], task="mail").json(), range(8)))
    assert [one["done"] for one in told] == [2] * 8
    assert len({tuple(sorted(one["units"])) for one in told}) == 1
    assert count(stage) == 6
    again = stage.get("/v1/dead-letters?task=mail")["letters"]
    assert sorted(one["again"] for one in again) == [False, True, True]
    assert preview(stage, task="mail")["count"] == 1  # what was done again is not done once more


@pytest.mark.usefixtures("inside")
def test_a_token_is_good_for_what_was_shown_alone(stage: Stage) -> None:
    clock = Clock(stage)
    dead(stage, "mail")
    dead(stage, "mail", tenant=FOREIGN)
    token = preview(stage, task="mail")["confirm"]
    other = stage.key("operate")
    for answer, why in (
        (confirmed(stage, token, task="ship"), "another filter"),
        (confirmed(stage, token, key=stage.foreign, task="mail"), "not given to this key"),
        (confirmed(stage, token, key=other, task="mail"), "not given to this key"),
        (confirmed(stage, token[:-1] + "x", task="mail"), "not given to this key"),
        (confirmed(stage, "nonsense", task="mail"), "not given to this key"),
    ):
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (409, "CONFIRM_MISMATCH")
        assert why in error["message"]
        assert "without `confirm`" in error["message"]
    clock.now += confirmations.CONFIRM_US + 1
    assert "ten minutes" in confirmed(stage, token, task="mail").json()["error"]["message"]
    assert count(stage) == 1


def test_a_large_order_is_carried_out_in_parts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "TOGETHER", 3)
    monkeypatch.setattr(dead_letters, "BULK_MOST", 20)
    dead(stage, *["mail"] * 25)
    seen = preview(stage)
    assert (seen["count"], seen["more"]) == (20, True)
    assert confirmed(stage, seen["confirm"]).json()["done"] == 20
    seen = preview(stage)
    assert (seen["count"], seen["more"]) == (5, False)
    assert confirmed(stage, seen["confirm"]).json()["done"] == 5
    assert (count(stage), preview(stage)["count"]) == (50, 0)


def test_a_dead_letter_and_its_unit_have_the_traceback(stage: Stage) -> None:
    dead(stage, "mail", traceback="Traceback: in mail")
    dead(stage, "ship", traceback=f"Traceback: in ship{'x' * 10_000}the end")
    dead(stage, "plain")
    found = {one["task"]: one for one in stage.get("/v1/dead-letters")["letters"]}
    assert found["mail"]["traceback"] == "Traceback: in mail"
    assert found["plain"]["traceback"] is None
    cut = found["ship"]["traceback"]
    assert len(cut) <= json_views.TRACEBACK_SHOWN
    assert cut.startswith("Traceback: in ship")
    assert cut.endswith("the end")
    job = stage.get(f"/v1/jobs/{found['ship']['id']}")
    exactly(job, responses.JobDetailResponse)
    ((attempt, text),) = [(one["attempt"], one["text"]) for one in job["tracebacks"]]
    assert (attempt, len(text)) == (1, 10_025)
    assert stage.get(f"/v1/jobs/{found['mail']['id']}/why")["traceback"] == "Traceback: in mail"
