"""Who acts is the server's word: a request acts as its key, and for others only where the key may vouch for them."""

from typing import Any

import pytest

from interlock.client.keys import issue_key
from interlock.kernel.api_keys import read_key
from interlock.kernel.commands import CreateKey, Submit, Work
from interlock.kernel.ids import format_id, parse_id
from interlock.store.queries.views import events_of
from tests.server.stage import Stage

OTHERS = ("submit", "read", "operate", "approve", "worker", "admin")


def named_key(stage: Stage, name: str, *scopes: str, roles: tuple[str, ...] = ()) -> str:
    made = issue_key(stage.app, CreateKey(name=name, scopes=scopes, roles=roles)).text
    stage.secrets |= {made, made.rpartition("_")[2]}
    return made


def gate(stage: Stage, submitter: str, **rules: Any) -> int:
    """A run of somebody that waits for an approval under these rules: the id of the approval."""
    run = Work(task="release", lifecycle="workflow_run", ref="run")
    ship = Work(task="ship", lifecycle="approval", parent="run", **rules)
    return stage.app.send(Submit(work=(run, ship), actor=submitter))[1].unit


def command(stage: Stage, scope: str, secret: str, **said: Any) -> dict[str, Any]:
    (told,) = stage.post(f"/v1/commands/{scope}", {"commands": [said]}, key=secret)["answers"]
    return dict(told)


def actors(stage: Stage, unit: int) -> list[tuple[str, str]]:
    return [(one.trigger, one.actor) for one in stage.app.read(events_of, unit)]


def test_a_request_acts_as_its_key(stage: Stage) -> None:
    ann = named_key(stage, "ann", *OTHERS)
    job = parse_id(stage.job(key=ann))
    unit = command(stage, "submit", ann, command="Submit", work=[{"task": "a"}], actor="ann")["answer"][0]["unit"]
    waits = gate(stage, "sue")
    assert stage.post(f"/v1/inbox/{waits}/approve", {"by": "ann"}, key=ann)["applied"]
    voted = gate(stage, "sue")
    assert command(stage, "approve", ann, command="Vote", unit=voted, voter="local")["answer"]["applied"]
    for one in (job, unit):
        assert actors(stage, one)[0] == ("submit", "ann")
    for one in (waits, voted):
        assert actors(stage, one)[-1] == ("approve", "ann")


@pytest.mark.parametrize("scopes", [OTHERS, ("admin",), ("approve",)])
def test_nobody_speaks_for_another_without_vouch(stage: Stage, scopes: tuple[str, ...]) -> None:
    key = named_key(stage, "eve", *scopes, roles=("dev",))
    waits = gate(stage, "sue", approvers=("ann", "ops"))
    before = actors(stage, waits)
    for verb in ("approve", "reject"):
        for said in (
            {"by": "ann"},
            {"by": "ann", "roles": ["ops"]},
            {"roles": ["ops"]},
            {"by": "eve", "roles": ["ops"]},
        ):
            answer = stage.ask("POST", f"/v1/inbox/{waits}/{verb}", said, key=key)
            assert (answer.status_code, answer.json()["error"]["details"]["needs"]) == (403, "vouch"), said
    for said in (
        {"command": "Vote", "voter": "ann"}, {"command": "Vote", "voter": "eve", "roles": ["ops"]},
        {"command": "Vote", "voter": "ann", "actor": "ann"}, {"command": "Vote", "voter": "ann", "actor": "eve"},
        {"command": "Decide", "trigger": "approve", "actor": "ann"},
    ):  # fmt: skip
        assert command(stage, "approve", key, unit=waits, **said)["refused"]["name"] == "Denied", said
    answer = stage.ask("POST", f"/v1/inbox/{waits}/approve", {"roles": ["dev"]}, key=key)
    assert answer.json()["error"]["code"] == "NOT_AN_APPROVER"
    assert actors(stage, waits) == before


def test_an_actor_in_a_command_is_refused_unless_it_is_the_key(stage: Stage) -> None:
    key = named_key(stage, "eve", *OTHERS)
    job = parse_id(stage.job())
    for scope, said in {
        "submit": {"command": "Submit", "work": [{"task": "a"}]},
        "operate": {"command": "Cancel", "unit": job},
        "worker": {"command": "Register", "name": "w", "incarnation": "1"},
        "admin": {"command": "Force", "unit": job, "state": "failed", "reason": "so"},
    }.items():
        assert command(stage, scope, key, actor="ann", **said)["refused"]["name"] == "Denied", scope
    assert [actor for _, actor in actors(stage, job)] == ["ci"]
    assert "answer" in command(stage, "operate", key, command="Cancel", unit=job, actor="eve")


@pytest.mark.req("R1-17")
def test_four_eyes_rest_on_keys(stage: Stage) -> None:
    """One person with one key is one pair of eyes, whatever names it gives."""
    sue, bob = named_key(stage, "sue", "submit", "read", "approve"), named_key(stage, "bob", "approve")
    steps = [{"task": "sign", "lifecycle": "approval", "not_submitter": True, "quorum": 1}, {"task": "ship"}]
    run = stage.post("/v1/runs", {"task": "release", "steps": steps}, status=201, key=sue)["id"]
    for said in ({}, {"by": "sue"}, {"by": "bob"}, {"by": "bob", "roles": ["ops"]}):
        assert stage.post(f"/v1/runs/{run}/approve", said, status=403, key=sue)
    assert stage.post(f"/v1/runs/{run}/approve", {}, key=bob)["applied"]


