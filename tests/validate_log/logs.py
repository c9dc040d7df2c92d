"""Logs for the tests: lines of document 003, and the checker on a few of them."""

import io
import json
from collections.abc import Iterable
from typing import Any

from interlock.audit.log.checker import Checker, LogFinding
from interlock.kernel.lifecycle import Lifecycle
from interlock.lifecycles import shipped

LIFECYCLES = [lifecycle for lifecycle in shipped().values() if lifecycle.document == "003"]

QUEUE = ("pending", "queued", "scheduler_assigned")
START = ("queued", "running", "worker_started")
FINISH = ("running", "validating", "execution_completed")
PASS = ("validating", "completed", "validation_passed")
RETRY = ("running", "retrying", "execution_failed")
AGAIN = ("retrying", "queued", "retry_delay_elapsed")
FAIL = ("running", "failed", "execution_failed")
CANCEL = ("running", "cancelled", "user_cancelled")
EXTENSION = ("queued", "cancelled", "user_cancelled")

CREATED = ("planned", "ready", "all_tasks_created")
BEGIN = ("ready", "executing", "first_task_started")
GATHER = ("executing", "validating", "all_tasks_completed")
MERGE = ("validating", "completed", "validation_passed")
DOOM = ("executing", "failed", "critical_task_failed")

REGISTER = ("initializing", "idle", "registration_complete")
ASSIGN = ("idle", "busy", "task_assigned")
FREE = ("busy", "idle", "task_completed")
SILENT = ("busy", "unresponsive", "health_check_timeout")
RECOVER = ("unresponsive", "idle", "health_check_recovered")
DRAIN = ("idle", "shutdown", "shutdown_requested")
LEAVE = ("busy", "shutdown", "shutdown_requested")


def line(at: int, entity: str, move: tuple[str | None, str, str], **metadata: Any) -> dict[str, Any]:
    """A line `at` so many milliseconds; the kind of entity is known by its first letters."""
    kind = {"t": "task", "s": "workstream", "w": "worker"}[entity[0]]
    return {
        "timestamp": f"2024-01-15T10:30:{at // 1000:02}.{at % 1000:03}Z",
        "event_type": f"{kind}_state_transition",
        "severity": "info",
        "entity_id": entity,
        "from_state": move[0],
        "to_state": move[1],
        "trigger": move[2],
        "metadata": metadata,
    }


def text(lines: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in lines)


def check_bytes(log: bytes, lifecycles: Iterable[Lifecycle] = LIFECYCLES, **options: Any) -> list[LogFinding]:
    return list(Checker(lifecycles, **options).findings(io.BytesIO(log)))


def check(*lines: dict[str, Any], **options: Any) -> list[LogFinding]:
    """What is wrong with a log of these lines."""
    return check_bytes(text(lines).encode(), **options)


def told(findings: list[LogFinding]) -> list[tuple[int, str, str]]:
    """Findings without what would have been legal, and without the entity."""
    return [(finding.line, finding.rule, finding.message) for finding in findings]
