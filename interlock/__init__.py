"""Interlock: a durable work orchestrator on one small kernel of explicit state machines."""

from interlock.client.agent_tools import tool
from interlock.client.agents import Agent, AgentRun
from interlock.client.app import App, open  # noqa: A004
from interlock.client.budgets import budget
from interlock.client.children import child
from interlock.client.ci_runs import CiRun
from interlock.client.context import AgentContext, Context
from interlock.client.exceptions import (
    Cancelled,
    Drift,
    Failed,
    NoAnswer,
    NoSignal,
    NotDone,
    Outage,
    Reject,
    Rejected,
    Result,
    Retry,
    Snooze,
    StillWaiting,
)
from interlock.client.jobs import Job
from interlock.client.repositories import merge
from interlock.client.runs import Run
from interlock.client.tasks import Task, counted, exclusive, limit, rate, rated, shared
from interlock.client.workflows import Workflow, approval, parallel, shell, step
from interlock.client.workstream_runs import WorkstreamRun
from interlock.client.workstream_tasks import map, task  # noqa: A004
from interlock.client.workstreams import Workstream
from interlock.kernel.errors import InterlockError, LeaseConflictError, PermanentError, TransientError, ValidationError

__version__ = "0.1.0"
__all__ = [
    "Agent", "AgentContext", "AgentRun", "App", "Cancelled", "CiRun", "Context", "Drift", "Failed",
    "InterlockError", "Job", "LeaseConflictError", "NoAnswer", "NoSignal", "NotDone", "Outage", "PermanentError",
    "Reject", "Rejected", "Result", "Retry", "Run", "Snooze", "StillWaiting", "Task", "TransientError",
    "ValidationError", "Workflow", "Workstream", "WorkstreamRun", "approval", "budget", "child", "counted",
    "exclusive", "limit", "map", "merge", "open", "parallel", "rate", "rated", "shared", "shell", "step", "task",
    "tool",
]  # fmt: skip
