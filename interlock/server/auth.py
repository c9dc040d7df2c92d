"""Authentication: look up an API key, and cache it for less than a second."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from interlock.client.keys import is_valid_at, is_valid_secret
from interlock.core.plugin import Registry
from interlock.kernel.api_keys import KIND, allows, digest_of, read_key, split_roles
from interlock.kernel.commands import Command
from interlock.kernel.commands.submit import list_option_names, list_work
from interlock.kernel.ids import format_id
from interlock.kernel.rows import Key
from interlock.server.errors import ApiError
from interlock.store.connection import Connection
from interlock.store.queries.api_keys import find_api_key
from interlock.store.queries.tenants import read_tenant

TRUSTED_SECONDS = 0.5  # seconds
CACHED_MAX = 10_000
MISSING = "a key is wanted, as in `Authorization: Bearer ilk_…`; `interlock key create` makes one"
BAD = "this key is not valid"
ASK = {"WWW-Authenticate": "Bearer"}


class InvalidKey(ApiError):
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


class CachedKey(msgspec.Struct, frozen=True):
    """What the database said of a key, and when."""

    row: Key
    limited: bool  # whether its tenant may ask only so often
    store_us: int
    read_at: float  # by our own clock

    def now(self) -> int:
        """The time of the store, as far as we know."""
        return self.store_us + round((read_loop_time() - self.read_at) * 1_000_000)


def read_loop_time() -> float:
    """Seconds by the clock of the event loop, which only goes forward."""
    return asyncio.get_running_loop().time()


ReadQuery = Callable[[Callable[[Connection], CachedKey | None], int], Awaitable[CachedKey | None]]


class KeyCache:
    """The keys that were used lately."""

    def __init__(self, read: ReadQuery) -> None:
        self.read = read
        self.cached: dict[tuple[int, int], CachedKey] = {}
        self.loads: dict[tuple[int, int], asyncio.Task[CachedKey | None]] = {}  # that are on their way

    async def find_caller(self, header: str) -> Caller:
        """Whose key this is.

        Raises:
            ApiError: it does not say what was wrong with the key.
        """
        scheme, _, text = header.partition(" ")
        if not header or scheme.lower() != "bearer":
            raise ApiError(401, MISSING, headers=ASK)
        read = read_key(text.strip())
        known_key = await self.find(*read) if read else None
        if known_key is None or read is None or not is_valid_secret(known_key.row, read[2], known_key.now()):
            raise InvalidKey(401, BAD, headers=ASK)
        return make_caller(known_key)

    async def find_by_id(self, tenant: int, key: int) -> Caller | None:
        """Whose key has this id, for somebody who has shown its secret before; None if it is not valid any more."""
        if tenant >= 2**31 or key >= 2**63:
            return None
        known_key = self.cached.get((tenant, key))
        if known_key is None or read_loop_time() - known_key.read_at >= TRUSTED_SECONDS:
            known_key = await asyncio.shield(self.loads.get((tenant, key)) or self.begin_load(tenant, key))
        if known_key is None or not is_valid_at(known_key.row, known_key.now()):
            return None
        return make_caller(known_key)

    async def find(self, tenant: int, key: int, secret: str) -> CachedKey | None:
        """What is known of a key. One that does not open is looked up again: it may have another secret by now."""
        if tenant >= 2**31 or key >= 2**63:
            return None
        cached = self.cached.get((tenant, key))
        if (
            cached
            and read_loop_time() - cached.read_at < TRUSTED_SECONDS
            and is_valid_secret(cached.row, secret, cached.now())
        ):
            return cached
        if other := self.loads.get((tenant, key)):  # many who ask at the same time share a look
            known_key = await asyncio.shield(other)
            if known_key and is_valid_secret(known_key.row, secret, known_key.now()):
                return known_key
        return await asyncio.shield(self.begin_load(tenant, key))

    def begin_load(self, tenant: int, key: int) -> "asyncio.Task[CachedKey | None]":
        """Begins to look a key up; until it is found, others may wait for the same look."""
        load = self.loads[tenant, key] = asyncio.create_task(self.load_key(tenant, key))

        def end(done: "asyncio.Task[CachedKey | None]") -> None:
            if self.loads.get((tenant, key)) is load:
                del self.loads[tenant, key]
            if not done.cancelled():
                done.exception()  # whoever waited is told; if all of them are gone, nobody need be

        load.add_done_callback(end)
        return load

    async def load_key(self, tenant: int, key: int) -> CachedKey | None:
        read_at = read_loop_time()

        def query(connection: Connection) -> CachedKey | None:
            row, its = find_api_key(connection, tenant, key), read_tenant(connection, tenant)
            limited = its is not None and its.max_requests is not None
            return None if row is None else CachedKey(row, limited, connection.now(), read_at)

        known_key = await self.read(query, tenant)
        if len(self.cached) >= CACHED_MAX:
            self.cached.clear()
        if known_key is None:
            self.cached.pop((tenant, key), None)
        else:
            self.cached[tenant, key] = known_key
        return known_key


def make_caller(known_key: CachedKey) -> Caller:
    """Whoever has this key, and what it allows."""
    row = known_key.row
    scopes, seal = tuple(row.scopes.split(",")), digest_of(f"seal {row.digest}")
    return Caller(row.tenant, format_id(KIND, row.id), row.name, scopes, split_roles(row), known_key.limited, seal)


def require_option_scopes(caller: Caller, registry: Registry, command: Command[Any]) -> None:
    """Raises ApiError (403) for a caller who asks for work with options that need a scope which its key lacks."""
    if registry.option_scopes:
        for name in {name for work in list_work(command) for name in list_option_names(work)}:
            if scope := registry.option_scopes.get(name):
                require_scope(caller, scope)


def require_scope(caller: Caller, wanted: str) -> None:
    """Raises ApiError (403) for a caller whose key lacks a scope."""
    if not allows(caller.scopes, wanted):
        raise ApiError(403, f"this key lacks the scope '{wanted}'", needs=wanted, has=list(caller.scopes))
