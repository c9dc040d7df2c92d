"""Keys of programs that ask over HTTP. Only the digest of a secret is ever told here."""

import msgspec

from interlock.kernel.commands.base import Command

ORDERS = ("create", "rotate", "revoke")


class Issued(msgspec.Struct, frozen=True):
    """A key after a command, without its secret, and whether the command changed anything."""

    key: int
    name: str
    scopes: tuple[str, ...]
    expires_at: int | None
    revoked: bool
    changed: bool
    roles: tuple[str, ...] = ()


class Key(Command[Issued], frozen=True, kw_only=True):
    """A key of the tenant is made, has another secret, or is void. Only the digest of the secret is ever told here."""

    order: str  # create, rotate or revoke
    key: int | None = None  # which one; of a new one nothing
    digest: str = ""  # of the secret, for create and rotate
    name: str = ""
    scopes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()  # of its holder; approvals may ask for one
    expires_us: int | None = None  # from now on; never, if nothing is said
