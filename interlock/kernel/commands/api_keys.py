"""Commands of API keys. Only digests of secrets are in them."""

import msgspec

from interlock.kernel.commands.base import Command, Route


class Issued(msgspec.Struct, frozen=True):
    """A key after a command, without its secret, and whether the command changed anything."""

    key: int
    name: str
    scopes: tuple[str, ...]
    expires_at: int | None
    revoked: bool
    changed: bool
    roles: tuple[str, ...] = ()


class CreateKey(Command[Issued], frozen=True, kw_only=True):
    """Creates a key of the tenant."""

    committer = Route.OTHER
    scope = "admin"
    public = True

    name: str
    scopes: tuple[str, ...]
    digest: str = ""  # of its secret
    roles: tuple[str, ...] = ()  # of its holder; approvals may ask for one
    expires_us: int | None = None  # from now on; never, if nothing is said


class RotateKey(Command[Issued], frozen=True, kw_only=True):
    """Gives a key another secret; its id, its name and its scopes stay."""

    committer = Route.OTHER
    scope = "admin"
    public = True

    key: int
    digest: str = ""  # of its new secret
    expires_us: int | None = None  # from now on; as before, if nothing is said


class RevokeKey(Command[Issued], frozen=True, kw_only=True):
    """Revokes a key for good."""

    committer = Route.OTHER
    scope = "admin"
    public = True

    key: int
