"""Lease secrets: derived from a nonce that only the worker knows, and stored as hashes."""

from functools import lru_cache
from hashlib import blake2b, sha256

from interlock.kernel.commands import Claim
from interlock.kernel.errors import InterlockError

HASHES_MAX = 10_000
NONCE_MIN = 16  # bytes


def make_secret(nonce: str, claim: str, unit: int, fence: int) -> str:
    """The id of a lease: nobody who does not know the claim's nonce can guess it.

    The claim's key is in it, so that another claim with the same nonce is not answered with this one's leases.
    """
    key = nonce.encode()
    key = key if len(key) <= blake2b.MAX_KEY_SIZE else sha256(key).digest()
    return blake2b(b"%d:%d:%s" % (unit, fence, claim.encode()), key=key, digest_size=32).hexdigest()


def check_nonce(nonce: str) -> None:
    """Raises InterlockError for a nonce that could be guessed, and does not repeat it: it may be half of a secret."""
    if (size := len(nonce.encode())) < NONCE_MIN:
        raise InterlockError(
            f"the nonce of a claim has {size} bytes, and its leases could be guessed; allowed are at least {NONCE_MIN} "
            "random bytes, as in secrets.token_hex(16)"
        )


def hash_nonce(nonce: str) -> str:
    """What the record keeps of a nonce: enough to know it again, and unlike any key from which a lease is made."""
    return blake2b(nonce.encode(), digest_size=32, person=b"claim nonce").hexdigest()


@lru_cache(maxsize=HASHES_MAX)
def hash_secret(lease: str) -> str:
    """What the record keeps of a lease. It is asked at the grant, at the start and at the end."""
    return sha256(lease.encode()).hexdigest()


def refuse_other_nonce(command: Claim, nonce_hash: str | None) -> None:
    """A claim is repeated by whoever made it: its leases are made from its own nonce.

    Raises:
        InterlockError: it was made with another nonce.
    """
    if hash_nonce(command.nonce) != nonce_hash:
        raise InterlockError(
            f"the claim '{command.key}' was made with another nonce: repeat it with its own, or give this another key"
        )
