"""The process in which a run is planned: it reads a request from its standard input, and writes the plan.

A config comes with the change that it judges, so whoever wrote it may have meant harm: it is read in a process with
limits, which is started for one plan.
"""

import sys

import msgspec

from interlock.kernel.errors import InterlockError
from interlock.plugins.ci.planner import CiPlan
from interlock.plugins.ci.requests import PlanRequest, make_plan


class PlanAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan, or why there is none."""

    plan: CiPlan | None = None
    failed: str = ""


def answer(request: PlanRequest) -> PlanAnswer:
    """Returns the plan that a request asks for, or why there can be none."""
    try:
        return PlanAnswer(make_plan(request))
    except InterlockError as error:
        return PlanAnswer(failed=str(error))


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(answer(msgspec.json.decode(sys.stdin.buffer.read(), type=PlanRequest))))
