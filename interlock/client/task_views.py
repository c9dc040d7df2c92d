"""Response shapes of stored tasks."""

from typing import Any

from interlock.client.durations import format_time
from interlock.client.responses import TaskResponse
from interlock.kernel.durations import format_us
from interlock.plugins.tasks.definitions import read_parameters, read_rules
from interlock.plugins.tasks.queries import TaskDefinition

# Fields of work, and the names that rules have in programs.
NAMES = {
    "timeout_us": "timeout", "queue_timeout_us": "queue_timeout", "backoff_us": "backoff",
    "backoff_cap_us": "backoff_cap", "ttl_us": "lease", "beat_us": "beat", "sla_us": "sla", "keep_us": "keep",
}  # fmt: skip


def make_task(row: TaskDefinition) -> TaskResponse:
    """Makes a task of its row."""
    return TaskResponse(
        name=row.name, version=row.version, parameters=read_parameters(row), rules=make_rules(row),
        defined_at=format_time(row.defined_at), defined_by=row.defined_by,
    )  # fmt: skip


def make_rules(row: TaskDefinition) -> dict[str, Any]:
    """Makes the rules of a task under the names that programs give them; lengths of time as people write them."""
    rules = read_rules(row)
    if "limit_key" in rules:
        rules["limit"] = f"{rules.pop('limit')} of {rules.pop('limit_key')}"
    if "rate_key" in rules:
        rules["rate"] = f"{rules.pop('rate')} of {rules.pop('rate_key')} per {format_us(rules.pop('rate_per_us'))}"
    if "capabilities" in rules:
        rules["capabilities"] = list(rules["capabilities"])
    return {NAMES.get(name, name): format_us(value) if name in NAMES else value for name, value in rules.items()}
