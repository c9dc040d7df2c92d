"""Keys as people ask for them: the secret is made here and told once; only a file of theirs may keep it."""

import hmac
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.client.json_views import instant
from interlock.kernel.api_keys import KIND, SECRET_BYTES, digest_of, read_key, spelled, split_roles
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
    """A key whose secret nobody will be told again."""

    issued: Issued
    text: str


def told(row: Row, now: int) -> dict[str, Any]:
    """A key as people and programs see it: never its secret."""
    expired = row.expires_at is not None and row.expires_at <= now
    return {
        "id": format_id(KIND, row.id), "name": row.name, "scopes": row.scopes.split(","),
        "roles": list(split_roles(row)),
        "state": "revoked" if row.revoked_at is not None else "expired" if expired else "valid",
        "created_at": instant(row.created_at), "created_by": row.created_by, "expires_at": instant(row.expires_at),
        "rotated_at": instant(row.rotated_at), "revoked_at": instant(row.revoked_at),
    }  # fmt: skip


def minted() -> str:
    """A secret that nobody can guess."""
    return secrets.token_hex(SECRET_BYTES)


def with_secret(app: "App", order: CreateKey | RotateKey) -> Secret:
    """The key is there, or has another secret, and this is it."""
    secret = minted()
    issued = app.send(msgspec.structs.replace(order, digest=digest_of(secret)))
    tenant = app.tenant if app.far else order.tenant  # a server makes keys of the tenant that asks
    return Secret(issued, spelled(tenant, issued.key, secret))


def sound(row: Row, secret: str, now: int) -> bool:
    """Whether this secret opens anything at that time of the store."""
    right = hmac.compare_digest(row.digest, digest_of(secret))
    return right and row.revoked_at is None and (row.expires_at is None or now < row.expires_at)


def opens(app: "App", text: str) -> bool:
    """Whether this is a key of the app's tenant that is good now."""
    read = read_key(text)
    if read is None or read[0] != app.tenant:
        return False
    _, number, secret = read

    def ask(connection: Connection, tenant: int) -> bool:
        row = find_api_key(connection, tenant, number)
        return row is not None and sound(row, secret, connection.now())

    return app.read(ask)


def kept_key(app: "App", file: Path, order: CreateKey) -> str:
    """The key in a file that only its owner may read; if none is there, or it is void, another was made and kept."""
    text = file_text(file)
    if text and not read_key(text):
        raise InterlockError(f"'{file}' holds no key; a key would be kept there, so move it away")
    if text and opens(app, text):
        return text
    made = with_secret(app, order).text
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        with open(create_private(fresh), "w", encoding="ascii") as out:
            out.write(made + "\n")
        os.replace(fresh, file)
    except OSError as error:
        raise InterlockError(f"the key cannot be kept in '{file}': {error.strerror}") from None
    return made


def file_text(file: Path) -> str:
    """What a file says that only its owner may read; nothing if it is not there. Raises InterlockError."""
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
