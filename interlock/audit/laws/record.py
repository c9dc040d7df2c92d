"""Laws of the record: paths, acts, leases and seals.

Acts are what their digests say, moved the units that they list, and granted the leases that there are; seals are those
of the acts below them.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from operator import attrgetter
from typing import Any

import msgspec

from interlock.kernel.paths import Path, PathHop, find_lease_end, path_id
from interlock.kernel.rows import Act, Lease, Seal
from interlock.store.acts import digest_act, digest_correlation
from interlock.store.connection import Connection
from interlock.store.queries import evidence
from interlock.store.queries.snapshots import read_acts, read_tenant_ids
from interlock.store.seals import Sealed, walk_chain

PAGE = 500  # acts, seals or leases read together
DIGESTS = "acts are what their digests say"
SEALS = "seals are those of the acts below them"
PATHS = "paths are what their digests say"
MOVED = "acts list the units that they moved"
LEASES = "leases are what acts have granted"


class RecordFault(msgspec.Struct, frozen=True):
    """What is wrong with the record, and of which unit it tells."""

    law: str
    unit: int
    text: str


def judge_paths(connection: Connection) -> Iterator[RecordFault]:
    """A path is known by what it tells, and moves units by nothing else: history cannot be renamed."""
    categories = evidence.read_lease_categories(connection)
    for row in evidence.read_listed_paths(connection):
        digest, lifecycle = sha256(row.text.encode()).hexdigest(), row.derived[0]
        if digest != row.digest or path_id(digest) != row.id:
            yield RecordFault(PATHS, 0, f"path {row.id} of {lifecycle} does not tell what it was listed for")
            continue
        path, derived, hops = derive_path(row.text)
        if row.derived != [*derived, len(path.hops), find_lease_end(categories.get(path.lease_to or ""))]:
            yield RecordFault(PATHS, 0, f"path {row.id} of {lifecycle} makes something else of a unit than it tells")
        if row.hops != hops:
            yield RecordFault(PATHS, 0, f"the hops of path {row.id} are not those that it tells")


@lru_cache(maxsize=10_000)  # there are a thousand, and whoever audits again finds the same ones
def derive_path(text: str) -> tuple[Path, tuple[Any, ...], list[tuple[Any, ...]]]:
    """What a path tells, the columns that follow from it, and its hops as the database lists them."""
    path = decode_path(text)
    return path, attrgetter(*evidence.DERIVED[:-2])(path), list(sum_hops(path))


def decode_path(text: str) -> Path:
    """Decodes a path from the text that the database keeps."""
    lifecycle, category, outcome, started, forced, hops = msgspec.json.decode(text)
    return Path(lifecycle, tuple(PathHop(*hop) for hop in hops), category, outcome, started, bool(forced))


def sum_hops(path: Path) -> Iterator[tuple[Any, ...]]:
    """The hops of a path as the database lists them: attempt and fence are those of all hops up to each."""
    attempt = fence = 0
    for hop in path.hops:
        attempt, fence = attempt + hop.attempt, fence + hop.fence
        yield tuple(hop._replace(attempt=attempt, fence=fence))


def judge_acts(connection: Connection, from_seal: int = 1) -> Iterator[RecordFault]:
    """Every act is what its digest says, and so is what is kept apart from it."""
    paths, births = evidence.read_path_digests(connection)
    after = min(
        evidence.read_seal_before(connection, tenant, from_seal).last_act for tenant in read_tenant_ids(connection)
    )
    while acts := read_acts(connection, after, PAGE):
        after = acts[-1].id
        for act in acts:
            if digest_act(act) != act.digest or paths.get(act.path) != act.path_digest:
                yield RecordFault(
                    DIGESTS, act.units[0] if act.units else 0, f"act {act.id} is not what its digest says"
                )
        yield from judge_details(connection, [act for act in acts if act.details and act.path not in births])
        yield from judge_births(connection, [act for act in acts if act.path in births])


def judge_details(connection: Connection, acts: Iterable[Act]) -> Iterator[RecordFault]:
    """What was told of single units is what the act knows; what was dropped is told no more."""
    digests = {
        (act.id, unit): digest for act in acts for unit, digest in zip(act.units, act.details or (), strict=True)
    }
    for act, unit, payload in evidence.read_details(connection, (act for act, _ in digests)) if digests else ():
        if digests.get((act, unit)) != sha256(payload.encode()).hexdigest():
            yield RecordFault(DIGESTS, unit, f"what act {act} tells of it is not what its digest says")


def judge_births(connection: Connection, acts: Iterable[Act]) -> Iterator[RecordFault]:
    """A unit's correlation and trace are those that it was born with."""
    digests = {
        unit: digest
        for act in acts
        for unit, digest in zip(act.units, act.details or [None] * len(act.units), strict=True)
    }
    for body in evidence.read_bodies(connection, digests):
        if digest_correlation(body) != digests[body.unit]:
            yield RecordFault(DIGESTS, body.unit, "its correlation or its trace is not the one that it was born with")


