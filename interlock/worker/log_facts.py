"""What every log line about a job says of it, so that programs can join the lines of one job, run or lease."""

from typing import Any

from interlock.core.lease_secrets import hashed
from interlock.kernel.commands import LeaseGrant
from interlock.kernel.ids import format_id

HASH_SHOWN = 16  # letters


def facts_of(grant: LeaseGrant) -> dict[str, Any]:
    """The job by the id that users see and by its number, its run's number, and its lease by the stored hash."""
    return {
        "id": format_id(grant.lifecycle, grant.unit), "unit": grant.unit, "run": grant.parent, "task": grant.task,
        "attempt": grant.attempt, "fence": grant.fence, "lease_hash": hashed(grant.lease)[:HASH_SHOWN],
    }  # fmt: skip
