"""One message about one held unit: accepted, or a 409 that has changed nothing."""

from typing import Any

import pytest

from interlock.kernel.commands import (
    Command,
    Enter,
    Finish,
    Heartbeat,
    LeaseGrant,
    LeaseRef,
    LeaseStatus,
    Outcome,
    Record,
    Release,
    Revoke,
    Start,
)
from interlock.kernel.ids import format_id
from interlock.store.queries.views import events_of, view
from tests.server.stage import Stage

VERBS = ("start", "heartbeat", "finish", "release")


def hold(grant: LeaseGrant, **more: Any) -> dict[str, Any]:
    return {"fence": grant.fence, "lease": grant.lease, **more}


def test_a_holder_works_one_message_at_a_time(stage: Stage) -> None:
    key = stage.key("worker")
    job = stage.job()
    grant = stage.claim()
    begun = stage.post(f"/v1/jobs/{job}/start", hold(grant), key=key)
    assert (begun["id"], begun["state"], begun["cancel"]) == (job, "running", False)
    beat = stage.post(f"/v1/jobs/{job}/heartbeat", hold(grant), key=key)
    assert beat["lease_expires_at"] >= begun["lease_expires_at"]
    stage.post(f"/v1/jobs/{job}/finish", hold(grant, result={"a": 1}), key=key)
    assert stage.get(f"/v1/jobs/{job}")["result"] == {"a": 1}
    again = stage.job()
    grant = stage.claim(name="v")
    assert stage.post(f"/v1/jobs/{again}/release", hold(grant), key=key)["state"] == "queued"


@pytest.mark.req("R1-46")
def test_a_stale_message_is_a_409_and_changes_nothing(stage: Stage) -> None:
    job = stage.job()
    old = stage.claim()
    stage.post(f"/v1/jobs/{job}/start", hold(old))
    stage.app.send(Revoke(unit=old.unit))
    new = stage.claim(name="v")
    assert (format_id("job", new.unit), new.fence) == (job, old.fence + 1)
    before = stage.app.read(view, old.unit), stage.app.read(events_of, old.unit)
    for verb in VERBS:
        for body in (hold(old), hold(new) | {"lease": old.lease}, hold(new) | {"fence": new.fence + 1}):
            answer = stage.ask("POST", f"/v1/jobs/{job}/{verb}", body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "STALE_LEASE"), verb
    assert (stage.app.read(view, old.unit), stage.app.read(events_of, old.unit)) == before
    stage.post(f"/v1/jobs/{job}/start", hold(new))
    stage.post(f"/v1/jobs/{job}/finish", hold(new))


@pytest.mark.parametrize("fence", [2**63, 2**64, 10**30, -1, -(2**63) - 1, 2**31, 2**63 - 1])
def test_a_fence_that_no_table_holds_is_a_refusal(stage: Stage, fence: int) -> None:
    job = stage.job()
    grant = stage.claim()
    held = LeaseRef(unit=grant.unit, fence=fence, lease=grant.lease)
    messages: list[Command[list[LeaseStatus]]] = [
        Start(held=(held,)), Heartbeat(held=(held,)), Finish(outcomes=(Outcome(held=held),)), Release(held=(held,)),
        Enter(held=(held,), phase="none"), Record(held=(held,), kind="step", name="a"),
    ]  # fmt: skip
    before = stage.app.read(view, grant.unit), stage.app.read(events_of, grant.unit)
    for message in messages:
        (heard,) = stage.app.send(message)
        assert (heard.accepted, heard.why) == (False, "UNKNOWN_LEASE"), message
    for verb in VERBS:
        answer = stage.ask("POST", f"/v1/jobs/{job}/{verb}", hold(grant) | {"fence": fence})
        assert answer.status_code in (400, 409), answer.text
    said = {"unit": grant.unit, "fence": fence, "lease": grant.lease}
    answer = stage.ask("POST", "/v1/commands/worker", {"commands": [{"command": "Start", "held": [said]}]})
    assert answer.status_code in (200, 400), answer.text
    assert '"accepted":true' not in answer.text
    assert (stage.app.read(view, grant.unit), stage.app.read(events_of, grant.unit)) == before
    stage.post(f"/v1/jobs/{job}/start", hold(grant))