def test_a_quorum_counts_keys_and_not_names(stage: Stage) -> None:
    waits = gate(stage, "sue", quorum=2, approvers=("ops",))
    first, second = (named_key(stage, name, "approve", roles=("ops",)) for name in ("ann", "bob"))
    assert stage.post(f"/v1/inbox/{waits}/approve", {}, key=first)["applied"]
    assert not stage.post(f"/v1/inbox/{waits}/approve", {}, key=first)["applied"]
    stage.post(f"/v1/inbox/{waits}/approve", {"by": "bob"}, status=403, key=first)
    assert stage.post(f"/v1/inbox/{waits}/approve", {}, key=second)["state"] == "SUCCEEDED"


def test_whoever_vouches_is_named_beside_the_person(stage: Stage) -> None:
    bot = named_key(stage, "bot", "approve", "operate", "submit", "read", "vouch")
    named = f"bot ({format_id('key', (read_key(bot) or (0, 0, ''))[1])})"
    waits = gate(stage, "sue", quorum=2, approvers=("ops",), not_submitter=True)
    stage.post(f"/v1/inbox/{waits}/approve", {"by": "sue", "roles": ["ops"]}, status=403, key=bot)
    assert stage.post(f"/v1/inbox/{waits}/approve", {"by": "ann", "roles": ["ops"]}, key=bot)["applied"]
    (item,) = [one for one in stage.get("/v1/inbox", key=bot)["items"] if one["id"].endswith(format_id("", waits))]
    assert [(vote["voter"], vote["vouched_by"]) for vote in item["votes"]] == [("ann", named)]
    assert not stage.post(f"/v1/inbox/{waits}/approve", {"by": "ann", "roles": ["ops"]}, key=bot)["applied"]
    assert stage.post(f"/v1/inbox/{waits}/approve", {"by": "bob", "roles": ["ops"]}, key=bot)["state"] == "SUCCEEDED"
    last = stage.get(f"/v1/jobs/{waits}/events", key=bot)["events"][-1]
    assert (last["actor"], last["payload"]["vouched_by"]) == ("bob", named)
    answer = command(stage, "submit", bot, command="Submit", work=[{"task": "a"}], actor="ann")["answer"]
    made = format_id("job", answer[0]["unit"])
    first = stage.get(f"/v1/jobs/{made}/events", key=bot)["events"][0]
    assert (first["actor"], first["payload"]["vouched_by"]) == ("ann", named)
    stage.post(f"/v1/jobs/{made}/cancel", key=bot)
    last = stage.get(f"/v1/jobs/{made}/events", key=bot)["events"][-1]
    assert (last["actor"], "vouched_by" in last["payload"]) == ("bot", False)


def test_approve_votes_approves_and_rejects_and_no_more(stage: Stage) -> None:
    key = named_key(stage, "ann", "approve")
    jobs = [{"task": "w", "lifecycle": "workstream", "ref": "w"}, {"task": "t", "lifecycle": "task", "parent": "w"}]
    plan = stage.post("/v1/jobs/batch", {"jobs": jobs}, status=201)["jobs"][0]["id"]
    for trigger in ("plan", "resume", "report", "valid", "invalid", "correct", "optimize", "none"):
        told = command(stage, "approve", key, command="Decide", unit=parse_id(plan), trigger=trigger)
        assert (told["refused"]["name"], "operate" in told["refused"]["text"]) == ("Denied", True), trigger
        stage.post(f"/v1/inbox/{plan}/decide", {"word": trigger}, status=403, key=key)
    operator = named_key(stage, "otto", "operate")
    waits = gate(stage, "sue")
    for word in ("approve", "reject"):
        no = stage.post(f"/v1/inbox/{waits}/decide", {"word": word}, status=403, key=operator)["error"]
        assert no["details"]["needs"] == "approve"
        told = command(stage, "operate", operator, command="Decide", unit=waits, trigger=word)
        assert told["refused"]["name"] == "Denied"
    assert stage.post(f"/v1/inbox/{plan}/decide", {"word": "plan"}, key=operator)["applied"]
    assert command(stage, "approve", key, command="Decide", unit=waits, trigger="approve")["answer"]["applied"]


def test_an_administrator_gives_no_vouch_that_it_has_not(stage: Stage) -> None:
    admin, both = named_key(stage, "root", "admin"), named_key(stage, "boss", "admin", "vouch")
    voucher = format_id("key", (read_key(both) or (0, 0, ""))[1])
    asked = {"name": "bot", "scopes": ["approve", "vouch"]}
    assert stage.post("/v1/keys", asked, status=403, key=admin)["error"]["details"]["needs"] == "vouch"
    assert stage.post(f"/v1/keys/{voucher}/rotate", {}, status=403, key=admin)["error"]["details"]["needs"] == "vouch"
    digest = "0" * 64
    told = command(stage, "admin", admin, command="Key", order="create", digest=digest, **asked)
    assert told["refused"]["name"] == "Denied"
    told = command(stage, "admin", admin, command="Key", order="rotate", digest=digest, key=parse_id(voucher))
    assert told["refused"]["name"] == "Denied"
    made = stage.post("/v1/keys", {**asked, "roles": ["ops", "dev"]}, status=201, key=both)
    stage.secrets |= {made["key"], made["key"].rpartition("_")[2]}
    assert made["roles"] == ["dev", "ops"]
    (row,) = [one for one in stage.get("/v1/keys", key=admin)["keys"] if one["id"] == made["id"]]
    assert (row["roles"], row["scopes"]) == (["dev", "ops"], ["approve", "vouch"])
    for roles in (["a,b"], [""], ["a\0"], ["x" * 201]):
        stage.post("/v1/keys", {"name": "n", "scopes": ["read"], "roles": roles}, status=400, key=both)
