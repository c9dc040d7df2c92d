"""Limits per key, per address and per connection."""

import ipaddress
from collections import deque

import msgspec

from interlock.server.errors import ApiError

MINUTE = 60.0  # seconds
ADDRESSES_MAX = 10_000  # that are remembered at a time


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Every limit is a setting of `interlock serve`."""

    streams: int = 100  # of events, open at a time for one key
    idle_seconds: float = 30.0  # for which a connection may ask nothing
    request_seconds: float = 30.0  # in which the headers of a request must come, and as long again for its body
    question_seconds: float = 2.0  # that one question to the database may take; then it is stopped
    wrong_keys: int = 10  # a minute from one address; further ones are told to wait


class InvalidKeyLimiter:
    """How often each address has shown a wrong key in the last minute.

    It is asked only about a key that is wrong: a right one is never made to wait for the wrong ones of a neighbour.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.times: dict[str, deque[float]] = {}

    def count(self, address: str, now: float) -> None:
        """One more wrong key came from there, at `now` seconds.

        Raises:
            ApiError: that was one too many.
        """
        group = find_network(address)
        times = self.times.setdefault(group, deque())
        while times and now - times[0] >= MINUTE:
            times.popleft()
        if len(times) >= self.limit:
            wait = str(max(1, round(MINUTE - (now - times[0])))) if times else str(round(MINUTE))
            text = f"{self.limit} wrong keys came from this address within a minute; ask again later"
            raise ApiError(429, text, code="RATE_LIMITED", headers={"Retry-After": wait})
        times.append(now)
        if len(self.times) > ADDRESSES_MAX:
            self.forget(now)

    def forget(self, now: float) -> None:
        """Only addresses with a wrong key in the last minute are remembered, and of those the latest."""
        recent = {group: times for group, times in self.times.items() if times and now - times[-1] < MINUTE}
        self.times = dict(sorted(recent.items(), key=lambda item: item[1][-1])[-ADDRESSES_MAX // 2 :])


def find_network(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 one: whoever has one address there has all of them."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