def judge_members(connection: Connection) -> Iterator[RecordFault]:
    """The acts that list a unit are those that made its row: no more, no fewer, and no others."""
    for unit, version, events in evidence.find_units_that_differ_from_their_acts(connection):
        yield RecordFault(MOVED, unit, f"it is at version {version}, and the acts that list it come to {events} events")
    for unit, act in evidence.find_lone_members(connection):
        yield RecordFault(MOVED, unit, f"it is a member of act {act} by one table alone")


def judge_leases(connection: Connection) -> Iterator[RecordFault]:
    """Every lease is on the terms on which an act has granted it, and is live exactly while its units are under it."""
    for unit in evidence.find_units_without_their_lease(connection):
        yield RecordFault(LEASES, unit, "it is under a lease of which there is no live row")
    for held, act in evidence.read_held_units(connection):
        if find_grant(act, held.unit) != (held.tenant, held.holder, held.secret):
            yield RecordFault(LEASES, held.unit, f"it is under lease {held.lease}, which no act has granted so")
    for lease, act, live in evidence.read_all_leases(connection, PAGE):
        if not is_granted(lease, act):
            yield RecordFault(LEASES, lease.unit, f"lease {lease.id} is not what an act has granted")
        if lease.unit and lease.ended_at is None and live != lease.id:
            yield RecordFault(LEASES, lease.unit, f"lease {lease.id} is live, and it is not under it")
    for row in evidence.count_units_under_leases(connection):
        if row.units != row.under:
            yield RecordFault(LEASES, 0, f"lease {row.lease} counts {row.units} units, and {row.under} are under it")
        if row.under <= row.apart:
            yield RecordFault(LEASES, 0, f"lease {row.lease} has a row for many, and nobody is under that row")


def find_grant(act: Act | None, unit: int) -> tuple[int, int | None, str] | None:
    """The tenant, the worker and the hash of the secret by which an act has granted a unit; None if it did not."""
    if act is None or unit not in act.units or not act.secrets:
        return None
    return act.tenant, act.worker, act.secrets[act.units.index(unit)]


def is_granted(lease: Lease, act: Act | None) -> bool:
    """Whether an act has granted this lease; it may have been made longer since. Of many units it is one row."""
    if act is None or not act.secrets or (lease.ttl, lease.beat) != (act.ttl, act.beat):
        return False
    if lease.unit:
        grant, is_sound = find_grant(act, lease.unit), lease.units == 1
    else:
        grant, is_sound = (act.tenant, act.worker, ""), lease.ended_at is None
    return is_sound and grant == (lease.tenant, lease.worker, lease.secret) and lease.until >= (act.until or 0)


def judge_seals(connection: Connection, from_seal: int = 1) -> Iterator[RecordFault]:
    """Every seal is that of all acts behind the seal before it, and no act lies there that it does not know.

    Each is judged by itself, from the root of the one before it: a fault is told where it is, and whoever trusts the
    seals up to one of them begins behind it.
    """
    for tenant in read_tenant_ids(connection):
        before = evidence.read_seal_before(connection, tenant, from_seal)
        while seals := evidence.read_seals_after(connection, before, PAGE):
            for seal in seals:
                if seal.number != before.number + 1:
                    yield RecordFault(SEALS, 0, f"seal {before.number + 1} of tenant {tenant} is missing")
                elif not is_sealed_so(connection, before, seal):
                    yield RecordFault(
                        SEALS, 0, f"seal {seal.number} of tenant {tenant} is not that of the acts up to "
                        f"{seal.last_act}: one of them was changed, added, removed or reordered",
                    )  # fmt: skip
                before = seal


def is_sealed_so(connection: Connection, before: Seal, seal: Seal) -> bool:
    """Whether a seal has the root, the number and the ends of the acts between the one before it and its last one."""
    first, last = 0, Sealed(before.last_act, 0, before.root)
    for at in walk_chain(connection, seal.tenant, last, seal.last_act + 1):
        first, last = first or at.act, at
    return (first, *last) == (seal.first_act, seal.last_act, seal.acts, seal.root)
