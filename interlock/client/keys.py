"""Keys as people ask for them: the secret is made here, told once, and kept nowhere."""

import secrets
from typing import TYPE_CHECKING

import msgspec

from interlock.kernel.access import SECRET_BYTES, Issued, Key, digest_of, spelled

if TYPE_CHECKING:
    from interlock.client.app import App


class Secret(msgspec.Struct, frozen=True):
    """A key whose secret nobody will be told again."""

    issued: Issued
    text: str


def with_secret(app: "App", order: Key) -> Secret:
    """The key is there, or has another secret, and this is it."""
    secret = secrets.token_hex(SECRET_BYTES)
    issued = app.send(msgspec.structs.replace(order, digest=digest_of(secret)))
    return Secret(issued, spelled(order.tenant, issued.key, secret))
