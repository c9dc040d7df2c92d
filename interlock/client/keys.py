"""API keys at the client: make a secret, keep it in a private file, read it."""

import hmac
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.durations import format_time
from interlock.kernel.api_keys import KIND, SECRET_BYTES, digest_of, format_key, read_key, split_roles
from interlock.kernel.commands import CreateKey, Issued, RotateKey
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Key as Row
from interlock.store.connection import Connection
from interlock.store.private_files import create_private, is_open_to_others
from interlock.store.queries.api_keys import find_api_key

if TYPE_CHECKING:
    from interlock.client.app import App


class Secret(msgspec.Struct, frozen=True):
    """An API key with its secret, which nobody is shown again."""

    issued: Issued
    text: str


def describe_key(row: Row, now: int) -> dict[str, Any]:
    """Returns a key as people and programs see it, without its secret; `now` is microseconds UTC."""
    expired = row.expires_at is not None and row.expires_at <= now
    return {
        "id": format_id(KIND, row.id), "name": row.name, "scopes": row.scopes.split(","),
        "roles": list(split_roles(row)),
        "state": "revoked" if row.revoked_at is not None else "expired" if expired else "valid",
        "created_at": format_time(row.created_at), "created_by": row.created_by,
        "expires_at": format_time(row.expires_at),
        "rotated_at": format_time(row.rotated_at), "revoked_at": format_time(row.revoked_at),
    }  # fmt: skip


def make_secret() -> str:
    """Makes a secret that nobody can guess."""
    return secrets.token_hex(SECRET_BYTES)


def issue_key(app: "App", order: CreateKey | RotateKey) -> Secret:
    """Creates a key, or gives it another secret, and returns it with the secret."""
    secret = make_secret()
    issued = app.send(msgspec.structs.replace(order, digest=digest_of(secret)))
    tenant = app.tenant if app.far else order.tenant  # a server makes keys for the tenant of the caller
    return Secret(issued, format_key(tenant, issued.key, secret))


def is_valid_secret(row: Row, secret: str, now: int) -> bool:
    """Whether this is the secret of the key, and the key is valid at `now`, in microseconds of the store's clock."""
    return hmac.compare_digest(row.digest, digest_of(secret)) and is_valid_at(row, now)


def is_valid_at(row: Row, now: int) -> bool:
    """Whether a key is neither revoked nor expired at `now`, in microseconds of the store's clock."""
    return row.revoked_at is None and (row.expires_at is None or now < row.expires_at)


def is_valid_key(app: "App", text: str) -> bool:
    """Whether this is a key of the app's tenant that is valid now."""
    parts = read_key(text)
    if parts is None or parts[0] != app.tenant:
        return False
    _, number, secret = parts

    def check(connection: Connection, tenant: int) -> bool:
        row = find_api_key(connection, tenant, number)
        return row is not None and is_valid_secret(row, secret, connection.now())

    return app.read(check)


def load_or_create_key(app: "App", file: Path, order: CreateKey) -> str:
    """Returns the key in a file that only its owner may read; without a valid one there, it makes one and keeps it.

    Raises:
        InterlockError: others can read the file, it holds something else, or it cannot be written.
    """
    text = read_private_file(file)
    if text and not read_key(text):
        raise InterlockError(f"'{file}' holds no key; a key would be kept there, so move it away")
    if text and is_valid_key(app, text):
        return text
    key = issue_key(app, order).text
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        with open(create_private(fresh), "w", encoding="ascii") as out:
            out.write(key + "\n")
        os.replace(fresh, file)
    except OSError as error:
        raise InterlockError(f"the key cannot be kept in '{file}': {error.strerror}") from None
    return key


def read_private_file(file: Path) -> str:
    """Reads a file that only its owner may read; empty if it is not there.

    Raises:
        InterlockError: others can read it, or it cannot be read at all.
    """
    if not file.exists():
        return ""
    refuse_open(file)
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise InterlockError(f"'{file}' cannot be read: {error.strerror}") from None


def refuse_open(file: Path) -> None:
    """Raises InterlockError where others could read what is secret, or put something else in its place."""
    if is_open_to_others(file):
        raise InterlockError(f"the group or others can read or write '{file}': chmod 600 it")
