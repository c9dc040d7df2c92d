"""Keys over the wire, each shown once, and what a tenant may do."""

from typing import Any

import msgspec

from interlock.client.json_views import MILLION, instant
from interlock.client.keys import minted, told
from interlock.core.notes import BEATS_US, VERBOSE_US
from interlock.kernel.api_keys import KIND, allows, digest_of, spelled
from interlock.kernel.commands import CreateKey, Issued, RevokeKey, RotateKey
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Tenant
from interlock.server import key_responses
from interlock.server.errors import Refusal
from interlock.server.operations import Operation, Reply, Request, unit_of
from interlock.server.request_schemas import KeyAsked, LastsAsked, ReasonAsked, micro
from interlock.store.connection import Connection
from interlock.store.queries.api_keys import find_api_key, list_api_keys
from interlock.store.queries.tenants import count_held, count_waiting, read_tenant


async def create(request: Request) -> Reply:
    body: KeyAsked = request.body
    order = CreateKey(
        name=body.name, scopes=tuple(body.scopes), roles=tuple(body.roles),
        expires_us=micro(body.expires_seconds),
    )  # fmt: skip
    return Reply(await with_secret(request, order), 201)


async def refuse_wider(request: Request, order: CreateKey | RotateKey) -> None:
    """Raises Refusal where the answer would hold the secret of a key that may do what the caller may not."""
    if isinstance(order, CreateKey):
        given = order.scopes
    else:
        row = await request.read(find_api_key, order.key)
        given = tuple(row.scopes.split(",")) if row else ()
    for scope in given:
        if not allows(request.caller.scopes, scope):
            has = list(request.caller.scopes)
            raise Refusal(403, f"this key lacks the scope '{scope}', so it cannot give it", needs=scope, has=has)


async def rotate(request: Request) -> key_responses.KeyMade:
    return await with_secret(request, RotateKey(key=number(request), expires_us=micro(request.body.expires_seconds)))


async def with_secret(request: Request, order: CreateKey | RotateKey) -> key_responses.KeyMade:
    """The key has a secret that was made here, is told once, and is kept nowhere. Raises Refusal."""
    if request.headers.get("idempotency-key") is not None:
        raise Refusal(400, NOT_TWICE)
    await refuse_wider(request, order)
    secret = minted()
    done = await request.send(msgspec.structs.replace(order, digest=digest_of(secret)))
    text = spelled(request.caller.tenant, done.key, secret)
    return key_responses.KeyMade(
        format_id(KIND, done.key), done.name, list(done.scopes), list(done.roles), instant(done.expires_at), text
    )


async def revoke(request: Request) -> key_responses.KeyVoid:
    done: Issued = await request.send(RevokeKey(key=number(request), reason=request.body.reason))
    return key_responses.KeyVoid(format_id(KIND, done.key), done.revoked, done.changed)


def number(request: Request) -> int:
    """The key that the path names. Raises Unknown."""
    text = request.path["id"]
    if not text.lower().startswith(f"{KIND}_"):
        raise Unknown(text)
    return unit_of(text)


async def keys(request: Request) -> dict[str, Any]:
    found, now = await request.read(lambda connection, tenant: (list_api_keys(connection, tenant), connection.now()))
    return {"keys": [told(row, now) for row in found]}


async def tenant(request: Request) -> key_responses.TenantTold:
    row, is_held, waits = await request.read(look)
    return key_responses.TenantTold(
        row.id, row.name, is_held, waits, row.max_running, row.max_waiting, row.max_requests,
        (row.keep_beats_us or BEATS_US) / MILLION, (row.keep_verbose_us or VERBOSE_US) / MILLION,
    )  # fmt: skip


def look(connection: Connection, tenant: int) -> tuple[Tenant, int, int]:
    row = read_tenant(connection, tenant)
    assert row, "its key is a row of it"
    return row, count_held(connection, tenant), count_waiting(connection, tenant)


NOT_TWICE = (
    "this request takes no Idempotency-Key: its answer holds a secret, which is kept nowhere and cannot be told twice; "
    "if an answer is lost, revoke the key and make another"
)
KEYS, KEY = "/v1/keys", "/v1/keys/{id}"
ROUTES = (
    Operation(
        method="POST", path=KEYS, scope="admin", summary="Make a key, which is shown once", call=create, body=KeyAsked,
        answer=key_responses.KeyMade, status=201, keyed=False,
    ),
    Operation(method="GET", path=KEYS, scope="admin", summary="List keys", call=keys, answer=key_responses.KeyList),
    Operation(
        method="POST", path=f"{KEY}/rotate", scope="admin", summary="Give a key another secret, which is shown once",
        call=rotate, body=LastsAsked, answer=key_responses.KeyMade, keyed=False,
    ),
    Operation(
        method="POST", path=f"{KEY}/revoke", scope="admin", summary="Make a key void, for good", call=revoke,
        body=ReasonAsked, answer=key_responses.KeyVoid,
    ),
    Operation(
        method="GET", path="/v1/tenant", scope="admin", summary="Show the tenant of the key, and its limits",
        call=tenant, answer=key_responses.TenantTold,
    ),
)  # fmt: skip
