"""Archives that are read from the picture of a reader: what `interlock archive` writes, without a lock."""

from collections.abc import Mapping
from hashlib import sha256

import msgspec

from interlock.core.archive import ArchivedTree, act_lines, lines
from interlock.kernel.errors import InterlockError, NotWanted
from interlock.kernel.ids import format_id
from interlock.kernel.lifecycle import Lifecycle
from interlock.kernel.rows import Unit
from interlock.plugins.state_files.queries import BELOW, OPEN_BELOW
from interlock.store.cache import EngineCache
from interlock.store.connection import Connection
from interlock.store.hooks import Hooks
from interlock.store.ids import Ids
from interlock.store.queries.snapshots import read_rows
from interlock.store.retention import split_ids
from interlock.store.unit_of_work import UnitOfWork

UNITS_MAX = 10_000  # of an archive that is one answer


def read_archive(
    connection: Connection, tenant: int, unit: int, *, lifecycles: Mapping[str, Lifecycle], hooks: Hooks
) -> str:
    """Returns a workstream and all below it as the lines of an archive; bytes beside the database are named there.

    Raises:
        NotWanted: it has not ended.
        InterlockError: it is a part of something else, or is too large for one answer.
    """
    given = {"tenant": tenant, "unit": unit}
    ((count, unfinished, parent),) = connection.rows(OPEN_BELOW, given)
    name = format_id("workstream", unit)
    if parent is not None:
        raise InterlockError(f"{name} is a part of something else; a whole tree is archived, from its top")
    if unfinished:
        raise NotWanted(f"{name} has not ended, or something below it; only what has ended is archived")
    if count > UNITS_MAX:
        raise InterlockError(
            f"{name} has {count:,} tasks and jobs, and an answer has up to {UNITS_MAX:,}; "
            "`interlock export` and `interlock archive` write it beside the database"
        )
    tx = UnitOfWork(connection, lifecycles, Ids(connection), [tenant], hooks, EngineCache(), connection.now())
    ids = [number for (number,) in connection.rows(BELOW, given)]
    units = [
        row for part in split_ids(ids) for row in read_rows(connection, Unit, "WHERE id {ids} ORDER BY id", ids=part)
    ]
    acts, rows = list(act_lines(tx, units, set())), list(lines(tx, units))
    end = ArchivedTree(id=name, unit=unit, units=count, digest=sha256(b"".join(rows)).hexdigest())
    return b"".join((*acts, *rows, msgspec.json.encode(end), b"\n")).decode()
