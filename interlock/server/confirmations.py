"""Signed tokens that confirm a bulk action: they hold what the caller was shown."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Any

import msgspec

from interlock.server.errors import ApiError
from interlock.server.operations import Request

CONFIRM_US = 600_000_000
ADVICE = "ask again without `confirm`, look at the count, and send the new token"


class Confirmation(msgspec.Struct, frozen=True):
    """What a caller was shown, and may confirm; signed, so that nobody makes one up."""

    verb: str
    tenant: int
    filter: str  # digest
    at: int  # microseconds, by the store's clock
    units: str  # which were shown


def digest_filter(*parts: Any) -> str:
    """Returns the digest of what a caller asked for: it must be the same when they confirm."""
    return sha256(msgspec.json.encode(parts)).hexdigest()


def sign_confirmation(seal: str, confirmation: Confirmation) -> str:
    """Returns a token that only the holder of the same key can send back.

    Parameters:
        seal: the secret by which the tokens of a key are known.
    """
    text = urlsafe_b64encode(msgspec.json.encode(confirmation)).rstrip(b"=")
    return f"{text.decode()}.{hmac.new(seal.encode(), text, sha256).hexdigest()}"


def read_confirmation(seal: str, token: str) -> Confirmation | None:
    """Returns what a token says, or None if it was not signed for this key."""
    text, _, signature = token.partition(".")
    if not hmac.compare_digest(hmac.new(seal.encode(), text.encode(), sha256).hexdigest(), signature):
        return None
    return msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Confirmation)


def check_confirmation(request: Request, token: str, verb: str, filter_digest: str, now: int) -> Confirmation:
    """Returns what a token confirms.

    Raises:
        ApiError: 409, because it was given for another key, verb or filter, or more than ten minutes ago.
    """
    confirmation, why = read_confirmation(request.caller.seal, token), ""
    if confirmation is None or confirmation.tenant != request.caller.tenant or confirmation.verb != verb:
        why = "this token was not given to this key for this"
    elif confirmation.filter != filter_digest:
        why = "this token was given for another filter or reason"
    elif now - confirmation.at > CONFIRM_US:
        why = "this token was given more than ten minutes ago"
    if confirmation is None or why:
        raise ApiError(409, f"{why}; {ADVICE}", code="CONFIRM_MISMATCH")
    return confirmation
