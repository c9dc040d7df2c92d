"""API keys as data: how a key is spelled, and its scopes."""

import re
from hashlib import sha256

from interlock.kernel.ids import ALPHABET, format_id, parse_id
from interlock.kernel.rows import Key as Row

KIND = "key"
SCOPES = ("submit", "read", "operate", "approve", "worker", "admin", "vouch", "shell")
ADMIN = "admin"  # may do what all others may, and yet speaks for nobody else and runs no commands
VOUCH = "vouch"  # may speak for people and roles that are not the key's own; it is always given by name
SHELL = "shell"  # may have commands run on workers, with the scope of what submits them; it is always given by name
SECRET_BYTES = 32
SPELLING = re.compile(rf"ilk_([1-9][0-9]{{0,9}})_([{ALPHABET}]{{1,13}})_([0-9a-f]{{{2 * SECRET_BYTES}}})")

SECRETS = re.compile(rf"(ilk_[0-9]+_[{ALPHABET}]+_|\b[0-9a-f]{{6}})[0-9a-f]{{{2 * SECRET_BYTES - 6},}}")


def digest_of(secret: str) -> str:
    """What is kept of a secret. It is random and long, so nobody finds it by trying."""
    return sha256(secret.encode()).hexdigest()


def format_key(tenant: int, key: int, secret: str) -> str:
    """The whole key, as its owner keeps it."""
    return f"ilk_{tenant}_{format_id('', key).removeprefix('_')}_{secret}"


def read_key(text: str) -> tuple[int, int, str] | None:
    """The tenant, the id and the secret of a whole key; None if it is none."""
    match = SPELLING.fullmatch(text)
    return (int(match[1]), parse_id(match[2]), match[3]) if match else None


def redact_keys(text: str) -> str:
    """A text for a log: of keys and of whatever else is as long and as random, only the beginning."""
    return SECRETS.sub(r"\1…", text)


def split_roles(row: Row) -> tuple[str, ...]:
    """The roles of a key's holder."""
    return tuple(filter(None, row.roles.split(",")))


def allows(scopes: tuple[str, ...], wanted: str) -> bool:
    """Whether a key with these scopes may do what needs `wanted`; an admin may do all but vouch and run commands."""
    return wanted in scopes or (ADMIN in scopes and wanted not in (VOUCH, SHELL))
