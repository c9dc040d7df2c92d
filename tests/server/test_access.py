"""Keys and the tenant over the wire: a secret is shown once, and nothing is given that the giver has not."""

from typing import Any

from interlock.client import responses
from interlock.kernel.commands import SetTenant
from interlock.store.connection import Connection
from tests.server.stage import FOREIGN, Stage
from tests.server.test_jobs import exactly
from tests.server.test_keys import until_refused

ASKED = {"name": "ci", "scopes": ["read", "submit"], "expires_seconds": 3_600}


def everything(connection: Connection, tenant: int) -> str:
    """All that the database holds of keys and of passes."""
    return repr([connection.rows(f"SELECT * FROM {table}") for table in ("key", "answer", "event", "note")])


def test_a_key_is_made_and_shown_once(stage: Stage) -> None:
    made = stage.post("/v1/keys", ASKED, status=201)
    exactly(made, responses.KeySecretResponse)
    assert stage.ask("POST", "/v1/jobs", {"task": "a"}, key=made["key"]).status_code == 201
    assert stage.ask("GET", "/v1/keys", key=made["key"]).status_code == 403
    listed = stage.get("/v1/keys")
    exactly(listed, responses.KeysResponse)
    (told,) = [one for one in listed["keys"] if one["id"] == made["id"]]
    assert (told["state"], told["scopes"], told["created_by"]) == ("valid", ["read", "submit"], "ci")
    secret = made["key"].rpartition("_")[2]
    assert secret not in repr(listed)
    assert secret not in stage.app.read(everything)


def test_a_rotated_key_has_another_secret_and_a_revoked_one_none(stage: Stage) -> None:
    made = stage.post("/v1/keys", ASKED, status=201)
    again = stage.post(f"/v1/keys/{made['id']}/rotate")
    assert (again["id"], again["scopes"], again["key"] != made["key"]) == (made["id"], made["scopes"], True)
    until_refused(stage, made["key"])
    assert stage.ask("GET", "/v1/jobs", key=again["key"]).status_code == 200
    void = stage.post(f"/v1/keys/{made['id']}/revoke", {"reason": "it leaked"})
    exactly(void, responses.KeyRevokedResponse)
    assert (void["changed"], stage.post(f"/v1/keys/{made['id']}/revoke")["changed"]) == (True, False)
    until_refused(stage, again["key"])
    no = stage.ask("POST", f"/v1/keys/{made['id']}/rotate", {})
    assert (no.status_code, "stays so" in no.json()["error"]["message"]) == (400, True)


def test_what_is_no_key_is_not_there(stage: Stage) -> None:
    job = stage.job()
    for word in (job, job.replace("job_", "key_"), "key_!", "nonsense"):
        assert stage.ask("POST", f"/v1/keys/{word}/revoke", {}).status_code == 404, word
    wrong: list[Any] = [
        {"name": "n"},
        {"name": "n", "scopes": []},
        {"name": "n", "scopes": ["all"]},
        {**ASKED, "digest": "0"},
    ]
    for body in wrong:
        assert stage.ask("POST", "/v1/keys", body).status_code == 400, body


def test_keys_of_others_are_not_seen(stage: Stage) -> None:
    theirs = stage.post("/v1/keys", ASKED, status=201, key=stage.foreign)
    assert theirs["key"].startswith(f"ilk_{FOREIGN}_")
    assert theirs["id"] not in repr(stage.get("/v1/keys"))
    assert stage.ask("GET", "/v1/jobs", key=theirs["key"]).json()["jobs"] == []


def test_a_tenant_sees_its_limits(stage: Stage) -> None:
    stage.app.send(SetTenant(max_waiting=5))
    stage.job()
    stage.job()
    stage.claim()
    found = stage.get("/v1/tenant")
    exactly(found, responses.TenantResponse)
    assert (found["name"], found["held"], found["waiting"], found["max_waiting"]) == ("default", 1, 1, 5)
    assert stage.get("/v1/tenant", key=stage.foreign)["name"] == "other"


def test_a_secret_is_not_told_twice_whatever_a_header_wants(stage: Stage) -> None:
    made = stage.post("/v1/keys", ASKED, status=201)
    count = len(stage.get("/v1/keys")["keys"])
    for path, body in (("/v1/keys", ASKED), (f"/v1/keys/{made['id']}/rotate", {})):
        answer = stage.ask("POST", path, body, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 400
        assert "revoke the key" in answer.json()["error"]["message"]
    assert len(stage.get("/v1/keys")["keys"]) == count
    assert stage.ask("GET", "/v1/jobs", key=made["key"]).status_code == 200  # it was not rotated
