"""API keys: create, rotate and revoke."""

import re

from interlock.core import validation
from interlock.kernel.api_keys import KIND, SCOPES, split_roles
from interlock.kernel.commands import CreateKey, Issued, RevokeKey, RotateKey
from interlock.kernel.errors import InterlockError, Unknown
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Key
from interlock.store.queries.api_keys import add_key, change_key, lock_key
from interlock.store.queries.tenants import read_tenant
from interlock.store.unit_of_work import UnitOfWork

DIGEST = re.compile(r"[0-9a-f]{64}")
LATEST = 2**62  # microseconds; later than any key is of use


def create_key(tx: UnitOfWork, command: CreateKey) -> Issued:
    """The key is there, with this secret."""
    validation.check_name("name", command.name)
    if not command.scopes:
        raise InterlockError(f"what may the key be used for? Name at least one of {', '.join(SCOPES)}")
    for scope in command.scopes:
        validation.check_choice("scope", scope, SCOPES)
    for role in command.roles:
        validation.check_name("a role", role)
        if "," in role:
            raise InterlockError(f"the role '{role}' has a comma, which is not allowed")
    if read_tenant(tx.connection, command.tenant) is None:
        raise Unknown(f"there is no tenant {command.tenant}; `interlock tenant set NUMBER --name NAME` makes one")
    row = Key(
        id=tx.ids.take(), tenant=command.tenant, name=command.name, digest=check_digest(command.digest),
        scopes=",".join(sorted(set(command.scopes))), created_at=tx.now, created_by=command.describe_actor(),
        expires_at=until(tx, command), roles=",".join(sorted(set(command.roles))),
    )  # fmt: skip
    add_key(tx, row)
    return describe_issued(row, changed=True)


def rotate_key(tx: UnitOfWork, command: RotateKey) -> Issued:
    """The key keeps its id, its name and its scopes; the secret that it had is worth nothing."""
    row = find_key(tx, command)
    if row.revoked_at is not None:
        raise InterlockError(f"{format_id(KIND, row.id)} was revoked, and stays so; create another key")
    row.digest, row.rotated_at = check_digest(command.digest), tx.now
    if command.expires_us is not None:
        row.expires_at = until(tx, command)
    elif row.expires_at is not None and row.expires_at <= tx.now:
        raise InterlockError(f"{format_id(KIND, row.id)} has expired; say for how long it is to last now")
    change_key(tx, row)
    return describe_issued(row, changed=True)


def revoke_key(tx: UnitOfWork, command: RevokeKey) -> Issued:
    """The key is void; one that is void stays so."""
    row = find_key(tx, command)
    if row.revoked_at is not None:
        return describe_issued(row, changed=False)
    row.revoked_at, row.revoked_by = tx.now, command.describe_actor()
    change_key(tx, row)
    return describe_issued(row, changed=True)


def find_key(tx: UnitOfWork, command: RotateKey | RevokeKey) -> Key:
    """The key's row, locked.

    Raises:
        Unknown: there is none.
    """
    row = lock_key(tx, command.tenant, command.key)
    if row is None:
        raise Unknown(f"tenant {command.tenant} has no {format_id(KIND, command.key)}")
    return row


def until(tx: UnitOfWork, command: CreateKey | RotateKey) -> int | None:
    """Returns the instant until which a key is valid; None: for ever."""
    if command.expires_us is None:
        return None
    validation.check_range("expires_us", command.expires_us, 1, LATEST - tx.now)
    return tx.now + command.expires_us


def check_digest(digest: str) -> str:
    """Checks that a secret is given by its digest."""
    if not DIGEST.fullmatch(digest):
        raise InterlockError("digest is not allowed; allowed is the SHA-256 of the secret, in hexadecimal")
    return digest


def describe_issued(row: Key, *, changed: bool) -> Issued:
    """What the caller is told of a key; `changed` is whether the command changed it."""
    scopes, roles = tuple(row.scopes.split(",")), split_roles(row)
    return Issued(row.id, row.name, scopes, row.expires_at, row.revoked_at is not None, changed, roles)
