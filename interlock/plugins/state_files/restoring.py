"""An archived tree comes back into a database that has not got it, under its own ids.

Nothing but an act makes a unit or moves one, and that is how a tree comes back: the acts that its file holds are
written once more, in their order, each with those of its units that belong to the tree. They have other ids than
before, since the id of an act is its place in this database; times, actors, reasons and payloads are those of then. The
database checks every one of them, as it does with any other act. At the end every unit must be what the file says that
it was, or nothing has happened.

Ids are the difficulty. Programs take them in blocks, so one that nobody has used yet may be in somebody's block. An id
is free if the database has not given it out: it lies beyond the last block, or in a stretch that an earlier restore has
skipped (`skipped_ids`).
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

import msgspec

from interlock.core.operator_verbs import refuse_unless_operator
from interlock.kernel.commands import ArchivedLane, RestoreTree
from interlock.kernel.errors import InterlockError
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Category
from interlock.kernel.paths import BORN, LISTED, OUTCOME, SET, SET_ANEW
from interlock.kernel.rows import (
    Act,
    ActDetail,
    Archived,
    Artifact,
    Body,
    Event,
    ForcedMove,
    NamedPlace,
    Need,
    Note,
    Row,
    Unit,
    WorkerRow,
)
from interlock.plugins.state_files.queries import (
    ADD_RESTORED,
    ADD_SKIPPED_IDS,
    ARCHIVED_AMONG,
    LOCK_IDS,
    NOTES_AMONG,
    PATHS,
    RAISE_IDS,
    SKIPPED_IDS,
    TAKEN_KEY,
    UNITS_AMONG,
)
from interlock.store.acts import next_act_id
from interlock.store.queries.for_verbs import find_or_make_lane
from interlock.store.queries.snapshots import read_rows
from interlock.store.retention import split_ids
from interlock.store.unit_of_work import UnitOfWork

ACTS_MAX = 200_000  # of one transaction
DIFFERENT = ("act", "born", "lane")  # columns that name what is another one in this database


class KnownPath(msgspec.Struct, frozen=True):
    """What a path makes of a unit."""

    id: int
    source: str
    target: str
    category: str | None
    outcome: int
    started: int
    hops: int
    opens: int
    forced: int
    retired: int


def restore_tree(tx: UnitOfWork, command: RestoreTree) -> int:
    """The tree is there, with its history, and `restored` says where from.

    Raises:
        InterlockError: it is there already, an id of it is not free, or its file does not tell how it came to be.
    """
    refuse_unless_operator(tx, "restore an archive", Archived.table)
    tree = {row.id: row for row in command.rows if isinstance(row, Unit)}
    refuse_others(tx, command, tree.values())
    tx.changes.count += 1  # what follows is written at once: a refusal from now on takes all of it back
    take_ids(tx, [*tree, *(row.id for row in command.rows if isinstance(row, Note))])
    lanes = {lane.id: find_lane(tx, command.tenant, lane) for lane in command.lanes}
    units = {number: msgspec.structs.replace(unit, lane=lanes.get(unit.lane, 0)) for number, unit in tree.items()}
    ActWriter(tx, units, command.rows).write(command.acts)
    for kind in (Body, NamedPlace, Need, Note, Artifact, WorkerRow):  # places before the needs of them
        rows = [row for row in command.rows if isinstance(row, kind)]
        insert(tx, [row for row in rows if not isinstance(row, Need) or row.needs in units])
    compare(tx, units)
    for hook in tx.hooks.restore_rows:
        hook(tx, units.keys(), command.others)
    given = {"tenant": command.tenant, "at": tx.now, "actor": command.describe_actor(), "file": command.file}
    tx.connection.many(ADD_RESTORED, [{"unit": unit, "top": command.unit, **given} for unit in units])
    return len(units)


def find_lane(tx: UnitOfWork, tenant: int, lane: ArchivedLane) -> int:
    """Finds the lane that an archived unit was in, or makes it."""
    return find_or_make_lane(tx, tenant, lane.queue, [name for name in lane.capabilities.split(",") if name], lane.task)


def insert(tx: UnitOfWork, rows: Sequence[Row]) -> None:
    """Inserts rows, if there are any."""
    if rows:
        tx.connection.insert(rows)


def refuse_others(tx: UnitOfWork, command: RestoreTree, units: Iterable[Unit]) -> None:
    """Raises InterlockError if the tree cannot come back here, whatever its history is."""
    tree = list(units)
    if not tree or any(unit.id == command.unit and unit.parent is not None for unit in tree):
        raise InterlockError(f"'{command.file}' holds no whole tree")
    for unit in tree:
        name = format_id(unit.lifecycle, unit.id)
        if unit.tenant != command.tenant:
            raise InterlockError(f"{name} is of tenant {unit.tenant}; give --tenant {unit.tenant}")
        if unit.lifecycle not in tx.lifecycles:
            raise InterlockError(f"{name} is of the lifecycle '{unit.lifecycle}', which this program does not know")
        if unit.outcome is None:
            raise InterlockError(f"{name} is {unit.state}; only what has ended comes back")
    names = {unit.id: format_id(unit.lifecycle, unit.id) for unit in tree}
    for part in split_ids(sorted(names)):
        for taken, lifecycle in tx.connection.rows(UNITS_AMONG, {"ids": part}):
            if format_id(lifecycle, taken) == names[taken]:
                raise InterlockError(f"{names[taken]} is in this database already")
            raise InterlockError(f"the id of {names[taken]} is that of {format_id(lifecycle, taken)} in this database")
        for (taken,) in tx.connection.rows(ARCHIVED_AMONG, {"ids": part}):
            raise InterlockError(
                f"{names[taken]} was archived from this database, which has a part of its history; name another one"
            )
    for body in (row for row in command.rows if isinstance(row, Body) and row.key is not None):
        given = {"tenant": body.tenant, "task": body.task, "key": body.key}
        if tx.connection.rows(TAKEN_KEY, given):
            raise InterlockError(
                f"the key '{body.key}' of {names[body.unit]} already belongs to something else in this database"
            )


def take_ids(tx: UnitOfWork, ids: Sequence[int]) -> None:
    """Nobody else is given these ids.

    Raises:
        InterlockError: somebody may have them already.
    """
    ((beyond,),) = tx.connection.rows(LOCK_IDS)
    tx.ids.give_up()
    known = {(first, end) for first, end in tx.connection.rows(SKIPPED_IDS)}
    last, skipped = max(ids), [stretch for stretch in tx.ids.given_up if stretch not in known]
    if last >= beyond:
        skipped.append((beyond, last))
        tx.connection.many(RAISE_IDS, [{"beyond": last + 1}])
    if skipped:
        given = [{"first": first, "last": end, "tenant": tx.tenant} for first, end in skipped]
        tx.connection.many(ADD_SKIPPED_IDS, given)
    free = tx.connection.rows(SKIPPED_IDS)
    for number in ids:
        if not any(first <= number <= end for first, end in free):
            raise InterlockError(
                f"this database gives out ids up to {beyond - 1} itself, and {number} is one of them: restore into a "
                "database of its own, such as --db sqlite:///restored.db"
            )
    for part in split_ids(sorted(ids)):
        if taken := tx.connection.rows(NOTES_AMONG, {"ids": part}):
            raise InterlockError(f"the id {taken[0][0]} already belongs to something else in this database")


class ActWriter:
    """Writes the acts of a tree once more."""

    def __init__(self, tx: UnitOfWork, units: dict[int, Unit], rows: Sequence[Row]) -> None:
        self.tx, self.units = tx, units
        self.paths = {digest: KnownPath(*row) for digest, *row in tx.connection.rows(PATHS)}
        self.versions = dict.fromkeys(units, 0)
        self.last = dict.fromkeys(units, 0)  # by unit, the act that moved it last
        self.acts: dict[int, int] = {}  # by the id of then, that of now
        self.payloads = {(row.unit, row.version): row.payload for row in rows if isinstance(row, Event)}
        self.forced = {(row.unit, row.version): row for row in rows if isinstance(row, ForcedMove)}

    def write(self, acts: Iterable[Act]) -> None:
        """Writes acts in an order in which each finds its units where it begins.

        Raises:
            InterlockError: the file does not hold the whole history.
        """
        waiting = sorted((act for act in acts if self.versions.keys() & set(act.units)), key=lambda act: act.id)
        if len(waiting) > ACTS_MAX:
            raise InterlockError(f"its history has {len(waiting)} changes; at most {ACTS_MAX} come back at once")
        while waiting:
            later = []
            for act in waiting:
                members = [place for place, unit in enumerate(act.units) if unit in self.units]
                if all(self.versions[act.units[place]] == act.version for place in members):
                    self.write_act(act, members)
                else:
                    later.append(act)
            if len(later) == len(waiting):
                raise InterlockError("the file does not hold the whole history of this tree")
            waiting = later

    def write_act(self, act: Act, members: Sequence[int]) -> None:
        """Writes an act with those of its units that are given by their places in it."""
        path, units = self.paths.get(act.path_digest), [act.units[place] for place in members]
        name = format_id(self.units[units[0]].lifecycle, units[0])
        if path is None or path.retired:
            raise InterlockError(f"{name} made a transition that its lifecycle does not list here; it cannot come back")
        leases = None if act.leases is None else [self.find_act(act.leases[place]) for place in members]
        again = msgspec.structs.replace(
            act, id=next_act_id(self.tx), path=path.id, units=units, before=[self.last[unit] for unit in units],
            leases=leases, secrets=act.secrets and [act.secrets[place] for place in members],
            details=act.details and [act.details[place] for place in members],
        )  # fmt: skip
        if path.forced:
            insert(self.tx, [self.forced[unit, act.version + path.hops] for unit in units])
        born = [make_born(self.units[unit], again, path) for unit in units] if path.source == BORN else []
        self.tx.connection.write_acts([again], born)
        insert(self.tx, list(self.find_details(again, path)))
        self.acts[act.id] = again.id
        for unit in units:
            self.versions[unit] += path.hops
            self.last[unit] = again.id

    def find_act(self, before: int | None) -> int | None:
        return None if before is None else self.acts.get(before, 0)

    def find_details(self, act: Act, path: KnownPath) -> Iterator[ActDetail]:
        """Finds what an act keeps of single units beside it: payloads whose digests it has."""
        for unit, digest in zip(act.units, act.details or (), strict=False):
            for version in range(act.version + 1, act.version + path.hops + 1):
                payload = self.payloads.get((unit, version), "")
                if sha256(payload.encode()).hexdigest() == digest:
                    yield ActDetail(act.id, unit, act.tenant, payload)


def make_born(unit: Unit, act: Act, path: KnownPath) -> Unit:
    """Returns a unit's row as the act leaves it that makes it; what no act writes is as it was at the end."""
    return msgspec.structs.replace(
        unit, state=path.target, category=path.category or "", version=path.hops, act=act.id, born=act.id,
        outcome=path.category if path.outcome == OUTCOME else None, changed_at=act.at, attempt=1 + path.opens, fence=0,
        started_at=act.at if path.started in (SET, SET_ANEW) else None, available_at=act.at if act.available else None,
        lease=None, lease_id=None, holder=None, lease_until=None,
        rests_in=path.target if path.category in LISTED else None,
        dead_at=act.at if path.category == Category.DEAD else None,
    )  # fmt: skip


def compare(tx: UnitOfWork, units: dict[int, Unit]) -> None:
    """Raises InterlockError if a unit is not what it was when it was archived."""
    columns = [name for name in Unit.__struct_fields__[: -Unit.apart] if name not in DIFFERENT]
    there: dict[int, Unit] = {}
    for part in split_ids(sorted(units)):
        there |= {unit.id: unit for unit in read_rows(tx.connection, Unit, "WHERE id {ids}", ids=part)}
    for number, unit in units.items():
        for name in columns:
            if number not in there or getattr(there[number], name) != getattr(unit, name):
                raise InterlockError(
                    f"the file does not have the events that explain {name} of {format_id(unit.lifecycle, number)}"
                )
