"""The work of a run and of its first job, for whoever has no program that defines the agent."""

from collections.abc import Mapping
from typing import Any

import msgspec

from interlock.kernel.commands import Work
from interlock.plugins.agents.options import JOB, NAME, RUN, WORKER, AgentOptions


def make_works(
    agent: str, given: str, own: AgentOptions, *, key: str | None = None, queue: str | None = None,
    attempts: int | None = None, timeout_us: int | None = None, options: Mapping[str, Any] | None = None, **shared: Any,
) -> list[Work]:  # fmt: skip
    """Makes the work of a run, and that of the job that works for it.

    Parameters:
        given: the arguments, as JSON.
        own: what the run says of itself.
        options: what it says to other plugins, by their names.
        shared: fields that both have, such as labels.
    """
    encoded = msgspec.json.encode({**(options or {}), NAME: own}).decode()
    run = Work(
        task=agent, lifecycle=RUN, ref=RUN, input=given, key=key, timeout_us=timeout_us, options=encoded, **shared
    )  # fmt: skip
    job = Work(task=agent, lifecycle=JOB, parent=RUN, step=WORKER, input=given, attempts=attempts, **shared)
    return [run, job if queue is None else msgspec.structs.replace(job, queue=queue, explicit=("queue",))]
