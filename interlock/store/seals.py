"""Seals: a hash chain over the committed acts of each tenant.

Whoever ticks seals what no open transaction can come before any more, in the order of the acts' ids, which is the
order in which every reader sees them. Each act's digest is rolled into the root before it, so a root stands for all
acts up to its last one, wherever the seals between them lie. Writers share no row for it: a seal is written by a tick
alone.

A seal proves that nothing before it was changed, added, removed or reordered since somebody kept its root. It does
not prove the last second, nor a database whose owner rewrote everything while nobody kept a root.
"""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

import msgspec

from interlock.kernel.rows import Seal
from interlock.store.connection import Connection
from interlock.store.queries.snapshots import read_horizon, read_rows

SEALED_MOST = 10_000  # acts in one seal
EVERY_US = 1_000_000  # however many processes tick, a tenant has no more seals than one in that time
START = sha256(b"interlock").hexdigest()  # the root of nothing
# Acts that have left the database with all their units have left their digests.
DIGESTS = """
SELECT id, digest FROM (
    SELECT id, digest FROM act WHERE tenant = :tenant AND id > :after AND id < :end
    UNION ALL
    SELECT id, digest FROM act_gone WHERE tenant = :tenant AND id > :after AND id < :end) AS known
ORDER BY id LIMIT :limit
"""


INSERT = (
    f"INSERT INTO seal ({', '.join(Seal.__struct_fields__)}) "
    f"VALUES ({', '.join(f':{name}' for name in Seal.__struct_fields__)}) ON CONFLICT DO NOTHING"
)


# Of those who tick at the same time one seals: the others would wait until all that it does besides is committed.
ALONE = "SELECT pg_try_advisory_xact_lock(7325, (:tenant)::integer)"


class Sealed(NamedTuple):
    """How far a chain has come."""

    act: int  # the last one
    acts: int  # how many
    root: str


NOTHING = Sealed(0, 0, START)


def roll(root: str, digests: Iterable[str]) -> str:
    """The root over one that was before and the digests of acts behind it."""
    for digest in digests:
        root = sha256(f"{root}{digest}".encode()).hexdigest()
    return root


def read_last_seal(connection: Connection, tenant: int) -> Seal | None:
    """Reads the last seal of a tenant."""
    rows = read_rows(connection, Seal, "WHERE tenant = :tenant ORDER BY number DESC LIMIT 1", tenant=tenant)
    return rows[0] if rows else None


def make_next_seal(connection: Connection, tenant: int, now: int) -> Seal | None:
    """The seal of what was committed since the last one; None if nothing was, or that one is too new."""
    last = read_last_seal(connection, tenant)
    if last is not None and last.acts < SEALED_MOST and now - last.at < EVERY_US:
        return None
    after = last.last_act if last else 0
    params = {"tenant": tenant, "after": after, "end": read_horizon(connection), "limit": SEALED_MOST}
    acts = connection.rows(DIGESTS, params)
    if not acts:
        return None
    root = roll(last.root if last else START, (digest for _, digest in acts))
    return Seal(
        tenant=tenant, number=last.number + 1 if last else 1, first_act=acts[0][0], last_act=acts[-1][0],
        acts=len(acts), root=root, at=now,
    )  # fmt: skip


def write_seal(connection: Connection, tenant: int, now: int) -> None:
    """What was committed since the last seal is sealed; if somebody else does it at this moment, they do."""
    if connection.many_writers and not connection.rows(ALONE, {"tenant": tenant})[0][0]:
        return
    seal = make_next_seal(connection, tenant, now)
    if seal is not None:
        connection.rows(INSERT, msgspec.structs.asdict(seal))


def walk_chain(
    connection: Connection, tenant: int, begin: Sealed = NOTHING, end: int | None = None
) -> Iterator[Sealed]:
    """How the chain of a tenant goes on from somewhere, act by act, up to where others may still come between."""
    until = read_horizon(connection) if end is None else end
    at = begin
    while rows := connection.rows(DIGESTS, {"tenant": tenant, "after": at.act, "end": until, "limit": SEALED_MOST}):
        for act, digest in rows:
            at = Sealed(act, at.acts + 1, roll(at.root, (digest,)))
            yield at
