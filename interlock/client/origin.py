"""What is being run here, so that what a handler submits belongs to it.

A worker sets `RUNNING` where it calls a handler; it is a context variable, so it goes with coroutines, tasks and
`asyncio.to_thread`, and jobs that run beside each other have each their own. A thread that a handler starts by itself
has it if it is started with `contextvars.copy_context().run`.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec

from interlock.kernel.commands import LeaseGrant, Work
from interlock.kernel.ids import format_id

if TYPE_CHECKING:
    from interlock.client.app import App

RUNNING: "ContextVar[tuple[App, LeaseGrant] | None]" = ContextVar("interlock_running", default=None)


def inherit(app: "App", work: Work) -> Work:
    """Work that a handler submits has the handler's correlation and trace, unless it says others, and names its cause.

    The cause is the event by which the handler's job was handed to its worker, if it is of the same app: another
    database does not know it.
    """
    running = RUNNING.get()
    if running is None:
        return work
    own, grant = running
    return msgspec.structs.replace(
        work,
        correlation=work.correlation or grant.correlation,
        trace=work.trace or grant.trace,
        cause=f"{format_id(grant.lifecycle, grant.unit)}:{grant.version}" if own is app else "",
    )
