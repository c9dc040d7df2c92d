"""What schedules read and write."""

from dataclasses import dataclass, field

from interlock.kernel.errors import Unknown
from interlock.kernel.rows import Schedule
from interlock.store.query import select
from interlock.store.unit_of_work import TableUpdate, UnitOfWork

DUE_SCHEDULES = select(
    Schedule,
    "WHERE tenant = :tenant AND next_at IS NOT NULL AND next_at <= :now ORDER BY next_at, name LIMIT :limit {skip}",
)
SCHEDULE = select(Schedule, "WHERE tenant = :tenant AND name = :name {lock}")
SCHEDULES = TableUpdate(Schedule, ("tenant", "name"))
NAMES = "SELECT name FROM schedule WHERE tenant = :tenant AND removed_at IS NULL ORDER BY name LIMIT 10"


@dataclass
class ScheduleState:
    """The schedules that a transaction has read or made, by tenant and name."""

    schedules: dict[tuple[int, str], Schedule] = field(default_factory=dict)


def lock_due_schedules(tx: UnitOfWork, limit: int) -> list[Schedule]:
    """Returns schedules of the tenant that have an instant to look at, locked, the longest overdue first."""
    schedules = tx.state(ScheduleState).schedules
    rows = tx.run(DUE_SCHEDULES.bind(tenant=tx.tenant, limit=limit))
    known = [schedules.setdefault((row.tenant, row.name), row) for row in rows]
    return [row for row in known if row.next_at is not None and row.next_at <= tx.now]


def find_schedule(tx: UnitOfWork, tenant: int, name: str) -> Schedule | None:
    """Returns a schedule by its name, locked, if there is one; also one that was removed."""
    schedules = tx.state(ScheduleState).schedules
    if (tenant, name) not in schedules:
        for row in tx.run(SCHEDULE.bind(tenant=tenant, name=name)):
            schedules[tenant, name] = row
    return schedules.get((tenant, name))


def get_schedule(tx: UnitOfWork, tenant: int, name: str) -> Schedule:
    """Returns a schedule by its name, locked.

    Raises:
        Unknown: There is none, or it was removed; the message names those that there are.
    """
    schedule = find_schedule(tx, tenant, name)
    if schedule is None or schedule.removed_at is not None:
        schedules = tx.state(ScheduleState).schedules
        names = {name for (name,) in tx.connection.rows(NAMES, {"tenant": tenant})}
        names -= {row.name for row in schedules.values() if row.tenant == tenant and row.removed_at is not None}
        gone = f"schedule '{name}' was removed" if schedule else f"there is no schedule '{name}'"
        raise Unknown(f"{gone}; there are {', '.join(sorted(names)) or 'none'}")
    return schedule


def add_schedule(tx: UnitOfWork, schedule: Schedule) -> None:
    """Adds a new schedule."""
    tx.add(schedule)
    tx.state(ScheduleState).schedules[schedule.tenant, schedule.name] = schedule
