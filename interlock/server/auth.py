"""Who asks: a key is looked up, and what is known of it is believed for less than a second."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from interlock.client.keys import sound
from interlock.kernel.api_keys import KIND, allows, digest_of, read_key, split_roles
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Key
from interlock.server.errors import Refusal
from interlock.store.connection import Connection
from interlock.store.queries.api_keys import find_api_key
from interlock.store.queries.tenants import read_tenant

BELIEVED = 0.5  # seconds
KNOWN_MAX = 10_000
MISSING = "a key is wanted, as in `Authorization: Bearer ilk_…`; `interlock key create` makes one"
BAD = "this key is not valid"
ASK = {"WWW-Authenticate": "Bearer"}


class WrongKey(Refusal):
    """A key was shown, and it is not valid."""


class Caller(msgspec.Struct, frozen=True):
    """Whoever asks: for a tenant, with what a key allows."""

    tenant: int
    key: str  # its id, as it is shown
    name: str
    scopes: tuple[str, ...]
    roles: tuple[str, ...] = ()
    limited: bool = False  # it may ask only so often
    seal: str = ""  # by which what was told to this key is known again


class Known(msgspec.Struct, frozen=True):
    """What the database said of a key, and when."""

    row: Key
    limited: bool  # whether its tenant may ask only so often
    store_us: int
    looked: float  # by our own clock

    def now(self) -> int:
        """The time of the store, as far as we know."""
        return self.store_us + round((moment() - self.looked) * 1_000_000)


def moment() -> float:
    """Seconds by the clock of the event loop, which only goes forward."""
    return asyncio.get_running_loop().time()


Look = Callable[[Callable[[Connection], Known | None], int], Awaitable[Known | None]]


class Keyring:
    """The keys that were used lately."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.known: dict[tuple[int, int], Known] = {}
        self.looks: dict[tuple[int, int], asyncio.Task[Known | None]] = {}  # that are on their way

    async def caller(self, header: str) -> Caller:
        """Whose key this is. Raises Refusal, which does not say what was wrong with the key."""
        scheme, _, text = header.partition(" ")
        if not header or scheme.lower() != "bearer":
            raise Refusal(401, MISSING, headers=ASK)
        read = read_key(text.strip())
        found = await self.find(*read) if read else None
        if found is None or read is None or not sound(found.row, read[2], found.now()):
            raise WrongKey(401, BAD, headers=ASK)
        row = found.row
        scopes, seal = tuple(row.scopes.split(",")), digest_of(f"seal {row.digest}")
        return Caller(row.tenant, format_id(KIND, row.id), row.name, scopes, split_roles(row), found.limited, seal)

    async def find(self, tenant: int, key: int, secret: str) -> Known | None:
        """What is known of a key. One that does not open is looked up again: it may have another secret by now."""
        if tenant >= 2**31 or key >= 2**63:
            return None
        known = self.known.get((tenant, key))
        if known and moment() - known.looked < BELIEVED and sound(known.row, secret, known.now()):
            return known
        if other := self.looks.get((tenant, key)):  # many who ask at the same time share a look
            found = await asyncio.shield(other)
            if found and sound(found.row, secret, found.now()):
                return found
        look = self.looks[tenant, key] = asyncio.create_task(self.look_up(tenant, key))
        try:
            return await asyncio.shield(look)
        finally:
            if self.looks.get((tenant, key)) is look:
                del self.looks[tenant, key]

    async def look_up(self, tenant: int, key: int) -> Known | None:
        looked = moment()

        def ask(connection: Connection) -> Known | None:
            row, its = find_api_key(connection, tenant, key), read_tenant(connection, tenant)
            limited = its is not None and its.max_requests is not None
            return None if row is None else Known(row, limited, connection.now(), looked)

        found = await self.look(ask, tenant)
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        if found is None:
            self.known.pop((tenant, key), None)
        else:
            self.known[tenant, key] = found
        return found


def refuse_scope(caller: Caller, wanted: str) -> None:
    if not allows(caller.scopes, wanted):
        raise Refusal(403, f"this key lacks the scope '{wanted}'", needs=wanted, has=list(caller.scopes))
