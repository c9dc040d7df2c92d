"""What nobody may do: changing a database behind its guard, as whoever owns it could."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from interlock.kernel.rows import Act, ActGone, Seal, columns
from interlock.store.acts import digest_act
from interlock.store.postgres import PostgresConnection
from interlock.store.queries.snapshots import read_rows, read_tenant_ids, select_acts
from interlock.store.seals import DIGESTS, SEALED_MOST, START, roll
from tests.store.databases import Connection, swap
from tests.store.raw_acts import LISTS, as_array, encode_list


@contextmanager
def behind_the_guard(connection: Connection, server: str) -> Iterator[Connection]:
    """A connection whose statements no guard sees; what it did stays, unless it rolls back, and the guard is back."""
    if isinstance(connection, PostgresConnection):
        owner = PostgresConnection(swap(server, connection.raw.info.dbname), connection.clock)
        try:
            owner.begin()
            owner.rows("SET session_replication_role = replica")
            yield owner
            owner.rows("COMMIT")
        finally:
            owner.close()
        return
    connection.begin()
    guard = connection.rows("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    for name, _ in guard:
        connection.rows(f"DROP TRIGGER {name}")
    yield connection
    if connection.raw.in_transaction:
        for _, sql in guard:
            connection.rows(sql)
        connection.commit()


def acts_of(database: Connection, unit: int) -> list[Act]:
    """The acts that list a unit, in order."""
    listed = "id IN (SELECT act FROM journal_unit WHERE unit = :unit)"
    return select_acts(database, f"WHERE {listed} ORDER BY id", unit=unit)


def write_again(database: Connection, act: Act) -> None:
    """The act says what it says now, and its digest fits: on PostgreSQL the database sees to that itself."""
    row = {name: getattr(act, name) for name in columns(Act) if name != "id"}
    if database.many_writers:
        sets = [f"{name} = (:{name})::{LISTS[name]}" if name in LISTS else f"{name} = :{name}" for name in row]
        sent = {name: as_array(value) if name in LISTS else value for name, value in row.items()}
    else:
        row["digest"] = digest_act(act)
        sets = [f"{name} = :{name}" for name in row]
        sent = {name: encode_list(value) for name, value in row.items()}
    database.rows(f"UPDATE act SET {', '.join(sets)} WHERE id = :id", {**sent, "id": act.id})


def seal_again(database: Connection) -> None:
    """Every seal is that of the acts that are there now; one that has none left has never been."""
    for tenant in read_tenant_ids(database):
        seals = read_rows(database, Seal, "WHERE tenant = :tenant ORDER BY number", tenant=tenant)
        database.rows("DELETE FROM seal WHERE tenant = :tenant", {"tenant": tenant})
        root, number, last = START, 0, 0
        for seal in seals:
            given = {"tenant": tenant, "after": last, "end": seal.last_act + 1, "limit": SEALED_MOST}
            if acts := database.rows(DIGESTS, given):
                number, root, last = number + 1, roll(root, (digest for _, digest in acts)), acts[-1][0]
                made = Seal(tenant, number, acts[0][0], last, len(acts), root, seal.at)
                database.insert([made])


def rewrite(database: Connection, unit: int, **changes: Any) -> None:
    """The acts of a unit say something else, and every digest and every seal fits."""
    for act in acts_of(database, unit):
        for name, value in changes.items():
            setattr(act, name, value)
        write_again(database, act)
    seal_again(database)


def erase(database: Connection, unit: int) -> None:
    """The unit has never been: acts that listed others too list only these."""
    for act in acts_of(database, unit):
        strike(database, act, unit)
    for table, column in (("body", "unit"), ("lease", "unit"), ("act_detail", "unit"), ("unit", "id")):
        database.rows(f"DELETE FROM {table} WHERE {column} = :unit", {"unit": unit})
    seal_again(database)


def strike(database: Connection, act: Act, unit: int) -> None:
    """The act does not list the unit any more; one that lists nobody else is gone, and has left nothing."""
    if not database.many_writers:
        database.rows("DELETE FROM member WHERE unit = :unit AND act = :act", {"unit": unit, "act": act.id})
    if act.units == [unit]:
        database.rows("DELETE FROM act WHERE id = :act", {"act": act.id})
        return
    place = act.units.index(unit)
    for name in LISTS:
        if getattr(act, name) is not None:
            setattr(act, name, [value for at, value in enumerate(getattr(act, name)) if at != place])
    write_again(database, act)


def cut(database: Connection, unit: int) -> None:
    """A job that is held has never been claimed: everything but its birth is gone, and the row fits."""
    database.rows(
        "UPDATE worker SET holding = holding - 1 WHERE unit = (SELECT holder FROM unit WHERE id = :unit)",
        {"unit": unit},
    )
    birth, *later = acts_of(database, unit)
    for act in later:
        strike(database, act, unit)
    of_unit = "id = (SELECT lease_id FROM unit WHERE id = :unit)"
    database.rows(f"DELETE FROM lease WHERE {of_unit} AND (unit = :unit OR units = 1)", {"unit": unit})
    database.rows(f"UPDATE lease SET units = units - 1 WHERE {of_unit}", {"unit": unit})
    database.rows(
        "UPDATE unit SET state = 'queued', category = 'ready', version = 1, act = :act, fence = 0, lease = NULL, "
        "lease_id = NULL, lease_hash = NULL, holder = NULL, wake_at = NULL, available_at = :at, changed_at = :at WHERE id = :unit",
        {"unit": unit, "act": birth.id, "at": birth.at},
    )
    seal_again(database)


def take_out(database: Connection, unit: int) -> None:
    """A unit leaves the database as retention takes it out: acts that list nobody else leave their digests."""
    for act in acts_of(database, unit):
        if act.units == [unit]:
            database.insert([ActGone(act.id, act.tenant, act.digest)])
            strike(database, act, unit)
    for table, column in (("body", "unit"), ("lease", "unit"), ("act_detail", "unit"), ("unit", "id")):
        database.rows(f"DELETE FROM {table} WHERE {column} = :unit", {"unit": unit})
