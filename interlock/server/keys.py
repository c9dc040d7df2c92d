"""API keys over HTTP, each shown once, and the limits of the tenant."""

from typing import Any

import msgspec

from interlock.client import responses
from interlock.client.durations import format_time
from interlock.client.json_views import MILLION
from interlock.client.keys import describe_key, make_secret
from interlock.core.notes import BEATS_US, VERBOSE_US
from interlock.kernel.api_keys import KIND, allows, digest_of, format_key
from interlock.kernel.commands import CreateKey, Issued, RevokeKey, RotateKey
from interlock.kernel.errors import Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Tenant
from interlock.server.errors import ApiError
from interlock.server.operations import Operation, Reply, Request, parse_unit_id
from interlock.server.request_schemas import KeyExpiryRequest, KeyRequest, ReasonRequest, to_microseconds
from interlock.store.connection import Connection
from interlock.store.queries.api_keys import find_api_key, list_api_keys
from interlock.store.queries.tenants import count_held, count_waiting, read_tenant


async def create(request: Request) -> Reply:
    """Creates a key; its secret is in the response and nowhere else."""
    body: KeyRequest = request.body
    command = CreateKey(
        name=body.name, scopes=tuple(body.scopes), roles=tuple(body.roles),
        expires_us=to_microseconds(body.expires_seconds),
    )  # fmt: skip
    return Reply(await send_with_secret(request, command), 201)


async def check_scopes_given(request: Request, command: CreateKey | RotateKey) -> None:
    """Raises ApiError where the response would hold the secret of a key that may do what the caller may not."""
    if isinstance(command, CreateKey):
        given = command.scopes
    else:
        row = await request.read(find_api_key, command.key)
        given = tuple(row.scopes.split(",")) if row else ()
    for scope in given:
        if not allows(request.caller.scopes, scope):
            has = list(request.caller.scopes)
            raise ApiError(
                403, f"this key lacks the scope '{scope}', so it cannot give it to another key", needs=scope, has=has
            )


async def rotate(request: Request) -> responses.KeySecretResponse:
    """Gives a key another secret, which is in the response and nowhere else."""
    return await send_with_secret(
        request, RotateKey(key=parse_key_id(request), expires_us=to_microseconds(request.body.expires_seconds))
    )


async def send_with_secret(request: Request, command: CreateKey | RotateKey) -> responses.KeySecretResponse:
    """Gives the key a secret that is made here, returned once, and kept nowhere.

    Raises:
        ApiError: it is not allowed; the text says what is.
    """
    if request.headers.get("idempotency-key") is not None:
        raise ApiError(400, NOT_TWICE)
    await check_scopes_given(request, command)
    secret = make_secret()
    done = await request.send(msgspec.structs.replace(command, digest=digest_of(secret)))
    text = format_key(request.caller.tenant, done.key, secret)
    return responses.KeySecretResponse(
        format_id(KIND, done.key), done.name, list(done.scopes), list(done.roles), format_time(done.expires_at), text
    )


async def revoke(request: Request) -> responses.KeyRevokedResponse:
    """Revokes a key."""
    done: Issued = await request.send(RevokeKey(key=parse_key_id(request), reason=request.body.reason))
    return responses.KeyRevokedResponse(format_id(KIND, done.key), done.revoked, done.changed)


def parse_key_id(request: Request) -> int:
    """Returns the key that the path names.

    Raises:
        Unknown: there is none.
    """
    text = request.path["id"]
    if not text.lower().startswith(f"{KIND}_"):
        raise Unknown(text)
    return parse_unit_id(text)


async def list_keys(request: Request) -> dict[str, Any]:
    """Lists the keys of the tenant, without their secrets."""
    rows, now = await request.read(lambda connection, tenant: (list_api_keys(connection, tenant), connection.now()))
    return {"keys": [describe_key(row, now) for row in rows]}


async def show_tenant(request: Request) -> responses.TenantResponse:
    """Shows the tenant of the key with its limits."""
    row, is_held, waits = await request.read(read_tenant_usage)
    return responses.TenantResponse(
        row.id, row.name, is_held, waits, row.max_running, row.max_waiting, row.max_requests,
        (row.keep_beats_us or BEATS_US) / MILLION, (row.keep_verbose_us or VERBOSE_US) / MILLION,
    )  # fmt: skip


def read_tenant_usage(connection: Connection, tenant: int) -> tuple[Tenant, int, int]:
    """Reads a tenant, how many of its jobs are held, and how many wait."""
    row = read_tenant(connection, tenant)
    assert row, "its key is a row of it"
    return row, count_held(connection, tenant), count_waiting(connection, tenant)


NOT_TWICE = (
    "this request takes no Idempotency-Key: its answer holds a secret, which is stored nowhere and never shown again; "
    "if an answer is lost, revoke the key and make another"
)
KEYS, KEY = "/v1/keys", "/v1/keys/{id}"
ROUTES = (
    Operation(
        method="POST", path=KEYS, scope="admin", summary="Create a key, which is shown once", call=create,
        body=KeyRequest, response=responses.KeySecretResponse, status=201, keyed=False,
    ),
    Operation(
        method="GET", path=KEYS, scope="admin", summary="List keys", call=list_keys,
        response=responses.KeysResponse,
    ),
    Operation(
        method="POST", path=f"{KEY}/rotate", scope="admin", summary="Rotate a key: its new secret is shown once",
        call=rotate, body=KeyExpiryRequest, response=responses.KeySecretResponse, keyed=False,
    ),
    Operation(
        method="POST", path=f"{KEY}/revoke", scope="admin", summary="Revoke a key for good", call=revoke,
        body=ReasonRequest, response=responses.KeyRevokedResponse,
    ),
    Operation(
        method="GET", path="/v1/tenant", scope="admin", summary="Show the tenant of the key, and its limits",
        call=show_tenant, response=responses.TenantResponse,
    ),
)  # fmt: skip
