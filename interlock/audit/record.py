"""Laws of the record itself: acts are what their digests say, moved the units that they list, and granted the leases
that there are; seals are those of the acts below them."""

from collections.abc import Iterable, Iterator
from hashlib import sha256
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from interlock.kernel.paths import BORN, LIVE, Path, PathHop, path_id
from interlock.kernel.rows import Act, Body, Lease, Seal
from interlock.store.acts import belonging, digest_of
from interlock.store.reads import pages, read, read_acts, select_acts, tenants
from interlock.store.seals import START, Sealed, chain
from interlock.store.session import Session

PAGE = 500  # acts, seals or leases read together
DIGESTS = "acts are what their digests say"
SEALS = "seals are those of the acts below them"
PATHS = "paths are what their digests say"
MOVED = "acts list the units that they moved"
LEASES = "leases are what acts have granted"
# What the acts that list a unit come to, where its row says something else.
UNLIKE_ACTS = """
SELECT unit.id, unit.version, listed.events FROM unit LEFT JOIN (
    SELECT told.unit, sum(path.hops) AS events, min(told.act) AS first_act, max(told.act) AS last_act
    FROM {told} AS told JOIN transition_path AS path ON path.id = told.path GROUP BY told.unit) AS listed
ON listed.unit = unit.id
WHERE unit.id > :last AND (listed.unit IS NULL OR listed.events <> unit.version
                           OR listed.first_act <> unit.born OR listed.last_act <> unit.act)
ORDER BY unit.id LIMIT :page
"""
# SQLite finds the acts of a unit by a table of its own, which is in the order of units and is held against the acts.
TOLD = {
    "sqlite": "(SELECT member.unit, member.act, act.path FROM member CROSS JOIN act ON act.id = member.act)",
    "postgres": "journal_unit",
}
MEMBERS = "SELECT unit, act, version FROM {one} EXCEPT SELECT unit, act, version FROM {other}"
# Units under a lease of which there is no live row.
NO_LEASE = """
SELECT unit.id FROM unit LEFT JOIN lease ON lease.unit = unit.id AND lease.id = unit.lease_id
AND lease.ended_at IS NULL AND lease.worker = unit.holder
WHERE unit.id > :last AND unit.lease_id IS NOT NULL AND lease.id IS NULL ORDER BY unit.id LIMIT :page
"""
NEXT_LEASES = "WHERE (unit, id) > (:unit, :id) ORDER BY unit, id LIMIT :page"
# What a trigger derives from what a path tells; the last two are not fields of a path.
DERIVED = (
    "lifecycle, source, target, category, outcome, started, forced, payload_hop, opens, grants, lease_from, lease_to, "
    "hops, lease_ends"
)


