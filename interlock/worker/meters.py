"""The budget as a handler sees it: `ctx.left("usd")`, `ctx.spent`, and when it must wait for an answer.

The engine counts. What is known here is what the grant said and what this attempt has told since: enough to choose how
much a call may cost, and to wait once a soft cap is reached.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from interlock.client.exceptions import Await
from interlock.kernel.budgets import STEPS, name_question, parse_amount, present_amount
from interlock.kernel.commands import MeterStatus
from interlock.worker.waiting import CHILD, Steps

if TYPE_CHECKING:
    from interlock.worker.context import JobContext

QUESTION = "budget "  # how the names of questions about budgets begin


class Meters:
    """What the run of a job has used, as far as this attempt knows."""

    def __init__(self, context: "JobContext") -> None:
        self.context = context
        self.known = {meter.name: meter for meter in context.grant.meters}
        self.questions = [
            child.name for child in context.grant.children if child.name.startswith(QUESTION) and child.outcome is None
        ]

    @property
    def spent(self) -> dict[str, float]:
        """What was used, by name."""
        return {name: present_amount(name, meter.used) for name, meter in self.known.items()}

    def left(self, name: str) -> float | None:
        """How much may be used still; None if there is no cap."""
        meter = self.known.get(name)
        return None if meter is None or meter.hard is None else present_amount(name, max(0, meter.hard - meter.used))

    def add(self, usage: Mapping[str, float], *, steps: int = 0) -> None:
        """This was used, by so many recorded steps."""
        used = {name: parse_amount(name, amount) for name, amount in usage.items()}
        for name, amount in ({**used, STEPS: steps} if steps else used).items():
            before = self.known.get(name) or MeterStatus(name, 0)
            meter = self.known[name] = MeterStatus(name, before.used + amount, before.soft, before.hard)
            if meter.soft is not None and meter.used > meter.soft:
                question = name_question(name, meter.soft)
                if question not in self.questions and question not in self.context.children:
                    self.questions.append(question)

    def wait_for_answers(self) -> Steps[None]:
        """Nothing more is spent until somebody has said whether it may be."""
        if self.questions:
            yield Await(*(CHILD + name for name in self.questions))
