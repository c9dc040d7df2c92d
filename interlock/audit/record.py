"""Laws of the record itself: acts are what their digests say, and seals are those of the acts below them."""

from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from interlock.kernel.paths import path_id
from interlock.kernel.rows import Act, Body, Seal
from interlock.store.acts import belonging, digest_of
from interlock.store.reads import read, read_acts, tenants
from interlock.store.seals import NOTHING, Sealed, chain
from interlock.store.session import Session

PAGE = 500  # acts read together
DIGESTS = "acts are what their digests say"
SEALS = "seals are those of the acts below them"
PATHS = "paths are what their digests say"


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with the record, and of which unit it tells."""

    law: str
    unit: int
    text: str


def judge_paths(session: Session) -> Iterator[Fault]:
    """A path is known by what it tells: history cannot be renamed."""
    for one, told, digest, lifecycle in session.rows("SELECT id, told, digest, lifecycle FROM transition_path"):
        found = sha256(told.encode()).hexdigest()
        if found != digest or path_id(found) != one:
            yield Fault(PATHS, 0, f"path {one} of {lifecycle} does not tell what it was listed for")
    sql = (
        "SELECT path, trigger, source, target, name, severity, lease_from, lease_to FROM path_hop ORDER BY path, place"
    )
    hops: dict[int, list[tuple[object, ...]]] = {}
    for path, *hop in session.rows(sql):
        hops.setdefault(path, []).append(tuple(hop))
    for one, told in session.rows("SELECT id, told FROM transition_path"):
        listed = [(*hop[:5], *hop[7:]) for hop in msgspec.json.decode(told)[5]]
        if listed != hops.get(one, []):
            yield Fault(PATHS, 0, f"the hops of path {one} are not those that it tells")


def judge_acts(session: Session) -> Iterator[Fault]:
    """Every act is what its digest says, and so is what is kept apart from it."""
    births = {one for (one,) in session.rows("SELECT id FROM transition_path WHERE source = ''")}
    after = 0
    while acts := read_acts(session, after, PAGE):
        after = acts[-1].id
        for act in acts:
            if digest_of(act) != act.digest or act.path != path_id(act.path_digest):
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


def judge_seals(session: Session) -> Iterator[Fault]:
    """Every seal has the root of all acts up to its last one, and no act lies below it that it does not know."""
    for tenant in tenants(session):
        seals = iter(read(session, Seal, "WHERE tenant = :tenant ORDER BY number", tenant=tenant))
        yield from judge_chain(tenant, seals, chain(session, tenant))


def judge_chain(tenant: int, seals: Iterator[Seal], acts: Iterator[Sealed]) -> Iterator[Fault]:
    at = NOTHING
    for number, seal in enumerate(seals, 1):
        if seal.number != number:
            yield Fault(SEALS, 0, f"seal {number} of tenant {tenant} is missing")
            return
        sealed, first = 0, 0
        while at.act < seal.last_act and (following := next(acts, None)) is not None:
            at, sealed, first = following, sealed + 1, first or following.act
        if (at.act, sealed, at.root, first) != (seal.last_act, seal.acts, seal.root, seal.first_act):
            yield Fault(
                SEALS, 0, f"seal {seal.number} of tenant {tenant} is not that of the acts up to {seal.last_act}: one "
                "of them was changed, added, removed or reordered",
            )  # fmt: skip
            return


def count_unsealed(session: Session) -> int:
    """How many acts no seal knows yet."""
    sql = (
        "SELECT count(*) FROM act WHERE tenant = :tenant "
        "AND id > (SELECT coalesce(max(last_act), 0) FROM seal WHERE tenant = :tenant)"
    )
    return sum(int(session.rows(sql, {"tenant": tenant})[0][0]) for tenant in tenants(session))
