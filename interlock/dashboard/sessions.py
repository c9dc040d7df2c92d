"""Sessions: a cookie that stands for an API key, and tokens against forms from other sites.

A cookie says which key it is of, until when it is good, and a nonce; it is signed by the seal of the key, which
changes when the key gets another secret. Nothing is stored: a key that is revoked, expired or rotated ends its sessions
on every server as soon as the server looks the key up again, which is within a second.

A link that signs in (`interlock ui`) is the same kind of text with another purpose. It is good once on each server, for
ten minutes.
"""

import hmac
import secrets
import time
from collections import deque
from hashlib import sha256

import msgspec

from interlock.client.keys import is_valid_secret
from interlock.kernel.api_keys import digest_of, read_key
from interlock.kernel.ids import format_id, parse_id
from interlock.server.auth import Caller, KeyCache, read_loop_time
from interlock.server.errors import ApiError
from interlock.server.limits import MINUTE

COOKIE = "interlock_session"
LASTS_SECONDS, LINK_SECONDS = 12 * 3600, 600
NONCE_BYTES = 32
SIGN_IN, ENTER, FORM = "session", "enter", "form"  # what a signed text is for
WRONG_MAX = 5  # per minute, address and key
TEXT_MAX = 500  # characters of a cookie or a link


class Session(msgspec.Struct, frozen=True):
    """A caller who has signed in."""

    caller: Caller
    nonce: str

    def make_form_token(self) -> str:
        """Returns the token of a form. It is masked, so that no two answers have the same bytes."""
        token, mask = self.own_token, secrets.token_bytes(32)
        return (mask + mix(token, mask)).hex()

    def is_own_token(self, text: str) -> bool:
        """Returns whether a form was made for this session."""
        try:
            parts = bytes.fromhex(text)
        except ValueError:
            return False
        mask, masked = parts[:32], parts[32:]
        if len(masked) != 32:
            return False
        return hmac.compare_digest(mix(mask, masked), self.own_token)

    @property
    def own_token(self) -> bytes:
        return sign_bytes(self.caller.seal, f"{FORM} {self.nonce}")


def mix(text: bytes, mask: bytes) -> bytes:
    """Combines two byte strings of one length, so that either gives back the other."""
    return bytes(left ^ right for left, right in zip(text, mask, strict=True))


def sign_bytes(seal: str, text: str) -> bytes:
    """Signs a text."""
    return hmac.new(seal.encode(), text.encode(), sha256).digest()


def make_signed(purpose: str, tenant: int, key: int, seal: str, seconds: int) -> str:
    """Returns a text that stands for a key for so many seconds: tenant, key, end, nonce, signature."""
    body = (
        f"{tenant}.{format_id('', key).removeprefix('_')}.{int(time.time()) + seconds}.{secrets.token_hex(NONCE_BYTES)}"
    )
    return f"{body}.{sign_bytes(seal, f'{purpose} {body}').hex()}"


def make_link_token(key: str) -> str:
    """Returns the token of a link that signs in with a key, given as its owner keeps it.

    Raises:
        ValueError: it is no key.
    """
    parts = read_key(key)
    if parts is None:
        raise ValueError("this is no key")
    tenant, number, secret = parts
    return make_signed(ENTER, tenant, number, digest_of(f"seal {digest_of(secret)}"), LINK_SECONDS)


class Sessions:
    """Signs in, and finds who a cookie stands for."""

    def __init__(self, keys: KeyCache) -> None:
        self.keys = keys
        self.used: dict[str, float] = {}  # nonces of links, with the time at which they are over
        self.wrong: dict[tuple[str, str], deque[float]] = {}

    async def find(self, cookie: str) -> Session | None:
        """Returns the session that a cookie stands for, or None."""
        caller = await self.read_signed(SIGN_IN, cookie)
        return None if caller is None else Session(caller, cookie.split(".")[3])

    async def read_signed(self, purpose: str, text: str) -> Caller | None:
        """Returns whose key a signed text stands for; None if it is over, or was not signed by us for this."""
        body, _, signature = text.rpartition(".")
        parts = body.split(".")
        if len(text) > TEXT_MAX or len(parts) != 4 or not (parts[0].isdecimal() and parts[2].isdecimal()):
            return None
        if len(parts[0]) > 10 or len(parts[1]) > 13 or not parts[1].isalnum() or int(parts[2]) <= time.time():
            return None
        caller = await self.keys.find_by_id(int(parts[0]), parse_id(parts[1]))
        if caller is None:
            return None
        right = sign_bytes(caller.seal, f"{purpose} {body}").hex()
        return caller if hmac.compare_digest(right, signature) else None

    async def sign_in(self, key: str, address: str) -> str:
        """Returns a cookie for a key.

        Raises:
            ApiError: 401, because the key is not valid; 429 after five wrong ones in a minute for this address and key.
        """
        parts = read_key(key.strip())
        who = (address, "" if parts is None else f"{parts[0]}.{parts[1]}")
        self.refuse_repeated(who)
        known = await self.keys.find(*parts) if parts else None
        if known is None or parts is None or not is_valid_secret(known.row, parts[2], known.now()):
            self.wrong.setdefault(who, deque()).append(read_loop_time())
            raise ApiError(401, "this key is not valid; `interlock key create NAME --scope read` makes one")
        return make_signed(SIGN_IN, parts[0], parts[1], digest_of(f"seal {known.row.digest}"), LASTS_SECONDS)

    def refuse_repeated(self, who: tuple[str, str]) -> None:
        """Raises ApiError (429) for an address that has shown five wrong secrets of a key within a minute."""
        now = read_loop_time()
        if len(self.wrong) > 10_000:
            self.wrong = {each: times for each, times in self.wrong.items() if times and now - times[-1] < MINUTE}
        times = self.wrong.get(who, deque())
        while times and now - times[0] >= MINUTE:
            times.popleft()
        if len(times) >= WRONG_MAX:
            wait = str(max(1, round(MINUTE - (now - times[0]))))
            text = f"{WRONG_MAX} wrong keys were shown within a minute; try again in {wait} seconds"
            raise ApiError(429, text, code="RATE_LIMITED", headers={"Retry-After": wait})

    async def enter(self, token: str) -> str | None:
        """Returns a cookie for a link that signs in; None if it is over, or was used here before."""
        caller = await self.read_signed(ENTER, token)
        if caller is None:
            return None
        now = time.time()
        self.used = {nonce: until for nonce, until in self.used.items() if until > now}
        nonce = token.split(".")[3]
        if nonce in self.used:
            return None
        self.used[nonce] = now + LINK_SECONDS
        key = parse_id(caller.key.rpartition("_")[2])
        return make_signed(SIGN_IN, caller.tenant, key, caller.seal, LASTS_SECONDS)
