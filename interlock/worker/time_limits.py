"""Cancel handlers that run longer than their time limit.

Handlers of one limit run out of time in the order in which they began, so one timer per limit is enough, and a handler
that ends in time costs a place in a dictionary and no timer of its own.
"""

import asyncio

from interlock.worker.execution import Execution

CI_ATTEMPT = "ci_attempt"


class TimeLimits:
    """The executions that have a time limit and run, in the order of their deadlines."""

    def __init__(self) -> None:
        self.deadlines: dict[int, dict[Execution, float]] = {}  # by limit, in µs; each of them has a timer

    def begin(self, execution: Execution) -> None:
        """Called on the loop, right before the handler of a job that has a time limit.

        The clock of a CI attempt is the engine's alone (A4-6): to its runner, its time ends with its lease.
        """
        limit_us, loop = execution.grant.timeout_us, asyncio.get_running_loop()
        assert limit_us is not None
        if execution.grant.lifecycle == CI_ATTEMPT:
            return
        deadline = loop.time() + limit_us / 1_000_000
        if limit_us not in self.deadlines:
            self.deadlines[limit_us] = {}
            loop.call_at(deadline, self.stop_late, limit_us, loop)
        self.deadlines[limit_us][execution] = deadline

    def end(self, execution: Execution) -> None:
        """Called when the handler has ended, or was never called."""
        assert execution.grant.timeout_us is not None
        self.deadlines.get(execution.grant.timeout_us, {}).pop(execution, None)

    def stop_late(self, limit_us: int, loop: asyncio.AbstractEventLoop) -> None:
        """Cancels those of a limit whose time is over, and comes back for the next one."""
        deadlines = self.deadlines[limit_us]
        while deadlines:
            execution, deadline = next(iter(deadlines.items()))
            if deadline > loop.time():
                loop.call_at(deadline, self.stop_late, limit_us, loop)
                return
            del deadlines[execution]
            execution.timed_out = True
            if execution.asyncio_task:
                execution.asyncio_task.cancel()
        del self.deadlines[limit_us]