class Unsealed(NamedTuple):
    """How many acts are not sealed yet, and when the first of them was."""

    acts: int
    since: int | None


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with the record, and of which unit it tells."""

    law: str
    unit: int
    text: str


def judge_paths(session: Session) -> Iterator[Fault]:
    """A path is known by what it tells, and moves units by nothing else: history cannot be renamed."""
    ends = dict(session.rows("SELECT target, min(category) FROM edge WHERE lifecycle = 'lease' GROUP BY target"))
    hops: dict[int, list[tuple[Any, ...]]] = {}
    for path, *hop in session.rows(f"SELECT path, {', '.join(PathHop._fields)} FROM path_hop ORDER BY path, place"):
        hops.setdefault(path, []).append(tuple(hop))
    for one, told, digest, *derived in session.rows(f"SELECT id, told, digest, {DERIVED} FROM transition_path"):
        found = sha256(told.encode()).hexdigest()
        if found != digest or path_id(found) != one:
            yield Fault(PATHS, 0, f"path {one} of {derived[0]} does not tell what it was listed for")
            continue
        listed = path_told(told)
        live = listed.lease_to is None or ends.get(listed.lease_to) in LIVE
        if derived != [*attrgetter(*DERIVED.split(", ")[:-2])(listed), len(listed.hops), int(not live)]:
            yield Fault(PATHS, 0, f"path {one} of {derived[0]} makes something else of a unit than it tells")
        if hops.get(one) != list(counted_hops(listed)):
            yield Fault(PATHS, 0, f"the hops of path {one} are not those that it tells")


def path_told(text: str) -> Path:
    lifecycle, category, outcome, started, forced, hops = msgspec.json.decode(text)
    return Path(lifecycle, tuple(PathHop(*hop) for hop in hops), category, outcome, started, bool(forced))


def counted_hops(path: Path) -> Iterator[tuple[Any, ...]]:
    """The hops of a path as the database lists them: attempt and fence are those of all hops up to each."""
    attempt = fence = 0
    for hop in path.hops:
        attempt, fence = attempt + hop.attempt, fence + hop.fence
        yield tuple(hop._replace(attempt=attempt, fence=fence))


def judge_acts(session: Session, from_seal: int = 1) -> Iterator[Fault]:
    """Every act is what its digest says, and so is what is kept apart from it."""
    rows = session.rows("SELECT id, digest, source FROM transition_path")
    paths, births = {one: digest for one, digest, _ in rows}, {one for one, _, source in rows if source == BORN}
    after = min(seal_before(session, tenant, from_seal).last_act for tenant in tenants(session))
    while acts := read_acts(session, after, PAGE):
        after = acts[-1].id
        for act in acts:
            if digest_of(act) != act.digest or paths.get(act.path) != act.path_digest:
                yield Fault(DIGESTS, act.units[0] if act.units else 0, f"act {act.id} is not what its digest says")
        yield from judge_details(session, [act for act in acts if act.details and act.path not in births])
        yield from judge_births(session, [act for act in acts if act.path in births])


def judge_details(session: Session, acts: Iterable[Act]) -> Iterator[Fault]:
    """What was told of single units is what the act knows; what was dropped is told no more."""
    told = {(act.id, unit): digest for act in acts for unit, digest in zip(act.units, act.details or (), strict=True)}
    if not told:
        return
    sql = "SELECT act, unit, payload FROM act_detail WHERE act {ids}"
    for act, unit, payload in session.rows(sql, {"ids": sorted({act for act, _ in told})}):
        if told.get((act, unit)) != sha256(payload.encode()).hexdigest():
            yield Fault(DIGESTS, unit, f"what act {act} tells of it is not what its digest says")


def has_erased_details(session: Session, unit: int) -> bool:
    """Whether something was told of a unit that is told no more: what it cost may have been among it."""
    of_unit = "WHERE id IN (SELECT act FROM event WHERE unit = :unit) AND details IS NOT NULL AND version > 0"
    acts = select_acts(session, of_unit, unit=unit)
    told = {act.id for act in acts if act.details and act.details[act.units.index(unit)] is not None}
    kept = session.rows("SELECT act FROM act_detail WHERE unit = :unit", {"unit": unit}) if told else []
    return bool(told - {act for (act,) in kept})


def judge_births(session: Session, acts: Iterable[Act]) -> Iterator[Fault]:
    """A unit's correlation and trace are those that it was born with."""
    told = {
        unit: digest
        for act in acts
        for unit, digest in zip(act.units, act.details or [None] * len(act.units), strict=True)
    }
    for body in read(session, Body, "WHERE unit {ids}", ids=sorted(told)) if told else ():
        if belonging(body) != told[body.unit]:
            yield Fault(DIGESTS, body.unit, "its correlation or its trace is not the one that it was born with")


def judge_members(session: Session) -> Iterator[Fault]:
    """The acts that list a unit are those that made its row: no more, no fewer, and no others."""
    for unit, version, events in pages(session, UNLIKE_ACTS.format(told=TOLD[session.name])):
        yield Fault(MOVED, unit, f"it is at version {version}, and the acts that list it come to {events or 0} events")
    if session.name == "sqlite":
        for one, other in (("member", "journal_unit"), ("journal_unit", "member")):
            for unit, act, _ in session.rows(MEMBERS.format(one=one, other=other)):
                yield Fault(MOVED, unit, f"it is a member of act {act} by one table alone")


