"""What the API answers of keys and of the tenant that they belong to."""

import msgspec


class KeyResponse(msgspec.Struct):
    """A key, without its secret; `state` is valid, expired or revoked."""

    id: str
    name: str
    scopes: list[str]
    roles: list[str]
    state: str
    created_at: str
    created_by: str
    expires_at: str | None
    rotated_at: str | None
    revoked_at: str | None


class KeysResponse(msgspec.Struct):
    keys: list[KeyResponse]


class KeySecretResponse(msgspec.Struct):
    """A key with its secret, which nobody will be told again."""

    id: str
    name: str
    scopes: list[str]
    roles: list[str]
    expires_at: str | None
    key: str


class KeyRevokedResponse(msgspec.Struct):
    """A key that is void, and whether it was made so now."""

    id: str
    revoked: bool
    changed: bool


class TenantResponse(msgspec.Struct):
    """A tenant: how much of its work is held and waits, how much may, and how often it may ask; null is no limit."""

    tenant: int
    name: str
    held: int
    waiting: int
    max_running: int | None
    max_waiting: int | None
    max_requests: int | None
    keep_beats_seconds: float
    keep_verbose_seconds: float
