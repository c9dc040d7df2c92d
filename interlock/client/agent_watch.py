"""Live state of an agent run: its phase, what it has spent and may spend, and open questions."""

from collections.abc import Iterable

import msgspec

from interlock.client.budgets import list_meters
from interlock.kernel.budgets import format_amount
from interlock.kernel.commands import MeterStatus
from interlock.kernel.ids import format_id
from interlock.plugins.agents.options import JOB, RUN, read_agent_options
from interlock.plugins.agents.queries import read_meters_of_run, read_work_below
from interlock.store.connection import Connection
from interlock.store.queries.views import View

APPROVAL = "approval"


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question of a run that nobody has answered: its id in the inbox, and what it is called."""

    id: str
    name: str


class AgentProgress(msgspec.Struct, frozen=True):
    """What an agent run is at."""

    id: str
    phase: str  # its state
    meters: tuple[MeterStatus, ...]
    questions: tuple[OpenQuestion, ...]


def read_agent_progress(connection: Connection, tenant: int, run: View) -> AgentProgress:
    """What an agent run is at now."""
    unit, caps = run.unit.id, read_agent_options(run.body).budget or {}
    meters = list_meters(read_meters_of_run(connection, tenant, unit), caps)
    jobs = [work.id for work in read_work_below(connection, tenant, unit) if work.lifecycle == JOB]
    below = [work for parent in (unit, *jobs) for work in read_work_below(connection, tenant, parent)]
    questions = [work for work in below if work.lifecycle == APPROVAL and work.outcome is None]
    return AgentProgress(
        format_id(RUN, unit), run.unit.state, tuple(meters),
        tuple(OpenQuestion(format_id(APPROVAL, work.id), work.task) for work in questions),
    )  # fmt: skip


def describe_progress(progress: AgentProgress) -> str:
    """The phase, what is spent and left, and the open questions, in one line."""
    asks = [f"asks '{question.name}' ({question.id})" for question in progress.questions]
    return "; ".join((progress.phase, *filter(None, (describe_spent(progress.meters), *asks))))


def describe_spent(meters: Iterable[MeterStatus]) -> str:
    """What was used, and may still be, as in `tokens 400, 600 left`."""
    parts = [f"{meter.name} {format_amount(meter.name, meter.used)}{describe_left(meter)}" for meter in meters]
    return "spent " + ", ".join(parts) if parts else ""


def describe_left(meter: MeterStatus) -> str:
    """Says how much of a budget is left; empty if there is no cap."""
    return "" if meter.hard is None else f" ({format_amount(meter.name, max(0, meter.hard - meter.used))} left)"