def judge_leases(session: Session) -> Iterator[Fault]:
    """Every lease is on the terms on which an act has granted it, and is live exactly while its unit is under it."""
    for (unit,) in pages(session, NO_LEASE):
        yield Fault(LEASES, unit, "it is under a lease of which there is no live row")
    at = {"unit": 0, "id": 0}
    while leases := read(session, Lease, NEXT_LEASES, page=PAGE, **at):
        at = {"unit": leases[-1].unit, "id": leases[-1].id}
        acts = {act.id: act for act in select_acts(session, "WHERE id {ids}", ids=sorted({one.id for one in leases}))}
        sql = "SELECT id, lease_id FROM unit WHERE id {ids}"
        live = dict(session.rows(sql, {"ids": sorted({one.unit for one in leases})}))
        for lease in leases:
            if not is_granted(lease, acts.get(lease.id)):
                yield Fault(LEASES, lease.unit, f"lease {lease.id} is not what an act has granted")
            if lease.ended_at is None and live.get(lease.unit) != lease.id:
                yield Fault(LEASES, lease.unit, f"lease {lease.id} is live, and it is not under it")


def is_granted(lease: Lease, act: Act | None) -> bool:
    """Whether an act has granted this lease; it may have been made longer since."""
    if act is None or lease.unit not in act.units or not act.secrets:
        return False
    secret = act.secrets[act.units.index(lease.unit)]
    granted = act.tenant, act.worker, secret, act.ttl, act.beat
    return granted == (lease.tenant, lease.worker, lease.secret, lease.ttl, lease.beat) and lease.until >= (
        act.until or 0
    )


def judge_seals(session: Session, from_seal: int = 1) -> Iterator[Fault]:
    """Every seal is that of all acts behind the seal before it, and no act lies there that it does not know.

    Each is judged by itself, from the root of the one before it: a fault is told where it is, and whoever trusts the
    seals up to one of them begins behind it.
    """
    for tenant in tenants(session):
        before = seal_before(session, tenant, from_seal)
        while found := next_seals(session, tenant, before.number):
            for seal in found:
                if seal.number != before.number + 1:
                    yield Fault(SEALS, 0, f"seal {before.number + 1} of tenant {tenant} is missing")
                elif not is_sealed_so(session, before, seal):
                    yield Fault(
                        SEALS, 0, f"seal {seal.number} of tenant {tenant} is not that of the acts up to "
                        f"{seal.last_act}: one of them was changed, added, removed or reordered",
                    )  # fmt: skip
                before = seal


def seal_before(session: Session, tenant: int, number: int) -> Seal:
    """The seal before the one of that number; if there are not so many, what comes before the first one."""
    found = read(session, Seal, "WHERE tenant = :tenant AND number = :last", tenant=tenant, last=number - 1)
    return found[0] if found else Seal(tenant=tenant, number=0, first_act=0, last_act=0, acts=0, root=START, at=0)


def next_seals(session: Session, tenant: int, after: int) -> list[Seal]:
    rest = "WHERE tenant = :tenant AND number > :after ORDER BY number LIMIT :page"
    return read(session, Seal, rest, tenant=tenant, after=after, page=PAGE)


def is_sealed_so(session: Session, before: Seal, seal: Seal) -> bool:
    """Whether a seal has the root, the number and the ends of the acts between the one before it and its last one."""
    first, last = 0, Sealed(before.last_act, 0, before.root)
    for at in chain(session, seal.tenant, last, seal.last_act + 1):
        first, last = first or at.act, at
    return (first, *last) == (seal.first_act, seal.last_act, seal.acts, seal.root)


def count_unsealed(session: Session) -> Unsealed:
    """How many acts no seal knows yet: who changes one of these is found by nothing but its own digest."""
    sql = (
        "SELECT count(*), min(at) FROM act WHERE tenant = :tenant "
        "AND id > (SELECT coalesce(max(last_act), 0) FROM seal WHERE tenant = :tenant)"
    )
    found = [session.rows(sql, {"tenant": tenant})[0] for tenant in tenants(session)]
    return Unsealed(sum(int(count) for count, _ in found), min((at for _, at in found if at is not None), default=None))
