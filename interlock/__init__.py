"""Interlock: a durable work orchestrator on one small kernel of explicit state machines."""

from interlock.client.app import App, open  # noqa: A004
from interlock.client.context import Context
from interlock.client.jobs import Job
from interlock.client.outcomes import Cancelled, Failed, Reject, Retry, Snooze, StillWaiting
from interlock.client.tasks import Task, limit, rate
from interlock.kernel.errors import InterlockError, LeaseConflictError, PermanentError, TransientError, ValidationError

__version__ = "0.1.0"
__all__ = [
    "App", "Cancelled", "Context", "Failed", "InterlockError", "Job", "LeaseConflictError", "PermanentError", "Reject",
    "Retry", "Snooze", "StillWaiting", "Task", "TransientError", "ValidationError", "limit", "open", "rate",
]  # fmt: skip
